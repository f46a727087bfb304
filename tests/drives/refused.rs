//! What can't be a drive, or isn't the drive that it says it is: a clear error, and nothing is changed.

use crate::cluster::{Cluster, Media, Plan, make_drive, overwrite};
use crate::nbd::Ledger;
use crate::need;
use crate::program::{command, run, until};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

const SOON: Duration = Duration::from_secs(60);

/// What would show that something was done to a file.
fn beginning(path: &Path) -> Vec<u8> {
    first(path, 1 << 20)
}

/// Its first bytes and its length.
fn first(path: &Path, count: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    if path.is_file() {
        File::open(path).and_then(|file| file.take(count).read_to_end(&mut bytes)).expect("a file of ours");
        bytes.extend(path.metadata().expect("a file of ours").len().to_le_bytes());
    }
    bytes
}

/// A few megabytes written, on both copies.
fn cluster_with_data() -> (Cluster, Ledger) {
    let cluster = Plan { media: Media::Files, drives: 2, ..Plan::default() }.up();
    cluster.create("v0", "4M", "mirror:2");
    let mut ledger = Ledger::new(41, 1024);
    ledger.fill(&mut cluster.connect("v0")).expect("written");
    (cluster, ledger)
}

#[test]
fn what_can_not_be_a_drive_is_refused_by_name_and_left_as_it_was() {
    need!("mkfs.ext4", "mkfifo");
    let (cluster, mut ledger) = cluster_with_data();
    let path = |name: &str| cluster.folder().join(name);
    make_drive(&path("small"), 1 << 20);
    make_drive(&path("ext4"), 64 << 20);
    run(command("mkfs.ext4", ["-q", "-F"]).arg(path("ext4"))).succeeded();
    make_drive(&path("unknown"), 64 << 20);
    overwrite(&path("unknown"), (64 << 20) - 100, b"somebody's");
    make_drive(&path("partitions"), 64 << 20);
    overwrite(&path("partitions"), 510, b"\x55\xaa");
    std::fs::create_dir(path("folder")).expect("ours");
    run(command("mkfifo", [path("pipe")]).arg("-m600")).succeeded();
    std::fs::copy(cluster.drive(0), path("clone")).expect("space");
    std::fs::hard_link(cluster.drive(0), path("link")).expect("ours");
    std::os::unix::fs::symlink(cluster.drive(1), path("symlink")).expect("ours");
    let stranger = Plan { media: Media::Files, drives: 1, ..Plan::default() }.up();
    let in_use_elsewhere = stranger.drive(0).to_owned();
    std::fs::copy(&in_use_elsewhere, path("foreign")).expect("space");

    let view = cluster.ask(&["status"])["view"].clone();
    let drives = cluster.ask(&["drive", "ls"]);
    let cases: [(PathBuf, &str); 14] = [
        (path("nothing"), "no such file"),
        (path("small"), "at least"),
        (path("ext4"), "ext4"),
        (path("unknown"), "not known"),
        (path("partitions"), "partition"),
        (path("folder"), ""),
        (path("pipe"), ""),
        ("/dev/null".into(), ""),
        (path("clone"), "remove the copy"),
        (cluster.drive(0).to_owned(), "in use"),
        (path("link"), "in use"),
        (path("symlink"), "in use"),
        (path("foreign"), "another cluster"),
        (in_use_elsewhere, "in use"),
    ];
    let mut complaints = Vec::new();
    for (path, why) in cases {
        // Behind the label of a drive in use its server writes whenever it likes.
        let look = if why == "in use" { 4096 } else { 1 << 20 };
        let before = first(&path, look);
        let refused = cluster.tepal(&["drive", "add", "s1", path.to_str().expect("ours")]).refused(1);
        let name = path.file_name().and_then(|name| name.to_str()).expect("ours");
        if !refused.contains(why) || !refused.contains(name) {
            complaints.push(format!("{name} is {why}: {refused}"));
        }
        assert!(first(&path, look) == before, "{} was changed", path.display());
    }
    assert_eq!(complaints, Vec::<String>::new());
    assert_eq!(cluster.ask(&["status"])["view"], view);
    assert_eq!(cluster.ask(&["drive", "ls"])[0]["id"], drives[0]["id"]);
    assert_eq!(cluster.drives_say("state"), ["up", "up"]);
    ledger.compare(&mut cluster.connect("v0"));
}

