//! What is granted of a volume is what a client has.

use super::client::Door;
use crate::cluster::{Cluster, Plan};
use crate::nbd::{Address, Nbd, noise};
use crate::need;
use crate::program;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const BLOCK: usize = 4096;

/// One that wants TLS of clients on TCP, with volumes `v` and `w`.
pub fn cluster() -> Cluster {
    let arguments = vec!["--require-tls".to_owned()];
    let cluster = Plan { tcp: true, drives: 2, arguments, ..Plan::default() }.up();
    cluster.create("v", "16M", "mirror:2");
    cluster.create("w", "8M", "stripe");
    cluster
}

/// A new identity, by the folder of its files.
pub fn identity(cluster: &Cluster, name: &str, more: &[&str]) -> PathBuf {
    let folder = cluster.folder().join(name);
    let to = folder.to_str().expect("text");
    cluster.tepal(&[&["identity", "create", name, "--to", to], more].concat()).succeeded();
    folder
}

pub fn tcp(cluster: &Cluster) -> Address {
    Address::Tcp(cluster.tcp())
}

fn is_written(said: &program::Ended) -> bool {
    let text = format!("{said}");
    said.status.success() && text.contains("wrote") && !text.contains("failed")
}

#[test]
fn a_client_sees_and_changes_what_was_granted_to_it() {
    need!("qemu-io", "nbdinfo");
    let cluster = cluster();
    let folder = identity(&cluster, "web", &["--group", "lab"]);
    let address = tcp(&cluster);
    let door = Door { address: &address, identity: &folder };
    program::until("the server to have a certificate", Duration::from_secs(30), || door.list().ok());
    assert_eq!(door.list().expect("it's known"), Vec::<String>::new());
    let unseen = door.io("v", &["-r"], &["read 0 4k"]).stderr;
    let absent = door.io("nothing", &["-r"], &["read 0 4k"]).stderr;
    assert_eq!(
        unseen.replace('v', ""),
        absent.replace("nothing", "").replace('v', ""),
        "whether it's there isn't told"
    );

    cluster.tepal(&["volume", "grant", "v", "read", "@lab"]).succeeded();
    assert_eq!(door.list().expect("it's known"), ["v"]);
    cluster.connect("v").write(0, &[7; 2 * BLOCK]).expect("by the unix socket everything is allowed");
    let read = door.io("v", &["-r"], &["read -P 7 0 8k"]).succeeded();
    assert!(!read.contains("failed"), "{read}");
    assert!(!is_written(&door.io("v", &[], &["write -P 8 0 4k"])), "reading was granted");

    cluster.tepal(&["volume", "grant", "v", "write", "web"]).succeeded();
    let written =
        door.io("v", &[], &["write -P 8 4k 4k", "write -P 9 1M 3M", "flush", "read -P 9 1M 3M", "discard 1M 1M"]);
    assert!(is_written(&written), "{written}");
    let mut direct = cluster.connect("v");
    assert_eq!(direct.read(0, 2 * BLOCK as u32).expect("there"), [[7; BLOCK], [8; BLOCK]].concat());
    assert_eq!(direct.read(3 << 20, 4096).expect("there"), [9; 4096]);
    assert!(!door.io("w", &["-r"], &["read 0 4k"]).status.success());
    let rights = cluster.ask(&["volume", "rights", "v"]);
    assert_eq!((&rights[0]["to"], &rights[1]["right"]), (&"@lab".into(), &"write".into()));

    // What was granted is of the volume, not of its name.
    cluster.tepal(&["volume", "rename", "v", "x"]).succeeded();
    assert_eq!(door.list().expect("it's known"), ["x"]);
    drop(direct);
    cluster.tepal(&["volume", "rm", "x"]).succeeded();
    cluster.create("x", "8M", "stripe");
    assert_eq!(door.list().expect("it's known"), Vec::<String>::new());
}

#[test]
fn an_operator_has_every_volume() {
    need!("nbdinfo");
    let cluster = cluster();
    let folder = identity(&cluster, "root", &["--operator"]);
    let address = tcp(&cluster);
    let door = Door { address: &address, identity: &folder };
    let listed = program::until("the server to have a certificate", Duration::from_secs(30), || door.list().ok());
    assert_eq!(listed, ["v", "w"]);
}

