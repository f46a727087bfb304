//! Running other programs: with a limit on time, and with what they said at hand when they fail.

use crate::failure::Failure;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How often a running program is looked at.
const POLL: Duration = Duration::from_millis(20);

/// How long a stream may stay open after the program has ended.
const LINGER: Duration = Duration::from_secs(1);

/// A program that has ended, and what it wrote.
pub struct Ended {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
    pub took: Duration,
}

impl Ended {
    /// Both streams, for a reader who has to find out what went wrong.
    pub fn output(&self) -> String {
        format!("{}{}", self.stdout, self.stderr)
    }
}

/// Runs to the end without input and gives what the program wrote, whatever its status.
/// Past the limit it's killed with everything it started.
pub fn capture(command: &mut Command, limit: Duration) -> Result<Ended, Failure> {
    let began = Instant::now();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|source| Failure::Start { program: name(command), source })?;
    let stdout = Drain::start(child.stdout.take());
    let stderr = Drain::start(child.stderr.take());
    let status = wait(&mut child, command, limit)?;
    let (stdout, stderr) = (stdout.finish(), stderr.finish());
    match status {
        Some(status) => Ok(Ended { status, stdout, stderr, took: began.elapsed() }),
        None => {
            let output = last_lines(&format!("{stdout}{stderr}"));
            Err(Failure::TooLong { what: shown(command), seconds: limit.as_secs(), output })
        }
    }
}

/// Like [`capture`], and a status other than 0 is a failure that carries what the program wrote.
pub fn succeed(command: &mut Command, limit: Duration) -> Result<Ended, Failure> {
    let ended = capture(command, limit)?;
    if ended.status.success() {
        return Ok(ended);
    }
    let output = ended.output();
    let output = if output.trim().is_empty() { String::new() } else { format!(":\n{}", output.trim_end()) };
    Err(Failure::Ended { command: shown(command), status: ended.status, output })
}

/// Runs with this process's own streams.
pub fn pass_through(command: &mut Command) -> Result<ExitStatus, Failure> {
    command.status().map_err(|source| Failure::Start { program: name(command), source })
}

/// Where a program is, if this machine has it.
pub fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    // The system's own folders are not in everybody's PATH.
    let system = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(system).map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// Asks a process to end, as Ctrl-C does.
pub fn interrupt(id: u32) {
    // It may have ended by itself meanwhile; then there is nothing to do.
    let _ = Command::new("kill").args(["-INT", &id.to_string()]).stderr(Stdio::null()).status();
}

/// Kills a process and all that descend from it.
pub fn kill_tree(id: u32) {
    let mut doomed = vec![id];
    let parents = parents();
    let mut next = 0;
    while let Some(&parent) = doomed.get(next) {
        doomed.extend(parents.iter().filter(|(_, p)| *p == parent).map(|(child, _)| *child));
        next += 1;
    }
    let ids: Vec<String> = doomed.iter().map(u32::to_string).collect();
    // It may have ended by itself meanwhile; then there is nothing to do.
    let _ = Command::new("kill").arg("-KILL").args(ids).stderr(Stdio::null()).status();
}

/// The status of the child, or None if it had to be killed.
fn wait(child: &mut Child, command: &Command, limit: Duration) -> Result<Option<ExitStatus>, Failure> {
    let began = Instant::now();
    loop {
        let seen = child.try_wait().map_err(|source| Failure::Start { program: name(command), source })?;
        if seen.is_some() {
            return Ok(seen);
        }
        if began.elapsed() > limit {
            kill_tree(child.id());
            let _ = child.wait();
            return Ok(None);
        }
        std::thread::sleep(POLL.min(began.elapsed() / 8 + Duration::from_millis(1)));
    }
}

/// Reads a stream on a thread of its own, so that a program never waits for its reader.
struct Drain {
    bytes: Arc<Mutex<Vec<u8>>>,
    end: Receiver<()>,
}

