//! Rights on pools and on the cluster, by which somebody runs one pool and no more.

use super::client::Door;
use super::rights::{cluster, identity, tcp};
use crate::cluster::{Cluster, make_drive, tepal};
use crate::need;
use crate::program::{self, Ended};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const SOON: Duration = Duration::from_secs(30);

/// As an identity, over the API.
fn by(cluster: &Cluster, identity: &Path, arguments: &[&str]) -> Ended {
    let told: serde_json::Value =
        serde_json::from_slice(&std::fs::read(cluster.data().join("addresses.json")).expect("it runs")).expect("JSON");
    let api = told["api"].as_str().expect("an address").to_owned();
    let mut command = Command::new(tepal());
    command.env_remove("TEPAL_CLUSTER").env_remove("TEPAL_TOKEN").env_remove("TEPAL_IDENTITY");
    program::run(command.arg("--identity").arg(identity).args(["--cluster", &api]).args(arguments))
}

fn with_second_pool() -> Cluster {
    let cluster = cluster();
    let drive = cluster.folder().join("more");
    make_drive(&drive, 64 << 20);
    cluster.tepal(&["pool", "create", "fast", "--drives", &format!("s1:{}", drive.display())]).succeeded();
    cluster
}

#[test]
fn an_operator_of_one_pool_does_everything_there_and_nothing_elsewhere() {
    need!("nbdinfo");
    let cluster = with_second_pool();
    let ann = identity(&cluster, "ann", &[]);
    program::until("the server to have a certificate", SOON, || {
        by(&cluster, &ann, &["volume", "ls"]).status.success().then_some(())
    });
    let create =
        |name: &str, pool: &str| by(&cluster, &ann, &["volume", "create", name, "--size", "4M", "--pool", pool]);
    create("mine", "fast").refused(1);
    cluster.tepal(&["pool", "grant", "fast", "admin", "ann"]).succeeded();
    create("mine", "fast").succeeded();
    let said = create("mine2", "default").refused(1);
    assert!(said.contains("pool 'default'"), "{said}");
    assert!(!by(&cluster, &ann, &["volume", "ls"]).succeeded().contains('w'), "those of other pools aren't listed");
    by(&cluster, &ann, &["snapshot", "create", "mine@s"]).succeeded();
    by(&cluster, &ann, &["pool", "show", "fast"]).succeeded();
    for forbidden in [
        &["pool", "show", "default"][..],
        &["pool", "rm", "fast"],
        &["pool", "set", "fast", "--plain"],
        &["identity", "ls"],
        &["identity", "create", "eve"],
        &["cluster", "grant", "admin", "ann"],
        &["pool", "grant", "default", "admin", "ann"],
        &["volume", "rm", "v"],
    ] {
        by(&cluster, &ann, forbidden).refused(1);
    }
    let taken_along = by(&cluster, &ann, &["volume", "relayout", "mine", "--pool", "default"]).refused(1);
    assert!(taken_along.contains("pool 'default'"), "{taken_along}");
    // What it has it can hand on.
    identity(&cluster, "bob", &[]);
    by(&cluster, &ann, &["pool", "grant", "fast", "read", "bob"]).succeeded();
    assert!(by(&cluster, &ann, &["pool", "rights", "fast"]).succeeded().contains("bob"));
    let bob = cluster.folder().join("bob");
    let door = Door { address: &tcp(&cluster), identity: &bob };
    assert_eq!(door.list().expect("he's known"), ["mine", "mine@s"]);
    by(&cluster, &ann, &["volume", "rm", "mine", "--snapshots"]).succeeded();
    cluster.tepal(&["pool", "revoke", "fast", "ann"]).succeeded();
    create("again", "fast").refused(1);
}

#[test]
fn a_right_on_a_pool_holds_for_volumes_to_come_and_ends_at_once() {
    need!("nbdinfo", "qemu-nbd");
    let cluster = with_second_pool();
    let web = identity(&cluster, "web", &["--group", "lab"]);
    let address = tcp(&cluster);
    let door = Door { address: &address, identity: &web };
    program::until("the server to have a certificate", SOON, || door.list().ok());
    cluster.tepal(&["pool", "grant", "default", "write", "@lab"]).succeeded();
    assert_eq!(door.list().expect("it's known"), ["v", "w"]);
    cluster.create("later", "4M", "stripe");
    assert_eq!(door.list().expect("it's known"), ["later", "v", "w"]);
    let through = door.through_qemu("later", cluster.folder().join("qemu.sock"));
    let mut client = through.connect();
    client.write(0, &[7; 4096]).expect("it may");
    cluster.tepal(&["pool", "grant", "default", "read", "@lab"]).succeeded();
    assert!(client.write(0, &[8; 4096]).is_err(), "reading was granted");
    assert_eq!(client.read(0, 4096).expect("it may"), [7; 4096]);
    cluster.tepal(&["pool", "revoke", "default", "@lab"]).succeeded();
    assert!(client.read(0, 4096).is_err());
    assert_eq!(door.list().expect("it's known"), Vec::<String>::new());
    cluster.tepal(&["cluster", "grant", "read", "web"]).succeeded();
    assert_eq!(door.list().expect("it's known"), ["later", "v", "w"]);
    assert!(cluster.tepal(&["identity", "ls"]).succeeded().contains("cluster:read"));
    cluster.tepal(&["cluster", "revoke", "web"]).succeeded();
    assert_eq!(door.list().expect("it's known"), Vec::<String>::new());
}

/// Whoever is told of a grant uses it at once. A server that was behind refused the first request for as long as a lease.
#[test]
fn what_is_granted_is_had_on_every_server_once_that_is_answered() {
    need!("qemu-io");
    let ring = crate::servers::ring::Ring::up(3);
    ring.wait_until_all_are_up(1);
    ring.ask(1, &["volume", "create", "v", "--size", "16M", "--layout", "chained"]).succeeded();
    let folder = ring.scratch_file("web");
    ring.ask(1, &["identity", "create", "web", "--to", folder.to_str().expect("text")]).succeeded();
    let reads = |server: u32| {
        let said = Door { address: &ring.address(server), identity: &folder }.io("v", &["-r"], &["read 0 4k"]);
        said.status.success() && format!("{said}").contains("read 4096/4096")
    };
    ring.ask(1, &["volume", "grant", "v", "read", "web"]).succeeded();
    for server in 1..=3 {
        program::until("the server to serve over TLS", Duration::from_secs(60), || reads(server).then_some(()));
    }
    for round in 0..10 {
        ring.ask(round % 3 + 1, &["volume", "revoke", "v", "web"]).succeeded();
        assert!((1..=3).all(|server| !reads(server)), "round {round}");
        ring.ask((round + 1) % 3 + 1, &["volume", "grant", "v", "read", "web"]).succeeded();
        assert!((1..=3).all(reads), "round {round}");
    }
}
