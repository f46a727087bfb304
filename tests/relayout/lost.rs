//! Drives are lost halfway, and empty ones take their places.

use super::{BLOCKS, SOME, is_right, make, migration, wait_until_gone, wait_until_there, whole};
use crate::nbd::{Ledger, Writer};
use crate::servers::ring::Ring;
use serde_json::Value;

fn drive(ring: &Ring, is_it: impl Fn(&Value) -> bool) -> Value {
    let drives = ring.json(1, &["drive", "ls"]);
    drives.as_array().expect("a list").iter().find(|drive| is_it(drive)).cloned().unwrap_or(Value::Null)
}

#[test]
fn a_drive_is_lost_halfway_and_made_again_and_its_copies_in_both_layouts_with_it() {
    let ring = Ring::up(4);
    make(&ring, "mirror:2");
    let writer = Writer::start(ring.gateway(), "v", Ledger::new(71, BLOCKS));
    writer.go_on_for(SOME * 4);
    ring.ask(1, &["snapshot", "create", "v@s"]).succeeded();
    let kept = whole(&ring, 1, "v@s");
    let layout = "mirror:2;extent=4K";
    ring.ask(1, &["volume", "relayout", "v", "--layout", layout, "--rate", "4M", "--no-wait"]).succeeded();
    wait_until_gone(&ring, 1, 8 << 20);
    ring.ask(1, &["volume", "rate", "v", "64K"]).succeeded();

    let lost = drive(&ring, |drive| drive["server"] == "s3");
    let (id, path) = (lost["id"].as_str().expect("an id"), lost["path"].as_str().expect("a path"));
    std::fs::remove_file(path).expect("its own file");
    ring.wait_until("it to be missed", || drive(&ring, |drive| drive["id"] == id)["state"] == "missing");
    writer.go_on_for(SOME);
    ring.ask(1, &["drive", "rm", id]).succeeded();
    ring.ask(2, &["drive", "add", "s3", path, "--create", "64M"]).succeeded();
    assert!(!migration(&ring, 2).is_null(), "it's halfway");
    writer.go_on_for(SOME);
    ring.ask(2, &["volume", "rate", "v", "4M"]).succeeded();
    ring.wait_until("others to have what the lost drive had", || drive(&ring, |drive| drive["id"] == id).is_null());
    ring.wait_until("the new one to have some", || {
        drive(&ring, |drive| drive["server"] == "s3")["copies"].as_u64().is_some_and(|copies| copies > 0)
    });
    // What is over by now has no rate.
    let _ = ring.ask(2, &["volume", "rate", "v", "auto"]);
    wait_until_there(&ring, 2, layout);
    writer.go_on_for(SOME);
    assert!((1..=4).all(|server| whole(&ring, server, "v@s") == kept));
    is_right(&ring, writer);
}
