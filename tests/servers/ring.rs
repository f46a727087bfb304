//! A development cluster of several server processes, which is stopped and removed when it's dropped.

use crate::nbd::{Address, Nbd};
use crate::program::{self, Ended};
use serde_json::Value;
use std::collections::BTreeSet;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;
use tempfile::TempDir;

/// So long the cluster may take to notice, agree and settle, however busy the machine is.
const SETTLE: Duration = Duration::from_secs(120);
/// For commands that start several servers.
const START: Duration = Duration::from_secs(180);

pub struct Ring {
    scratch: TempDir,
    pub servers: u32,
    /// Servers that the test itself has started, by their numbers; all end with the cluster.
    own: Mutex<Vec<(u32, Child)>>,
}

impl Ring {
    pub fn up(servers: u32) -> Ring {
        Self::up_with(servers, &[])
    }

    /// One in whose network cuts can be made. [`super::partitions`] says where that can be had.
    pub fn isolated(servers: u32) -> Ring {
        Self::up_with(servers, &["--isolate"])
    }

    /// One with drives as slow as this model says.
    pub fn emulated(servers: u32, model: &str) -> Ring {
        Self::up_with(servers, &["--emulate", model])
    }

    /// One with room for many volumes.
    pub fn up_with_drives_of(servers: u32, size: &str) -> Ring {
        Self::made(servers, size, &["--memory"])
    }

    fn up_with(servers: u32, more: &[&str]) -> Ring {
        Self::made(servers, "64M", more)
    }

    fn made(servers: u32, size: &str, more: &[&str]) -> Ring {
        let ring = Ring::to_be(servers);
        let count = servers.to_string();
        ring.dev(&[&["up", "--servers", &count, "--drive-size", size, "--detach"], more].concat()).succeeded();
        ring
    }

    /// One that isn't made yet.
    pub fn to_be(servers: u32) -> Ring {
        Ring { scratch: tempfile::tempdir().expect("space"), servers, own: Mutex::default() }
    }

    pub fn dir(&self) -> PathBuf {
        self.scratch.path().join("d")
    }

    pub fn data(&self, server: u32) -> PathBuf {
        self.dir().join(format!("s{server}"))
    }

    fn tepal(&self, at: &Path) -> Command {
        let mut command = Command::new(crate::cluster::tepal());
        command.arg("--dir").arg(at).env_remove("TEPAL_CLUSTER").env_remove("TEPAL_TOKEN");
        // Tokens of development clusters are kept there.
        command.env("XDG_RUNTIME_DIR", self.scratch.path());
        command
    }

    /// `tepal dev ARGUMENTS`.
    pub fn dev(&self, arguments: &[&str]) -> Ended {
        program::run_within(self.tepal(&self.dir()).arg("dev").args(arguments), START)
    }

    /// `tepal ARGUMENTS`, asking this server.
    pub fn ask(&self, server: u32, arguments: &[&str]) -> Ended {
        program::run(self.tepal(&self.data(server)).args(arguments))
    }

    /// `tepal ARGUMENTS`, asking whichever server answers.
    pub fn dev_client(&self, arguments: &[&str]) -> Ended {
        program::run(&mut self.command(arguments))
    }

