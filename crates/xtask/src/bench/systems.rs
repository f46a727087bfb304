//! What is measured: nbdkit serving one file in memory, and a cluster of our own on one machine.

use super::suite::{Disk, Job, fio};
use crate::failure::Failure;
use crate::process;
use crate::workspace::{answer, parse};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Where both keep their data.
pub const MEMORY: &str = "/dev/shm";
/// A command of ours that takes longer is stuck.
const LIMIT: Duration = Duration::from_secs(120);
/// How long the load runs before the server is killed under it.
const UNDER_WAY: Duration = Duration::from_secs(2);
const SERVER: &str = "s1";
const CEPH_LIMIT: Duration = Duration::from_secs(300);

/// A folder that is removed with everything in it.
pub struct Scratch(PathBuf);

impl Scratch {
    pub fn new(place: &Path) -> Result<Scratch, Failure> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let folder = place.join(format!("tepal-bench-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&folder).map_err(Failure::file(&folder))?;
        Ok(Scratch(folder))
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// nbdkit with its file plugin.
pub struct Nbdkit {
    child: Child,
    uri: String,
    _scratch: Scratch,
}

impl Nbdkit {
    pub fn start(size: &str) -> Result<Nbdkit, Failure> {
        let scratch = Scratch::new(Path::new(MEMORY))?;
        let (socket, image) = (scratch.file("socket"), scratch.file("image"));
        process::succeed(Command::new("truncate").args(["--size", size]).arg(&image), LIMIT)?;
        let mut nbdkit = Command::new("nbdkit");
        nbdkit.args(["--foreground", "--unix"]).arg(&socket).arg("file").arg(&image).stdin(Stdio::null());
        let child = nbdkit.spawn().map_err(|source| Failure::Start { program: "nbdkit".into(), source })?;
        let nbdkit = Nbdkit { child, uri: format!("nbd+unix:///?socket={}", socket.display()), _scratch: scratch };
        until("nbdkit to answer", || answers(&nbdkit.uri))?;
        Ok(nbdkit)
    }

    pub fn disk(&self) -> Disk {
        Disk::Nbd { uri: self.uri.clone() }
    }
}

impl Drop for Nbdkit {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A cluster with drives in memory, and the volumes that are asked for.
pub struct Tepal {
    program: PathBuf,
    /// The cluster's folder, which it makes itself.
    folder: PathBuf,
    _scratch: Scratch,
}

impl Tepal {
    /// `shape` is as `dev up` takes it: `--servers N --drives N`, and `volumes` as `--volume` does: `NAME=SIZE,layout=LAYOUT`.
    pub fn start(program: &Path, shape: &[&str], drive_size: &str, volumes: &[String]) -> Result<Tepal, Failure> {
        let program = program.canonicalize().map_err(Failure::file(program))?;
        let scratch = Scratch::new(&std::env::temp_dir())?;
        let tepal = Tepal { program, folder: scratch.file("cluster"), _scratch: scratch };
        let mut up = tepal.command(&["up", "--detach", "--memory", "--drive-size", drive_size]);
        up.args(shape);
        for volume in volumes {
            up.args(["--volume", volume]);
        }
        process::succeed(&mut up, LIMIT)?;
        Ok(tepal)
    }

    fn uri(&self, volume: &str) -> String {
        format!("nbd+unix:///{volume}?socket={}", self.folder.join("nbd.sock").display())
    }

    pub fn disk(&self, volume: &str) -> Disk {
        Disk::Nbd { uri: self.uri(volume) }
    }

    /// The processes of this cluster.
    pub fn processes(&self) -> Vec<u32> {
        let folder = self.folder.to_string_lossy().into_owned();
        let ours = |id: &u32| {
            let line = std::fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
            let is_tepal = std::fs::read_link(format!("/proc/{id}/exe")).is_ok_and(|exe| exe == self.program);
            is_tepal && String::from_utf8_lossy(&line).contains(&folder)
        };
        process::processes().filter(ours).collect()
    }

    /// Kills the server with a load on it and starts it again: how long from there until a read is answered.
    pub fn restart_under(&self, load: &Job, volume: &str, size: &str) -> Result<Duration, Failure> {
        let uri = self.uri(volume);
        let mut fio = fio(load, &self.disk(volume), size);
        fio.args(["--time_based", "--runtime=600"]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut fio = fio.spawn().map_err(|source| Failure::Start { program: "fio".into(), source })?;
        std::thread::sleep(UNDER_WAY);
        let killed = process::succeed(&mut self.command(&["kill", SERVER]), LIMIT);
        process::kill_tree(fio.id());
        let _ = fio.wait();
        killed?;
        let began = Instant::now();
        let mut start = self.command(&["start", SERVER]);
        start.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut start = start.spawn().map_err(|source| Failure::Start { program: "tepal".into(), source })?;
        let answered = until("the restarted server to answer", || answers(&uri));
        let took = began.elapsed();
        let _ = start.wait(); // whatever it says: the server answers, or didn't in time
        answered.map(|()| took)
    }

    /// Kills a server and waits until the others go on without it.
    pub fn lose(&self, server: &str) -> Result<(), Failure> {
        process::succeed(&mut self.command(&["kill", server]), LIMIT)?;
        let mut list = Command::new(&self.program);
        list.arg("--dir").arg(&self.folder).args(["-o", "json", "server", "show", server]);
        until("the others to go on without a server", || {
            process::capture(&mut list, LIMIT).is_ok_and(|ended| ended.stdout.contains("\"down\""))
        })
    }

    /// Starts a server again that was lost.
    pub fn give_back(&self, server: &str) -> Result<(), Failure> {
        process::succeed(&mut self.command(&["start", server]), LIMIT).map(drop)
    }

    /// Starts more servers, which join, so that there are so many.
    pub fn grow(&self, servers: u32) -> Result<(), Failure> {
        let mut up = self.command(&["up", "--detach", "--servers", &servers.to_string()]);
        process::succeed(&mut up, LIMIT).map(drop)
    }

    /// Whether the program knows a command.
    pub fn knows(&self, command: &[&str]) -> bool {
        let mut help = Command::new(&self.program);
        process::capture(help.args(command).arg("--help"), LIMIT).is_ok_and(|ended| ended.status.success())
    }

    /// Has a management command carried out: how long that took, as who gave it sees it.
    pub fn manage(&self, arguments: &[&str]) -> Result<Duration, Failure> {
        let mut command = Command::new(&self.program);
        command.arg("--dir").arg(&self.folder).args(arguments);
        process::succeed(&mut command, LIMIT).map(|ended| ended.took)
    }

    /// What a management command has to say.
    pub fn ask(&self, arguments: &[&str]) -> Result<Value, Failure> {
        let mut command = Command::new(&self.program);
        command.arg("--dir").arg(&self.folder).args(["-o", "json"]).args(arguments);
        parse("tepal", &process::succeed(&mut command, LIMIT)?.stdout)
    }

    pub fn until_healthy(&self, volume: &str) -> Result<(), Failure> {
        until("the volume to be healthy", || self.shown(volume).is_ok_and(|shown| shown["state"] == "healthy"))
    }

    /// Bytes that were copied from drive to drive to make copies equal.
    pub fn copied(&self, volume: &str) -> Result<u64, Failure> {
        self.shown(volume)?["recovery"]["copied_bytes"].as_u64().ok_or(answer("tepal", "what was copied"))
    }

    fn shown(&self, volume: &str) -> Result<Value, Failure> {
        self.ask(&["volume", "show", volume])
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("--dir").arg(&self.folder).arg("dev").args(arguments);
        command
    }
}

impl Drop for Tepal {
    fn drop(&mut self) {
        let mut down = self.command(&["down", "--purge"]);
        if let Err(failure) = process::succeed(down.arg(&self.folder), LIMIT) {
            eprintln!("the cluster was not stopped: {failure}");
            self.processes().into_iter().for_each(process::kill_tree);
        }
    }
}

/// Ceph, as a script starts and stops it: `SCRIPT FOLDER` makes a cluster with the image `bench` in the pool `rbd` and a
/// `ceph.conf` in the folder, `SCRIPT FOLDER down` removes it.
pub struct Ceph {
    script: PathBuf,
    scratch: Scratch,
}

impl Ceph {
    pub fn start(script: &Path) -> Result<Ceph, Failure> {
        let ceph = Ceph { script: script.to_owned(), scratch: Scratch::new(&std::env::temp_dir())? };
        process::succeed(Command::new(&ceph.script).arg(ceph.folder()), CEPH_LIMIT)?;
        Ok(ceph)
    }

    fn folder(&self) -> PathBuf {
        self.scratch.file("ceph")
    }

    pub fn disk(&self) -> Disk {
        Disk::Rbd { pool: "rbd".into(), image: "bench".into(), configuration: self.folder().join("ceph.conf") }
    }

    /// Its storage daemons and monitors.
    pub fn processes(&self) -> Vec<u32> {
        let is_daemon = |id: &u32| {
            let name = std::fs::read_to_string(format!("/proc/{id}/comm")).unwrap_or_default();
            name.starts_with("ceph-osd") || name.starts_with("ceph-mon") || name.starts_with("ceph-mgr")
        };
        process::processes().filter(is_daemon).collect()
    }
}

impl Drop for Ceph {
    fn drop(&mut self) {
        let _ = process::succeed(Command::new(&self.script).arg(self.folder()).arg("down"), CEPH_LIMIT);
    }
}

/// Whether a real client can read the first block now.
fn answers(uri: &str) -> bool {
    let mut client = Command::new("qemu-io");
    client.args(["-r", "-f", "raw", "-c", "read 0 4096", uri]);
    process::capture(&mut client, LIMIT).is_ok_and(|ended| ended.status.success() && ended.stdout.contains("4096/4096"))
}

pub fn until(what: &str, mut ready: impl FnMut() -> bool) -> Result<(), Failure> {
    let began = Instant::now();
    while !ready() {
        if began.elapsed() > LIMIT {
            return Err(Failure::TooLong { what: what.into(), seconds: LIMIT.as_secs(), output: String::new() });
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}
