//! ext4 on a loop device, on nbdfuse: the kernel's filesystem on a volume, with nothing of ours between.

use super::{Mounted, check_ext4, compare_files, make_ext4, obstacle, write_file};
use crate::cluster::{Cluster, Media, Plan};
use crate::program::{command, kill_group, run, spawn, until};
use crate::{need, skip};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

const SOON: Duration = Duration::from_secs(30);

/// An NBD export as a loop device. It's taken apart when it's dropped.
pub struct Disk {
    pub device: PathBuf,
    mountpoint: PathBuf,
    nbdfuse: Child,
}

impl Disk {
    /// By a FUSE filesystem in a folder that is made.
    pub fn new(mountpoint: PathBuf, uri: &str) -> Disk {
        std::fs::create_dir_all(&mountpoint).expect("a folder of ours");
        let mut nbdfuse = command("nbdfuse", [&mountpoint]);
        let nbdfuse = spawn(nbdfuse.arg(uri).stderr(Stdio::null()));
        let mut disk = Disk { device: PathBuf::new(), mountpoint, nbdfuse };
        let file = disk.mountpoint.join("nbd");
        until("nbdfuse to show its file", SOON, || file.exists().then_some(()));
        let device = run(command("losetup", ["--find", "--show"]).arg(&file)).succeeded();
        disk.device = device.trim().into();
        disk
    }
}

fn disk_of(cluster: &Cluster, volume: &str) -> Disk {
    Disk::new(cluster.folder().join("fuse"), &cluster.uri(volume))
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Each may fail if what is below is gone; the next cleans up then.
        if self.device.starts_with("/dev") {
            run(command("losetup", ["--detach"]).arg(&self.device));
        }
        run(command("fusermount3", ["-u", "-z"]).arg(&self.mountpoint));
        kill_group(&mut self.nbdfuse);
    }
}

#[test]
fn what_was_synced_to_ext4_is_there_after_kill_9_and_the_filesystem_is_clean() {
    need!("nbdfuse", "fusermount3");
    if let Some(why) = obstacle() {
        skip!("{why}");
    }
    for (media, layout) in [(Media::Files, "mirror:2"), (Media::Memory, "stripe;durability=flush")] {
        let mut cluster = Plan { media, ..Plan::default() }.up();
        cluster.create("v0", "96M", layout);
        let at = cluster.folder().join("mnt");
        let disk = disk_of(&cluster, "v0");
        make_ext4(&disk.device);
        let mounted = Mounted::new(&disk.device, &at, "rw");
        for number in 0..100 {
            write_file(&mounted.at, number, false).expect("space");
        }
        run(command("sync", ["-f"]).arg(&mounted.at)).succeeded();
        // More is on its way when the server dies.
        for number in 100..140 {
            write_file(&mounted.at, number, false).expect("space");
        }
        cluster.kill();
        drop((mounted, disk));
        cluster.start();

        let disk = disk_of(&cluster, "v0");
        // Mounting replays the journal.
        let mounted = Mounted::new(&disk.device, &at, "rw");
        compare_files(&mounted.at, 0..100);
        mounted.unmount();
        check_ext4(&disk.device);
        drop(disk);
        cluster.scrub_finds_nothing("v0");
        cluster.stop_and_check_drives();
        assert!(!is_mounted(&at));
    }
}

fn is_mounted(at: &Path) -> bool {
    let mounts = std::fs::read_to_string("/proc/self/mounts").expect("procfs");
    mounts.contains(at.to_str().expect("a path of ours"))
}