    /// The same, not run yet.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.tepal(&self.dir());
        command.args(arguments);
        command
    }

    /// A file beside the cluster's folder.
    pub fn scratch_file(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    pub fn wait_until(&self, what: &str, is_so: impl Fn() -> bool) {
        program::until(what, SETTLE, || is_so().then_some(()));
    }

    /// What a command that succeeds prints as JSON.
    pub fn json(&self, server: u32, arguments: &[&str]) -> Value {
        let said = self.ask(server, &[&["-o", "json"], arguments].concat()).succeeded();
        serde_json::from_str(&said).unwrap_or_else(|error| panic!("{arguments:?}: {error}: {said}"))
    }

    pub fn kill(&self, server: u32) {
        self.dev(&["kill", &format!("s{server}")]).succeeded();
    }

    /// In order, as it's done with SIGTERM.
    pub fn stop(&self, server: u32) {
        let addresses = std::fs::read_to_string(self.data(server).join("addresses.json")).expect("it serves");
        let addresses: Value = serde_json::from_str(&addresses).expect("JSON");
        program::run(Command::new("kill").arg(addresses["pid"].to_string())).succeeded();
        self.wait_until("its process to end", || !self.runs(server));
    }

    /// Of its process, so far.
    pub fn processor_time(&self, server: u32) -> Duration {
        let addresses = std::fs::read_to_string(self.data(server).join("addresses.json")).expect("it serves");
        let addresses: Value = serde_json::from_str(&addresses).expect("JSON");
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", addresses["pid"])).expect("it runs");
        // proc(5): the name may have spaces, and user and system time are the twelfth and thirteenth field after it, in hundredths.
        let fields = stat.rsplit_once(')').expect("a name").1.split_whitespace();
        let ticks = fields.skip(11).take(2).map(|field| field.parse::<u64>().expect("a number"));
        Duration::from_millis(10 * ticks.sum::<u64>())
    }

    /// Whether its process does.
    pub fn runs(&self, server: u32) -> bool {
        self.dev_status()["servers"][server as usize - 1]["state"] != "down"
    }

    pub fn dev_status(&self) -> Value {
        let said = self.dev(&["status", "-o", "json"]).succeeded();
        serde_json::from_str(&said).expect("JSON")
    }

    pub fn log(&self, server: u32) -> String {
        std::fs::read_to_string(self.data(server).join("log")).expect("a log")
    }

    /// Starts them all at once, given in this order.
    pub fn start(&self, servers: &[u32]) {
        let named: Vec<String> = servers.iter().map(|server| format!("s{server}")).collect();
        let words: Vec<&str> = std::iter::once("start").chain(named.iter().map(String::as_str)).collect();
        self.dev(&words).succeeded();
    }

    /// Starts a server that is down as somebody does who has more to say to it than `dev start` has.
    pub fn start_with(&self, server: u32, arguments: &[&str]) {
        let (data, Address::Unix(socket)) = (self.data(server), self.address(server)) else { unreachable!("a path") };
        let log = std::fs::OpenOptions::new().append(true).open(data.join("log")).expect("a log");
        let mut command = Command::new(crate::cluster::tepal());
        // By its first arguments `dev` knows it for the cluster's.
        command.args(["serve", "--own-session", "--data"]).arg(&data).args(["--server", &format!("s{server}")]);
        command.arg("--listen").arg(format!("unix:{}", socket.display())).arg("--drive").arg(data.join("drive0"));
        command.args(arguments).current_dir("/").stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let child = command.spawn().expect("the binary");
        self.own.lock().expect("nobody panics").push((server, child));
        self.wait_until("it to answer", || self.ask(server, &["server", "ls"]).status.success());
    }

    /// Starts a server that the development cluster doesn't know, with a drive of its own. If it's new, it joins by that other one.
    pub fn join(&self, server: u32, by: u32) {
        let data = self.data(server);
        if !data.is_dir() {
            std::fs::DirBuilder::new().mode(0o700).create(&data).expect("space");
            std::fs::copy(self.data(by).join("token"), data.join("token")).expect("the token");
            std::fs::File::create(data.join("log")).expect("space");
            crate::cluster::make_drive(&data.join("drive0"), 64 << 20);
        }
        let by = format!("unix:{}", self.data(by).join("peers.sock").display());
        self.start_with(server, &["--join", &by]);
    }

    /// One that the test has started itself.
    pub fn kill_own(&self, server: u32) {
        let mut own = self.own.lock().expect("nobody panics");
        for (_, mut child) in own.extract_if(.., |(number, _)| *number == server) {
            program::kill_group(&mut child);
        }
        let _ = std::fs::remove_file(self.data(server).join("addresses.json"));
    }

    /// The last one first. One that couldn't tell the others in time that it's there ends, and is started again, as whatever
    /// watches over servers does.
    pub fn start_all_that_are_down(&self) {
        self.wait_until("all servers to run", || {
            let down = (1..=self.servers).rev().filter(|server| !self.runs(*server));
            let down: Vec<String> = down.map(|server| format!("s{server}")).collect();
            let words: Vec<&str> = std::iter::once("start").chain(down.iter().map(String::as_str)).collect();
            down.is_empty() || self.dev(&words).status.success()
        });
    }

    /// The states of all servers, as one of them sees them.
    pub fn states(&self, seen_by: u32) -> Vec<String> {
        let listed = self.json(seen_by, &["server", "ls"]);
        let servers = listed.as_array().expect("a list").iter();
        servers.map(|server| server["state"].as_str().unwrap_or_default().to_owned()).collect()
    }

    pub fn wait_for_state(&self, seen_by: u32, server: u32, state: &str) {
        program::until(&format!("s{server} to be {state}"), SETTLE, || {
            (self.states(seen_by).get(server as usize - 1)? == state).then_some(())
        });
    }

    pub fn wait_until_all_are_up(&self, seen_by: u32) {
        program::until("all servers to be up", SETTLE, || {
            let states = self.states(seen_by);
            (states.len() == self.servers as usize && states.iter().all(|state| state == "up")).then_some(())
        });
    }

    pub fn wait_until_drives_are_up(&self, seen_by: u32) {
        program::until("all drives to be up and in use", SETTLE, || {
            let drives = self.json(seen_by, &["drive", "ls"]);
            let is_back = |drive: &Value| drive["state"] == "up" && drive["open"].is_object();
            drives.as_array().expect("a list").iter().all(is_back).then_some(())
        });
    }

    pub fn pools(&self, seen_by: u32) -> Vec<String> {
        let listed = self.json(seen_by, &["pool", "ls"]);
        let pools = listed.as_array().expect("a list").iter();
        pools.map(|pool| pool["name"].as_str().unwrap_or_default().to_owned()).collect()
    }

    /// Where a server's clients find it.
    pub fn address(&self, server: u32) -> Address {
        Address::Unix(self.data(server).join("nbd.sock"))
    }

    /// Where those find it who want to outlive any server.
    pub fn gateway(&self) -> Address {
        Address::Unix(self.dir().join("nbd.sock"))
    }

    pub fn connect(&self, server: u32, volume: &str) -> Nbd {
        Nbd::open(&self.address(server), volume).unwrap_or_else(|error| panic!("{volume} on s{server}: {error}"))
    }

    pub fn wait_until_healthy(&self, seen_by: u32, volume: &str) {
        program::until(&format!("volume {volume} to be healthy"), SETTLE, || {
            (self.json(seen_by, &["volume", "show", volume])["state"] == "healthy").then_some(())
        });
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        let dir = self.dir();
        if std::thread::panicking() {
            let own = self.own.get_mut().into_iter().flatten().map(|(server, _)| *server);
            let all: BTreeSet<u32> = own.chain(1..=self.servers).collect();
            for server in all {
                let log = std::fs::read_to_string(self.data(server).join("log")).unwrap_or_default();
                let tail: Vec<&str> = log.lines().rev().take(15).collect();
                eprintln!("s{server}:\n{}", tail.into_iter().rev().collect::<Vec<_>>().join("\n"));
            }
        }
        // The cluster's command doesn't know all of them.
        for (_, server) in self.own.get_mut().into_iter().flatten() {
            program::kill_group(server);
        }
        let purge = self.tepal(&dir).args(["dev", "down", "--purge"]).arg(&dir).output();
        if !purge.is_ok_and(|ended| ended.status.success()) {
            eprintln!("the cluster in {} could not be removed", dir.display());
        }
    }
}
