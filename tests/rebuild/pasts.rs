//! Drives that don't all keep states of one past: images of earlier times, and drives that were used by another rebuild.

use super::one_server::{PLACE, STATE, lose_folder, rebuild, report, small};
use super::several::{lose_folders, rebuild as rebuild_ring};
use crate::cluster::{Cluster, Plan, overwrite};
use crate::nbd::noise;
use crate::servers::gateway;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;

/// The drives and whether they count.
fn standings<'a>(report: &'a Value) -> BTreeMap<&'a str, &'a str> {
    let standing = |drive: &'a Value| Some((drive["id"].as_str()?, drive["standing"].as_str()?));
    report["drives"].as_array().expect("a list").iter().filter_map(standing).collect()
}

/// Story: a cluster was rebuilt from the machine that had the earlier state, and was used before anybody noticed.
#[test]
fn a_rebuild_that_was_a_mistake_is_done_again_without_the_drives_that_it_has_used_and_these_are_added_anew() {
    let mut cluster = small().up();
    cluster.create("v", "8M", "mirror:2");
    let (one, other) = (cluster.drive(0).to_owned(), cluster.drive(1).to_owned());
    let (id, other_id) = (cluster.drive_id(&one), cluster.drive_id(&other));
    cluster.tepal(&["drive", "offline", &id]).succeeded();
    let bytes = noise(2, 1 << 20);
    cluster.connect("v").write_through(0, &bytes).expect("written");
    cluster.stop();
    lose_folder(&cluster);
    rebuild(&cluster, &[&one], &["--without-missing"]).succeeded();
    cluster.start();
    cluster.connect("v").write_through(1 << 20, &bytes[..8192]).expect("it's believed");
    cluster.stop();
    lose_folder(&cluster);

    let refused = rebuild(&cluster, &[&one, &other], &[]).refused(1);
    assert!(refused.contains("different pasts") && refused.contains("--history"), "{refused}");
    let refused = rebuild(&cluster, &[&one, &other], &["--history", "77"]).refused(1);
    assert!(refused.contains("of history 77"), "{refused}");
    assert!(!cluster.data().exists(), "nothing was made");
    let done = report(rebuild(&cluster, &[&one, &other], &["--history", "0"]));
    assert_eq!(standings(&done), [(&*id, "other_past"), (&*other_id, "found")].into(), "{done}");
    cluster.start();
    let read = cluster.connect("v").read(0, 2 << 20).expect("read");
    assert!(
        read[..1 << 20] == bytes && read[1 << 20..].iter().all(|byte| *byte == 0),
        "of the mistake nothing is left"
    );
    // As the log says.
    assert!(cluster.log().contains("given up") && cluster.log().contains("tepal drive wipe"), "{}", cluster.log());
    cluster.tepal(&["drive", "rm", &id]).succeeded();
    let path = one.to_str().expect("our own path");
    cluster.tepal(&["drive", "wipe", path, "--drive", &id]).succeeded();
    cluster.tepal(&["drive", "add", "s1", path]).succeeded();
    cluster.wait_until_healthy("v");
    assert!(cluster.connect("v").read(0, 1 << 20).expect("read") == bytes);
    cluster.scrub_finds_nothing("v");
}

#[test]
fn an_older_image_of_a_drive_is_not_the_drive() {
    let mut cluster = small().up();
    cluster.create("v", "8M", "mirror:2");
    let (one, other) = (cluster.drive(0).to_owned(), cluster.drive(1).to_owned());
    cluster.connect("v").write_through(0, &noise(1, 1 << 20)).expect("written");
    cluster.stop();
    let image = cluster.folder().join("image");
    fs::copy(&one, &image).expect("space");
    cluster.start();
    let bytes = noise(2, 1 << 20);
    cluster.connect("v").write_through(0, &bytes).expect("written");
    cluster.stop();
    lose_folder(&cluster);
    fs::rename(&image, &one).expect("ours");
    let refused = rebuild(&cluster, &[&one, &other], &[]).refused(1);
    assert!(refused.contains("weren't found"), "{refused}");
    let done = report(rebuild(&cluster, &[&one, &other], &["--without-missing"]));
    assert!(done["notes"].to_string().contains("older image"), "{done}");
    assert!(standings(&done).values().any(|standing| *standing == "older_image"), "{done}");
    cluster.start();
    assert!(cluster.connect("v").read(0, 1 << 20).expect("read") == bytes);
}

