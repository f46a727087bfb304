//! Drives that an operator gives up: what waits for them ends, and what is still there stays.

use crate::cluster::Plan;
use crate::nbd::{BLOCK, Errno, Ledger, Nbd, RequestError, kind};
use crate::program::until;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

const SOON: Duration = Duration::from_secs(60);
/// An I/O error, in NBD's numbers.
const IO_ERROR: Errno = Errno(5);

/// The next answer, or `None` if there is none yet.
fn answered(volume: Nbd) -> (std::thread::JoinHandle<()>, std::sync::mpsc::Receiver<Result<(), Errno>>) {
    let (sender, receiver) = std::sync::mpsc::channel();
    let mut volume = volume;
    let thread = std::thread::spawn(move || {
        if let Ok((_, answer)) = volume.answer() {
            let _ = sender.send(answer); // the test may have failed meanwhile
        }
    });
    (thread, receiver)
}

#[test]
fn requests_that_wait_for_the_only_copy_fail_once_its_drive_is_removed_by_force() {
    let cluster = Plan { drives: 2, ..Plan::default() }.up();
    cluster.create("v0", "4M", "stripe");
    let mut ledger = Ledger::new(35, 1024);
    ledger.fill(&mut cluster.connect("v0")).expect("written");
    let drive = cluster.drive(0).to_owned();
    let id = cluster.drive_id(&drive);
    std::fs::rename(&drive, drive.with_extension("aside")).expect("ours");
    cluster.wait_for_drive(&drive, "missing");
    // One of two extents in a row is on the drive that is away.
    let waiting = [(kind::READ, 0), (kind::READ, 16), (kind::WRITE, 32), (kind::WRITE, 48)].map(|(kind, block)| {
        let mut volume = cluster.connect("v0");
        let data = vec![1; if kind == kind::WRITE { BLOCK } else { 0 }];
        volume.send(kind, 0, block * BLOCK as u64, BLOCK as u32, &data).expect("sent");
        answered(volume)
    });
    let refused = cluster.tepal(&["drive", "rm", &id]).refused(1);
    assert!(refused.contains("v0") && refused.contains("--force"), "{refused}");
    cluster.tepal(&["drive", "rm", &id, "--force"]).succeeded();
    let answers = waiting.map(|(thread, answer)| {
        let answer = answer.recv_timeout(SOON).expect("an answer");
        thread.join().expect("it has no reason to panic");
        answer
    });
    let good = |answers: &[Result<(), Errno>]| answers.iter().filter(|answer| answer.is_ok()).count();
    assert_eq!((good(&answers[..2]), good(&answers[2..])), (1, 1), "{answers:?}");
    assert!(answers.iter().flat_map(|answer| answer.err()).all(|errno| errno == IO_ERROR), "{answers:?}");

    let volume = cluster.volume("v0");
    assert_eq!(volume["state"], "unavailable");
    assert!(volume["reason"].to_string().contains("some of it is lost"), "{volume}");
    let mut client = cluster.connect("v0");
    let failed = (0..64).filter(|extent| match client.read(extent * (64 << 10), 64 << 10) {
        Ok(_) => false,
        Err(RequestError::Refused(errno)) => errno == IO_ERROR,
        Err(RequestError::Broken(error)) => panic!("{error}"),
    });
    assert_eq!(failed.count(), 32, "exactly what the drive held");

    drop(client);
    // What there is can be carried away, what there isn't is told by every command.
    let export = cluster.tepal(&["volume", "export", "v0"]).refused(1);
    assert!(export.contains("2M of volume 'v0' are lost") && export.contains("--keep-going"), "{export}");
    let saved = cluster.tepal(&["volume", "export", "v0", "--keep-going"]);
    assert!(saved.stderr.contains("2097152 bytes of volume 'v0' are damaged"), "{}", saved.stderr);
    let mut client = cluster.connect("v0");
    let mut is_saved = |at: u64| match client.read(at, 64 << 10) {
        Ok(bytes) => saved.stdout[at as usize..][..64 << 10] == bytes,
        Err(_) => saved.stdout[at as usize..][..64 << 10].iter().all(|byte| *byte == 0),
    };
    assert!((0..64).map(|extent| extent * (64 << 10)).all(&mut is_saved));
    drop(client);
    let scrub = cluster.tepal(&["volume", "scrub", "v0"]).refused(1);
    assert!(scrub.contains("2M of volume 'v0' are lost"), "{scrub}");
    let accepted = cluster.tepal(&["volume", "accept-loss", "v0", "--force"]).refused(1);
    assert!(accepted.contains("there is no copy at all") && accepted.contains("volume rm"), "{accepted}");
    // When the volume is gone, nothing is left of the drive.
    cluster.tepal(&["volume", "rm", "v0"]).succeeded();
    until("health to be ok", SOON, || (cluster.ask(&["status"])["health"] == "ok").then_some(()));
    assert_eq!(cluster.drives_say("state"), ["up"]);
}

