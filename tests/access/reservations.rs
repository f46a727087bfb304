//! Promise 4: of a client that is fenced, no write is applied once the fencing is answered.

use crate::cluster::Plan;
use crate::nbd::{Address, BLOCK, Nbd};
use crate::program;
use crate::servers::ring::Ring;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const SOON: Duration = Duration::from_secs(60);
const BLOCKS: u64 = 512;

/// Writes one block after the other, each with a number, until that fails. Says how many were written.
fn write_on(client: &mut Nbd, begun: &AtomicU64) -> u64 {
    for count in 1u64.. {
        let block = count.to_le_bytes().repeat(BLOCK / 8);
        if client.write(count % BLOCKS * BLOCK as u64, &block).is_err() {
            return count - 1;
        }
        begun.store(count, Ordering::Relaxed);
    }
    unreachable!("it's written until that fails")
}

fn all(client: &mut Nbd) -> Vec<u8> {
    client.read(0, (BLOCKS * BLOCK as u64) as u32).expect("it's there")
}

/// What a volume held when it was taken, and holds later: in each block the number of the write that was the last there.
fn assert_is_same(at_once: &[u8], later: &[u8]) {
    let number = |bytes: &[u8]| u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes"));
    for (block, (before, after)) in at_once.chunks(BLOCK).zip(later.chunks(BLOCK)).enumerate() {
        let (before, after) = (number(before), number(after));
        assert!(before == after, "block {block}: a fenced client's write {after} was applied over {before}");
    }
}

/// Takes the volume from `a`, who writes all the time, by what `take` does; says what the volume held then.
fn taken_from_a_writer(mut a: Nbd, take: impl FnOnce() -> Nbd) {
    let begun = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| write_on(&mut a, &begun));
        program::until("it to write", SOON, || (begun.load(Ordering::Relaxed) > 100).then_some(()));
        let mut b = take();
        let at_once = all(&mut b);
        assert!(writing.join().expect("it ended") > 100);
        assert_is_same(&at_once, &all(&mut b));
        b.write(0, &[7; BLOCK]).expect("the new holder writes");
    });
    assert!(a.write(0, &[8; BLOCK]).is_err() && a.read(0, BLOCK as u32).is_err());
}

#[test]
fn of_a_holder_whose_volume_was_taken_over_no_write_is_applied() {
    let cluster = Plan::default().up();
    cluster.create("v", "16M", "mirror:2");
    for round in 0..5 {
        let (a, b) = (format!("v?exclusive=a{round},take"), format!("v?exclusive=b{round}"));
        let held = cluster.connect(&a);
        let refused = Nbd::open(&cluster.address(), &b).err().expect("another has it").to_string();
        assert!(!refused.is_empty());
        taken_from_a_writer(held, || cluster.connect(&format!("{b},take")));
    }
}

#[test]
fn a_holder_that_comes_twice_has_the_volume_and_nobody_else_does() {
    let cluster = Plan::default().up();
    cluster.create("v", "16M", "mirror:2");
    let mut before = cluster.connect("v");
    let (mut one, mut other) = (cluster.connect("v?exclusive=a"), cluster.connect("v?exclusive=a"));
    one.write(0, &[1; BLOCK]).expect("it's the holder's");
    other.write(0, &[2; BLOCK]).expect("it's the same holder's");
    assert!(before.write(0, &[3; BLOCK]).is_err(), "whoever came before is cut off");
    assert!(Nbd::open(&cluster.address(), "v").is_err(), "nobody else comes in");
    cluster.tepal(&["snapshot", "create", "v@s"]).succeeded();
    assert_eq!(cluster.connect("v@s").read(0, BLOCK as u32).expect("snapshots are read"), [2; BLOCK]);
    assert_eq!(cluster.volume("v")["reserved_by"], "a");
    let refused = cluster.tepal(&["volume", "fence", "v", "--from", "b"]).refused(1);
    assert!(refused.contains("'b'"), "{refused}");
    cluster.tepal(&["volume", "fence", "v", "--from", "a"]).succeeded();
    assert!(one.write(0, &[4; BLOCK]).is_err() && other.read(0, BLOCK as u32).is_err());
    let mut after = cluster.connect("v");
    assert_eq!(after.read(0, BLOCK as u32).expect("there"), [2; BLOCK]);
    cluster.tepal(&["volume", "fence", "v"]).succeeded();
    assert!(after.write(0, &[5; BLOCK]).is_err(), "fenced without a holder, all are cut off");
    cluster.connect("v").write(0, &[6; BLOCK]).expect("whoever comes from then on");
    for malformed in ["v?", "v?exclusive", "v?exclusive=", "v?exclusive=a b", "v?exclusive=a,give", "v?shared"] {
        assert!(Nbd::open(&cluster.address(), malformed).is_err(), "{malformed}");
    }
}

