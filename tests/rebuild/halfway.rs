//! All data folders are lost while something is on its way. It goes on from where the drives say that it was.

use super::several::{lose_folders, rebuild};
use crate::nbd::{Ledger, Writer};
use crate::relayout;
use crate::servers::moves::{add_at, copies, id_of};
use crate::servers::ring::Ring;
use crate::servers::volumes;

/// Begins again with what the drives have, while the gateway and its clients wait.
fn lose_and_rebuild(ring: &Ring) {
    (1..=ring.servers).for_each(|server| ring.kill(server));
    lose_folders(ring);
    let done = rebuild(ring, &[]);
    assert_eq!(done["done"], true, "{done}");
    ring.dev(&["up", "--detach"]).succeeded();
    ring.wait_until_all_are_up(1);
    ring.wait_until_drives_are_up(2);
}

#[test]
fn a_volume_that_was_half_way_to_another_layout_goes_on_to_it_and_one_that_came_back_comes_back() {
    let ring = Ring::up(3);
    relayout::make(&ring, "mirror:2");
    let writer = Writer::start(ring.gateway(), "v", Ledger::new(43, relayout::BLOCKS));
    writer.go_on_for(relayout::SOME * 4);
    ring.ask(1, &["snapshot", "create", "v@s"]).succeeded();
    let kept = relayout::whole(&ring, 2, "v@s");
    for (layout, ends_with) in [("mirror:2;extent=4K", "mirror:2;extent=4K"), ("mirror:3", "mirror:2;extent=4K")] {
        ring.ask(1, &["volume", "relayout", "v", "--layout", layout, "--rate", "3M", "--no-wait"]).succeeded();
        relayout::wait_until_gone(&ring, 1, 8 << 20);
        if layout != ends_with {
            ring.ask(2, &["volume", "cancel", "v", "--no-wait"]).succeeded();
        }
        ring.ask(1, &["volume", "rate", "v", "64K"]).succeeded();
        let before = relayout::migration(&ring, 1);
        assert!(!before.is_null(), "it's half-way");
        lose_and_rebuild(&ring);
        let after = relayout::migration(&ring, 3);
        for what in ["to", "cancelled"] {
            assert!(!before[what].is_null() && after[what] == before[what], "{before} before, {after} after");
        }
        writer.go_on_for(relayout::SOME);
        assert!(relayout::whole(&ring, 3, "v@s") == kept);
        ring.ask(2, &["volume", "rate", "v", "auto"]).succeeded();
        relayout::wait_until_there(&ring, 1, ends_with);
        writer.go_on_for(relayout::SOME);
    }
    assert!((1..=3).all(|server| relayout::whole(&ring, server, "v@s") == kept));
    relayout::is_right(&ring, writer);
}

#[test]
fn copies_that_were_on_their_way_to_a_new_drive_and_from_a_drained_one_arrive() {
    let ring = Ring::emulated(4, "write=10ms,flush=10ms"); // they are on their way for seconds
    volumes::make(&ring, "v", "mirror:2");
    let writer = Writer::start(ring.gateway(), "v", Ledger::new(44, volumes::BLOCKS));
    writer.go_on_for(volumes::SOME);
    let drained = id_of(&ring, "s3");
    let share = copies(&ring, &drained);
    // Where the cluster's command looks for drives.
    let added = add_at(&ring, "s2", &ring.data(2).join("drive1"));
    ring.ask(1, &["drive", "drain", &drained, "--no-wait"]).succeeded();
    ring.wait_until("some to have gone, and some to have come", || {
        copies(&ring, &drained) + 4 <= share && copies(&ring, &added) > 0
    });
    let left = copies(&ring, &drained);
    lose_and_rebuild(&ring);
    assert!(left > 0, "it was half-way");
    writer.go_on_for(volumes::SOME);
    ring.wait_until("the drained drive to be empty", || copies(&ring, &drained) == 0);
    ring.wait_until("the new one to have its share", || copies(&ring, &added) >= 16);
    ring.ask(1, &["drive", "rm", &drained]).succeeded();
    writer.go_on_for(volumes::SOME);
    let mut ledger = writer.finish();
    ring.wait_until("all to be well", || ring.json(1, &["status"])["health"] == "ok");
    (1..=4).for_each(|server| ledger.compare(&mut ring.connect(server, "v")));
    volumes::scrub_finds_nothing(&ring, "v");
}
