//! What snapshots keep, and how it comes back.

use crate::cluster::Plan;
use crate::metrics::metrics;
use crate::nbd::noise;
use crate::program;
use crate::rot;
use crate::servers::gateway;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::Duration;

const MIB: u64 = 1 << 20;
const COPIES: u64 = 2;
const SOON: Duration = Duration::from_secs(60);

fn uniques(listed: &Value) -> Vec<u64> {
    listed.as_array().expect("a list").iter().map(|snapshot| snapshot["unique"].as_u64().expect("bytes")).collect()
}

#[test]
fn what_a_snapshot_alone_keeps_is_listed_and_comes_back_when_it_is_removed() {
    let mut cluster = Plan::default().up();
    cluster.create("v", "16M", "mirror:2");
    let mut volume = cluster.connect("v");
    volume.write(0, &noise(1, 8 * MIB as usize)).expect("written");
    cluster.tepal(&["snapshot", "create", "v@a"]).succeeded();
    volume.write(0, &noise(2, 6 * MIB as usize)).expect("written");
    cluster.tepal(&["snapshot", "create", "v@b"]).succeeded();
    volume.write(0, &noise(3, 4 * MIB as usize)).expect("written");
    // Of what is trimmed, only one MiB isn't what the other snapshot sees too.
    volume.trim(5 * MIB, 2 << 20).expect("trimmed");
    volume.flush().expect("flushed");

    let listed = cluster.ask(&["snapshot", "ls", "v"]);
    assert_eq!(uniques(&listed), [6 * COPIES * MIB, 5 * COPIES * MIB], "{listed}");
    assert_eq!(listed[0]["uncounted_drives"], json!([]));
    let table = cluster.tepal(&["snapshot", "ls"]).succeeded();
    assert!(table.contains("UNIQUE") && table.contains("12M") && !table.contains('+'), "{table}");
    assert_eq!(cluster.ask(&["snapshot", "show", "v@b"])["unique"], 5 * COPIES * MIB);

    let before = cluster.used();
    let removed = cluster.ask(&["snapshot", "rm", "v@b", "--wait"]);
    assert_eq!((&removed["reclaiming"], &removed["uncounted_drives"]), (&json!(0), &json!([])), "{removed}");
    assert_eq!(before - cluster.used(), 5 * COPIES * MIB, "all is there when the command ends");
    // What lies between both of them now only the one that is left keeps, with what was trimmed.
    assert_eq!(uniques(&cluster.ask(&["snapshot", "ls", "v"])), [8 * COPIES * MIB - COPIES * MIB]);
    let said = cluster.tepal(&["snapshot", "rm", "v@a", "--wait"]).succeeded();
    assert!(said.contains("14M are free again"), "{said}");
    let status = cluster.ask(&["status"]);
    assert_eq!((&status["reclaiming"], &status["used"]), (&json!(0), &json!(6 * COPIES * MIB)), "{status}");
    drop(volume);
    cluster.scrub_finds_nothing("v");
    cluster.stop_and_check_drives();
}

/// Story: a command that came after it in a line of commands found the space taken.
#[test]
fn ctrl_c_while_space_is_waited_for_is_an_error() {
    let slow = "read=10ms,iops=50,bandwidth=1M";
    let cluster = Plan { drives: 2, emulate: Some(slow), ..Plan::default() }.up();
    cluster.create("v", "4M", "mirror:2");
    let mut volume = cluster.connect("v");
    volume.write(0, &noise(1, MIB as usize)).expect("written");
    cluster.tepal(&["snapshot", "create", "v@a"]).succeeded();
    volume.write(0, &noise(2, MIB as usize)).expect("written");
    let mut command = cluster.command();
    command.args(["snapshot", "rm", "v@a", "--wait"]);
    let mut child = program::spawn(command.stdout(Stdio::null()).stderr(Stdio::piped()));
    let (mut line, mut printed) = (String::new(), BufReader::new(child.stderr.take().expect("piped")));
    assert!(printed.read_line(&mut line).expect("text") > 0 && line.contains("freeing"), "{line}");
    program::signal_group(&child, libc::SIGINT);
    assert_eq!(program::wait(&mut child, SOON).and_then(|status| status.code()), Some(1));
    let said = std::io::read_to_string(printed).expect("text");
    assert!(said.contains("snapshot v@a is removed") && said.contains("in the background"), "{said}");
}

