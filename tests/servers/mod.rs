//! Clusters of several server processes: killed, paused and restarted, while commands are asked of all of them.

mod ring;

use ring::Ring;

#[test]
fn commands_work_through_any_server_while_a_minority_is_killed_and_all_come_back_in_any_order() {
    let ring = Ring::up(4);
    ring.wait_until_all_are_up(1);
    for server in 1..=4 {
        ring.ask(server, &["pool", "create", &format!("by-s{server}")]).succeeded();
    }
    let mut expected: Vec<String> = (1..=4).map(|server| format!("by-s{server}")).collect();
    expected.push("default".to_owned());
    // Each server once, whichever leads.
    for victim in [1, 3, 2, 4] {
        ring.kill(victim);
        let (one, other) = (victim % 4 + 1, (victim + 1) % 4 + 1);
        let name = format!("without-s{victim}");
        ring.ask(one, &["pool", "create", &name]).succeeded();
        expected.push(name);
        ring.wait_for_state(other, victim, "down");
        let status = ring.json(other, &["status"]);
        assert_eq!(status["health"], "degraded", "{status}");
        assert!(status["reason"].to_string().contains(&format!("server s{victim} is down")), "{status}");
        ring.start(&[victim]);
        ring.wait_until_all_are_up(victim);
    }
    for server in [2, 4, 1, 3] {
        ring.kill(server);
    }
    ring.start(&[3, 1, 4, 2]);
    expected.sort();
    for server in 1..=4 {
        ring.wait_until_all_are_up(server);
        assert_eq!(ring.pools(server), expected, "as s{server} knows them");
    }
}

#[test]
fn a_paused_server_is_declared_down_and_returns_with_its_drives_when_it_wakes() {
    let ring = Ring::up(3);
    ring.dev(&["pause", "s2"]).succeeded();
    ring.wait_for_state(1, 2, "down");
    let drives = ring.json(3, &["drive", "ls"]);
    let of_s2 =
        drives.as_array().expect("a list").iter().find(|drive| drive["server"] == "s2").expect("listed").clone();
    assert_eq!(of_s2["state"], "missing", "{of_s2}");
    ring.dev(&["resume", "s2"]).succeeded();
    ring.wait_until_all_are_up(3);
    ring.wait_until_drives_are_up(2);
}

#[test]
fn a_volume_on_the_drives_of_one_server_is_made_and_removed_through_another_and_outlives_a_kill() {
    let ring = Ring::up(3);
    let refused = ring.ask(2, &["volume", "create", "wide", "--size", "8M"]).refused(1);
    assert!(refused.contains("several servers (s1, s2, s3)"), "{refused}");
    ring.ask(3, &["pool", "create", "p2"]).succeeded();
    for number in 0..2 {
        let path = ring.data(2).join(format!("more{number}")).display().to_string();
        ring.ask(1, &["drive", "add", "s2", &path, "--create", "64M", "--pool", "p2"]).succeeded();
    }
    ring.ask(3, &["volume", "create", "v", "--size", "8M", "--layout", "mirror:2", "--pool", "p2"]).succeeded();
    let bytes = crate::nbd::noise(7, 1 << 20);
    let mut volume = ring.connect(2, "v");
    volume.write_through(0, &bytes).expect("written");
    drop(volume);
    ring.kill(2);
    ring.wait_for_state(1, 2, "down");
    let refused = ring.ask(3, &["volume", "resize", "v", "16M"]).refused(1);
    assert!(refused.contains("server s2 is down"), "{refused}");
    ring.start(&[2]);
    ring.wait_until_healthy(3, "v");
    assert_eq!(ring.connect(2, "v").read(0, 1 << 20).expect("there"), bytes);
    ring.ask(1, &["volume", "resize", "v", "16M"]).succeeded();
    assert_eq!(ring.json(3, &["volume", "show", "v"])["size"], 16 << 20);
    ring.ask(1, &["volume", "rm", "v"]).succeeded();
    assert_eq!(ring.json(2, &["volume", "ls"]).as_array().map(Vec::len), Some(0));
}
