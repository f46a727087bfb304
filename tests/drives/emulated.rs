//! `--emulate`: drives at least as slow as they are said to be.

use crate::cluster::Plan;
use crate::nbd::noise;
use std::time::{Duration, Instant};

const COUNT: u32 = 20;

/// The mean time of each of some requests, one after another.
fn mean(mut request: impl FnMut(u32)) -> Duration {
    let began = Instant::now();
    (0..COUNT).for_each(&mut request);
    began.elapsed() / COUNT
}

#[test]
fn an_emulated_drive_is_as_slow_as_stated() {
    let model = "read=6ms,write=4ms,flush=3ms,bandwidth=20M";
    let mut cluster = Plan { drives: 1, emulate: Some(model), ..Plan::default() }.up();
    let drives = cluster.ask(&["drive", "ls"]);
    let emulated = drives[0]["open"]["emulated"].as_str().expect("said of the drive");
    assert!(emulated.contains("6ms"), "{emulated}");
    cluster.create("v0", "16M", "stripe");
    let mut volume = cluster.connect("v0");
    let long = noise(1, 1 << 20);
    let piece = |number: u32| u64::from(number % 8) << 20;
    // 1 MiB at 20 MiB/s.
    let took = mean(|number| volume.write(piece(number), &long).expect("written"));
    assert!(took >= Duration::from_millis(50), "1 MiB was written in {took:?}");
    // A strict write is in the log, and the log is flushed, before it's acknowledged.
    let took = mean(|number| volume.write(u64::from(number) * 4096, &long[..4096]).expect("written"));
    assert!(took >= Duration::from_millis(7), "4 KiB was written in {took:?}");
    drop(volume);
    cluster.stop();
    cluster.start();
    let mut volume = cluster.connect("v0");
    let took = mean(|number| drop(volume.read(piece(number) + (512 << 10), 4096).expect("read")));
    assert!(took >= Duration::from_millis(6), "4 KiB was read in {took:?}");
    let took = mean(|number| drop(volume.read(piece(number), 1 << 20).expect("read")));
    assert!(took >= Duration::from_millis(50), "1 MiB was read in {took:?}");
}

#[test]
fn an_emulated_drive_serves_no_more_requests_a_second_than_stated() {
    let cluster = Plan { drives: 1, emulate: Some("iops=500"), ..Plan::default() }.up();
    cluster.create("v0", "16M", "stripe");
    let mut volume = cluster.connect("v0");
    let took = mean(|number| volume.write(u64::from(number) << 16, &noise(2, 4096)).expect("written"));
    assert!(took >= Duration::from_millis(2), "4 KiB was written in {took:?}");
}
