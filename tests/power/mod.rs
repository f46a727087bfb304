//! Power loss, of all drives and of the disk that the metadata is on, at one moment under load. What was not flushed is lost
//! in part; the server is killed; then all of it is started again from what is left.
//!
//! The drives are files of a folder of FUSE's that this program serves: see [`shelf`]. The metadata is on an ext4
//! filesystem, on a loop device, on one more of these files.

mod media;
mod shelf;

use crate::cluster::{Cluster, Plan, tepal};
use crate::filesystems::{Mounted, make_ext4, obstacle, unmount};
use crate::nbd::{Ledger, Writer, noise};
use crate::program::{command, run, until};
use crate::{need, skip};
pub use media::{Media, Operation};
pub use shelf::Shelf;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

const DRIVES: usize = 4;
const DRIVE_SIZE: usize = 64 << 20;
const METADATA_SIZE: usize = 64 << 20;
/// No story makes a machine, with all its packages, for longer.
const LET_GO: Duration = Duration::from_secs(180);
/// The number of the disk of the metadata on the shelf.
const METADATA: usize = DRIVES;

/// A cluster that loses its power.
struct Rig {
    shelf: Arc<Shelf>,
    powered: Option<Powered>,
    cluster: Cluster,
}

/// What must be let go in this order: the filesystem, its disk, and what that is on.
struct Powered {
    filesystem: Mounted,
    disk: LoopDevice,
    folder: fuser::BackgroundSession,
}

struct LoopDevice(PathBuf);

impl LoopDevice {
    fn new(file: &Path) -> Self {
        let device = run(command("losetup", ["--find", "--show"]).arg(file)).succeeded();
        LoopDevice(device.trim().into())
    }

    /// Waits until the kernel has closed the file. Somebody who copied all mounts in the meantime has the filesystem
    /// mounted too, and with it the device open: a namespace of mounts that another story made for its machine.
    fn detach(self, file: &Path) {
        let name = self.0.file_name().expect("a device").to_owned();
        drop(self);
        let backing = Path::new("/sys/block").join(name).join("loop/backing_file");
        let backing = || std::fs::read_to_string(&backing).unwrap_or_default();
        until("the loop device to be let go", LET_GO, || (backing().trim_end() != file.as_os_str()).then_some(()));
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        run(command("losetup", ["--detach"]).arg(&self.0));
    }
}

impl Rig {
    fn new() -> Self {
        let drives = (0..DRIVES).map(|number| (format!("drive{number}"), Media::new(DRIVE_SIZE)));
        let metadata = ("metadata".to_owned(), Media::new(METADATA_SIZE));
        let shelf = Shelf::new(drives.chain([metadata]).collect());
        let mut cluster = Plan { drives: 0, ..Plan::default() }.made();
        std::fs::create_dir(folder_of(&cluster)).expect("ours");
        let drives = (0..DRIVES).map(|number| drive_of(&cluster, number).display().to_string());
        cluster.plan().arguments = drives.flat_map(|drive| ["--drive".to_owned(), drive]).collect();
        let mut rig = Rig { shelf, powered: None, cluster };
        rig.plug_in(true);
        let mode = std::fs::Permissions::from_mode(0o700);
        std::fs::set_permissions(rig.cluster.data(), mode).expect("our own filesystem");
        rig.cluster.start();
        rig
    }

    fn plug_in(&mut self, new: bool) {
        let at = folder_of(&self.cluster);
        let folder = self.shelf.show(&at).expect("FUSE works here");
        let disk = LoopDevice::new(&at.join("metadata"));
        if new {
            make_ext4(&disk.0);
        }
        let filesystem = Mounted::new(&disk.0, &self.cluster.data(), "noatime");
        self.powered = Some(Powered { filesystem, disk, folder });
    }

    /// All at once; the server is dead then. How many of the devices had something to lose.
    fn lose_power(&mut self, seed: u64) -> usize {
        let unflushed = self.shelf.lose_power(seed);
        self.cluster.strike();
        self.shelf.let_go();
        self.cluster.kill();
        self.unplug();
        unflushed
    }

