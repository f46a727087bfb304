//! Ranges of a volume that have layouts of their own.

use super::{BLOCKS, LONG, SIZE, SOME, is_right, make, migration, wait_until_gone, whole};
use crate::nbd::{Ledger, Writer, noise};
use crate::program;
use crate::servers::ring::Ring;
use serde_json::Value;

/// First byte and layout of each range.
fn ranges(ring: &Ring, server: u32, name: &str) -> Vec<(u64, String)> {
    let volume = ring.json(server, &["volume", "show", name]);
    let range = |range: &Value| {
        (range["from"].as_u64().expect("a number") >> 20, range["layout"].as_str().expect("a layout").to_owned())
    };
    volume["ranges"].as_array().expect("a list").iter().map(range).collect()
}

fn are(expected: &[(u64, &str)]) -> Vec<(u64, String)> {
    expected.iter().map(|(from, layout)| (*from, (*layout).to_owned())).collect()
}

fn wait_until_they_are(ring: &Ring, server: u32, expected: &[(u64, &str)]) {
    program::until(&format!("ranges {expected:?}"), LONG, || {
        (migration(ring, server).is_null() && ranges(ring, server, "v") == are(expected)).then_some(())
    });
}

#[test]
fn ranges_get_layouts_of_their_own_and_one_again_under_a_writer() {
    let ring = Ring::up(4);
    make(&ring, "mirror:2");
    let still = noise(1, 4 << 20);
    ring.connect(3, "v").write(SIZE - still.len() as u64, &still).expect("written");
    let writer = Writer::start(ring.gateway(), "v", Ledger::new(101, BLOCKS));
    writer.go_on_for(SOME);
    ring.ask(1, &["snapshot", "create", "v@s"]).succeeded();
    let kept = whole(&ring, 2, "v@s");
    let to = |server, range: &str, layout: &str| {
        ring.ask(server, &["volume", "relayout", "v", "--range", range, "--layout", layout]).succeeded()
    };
    let said = to(1, "0..8M", "ec:2+1");
    assert!(said.contains("v 0..8M has ec:2+1 now"), "{said}");
    assert_eq!(ranges(&ring, 3, "v"), are(&[(0, "ec:2+1"), (8, "mirror:2")]));
    writer.go_on_for(SOME);

    // One that ends with the volume, while a server is away and returns.
    let request =
        ["volume", "relayout", "v", "--range", "16M..", "--layout", "mirror:3;extent=4K", "--rate", "2M", "--no-wait"];
    ring.ask(2, &request).succeeded();
    wait_until_gone(&ring, 1, 4 << 20);
    let way = migration(&ring, 1);
    assert_eq!((&way["range"]["from"], &way["range"]["to"]), (&(16 << 20).into(), &Value::Null), "{way}");
    ring.kill(4);
    ring.wait_for_state(1, 4, "down");
    writer.go_on_for(SOME);
    ring.start(&[4]);
    ring.wait_until_drives_are_up(1);
    let _ = ring.ask(1, &["volume", "rate", "v", "auto"]);
    let three = [(0, "ec:2+1"), (8, "mirror:2"), (16, "mirror:3;extent=4K")];
    wait_until_they_are(&ring, 4, &three);
    writer.go_on_for(SOME);

    ring.ask(1, &["volume", "clone", "v@s", "c"]).succeeded();
    assert_eq!(ranges(&ring, 2, "c"), are(&three), "a clone shares its origin's maps");
    assert!((1..=4).all(|server| whole(&ring, server, "v@s") == kept && whole(&ring, server, "c") == kept));
    ring.ask(3, &["volume", "resize", "v", "32M"]).succeeded();
    let grown = noise(2, 8 << 20);
    ring.connect(2, "v").write(SIZE, &grown).expect("written to the last range");
    (1..=4).for_each(|server| ring.kill(server));
    ring.start(&[2, 3, 1, 4]);
    ring.wait_until_drives_are_up(1);
    assert!(ring.connect(4, "v").read(SIZE, grown.len() as u32).expect("read") == grown);
    writer.go_on_for(SOME);
    what_ranges_can_not_do_is_said(&ring);

    // One of them comes back halfway, and then all do.
    ring.ask(1, &["volume", "relayout", "c", "--range", "8M..16M", "--layout", "stripe", "--rate", "1M", "--no-wait"])
        .succeeded();
    ring.ask(1, &["volume", "cancel", "v"]).succeeded();
    wait_until_they_are(&ring, 2, &three);
    to(2, "0..8M", "mirror:2");
    to(3, "16M..", "mirror:2");
    wait_until_they_are(&ring, 1, &[(0, "mirror:2")]);
    assert!((1..=4).all(|server| whole(&ring, server, "v@s") == kept && whole(&ring, server, "c") == kept));
    let mut client = ring.connect(1, "v");
    assert!(client.read(SIZE - still.len() as u64, still.len() as u32).expect("read") == still);
    assert!(client.read(SIZE, grown.len() as u32).expect("read") == grown);
    writer.go_on_for(SOME);
    is_right(&ring, writer);
    drop(client);
    ring.ask(4, &["volume", "rm", "v", "--snapshots"]).succeeded();
    ring.ask(4, &["volume", "rm", "c"]).succeeded();
    ring.wait_until("all space to be free", || {
        let drives = ring.json(1, &["drive", "ls"]);
        drives.as_array().expect("a list").iter().all(|drive| drive["used"] == 0)
    });
}

/// Ranges of `v` begin at 0, 8M and 16M.
fn what_ranges_can_not_do_is_said(ring: &Ring) {
    let refused = |arguments: &[&str], why: &str| {
        let said = ring.ask(1, &[&["volume"], arguments].concat()).refused(1);
        assert!(said.contains(why), "{said}");
    };
    refused(&["relayout", "v", "--range", "9M..16M", "--layout", "stripe"], "a multiple of 4M");
    refused(&["relayout", "v", "--range", "4M..12M", "--layout", "stripe"], "several layouts");
    refused(&["relayout", "v", "--range", "1G..2G", "--layout", "stripe"], "has nothing of volume 'v'");
    refused(&["relayout", "v", "--layout", "stripe"], "3 ranges with layouts of their own");
    refused(&["flatten", "c"], "can't be flattened");
    ring.ask(1, &["volume", "relayout", "v", "--range", "8M..4M", "--layout", "stripe"]).refused(2);
}

/// Two of four servers lose what they had: a range with one code more outlives that, the whole volume says how much it does.
#[test]
fn a_range_with_more_copies_outlives_what_the_others_do_not() {
    let ring = Ring::up(4);
    make(&ring, "mirror:2");
    let data = noise(7, SIZE as usize);
    ring.connect(1, "v").write(0, &data).expect("written");
    ring.ask(1, &["volume", "relayout", "v", "--range", "0..8M", "--layout", "mirror:3"]).succeeded();
    assert_eq!(ring.json(1, &["volume", "show", "v"])["losses_left"], 1, "the least of all ranges");
    for server in [3, 4] {
        ring.kill(server);
        ring.wait_for_state(1, server, "down");
    }
    assert!(ring.connect(1, "v").read(0, 8 << 20).expect("two may be lost") == data[..8 << 20]);
    ring.start(&[3, 4]);
    ring.wait_until_healthy(1, "v");
    assert!(whole(&ring, 2, "v") == data);
    crate::servers::volumes::scrub_finds_nothing(&ring, "v");
}
