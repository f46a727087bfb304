//! Who has no identity of the cluster gets nothing, and hurts nobody.

use super::client::Door;
use super::rights::{cluster, identity, tcp};
use crate::nbd::Nbd;
use crate::need;
use crate::program::{self, command, run};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

#[test]
fn without_tls_an_address_that_wants_it_tells_nothing() {
    need!("nbdinfo");
    let cluster = cluster();
    let address = tcp(&cluster);
    for volume in ["v", "nothing", ""] {
        assert!(Nbd::open(&address, volume).is_err());
    }
    assert!(Nbd::list(&address).is_err());
    let said = run(&mut command("nbdinfo", [format!("nbd://{}/v", cluster.tcp())]));
    assert!(!said.status.success() && !said.stderr.contains("there is no volume"), "{said}");
    assert_eq!(Nbd::list(&cluster.address()).expect("by the unix socket"), ["v", "w"]);
}

#[test]
fn an_identity_of_another_cluster_gets_nothing() {
    need!("nbdinfo");
    let (ours, theirs) = (cluster(), cluster());
    let (own, other) = (identity(&ours, "web", &[]), identity(&theirs, "web", &["--operator"]));
    let address = tcp(&ours);
    program::until("the server to have a certificate", Duration::from_secs(30), || {
        Door { address: &address, identity: &own }.list().ok()
    });
    let refused = Door { address: &address, identity: &other }.list().expect_err("it's of another authority");
    assert!(!refused.contains('v'.to_string().repeat(2).as_str()));
    // Also one that takes our server for what it is.
    let authority = std::fs::read(own.join("ca-cert.pem")).expect("there");
    std::fs::write(other.join("ca-cert.pem"), authority).expect("space");
    Door { address: &address, identity: &other }.list().expect_err("its certificate is of another authority");
}

/// Floods of strangers: handshakes that are begun and left, or are no TLS at all.
#[test]
fn strangers_keep_no_client_out() {
    need!("nbdinfo");
    let cluster = cluster();
    let folder = identity(&cluster, "web", &["--operator"]);
    let address = tcp(&cluster);
    let door = Door { address: &address, identity: &folder };
    program::until("the server to have a certificate", Duration::from_secs(30), || door.list().ok());
    let mut left = Vec::new();
    for number in 0..300 {
        let mut stream = TcpStream::connect(cluster.tcp()).expect("it listens");
        let mut greeting = [0; 18];
        if stream.read_exact(&mut greeting).is_err() {
            continue; // a slower one made room
        }
        // Flags; option STARTTLS.
        let asked = [&3u32.to_be_bytes()[..], b"IHAVEOPT", &5u32.to_be_bytes(), &0u32.to_be_bytes()].concat();
        let _ = stream.write_all(&asked[..if number % 3 == 0 { 4 } else { asked.len() }]);
        if number % 3 == 1 {
            let mut reply = [0; 20];
            let _ = stream.read_exact(&mut reply).and_then(|()| stream.write_all(&[0x16, 3, 1, 0xff, 0xff, 1, 0, 0]));
        }
        left.push(stream);
    }
    assert_eq!(door.list().expect("it's served beside them"), ["v", "w"]);
    drop(left);
    assert!(cluster.log().lines().filter(|line| line.contains("panicked")).count() == 0);
}
