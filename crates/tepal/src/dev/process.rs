//! The process of a server, which this command may not be the parent of.
//!
//! A file names it by its number, the machine's boot and the time at which it was started: after it has ended, its number may
//! be another process's, and that one must never be signalled.

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};
use tepal_model::ServerId;

#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    #[error("{who}: process {pid} can't be sent {signal}: {error}")]
    Signal { who: Who, pid: i32, signal: Signal, error: Errno },
    #[error("{who}: process {pid} doesn't end")]
    WontEnd { who: Who, pid: i32 },
    #[error("{}: {error}", path.display())]
    File { path: PathBuf, error: io::Error },
    #[error("{who} is not running: `tepal dev {}` starts it", .who.start())]
    Down { who: Who },
    #[error("{who} is not paused")]
    NotPaused { who: Who },
}

/// Whose process it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    Server(ServerId),
    Gateway,
}

impl Who {
    /// What starts it.
    fn start(self) -> String {
        match self {
            Who::Server(server) => format!("start {server}"),
            Who::Gateway => "up".to_owned(),
        }
    }
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Who::Server(server) => write!(f, "server {server}"),
            Who::Gateway => f.write_str("the gateway"),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessState {
    Running { pid: i32 },
    Paused { pid: i32 },
    Down,
}

/// What the file says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Identity {
    pid: i32,
    /// Clock ticks since boot.
    started: u64,
    boot: String,
}

/// One server's process, wherever it is in its life.
pub struct ServerProcess {
    who: Who,
    file: PathBuf,
}

/// After so long a server that was asked to stop is killed.
const STOP_LIMIT: Duration = Duration::from_secs(30);
/// A killed process may take a while to give its memory back.
const KILL_LIMIT: Duration = Duration::from_secs(20);
/// The first argument of `serve` that servers of development clusters have.
pub const OWN_SESSION: &str = "--own-session";
const LOOK: Duration = Duration::from_millis(10);

impl ServerProcess {
    /// What is known of it is in that folder.
    pub fn new(who: Who, data: &Path) -> Self {
        ServerProcess { who, file: data.join("process") }
    }

    fn file_error(&self, error: io::Error) -> ProcessError {
        ProcessError::File { path: self.file.clone(), error }
    }

    /// Notes that the server is this process, just started.
    pub fn record(&self, pid: u32) -> Result<(), ProcessError> {
        let pid = i32::try_from(pid).unwrap_or(i32::MAX);
        let stat = Stat::read(pid).ok_or(ProcessError::Down { who: self.who })?;
        let identity = Identity { pid, started: stat.started, boot: boot() };
        let text = serde_json::to_vec(&identity).map_err(|error| self.file_error(error.into()))?;
        // Another command may be noting it just now.
        let new = self.file.with_extension(format!("new.{}", std::process::id()));
        fs::write(&new, text).and_then(|()| fs::rename(&new, &self.file)).map_err(|error| self.file_error(error))?;
        match fs::remove_file(self.ending()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(self.file_error(error)),
            _ => Ok(()),
        }
    }

    /// Takes a server that runs and isn't on record for what it is: the command that started it was killed before it could
    /// note that.
    pub fn adopt(&self, data: &Path) -> Result<(), ProcessError> {
        if self.state()? != ProcessState::Down {
            return Ok(());
        }
        let entries = fs::read_dir("/proc").map_err(|error| self.file_error(error))?;
        let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
        match pids.into_iter().find(|pid| serves(*pid, data)) {
            // It may have ended just now.
            Some(pid) => match self.record(pid) {
                Ok(()) | Err(ProcessError::Down { .. }) => Ok(()),
                Err(error) => Err(error),
            },
            None => Ok(()),
        }
    }

