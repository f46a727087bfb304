//! `tepal trace slow`: requests that are slow for a real reason, and what it says of that.

use crate::cluster::Plan;
use crate::nbd::{BLOCK, Nbd, noise};
use crate::program;
use crate::servers::ring::Ring;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// What the command says and writes, while requests are made one after another.
fn traced(command: &mut Command, file: &Path, mut request: impl FnMut() + Send) -> (String, Value) {
    let over = AtomicBool::new(false);
    let said = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                request();
            }
        });
        let said = program::run(command.arg("--out").arg(file));
        over.store(true, Ordering::Relaxed);
        said
    });
    let file = std::fs::read(file).unwrap_or_else(|error| panic!("{error}: {said}"));
    (said.succeeded(), serde_json::from_slice(&file).expect("JSON"))
}

fn writing(volume: Nbd) -> impl FnMut() + Send {
    let (mut volume, mut number) = (volume, 0u64);
    move || {
        number += 1;
        volume.write(number % 16 * BLOCK as u64, &noise(number, BLOCK)).expect("written");
    }
}

/// Each step with its server, after a look at whether OpenTelemetry's collector would read it: keys and forms are those of
/// opentelemetry-proto's `trace.proto` in its JSON form.
fn steps(traces: &Value) -> Vec<(String, Value)> {
    let keys = |value: &Value| -> BTreeSet<String> { value.as_object().expect("an object").keys().cloned().collect() };
    let are = |value: &Value, all: &[&str]| {
        let strange: Vec<String> = keys(value).into_iter().filter(|key| !all.contains(&key.as_str())).collect();
        assert_eq!(strange, Vec::<String>::new(), "{value:#}");
    };
    let is_hex = |value: &Value, length: usize| {
        let text = value.as_str().expect("text");
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        assert!(text.len() == length && text.bytes().all(is_digit) && text.bytes().any(|byte| byte != b'0'), "{text}");
    };
    let attributes = |value: &Value| -> BTreeMap<String, String> {
        let one = |one: &Value| {
            are(one, &["key", "value"]);
            are(&one["value"], &["stringValue", "intValue"]);
            let value = one["value"].as_object().expect("an object").values().next().expect("a value");
            (one["key"].as_str().expect("text").to_owned(), value.as_str().expect("also numbers are texts").to_owned())
        };
        value.as_array().expect("a list").iter().map(one).collect()
    };
    let number = |value: &Value| value.as_str().expect("text").parse::<u64>().expect("digits");
    are(traces, &["resourceSpans"]);
    let mut all = Vec::new();
    for server in traces["resourceSpans"].as_array().expect("a list") {
        are(server, &["resource", "scopeSpans"]);
        let resource = attributes(&server["resource"]["attributes"]);
        assert_eq!(resource["service.name"], "tepal");
        for span in
            server["scopeSpans"].as_array().expect("a list").iter().flat_map(|one| one["spans"].as_array()).flatten()
        {
            let ids = ["traceId", "spanId", "parentSpanId"];
            let others = ["name", "kind", "startTimeUnixNano", "endTimeUnixNano", "attributes", "status"];
            are(span, &[&ids[..], &others].concat());
            is_hex(&span["traceId"], 32);
            is_hex(&span["spanId"], 16);
            assert!(number(&span["startTimeUnixNano"]) <= number(&span["endTimeUnixNano"]), "{span:#}");
            assert!((1..=3).contains(&span["kind"].as_u64().expect("a number")), "{span:#}");
            are(&span["status"], &["code", "message"]);
            attributes(&span["attributes"]);
            all.push((resource["service.instance.id"].clone(), span.clone()));
        }
    }
    for (_, span) in all.iter().filter(|(_, span)| !span["parentSpanId"].is_null()) {
        let is_parent = |other: &Value| other["spanId"] == span["parentSpanId"] && other["traceId"] == span["traceId"];
        assert!(all.iter().any(|(_, other)| is_parent(other)), "what it's a part of is missing: {span:#}");
    }
    all
}

/// What most requests waited for, as the last lines say; the first of them is of the most.
fn mostly(said: &str) -> String {
    let line =
        said.lines().find(|line| line.contains("  mostly ")).unwrap_or_else(|| panic!("nothing was slow: {said}"));
    line.split_once("  mostly ").expect("just found").1.to_owned()
}

