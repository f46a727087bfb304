//! What reaches a server's port for other servers and doesn't belong there.

use super::ring::Ring;
use crate::program;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::Duration;

#[test]
fn garbage_and_unknown_versions_are_closed_and_told_and_harm_nobody() {
    let ring = Ring::up(2);
    let port = ring.data(1).join("peers.sock");
    let noise = crate::nbd::noise(11, 1 << 20);
    let header = [b"TPLw\x01\x01".as_slice(), &[0xff; 58]].concat();
    for bytes in [b"GET / HTTP/1.1\r\n\r\n".as_slice(), &noise, b"TPLw\x09", &header] {
        for _ in 0..20 {
            let mut stranger = UnixStream::connect(&port).expect("it listens");
            stranger.set_read_timeout(Some(Duration::from_secs(60))).expect("a socket");
            let _ = stranger.write_all(bytes);
            let mut answer = Vec::new();
            // It may be reset, with what it sent unread.
            let _ = stranger.read_to_end(&mut answer);
            assert!(answer.len() < 1024, "{} bytes of answer", answer.len());
        }
    }
    let log = ring.log(1);
    assert_eq!(log.matches("version 9 of the frame header is unknown").count(), 1, "said, but not over and over");
    assert!(ring.runs(1));
    ring.wait_until_all_are_up(1);
    ring.ask(2, &["pool", "create", "after"]).succeeded();
}

#[test]
fn a_server_of_another_cluster_is_told_so_and_changes_nothing() {
    let (ours, theirs) = (Ring::up(2), Ring::up(2));
    for server in [1, 2] {
        theirs.kill(server);
    }
    // Their first server's address is ours by now.
    let port = theirs.data(1).join("peers.sock");
    fs::remove_file(&port).expect("it was there");
    std::os::unix::fs::symlink(ours.data(1).join("peers.sock"), &port).expect("a link");
    let log = theirs.data(2).join("lost.log");
    let mut command = Command::new(crate::cluster::tepal());
    command.arg("serve").arg("--data").arg(theirs.data(2)).args(["--server", "s2"]);
    command.stdout(Stdio::null()).stderr(fs::File::create(&log).expect("a log"));
    let mut lost = program::spawn(&mut command);
    for (whose, log) in [("theirs", log), ("ours", ours.data(1).join("log"))] {
        program::until(&format!("{whose} to say so"), program::LIMIT, || {
            fs::read_to_string(&log).expect("a log").contains("another cluster").then_some(())
        });
    }
    assert!(lost.try_wait().expect("a child of ours").is_none(), "it waits for its own cluster");
    program::kill_group(&mut lost);
    ours.wait_until_all_are_up(1);
    // Nor is a new one let in under a name that isn't ours.
    fs::remove_file(&port).expect("the link");
}
