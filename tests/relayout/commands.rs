//! What the commands print and refuse.

use crate::cluster::{Media, Plan};
use crate::nbd::noise;
use crate::program;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::Duration;

const SOON: Duration = Duration::from_secs(120);

#[test]
fn what_is_under_way_is_shown_and_what_cannot_be_is_refused_in_one_line() {
    let cluster = Plan { media: Media::Files, drives: 3, ..Plan::default() }.up();
    cluster.create("v", "24M", "stripe");
    cluster.connect("v").write(0, &noise(1, 16 << 20)).expect("written");
    assert_eq!(cluster.ask(&["volume", "migrations"]), json!([]));
    assert_eq!(cluster.volume("v")["migration"], json!(null));
    assert!(!cluster.tepal(&["status"]).succeeded().contains("under way"));
    let relayout = |layout| cluster.tepal(&["volume", "relayout", "v", "--layout", layout]);
    for (layout, status, said) in [
        ("stripe", 1, "already"),
        ("mirror:4", 1, "4 copies"),
        ("chained", 1, "servers"),
        ("raid5", 2, "unknown layout"),
        ("mirror:2;extent=5K", 2, "extent"),
    ] {
        let refused = relayout(layout).refused(status);
        assert!(refused.contains(said), "{layout}: {refused}");
    }
    for command in ["pause", "resume", "cancel"] {
        let refused = cluster.tepal(&["volume", command, "v"]).refused(1);
        assert!(refused.contains("no migration under way"), "{refused}");
        assert!(cluster.tepal(&["volume", command, "x"]).refused(1).contains("no volume 'x'"));
    }
    cluster.tepal(&["volume", "rate", "v", "0"]).refused(2);
    cluster.tepal(&["volume", "relayout", "v"]).refused(2);
    cluster.tepal(&["volume", "flatten", "v"]).refused(1);

    let begin = ["volume", "relayout", "v", "--layout", "mirror:2;extent=4K", "--rate", "1M", "--no-wait"];
    let said = cluster.tepal(&begin).succeeded();
    assert!(said.contains("tepal volume cancel v"), "{said}");
    let refused = relayout("mirror:3").refused(1);
    assert!(refused.contains("goes to") && refused.contains("already"), "{refused}");
    let migration = cluster.volume("v")["migration"].clone();
    for (key, value) in
        [("to", json!("mirror:2;extent=4K")), ("total_bytes", json!(24 << 20)), ("state", json!("running"))]
    {
        assert_eq!(migration[key], value, "{migration}");
    }
    for key in ["done_bytes", "rate"] {
        assert!(migration[key].is_u64(), "{key}: {migration}");
    }
    assert!(migration.as_object().is_some_and(|keys| keys.contains_key("seconds_left")), "{migration}");
    let listed = cluster.ask(&["volume", "migrations"]);
    assert_eq!((&listed[0]["volume"], &listed[0]["from"]), (&json!("v"), &json!("stripe")));
    let table = cluster.tepal(&["volume", "migrations"]).succeeded();
    assert!(table.contains("mirror:2;extent=4K") && table.contains("running"), "{table}");
    assert!(cluster.tepal(&["volume", "show", "v"]).succeeded().contains("to mirror:2;extent=4K"));
    let sql = cluster.ask(&["sql", "select stage, chunks, rate from migrations"]);
    assert!(sql.to_string().contains("running"), "{sql}");
    cluster.tepal(&["volume", "pause", "v"]).succeeded();
    assert!(cluster.tepal(&["volume", "migrations"]).succeeded().contains("paused"));
    let status = cluster.tepal(&["status"]).succeeded();
    assert!(status.contains("under way  1 volume on its way to another layout or place\n"), "{status}");
    let status = cluster.ask(&["status"]);
    assert_eq!((&status["migrations"], &status["moving"]), (&json!(1), &json!(0)));
    cluster.tepal(&["volume", "rate", "v", "auto"]).succeeded();
    cluster.tepal(&["volume", "resume", "v"]).succeeded();
    assert_eq!(cluster.wait_until_there("v"), "mirror:2;extent=4K");
    let events = cluster.ask(&["sql", "select text from events where kind = 'volume' and subject = 'v'"]).to_string();
    for said in ["begins to go", "rests", "goes on", "has mirror:2;extent=4K now"] {
        assert!(events.contains(said), "{said}: {events}");
    }
}

