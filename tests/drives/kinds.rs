//! Every kind of drive: files, files in memory, block devices, a log on a device of its own, and machines that forbid
//! io_uring.

use crate::cluster::{Cluster, Media, Plan, make_drive, tepal};
use crate::nbd::{Ledger, Writer};
use crate::program::{command, run};
use crate::{need, need_root};
use std::path::{Path, PathBuf};
use std::process::Command;

/// What each drive's I/O goes through.
fn backends(cluster: &Cluster) -> Vec<String> {
    let drives = cluster.ask(&["drive", "ls"]);
    let drives = drives.as_array().expect("a list");
    drives.iter().map(|drive| drive["open"]["backend"].as_str().unwrap_or_default().to_owned()).collect()
}

/// Writes under a kill and through a restart, and compares.
fn works(cluster: &mut Cluster, layout: &str) {
    cluster.create("v0", "8M", layout);
    let writer = Writer::start(cluster.address(), "v0", Ledger::new(21, 2048));
    writer.go_on_for(800);
    cluster.kill();
    cluster.start();
    writer.go_on_for(800);
    let mut ledger = writer.finish();
    cluster.stop();
    cluster.start();
    ledger.compare(&mut cluster.connect("v0"));
    cluster.scrub_finds_nothing("v0");
}

#[test]
fn where_io_uring_is_forbidden_the_plain_device_does_the_work_and_says_so() {
    let plan = Plan { media: Media::Files, forbidden: Some(libc::SYS_io_uring_setup), ..Plan::default() };
    let mut cluster = plan.up();
    assert_eq!(backends(&cluster), ["plain"; 4]);
    let status = cluster.tepal(&["status"]).succeeded();
    assert!(status.contains("plain"), "{status}");
    works(&mut cluster, "mirror:2");
    cluster.stop_and_check_drives();
}

#[test]
fn files_and_files_in_memory_have_devices_of_their_own_kind() {
    let cluster = Plan { media: Media::Files, ..Plan::default() }.up();
    // Some filesystems refuse O_DIRECT, and some machines io_uring.
    assert!(backends(&cluster).iter().all(|backend| ["io_uring", "plain"].contains(&backend.as_str())));
    let cluster = Plan { media: Media::Memory, ..Plan::default() }.up();
    let wanted = if Path::new("/dev/shm").is_dir() { "memory file" } else { "io_uring" };
    assert_eq!(backends(&cluster), [wanted; 4]);
}

/// A loop device on a file. It's detached when it's dropped.
struct Loop(PathBuf);

impl Loop {
    fn new(file: &Path, size: u64) -> Loop {
        make_drive(file, size);
        let device = run(command("losetup", ["--find", "--show"]).arg(file)).succeeded();
        Loop(device.trim().into())
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        run(command("losetup", ["--detach"]).arg(&self.0));
    }
}

#[test]
fn block_devices_are_drives_like_any_other() {
    need_root!();
    need!("losetup");
    let scratch = tempfile::tempdir().expect("space");
    let devices = [0, 1].map(|number| Loop::new(&scratch.path().join(format!("disk{number}")), 128 << 20));
    let arguments = devices.iter().flat_map(|device| ["--drive".to_owned(), device.0.display().to_string()]).collect();
    let mut cluster = Plan { drives: 0, arguments, ..Plan::default() }.up();
    assert_eq!(cluster.drives_say("state"), ["up", "up"]);
    works(&mut cluster, "mirror:2");
    let in_use = run(Command::new(tepal()).args(["drive", "check"]).arg(&devices[0].0)).refused(1);
    assert!(in_use.contains("in use"), "{in_use}");
    cluster.stop();
    for device in &devices {
        run(Command::new(tepal()).args(["drive", "check"]).arg(&device.0)).succeeded();
    }
}

#[test]
fn a_log_may_be_on_a_device_of_its_own() {
    let scratch = tempfile::tempdir().expect("space");
    let paths = ["drive0", "drive1", "log0", "log1"].map(|name| scratch.path().join(name));
    for (path, size) in paths.iter().zip([128 << 20, 128 << 20, 32 << 20, 32 << 20]) {
        make_drive(path, size);
    }
    let config = scratch.path().join("tepal.toml");
    let drives = r#"drives = [{ path = "drive0", log = "log0" }, { path = "drive1", log = "log1" }]"#;
    std::fs::write(&config, format!("{drives}\n")).expect("space");
    let arguments = vec!["--config".to_owned(), config.display().to_string()];
    let mut cluster = Plan { drives: 0, arguments, ..Plan::default() }.up();
    works(&mut cluster, "mirror:2");
    cluster.stop();
    let check = |arguments: &[&Path]| run(Command::new(tepal()).args(["drive", "check"]).args(arguments));
    let without_log = check(&[&paths[0]]).refused(1);
    assert!(without_log.contains("--log"), "{without_log}");
    let only_log = check(&[&paths[2]]).refused(1);
    assert!(only_log.contains("only the log"), "{only_log}");
    for number in [0, 1] {
        check(&[&paths[number], Path::new("--log"), &paths[2 + number]]).succeeded();
    }
}

/// Story: the file of a drive's log was cut short while the server was down, and lengthened again. The drive was used as if it
/// had everything, and since a crash has the copies compared, the other copy of what was acknowledged was cleared too.
#[test]
fn a_log_that_was_cut_short_and_lengthened_costs_its_drive_and_nothing_that_was_acknowledged() {
    let scratch = tempfile::tempdir().expect("space");
    let paths = ["drive0", "drive1", "log1"].map(|name| scratch.path().join(name));
    for (path, size) in paths.iter().zip([128 << 20, 128 << 20, 32 << 20]) {
        make_drive(path, size);
    }
    let config = scratch.path().join("tepal.toml");
    std::fs::write(&config, "drives = [\"drive0\", { path = \"drive1\", log = \"log1\" }]\n").expect("space");
    let arguments = vec!["--config".to_owned(), config.display().to_string()];
    let mut cluster = Plan { drives: 0, arguments, ..Plan::default() }.up();
    cluster.create("v0", "16M", "mirror:2");
    let mut ledger = Ledger::new(22, 4096);
    ledger.fill(&mut cluster.connect("v0")).expect("written");
    cluster.kill();
    let log = std::fs::File::options().write(true).open(&paths[2]).expect("our own log");
    log.set_len(64 << 10).and_then(|()| log.set_len(32 << 20)).expect("space");
    cluster.start();
    let status = cluster.ask(&["status"]);
    assert!(status["health"] == "degraded" && status["reason"].to_string().contains("was cut short"), "{status}");
    ledger.compare(&mut cluster.connect("v0"));
    cluster.stop();
    cluster.start();
    ledger.compare(&mut cluster.connect("v0"));
}
