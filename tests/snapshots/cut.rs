//! A snapshot is of one moment, whoever writes where: nothing in it was written after something that isn't.

use crate::nbd::{BLOCK, Nbd};
use crate::servers::gateway;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const SNAPSHOTS: u64 = 24;
/// Of the layout: the next one is in another column, which another server leads.
const EXTENT: u64 = 64 << 10;

fn block(count: u64) -> Vec<u8> {
    count.to_le_bytes().repeat(BLOCK / 8)
}

fn count(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"))
}

/// A client raises a counter in one column after the other, each once the one before is acknowledged, each through another server.
#[test]
fn what_was_written_later_is_in_no_snapshot_that_lacks_what_was_acknowledged_before_it() {
    let ring = gateway::up(4, "4M");
    let (stop, written) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let mut ways: Vec<Nbd> = (1..=4).map(|server| ring.connect(server, "v")).collect();
    let writer = {
        let (stop, written) = (stop.clone(), written.clone());
        std::thread::spawn(move || {
            let mut round = 0;
            while !stop.load(Ordering::Acquire) {
                round += 1;
                for (place, way) in ways.iter_mut().enumerate() {
                    way.write(place as u64 * EXTENT, &block(round)).expect("written");
                }
                written.store(round, Ordering::Release);
            }
        })
    };
    let mut acknowledged = Vec::new();
    for nth in 0..SNAPSHOTS {
        let before = written.load(Ordering::Acquire);
        ring.ask(nth as u32 % 4 + 1, &["snapshot", "create", &format!("v@s{nth}")]).succeeded();
        acknowledged.push((before, written.load(Ordering::Acquire) + 1));
    }
    stop.store(true, Ordering::Release);
    writer.join().expect("every write is acknowledged");
    for (nth, (before, after)) in acknowledged.into_iter().enumerate() {
        let mut snapshot = ring.connect(nth as u32 % 4 + 1, &format!("v@s{nth}"));
        let mut read = |place| count(&snapshot.read(place * EXTENT, BLOCK as u32).expect("read"));
        let counts: Vec<u64> = (0..4).map(&mut read).collect();
        assert!(counts.windows(2).all(|pair| pair[0] >= pair[1]), "s{nth}: {counts:?}");
        assert!(counts[3] + 1 >= counts[0], "s{nth}: {counts:?}");
        assert!(counts[3] >= before && counts[0] <= after, "s{nth} of {before} to {after}: {counts:?}");
    }
}

/// What a snapshot and the writes that meet it may wait for: that a server's lease has surely ended, which is 1.5 s, and that the others
/// have agreed on it.
const BOUND: Duration = Duration::from_secs(6);

#[test]
fn a_server_that_stands_still_keeps_a_snapshot_and_the_writes_that_meet_it_waiting_for_its_lease_at_most() {
    let ring = gateway::up(4, "4M");
    let stop = Arc::new(AtomicBool::new(false));
    let mut way = ring.connect(1, "v");
    (0..64).for_each(|extent| way.write(extent * EXTENT, &block(1)).expect("written"));
    ring.dev(&["pause", "s4"]).succeeded();
    let writer = {
        let stop = stop.clone();
        std::thread::spawn(move || {
            let (mut longest, mut extent) = (Duration::ZERO, 0);
            while !stop.load(Ordering::Acquire) {
                let began = Instant::now();
                way.write(extent % 64 * EXTENT, &block(2)).expect("written");
                longest = longest.max(began.elapsed());
                extent += 1;
            }
            longest
        })
    };
    let began = Instant::now();
    ring.ask(1, &["snapshot", "create", "v@s"]).succeeded();
    let took = began.elapsed();
    stop.store(true, Ordering::Release);
    let longest = writer.join().expect("every write is acknowledged");
    assert!(took < BOUND && longest < BOUND, "{took:?} for the snapshot, {longest:?} for a write");
    ring.dev(&["resume", "s4"]).succeeded();
}
