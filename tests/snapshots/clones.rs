//! Clones: volumes that begin with what a snapshot holds, and go on by themselves.

use crate::cluster::{Media, Plan};
use crate::nbd::{BLOCK, Nbd, noise};
use crate::program;
use crate::servers::gateway;
use serde_json::json;
use std::time::Duration;

const SOON: Duration = Duration::from_secs(60);

#[test]
fn a_clone_and_its_origin_are_written_to_through_any_server_and_neither_sees_what_the_other_does() {
    let ring = gateway::up(3, "4M");
    let old = noise(1, 4 << 20);
    ring.connect(1, "v").write(0, &old).expect("written");
    ring.ask(2, &["snapshot", "create", "v@a"]).succeeded();
    ring.connect(3, "v").write(0, &noise(2, 1 << 20)).expect("written");
    let made = ring.json(1, &["volume", "clone", "v@a", "c"]);
    assert_eq!((&made["name"], &made["size"], &made["origin"]), (&json!("c"), &json!(4 << 20), &json!("v@a")));
    let addresses = || (1..=3).map(|server| ring.address(server)).chain([ring.gateway()]);
    for address in addresses() {
        let mut clone = Nbd::open(&address, "c").expect("every server and gateway serves it");
        assert!(clone.read(0, 4 << 20).expect("read") == old, "{address:?}");
    }
    let [of_origin, of_clone] = [noise(3, 1 << 20), noise(4, 1 << 20)];
    for (nth, address) in addresses().enumerate() {
        let at = 1 << 20;
        // Not whole blocks: the rest is merged from what each of them sees.
        let (mut origin, mut clone) = (Nbd::open(&address, "v").unwrap(), Nbd::open(&address, "c").unwrap());
        origin.write(at + 5, &of_origin[..100_000 + nth]).expect("written");
        clone.write(at + 70_001, &of_clone[..100_000 + nth]).expect("written");
        clone.trim(3 << 20, 1 << 20).expect("trimmed");
        let (origin, clone) = (origin.read(at, 1 << 20).expect("read"), clone.read(at, 1 << 20).expect("read"));
        let begun = &old[at as usize..][..1 << 20];
        assert!(origin[5..100_005 + nth] == of_origin[..100_000 + nth] && origin[..5] == begun[..5]);
        assert!(origin[100_005 + nth..] == begun[100_005 + nth..], "{address:?} shows the origin what is the clone's");
        assert!(clone[70_001..170_001 + nth] == of_clone[..100_000 + nth] && clone[..70_001] == begun[..70_001]);
        assert!(clone[170_001 + nth..] == begun[170_001 + nth..]);
    }
    assert!(ring.connect(2, "v").read(3 << 20, 1 << 20).expect("read") == old[3 << 20..], "only the clone was trimmed");
    assert!(ring.connect(2, "v@a").read(0, 4 << 20).expect("read") == old);
}

#[test]
fn an_origin_is_removed_while_its_clone_is_in_use_and_all_are_restarted() {
    let ring = gateway::up(3, "4M");
    let old = noise(1, 4 << 20);
    ring.connect(1, "v").write(0, &old).expect("written");
    ring.ask(1, &["snapshot", "create", "v@a"]).succeeded();
    ring.ask(2, &["volume", "clone", "v@a", "c"]).succeeded();
    ring.ask(3, &["snapshot", "create", "c@b"]).succeeded();
    ring.ask(3, &["volume", "clone", "c@b", "d"]).succeeded();
    let mut clones = [ring.connect(2, "c"), Nbd::open(&ring.gateway(), "c").expect("it's there")];
    let new = noise(2, 1 << 20);
    clones[0].write(0, &new).expect("written");
    let mut origin = ring.connect(1, "v");
    let refused = ring.ask(1, &["volume", "rm", "v"]).refused(1);
    assert!(refused.contains("in use") || refused.contains("1 snapshot"), "{refused}");
    ring.ask(1, &["volume", "rm", "v", "--snapshots", "--force"]).succeeded();
    program::until("users of the origin to get errors", SOON, || origin.read(0, BLOCK as u32).is_err().then_some(()));
    for clone in &mut clones {
        assert!(clone.read(0, 1 << 20).expect("read") == new);
        assert!(clone.read(1 << 20, 3 << 20).expect("read") == old[1 << 20..], "the origin isn't needed");
    }
    clones[1].write(2 << 20, &new).expect("written");
    assert_eq!(ring.json(3, &["volume", "show", "c"])["origin"], json!(null), "nobody knows it any more");
    drop(clones);
    (1..=3).for_each(|server| ring.kill(server));
    ring.start(&[1, 2, 3]);
    let expected = [&new, &old[1 << 20..2 << 20], &new, &old[3 << 20..]].concat();
    for server in 1..=3 {
        let clone = || Nbd::open(&ring.address(server), "c").ok()?.read(0, 4 << 20).ok();
        assert!(program::until("the clone to be served", SOON, clone) == expected);
        assert!(ring.connect(server, "d").read(0, 4 << 20).expect("read") == old);
    }
    ring.ask(2, &["volume", "rm", "c", "--snapshots"]).succeeded();
    assert!(ring.connect(1, "d").read(0, 4 << 20).expect("read") == old, "a clone of a clone needs neither");
}

