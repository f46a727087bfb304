//! Snapshots over NBD: through every server and gateway, read-only, and the same whatever becomes of their volume.

use super::NOT_PERMITTED;
use crate::nbd::{BLOCK, Errno, Nbd, RequestError, noise};
use crate::program;
use crate::servers::gateway::{self, Gateway};
use std::time::Duration;

const SOON: Duration = Duration::from_secs(60);

#[test]
fn a_snapshot_is_the_same_through_every_server_and_gateway_while_its_volume_is_overwritten() {
    let ring = gateway::up(3, "8M");
    let other = Gateway::start(&ring, "a");
    let addresses = || (1..=3).map(|server| ring.address(server)).chain([ring.gateway(), other.address()]);
    let old = noise(1, 8 << 20);
    ring.connect(1, "v").write(0, &old).expect("written");
    for round in 0..6u32 {
        let (maker, name) = (round % 3 + 1, format!("v@s{round}"));
        ring.ask(maker, &["snapshot", "create", &name]).succeeded();
        // Of each block, only the first snapshot that has it overwritten keeps it.
        let piece = u64::from(round) << 20;
        let mut volume = Nbd::open(&ring.gateway(), "v").expect("it's there");
        volume.write(piece, &noise(u64::from(round) + 10, 1 << 20)).expect("written");
        volume.trim(7 << 20, 1 << 20).expect("trimmed");
        for address in addresses() {
            let mut first = Nbd::open(&address, "v@s0").expect("a snapshot that every server has heard of");
            assert_eq!(first.size, 8 << 20);
            assert!(first.read(0, 8 << 20).expect("read") == old, "s0 in round {round} at {address:?}");
            let mut newest = Nbd::open(&address, &name).expect("a snapshot that was just made");
            assert!(newest.read(piece, 1 << 20).expect("read") == old[piece as usize..][..1 << 20], "{name}");
        }
    }
    for address in addresses() {
        let listed = Nbd::list(&address).expect("listed");
        assert_eq!(listed, ["v", "v@s0", "v@s1", "v@s2", "v@s3", "v@s4", "v@s5"], "{address:?}");
        let mut by_id = Nbd::open(&address, "id:1@1").expect("the first snapshot of the first volume");
        assert!(by_id.read(0, 1 << 20).expect("read") == old[..1 << 20]);
        for refused in [
            by_id.write(0, &[1; BLOCK]),
            by_id.write_through(0, &[1; BLOCK]),
            by_id.trim(0, BLOCK as u32),
            by_id.write_zeroes(0, BLOCK as u32),
        ] {
            assert!(matches!(refused, Err(RequestError::Refused(Errno(NOT_PERMITTED)))), "{refused:?}");
        }
        by_id.flush().expect("there's nothing to flush");
        assert!(by_id.read(0, 1 << 20).expect("read") == old[..1 << 20]);
    }
}

#[test]
fn a_removed_snapshot_gives_errors_to_its_readers_and_is_forgotten_everywhere() {
    let ring = gateway::up(3, "1M");
    ring.connect(2, "v").write(0, &[7; BLOCK]).expect("written");
    ring.ask(1, &["snapshot", "create", "v@a"]).succeeded();
    ring.ask(2, &["snapshot", "create", "v@b"]).succeeded();
    for address in [ring.address(3), ring.gateway()] {
        let reader = Nbd::open(&address, "v@a").expect("it's there");
        let in_use = || (ring.json(2, &["snapshot", "show", "v@a"])["clients"] == 1).then_some(());
        program::until("s2 to know of its reader", SOON, in_use);
        let refused = ring.ask(2, &["snapshot", "rm", "v@a"]).refused(1);
        assert!(refused.contains("'v@a' is in use"), "{refused}");
        drop(reader);
    }
    let mut readers: Vec<Nbd> = [ring.address(1), ring.address(3), ring.gateway()]
        .iter()
        .map(|address| Nbd::open(address, "v@a").expect("it's there"))
        .collect();
    ring.ask(1, &["snapshot", "rm", "v@a", "--force"]).succeeded();
    for reader in &mut readers {
        program::until("readers to get errors", SOON, || reader.read(0, BLOCK as u32).is_err().then_some(()));
    }
    for address in [ring.address(1), ring.address(2), ring.address(3), ring.gateway()] {
        program::until("it to be forgotten", SOON, || Nbd::open(&address, "v@a").is_err().then_some(()));
        let mut kept = Nbd::open(&address, "v@b").expect("another one stays");
        assert_eq!(kept.read(0, BLOCK as u32).expect("read"), [7; BLOCK]);
    }
}

#[test]
fn snapshots_are_read_while_a_server_is_away_and_made_without_it() {
    let ring = gateway::up(4, "8M");
    let old = noise(5, 8 << 20);
    let mut volume = Nbd::open(&ring.gateway(), "v").expect("it's there");
    volume.write(0, &old).expect("written");
    ring.ask(1, &["snapshot", "create", "v@a"]).succeeded();
    ring.kill(2);
    ring.ask(3, &["snapshot", "create", "v@b"]).succeeded();
    let new = noise(6, 8 << 20);
    volume.write(0, &new).expect("written");
    for name in ["v@a", "v@b"] {
        assert!(Nbd::open(&ring.gateway(), name).expect("there").read(0, 8 << 20).expect("read") == old, "{name}");
    }
    ring.start(&[2]);
    ring.wait_until_healthy(2, "v");
    ring.kill(3);
    for (name, bytes) in [("v@a", &old), ("v@b", &old), ("v", &new)] {
        assert!(&ring.connect(2, name).read(0, 8 << 20).expect("read") == bytes, "{name} through who was away");
    }
}
