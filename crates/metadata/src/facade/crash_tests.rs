//! Processes that are killed, and one that is left alone. The child is this same test program, told by its
//! environment what to do.

use super::tests::{add_drive, create_volume, created, on_runtime};
use super::*;
use crate::scratch::Scratch;
use crate::state_machine::apply::snapshot_tests::check_readers;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command as Process, Stdio};
use std::time::Instant;

const TASK: &str = "TEPAL_METADATA_TEST_TASK";
const FOLDER: &str = "TEPAL_METADATA_TEST_FOLDER";
const WRITERS: u64 = 4;
/// Another one, whose volume has snapshots.
const KEEPER: u64 = WRITERS;
/// So many of them at a time.
const KEPT: usize = 3;
const SECTOR: u64 = 512;

fn child(task: &str, folder: &Path) -> Child {
    Process::new(std::env::current_exe().unwrap())
        .args(["--exact", "facade::crash_tests::the_child", "--nocapture", "--test-threads=1"])
        .envs([(TASK, task.as_ref()), (FOLDER, folder.as_os_str())])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Does nothing when it's run as a test among others.
#[test]
fn the_child() {
    let (Ok(task), Some(folder)) = (std::env::var(TASK), std::env::var_os(FOLDER)) else { return };
    let folder = PathBuf::from(folder);
    on_runtime(async {
        match task.as_str() {
            "write" => write_for_ever(&folder).await,
            "idle" => idle(&folder).await,
            other => panic!("unknown task {other}"),
        }
    });
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "\n{line}").and_then(|()| out.flush()).unwrap();
}

/// Several writers, each of which makes its volume one sector larger with every command, and says so when it's
/// acknowledged; and one that takes snapshots.
async fn write_for_ever(folder: &Path) {
    let metadata = match Metadata::open(folder).await {
        Err(OpenError::NotThere(_)) => created(folder).await,
        opened => opened.unwrap(),
    };
    if metadata.state().drives.is_empty() {
        metadata.propose(add_drive(1)).await.unwrap();
    }
    let writer = async |n: u64| {
        let name = format!("v{n}");
        if metadata.state().volume_named(&name).is_none() {
            let small = match create_volume(&name) {
                Command::CreateVolume { name, layout, pool, .. } => {
                    Command::CreateVolume { name, size: SECTOR, layout, pool }
                }
                other => other,
            };
            metadata.propose(small).await.unwrap();
        }
        let mut size = metadata.state().volume_named(&name).unwrap().size;
        loop {
            size += SECTOR;
            let cleared = Some(&metadata.state()).and_then(|state| Some(state.as_cleared(state.volume_named(&name)?)));
            metadata.propose(Command::ResizeVolume { name: name.clone(), size, shrink: false, cleared }).await.unwrap();
            say(&format!("acknowledged {n} {size}"));
            if size.is_multiple_of(64 * SECTOR) {
                metadata.member.raft.trigger().snapshot().await.unwrap();
                metadata
                    .member
                    .raft
                    .trigger()
                    .purge_log(metadata.member.raft.metrics().borrow_watched().last_applied.as_ref().unwrap().index)
                    .await
                    .unwrap();
            }
        }
    };
    let resized = futures_util::future::join_all((0..WRITERS).map(writer));
    tokio::join!(resized, keep_snapshots(&metadata));
}

/// Takes one snapshot after the other, and says the epoch of each. Rolls the volume back to every fourth, and removes the oldest.
async fn keep_snapshots(metadata: &Metadata) {
    let volume = format!("v{KEEPER}");
    if metadata.state().volume_named(&volume).is_none() {
        metadata.propose(create_volume(&volume)).await.unwrap();
    }
    loop {
        let (id, name) = {
            let state = metadata.state();
            let record = state.volume_named(&volume).unwrap();
            (record.id, format!("s{}", record.epoch))
        };
        let take = Command::CreateSnapshot { volume: volume.clone(), name: name.clone() };
        let Reply::SnapshotCreated { epoch, .. } = metadata.propose(take).await.unwrap() else { panic!("no epoch") };
        say(&format!("acknowledged {KEEPER} {epoch}"));
        if epoch.is_multiple_of(4) {
            metadata.propose(Command::RollBack { volume: volume.clone(), name }).await.unwrap();
        }
        while metadata.state().count_snapshots(id) > KEPT {
            let name = metadata.state().snapshots_of(id).next().unwrap().name.clone();
            metadata.propose(Command::RemoveSnapshot { volume: volume.clone(), name }).await.unwrap();
        }
    }
}

