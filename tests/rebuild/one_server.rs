//! A single server without its data folder.

use crate::cluster::{Cluster, Media, Plan, overwrite};
use crate::nbd::noise;
use crate::program;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

/// Where the first place for the cluster's state is on a drive of 64 MiB, behind its log.
pub const STATE: u64 = 16384 + (1 << 20);
/// How long each of the two is.
pub const PLACE: u64 = 256 << 10;

pub fn small() -> Plan {
    Plan { media: Media::Files, drives: 2, drive_size: 64 << 20, ..Plan::default() }
}

pub fn lose_folder(cluster: &Cluster) {
    fs::remove_dir_all(cluster.data()).expect("it was there");
}

pub fn rebuild(cluster: &Cluster, drives: &[&Path], more: &[&str]) -> program::Ended {
    let mut command = cluster.command();
    command.args(["-o", "json", "cluster", "rebuild", "--from-drives"]);
    command.args(drives.iter().flat_map(|drive| [Path::new("--drive"), drive]));
    program::run(command.args(more))
}

pub fn report(ended: program::Ended) -> Value {
    serde_json::from_str(&ended.succeeded()).expect("JSON")
}

#[test]
fn volumes_snapshots_and_clones_are_there_after_the_data_folder_was_lost() {
    let mut cluster = small().up();
    cluster.create("v", "8M", "mirror:2");
    cluster.create("gone", "8M", "mirror:2");
    let (old, new, cloned) = (noise(1, 4 << 20), noise(2, 1 << 20), noise(3, 1 << 20));
    cluster.connect("v").write(0, &old).expect("written");
    cluster.tepal(&["snapshot", "create", "v@a"]).succeeded();
    cluster.connect("v").write(1 << 20, &new).expect("written");
    cluster.tepal(&["volume", "clone", "v@a", "c"]).succeeded();
    cluster.connect("c").write(2 << 20, &cloned).expect("written");
    cluster.tepal(&["volume", "rm", "gone"]).succeeded();
    cluster.tepal(&["volume", "rename", "c", "clone"]).succeeded();
    let id = cluster.ask(&["cluster", "show"])["id"].clone();
    let view = cluster.ask(&["status"])["view"].as_u64().expect("a number");
    cluster.kill();
    lose_folder(&cluster);

    let drives: Vec<PathBuf> = [0, 1].map(|number| cluster.drive(number).to_owned()).into();
    let drives: Vec<&Path> = drives.iter().map(PathBuf::as_path).collect();
    let dry = report(rebuild(&cluster, &drives, &["--dry-run"]));
    assert_eq!((&dry["done"], &dry["cluster"], &dry["server"]), (&false.into(), &id, &"s1".into()), "{dry}");
    assert!(!cluster.data().join("raft.db").exists());
    let names: Vec<&str> = dry["volumes"].as_array().unwrap().iter().filter_map(|one| one["name"].as_str()).collect();
    assert_eq!(names, ["v", "clone"], "{dry}");
    assert!(dry["volumes"].as_array().unwrap().iter().all(|one| one["parts"] == one["parts_found"]), "{dry}");
    let done = report(rebuild(&cluster, &drives, &[]));
    assert_eq!((&done["done"], &done["view"]), (&true.into(), &dry["view"]));
    cluster.start();
    cluster.wait_until_healthy("v");
    assert_eq!(cluster.ask(&["cluster", "show"])["id"], id);
    assert!(cluster.ask(&["status"])["view"].as_u64().expect("a number") > view);
    let check = |cluster: &Cluster| {
        let mut expected = old.clone();
        expected[1 << 20..2 << 20].copy_from_slice(&new);
        assert!(cluster.connect("v").read(0, 4 << 20).expect("read") == expected);
        assert!(cluster.connect("v@a").read(0, 4 << 20).expect("read") == old);
        let mut expected = old.clone();
        expected[2 << 20..3 << 20].copy_from_slice(&cloned);
        assert!(cluster.connect("clone").read(0, 4 << 20).expect("read") == expected);
    };
    check(&cluster);
    // It goes on like any other, also when that is lost once more.
    cluster.tepal(&["snapshot", "create", "v@b"]).succeeded();
    cluster.connect("v").write(6 << 20, &new).expect("written");
    cluster.stop();
    lose_folder(&cluster);
    report(rebuild(&cluster, &drives, &[]));
    cluster.start();
    cluster.wait_until_healthy("v");
    check(&cluster);
    assert!(cluster.connect("v").read(6 << 20, 1 << 20).expect("read") == new);
    assert_eq!(cluster.connect("v@b").read(6 << 20, 4096).expect("read"), [0; 4096]);
    cluster.scrub_finds_nothing("v");
}

