//! Copies move between drives while clients write: to drives that are added, away from those that are drained, and anew where one is lost.

use super::ring::Ring;
use super::volumes::{BLOCKS, SOME, make, scrub_finds_nothing};
use crate::nbd::{BLOCK, Ledger, Nbd, Writer};
use crate::program;
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

/// What is said of them.
pub fn drives(ring: &Ring) -> Vec<Value> {
    ring.json(1, &["drive", "ls"]).as_array().expect("a list").clone()
}

/// The first one that is it, or nothing.
pub fn drive(ring: &Ring, is_it: impl Fn(&Value) -> bool) -> Value {
    drives(ring).into_iter().find(is_it).unwrap_or(Value::Null)
}

pub fn id_of(ring: &Ring, server: &str) -> String {
    drive(ring, |drive| drive["server"] == server)["id"].as_str().expect("each server has a drive").to_owned()
}

pub fn copies(ring: &Ring, id: &str) -> u64 {
    drive(ring, |drive| drive["id"] == id)["copies"].as_u64().expect("it's listed")
}

/// A drive that is drained holds nothing any more, and takes no room.
pub fn wait_until_emptied(ring: &Ring, id: &str) {
    ring.wait_until("the drained drive to be empty", || {
        let drive = drive(ring, |drive| drive["id"] == *id);
        (&drive["copies"], &drive["used"]) == (&0.into(), &0.into())
    });
}

/// Its id.
fn add(ring: &Ring, server: &str, number: u32) -> String {
    add_at(ring, server, &ring.data(number).join("more"))
}

/// The same, where that is wanted.
pub fn add_at(ring: &Ring, server: &str, path: &Path) -> String {
    let path = path.display().to_string();
    ring.ask(1, &["drive", "add", server, &path, "--create", "64M"]).succeeded();
    drive(ring, |drive| drive["path"] == *path)["id"].as_str().expect("it was added").to_owned()
}

#[test]
fn a_drive_that_is_added_gets_its_share_and_one_that_is_drained_is_emptied_under_a_writer_and_kills() {
    let ring = Ring::up(4);
    make(&ring, "v", "mirror:2");
    let writer = Writer::start(ring.gateway(), "v", Ledger::new(31, BLOCKS));
    writer.go_on_for(SOME);
    let (added, drained) = (add(&ring, "s2", 2), id_of(&ring, "s3"));
    ring.wait_until("the new drive to have its share", || copies(&ring, &added) >= 16);
    writer.go_on_for(SOME);
    ring.ask(2, &["drive", "drain", &drained, "--no-wait"]).succeeded();
    writer.go_on_for(SOME);
    ring.kill(4);
    ring.wait_for_state(1, 4, "down");
    writer.go_on_for(SOME);
    ring.start(&[4]);
    ring.wait_until_drives_are_up(1);
    wait_until_emptied(&ring, &drained);
    ring.ask(1, &["drive", "rm", &drained]).succeeded();
    writer.go_on_for(SOME);
    let mut ledger = writer.finish();
    ring.wait_until_healthy(2, "v");
    (1..=4).for_each(|server| ledger.compare(&mut ring.connect(server, "v")));
    scrub_finds_nothing(&ring, "v");
}

/// As it's told to operators, and nobody who uses the volume notices.
#[test]
fn a_server_is_drained_and_taken_out_with_its_drives_while_a_client_goes_on_over_one_connection() {
    let ring = Ring::up(4);
    make(&ring, "v", "mirror:2");
    let mut client = Nbd::open(&ring.gateway(), "v").expect("the gateway serves it");
    let drives = [id_of(&ring, "s3"), add(&ring, "s3", 3)];
    let writer = Writer::start(ring.gateway(), "v", Ledger::new(34, BLOCKS));
    writer.go_on_for(SOME);
    ring.wait_until("both its drives to hold something", || drives.iter().all(|id| copies(&ring, id) > 0));
    let answer = ring.ask(1, &["server", "drain", "s3"]).succeeded();
    assert!(answer.contains("the drives of server s3 are empty"), "{answer}");
    for id in &drives {
        assert_eq!(copies(&ring, id), 0);
        ring.ask(2, &["drive", "rm", id]).succeeded();
    }
    writer.go_on_for(SOME);
    ring.ask(1, &["server", "rm", "s3"]).succeeded();
    ring.wait_until("nobody to know it", || [1, 2, 4].iter().all(|&server| ring.states(server).len() == 3));
    writer.go_on_for(SOME);
    client.read(0, BLOCK as u32).expect("the connection has lasted");
    let mut ledger = writer.finish();
    ring.wait_until("all to be well", || ring.json(2, &["status"])["health"] == "ok");
    for server in [1, 2, 4] {
        ledger.compare(&mut ring.connect(server, "v"));
        let scrub = ring.json(server, &["volume", "scrub", "v"]);
        assert_eq!((&scrub["repaired_blocks"], &scrub["damaged"]), (&0.into(), &json!([])), "{scrub}");
    }
}

