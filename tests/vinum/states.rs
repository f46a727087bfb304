//! What plexes and subdisks are good for, and what is done about it: states, parity, other drives, a picture.

use super::{MIB, apply, fill, has, machine, paper, written};
use crate::cluster::Cluster;
use crate::program;
use serde_json::Value;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const SETTLE: Duration = Duration::from_secs(60);

/// The state of a volume, a plex or a subdisk.
fn state(cluster: &Cluster, name: &str) -> String {
    part(cluster, name)["state"].as_str().expect("a state").to_owned()
}

fn part(cluster: &Cluster, name: &str) -> Value {
    let all = cluster.ask(&["plex", "ls"]);
    for volume in all.as_array().expect("a list") {
        if volume["volume"] == name {
            return volume.clone();
        }
        for plex in volume["plexes"].as_array().expect("a list") {
            let disks = plex["subdisks"].as_array().expect("a list");
            if let Some(found) = std::iter::once(plex).chain(disks).find(|part| part["name"] == name) {
                return found.clone();
            }
        }
    }
    panic!("there's no {name} in {all}");
}

/// Volumes of the paper, whose drives the first ones define.
fn applied(cluster: &Cluster, devices: &std::path::Path, names: &[&str]) {
    for name in names {
        apply(cluster, devices, &paper(name)).succeeded();
    }
}

fn until_up(cluster: &Cluster, plex: &str) {
    program::until(&format!("plex {plex} to be up"), SETTLE, || (state(cluster, plex) == "up").then_some(()));
}

#[test]
fn a_subdisk_is_down_then_revived_with_what_it_missed() {
    let (mut cluster, devices) = machine();
    applied(&cluster, &devices, &["myvol", "mirror"]);
    fill(&cluster, "mirror", 512 * MIB, 1);
    for name in ["mirror", "mirror.p0", "mirror.p1", "mirror.p1.s0"] {
        assert_eq!(state(&cluster, name), "up", "{name}");
    }
    cluster.tepal(&["drive", "offline", "b"]).succeeded();
    fill(&cluster, "mirror", 512 * MIB, 5);
    let names = ["mirror", "mirror.p0", "mirror.p0.s0", "mirror.p1", "mirror.p1.s0"];
    assert_eq!(names.map(|name| state(&cluster, name)), ["degraded", "up", "up", "down", "down"]);
    let stale = part(&cluster, "mirror.p1.s0")["stale"].as_u64().expect("bytes");
    assert!((16 * MIB..=18 * MIB).contains(&stale), "{stale} bytes were written without it");
    let held = cluster.tepal(&["plex", "start", "mirror.p1"]).refused(1);
    assert!(held.contains("drive b isn't here"), "{held}");
    let told = cluster.tepal(&["plex", "ls", "mirror"]).succeeded();
    assert!(told.contains("mirror.p1.s0") && told.contains("changed without it"), "{told}");
    // The server forgets nothing of that.
    cluster.kill();
    cluster.start();
    cluster.tepal(&["drive", "online", "b"]).succeeded();
    cluster.tepal(&["plex", "start", "mirror.p1"]).succeeded();
    assert_eq!(names.map(|name| state(&cluster, name)), ["up"; 5]);
    cluster.tepal(&["drive", "offline", "a"]).succeeded();
    assert!(has(&cluster, "mirror", 512 * MIB, 5), "the revived plex has what it missed");
}

/// A server with drives a to d and a raid5 volume on the first three.
fn raid5() -> (Cluster, std::path::PathBuf) {
    let (cluster, devices) = machine();
    let text = "drive a device /dev/da3h\ndrive b device /dev/da4h\ndrive c device /dev/da5h\ndrive d device /dev/da6h\n\
                volume v\nplex org raid5 512k\nsd length 128m drive a\nsd length 128m drive b\nsd length 128m drive c\n";
    apply(&cluster, &devices, &written(&cluster, "raid5.conf", text)).succeeded();
    fill(&cluster, "v", 256 * MIB, 3);
    (cluster, devices)
}