impl Drain {
    fn start(stream: Option<impl Read + Send + 'static>) -> Drain {
        let (ended, end) = channel();
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let into = bytes.clone();
        std::thread::spawn(move || {
            let mut chunk = [0; 8192];
            if let Some(mut stream) = stream {
                // What was read before an error is all there is to show.
                while let Ok(count @ 1..) = stream.read(&mut chunk) {
                    into.lock().unwrap_or_else(PoisonError::into_inner).extend(&chunk[..count]);
                }
            }
            let _ = ended.send(()); // nobody listens after LINGER
        });
        Drain { bytes, end }
    }

    /// What was read until the end of the stream. A server that the program left running may hold it open: then that
    /// isn't waited for.
    fn finish(self) -> String {
        let _ = self.end.recv_timeout(LINGER);
        String::from_utf8_lossy(&self.bytes.lock().unwrap_or_else(PoisonError::into_inner)).into_owned()
    }
}

/// Enough of what was written to see what was going on.
fn last_lines(output: &str) -> String {
    let lines: Vec<&str> = output.lines().collect();
    lines[lines.len().saturating_sub(20)..].iter().map(|line| format!("\n{line}")).collect()
}

/// (process, its parent) of every process that can be seen.
fn parents() -> Vec<(u32, u32)> {
    processes().filter_map(|id| Some((id, parent_in_stat(&std::fs::read_to_string(stat_of(id)).ok()?)?))).collect()
}

/// The ids of all processes on this machine.
pub fn processes() -> impl Iterator<Item = u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

pub fn stat_of(id: u32) -> PathBuf {
    Path::new("/proc").join(id.to_string()).join("stat")
}

/// The fields of `/proc/ID/stat` that follow the program's name, which may itself contain anything.
pub fn fields_of_stat(stat: &str) -> impl Iterator<Item = &str> {
    stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace()
}

fn parent_in_stat(stat: &str) -> Option<u32> {
    fields_of_stat(stat).nth(1)?.parse().ok()
}

fn name(command: &Command) -> String {
    command.get_program().to_string_lossy().into_owned()
}

fn shown(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    std::iter::once(program)
        .chain(command.get_args())
        .map(|word| word.to_string_lossy().into_owned())
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_millis(200);
    const LATE: Duration = Duration::from_secs(60);

    #[test]
    fn a_failure_says_what_the_program_said() {
        let failed = succeed(Command::new("sh").args(["-c", "echo out; echo err >&2; exit 3"]), LATE);
        let said = failed.map(|_| ()).unwrap_err().to_string();
        for part in ["out", "err", "exit status: 3"] {
            assert!(said.contains(part), "{part} in {said}");
        }
    }

    #[test]
    fn a_program_that_does_not_end_is_killed_with_its_children() {
        let marker = "86399.25"; // a length of sleep that no one else asks for
        let began = Instant::now();
        let late = capture(Command::new("sh").args(["-c", &format!("sleep {marker} & wait")]), SOON);
        assert!(matches!(late, Err(Failure::TooLong { .. })));
        assert!(began.elapsed() < LATE);
        let alive = || {
            processes().any(|id| {
                let line = std::fs::read_to_string(format!("/proc/{id}/cmdline")).unwrap_or_default();
                line == format!("sleep\0{marker}\0")
            })
        };
        // A killed process takes a moment to go.
        while alive() {
            assert!(began.elapsed() < LATE, "still there");
            std::thread::sleep(POLL);
        }
    }

    #[test]
    fn a_server_that_is_left_running_is_not_waited_for() {
        let began = Instant::now();
        let ended = capture(Command::new("sh").args(["-c", "sleep 30 & echo $!"]), LATE).unwrap();
        assert!(began.elapsed() < Duration::from_secs(20));
        kill_tree(ended.stdout.trim().parse().unwrap());
    }

    #[test]
    fn the_parent_is_found_behind_a_hostile_program_name() {
        assert_eq!(parent_in_stat("12 (a) b (c) S 7 12 12 0"), Some(7));
        assert_eq!(parent_in_stat("nonsense"), None);
    }
}
