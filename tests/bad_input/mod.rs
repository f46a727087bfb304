//! Whatever is typed or sent: a clear error, nothing changed, and nobody else notices.

mod commands;

use crate::cluster::Plan;
use crate::nbd::{Address, Ledger, Nbd, Stream, Writer, header, kind, option_bytes};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;

#[test]
fn a_wrong_command_is_one_line_of_error_and_changes_nothing() {
    let cluster = Plan::default().up();
    cluster.create("v0", "4M", "mirror:2");
    let before = cluster.volume("v0");
    let long = "a".repeat(100_000);
    let cases: [(i32, &[&str]); 27] = [
        (2, &["frobnicate"]),
        (2, &["volume", "create"]),
        (2, &["volume", "create", "x"]),
        (2, &["volume", "create", "x", "--size", "-5"]),
        (2, &["volume", "create", "x", "--size", "99999999999999999999E"]),
        (2, &["volume", "create", "../x", "--size", "1M"]),
        (2, &["volume", "create", "a\nb", "--size", "1M"]),
        (2, &["volume", "create", &long, "--size", "1M"]),
        (2, &["volume", "create", "x", "--size", "1M", "--layout", "raid7"]),
        (2, &["volume", "create", "x", "--size", "1M", "--layout", &long]),
        (1, &["volume", "create", "x", "--size", "1M", "--layout", "mirror:5"]),
        (1, &["volume", "create", "x", "--size", "1M", "--pool", "nowhere"]),
        (1, &["volume", "create", "v0", "--size", "1M"]),
        (1, &["volume", "show", "x"]),
        (1, &["volume", "rm", "x"]),
        (1, &["volume", "resize", "x", "1M"]),
        (2, &["volume", "resize", "v0", "-1"]),
        (1, &["volume", "resize", "v0", "1M"]),
        (1, &["volume", "rename", "x", "y"]),
        (1, &["volume", "scrub", "x"]),
        (1, &["volume", "export", "x"]),
        (1, &["drive", "rm", "zz"]),
        (2, &["drive", "rm", "z/z"]),
        (1, &["drive", "rm", "0123456789abcdef"]),
        (2, &["drive", "add", "1", "/dev/x"]),
        (1, &["drive", "inspect", "/nowhere"]),
        (2, &["status", "-o", "yaml"]),
    ];
    for (status, arguments) in cases {
        let line = cluster.tepal(arguments).refused(status);
        assert!(line.len() < 1000, "{line}");
    }
    assert_eq!(cluster.volume("v0"), before);
    assert_eq!(cluster.ask(&["status"])["volumes"], 1);
}

#[test]
fn hostile_clients_are_not_noticed_by_others() {
    let mut cluster = Plan { tcp: true, ..Plan::default() }.up();
    cluster.create("v0", "8M", "mirror:2");
    let writer = Writer::start(cluster.address(), "v0", Ledger::new(61, 2048));
    let huge = option_bytes(7, u32::MAX, b"");
    let lying = option_bytes(7, 8, &[0xff; 8]);
    let endless = option_bytes(3, 0, b"").repeat(2000);
    let go = option_bytes(7, 8, &[0, 0, 0, 2, b'v', b'0', 0, 0]);
    let cut = [&go[..], &header(kind::WRITE, 0, 1, 0, 4096)[..20]].concat();
    let half = [&go[..], &header(kind::WRITE, 0, 1, 0, 1 << 20), &[1; 1000]].concat();
    let too_long = [&go[..], &header(kind::WRITE, 0, 1, 0, u32::MAX), &[1; 1000]].concat();
    let unknown = [&go[..], &header(999, 0xffff, 1, u64::MAX, u32::MAX)].concat();
    let noise = crate::nbd::noise(62, 100_000);
    let flags = 3u32.to_be_bytes();
    let tcp = crate::nbd::Address::Tcp(cluster.tcp());
    for address in [cluster.address(), tcp] {
        for said in [&huge, &lying, &endless, &cut[..].to_vec(), &half, &too_long, &unknown, &noise] {
            for greeting in [&flags[..], &[0xff; 4], b""] {
                // The server may hang up while it's being spoken to.
                let mut stream: Box<dyn Stream> = address.dial().expect("it listens");
                let _ = stream.write_all(greeting).and_then(|()| stream.write_all(said));
                let _ = stream.read(&mut [0; 18]);
            }
        }
        let flood: Vec<_> = (0..200).map_while(|_| address.dial().ok()).collect();
        assert_eq!(flood.len(), 200);
        writer.go_on_for(500);
    }
    writer.finish().compare(&mut cluster.connect("v0"));
    cluster.scrub_finds_nothing("v0");
    cluster.stop_and_check_drives();
}

/// Story: 128 connections that never sent a request kept the commands of everybody out for half a minute at a time.
#[test]
fn who_has_no_token_keeps_nobody_out_of_the_api() {
    let cluster = Plan::default().up();
    let addresses = std::fs::read(cluster.data().join("addresses.json")).expect("the server's addresses");
    let addresses: serde_json::Value = serde_json::from_slice(&addresses).expect("JSON");
    let api = addresses["api"].as_str().expect("an address");
    let refused = format!("GET /v1/status HTTP/1.1\r\nHost: {api}\r\n\r\n");
    let begun = &refused.as_bytes()[..10];
    let mut held = Vec::new();
    for said in [b"", begun, refused.as_bytes()] {
        for _ in 0..300 {
            let mut stream = std::net::TcpStream::connect(api).expect("it listens");
            // It may have been sent off already.
            let _ = stream.write_all(said);
            held.push(stream);
        }
        let asked = std::time::Instant::now();
        assert_eq!(cluster.ask(&["status"])["health"], "ok");
        assert!(asked.elapsed() < std::time::Duration::from_secs(10), "it took {:?}", asked.elapsed());
    }
}

#[test]
fn data_and_sockets_are_the_owners_alone() {
    let cluster = Plan::default().up();
    let mode = |path: &std::path::Path| path.metadata().expect("ours").permissions().mode() & 0o777;
    assert_eq!(mode(&cluster.data()), 0o700);
    assert_eq!(mode(&cluster.socket()), 0o600);
    for entry in std::fs::read_dir(cluster.data()).expect("ours") {
        let path = entry.expect("ours").path();
        assert_eq!(mode(&path) & 0o077, 0, "{}", path.display());
    }
}

#[test]
fn an_address_that_other_machines_reach_serves_nobody_in_the_clear_unless_insecure() {
    for (insecure, is_served) in [(None, false), (Some("--insecure"), true)] {
        let wide = ["--listen", "0.0.0.0:0"].into_iter().chain(insecure).map(str::to_owned);
        let cluster = Plan { arguments: wide.collect(), ..Plan::default() }.up();
        cluster.create("v", "8M", "stripe");
        let here = Address::Tcp(cluster.tcp().replace("0.0.0.0", "127.0.0.1"));
        assert_eq!(Nbd::list(&here).is_ok(), is_served, "{insecure:?}");
        let reason = cluster.ask(&["status"])["reason"].to_string();
        assert_eq!(reason.contains("--insecure"), is_served, "{reason}");
    }
}