#[test]
fn parity_is_compared_step_by_step_and_says_what_it_could_not() {
    let (mut cluster, devices) = raid5();
    let checked = cluster.ask(&["plex", "checkparity", "v.p0"]);
    assert_eq!((&checked["unequal"], &checked["unchecked_bytes"]), (&Value::Array(vec![]), &0.into()), "{checked}");
    assert_eq!(checked["size"], 256 * MIB);
    cluster.tepal(&["plex", "rebuildparity", "v.p0", "--from", "128M"]).succeeded();
    cluster.tepal(&["plex", "init", "v.p0"]).succeeded();
    cluster.kill();
    cluster.start();
    until_up(&cluster, "v.p0");
    cluster.tepal(&["plex", "checkparity", "v.p0"]).succeeded();
    cluster.tepal(&["drive", "offline", "b"]).succeeded();
    assert_eq!(
        [state(&cluster, "v"), state(&cluster, "v.p0"), state(&cluster, "v.p0.s1")],
        ["degraded", "degraded", "down"]
    );
    let refused = cluster.tepal(&["plex", "checkparity", "v.p0"]).refused(1);
    assert!(refused.contains("couldn't be compared"), "{refused}");
    cluster.tepal(&["drive", "online", "b"]).succeeded();
    until_up(&cluster, "v.p0");
    // What has no parity says so.
    apply(&cluster, &devices, &written(&cluster, "m.conf", "volume m\nplex org concat\nsd length 8m drive a\n"))
        .succeeded();
    let refused = cluster.tepal(&["plex", "checkparity", "m.p0"]).refused(1);
    assert!(refused.contains("has no parity"), "{refused}");
    assert!(cluster.tepal(&["plex", "init", "m.p0"]).succeeded().contains("needs none"));
    let refused = cluster.tepal(&["plex", "checkparity", "nothing"]).refused(1);
    assert!(refused.contains("there is no plex 'nothing'"), "{refused}");
}

#[test]
fn a_hot_spare_takes_the_place_of_a_removed_drive() {
    let (cluster, _) = raid5();
    cluster.tepal(&["drive", "spare", "d"]).succeeded();
    cluster.tepal(&["drive", "rm", "b", "--force"]).succeeded();
    program::until("the spare to have the subdisk", SETTLE, || {
        let disk = part(&cluster, "v.p0.s1");
        (disk["drive_name"] == "d" && disk["state"] == "up").then_some(())
    });
    until_up(&cluster, "v.p0");
    cluster.wait_until_healthy("v");
    cluster.tepal(&["drive", "offline", "a"]).succeeded();
    assert!(has(&cluster, "v", 256 * MIB, 3), "the spare has what the others make of it");
    cluster.tepal(&["drive", "online", "a"]).succeeded();
    cluster.wait_until_healthy("v");
    cluster.scrub_finds_nothing("v");
    let drives = cluster.ask(&["drive", "ls"]);
    let names: Vec<&str> =
        drives.as_array().expect("a list").iter().filter_map(|drive| drive["name"].as_str()).collect();
    assert!(!names.contains(&"b"), "{drives}");
}

