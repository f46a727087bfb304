//! The numbers for Prometheus: what clients asked of volumes and what that cost the drives; and the alerts that are made of them.

mod alerts;
mod alerts_of_servers;
mod alerts_of_time;
mod files;
mod prometheus;

use crate::cluster::{Cluster, Plan};
use crate::nbd::{BLOCK, kind, noise};
use crate::program::until;
use serde_json::Value;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

/// Where the API of the server with this data folder listens.
fn api(data: &Path) -> String {
    let addresses = std::fs::read(data.join("addresses.json")).expect("the server's addresses");
    let addresses: Value = serde_json::from_slice(&addresses).expect("JSON");
    addresses["api"].as_str().expect("an address").to_owned()
}

/// What is said at a path: by the older HTTP, in which it's said in one piece. None if it's refused, or nobody is there.
fn get(address: &str, path: &str, token: Option<&str>) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a time");
    let token = token.map_or(String::new(), |token| format!("Authorization: Bearer {token}\r\n"));
    stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n{token}\r\n").as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    head.split(' ').nth(1).is_some_and(|status| status == "200").then(|| body.to_owned())
}

/// All of `/metrics` of the server with this data folder.
pub fn text(data: &Path) -> String {
    let token = std::fs::read_to_string(data.join("token")).expect("the server's token");
    get(&api(data), "/metrics", Some(token.trim())).expect("metrics")
}

/// The lines of `/metrics` that begin so.
pub fn metrics(cluster: &Cluster, beginning: &str) -> Vec<(String, f64)> {
    lines(&text(&cluster.data()), beginning)
}

fn lines(text: &str, beginning: &str) -> Vec<(String, f64)> {
    let lines = text.lines().filter(|line| line.starts_with(beginning));
    lines
        .map(|line| {
            let (name, value) = line.rsplit_once(' ').expect("a name and a value");
            (name.to_owned(), value.parse().expect("a number"))
        })
        .collect()
}

fn sum(metrics: &[(String, f64)], part: &str) -> f64 {
    metrics.iter().filter(|(name, _)| name.contains(part)).map(|(_, value)| value).sum()
}

#[test]
fn requests_of_volumes_and_their_cost_on_drives_are_counted_and_timed() {
    let cluster = Plan { drives: 2, ..Plan::default() }.up();
    cluster.create("v0", "4M", "mirror:2");
    cluster.create("v1", "4M", "stripe");
    let mut volume = cluster.connect("v0");
    for block in 0..20 {
        volume.write(block * BLOCK as u64, &[7; BLOCK]).expect("written");
    }
    for block in 0..30 {
        volume.read(block * BLOCK as u64, 2 * BLOCK as u32).expect("read");
    }
    volume.flush().expect("flushed");
    volume.trim(0, 1 << 20).expect("trimmed");
    volume.send(kind::READ, 0, 1 << 40, 4096, &[]).expect("sent");
    volume.answer().expect("an answer").1.expect_err("past the end");

    let seen = metrics(&cluster, "tepal_volume_request_");
    for (name, operation, value) in [
        ("seconds_count", "write", 20.0),
        ("seconds_count", "read", 30.0),
        ("seconds_count", "flush", 1.0),
        ("seconds_count", "discard", 1.0),
        ("bytes_total", "write", 20.0 * BLOCK as f64),
        ("bytes_total", "read", 60.0 * BLOCK as f64),
        ("bytes_total", "discard", (1 << 20) as f64),
        ("errors_total", "write", 0.0),
    ] {
        let labelled = format!("tepal_volume_request_{name}{{volume=\"v0\",operation=\"{operation}\"}}");
        let found = seen.iter().find(|(name, _)| *name == labelled).map(|(_, value)| *value);
        assert_eq!(found, Some(value), "{labelled}");
    }
    assert_eq!(sum(&seen, "volume=\"v1\""), 0.0);
    // Each bucket also counts what is in those before it.
    let buckets: Vec<f64> = seen
        .iter()
        .filter(|(name, _)| name.contains("seconds_bucket") && name.contains("\"v0\"") && name.contains("write"))
        .map(|(_, value)| *value)
        .collect();
    let last = "tepal_volume_request_seconds_bucket{le=\"+Inf\",volume=\"v0\",operation=\"write\"}";
    assert!(seen.iter().any(|(name, count)| name == last && *count == 20.0), "{seen:?}");
    assert!(buckets.len() > 10 && buckets.is_sorted() && buckets.last() == Some(&20.0), "{buckets:?}");

    let drives = metrics(&cluster, "tepal_drive_io_");
    for number in 0..2 {
        let id = cluster.drive_id(cluster.drive(number));
        let of_drive: Vec<(String, f64)> = drives.iter().filter(|(name, _)| name.contains(&id)).cloned().collect();
        let count =
            |operation: &str| sum(&of_drive, &format!("seconds_count{{drive=\"{id}\",operation=\"{operation}\""));
        assert!(count("write") >= 20.0 && count("flush") >= 20.0, "both copies, each on stable media: {of_drive:?}");
    }
    drop(volume);
    cluster.tepal(&["volume", "rm", "v0"]).succeeded();
    assert_eq!(metrics(&cluster, "tepal_volume_request_").iter().filter(|(name, _)| name.contains("v0")).count(), 0);
}

