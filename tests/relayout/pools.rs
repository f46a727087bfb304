//! From the drives of one pool to those of another, which other servers have.

use super::{BLOCKS, SIZE, SOME, is_right, make, migration, wait_until_gone, wait_until_there, whole};
use crate::nbd::{Ledger, Writer};
use crate::servers::ring::Ring;

/// Servers 2 to 4 each get a drive of a new pool.
fn add_pool(ring: &Ring) {
    ring.ask(1, &["pool", "create", "new"]).succeeded();
    for server in 2..=4 {
        let file = ring.scratch_file(&format!("new{server}"));
        let (file, name) = (file.to_str().expect("a path of ours"), format!("s{server}"));
        ring.ask(1, &["drive", "add", &name, file, "--pool", "new", "--create", "128M"]).succeeded();
    }
}

/// How many copies the drives of the pool have.
fn copies(ring: &Ring, pool: &str) -> u64 {
    let drives = ring.json(1, &["drive", "ls"]);
    let of_pool = drives.as_array().expect("a list").iter().filter(|drive| drive["pool"] == pool);
    of_pool.map(|drive| drive["copies"].as_u64().expect("a number")).sum()
}

#[test]
fn a_volume_and_its_clone_go_to_the_drives_of_other_servers_and_back_under_a_writer() {
    let ring = Ring::up(4);
    make(&ring, "mirror:2");
    add_pool(&ring);
    let refused = ring.ask(1, &["volume", "relayout", "v", "--pool", "none"]).refused(1);
    assert!(refused.contains("no pool 'none'"), "{refused}");
    ring.ask(1, &["volume", "relayout", "v"]).refused(2);
    let writer = Writer::start(ring.gateway(), "v", Ledger::new(91, BLOCKS));
    writer.go_on_for(SOME * 4);
    ring.ask(1, &["snapshot", "create", "v@s"]).succeeded();
    ring.ask(1, &["volume", "clone", "v@s", "c"]).succeeded();
    let kept = whole(&ring, 2, "v@s");

    ring.ask(3, &["volume", "relayout", "v", "--pool", "new", "--rate", "2M", "--no-wait"]).succeeded();
    let way = migration(&ring, 1);
    assert_eq!((&way["to"], &way["to_pool"]), (&"mirror:2".into(), &"new".into()), "{way}");
    assert!(ring.ask(2, &["volume", "migrations"]).succeeded().contains("mirror:2 in pool new"));
    wait_until_gone(&ring, 1, SIZE / 3);
    // What a drive of the new pool had is made again on others of that pool.
    let lost = ring.json(1, &["drive", "ls"]);
    let lost = lost.as_array().expect("a list").iter().find(|drive| drive["pool"] == "new").expect("there are three");
    ring.ask(1, &["drive", "rm", lost["id"].as_str().expect("an id"), "--force"]).succeeded();
    writer.go_on_for(SOME);
    ring.ask(2, &["volume", "cancel", "v", "--no-wait"]).succeeded();
    ring.ask(2, &["volume", "rate", "v", "auto"]);
    wait_until_there(&ring, 1, "mirror:2");
    assert_eq!((&ring.json(1, &["volume", "show", "v"])["pool"], copies(&ring, "new")), (&"default".into(), 0));
    writer.go_on_for(SOME);

    let said = ring.ask(4, &["volume", "relayout", "c", "--pool", "new"]).succeeded();
    assert!(said.contains("c is in pool new now"), "{said}");
    for name in ["v", "c"] {
        assert_eq!(ring.json(1, &["volume", "show", name])["pool"], "new");
    }
    ring.wait_until("the old drives to be empty", || copies(&ring, "default") == 0);
    assert!(copies(&ring, "new") > 0);
    for server in 1..=4 {
        assert!(whole(&ring, server, "v@s") == kept && whole(&ring, server, "c") == kept, "through s{server}");
    }
    writer.go_on_for(SOME);
    is_right(&ring, writer);
}
