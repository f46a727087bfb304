//! A way on which there is no room any more.

use super::LONG;
use crate::cluster::{Cluster, Media, Plan};
use crate::nbd::{BLOCK, noise};
use crate::program;
use std::process::Stdio;

const MIB: u64 = 1 << 20;

/// Two drives of 64 MiB, and a volume of two copies that is halfway to one copy.
fn halfway() -> (Cluster, Vec<u8>) {
    let cluster = Plan { media: Media::Files, drives: 2, drive_size: 64 * MIB, ..Plan::default() }.up();
    cluster.create("v", "44M", "mirror:2");
    let data = noise(1, (44 * MIB) as usize);
    write(&cluster, "v", &data);
    let relayout = ["volume", "relayout", "v", "--layout", "stripe", "--rate", "4M", "--no-wait"];
    cluster.tepal(&relayout).succeeded();
    program::until("half of it to have gone", LONG, || {
        (cluster.volume("v")["migration"]["done_bytes"].as_u64()? >= 20 * MIB).then_some(())
    });
    cluster.tepal(&["volume", "pause", "v"]).succeeded();
    (cluster, data)
}

fn write(cluster: &Cluster, volume: &str, data: &[u8]) {
    let mut client = cluster.connect(volume);
    for (at, part) in (0..).step_by(MIB as usize).zip(data.chunks(MIB as usize)) {
        client.write(at, part).expect("written");
    }
}

/// Another volume takes what is free.
fn fill(cluster: &Cluster) {
    cluster.create("z", "128M", "stripe");
    let mut client = cluster.connect("z");
    let full = (0..128).find(|at| client.write(at * MIB, &noise(at + 2, MIB as usize)).is_err());
    assert!(full.is_some(), "no drive is full: {} bytes are used", cluster.used());
}

fn is_blocked(cluster: &Cluster) {
    program::until("it to wait for room", LONG, || {
        let migration = &cluster.volume("v")["migration"];
        let says_why =
            ["no room", "full", "add drives"].iter().all(|part| migration["reason"].to_string().contains(part));
        let has_none = migration["rate"] == 0 && migration["seconds_left"].is_null();
        (migration["state"] == "blocked" && says_why && has_none).then_some(())
    });
}

fn is_right(cluster: &Cluster, data: &[u8], layout: &str) {
    assert_eq!(cluster.wait_until_there("v"), layout);
    let mut client = cluster.connect("v");
    for (at, part) in (0..).step_by(MIB as usize).zip(data.chunks(MIB as usize)) {
        assert!(client.read(at, part.len() as u32).expect("read") == part, "at {at}");
    }
    assert!(cluster.tepal(&["volume", "scrub", "v"]).succeeded().contains("0 blocks repaired"));
}

#[test]
fn what_finds_no_room_on_its_way_back_goes_there_after_all() {
    let (cluster, data) = halfway();
    fill(&cluster);
    let said = cluster.tepal(&["volume", "cancel", "v", "--no-wait"]).succeeded();
    assert!(said.contains("goes back") && !said.contains("calls it off"), "{said}");
    is_blocked(&cluster);
    let refused = cluster.tepal(&["volume", "relayout", "v", "--layout", "mirror:3"]).refused(1);
    assert!(refused.contains("way back") && refused.contains("tepal volume relayout v --layout 'stripe'"), "{refused}");
    cluster.tepal(&["volume", "relayout", "v", "--layout", "stripe", "--no-wait"]).succeeded();
    cluster.tepal(&["volume", "rate", "v", "auto"]).succeeded();
    is_right(&cluster, &data, "stripe");
}

#[test]
fn what_finds_no_room_on_its_way_back_goes_on_when_there_is_some() {
    let (cluster, data) = halfway();
    fill(&cluster);
    cluster.tepal(&["volume", "cancel", "v", "--no-wait"]).succeeded();
    is_blocked(&cluster);
    cluster.tepal(&["volume", "rm", "z"]).succeeded();
    cluster.tepal(&["volume", "rate", "v", "auto"]).succeeded();
    is_right(&cluster, &data, "mirror:2");
    cluster.tepal(&["volume", "rm", "v"]).succeeded();
    cluster.wait_until_all_is_free();
}

