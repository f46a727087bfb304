//! More clients than a server can have files open.

use crate::cluster::{Cluster, Plan};
use crate::nbd::Nbd;
use serde_json::Value;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// As many as come until one is turned away: closed at once, not left to wait.
fn crowd<T>(what: &str, come: impl Fn() -> std::io::Result<T>) -> Vec<T> {
    let mut crowd = Vec::new();
    for _ in 0..400 {
        match come() {
            Ok(one) => crowd.push(one),
            Err(error) => {
                let waited = matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut);
                assert!(!waited, "{what} {} waits: {error}", crowd.len());
                return crowd;
            }
        }
    }
    panic!("400 {what} are served, with 200 files");
}

/// A connection of the API that has shown the token, and stays.
fn caller(cluster: &Cluster) -> std::io::Result<TcpStream> {
    let addresses = std::fs::read(cluster.data().join("addresses.json"))?;
    let addresses: Value = serde_json::from_slice(&addresses)?;
    let api = addresses["api"].as_str().expect("an address");
    let token = std::fs::read_to_string(cluster.data().join("token"))?;
    let mut stream = TcpStream::connect(api)?;
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    write!(stream, "GET /v1/pools HTTP/1.1\r\nHost: {api}\r\nAuthorization: Bearer {}\r\n\r\n", token.trim())?;
    let mut answer = [0; 15];
    stream.read_exact(&mut answer)?;
    assert_eq!(&answer, b"HTTP/1.1 200 OK");
    Ok(stream)
}

/// Story: 162 clients took every descriptor that a server had. Commands waited in vain, a drive that came back was refused, the log grew
/// by 40 lines a second, and more clients waited for ever.
#[test]
fn a_crowd_leaves_descriptors_for_drives_and_commands() {
    let arguments = ["--data-threads", "2"].map(str::to_owned).to_vec();
    let cluster = Plan { drives: 2, descriptors: Some(200), arguments, ..Plan::default() }.up();
    cluster.create("v0", "32M", "mirror:2");
    let first = crowd("clients", || Nbd::open(&cluster.address(), "v0"));
    // With the soft limit of 100 there would be half as many at most.
    assert!((50..100).contains(&first.len()), "{} clients", first.len());
    for _ in 0..200 {
        assert!(Nbd::open(&cluster.address(), "v0").is_err(), "all places are taken");
    }

    let status = cluster.ask(&["status"]);
    assert_eq!(status["health"], "degraded", "{status}");
    assert!(status["reason"].to_string().contains("NBD clients are turned away, 201 lately"), "{status}");
    let drive = cluster.drive(1);
    let aside = drive.with_extension("aside");
    std::fs::rename(drive, &aside).expect("our own drive");
    cluster.wait_for_drive(drive, "missing");
    std::fs::rename(&aside, drive).expect("our own drive");
    cluster.wait_for_drive(drive, "up");
    cluster.wait_until_healthy("v0");

    let callers = crowd("callers", || caller(&cluster));
    assert_eq!(callers.len(), 25);
    drop(callers);
    let status = cluster.ask(&["status"]);
    assert!(status["reason"].to_string().contains("callers of the API are turned away"), "{status}");
    let told = cluster.log().lines().filter(|line| line.contains("turned away")).count();
    assert!((2..=6).contains(&told), "{told} lines tell of it");

    drop(first);
    crate::program::until("a place to be free", crate::program::LIMIT, || Nbd::open(&cluster.address(), "v0").ok());
}
