//! Clones that leave what they share with others.

use super::{LONG, SIZE, SOME, whole};
use crate::nbd::{BLOCK, Ledger, Nbd, Writer, noise};
use crate::program;
use crate::servers::ring::Ring;
use serde_json::json;

/// Servers with a volume `v` of that layout that has these bytes from an offset on, and a snapshot `a` of it.
fn with_snapshot(servers: u32, layout: &str, (offset, bytes): (u64, &[u8])) -> Ring {
    let ring = Ring::up(servers);
    super::make(&ring, layout);
    ring.connect(1, "v").write(offset, bytes).expect("written");
    ring.ask(1, &["snapshot", "create", "v@a"]).succeeded();
    ring
}

#[test]
fn a_clone_is_flattened_while_both_are_written_to_and_then_its_origin_is_removed() {
    is_flattened("mirror:2");
}

#[test]
fn a_clone_of_stripes_is_flattened_while_both_are_written_to() {
    is_flattened("ec:2+1");
}

fn is_flattened(layout: &str) {
    let old = noise(1, 16 << 20);
    let ring = with_snapshot(3, layout, (0, &old));
    ring.ask(2, &["volume", "clone", "v@a", "c"]).succeeded();
    let [of_origin, of_clone] = [noise(2, 1 << 20), noise(3, 1 << 20)];
    ring.connect(2, "c").write(1 << 20, &of_clone).expect("written");
    ring.ask(3, &["snapshot", "create", "c@b"]).succeeded();
    let refused = ring.ask(1, &["volume", "flatten", "v@a"]).refused(2);
    assert!(refused.contains("name"), "{refused}");
    ring.ask(1, &["volume", "flatten", "c", "--rate", "2M", "--no-wait"]).succeeded();
    let refused = ring.ask(2, &["volume", "clone", "c@b", "d"]).refused(1);
    assert!(refused.contains("being flattened"), "{refused}");
    let mut clone = Nbd::open(&ring.gateway(), "c").expect("served");
    for round in 0..8_u64 {
        ring.connect(3, "v").write(round << 21, &of_origin).expect("written");
        clone.write((round << 21) + (1 << 20), &of_clone).expect("written");
    }
    ring.ask(3, &["volume", "rate", "c", "auto"]).succeeded();
    program::until("the clone to share nothing", LONG, || {
        ring.json(2, &["volume", "show", "c"])["migration"].is_null().then_some(())
    });
    let expected: Vec<u8> = old.chunks(2 << 20).flat_map(|part| [&part[..1 << 20], &of_clone[..]].concat()).collect();
    let before = [&old[..1 << 20], &of_clone[..], &old[2 << 20..]].concat();
    let is_right = || {
        for server in 1..=3 {
            assert!(ring.connect(server, "c").read(0, 16 << 20).expect("read") == expected, "through s{server}");
            assert!(ring.connect(server, "c@b").read(0, 16 << 20).expect("read") == before, "through s{server}");
        }
    };
    is_right();
    assert!(ring.connect(2, "v@a").read(0, 16 << 20).expect("read") == old);
    assert_eq!(ring.json(1, &["volume", "show", "c"])["origin"], json!(null));
    let refused = ring.ask(1, &["volume", "flatten", "c"]).refused(1);
    assert!(refused.contains("shares nothing"), "{refused}");
    ring.ask(1, &["volume", "rm", "v", "--snapshots", "--force"]).succeeded();
    is_right();
    // Each has its own layout from here on.
    ring.ask(1, &["volume", "relayout", "c", "--layout", "stripe"]).succeeded();
    is_right();
    drop(clone);
    (1..=3).for_each(|server| ring.kill(server));
    ring.start(&[1, 2, 3]);
    program::until("the clone to be served", LONG, || Nbd::open(&ring.address(2), "c").ok()?.read(0, SIZE as u32).ok());
    is_right();
}

/// Bytes from which on nobody writes: origin and clones share them.
const SHARED: u64 = 8 << 20;

