//! One `tepal serve`, as a child of the test.

use super::Plan;
use crate::nbd::{Address, Nbd};
use crate::program;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};
use std::fs::{File, OpenOptions};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::Duration;

pub struct Server(Child);

const START_LIMIT: Duration = Duration::from_secs(60);

impl Server {
    /// Starts it, and returns when it serves.
    pub fn start(plan: &Plan, data: &Path, socket: &Path, drives: &[PathBuf]) -> Self {
        let addresses = data.join("addresses.json");
        let _ = std::fs::remove_file(&addresses); // of one that was killed
        let log_path = data.with_file_name("log");
        let log = OpenOptions::new().append(true).create(true).open(&log_path).expect("a log");
        let mut server = Server(program::spawn(&mut command(plan, data, socket, drives, log)));
        program::until("the server to serve", START_LIMIT, || {
            if let Ok(Some(status)) = server.0.try_wait() {
                let log = std::fs::read_to_string(&log_path).unwrap_or_default();
                panic!("the server ended at once: {status}\n{log}");
            }
            (addresses.exists() && Nbd::list(&Address::Unix(socket.to_owned())).is_ok()).then_some(())
        });
        server
    }

    fn signal(&self, signal: libc::c_int) {
        program::signal_group(&self.0, signal);
    }

    pub fn strike(&self) {
        self.signal(libc::SIGKILL);
    }

    pub fn kill(mut self) {
        program::kill_group(&mut self.0);
    }

    pub fn stop(mut self) {
        self.signal(libc::SIGTERM);
        let status = program::wait(&mut self.0, program::LIMIT).expect("the server stops when it's told to");
        assert!(status.success(), "the server stopped with {status}");
    }

    pub fn wait_for_end(mut self) -> ExitStatus {
        program::wait(&mut self.0, program::LIMIT).expect("the server ends")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        program::kill_group(&mut self.0);
    }
}

fn command(plan: &Plan, data: &Path, socket: &Path, drives: &[PathBuf], log: File) -> Command {
    let mut command = Command::new(super::tepal());
    command.arg("serve").arg("--data").arg(data).args(["--create", "test", "--server", "s1"]);
    command.arg("--listen").arg(format!("unix:{}", socket.display()));
    if plan.tcp {
        command.args(["--listen", "127.0.0.1:0"]);
    }
    for drive in drives {
        command.arg("--drive").arg(drive);
    }
    command.args(plan.emulate.iter().flat_map(|model| ["--emulate", model]));
    command.args(&plan.arguments);
    if let Some(call) = plan.forbidden {
        let filter = without(call);
        // Safety: the filter is made; taking it is a system call.
        unsafe { command.pre_exec(move || seccompiler::apply_filter(&filter).map_err(std::io::Error::other)) };
    }
    if let Some(limit) = plan.descriptors {
        let limit = libc::rlimit { rlim_cur: limit / 2, rlim_max: limit };
        let set = move || match unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        };
        // Safety: setrlimit may be called between fork and exec.
        unsafe { command.pre_exec(set) };
    }
    command.stdout(log.try_clone().expect("a second handle")).stderr(log);
    command
}

/// A filter under which a system call isn't permitted, as in many containers.
fn without(call: libc::c_long) -> BpfProgram {
    let machine = std::env::consts::ARCH.try_into().expect("a machine with seccomp");
    let rules = [(call, vec![])].into_iter().collect();
    let instead = SeccompAction::Errno(libc::EPERM as u32);
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, instead, machine).expect("a filter");
    filter.try_into().expect("a program")
}
