//! Rounds that were cut off, by whatever: they go on where they were.

use super::{LONG, MIB, Pair, fill};
use crate::program;
use serde_json::Value;

const SIZE: usize = 96 * MIB;
/// Slow enough to be cut off halfway.
const SLOW: [&str; 2] = ["--rate", "16M"];

/// What the rounds after a cut say: the first goes on, and not from the beginning.
fn goes_on(pair: &Pair, done: u64) -> Value {
    let before = pair.to_there.bytes();
    let said = pair.once(&[]);
    let first = &said[0];
    assert_eq!(first["resumed"], true, "{said:?}");
    assert!(first["from"].as_u64() >= Some(done) && done > 0, "{said:?}");
    let sent = pair.to_there.bytes() - before;
    assert!(sent < SIZE as u64 - done + 4 * MIB as u64, "{sent} were sent, and {done} were there");
    pair.is_equal();
    first.clone()
}

#[test]
fn a_killed_first_copy_goes_on_where_it_was() {
    let pair = Pair::with_volume("128M", SIZE);
    let replication = pair.start(&SLOW);
    let done = pair.wait_until_there(24 * MIB);
    replication.kill();
    goes_on(&pair, done);
}

#[test]
fn a_killed_round_goes_on_where_it_was() {
    let pair = Pair::with_volume("128M", 4 * MIB);
    pair.once(&[]);
    fill(&pair.here, 0, 2, SIZE);
    let replication = pair.start(&SLOW);
    let done = pair.wait_until_there(24 * MIB);
    replication.kill();
    // What the source is written meanwhile isn't in that round, and in the next one.
    fill(&pair.here, 0, 3, MIB);
    let said = pair.once(&[]);
    assert!(said.len() == 2 && said[0]["from"].as_u64() >= Some(done), "{said:?}");
    assert!(said[1]["sent_bytes"].as_u64() < Some(4 * MIB as u64), "{said:?}");
    pair.is_equal();
}

#[test]
fn replication_goes_on_when_the_replicas_server_is_killed() {
    for first in [true, false] {
        let mut pair = Pair::with_volume("128M", if first { SIZE } else { MIB });
        if !first {
            pair.once(&[]);
            fill(&pair.here, 0, 2, SIZE);
        }
        let replication = pair.start(&SLOW);
        let done = pair.wait_until_there(24 * MIB);
        pair.there.kill();
        pair.there.start();
        ends_without_beginning_anew(&pair, done);
        replication.kill();
    }
}

#[test]
fn replication_goes_on_when_the_sources_server_is_killed() {
    for first in [true, false] {
        let mut pair = Pair::with_volume("128M", if first { SIZE } else { MIB });
        if !first {
            pair.once(&[]);
            fill(&pair.here, 0, 2, SIZE);
        }
        let replication = pair.start(&SLOW);
        let done = pair.wait_until_there(24 * MIB);
        pair.here.kill();
        pair.here.start();
        ends_without_beginning_anew(&pair, done);
        replication.kill();
    }
}

#[test]
fn replication_goes_on_when_the_link_is_cut() {
    let pair = Pair::with_volume("128M", SIZE);
    let replication = pair.start(&SLOW);
    let done = pair.wait_until_there(24 * MIB);
    pair.to_there.cut();
    std::thread::sleep(std::time::Duration::from_secs(3));
    pair.to_there.mend();
    ends_without_beginning_anew(&pair, done);
    replication.kill();
}

fn ends_without_beginning_anew(pair: &Pair, done: u64) {
    program::until("the round to end", LONG, || {
        let now = pair.there.volume("v");
        let Some(incomplete) = now["incomplete"]["done"].as_u64() else { return Some(()) };
        assert!(incomplete >= done, "it began anew: {incomplete} after {done}");
        None
    });
    let sent = pair.to_there.bytes();
    assert!(sent < SIZE as u64 + 40 * MIB as u64, "{sent}");
    pair.is_equal();
}

#[test]
fn a_half_sent_snapshot_that_is_removed_is_given_up() {
    let pair = Pair::with_volume("128M", 4 * MIB);
    for first in [true, false] {
        fill(&pair.here, 0, 2, SIZE);
        let replication = pair.start(&SLOW);
        pair.wait_until_there(24 * MIB);
        replication.kill();
        let snapshots = pair.here.ask(&["snapshot", "ls", "v"]);
        let newest = snapshots.as_array().expect("a list").iter().max_by_key(|it| it["epoch"].as_u64()).expect("some");
        let newest = format!("v@{}", newest["name"].as_str().expect("a name"));
        pair.here.tepal(&["snapshot", "rm", &newest, "--force"]).succeeded();
        pair.here.connect("v").trim(0, 64 << 20).expect("trimmed");
        let said = pair.once(&[]);
        assert!(said.len() == 1 && said[0]["resumed"] == false, "{first}: {said:?}");
        pair.is_equal();
    }
}
