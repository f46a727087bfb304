//! Drives that are made on the spot, and drives that are made empty again.

use crate::cluster::{Cluster, Plan, make_drive, overwrite, tepal};
use crate::nbd::Ledger;
use crate::program::{Ended, run};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

fn add(cluster: &Cluster, path: &Path, more: &[&str]) -> Ended {
    run(cluster.command().args(["drive", "add", "s1"]).arg(path).args(more))
}

fn wipe(path: &Path, more: &[&str]) -> Ended {
    run(Command::new(tepal()).args(["drive", "wipe"]).arg(path).args(more))
}

#[test]
fn a_drive_is_made_where_nothing_is_yet_and_nothing_is_left_of_one_that_is_refused() {
    let cluster = Plan { drives: 2, ..Plan::default() }.up();
    let [new, other] = ["new", "other"].map(|name| cluster.folder().join(name));
    add(&cluster, &new, &["--create", "64M"]).succeeded();
    let made = new.metadata().expect("made");
    assert_eq!((made.len(), made.permissions().mode() & 0o777), (64 << 20, 0o600));
    cluster.wait_for_drive(&new, "up");
    make_drive(&other, 0);
    let taken = add(&cluster, &other, &["--create", "64M"]).refused(1);
    assert!(taken.contains("exists already") && taken.contains("other"), "{taken}");
    assert_eq!(other.metadata().expect("there").len(), 0);
    for (path, more, why) in [
        (&new, &["--create", "64M"][..], "in use"),
        (&cluster.folder().join("a"), &["--create", "7E"], "no room"),
        (&cluster.folder().join("a"), &["--create", "64M", "--pool", "nowhere"], "nowhere"),
        (&cluster.folder().join("nowhere/a"), &["--create", "64M"], "folder"),
    ] {
        let refused = add(&cluster, path, more).refused(1);
        assert!(refused.contains(why), "{more:?}: {refused}");
    }
    for size in ["-1", "0", "1M", "8388609", "99E", "x", ""] {
        add(&cluster, &cluster.folder().join("a"), &["--create", size]).refused(2);
    }
    assert!(!cluster.folder().join("a").exists());
    assert_eq!(cluster.drives_say("state"), ["up"; 3]);
}

#[test]
fn a_drive_that_is_not_needed_any_more_is_wiped_by_who_knows_its_id_and_can_be_added_again() {
    let mut old = Plan { drives: 2, ..Plan::default() }.up();
    old.create("v0", "4M", "mirror:2");
    let mut ledger = Ledger::new(34, 1024);
    ledger.fill(&mut old.connect("v0")).expect("written");
    let drive = old.drive(0).to_owned();
    let [id, other] = [0, 1].map(|number| old.drive_id(old.drive(number)));
    let in_use = wipe(&drive, &["--drive", &id]).refused(1);
    assert!(in_use.contains("in use"), "{in_use}");
    old.stop();

    let new = Plan { drives: 2, ..Plan::default() }.up();
    let foreign = add(&new, &drive, &["--force"]).refused(1);
    assert!(foreign.contains("another cluster") && foreign.contains("tepal drive wipe"), "{foreign}");
    let unnamed = wipe(&drive, &[]).refused(1);
    assert!(unnamed.contains(&format!("--drive {id}")), "{unnamed}");
    for wrong in [&["--drive", &other][..], &["--drive", &other, "--force"]] {
        let refused = wipe(&drive, wrong).refused(1);
        assert!(refused.contains(&id) && refused.contains(&other), "{refused}");
    }
    wipe(&drive, &["--drive", "xyz"]).refused(2);
    run(Command::new(tepal()).args(["drive", "check"]).arg(&drive)).succeeded(); // nothing was changed by all that
    wipe(&drive, &["--drive", &id]).succeeded();
    let blank = wipe(&drive, &["--drive", &id]).refused(1);
    assert!(blank.contains("no Tepal label"), "{blank}");
    add(&new, &drive, &[]).succeeded();
    new.wait_for_drive(&drive, "up");

    // The other copy still has everything.
    old.start();
    ledger.compare(&mut old.connect("v0"));
}

#[test]
fn what_is_no_drive_is_not_wiped_and_what_was_one_only_by_force() {
    let cluster = Plan { drives: 1, ..Plan::default() }.made();
    let other = cluster.folder().join("other");
    std::fs::write(&other, [7; 100_000]).expect("space");
    for more in [&[][..], &["--force"]] {
        wipe(&other, more).refused(1);
        wipe(cluster.folder(), more).refused(1);
        wipe(&cluster.folder().join("nowhere"), more).refused(1);
    }
    assert!(std::fs::read(&other).expect("ours") == [7; 100_000]);

    let mut cluster = cluster;
    cluster.start();
    let drive = cluster.drive(0).to_owned();
    let id = cluster.drive_id(&drive);
    cluster.stop();
    let length = drive.metadata().expect("ours").len();
    overwrite(&drive, 100, &[0xff; 64]);
    overwrite(&drive, length - 4096 + 100, &[0xff; 64]);
    let damaged = wipe(&drive, &["--drive", &id]).refused(1);
    assert!(damaged.contains("--force"), "{damaged}");
    wipe(&drive, &["--force"]).succeeded();
    let blank = wipe(&drive, &["--force"]).refused(1);
    assert!(blank.contains("no Tepal label"), "{blank}");
}