    pub fn state(&self) -> Result<ProcessState, ProcessError> {
        let text = match fs::read(&self.file) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(ProcessState::Down),
            Err(error) => return Err(self.file_error(error)),
        };
        // What isn't a whole record was never a process of ours.
        let Ok(Identity { pid, started, boot: booted }) = serde_json::from_slice(&text) else {
            return Ok(ProcessState::Down);
        };
        let stat = Stat::read(pid).filter(|stat| stat.started == started && booted == boot() && pid > 1);
        Ok(match stat.map(|stat| stat.state) {
            None => ProcessState::Down,
            // The first thread of a killed process can be gone before the others, which still hold its files and locks.
            Some('Z' | 'X') if threads(pid) <= 1 => ProcessState::Down,
            Some('T' | 't') => ProcessState::Paused { pid },
            Some(_) => ProcessState::Running { pid },
        })
    }

    /// There while the server is being stopped, also if who stops it is killed meanwhile.
    fn ending(&self) -> PathBuf {
        self.file.with_file_name("stopping")
    }

    /// Whether somebody has begun to stop it.
    pub fn is_stopping(&self) -> bool {
        self.ending().exists()
    }

    fn signal(&self, pid: i32, signal: Signal) -> Result<(), ProcessError> {
        match kill(Pid::from_raw(pid), signal) {
            Ok(()) | Err(Errno::ESRCH) => Ok(()),
            Err(error) => Err(ProcessError::Signal { who: self.who, pid, signal, error }),
        }
    }

    fn wait_for(&self, limit: Duration, is_so: impl Fn(ProcessState) -> bool) -> Result<bool, ProcessError> {
        let end = Instant::now() + limit;
        while !is_so(self.state()?) {
            if Instant::now() > end {
                return Ok(false);
            }
            sleep(LOOK);
        }
        Ok(true)
    }

    /// At once and without warning, as a crash would. Returns when the process is gone.
    pub fn kill(&self) -> Result<(), ProcessError> {
        let (ProcessState::Running { pid } | ProcessState::Paused { pid }) = self.state()? else { return Ok(()) };
        self.signal(pid, Signal::SIGKILL)?;
        match self.wait_for(KILL_LIMIT, |state| state == ProcessState::Down)? {
            true => Ok(()),
            false => Err(ProcessError::WontEnd { who: self.who, pid }),
        }
    }

    /// In good order, if it can; says whether there was anything to stop.
    pub fn stop(&self) -> Result<bool, ProcessError> {
        let (ProcessState::Running { pid } | ProcessState::Paused { pid }) = self.state()? else { return Ok(false) };
        fs::write(self.ending(), "").map_err(|error| self.file_error(error))?;
        self.signal(pid, Signal::SIGTERM)?;
        self.signal(pid, Signal::SIGCONT)?;
        if !self.wait_for(STOP_LIMIT, |state| state == ProcessState::Down)? {
            self.kill()?;
        }
        Ok(true)
    }

    pub fn pause(&self) -> Result<(), ProcessError> {
        match self.state()? {
            ProcessState::Down => Err(ProcessError::Down { who: self.who }),
            ProcessState::Paused { .. } => Ok(()),
            ProcessState::Running { pid } => {
                self.signal(pid, Signal::SIGSTOP)?;
                // It counts as done when no thread runs any more.
                self.wait_for(KILL_LIMIT, |state| !matches!(state, ProcessState::Running { .. })).map(|_| ())
            }
        }
    }

    pub fn resume(&self) -> Result<(), ProcessError> {
        match self.state()? {
            ProcessState::Down => Err(ProcessError::Down { who: self.who }),
            ProcessState::Running { .. } => Err(ProcessError::NotPaused { who: self.who }),
            ProcessState::Paused { pid } => self.signal(pid, Signal::SIGCONT),
        }
    }
}

/// What `/proc/PID/stat` says.
struct Stat {
    state: char,
    started: u64,
}

