//! Blocks that no copy has right, and that only a snapshot sees.

use crate::cluster::{Cluster, Media, Plan};
use crate::nbd::{BLOCK, noise};
use crate::rot::{fill, places, rot};
use serde_json::json;

const BLOCKS: usize = 128;
/// Rots on every copy after it was written anew.
const ROTTEN: usize = 5;

/// A volume whose snapshot `a` alone sees a rotten block.
fn rotten() -> Cluster {
    let mut cluster = Plan { media: Media::Files, drives: 2, ..Plan::default() }.up();
    cluster.create("v0", &(BLOCKS * BLOCK).to_string(), "mirror:2");
    let mut volume = cluster.connect("v0");
    fill(&mut volume, BLOCKS);
    cluster.tepal(&["snapshot", "create", "v0@a"]).succeeded();
    volume.write((ROTTEN * BLOCK) as u64, &noise(9999, BLOCK)).expect("written");
    cluster.tepal(&["snapshot", "create", "v0@b"]).succeeded();
    drop(volume);
    cluster.stop();
    for drive in 0..2 {
        let place = places(cluster.drive(drive), &[ROTTEN])[0].expect("a copy on each drive");
        rot(cluster.drive(drive), place);
    }
    cluster.start();
    cluster
}

/// The volume is healthy, the one snapshot isn't, and the status says so.
fn the_snapshot_alone_is_blamed(cluster: &Cluster) {
    let volume = cluster.volume("v0");
    assert_eq!((&volume["state"], &volume["damaged_blocks"]), (&"healthy".into(), &0.into()), "{volume}");
    let blocks = |listed: &serde_json::Value| {
        let listed = listed.as_array().expect("a list").clone();
        listed.iter().map(|it| (it["name"].clone(), it["damaged_blocks"].clone())).collect::<Vec<_>>()
    };
    let known = [(json!("a"), json!(1)), (json!("b"), json!(0))];
    assert_eq!(blocks(&volume["snapshots"]), known, "{volume}");
    assert_eq!(blocks(&cluster.ask(&["snapshot", "ls"])), known);
    let status = cluster.ask(&["status"]);
    let reason = status["reason"].to_string();
    assert_eq!(status["health"], "degraded", "{status}");
    let place = format!("(at {}+{BLOCK})", ROTTEN * BLOCK);
    assert!(reason.contains("snapshot 'v0@a': 1 block") && reason.contains(&place), "{status}");
    assert!(!reason.contains("volume 'v0'") && !reason.contains("v0@b"), "{status}");
}

/// Story: the status was `ok` after the error. A scrub made the volume `unavailable`, though that read right, and it stayed so when the
/// snapshot was removed.
#[test]
fn damage_that_a_snapshot_alone_sees_is_told_of_it_and_goes_with_it() {
    let mut cluster = rotten();
    assert_eq!(cluster.ask(&["status"])["health"], "ok", "nobody has met it");
    let offset = (ROTTEN * BLOCK) as u64;
    assert!(cluster.connect("v0@a").read(offset, BLOCK as u32).is_err(), "no copy is right");
    assert!(cluster.connect("v0").read(offset, BLOCK as u32).expect("right") == noise(9999, BLOCK));
    the_snapshot_alone_is_blamed(&cluster);
    cluster.stop();
    cluster.start();
    the_snapshot_alone_is_blamed(&cluster);

    cluster.tepal(&["snapshot", "rm", "v0@a", "--wait"]).succeeded();
    let status = cluster.ask(&["status"]);
    assert_eq!(status["health"], "ok", "{status}");
    cluster.scrub_finds_nothing("v0");
    assert!(cluster.connect("v0@b").read(offset, BLOCK as u32).expect("right") == noise(9999, BLOCK));
}

#[test]
fn a_scrub_tells_the_damage_of_a_snapshot_from_that_of_its_volume() {
    let cluster = rotten();
    let scrub = cluster.tepal(&["volume", "scrub", "v0", "-o", "json"]);
    assert_eq!(scrub.status.code(), Some(1), "{scrub}");
    assert!(scrub.stderr.contains("v0@a at 20480+4096"), "{scrub}");
    let scrub: serde_json::Value = serde_json::from_slice(&scrub.stdout).expect("JSON");
    assert_eq!(scrub["damaged"], json!([]), "{scrub}");
    let range = json!([{ "offset": ROTTEN * BLOCK, "length": BLOCK }]);
    assert_eq!(scrub["damaged_snapshots"], json!([{ "name": "a", "damaged": range }]), "{scrub}");
    the_snapshot_alone_is_blamed(&cluster);
}
