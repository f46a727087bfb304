//! From layout to layout, and halfway back.

use super::{BLOCKS, LONG, SIZE, SOME, is_right, make, migration, wait_until_gone, wait_until_there, whole};
use crate::cluster::{Media, Plan};
use crate::nbd::{BLOCK, Ledger, Writer, noise};
use crate::program;
use crate::servers::ring::Ring;
use std::time::Duration;

#[test]
fn a_volume_of_four_servers_goes_through_all_layouts_under_a_writer_and_its_snapshot_stays_as_it_was() {
    let ring = Ring::up(4);
    make(&ring, "stripe");
    let still = noise(1, 4 << 20);
    ring.connect(3, "v").write(SIZE - still.len() as u64, &still).expect("written");
    let writer = Writer::start(ring.gateway(), "v", Ledger::new(51, BLOCKS));
    writer.go_on_for(SOME);
    ring.ask(1, &["snapshot", "create", "v@s"]).succeeded();
    let kept = whole(&ring, 2, "v@s");
    let layouts =
        ["mirror:2;extent=4K", "ec:2+1", "chained;extent=4M", "ec:3+1", "ec:2+2", "mirror:3;extent=64K", "stripe"];
    for (nth, layout) in layouts.iter().enumerate() {
        let server = nth as u32 % 4 + 1;
        ring.ask(server, &["volume", "relayout", "v", "--layout", layout, "--no-wait"]).succeeded();
        // Another one while it's on its way.
        if *layout == "chained;extent=4M" {
            ring.ask(2, &["snapshot", "create", "v@t"]).succeeded();
        }
        writer.go_on_for(SOME);
        // As it prints it: what is the default isn't said.
        wait_until_there(&ring, server, layout.strip_suffix(";extent=64K").unwrap_or(layout));
        if *layout == "chained;extent=4M" {
            ring.ask(3, &["snapshot", "rm", "v@t"]).succeeded();
            let allocated = || ring.json(1, &["volume", "show", "v"])["allocated"].as_u64();
            ring.wait_until("what it kept to be free", || allocated().is_some_and(|bytes| bytes <= 2 * 2 * SIZE));
        }
        writer.go_on_for(SOME);
        for server in 1..=4 {
            assert!(whole(&ring, server, "v@s") == kept, "after {layout}, through s{server}");
        }
    }
    let last = ring.connect(1, "v").read(SIZE - still.len() as u64, still.len() as u32).expect("read");
    assert!(last == still);
    is_right(&ring, writer);
    ring.ask(4, &["volume", "rm", "v", "--snapshots"]).succeeded();
    ring.wait_until("all space to be free", || {
        let drives = ring.json(1, &["drive", "ls"]);
        drives.as_array().expect("a list").iter().all(|drive| drive["used"] == 0)
    });
}

#[test]
fn a_volume_of_one_server_with_two_drives_gets_copies_and_loses_them_again() {
    let mut cluster = Plan { media: Media::Files, drives: 2, ..Plan::default() }.up();
    cluster.create("v", "24M", "stripe");
    let writer = Writer::start(cluster.address(), "v", Ledger::new(52, BLOCKS));
    writer.go_on_for(SOME);
    for (nth, layout) in ["mirror:2;extent=4K", "stripe;extent=4M", "mirror:2"].iter().enumerate() {
        let said = cluster.tepal(&["volume", "relayout", "v", "--layout", layout]).succeeded();
        assert!(said.contains(&format!("v has {layout} now")), "{said}");
        writer.go_on_for(SOME);
        let volume = cluster.volume("v");
        assert_eq!((&volume["layout"], &volume["migration"]), (&(*layout).into(), &serde_json::Value::Null));
        if nth == 1 {
            cluster.kill();
            cluster.start();
        }
    }
    let mut ledger = writer.finish();
    cluster.wait_until_healthy("v");
    ledger.compare(&mut cluster.connect("v"));
    cluster.scrub_finds_nothing("v");
    // What it left behind in other maps is free.
    assert_eq!(cluster.volume("v")["allocated"].as_u64(), Some(cluster.used()));
    cluster.stop_and_check_drives();
}

