//! `tepal attach`: a filesystem that stays mounted while its server is killed and started again.

use super::{Mounted, check_ext4, compare_files, make_ext4, obstacle, write_file};
use crate::cluster::{Media, Plan, command_for};
use crate::program::{Ended, run, until};
use crate::{need_root, skip};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// A volume that is attached. It's detached when this is dropped, also by force.
pub struct Attached<'a> {
    data: &'a Path,
    pub run_folder: PathBuf,
    volume: String,
    pub device: PathBuf,
    /// Which use of the device it is.
    pub used: Option<String>,
}

/// The kernel counts the uses of devices.
pub fn use_of(device: &Path) -> Option<String> {
    let name = device.file_name()?.to_str()?;
    std::fs::read_to_string(format!("/sys/block/{name}/diskseq")).ok()
}

impl<'a> Attached<'a> {
    /// `data` is the server's data folder.
    pub fn new(data: &'a Path, volume: &str, arguments: &[&str]) -> Attached<'a> {
        Self::kept_in(data, &data.with_file_name("run"), volume, arguments)
    }

    /// Beside others in one run folder.
    pub fn kept_in(data: &'a Path, run_folder: &Path, volume: &str, arguments: &[&str]) -> Attached<'a> {
        let (run_folder, volume) = (run_folder.to_owned(), volume.to_owned());
        let mut attached = Attached { data, run_folder, volume, device: PathBuf::new(), used: None };
        let device = attached.tepal("attach", arguments).succeeded();
        attached.device = device.trim().into();
        attached.used = use_of(&attached.device);
        attached
    }

    /// The volume was given this name.
    fn renamed(&mut self, name: &str) {
        self.volume = name.to_owned();
    }

    pub fn tepal(&self, verb: &str, arguments: &[&str]) -> Ended {
        let mut tepal = command_for(self.data);
        run(tepal.args([verb, &self.volume, "--run-folder"]).arg(&self.run_folder).args(arguments))
    }

    pub fn detach(self) {
        self.tepal("detach", &[]).succeeded();
    }
}

impl Drop for Attached<'_> {
    fn drop(&mut self) {
        // Fails if it was detached already, or never attached.
        self.tepal("detach", &["--force"]);
    }
}

/// Writes file after file to a folder, each synced, until it's told to end.
pub struct FileWriter {
    stop: Arc<AtomicBool>,
    /// So many files are synced.
    synced: Arc<AtomicU64>,
    thread: std::thread::JoinHandle<std::io::Result<()>>,
}

const WAIT: Duration = Duration::from_secs(60);

impl FileWriter {
    pub fn start(folder: &Path) -> Self {
        let (stop, synced) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (folder, until, count) = (folder.to_owned(), stop.clone(), synced.clone());
        let work = move || {
            while !until.load(Ordering::Acquire) {
                write_file(&folder, count.load(Ordering::Acquire) % 300, true)?;
                count.fetch_add(1, Ordering::AcqRel);
            }
            Ok(())
        };
        FileWriter { stop, synced, thread: std::thread::spawn(work) }
    }

    /// So many files are synced by then.
    pub fn go_on_for(&self, files: u64) -> u64 {
        let before = self.synced.load(Ordering::Acquire);
        until("files to be written", WAIT, || {
            let synced = self.synced.load(Ordering::Acquire);
            (self.thread.is_finished() || synced >= before + files).then_some(synced)
        })
    }