#[test]
fn clones_are_listed_take_snapshots_and_give_back_what_only_they_hold() {
    let mut cluster = Plan { media: Media::Files, ..Plan::default() }.up();
    cluster.create("v", "4M", "mirror:2");
    let (old, new) = (noise(1, 4 << 20), noise(2, 1 << 20));
    cluster.connect("v").write(0, &old).expect("written");
    cluster.tepal(&["snapshot", "create", "v@a"]).succeeded();
    let before = cluster.volume("v")["allocated"].as_u64().expect("bytes");
    cluster.tepal(&["volume", "clone", "v@a", "c"]).succeeded();
    assert_eq!(cluster.volume("c")["allocated"].as_u64(), Some(before), "nothing is copied");
    let table = cluster.tepal(&["volume", "ls"]).succeeded();
    assert!(table.contains("ORIGIN") && table.contains("v@a"), "{table}");
    assert!(cluster.tepal(&["volume", "show", "c"]).succeeded().contains("v@a"));
    cluster.tepal(&["snapshot", "rename", "v@a", "b"]).succeeded();
    assert_eq!(cluster.volume("c")["origin"], "v@b");

    cluster.connect("c").write(0, &new).expect("written");
    cluster.tepal(&["snapshot", "create", "c@s"]).succeeded();
    cluster.connect("c").write(1 << 20, &new).expect("written");
    let image = cluster.folder().join("s.diff");
    let mut export = cluster.command();
    export.args(["volume", "export", "c", "--since", "s"]).stdout(std::fs::File::create(&image).expect("ours"));
    assert!(export.status().expect("it runs").success());
    cluster.tepal(&["volume", "clone", "c@s", "d"]).succeeded();
    let mut import = cluster.command();
    import.args(["volume", "import", "d"]).stdin(std::fs::File::open(&image).expect("ours"));
    assert!(import.status().expect("it runs").success());
    let expected = [&new[..], &new[..], &old[2 << 20..]].concat();
    cluster.kill();
    cluster.start();
    for (name, held) in [("v", &old), ("c", &expected), ("d", &expected)] {
        assert!(cluster.connect(name).read(0, 4 << 20).expect("read") == *held, "{name}");
    }
    cluster.tepal(&["volume", "resize", "d", "1M", "--shrink"]).succeeded();
    cluster.tepal(&["volume", "resize", "d", "4M"]).succeeded();
    assert!(cluster.connect("d").read(1 << 20, 3 << 20).expect("read").iter().all(|byte| *byte == 0));
    assert!(cluster.connect("c").read(0, 4 << 20).expect("read") == expected, "another one was cut");

    for command in [["volume", "clone", "v@b", "c"], ["volume", "clone", "v@b", "v"]] {
        assert!(cluster.tepal(&command).refused(1).contains("already"));
    }
    for (command, said) in
        [(["volume", "clone", "v@x", "e"], "no snapshot 'x'"), (["volume", "clone", "x@a", "e"], "no volume 'x'")]
    {
        assert!(cluster.tepal(&command).refused(1).contains(said));
    }
    assert!(cluster.tepal(&["volume", "clone", "v", "e"]).refused(2).contains("VOLUME@SNAP"));

    cluster.tepal(&["volume", "rm", "v", "--snapshots"]).succeeded();
    cluster.tepal(&["volume", "rm", "c", "--snapshots"]).succeeded();
    // What is left is one MiB on two drives, with whatever its extents hold.
    let given_back = || (cluster.volume("d")["allocated"].as_u64()? <= 2 << 20).then_some(());
    program::until("what only the others held to be given back", SOON, given_back);
    assert!(cluster.connect("d").read(0, 1 << 20).expect("read") == new);
    cluster.scrub_finds_nothing("d");
    cluster.tepal(&["volume", "rm", "d"]).succeeded();
    cluster.stop_and_check_drives();
}
