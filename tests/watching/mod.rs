//! What people see who watch a cluster: `tepal doctor`, `events` and `top`.

mod slow;

use crate::cluster::{Cluster, Plan};
use crate::nbd::{BLOCK, Nbd, noise};
use crate::program::{self, until};
use crate::servers::ring::Ring;
use serde_json::Value;
use std::io::Read;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const SOON: Duration = Duration::from_secs(60);

/// What doctor says as JSON, and its exit status.
fn doctor(ring: &Ring) -> (Value, Option<i32>) {
    let said = ring.dev_client(&["doctor", "-o", "json"]);
    let report = serde_json::from_slice(&said.stdout).unwrap_or_else(|error| panic!("{error}: {said}"));
    (report, said.status.code())
}

fn findings(report: &Value) -> Vec<Value> {
    report["findings"].as_array().expect("a list").clone()
}

fn about<'a>(findings: &'a [Value], subject: &str) -> &'a Value {
    findings.iter().find(|finding| finding["subject"] == subject).unwrap_or_else(|| panic!("{subject}: {findings:#?}"))
}

#[test]
fn doctor_names_killed_servers_with_the_way_back() {
    let ring = Ring::up(3);
    ring.dev_client(&["volume", "create", "v0", "--size", "16M", "--layout", "mirror:2"]).succeeded();
    ring.connect(1, "v0").write(0, &noise(1, 1 << 20)).expect("written");
    let said = ring.dev_client(&["doctor"]).succeeded();
    assert!(
        said.contains("nothing is wrong") && said.contains("looked at: 3 servers, 3 drives, 1 pool, 1 volume"),
        "{said}"
    );

    ring.kill(3);
    ring.wait_for_state(1, 3, "down");
    let (report, status) = doctor(&ring);
    let all = findings(&report);
    assert_eq!((status, &report["healthy"]), (Some(1), &Value::Bool(false)));
    let server = about(&all, "server s3");
    let what = server["what"].as_str().expect("text");
    assert!(what.contains("server s3 is down since ") && what.contains("1 volume lacks a copy by it: v0"), "{what}");
    assert!(server["why"].as_str().expect("text").contains("no other may go"), "{server}");
    let start = format!("tepal --dir {} dev start s3", ring.dir().display());
    assert_eq!(server["do"][0]["run"], start.as_str());
    assert!(about(&all, "volumes")["what"].as_str().expect("text").contains("fewer copies"), "{all:#?}");

    ring.kill(2);
    ring.wait_until("the last server to serve nobody", || {
        let said = String::from_utf8_lossy(&ring.dev_client(&["doctor"]).stdout).into_owned();
        said.contains("CRITICAL: server s1 may not serve volumes")
    });
    let (report, _) = doctor(&ring);
    assert_eq!(findings(&report)[0]["severity"], "critical");

    // What it advised is done.
    let words: Vec<&str> = start.split(' ').skip(3).collect();
    ring.dev_client(&words).succeeded();
    ring.start_all_that_are_down();
    ring.wait_until_healthy(1, "v0");
    ring.wait_until("nothing to be wrong", || ring.dev_client(&["doctor"]).status.success());
}

#[test]
fn doctor_ends_with_two_if_nobody_answers() {
    let mut cluster = Plan::default().up();
    let said = cluster.tepal(&["doctor"]).succeeded();
    assert!(said.contains("nothing is wrong"), "{said}");
    cluster.kill();
    let error = cluster.tepal(&["doctor"]).refused(2);
    assert!(error.contains("no server answers"), "{error}");
    let nowhere = program::run(cluster.command().args(["--cluster", "127.0.0.1:1", "doctor"])).refused(2);
    assert!(nowhere.contains("127.0.0.1:1"), "{nowhere}");
}

#[test]
fn doctor_tells_of_drives_and_volumes() {
    let cluster = Plan { drives: 2, ..Plan::default() }.up();
    cluster.create("v0", "16M", "mirror:2");
    cluster.create("v1", "16M", "stripe");
    cluster.connect("v0").write(0, &noise(1, 1 << 20)).expect("written");
    let id = cluster.drive_id(cluster.drive(0));
    cluster.tepal(&["drive", "offline", &id]).succeeded();
    let said = cluster.tepal(&["doctor", "-o", "json"]);
    assert_eq!(said.status.code(), Some(1), "{said}");
    let report: Value = serde_json::from_slice(&said.stdout).expect("JSON");
    let all = findings(&report);
    let drive = about(&all, &format!("drive {id}"));
    assert_eq!(drive["do"][0]["run"], format!("tepal drive online {id}").as_str());
    assert_eq!(all[0]["severity"], "critical", "v1 waits for it: {all:#?}");
    assert!(all[0]["what"].as_str().expect("text").contains("can't all be read or written: v1"), "{all:#?}");
    let runs =
        all.iter().filter_map(|finding| finding["do"].as_array()).flatten().filter_map(|step| step["run"].as_str());
    let harmful: Vec<&str> =
        runs.filter(|run| ["--force", "wipe", "accept-loss"].iter().any(|part| run.contains(part))).collect();
    assert_eq!(harmful, Vec::<&str>::new());
    cluster.tepal(&["drive", "online", &id]).succeeded();
    until("nothing to be wrong", SOON, || cluster.tepal(&["doctor"]).status.success().then_some(()));
}

