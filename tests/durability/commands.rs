//! Management commands that are cut off at any moment, by SIGKILL of the command or of the server: what they were to do is
//! done or not, never half; they can be given again; and no space is lost.

use crate::cluster::{Cluster, Media, Plan, make_drive};
use crate::nbd::{Ledger, mixed};
use crate::program::{self, kill_group, spawn, until, wait};
use std::process::Stdio;
use std::time::{Duration, Instant};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    Command,
    Server,
}

/// For the server to free what was removed.
const SOON: Duration = Duration::from_secs(60);
const ROUNDS: u64 = 12;

struct Cut {
    cluster: Cluster,
    seed: u64,
}

impl Cut {
    /// Gives a command that is cut off, and then gives it again, until it's done: what it says then, if that isn't that it's
    /// done, must be one of `done`.
    fn until_done(&mut self, whom: Victim, took: &mut Duration, arguments: &[&str], done: &[&str]) {
        self.seed += 1;
        // Anywhere within the time that the command takes, or a little later.
        let moment = took.mul_f64((mixed(self.seed) % 120) as f64 / 100.0);
        let mut child = spawn(self.cluster.command().args(arguments).stdout(Stdio::null()).stderr(Stdio::null()));
        std::thread::sleep(moment);
        match whom {
            Victim::Command => kill_group(&mut child),
            Victim::Server => {
                self.cluster.kill();
                wait(&mut child, program::LIMIT)
                    .unwrap_or_else(|| panic!("{arguments:?} doesn't end without a server"));
                self.cluster.start();
            }
        }
        let began = Instant::now();
        let again = self.cluster.tepal(arguments);
        if again.status.success() {
            // Only as a measure of the moments at which to cut; a slow one must not make all later cuts too late.
            *took = (*took).min(began.elapsed()).max(Duration::from_millis(5));
        } else {
            let said = again.refused(1);
            assert!(
                done.iter().any(|done| said.contains(done)),
                "{whom:?} cut off at {moment:?}: {arguments:?}: {said}"
            );
        }
    }
}

#[test]
fn a_command_that_is_cut_off_is_done_or_not_and_can_be_given_again() {
    let mut cut = Cut { cluster: Plan { media: Media::Memory, drives: 3, ..Plan::default() }.up(), seed: 0 };
    let mut took = [Duration::from_millis(100); 6];
    for round in 0..ROUNDS {
        let whom = if round % 2 == 0 { Victim::Server } else { Victim::Command };
        let name = format!("v{round}");
        let create = ["volume", "create", &name, "--size", "8M", "--layout", "mirror:2"];
        cut.until_done(whom, &mut took[0], &create, &["exists"]);
        let mut ledger = Ledger::new(round, 512);
        ledger.fill(&mut cut.cluster.connect(&name)).expect("written");
        cut.until_done(whom, &mut took[1], &["volume", "resize", &name, "16M"], &[]);
        cut.until_done(whom, &mut took[1], &["volume", "resize", &name, "4M", "--shrink"], &[]);
        assert_eq!(cut.cluster.volume(&name)["size"], 4 << 20);

        let new = cut.cluster.folder().join(format!("new{round}"));
        let path = new.to_str().expect("ours").to_owned();
        // The cluster knows it a moment before it's open.
        let added = ["in use", "has as up"];
        match round % 3 {
            0 => cut.until_done(whom, &mut took[2], &["drive", "add", "s1", &path, "--create", "64M"], &added),
            _ => {
                make_drive(&new, 64 << 20);
                cut.until_done(whom, &mut took[3], &["drive", "add", "s1", &path], &added);
            }
        }
        cut.cluster.wait_for_drive(&new, "up");
        let id = cut.cluster.drive_id(&new);
        cut.until_done(whom, &mut took[4], &["drive", "rm", &id], &["no drive"]);
        // It may have had copies already.
        let is_gone = || (cut.cluster.drives_say("state") == ["up"; 3]).then_some(());
        until("others to have what it had", SOON, is_gone);

        ledger.compare(&mut cut.cluster.connect(&name));
        if round % 4 != 0 {
            cut.until_done(whom, &mut took[5], &["volume", "rm", &name], &["no volume"]);
        }
    }
    println!("the commands take {took:?}");
    let Cut { mut cluster, .. } = cut;
    let kept: Vec<String> = (0..ROUNDS).filter(|round| round % 4 == 0).map(|round| format!("v{round}")).collect();
    let found = cluster.ask(&["volume", "ls"]);
    let mut names: Vec<&str> =
        found.as_array().expect("a list").iter().filter_map(|volume| volume["name"].as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, kept);
    for name in &kept {
        cluster.scrub_finds_nothing(name);
    }
    let allocated: u64 =
        found.as_array().expect("a list").iter().filter_map(|volume| volume["allocated"].as_u64()).sum();
    until("nothing else to take space", SOON, || (cluster.ask(&["status"])["used"] == allocated).then_some(()));
    for name in &kept {
        cluster.tepal(&["volume", "rm", name]).succeeded();
    }
    until("all space to be free", SOON, || (cluster.ask(&["status"])["used"] == 0).then_some(()));
    cluster.stop_and_check_drives();
}

