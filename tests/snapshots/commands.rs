//! `tepal snapshot`, and what is said of what makes no sense.

use crate::cluster::{Media, Plan};
use crate::nbd::{BLOCK, Nbd, noise};
use serde_json::{Value, json};

fn names(listed: &Value) -> Vec<&str> {
    listed.as_array().expect("a list").iter().filter_map(|snapshot| snapshot["name"].as_str()).collect()
}

#[test]
fn a_snapshot_is_made_listed_renamed_rolled_back_to_and_removed() {
    let mut cluster = Plan { media: Media::Files, ..Plan::default() }.up();
    cluster.create("v0", "4M", "mirror:2");
    cluster.create("v1", "4M", "stripe");
    let (old, new) = (noise(1, 1 << 20), noise(2, 1 << 20));
    cluster.connect("v0").write(0, &old).expect("written");
    let made = cluster.ask(&["snapshot", "create", "v0@a"]);
    assert_eq!((&made["name"], &made["volume"], &made["size"]), (&json!("a"), &json!("v0"), &json!(4 << 20)));
    cluster.connect("v0").write(4096, &new).expect("written");
    cluster.tepal(&["snapshot", "create", "v0@b"]).succeeded();
    cluster.tepal(&["snapshot", "create", "v1@a"]).succeeded();
    assert_eq!(names(&cluster.ask(&["snapshot", "ls"])), ["a", "b", "a"]);
    assert_eq!(names(&cluster.ask(&["snapshot", "ls", "v0"])), ["a", "b"]);
    let volume = cluster.volume("v0");
    assert_eq!(names(&volume["snapshots"]), ["a", "b"]);
    assert!(volume["snapshots"][0]["created_unix_ms"].as_u64() > Some(1 << 40), "{volume}");
    assert_eq!(volume["epoch"], 3);
    assert_eq!(cluster.ask(&["snapshot", "show", "v0@b"])["epoch"], 2);
    let table = cluster.tepal(&["snapshot", "ls"]).succeeded();
    assert!(table.starts_with("NAME ") && table.contains("v0@a") && table.contains("v1@a"), "{table}");

    cluster.tepal(&["snapshot", "rename", "v0@a", "first"]).succeeded();
    cluster.tepal(&["volume", "rename", "v0", "w"]).succeeded();
    cluster.tepal(&["volume", "resize", "w", "8M"]).succeeded();
    // It's of the volume as it was, also in its size.
    assert_eq!(cluster.connect("w@first").size, 4 << 20);
    cluster.kill();
    cluster.start();
    assert!(cluster.connect("w@first").read(0, 1 << 20).expect("read") == old);
    cluster.tepal(&["snapshot", "rollback", "w@first"]).succeeded();
    let mut volume = cluster.connect("w");
    assert_eq!(volume.size, 4 << 20);
    assert!(volume.read(0, 1 << 20).expect("read") == old);
    assert!(volume.read(1 << 20, 4096).expect("read").iter().all(|byte| *byte == 0));
    assert!(cluster.connect("w@b").read(4096, 1 << 20).expect("read") == new, "all snapshots stay");
    drop(volume);

    cluster.tepal(&["snapshot", "rm", "w@first"]).succeeded();
    assert_eq!(names(&cluster.ask(&["snapshot", "ls", "w"])), ["b"]);
    assert!(cluster.connect("w").read(0, 1 << 20).expect("read") == old, "the volume doesn't need it");
    let refused = cluster.tepal(&["volume", "rm", "w"]).refused(1);
    assert!(refused.contains("1 snapshot") && refused.contains("`tepal volume rm w --snapshots`"), "{refused}");
    cluster.tepal(&["volume", "rm", "w", "--snapshots"]).succeeded();
    assert_eq!(names(&cluster.ask(&["snapshot", "ls"])), ["a"]);
    cluster.scrub_finds_nothing("v1");
    cluster.stop_and_check_drives();
}