    fn unplug(&mut self) {
        let Powered { filesystem, disk, folder } = self.powered.take().expect("it's plugged in");
        filesystem.unmount();
        disk.detach(&folder_of(&self.cluster).join("metadata"));
        close_folder(&folder_of(&self.cluster), folder);
    }

    fn check_drives(&self) {
        for number in 0..DRIVES {
            run(Command::new(tepal()).args(["drive", "check"]).arg(drive_of(&self.cluster, number))).succeeded();
        }
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        if self.cluster.runs() {
            self.cluster.strike();
            self.shelf.let_go();
            self.cluster.kill();
        }
    }
}

/// One more drive of a running cluster, whose device does as its shelf is told.
pub struct Shelved {
    pub shelf: Arc<Shelf>,
    pub path: PathBuf,
    folder: PathBuf,
    shown: fuser::BackgroundSession,
}

impl Shelved {
    pub fn add(cluster: &Cluster, size: usize) -> Shelved {
        let folder = folder_of(cluster);
        std::fs::create_dir(&folder).expect("ours");
        let shelf = Shelf::new(vec![("failing".to_owned(), Media::new(size))]);
        let shown = shelf.show(&folder).expect("FUSE works here");
        let path = folder.join("failing");
        cluster.tepal(&["drive", "add", "s1", path.to_str().expect("ours")]).succeeded();
        Shelved { shelf, path, folder, shown }
    }

    /// The cluster doesn't use it any more.
    pub fn close(self) {
        close_folder(&self.folder, self.shown);
    }
}

/// A killed process's files stay open until the kernel has ended its requests to io_uring.
fn close_folder(at: &Path, folder: fuser::BackgroundSession) {
    unmount(at);
    folder.join().expect("what served it has ended");
}

fn folder_of(cluster: &Cluster) -> PathBuf {
    cluster.folder().join("shelf")
}

fn drive_of(cluster: &Cluster, number: usize) -> PathBuf {
    folder_of(cluster).join(format!("drive{number}"))
}

const ROUNDS: u64 = 4;

#[test]
fn what_was_promised_outlives_the_loss_of_power_at_any_moment() {
    need!("fusermount3");
    if let Some(why) = obstacle() {
        skip!("{why}");
    }
    for (story, layout) in
        ["mirror:2", "stripe", "mirror:2;durability=flush", "stripe;durability=flush", "ec:2+2", "ec:3+1"]
            .into_iter()
            .enumerate()
    {
        let mut rig = Rig::new();
        rig.cluster.create("v0", "8M", layout);
        let ledger = Ledger::new(71, 2048);
        let ledger = if layout.contains("flush") { ledger.only_flushed() } else { ledger };
        let writer = Writer::start(rig.cluster.address(), "v0", ledger);
        let mut unflushed = 0;
        for round in 0..ROUNDS {
            // Not at the same place of a checkpoint each time.
            writer.go_on_for(500 + 333 * round);
            unflushed += rig.lose_power(ROUNDS * story as u64 + round);
            rig.plug_in(false);
            rig.check_drives();
            rig.cluster.start();
            assert_eq!(rig.cluster.drives_say("state"), ["up"; DRIVES], "{layout}, round {round}");
        }
        writer.go_on_for(500);
        let mut ledger = writer.finish();
        ledger.compare(&mut rig.cluster.connect("v0"));
        rig.cluster.wait_until_healthy("v0");
        rig.cluster.scrub_finds_nothing("v0");
        rig.cluster.stop();
        rig.check_drives();
        let flushes: Vec<u64> = (0..=METADATA).map(|number| rig.shelf.media(number).flushes).collect();
        println!("{layout}: {unflushed} devices had something to lose, flushes of each: {flushes:?}");
        assert!(unflushed > 0 && flushes.iter().all(|flushes| *flushes > 0), "it tested nothing");
        rig.unplug();
    }
}