/// Story: somebody had a way back blocked, was told nothing while they waited, and added a drive as anybody would: nothing came to it,
/// since nothing of what is on its way was moved between drives.
#[test]
fn who_waits_for_what_is_blocked_is_told_what_to_do_and_it_goes_on_by_itself_when_a_drive_is_added() {
    let (cluster, data) = halfway();
    cluster.tepal(&["snapshot", "create", "v@s"]).succeeded();
    // All that fills the drives is its own: no other volume could be moved away.
    let mut client = cluster.connect("v");
    let new = noise(2, data.len());
    let pieces = |data: &[u8]| data.chunks(MIB as usize).map(<[u8]>::to_vec).collect::<Vec<_>>();
    let is_written: Vec<bool> =
        (0..).step_by(MIB as usize).zip(pieces(&new)).map(|(at, piece)| client.write(at, &piece).is_ok()).collect();
    assert!(is_written.contains(&false), "no drive is full: {} bytes are used", cluster.used());

    let mut command = cluster.command();
    command.args(["volume", "cancel", "v"]);
    let told = cluster.folder().join("told");
    let mut child =
        program::spawn(command.stdout(Stdio::null()).stderr(std::fs::File::create_new(&told).expect("space")));
    let lines = || std::fs::read_to_string(&told).expect("text");
    program::until("it to be said why it waits", LONG, || lines().contains("no room").then_some(()));
    let said = ["add drives", "remove snapshots", "tepal volume relayout v --layout 'stripe'"];
    program::until("it to be said what can be done", LONG, || {
        said.iter().all(|part| lines().contains(part)).then_some(())
    });
    is_blocked(&cluster);
    let path = cluster.folder().join("more").display().to_string();
    cluster.tepal(&["drive", "add", "s1", &path, "--create", "128M"]).succeeded();
    cluster.tepal(&["volume", "rate", "v", "auto"]).succeeded();
    assert!(program::wait(&mut child, LONG).is_some_and(|status| status.success()));
    assert!(lines().matches("no room").count() < 10, "news alone: {}", lines());

    assert_eq!(cluster.wait_until_there("v"), "mirror:2");
    for (at, ((old, new), is_written)) in
        (0..).step_by(MIB as usize).zip(pieces(&data).iter().zip(&pieces(&new)).zip(is_written))
    {
        let now = cluster.connect("v").read(at, MIB as u32).expect("read");
        // What was refused is old or new in each block.
        let blocks = now.chunks(BLOCK).zip(old.chunks(BLOCK).zip(new.chunks(BLOCK)));
        let is_right = |(now, (old, new)): (&[u8], (&[u8], &[u8]))| now == new || (!is_written && now == old);
        assert!(blocks.into_iter().all(is_right), "at {at}");
        assert!(cluster.connect("v@s").read(at, MIB as u32).expect("read") == *old, "at {at} of the snapshot");
    }
    cluster.scrub_finds_nothing("v");
}

#[test]
fn what_others_on_their_way_will_take_is_not_given_away() {
    let cluster = Plan { media: Media::Files, drives: 2, drive_size: 64 * MIB, ..Plan::default() }.up();
    for (volume, mebibytes) in [("v", 38), ("z", 26)] {
        cluster.create(volume, &format!("{mebibytes}M"), "stripe");
        write(&cluster, volume, &noise(mebibytes, (mebibytes * MIB) as usize));
    }
    let relayout =
        |volume| cluster.tepal(&["volume", "relayout", volume, "--layout", "mirror:2", "--rate", "1M", "--no-wait"]);
    relayout("v").succeeded();
    let refused = relayout("z").refused(1);
    assert!(refused.contains("of which others on their way will take"), "{refused}");
    // It takes back its word.
    cluster.tepal(&["volume", "cancel", "v"]).succeeded();
    relayout("z").succeeded();
}
