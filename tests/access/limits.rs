//! Requests past a limit wait, and no more passes than it says.

use super::client::Door;
use super::rights::{cluster, identity, tcp};
use crate::cluster::{Cluster, Plan};
use crate::nbd::Nbd;
use crate::need;
use crate::program;
use std::time::{Duration, Instant};

const READ: u16 = 0;

/// How many reads of these bytes pass in a time, with 16 under way on each of two connections.
fn passed(cluster: &Cluster, bytes: u32, time: Duration) -> u64 {
    let count = |mut connection: Nbd| {
        let (end, mut answered) = (Instant::now() + time, 0);
        for _ in 0..16 {
            connection.send(READ, 0, 0, bytes, &[]).expect("sent");
        }
        while Instant::now() < end {
            let (_, outcome) = connection.answer().expect("answered");
            outcome.expect("read");
            connection.data(bytes as usize).expect("its data");
            answered += 1;
            connection.send(READ, 0, 0, bytes, &[]).expect("sent");
        }
        answered
    };
    std::thread::scope(|scope| {
        let both =
            [cluster.connect("v"), cluster.connect("v")].map(|connection| scope.spawn(move || count(connection)));
        both.into_iter().map(|one| one.join().expect("no panic")).sum()
    })
}

fn with_volume() -> Cluster {
    let cluster = Plan { drives: 2, ..Plan::default() }.up();
    cluster.create("v", "16M", "mirror:2");
    cluster
}

/// Of what a limit allows over 10 s, that passes within three hundredths; the burst is a hundredth.
#[test]
fn over_ten_seconds_a_limit_is_held_within_three_percent() {
    let cluster = with_volume();
    const TIME: Duration = Duration::from_secs(10);
    for (limit, bytes, expected) in [(["--iops", "400"], 4096, 4000), (["--bandwidth", "8M"], 256 << 10, 320)] {
        cluster.tepal(&["volume", "limit", "v", "--iops", "none", "--bandwidth", "none"]).succeeded();
        cluster.tepal(&["volume", "limit", "v", limit[0], limit[1]]).succeeded();
        let passed = passed(&cluster, bytes, TIME);
        let most = expected * 103 / 100 + 2;
        println!("{limit:?}: {passed} of {expected}");
        assert!((expected * 97 / 100..=most).contains(&passed), "{limit:?}: {passed} passed, not {expected}");
    }
}

#[test]
fn a_limit_taken_away_lets_waiting_requests_through() {
    let cluster = with_volume();
    cluster.tepal(&["volume", "limit", "v", "--iops", "1", "--iops-burst", "1"]).succeeded();
    let mut connection = cluster.connect("v");
    for _ in 0..200 {
        connection.send(READ, 0, 0, 512, &[]).expect("sent");
    }
    let began = Instant::now();
    connection.answer().expect("the first has the burst").1.expect("read");
    connection.data(512).expect("its data");
    let told = cluster.tepal(&["volume", "limit", "v", "--iops", "none"]).succeeded();
    assert!(told.contains("no limits"), "{told}");
    for _ in 1..200 {
        connection.answer().expect("answered").1.expect("read");
        connection.data(512).expect("its data");
    }
    assert!(began.elapsed() < Duration::from_secs(60), "at one a second they would take 200 s");
}

/// A client that goes away with requests that wait takes nothing from those who come later.
#[test]
fn clients_that_leave_while_they_wait_use_no_limit_up() {
    let cluster = with_volume();
    cluster.tepal(&["volume", "limit", "v", "--bandwidth", "1M", "--bandwidth-burst", "1M"]).succeeded();
    for _ in 0..50 {
        let mut connection = cluster.connect("v");
        for _ in 0..4 {
            connection.send(READ, 0, 0, 16 << 20, &[]).expect("sent");
        }
    }
    let began = Instant::now();
    cluster.connect("v").read(0, 4096).expect("read");
    assert!(began.elapsed() < Duration::from_secs(40), "{:?}: 200 requests of 16 s each weren't made", began.elapsed());
}

#[test]
fn limits_are_shown_and_last_through_a_restart() {
    let mut cluster = with_volume();
    cluster.tepal(&["volume", "limit", "v", "--iops", "500", "--iops-burst", "5000", "--bandwidth", "50M"]).succeeded();
    let shown = |cluster: &Cluster| cluster.tepal(&["volume", "show", "v"]).succeeded();
    assert!(
        shown(&cluster).contains("at most 500 requests a second, 5000 at once; 50M/s, 5M at once"),
        "{}",
        shown(&cluster)
    );
    cluster.tepal(&["volume", "limit", "v", "--bandwidth", "none"]).succeeded();
    cluster.kill();
    cluster.start();
    let limits = &cluster.volume("v")["limits"];
    assert_eq!(limits["iops"], serde_json::json!({"per_second": 500, "burst": 5000}), "{limits}");
    assert!(limits["bandwidth"].is_null(), "{limits}");
    let events = cluster.tepal(&["sql", "select text from events where subject = 'v'"]).succeeded();
    assert!(events.contains("limited to 500 requests a second, 5000 at once"), "{events}");
}

