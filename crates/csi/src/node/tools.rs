//! Programs of the machine, run to their end.

use crate::failure::Failure;
use std::ffi::OsStr;
use std::process::{Command, Output, Stdio};

/// How a program ended.
pub struct Ended {
    /// As far as it says one.
    pub status: Option<i32>,
    /// What it wrote to standard output.
    pub said: String,
    /// What it complained of, in one line.
    pub complaint: String,
}

/// Runs a program that asks nobody anything.
pub fn run<A: AsRef<OsStr>>(program: &str, arguments: impl IntoIterator<Item = A>) -> Result<Ended, Failure> {
    let mut command = Command::new(program);
    // Only what is said in English is understood.
    command.args(arguments).env("LC_ALL", "C").stdin(Stdio::null());
    let ended: Output = command.output().map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => {
            Failure::internal(format!("the program '{program}' is missing on this machine"))
        }
        _ => Failure::internal(format!("{program}: {error}")),
    })?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    let complaint = text(&ended.stderr).lines().map(str::trim).collect::<Vec<_>>().join("; ");
    Ok(Ended { status: ended.status.code(), said: text(&ended.stdout), complaint })
}

/// Runs a program that has to succeed.
pub fn succeed<A: AsRef<OsStr>>(program: &str, arguments: impl IntoIterator<Item = A>) -> Result<String, Failure> {
    let ended = run(program, arguments)?;
    match ended.status {
        Some(0) => Ok(ended.said),
        _ => Err(ended.failure(program)),
    }
}

impl Ended {
    /// That it failed.
    pub fn failure(&self, program: &str) -> Failure {
        let status = self.status.map_or_else(|| "by a signal".to_owned(), |status| format!("with status {status}"));
        Failure::internal(format!("{program} ended {status}: {}", self.complaint))
    }
}
