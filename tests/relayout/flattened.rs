//! Clones that leave what they share with others.

use super::{LONG, SIZE};
use crate::nbd::{Nbd, noise};
use crate::program;
use crate::servers::ring::Ring;
use serde_json::json;

#[test]
#[ignore = "servers don't take over yet what one of several volumes of a map has"]
fn a_clone_is_flattened_while_both_are_written_to_and_then_its_origin_is_removed() {
    let ring = Ring::up(3);
    super::make(&ring, "mirror:2");
    let old = noise(1, 16 << 20);
    ring.connect(1, "v").write(0, &old).expect("written");
    ring.ask(1, &["snapshot", "create", "v@a"]).succeeded();
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
