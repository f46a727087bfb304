//! What a workload is shown is what was asked for, of the volume that was asked for, or the call is refused.

use super::driver::{MIB, Orchestrator, again, block, ext4, filesystem, refused, wanted};
use super::spec::volume_capability::access_mode::Mode;
use super::spec::{CreateVolumeRequest, VolumeCapability};
use super::stories::up;
use crate::filesystems::{compare_files, obstacle, write_file};
use crate::nbd::noise;
use crate::{need, skip};
use std::fs::File;
use std::io::Result;
use std::os::unix::fs::FileExt;
use std::path::Path;
use tonic::Code;

fn write(device: &Path, bytes: &[u8]) -> Result<()> {
    let device = File::options().write(true).open(device)?;
    device.write_all_at(bytes, 4096)?;
    device.sync_all()
}

fn read(device: &Path) -> Vec<u8> {
    let mut bytes = vec![0; 4096];
    File::open(device).and_then(|device| device.read_exact_at(&mut bytes, 4096)).expect("readable");
    bytes
}

/// Over which files and devices there are loop devices.
fn looped() -> Vec<String> {
    let all = std::fs::read_dir("/sys/class/block").expect("the kernel's").flatten();
    all.filter_map(|one| std::fs::read_to_string(one.path().join("loop/backing_file")).ok()).collect()
}

/// Story: a target that was to be read only was taken for one that was there already, and could be written to.
#[test]
fn a_raw_block_volume_published_for_reading_refuses_writes() {
    if let Some(why) = obstacle() {
        skip!("{why}");
    }
    let (_cluster, driver) = up(&[]);
    let (mut calls, capability) = (driver.client(), block(Mode::SingleNodeWriter));
    let (other, third) = (driver.mounts().join("other/volume"), driver.mounts().join("third/volume"));
    let id = calls.create(wanted("data", 100 * MIB)).expect("made").volume_id;
    let target = calls.bring(&id, &capability);
    let device = format!("{}\n", driver.attached()[0].display());
    write(&target, &noise(1, 4096)).expect("it's for writing");
    refused(calls.publish_at(&id, &capability, &target, true), Code::AlreadyExists, "mounted");
    for place in [&other, &third, &other] {
        calls.publish_at(&id, &capability, place, true).expect("published for reading");
    }
    refused(calls.publish_at(&id, &capability, &other, false), Code::AlreadyExists, "mounted");
    assert!(read(&other) == noise(1, 4096));
    for place in [&other, &third] {
        write(place, &noise(2, 4096)).expect_err("it's only for reading");
    }
    write(&target, &noise(3, 4096)).expect("it's for writing");
    again(|| calls.unpublish(&id));
    refused(calls.unstage(&id), Code::FailedPrecondition, "still mounted");
    again(|| calls.unpublish_at(&id, &other));
    assert!(looped().contains(&device), "the other one reads by it");
    again(|| calls.unpublish_at(&id, &third));
    assert!(!looped().contains(&device));
    // For readers alone, it's read-only from the device on.
    calls.bring_back(&id);
    let target = calls.bring(&id, &block(Mode::SingleNodeReaderOnly));
    assert!(read(&target) == noise(3, 4096));
    write(&target, &noise(4, 4096)).expect_err("it's only for reading");
    calls.bring_back(&id);
    assert!(driver.attached().is_empty() && driver.mounted().is_empty());
}

/// Story: a volume was staged once more as something else, and the answer was that it's done.
#[test]
fn a_volume_staged_as_something_else_is_not_taken_for_staged() {
    if let Some(why) = obstacle() {
        skip!("{why}");
    }
    let (_cluster, driver) = up(&[]);
    let mut calls = driver.client();
    let (node, raw) = (calls.node_id(), block(Mode::SingleNodeWriter));
    let (xfs, whichever) = (filesystem("xfs", Mode::SingleNodeWriter), filesystem("", Mode::SingleNodeWriter));
    let id = calls.create(wanted("data", 100 * MIB)).expect("made").volume_id;
    let context = calls.give(&id, &node, &ext4()).expect("given");
    let stage = |calls: &mut Orchestrator, capability: &VolumeCapability| calls.stage(&id, capability, context.clone());
    stage(&mut calls, &raw).expect("staged");
    refused(stage(&mut calls, &ext4()), Code::AlreadyExists, "raw block volume");
    stage(&mut calls, &raw).expect("it's staged");
    again(|| calls.unstage(&id));
    for capability in [&ext4(), &ext4(), &whichever] {
        stage(&mut calls, capability).expect("staged");
    }
    refused(stage(&mut calls, &xfs), Code::AlreadyExists, "with ext4, and xfs is wanted");
    refused(stage(&mut calls, &raw), Code::AlreadyExists, "as a filesystem");
    assert_eq!(driver.mounted(), [calls.staging(&id)], "what is there stays");
    again(|| calls.unstage(&id));
}

/// Story: a call named another volume than the one that was shown there, whose workload lost it.
#[test]
fn a_target_is_not_taken_away_by_another_volumes_name() {
    if let Some(why) = obstacle() {
        skip!("{why}");
    }
    let (_cluster, driver) = up(&[]);
    let mut calls = driver.client();
    let [one, other, raw] =
        ["one", "other", "raw"].map(|name| calls.create(wanted(name, 100 * MIB)).expect("made").volume_id);
    let at = calls.bring(&one, &ext4());
    calls.bring(&other, &ext4());
    let device = calls.bring(&raw, &block(Mode::SingleNodeWriter));
    write_file(&at, 1, true).expect("written");
    for (target, volume) in [(&at, &one), (&device, &raw)] {
        for named in [&other[..], "nonsense"] {
            refused(
                calls.unpublish_at(named, target),
                Code::FailedPrecondition,
                &format!("volume {volume} is published"),
            );
        }
    }
    compare_files(&at, [1]);
    write(&device, &noise(1, 4096)).expect("it's there");
    for volume in [&one, &other, &raw] {
        calls.bring_back(volume);
    }
}

/// Story: a volume was made that was too small for XFS, and could never be staged.
#[test]
fn a_volume_too_small_for_xfs_is_not_made() {
    if let Some(why) = obstacle() {
        skip!("{why}");
    }
    need!("mkfs.xfs");
    let (cluster, driver) = up(&[]);
    let mut calls = driver.client();
    let xfs = filesystem("xfs", Mode::SingleNodeWriter);
    let sized = |size: i64| CreateVolumeRequest { volume_capabilities: vec![xfs.clone()], ..wanted("data", size) };
    for size in [64 * MIB, 300 * MIB - 512] {
        refused(calls.create(sized(size)), Code::OutOfRange, "xfs needs 314572800 (300 MiB) at least");
    }
    assert_eq!(cluster.ask(&["volume", "ls"]), serde_json::json!([]));
    let id = calls.create(sized(300 * MIB)).expect("made").volume_id;
    let at = calls.bring(&id, &xfs);
    write_file(&at, 1, true).expect("written");
    calls.bring_back(&id);
}
