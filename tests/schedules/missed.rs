//! Times that pass while no server runs.

use super::{times, wait_until};
use crate::cluster::Plan;
use serde_json::Value;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const EVERY: u64 = 3;

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("it's later than 1970").as_secs()
}

#[test]
fn times_that_pass_while_all_servers_are_down_are_made_up_for_once() {
    let mut cluster = Plan { drives: 2, ..Plan::default() }.up();
    cluster.create("v0", "1M", "mirror:2");
    let args = ["schedule", "create", "s", "--snapshot", "v0", "--every", "3s", "--keep", "last=100"];
    cluster.tepal(&args).succeeded();
    wait_until("a first snapshot", || !times(|arguments| cluster.ask(arguments)).is_empty());
    let before = cluster.ask(&["schedule", "show", "s"]);
    cluster.kill();
    let down = now();
    wait_until("four times to pass", || now() > down + 4 * EVERY);
    cluster.start();
    let ask = |arguments: &[&str]| cluster.ask(arguments);
    let back = now();
    wait_until("it to go on", || times(ask).last().is_some_and(|last| *last > back));
    cluster.tepal(&["schedule", "pause", "s"]).succeeded();
    let (all, shown) = (times(ask), cluster.ask(&["schedule", "show", "s"]));
    // Each time either has its snapshot or was missed; of those that passed, the last one has.
    let passed = (all.last().expect("some") - all.first().expect("some")) / EVERY + 1;
    let missed = shown["missed"].as_u64().expect("a number") - before["missed"].as_u64().expect("a number");
    assert_eq!(all.len() as u64 + missed, passed, "{all:?}: {shown}");
    assert!(missed >= 3, "{shown}");
    let while_down = all.range(down + 1..back).count();
    assert_eq!(while_down, 1, "made up for once: {all:?}, down from {down} to {back}");
    let events = cluster.ask(&["events", "--kind", "schedule"]);
    let is_told = |event: &&Value| event["text"].as_str().is_some_and(|text| text.contains("made up for once"));
    let told = events.as_array().expect("a list").iter().filter(is_told).count();
    assert_eq!(told, 1, "{events}");
    let doctor = cluster.tepal(&["doctor"]);
    assert!(String::from_utf8_lossy(&doctor.stdout).contains("schedule s has missed"), "{doctor}");
    // Nothing of it was a storm.
    std::thread::sleep(Duration::from_secs(EVERY));
    assert_eq!(times(ask), all);
}
