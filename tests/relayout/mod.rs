//! Volumes that get another layout while they are used, and clones that leave what they share with others.

mod commands;
mod flattened;
mod full;
mod killed;
mod lost;
mod pools;
mod ranges;
mod ways;

use crate::nbd::{BLOCK, Ledger, Writer};
use crate::program;
use crate::servers::ring::Ring;
use serde_json::Value;
use std::time::Duration;

/// Bytes of the volume: six of the chunks that go one after another.
const SIZE: u64 = 24 << 20;
/// What a writer writes to. What is past that stays as it is.
pub const BLOCKS: usize = (20 << 20) / BLOCK;
/// Requests that must be answered before something else is done.
pub const SOME: u64 = 300;
/// For a volume to have its new layout, however busy the machine is.
const LONG: Duration = Duration::from_secs(300);

pub fn make(ring: &Ring, layout: &str) {
    ring.wait_until_all_are_up(1);
    ring.ask(2, &["volume", "create", "v", "--size", "24M", "--layout", layout]).succeeded();
    ring.wait_until_healthy(ring.servers, "v");
}

pub fn migration(ring: &Ring, server: u32) -> Value {
    ring.json(server, &["volume", "show", "v"])["migration"].clone()
}

/// Returns when so many bytes have gone, or all.
pub fn wait_until_gone(ring: &Ring, server: u32, bytes: u64) {
    program::until(&format!("{bytes} bytes to have gone"), LONG, || {
        let now = migration(ring, server);
        (now.is_null() || now["done_bytes"].as_u64()? >= bytes).then_some(())
    });
}

pub fn wait_until_there(ring: &Ring, server: u32, layout: &str) {
    program::until(&format!("the volume to have {layout}"), LONG, || {
        let asked = ring.ask(server, &["-o", "json", "volume", "show", "v"]);
        let volume: Value = asked.status.success().then(|| serde_json::from_slice(&asked.stdout).expect("JSON"))?;
        (volume["migration"].is_null() && volume["layout"] == layout).then_some(())
    });
}

pub fn whole(ring: &Ring, server: u32, name: &str) -> Vec<u8> {
    ring.connect(server, name).read(0, SIZE as u32).expect("read")
}

/// The volume has what the ledger says, and its copies are equal.
pub fn is_right(ring: &Ring, writer: Writer) -> Ledger {
    let mut ledger = writer.finish();
    ring.wait_until_healthy(1, "v");
    (1..=ring.servers).for_each(|server| ledger.compare(&mut ring.connect(server, "v")));
    crate::servers::volumes::scrub_finds_nothing(ring, "v");
    ledger
}
