//! Many volumes at once, and calls beside their opposites.

use super::driver::{Driver, MIB, again, ext4, of_snapshot, wanted};
use super::stories::up;
use crate::cluster::{Cluster, command_for};
use crate::filesystems::{compare_files, obstacle, write_file};
use crate::servers::ring::Ring;
use crate::skip;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tonic::Code;

const VOLUMES: u64 = 100;
const AT_ONCE: usize = 10;

/// The life of one volume, and of a clone of it.
fn lives(driver: &Driver, number: u64) {
    let (mut calls, capability) = (driver.client(), ext4());
    let id = again(|| calls.create(wanted(&format!("pvc-{number}"), 64 * MIB))).volume_id;
    let at = calls.bring(&id, &capability);
    write_file(&at, number, true).expect("written");
    let snapshot = again(|| calls.snapshot(&format!("snapshot-{number}"), &id)).snapshot_id;
    let clone = again(|| calls.create(of_snapshot(wanted(&format!("clone-{number}"), 64 * MIB), &snapshot))).volume_id;
    calls.bring_back(&id);
    again(|| calls.delete(&id));
    let at = calls.bring(&clone, &capability);
    compare_files(&at, [number]);
    calls.bring_back(&clone);
    again(|| calls.delete(&clone));
    again(|| calls.delete_snapshot(&snapshot));
}

/// So many at once, until all are done. How long it took.
fn at_once(count: u64, work: impl Fn(u64) + Sync) -> Duration {
    let (next, began) = (AtomicU64::new(0), Instant::now());
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(number) = Some(next.fetch_add(1, Ordering::Relaxed)).filter(|number| *number < count) {
                    work(number);
                }
            });
        }
    });
    began.elapsed()
}

#[test]
fn a_hundred_volumes_ten_at_once_leave_nothing_behind() {
    if let Some(why) = obstacle() {
        skip!("{why}");
    }
    let ring = Ring::up_with_drives_of(3, "2G");
    ring.wait_until_all_are_up(1);
    let data = ring.data(1);
    let driver = Driver::start(&ring.scratch_file("driver"), move || command_for(&data), &[]);
    let took = at_once(VOLUMES, |number| lives(&driver, number));
    println!("{VOLUMES} volumes and their clones took {took:?}");
    assert_eq!(ring.json(1, &["volume", "ls"]), serde_json::json!([]));
    assert_eq!(ring.json(1, &["snapshot", "ls"]), serde_json::json!([]));
    assert!(driver.attached().is_empty() && driver.mounted().is_empty());
    assert_eq!(std::fs::read_dir(driver.mounts()).expect("ours").filter(is_mountpoint).count(), 0);
}

/// Folders of pods are the orchestrator's own.
fn is_mountpoint(entry: &std::io::Result<std::fs::DirEntry>) -> bool {
    entry.as_ref().is_ok_and(|entry| entry.path().join("volume").exists())
}

/// Whatever comes between, what is said last counts.
#[test]
fn calls_beside_their_opposites_leave_what_was_said_last() {
    if let Some(why) = obstacle() {
        skip!("{why}");
    }
    let (cluster, driver): (Cluster, Driver) = up(&[]);
    let (capability, known) = (ext4(), driver.client().create(wanted("data", 64 * MIB)).expect("made").volume_id);
    let is_expected = |code: Code| {
        matches!(
            code,
            Code::Aborted | Code::NotFound | Code::FailedPrecondition | Code::AlreadyExists | Code::Unavailable
        )
    };
    at_once(200, |number| {
        let mut calls = driver.client();
        let node = calls.node_id();
        let said = match number % 8 {
            0 => calls.create(wanted("data", 64 * MIB)).map(drop),
            1 => calls.give(&known, &node, &capability).map(drop),
            2 => calls.give(&known, &node, &capability).and_then(|context| calls.stage(&known, &capability, context)),
            3 => calls.publish(&known, &capability).map(drop),
            4 => calls.unpublish(&known),
            5 => calls.unstage(&known),
            6 => calls.take(&known, &node),
            _ => calls.delete(&known),
        };
        if let Err(status) = said {
            assert!(is_expected(status.code()) || status.message().contains("busy"), "{number}: {status}");
        }
    });
    let mut calls = driver.client();
    let last = calls.create(wanted("data", 64 * MIB)).expect("there").volume_id;
    for id in [&known, &last] {
        calls.bring_back(id);
        again(|| calls.delete(id));
    }
    assert_eq!(cluster.ask(&["volume", "ls"]), serde_json::json!([]));
    assert!(driver.attached().is_empty() && driver.mounted().is_empty());
}