/// Lost while the first of three drives was catching up, as it may have missed what the second has, which was away. The third one was up.
fn lost_while_one_caught_up() -> (Cluster, String) {
    let mut cluster = Plan { drives: 3, ..small() }.up();
    cluster.create("v", "8M", "mirror:2");
    let offline = |number| {
        let id = cluster.drive_id(cluster.drive(number));
        cluster.tepal(&["drive", "offline", &id]).succeeded();
        id
    };
    let first = offline(0);
    cluster.connect("v").write_through(0, &noise(1, 1 << 20)).expect("written");
    offline(1);
    cluster.tepal(&["drive", "online", &first]).succeeded();
    cluster.wait_for_drive(cluster.drive(0), "behind");
    cluster.stop();
    lose_folder(&cluster);
    (cluster, first)
}

/// Story: one that was catching up by the last state that was found could have been up since, and alone. Nobody waited for it.
#[test]
fn a_drive_that_was_catching_up_has_to_be_looked_at() {
    let (cluster, first) = lost_while_one_caught_up();
    let last = cluster.drive(2);
    let refused = rebuild(&cluster, &[last], &["--partial"]).refused(1);
    assert!(refused.contains("catching up") && refused.contains(&first), "{refused}");
    assert!(!cluster.data().exists(), "nothing was made");
    rebuild(&cluster, &[last, cluster.drive(0)], &["--partial"]).succeeded();
}

/// Story: one that was catching up, and of which nobody could tell whether it had been up since, was taken for one that knows what it
/// misses.
#[test]
fn a_drive_that_was_catching_up_and_keeps_no_whole_state_is_refused() {
    let (cluster, first) = lost_while_one_caught_up();
    let drives = [0, 1, 2].map(|number| cluster.drive(number));
    // What one of both begins with says which state it was: it may have been a later one. At last none is whole.
    for rotten in [STATE, STATE + PLACE] {
        overwrite(drives[0], rotten, &[0x5a; 64]);
        for (named, allowed) in [(&drives[..], &[][..]), (&[drives[2], drives[0]], &["--partial"])] {
            let refused = rebuild(&cluster, named, allowed).refused(1);
            let is_told = ["catching up", "can't be told", "--without-missing", &first];
            assert!(is_told.iter().all(|part| refused.contains(part)) && !refused.contains("  "), "{refused}");
            assert!(!cluster.data().exists(), "nothing was made");
        }
    }
    // As it says.
    rebuild(&cluster, &drives[1..], &["--without-missing"]).succeeded();
}

#[test]
fn servers_of_two_rebuilds_are_told_apart_by_name() {
    let ring = gateway::up(2, "8M");
    ring.kill(1);
    ring.kill(2);
    lose_folders(&ring);
    rebuild_ring(&ring, &[]);
    let aside = ring.scratch_file("aside");
    fs::create_dir(&aside).expect("ours");
    let databases = ["raft.db", "cluster.db", "snapshot.db"];
    databases.iter().for_each(|name| fs::rename(ring.data(1).join(name), aside.join(name)).expect("it was made"));
    rebuild_ring(&ring, &["--server", "s2"]);
    databases.iter().for_each(|name| fs::rename(aside.join(name), ring.data(1).join(name)).expect("ours"));
    ring.start(&[1]);
    ring.start(&[2]);
    ring.wait_until("both say it", || {
        (1..=2).all(|server| ring.log(server).contains("another rebuild of the cluster"))
    });
    assert!(ring.runs(1) && ring.runs(2), "which of them goes on is for people to say");
}
