//! A cluster of one server, with drives and sockets of its own in a folder of its own. It's gone when it's dropped.

mod plan;
mod server;

pub use plan::{Media, Plan};

use crate::nbd::{Address, Nbd};
use crate::program::{self, Ended};
use serde_json::Value;
use server::Server;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};
use tempfile::TempDir;

pub struct Cluster {
    folder: TempDir,
    /// Of drives in memory.
    _memory: Option<TempDir>,
    plan: Plan,
    drives: Vec<PathBuf>,
    server: Option<Server>,
}

/// How long a change of state may take that the server makes by itself.
const SETTLE: Duration = Duration::from_secs(60);
/// For a volume to have its new layout, however busy the machine is.
const LONG: Duration = Duration::from_secs(300);

impl Cluster {
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The server's data folder: metadata, token, addresses.
    pub fn data(&self) -> PathBuf {
        self.folder().join("s1")
    }

    pub fn socket(&self) -> PathBuf {
        self.folder().join("nbd.sock")
    }

    pub fn address(&self) -> Address {
        Address::Unix(self.socket())
    }

    /// The file of a drive that was made with the cluster.
    pub fn drive(&self, number: usize) -> &Path {
        &self.drives[number]
    }

    /// For the next start.
    pub fn plan(&mut self) -> &mut Plan {
        &mut self.plan
    }

    pub fn uri(&self, volume: &str) -> String {
        format!("nbd+unix:///{volume}?socket={}", self.socket().display())
    }

    /// Where it listens on TCP; panics if the plan didn't ask for that.
    pub fn tcp(&self) -> String {
        let addresses = std::fs::read(self.data().join("addresses.json")).expect("the server's addresses");
        let addresses: Value = serde_json::from_slice(&addresses).expect("JSON");
        let listening = addresses["nbd"].as_array().expect("a list").iter().filter_map(Value::as_str);
        listening.filter(|address| !address.starts_with("unix:")).map(str::to_owned).next().expect("listens on TCP")
    }

    pub fn connect(&self, volume: &str) -> Nbd {
        Nbd::open(&self.address(), volume).unwrap_or_else(|error| panic!("{volume}: {error}"))
    }

    /// `tepal ARGUMENTS`, asking this cluster.
    pub fn tepal(&self, arguments: &[&str]) -> Ended {
        program::run(self.command().args(arguments))
    }

    pub fn command(&self) -> Command {
        command_for(&self.data())
    }

    /// What a command that succeeds prints as JSON.
    pub fn ask(&self, arguments: &[&str]) -> Value {
        let said = program::run(self.command().args(["-o", "json"]).args(arguments)).succeeded();
        serde_json::from_str(&said).unwrap_or_else(|error| panic!("{arguments:?}: {error}: {said}"))
    }

    pub fn create(&self, volume: &str, size: &str, layout: &str) {
        self.tepal(&["volume", "create", volume, "--size", size, "--layout", layout]).succeeded();
    }

    pub fn volume(&self, name: &str) -> Value {
        self.ask(&["volume", "show", name])
    }

    /// The drives by what `field` says of each, in the order of their paths.
    pub fn drives_say(&self, field: &str) -> Vec<String> {
        let drives = self.ask(&["drive", "ls"]);
        let mut drives: Vec<&Value> = drives.as_array().expect("a list").iter().collect();
        drives.sort_by_key(|drive| drive["path"].as_str().unwrap_or_default());
        drives.iter().map(|drive| drive[field].as_str().unwrap_or_default().to_owned()).collect()
    }

    pub fn drive_id(&self, path: &Path) -> String {
        let drives = self.ask(&["drive", "ls"]);
        let found = drives.as_array().expect("a list").iter().find(|drive| drive["path"].as_str() == path.to_str());
        found.and_then(|drive| drive["id"].as_str()).expect("a drive at this path").to_owned()
    }

    /// Waits until the volume's copies are all up to date.
    pub fn wait_until_healthy(&self, volume: &str) {
        let what = format!("volume {volume} to be healthy");
        program::until(&what, SETTLE, || (self.volume(volume)["state"] == "healthy").then_some(()));
    }