    /// How many files there are; panics if one couldn't be written.
    pub fn finish(self) -> u64 {
        self.stop.store(true, Ordering::Release);
        self.thread.join().expect("it has no reason to panic").expect("no write fails while a server is away");
        self.synced.load(Ordering::Acquire).min(300)
    }
}

#[test]
fn ext4_on_an_attached_volume_stays_mounted_through_kill_9_while_files_are_written() {
    if let Some(why) = obstacle() {
        skip!("{why}");
    }
    for (media, layout) in [(Media::Files, "mirror:2"), (Media::Memory, "stripe")] {
        let mut cluster = Plan { media, ..Plan::default() }.up();
        cluster.create("v0", "128M", layout);
        let (data, at) = (cluster.data(), cluster.folder().join("mnt"));
        let attached = Attached::new(&data, "v0", &[]);
        make_ext4(&attached.device);
        let mounted = Mounted::new(&attached.device, &at, "rw");
        let writer = FileWriter::start(&at);
        for _ in 0..3 {
            writer.go_on_for(20);
            cluster.kill();
            cluster.start();
        }
        writer.go_on_for(20);
        let files = writer.finish();
        mounted.unmount();
        attached.detach();

        let attached = Attached::new(&data, "v0", &["--read-only"]);
        check_ext4(&attached.device);
        let mounted = Mounted::new(&attached.device, &at, "ro");
        compare_files(&at, 0..files);
        mounted.unmount();
        attached.detach();
        cluster.scrub_finds_nothing("v0");
        cluster.stop_and_check_drives();
    }
}

#[test]
fn a_device_in_use_is_not_taken_away_and_a_volume_is_attached_once() {
    if let Some(why) = obstacle() {
        skip!("{why}");
    }
    let cluster = Plan::default().up();
    cluster.create("v0", "32M", "mirror:2");
    let (data, at) = (cluster.data(), cluster.folder().join("mnt"));
    let attached = Attached::new(&data, "v0", &[]);
    let again = attached.tepal("attach", &[]).refused(1);
    assert!(again.contains("already attached"), "{again}");
    make_ext4(&attached.device);
    let mounted = Mounted::new(&attached.device, &at, "rw");
    write_file(&at, 1, false).expect("space");
    let busy = attached.tepal("detach", &[]).refused(1);
    assert!(busy.contains("in use"), "{busy}");
    compare_files(&at, [1]);
    mounted.unmount();
    attached.detach();
    let attached = Attached::new(&data, "v0", &[]);
    let mounted = Mounted::new(&attached.device, &at, "ro");
    compare_files(&at, [1]);
    mounted.unmount();
    attached.detach();
}

#[test]
fn what_can_not_be_attached_leaves_nothing_behind() {
    need_root!();
    let cluster = Plan::default().up();
    let run_folder = cluster.folder().join("run");
    let run_folder = run_folder.to_str().expect("a path of ours");
    let unknown = cluster.tepal(&["attach", "v9", "--run-folder", run_folder]).refused(1);
    assert!(unknown.contains("there is no volume 'v9'"), "{unknown}");
    let not_there = cluster.tepal(&["detach", "v9", "--run-folder", run_folder]).refused(1);
    assert!(not_there.contains("nothing is attached as 'v9'"), "{not_there}");
    let list = cluster.ask(&["attach", "--list", "--run-folder", run_folder]);
    assert_eq!(list, serde_json::json!([]));
}

/// Story: the device waited for ever after a rename and a restart, and the volume could be attached twice.
#[test]
fn an_attached_volume_that_is_renamed_stays_what_it_is_through_kill_9_though_another_takes_its_name() {
    if let Some(why) = obstacle() {
        skip!("{why}");
    }
    let mut cluster = Plan::default().up();
    cluster.create("v0", "32M", "mirror:2");
    let (data, at) = (cluster.data(), cluster.folder().join("mnt"));
    let mut attached = Attached::new(&data, "v0", &[]);
    make_ext4(&attached.device);
    let mounted = Mounted::new(&attached.device, &at, "rw");
    write_file(&at, 1, true).expect("space");
    cluster.tepal(&["volume", "rename", "v0", "v1"]).succeeded();
    cluster.create("v0", "32M", "mirror:2");
    attached.renamed("v1");
    let again = attached.tepal("attach", &[]).refused(1);
    assert!(again.contains("already attached"), "{again}");
    cluster.kill();
    cluster.start();
    write_file(&at, 2, true).expect("it goes on with the server");
    compare_files(&at, [1, 2]);
    mounted.unmount();
    let in_use = cluster.tepal(&["volume", "rm", "v1"]).refused(1);
    assert!(in_use.contains("a client is connected"), "{in_use}");
    cluster.tepal(&["volume", "rename", "v1", "v2"]).succeeded();
    attached.renamed("v2");
    attached.detach();

    assert!(cluster.connect("v0").read(0, 32 << 20).expect("read").iter().all(|&byte| byte == 0), "it was never used");
    let attached = Attached::new(&data, "v2", &["--read-only"]);
    let mounted = Mounted::new(&attached.device, &at, "ro");
    compare_files(&at, [1, 2]);
    mounted.unmount();
    attached.detach();
}
