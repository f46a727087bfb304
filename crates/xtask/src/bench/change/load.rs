//! A client that goes on while something is changed, and has every I/O on record.

use super::record::{self, Io};
use crate::bench::suite::{Disk, Job, fio};
use crate::bench::systems::{MEMORY, Scratch};
use crate::failure::Failure;
use crate::process;
use std::fs::File;
use std::path::Path;
use std::process::{Child, ExitStatus, Stdio};
use std::time::{Duration, Instant, SystemTime};

/// It's stopped long before.
const LONGEST: &str = "--runtime=3600";
/// Its status when it was stopped and no I/O has failed; each failure adds one.
const STOPPED: i32 = 128;
/// For what is under way on slow drives, and for the log, which is written at the end.
const END_LIMIT: Duration = Duration::from_secs(120);
const LOOK: Duration = Duration::from_millis(10);

pub struct Load {
    fio: Child,
    /// None once it has ended.
    ended: Option<ExitStatus>,
    scratch: Scratch,
}

impl Load {
    /// Goes on until it's stopped. `more` are options of fio.
    pub fn start(job: &Job, disk: &Disk, size: &str, more: &[&str]) -> Result<Load, Failure> {
        let options = [more, &["--time_based", LONGEST]].concat();
        Load::with(job, disk, size, &options)
    }

    /// Covers what the options say, once: all that it did.
    pub fn once(job: &Job, disk: &Disk, size: &str, more: &[&str]) -> Result<Vec<Io>, Failure> {
        Load::with(job, disk, size, more)?.record(0)
    }

    fn with(job: &Job, disk: &Disk, size: &str, more: &[&str]) -> Result<Load, Failure> {
        let scratch = Scratch::new(Path::new(MEMORY))?;
        let said = scratch.file("said");
        let said = File::create(&said).map_err(Failure::file(&said))?;
        let mut command = fio(job, disk, size);
        // Only the whole time of each I/O is looked at, by the machine's clock.
        command.args(["--disable_clat=1", "--disable_slat=1", "--log_avg_msec=0", "--log_unix_epoch=1"]);
        command.arg(format!("--write_lat_log={}", scratch.file("log").display())).args(more);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(said);
        let fio = command.spawn().map_err(|source| Failure::Start { program: "fio".into(), source })?;
        Ok(Load { fio, ended: None, scratch })
    }

    /// Ends it: all that it did.
    pub fn stop(mut self) -> Result<Vec<Io>, Failure> {
        if let Some(status) = self.fio.try_wait().map_err(|source| Failure::Start { program: "fio".into(), source })? {
            self.ended = Some(status);
            return Err(self.failed(status)); // it should still go on
        }
        process::interrupt(self.fio.id());
        self.record(STOPPED)
    }

    /// When it has ended, with this status.
    fn record(mut self, expected: i32) -> Result<Vec<Io>, Failure> {
        let began = Instant::now();
        let status = loop {
            let seen = self.fio.try_wait().map_err(|source| Failure::Start { program: "fio".into(), source })?;
            match seen {
                Some(status) => break status,
                None if began.elapsed() > END_LIMIT => {
                    let (what, seconds) = ("fio's end".into(), END_LIMIT.as_secs());
                    return Err(Failure::TooLong { what, seconds, output: self.said() });
                }
                None => std::thread::sleep(LOOK),
            }
        };
        self.ended = Some(status);
        if status.code() != Some(expected) {
            return Err(self.failed(status));
        }
        let log = self.scratch.file("log_lat.1.log");
        let text = std::fs::read_to_string(&log).map_err(Failure::file(&log))?;
        record::parse(&text)
    }

    fn said(&self) -> String {
        std::fs::read_to_string(self.scratch.file("said")).unwrap_or_default()
    }

    fn failed(&self, status: ExitStatus) -> Failure {
        Failure::Ended { command: "fio".into(), status, output: format!(":\n{}", self.said().trim_end()) }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        if self.ended.is_none() {
            process::kill_tree(self.fio.id());
            let _ = self.fio.wait();
        }
    }
}

/// Milliseconds since 1970, as the record counts them.
pub fn now_ms() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}
