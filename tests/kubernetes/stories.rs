//! What a workload keeps in a volume, through calls that come twice and drivers that are killed.

use super::driver::{
    Answer, Driver, MIB, Orchestrator, again, ext4, filesystem, of_snapshot, of_volume, refused, wanted,
};
use super::spec::volume_capability::access_mode::Mode;
use crate::cluster::{Cluster, Plan, command_for};
use crate::filesystems::{compare_files, obstacle, write_file};
use crate::{need, skip};
use std::path::Path;
use tonic::Code;

/// A cluster of one server, and a driver on its machine.
pub fn up(arguments: &[&str]) -> (Cluster, Driver) {
    let cluster = Plan { drive_size: 1 << 30, ..Plan::default() }.up();
    let data = cluster.data();
    let driver = Driver::start(&cluster.folder().join("driver"), move || command_for(&data), arguments);
    (cluster, driver)
}

/// Says it once more, and it comes to the same.
fn twice<T: PartialEq + std::fmt::Debug>(mut call: impl FnMut() -> Answer<T>) -> T {
    let (first, second) = (call().expect("done"), call().expect("done twice"));
    assert_eq!(first, second);
    first
}

fn room(at: &Path) -> u64 {
    let said =
        crate::program::run(&mut crate::program::command("stat", ["-f", "-c", "%b %S", at.to_str().expect("text")]));
    let said = said.succeeded();
    let numbers: Vec<u64> = said.split_whitespace().map(|number| number.parse().expect("a number")).collect();
    numbers[0] * numbers[1]
}

/// Without what a filesystem keeps for itself.
fn most_of(bytes: i64) -> u64 {
    bytes as u64 / 5 * 4
}

/// Whether the kernel lets this process make a mounted ext4 longer (CAP_SYS_RESOURCE); XFS asks for less.
fn may_grow_ext4() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").expect("the kernel's");
    let capabilities = status.lines().find_map(|line| line.strip_prefix("CapEff:")).expect("capabilities");
    u64::from_str_radix(capabilities.trim(), 16).expect("a number") >> 24 & 1 == 1
}

/// `more`: what the filesystem grows by, if it can.
fn lives_through_all(calls: &mut Orchestrator, kind: &str, size: i64, more: i64) {
    let capability = filesystem(kind, Mode::SingleNodeWriter);
    let grown = size + more;
    let node = calls.node_id();
    let volume = twice(|| calls.create(wanted("data", size)));
    let id = volume.volume_id.clone();
    let context = twice(|| calls.give(&id, &node, &capability));
    twice(|| calls.stage(&id, &capability, context.clone()));
    let at = twice(|| calls.publish(&id, &capability));
    (0..10).for_each(|number| write_file(&at, number, true).expect("written"));

    // Larger, while it's in use.
    let before = room(&at);
    assert_eq!(twice(|| calls.expand(&id, grown)), grown);
    assert_eq!(twice(|| calls.expand_on_node(&id)), grown);
    assert!(room(&at) >= before + most_of(more), "{} and not much more than {before}", room(&at));
    compare_files(&at, 0..10);

    // Of a moment, and later on.
    let snapshot = twice(|| calls.snapshot("moment", &id)).snapshot_id;
    (10..15).for_each(|number| write_file(&at, number, true).expect("written"));
    (0..5).for_each(|number| std::fs::remove_file(at.join(format!("file{number}"))).expect("there"));
    crate::program::run(&mut crate::program::command("sync", ["-f", at.to_str().expect("text")])).succeeded();
    let restored = twice(|| calls.create(of_snapshot(wanted("restored", grown + more), &snapshot))).volume_id;
    let copy = twice(|| calls.create(of_volume(wanted("copy", grown), &id))).volume_id;
    let at_restored = calls.bring(&restored, &capability);
    let at_copy = calls.bring(&copy, &capability);
    compare_files(&at_restored, 0..10);
    compare_files(&at_copy, 5..15);
    assert!(!at_restored.join("file10").exists() && !at_copy.join("file0").exists());
    assert!(room(&at_restored) >= room(&at_copy) + most_of(more), "a larger clone has a larger filesystem");
    write_file(&at_copy, 20, true).expect("written");
    assert!(!at.join("file20").exists() && !at_restored.join("file20").exists());

    // Each as long as it's wanted, whatever it came from.
    for one in [&id, &restored, &copy] {
        again(|| calls.unpublish(one));
        calls.unpublish(one).expect("twice");
        again(|| calls.unstage(one));
        calls.unstage(one).expect("twice");
        twice(|| calls.take(one, &node));
    }
    twice(|| calls.delete(&id));
    refused(calls.expand(&id, 2 * grown), Code::NotFound, "volume");
    let late = calls.create(of_snapshot(wanted("late", grown), &snapshot)).expect("its volume is gone, it isn't");
    let at_late = calls.bring(&late.volume_id, &capability);
    compare_files(&at_late, 0..10);
    calls.bring_back(&late.volume_id);
    for one in [&late.volume_id, &restored, &copy] {
        twice(|| calls.delete(one));
    }
    twice(|| calls.delete_snapshot(&snapshot));
}