#[test]
fn ctrl_c_ends_the_command_and_not_the_work_and_says_so() {
    let cluster = Plan { media: Media::Files, drives: 2, ..Plan::default() }.up();
    cluster.create("v", "24M", "stripe");
    cluster.connect("v").write(0, &noise(1, 16 << 20)).expect("written");
    let mut command = cluster.command();
    command.args(["volume", "relayout", "v", "--layout", "mirror:2", "--rate", "1M"]);
    let mut child = program::spawn(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
    program::until("it to begin", SOON, || (!cluster.volume("v")["migration"].is_null()).then_some(()));
    let (mut lines, mut printed) = (String::new(), BufReader::new(child.stderr.take().expect("piped")));
    while !lines.contains('%') {
        assert!(printed.read_line(&mut lines).expect("text") > 0, "lines on a pipe: {lines}");
    }
    program::signal_group(&child, libc::SIGINT);
    // Or else what comes after it in a line of commands would come too early.
    assert_eq!(program::wait(&mut child, SOON).and_then(|status| status.code()), Some(1));
    let said = std::io::read_to_string(printed).expect("text");
    assert!(said.contains("goes on in the background") && said.contains("cancel v"), "{said}");
    assert!(!cluster.volume("v")["migration"].is_null());
    cluster.tepal(&["volume", "rate", "v", "auto"]).succeeded();
    cluster.wait_until_there("v");
}

#[test]
fn what_waits_for_a_drive_that_is_away_names_it_and_has_no_rate_and_no_time_left() {
    let cluster = Plan { media: Media::Files, drives: 2, ..Plan::default() }.up();
    cluster.create("v", "24M", "stripe");
    cluster.connect("v").write(0, &noise(1, 24 << 20)).expect("written");
    cluster
        .tepal(&["volume", "relayout", "v", "--layout", "stripe;extent=4K", "--rate", "4M", "--no-wait"])
        .succeeded();
    program::until("some to have gone", SOON, || {
        (cluster.volume("v")["migration"]["done_bytes"].as_u64()? >= 4 << 20).then_some(())
    });
    let id = cluster.drive_id(cluster.drive(0));
    cluster.tepal(&["drive", "offline", &id]).succeeded();
    program::until("it to be told", SOON, || {
        let listed = cluster.ask(&["volume", "migrations"])[0].clone();
        let is_told = ["offline", &id].iter().all(|part| listed["reason"].to_string().contains(part));
        (listed["state"] == "blocked" && is_told && listed["rate"] == 0 && listed["seconds_left"].is_null())
            .then_some(())
    });
    cluster.tepal(&["drive", "online", &id]).succeeded();
    cluster.tepal(&["volume", "rate", "v", "auto"]).succeeded();
    assert_eq!(cluster.wait_until_there("v"), "stripe;extent=4K");
}

#[test]
fn what_does_not_fit_is_not_begun() {
    let cluster = Plan { media: Media::Files, drives: 2, drive_size: 64 << 20, ..Plan::default() }.up();
    cluster.create("v", "60M", "stripe");
    for at in 0..6 {
        cluster.connect("v").write(at * (10 << 20), &noise(at + 1, 10 << 20)).expect("written");
    }
    let refused = cluster.tepal(&["volume", "relayout", "v", "--layout", "mirror:2"]).refused(1);
    assert!(refused.contains("free") && refused.contains("add drives"), "{refused}");
    assert_eq!(cluster.volume("v")["migration"], Value::Null);
}