#[test]
fn an_older_copy_of_the_metadata_does_not_free_what_was_written_since() {
    let mut cluster = Plan { drives: 2, ..Plan::default() }.up();
    cluster.create("old", "4M", "mirror:2");
    cluster.stop();
    let copy_of = |name: &str| cluster.folder().join(name);
    let (data, backup, newest) = (cluster.data(), copy_of("backup"), copy_of("newest"));
    copy_folder(&data, &backup);
    cluster.start();
    cluster.create("v0", "4M", "mirror:2");
    let mut ledger = Ledger::new(36, 1024);
    ledger.fill(&mut cluster.connect("v0")).expect("written");
    cluster.stop();
    std::fs::rename(&data, &newest).expect("ours");
    copy_folder(&backup, &data);
    cluster.start();
    let status = cluster.ask(&["status"]);
    assert_eq!(status["health"], "unavailable", "{status}");
    assert!(status["reason"].to_string().contains("older copy"), "{status}");
    cluster.tepal(&["volume", "create", "new", "--size", "4M"]).refused(1);
    cluster.stop();
    std::fs::remove_dir_all(&data).expect("ours");
    std::fs::rename(&newest, &data).expect("ours");
    cluster.start();
    cluster.wait_until_healthy("v0");
    ledger.compare(&mut cluster.connect("v0"));
    cluster.scrub_finds_nothing("v0");
    cluster.stop_and_check_drives();
}

fn copy_folder(from: &std::path::Path, to: &std::path::Path) {
    let copied = crate::program::run(crate::program::command("cp", ["-a"]).arg(from).arg(to));
    copied.succeeded();
}

/// Story: a drive was damaged for good when its server started. What only it had was to go to others, that had nowhere to take it from, and
/// requests for it waited for ever.
#[test]
fn what_only_a_drive_had_that_is_damaged_at_the_start_is_an_error_and_all_else_is_served() {
    let mut cluster = Plan { drives: 3, ..Plan::default() }.up();
    cluster.create("v0", "4M", "stripe");
    let mut ledger = Ledger::new(36, 1024);
    ledger.fill(&mut cluster.connect("v0")).expect("written");
    cluster.stop();
    let drive = cluster.drive(0).to_owned();
    // The label at its end says whose it is, and nothing says what is on it.
    let file = std::fs::OpenOptions::new().write(true).open(&drive).expect("ours");
    file.write_all_at(&[0; 16 << 10], 0).expect("written");
    cluster.start();
    cluster.wait_for_drive(&drive, "failed");
    let mut client = cluster.connect("v0");
    let began = Instant::now();
    // Long enough for copies to be moved, if any are.
    while began.elapsed() < Duration::from_secs(6) {
        let refused = (0..64).filter(|extent| match client.read(extent * (64 << 10), 64 << 10) {
            Ok(_) => false,
            Err(RequestError::Refused(errno)) => errno == IO_ERROR,
            Err(RequestError::Broken(error)) => panic!("{error}"),
        });
        assert!((21..=22).contains(&refused.count()), "what the drive held, and nothing else");
    }
    let volume = cluster.volume("v0");
    assert!(volume["reason"].to_string().contains("some of it is lost"), "{volume}");
}