/// Story: the server that was asked hadn't heard of the flattening yet, and that there was none passed for its end.
fn wait_until_gone(ring: &Ring, server: u32, bytes: u64) {
    let mut has_begun = false;
    program::until(&format!("{bytes} bytes of the clone to have gone"), LONG, || {
        let now = ring.json(server, &["volume", "show", "c"])["migration"].clone();
        has_begun |= !now.is_null();
        (has_begun && (now.is_null() || now["done_bytes"].as_u64()? >= bytes)).then_some(())
    });
}

fn wait_until_it_shares_nothing(ring: &Ring, server: u32) {
    program::until("the clone to share nothing", LONG, || {
        let asked = ring.ask(server, &["-o", "json", "volume", "show", "c"]);
        let volume: serde_json::Value =
            asked.status.success().then(|| serde_json::from_slice(&asked.stdout).expect("JSON"))?;
        volume["migration"].is_null().then_some(())
    });
}

/// Bytes that the drives hold.
fn used(ring: &Ring) -> u64 {
    let drives = ring.json(1, &["drive", "ls"]);
    drives.as_array().expect("a list").iter().filter_map(|drive| drive["used"].as_u64()).sum()
}

#[test]
fn servers_are_killed_while_a_clone_is_flattened_and_it_and_the_others_have_what_was_written_to_them() {
    let old = noise(4, (SIZE - SHARED) as usize);
    let ring = with_snapshot(4, "mirror:2", (SHARED, &old));
    for clone in ["c", "d"] {
        ring.ask(2, &["volume", "clone", "v@a", clone]).succeeded();
    }
    let of_other = noise(5, 1 << 20);
    ring.connect(3, "d").write(SHARED + (1 << 20), &of_other).expect("written");
    let blocks = (SHARED as usize) / BLOCK;
    let writers = [(71, "v"), (72, "c")].map(|(seed, volume)| {
        let writer = Writer::start(ring.gateway(), volume, Ledger::new(seed, blocks));
        writer.go_on_for(SOME);
        writer
    });
    let go_on = || writers.iter().for_each(|writer| writer.go_on_for(SOME));
    ring.ask(1, &["snapshot", "create", "c@b"]).succeeded();
    let kept = whole(&ring, 2, "c@b");
    ring.ask(1, &["volume", "flatten", "c", "--rate", "3M", "--no-wait"]).succeeded();
    wait_until_gone(&ring, 1, 8 << 20);
    ring.kill(1);
    ring.wait_for_state(2, 1, "down");
    go_on();
    ring.start(&[1]);
    ring.wait_until_drives_are_up(2);
    (1..=4).for_each(|server| ring.kill(server));
    ring.start(&[3, 1, 4, 2]);
    ring.wait_until_drives_are_up(2);
    go_on();
    // What is over by now has no rate.
    let _ = ring.ask(2, &["volume", "rate", "c", "auto"]);
    wait_until_it_shares_nothing(&ring, 2);
    go_on();
    let ledgers = writers.map(Writer::finish);
    let is_right = |volume: &str, mut ledger: Ledger| {
        ring.wait_until_healthy(1, volume);
        for server in 1..=4 {
            ledger.compare(&mut ring.connect(server, volume));
            assert!(whole(&ring, server, volume)[SHARED as usize..] == old, "{volume} through s{server}");
        }
        ledger
    };
    let [of_origin, of_clone] = ledgers;
    is_right("v", of_origin);
    let of_clone = is_right("c", of_clone);
    let others = [&old[..1 << 20], &of_other[..], &old[2 << 20..]].concat();
    assert!(whole(&ring, 3, "d")[SHARED as usize..] == others && whole(&ring, 4, "c@b") == kept);
    // Nothing of the others is needed any more, and nothing of them is left.
    for volume in ["v", "d"] {
        ring.ask(1, &["volume", "rm", volume, "--snapshots"]).succeeded();
    }
    let allocated = || ring.json(1, &["volume", "show", "c"])["allocated"].as_u64();
    ring.wait_until("only what the clone has to be on drives", || allocated() == Some(used(&ring)));
    assert!(whole(&ring, 4, "c@b") == kept);
    is_right("c", of_clone);
    ring.ask(4, &["volume", "rm", "c", "--snapshots"]).succeeded();
    ring.wait_until("all space to be free", || used(&ring) == 0);
}

