//! SIGKILL under load: the server serves again soon, and every write that it had acknowledged is there.

use crate::cluster::{Media, Plan};
use crate::nbd::{Ledger, Writer};
use std::time::Duration;

const ROUNDS: u64 = 4;
/// The promise is 2 s on a machine of its own.
const SOON: Duration = Duration::from_secs(5);

#[test]
fn every_acknowledged_write_outlives_kill_9_under_load_round_after_round() {
    for (media, layout) in [
        (Media::Files, "mirror:2"),
        (Media::Memory, "mirror:2"),
        (Media::Files, "stripe"),
        (Media::Memory, "mirror:2;durability=flush"),
        (Media::Files, "stripe;durability=flush"),
        (Media::Files, "ec:2+1"),
    ] {
        let mut cluster = Plan { media, ..Plan::default() }.up();
        cluster.create("v0", "16M", layout);
        let writer = Writer::start(cluster.address(), "v0", Ledger::new(5, 4096));
        let mut slowest = Duration::ZERO;
        for round in 0..ROUNDS {
            // Not at the same place of a checkpoint each time.
            writer.go_on_for(2000 + 700 * round);
            cluster.kill();
            slowest = slowest.max(cluster.start());
        }
        writer.go_on_for(2000);
        let mut ledger = writer.finish();
        ledger.compare(&mut cluster.connect("v0"));
        cluster.scrub_finds_nothing("v0");
        println!("{layout} on {media:?}: serving at most {slowest:?} after SIGKILL");
        assert!(slowest < SOON, "{layout} on {media:?}: {slowest:?}");
        cluster.stop_and_check_drives();
    }
}

#[test]
fn what_one_server_acknowledged_before_it_was_killed_the_next_reads() {
    for layout in ["mirror:2", "stripe", "mirror:2;durability=flush", "ec:2+1"] {
        let mut cluster = Plan { media: Media::Files, ..Plan::default() }.up();
        cluster.create("v0", "8M", layout);
        let mut ledger = Ledger::new(6, 2048);
        for _ in 0..3 {
            let writer = Writer::start(cluster.address(), "v0", ledger);
            writer.go_on_for(1500);
            cluster.kill();
            // Told to end while nobody is there: so nothing is written after the kill.
            ledger = writer.finish();
            cluster.start();
            ledger.compare(&mut cluster.connect("v0"));
        }
        cluster.stop_and_check_drives();
    }
}

#[test]
fn a_stop_while_copies_are_compared_under_load_ends_in_good_order_and_loses_no_drive() {
    for layout in ["mirror:2", "stripe", "mirror:2;durability=flush"] {
        let mut cluster = Plan { media: Media::Files, ..Plan::default() }.up();
        cluster.create("v0", "8M", layout);
        let writer = Writer::start(cluster.address(), "v0", Ledger::new(7, 2048));
        for _ in 0..3 {
            writer.go_on_for(1500);
            // So that copies are still being compared when it's stopped.
            cluster.kill();
            cluster.start();
            cluster.stop();
            let log = cluster.log();
            assert!(!log.contains("out of service") && !log.contains("ERROR"), "{layout}: {log}");
            cluster.start();
        }
        writer.go_on_for(500);
        writer.finish().compare(&mut cluster.connect("v0"));
        cluster.stop_and_check_drives();
    }
}