fn events(cluster: &Cluster, arguments: &[&str]) -> Vec<Value> {
    let said = cluster.ask(&[&["events"], arguments].concat());
    said.as_array().expect("a list").clone()
}

#[test]
fn events_tell_who_changed_what() {
    let cluster = Plan::default().up();
    let folder = cluster.folder().join("alice");
    let identity = folder.to_str().expect("text");
    cluster.tepal(&["identity", "create", "alice", "--operator", "--to", identity]).succeeded();
    cluster.create("by-token", "4M", "stripe");
    // Over TLS the API knows who asks.
    let mut by_alice = cluster.command();
    by_alice.args(["--identity", identity, "volume", "create", "by-alice", "--size", "4M", "--layout", "stripe"]);
    program::run(&mut by_alice).succeeded();
    let of_alice = events(&cluster, &["--who", "alice"]);
    assert_eq!((of_alice.len(), &of_alice[0]["subject"]), (1, &Value::from("by-alice")), "{of_alice:#?}");
    let of_volumes = events(&cluster, &["--kind", "volume", "--since", "1h"]);
    let subjects: Vec<&str> = of_volumes.iter().filter_map(|event| event["subject"].as_str()).collect();
    assert_eq!(subjects, ["by-token", "by-alice"], "the newest last");
    assert_eq!(events(&cluster, &["--subject", "by-token"])[0]["who"], "token");
    assert_eq!(events(&cluster, &["--limit", "1"]).len(), 1);
    let table = cluster.tepal(&["events", "--who", "alice"]).succeeded();
    assert!(table.starts_with("TIME") && table.contains("by-alice") && table.trim_end().ends_with("alice"), "{table}");
}

#[test]
fn events_are_followed_as_they_come() {
    let cluster = Plan::default().up();
    let mut command = cluster.command();
    command.args(["events", "--follow", "--kind", "volume", "-o", "json"]).stdout(Stdio::piped());
    let mut child = program::spawn(&mut command);
    // It may have begun or not: either way the event comes.
    cluster.create("v0", "4M", "stripe");
    let mut out = child.stdout.take().expect("piped");
    let reader = std::thread::spawn(move || {
        let mut line = Vec::new();
        let mut byte = [0];
        while out.read(&mut byte).is_ok_and(|length| length == 1) && byte[0] != b'\n' {
            line.push(byte[0]);
        }
        line
    });
    until("an event", SOON, || reader.is_finished().then_some(()));
    let event: Value = serde_json::from_slice(&reader.join().expect("no panic")).expect("one document");
    assert_eq!((&event["subject"], &event["kind"]), (&"v0".into(), &"volume".into()));
    program::signal_group(&child, libc::SIGINT);
    let status = program::wait(&mut child, SOON).expect("it ends");
    assert!(status.success(), "{status}");
}

/// Writes again and again until it's told to stop.
fn under_load<T>(mut volume: Nbd, look: impl FnOnce() -> T) -> T {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                volume.write(0, &[7; BLOCK]).expect("written");
            }
        });
        let seen = look();
        stop.store(true, Ordering::Relaxed);
        seen
    })
}

#[test]
fn top_shows_the_load_of_servers_and_gateways() {
    let ring = Ring::up(2);
    for volume in ["quiet", "v0"] {
        ring.dev_client(&["volume", "create", volume, "--size", "4M", "--layout", "mirror:2"]).succeeded();
    }
    let by_server = ring.connect(1, "v0");
    let by_gateway = Nbd::open(&ring.gateway(), "v0").expect("a gateway");
    for (volume, connected) in [(by_server, "s1"), (by_gateway, "gateways")] {
        let (page, text) = under_load(volume, || {
            // The gateway tells servers once a second.
            let page = until("load to be told", SOON, || {
                let page: Value =
                    serde_json::from_str(&ring.dev_client(&["top", "--once", "-o", "json"]).succeeded()).expect("JSON");
                (page["cluster"] != Value::Null && page["volumes"][0]["writes"]["iops"].as_f64()? > 1.0).then_some(page)
            });
            (page, ring.dev_client(&["top", "--show", "servers"]).succeeded())
        });
        let volumes = page["volumes"].as_array().expect("a list");
        let names: Vec<&str> = volumes.iter().filter_map(|row| row["name"].as_str()).collect();
        assert_eq!(names, ["v0", "quiet"], "{page}");
        let writes = &volumes[0]["writes"];
        let of = |key: &str| writes[key].as_f64().expect("a number");
        assert!(
            (of("bytes_per_second") / of("iops") - BLOCK as f64).abs() < 1.0 && of("latency_micros") > 0.0,
            "{writes}"
        );
        let row =
            text.lines().find(|line| line.starts_with(connected)).unwrap_or_else(|| panic!("{connected}: {text}"));
        assert!(row.split_whitespace().nth(2).is_some_and(|writes| writes != "0"), "{text}");
    }
    let drives = ring.dev_client(&["top", "--show", "drives"]).succeeded();
    assert!(
        drives.contains("DRIVE") && drives.contains(" on s1") && drives.starts_with("dev  ok  servers 2 of 2 up"),
        "{drives}"
    );
}
