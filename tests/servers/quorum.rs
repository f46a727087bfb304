//! Volumes of quorum layouts: nobody leads their columns, so nobody is waited for who has failed.

use super::moves::{add_at, copies, drive, drives, id_of, wait_until_emptied};
use super::ring::Ring;
use super::volumes::{BLOCKS, SOME, make, scrub_finds_nothing};
use crate::nbd::{BLOCK, Ledger, Writer, noise};
use crate::rot::{block, fill, places, rot};
use serde_json::json;
use std::time::{Duration, Instant};

const MIB: usize = 1 << 20;
/// Written blocks are at home by then.
const AT_HOME: Duration = Duration::from_secs(8);
/// Where a primary is killed, its clients wait for longer: until its lease has ended.
const PROMPT: Duration = Duration::from_millis(1_200);

#[test]
fn clients_of_a_quorum_go_on_while_servers_are_killed_and_stand_still() {
    let ring = Ring::up(4);
    make(&ring, "v", "quorum:1/4,t=1,async");
    let writer = Writer::start(ring.gateway(), "v", Ledger::new(51, BLOCKS));
    writer.go_on_for(SOME);
    for victim in [3, 2, 4] {
        ring.kill(victim);
        writer.go_on_for(SOME);
        ring.start(&[victim]);
        ring.wait_until_drives_are_up(1);
        ring.wait_until_healthy(1, "v");
        ring.dev(&["pause", &format!("s{victim}")]).succeeded();
        writer.go_on_for(SOME);
        ring.dev(&["resume", &format!("s{victim}")]).succeeded();
        ring.wait_until_drives_are_up(1);
        ring.wait_until_healthy(1, "v");
        writer.go_on_for(SOME);
    }
    let mut ledger = writer.finish();
    ring.wait_until_healthy(2, "v");
    (1..=4).for_each(|server| ledger.compare(&mut ring.connect(server, "v")));
    ring.ask(1, &["volume", "scrub", "v"]).succeeded();
    scrub_finds_nothing(&ring, "v");
}

/// No view has to change before a write goes on without a server. On a busy machine one round of some has to show it.
#[test]
fn a_killed_server_of_a_quorum_is_waited_for_by_nobody() {
    let ring = Ring::up(4);
    make(&ring, "v", "quorum:1/4,t=1,async");
    let mut slowest = Vec::new();
    for victim in [3, 2, 4, 3, 2] {
        let mut client = ring.connect(1, "v");
        let mut longest = Duration::ZERO;
        for request in 0..400u64 {
            if request == 100 {
                ring.kill(victim);
            }
            let begun = Instant::now();
            client.write(request % 64 * BLOCK as u64, &noise(request, BLOCK)).expect("written");
            longest = longest.max(begun.elapsed());
        }
        slowest.push(longest);
        if longest < PROMPT {
            return;
        }
        ring.start(&[victim]);
        ring.wait_until_drives_are_up(1);
    }
    panic!("each time a write waited: {slowest:?}");
}

#[test]
fn all_servers_of_a_quorum_may_be_killed_at_once() {
    let ring = Ring::up(5);
    make(&ring, "v", "quorum:2/5,t=1,b=1,async;extent=16K");
    let writer = Writer::start(ring.gateway(), "v", Ledger::new(52, BLOCKS));
    writer.go_on_for(SOME);
    for _ in 0..2 {
        (1..=5).for_each(|server| ring.kill(server));
        ring.start(&[4, 2, 5, 1, 3]);
        ring.wait_until_drives_are_up(1);
        writer.go_on_for(SOME);
    }
    let mut ledger = writer.finish();
    ring.wait_until_healthy(2, "v");
    (1..=5).for_each(|server| ledger.compare(&mut ring.connect(server, "v")));
}

