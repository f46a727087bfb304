//! What must not be given up: a drive of another server when one stops, or the last good copy.

use super::ring::Ring;
use super::volumes::{SOME, wide};
use crate::nbd::{Ledger, Writer};

const BLOCKS: usize = 2048;

fn drive_of(ring: &Ring, server: u32) -> String {
    let drives = ring.json(1, &["drive", "ls"]);
    let mut of_server =
        drives.as_array().expect("a list").iter().filter(|drive| drive["server"] == format!("s{server}"));
    of_server.next().and_then(|drive| drive["id"].as_str()).expect("an id").to_owned()
}

/// How often a server's drive was declared missing.
fn losses(ring: &Ring, server: u32) -> serde_json::Value {
    let lost = format!("subject = '{}' and text like '%-> missing%'", drive_of(ring, server));
    ring.json(1, &["sql", &format!("select count(*) from events where {lost}")])["rows"].clone()
}

/// Whoever couldn't reach the others any more, since it was being stopped, once had their drives declared missing.
#[test]
fn a_server_that_is_stopped_in_order_takes_no_drives_but_its_own_with_it() {
    let ring = Ring::up(3);
    wide(&ring);
    let writer = Writer::start(ring.address(1), "v", Ledger::new(21, BLOCKS));
    for victim in [2, 3, 2, 3] {
        writer.go_on_for(SOME);
        let others =
            || (1..=3).filter(|server| *server != victim).map(|server| losses(&ring, server)).collect::<Vec<_>>();
        let before = others();
        ring.stop(victim);
        ring.wait_for_state(1, victim, "down");
        assert_eq!(others(), before, "drives of others were declared missing when s{victim} was stopped");
        writer.go_on_for(SOME);
        ring.start(&[victim]);
        ring.wait_until_drives_are_up(1);
    }
    let mut ledger = writer.finish();
    (1..=3).for_each(|server| ledger.compare(&mut ring.connect(server, "v")));
}

#[test]
fn a_drive_is_removed_through_another_server_once_whoever_leads_its_parts_says_that_others_have_them() {
    let ring = Ring::up(3);
    wide(&ring);
    let mut ledger = Ledger::new(22, BLOCKS);
    ledger.fill(&mut ring.connect(1, "v")).expect("written");
    let (first, second) = (drive_of(&ring, 2), drive_of(&ring, 3));
    ring.ask(1, &["drive", "rm", &first]).succeeded();
    ledger.compare(&mut ring.connect(3, "v"));
    let refused = ring.ask(1, &["drive", "rm", &second]).refused(1);
    assert!(refused.contains("last good copy"), "{refused}");
    ledger.compare(&mut ring.connect(2, "v"));
}