/// Story: whoever was told that a change is made must find it made, whenever the power of SIGKILL strikes: in the
/// creation, in an append, between the log and the state machine, in a snapshot, in a purge.
#[test]
fn nothing_acknowledged_is_lost_when_the_server_is_killed_at_any_moment() {
    const ROUNDS: u32 = 40;
    const EARLY: u32 = 10;
    let scratch = Scratch::new();
    let folder = scratch.path().join("data");
    std::fs::create_dir(&folder).unwrap();
    let mut acknowledged = vec![0u64; WRITERS as usize + 1];
    let mut total = 0u64;
    for round in 0..ROUNDS {
        let mut child = child("write", &folder);
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut count = |line: std::io::Result<String>| {
            let line = line.unwrap();
            let words: Vec<&str> = line.split(' ').collect();
            // A line that was cut by the kill says nothing that counts.
            if let ["acknowledged", writer, size] = words[..]
                && let (Ok(writer), Ok(size)) = (writer.parse::<usize>(), size.parse::<u64>())
            {
                acknowledged[writer] = acknowledged[writer].max(size);
                total += 1;
            }
            total
        };
        // The first few rounds strike early, in the creation; the others amid the writing, at an odd moment after so
        // many acknowledgements, however long these take.
        if round < EARLY {
            std::thread::sleep(Duration::from_millis(u64::from(round) * 3));
        } else {
            let enough = count(Ok(String::new())) + 3 + u64::from(round) * 37 % 90;
            while count(lines.next().expect("it writes for ever")) < enough {}
            std::thread::sleep(Duration::from_micros(u64::from(round) * 331 % 2_000));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        for line in lines {
            count(line);
        }
        check(&folder, &mut acknowledged);
    }
}

fn check(folder: &Path, acknowledged: &mut [u64]) {
    on_runtime(async {
        let metadata = match Metadata::open(folder).await {
            Err(OpenError::NotThere(_)) if acknowledged.iter().all(|&size| size == 0) => return,
            opened => opened.unwrap(),
        };
        let state = metadata.state();
        check_readers(&state);
        for (writer, size) in (0..).zip(acknowledged.iter_mut()) {
            let volume = state.volume_named(&format!("v{writer}"));
            let newest = |id| state.snapshots_of(id).next_back().map_or(0, |kept| kept.epoch.into());
            let found = volume.map_or(0, |volume| if writer == KEEPER { newest(volume.id) } else { volume.size });
            assert!(found >= *size, "v{writer} has {found} bytes or epochs, and {size} were acknowledged");
            // At most one command of each writer was under way, besides lines that the kill cut off.
            *size = found;
        }
        metadata.shutdown().await;
    });
}

/// Says how often its threads went to sleep and woke in a while of doing nothing, and the CPU time they took.
async fn idle(folder: &Path) {
    let metadata = created(folder).await;
    metadata.propose(add_drive(1)).await.unwrap();
    tokio::time::sleep(Duration::from_millis(500)).await;
    let before = threads();
    tokio::time::sleep(idle_time()).await;
    let after = threads();
    // A thread that has ended meanwhile woke once for that, and doesn't any more.
    let did = after.iter().filter_map(|(id, (switches, nanos))| {
        let (switches_before, nanos_before) = before.get(id)?;
        Some((switches - switches_before, nanos - nanos_before))
    });
    let (switches, nanos) = did.fold((0, 0), |sum, did| (sum.0 + did.0, sum.1 + did.1));
    say(&format!("idle {switches} {}", nanos / 1_000));
    metadata.shutdown().await;
}

fn idle_time() -> Duration {
    std::env::var("TEPAL_METADATA_TEST_IDLE_SECONDS")
        .ok()
        .and_then(|seconds| seconds.parse().ok())
        .map_or(Duration::from_secs(3), Duration::from_secs)
}

/// For each thread of this process, how often it went to sleep, and its CPU time in nanoseconds.
fn threads() -> BTreeMap<String, (u64, u64)> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let read = |task: std::io::Result<std::fs::DirEntry>| {
        let path = task.ok()?.path();
        let status = std::fs::read_to_string(path.join("status")).ok()?;
        let switches = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
        let schedstat = std::fs::read_to_string(path.join("schedstat")).ok()?;
        let id = path.file_name()?.to_string_lossy().into_owned();
        Some((id, (switches.trim().parse().ok()?, schedstat.split(' ').next()?.parse().ok()?)))
    };
    tasks.filter_map(read).collect()
}

#[test]
fn a_lone_voter_with_nothing_to_do_does_nothing() {
    let scratch = Scratch::new();
    let begin = Instant::now();
    let child = child("idle", scratch.path());
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let found = text.lines().find_map(|line| line.strip_prefix("idle ")).unwrap_or_else(|| panic!("{text}"));
    let (switches, micros) = found.split_once(' ').unwrap();
    let (switches, micros): (u64, u64) = (switches.parse().unwrap(), micros.parse().unwrap());
    println!("{switches} wake-ups, {micros} us of CPU in {:?}", begin.elapsed());
    // Reading the counts takes some of both.
    assert!(switches < 20 && micros < 20_000, "{switches} wake-ups, {micros} us of CPU");
}
