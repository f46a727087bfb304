//! Clusters of several server processes: killed, paused and restarted, while commands are asked of all of them.

mod beyond;
mod dark;
mod erasure;
mod filesystem;
mod folders;
mod foreground;
mod full;
pub mod gateway;
mod grown;
mod guards;
mod lost;
pub mod moves;
pub mod partitions;
mod quorum;
mod resizing;
pub mod ring;
mod rotten;
mod sites;
mod strangers;
mod tour;
pub mod volumes;
mod waiting;

use crate::program;
use ring::Ring;
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

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
    let of_s2 = moves::drive(&ring, |drive| drive["server"] == "s2");
    assert_eq!(of_s2["state"], "missing", "{of_s2}");
    ring.dev(&["resume", "s2"]).succeeded();
    ring.wait_until_all_are_up(3);
    ring.wait_until_drives_are_up(2);
}

#[test]
fn a_volume_on_the_drives_of_one_server_is_served_by_every_server_and_outlives_a_kill() {
    let ring = Ring::up(3);
    ring.ask(3, &["pool", "create", "p2"]).succeeded();
    for number in 0..2 {
        let path = ring.data(2).join(format!("more{number}")).display().to_string();
        ring.ask(1, &["drive", "add", "s2", &path, "--create", "64M", "--pool", "p2"]).succeeded();
    }
    ring.ask(3, &["volume", "create", "v", "--size", "8M", "--layout", "mirror:2", "--pool", "p2"]).succeeded();
    let bytes = crate::nbd::noise(7, 1 << 20);
    let mut volume = ring.connect(1, "v");
    volume.write(0, &bytes).expect("written");
    volume.flush().expect("stable");
    ring.kill(2);
    ring.wait_for_state(1, 2, "down");
    // Another server may hear of that a moment later.
    program::until("the volume to be unavailable", Duration::from_secs(60), || {
        (ring.json(3, &["status"])["health"] == "unavailable").then_some(())
    });
    // It waits for its server.
    let asked = volume.send(crate::nbd::kind::READ, 0, 0, 1 << 20, &[]).expect("sent");
    ring.start(&[2]);
    assert_eq!(volume.answer().expect("an answer").0, asked);
    assert_eq!(volume.data(1 << 20).expect("data"), bytes);
    drop(volume);
    ring.wait_until_healthy(3, "v");
    assert_eq!(ring.connect(2, "v").read(0, 1 << 20).expect("there"), bytes);
    ring.ask(1, &["volume", "resize", "v", "16M"]).succeeded();
    assert_eq!(ring.json(3, &["volume", "show", "v"])["size"], 16 << 20);
    ring.ask(1, &["volume", "rm", "v"]).succeeded();
    assert_eq!(ring.json(2, &["volume", "ls"]).as_array().map(Vec::len), Some(0));
}

/// Story: a server served a volume on its own drives, and one of them was away. When others began to use it, nobody led it: its server took
/// the very view in which its drive had left for one of before.
#[test]
fn a_volume_of_one_server_is_served_by_all_servers_though_a_drive_of_it_is_away() {
    let ring = Ring::up(3);
    let paths: Vec<String> = (0..2).map(|nth| ring.data(2).join(format!("more{nth}")).display().to_string()).collect();
    ring.ask(3, &["pool", "create", "p2"]).succeeded();
    for path in &paths {
        ring.ask(1, &["drive", "add", "s2", path, "--create", "64M", "--pool", "p2"]).succeeded();
    }
    ring.ask(2, &["volume", "create", "v", "--size", "8M", "--layout", "mirror:2", "--pool", "p2"]).succeeded();
    let bytes = crate::nbd::noise(7, 1 << 20);
    let mut own = ring.connect(2, "v");
    own.write(0, &bytes).expect("written");
    let drive = moves::drive(&ring, |drive| drive["path"] == *paths[0]);
    ring.ask(2, &["drive", "offline", drive["id"].as_str().expect("an id")]).succeeded();
    let later = crate::nbd::noise(8, 1 << 20);
    own.write(1 << 20, &later).expect("written without it");
    let mut other = ring.connect(1, "v");
    assert!(other.read(0, 1 << 20).expect("there") == bytes);
    assert!(other.read(1 << 20, 1 << 20).expect("there") == later);
    other.write(0, &later).expect("written");
    assert!(own.read(0, 1 << 20).expect("there") == later);
}

