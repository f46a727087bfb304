//! Alerts about what servers need: room, encryption, a life of some length.

use super::alerts::watching;
use super::prometheus::Prometheus;
use crate::cluster::Plan;
use crate::nbd::noise;
use crate::room::{Mount, fill};
use crate::servers::ring::Ring;
use crate::{need, need_root};
use std::net::TcpListener;
use std::path::PathBuf;
use std::time::{Duration, Instant};

const FAR_MORE_THAN_FIT: u32 = 20_000;

#[test]
fn a_full_data_folder_raises_an_alert_until_there_is_space() {
    need!("prometheus");
    need_root!();
    let mut cluster = Plan::default().made();
    let data = Mount::in_memory(&cluster.data(), "3m");
    cluster.start();
    let prometheus = watching(&cluster);
    let filler = data.0.join("filler");
    fill(&filler);
    let is_refused = |number: &u32| {
        let name = format!("v{number}");
        !cluster.tepal(&["volume", "create", &name, "--size", "1M", "--layout", "stripe"]).status.success()
    };
    assert!((0..FAR_MORE_THAN_FIT).find(is_refused).is_some(), "the data folder is full");
    prometheus.wait_for(&["TepalStateNotWritten"]);
    std::fs::remove_file(&filler).expect("our own file");
    prometheus.wait_for_end_of(&["TepalStateNotWritten"]);
}

#[test]
fn a_server_that_is_open_to_others_raises_an_alert() {
    need!("prometheus");
    let arguments = ["--listen", "0.0.0.0:0", "--insecure"].map(str::to_owned).to_vec();
    let cluster = Plan { drives: 1, arguments, ..Plan::default() }.up();
    Prometheus::watching(&[cluster.data()]).wait_for(&["TepalOpenToOthers"]);
}

/// A minute of the alert is a second here, and its hour a minute.
#[test]
fn a_server_that_is_started_again_and_again_raises_an_alert() {
    need!("prometheus");
    let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("loopback");
    // Prometheus knows it by its address.
    let arguments = ["--api", &free.to_string()].map(str::to_owned).to_vec();
    let mut cluster = Plan { drives: 1, arguments, ..Plan::default() }.up();
    let cut = ("tepal_start_time_seconds < 60)[1h:1m]", "tepal_start_time_seconds < 2)[1m:2s]");
    let prometheus = Prometheus::quicker(&[cluster.data()], &[cut]);
    let end = Instant::now() + Duration::from_secs(50);
    let mut starts = 1;
    while prometheus.firing() != ["TepalServerRestarts"] {
        assert!(Instant::now() < end, "{starts} starts raised {:?}", prometheus.firing());
        let seen = prometheus.values("changes(tepal_start_time_seconds[1m])");
        cluster.kill();
        cluster.start();
        starts += 1;
        // Prometheus has looked at it in its first two seconds, or the next start counts.
        let is_seen = || prometheus.values("changes(tepal_start_time_seconds[1m])") != seen;
        let soon = Instant::now() + Duration::from_secs(4);
        while !is_seen() && Instant::now() < soon {
            std::thread::sleep(Duration::from_millis(100));
        }
    }
    assert!(starts > 3, "{starts} starts are no trouble");
}

#[test]
fn servers_that_could_not_take_what_another_has_raise_an_alert() {
    need!("prometheus");
    let ring = Ring::up(3);
    ring.dev_client(&["volume", "create", "v", "--size", "256M", "--layout", "stripe"]).succeeded();
    let servers: Vec<PathBuf> = (1..=3).map(|server| ring.data(server)).collect();
    let prometheus = Prometheus::watching(&servers);
    assert_eq!(prometheus.firing(), Vec::<String>::new());
    let mut volume = ring.connect(1, "v");
    let full = (0..256).find(|at| volume.write(at << 20, &noise(*at, 1 << 20)).is_err());
    assert!(full.is_some_and(|written| written > 64), "{full:?}");
    prometheus.wait_for(&["TepalNoRoomToRecover"]);
}
