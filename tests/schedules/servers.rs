//! Schedules of several servers: whichever is lost, each time has one snapshot.

use super::{times, wait_until};
use crate::servers::ring::Ring;
use crate::servers::volumes::wide;
use serde_json::Value;

const EVERY: u64 = 3;

fn leader(ring: &Ring, seen_by: u32) -> u32 {
    let mut leader = None;
    wait_until("a leader", || {
        let said = ring.ask(seen_by, &["-o", "json", "cluster", "show"]);
        let said: Value = serde_json::from_slice(&said.stdout).unwrap_or_default();
        leader = said["leader"].as_str().and_then(|id| id.trim_start_matches('s').parse().ok());
        leader.is_some()
    });
    leader.expect("there is one")
}

#[test]
fn a_leader_killed_between_runs_leaves_one_snapshot_for_each_time() {
    let ring = Ring::up(3);
    wide(&ring);
    let args = ["schedule", "create", "s", "--snapshot", "v", "--every", "3s", "--keep", "last=500"];
    ring.ask(2, &args).succeeded();
    let mut asked = 1;
    for _ in 0..2 {
        let victim = leader(&ring, asked);
        asked = victim % 3 + 1;
        let ask = |arguments: &[&str]| ring.json(asked, arguments);
        let before = times(ask).last().copied();
        wait_until("another snapshot", || times(ask).last().copied() > before);
        let before = *times(ask).last().expect("one");
        ring.kill(victim);
        wait_until("others to go on", || times(ask).last().is_some_and(|last| *last >= before + 2 * EVERY));
        ring.start(&[victim]);
        ring.wait_until_drives_are_up(asked);
    }
    ring.ask(asked, &["schedule", "pause", "s"]).succeeded();
    let all = times(|arguments| ring.json(asked, arguments));
    let shown = ring.json(asked, &["schedule", "show", "s"]);
    let passed = (all.last().expect("some") - all.first().expect("some")) / EVERY + 1;
    let missed = shown["missed"].as_u64().expect("a number");
    println!("{passed} times passed, of which {missed} were missed");
    assert_eq!(all.len() as u64 + missed, passed, "{all:?}: {shown}");
    let listed = ring.json(asked, &["snapshot", "ls", "v"]);
    assert_eq!(listed.as_array().map(Vec::len), Some(all.len()), "each is recorded");
    for server in 1..=3 {
        ring.wait_until("all to know the same", || times(|arguments| ring.json(server, arguments)) == all);
    }
}

#[test]
fn one_missed_run_is_made_up_for_once_by_whoever_leads_then() {
    let ring = Ring::up(3);
    wide(&ring);
    let args = ["schedule", "create", "s", "--snapshot", "v", "--every", "3s", "--keep", "last=500"];
    ring.ask(1, &args).succeeded();
    wait_until("a first snapshot", || !times(|arguments| ring.json(1, arguments)).is_empty());
    let before = times(|arguments| ring.json(1, arguments));
    (1..=3).for_each(|server| ring.kill(server));
    std::thread::sleep(std::time::Duration::from_secs(3 * EVERY));
    ring.start_all_that_are_down();
    ring.wait_until_drives_are_up(2);
    let ask = |arguments: &[&str]| ring.json(2, arguments);
    wait_until("it to go on", || times(ask).len() >= before.len() + 2);
    ring.ask(2, &["schedule", "pause", "s"]).succeeded();
    let (all, shown) = (times(ask), ring.json(2, &["schedule", "show", "s"]));
    let passed = (all.last().expect("some") - all.first().expect("some")) / EVERY + 1;
    assert_eq!(all.len() as u64 + shown["missed"].as_u64().expect("a number"), passed, "{all:?}: {shown}");
    assert!(shown["missed"].as_u64() >= Some(2), "{shown}");
}

#[test]
fn a_schedule_scrubs_what_lies_on_all_servers() {
    let ring = Ring::up(3);
    wide(&ring);
    ring.ask(2, &["schedule", "create", "s", "--scrub", "--within", "10s"]).succeeded();
    let scrubbed = || {
        let said = ring.json(3, &["sql", "select begun_unix_ms from scrubs"]);
        super::rows(&said).first().and_then(|row| row[0].as_u64())
    };
    wait_until("it to be scrubbed", || scrubbed().is_some());
    let first = scrubbed();
    wait_until("it to be scrubbed again", || scrubbed() > first);
    assert_eq!(ring.json(1, &["schedule", "show", "s"])["error"], Value::Null);
}