#[test]
fn what_makes_no_sense_is_refused_by_name_and_changes_nothing() {
    let cluster = Plan { drives: 2, ..Plan::default() }.up();
    cluster.create("v0", "4M", "mirror:2");
    cluster.create("v1", "4M", "mirror:2");
    ["v0@a", "v0@b", "v1@a"].iter().for_each(|name| drop(cluster.tepal(&["snapshot", "create", name]).succeeded()));
    let before = cluster.ask(&["snapshot", "ls"]);
    let long = "a".repeat(1000);
    let [long_volume, long_snapshot] = [format!("{long}@a"), format!("v0@{long}")];
    let cases: Vec<(i32, Vec<&str>, &str)> = vec![
        (2, vec!["snapshot"], "missing"),
        (2, vec!["snapshot", "create"], "VOLUME@SNAP"),
        (2, vec!["snapshot", "create", "v0"], "VOLUME@SNAP"),
        (2, vec!["snapshot", "create", ""], "VOLUME@SNAP"),
        (2, vec!["snapshot", "create", "@"], "not a name"),
        (2, vec!["snapshot", "create", "v0@"], "not a name"),
        (2, vec!["snapshot", "create", "@a"], "not a name"),
        (2, vec!["snapshot", "create", "v0@a@b"], "'a@b' is not a name"),
        (2, vec!["snapshot", "create", "v0@../x"], "not a name"),
        (2, vec!["snapshot", "create", "v0@a b"], "not a name"),
        (2, vec!["snapshot", "create", "v0@a\nb"], "not a name"),
        (2, vec!["snapshot", "create", &long_volume], "not a name"),
        (2, vec!["snapshot", "create", &long_snapshot], "not a name"),
        (1, vec!["snapshot", "create", "v0@a"], "volume 'v0' has a snapshot 'a' already"),
        (1, vec!["snapshot", "create", "x@a"], "no volume 'x'"),
        (1, vec!["snapshot", "ls", "x"], "no volume 'x'"),
        (2, vec!["snapshot", "ls", "v0@a"], "not a name"),
        (1, vec!["snapshot", "show", "v0@x"], "no snapshot 'x' of volume 'v0'"),
        (1, vec!["snapshot", "rm", "v0@x"], "no snapshot 'x' of volume 'v0'"),
        (1, vec!["snapshot", "rm", "x@a", "--force"], "no volume 'x'"),
        (1, vec!["snapshot", "rollback", "v0@x"], "no snapshot 'x' of volume 'v0'"),
        (1, vec!["snapshot", "rename", "v0@a", "b"], "volume 'v0' has a snapshot 'b' already"),
        (1, vec!["snapshot", "rename", "v0@x", "y"], "no snapshot 'x' of volume 'v0'"),
        (2, vec!["snapshot", "rename", "v0@a", "v0@c"], "not a name"),
        (1, vec!["snapshot", "diff", "v0@x"], "no snapshot 'x' of volume 'v0'"),
        (1, vec!["snapshot", "diff", "v0@a", "v0@x"], "no snapshot 'x' of volume 'v0'"),
        (1, vec!["snapshot", "diff", "v0@a", "v1@a"], "different volumes"),
        (2, vec!["snapshot", "diff", "v0", "v0@a"], "VOLUME@SNAP"),
        (1, vec!["volume", "export", "v0@x"], "no snapshot 'x' of volume 'v0'"),
        (1, vec!["volume", "export", "v0", "--since", "x"], "no snapshot 'x' of volume 'v0'"),
        (2, vec!["volume", "export", "v0", "--since", "v0@a"], "not a name"),
        (2, vec!["volume", "show", "v0@a"], "not a name"),
        (1, vec!["volume", "rm", "v0"], "2 snapshots"),
        (2, vec!["attach", "v0@"], "not a name"),
    ];
    for (status, arguments, said) in cases {
        let line = cluster.tepal(&arguments).refused(status);
        assert!(line.len() < 1000 && line.contains(said), "{arguments:?}: {line}");
    }
    assert_eq!(cluster.ask(&["snapshot", "ls"]), before);
    for export in ["v0@x", "x@a", "v0@", "v0@a@b", "id:1@9", "id:9@1", "id:1@a", &long_snapshot] {
        let error = Nbd::open(&cluster.address(), export).err().expect("no such export").to_string();
        assert!(error.contains("there is no "), "{export}: {error}");
    }
}