#[test]
fn rotten_fragments_of_a_quorum_are_read_around_and_repaired() {
    let ring = Ring::up(3);
    make(&ring, "v", "quorum:1/3,t=1,async");
    fill(&mut ring.connect(1, "v"), BLOCKS);
    std::thread::sleep(AT_HOME);
    let numbers: Vec<usize> = (0..BLOCKS).step_by(37).collect();
    ring.stop(2);
    let path = ring.data(2).join("drive0");
    let places: Vec<u64> = places(&path, &numbers).into_iter().flatten().collect();
    places.iter().for_each(|place| rot(&path, *place));
    ring.start(&[2]);
    (1..=3).for_each(|server| ring.wait_until_drives_are_up(server));
    ring.wait_until_healthy(2, "v");
    assert!(places.len() > 10, "s2 has {} of {} blocks", places.len(), numbers.len());
    for number in 0..BLOCKS {
        let found = ring.connect(2, "v").read((number * BLOCK) as u64, BLOCK as u32).expect("a right block");
        assert!(found == block(number), "block {number}");
    }
    let scrub = ring.json(1, &["volume", "scrub", "v"]);
    assert_eq!((&scrub["damaged"], &scrub["unrepaired"]), (&json!([]), &json!([])), "{scrub}");
    std::thread::sleep(AT_HOME);
    scrub_finds_nothing(&ring, "v");
}

#[test]
fn what_is_taken_out_of_a_quorum_takes_no_room() {
    let ring = Ring::up(3);
    make(&ring, "v", "quorum:1/3,t=1,async");
    let mut client = ring.connect(1, "v");
    client.write(0, &noise(3, 8 * MIB)).expect("written");
    let allocated = || ring.json(1, &["volume", "show", "v"])["allocated"].as_u64().expect("bytes");
    ring.wait_until("the data to take its room", || allocated() >= 3 * 8 * MIB as u64);
    client.trim(0, 8 * MIB as u32).expect("taken out");
    assert!(client.read(0, 8 * MIB as u32).expect("read") == vec![0; 8 * MIB]);
    // What says of each block that it holds nothing stays.
    ring.wait_until("the room to be given back", || allocated() <= 12 * MIB as u64);
    drop(client);
    ring.ask(1, &["volume", "resize", "v", "4M", "--shrink"]).succeeded();
    ring.ask(1, &["volume", "resize", "v", "8M"]).succeeded();
    assert!(ring.connect(2, "v").read(4 * MIB as u64, 4 * MIB as u32).expect("read") == vec![0; 4 * MIB]);
    ring.ask(1, &["volume", "rm", "v"]).succeeded();
    ring.wait_until("all room to be free", || {
        let drives = ring.json(1, &["drive", "ls"]);
        drives.as_array().expect("a list").iter().all(|drive| drive["used"] == 0)
    });
}

#[test]
fn what_a_quorum_layout_cannot_do_is_refused_by_name() {
    let ring = Ring::up(3);
    make(&ring, "v", "quorum:1/3,t=1,async");
    make(&ring, "m", "mirror:2");
    for (words, said) in [
        (vec!["snapshot", "create", "v@s"], "no snapshots"),
        (vec!["volume", "relayout", "v", "--layout", "mirror:2"], "no way to another layout"),
        (vec!["volume", "relayout", "m", "--layout", "quorum:1/3,t=1,async"], "no way to a quorum layout"),
        (vec!["volume", "create", "w", "--size", "8M", "--layout", "quorum:1/2,t=1,sync"], "only async"),
        (vec!["volume", "create", "w", "--size", "8M", "--layout", "quorum:1/5,t=1,b=1,async"], "there are 3"),
    ] {
        let refused = ring.ask(1, &words).refused(1);
        assert!(refused.contains(said), "{words:?}: {refused}");
    }
    let wrong = ring.ask(1, &["volume", "create", "w", "--size", "8M", "--layout", "quorum:1/2,t=1,async"]).refused(2);
    assert!(wrong.contains("N >= 2t+2b+1 = 3"), "{wrong}");
}

