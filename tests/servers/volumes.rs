//! Volumes over the drives of several servers: they outlive any of them, and clients only wait.

use super::ring::Ring;
use crate::nbd::{BLOCK, Ledger, Nbd, Writer};
use serde_json::json;
use std::time::{Duration, Instant};

pub const BLOCKS: usize = 2048;
/// Requests that must be answered before something else is done.
pub const SOME: u64 = 300;

pub fn wide(ring: &Ring) {
    make(ring, "v", "mirror:2");
}

pub fn make(ring: &Ring, volume: &str, layout: &str) {
    ring.wait_until_all_are_up(1);
    ring.ask(2, &["volume", "create", volume, "--size", "16M", "--layout", layout]).succeeded();
    ring.wait_until_healthy(ring.servers, volume);
}

pub fn scrub_finds_nothing(ring: &Ring, volume: &str) {
    for server in 1..=ring.servers {
        let scrub = ring.json(server, &["volume", "scrub", volume]);
        assert_eq!((&scrub["repaired_blocks"], &scrub["damaged"]), (&0.into(), &json!([])), "{scrub}");
    }
}

#[test]
fn clients_only_wait_while_servers_are_killed_or_paused_one_after_another_and_nothing_is_lost() {
    let ring = Ring::up(4);
    wide(&ring);
    // Its gateway stays, so it's never told of an error, nor loses its connection.
    let writer = Writer::start(ring.address(1), "v", Ledger::new(11, BLOCKS));
    writer.go_on_for(SOME);
    for (victim, is_killed) in [(2, true), (3, false), (4, true), (2, false), (3, true)] {
        match is_killed {
            true => ring.kill(victim),
            false => drop(ring.dev(&["pause", &format!("s{victim}")]).succeeded()),
        }
        ring.wait_for_state(1, victim, "down");
        writer.go_on_for(SOME);
        match is_killed {
            true => ring.start(&[victim]),
            false => drop(ring.dev(&["resume", &format!("s{victim}")]).succeeded()),
        }
        ring.wait_until_drives_are_up(1);
        writer.go_on_for(SOME);
    }
    let mut ledger = writer.finish();
    ring.wait_until_healthy(2, "v");
    (1..=4).for_each(|server| ledger.compare(&mut ring.connect(server, "v")));
    scrub_finds_nothing(&ring, "v");
}

/// Where a server is started again before the others have gone on without it, and where all are gone at once.
#[test]
fn servers_may_be_killed_at_any_moment_and_started_in_any_order_and_nothing_is_lost() {
    let ring = Ring::up(3);
    wide(&ring);
    let writer = Writer::start(ring.address(1), "v", Ledger::new(12, BLOCKS));
    let rounds: [&[u32]; 5] = [&[2], &[1], &[3], &[1, 2, 3], &[3, 1]];
    for victims in rounds {
        writer.go_on_for(SOME);
        victims.iter().for_each(|victim| ring.kill(*victim));
        ring.start_all_that_are_down();
        ring.wait_until_drives_are_up(victims[0] % 3 + 1);
    }
    writer.go_on_for(SOME);
    let mut ledger = writer.finish();
    ring.wait_until_healthy(2, "v");
    (1..=3).for_each(|server| ledger.compare(&mut ring.connect(server, "v")));
    scrub_finds_nothing(&ring, "v");
}

#[test]
fn a_volume_is_the_same_through_every_gateway_grows_for_all_of_them_and_gives_its_space_back_everywhere() {
    let ring = Ring::up(3);
    wide(&ring);
    let mut gateways: Vec<Nbd> = (1..=3).map(|server| ring.connect(server, "v")).collect();
    for round in 0..3 {
        let bytes = crate::nbd::noise(round as u64, 64 * BLOCK);
        let at = (round * 64 * BLOCK) as u64;
        gateways[round].write(at, &bytes).expect("written");
        for (server, gateway) in gateways.iter_mut().enumerate() {
            assert!(gateway.read(at, bytes.len() as u32).expect("there") == bytes, "through s{}", server + 1);
        }
        // One block over and over, each time by another.
        for turn in 0..30 {
            let bytes = crate::nbd::noise(turn as u64 + 100, BLOCK);
            gateways[turn % 3].write(8 << 20, &bytes).expect("written");
            assert!(gateways[(turn + 1) % 3].read(8 << 20, BLOCK as u32).expect("there") == bytes, "turn {turn}");
        }
    }
    gateways[0].trim(0, 64 * BLOCK as u32).expect("trimmed");
    assert!(gateways[2].read(0, 64 * BLOCK as u32).expect("zeros").iter().all(|byte| *byte == 0));
    drop(gateways);

    let mut past = ring.connect(3, "v");
    past.write(12 << 20, &[7; BLOCK]).expect("written");
    let refused = ring.ask(2, &["volume", "resize", "v", "8M", "--shrink"]).refused(1);
    assert!(refused.contains("a client is connected"), "{refused}");
    ring.ask(2, &["volume", "resize", "v", "8M", "--shrink", "--force"]).succeeded();
    assert_eq!(ring.connect(3, "v").size, 8 << 20);
    assert!(past.read(12 << 20, BLOCK as u32).is_err());
    ring.ask(3, &["volume", "resize", "v", "24M"]).succeeded();
    let mut grown = ring.connect(3, "v");
    assert!(
        grown.read(12 << 20, BLOCK as u32).expect("zeros").iter().all(|byte| *byte == 0),
        "what was cut off is gone"
    );
    ring.connect(1, "v").write(20 << 20, &[7; BLOCK]).expect("there is room");
    assert!(ring.json(1, &["volume", "show", "v"])["allocated"].as_u64() > Some(0));
    ring.ask(2, &["volume", "rm", "v"]).refused(1);
    ring.ask(2, &["volume", "rm", "v", "--force"]).succeeded();
    ring.wait_until("all space to be free", || {
        let drives = ring.json(1, &["drive", "ls"]);
        drives.as_array().expect("a list").iter().all(|drive| drive["used"] == 0)
    });
    assert!(Nbd::open(&ring.address(3), "v").is_err(), "it's gone");
}

