//! What happens to a real cluster, and the alerts that a real Prometheus raises for it.

use super::prometheus::Prometheus;
use super::{sum, text};
use crate::cluster::{Cluster, Plan};
use crate::filesystems::obstacle;
use crate::nbd::{BLOCK, noise};
use crate::power::{Operation, Shelved};
use crate::program::until;
use crate::rot::{fill, places, rot};
use crate::servers::ring::Ring;
use crate::{need, skip};
use std::path::PathBuf;
use std::time::Duration;

const SOON: Duration = Duration::from_secs(60);

pub fn watching(cluster: &Cluster) -> Prometheus {
    let prometheus = Prometheus::watching(&[cluster.data()]);
    // Increases count from what was seen first.
    until("two looks", SOON, || {
        (!prometheus.values("count_over_time(tepal_servers[1m]) > 2").is_empty()).then_some(())
    });
    assert_eq!(prometheus.firing(), Vec::<String>::new());
    prometheus
}

#[test]
fn servers_that_are_killed_raise_alerts_until_they_return() {
    need!("prometheus");
    let ring = Ring::up(3);
    ring.dev_client(&["volume", "create", "v", "--size", "16M", "--layout", "mirror:2"]).succeeded();
    ring.connect(1, "v").write(0, &noise(1, 8 << 20)).expect("written");
    let servers: Vec<PathBuf> = (1..=3).map(|server| ring.data(server)).collect();
    let up = || sum(&super::lines(&text(&ring.data(1)), "tepal_servers_up{"), "");
    let prometheus = Prometheus::watching(&servers);
    assert_eq!((up(), prometheus.firing()), (3.0, vec![]));

    ring.kill(3);
    let of_one = [
        "TepalServerUnreachable",
        "TepalServerDown",
        "TepalVolumeReduced",
        "TepalVolumeNoSpareCopy",
        "TepalNotHealthy",
    ];
    prometheus.wait_for(&of_one);
    assert_eq!(up(), 2.0);
    ring.kill(2);
    let of_two = ["TepalNoLeader", "TepalNoMajority"];
    prometheus.wait_for(&of_two);
    ring.start_all_that_are_down();
    ring.wait_until_healthy(1, "v");
    assert_eq!(up(), 3.0);
    // The addresses of those that were started again are others.
    let again = Prometheus::watching(&servers);
    again.wait_for_end_of(&[&of_one[..], &of_two].concat());
}

#[test]
fn a_lost_drive_raises_alerts_until_it_returns() {
    need!("prometheus");
    let cluster = Plan { drives: 3, ..Plan::default() }.up();
    cluster.create("v0", "4M", "mirror:2");
    cluster.create("bare", "4M", "stripe");
    cluster.connect("v0").write(0, &noise(1, 4 << 20)).expect("written");
    cluster.connect("bare").write(0, &noise(2, 4 << 20)).expect("written");
    let prometheus = watching(&cluster);
    let drive = cluster.drive(0).to_owned();
    let aside = drive.with_extension("aside");
    std::fs::rename(&drive, &aside).expect("ours");
    cluster.wait_for_drive(&drive, "missing");
    let of_it = [
        "TepalDriveMissing",
        "TepalVolumeReduced",
        "TepalVolumeNoSpareCopy",
        "TepalNotHealthy",
        "TepalVolumeNotServed",
    ];
    prometheus.wait_for(&of_it);
    let states = super::metrics(&cluster, "tepal_drive_state{");
    assert_eq!(sum(&states, "state=\"missing\""), 1.0);
    assert_eq!((sum(&states, "state=\"up\""), states.len()), (2.0, 15));
    std::fs::rename(&aside, &drive).expect("ours");
    ["v0", "bare"].iter().for_each(|volume| cluster.wait_until_healthy(volume));
    prometheus.wait_for_end_of(&of_it);
    let id = cluster.drive_id(&drive);
    cluster.tepal(&["drive", "offline", &id]).succeeded();
    prometheus.wait_for(&["TepalDriveMissing"]);
}

