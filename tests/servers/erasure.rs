//! Volumes that an erasure code keeps: they outlive as many servers as there is code, also under load, and do what other volumes do.

use super::moves::{add_at, copies, id_of, wait_until_emptied};
use super::ring::Ring;
use super::volumes::{BLOCKS, SOME, make, scrub_finds_nothing};
use crate::nbd::{BLOCK, Ledger, Writer, noise};
use crate::rot::{block, fill, places, rot};
use serde_json::json;
use std::time::Duration;

const MIB: usize = 1 << 20;
/// Written blocks are in place by then.
const IN_PLACE: Duration = Duration::from_secs(5);

#[test]
fn clients_only_wait_while_any_two_of_six_servers_are_killed() {
    let ring = Ring::up(6);
    make(&ring, "v", "ec:4+2;min_extra=0");
    let writer = Writer::start(ring.gateway(), "v", Ledger::new(41, BLOCKS));
    writer.go_on_for(SOME);
    for pair in [[2, 5], [6, 4], [3, 2]] {
        for victim in pair {
            ring.kill(victim);
            ring.wait_for_state(1, victim, "down");
            writer.go_on_for(SOME);
        }
        ring.start(&pair);
        ring.wait_until_drives_are_up(1);
        ring.wait_until_healthy(1, "v");
        writer.go_on_for(SOME);
    }
    let mut ledger = writer.finish();
    ring.wait_until_healthy(2, "v");
    (1..=6).for_each(|server| ledger.compare(&mut ring.connect(server, "v")));
    scrub_finds_nothing(&ring, "v");
}

#[test]
fn two_lost_servers_lose_nothing_of_log_or_stripes() {
    let ring = Ring::up(6);
    make(&ring, "v", "ec:4+2");
    let (old, new) = (noise(1, 8 * MIB), noise(2, MIB));
    let mut client = ring.connect(1, "v");
    client.write(0, &old).expect("written");
    // Whole stripes are in place by then, and the write after them is in the log.
    std::thread::sleep(IN_PLACE);
    client.write(3 * MIB as u64 + 512, &new).expect("written");
    drop(client);
    ring.dev(&["kill", "s3", "s6"]).succeeded();
    let mut wanted = old;
    wanted[3 * MIB + 512..4 * MIB + 512].copy_from_slice(&new);
    for server in [1, 2, 4, 5] {
        assert!(ring.connect(server, "v").read(0, 8 * MIB as u32).expect("read") == wanted, "by s{server}");
    }
    ring.start(&[3, 6]);
    ring.wait_until_healthy(1, "v");
    ring.dev(&["kill", "s1", "s2"]).succeeded();
    assert!(ring.connect(4, "v").read(0, 8 * MIB as u32).expect("read") == wanted, "by others");
}

#[test]
fn a_volume_says_how_many_more_losses_it_outlives() {
    let ring = Ring::up(5);
    make(&ring, "v", "ec:3+2;min_extra=0");
    let left = |server| ring.json(server, &["volume", "show", "v"])["losses_left"].as_u64();
    ring.wait_until_healthy(1, "v");
    assert_eq!(left(1), Some(2));
    let shown = ring.ask(1, &["volume", "show", "v"]).succeeded();
    assert!(shown.contains("any 2 lost drives"), "{shown}");
    for (gone, wanted, said) in
        [(5, 1, "4 of 5 fragments are there, and one more may be lost"), (4, 0, "no more may be lost")]
    {
        ring.kill(gone);
        ring.wait_for_state(1, gone, "down");
        ring.wait_until("the loss to be counted", || left(2) == Some(wanted));
        let status = ring.ask(1, &["status"]).succeeded();
        assert!(status.contains(said), "{status}");
    }
    ring.start(&[4, 5]);
    ring.wait_until_healthy(1, "v");
    ring.wait_until("all to be there again", || left(3) == Some(2));
}

#[test]
fn a_drive_whose_fragments_are_needed_is_not_removed() {
    let ring = Ring::up(3);
    make(&ring, "v", "ec:2+1");
    let bytes = noise(3, MIB);
    ring.connect(1, "v").write(0, &bytes).expect("written");
    let id = id_of(&ring, "s2");
    ring.kill(3);
    ring.wait_for_state(1, 3, "down");
    let refused = ring.ask(1, &["drive", "rm", &id]).refused(1);
    assert!(refused.contains("v"), "{refused}");
    ring.start(&[3]);
    ring.wait_until_healthy(1, "v");
    ring.ask(1, &["drive", "rm", &id]).succeeded();
    assert!(ring.connect(2, "v").read(0, MIB as u32).expect("read") == bytes);
}

