//! Right after a start: who waits for whom, what is said of it, and what commands wait for.

use super::ring::Ring;
use crate::program;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Story: a server that had another address than the others knew waited for them, and `status` said that none was running.
#[test]
fn a_server_with_another_address_says_for_whom_it_waits_and_where_it_is_looked_for() {
    let ring = Ring::up(2);
    [1, 2].into_iter().for_each(|server| ring.kill(server));
    let elsewhere = ring.scratch_file("elsewhere.sock");
    let mut serve = Command::new(crate::cluster::tepal());
    serve
        .args(["serve", "--server", "s2", "--data"])
        .arg(ring.data(2))
        .arg("--peers")
        .arg(format!("unix:{}", elsewhere.display()));
    let mut server = program::spawn(serve.stdout(Stdio::null()).stderr(Stdio::null()));
    let said = program::until("it to say that it waits", program::LIMIT, || {
        let said = ring.ask(2, &["status"]).refused(1);
        said.contains("runs and waits").then_some(said)
    });
    let place = |server: u32| format!("unix:{}", ring.data(server).join("peers.sock").display());
    let wrong = format!("look for s2 at {}, not at unix:{}", place(2), elsewhere.display());
    for part in [format!("s1 at {}", place(1)), wrong, format!("--peers {}", place(2))] {
        assert!(said.contains(&part), "{part}: {said}");
    }
    program::kill_group(&mut server);
    let said = ring.ask(2, &["status"]).refused(1);
    assert!(said.contains("is running: start it"), "of one that was killed: {said}");
    ring.start(&[1, 2]);
    ring.wait_until_all_are_up(2);
}

/// Story: in the first second after a start the drives were on their way back, and there was "no drive that is up": `drive add` was to
/// add one.
#[test]
fn a_volume_that_is_made_right_after_a_start_is_on_all_drives() {
    let ring = Ring::up(3);
    ring.wait_until_drives_are_up(1);
    (1..=3).for_each(|server| ring.kill(server));
    std::thread::scope(|scope| {
        let starting = scope.spawn(|| ring.start(&[1, 2, 3]));
        let made = program::until("s1 to answer", program::LIMIT, || {
            let made = ring.ask(1, &["volume", "create", "v", "--size", "8M"]);
            (!made.stderr.contains("no server")).then_some(made)
        });
        made.succeeded();
        starting.join().expect("they have started");
    });
    let volume = ring.json(2, &["volume", "show", "v"]);
    assert_eq!((&volume["layout"], volume["drives"].as_array().map(Vec::len)), (&"mirror:2".into(), Some(3)));
    // For those that don't come it isn't waited for ever, and they are named.
    ring.kill(3);
    ring.wait_for_state(1, 3, "down");
    ring.ask(1, &["pool", "create", "p"]).succeeded();
    ring.start(&[3]);
    ring.wait_until_all_are_up(1);
    let path = ring.data(3).join("more").display().to_string();
    let add = &["drive", "add", "s3", &path, "--create", "64M", "--pool", "p"];
    // Its peers may have yet to connect to it.
    ring.wait_until("s3 to take a drive", || ring.ask(1, add).status.success());
    ring.kill(3);
    ring.wait_for_state(1, 3, "down");
    let began = std::time::Instant::now();
    let refused = ring.ask(1, &["volume", "create", "w", "--size", "8M", "--pool", "p"]).refused(1);
    assert!(refused.contains(&path) && refused.contains("start server s3"), "{refused}");
    assert!(began.elapsed() < Duration::from_secs(40), "it took {:?}", began.elapsed());
}

/// Story: the last server that leads kept one processor busy from when the others were killed, as long as it had something to tell them.
#[test]
fn a_server_without_a_majority_waits_and_uses_no_processor() {
    let ring = Ring::up(3);
    ring.wait_until_drives_are_up(1);
    ring.ask(1, &["volume", "create", "v", "--size", "8M", "--layout", "mirror:3"]).succeeded();
    let status = ring.json(1, &["cluster", "show"]);
    let number = |name: &str| name.trim_start_matches('s').parse::<u32>().expect("a number");
    let leader = number(status["leader"].as_str().expect("somebody leads"));
    (1..=3).filter(|&server| server != leader).for_each(|server| ring.kill(server));
    // What it has to tell them, besides that they are down: its drive is gone.
    let drive = ring.data(leader).join("drive0");
    std::fs::rename(&drive, drive.with_extension("aside")).expect("our own drive");
    ring.wait_until("the loss to be noticed", || ring.log(leader).contains("nothing at its path"));
    // Longer than it leads without a majority.
    std::thread::sleep(Duration::from_secs(15));
    let (before, span) = (ring.processor_time(leader), Duration::from_secs(10));
    std::thread::sleep(span);
    let used = ring.processor_time(leader) - before;
    assert!(used < span / 5, "it used {used:?} of {span:?}");
    std::fs::rename(drive.with_extension("aside"), &drive).expect("our own drive");
    ring.start_all_that_are_down();
    ring.wait_until_healthy(1, "v");
}
