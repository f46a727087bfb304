//! The management API as other programs than `tepal` use it: its problems, its conditions, and its document.

use crate::program;
use crate::servers::ring::Ring;
use serde_json::Value;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// For what a document's tests find in this time.
const FUZZED: Duration = Duration::from_secs(55);
/// No handler takes so long bodies.
const TOO_LONG: usize = 300_000;

struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    /// What the header says.
    fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.filter(|(called, _)| called.eq_ignore_ascii_case(name)).map(|(_, value)| value).next()
    }

    /// The problem that it is, of this type.
    fn problem(&self, status: u16, of: &str) -> Value {
        assert_eq!(
            (self.status, self.header("content-type")),
            (status, Some("application/problem+json")),
            "{}",
            self.body
        );
        let problem = self.json();
        assert_eq!(
            (&problem["type"], &problem["status"]),
            (&format!("/v1/docs#{of}").into(), &status.into()),
            "{problem}"
        );
        assert!(problem["detail"].is_string() && problem["detail"] == problem["error"], "{problem}");
        assert!(problem["title"].is_string() && problem["kind"].is_string(), "{problem}");
        problem
    }
}

/// Asks a server, by the older HTTP, in which answers are in one piece.
fn send(ring: &Ring, server: u32, method: &str, path: &str, headers: &[&str], body: &str) -> Answer {
    let addresses = std::fs::read(ring.data(server).join("addresses.json")).expect("the server's addresses");
    let addresses: Value = serde_json::from_slice(&addresses).expect("JSON");
    let address = addresses["api"].as_str().expect("an address");
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(program::LIMIT)).expect("a time");
    let headers: String = headers.iter().map(|header| format!("{header}\r\n")).collect();
    let length = body.len();
    let request =
        format!("{method} {path} HTTP/1.0\r\nHost: {address}\r\nContent-Length: {length}\r\n{headers}\r\n{body}");
    // A server that refuses a long body may answer before it has all of it.
    let _ = stream.write_all(request.as_bytes());
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    Answer { status, head: head.to_owned(), body: body.to_owned() }
}

/// The same with the token.
fn ask(ring: &Ring, server: u32, method: &str, path: &str, headers: &[&str], body: &str) -> Answer {
    let token = std::fs::read_to_string(ring.data(server).join("token")).expect("the server's token");
    let token = format!("Authorization: Bearer {}", token.trim());
    send(ring, server, method, path, &[headers, &[&token]].concat(), body)
}

fn ring() -> Ring {
    let ring = Ring::up(3);
    ring.wait_until_all_are_up(1);
    ring
}

#[test]
fn a_create_with_a_key_is_done_once_though_its_server_dies() {
    let ring = ring();
    let body = r#"{"name": "v0", "size": 1048576, "layout": "mirror:2"}"#;
    let key = ["Idempotency-Key: 3d5b-1"];
    let first = ask(&ring, 2, "POST", "/v1/volumes", &key, body);
    assert_eq!(first.status, 200, "{}", first.body);
    ring.kill(2);
    ring.wait_for_state(1, 2, "down");
    for server in [1, 3] {
        let again = ask(&ring, server, "POST", "/v1/volumes", &key, body);
        assert_eq!((again.status, &again.json()["id"]), (200, &first.json()["id"]), "{}", again.body);
    }
    ask(&ring, 1, "POST", "/v1/volumes", &key, &body.replace("v0", "v1")).problem(422, "key-reused");
    let other = ask(&ring, 1, "POST", "/v1/volumes", &["Idempotency-Key: 3d5b-2"], body).problem(409, "conflict");
    assert!(other["detail"].as_str().is_some_and(|detail| detail.contains("'v0'")), "{other}");
    assert_eq!(ask(&ring, 3, "GET", "/v1/volumes", &[], "").json().as_array().map(Vec::len), Some(1));
}

