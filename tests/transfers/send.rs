//! Volumes that are sent with their snapshots, and received.

use super::{MIB, Over, Piped, bytes};
use crate::cluster::{Cluster, Plan};
use crate::nbd::noise;

const SNAPSHOTS: [&str; 4] = ["a", "b", "c", "d"];

/// A volume `z` whose snapshots differ by writes, holes, a rollback in between, and in size.
fn with_history() -> Cluster {
    let cluster = Plan::default().up();
    cluster.create("z", "24M", "mirror:2");
    let write = |at: usize, seed: u64, length: usize| {
        cluster.connect("z").write(at as u64, &noise(seed, length)).expect("written");
    };
    let ask = |arguments: &[&str]| drop(cluster.tepal(arguments).succeeded());
    write(0, 1, 3 * MIB);
    write(20 * MIB, 2, MIB);
    ask(&["snapshot", "create", "z@a"]);
    write(MIB, 3, 64 << 10);
    cluster.connect("z").trim(20 << 20, 1 << 20).expect("trimmed");
    ask(&["volume", "resize", "z", "32M"]);
    write(30 * MIB, 4, MIB);
    ask(&["snapshot", "create", "z@b"]);
    ask(&["snapshot", "rollback", "z@a"]);
    write(2 * MIB, 5, 4096);
    ask(&["snapshot", "create", "z@c"]);
    ask(&["volume", "resize", "z", "8M", "--shrink"]);
    write(7 * MIB, 6, 4096);
    ask(&["snapshot", "create", "z@d"]);
    write(0, 7, 4096); // no snapshot has it
    cluster
}

fn sent(cluster: &Cluster, arguments: &[&str]) -> Vec<u8> {
    Piped::start(cluster, &[&["volume", "send"], arguments].concat()).end().succeeded().0
}

fn receive(cluster: &Cluster, arguments: &[&str], stream: &[u8]) -> Over {
    let mut receive = Piped::start(cluster, &[&["volume", "receive"], arguments].concat());
    let _ = receive.feed(stream); // it may have ended
    receive.end()
}

fn snapshots_of(cluster: &Cluster, volume: &str) -> Vec<String> {
    let listed = cluster.ask(&["snapshot", "ls", volume]);
    let listed = listed.as_array().expect("a list").iter();
    listed.map(|snapshot| snapshot["name"].as_str().expect("a name").to_owned()).collect()
}

/// That both have the same in these snapshots, and the other volume has what the last one does.
fn are_equal(one: &Cluster, (other, volume): (&Cluster, &str), snapshots: &[&str]) {
    for snapshot in snapshots {
        let is_equal = bytes(one, &format!("z@{snapshot}")) == bytes(other, &format!("{volume}@{snapshot}"));
        assert!(is_equal, "{volume}@{snapshot}");
    }
    let last = snapshots.last().expect("some");
    assert!(bytes(other, volume) == bytes(one, &format!("z@{last}")), "{volume}");
    assert_eq!(snapshots_of(other, volume), snapshots);
}

#[test]
fn a_received_volume_has_all_snapshots_of_the_one_that_was_sent() {
    let (here, there) = (with_history(), Plan::default().up());
    let stream = sent(&here, &["z"]);
    let (said, _) = receive(&there, &["w", "--layout", "mirror:3"], &stream).succeeded();
    let said = String::from_utf8(said).expect("text");
    assert!(said.contains("volume w holds what z@d did; 4 snapshots are made"), "{said}");
    are_equal(&here, (&there, "w"), &SNAPSHOTS);
    assert_eq!(there.volume("w")["layout"], "mirror:3");

    // And goes on from any of them.
    let first = sent(&here, &["z@b"]);
    receive(&there, &["x"], &first).succeeded();
    are_equal(&here, (&there, "x"), &SNAPSHOTS[..2]);
    let rest = sent(&here, &["z", "--since", "b"]);
    assert!(rest.len() < first.len());
    receive(&there, &["x"], &rest).succeeded();
    are_equal(&here, (&there, "x"), &SNAPSHOTS);
}

#[test]
fn a_broken_stream_is_told_and_gone_on_with_wherever_it_broke() {
    let (here, there) = (with_history(), Plan::default().up());
    let stream = sent(&here, &["z"]);
    // At the beginning, within the first part, near the end, and between some.
    let cuts = [3, 19, 40, MIB, stream.len() - 200_000, stream.len() - 4200, stream.len() - 60, stream.len() - 1];
    for (nth, cut) in cuts.into_iter().enumerate() {
        let name = format!("w{nth}");
        let error = receive(&there, &[&name], &stream[..cut]).failed();
        assert!(error.contains("it was cut short") || error.contains("doesn't begin"), "{cut}: {error}");
        if there.tepal(&["volume", "show", &name]).status.success() {
            let again = receive(&there, &[&name], &stream).failed();
            assert!(again.contains("exists") || again.contains("there is a snapshot"), "{cut}: {again}");
        }
        receive(&there, &[&name, "--resume"], &stream).succeeded();
        are_equal(&here, (&there, &name), &SNAPSHOTS);
        there.tepal(&["volume", "rm", &name, "--snapshots"]).succeeded();
    }
    for at in [9, 15, 100, stream.len() / 2, stream.len() - 3000] {
        let mut damaged = stream.clone();
        damaged[at] ^= 8;
        let error = receive(&there, &["w"], &damaged).failed();
        assert!(error.contains("damaged") || error.contains("format"), "{at}: {error}");
        let _ = there.tepal(&["volume", "rm", "w", "--snapshots"]);
    }
    let longer = receive(&there, &["w"], &[&stream[..], b"x"].concat()).failed();
    assert!(longer.contains("goes on after its end"), "{longer}");
}

