//! All servers go down, and only some of them come back.

use super::moves::id_of;
use super::ring::Ring;
use crate::nbd::noise;
use crate::program;
use std::time::Duration;

const SIZE: usize = 4 << 20;
/// For servers to agree on who is there, and to lead anew.
const SOON: Duration = Duration::from_secs(30);
const PAIRS: [[u32; 2]; 3] = [[1, 2], [2, 3], [3, 1]];

/// What the volume has, asked of one server: a request that waits for ever ends with the patience of the client.
fn content(ring: &Ring, server: u32, volume: &str) -> Vec<u8> {
    let mut client = ring.connect(server, volume);
    client.read(0, SIZE as u32).unwrap_or_else(|error| panic!("{volume} by s{server}: {error:?}"))
}

fn kill_all(ring: &Ring) {
    ring.dev(&["kill", "s1", "s2", "s3"]).succeeded();
}

/// Story: all three servers were killed, and two came back. Each of their copies had everything, and all requests waited for the third,
/// for ever: it was the last to be declared down.
#[test]
fn two_of_three_servers_serve_all_that_was_written_before_all_were_killed() {
    let ring = Ring::up(3);
    ring.wait_until_drives_are_up(1);
    let layouts = [("triple", "mirror:3"), ("double", "mirror:2"), ("ring", "chained")];
    let mut written: Vec<Vec<u8>> = Vec::new();
    for (nth, (volume, layout)) in layouts.into_iter().enumerate() {
        ring.ask(1, &["volume", "create", volume, "--size", "4M", "--layout", layout]).succeeded();
        let bytes = noise(nth as u64, SIZE);
        ring.connect(1, volume).write(0, &bytes).expect("written");
        written.push(bytes);
    }
    for (round, pair) in PAIRS.into_iter().enumerate() {
        kill_all(&ring);
        ring.start(&pair);
        for (nth, (volume, _)) in layouts.into_iter().enumerate() {
            for server in pair {
                assert!(content(&ring, server, volume) == written[nth], "{volume} by s{server} of {pair:?}");
            }
            // And it goes on.
            let bytes = noise(100 + round as u64, SIZE);
            ring.connect(pair[1], volume).write(0, &bytes).expect("written");
            written[nth] = bytes;
        }
        ring.start_all_that_are_down();
        for (volume, _) in layouts {
            ring.wait_until_healthy(1, volume);
        }
    }
}

/// Story: a server was killed, writes went on, the others were killed too; of all three the first and the last one came back. They waited
/// for the second one, although the last had every write.
#[test]
fn the_last_server_killed_serves_what_the_first_one_missed() {
    let kill: fn(&Ring) = |ring| ring.kill(1);
    // In order, as for an update.
    let stop: fn(&Ring) = |ring| ring.stop(1);
    for goes_down in [kill, stop] {
        the_last_server_serves(goes_down);
    }
}

fn the_last_server_serves(first_goes_down: fn(&Ring)) {
    let ring = Ring::up(3);
    ring.wait_until_drives_are_up(1);
    ring.ask(1, &["volume", "create", "v", "--size", "4M", "--layout", "mirror:3"]).succeeded();
    let mut client = ring.connect(3, "v");
    client.write(0, &noise(1, SIZE)).expect("written");
    first_goes_down(&ring);
    let newest = noise(2, SIZE);
    client.write(0, &newest).expect("written without s1");
    drop(client);
    ring.kill(2);
    ring.kill(3);
    ring.start(&[1, 3]);
    for server in [3, 1] {
        assert!(content(&ring, server, "v") == newest, "by s{server}");
    }
    program::until("s1 to have caught up", SOON, || {
        let status = ring.json(3, &["volume", "show", "v"]);
        let is_behind = status["reason"].to_string().contains(&id_of(&ring, "s1"));
        (!is_behind).then_some(())
    });
    ring.kill(3);
    ring.start(&[2]);
    assert!(content(&ring, 1, "v") == newest, "s1 and s2, of which only s1 was up last");
}

