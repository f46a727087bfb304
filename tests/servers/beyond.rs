//! More is lost for good than the layout allows: that is told at once, and everything else goes on.

use super::moves::id_of;
use super::ring::Ring;
use crate::nbd::noise;
use serde_json::Value;
use std::time::{Duration, Instant};

const SIZE: u64 = 24 << 20;
const PIECE: u64 = 64 << 10;
/// For what waits for nobody, on a machine that is busy.
const AT_ONCE: Duration = Duration::from_secs(30);

fn within<T>(limit: Duration, what: &str, act: impl FnOnce() -> T) -> T {
    let begun = Instant::now();
    let done = act();
    assert!(begun.elapsed() < limit, "{what} took {:?}", begun.elapsed());
    done
}

/// The servers 3 and 4 are lost for good, with their drives.
fn lose_two_servers(ring: &Ring) {
    let drives = ["s3", "s4"].map(|server| id_of(ring, server));
    for server in [3, 4] {
        ring.kill(server);
        ring.wait_for_state(1, server, "down");
    }
    for drive in &drives {
        ring.ask(1, &["drive", "rm", drive, "--force"]).succeeded();
    }
}

/// Story: requests for what was lost were answered as ones to be made again. An export asked for 150 seconds for each lost piece, and what
/// it skipped left out columns in which nothing was known to be written.
#[test]
fn what_two_lost_servers_of_three_had_is_told_as_lost_and_all_else_is_saved() {
    let ring = Ring::up(4);
    ring.wait_until_all_are_up(1);
    ring.ask(1, &["volume", "create", "v", "--size", "24M", "--layout", "ec:2+1"]).succeeded();
    ring.wait_until_healthy(4, "v");
    let data = noise(3, SIZE as usize);
    let mut client = ring.connect(1, "v");
    client.write(0, &data).expect("written");
    client.flush().expect("stable");
    ring.ask(1, &["volume", "create", "bare", "--size", "24M", "--layout", "ec:2+1"]).succeeded();
    lose_two_servers(&ring);

    // Each export ends, and says what is lost, also where nothing was written.
    let (saved, ranges) = saved(&ring, "v");
    assert!(ranges.iter().map(|(_, length)| length).sum::<u64>() < SIZE, "a column of others is whole: {ranges:?}");
    let is_lost = |at: u64| ranges.iter().any(|(offset, length)| (*offset..offset + length).contains(&at));
    let pieces = || (0..SIZE).step_by(PIECE as usize);
    let of = |at: u64| at as usize..(at + PIECE) as usize;
    assert!(pieces().filter(|at| !is_lost(*at)).all(|at| saved[of(at)] == data[of(at)]));
    let (zeros, of_bare) = self::saved(&ring, "bare");
    assert!(!of_bare.is_empty() && zeros.iter().all(|byte| *byte == 0));

    for server in [1, 2] {
        let mut client = ring.connect(server, "v");
        for at in pieces() {
            let read = within(AT_ONCE, "a read", || client.read(at, PIECE as u32));
            match read {
                Ok(found) => assert!(found == data[of(at)] && !is_lost(at), "at {at}"),
                Err(error) => assert!(is_lost(at), "at {at}: {error:?}"),
            }
        }
        let at = ranges[0].0;
        within(AT_ONCE, "a write", || client.write(at, &data[..4096]).expect_err("nobody could read it"));
    }
    let shown = ring.json(1, &["volume", "show", "v"]);
    assert_eq!(shown["state"], "unavailable", "{shown}");
    assert!(shown["reason"].to_string().contains("1 of 3 fragments is there, and 2 are needed"), "{shown}");

    let refused = within(AT_ONCE, "an export", || ring.ask(1, &["volume", "export", "v"]).refused(1));
    assert!(refused.contains("lost") && refused.contains("--keep-going"), "{refused}");
    for name in ["v", "bare"] {
        within(AT_ONCE, "a removal", || ring.ask(1, &["volume", "rm", name, "--force"]).succeeded());
    }
    ring.wait_until("all space to be free", || {
        let drives = ring.json(1, &["drive", "ls"]);
        let here = drives.as_array().expect("a list").iter().filter(|drive| drive["state"] == "up");
        here.into_iter().all(|drive| drive["used"] == 0)
    });
}