/// Three drives have as much of it each as slots hold, be its extents as small as blocks.
const SIZE_OF_THREE: &str = "9M";
const BLOCKS_OF_THREE: usize = 9 << 8;

#[test]
fn what_goes_on_after_its_command_and_what_keeps_old_data_is_cut_off_and_given_again_too() {
    let mut cut = Cut { cluster: Plan { media: Media::Memory, drives: 4, ..Plan::default() }.up(), seed: 100 };
    let mut took = [Duration::from_millis(50); 8];
    let drained = cut.cluster.drive_id(cut.cluster.drive(3));
    for round in 0..ROUNDS / 2 {
        let whom = if round % 2 == 0 { Victim::Server } else { Victim::Command };
        let name = format!("v{round}");
        let (snapshot, clone) = (format!("{name}@a"), format!("{name}-clone"));
        cut.cluster.create(&name, SIZE_OF_THREE, "mirror:2");
        let mut ledger = Ledger::new(round, BLOCKS_OF_THREE);
        ledger.fill(&mut cut.cluster.connect(&name)).expect("written");
        cut.until_done(whom, &mut took[0], &["snapshot", "create", &snapshot], &["already"]);
        let mut kept = ledger.clone();
        ledger.fill(&mut cut.cluster.connect(&name)).expect("written");
        cut.until_done(whom, &mut took[1], &["volume", "clone", &snapshot, &clone], &["exists"]);

        cut.until_done(whom, &mut took[2], &["drive", "drain", &drained, "--no-wait"], &[]);
        let layout = "mirror:2;extent=4K";
        let relayout = ["volume", "relayout", &name, "--layout", layout, "--no-wait"];
        cut.until_done(whom, &mut took[3], &relayout, &["already"]);
        ledger.compare(&mut cut.cluster.connect(&name));
        cut.until_done(whom, &mut took[4], &["drive", "drain", &drained, "--cancel"], &[]);
        assert_eq!(cut.cluster.wait_until_there(&name), layout);
        ledger.compare(&mut cut.cluster.connect(&name));
        kept.compare(&mut cut.cluster.connect(&snapshot));

        cut.until_done(whom, &mut took[5], &["snapshot", "rollback", &snapshot], &[]);
        kept.compare(&mut cut.cluster.connect(&name));
        cut.until_done(whom, &mut took[6], &["volume", "flatten", &clone, "--no-wait"], &["already", "shares nothing"]);
        cut.cluster.wait_until_there(&clone);
        cut.until_done(whom, &mut took[7], &["snapshot", "rm", &snapshot], &["no snapshot"]);
        [&name, &clone].iter().for_each(|volume| kept.compare(&mut cut.cluster.connect(volume)));
    }
    println!("the commands take {took:?}");
    let Cut { mut cluster, .. } = cut;
    let volumes: Vec<String> =
        (0..ROUNDS / 2).flat_map(|round| [format!("v{round}"), format!("v{round}-clone")]).collect();
    volumes.iter().for_each(|name| cluster.scrub_finds_nothing(name));
    let once = volumes.len() as u64 * 2 * (9 << 20);
    until("only what the volumes have to take space", SOON, || (cluster.used() == once).then_some(()));
    volumes.iter().for_each(|name| drop(cluster.tepal(&["volume", "rm", name]).succeeded()));
    cluster.wait_until_all_is_free();
    cluster.stop_and_check_drives();
}

