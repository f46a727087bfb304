//! Volumes that are rolled back, or cloned and left, more often than anybody could count: nothing of it stays.

use crate::cluster::Plan;
use crate::nbd::{BLOCK, noise};
use crate::program;
use crate::servers::ring::Ring;
use crate::servers::volumes::scrub_finds_nothing;
use serde_json::Value;

/// More than one volume's history has room for at a time.
const ROUNDS: u64 = 320;
const SIZE: usize = 4 << 20;
/// Where something is written, and what is written twice: once to stay, and once to be rolled back.
const PLACES: u64 = 60;

fn place(round: u64) -> usize {
    (round % PLACES) as usize * 65_536 + (round % 7) as usize * BLOCK
}

/// As it's told in the records: runs of epochs that each reader sees.
fn lineages(records: &Value) -> Vec<String> {
    let rows = records["rows"].as_array().unwrap_or_else(|| panic!("rows, not {records}"));
    rows.iter().map(|row| row[0].as_str().expect("a text").to_owned()).collect()
}

const SEEN: &str = "SELECT lineage FROM volumes UNION ALL SELECT lineage FROM snapshots";

/// Story: from the 256th time on a rollback was refused for ever, though nothing was left of those before.
#[test]
fn a_volume_is_rolled_back_hundreds_of_times_and_keeps_no_trace_of_it() {
    let mut cluster = Plan { drives: 2, ..Plan::default() }.up();
    cluster.create("v", "4M", "mirror:2");
    let (mut volume, mut expected) = (cluster.connect("v"), vec![0; SIZE]);
    for round in 0..ROUNDS {
        let at = place(round);
        volume.write(at as u64, &noise(2 * round, 2 * BLOCK)).expect("written");
        expected[at..at + 2 * BLOCK].copy_from_slice(&noise(2 * round, 2 * BLOCK));
        cluster.tepal(&["snapshot", "create", "v@t"]).succeeded();
        volume.write((at + BLOCK) as u64, &noise(2 * round + 1, 2 * BLOCK)).expect("written");
        if round % 3 == 0 {
            volume.trim(at as u64, BLOCK as u32).expect("trimmed");
        }
        cluster.tepal(&["snapshot", "rollback", "v@t", "--force"]).succeeded();
        cluster.tepal(&["snapshot", "rm", "v@t"]).succeeded();
        if round % 40 == 39 {
            assert!(volume.read(0, SIZE as u32).expect("read") == expected, "round {round}");
        }
    }
    let is_one = || (lineages(&cluster.ask(&["sql", SEEN])).iter().all(|seen| !seen.contains(','))).then_some(());
    program::until("the volume to be as one that was never rolled back", program::LIMIT, is_one);
    drop(volume);
    cluster.kill();
    cluster.start();
    assert!(cluster.connect("v").read(0, SIZE as u32).expect("read") == expected);
    cluster.scrub_finds_nothing("v");
    cluster.tepal(&["volume", "rm", "v"]).succeeded();
    cluster.wait_until_all_is_free();
    cluster.stop_and_check_drives();
}

/// Story: the 255th clone of a clone of ... was refused, though all before it were gone, and there was nothing to flatten.
#[test]
fn clones_follow_clones_for_hundreds_of_generations_and_each_has_all() {
    let mut cluster = Plan { drives: 2, ..Plan::default() }.up();
    cluster.create("g0", "4M", "mirror:2");
    let mut expected = vec![0; SIZE];
    for generation in 0..ROUNDS {
        let (old, new) = (format!("g{generation}"), format!("g{}", generation + 1));
        let (at, snapshot) = (place(generation), format!("{old}@s"));
        let mut volume = cluster.connect(&old);
        volume.write(at as u64, &noise(2 * generation, 2 * BLOCK)).expect("written");
        expected[at..at + 2 * BLOCK].copy_from_slice(&noise(2 * generation, 2 * BLOCK));
        cluster.tepal(&["snapshot", "create", &snapshot]).succeeded();
        volume.write((at + BLOCK) as u64, &noise(2 * generation + 1, 2 * BLOCK)).expect("written");
        cluster.tepal(&["volume", "clone", &snapshot, &new]).succeeded();
        drop(volume);
        cluster.tepal(&["volume", "rm", &old, "--snapshots", "--force"]).succeeded();
        if generation % 40 == 39 {
            assert!(cluster.connect(&new).read(0, SIZE as u32).expect("read") == expected, "{new}");
        }
    }
    let last = format!("g{ROUNDS}");
    let is_one = || (lineages(&cluster.ask(&["sql", SEEN])).iter().all(|seen| !seen.contains(','))).then_some(());
    program::until("the last one to be as one that was never cloned", program::LIMIT, is_one);
    cluster.kill();
    cluster.start();
    assert!(cluster.connect(&last).read(0, SIZE as u32).expect("read") == expected);
    cluster.scrub_finds_nothing(&last);
    cluster.tepal(&["volume", "rm", &last]).succeeded();
    cluster.wait_until_all_is_free();
    cluster.stop_and_check_drives();
}

/// One is away for most of the rounds, with what was written before it left, and is alone when all is read in the end.
#[test]
fn rollbacks_go_on_while_a_server_is_away_and_what_it_had_is_not_seen_when_it_is_back() {
    let ring = Ring::up(3);
    ring.wait_until_all_are_up(1);
    ring.ask(1, &["volume", "create", "v", "--size", "4M", "--layout", "mirror:3"]).succeeded();
    ring.wait_until_healthy(1, "v");
    let mut expected = vec![0; SIZE];
    for round in 0..ROUNDS {
        match round {
            30 => ring.kill(3),
            300 => ring.start(&[3]),
            _ => {}
        }
        let (server, at) = (round as u32 % 2 + 1, place(round));
        let mut volume = ring.connect(server, "v");
        volume.write(at as u64, &noise(2 * round, 2 * BLOCK)).expect("written");
        expected[at..at + 2 * BLOCK].copy_from_slice(&noise(2 * round, 2 * BLOCK));
        ring.ask(server, &["snapshot", "create", "v@t"]).succeeded();
        volume.write((at + BLOCK) as u64, &noise(2 * round + 1, 2 * BLOCK)).expect("written");
        ring.ask(3 - server, &["snapshot", "rollback", "v@t", "--force"]).succeeded();
        ring.ask(server, &["snapshot", "rm", "v@t"]).succeeded();
        if round % 40 == 39 {
            assert!(volume.read(0, SIZE as u32).expect("read") == expected, "round {round}");
        }
    }
    ring.wait_until_healthy(1, "v");
    let is_one = || lineages(&ring.json(1, &["sql", SEEN])).iter().all(|seen| !seen.contains(','));
    ring.wait_until("the volume to be as one that was never rolled back", is_one);
    scrub_finds_nothing(&ring, "v");
    for server in 1..=3 {
        assert!(ring.connect(server, "v").read(0, SIZE as u32).expect("read") == expected, "s{server}");
    }
    // Two of three agree, and the drive that was away is one of two that are left, then the other.
    for (gone, server) in [(1, 3), (2, 3)] {
        ring.kill(gone);
        ring.wait_for_state(server, gone, "down");
        let mut volume = ring.connect(server, "v");
        for _ in 0..4 {
            assert!(volume.read(0, SIZE as u32).expect("read") == expected, "without s{gone}");
        }
        drop(volume);
        ring.start(&[gone]);
        ring.wait_until_drives_are_up(server);
    }
}
