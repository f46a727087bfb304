//! A replica takes the source's place, and the source the replica's.

use super::{MIB, Pair, SOON, ask, fill, token};
use crate::nbd::noise;
use crate::program;
use crate::transfers::bytes;

#[test]
fn clients_only_read_a_replica() {
    let pair = Pair::with_volume("32M", 4 * MIB);
    pair.once(&[]);
    let mut disk = pair.there.connect("v");
    for refused in [disk.write(0, &[1; 4096]), disk.trim(0, 4096), disk.write_zeroes(0, 4096)] {
        assert!(refused.is_err(), "{refused:?}");
    }
    drop(disk);
    let newest = format!("v@{}", pair.newest());
    for arguments in [
        &["volume", "resize", "v", "64M"][..],
        &["snapshot", "rollback", &newest],
        &["snapshot", "rm", &newest],
        &["snapshot", "rename", &newest, "other"],
    ] {
        let error = pair.there.tepal(arguments).refused(1);
        assert!(
            error.contains("is a replica of volume 'v' of") && error.contains("tepal replicate promote v"),
            "{error}"
        );
    }
    pair.there.tepal(&["volume", "clone", &newest, "tried"]).succeeded();
    pair.there.connect("tried").write(0, &[1; 4096]).expect("a clone is an ordinary volume");
    fill(&pair.here, 0, 2, MIB);
    pair.once(&[]);
    pair.is_equal();
}

#[test]
fn a_promoted_replica_takes_writes_and_nothing_is_sent_to_it() {
    let pair = Pair::with_volume("32M", 4 * MIB);
    pair.once(&[]);
    let kept = bytes(&pair.there, &format!("v@{}", pair.newest()));
    let said = pair.there.tepal(&["replicate", "promote", "v"]).succeeded();
    assert!(said.contains("takes writes") && said.contains("s ago"), "{said}");
    assert!(bytes(&pair.there, "v") == kept);
    fill(&pair.there, 0, 5, MIB);
    fill(&pair.here, 0, 6, MIB);
    let error = pair.refused(&[]);
    assert!(error.contains("was promoted") && error.contains("tepal replicate demote v --source"), "{error}");
    assert!(bytes(&pair.there, "v")[..MIB] == noise(5, MIB));
    let again = pair.there.tepal(&["replicate", "promote", "v"]).refused(1);
    assert!(again.contains("isn't a replica"), "{again}");
}

#[test]
fn a_half_received_round_is_given_up_by_a_promotion() {
    let pair = Pair::with_volume("128M", 4 * MIB);
    pair.once(&[]);
    let kept = bytes(&pair.there, &format!("v@{}", pair.newest()));
    fill(&pair.here, 0, 2, 96 * MIB);
    let replication = pair.start(&["--rate", "8M"]);
    pair.wait_until_there(24 * MIB);
    let error = pair.there.tepal(&["replicate", "promote", "v"]).refused(1);
    assert!(error.contains("in use") && error.contains("--force"), "{error}");
    let said = pair.there.tepal(&["replicate", "promote", "v", "--force"]).succeeded();
    assert!(said.contains("were given up"), "{said}");
    assert!(bytes(&pair.there, "v") == kept);
    program::stays("what was promoted", std::time::Duration::from_secs(3), || bytes(&pair.there, "v") == kept);
    replication.kill();
}