#[test]
fn a_drive_is_replaced_while_its_volumes_are_written_to() {
    let (cluster, devices) = machine();
    applied(&cluster, &devices, &["myvol", "mirror", "stripe"]);
    cluster.tepal(&["volume", "rm", "myvol"]).succeeded();
    let spare = "drive z device /dev/da10h\n";
    apply(&cluster, &devices, &written(&cluster, "z.conf", spare)).succeeded();
    fill(&cluster, "mirror", 512 * MIB, 1);
    fill(&cluster, "stripe", 512 * MIB, 9);
    let refused = cluster.tepal(&["drive", "replace", "b", "a"]).refused(1);
    assert!(refused.contains("has a part of the volume already"), "{refused}");
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut client = cluster.connect("mirror");
            let mut rounds = 0u8;
            while !is_over.load(Ordering::Relaxed) {
                rounds = rounds % 200 + 1;
                client.write(100 * MIB, &vec![rounds; MIB as usize]).expect("it goes on");
            }
            rounds
        });
        cluster.tepal(&["drive", "replace", "b", "z"]).succeeded();
        program::until("drive z to have all", SETTLE, || {
            let drives = cluster.ask(&["drive", "ls"]);
            let b = drives.as_array()?.iter().find(|drive| drive["name"] == "b")?;
            (b["copies"] == 0).then_some(())
        });
        is_over.store(true, Ordering::Relaxed);
        let last = writer.join().expect("the writer goes on");
        cluster.tepal(&["drive", "rm", "b"]).succeeded();
        cluster.tepal(&["drive", "offline", "a"]).succeeded();
        let read = cluster.connect("mirror").read(100 * MIB, MIB as u32).expect("the other plex has it");
        assert!(read.iter().all(|byte| *byte == last));
    });
    assert!(has(&cluster, "mirror", 512 * MIB, 1));
    cluster.tepal(&["drive", "online", "a"]).succeeded();
    cluster.wait_until_healthy("stripe");
    assert!(has(&cluster, "stripe", 512 * MIB, 9));
    let shown = cluster.tepal(&["show", "--as", "vinum"]).succeeded();
    assert!(!shown.contains("drive b ") && shown.contains("sd name mirror.p1.s0 drive z"), "{shown}");
}

#[test]
fn plexes_are_attached_and_detached_by_name() {
    let (cluster, devices) = machine();
    applied(&cluster, &devices, &["myvol", "mirror"]);
    apply(&cluster, &devices, &written(&cluster, "z.conf", "drive z device /dev/da10h\n")).succeeded();
    fill(&cluster, "mirror", 512 * MIB, 1);
    let refused = cluster.tepal(&["plex", "attach", "mirror", "plex org concat", "sd length 9g drive z"]).refused(1);
    assert!(refused.contains("the plex, line 2") && refused.contains("no free piece"), "{refused}");
    cluster.tepal(&["plex", "attach", "mirror", "plex org concat", "sd length 512m drive z"]).succeeded();
    until_up(&cluster, "mirror.p2");
    cluster.wait_until_there("mirror");
    cluster.tepal(&["volume", "rm", "myvol"]).succeeded();
    cluster.tepal(&["plex", "detach", "mirror.p0"]).succeeded();
    cluster.tepal(&["plex", "detach", "mirror.p1"]).succeeded();
    assert!(has(&cluster, "mirror", 512 * MIB, 1));
    let only = cluster.tepal(&["plex", "detach", "mirror.p2"]).refused(1);
    assert!(only.contains("is the only one of its volume"), "{only}");
    for drive in ["a", "b"] {
        cluster.tepal(&["drive", "rm", drive]).succeeded();
    }
    assert!(has(&cluster, "mirror", 512 * MIB, 1), "the attached plex has all");
}

#[test]
fn a_picture_shows_who_lies_on_what_with_states() {
    let (cluster, devices) = machine();
    applied(&cluster, &devices, &["myvol", "mirror", "stripe"]);
    cluster.create("other", "64M", "mirror:2");
    cluster.tepal(&["drive", "offline", "b"]).succeeded();
    let drawn = cluster.tepal(&["show", "--picture"]).succeeded();
    for part in ["mirror.p1.s0", "on b, 512M, down", "stripe.p0", "striped 512K", "other", "mirror:2 on "] {
        assert!(drawn.contains(part), "{part} in\n{drawn}");
    }
    let file = cluster.folder().join("all.svg");
    cluster.tepal(&["show", &format!("--picture={}", file.display())]).succeeded();
    let svg = std::fs::read_to_string(&file).expect("it was written");
    assert!(svg.starts_with("<svg ") && svg.contains("<title>mirror.p1.s0: 512M on b, down</title>"), "{svg}");
    let refused = cluster.tepal(&["show", "--picture=/nowhere/all.svg"]).refused(1);
    assert!(refused.contains("nothing is drawn"), "{refused}");
}
