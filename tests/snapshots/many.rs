//! Hundreds of snapshots of one volume.

use crate::cluster::{Cluster, Plan};
use crate::nbd::{BLOCK, Ledger, Stamp, Writer, mixed, noise};
use crate::program;
use std::time::{Duration, Instant};

const SNAPSHOTS: u64 = 300;
/// Each may take so long to make.
const LIMIT: Duration = Duration::from_secs(1);
const SEED: u64 = 71;
/// The writer's, at the front of the volume.
const BLOCKS: usize = 512;
/// Those after them, of which one is written before each snapshot, in turn.
const MARKS: u64 = 64;
const COPIES: u64 = 2;

fn place(mark: u64) -> u64 {
    (BLOCKS as u64 + mark) * BLOCK as u64
}

/// What the marks are in a snapshot: each is of the last one that wrote it.
fn marks(snapshot: u64) -> Vec<u8> {
    let written_by = |mark| (0..=snapshot).rev().find(|by| by % MARKS == mark);
    (0..MARKS).flat_map(|mark| written_by(mark).map_or(vec![0; BLOCK], |by| noise(by, BLOCK))).collect()
}

/// The versions of the writer's blocks; panics if one isn't a block of its own.
fn versions(cluster: &Cluster, snapshot: u64) -> Vec<u64> {
    let mut export = cluster.connect(&format!("v@s{snapshot}"));
    let end = export.read(place(0), MARKS as u32 * BLOCK as u32).expect("read");
    assert!(end == marks(snapshot), "s{snapshot} is of another time");
    let front = export.read(0, (BLOCKS * BLOCK) as u32).expect("read");
    let blocks = front.chunks_exact(BLOCK).enumerate();
    blocks.map(|(block, bytes)| Stamp::read(SEED, block as u64, bytes).expect("whole")).collect()
}

#[test]
fn hundreds_of_snapshots_are_each_made_at_once_read_and_removed_under_a_writer_and_all_space_comes_back() {
    let mut cluster = Plan { drive_size: 1 << 30, ..Plan::default() }.up();
    cluster.create("v", "16M", "mirror:2");
    let mut ledger = Ledger::new(SEED, BLOCKS);
    ledger.fill(&mut cluster.connect("v")).expect("written");
    let writer = Writer::start(cluster.address(), "v", ledger);
    let mut volume = cluster.connect("v");
    let mut slowest = Duration::ZERO;
    for nth in 0..SNAPSHOTS {
        volume.write(place(nth % MARKS), &noise(nth, BLOCK)).expect("written");
        let began = Instant::now();
        cluster.tepal(&["snapshot", "create", &format!("v@s{nth}")]).succeeded();
        slowest = slowest.max(began.elapsed());
    }
    assert!(slowest < LIMIT, "one took {slowest:?}");

    let listed = cluster.ask(&["snapshot", "ls", "v"]);
    let names = listed.as_array().expect("a list").iter().filter_map(|snapshot| snapshot["name"].as_str());
    assert!(names.eq((0..SNAPSHOTS).map(|nth| format!("s{nth}"))), "{listed}");
    let mut before = vec![1; BLOCKS];
    for nth in [0, 1, 2, 63, 64, 65, 149, 150, 297, 298, 299] {
        let versions = versions(&cluster, nth);
        assert!(before.iter().zip(&versions).all(|(before, now)| before <= now), "s{nth} is older than one before it");
        before = versions;
    }

    writer.go_on_for(500);
    let mut order: Vec<u64> = (0..SNAPSHOTS).collect();
    order.sort_by_key(|nth| mixed(*nth));
    for (gone, nth) in order.iter().enumerate() {
        cluster.tepal(&["snapshot", "rm", &format!("v@s{nth}")]).succeeded();
        if let Some(left) = order[gone + 1..].first().filter(|_| gone % 50 == 0) {
            versions(&cluster, *left);
        }
    }
    writer.go_on_for(500);
    let mut ledger = writer.finish();
    let once = COPIES * (BLOCKS as u64 + MARKS) * BLOCK as u64;
    program::until("only what the volume has to take space", program::LIMIT, || (cluster.used() == once).then_some(()));
    ledger.compare(&mut volume);
    assert!(volume.read(place(0), MARKS as u32 * BLOCK as u32).expect("read") == marks(SNAPSHOTS - 1));
    drop(volume);
    cluster.scrub_finds_nothing("v");
    cluster.tepal(&["volume", "rm", "v"]).succeeded();
    cluster.wait_until_all_is_free();
    cluster.stop_and_check_drives();
}
