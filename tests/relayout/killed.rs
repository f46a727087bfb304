//! Processes are killed halfway.

use super::{BLOCKS, SOME, is_right, make, migration, wait_until_gone, wait_until_there, whole};
use crate::nbd::{Ledger, Writer};
use crate::servers::ring::Ring;

fn leader(ring: &Ring, seen_by: u32) -> u32 {
    let leader = ring.json(seen_by, &["cluster", "show"])["leader"].as_str().expect("one leads").to_owned();
    leader[1..].parse().expect("an id")
}

/// Those that lead columns of the map that the volume goes to, while all are up.
fn takers(ring: &Ring, seen_by: u32) -> Vec<u32> {
    let query = "select distinct d.server from migrations m join map_columns c on c.map = m.target and c.copy = 0 \
                 join drives d on d.id = c.drive order by d.server";
    let answer = ring.json(seen_by, &["sql", query]);
    let rows = answer["rows"].as_array().expect("a list").iter();
    rows.map(|row| row[0].as_str().expect("an id")[1..].parse().expect("a number")).collect()
}

/// The leader, a server that has some of what goes and gets some, and at last everything.
#[test]
fn servers_are_killed_while_a_volume_goes_to_another_layout_and_clients_only_wait() {
    let ring = Ring::up(4);
    make(&ring, "mirror:2");
    let writer = Writer::start(ring.gateway(), "v", Ledger::new(61, BLOCKS));
    writer.go_on_for(SOME * 4);
    ring.ask(1, &["snapshot", "create", "v@s"]).succeeded();
    let kept = whole(&ring, 2, "v@s");
    for (layout, bytes) in [("chained;extent=4M", 4 << 20), ("ec:3+1", 8 << 20), ("mirror:3", 8 << 20)] {
        ring.ask(1, &["volume", "relayout", "v", "--layout", layout, "--rate", "3M", "--no-wait"]).succeeded();
        wait_until_gone(&ring, 1, bytes);
        let victim = if bytes == 4 << 20 { leader(&ring, 1) } else { leader(&ring, 1) % 4 + 1 };
        let seen_by = victim % 4 + 1;
        ring.kill(victim);
        ring.wait_for_state(seen_by, victim, "down");
        writer.go_on_for(SOME);
        ring.start(&[victim]);
        ring.wait_until_drives_are_up(seen_by);
        writer.go_on_for(SOME);
        (1..=4).for_each(|server| ring.kill(server));
        ring.start(&[3, 1, 4, 2]);
        ring.wait_until_drives_are_up(2);
        writer.go_on_for(SOME);
        // What is over by now has no rate.
        let _ = ring.ask(2, &["volume", "rate", "v", "auto"]);
        wait_until_there(&ring, 2, layout);
    }
    writer.go_on_for(SOME);
    assert!((1..=4).all(|server| whole(&ring, server, "v@s") == kept));
    is_right(&ring, writer);
}

#[test]
fn servers_are_killed_while_a_volume_comes_back_and_clients_only_wait() {
    comes_back("mirror:3;extent=4K");
}

#[test]
fn servers_are_killed_while_a_volume_comes_back_from_stripes() {
    comes_back("ec:2+1");
}

fn comes_back(from: &str) {
    let ring = Ring::up(3);
    make(&ring, "mirror:2");
    let writer = Writer::start(ring.gateway(), "v", Ledger::new(62, BLOCKS));
    writer.go_on_for(SOME * 4);
    ring.ask(1, &["volume", "relayout", "v", "--layout", from, "--rate", "3M", "--no-wait"]).succeeded();
    wait_until_gone(&ring, 1, 8 << 20);
    ring.ask(2, &["volume", "cancel", "v", "--no-wait"]).succeeded();
    let victim = leader(&ring, 3);
    ring.kill(victim);
    ring.wait_for_state(victim % 3 + 1, victim, "down");
    writer.go_on_for(SOME);
    ring.start(&[victim]);
    writer.go_on_for(SOME);
    (1..=3).for_each(|server| ring.kill(server));
    ring.start(&[2, 3, 1]);
    writer.go_on_for(SOME);
    let _ = ring.ask(1, &["volume", "rate", "v", "auto"]);
    wait_until_there(&ring, 1, "mirror:2");
    writer.go_on_for(SOME);
    is_right(&ring, writer);
}

#[test]
fn a_server_that_takes_over_is_killed_and_whoever_leads_its_columns_then_goes_on() {
    let ring = Ring::up(4);
    make(&ring, "mirror:2");
    let writer = Writer::start(ring.gateway(), "v", Ledger::new(63, BLOCKS));
    writer.go_on_for(SOME * 4);
    let layout = "mirror:2;extent=4K";
    ring.ask(1, &["volume", "relayout", "v", "--layout", layout, "--rate", "64K", "--no-wait"]).succeeded();
    let mut before = Vec::new();
    for gone in [4 << 20, 8 << 20] {
        let leads = leader(&ring, 1);
        let victim = takers(&ring, 1).into_iter().find(|server| *server != leads && !before.contains(server));
        let victim = victim.expect("all servers take over something");
        let seen_by = victim % 4 + 1;
        before.push(victim);
        ring.kill(victim);
        ring.wait_for_state(seen_by, victim, "down");
        assert!(!migration(&ring, seen_by).is_null(), "it's halfway");
        writer.go_on_for(SOME);
        // Without it: the other copies are enough.
        ring.ask(seen_by, &["volume", "rate", "v", "4M"]).succeeded();
        wait_until_gone(&ring, seen_by, gone);
        ring.ask(seen_by, &["volume", "rate", "v", "64K"]).succeeded();
        ring.start(&[victim]);
        ring.wait_until_drives_are_up(seen_by);
    }
    ring.ask(1, &["volume", "rate", "v", "auto"]).succeeded();
    wait_until_there(&ring, 1, layout);
    writer.go_on_for(SOME);
    is_right(&ring, writer);
}
