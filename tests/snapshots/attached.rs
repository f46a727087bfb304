//! A snapshot of a filesystem in use, attached as a disk.

use crate::cluster::{Media, Plan};
use crate::filesystems::attached::{Attached, FileWriter};
use crate::filesystems::{Mounted, check_ext4, compare_files, make_ext4, obstacle, write_file};
use crate::program::{command, run};
use crate::{need, need_root, skip};
use std::path::Path;

#[test]
fn a_snapshot_is_attached_as_a_disk_that_allows_no_writes_while_its_volume_is_another() {
    need_root!();
    if let Some(why) = obstacle() {
        skip!("{why}");
    }
    let cluster = Plan { media: Media::Files, ..Plan::default() }.up();
    cluster.create("v0", "16M", "mirror:2");
    let old = crate::nbd::noise(1, 1 << 20);
    cluster.connect("v0").write(0, &old).expect("written");
    cluster.tepal(&["snapshot", "create", "v0@a"]).succeeded();
    let data = cluster.data();
    let volume = Attached::new(&data, "v0", &[]);
    let snapshot = Attached::new(&data, "v0@a", &[]);
    assert_ne!(volume.device, snapshot.device);
    run(command("dd", ["if=/dev/zero", "bs=1M", "count=1", "conv=fsync"])
        .arg(format!("of={}", volume.device.display())))
    .succeeded();
    let read = std::fs::read(&snapshot.device).expect("readable");
    assert!(read.len() == 16 << 20 && read[..1 << 20] == old);
    let write = run(command("dd", ["if=/dev/zero", "bs=4096", "count=1", "oflag=direct"])
        .arg(format!("of={}", snapshot.device.display())));
    assert!(!write.status.success(), "{write}");
    let refused = cluster.tepal(&["snapshot", "rm", "v0@a"]).refused(1);
    assert!(refused.contains("in use"), "{refused}");
    snapshot.detach();
    volume.detach();
    cluster.tepal(&["snapshot", "rm", "v0@a"]).succeeded();
}

/// Files that are there when the snapshot is made, besides those that are being written then.
const KEPT: std::ops::Range<u64> = 1000..1040;

/// Packs a folder, and unpacks it in another.
fn carry(from: &Path, to: &Path) {
    std::fs::create_dir(to).expect("a folder of ours");
    let packed = to.with_extension("tar");
    run(command("tar", ["-cf"]).arg(&packed).arg("-C").arg(from).arg(".")).succeeded();
    run(command("tar", ["-xf"]).arg(&packed).arg("-C").arg(to)).succeeded();
}

#[test]
fn files_are_packed_from_a_snapshot_while_its_volume_s_are_changed_and_a_clone_has_all_that_was_synced() {
    need!("tar");
    if let Some(why) = obstacle() {
        skip!("{why}");
    }
    let mut cluster = Plan { media: Media::Files, ..Plan::default() }.up();
    cluster.create("v0", "128M", "mirror:2");
    let data = cluster.data();
    let at = |name: &str| cluster.folder().join(name);
    let attached = Attached::new(&data, "v0", &[]);
    make_ext4(&attached.device);
    let mounted = Mounted::new(&attached.device, &at("mnt"), "rw");
    let (kept, busy) = (mounted.at.join("kept"), mounted.at.join("busy"));
    [&kept, &busy].iter().for_each(|folder| std::fs::create_dir(folder).expect("space"));
    KEPT.for_each(|number| write_file(&kept, number, false).expect("space"));
    run(command("sync", ["-f"]).arg(&kept)).succeeded();
    let writer = FileWriter::start(&busy);
    let synced = writer.go_on_for(20);
    cluster.tepal(&["snapshot", "create", "v0@a"]).succeeded();
    for number in KEPT {
        let file = kept.join(format!("file{number}"));
        match number % 2 {
            0 => std::fs::remove_file(file).expect("it's there"),
            _ => std::fs::write(file, "something else").expect("space"),
        }
    }
    run(command("sync", ["-f"]).arg(&kept)).succeeded();

    let snapshot = Attached::new(&data, "v0@a", &[]);
    let old = Mounted::new(&snapshot.device, &at("old"), "ro,noload");
    carry(&old.at.join("kept"), &at("carried"));
    compare_files(&at("carried"), KEPT);
    writer.go_on_for(20);
    old.unmount();
    snapshot.detach();

    cluster.tepal(&["volume", "clone", "v0@a", "v1"]).succeeded();
    let clone = Attached::new(&data, "v1", &[]);
    // Mounting replays the journal.
    let replayed = Mounted::new(&clone.device, &at("replayed"), "rw");
    compare_files(&replayed.at.join("kept"), KEPT);
    compare_files(&replayed.at.join("busy"), 0..synced);
    replayed.unmount();
    check_ext4(&clone.device);
    clone.detach();

    let files = writer.finish();
    compare_files(&busy, 0..files);
    mounted.unmount();
    attached.detach();
    ["v0", "v1"].iter().for_each(|volume| cluster.scrub_finds_nothing(volume));
    cluster.stop_and_check_drives();
}