#[test]
fn a_development_cluster_whose_start_or_end_is_cut_off_starts_again_and_leaves_no_process() {
    let scratch = tempfile::tempdir().expect("space");
    let folder = scratch.path().join("dev");
    let dir = folder.to_str().expect("ours").to_owned();
    let dev = |arguments: &[&str]| {
        let mut command = std::process::Command::new(crate::cluster::tepal());
        command.args(["--dir", &dir, "dev"]).args(arguments);
        command
    };
    let up = "up --servers 1 --drives 2 --drive-size 64M --volume v0=4M,layout=mirror:2 --detach";
    let up: Vec<&str> = up.split(' ').collect();
    let mut took = Duration::from_millis(600);
    for round in 0..10 {
        for arguments in [&up[..], &["down"]] {
            let moment = took.mul_f64((mixed(round ^ arguments.len() as u64) % 120) as f64 / 100.0);
            let mut child = spawn(dev(arguments).stdout(Stdio::null()).stderr(Stdio::null()));
            std::thread::sleep(moment);
            kill_group(&mut child);
            let began = Instant::now();
            let again = program::run(&mut dev(&up));
            assert!(again.status.success(), "{arguments:?} cut off at {moment:?}: {again}");
            took = took.min(began.elapsed()).max(Duration::from_millis(20));
            let status =
                program::run(std::process::Command::new(crate::cluster::tepal()).args(["--dir", &dir, "status"]));
            status.succeeded();
        }
    }
    program::run(&mut dev(&["down", "--purge", &dir])).succeeded();
    assert!(!folder.exists(), "it was to be removed");
    let left: Vec<String> = processes().into_iter().filter(|command| command.contains(&dir)).collect();
    assert_eq!(left, Vec::<String>::new());
}

#[test]
fn a_tour_whose_output_nobody_reads_to_the_end_leaves_no_server() {
    let scratch = tempfile::tempdir().expect("space");
    let dir = scratch.path().join("dev").to_str().expect("ours").to_owned();
    let pipe = "\"$0\" --dir \"$1\" dev tour --memory | head -n 1";
    let mut tour = std::process::Command::new("sh");
    let ended = program::run(tour.args(["-c", pipe]).arg(crate::cluster::tepal()).arg(&dir));
    assert!(ended.stderr.contains("standard output can't be written"), "{ended}");
    let served = |command: &String| command.contains(&dir);
    until("its servers to be gone", SOON, || (!processes().iter().any(served)).then_some(()));
    let mut purge = std::process::Command::new(crate::cluster::tepal());
    program::run(purge.args(["--dir", &dir, "dev", "down", "--purge", &dir])).succeeded();
}

/// Story: the disk below a server was full, and the server ended as it couldn't say so.
#[test]
fn a_server_whose_log_can_t_be_written_goes_on() {
    let scratch = tempfile::tempdir().expect("space");
    let (data, socket) = (scratch.path().join("s1"), scratch.path().join("nbd.sock"));
    let log = std::fs::File::options().write(true).open("/dev/full").expect("Linux has one");
    let mut server = std::process::Command::new(crate::cluster::tepal());
    server.args(["serve", "--server", "s1", "--create", "c", "--data"]).arg(&data);
    server.arg("--listen").arg(format!("unix:{}", socket.display())).stdout(Stdio::null()).stderr(log);
    let mut server = spawn(&mut server);
    until("it to serve", SOON, || std::os::unix::net::UnixStream::connect(&socket).ok());
    assert!(server.try_wait().expect("it's ours").is_none(), "it has ended");
    kill_group(&mut server);
}

/// The command lines of all processes.
fn processes() -> Vec<String> {
    let all = std::fs::read_dir("/proc").expect("Linux").filter_map(Result::ok);
    let lines = all.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " ")).collect()
}
