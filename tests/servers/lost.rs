//! A server that doesn't come back: others make its copies again, and it's taken out.

use super::moves::{copies, id_of};
use super::ring::Ring;
use super::volumes::{BLOCKS, SOME, make};
use crate::nbd::{Ledger, Writer};
use serde_json::json;
use std::time::{Duration, Instant};

/// So long the servers wait for drives that are away.
const AWAY: Duration = Duration::from_secs(8);
/// A machine that is busy with other tests has so much more to begin with what comes next.
const BEGINS: Duration = Duration::from_secs(25);

#[test]
fn what_a_server_had_that_does_not_come_back_is_made_again_after_the_time_that_servers_were_told_and_it_is_taken_out() {
    let ring = Ring::up(4);
    let told = ["--replace-after", "8s"];
    for server in 1..=4 {
        ring.wait_until_all_are_up(1);
        ring.kill(server);
        ring.start_with(server, &told);
    }
    make(&ring, "v", "mirror:2");
    let writer = Writer::start(ring.gateway(), "v", Ledger::new(41, BLOCKS));
    writer.go_on_for(SOME);
    let (lost, share) = (id_of(&ring, "s3"), copies(&ring, &id_of(&ring, "s3")));
    // Once it returns in the end, with what nobody wants any more; then it doesn't.
    for returns in [true, false] {
        ring.wait_until("it to have its share", || copies(&ring, &lost) >= share * 3 / 4);
        ring.kill(3);
        let killed = Instant::now();
        ring.wait_until("others to begin to make its copies", || copies(&ring, &lost) < share * 3 / 4);
        let after = killed.elapsed();
        assert!(after >= AWAY && after < AWAY + BEGINS, "begun {after:?} after it was killed");
        writer.go_on_for(SOME);
        ring.wait_until("others to have all that it had", || copies(&ring, &lost) == 0);
        ring.wait_until_healthy(1, "v");
        writer.go_on_for(SOME);
        if returns {
            ring.start_with(3, &told);
            ring.wait_until_drives_are_up(1);
            writer.go_on_for(SOME);
        }
    }
    let refused = ring.ask(1, &["drive", "rm", &lost]).refused(1);
    assert!(refused.contains("is down") && refused.contains("--force"), "{refused}");
    ring.ask(1, &["drive", "rm", &lost, "--force"]).succeeded();
    ring.ask(2, &["server", "rm", "s3"]).succeeded();
    ring.wait_until("all to be well", || ring.json(1, &["status"])["health"] == "ok");
    let refused = ring.dev(&["start", "s3"]).refused(1);
    assert!(refused.contains("was removed from the cluster"), "{refused}");
    writer.go_on_for(SOME);
    let mut ledger = writer.finish();
    for server in [1, 2, 4] {
        assert_eq!(ring.states(server), ["up"; 3]);
        ledger.compare(&mut ring.connect(server, "v"));
        let scrub = ring.json(server, &["volume", "scrub", "v"]);
        assert_eq!((&scrub["repaired_blocks"], &scrub["damaged"]), (&0.into(), &json!([])), "{scrub}");
    }
}