/// Whoever holds a connection with a write on its way, when the revocation is answered: nothing of it comes later.
#[test]
fn once_a_right_is_revoked_nothing_more_is_written() {
    need!("qemu-nbd", "nbdinfo");
    let cluster = cluster();
    let folder = identity(&cluster, "web", &[]);
    let address = tcp(&cluster);
    let door = Door { address: &address, identity: &folder };
    program::until("the server to have a certificate", Duration::from_secs(30), || door.list().ok());
    for round in 0..5 {
        cluster.tepal(&["volume", "grant", "v", "write", "web"]).succeeded();
        let through = door.through_qemu("v", cluster.folder().join(format!("qemu{round}.sock")));
        let (mut client, begun) = (through.connect(), AtomicBool::new(false));
        let taken = std::thread::scope(|scope| {
            let writing = scope.spawn(|| {
                let mut count = 0u64;
                loop {
                    let block = count.to_le_bytes().repeat(BLOCK / 8);
                    if client.write(count % 1024 * BLOCK as u64, &block).is_err() {
                        return count;
                    }
                    count += 1;
                    begun.store(count > 100, Ordering::Relaxed);
                }
            });
            program::until("it to write", Duration::from_secs(30), || begun.load(Ordering::Relaxed).then_some(()));
            cluster.tepal(&["volume", "revoke", "v", "web"]).succeeded();
            let at_once = cluster.connect("v").read(0, 4 << 20).expect("there");
            let written = writing.join().expect("it ended");
            assert!(written > 100, "{written}");
            at_once
        });
        assert!(
            cluster.connect("v").read(0, 4 << 20).expect("there") == taken,
            "round {round}: written after it was revoked"
        );
        assert!(client.read(0, 4096).is_err(), "nor may it read");
    }
}

#[test]
fn a_revoked_identity_gets_no_connection_and_a_renewed_one_goes_on() {
    need!("nbdinfo");
    let cluster = cluster();
    let (first, address) = (identity(&cluster, "web", &[]), tcp(&cluster));
    let list = |identity: &PathBuf| Door { address: &address, identity }.list();
    program::until("the server to have a certificate", Duration::from_secs(30), || list(&first).ok());
    let renewed = |name: &str| {
        let folder = cluster.folder().join(name);
        cluster.tepal(&["identity", "renew", "web", "--to", folder.to_str().expect("text")]).succeeded();
        folder
    };
    let second = renewed("second");
    assert!(list(&first).is_ok() && list(&second).is_ok(), "both count");
    let third = renewed("third");
    assert!(list(&first).is_err() && list(&second).is_ok() && list(&third).is_ok(), "the last two count");
    cluster.tepal(&["identity", "revoke", "web"]).succeeded();
    assert!(list(&second).is_err() && list(&third).is_err());
    let again = identity(&cluster, "web2", &[]);
    assert!(list(&again).is_ok(), "others go on");
    let events = cluster.ask(&["sql", "select text, who from events where subject = 'web' order by seq"]);
    assert_eq!(events["rows"][0][1], "token", "{events}");
}

#[test]
fn a_restarted_server_has_the_certificate_that_it_had() {
    need!("nbdinfo");
    let mut cluster = cluster();
    let folder = identity(&cluster, "web", &[]);
    let kept = |cluster: &Cluster| std::fs::read(cluster.data().join("certificate.json")).expect("there");
    let address = tcp(&cluster);
    let door = Door { address: &address, identity: &folder };
    program::until("the server to have a certificate", Duration::from_secs(30), || door.list().ok());
    let before = kept(&cluster);
    cluster.kill();
    cluster.start();
    let address = tcp(&cluster);
    let door = Door { address: &address, identity: &folder };
    program::until("the server to serve over TLS", Duration::from_secs(30), || door.list().ok());
    assert!(kept(&cluster) == before);
    let _: Nbd = cluster.connect("v");
}

#[test]
fn an_import_over_tls_brings_what_its_identity_may_read() {
    let cluster = cluster();
    let folder = identity(&cluster, "web", &[]);
    let data = noise(7, 5 << 20);
    cluster.connect("v").write(1 << 20, &data).expect("by the unix socket everything is allowed");
    let from = |volume: &str| format!("nbds://{}/{volume}?tls-certificates={}", cluster.tcp(), folder.display());
    let import = |volume: &str| cluster.tepal(&["volume", "import", "copy", "--from", &from(volume), "--verify"]);
    import("v").refused(1);
    cluster.tepal(&["volume", "grant", "v", "read", "web"]).succeeded();
    import("v").succeeded();
    assert!(cluster.connect("copy").read(1 << 20, 5 << 20).expect("there") == data);
    import("w").refused(1);
}
