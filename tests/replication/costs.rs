//! What replication costs, and how much of a link and of drives it uses.

use super::{LONG, MIB, Pair, fill, said};
use crate::cluster::Plan;
use crate::program;
use std::time::{Duration, Instant};

/// Of a link or a drive. Rounds reach 0.8 on an idle machine; other tests run beside these, so one of several rounds has to reach this.
const LEAST_USED: f64 = 0.6;
const ROUNDS: u64 = 5;

/// How much of this bandwidth the round used.
fn used(round: &serde_json::Value, bandwidth: u64) -> f64 {
    let (sent, took) = (round["sent_bytes"].as_u64().expect("bytes"), round["milliseconds"].as_u64().expect("time"));
    sent as f64 / (took as f64 / 1000.0) / bandwidth as f64
}

/// Some round of the volume, written anew before each but the first, uses enough of the bandwidth.
fn bandwidth_is_used(pair: &Pair, round: impl Fn() -> serde_json::Value, (what, bandwidth): (&str, u64)) {
    for number in 1..=ROUNDS {
        let used = used(&round(), bandwidth);
        println!("{what}, round {number}: {used:.2} of the bandwidth");
        if used > LEAST_USED {
            return;
        }
        fill(&pair.here, 0, number + 1, 160 * MIB);
    }
    panic!("{what}: none of {ROUNDS} rounds used {LEAST_USED} of the bandwidth");
}

#[test]
fn an_unchanged_tebibyte_costs_a_second_and_64_kib_at_most() {
    let pair = Pair::with_volume("1T", MIB);
    pair.once(&[]);
    let (mut fastest, mut bytes) = (Duration::MAX, 0);
    for _ in 0..3 {
        let (before, began) = (pair.to_there.bytes() + pair.to_here.bytes(), Instant::now());
        let said = pair.once(&[]);
        fastest = fastest.min(began.elapsed());
        bytes = pair.to_there.bytes() + pair.to_here.bytes() - before;
        assert_eq!((said.len(), &said[0]["changed"]), (1, &false.into()), "{said:?}");
        assert!(bytes < 64 << 10, "{bytes}");
    }
    println!("an unchanged round of 1 TiB: {fastest:?}, {bytes} bytes");
    assert!(fastest < Duration::from_secs(1), "{fastest:?}");
}

#[test]
fn a_rate_is_kept_to() {
    let pair = Pair::with_volume("64M", 24 * MIB);
    let began = Instant::now();
    pair.once(&["--rate", "8M"]);
    let took = began.elapsed().as_secs_f64();
    println!("24 MiB at 8 MiB/s took {took:.2} s");
    assert!((2.7..6.0).contains(&took), "{took}");
}

/// Of a link of 32 MiB/s, 40 ms there and back.
#[test]
fn a_link_with_latency_is_used() {
    const RATE: u64 = 32 << 20;
    let pair = Pair::with_volume("256M", 160 * MIB);
    pair.to_there.slow(Duration::from_millis(20), RATE);
    bandwidth_is_used(&pair, || pair.once(&[])[0].clone(), ("a link of 32 MiB/s and 40 ms", RATE));
}

/// Both clusters have a drive of 40 MiB/s.
#[test]
fn a_drives_bandwidth_is_used() {
    const RATE: u64 = 40 << 20;
    let slow = || Plan {
        drives: 1,
        drive_size: 1 << 30,
        emulate: Some("read=100us,write=100us,bandwidth=40M"),
        ..Plan::default()
    };
    let pair = Pair::of(slow().up(), slow().up());
    pair.here.create("v", "256M", "stripe");
    fill(&pair.here, 0, 1, 160 * MIB);
    let round = || {
        let mut command = pair.command(&["--once", "--layout", "stripe"]);
        said(&program::run_within(&mut command, LONG).succeeded())[0].clone()
    };
    bandwidth_is_used(&pair, round, ("drives of 40 MiB/s", RATE));
}

/// Small writes all over the volume: a request for each would take most of the time.
#[test]
fn scattered_blocks_go_many_in_one_request() {
    let pair = Pair::with_volume("256M", MIB);
    pair.once(&[]);
    let mut disk = pair.here.connect("v");
    for number in 0..4000u64 {
        disk.write(number * 65536 + 4096, &number.to_le_bytes().repeat(512)).expect("written");
    }
    pair.to_there.slow(Duration::from_millis(20), 0);
    let round = &pair.once(&[])[0];
    println!("4000 scattered blocks over 40 ms: {} ms, {} bytes", round["milliseconds"], round["sent_bytes"]);
    assert!(round["milliseconds"].as_u64() < Some(6000), "{round}");
    assert!(round["sent_bytes"].as_u64() < Some(20 << 20), "{round}");
    pair.is_equal();
}
