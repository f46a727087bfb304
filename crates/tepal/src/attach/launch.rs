//! Starting the daemon: a process that nothing of its parent's clings to.

use super::daemon::Order;
use super::folder::AttachmentFolder;
use super::{AttachError, Attached, DaemonCommand, Method};
use serde::{Deserialize, Serialize};
use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;

/// The one line that a daemon writes to its standard output: how its start went.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Report {
    Attached { device: PathBuf, method: Method, read_only: bool, size: u64 },
    Failed { message: String },
}

/// Starts a daemon, and waits until it has attached the volume or has failed.
pub fn launch(command: &DaemonCommand, order: &Order, place: &AttachmentFolder) -> Result<Attached, AttachError> {
    let path = place.log();
    let log = OpenOptions::new().append(true).create(true).mode(0o600).open(&path);
    let log = log.map_err(|source| AttachError::file("open", &path, source))?;
    let order_text = serde_json::to_string(order).map_err(|error| AttachError::Launch(error.into()))?;
    let mut process = Command::new(&command.program);
    process.args(&command.arguments).arg(order_text);
    process.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log).current_dir("/");
    // SAFETY: runs between fork and exec, and makes only system calls.
    unsafe {
        process.pre_exec(|| {
            // Its own session, so that neither Ctrl-C nor the terminal's end reaches it.
            nix::unistd::setsid()?;
            // Descriptors that the parent inherited, such as a shell's pipes, would be held open by the daemon.
            nix::libc::syscall(nix::libc::SYS_close_range, 3, u32::MAX, nix::libc::CLOSE_RANGE_CLOEXEC);
            Ok(())
        });
    }
    let mut child = process.spawn().map_err(AttachError::Launch)?;
    let mut line = String::new();
    if let Some(output) = child.stdout.take() {
        // What can't be read is treated as silence.
        let _ = BufReader::new(output).read_line(&mut line);
    }
    match serde_json::from_str(&line) {
        Ok(Report::Attached { device, method, read_only, size }) => {
            // A program that lives on, and attaches again and again, would keep the remains of each daemon that ended.
            let wait = thread::Builder::new().name("daemon".into()).stack_size(64 << 10).spawn(move || child.wait());
            drop(wait); // without the thread, the remains are kept
            Ok(Attached { volume: order.volume.clone(), device, method, read_only, size })
        }
        Ok(Report::Failed { message }) => {
            let _ = child.wait(); // it has nothing more to do
            Err(AttachError::Daemon { message })
        }
        Err(_) => {
            let _ = child.kill();
            let _ = child.wait();
            Err(AttachError::Silent { log: fs::read_to_string(&path).unwrap_or_default().trim_end().to_owned() })
        }
    }
}
