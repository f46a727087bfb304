//! Bytes that rot on a drive: served and repaired from the other copy, and an error on exactly those blocks where there is
//! none.

use crate::cluster::{Cluster, Media, Plan, overwrite};
use crate::nbd::{BLOCK, RequestError};
use crate::program;
use crate::rot::{block, fill, places, rot};

const BLOCKS: usize = 2048;

/// Fills a volume with blocks that are all different, and brings them to their places on the drives.
fn filled(media: Media, layout: &str) -> Cluster {
    let mut cluster = Plan { media, drives: 2, ..Plan::default() }.up();
    cluster.create("v0", &(BLOCKS * BLOCK).to_string(), layout);
    let mut volume = cluster.connect("v0");
    fill(&mut volume, BLOCKS);
    drop(volume);
    cluster.stop();
    cluster
}

#[test]
fn a_rotten_block_is_served_and_repaired_from_the_other_copy() {
    for media in [Media::Files, Media::Memory] {
        let mut cluster = filled(media, "mirror:2");
        let rotten = [3, 700, 2047];
        for place in places(cluster.drive(0), &rotten) {
            rot(cluster.drive(0), place.expect("a copy on each of two drives"));
        }
        cluster.start();
        let mut volume = cluster.connect("v0");
        // Often enough that either copy is asked.
        for _ in 0..8 {
            for number in 0..BLOCKS {
                assert!(volume.read((number * BLOCK) as u64, BLOCK as u32).expect("a good copy") == block(number));
            }
        }
        let scrub = cluster.ask(&["volume", "scrub", "v0"]);
        assert_eq!(scrub["damaged"], serde_json::json!([]), "{scrub}");
        cluster.scrub_finds_nothing("v0");
        cluster.stop_and_check_drives();
        let found = places(cluster.drive(0), &rotten);
        assert!(found.iter().all(Option::is_some), "repaired on the drive: {found:?}");
    }
}

#[test]
fn a_rotten_block_without_another_copy_is_an_error_on_exactly_that_block() {
    let mut cluster = filled(Media::Files, "stripe");
    let rotten = [5, 1000, 1001];
    for number in rotten {
        let found = [0, 1].map(|drive| (drive, places(cluster.drive(drive), &[number])[0]));
        let (drive, place) = *found.iter().find(|(_, place)| place.is_some()).expect("on one of the drives");
        overwrite(cluster.drive(drive), place.expect("found") + 4095, &[0x5a]);
    }
    cluster.start();
    let mut volume = cluster.connect("v0");
    for number in 0..BLOCKS {
        match volume.read((number * BLOCK) as u64, BLOCK as u32) {
            Ok(bytes) => assert!(bytes == block(number) && !rotten.contains(&number), "block {number}"),
            Err(RequestError::Refused(_)) => assert!(rotten.contains(&number), "block {number}"),
            Err(RequestError::Broken(error)) => panic!("{error}"),
        }
    }
    let scrub = cluster.command().args(["volume", "scrub", "v0", "-o", "json"]).output().expect("it runs");
    assert_eq!(scrub.status.code(), Some(1), "a scrub that finds damage fails");
    let damaged = cluster.volume("v0");
    assert_eq!((&damaged["state"], &damaged["damaged_blocks"]), (&"degraded".into(), &rotten.len().into()));
    let status = cluster.ask(&["status"]);
    let said = status["reason"].to_string();
    assert!(said.contains("3 blocks") && said.contains(&format!("{}+{BLOCK}", 5 * BLOCK)), "{status}");
    // A restart forgets nothing.
    drop(volume);
    cluster.stop();
    cluster.start();
    assert_eq!(cluster.volume("v0")["damaged_blocks"], rotten.len());
    let mut volume = cluster.connect("v0");
    // What is written again is whole again.
    for number in rotten {
        volume.write((number * BLOCK) as u64, &block(number)).expect("written");
        assert!(volume.read((number * BLOCK) as u64, BLOCK as u32).expect("read") == block(number));
    }
    drop(volume);
    assert_eq!(cluster.ask(&["status"])["health"], "ok");
    cluster.scrub_finds_nothing("v0");
    cluster.stop_and_check_drives();
}

/// Story: a drive's file was cut short while the server was stopped, and lengthened again with zeros. It was trusted as if
/// nothing had happened; what it had lost was repaired only where somebody happened to read.
#[test]
fn a_drive_that_was_cut_short_and_lengthened_while_nobody_looked_is_scrubbed() {
    let all: Vec<usize> = (0..BLOCKS).collect();
    for (layout, repaired) in [("mirror:2", true), ("stripe", false)] {
        let mut cluster = filled(Media::Files, layout);
        let drive = cluster.drive(0).to_owned();
        let held = places(&drive, &all);
        let middle = held.iter().flatten().sum::<u64>() / held.iter().flatten().count() as u64 / 4096 * 4096;
        let file = std::fs::File::options().write(true).open(&drive).expect("our own drive");
        file.set_len(middle).and_then(|()| file.set_len(256 << 20)).expect("our own drive");
        let lost = held.iter().flatten().filter(|place| **place >= middle).count();
        assert!(lost > 100, "{lost} blocks were cut off");
        cluster.start();
        program::until("the drive to be scrubbed", program::LIMIT, || {
            cluster.log().contains("a doubtful drive was scrubbed").then_some(())
        });
        let status = cluster.ask(&["status"]);
        if repaired {
            assert_eq!(status["health"], "ok", "{status}");
            cluster.scrub_finds_nothing("v0");
            cluster.stop_and_check_drives();
            assert!(places(&drive, &all).iter().all(Option::is_some), "all of it is there again");
        } else {
            assert_eq!(
                (&status["health"], &cluster.volume("v0")["damaged_blocks"]),
                (&"degraded".into(), &lost.into())
            );
        }
    }
}

#[test]
fn an_offline_check_tells_a_damaged_drive_from_a_whole_one() {
    let cluster = filled(Media::Files, "mirror:2");
    let drive = cluster.drive(0).to_str().expect("a path of ours");
    cluster.tepal(&["drive", "check", drive]).succeeded();
    let place = places(cluster.drive(0), &[9])[0].expect("a copy on each of two drives");
    overwrite(cluster.drive(0), place, &[0x5a]);
    let checked = cluster.tepal(&["drive", "check", drive]);
    assert_eq!(checked.status.code(), Some(1), "{checked}");
    let line = format!("volume 'v0': bytes {}+{BLOCK}, at {place} of the drive", 9 * BLOCK);
    assert!(String::from_utf8_lossy(&checked.stdout).contains(&line), "{line}: {checked}");
    let inspected = cluster.ask(&["drive", "inspect", drive]);
    assert_eq!(inspected["in_use"], false, "{inspected}");
    assert_eq!(inspected["content"]["maps"][0]["allocated"], BLOCKS * BLOCK, "{inspected}");
    cluster.tepal(&["drive", "check", cluster.drive(1).to_str().expect("ours")]).succeeded();
}