#[test]
fn what_a_lost_drive_had_is_made_again_on_a_spare_and_nothing_is_at_risk_any_more() {
    let ring = Ring::up(3);
    let spare = add(&ring, "s1", 1);
    ring.ask(2, &["drive", "spare", &spare]).succeeded();
    make(&ring, "v", "mirror:2");
    assert_eq!(copies(&ring, &spare), 0);
    let writer = Writer::start(ring.gateway(), "v", Ledger::new(32, BLOCKS));
    writer.go_on_for(SOME);
    let lost = id_of(&ring, "s2");
    ring.ask(1, &["drive", "rm", &lost]).succeeded();
    ring.wait_until("others to have what the lost drive had", || drive(&ring, |drive| drive["id"] == lost).is_null());
    ring.wait_until_healthy(3, "v");
    assert!(copies(&ring, &spare) > 0, "the spare has stepped in");
    writer.go_on_for(SOME);
    let mut ledger = writer.finish();
    (1..=3).for_each(|server| ledger.compare(&mut ring.connect(server, "v")));
    scrub_finds_nothing(&ring, "v");
}

/// Story: only who led a part of it said what it misses: while others were about to, nobody did, or it was said to be unavailable.
#[test]
fn a_volume_that_misses_copies_is_named_with_the_drive_that_had_them_until_others_have_them() {
    let ring = Ring::up(3);
    make(&ring, "v", "mirror:3");
    let writer = Writer::start(ring.gateway(), "v", Ledger::new(35, BLOCKS));
    writer.go_on_for(SOME);
    let lost = id_of(&ring, "s2");
    let left = || drive(&ring, |drive| drive["id"] == *lost)["copies"].as_u64().unwrap_or(0);
    let said = || {
        let (volume, status) = (ring.json(3, &["volume", "show", "v"]), ring.json(1, &["status"]));
        let (of_volume, of_all) = (volume["reason"].to_string(), status["reason"].to_string());
        let is_told = [&of_volume, &of_all].iter().all(|text| text.contains("2 of 3 copies are there"));
        let is_named = [&of_volume, &of_all].iter().all(|text| text.contains(&lost)) && of_all.contains("volume 'v': ");
        (volume["state"] == "degraded" && status["health"] == "degraded" && is_told && is_named, volume, status)
    };
    let is_named = || said().0;
    ring.ask(1, &["drive", "rm", &lost]).succeeded();
    // Nobody else may take what it had.
    ring.wait_until("it to be said that copies are missing", is_named);
    program::stays("the volume misses copies", Duration::from_secs(1), || is_named() && left() > 0);
    add(&ring, "s2", 2);
    ring.wait_until("others to have what the lost drive had", || {
        let (is_named, volume, status) = said();
        let left = left(); // asked later, so there were as many before
        assert!(left == 0 || is_named, "{left} are missing: {volume}, {status}");
        left == 0
    });
    ring.wait_until("all to be well", || ring.json(1, &["status"])["health"] == "ok");
    assert_eq!(ring.json(3, &["volume", "show", "v"])["reason"], json!([]));
    let mut ledger = writer.finish();
    (1..=3).for_each(|server| ledger.compare(&mut ring.connect(server, "v")));
    scrub_finds_nothing(&ring, "v");
}

/// Story: a drive that had held something was removed, and its file was taken for somebody's data: the cluster couldn't be started
/// again, or said for ever that the file isn't used.
#[test]
fn a_drive_that_was_removed_is_an_empty_one_when_its_server_is_started_again() {
    let ring = Ring::up(3);
    make(&ring, "v", "mirror:2");
    let mut ledger = Ledger::new(33, BLOCKS);
    ledger.fill(&mut ring.connect(1, "v")).expect("written");
    for is_stopped in [false, true] {
        let removed = id_of(&ring, "s3");
        ring.ask(1, &["drive", "rm", &removed]).succeeded();
        ring.wait_until("others to have what it had", || drive(&ring, |drive| drive["id"] == *removed).is_null());
        match is_stopped {
            false => {
                ring.kill(3);
                ring.start(&[3]);
            }
            true => {
                ring.dev(&["down"]).succeeded();
                ring.dev(&["up", "--detach"]).succeeded();
            }
        }
        ring.wait_until_drives_are_up(1);
        assert_ne!(id_of(&ring, "s3"), removed);
        ring.wait_until("all to be well", || ring.json(2, &["status"])["health"] == "ok");
        (1..=3).for_each(|server| ledger.compare(&mut ring.connect(server, "v")));
    }
}