/// What was lost with two of four servers is given up: it's zeros from then on, takes no room, and is written again with a fifth server.
#[test]
fn what_is_given_up_of_a_code_is_zeros_and_is_written_again_on_a_fifth_server() {
    let ring = Ring::up(4);
    ring.wait_until_all_are_up(1);
    ring.ask(1, &["volume", "create", "v", "--size", "24M", "--layout", "ec:2+1"]).succeeded();
    ring.wait_until_healthy(4, "v");
    let mut data = noise(5, SIZE as usize);
    let mut client = ring.connect(1, "v");
    client.write(0, &data).expect("written");
    client.flush().expect("stable");
    ring.ask(1, &["snapshot", "create", "v@before"]).succeeded();
    client.write(PIECE / 2, &data[(PIECE / 2) as usize..][..3 * PIECE as usize]).expect("written");
    lose_two_servers(&ring);
    let used = || {
        let drives = ring.json(1, &["drive", "ls"]);
        drives.as_array().expect("a list").iter().filter_map(|drive| drive["used"].as_u64()).sum::<u64>()
    };
    let ranges = saved(&ring, "v").1;
    let before = used();
    let refused = ring.ask(1, &["volume", "accept-loss", "v"]).refused(1);
    assert!(refused.contains("--force") && refused.contains("zeros"), "{refused}");
    let other = ring.ask(1, &["volume", "accept-loss", "v", "--force", "--shown", "0123456789ab"]).refused(1);
    assert!(other.contains("other parts of volume 'v' are lost by now than were shown"), "{other}");
    assert_eq!(saved(&ring, "v").1, ranges, "nothing was accepted");

    let tag = refused.split("--shown ").nth(1).and_then(|rest| rest.split('`').next()).expect("it says what to type");
    let accepts = ["volume", "accept-loss", "v", "--force", "--shown", tag];
    let accepted = within(AT_ONCE, "a command", || ring.json(2, &accepts));
    let sum = |ranges: &[(u64, u64)]| ranges.iter().map(|(_, length)| length).sum::<u64>();
    let number = |range: &serde_json::Value, key: &str| range[key].as_u64().expect("a number");
    let all = accepted["ranges"].as_array().expect("a list").iter();
    let all: Vec<(u64, u64)> = all.map(|range| (number(range, "offset"), number(range, "length"))).collect();
    assert!(sum(&ranges) < sum(&all), "data fragments were left, and were saved: {ranges:?} of {all:?}");
    let (ranges, lost) = (all, accepted["bytes"].as_u64().expect("a number"));
    assert_eq!(lost, sum(&ranges), "{accepted}");
    ranges.iter().for_each(|&(offset, length)| data[offset as usize..(offset + length) as usize].fill(0));
    for server in [1, 2] {
        assert!(ring.connect(server, "v").read(0, SIZE as u32).expect("all of it") == data);
    }
    let kept = ring.ask(1, &["volume", "export", "v@before"]);
    assert!(kept.status.success() && kept.stdout == data, "the snapshot has lost the same");
    ring.wait_until("room to be free", || used() + lost / 4 < before);
    // Two servers are enough for that, and a third one makes it whole.
    let state = || ring.json(1, &["volume", "show", "v"])["state"].clone();
    ring.wait_until("the two that are left to hold all", || state() == "degraded");
    let (at, again) = (ranges[0].0, noise(6, 4096));
    ring.connect(2, "v").write(at, &again).expect("there are enough drives");
    data[at as usize..][..4096].copy_from_slice(&again);
    ring.kill(2);
    ring.start(&[2]);
    ring.wait_for_state(1, 2, "up");
    ring.join(5, 1);
    ring.wait_until_healthy(1, "v");
    let mut client = ring.connect(1, "v");
    for (nth, &(offset, length)) in ranges.iter().enumerate() {
        let again = noise(nth as u64, length.min(PIECE) as usize);
        client.write(offset, &again).expect("there are enough drives");
        data[offset as usize..][..again.len()].copy_from_slice(&again);
    }
    client.flush().expect("stable");
    ring.ask(1, &["volume", "scrub", "v"]).succeeded();
    ring.kill_own(5);
    ring.wait_for_state(1, 5, "down");
    assert!(ring.connect(2, "v").read(0, SIZE as u32).expect("any two have all") == data);
}

/// What an export saves of a volume, and the ranges that it says are lost.
fn saved(ring: &Ring, name: &str) -> (Vec<u8>, Vec<(u64, u64)>) {
    let arguments = ["-o", "json", "volume", "export", name, "--keep-going"];
    let ended = within(AT_ONCE, "an export of the rest", || ring.ask(2, &arguments));
    assert_eq!((ended.status.code(), ended.stdout.len() as u64), (Some(1), SIZE), "some of {name} is lost");
    let said: Value = ended.stderr.lines().find_map(|line| serde_json::from_str(line).ok()).expect("ranges as JSON");
    let number = |range: &Value, of: &str| range[of].as_u64().expect("a number");
    let range = |range: &Value| (number(range, "offset"), number(range, "length"));
    (ended.stdout, said["damaged"].as_array().expect("a list").iter().map(range).collect())
}
