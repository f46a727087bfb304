//! Volumes that are scrubbed in time.

use super::{rows, wait_until};
use crate::cluster::{Media, Plan};
use crate::nbd::BLOCK;
use crate::rot::{fill, places, rot};
use serde_json::json;

const BLOCKS: usize = 256;

#[test]
fn rot_is_repaired_by_a_scrub_that_nobody_asked_for() {
    let mut cluster = Plan { media: Media::Files, drives: 2, ..Plan::default() }.up();
    cluster.create("v0", &(BLOCKS * BLOCK).to_string(), "mirror:2");
    cluster.create("v1", "1M", "mirror:2");
    fill(&mut cluster.connect("v0"), BLOCKS);
    cluster.stop();
    let place = places(cluster.drive(0), &[7])[0].expect("a copy on each of two drives");
    rot(cluster.drive(0), place);
    cluster.start();
    cluster.tepal(&["schedule", "create", "s", "--scrub", "--within", "10s"]).succeeded();
    wait_until("both volumes to be scrubbed", || rows(&cluster.ask(&["sql", "select * from scrubs"])).len() == 2);
    let shown = cluster.ask(&["schedule", "show", "s"]);
    assert!(shown["oldest"]["since_unix_ms"].is_u64() && shown["error"].is_null(), "{shown}");
    cluster.tepal(&["schedule", "rm", "s"]).succeeded();
    cluster.scrub_finds_nothing("v0");
    // It's on record, also for whoever asks after a restart.
    cluster.kill();
    cluster.start();
    assert_eq!(rows(&cluster.ask(&["sql", "select * from scrubs"])).len(), 2);
    cluster.tepal(&["volume", "rm", "v1"]).succeeded();
    assert_eq!(rows(&cluster.ask(&["sql", "select volume from scrubs"])), [[json!(1)]]);
    cluster.stop_and_check_drives();
}

#[test]
fn a_scrub_with_drives_away_does_not_count() {
    let cluster = Plan { media: Media::Files, drives: 3, ..Plan::default() }.up();
    cluster.create("v0", "1M", "mirror:3");
    let away = cluster.drive_id(cluster.drive(2));
    cluster.tepal(&["drive", "offline", &away]).succeeded();
    cluster.tepal(&["schedule", "create", "s", "--scrub", "--within", "10s"]).succeeded();
    let error = || cluster.ask(&["schedule", "show", "s"])["error"].as_str().map(str::to_owned);
    wait_until("what is wrong to be told", || error().is_some());
    assert!(error().expect("told").contains(&away), "{:?}", error());
    assert_eq!(rows(&cluster.ask(&["sql", "select * from scrubs"])).len(), 0);
    cluster.tepal(&["drive", "online", &away]).succeeded();
    wait_until("it to be scrubbed", || error().is_none());
    assert_eq!(rows(&cluster.ask(&["sql", "select * from scrubs"])).len(), 1);
}

/// Story: alerts and schedules took a volume for one that wasn't scrubbed, though somebody had just done that by hand.
#[test]
fn a_scrub_by_hand_counts_as_the_last_one() {
    let cluster = Plan { drives: 2, ..Plan::default() }.up();
    cluster.create("v", "16M", "mirror:2");
    let scrub = || cluster.ask(&["volume", "scrub", "v"]);
    let begun = scrub()["begun_unix_ms"].as_u64().expect("it began");
    wait_until("the scrub to be on record", || scrub()["recorded_unix_ms"].as_u64().is_some_and(|at| at >= begun));
}
