//! Blocks that rot on the drive of one server: others have them, whoever leads there.

use super::ring::Ring;
use super::volumes::{BLOCKS, scrub_finds_nothing, wide};
use crate::nbd::{BLOCK, Nbd};
use crate::rot::{block, fill, places, rot};
use serde_json::json;

fn all_is_right(volume: &mut Nbd) {
    for number in 0..BLOCKS {
        let found = volume.read((number * BLOCK) as u64, BLOCK as u32).expect("a right copy");
        assert!(found == block(number), "block {number}");
    }
}

/// Those of these blocks that a server's drive has rot there while it's stopped; returns how many.
fn rot_on(ring: &Ring, server: u32, numbers: &[usize]) -> usize {
    ring.stop(server);
    let drive = ring.data(server).join("drive0");
    let places: Vec<u64> = places(&drive, numbers).into_iter().flatten().collect();
    places.iter().for_each(|place| rot(&drive, *place));
    ring.start(&[server]);
    ring.wait_until_drives_are_up(server);
    ring.wait_until_healthy(server, "v");
    places.len()
}

/// How many repairs the events tell of.
fn repairs_told(ring: &Ring) -> usize {
    let events = ring.json(1, &["sql", "select text from events where text like '%written again from another copy'"]);
    let texts = events["rows"].as_array().expect("rows").iter().map(|row| row[0].as_str().expect("a text").to_owned());
    texts.map(|text| text.split(' ').next().expect("a word").parse::<usize>().expect("a number")).sum()
}

/// Story: what had rotted on the drive of a server that led nothing was only told, and called lost; when the server with the right copies
/// failed, it was.
#[test]
fn a_scrub_repairs_what_rots_on_any_server_and_then_each_copy_is_as_good_as_the_other() {
    let ring = Ring::up(3);
    wide(&ring);
    fill(&mut ring.connect(1, "v"), BLOCKS);
    let numbers: Vec<usize> = (0..BLOCKS).step_by(37).collect();
    let mut all = 0;
    for server in 1..=3 {
        let count = rot_on(&ring, server, &numbers);
        assert!(count > 10, "s{server} has {count} of {} blocks", numbers.len());
        all += count;
        let scrub = ring.json(server % 3 + 1, &["volume", "scrub", "v"]);
        assert_eq!(
            (&scrub["repaired_blocks"], &scrub["damaged"], &scrub["unrepaired"]),
            (&count.into(), &json!([]), &json!([])),
            "of s{server}: {scrub}"
        );
        scrub_finds_nothing(&ring, "v");
        assert_eq!(ring.json(server, &["status"])["health"], "ok");
        ring.wait_until("an event of each repair", || repairs_told(&ring) == all);
    }
    for server in 1..=3 {
        ring.kill(server);
        let survivor = server % 3 + 1;
        ring.wait_for_state(survivor, server, "down");
        let refused = ring.ask(survivor, &["volume", "scrub", "v"]).refused(1);
        assert!(refused.contains("wasn't checked"), "a copy is away: {refused}");
        all_is_right(&mut ring.connect(survivor, "v"));
        ring.start(&[server]);
        ring.wait_until_drives_are_up(server);
        ring.wait_until_healthy(server, "v");
    }
}

#[test]
fn what_rots_on_every_server_is_told_once_by_its_place_and_is_right_when_it_is_written_again() {
    let ring = Ring::up(3);
    wide(&ring);
    fill(&mut ring.connect(1, "v"), BLOCKS);
    let number = 777;
    let copies: usize = (1..=3).map(|server| rot_on(&ring, server, &[number])).sum();
    assert_eq!(copies, 2);
    // Who meets it is a client of a gateway.
    let met = Nbd::open(&ring.gateway(), "v").expect("served").read((number * BLOCK) as u64, BLOCK as u32);
    assert!(met.is_err());
    let place = format!(
        "volume 'v': 1 block of 4096 bytes is damaged on every copy that is here (at {}+{BLOCK})",
        number * BLOCK
    );
    ring.wait_until("what a gateway met to be told", || {
        ring.json(2, &["status"])["reason"].to_string().contains(&place)
    });
    let scrub = ring.ask(2, &["-o", "json", "volume", "scrub", "v"]);
    assert_eq!(scrub.status.code(), Some(1), "a scrub that finds damage fails");
    let scrub: serde_json::Value = serde_json::from_slice(&scrub.stdout).expect("JSON");
    assert_eq!(scrub["damaged"], json!([{ "offset": number * BLOCK, "length": BLOCK }]), "{scrub}");
    let show = ring.json(1, &["volume", "show", "v"]);
    assert_eq!((&show["state"], &show["damaged_blocks"]), (&"degraded".into(), &1.into()), "{show}");
    let mut volume = ring.connect(3, "v");
    assert!(volume.read((number * BLOCK) as u64, BLOCK as u32).is_err());
    volume.write((number * BLOCK) as u64, &block(number)).expect("written");
    all_is_right(&mut volume);
    scrub_finds_nothing(&ring, "v");
    assert_eq!(ring.json(1, &["status"])["health"], "ok");
}
