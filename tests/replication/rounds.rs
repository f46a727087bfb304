//! Rounds: each leaves the replica with a snapshot that is the source's.

use super::{LONG, MIB, Pair, fill};
use crate::nbd::{Ledger, Writer};
use crate::program;
use crate::transfers::bytes;
use std::time::Duration;

#[test]
fn each_round_gives_the_replica_the_sources_snapshot() {
    let pair = Pair::with_volume("64M", 24 * MIB);
    let first = pair.once(&["--layout", "mirror:2"]);
    assert_eq!(
        (first.len(), &first[0]["changed"], &first[0]["resumed"]),
        (1, &true.into(), &false.into()),
        "{first:?}"
    );
    assert!(first[0]["sent_bytes"].as_u64() >= Some(24 * MIB as u64), "{first:?}");
    pair.is_equal();
    assert_eq!(pair.there.volume("v")["layout"], "mirror:2");
    let mut disk = pair.here.connect("v");
    disk.write(5 * MIB as u64 + 512, &[7; 3000]).expect("written");
    disk.trim(8 << 20, 4 << 20).expect("trimmed");
    drop(disk);
    let second = pair.once(&[]);
    assert!(second[0]["sent_bytes"].as_u64() < Some(MIB as u64), "only what has changed: {second:?}");
    pair.is_equal();
    for size in ["96M", "16M", "32M"] {
        pair.here.tepal(&["volume", "resize", "v", size, "--shrink"]).succeeded();
        fill(&pair.here, 15 * MIB, 3, MIB);
        pair.once(&[]);
        pair.is_equal();
        assert_eq!(pair.there.volume("v")["size"], pair.here.volume("v")["size"]);
    }
    // A rollback at the source is a change like any other.
    pair.here.tepal(&["snapshot", "create", "v@mine"]).succeeded();
    fill(&pair.here, 0, 4, MIB);
    pair.once(&[]);
    pair.here.tepal(&["snapshot", "rollback", "v@mine"]).succeeded();
    pair.once(&[]);
    pair.is_equal();
    assert!(bytes(&pair.there, &format!("v@{}", pair.newest())) == bytes(&pair.here, "v@mine"));
    let left = pair.here.ask(&["snapshot", "ls", "v"]).as_array().map(Vec::len);
    assert_eq!((left, pair.there.ask(&["snapshot", "ls", "v"]).as_array().map(Vec::len)), (Some(2), Some(1)));
}

#[test]
fn snapshots_of_a_volume_under_writes_arrive_as_they_are() {
    let pair = Pair::with_volume("64M", 0);
    let writer = Writer::start(pair.here.address(), "v", Ledger::new(11, 4096));
    let replication = pair.start(&["--every", "400ms", "--keep", "4"]);
    let many = || {
        let listed = pair.there.tepal(&["-o", "json", "snapshot", "ls", "v"]);
        let listed: serde_json::Value = serde_json::from_slice(&listed.stdout).ok()?;
        (listed.as_array()?.len() >= 5).then(|| listed.clone())
    };
    program::until("several rounds", LONG, many);
    replication.kill();
    writer.finish();
    let both = |cluster: &crate::cluster::Cluster| -> Vec<String> {
        let listed = cluster.ask(&["snapshot", "ls", "v"]);
        listed.as_array().expect("a list").iter().map(|it| it["name"].as_str().expect("a name").to_owned()).collect()
    };
    let (here, there) = (both(&pair.here), both(&pair.there));
    let common: Vec<&String> = there.iter().filter(|name| here.contains(name)).collect();
    assert!(common.len() >= 4, "{here:?} {there:?}");
    for name in common {
        let name = format!("v@{name}");
        assert!(bytes(&pair.here, &name) == bytes(&pair.there, &name), "{name}");
    }
}

#[test]
fn how_far_behind_a_replica_is_shows_on_both_sides() {
    let pair = Pair::with_volume("64M", 8 * MIB);
    let replication = pair.start(&["--every", "1h"]);
    let row = |cluster: &crate::cluster::Cluster, role: &str| {
        let rows = cluster.ask(&["replicate", "ls"]);
        rows.as_array().expect("a list").iter().find(|row| row["role"] == role).cloned()
    };
    program::until("the first round to end", LONG, || {
        row(&pair.there, "replica").filter(|row| row["lag_seconds"].is_u64() && row["round"].is_null())
    });
    std::thread::sleep(Duration::from_secs(2));
    fill(&pair.here, 0, 9, 2 * MIB);
    let behind = program::until("the lag to show", LONG, || {
        row(&pair.here, "source").filter(|row| row["lag_bytes"].as_u64() >= Some(2 * MIB as u64))
    });
    assert!(behind["lag_seconds"].as_u64() >= Some(2) && behind["error"].is_null(), "{behind}");
    let table = pair.there.tepal(&["replicate", "ls"]).succeeded();
    assert!(table.contains("replica of") && table.contains("volume 'v' of cluster"), "{table}");
    replication.kill();
}