/// Story: `receive` was killed when it had written a part and not yet made its snapshot. What it had made wasn't taken for its own then,
/// and nothing was left but to begin anew.
#[test]
fn a_part_without_its_snapshot_is_gone_on_with() {
    let (here, there) = (with_history(), Plan::default().up());
    let stream = sent(&here, &["z"]);
    for last in ["a", "b", "d"] {
        receive(&there, &["w"], &sent(&here, &[&format!("z@{last}")])).succeeded();
        there.tepal(&["snapshot", "rm", &format!("w@{last}")]).succeeded();
        receive(&there, &["w", "--resume"], &stream).succeeded();
        are_equal(&here, (&there, "w"), &SNAPSHOTS);
        there.tepal(&["volume", "rm", "w", "--snapshots"]).succeeded();
    }
    // What was written to since isn't what was received.
    for (last, said) in [("a", "isn't what an earlier"), ("b", "changed since its snapshot 'w@a'")] {
        receive(&there, &["w"], &sent(&here, &[&format!("z@{last}")])).succeeded();
        there.tepal(&["snapshot", "rm", &format!("w@{last}")]).succeeded();
        there.connect("w").write(5 << 20, &noise(9, 4096)).expect("written");
        let error = receive(&there, &["w", "--resume"], &stream).failed();
        assert!(error.contains(said), "{last}: {error}");
        assert!(there.connect("w").read(5 << 20, 4096).expect("there") == noise(9, 4096));
        there.tepal(&["volume", "rm", "w", "--snapshots"]).succeeded();
    }
}

/// Story: a stream that goes on from a snapshot was applied to a volume without that snapshot, with a remark that nothing was checked.
#[test]
fn what_goes_on_from_another_snapshot_is_not_received() {
    let (here, there) = (with_history(), Plan::default().up());
    receive(&there, &["w"], &sent(&here, &["z@a"])).succeeded();
    let before = bytes(&there, "w");
    let rest = sent(&here, &["z", "--since", "b"]);
    let error = receive(&there, &["w"], &rest).failed();
    assert!(error.contains("goes on from snapshot 'w@b', and there is none"), "{error}");
    there.tepal(&["snapshot", "create", "w@b"]).succeeded();
    for arguments in [&["w"][..], &["w", "--resume"]] {
        let error = receive(&there, arguments, &rest).failed();
        assert!(error.contains("snapshot 'w@b' has 25165824 bytes, and the one"), "{error}");
    }
    let error = receive(&there, &["w", "--resume"], &sent(&here, &["z"])).failed();
    assert!(error.contains("it's another one"), "{error}");
    assert!(bytes(&there, "w") == before && snapshots_of(&there, "w") == ["a", "b"]);
}

#[test]
fn what_cannot_be_sent_or_received_is_refused_and_changes_nothing() {
    let (here, there) = (with_history(), Plan::default().up());
    for (arguments, said) in [
        (&["y"][..], "no volume 'y'"),
        (&["z@y"], "no snapshot 'z@y'"),
        (&["z", "--since", "y"], "no snapshot 'z@y'"),
        (&["z@a", "--since", "c"], "no snapshot up to 'z@a' is newer than 'c'"),
    ] {
        let error = Piped::start(&here, &[&["volume", "send"], arguments].concat()).end().failed();
        assert!(error.contains(said), "{arguments:?}: {error}");
    }
    there.create("w", "8M", "stripe");
    let error = Piped::start(&there, &["volume", "send", "w"]).end().failed();
    assert!(error.contains("has no snapshots") && error.contains("snapshot create"), "{error}");
    let (all, some) = (sent(&here, &["z"]), sent(&here, &["z", "--since", "c"]));
    let before = noise(9, 4096);
    there.connect("w").write(0, &before).expect("written");
    for (arguments, stream, said) in [
        (&["w"][..], &all, "exists, and isn't what"),
        (&["w", "--resume"], &all, "exists, and isn't what"),
        (&["y"], &some, "no volume 'y'"),
    ] {
        let error = receive(&there, arguments, stream).failed();
        assert!(error.contains(said), "{arguments:?}: {error}");
    }
    let mut import = Piped::start(&there, &["volume", "import", "w"]);
    let _ = import.feed(&all); // it may have ended
    let error = import.end().failed();
    assert!(error.contains("`tepal volume receive w`"), "{error}");
    assert!(there.connect("w").read(0, 4096).expect("there") == before && snapshots_of(&there, "w").is_empty());
    // Changed since: what was sent is not for it.
    receive(&there, &["x"], &sent(&here, &["z@c"])).succeeded();
    there.connect("x").write(0, &before).expect("written");
    let error = receive(&there, &["x"], &some).failed();
    assert!(error.contains("changed since its snapshot 'x@c'"), "{error}");
}
