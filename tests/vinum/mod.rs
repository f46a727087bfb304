//! The configurations of the Vinum paper (Lehey, FREENIX 1999), as its text has them in the `.conf` files here, given to `tepal apply`
//! one after the other.

mod states;

use crate::cluster::{Cluster, Media, Plan};
use crate::nbd::noise;
use crate::program;
use std::path::PathBuf;

/// Bytes of each drive: room for all volumes of the paper.
const DRIVE: u64 = 2 << 30;

/// A server, and a folder with a blank file for each device of the paper.
fn machine() -> (Cluster, PathBuf) {
    let cluster = Plan { drives: 1, media: Media::Memory, ..Plan::default() }.up();
    let devices = cluster.folder().join("dev");
    std::fs::create_dir(&devices).expect("a folder of our own");
    for number in 3..=10 {
        let file = std::fs::File::create(devices.join(format!("da{number}h"))).expect("a file of our own");
        file.set_len(DRIVE).expect("sparse");
    }
    (cluster, devices)
}

fn paper(name: &str) -> String {
    format!("{}/vinum/{name}.conf", env!("CARGO_MANIFEST_DIR"))
}

fn apply(cluster: &Cluster, devices: &std::path::Path, file: &str) -> program::Ended {
    cluster.tepal(&["apply", file, "--devices", devices.to_str().expect("ours")])
}

/// A file of our own.
fn written(cluster: &Cluster, name: &str, text: &str) -> String {
    let path = cluster.folder().join(name);
    std::fs::write(&path, text).expect("space");
    path.to_str().expect("ours").to_owned()
}

/// Each volume's first bytes and its last, which every subdisk has some of.
fn fill(cluster: &Cluster, volume: &str, size: u64, seed: u64) {
    let mut client = cluster.connect(volume);
    for (at, seed) in [(0, seed), (size - SPAN, seed + 1)] {
        client.write(at, &noise(seed, SPAN as usize)).expect("written");
    }
    client.flush().expect("stable");
}

fn has(cluster: &Cluster, volume: &str, size: u64, seed: u64) -> bool {
    let mut client = cluster.connect(volume);
    let mut reads = |at, seed| client.read(at, SPAN as u32).expect("there") == noise(seed, SPAN as usize);
    reads(0, seed) && reads(size - SPAN, seed + 1)
}

const SPAN: u64 = 8 << 20;
const MIB: u64 = 1 << 20;

/// `raid5.conf` has drive e on the device that `stripe.conf` gave to drive d.
#[test]
fn every_configuration_of_the_paper_makes_its_volume() {
    let (mut cluster, devices) = machine();
    let others = "drive f device /dev/da8h\ndrive g device /dev/da9h\ndrive h device /dev/da10h\n";
    let others = written(&cluster, "others.conf", others);
    for name in ["myvol", "mirror", "stripe"] {
        apply(&cluster, &devices, &paper(name)).succeeded();
    }
    apply(&cluster, &devices, &others).succeeded();
    let refused = apply(&cluster, &devices, &paper("raid5")).refused(1);
    assert!(refused.contains("raid5.conf, line 1, column 1") && refused.contains("drive d's already"), "{refused}");
    let raid5 = std::fs::read_to_string(paper("raid5")).expect("in the tree").replace("da6h", "da7h");
    let raid5 = written(&cluster, "raid5.conf", &raid5);
    apply(&cluster, &devices, &raid5).succeeded();
    for (name, file, size) in [
        ("ten", "raid10", 600 * MIB),
        ("apart", "raid10-one-disk-per-subdisk", 500 * MIB),
        ("same", "raid10-same-disks", 400 * MIB),
    ] {
        // The paper calls all three the same.
        let text = std::fs::read_to_string(paper(file))
            .expect("in the tree")
            .replace("volume raid10", &format!("volume {name}"));
        apply(&cluster, &devices, &written(&cluster, name, &text)).succeeded();
        assert_eq!(cluster.volume(name)["size"], size, "{name}");
    }
    let all = [
        ("myvol", 512 * MIB),
        ("mirror", 512 * MIB),
        ("stripe", 512 * MIB),
        ("raid5", 512 * MIB),
        ("ten", 600 * MIB),
        ("apart", 500 * MIB),
        ("same", 400 * MIB),
    ];
    for ((volume, size), seed) in all.iter().zip((10..).step_by(2)) {
        assert_eq!(cluster.volume(volume)["size"], *size, "{volume}");
        fill(&cluster, volume, *size, seed);
    }
    // Any drive may be lost by those whose every byte two drives have.
    cluster.tepal(&["drive", "offline", "b"]).succeeded();
    for ((volume, size), seed) in all.iter().zip((10..).step_by(2)) {
        if ["mirror", "raid5", "same"].contains(volume) {
            assert!(has(&cluster, volume, *size, seed), "{volume} without b");
        }
    }
    cluster.tepal(&["drive", "online", "b"]).succeeded();
    cluster.kill();
    cluster.start();
    for ((volume, size), seed) in all.iter().zip((10..).step_by(2)) {
        cluster.wait_until_healthy(volume);
        assert!(has(&cluster, volume, *size, seed), "{volume} after a restart");
        cluster.scrub_finds_nothing(volume);
    }
}