/// Story: a machine was fenced while its network was cut. When the network was there again, its client came back by itself, took the volume
/// from the machine that had it by then, and sent again what it had on its way.
#[test]
fn a_holder_that_was_cut_off_comes_back_by_a_take_over_alone() {
    let mut cluster = Plan::default().up();
    cluster.create("v", "16M", "mirror:2");
    let comes_back = |cluster: &crate::cluster::Cluster, holder: &str| {
        Nbd::open(&cluster.address(), &format!("v?exclusive={holder}")).map_err(|error| error.to_string())
    };
    drop(cluster.connect("v?exclusive=a"));
    cluster.tepal(&["volume", "fence", "v", "--from", "a"]).succeeded();
    cluster.connect("v").write(0, &[1; BLOCK]).expect("it's everybody's");
    let refused = comes_back(&cluster, "a").err().expect("it was fenced");
    assert!(refused.contains("--take-over"), "{refused}");
    cluster.kill();
    cluster.start();
    drop(comes_back(&cluster, "b").expect("another one may"));
    drop(cluster.connect("v?exclusive=c,take"));
    cluster.tepal(&["volume", "fence", "v", "--from", "c"]).succeeded();
    for before in ["a", "b", "c"] {
        assert!(comes_back(&cluster, before).is_err(), "{before} was cut off");
    }
    cluster.connect("v?exclusive=a,take").write(0, &[2; BLOCK]).expect("it's the holder's again");
    cluster.tepal(&["volume", "fence", "v", "--from", "a"]).succeeded();
}

#[test]
fn a_reservation_outlives_its_server_and_its_connections() {
    let mut cluster = Plan::default().up();
    cluster.create("v", "16M", "mirror:2");
    drop(cluster.connect("v?exclusive=a"));
    cluster.kill();
    cluster.start();
    assert!(Nbd::open(&cluster.address(), "v").is_err());
    cluster.connect("v?exclusive=a").write(0, &[1; BLOCK]).expect("it's the holder's");
}

#[test]
fn a_holders_server_that_stood_still_applies_nothing_when_it_goes_on() {
    let ring = Ring::up(3);
    ring.wait_until_all_are_up(1);
    ring.ask(1, &["volume", "create", "v", "--size", "16M", "--layout", "chained"]).succeeded();
    ring.wait_until_healthy(1, "v");
    let open = |server: u32, export: &str| Nbd::open(&ring.address(server), export);
    // Nobody stands still: another server's client takes it.
    taken_from_a_writer(open(1, "v?exclusive=a").expect("free"), || open(2, "v?exclusive=b,take").expect("taken"));
    // The holder's server stands still, with a write on its way.
    let mut a = open(1, "v?exclusive=c,take").expect("taken");
    let begun = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| write_on(&mut a, &begun));
        program::until("it to write", SOON, || (begun.load(Ordering::Relaxed) > 100).then_some(()));
        ring.dev(&["pause", "s1"]).succeeded();
        let mut b = program::until("the volume to be taken", SOON, || open(2, "v?exclusive=d,take").ok());
        let at_once = all(&mut b);
        ring.dev(&["resume", "s1"]).succeeded();
        writing.join().expect("it ended");
        ring.wait_until_all_are_up(2);
        assert_is_same(&at_once, &all(&mut b));
    });
    // A gateway has nothing while somebody holds the volume.
    assert!(
        Nbd::open(&Address::Unix(ring.dir().join("nbd.sock")), "v")
            .and_then(|mut gateway| {
                gateway.write(0, &[1; BLOCK]).map_err(|error| std::io::Error::other(format!("{error:?}")))
            })
            .is_err()
    );
}