#[test]
fn what_a_client_uses_is_rolled_back_and_removed_by_force_only() {
    let cluster = Plan { drives: 2, ..Plan::default() }.up();
    cluster.create("v0", "1M", "mirror:2");
    cluster.tepal(&["snapshot", "create", "v0@a"]).succeeded();
    let mut writer = cluster.connect("v0");
    writer.write(0, &[7; BLOCK]).expect("written");
    let refused = cluster.tepal(&["snapshot", "rollback", "v0@a"]).refused(1);
    assert!(refused.contains("volume 'v0' is in use, a client is connected"), "{refused}");
    assert_eq!(writer.read(0, BLOCK as u32).expect("read"), [7; BLOCK]);
    cluster.tepal(&["snapshot", "rollback", "v0@a", "--force"]).succeeded();
    assert_eq!(writer.read(0, BLOCK as u32).expect("read"), [0; BLOCK]);
    writer.write(0, &[8; BLOCK]).expect("it goes on");
    drop(writer);

    let mut reader = cluster.connect("v0@a");
    let shown = cluster.volume("v0");
    assert_eq!((&shown["clients"], &shown["snapshots"][0]["clients"]), (&json!(0), &json!(1)));
    // Who reads a snapshot doesn't mind what becomes of the volume.
    cluster.tepal(&["snapshot", "rollback", "v0@a"]).succeeded();
    let refused = cluster.tepal(&["snapshot", "rm", "v0@a"]).refused(1);
    assert!(refused.contains("snapshot 'v0@a' is in use") && refused.contains("--force"), "{refused}");
    let refused = cluster.tepal(&["volume", "rm", "v0", "--snapshots"]).refused(1);
    assert!(refused.contains("'v0' is in use, a client is connected"), "{refused}");
    reader.read(0, BLOCK as u32).expect("it is still there");
    cluster.tepal(&["snapshot", "rm", "v0@a", "--force"]).succeeded();
    crate::program::until("the reader to get errors", crate::program::LIMIT, || {
        reader.read(0, BLOCK as u32).is_err().then_some(())
    });
    assert_eq!(cluster.connect("v0").read(0, BLOCK as u32).expect("read"), [0; BLOCK]);
}

#[test]
fn differences_are_listed_in_blocks_and_zeros_apart() {
    let cluster = Plan { drives: 2, ..Plan::default() }.up();
    cluster.create("v0", "8M", "mirror:2");
    let mut volume = cluster.connect("v0");
    volume.write(0, &noise(3, 4 << 20)).expect("written");
    cluster.tepal(&["snapshot", "create", "v0@a"]).succeeded();
    volume.write(10_000, &[1]).expect("written");
    volume.write(3 << 20, &noise(4, 65_536)).expect("written");
    volume.write(0, &noise(3, 4 << 20)[..4096]).expect("the same as before");
    volume.trim(1 << 20, 65_536).expect("trimmed");
    cluster.tepal(&["snapshot", "create", "v0@b"]).succeeded();
    volume.write(5 << 20, &[1; BLOCK]).expect("written");
    let run = |offset: u64, length: u64, kind: &str| json!({ "offset": offset, "length": length, "kind": kind });
    let mut expected = vec![run(8192, 4096, "data"), run(1 << 20, 65_536, "zero"), run(3 << 20, 65_536, "data")];
    assert_eq!(cluster.ask(&["snapshot", "diff", "v0@a", "v0@b"]), json!(expected));
    expected.push(run(5 << 20, 4096, "data"));
    assert_eq!(cluster.ask(&["snapshot", "diff", "v0@a"]), json!(expected));
    assert_eq!(cluster.ask(&["snapshot", "diff", "v0@b", "v0@b"]), json!([]));
    // What one has past the other's end differs where it isn't zero.
    cluster.tepal(&["volume", "resize", "v0", "16M"]).succeeded();
    volume.write(12 << 20, &[1; BLOCK]).expect("written");
    assert_eq!(
        cluster.ask(&["snapshot", "diff", "v0@b"]),
        json!([run(5 << 20, 4096, "data"), run(12 << 20, 4096, "data")])
    );
    // What is past the end of the later one isn't listed, and that is said beside the answer.
    cluster.tepal(&["snapshot", "create", "v0@c"]).succeeded();
    drop(volume);
    cluster.tepal(&["volume", "resize", "v0", "8M", "--shrink"]).succeeded();
    let asked = cluster.tepal(&["-o", "json", "snapshot", "diff", "v0@c"]);
    assert!(asked.stderr.contains("v0 ends at 8M, and v0@c at 16M"), "{asked}");
    assert_eq!(asked.succeeded().trim(), "[]");
    assert_eq!(cluster.tepal(&["snapshot", "diff", "v0@b", "v0@c"]).stderr, "", "nothing is cut off there");
}
