//! Drives that are added to and removed from a cluster that runs, and the pools that they are in.

use crate::cluster::{Media, Plan, make_drive};
use crate::nbd::{Ledger, Writer, noise};
use crate::program::{self, until};
use serde_json::json;
use std::process::Stdio;
use std::time::Duration;

const SOON: Duration = Duration::from_secs(120);

#[test]
fn drives_and_pools_come_and_go_while_a_writer_goes_on() {
    let mut cluster = Plan { media: Media::Files, drives: 2, ..Plan::default() }.up();
    cluster.create("v0", "8M", "mirror:2");
    let writer = Writer::start(cluster.address(), "v0", Ledger::new(31, 2048));
    let new = [0, 1, 2].map(|number| cluster.folder().join(format!("new{number}")));
    new.iter().for_each(|path| make_drive(path, 128 << 20));
    let text = new.clone().map(|path| path.to_str().expect("a path of ours").to_owned());

    let capacity = || cluster.ask(&["status"])["capacity"].as_u64().expect("a number");
    let before = capacity();
    cluster.tepal(&["drive", "add", "s1", &text[0]]).succeeded();
    assert!(capacity() > before);
    cluster.tepal(&["pool", "create", "fast", "--layout", "mirror:2"]).succeeded();
    cluster.tepal(&["drive", "add", "s1", &text[1], "--pool", "fast"]).succeeded();
    cluster.tepal(&["drive", "add", "s1", &text[2], "--pool", "fast"]).succeeded();
    let pools = cluster.ask(&["pool", "ls"]);
    let names: Vec<_> = pools.as_array().expect("a list").iter().map(|pool| pool["name"].clone()).collect();
    assert_eq!(names, ["default", "fast"]);

    // The pool's policy is the layout of a volume that is made without one, and its drives are the volume's.
    cluster.tepal(&["volume", "create", "v1", "--size", "8M", "--pool", "fast"]).succeeded();
    let volume = cluster.volume("v1");
    assert_eq!((&volume["layout"], &volume["pool"]), (&json!("mirror:2"), &json!("fast")));
    let mut on = [1, 2].map(|number| cluster.drive_id(&new[number]));
    on.sort();
    let mut drives = volume["drives"].as_array().expect("a list").clone();
    drives.sort_by_key(ToString::to_string);
    assert_eq!(json!(drives), json!(on));
    let mut ledger = Ledger::new(32, 2048);
    ledger.fill(&mut cluster.connect("v1")).expect("written");

    let in_use = cluster.tepal(&["pool", "rm", "fast"]).refused(1);
    assert!(in_use.contains("fast"), "{in_use}");
    // The other copy is good, so one may go; and the last one may not.
    cluster.tepal(&["drive", "rm", &on[0]]).succeeded();
    cluster.tepal(&["drive", "rm", &on[1]]).refused(1);
    ledger.compare(&mut cluster.connect("v1"));
    cluster.scrub_finds_nothing("v1");
    cluster.tepal(&["volume", "rm", "v1"]).succeeded();
    cluster.tepal(&["drive", "rm", &on[1]]).succeeded();
    // The first had been kept in mind for the volume.
    until("nobody to know them", Duration::from_secs(20), || (cluster.drives_say("state").len() == 3).then_some(()));
    cluster.tepal(&["pool", "rm", "fast"]).succeeded();
    // One that was removed may come again; it is no longer blank.
    cluster.tepal(&["drive", "add", "s1", &text[2], "--force"]).succeeded();

    writer.go_on_for(500);
    writer.finish().compare(&mut cluster.connect("v0"));
    cluster.stop();
    cluster.start();
    assert_eq!(cluster.drives_say("state"), ["up"; 4]);
    cluster.scrub_finds_nothing("v0");
    cluster.stop_and_check_drives();
}

#[test]
fn the_last_good_copy_is_not_removed_without_force() {
    let cluster = Plan { drives: 2, ..Plan::default() }.up();
    cluster.create("v0", "8M", "mirror:2");
    let mut ledger = Ledger::new(33, 2048);
    ledger.fill(&mut cluster.connect("v0")).expect("written");
    let drives = [0, 1].map(|number| cluster.drive_id(cluster.drive(number)));
    cluster.tepal(&["drive", "offline", &drives[0]]).succeeded();
    let refused = cluster.tepal(&["drive", "rm", &drives[1]]).refused(1);
    assert!(refused.contains("v0") && refused.contains("--force"), "{refused}");
    ledger.compare(&mut cluster.connect("v0"));
    cluster.tepal(&["drive", "online", &drives[0]]).succeeded();
    cluster.wait_until_healthy("v0");
    ledger.compare(&mut cluster.connect("v0"));
    cluster.scrub_finds_nothing("v0");
}

#[test]
fn a_drive_is_not_removed_while_one_that_is_back_still_misses_what_it_has() {
    let slow = "read=10ms,write=10ms,flush=5ms,bandwidth=8M";
    let cluster = Plan { drives: 2, emulate: Some(slow), ..Plan::default() }.up();
    cluster.create("v0", "32M", "mirror:2");
    let drives = [0, 1].map(|number| cluster.drive_id(cluster.drive(number)));
    let mut ledger = Ledger::new(34, 8192);
    cluster.tepal(&["drive", "offline", &drives[0]]).succeeded();
    ledger.fill(&mut cluster.connect("v0")).expect("written");
    cluster.tepal(&["drive", "online", &drives[0]]).succeeded();
    cluster.wait_for_drive(cluster.drive(0), "up");
    let refused = cluster.tepal(&["drive", "rm", &drives[1]]).refused(1);
    assert!(refused.contains("v0") && refused.contains("--force"), "{refused}");
    assert_eq!(cluster.volume("v0")["state"], "recovering", "else this tested nothing");
    cluster.wait_until_healthy("v0");
    cluster.tepal(&["drive", "rm", &drives[1]]).succeeded();
    ledger.compare(&mut cluster.connect("v0"));
}

/// Story: `drive drain ID && drive rm ID` took a drive out that wasn't empty, when the waiting was ended by Ctrl-C.
#[test]
fn a_drain_that_is_not_waited_for_any_more_is_no_success_and_goes_on() {
    let slow = "read=5ms,write=5ms,flush=5ms,bandwidth=16M";
    let cluster = Plan { drives: 3, emulate: Some(slow), ..Plan::default() }.up();
    cluster.create("v0", "16M", "stripe");
    cluster.connect("v0").write(0, &noise(1, 16 << 20)).expect("written");
    let id = cluster.drive_id(cluster.drive(0));
    let mut command = cluster.command();
    command.args(["drive", "drain", &id]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = program::spawn(&mut command);
    until("it to begin", SOON, || (cluster.ask(&["status"])["moving"] != json!(0)).then_some(()));
    program::signal_group(&child, libc::SIGINT);
    let status = program::wait(&mut child, SOON).expect("it ends");
    let said = std::io::read_to_string(child.stderr.take().expect("piped")).expect("text");
    assert!(status.code() == Some(1) && said.contains("in the background"), "{status}: {said}");
    let copies = || {
        cluster.ask(&["drive", "ls"]).as_array().and_then(|all| {
            all.iter().find(|drive| drive["id"] == json!(id)).and_then(|drive| drive["copies"].as_u64())
        })
    };
    until("the drive to be empty", SOON, || (copies() == Some(0)).then_some(()));
}