#[test]
fn a_quorum_volume_is_copied_to_another_layout_and_back() {
    let ring = Ring::up(3);
    make(&ring, "v", "quorum:1/3,t=1,async");
    let bytes = noise(57, 4 * MIB);
    ring.connect(1, "v").write(0, &bytes).expect("written");
    let at = |name: &str| format!("nbd+unix:///{name}?socket={}", ring.data(1).join("nbd.sock").display());
    let live = ["volume", "import", "m", "--live", "--layout", "mirror:2", "--from", &at("v")];
    ring.ask(1, &live).succeeded();
    assert!(ring.connect(2, "m").read(0, bytes.len() as u32).expect("read") == bytes);
    ring.ask(1, &["volume", "rm", "v"]).succeeded();
    ring.ask(1, &["volume", "import", "v", "--layout", "quorum:1/3,t=1,async", "--from", &at("m")]).succeeded();
    assert!(ring.connect(3, "v").read(0, bytes.len() as u32).expect("read") == bytes);
}

#[test]
fn fragments_of_a_quorum_move_to_added_drives_and_off_drained_ones() {
    let ring = Ring::up(4);
    make(&ring, "v", "quorum:1/3,t=1,async");
    let writer = Writer::start(ring.gateway(), "v", Ledger::new(53, BLOCKS));
    writer.go_on_for(SOME);
    let (added, drained) = (add_at(&ring, "s2", &ring.data(2).join("more")), id_of(&ring, "s3"));
    ring.wait_until("the new drive to have its share", || copies(&ring, &added) >= 8);
    writer.go_on_for(SOME);
    ring.ask(2, &["drive", "drain", &drained, "--no-wait"]).succeeded();
    writer.go_on_for(SOME);
    ring.kill(4);
    ring.wait_for_state(1, 4, "down");
    ring.start(&[4]);
    ring.wait_until_drives_are_up(1);
    wait_until_emptied(&ring, &drained);
    ring.ask(1, &["drive", "rm", &drained]).succeeded();
    writer.go_on_for(SOME);
    is_all_there(&ring, writer, &[1, 2, 3, 4]);
}

#[test]
fn another_drive_replaces_a_lost_one_of_a_quorum_while_clients_write() {
    let ring = Ring::up(5);
    make(&ring, "v", "quorum:2/4,t=1,async");
    let writer = Writer::start(ring.gateway(), "v", Ledger::new(54, BLOCKS));
    writer.go_on_for(SOME);
    for victim in [3, 4] {
        let lost = id_of(&ring, &format!("s{victim}"));
        ring.kill(victim);
        ring.wait_for_state(1, victim, "down");
        ring.ask(1, &["drive", "rm", &lost, "--force"]).succeeded();
        ring.wait_until("others to have all that it had", || drive(&ring, |drive| drive["id"] == *lost).is_null());
        writer.go_on_for(SOME);
        // The next one may only go once the volume outlives a loss again.
        ring.wait_until_healthy(1, "v");
        ring.start(&[victim]);
        ring.wait_for_state(1, victim, "up");
        add_at(&ring, &format!("s{victim}"), &ring.data(victim).join("another"));
        ring.wait_until_drives_are_up(1);
    }
    is_all_there(&ring, writer, &[1, 2, 5]);
}

#[test]
fn a_drive_of_a_quorum_without_tolerance_is_not_drained() {
    let ring = Ring::up(2);
    make(&ring, "v", "quorum:2/2,t=0,async");
    let holding = drives(&ring).into_iter().find(|drive| drive["copies"] != 0).expect("one has it");
    let refused = ring.ask(1, &["drive", "drain", holding["id"].as_str().expect("an id"), "--no-wait"]).refused(1);
    assert!(refused.contains("needs all of its drives"), "{refused}");
}

/// All that was written is read through each of these servers, and all drives have the same.
fn is_all_there(ring: &Ring, writer: Writer, servers: &[u32]) {
    let mut ledger = writer.finish();
    ring.wait_until_healthy(2, "v");
    servers.iter().for_each(|server| ledger.compare(&mut ring.connect(*server, "v")));
    ring.ask(1, &["volume", "scrub", "v"]).succeeded();
    scrub_finds_nothing(ring, "v");
}