#[test]
fn limits_in_a_file_are_set_once_and_others_stay() {
    let cluster = with_volume();
    cluster.tepal(&["volume", "limit", "v", "--bandwidth", "50M"]).succeeded();
    let file = cluster.folder().join("wanted.toml");
    let apply = |text: &str| {
        std::fs::write(&file, text).expect("space");
        cluster.tepal(&["apply", file.to_str().expect("text")])
    };
    let wanted = "[[volume]]\nname = \"v\"\nsize = \"16M\"\niops = 2000\n\n[[volume]]\nname = \"new\"\nsize = \"4M\"\n\
                  bandwidth = \"20M\"\nbandwidth_burst = \"40M\"\n";
    apply(wanted).succeeded();
    let limits = |name: &str| cluster.volume(name)["limits"].clone();
    assert_eq!(
        (&limits("v")["iops"]["per_second"], &limits("v")["bandwidth"]["per_second"]),
        (&2000.into(), &(50 << 20).into())
    );
    assert_eq!(limits("new")["bandwidth"], serde_json::json!({"per_second": 20 << 20, "burst": 40 << 20}));
    let again = cluster.ask(&["apply", file.to_str().expect("text")]);
    assert_eq!(again["steps"], serde_json::json!([]), "it is so already");
    let burst = apply("[[volume]]\nname = \"v\"\nsize = \"16M\"\niops_burst = 9\n");
    assert!(!burst.status.success() && format!("{burst}").contains("iops_burst"), "{burst}");
}

#[test]
fn limits_that_make_no_sense_are_refused() {
    let cluster = with_volume();
    for (arguments, status) in [
        (&["--iops", "0"][..], 2),
        (&["--iops", "fast"], 2),
        (&["--bandwidth", "9223372036854775807"], 1),
        (&["--iops-burst", "7"], 1),
        (&["--connections", "7"], 2),
    ] {
        let said = cluster.tepal(&[&["volume", "limit", "v"], arguments].concat());
        assert_eq!(said.status.code(), Some(status), "{said}");
    }
    cluster.tepal(&["volume", "limit", "nothing", "--iops", "7"]).refused(1);
    assert!(cluster.volume("v")["limits"].is_null());
}

#[test]
fn an_identity_is_held_to_its_requests_and_connections() {
    need!("qemu-io", "qemu-nbd", "nbdinfo");
    let cluster = cluster();
    let folder = identity(&cluster, "web", &[]);
    let address = tcp(&cluster);
    let door = Door { address: &address, identity: &folder };
    program::until("the server to have a certificate", Duration::from_secs(30), || door.list().ok());
    for volume in ["v", "w"] {
        cluster.tepal(&["volume", "grant", volume, "write", "web"]).succeeded();
    }
    cluster.tepal(&["identity", "limit", "web", "--iops", "10", "--iops-burst", "1", "--connections", "1"]).succeeded();
    let through = door.through_qemu("v", cluster.folder().join("through.sock"));
    let mut connection = through.connect();
    connection.write(0, &[3; 4096]).expect("granted");
    let refused = door.io("w", &["-r"], &["read 0 4k"]);
    assert!(format!("{refused}").contains("has 1 connections to this server already"), "{refused}");
    let began = Instant::now();
    for _ in 0..20 {
        connection.read(0, 4096).expect("read");
    }
    assert!(began.elapsed() >= Duration::from_millis(1900), "20 requests at 10 a second: {:?}", began.elapsed());
    let own = Instant::now();
    let mut direct = cluster.connect("v");
    for _ in 0..20 {
        direct.read(0, 4096).expect("read");
    }
    assert!(own.elapsed() < began.elapsed(), "others aren't held to it");
    let listed = cluster.ask(&["identity", "ls"]);
    let web = listed.as_array().and_then(|all| all.iter().find(|one| one["name"] == "web")).expect("it's listed");
    assert_eq!(web["limits"]["connections"], 1, "{listed}");
    drop((connection, through));
    cluster.tepal(&["identity", "revoke", "web"]).succeeded();
    cluster.tepal(&["identity", "limit", "web", "--iops", "7"]).refused(1);
}