#[test]
fn files_live_through_every_call_said_twice() {
    if let Some(why) = obstacle() {
        skip!("{why}");
    }
    let (cluster, driver) = up(&[]);
    let more = if may_grow_ext4() { 100 * MIB } else { 0 };
    lives_through_all(&mut driver.client(), "ext4", 100 * MIB, more);
    assert_eq!(cluster.ask(&["volume", "ls"]), serde_json::json!([]));
    assert!(driver.attached().is_empty() && driver.mounted().is_empty());
    cluster.wait_until_all_is_free();
}

#[test]
fn files_on_xfs_live_through_every_call_said_twice() {
    if let Some(why) = obstacle() {
        skip!("{why}");
    }
    need!("mkfs.xfs");
    let (cluster, driver) = up(&[]);
    lives_through_all(&mut driver.client(), "xfs", 400 * MIB, 100 * MIB);
    assert_eq!(cluster.ask(&["volume", "ls"]), serde_json::json!([]));
    assert!(driver.attached().is_empty() && driver.mounted().is_empty());
}

#[test]
fn a_killed_driver_goes_on_from_what_it_finds() {
    if let Some(why) = obstacle() {
        skip!("{why}");
    }
    let (cluster, mut driver) = up(&[]);
    let mut calls = driver.client();
    let (node, capability) = (calls.node_id(), ext4());
    let id = calls.create(wanted("data", 100 * MIB)).expect("made").volume_id;
    let context = calls.give(&id, &node, &capability).expect("given");
    calls.stage(&id, &capability, context.clone()).expect("staged");
    let device = driver.attached();
    driver.kill();
    driver.start_again();
    let mut calls = driver.client();
    calls.stage(&id, &capability, context).expect("it's staged");
    let at = calls.publish(&id, &capability).expect("published");
    write_file(&at, 1, true).expect("written");
    driver.kill();
    write_file(&at, 2, true).expect("a workload goes on without it");
    driver.start_again();
    assert_eq!(driver.attached(), device, "the same device all the while");
    let mut calls = driver.client();
    calls.publish(&id, &capability).expect("it's published");
    compare_files(&at, 1..3);
    calls.bring_back(&id);
    assert!(driver.attached().is_empty() && driver.mounted().is_empty());
    calls.delete(&id).expect("deleted");
    assert_eq!(cluster.ask(&["volume", "ls"]), serde_json::json!([]));
}

/// What is shown read-only can't be written to, and what one place has alone is shown nowhere else.
#[test]
fn places_of_one_machine_have_what_was_asked_for() {
    if let Some(why) = obstacle() {
        skip!("{why}");
    }
    let (_cluster, driver) = up(&[]);
    let mut calls = driver.client();
    let (capability, other) = (ext4(), driver.mounts().join("other/volume"));
    let id = calls.create(wanted("data", 100 * MIB)).expect("made").volume_id;
    let at = calls.bring(&id, &capability);
    write_file(&at, 1, true).expect("written");
    calls.publish_at(&id, &capability, &other, true).expect("published once more");
    calls.publish_at(&id, &capability, &other, true).expect("twice");
    refused(calls.publish_at(&id, &capability, &other, false), Code::AlreadyExists, "mounted");
    compare_files(&other, [1]);
    write_file(&other, 2, true).expect_err("read-only");
    refused(calls.unstage(&id), Code::FailedPrecondition, "still mounted");
    let node = calls.node_id();
    let context = calls.give(&id, &node, &capability).expect("it has it");
    calls.stage(&id, &capability, context).expect("mounted anew");
    again(|| calls.unpublish_at(&id, &other));
    let alone = filesystem("ext4", Mode::SingleNodeSingleWriter);
    refused(calls.publish_at(&id, &alone, &other, false), Code::FailedPrecondition, "one place alone");
    calls.bring_back(&id);
    // Readers of a filesystem that was unmounted, and of one that wasn't.
    let snapshot = calls.snapshot("moment", &id).expect("made").snapshot_id;
    let reader = filesystem("", Mode::MultiNodeReaderOnly);
    let copy = calls.create(of_snapshot(wanted("copy", 100 * MIB), &snapshot)).expect("made").volume_id;
    let at = calls.bring(&copy, &reader);
    compare_files(&at, [1]);
    write_file(&at, 2, true).expect_err("read-only");
    calls.bring_back(&copy);
}