    /// Waits until the volume is no longer on its way to another layout, and says what it has now.
    pub fn wait_until_there(&self, volume: &str) -> String {
        program::until(&format!("volume {volume} to be there"), LONG, || {
            let now = self.volume(volume);
            now["migration"].is_null().then(|| now["layout"].as_str().expect("a layout").to_owned())
        })
    }

    /// Waits until no volume has anything on any drive.
    pub fn wait_until_all_is_free(&self) {
        program::until("all space to be free", LONG, || (self.used() == 0).then_some(()));
    }

    /// The bytes that all drives hold of all volumes.
    pub fn used(&self) -> u64 {
        let drives = self.ask(&["drive", "ls"]);
        drives.as_array().expect("a list").iter().filter_map(|drive| drive["used"].as_u64()).sum()
    }

    /// Waits until a drive is in this state.
    pub fn wait_for_drive(&self, path: &Path, state: &str) -> Value {
        program::until(&format!("drive {} to be {state}", path.display()), SETTLE, || {
            let drives = self.ask(&["drive", "ls"]);
            let found = drives.as_array()?.iter().find(|drive| drive["path"].as_str() == path.to_str())?;
            (found["state"] == state).then(|| found.clone())
        })
    }

    /// Reads every copy of everything: all must be right without repair.
    pub fn scrub_finds_nothing(&self, volume: &str) {
        let scrub = self.ask(&["volume", "scrub", volume]);
        assert_eq!((&scrub["repaired_blocks"], &scrub["damaged"]), (&0.into(), &Value::Array(vec![])), "{scrub}");
    }

    /// Stops the server in good order and checks each drive by itself.
    pub fn stop_and_check_drives(&mut self) {
        self.stop();
        for drive in &self.drives {
            let drive = drive.to_str().expect("our own paths");
            program::run(Command::new(tepal()).args(["drive", "check", drive])).succeeded();
        }
    }

    /// Starts the server; how long that took until a client had an answer.
    pub fn start(&mut self) -> Duration {
        assert!(self.server.is_none(), "it runs already");
        let began = Instant::now();
        self.server = Some(Server::start(&self.plan, &self.data(), &self.socket(), &self.drives));
        began.elapsed()
    }

    pub fn runs(&self) -> bool {
        self.server.is_some()
    }

    /// Sends SIGKILL and waits for nothing: [`Cluster::kill`] does.
    pub fn strike(&self) {
        self.server.as_ref().expect("it runs").strike();
    }

    /// SIGKILL.
    pub fn kill(&mut self) {
        self.server.take().expect("it runs").kill();
    }

    /// In good order.
    pub fn stop(&mut self) {
        self.server.take().expect("it runs").stop();
    }

    /// How it ended by itself.
    pub fn wait_for_end(&mut self) -> ExitStatus {
        self.server.take().expect("it runs").wait_for_end()
    }

    /// What the server logged, of all its starts.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder().join("log")).unwrap_or_default()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = self.log();
            let lines: Vec<&str> = log.lines().collect();
            println!("the end of the server's log:\n{}", lines[lines.len().saturating_sub(30)..].join("\n"));
        }
    }
}

/// `tepal`, asking the server with this data folder.
pub fn command_for(data: &Path) -> Command {
    let mut command = Command::new(tepal());
    command.arg("--dir").arg(data);
    command
}

/// A sparse file of this size.
pub fn make_drive(path: &Path, size: u64) {
    let file = std::fs::File::create_new(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    file.set_len(size).expect("space");
}

/// Overwrites a part of a drive from outside.
pub fn overwrite(path: &Path, offset: u64, bytes: &[u8]) {
    let file = std::fs::File::options().write(true).open(path).expect("our own drive");
    file.write_all_at(bytes, offset).expect("written");
}

/// The binary at test: TEPAL, else the one that cargo builds beside this program.
pub fn tepal() -> PathBuf {
    if let Some(named) = std::env::var_os("TEPAL") {
        return named.into();
    }
    let this = std::env::current_exe().expect("a program has a file");
    let beside = this.parent().and_then(Path::parent).map(|folder| folder.join("tepal"));
    let found = beside.filter(|path| path.is_file());
    found.expect("the binary: run `cargo xtask test --integration`, or name it by TEPAL")
}
