//! A drive goes away under a writer and comes back: no request fails, the drive catches up on what it missed, and then every
//! byte is right on both copies.

use crate::cluster::{Cluster, Media, Plan};
use crate::nbd::{Ledger, Writer};
use std::fs::File;
use std::path::{Path, PathBuf};

/// A way for a drive to go, and to come back.
struct Pull {
    how: &'static str,
    /// What the drive is then.
    becomes: &'static str,
    away: fn(&Cluster, &Path),
    back: fn(&Cluster, &Path),
}

const PULLS: [Pull; 4] = [
    Pull {
        how: "moved away",
        becomes: "missing",
        away: |_, drive| std::fs::rename(drive, aside(drive)).expect("our own drive"),
        back: |_, drive| std::fs::rename(aside(drive), drive).expect("our own drive"),
    },
    Pull {
        how: "taken offline",
        becomes: "offline",
        away: |cluster, drive| command(cluster, "offline", drive),
        back: |cluster, drive| command(cluster, "online", drive),
    },
    Pull {
        how: "replaced by an empty one",
        becomes: "missing",
        away: |_, drive| {
            std::fs::rename(drive, aside(drive)).expect("our own drive");
            crate::cluster::make_drive(drive, 256 << 20);
        },
        back: |_, drive| std::fs::rename(aside(drive), drive).expect("our own drive"),
    },
    Pull {
        how: "cut short, and lengthened with zeros",
        becomes: "missing",
        away: |_, drive| resize(drive, 200 << 20),
        back: |_, drive| resize(drive, 256 << 20),
    },
];

fn aside(drive: &Path) -> PathBuf {
    drive.with_extension("aside")
}

fn resize(drive: &Path, size: u64) {
    File::options().write(true).open(drive).and_then(|file| file.set_len(size)).expect("our own drive");
}

fn command(cluster: &Cluster, verb: &str, drive: &Path) {
    let id = cluster.drive_id(drive);
    cluster.tepal(&["drive", verb, &id]).succeeded();
}

#[test]
fn a_drive_that_goes_and_returns_under_a_writer_costs_no_request_and_no_byte() {
    for (pull, media) in PULLS.iter().zip([Media::Memory, Media::Files].into_iter().cycle()) {
        println!("{}, {media:?}", pull.how);
        let mut cluster = Plan { media, ..Plan::default() }.up();
        cluster.create("v0", "16M", "mirror:2");
        let mut ledger = Ledger::new(11, 4096);
        ledger.fill(&mut cluster.connect("v0")).expect("written");
        let writer = Writer::start(cluster.address(), "v0", ledger);
        writer.go_on_for(500);
        // Each in turn: so what the first caught up on is relied on when the others are away.
        for number in 0..3 {
            let drive = cluster.drive(number).to_owned();
            (pull.away)(&cluster, &drive);
            cluster.wait_for_drive(&drive, pull.becomes);
            writer.go_on_for(1000);
            assert_eq!(cluster.volume("v0")["state"], "degraded");
            assert_eq!(cluster.ask(&["status"])["health"], "degraded");
            (pull.back)(&cluster, &drive);
            cluster.wait_for_drive(&drive, "up");
            cluster.wait_until_healthy("v0");
            writer.go_on_for(500);
        }
        let mut ledger = writer.finish();
        ledger.compare(&mut cluster.connect("v0"));
        cluster.scrub_finds_nothing("v0");
        cluster.stop_and_check_drives();
    }
}

#[test]
fn a_drive_that_is_away_while_the_server_is_killed_is_not_believed_before_it_has_caught_up() {
    let mut cluster = Plan { media: Media::Files, drives: 2, ..Plan::default() }.up();
    cluster.create("v0", "16M", "mirror:2");
    let mut ledger = Ledger::new(12, 4096);
    ledger.fill(&mut cluster.connect("v0")).expect("written");
    let drive = cluster.drive(0).to_owned();
    let writer = Writer::start(cluster.address(), "v0", ledger);
    writer.go_on_for(300);
    std::fs::rename(&drive, aside(&drive)).expect("our own drive");
    cluster.wait_for_drive(&drive, "missing");
    writer.go_on_for(1000);
    cluster.kill();
    // It's back before the server is, with old content.
    std::fs::rename(aside(&drive), &drive).expect("our own drive");
    cluster.start();
    writer.go_on_for(1000);
    cluster.wait_for_drive(&drive, "up");
    cluster.wait_until_healthy("v0");
    let mut ledger = writer.finish();
    // Only the copy that was away is left to read from.
    let other = cluster.drive(1).to_owned();
    std::fs::rename(&other, aside(&other)).expect("our own drive");
    cluster.wait_for_drive(&other, "missing");
    ledger.compare(&mut cluster.connect("v0"));
    std::fs::rename(aside(&other), &other).expect("our own drive");
    cluster.wait_for_drive(&other, "up");
    cluster.wait_until_healthy("v0");
    cluster.scrub_finds_nothing("v0");
    cluster.stop_and_check_drives();
}

#[test]
fn writes_wait_while_fewer_copies_are_here_than_the_layout_asks_for() {
    let mut cluster = Plan { drives: 2, ..Plan::default() }.up();
    cluster.create("v0", "4M", "mirror:2;min_copies=2");
    let writer = Writer::start(cluster.address(), "v0", Ledger::new(13, 1024));
    writer.go_on_for(200);
    let drive = cluster.drive(0).to_owned();
    std::fs::rename(&drive, aside(&drive)).expect("our own drive");
    cluster.wait_for_drive(&drive, "missing");
    // No request has failed, and none is answered any more.
    writer.settled();
    std::fs::rename(aside(&drive), &drive).expect("our own drive");
    cluster.wait_for_drive(&drive, "up");
    writer.go_on_for(200);
    writer.finish().compare(&mut cluster.connect("v0"));
    cluster.scrub_finds_nothing("v0");
    cluster.stop_and_check_drives();
}
