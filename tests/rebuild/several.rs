//! Several servers, all without data folders.

use crate::nbd::{Nbd, noise};
use crate::program;
use crate::servers::gateway;
use crate::servers::ring::Ring;
use serde_json::Value;
use std::fs;

pub fn lose_folders(ring: &Ring) {
    for server in 1..=ring.servers {
        for entry in fs::read_dir(ring.data(server)).expect("a folder").map(Result::unwrap) {
            let name = entry.file_name().to_string_lossy().into_owned();
            if !name.starts_with("drive") && name != "log" && entry.file_type().unwrap().is_file() {
                fs::remove_file(entry.path()).expect("ours");
            }
        }
    }
}

pub fn rebuild(ring: &Ring, more: &[&str]) -> Value {
    let arguments = [&["-o", "json", "cluster", "rebuild", "--from-drives"], more].concat();
    let said = program::run(&mut ring.command(&arguments)).succeeded();
    serde_json::from_str(&said).expect("JSON")
}

#[test]
fn three_servers_come_back_from_their_drives_two_of_which_have_changed_places_and_one_may_be_killed_then() {
    let ring = gateway::up(3, "16M");
    let (old, new) = (noise(1, 8 << 20), noise(2, 1 << 20));
    ring.connect(1, "v").write_through(0, &old).expect("written");
    ring.ask(2, &["snapshot", "create", "v@a"]).succeeded();
    ring.connect(3, "v").write_through(1 << 20, &new).expect("written");
    let view = ring.json(1, &["status"])["view"].as_u64().expect("a number");
    // The gateway stays: its clients, its token and what it knows are of before.
    let mut client = Nbd::open(&ring.gateway(), "v").expect("served");
    assert!(client.read(1 << 20, 1 << 20).expect("read") == new);
    for server in 1..=3 {
        ring.kill(server);
    }
    lose_folders(&ring);
    let drives = [2, 3].map(|server| ring.data(server).join("drive0"));
    let aside = ring.scratch_file("aside");
    fs::rename(&drives[0], &aside).unwrap();
    fs::rename(&drives[1], &drives[0]).unwrap();
    fs::rename(&aside, &drives[1]).unwrap();

    let dry = rebuild(&ring, &["--dry-run"]);
    assert!(dry["view"].as_u64() >= Some(view) && dry["drives"].as_array().map(Vec::len) == Some(3), "{dry}");
    let done = rebuild(&ring, &[]);
    assert_eq!((&done["done"], &done["server"]), (&true.into(), &"s1".into()), "{done}");
    ring.dev(&["up", "--detach"]).succeeded();
    ring.wait_until_all_are_up(2);
    ring.wait_until_drives_are_up(3);
    ring.wait_until_healthy(1, "v");
    let mut expected = old.clone();
    expected[1 << 20..2 << 20].copy_from_slice(&new);
    for server in 1..=3 {
        assert!(ring.connect(server, "v").read(0, 8 << 20).expect("read") == expected, "through s{server}");
    }
    assert!(ring.connect(2, "v@a").read(0, 8 << 20).expect("read") == old);
    // Who was a client all along goes on.
    client.write_through(9 << 20, &new).expect("the gateway finds them again");
    assert!(client.read(1 << 20, 1 << 20).expect("read") == new);
    expected = client.read(0, 16 << 20).expect("read");
    let listed = ring.json(1, &["drive", "ls"]);
    let mut servers: Vec<&str> =
        listed.as_array().unwrap().iter().filter_map(|drive| drive["server"].as_str()).collect();
    servers.sort_unstable();
    assert_eq!(servers, ["s1", "s2", "s3"], "{listed}");
    // It survives what it did before.
    ring.kill(2);
    let mut other = Nbd::open(&ring.gateway(), "v").expect("served");
    other.write_through(10 << 20, &new).expect("written");
    expected[10 << 20..11 << 20].copy_from_slice(&new);
    assert!(other.read(0, 16 << 20).expect("read") == expected);
    ring.start(&[2]);
    ring.wait_until_all_are_up(1);
    ring.wait_until_healthy(1, "v");
    ring.ask(1, &["volume", "scrub", "v"]).succeeded();
    ring.ask(3, &["snapshot", "create", "v@b"]).succeeded();
    assert!(ring.connect(2, "v@b").read(0, 16 << 20).expect("read") == expected);
}

#[test]
fn a_cluster_of_which_one_server_has_its_folder_yet_is_not_rebuilt() {
    let ring = gateway::up(2, "8M");
    ring.kill(1);
    ring.kill(2);
    let folder = ring.data(1);
    for name in ["raft.db", "cluster.db"] {
        fs::remove_file(folder.join(name)).expect("it was there");
    }
    let refused = program::run(&mut ring.command(&["cluster", "rebuild", "--from-drives"])).refused(1);
    assert!(refused.contains("s2") && refused.contains("still has its part"), "{refused}");
}

/// Story: `dev up` made a new, empty cluster beside the drives of the old one, and all that it said of them was how to wipe them.
/// And one file that was no drive kept the cluster from being rebuilt.
#[test]
fn what_has_lost_its_state_is_not_made_anew_and_what_is_no_drive_is_passed_over_by_name() {
    let ring = gateway::up(2, "8M");
    ring.connect(1, "v").write_through(0, &noise(1, 1 << 20)).expect("written");
    ring.kill(1);
    ring.kill(2);
    lose_folders(&ring);
    for command in [&["up", "--detach"][..], &["start", "s1"], &["tour"]] {
        let refused = ring.dev(command).refused(1);
        assert!(refused.contains("cluster rebuild --from-drives"), "{command:?}: {refused}");
    }
    let strange = ring.data(1).join("drive9");
    fs::write(&strange, noise(2, 1 << 20)).expect("space");
    let report = rebuild(&ring, &[]);
    let told = format!("passed over: {}", strange.display());
    let notes = report["notes"].as_array().expect("a list").iter();
    assert!(notes.filter_map(Value::as_str).any(|note| note.starts_with(&told)), "{report}");
    ring.dev(&["up", "--detach"]).succeeded();
    assert!(ring.connect(2, "v").read(0, 1 << 20).expect("read") == noise(1, 1 << 20));
}