#[test]
fn what_is_shown_and_applied_on_blank_drives_is_shown_again() {
    let (cluster, devices) = machine();
    for name in ["myvol", "mirror", "stripe"] {
        apply(&cluster, &devices, &paper(name)).succeeded();
    }
    cluster.create("other", "64M", "mirror:2");
    for (form, name) in [("vinum", "all.conf"), ("toml", "all.toml")] {
        let shown = cluster.tepal(&["show", "--as", form]).succeeded();
        let file = written(&cluster, name, &shown);
        assert!(cluster.tepal(&["apply", &file]).succeeded().contains("nothing to change"), "{shown}");
        let (fresh, blank) = machine();
        // The other server's own drive isn't this one's.
        let own = cluster.drive(0).to_str().expect("ours").to_owned();
        let text = shown.replace(devices.to_str().expect("ours"), blank.to_str().expect("ours"));
        let text = text.replace(&own, fresh.drive(0).to_str().expect("ours"));
        fresh.tepal(&["apply", &written(&fresh, name, &text)]).succeeded();
        let again = fresh.tepal(&["show", "--as", form]).succeeded();
        let lines = |text: &str| {
            let mut lines: Vec<String> =
                text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect();
            lines.sort(); // drives are listed by their ids
            lines
        };
        assert_eq!(lines(&again), lines(&text), "as {form}");
    }
}

#[test]
fn a_file_that_is_refused_changes_nothing() {
    let (cluster, devices) = machine();
    let before = cluster.tepal(&["show", "--as", "toml"]).succeeded();
    for (text, said) in [
        ("drive a device /dev/da3h\nvolume v\nplex org concat\nsd length 9g drive a\n", "no free piece of 9G"),
        ("drive a device /dev/da3h\nvolume v\nplex org concat\nsd length 1m drive z\n", "there is no drive z"),
        ("drive a device /dev/nothing\nvolume v\nplex org concat\nsd length 1m drive a\n", "nothing"),
        ("drive a device /dev/da3h\nvolume v\nplex org striped 64k\n", "line 3, column 1: this plex has no subdisk"),
    ] {
        let refused = apply(&cluster, &devices, &written(&cluster, "wrong.conf", text)).refused(1);
        assert!(refused.contains(said), "{refused}");
        assert_eq!(cluster.tepal(&["show", "--as", "toml"]).succeeded(), before, "{text}");
    }
    let file = written(&cluster, "right.conf", "drive a device /dev/da3h\nvolume v\nplex org concat\nsd drive a\n");
    let said = cluster.tepal(&["apply", &file, "--dry-run", "--devices", devices.to_str().expect("ours")]).succeeded();
    assert!(said.contains("+ drive a") && said.contains("nothing is changed"), "{said}");
    assert_eq!(cluster.tepal(&["show", "--as", "toml"]).succeeded(), before);
}

/// A plex is attached, the volume grows, goes to a computed layout and comes back: all while it's used.
#[test]
fn a_volume_of_plexes_changes_shape_in_use() {
    let (cluster, devices) = machine();
    let drives = "drive a device /dev/da3h\ndrive b device /dev/da4h\ndrive c device /dev/da5h\n";
    let first = "volume v\nplex org concat\nsd length 64m drive a\n";
    apply(&cluster, &devices, &written(&cluster, "1.conf", &format!("{drives}{first}"))).succeeded();
    fill(&cluster, "v", 64 * MIB, 1);
    let second = format!("{first}plex org striped 64k\nsd length 32m drive b\nsd length 32m drive c\n");
    apply(&cluster, &devices, &written(&cluster, "2.conf", &second)).succeeded();
    let layout = cluster.wait_until_there("v");
    assert!(layout.contains("|striped/64K("), "{layout}");
    cluster.tepal(&["drive", "offline", "a"]).succeeded();
    assert!(has(&cluster, "v", 64 * MIB, 1), "as the plex that was attached has it");
    cluster.tepal(&["drive", "online", "a"]).succeeded();
    cluster.wait_until_healthy("v");
    cluster.tepal(&["volume", "relayout", "v", "--layout", "mirror:2"]).succeeded();
    assert!(has(&cluster, "v", 64 * MIB, 1), "as mirror:2");
    let third = second.replace("drive a\n", "drive a\nsd length 16m drive b\n");
    apply(&cluster, &devices, &written(&cluster, "3.conf", &third)).succeeded();
    cluster.wait_until_there("v");
    assert_eq!(cluster.volume("v")["size"], 80 * MIB);
    assert!(has(&cluster, "v", 64 * MIB, 1), "as plexes again");
    cluster.scrub_finds_nothing("v");
}
