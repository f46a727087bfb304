//! A cluster gets another server while clients write, and servers come and go meanwhile.

use super::moves::{copies, drives};
use super::ring::Ring;
use super::volumes::{BLOCKS, SOME, make};
use crate::nbd::{Ledger, Writer};
use serde_json::{Value, json};

/// The one that is added.
const NEW: u32 = 5;

fn kill(ring: &Ring, server: u32) {
    match server {
        NEW => ring.kill_own(NEW),
        old => ring.kill(old),
    }
}

fn start(ring: &Ring, server: u32) {
    match server {
        NEW => ring.join(NEW, 1),
        old => ring.start(&[old]),
    }
}

/// How many copies each drive has.
fn shares(ring: &Ring) -> Vec<u64> {
    drives(ring).iter().filter_map(|drive| drive["copies"].as_u64()).collect()
}

/// Copies that are on their way.
fn under_way(ring: &Ring) -> u64 {
    let joins = ring.json(1, &["sql", "SELECT count(*) FROM map_joins"]);
    joins["rows"][0][0].as_u64().expect("a number")
}

#[test]
fn a_fifth_server_gets_its_share_under_a_writer_while_it_and_the_others_are_killed_one_after_another() {
    let ring = Ring::up(4);
    make(&ring, "v", "mirror:2");
    let all: u64 = shares(&ring).iter().sum();
    let writer = Writer::start(ring.gateway(), "v", Ledger::new(42, BLOCKS));
    writer.go_on_for(SOME);
    ring.join(NEW, 1);
    let of_new = || drives(&ring).iter().find(|drive| drive["server"] == "s5").cloned().unwrap_or(Value::Null);
    ring.wait_until("it to get some copies", || of_new()["copies"].as_u64().is_some_and(|copies| copies > 2));
    let new = of_new()["id"].as_str().expect("an id").to_owned();
    assert!(copies(&ring, &new) < all / 5, "it hasn't all of its share yet");
    for victim in [NEW, 2, NEW, 3, 1, 4] {
        let seen_by = victim % 4 + 1;
        kill(&ring, victim);
        ring.wait_for_state(seen_by, victim, "down");
        writer.go_on_for(SOME);
        start(&ring, victim);
        ring.wait_until_drives_are_up(seen_by);
        writer.go_on_for(SOME);
    }
    ring.wait_until("each to have its share", || {
        let shares = shares(&ring);
        let fair = all / 5 - all / 20..=all / 5 + all / 20;
        shares.len() == 5 && shares.iter().all(|share| fair.contains(share)) && under_way(&ring) == 0
    });
    assert_eq!(shares(&ring).iter().sum::<u64>(), all);
    writer.go_on_for(SOME);
    let mut ledger = writer.finish();
    ring.wait_until("all to be well", || ring.json(NEW, &["status"])["health"] == "ok");
    for server in 1..=NEW {
        assert_eq!(ring.states(server), ["up"; 5]);
        ledger.compare(&mut ring.connect(server, "v"));
        let scrub = ring.json(server, &["volume", "scrub", "v"]);
        assert_eq!((&scrub["repaired_blocks"], &scrub["damaged"]), (&0.into(), &json!([])), "{scrub}");
    }
}