#[test]
fn of_two_who_change_what_they_saw_the_second_is_told() {
    let ring = ring();
    ring.ask(1, &["volume", "create", "v0", "--size", "1M"]).succeeded();
    let seen = ask(&ring, 1, "GET", "/v1/volumes/v0", &[], "").header("etag").expect("a tag").to_owned();
    let only_if = format!("If-Match: {seen}");
    let first = ask(&ring, 2, "POST", "/v1/volumes/v0/resize", &[&only_if], r#"{"size": 2097152}"#);
    assert_eq!(first.status, 200, "{}", first.body);
    let now = first.header("etag").expect("a tag").to_owned();
    let second = ask(&ring, 3, "POST", "/v1/volumes/v0/rename", &[&only_if], r#"{"new_name": "v1"}"#);
    let problem = second.problem(412, "precondition-failed");
    assert_eq!(
        (&problem["revisions"]["expected"], &problem["revisions"]["current"]),
        (&seen.into(), &now.as_str().into())
    );
    let only_if = format!("If-Match: {now}");
    assert_eq!(ask(&ring, 3, "POST", "/v1/volumes/v0/rename", &[&only_if], r#"{"new_name": "v1"}"#).status, 200);
    let renamed = ask(&ring, 1, "DELETE", "/v1/volumes/v1", &[&only_if], "");
    renamed.problem(412, "precondition-failed");
    ask(&ring, 1, "POST", "/v1/pools", &[&only_if], r#"{"name": "p"}"#).problem(400, "bad-request");
}

#[test]
fn of_two_who_change_a_drive_or_snapshot_or_rights_the_second_is_told() {
    let ring = ring();
    ring.ask(1, &["volume", "create", "v0", "--size", "1M"]).succeeded();
    ring.ask(1, &["snapshot", "create", "v0@a"]).succeeded();
    let drives = ask(&ring, 1, "GET", "/v1/drives", &[], "").json();
    let of_third =
        drives.as_array().and_then(|all| all.iter().find(|drive| drive["server"] == "s3")).expect("its drive");
    let drive = format!("/v1/drives/{}", of_third["id"].as_str().expect("an id"));
    let grant = r#"{"to": "@people", "right": "read"}"#;
    // What shows the tag; what changes the thing; what would overwrite that, and where the thing is by then.
    let stories = [
        (drive.as_str(), ("POST", "/name", r#"{"name": "shelf"}"#), ("POST", "/use", r#"{"to": "draining"}"#), &*drive),
        (&drive, ("POST", "/use", r#"{"to": "draining"}"#), ("DELETE", "?force=true", ""), &drive),
        ("/v1/snapshots/v0@a", ("POST", "/rename", r#"{"new_name": "b"}"#), ("DELETE", "", ""), "/v1/snapshots/v0@b"),
        ("/v1/pools/default/rights", ("POST", "", grant), ("DELETE", "?to=@people", ""), "/v1/pools/default/rights"),
        ("/v1/cluster/rights", ("POST", "", grant), ("DELETE", "?to=@people", ""), "/v1/cluster/rights"),
    ];
    for (thing, (method, to, body), (late, at, other), now) in stories {
        let seen = ask(&ring, 1, "GET", thing, &[], "");
        let seen = seen.header("etag").unwrap_or_else(|| panic!("{thing}: {}", seen.body)).to_owned();
        let only_if = format!("If-Match: {seen}");
        let first = ask(&ring, 2, method, &format!("{thing}{to}"), &[&only_if], body);
        assert_eq!(first.status, 200, "{thing}: {}", first.body);
        // By whichever server, also where another one has to do it.
        let second = ask(&ring, 1, late, &format!("{now}{at}"), &[&only_if], other);
        let problem = second.problem(412, "precondition-failed");
        let current = ask(&ring, 3, "GET", now, &[], "");
        assert_eq!(problem["revisions"]["current"].as_str(), current.header("etag"), "{thing}");
    }
    // The volume is what a rollback changes.
    let seen = ask(&ring, 1, "GET", "/v1/volumes/v0", &[], "").header("etag").expect("a tag").to_owned();
    let only_if = format!("If-Match: {seen}");
    let back = "/v1/snapshots/v0@b/rollback";
    assert_eq!(ask(&ring, 2, "POST", back, &[&only_if], "").status, 200);
    ask(&ring, 3, "POST", back, &[&only_if], "").problem(412, "precondition-failed");
}

#[test]
fn whatever_is_refused_is_answered_with_a_problem() {
    let ring = ring();
    send(&ring, 1, "GET", "/v1/status", &[], "").problem(401, "unauthorized");
    ask(&ring, 1, "GET", "/v1/nothing", &[], "").problem(404, "no-such-path");
    ask(&ring, 1, "GET", "/v1/volumes/v9", &[], "").problem(404, "not-found");
    let wrong = ask(&ring, 1, "PUT", "/v1/volumes", &[], "");
    wrong.problem(405, "method-not-allowed");
    assert!(wrong.header("allow").is_some_and(|allowed| allowed.contains("GET") && allowed.contains("POST")));
    send(&ring, 1, "POST", "/", &[], "").problem(405, "method-not-allowed");
    ask(&ring, 1, "POST", "/v1/volumes", &[], "{").problem(400, "bad-request");
    ask(&ring, 1, "GET", "/v1/volumes?limit=many", &[], "").problem(400, "bad-request");
    ask(&ring, 1, "POST", "/v1/volumes", &[], &" ".repeat(TOO_LONG)).problem(413, "too-large");
    // Another server's answer, passed on.
    let drives = ask(&ring, 1, "GET", "/v1/drives", &[], "").json();
    let elsewhere =
        drives.as_array().and_then(|all| all.iter().find(|drive| drive["server"] != "s1")).expect("a drive");
    let path = format!("/v1/drives/{}/online", elsewhere["id"].as_str().expect("an id"));
    ask(&ring, 1, "POST", &path, &[], "").problem(409, "conflict");
}

#[test]
fn long_work_says_where_it_is_seen() {
    let ring = ring();
    ring.ask(1, &["volume", "create", "v0", "--size", "1M", "--layout", "stripe"]).succeeded();
    for (path, body) in [("scrub", ""), ("relayout", r#"{"layout": "mirror:2"}"#)] {
        let begun = ask(&ring, 1, "POST", &format!("/v1/volumes/v0/{path}"), &[], body);
        assert_eq!(begun.status, 202, "{path}: {}", begun.body);
        let place = begun.header("location").expect("a place");
        assert_eq!(ask(&ring, 2, "GET", place, &[], "").status, 200, "{place}");
    }
}

#[test]
fn document_and_page_are_shown_without_a_token() {
    let ring = ring();
    let document = send(&ring, 1, "GET", "/v1/openapi.json", &[], "").json();
    assert!(document["paths"]["/v1/volumes"]["post"].is_object());
    let page = send(&ring, 2, "GET", "/v1/docs", &[], "");
    assert!(page.status == 200 && page.body.contains("id=not-found"));
}

#[test]
fn requests_made_from_the_document_find_nothing_wrong() {
    crate::need!("schemathesis");
    let ring = ring();
    let apis = ring.dev_status();
    let api = apis["servers"][0]["api"].as_str().expect("an address").to_owned();
    let token = std::fs::read_to_string(ring.data(1).join("token")).expect("the server's token");
    let (document, token) =
        (format!("http://{api}/v1/openapi.json"), format!("Authorization: Bearer {}", token.trim()));
    let mut run = program::command("schemathesis", ["run", &document, "-H", &token, "-n", "5", "--phases", "fuzzing"]);
    run.args(["--include-method", "GET", "--exclude-path", "/v1/live", "--max-failures", "1"]);
    run.current_dir(ring.scratch_file(""));
    program::run_within(&mut run, FUZZED).succeeded();
}