#[test]
fn failing_over_and_back_sends_only_what_differs() {
    let pair = Pair::with_volume("128M", 64 * MIB);
    pair.once(&[]);
    pair.there.tepal(&["replicate", "promote", "v"]).succeeded();
    fill(&pair.there, 8 * MIB, 7, MIB);
    // The old source was written to after its last snapshot.
    pair.here.connect("v").write(0, &[9; 8192]).expect("written");
    let lost = bytes(&pair.here, "v");
    let demote = ["replicate", "demote", "v", "--source", &pair.to_there.address];
    let error = ask(&pair.here, &pair.there, &demote).refused(1);
    assert!(error.contains("has 8K that volume") && error.contains("--discard"), "{error}");
    assert!(bytes(&pair.here, "v") == lost, "it stays as it is");
    pair.here.connect("v").write(4096, &[8; 512]).expect("and takes writes");
    let said = ask(&pair.here, &pair.there, &[&demote[..], &["--discard"]].concat()).succeeded();
    assert!(said.contains("is a replica of volume 'v' of") && said.contains("8K"), "{said}");
    let before = pair.to_here.bytes();
    let back = ask(&pair.there, &pair.here, &["-o", "json", "replicate", "v", &pair.to_here.address, "--once"]);
    let back: serde_json::Value = serde_json::from_str(&back.succeeded()).expect("JSON");
    assert!(pair.to_here.bytes() - before < 4 * MIB as u64, "{back}");
    assert!(bytes(&pair.here, "v") == bytes(&pair.there, "v"));
    // And over again, in the direction of before.
    pair.here.tepal(&["replicate", "promote", "v"]).succeeded();
    let source = ["replicate", "demote", "v", "--source", &pair.to_here.address];
    ask(&pair.there, &pair.here, &source).succeeded();
    fill(&pair.here, 0, 12, MIB);
    let said = pair.once(&[]);
    assert!(said[0]["sent_bytes"].as_u64() < Some(2 * MIB as u64), "{said:?}");
    pair.is_equal();
}

#[test]
fn a_volume_written_as_it_was_is_demoted_and_followed() {
    let pair = Pair::with_volume("32M", 4 * MIB);
    pair.once(&[]);
    pair.there.tepal(&["replicate", "promote", "v"]).succeeded();
    // The same bytes, which count as written though they differ in nothing.
    fill(&pair.here, 0, 1, MIB);
    ask(&pair.here, &pair.there, &["replicate", "demote", "v", "--source", &pair.to_there.address]).succeeded();
    fill(&pair.there, MIB, 5, MIB);
    ask(&pair.there, &pair.here, &["replicate", "v", &pair.to_here.address, "--once"]).succeeded();
    assert!(bytes(&pair.here, "v") == bytes(&pair.there, "v"));
}

#[test]
fn without_a_common_snapshot_a_replica_stays_as_it_is() {
    let pair = Pair::with_volume("32M", 4 * MIB);
    pair.once(&[]);
    let newest = format!("v@{}", pair.newest());
    let kept = bytes(&pair.there, &newest);
    pair.here.tepal(&["snapshot", "rm", &newest]).succeeded();
    fill(&pair.here, 0, 5, MIB);
    for _ in 0..2 {
        let error = pair.refused(&[]);
        assert!(error.contains("no snapshot in common"), "{error}");
        assert!(bytes(&pair.there, &newest) == kept && bytes(&pair.there, "v") == kept);
    }
}

#[test]
fn of_two_replications_the_second_is_refused() {
    let pair = Pair::with_volume("128M", 96 * MIB);
    let first = pair.start(&["--rate", "6M"]);
    pair.wait_until_there(MIB);
    let error = pair.refused(&[]);
    assert!(error.contains("written to by another replication"), "{error}");
    assert!(pair.there.volume("v")["imports"] == 1, "the first goes on");
    first.kill();
}

#[test]
fn what_is_there_already_is_not_taken_for_a_replica() {
    let pair = Pair::with_volume("32M", MIB);
    pair.there.create("v", "32M", "stripe");
    fill(&pair.there, 0, 3, MIB);
    let error = pair.refused(&[]);
    assert!(error.contains("is there already") && error.contains("--as"), "{error}");
    assert!(bytes(&pair.there, "v")[..MIB] == noise(3, MIB));
    pair.once(&["--as", "w"]);
    let table = pair.there.tepal(&["replicate", "ls"]).succeeded();
    assert!(table.contains('w'), "{table}");
    let error = ask(&pair.here, &pair.there, &["replicate", "demote", "v", "--source", &pair.to_there.address]);
    let error = error.refused(1);
    assert!(error.contains("have no snapshot in common"), "{error}");
    let wrong = program::run_within(pair.command(&["--once"]).env("TEPAL_TO_TOKEN", token(&pair.here)), SOON);
    assert_eq!(wrong.status.code(), Some(1), "{wrong}");
}