#[test]
fn the_snapshots_of_each_volume_are_counted() {
    let cluster = Plan { drives: 2, ..Plan::default() }.up();
    ["v0", "v1"].iter().for_each(|volume| cluster.create(volume, "4M", "mirror:2"));
    ["v0@a", "v0@b"].iter().for_each(|name| drop(cluster.tepal(&["snapshot", "create", name]).succeeded()));
    let counted = || {
        let seen = metrics(&cluster, "tepal_volume_snapshots{");
        [sum(&seen, "\"v0\""), sum(&seen, "\"v1\"")]
    };
    assert_eq!(counted(), [2.0, 0.0]);
    cluster.tepal(&["snapshot", "rm", "v0@a"]).succeeded();
    assert_eq!(counted(), [1.0, 0.0]);
}

#[test]
fn what_differs_from_a_snapshot_is_found_without_reading_what_does_not() {
    const LENGTH: usize = 64 << 20;
    let mut cluster = Plan { drives: 2, ..Plan::default() }.up();
    cluster.create("v0", "128M", "mirror:2");
    let mut volume = cluster.connect("v0");
    for at in (0..LENGTH).step_by(4 << 20) {
        volume.write(at as u64, &noise(at as u64, 4 << 20)).expect("written");
    }
    cluster.tepal(&["snapshot", "create", "v0@a"]).succeeded();
    volume.write(20 << 20, &[1; BLOCK]).expect("written");
    volume.trim(40 << 20, BLOCK as u32).expect("trimmed");
    drop(volume);
    cluster.stop();
    cluster.start();
    let read = || sum(&metrics(&cluster, "tepal_drive_io_bytes_total"), "operation=\"read\"");
    let before = read();
    let run = |at: u64, kind: &str| serde_json::json!({ "offset": at << 20, "length": BLOCK, "kind": kind });
    let differences = cluster.ask(&["snapshot", "diff", "v0@a"]);
    assert_eq!(differences, serde_json::json!([run(20, "data"), run(40, "zero")]));
    let for_diff = read() - before;
    let mut volume = cluster.connect("v0");
    for at in (0..LENGTH).step_by(4 << 20) {
        volume.read(at as u64, 4 << 20).expect("read");
    }
    let for_all = read() - before - for_diff;
    assert!(for_all >= (LENGTH / 2) as f64 && for_diff < for_all / 10.0, "{for_diff} bytes read, {for_all} for all");
}

#[test]
fn what_is_under_way_is_told_of_volumes_and_drives_and_ends() {
    const SOON: Duration = Duration::from_secs(120);
    // So slow that what moves is seen to move also on a busy machine.
    let slow = "read=5ms,write=5ms,flush=5ms,bandwidth=2M";
    let cluster = Plan { drives: 3, emulate: Some(slow), ..Plan::default() }.up();
    cluster.create("v0", "16M", "stripe");
    cluster.connect("v0").write(0, &noise(1, 16 << 20)).expect("written");
    let ids = [0, 1, 2].map(|number| cluster.drive_id(cluster.drive(number)));
    let of = |name: &str, label: &str| sum(&metrics(&cluster, &format!("tepal_{name}{{")), label);
    let held = || ids.each_ref().map(|id| of("drive_copies", id));
    assert!(held().iter().all(|copies| *copies > 0.0), "{:?}", held());
    let whole: f64 = held().iter().sum();

    cluster.tepal(&["drive", "drain", &ids[0], "--no-wait"]).succeeded();
    until("copies to move", SOON, || {
        let coming = ids.each_ref().map(|id| of("drive_copies_moving", id));
        let status = cluster.tepal(&["status"]).succeeded();
        let is_told = status.contains("under way") && status.contains("being moved");
        (coming[0] == 0.0 && coming[1] + coming[2] > 0.0 && is_told).then_some(())
    });
    until("the drive to be empty", SOON, || (held()[0] == 0.0).then_some(()));
    assert_eq!(held().iter().sum::<f64>(), whole);
    assert_eq!(of("drive_copies_moving", ""), 0.0);
    assert!(!cluster.tepal(&["status"]).succeeded().contains("under way"));

    assert_eq!(metrics(&cluster, "tepal_volume_migration_"), []);
    cluster.tepal(&["volume", "relayout", "v0", "--layout", "mirror:2", "--rate", "1M", "--no-wait"]).succeeded();
    let seconds = until("its pace to be known", SOON, || {
        let seen = metrics(&cluster, "tepal_volume_migration_seconds_left{volume=\"v0\"}");
        seen.first().map(|(_, seconds)| *seconds)
    });
    assert!((1.0..3600.0).contains(&seconds), "{seconds}");
    assert_eq!(of("volume_migration_paused", "v0"), 0.0);
    cluster.tepal(&["volume", "pause", "v0"]).succeeded();
    assert_eq!(of("volume_migration_paused", "v0"), 1.0);
    assert_eq!(metrics(&cluster, "tepal_volume_migration_seconds_left{"), []);
    cluster.tepal(&["volume", "rate", "v0", "auto"]).succeeded();
    cluster.tepal(&["volume", "resume", "v0"]).succeeded();
    cluster.wait_until_there("v0");
    assert_eq!(metrics(&cluster, "tepal_volume_migration_"), []);
}
