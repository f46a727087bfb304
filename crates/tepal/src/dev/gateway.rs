//! The gateway of a development cluster of several servers: a process of its own at `DIR/nbd.sock`, as on a client's machine, so
//! that its clients outlive whichever server is killed.

use super::cluster::{Cluster, last_error};
use super::folder::DevError;
use super::process::{OWN_SESSION, ProcessState, ServerProcess, Who};
use crate::interrupt::Interrupt;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// So long it may take to serve after its start.
const START_LIMIT: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(5);

impl Cluster {
    /// The only server of a cluster serves at the cluster's socket by itself.
    fn has_gateway(&self) -> bool {
        self.plan().servers > 1
    }

    fn gateway(&self) -> ServerProcess {
        ServerProcess::new(Who::Gateway, &self.folder().gateway())
    }

    /// Its process, if the cluster has one.
    pub fn gateway_state(&self) -> Result<Option<ProcessState>, DevError> {
        Ok(self.has_gateway().then(|| self.gateway().state()).transpose()?)
    }

    /// Has it run, if the cluster has one; servers must run already.
    pub fn start_gateway(&self, interrupt: &Interrupt) -> Result<(), DevError> {
        let process = self.gateway();
        if !self.has_gateway() || process.state()? != ProcessState::Down || self.is_served() {
            return Ok(());
        }
        let folder = self.folder().gateway();
        let file_error = |error| DevError::File { path: folder.clone(), error };
        match DirBuilder::new().mode(0o700).create(&folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(file_error(error)),
            _ => {}
        }
        let log_path = folder.join("log");
        let log = OpenOptions::new().append(true).create(true).mode(0o600).open(&log_path).map_err(file_error)?;
        let log_start = log.metadata().map_or(0, |found| found.len());
        let failed = |reason: String| DevError::StartGateway { reason, log: log_path.clone() };
        // What a kill has left.
        let _ = fs::remove_file(self.folder().socket());
        let mut command = Command::new("/proc/self/exe");
        command.arg("gateway").arg(OWN_SESSION).arg("--dir").arg(self.folder().path());
        command.arg("--listen").arg(format!("unix:{}", self.folder().socket().display()));
        command.arg("--keys").arg(self.folder().keys());
        command.arg("--data-threads").arg(Self::threads_of_each(2)); // all servers together have the other half
        command.env_remove("TEPAL_CLUSTER").env_remove("TEPAL_TOKEN");
        command.current_dir("/").stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let mut child = command.spawn().map_err(|error| failed(error.to_string()))?;
        let recorded = process.record(child.id());
        let end = Instant::now() + START_LIMIT;
        while !self.is_served() {
            if child.try_wait().is_ok_and(|status| status.is_some()) {
                return Err(failed(last_error(&log_path, log_start)));
            }
            if interrupt.wait(LOOK) {
                process.stop()?;
                return Err(DevError::Interrupted);
            }
            if Instant::now() > end {
                process.stop()?;
                return Err(failed(format!("it doesn't serve after {} s", START_LIMIT.as_secs())));
            }
        }
        Ok(recorded?)
    }

    /// In good order. Its clients are told that it's stopping.
    pub fn stop_gateway(&self) -> Result<(), DevError> {
        self.gateway().stop()?;
        Ok(())
    }

    fn is_served(&self) -> bool {
        UnixStream::connect(self.folder().socket()).is_ok()
    }
}