impl Stat {
    fn read(pid: i32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// The program's name, in parentheses, may have spaces and parentheses of its own. See proc_pid_stat(5).
    fn parse(text: &str) -> Option<Self> {
        let mut fields = text[text.rfind(')')? + 1..].split_whitespace();
        let state = fields.next()?.chars().next()?;
        let started = fields.nth(18)?.parse().ok()?;
        Some(Stat { state, started })
    }
}

/// Whether this process is a development cluster's server with this data folder.
fn serves(pid: u32, data: &Path) -> bool {
    let Ok(line) = fs::read(format!("/proc/{pid}/cmdline")) else { return false };
    let mut words = line.split(|byte| *byte == 0).skip(1);
    words.next() == Some(b"serve")
        && words.next() == Some(OWN_SESSION.as_bytes())
        && words.next() == Some(b"--data")
        && words.next() == Some(data.as_os_str().as_bytes())
}

fn threads(pid: i32) -> usize {
    fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count)
}

/// Start times count from the boot, so they mean nothing without it.
fn boot() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").map(|text| text.trim().to_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command};

    const S1: ServerId = ServerId(1);

    /// Ends with the test, also one that fails.
    struct Sleeper(Child);

    impl Drop for Sleeper {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    fn sleeper() -> Sleeper {
        Sleeper(Command::new("sleep").arg("600").spawn().expect("sleep is everywhere"))
    }

    #[test]
    fn the_line_of_a_process_with_a_strange_name_is_read() {
        let line = "42 (a ) b) T 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 987654 20";
        let stat = Stat::parse(line).expect("readable");
        assert_eq!((stat.state, stat.started), ('T', 987_654));
        assert!(Stat::parse("").is_none() && Stat::parse("1 (x").is_none() && Stat::parse("1 (x) R 1").is_none());
    }

    #[test]
    fn a_process_is_paused_resumed_and_killed() {
        let scratch = tempfile::tempdir().expect("space");
        let process = ServerProcess::new(Who::Server(S1), scratch.path());
        assert_eq!(process.state().expect("readable"), ProcessState::Down);
        assert!(matches!(process.pause(), Err(ProcessError::Down { .. })));
        let child = sleeper();
        process.record(child.0.id()).expect("alive");
        let pid = i32::try_from(child.0.id()).expect("a pid");
        assert_eq!(process.state().expect("readable"), ProcessState::Running { pid });
        process.pause().expect("ours");
        assert_eq!(process.state().expect("readable"), ProcessState::Paused { pid });
        process.resume().expect("ours");
        assert!(matches!(process.resume(), Err(ProcessError::NotPaused { .. })));
        process.kill().expect("ours");
        assert_eq!(process.state().expect("readable"), ProcessState::Down);
    }

    #[test]
    fn a_paused_process_can_be_stopped() {
        let scratch = tempfile::tempdir().expect("space");
        let process = ServerProcess::new(Who::Server(S1), scratch.path());
        let child = sleeper();
        process.record(child.0.id()).expect("alive");
        process.pause().expect("ours");
        assert!(process.stop().expect("ours"));
        assert!(!process.stop().expect("nothing to do"));
    }

    #[test]
    fn another_process_with_the_same_number_is_never_touched() {
        let scratch = tempfile::tempdir().expect("space");
        let process = ServerProcess::new(Who::Server(S1), scratch.path());
        let mut child = sleeper();
        process.record(child.0.id()).expect("alive");
        let file = scratch.path().join("process");
        let text = fs::read_to_string(&file).expect("there");
        let mut identity: Identity = serde_json::from_str(&text).expect("readable");
        identity.started += 1;
        fs::write(&file, serde_json::to_vec(&identity).expect("JSON")).expect("ours");
        assert_eq!(process.state().expect("readable"), ProcessState::Down);
        process.kill().expect("nothing to do");
        assert!(!process.stop().expect("nothing to do"));
        assert!(child.0.try_wait().expect("ours").is_none(), "it was another process, and lives");
    }
}