#[test]
fn writes_that_wait_for_one_servers_drive_name_it() {
    let ring = Ring::up(3);
    ring.dev_client(&["volume", "create", "v", "--size", "16M", "--layout", "mirror:3"]).succeeded();
    ring.connect(1, "v").write(0, &noise(1, 1 << 20)).expect("written");
    ring.kill(3);
    ring.start_with(3, &["--emulate", "flush=80ms"]);
    ring.wait_until_healthy(1, "v");
    let drives = ring.json(1, &["drive", "ls"]);
    let slow = drives.as_array().expect("a list").iter().find(|drive| drive["server"] == "s3").expect("its drive");
    let id = slow["id"].as_str().expect("an id");
    let mut command = ring.command(&["trace", "slow", "--over", "50ms", "--volume", "v", "--for", "4s"]);
    let (said, traces) = traced(&mut command, &ring.scratch_file("slow.json"), writing(ring.connect(1, "v")));
    assert_eq!(mostly(&said), format!("drive write, drive {id} of s3: device flush"), "{said}");
    let steps = steps(&traces);
    let requests = steps.iter().filter(|(_, span)| span["parentSpanId"].is_null());
    assert!(requests.clone().all(|(server, span)| server == "s1" && span["name"] == "write"), "{requests:#?}");
    let flushed = steps.iter().find(|(server, span)| server == "s3" && span["name"] == "device flush");
    let (_, flushed) = flushed.unwrap_or_else(|| panic!("nothing of s3: {said}"));
    assert!(
        requests.clone().any(|(_, span)| span["traceId"] == flushed["traceId"]),
        "it's a part of a client's request"
    );
    // The tree of some request has a line of it, marked.
    assert!(said.lines().any(|line| line.trim_end().ends_with("device flush  <--")), "{said}");
    ring.kill_own(3);
}

#[test]
fn writes_to_a_server_that_stands_still_name_it() {
    let ring = Ring::up(3);
    ring.dev_client(&["volume", "create", "v", "--size", "16M", "--layout", "mirror:3"]).succeeded();
    let mut volume = writing(ring.connect(1, "v"));
    volume();
    // It leads nothing then: what it's asked is about its drive.
    ring.kill(3);
    ring.wait_for_state(1, 3, "down");
    ring.start(&[3]);
    ring.wait_until_healthy(1, "v");
    let addresses = std::fs::read_to_string(ring.data(3).join("addresses.json")).expect("it serves");
    let addresses: Value = serde_json::from_str(&addresses).expect("JSON");
    let signal = |signal: &str| {
        program::run(Command::new("kill").args([signal, &addresses["pid"].to_string()])).succeeded();
    };
    let mut command = ring.command(&["trace", "slow", "--over", "100ms", "--volume", "v", "--for", "5s"]);
    let (said, traces) = traced(&mut command, &ring.scratch_file("slow.json"), || {
        signal("-STOP");
        std::thread::sleep(Duration::from_millis(200)); // for that long it stands still
        std::thread::scope(|scope| {
            let write = scope.spawn(&mut volume);
            std::thread::sleep(Duration::from_millis(300)); // and then with a write on its way
            signal("-CONT");
            write.join().expect("written");
        });
    });
    let (mostly, last) = (mostly(&said), " of s3");
    assert!(mostly.starts_with("ask s3: write, drive ") && mostly.ends_with(last), "{said}");
    assert!(!steps(&traces).is_empty());
}

#[test]
fn requests_over_a_limit_name_the_limit_and_others_are_not_traced() {
    let cluster = Plan::default().up();
    ["limited", "other"].iter().for_each(|volume| cluster.create(volume, "4M", "stripe"));
    cluster.tepal(&["volume", "limit", "limited", "--iops", "20"]).succeeded();
    let (mut limited, mut other) = (writing(cluster.connect("limited")), writing(cluster.connect("other")));
    let mut command = cluster.command();
    command.args(["trace", "slow", "--over", "10ms", "--volume", "limited", "--for", "2s"]);
    let (said, traces) = traced(&mut command, &cluster.folder().join("slow.json"), || {
        limited();
        other();
    });
    assert_eq!(mostly(&said), "wait for a limit", "{said}");
    assert!(said.contains(" of 'limited', at s1: ") && !said.contains("'other'"), "{said}");
    let noted = steps(&traces).len();
    // It's over: nothing more is noted.
    (0..5).for_each(|_| limited());
    let again = cluster.ask(&["trace", "slow", "--over", "24h", "--for", "1ms"]);
    assert!(noted > 0 && steps(&again).is_empty(), "{again:#}");
}