/// A block that can't be read stays where it is until it's repaired.
#[test]
fn what_is_still_to_be_freed_is_shown_everywhere_until_it_is() {
    let mut cluster = Plan { drives: 2, ..Plan::default() }.up();
    cluster.create("v", "16M", "mirror:2");
    let mut volume = cluster.connect("v");
    rot::fill(&mut volume, 64);
    cluster.tepal(&["snapshot", "create", "v@a"]).succeeded();
    volume.write(0, &noise(1000, 4096)).expect("written");
    volume.flush().expect("flushed");
    drop(volume);
    cluster.stop();
    let place = rot::places(cluster.drive(0), &[7])[0].expect("it's there");
    rot::rot(cluster.drive(0), place);
    cluster.start();

    let said = cluster.tepal(&["snapshot", "rm", "v@a", "--wait"]).succeeded();
    assert!(said.contains("64K stay") && said.contains("tepal volume scrub v"), "{said}");
    let volume = cluster.volume("v");
    assert_eq!((&volume["reclaiming"], &volume["uncounted_drives"]), (&json!(64 << 10), &json!([])), "{volume}");
    assert!(cluster.tepal(&["volume", "show", "v"]).succeeded().contains("64K of that, which nobody sees any more"));
    assert_eq!(cluster.ask(&["status"])["reclaiming"], 64 << 10);
    assert!(cluster.tepal(&["status"]).succeeded().contains("64K being freed"));
    for metric in ["tepal_volume_reclaiming_bytes", "tepal_drive_reclaiming_bytes"] {
        let seen: f64 = metrics(&cluster, metric).iter().map(|(_, value)| value).sum();
        assert_eq!(seen, f64::from(64 << 10), "{metric}");
    }

    let scrub = cluster.ask(&["volume", "scrub", "v"]);
    assert_eq!(scrub["repaired_blocks"], 1, "{scrub}");
    let is_free = || (cluster.ask(&["status"])["reclaiming"] == 0).then_some(());
    program::until("what was repaired to be joined", SOON, is_free);
    assert_eq!(cluster.used(), COPIES * 64 * 4096);
    cluster.stop_and_check_drives();
}

#[test]
fn drives_that_are_away_are_named_where_they_were_not_counted_and_free_theirs_when_they_are_back() {
    let ring = gateway::up(3, "8M");
    let mut volume = ring.connect(1, "v");
    volume.write(0, &noise(1, 8 * MIB as usize)).expect("written");
    for name in ["v@a", "v@b"] {
        ring.ask(2, &["snapshot", "create", name]).succeeded();
        volume.write(0, &noise(2, 8 * MIB as usize)).expect("written");
    }
    drop(volume);
    let copies = ring.json(1, &["volume", "show", "v"])["allocated"].as_u64().expect("bytes") / (3 * 8 * MIB);
    let whole = vec![8 * copies * MIB; 2];
    assert_eq!(uniques(&ring.json(2, &["snapshot", "ls", "v"])), whole);

    let drives = ring.json(1, &["drive", "ls"]);
    let is_of = |drive: &&Value| drive["server"] == "s3";
    let mut away: Vec<&str> =
        drives.as_array().expect("a list").iter().filter(is_of).filter_map(|drive| drive["id"].as_str()).collect();
    away.sort_unstable();
    let are_those_away = |listed: &Value| {
        let mut listed: Vec<&str> = listed.as_array().expect("a list").iter().filter_map(Value::as_str).collect();
        listed.sort_unstable();
        listed == away
    };
    ring.kill(3);
    ring.wait_for_state(1, 3, "down");
    let listed = ring.json(1, &["snapshot", "ls", "v"]);
    assert!(uniques(&listed).iter().zip(&whole).all(|(here, whole)| here < whole), "{listed}");
    assert!(are_those_away(&listed[0]["uncounted_drives"]), "{listed}");
    let table = ring.ask(1, &["snapshot", "ls"]).succeeded();
    assert!(table.contains("+ and what these drives hold, which are away: "), "{table}");
    assert!(are_those_away(&ring.json(2, &["volume", "show", "v"])["uncounted_drives"]));

    let said = ring.ask(1, &["snapshot", "rm", "v@a", "--wait"]).succeeded();
    assert!(said.contains("is freed when they are back") && said.contains(away[0]), "{said}");
    assert_eq!(ring.json(1, &["volume", "show", "v"])["reclaiming"], 0);
    ring.start(&[3]);
    ring.wait_until_drives_are_up(3);
    ring.wait_until_healthy(1, "v");
    ring.wait_until("what it held to be freed", || {
        let volume = ring.json(1, &["volume", "show", "v"]);
        volume["reclaiming"] == 0 && volume["allocated"] == 2 * 8 * copies * MIB
    });
    let listed = ring.json(1, &["snapshot", "ls", "v"]);
    assert_eq!((uniques(&listed), &listed[0]["uncounted_drives"]), (vec![8 * copies * MIB], &json!([])), "{listed}");
}
