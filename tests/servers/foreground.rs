//! `dev up`: what it waits for, and who stops the cluster: the one in the foreground that has started it, until somebody else does.

use super::ring::Ring;
use crate::nbd::noise;
use crate::program;
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::thread::JoinHandle;

/// One in the foreground, once the cluster is up; what it says from then on comes when it has ended.
fn up(ring: &Ring) -> (Child, JoinHandle<String>) {
    let arguments = ["dev", "up", "--servers", "1", "--drive-size", "64M"];
    let mut child = program::spawn(ring.command(&arguments).stdout(Stdio::piped()));
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines().map(|line| line.expect("text"));
    assert!(lines.any(|line| line.starts_with("stop")), "it ended before the cluster was up");
    (child, std::thread::spawn(move || lines.collect::<Vec<_>>().join("\n")))
}

/// Story: it stayed after `dev down`, and when it was interrupted later it stopped the servers of the one that came after it.
#[test]
fn who_has_the_cluster_in_the_foreground_ends_when_another_stops_it_and_stops_no_others_servers() {
    let ring = Ring::to_be(1);
    let (mut first, said) = up(&ring);
    // As if it hadn't been given the processor all the while.
    program::signal_group(&first, libc::SIGSTOP);
    ring.dev(&["down"]).succeeded();
    let (mut second, _) = up(&ring);
    program::signal_group(&first, libc::SIGINT);
    program::signal_group(&first, libc::SIGCONT);
    assert!(program::wait(&mut first, program::LIMIT).expect("it ends").success());
    let said = said.join().expect("text");
    assert!(said.contains("another command has stopped"), "{said}");
    assert!(ring.runs(1));

    ring.dev(&["down"]).succeeded();
    assert!(program::wait(&mut second, program::LIMIT).expect("it ends").success());
    // And by itself it does as before.
    let (mut third, said) = up(&ring);
    program::signal_group(&third, libc::SIGINT);
    assert!(program::wait(&mut third, program::LIMIT).expect("it ends").success());
    assert!(said.join().expect("text").contains("brings it back") && !ring.runs(1));
}

/// Story: it stood still for ten seconds, and said that the cluster is up.
#[test]
fn who_starts_a_cluster_that_is_not_whole_is_told_what_is_waited_for_and_why() {
    let ring = Ring::up(2);
    ring.wait_until_all_are_up(1);
    ring.ask(1, &["volume", "create", "v", "--size", "8M", "--layout", "stripe"]).succeeded();
    ring.connect(1, "v").write(0, &noise(1, 8 << 20)).expect("written");
    ring.dev(&["down"]).succeeded();
    let drive = ring.data(2).join("drive0");
    std::fs::rename(&drive, drive.with_extension("aside")).expect("ours");
    let ended = ring.dev(&["up", "--detach"]);
    let place = drive.display().to_string();
    for said in ["waiting for volume v: ", "put it back at", &place, "isn't whole", "tepal status"] {
        assert!(ended.stderr.contains(said), "{said}: {ended}");
    }
    assert!(ended.succeeded().contains("is up"));
    std::fs::rename(drive.with_extension("aside"), &drive).expect("ours");
    ring.wait_until_healthy(1, "v");
    ring.dev(&["down"]).succeeded();
    assert_eq!(ring.dev(&["up", "--detach"]).stderr, "", "there's nothing to wait for");
}