#[test]
fn it_rests_goes_on_and_comes_back_halfway_while_a_client_writes() {
    let ring = Ring::up(3);
    make(&ring, "mirror:2");
    let writer = Writer::start(ring.gateway(), "v", Ledger::new(53, BLOCKS));
    writer.go_on_for(SOME * 4);
    let to = "mirror:3;extent=4K";
    ring.ask(1, &["volume", "relayout", "v", "--layout", to, "--rate", "2M", "--no-wait"]).succeeded();
    wait_until_gone(&ring, 2, 4 << 20);
    ring.ask(2, &["volume", "pause", "v"]).succeeded();
    let paused = migration(&ring, 3);
    assert_eq!((&paused["state"], &paused["to"], &paused["rate"]), (&"paused".into(), &to.into(), &0.into()));
    writer.go_on_for(SOME);
    program::stays("it rests", Duration::from_secs(3), || migration(&ring, 1)["done_bytes"] == paused["done_bytes"]);
    ring.ask(3, &["volume", "resume", "v"]).succeeded();
    let before = paused["done_bytes"].as_u64().expect("bytes");
    wait_until_gone(&ring, 1, before + (4 << 20));
    ring.ask(1, &["volume", "cancel", "v", "--no-wait"]).succeeded();
    program::until("it to come back", LONG, || {
        let now = migration(&ring, 2);
        (now.is_null() || (now["cancelled"] == true && now["to"] == "mirror:2" && now["state"] == "running"))
            .then_some(())
    });
    // There after all, and back again.
    ring.ask(3, &["volume", "relayout", "v", "--layout", to, "--rate", "2M", "--no-wait"]).succeeded();
    ring.ask(1, &["volume", "cancel", "v", "--no-wait"]).succeeded();
    let _ = ring.ask(1, &["volume", "rate", "v", "auto"]); // unless it has come back by now
    wait_until_there(&ring, 3, "mirror:2");
    writer.go_on_for(SOME);
    // And there again.
    ring.ask(2, &["volume", "relayout", "v", "--layout", to, "--no-wait"]).succeeded();
    wait_until_there(&ring, 2, to);
    writer.go_on_for(SOME);
    is_right(&ring, writer);
}

#[test]
fn a_volume_that_grows_and_is_removed_on_its_way_leaves_nothing() {
    let ring = Ring::up(3);
    make(&ring, "stripe");
    let [old, new] = [noise(2, 8 << 20), noise(3, 8 << 20)];
    ring.connect(1, "v").write(0, &old).expect("written");
    ring.ask(1, &["volume", "relayout", "v", "--layout", "mirror:2", "--rate", "1M", "--no-wait"]).succeeded();
    ring.ask(2, &["volume", "resize", "v", "32M"]).succeeded();
    let mut client = ring.connect(3, "v");
    client.write(24 << 20, &new).expect("written");
    assert!(ring.connect(1, "v").read(24 << 20, 8 << 20).expect("read") == new);
    let refused = ring.ask(1, &["volume", "cancel", "v"]).refused(1);
    assert!(refused.contains("grown"), "{refused}");
    ring.ask(1, &["volume", "rate", "v", "4M"]).succeeded();
    wait_until_gone(&ring, 1, BLOCK as u64);
    assert!(client.read(0, 8 << 20).expect("read") == old && client.read(24 << 20, 8 << 20).expect("read") == new);
    drop(client);
    ring.ask(2, &["volume", "rm", "v"]).succeeded();
    ring.wait_until("all space to be free", || {
        let drives = ring.json(3, &["drive", "ls"]);
        drives.as_array().expect("a list").iter().all(|drive| drive["used"] == 0)
    });
    assert_eq!(ring.json(1, &["volume", "migrations"]), serde_json::json!([]));
}