/// Something done to a drive while its server is down.
struct Case {
    what: &'static str,
    done: fn(&Cluster, &Path),
    /// What the cluster says of it then.
    said: &'static str,
}

const CASES: [Case; 6] = [
    Case { what: "it's gone", done: |_, drive| std::fs::remove_file(drive).expect("ours"), said: "no such file" },
    Case {
        what: "it was cut short",
        done: |_, drive| {
            File::options().write(true).open(drive).and_then(|file| file.set_len(100 << 20)).expect("ours");
        },
        said: "",
    },
    Case {
        what: "another file is in its place",
        done: |_, drive| {
            std::fs::remove_file(drive).expect("ours");
            make_drive(drive, 256 << 20);
        },
        said: "it has no Tepal label",
    },
    Case {
        what: "an older image of it is in its place",
        done: |cluster, drive| {
            std::fs::rename(cluster.folder().join("image"), drive).expect("ours");
        },
        said: "older image",
    },
    Case {
        what: "its label is damaged",
        done: |_, drive| {
            let length = drive.metadata().expect("ours").len();
            overwrite(drive, 100, &[0xff; 64]);
            overwrite(drive, length - 4096 + 100, &[0xff; 64]);
        },
        said: "label",
    },
    Case {
        what: "it's a folder",
        done: |_, drive| {
            std::fs::remove_file(drive).expect("ours");
            std::fs::create_dir(drive).expect("ours");
        },
        said: "",
    },
];

#[test]
fn a_server_starts_without_a_drive_that_is_not_what_it_was_and_says_why() {
    let mut complaints = Vec::new();
    for Case { what, done, said } in CASES {
        let (mut cluster, mut ledger) = cluster_with_data();
        cluster.stop();
        let drive = cluster.drive(0).to_owned();
        std::fs::copy(&drive, cluster.folder().join("image")).expect("space");
        cluster.start();
        ledger.fill(&mut cluster.connect("v0")).expect("written");
        cluster.stop();
        done(&cluster, &drive);
        cluster.start();
        let status = cluster.ask(&["status"]);
        assert_eq!(status["health"], "degraded", "{what}: {status}");
        let reason = status["reason"].to_string();
        if !reason.contains(drive.to_str().expect("ours")) || !reason.contains(said) {
            complaints.push(format!("{what}: {reason}"));
        }
        let mut volume = cluster.connect("v0");
        ledger.compare(&mut volume);
        ledger.fill(&mut volume).expect("the other copy takes writes");
        ledger.compare(&mut volume);
    }
    assert_eq!(complaints, Vec::<String>::new());
}

/// Story: the wrong disk was put in the place of a pulled one, and the status went on to say that nothing was there.
#[test]
fn what_is_put_in_the_place_of_a_missing_drive_and_is_not_it_is_told_and_left_alone() {
    let (mut cluster, mut ledger) = cluster_with_data();
    let drive = cluster.drive(0).to_owned();
    std::fs::rename(&drive, drive.with_extension("aside")).expect("our own drive");
    cluster.wait_for_drive(&drive, "missing");
    std::fs::copy(cluster.drive(1), &drive).expect("space");
    let before = beginning(&drive);
    let told = |said: &str| {
        until(said, SOON, || cluster.ask(&["status"])["reason"].to_string().contains(said).then_some(()));
        let drives = cluster.ask(&["drive", "ls"]);
        let row = drives.as_array().expect("a list").iter().find(|row| row["path"].as_str() == drive.to_str());
        let row = row.expect("it is on record");
        assert!(row["state"] == "missing" && row["reason"].to_string().contains(said), "{row}");
    };
    told("remove the copy");
    assert!(beginning(&drive) == before, "it was changed");
    std::fs::remove_file(&drive).and_then(|()| std::fs::create_dir(&drive)).expect("our own copy");
    told("is a directory");
    std::fs::remove_dir(&drive).expect("our own folder");
    std::fs::rename(drive.with_extension("aside"), &drive).expect("our own drive");
    cluster.wait_for_drive(&drive, "up");
    cluster.wait_until_healthy("v0");
    ledger.compare(&mut cluster.connect("v0"));
    cluster.stop_and_check_drives();
}

