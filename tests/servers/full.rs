//! Full drives: what's on them can always be read, and nothing is moved to where there's no room.

use super::ring::Ring;
use super::volumes::scrub_finds_nothing;
use crate::nbd::{BLOCK, Errno, Ledger, NO_SPACE, Nbd, kind};
use crate::program;
use std::collections::BTreeMap;
use std::time::Duration;

/// Blocks of one write, and writes under way at a time.
const PIECE: usize = 64;
const AT_ONCE: usize = 8;
const REFUSED: usize = 24;

fn make(ring: &Ring, layout: &str, size: &str) {
    ring.wait_until_all_are_up(1);
    ring.ask(2, &["volume", "create", "v", "--size", size, "--layout", layout]).succeeded();
    ring.wait_until_healthy(3, "v");
}

fn connect(ring: &Ring) -> Nbd {
    Nbd::open(&ring.gateway(), "v").expect("the gateway serves it")
}

fn add(ring: &Ring, server: u32) {
    let path = ring.data(server).join("large").display().to_string();
    ring.ask(1, &["drive", "add", &format!("s{server}"), &path, "--create", "256M"]).succeeded();
}

/// Writes everywhere until there's no room, then has something happen while writes are under way.
fn overwrite_until_full(ring: &Ring, ledger: &mut Ledger, meanwhile: impl FnOnce()) {
    let (mut client, mut under_way, mut refused) = (connect(ring), BTreeMap::new(), 0);
    let pieces = ledger.blocks() / PIECE;
    let mut meanwhile = Some(meanwhile);
    for nth in 0.. {
        let first = nth * 37 % pieces * PIECE;
        let data = ledger.issue(first, PIECE);
        let cookie = client.send(kind::WRITE, 0, (first * BLOCK) as u64, data.len() as u32, &data).expect("it serves");
        under_way.insert(cookie, first);
        if refused >= REFUSED
            && let Some(happens) = meanwhile.take()
        {
            happens();
        }
        while under_way.len() >= AT_ONCE || (meanwhile.is_none() && !under_way.is_empty()) {
            let (cookie, outcome) = client.answer().expect("it only waits");
            let first = under_way.remove(&cookie).expect("it was asked");
            match outcome {
                Ok(()) => ledger.promise(first, PIECE, true),
                Err(Errno(NO_SPACE)) => refused += 1,
                Err(error) => panic!("{error:?}"),
            }
        }
        if meanwhile.is_none() {
            return;
        }
    }
}

/// Story: one of three copies was on a drive that was full, and others took what it refused. After a kill, nobody could read what
/// had been written last, nor snapshots around it, until there was room.
#[test]
fn what_is_on_full_drives_is_read_after_kills_and_so_are_its_snapshots_and_the_space_comes_back() {
    let ring = Ring::up(3);
    (1..=2).for_each(|server| add(&ring, server));
    make(&ring, "mirror:3", "40M");
    let mut ledger = Ledger::new(41, 10240);
    ledger.fill(&mut connect(&ring)).expect("there's room for it once");
    ring.ask(1, &["snapshot", "create", "v@a"]).succeeded();
    let mut snapshot = ledger.clone();
    for victims in [&[1][..], &[3], &[1, 2, 3]] {
        overwrite_until_full(&ring, &mut ledger, || {
            victims.iter().for_each(|victim| ring.kill(*victim));
            ring.start(victims);
        });
        ring.wait_until_drives_are_up(1);
        for server in 1..=3 {
            ledger.compare(&mut ring.connect(server, "v"));
            snapshot.compare(&mut ring.connect(server, "v@a"));
        }
    }
    ring.ask(2, &["snapshot", "rm", "v@a"]).succeeded();
    let once = (3 * 10240 * BLOCK) as u64;
    ring.wait_until("only what the volume has to take space", || {
        ring.json(3, &["volume", "show", "v"])["allocated"].as_u64() == Some(once)
    });
    ring.wait_until_healthy(2, "v");
    (1..=3).for_each(|server| ledger.compare(&mut ring.connect(server, "v")));
    scrub_finds_nothing(&ring, "v");
    let freed = ring.ask(3, &["volume", "rm", "v", "--wait"]).succeeded();
    assert!(freed.contains("120M are free again"), "{freed}");
}

fn view(ring: &Ring) -> u64 {
    ring.json(1, &["status"])["view"].as_u64().expect("a number")
}

/// What is said of the drive of a server that was made with it.
fn said_of(ring: &Ring, server: u32) -> serde_json::Value {
    let path = ring.data(server).join("drive0").display().to_string();
    let drives = ring.json(2, &["drive", "ls"]);
    drives.as_array().expect("a list").iter().find(|drive| drive["path"] == *path).cloned().expect("it's listed")
}

/// Story: a drive was to be emptied onto others that were nearly full. Copies were moved and called off many times a second, and
/// writes failed for want of room that the drive had.
#[test]
fn a_drive_is_not_emptied_where_others_have_no_room_and_takes_writes_on_until_they_have() {
    let ring = Ring::up(3);
    make(&ring, "mirror:2", "80M");
    let mut ledger = Ledger::new(42, 17920);
    ledger.fill(&mut connect(&ring)).expect("there's room for it");
    let id = said_of(&ring, 2)["id"].as_str().expect("an id").to_owned();
    let answer = ring.ask(1, &["drive", "drain", &id, "--no-wait"]).succeeded();
    assert!(answer.contains("no room"), "{answer}");
    let waited = ring.ask(1, &["drive", "drain", &id]);
    assert_eq!(waited.status.code(), Some(1), "{waited}");
    assert!(waited.stderr.contains("isn't emptied now") && waited.stderr.contains("no room"), "{waited}");
    let before = view(&ring);
    let status = ring.json(3, &["status"]);
    assert!(status["reason"].to_string().contains("isn't emptied: others have no room"), "{status}");
    assert!(said_of(&ring, 2)["stuck"].to_string().contains("no room"), "{}", said_of(&ring, 2));
    let mut more = Ledger::new(43, 2048);
    let mut client = connect(&ring);
    for first in (0..2048).step_by(PIECE) {
        let data = more.issue(first, PIECE);
        client.write(((17920 + first) * BLOCK) as u64, &data).expect("there's room for that too");
    }
    program::stays("what is agreed doesn't change for nothing", Duration::from_secs(2), || view(&ring) < before + 3);
    add(&ring, 1);
    add(&ring, 3);
    let answer = ring.ask(3, &["drive", "drain", &id]).succeeded();
    assert!(answer.contains("is empty"), "{answer}");
    assert_eq!(said_of(&ring, 2)["copies"], 0);
    assert!(said_of(&ring, 2)["stuck"].is_null());
    (1..=3).for_each(|server| ledger.compare(&mut ring.connect(server, "v")));
}

#[test]
fn a_server_whose_copies_have_nowhere_to_go_is_said_not_to_be_emptied() {
    let ring = Ring::up(3);
    make(&ring, "mirror:3", "16M");
    let answer = ring.ask(1, &["server", "drain", "s2", "--no-wait"]).succeeded();
    assert!(answer.contains("nowhere to go"), "{answer}");
    let status = ring.json(3, &["status"]);
    assert!(status["health"] == "degraded" && status["reason"].to_string().contains("nowhere to go"), "{status}");
    ring.ask(1, &["server", "drain", "s2", "--cancel"]).succeeded();
    assert!(said_of(&ring, 2)["stuck"].is_null());
    ring.wait_until("nothing to be said any more", || ring.json(3, &["status"])["health"] == "ok");
}
