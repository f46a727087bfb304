//! Several servers and gateways, of which some have the key.

use super::{WORDS, count, create_key, worded};
use crate::nbd::{Ledger, Nbd, Writer};
use crate::program;
use crate::servers::gateway::Gateway;
use crate::servers::ring::Ring;
use crate::servers::volumes::SOME;

/// A cluster with key `main`, and an encrypted volume `v`, which nobody has opened yet.
fn up() -> Ring {
    let ring = Ring::up(3);
    ring.wait_until_all_are_up(1);
    create_key(&ring.dir().join("keys"), "main").succeeded();
    ring.ask(1, &["volume", "create", "v", "--size", "16M", "--layout", "chained", "--key", "main"]).succeeded();
    ring.wait_until_healthy(2, "v");
    ring
}

#[test]
fn a_gateway_with_the_key_serves_what_servers_cannot_read() {
    let ring = up();
    let keys = ring.scratch_file("keys-of-the-gateway");
    std::fs::rename(ring.dir().join("keys"), &keys).expect("ours");
    let with = Gateway::start_with(&ring, "with", &["--keys", keys.to_str().expect("text")]);
    let without = Gateway::start(&ring, "without");
    let mut client = with.connect("v");
    client.write(0, &worded(1 << 20)).expect("written");
    client.flush().expect("flushed");
    assert!(client.read(0, 1 << 20).expect("read") == worded(1 << 20));
    for address in [ring.address(1), ring.address(3), without.address()] {
        let error = Nbd::open(&address, "v").err().expect("none of them has the key").to_string();
        assert!(error.contains("key 'main' is needed"), "{error}");
    }
    let on_drives = (1..=3).map(|server| count(&ring.data(server).join("drive0"), WORDS)).sum::<usize>();
    assert_eq!(on_drives, 0);
    ring.ask(2, &["snapshot", "create", "v@s"]).succeeded();
    program::until("the gateway to hear of it", std::time::Duration::from_secs(20), || {
        Nbd::open(&with.address(), "v@s").ok()
    });
    assert!(with.connect("v@s").read(4096, 4096).expect("read") == worded(8192)[4096..]);
}

#[test]
fn clients_of_an_encrypted_volume_only_wait_while_servers_are_killed() {
    let ring = up();
    let writer = Writer::start(ring.gateway(), "v", Ledger::new(51, 2048));
    for victim in 1..=3 {
        writer.go_on_for(SOME);
        ring.kill(victim);
        writer.go_on_for(SOME);
        ring.start(&[victim]);
        ring.wait_until_all_are_up(victim % 3 + 1);
        ring.wait_until_healthy(victim % 3 + 1, "v");
    }
    let mut ledger = writer.finish();
    (1..=3).for_each(|server| ledger.compare(&mut ring.connect(server, "v")));
}

#[test]
fn a_replica_of_an_encrypted_volume_is_encrypted_or_said_to_be_plain() {
    let ring = up();
    ring.connect(1, "v").write(0, &worded(4096)).expect("written");
    let status = ring.dev_status();
    let to = status["servers"][1]["api"].as_str().expect("an address").trim_start_matches("http://").to_owned();
    let token = std::fs::read_to_string(ring.data(2).join("token")).expect("it serves");
    let replicate = |more: &[&str]| {
        let mut command = ring.command(&[&["replicate", "v", &to, "--once", "--as", "r"], more].concat());
        program::run(command.env("TEPAL_TO_TOKEN", token.trim()))
    };
    let said = replicate(&[]).refused(1);
    assert!(said.contains("is encrypted, and its replica wouldn't be"), "{said}");
    replicate(&["--key", "main"]).succeeded();
    assert_eq!(ring.json(1, &["volume", "show", "r"])["key"], "main");
    ring.wait_until("the replica to be read", || {
        Nbd::open(&ring.address(3), "r").is_ok_and(|mut client| client.read(0, 4096).is_ok_and(|it| it == worded(4096)))
    });
}