fn batch_on_record(cluster: &Cluster, drive: &str) -> u64 {
    let text = std::fs::read(cluster.data().join("batches.json")).expect("a file of the server");
    let batches: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
    batches[drive].as_u64().expect("it was used")
}

/// Story: a copy of a drive was made while it was in use, and put in its place after the server had stopped. Its label was the
/// newest, so it was believed: reads went back in time, and a scrub found all in order.
#[test]
fn a_copy_made_of_a_drive_in_use_is_not_taken_for_it_later() {
    for killed in [true, false] {
        let (mut cluster, mut ledger) = cluster_with_data();
        let (drive, image) = (cluster.drive(0).to_owned(), cluster.folder().join("image"));
        let id = cluster.drive_id(&drive);
        // Then it's known exactly how far the drives are.
        cluster.stop();
        let before = batch_on_record(&cluster, &id);
        cluster.start();
        std::fs::copy(&drive, &image).expect("space");
        ledger.fill(&mut cluster.connect("v0")).expect("written");
        if killed {
            until("how far the drives are to be written down", SOON, || {
                ledger.fill(&mut cluster.connect("v0")).expect("written");
                (batch_on_record(&cluster, &id) > before + 50).then_some(())
            });
            cluster.kill();
        } else {
            cluster.stop();
        }
        std::fs::rename(&drive, drive.with_extension("aside")).expect("our own drive");
        std::fs::rename(&image, &drive).expect("our own image");
        let put = beginning(&drive);
        cluster.start();
        let reason = cluster.ask(&["status"])["reason"].to_string();
        assert!(reason.contains("older image"), "{reason}");
        ledger.compare(&mut cluster.connect("v0"));
        assert!(beginning(&drive) == put, "what is refused isn't written to");
        std::fs::rename(drive.with_extension("aside"), &drive).expect("our own drive");
        cluster.wait_for_drive(&drive, "up");
        cluster.wait_until_healthy("v0");
        ledger.compare(&mut cluster.connect("v0"));
        cluster.scrub_finds_nothing("v0");
        cluster.stop_and_check_drives();
    }
}

#[test]
fn two_drives_that_say_they_are_the_same_are_both_refused() {
    let (mut cluster, mut ledger) = cluster_with_data();
    cluster.stop();
    let twin = cluster.folder().join("twin");
    std::fs::copy(cluster.drive(0), &twin).expect("space");
    cluster.plan().arguments = vec!["--drive".to_owned(), twin.display().to_string()];
    cluster.start();
    let reason = cluster.ask(&["status"])["reason"].to_string();
    for path in [cluster.drive(0), &twin] {
        assert!(reason.contains(path.to_str().expect("ours")), "{reason}");
    }
    ledger.compare(&mut cluster.connect("v0"));
    std::fs::remove_file(&twin).expect("ours");
    let drive = cluster.drive(0).to_owned();
    cluster.wait_for_drive(&drive, "up");
    cluster.wait_until_healthy("v0");
    ledger.compare(&mut cluster.connect("v0"));
    cluster.scrub_finds_nothing("v0");
    cluster.stop_and_check_drives();
}