#[test]
fn volumes_and_drives_that_were_made_or_removed_just_before_the_power_went_are_as_was_said() {
    need!("fusermount3");
    if let Some(why) = obstacle() {
        skip!("{why}");
    }
    let mut rig = Rig::new();
    let mut volumes: Vec<String> = Vec::new();
    for round in 0..6 {
        let name = format!("v{round}");
        rig.cluster.create(&name, "4M", "mirror:2");
        volumes.push(name);
        if round % 2 == 1 {
            let gone = volumes.remove(0);
            rig.cluster.tepal(&["volume", "rm", &gone, "--no-wait"]).succeeded();
        }
        rig.lose_power(100 + round);
        rig.plug_in(false);
        rig.cluster.start();
        let found = rig.cluster.ask(&["volume", "ls"]);
        let names: Vec<&str> =
            found.as_array().expect("a list").iter().filter_map(|volume| volume["name"].as_str()).collect();
        assert_eq!(names, volumes);
        assert_eq!(rig.cluster.drives_say("state"), ["up"; DRIVES]);
    }
    rig.cluster.stop();
    rig.check_drives();
    rig.unplug();
}

/// The layouts that the volume goes through; where there is power again, it goes on.
const WAY: [&str; 4] = ["stripe;extent=4K", "mirror:2;extent=4M", "mirror:3", "mirror:2"];

#[test]
fn a_volume_that_is_on_its_way_and_its_snapshots_outlive_the_loss_of_power() {
    need!("fusermount3");
    if let Some(why) = obstacle() {
        skip!("{why}");
    }
    let mut rig = Rig::new();
    rig.cluster.create("v0", "16M", "mirror:2");
    let still = noise(81, 4 << 20);
    rig.cluster.connect("v0").write(12 << 20, &still).expect("written");
    let writer = Writer::start(rig.cluster.address(), "v0", Ledger::new(82, 2048));
    let (mut kept, mut halfway): (Vec<(String, Vec<u8>)>, u64) = (Vec::new(), 0);
    for (round, layout) in (0..).zip(WAY) {
        writer.go_on_for(300);
        let name = format!("v0@s{round}");
        rig.cluster.tepal(&["snapshot", "create", &name]).succeeded();
        let seen = rig.cluster.connect(&name).read(0, 16 << 20).expect("read");
        kept.push((name, seen));
        rig.cluster.tepal(&["volume", "relayout", "v0", "--layout", layout, "--rate", "1M", "--no-wait"]).succeeded();
        for half in 0..2 {
            writer.go_on_for(200 + 111 * round);
            if half == 1 && kept.len() == 2 {
                let (gone, _) = kept.remove(0);
                rig.cluster.tepal(&["snapshot", "rm", &gone]).succeeded();
            }
            rig.lose_power(200 + 2 * round + half);
            rig.plug_in(false);
            rig.check_drives();
            rig.cluster.start();
            halfway += u64::from(!rig.cluster.volume("v0")["migration"].is_null());
            for (name, kept) in &kept {
                let now = rig.cluster.connect(name).read(0, 16 << 20).expect("read");
                assert!(now == *kept, "{name}, round {round}");
            }
        }
        // Unless it's there already.
        rig.cluster.tepal(&["volume", "rate", "v0", "auto"]);
        assert_eq!(rig.cluster.wait_until_there("v0"), layout);
    }
    assert!(halfway >= WAY.len() as u64, "it was there before the power went");
    let mut ledger = writer.finish();
    ledger.compare(&mut rig.cluster.connect("v0"));
    assert!(rig.cluster.connect("v0").read(12 << 20, 4 << 20).expect("read") == still);
    rig.cluster.wait_until_healthy("v0");
    rig.cluster.scrub_finds_nothing("v0");
    rig.cluster.tepal(&["volume", "rm", "v0", "--snapshots"]).succeeded();
    rig.cluster.wait_until_all_is_free();
    rig.cluster.stop();
    rig.check_drives();
    rig.unplug();
}