#[test]
fn a_scrub_rebuilds_rotten_fragments_from_others() {
    let ring = Ring::up(3);
    make(&ring, "v", "ec:2+1");
    fill(&mut ring.connect(1, "v"), BLOCKS);
    std::thread::sleep(IN_PLACE);
    let numbers: Vec<usize> = (0..BLOCKS).step_by(37).collect();
    for server in 1..=3 {
        ring.stop(server);
        let path = ring.data(server).join("drive0");
        let places: Vec<u64> = places(&path, &numbers).into_iter().flatten().collect();
        places.iter().for_each(|place| rot(&path, *place));
        ring.start(&[server]);
        ring.wait_until_drives_are_up(server);
        ring.wait_until_healthy(server, "v");
        assert!(places.len() > 10, "s{server} has {} of {} blocks", places.len(), numbers.len());
        let scrub = ring.json(server % 3 + 1, &["volume", "scrub", "v"]);
        assert_eq!((&scrub["damaged"], &scrub["unrepaired"]), (&json!([]), &json!([])), "of s{server}: {scrub}");
        // A leader that catches the returned drive up, or destages beside the scrub, rebuilds what it meets before the scrub does.
        let repaired = scrub["repaired_blocks"].as_u64().expect("a number");
        assert!((1..=places.len() as u64).contains(&repaired), "{} rotten blocks of s{server}: {scrub}", places.len());
        scrub_finds_nothing(&ring, "v");
    }
    for number in 0..BLOCKS {
        let found = ring.connect(2, "v").read((number * BLOCK) as u64, BLOCK as u32).expect("a right block");
        assert!(found == block(number), "block {number}");
    }
}

#[test]
fn fragments_move_to_added_drives_and_away_from_drained_ones() {
    let ring = Ring::up(4);
    make(&ring, "v", "ec:2+1");
    let writer = Writer::start(ring.gateway(), "v", Ledger::new(42, BLOCKS));
    writer.go_on_for(SOME);
    let (added, drained) = (add_at(&ring, "s2", &ring.data(2).join("more")), id_of(&ring, "s3"));
    ring.wait_until("the new drive to have its share", || copies(&ring, &added) >= 8);
    writer.go_on_for(SOME);
    ring.ask(2, &["drive", "drain", &drained, "--no-wait"]).succeeded();
    writer.go_on_for(SOME);
    wait_until_emptied(&ring, &drained);
    ring.ask(1, &["drive", "rm", &drained]).succeeded();
    writer.go_on_for(SOME);
    let mut ledger = writer.finish();
    ring.wait_until_healthy(2, "v");
    (1..=4).for_each(|server| ledger.compare(&mut ring.connect(server, "v")));
    scrub_finds_nothing(&ring, "v");
}

#[test]
fn snapshots_clones_and_rollbacks_show_their_own_stripes() {
    let ring = Ring::up(3);
    make(&ring, "v", "ec:2+1");
    let [first, second, third] = [1, 2, 3].map(|seed| noise(seed, 2 * MIB));
    ring.connect(1, "v").write(0, &first).expect("written");
    ring.ask(2, &["snapshot", "create", "v@before"]).succeeded();
    ring.connect(2, "v").write(0, &second).expect("written");
    ring.ask(3, &["volume", "clone", "v@before", "w"]).succeeded();
    ring.connect(3, "w").write(MIB as u64, &third[..MIB]).expect("written");
    let of_clone = [&first[..MIB], &third[..MIB]].concat();
    for pause in [Duration::ZERO, IN_PLACE] {
        std::thread::sleep(pause);
        assert!(ring.connect(1, "v").read(0, 2 * MIB as u32).expect("read") == second);
        assert!(ring.connect(2, "v@before").read(0, 2 * MIB as u32).expect("read") == first);
        assert!(ring.connect(3, "w").read(0, 2 * MIB as u32).expect("read") == of_clone);
    }
    ring.ask(1, &["snapshot", "rollback", "v@before"]).succeeded();
    assert!(ring.connect(2, "v").read(0, 2 * MIB as u32).expect("read") == first);
    ring.ask(1, &["volume", "resize", "v", "32M"]).succeeded();
    assert!(ring.connect(3, "v").read(30 * MIB as u64, MIB as u32).expect("read").iter().all(|&byte| byte == 0));
}

#[test]
fn a_code_that_cannot_be_kept_is_refused_with_the_rule() {
    let ring = Ring::up(3);
    ring.wait_until_all_are_up(1);
    let create = |layout: &str| ring.ask(1, &["volume", "create", "v", "--size", "16M", "--layout", layout]);
    for (layout, status, said) in [
        ("ec:4+2", 1, "keeps 6 fragments on different drives, and there are 3 to use"),
        ("ec:2+0", 2, "2 to 16 data and 1 to 4 code fragments"),
        ("ec:2+1;extent=96K", 2, "a multiple of 128K"),
        ("ec:2+1;min_extra=2", 2, "from 0 to the layout's 1"),
    ] {
        let refused = create(layout).refused(status);
        assert!(refused.contains(said), "{layout}: {refused}");
    }
    let large = ring.ask(1, &["volume", "create", "v", "--size", "4E", "--layout", "ec:2+1"]).refused(1);
    assert!(large.contains("at most 2^61"), "{large}");
}
