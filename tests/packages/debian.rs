//! A Debian of its own: made by mmdebstrap from the mirrors of this machine, and started, with its systemd, in namespaces of its own.

use crate::program::{self, Ended, command, run, run_within, spawn};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A minute on an idle machine with a mirror near it.
const MAKING: Duration = Duration::from_secs(420);
const BOOTING: Duration = Duration::from_secs(90);
const INSTALLING: Duration = Duration::from_secs(180);

pub struct Debian {
    folder: TempDir,
    init: u32,
    outside: Child,
    loops: Vec<PathBuf>,
}

impl Debian {
    /// It runs; or why that can't be here.
    pub fn up() -> Result<Debian, String> {
        let folder = tempfile::Builder::new().prefix("tepal-test-").tempdir().map_err(|error| error.to_string())?;
        let root = folder.path().join("root");
        make(&root)?;
        let boot = Path::new(env!("CARGO_MANIFEST_DIR")).join("packages/boot.sh");
        let mut unshare =
            command("unshare", ["--mount", "--uts", "--ipc", "--cgroup", "--pid", "--fork", "--kill-child"]);
        let outside = spawn(unshare.arg("sh").arg(boot).arg(&root));
        let mut debian = Debian { folder, init: 0, outside, loops: Vec::new() };
        debian.wait_until_it_runs()?;
        Ok(debian)
    }

    fn wait_until_it_runs(&mut self) -> Result<(), String> {
        let (id, end) = (self.outside.id(), Instant::now() + BOOTING);
        let children = format!("/proc/{id}/task/{id}/children");
        while Instant::now() < end {
            if let Ok(Some(status)) = self.outside.try_wait() {
                return Err(format!("systemd can't be started in namespaces here: {status}"));
            }
            let found = std::fs::read_to_string(&children).unwrap_or_default();
            self.init = found.split_whitespace().next().and_then(|id| id.parse().ok()).unwrap_or(0);
            let comm = std::fs::read_to_string(format!("/proc/{}/comm", self.init)).unwrap_or_default();
            if comm.trim() == "systemd" && self.run(&["systemctl", "is-system-running"]).status.success() {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Err(format!("systemd in namespaces doesn't come up within {BOOTING:?}"))
    }

    pub fn root(&self) -> PathBuf {
        self.folder.path().join("root")
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Runs a command in it, as its root.
    pub fn run(&self, arguments: &[&str]) -> Ended {
        let mut nsenter =
            command("nsenter", ["--target", &self.init.to_string(), "--all", "env", "--ignore-environment"]);
        nsenter.args(["PATH=/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND=noninteractive"]).args(arguments);
        run_within(&mut nsenter, INSTALLING)
    }

    /// The words of a command that succeeds.
    pub fn says(&self, line: &str) -> String {
        self.run(&line.split(' ').collect::<Vec<_>>()).succeeded().trim().to_owned()
    }

    /// A package from outside, under this name.
    pub fn bring(&self, package: &Path, name: &str) -> String {
        let place = format!("/srv/{name}");
        std::fs::copy(package, self.folder.path().join(format!("root{place}"))).expect("space");
        place
    }

    /// A block device of this size, on a file outside: (its path in there, the file). As udev has them, it's of the group `disk`.
    pub fn drive(&mut self, name: &str, size: u64) -> (String, PathBuf) {
        let file = self.folder.path().join(name);
        std::fs::File::create_new(&file).and_then(|file| file.set_len(size)).expect("a sparse file");
        let device = PathBuf::from(run(command("losetup", ["--find", "--show"]).arg(&file)).succeeded().trim());
        self.loops.push(device.clone());
        let number = device.file_name().expect("loopN").to_string_lossy().into_owned();
        let number = std::fs::read_to_string(format!("/sys/block/{number}/dev")).expect("a block device has a number");
        let (major, minor) = number.trim().split_once(':').expect("MAJOR:MINOR");
        let path = format!("/srv/{name}");
        self.says(&format!("mknod -m 660 {path} b {major} {minor}"));
        self.says(&format!("chgrp disk {path}"));
        (path, file)
    }
}

impl Drop for Debian {
    fn drop(&mut self) {
        program::kill_group(&mut self.outside);
        for device in &self.loops {
            run(command("losetup", ["--detach"]).arg(device));
        }
    }
}

/// Unpacks the root of this machine's release, as it was made once into the target folder.
fn make(root: &Path) -> Result<(), String> {
    let release = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
    let suite = release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    let suite = suite.filter(|_| release.contains("\nID=debian")).ok_or("this machine isn't Debian")?;
    let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("debian-{suite}.tar"));
    if !kept.exists() {
        // Under another name until it's whole.
        let partial = tempfile::Builder::new().suffix(".tar").tempfile_in(kept.parent().expect("a folder"));
        let partial = partial.map_err(|error| error.to_string())?;
        let mut mmdebstrap =
            command("mmdebstrap", ["--quiet", "--variant=minbase", "--include=e2fsprogs,systemd", suite]);
        let ended = run_within(mmdebstrap.arg(partial.path()), MAKING);
        if !ended.status.success() {
            let why = ended.stderr.lines().find(|line| line.starts_with("E:")).unwrap_or("it failed");
            return Err(format!("no Debian can be made here: {why}"));
        }
        partial.persist(&kept).map_err(|error| error.to_string())?;
    }
    std::fs::create_dir(root).map_err(|error| error.to_string())?;
    let unpacked = run_within(
        command("tar", ["--extract", "--exclude=./dev/*", "--file"]).arg(&kept).arg("--directory").arg(root),
        MAKING,
    );
    if unpacked.status.success() { Ok(()) } else { Err(unpacked.to_string()) }
}
