//! A snapshot of a filesystem in use, attached as a disk.

use crate::cluster::{Media, Plan};
use crate::filesystems::attached::Attached;
use crate::filesystems::obstacle;
use crate::program::{command, run};
use crate::{need_root, skip};

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