/// Those that are gone have the newest data, so nobody may go on from older: the server that is left has no majority either.
#[test]
fn without_any_copy_it_waits_and_goes_on_when_the_servers_are_back() {
    let ring = Ring::up(3);
    wide(&ring);
    let mut ledger = Ledger::new(13, BLOCKS);
    ledger.fill(&mut ring.connect(1, "v")).expect("written");
    ring.kill(2);
    ring.wait_for_state(1, 2, "down");
    ledger.compare(&mut ring.connect(3, "v"));
    ring.kill(3);
    let writer = Writer::start(ring.address(1), "v", ledger);
    let before = writer.settled();
    let status = ring.json(1, &["status"]);
    assert_eq!(status["health"], "unavailable", "{status}");
    assert!(status["reason"].to_string().contains("server s1 may not serve"), "{status}");
    ring.start(&[3, 2]);
    ring.wait_until_drives_are_up(1);
    writer.go_on_for(SOME);
    let mut ledger = writer.finish();
    println!("{before} requests were answered before it waited");
    ring.wait_until_healthy(2, "v");
    ledger.compare(&mut ring.connect(2, "v"));
    scrub_finds_nothing(&ring, "v");
}

#[test]
fn servers_that_were_away_while_a_volume_was_removed_end_its_use_and_give_its_space_back() {
    let ring = Ring::up(3);
    wide(&ring);
    let all_free = || ring.json(1, &["drive", "ls"]).as_array().expect("a list").iter().all(|drive| drive["used"] == 0);
    // One that was dead all the time.
    Ledger::new(14, BLOCKS).fill(&mut ring.connect(1, "v")).expect("written");
    ring.kill(3);
    ring.wait_for_state(1, 3, "down");
    ring.ask(1, &["volume", "rm", "v"]).succeeded();
    ring.start(&[3]);
    ring.wait_until_drives_are_up(1);
    ring.wait_until("the space to be free on the drive that was away", all_free);
    // One that stood still, with a client.
    wide(&ring);
    Ledger::new(15, BLOCKS).fill(&mut ring.connect(1, "v")).expect("written");
    let mut client = ring.connect(2, "v");
    ring.dev(&["pause", "s2"]).succeeded();
    ring.wait_for_state(1, 2, "down");
    ring.ask(1, &["volume", "rm", "v", "--force"]).succeeded();
    ring.dev(&["resume", "s2"]).succeeded();
    ring.wait_until_drives_are_up(1);
    ring.wait_until("the space to be free on the drive that stood still", all_free);
    assert!(client.read(0, BLOCK as u32).is_err(), "it's gone");
    assert!(Nbd::open(&ring.address(2), "v").is_err(), "it's gone");
}

/// Story: each question about a few GiB began with one extent anew and asked all columns many times, so that a walk over an empty
/// volume of 16 TiB took ten minutes.
#[test]
fn an_empty_volume_of_tebibytes_is_one_hole_after_seconds() {
    crate::need!("nbdinfo");
    let ring = Ring::up(4);
    ring.wait_until_all_are_up(1);
    ring.ask(2, &["volume", "create", "v", "--size", "1T", "--layout", "chained"]).succeeded();
    ring.wait_until_healthy(ring.servers, "v");
    let began = Instant::now();
    let uri = format!("nbd+unix:///v?socket={}", ring.data(1).join("nbd.sock").display());
    let mut map = crate::program::command("nbdinfo", ["--map", "--totals", "--json", &uri]);
    let map = crate::program::run_within(&mut map, Duration::from_secs(180)).succeeded();
    println!("the map of 1 TiB: {:?}", began.elapsed());
    let totals: serde_json::Value = serde_json::from_str(&map).expect("JSON");
    assert_eq!((&totals[0]["size"], &totals[0]["type"]), (&(1u64 << 40).into(), &3.into()), "{totals}");
    // 3 s on an idle machine, and 45 s as it was.
    assert!(began.elapsed() < Duration::from_secs(40), "{:?}", began.elapsed());
}

/// Each of them once asked by itself, several times a heartbeat, whether all had heard of each change: with eighty, the servers lost their
/// leases again and again, and no more were made.
#[test]
fn hundreds_of_volumes_over_several_servers_are_made() {
    let ring = Ring::up(3);
    ring.wait_until_all_are_up(1);
    let table = |number| format!("[[volume]]\nname = \"v{number}\"\nsize = \"1M\"\nlayout = \"chained\"\n");
    let file = ring.scratch_file("volumes.toml");
    std::fs::write(&file, (0..300).map(table).collect::<String>()).expect("space");
    // On a busy machine servers may lose each other for a moment: what is done is done, and it goes on.
    ring.wait_until("volumes to be made", || ring.ask(1, &["apply", file.to_str().expect("a path")]).status.success());
    ring.ask(2, &["snapshot", "create", "v299@last"]).succeeded();
    assert_eq!(ring.json(3, &["status"])["volumes"], 300);
}