/// Story: the last drive with all that was acknowledged was removed by force, as the advice said. All that the other drives had of the
/// volume was an error from then on.
#[test]
fn older_copies_are_served_once_the_loss_of_the_last_complete_one_is_accepted() {
    let ring = Ring::up(3);
    ring.wait_until_drives_are_up(1);
    ring.ask(1, &["volume", "create", "v", "--size", "4M", "--layout", "mirror:3"]).succeeded();
    let older = noise(1, SIZE);
    let mut client = ring.connect(3, "v");
    client.write(0, &older).expect("written");
    client.flush().expect("stable");
    let refused = ring.ask(1, &["volume", "accept-loss", "v"]).refused(1);
    assert!(refused.contains("nothing is lost"), "{refused}");
    let drives = [1, 2, 3].map(|server| id_of(&ring, &format!("s{server}")));
    for drive in &drives[..2] {
        ring.ask(1, &["drive", "offline", drive]).succeeded();
    }
    client.write(0, &noise(2, SIZE)).expect("written to the third alone");
    drop(client);
    ring.kill(3);
    ring.wait_for_state(1, 3, "down");
    for drive in &drives[..2] {
        ring.ask(1, &["drive", "online", drive]).succeeded();
    }
    let advice = ring.json(1, &["status"])["reason"].to_string();
    assert!(advice.contains(&format!("`tepal drive rm {}`", drives[2])) && !advice.contains("--force"), "{advice}");
    let refused = ring.ask(1, &["drive", "rm", &drives[2]]).refused(1);
    assert!(refused.contains("--force"), "{refused}");
    let removed = ring.ask(1, &["drive", "rm", &drives[2], "--force"]).succeeded();
    assert!(removed.contains("may miss writes") && removed.contains("accept-loss v"), "{removed}");
    assert!(ring.connect(1, "v").read(0, SIZE as u32).is_err(), "nobody said that older copies are wanted");
    ring.ask(2, &["volume", "accept-loss", "v"]).refused(1);
    let accepted = ring.json(2, &["volume", "accept-loss", "v", "--force"]);
    assert_eq!(accepted["bytes"], SIZE, "{accepted}");
    assert!(content(&ring, 1, "v") == older, "as both have it");
    let mut client = ring.connect(2, "v");
    client.write(0, &noise(3, SIZE)).expect("it goes on");
    assert!(client.read(0, SIZE as u32).expect("there") == noise(3, SIZE));
}

/// The third drive's bytes are gone: it's added as a new drive, and takes the places of the old one.
#[test]
fn a_server_that_returns_with_a_wiped_drive_gets_all_copies_anew() {
    let ring = Ring::up(3);
    ring.wait_until_drives_are_up(1);
    let layouts = [("triple", "mirror:3"), ("double", "mirror:2"), ("ring", "chained")];
    for (nth, (volume, layout)) in (0..).zip(layouts) {
        ring.ask(1, &["volume", "create", volume, "--size", "4M", "--layout", layout]).succeeded();
        ring.connect(1, volume).write(0, &noise(nth, SIZE)).expect("written");
    }
    let old = id_of(&ring, "s3");
    kill_all(&ring);
    let drive = ring.data(3).join("drive0");
    std::fs::remove_file(&drive).expect("ours");
    crate::cluster::make_drive(&drive, 64 << 20);
    ring.start(&[1, 2, 3]);
    let all_have_all = |servers: &[u32]| {
        for (nth, (volume, _)) in (0..).zip(layouts) {
            for &server in servers {
                assert!(content(&ring, server, volume) == noise(nth, SIZE), "{volume} by s{server} of {servers:?}");
            }
        }
    };
    all_have_all(&[1, 2, 3]);
    let gone = ring.ask(1, &["drive", "rm", &old]).succeeded();
    assert!(!gone.contains("may miss"), "{gone}");
    ring.ask(1, &["drive", "add", "s3", drive.to_str().expect("UTF-8")]).succeeded();
    ring.wait_until_drives_are_up(1);
    for (volume, _) in layouts {
        ring.wait_until_healthy(1, volume);
    }
    for pair in PAIRS {
        kill_all(&ring);
        ring.start(&pair);
        all_have_all(&pair);
        ring.start_all_that_are_down();
        layouts.iter().for_each(|(volume, _)| ring.wait_until_healthy(1, volume));
    }
}

/// Story: the server was back for long, and its drive was missing for the reason that the server is down.
#[test]
fn a_drive_that_its_server_no_longer_finds_is_said_to_be_gone() {
    let ring = Ring::up(3);
    ring.wait_until_drives_are_up(1);
    let id = id_of(&ring, "s3");
    ring.kill(3);
    ring.wait_for_state(1, 3, "down");
    std::fs::remove_file(ring.data(3).join("drive0")).expect("ours");
    ring.start(&[3]);
    ring.wait_for_state(1, 3, "up");
    let reason = || {
        let drives = ring.json(1, &["drive", "ls"]);
        let drive = drives.as_array().expect("a list").iter().find(|drive| drive["id"] == id.as_str()).cloned();
        drive.expect("it's known")["reason"].to_string()
    };
    ring.wait_until("the drive to be said to be gone", || {
        let reason = reason();
        !reason.contains("is down") && reason.contains("drive0")
    });
}
