//! Drives that weren't there when a cluster was rebuilt, and turn out to be gone for good.

use super::one_server::{lose_folder, rebuild, small};
use super::several::{lose_folders, rebuild as rebuild_several};
use crate::nbd::{Nbd, noise};
use crate::program;
use crate::servers::gateway;
use std::fs;

/// Story: what they had a copy of waits, as they may have gone on alone. Once they were removed, all of it was an error, though others
/// had whole copies of it.
#[test]
fn what_others_have_of_a_drive_that_is_removed_is_there() {
    let mut cluster = small().up();
    cluster.create("v", "8M", "mirror:2");
    let bytes = noise(1, 4 << 20);
    cluster.connect("v").write_through(0, &bytes).expect("written");
    let gone = cluster.drive_id(cluster.drive(1));
    cluster.stop();
    lose_folder(&cluster);
    let one = cluster.drive(0).to_owned();
    fs::remove_file(cluster.drive(1)).expect("ours");
    let said = rebuild(&cluster, &[&one], &["--partial"]).succeeded();
    assert!(said.contains("waits for them"), "{said}");
    cluster.start();
    assert_eq!(cluster.volume("v")["state"], "unavailable");
    cluster.tepal(&["drive", "rm", &gone, "--force"]).succeeded();
    assert!(cluster.connect("v").read(0, 4 << 20).expect("read") == bytes);
    cluster.stop();
    cluster.start();
    assert!(cluster.connect("v").read(0, 4 << 20).expect("read, also by who hears of it at its start") == bytes);
}

#[test]
fn so_is_what_other_servers_have_of_it() {
    let ring = gateway::up(3, "16M");
    let bytes = noise(2, 8 << 20);
    ring.connect(1, "v").write_through(0, &bytes).expect("written");
    let listed = ring.json(1, &["drive", "ls"]);
    let of_s3 = listed.as_array().expect("a list").iter().find(|drive| drive["server"] == "s3").expect("it has one");
    let gone = of_s3["id"].as_str().expect("an id").to_owned();
    (1..=3).for_each(|server| ring.kill(server));
    lose_folders(&ring);
    fs::remove_file(ring.data(3).join("drive0")).expect("ours");
    rebuild_several(&ring, &["--partial"]);
    ring.dev(&["up", "--detach"]).succeeded();
    ring.ask(2, &["drive", "rm", &gone, "--force"]).succeeded();
    for address in [ring.address(1), ring.address(2), ring.address(3), ring.gateway()] {
        let mut client = Nbd::open(&address, "v").expect("served");
        assert!(client.read(0, 8 << 20).expect("read") == bytes, "through {address:?}");
    }
    ring.ask(1, &["volume", "scrub", "v"]).succeeded();
    program::until("copies to be made again", program::LIMIT, || {
        (ring.json(2, &["volume", "show", "v"])["state"] == "healthy").then_some(())
    });
}