/// Also when the test fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Makes pools through one server after the other, until told to stop; what succeeded is noted.
fn make_pools(ring: &Ring, writer: usize, stop: &AtomicBool, made: &Mutex<BTreeSet<String>>) {
    for n in 0.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let name = format!("w{writer}-{n}");
        let server = (writer + n) as u32 % ring.servers + 1;
        if ring.ask(server, &["pool", "create", &name]).status.success() {
            made.lock().expect("nobody panics").insert(name);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The moments are drawn by lot: whatever a server was doing, nothing that was acknowledged may be gone.
#[test]
fn what_was_acknowledged_survives_kills_at_any_moment_and_restarts_in_any_order() {
    let ring = Ring::up(3);
    ring.wait_until_all_are_up(1);
    let (stop, made) = (AtomicBool::new(false), Mutex::new(BTreeSet::new()));
    // Victims one after the other; who dies before the first is back makes the cluster stand still meanwhile.
    let rounds: [&[u32]; 6] = [&[2], &[1], &[3, 1], &[3], &[2, 3, 1], &[1]];
    let seed = std::process::id();
    println!("the moments are those of seed {seed}");
    let lots = crate::nbd::noise(seed.into(), 64);
    let mut lots = lots.iter().map(|lot| Duration::from_millis(u64::from(*lot) * 3));
    let mut pause = || std::thread::sleep(lots.next().expect("enough of them"));
    std::thread::scope(|scope| {
        let stopping = Stop(&stop);
        for writer in 0..2 {
            scope.spawn({
                let (ring, stop, made) = (&ring, &stop, &made);
                move || make_pools(ring, writer, stop, made)
            });
        }
        for victims in rounds {
            pause();
            for victim in victims {
                ring.kill(*victim);
                pause();
            }
            ring.start_all_that_are_down();
        }
        pause();
        drop(stopping);
    });
    let made = made.into_inner().expect("nobody panics");
    assert!(made.len() > 20, "only {} acknowledgements mean nothing", made.len());
    for server in 1..=3 {
        ring.wait_until_all_are_up(server);
        let there: BTreeSet<String> = ring.pools(server).into_iter().collect();
        let lost: Vec<_> = made.difference(&there).collect();
        assert!(lost.is_empty(), "s{server} lost {lost:?}");
    }
}

#[test]
fn a_voter_that_is_gone_for_good_is_replaced_and_then_another_may_fail() {
    let ring = Ring::up(4);
    ring.wait_until_all_are_up(1);
    let voters = |seen_by| ring.json(seen_by, &["cluster", "show"])["voters"].clone();
    ring.wait_until("three to vote", || voters(1).as_array().is_some_and(|voters| voters.len() == 3));
    let first = voters(1);
    let gone = first.as_array().expect("a list").iter().filter_map(|id| id.as_str()).find(|id| *id != "s1");
    let gone: u32 = gone.and_then(|id| id[1..].parse().ok()).expect("an id");
    let name = format!("s{gone}");
    let drive = moves::id_of(&ring, &name);
    ring.kill(gone);
    ring.wait_for_state(1, gone, "down");
    let refused = ring.ask(1, &["drive", "rm", &drive]).refused(1);
    assert!(refused.contains("is down") && refused.contains("--force"), "{refused}");
    let refused = ring.ask(1, &["server", "rm", &name]).refused(1);
    assert!(refused.contains("drives that aren't removed yet, 1 of them"), "{refused}");
    ring.ask(1, &["drive", "rm", &drive, "--force"]).succeeded();
    ring.ask(1, &["server", "rm", &name]).succeeded();
    ring.wait_until("another to vote in its place", || {
        let now = voters(1);
        let now = now.as_array().expect("a list");
        now.len() == 3 && now.iter().all(|id| id != name.as_str())
    });
    // Were it still one of three, two would be gone now.
    let other = (2..=4).find(|server| *server != gone).expect("there are three");
    ring.kill(other);
    ring.ask(1, &["pool", "create", "after"]).succeeded();
    // Its folder is of no use any more.
    let refused = ring.dev(&["start", &name]).refused(1);
    assert!(refused.contains("was removed from the cluster"), "{refused}");
}

#[test]
fn a_paused_server_keeps_nobody_waiting_and_dev_says_what_it_can_not_do() {
    let ring = Ring::up(3);
    ring.wait_until_all_are_up(2);
    ring.dev(&["pause", "s1"]).succeeded();
    ring.wait_for_state(2, 1, "down");
    let begun = std::time::Instant::now();
    ring.dev_client(&["pool", "create", "while-paused"]).succeeded();
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    for (arguments, said) in
        [(["kill", "s9"], "s9"), (["start", "s1"], "s1"), (["resume", "s2"], "s2"), (["start", "s2"], "s2")]
    {
        let refused = ring.dev(&arguments).refused(1);
        assert!(refused.contains(said), "{arguments:?}: {refused}");
    }
    ring.dev(&["resume", "s1"]).succeeded();
    ring.wait_until_all_are_up(1);
    ring.kill(3);
    ring.dev(&["kill", "s3"]).refused(1);
    ring.start(&[3]);
    ring.wait_until_all_are_up(1);
    // It answers by what it knows, and has to hear of the rest.
    ring.wait_until("s1 to know what it has missed", || ring.pools(1) == ["default", "while-paused"]);
}

/// Story: the first of them waited for a majority without a word, and kept the folder locked, so that nobody could start another.
#[test]
fn servers_are_started_one_by_one_and_the_first_says_what_it_waits_for() {
    let ring = Ring::up(3);
    (1..=3).for_each(|server| ring.kill(server));
    let mut first = ring.command(&["dev", "start", "s3"]);
    let mut first = program::spawn(first.stdout(Stdio::null()).stderr(Stdio::piped()));
    let mut said = String::new();
    let stderr = first.stderr.take().expect("piped");
    BufReader::new(stderr).read_line(&mut said).expect("a line");
    assert!(said.contains("s3 doesn't serve yet") && said.contains("`tepal dev start s1 s2`"), "{said}");
    ring.start(&[1, 2]);
    assert!(program::wait(&mut first, Duration::from_secs(60)).is_some_and(|status| status.success()));
    ring.wait_until_all_are_up(3);
}

#[test]
fn how_long_a_server_may_be_silent_is_what_the_cluster_was_told() {
    let ring = Ring::up(3);
    ring.wait_until_all_are_up(1);
    assert_eq!(ring.json(1, &["cluster", "show"])["lease_ms"], 1500);
    let refused = ring.ask(1, &["cluster", "set", "--lease", "100ms"]).refused(1);
    assert!(refused.contains("300 ms"), "{refused}");
    ring.ask(1, &["cluster", "set", "--lease", "5"]).refused(2);
    // As long as the silence of before counts, the next lease isn't in use.
    let noticed_after = |lease: &str| {
        ring.ask(3, &["cluster", "set", "--lease", lease]).succeeded();
        let leader = ring.json(1, &["cluster", "show"])["leader"].as_str().expect("one leads")[1..].parse::<u32>();
        let victim = if leader == Ok(3) { 2 } else { 3 };
        std::thread::sleep(Duration::from_secs(2)); // each renews its lease meanwhile
        ring.kill(victim);
        let killed = std::time::Instant::now();
        ring.wait_for_state(1, victim, "down");
        let after = killed.elapsed();
        ring.start(&[victim]);
        ring.wait_until_all_are_up(1);
        after
    };
    let (long, short) = (noticed_after("8s"), noticed_after("600ms"));
    // A lease is renewed after a quarter of it.
    assert!(long > Duration::from_millis(5_500), "noticed after {long:?}, with leases of 8 s");
    assert!(short < long, "noticed after {short:?}, with leases of 600 ms, and {long:?} with those of 8 s");
    assert_eq!(ring.json(2, &["cluster", "show"])["lease_ms"], 600);
}
