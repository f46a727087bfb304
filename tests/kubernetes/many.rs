//! Many volumes at once, and calls beside their opposites.

use super::driver::{Driver, MIB, Orchestrator, again, ext4, of_snapshot, wanted};
use super::stories::up;
use crate::cluster::{Cluster, command_for};
use crate::filesystems::{compare_files, obstacle, write_file};
use crate::program::until;
use crate::servers::ring::Ring;
use crate::skip;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tonic::Code;

const VOLUMES: u64 = 100;
const AT_ONCE: usize = 10;

/// How long the calls of one kind have taken altogether.
#[derive(Default)]
struct Times(Mutex<BTreeMap<&'static str, Duration>>);

impl Times {
    fn of<T>(&self, what: &'static str, call: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        let done = call();
        *self.0.lock().expect("no panic").entry(what).or_default() += began.elapsed();
        done
    }
}

/// The life of one volume, and of a clone of it.
fn lives(driver: &Driver, number: u64, times: &Times) {
    let (mut calls, capability) = (driver.client(), ext4());
    let node = calls.node_id();
    let wanted = |name| wanted(&format!("{name}-{number}"), 64 * MIB);
    let bring = |calls: &mut Orchestrator, id: &str| {
        let context = times.of("publish", || calls.give(id, &node, &capability)).expect("given");
        times.of("stage", || calls.stage(id, &capability, context)).expect("staged");
        times.of("bind", || calls.publish(id, &capability)).expect("published")
    };
    let bring_back = |calls: &mut Orchestrator, id: &str| {
        times.of("unbind", || again(|| calls.unpublish(id)));
        times.of("unstage", || again(|| calls.unstage(id)));
        times.of("unpublish", || calls.take(id, &node)).expect("taken");
        times.of("delete", || again(|| calls.delete(id)));
    };
    let id = times.of("create", || again(|| calls.create(wanted("pvc")))).volume_id;
    let at = bring(&mut calls, &id);
    times.of("write", || write_file(&at, number, true)).expect("written");
    let snapshot = times.of("snapshot", || again(|| calls.snapshot(&format!("snapshot-{number}"), &id))).snapshot_id;
    let clone = times.of("clone", || again(|| calls.create(of_snapshot(wanted("clone"), &snapshot)))).volume_id;
    bring_back(&mut calls, &id);
    let at = bring(&mut calls, &clone);
    compare_files(&at, [number]);
    bring_back(&mut calls, &clone);
    times.of("delete snapshot", || again(|| calls.delete_snapshot(&snapshot)));
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
    let times = Times::default();
    let took = at_once(VOLUMES, |number| lives(&driver, number, &times));
    println!(
        "{VOLUMES} volumes and their clones took {took:?}; the calls, of {AT_ONCE} at once, {:?}",
        times.0.lock().expect("no panic")
    );
    assert_eq!(ring.json(1, &["volume", "ls"]), serde_json::json!([]));
    assert_eq!(ring.json(1, &["snapshot", "ls"]), serde_json::json!([]));
    assert!(driver.attached().is_empty() && driver.mounted().is_empty());
    until("the driver to have waited for each daemon", Duration::from_secs(10), || {
        driver.remains().is_empty().then_some(())
    });
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