#[test]
fn a_drive_that_is_removed_with_copies_raises_an_alert() {
    need!("prometheus");
    let cluster = Plan { drives: 2, ..Plan::default() }.up();
    cluster.create("v0", "4M", "mirror:2");
    cluster.connect("v0").write(0, &noise(1, 4 << 20)).expect("written");
    let prometheus = watching(&cluster);
    let id = cluster.drive_id(cluster.drive(0));
    cluster.tepal(&["drive", "rm", &id, "--force"]).succeeded();
    prometheus.wait_for(&["TepalDriveFailed"]);
}

#[test]
fn a_drive_that_fills_up_raises_alerts() {
    need!("prometheus");
    let cluster = Plan { drives: 1, ..Plan::default() }.up();
    cluster.create("v0", "1G", "stripe");
    let prometheus = watching(&cluster);
    let mut volume = cluster.connect("v0");
    let left = || {
        sum(&super::metrics(&cluster, "tepal_drive_capacity_bytes{"), "")
            - sum(&super::metrics(&cluster, "tepal_drive_used_bytes{"), "")
    };
    let capacity = left();
    let mut at = 0;
    // More than half of it in a few seconds: it would be full soon.
    while left() > capacity * 0.45 {
        volume.write(at, &noise(at, 1 << 20)).expect("written");
        at += 1 << 20;
    }
    prometheus.wait_for(&["TepalDriveFillsUp"]);
    while left() > capacity * 0.04 {
        volume.write(at, &noise(at, 1 << 20)).expect("written");
        at += 1 << 20;
    }
    prometheus.wait_for(&["TepalDriveNearlyFull", "TepalNotHealthy"]);
    while volume.write(at, &noise(at, 1 << 20)).is_ok() {
        at += 1 << 20;
    }
    let piece = 64 << 10;
    for offset in (at..at + (4 << 20)).step_by(piece) {
        let _ = volume.write(offset, &noise(offset, piece)); // to the last extent
    }
    prometheus.wait_for(&["TepalDriveFull", "TepalVolumeReduced"]);
    until("requests that fail to be told", SOON, || {
        let _ = volume.write(at + (8 << 20), &noise(at, BLOCK));
        prometheus.firing().contains(&"TepalVolumeErrors".to_owned()).then_some(())
    });
}

#[test]
fn blocks_that_rot_raise_alerts() {
    need!("prometheus");
    const BLOCKS: usize = 64;
    let cluster = Plan { drives: 2, ..Plan::default() }.up();
    cluster.create("v0", "4M", "mirror:2");
    fill(&mut cluster.connect("v0"), BLOCKS);
    let prometheus = watching(&cluster);
    // What is in the log yet has no place that could rot.
    let drives = [0, 1].map(|number| cluster.drive(number).to_owned());
    let both = until("blocks in their places", SOON, || {
        let places = drives.each_ref().map(|drive| places(drive, &[7])[0]);
        Some((places[0]?, places[1]?))
    });
    rot(&drives[0], both.0);
    cluster.tepal(&["volume", "scrub", "v0"]).succeeded();
    prometheus.wait_for(&["TepalDriveRots"]);
    let places = drives.each_ref().map(|drive| places(drive, &[9])[0].expect("in its place"));
    drives.iter().zip(places).for_each(|(drive, place)| rot(drive, place));
    let _ = cluster.tepal(&["volume", "scrub", "v0"]);
    prometheus.wait_for(&["TepalVolumeDamaged"]);
}

#[test]
fn a_volume_that_rests_on_its_way_raises_an_alert() {
    need!("prometheus");
    let cluster = Plan { drives: 2, ..Plan::default() }.up();
    cluster.create("v0", "16M", "stripe");
    cluster.connect("v0").write(0, &noise(1, 16 << 20)).expect("written");
    let prometheus = watching(&cluster);
    cluster.tepal(&["volume", "relayout", "v0", "--layout", "mirror:2", "--rate", "1M", "--no-wait"]).succeeded();
    cluster.tepal(&["volume", "pause", "v0"]).succeeded();
    prometheus.wait_for(&["TepalMigrationPaused"]);
    cluster.tepal(&["volume", "resume", "v0"]).succeeded();
    prometheus.wait_for_end_of(&["TepalMigrationPaused"]);
}