#[test]
fn a_clone_whose_flattening_is_cancelled_shares_again_all_that_it_shared() {
    let old = noise(6, SIZE as usize);
    let ring = with_snapshot(3, "mirror:2", (0, &old));
    ring.ask(2, &["volume", "clone", "v@a", "c"]).succeeded();
    let of_clone = noise(7, 6 << 20);
    ring.connect(2, "c").write(5 << 20, &of_clone).expect("written");
    let before = used(&ring);
    ring.ask(1, &["volume", "flatten", "c", "--rate", "2M", "--no-wait"]).succeeded();
    wait_until_gone(&ring, 3, 8 << 20);
    let listed = ring.json(2, &["volume", "migrations"]);
    assert_eq!((&listed[0]["volume"], &listed[0]["flattens"]), (&json!("c"), &json!(true)));
    // It hasn't all of what it shares yet.
    let refused = ring.ask(3, &["volume", "rm", "v", "--snapshots"]).refused(1);
    assert!(refused.contains("'c' is being flattened"), "{refused}");
    ring.connect(1, "c").write(15 << 20, &of_clone).expect("written");
    ring.connect(3, "v").write(15 << 20, &old[..6 << 20]).expect("written");
    ring.ask(2, &["volume", "cancel", "c"]).succeeded();
    let all = |parts: [&[u8]; 5]| parts.concat();
    let expected = all([&old[..5 << 20], &of_clone, &old[11 << 20..15 << 20], &of_clone, &old[21 << 20..]]);
    let of_origin = [&old[..15 << 20], &old[..6 << 20], &old[21 << 20..]].concat();
    for server in 1..=3 {
        assert!(whole(&ring, server, "c") == expected, "the clone, through s{server}");
        assert!(whole(&ring, server, "v") == of_origin && whole(&ring, server, "v@a") == old, "through s{server}");
    }
    // Each of them has written that much since.
    let since = 2 * 2 * of_clone.len() as u64;
    ring.wait_until("the other space to be free", || used(&ring) == before + since);
    ring.ask(2, &["volume", "flatten", "c"]).succeeded();
    ring.ask(2, &["volume", "rm", "v", "--snapshots"]).succeeded();
    ring.wait_until("what the origin had to be free", || used(&ring) == 2 * SIZE);
    assert!(whole(&ring, 1, "c") == expected);
}

#[test]
fn a_clone_that_is_removed_on_its_way_there_or_back_leaves_the_others_what_they_have_and_nothing_else() {
    let old = noise(8, SIZE as usize);
    let ring = with_snapshot(3, "mirror:2", (0, &old));
    let before = used(&ring);
    for comes_back in [false, true] {
        ring.ask(2, &["volume", "clone", "v@a", "c"]).succeeded();
        ring.connect(2, "c").write(5 << 20, &noise(9, 6 << 20)).expect("written");
        ring.ask(3, &["snapshot", "create", "c@b"]).succeeded();
        ring.ask(1, &["volume", "flatten", "c", "--rate", "2M", "--no-wait"]).succeeded();
        wait_until_gone(&ring, 3, 8 << 20);
        ring.connect(2, "c").write(15 << 20, &noise(10, 2 << 20)).expect("written");
        if comes_back {
            ring.ask(2, &["volume", "cancel", "c", "--no-wait"]).succeeded();
        }
        ring.ask(3, &["volume", "rm", "c", "--snapshots"]).succeeded();
        ring.wait_until("all that the clone had to be free", || used(&ring) == before);
        assert_eq!(ring.json(1, &["volume", "migrations"]), json!([]));
        for server in 1..=3 {
            assert!(whole(&ring, server, "v") == old && whole(&ring, server, "v@a") == old, "through s{server}");
        }
    }
    // Nothing is in the way of the others.
    ring.ask(2, &["volume", "relayout", "v", "--layout", "mirror:3"]).succeeded();
    assert!(whole(&ring, 1, "v") == old && whole(&ring, 3, "v@a") == old);
    ring.wait_until("its old places to be free", || used(&ring) == 3 * SIZE);
}