#[test]
fn a_state_that_is_rotten_on_one_drive_is_read_from_another_at_another_path() {
    let mut cluster = small().up();
    cluster.create("v", "8M", "mirror:2");
    let bytes = noise(5, 1 << 20);
    cluster.connect("v").write_through(0, &bytes).expect("written");
    cluster.stop();
    lose_folder(&cluster);
    for place in [STATE, STATE + PLACE] {
        overwrite(cluster.drive(0), place + 4100, &[0x5a; 64]);
    }
    // They are found by what they are, not by where.
    let (one, other) = (cluster.drive(0).to_owned(), cluster.drive(1).to_owned());
    let aside = one.with_extension("aside");
    fs::rename(&one, &aside).unwrap();
    fs::rename(&other, &one).unwrap();
    fs::rename(&aside, &other).unwrap();
    let done = report(rebuild(&cluster, &[&one, &other], &[]));
    assert!(done["notes"].to_string().contains("counts as having been up last"), "{done}");
    cluster.start();
    cluster.wait_until_healthy("v");
    assert!(cluster.connect("v").read(0, 1 << 20).expect("read") == bytes);
}

#[test]
fn a_drive_that_was_away_when_the_folder_was_lost_is_not_believed_for_what_it_missed() {
    let mut cluster = small().up();
    cluster.create("v", "8M", "mirror:2");
    cluster.connect("v").write_through(0, &noise(1, 1 << 20)).expect("written");
    let id = cluster.drive_id(cluster.drive(0));
    cluster.tepal(&["drive", "offline", &id]).succeeded();
    let bytes = noise(2, 1 << 20);
    cluster.connect("v").write_through(0, &bytes).expect("written");
    cluster.kill();
    lose_folder(&cluster);
    let (one, other) = (cluster.drive(0).to_owned(), cluster.drive(1).to_owned());
    // The older state says that both were up.
    let refused = rebuild(&cluster, &[&one], &[]).refused(1);
    assert!(refused.contains("weren't found") && refused.contains("--without-missing"), "{refused}");
    report(rebuild(&cluster, &[&one, &other], &[]));
    cluster.start();
    assert!(cluster.connect("v").read(0, 1 << 20).expect("read") == bytes);
}

#[test]
fn a_drive_whose_copy_of_the_last_state_is_rotten_is_believed_over_one_that_was_away() {
    // Which of both places has the last one isn't told. What it begins with is rotten, or what is in it.
    for rotten in [STATE, STATE + 4100, STATE + PLACE, STATE + PLACE + 4100] {
        let mut cluster = small().up();
        cluster.create("v", "8M", "mirror:2");
        cluster.connect("v").write_through(0, &noise(1, 1 << 20)).expect("written");
        cluster.stop();
        let (there, taken_away) = (cluster.drive(1).to_owned(), cluster.drive(1).with_extension("away"));
        std::fs::rename(&there, &taken_away).expect("renamed");
        cluster.start();
        let bytes = noise(2, 1 << 20);
        cluster.connect("v").write_through(0, &bytes).expect("written");
        cluster.stop();
        std::fs::rename(&taken_away, &there).expect("renamed");
        lose_folder(&cluster);
        overwrite(cluster.drive(0), rotten, &[0x5a; 64]);
        let (one, other) = (cluster.drive(0).to_owned(), cluster.drive(1).to_owned());
        println!("{}", report(rebuild(&cluster, &[&one, &other], &[]))["notes"]);
        cluster.start();
        cluster.wait_until_healthy("v");
        for _ in 0..4 {
            assert!(cluster.connect("v").read(0, 1 << 20).expect("read") == bytes);
        }
        cluster.scrub_finds_nothing("v");
    }
}