#[test]
fn a_slow_volume_raises_an_alert() {
    need!("prometheus");
    let cluster = Plan { drives: 1, emulate: Some("write=600ms"), ..Plan::default() }.up();
    cluster.create("v0", "4M", "stripe");
    let prometheus = watching(&cluster);
    let mut volume = cluster.connect("v0");
    until("the alert", SOON, || {
        volume.write(0, &[1; BLOCK]).expect("written");
        prometheus.firing().contains(&"TepalVolumeSlow".to_owned()).then_some(())
    });
}

/// The times of some seconds pass while the server stands still.
#[test]
fn times_that_a_schedule_missed_raise_an_alert() {
    need!("prometheus");
    let cluster = Plan { drives: 1, ..Plan::default() }.up();
    cluster.create("v0", "4M", "stripe");
    cluster.tepal(&["schedule", "create", "s", "--snapshot", "v0", "--every", "1s", "--keep", "last=3"]).succeeded();
    let prometheus = watching(&cluster);
    let addresses = std::fs::read(cluster.data().join("addresses.json")).expect("it runs");
    let addresses: serde_json::Value = serde_json::from_slice(&addresses).expect("JSON");
    let process = libc::pid_t::try_from(addresses["pid"].as_i64().expect("a number")).expect("a process");
    // Safety: no memory is involved.
    let signal = |signal| assert_eq!(unsafe { libc::kill(process, signal) }, 0);
    signal(libc::SIGSTOP);
    std::thread::sleep(Duration::from_secs(4)); // for that long it stands still
    signal(libc::SIGCONT);
    prometheus.wait_for(&["TepalScheduleMissed"]);
    let missed = cluster.ask(&["schedule", "ls"])[0]["missed"].as_u64();
    assert!(missed.is_some_and(|missed| missed > 0), "{missed:?}");
}

#[test]
fn a_volume_that_finds_no_room_on_its_way_raises_an_alert() {
    need!("prometheus");
    let cluster = Plan { drives: 2, drive_size: 64 << 20, ..Plan::default() }.up();
    cluster.create("v0", "20M", "stripe");
    cluster.connect("v0").write(0, &noise(1, 20 << 20)).expect("written");
    let prometheus = watching(&cluster);
    cluster.tepal(&["volume", "relayout", "v0", "--layout", "mirror:2", "--rate", "1M", "--no-wait"]).succeeded();
    cluster.create("z", "128M", "stripe");
    let mut other = cluster.connect("z");
    let is_full = |at: &u64| other.write(at << 20, &noise(at + 2, 1 << 20)).is_err();
    assert!((0..128).find(is_full).is_some(), "no drive is full: {} bytes are used", cluster.used());
    cluster.tepal(&["volume", "rate", "v0", "auto"]).succeeded();
    prometheus.wait_for(&["TepalMigrationBlocked"]);
    cluster.tepal(&["volume", "rm", "z", "--force"]).succeeded();
    prometheus.wait_for_end_of(&["TepalMigrationBlocked"]);
    assert_eq!(cluster.wait_until_there("v0"), "mirror:2");
}

#[test]
fn a_device_that_fails_reads_raises_an_alert() {
    need!("prometheus");
    need!("fusermount3");
    if let Some(why) = obstacle() {
        skip!("{why}");
    }
    const SIZE: usize = 64 << 20;
    let cluster = Plan { drives: 2, drive_size: SIZE as u64, ..Plan::default() }.up();
    let failing = Shelved::add(&cluster, SIZE);
    cluster.create("v0", "8M", "mirror:3");
    cluster.connect("v0").write(0, &noise(1, 8 << 20)).expect("written");
    let prometheus = watching(&cluster);
    failing.shelf.media(0).fails = Some(Operation::Read);
    let _ = cluster.tepal(&["volume", "scrub", "v0"]); // it may be told that a drive went away
    prometheus.wait_for(&["TepalDriveErrors"]);
    cluster.tepal(&["drive", "rm", &cluster.drive_id(&failing.path), "--force"]).succeeded();
    failing.close();
}
