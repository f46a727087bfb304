//! Images and differences on their way in and out, while what they come from or go to is renamed, removed, made again, rolled back or
//! given another size.

mod begun;
mod damage;
mod holds;
mod holes;
mod identity;
mod images;
mod incomplete;
mod live;
mod races;
mod rbd;
mod send;
mod servers;

use crate::cluster::Cluster;
use crate::nbd::Nbd;
use crate::program::{self, LIMIT};
use std::io::{Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};

const MIB: usize = 1 << 20;
/// What a command may have taken from its pipe and not written yet, or read and not put into its pipe yet: a piece, and what the pipe
/// holds.
const AHEAD: usize = 10 * MIB;

/// A command that goes on as far as it's fed, or as far as what it says is taken.
pub struct Piped {
    child: Child,
}

impl Piped {
    pub fn start(cluster: &Cluster, arguments: &[&str]) -> Self {
        let mut command = cluster.command();
        command.args(arguments);
        Self::of(command)
    }

    pub fn of(mut command: Command) -> Self {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        Piped { child: program::spawn_with(&mut command, Stdio::piped()) }
    }

    /// SIGKILL.
    pub fn kill(mut self) {
        program::kill_group(&mut self.child);
    }

    /// Returns when all but what is on its way is taken. An error if the command has ended.
    pub fn feed(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.child.stdin.as_mut().expect("a pipe").write_all(bytes)
    }

    /// So many of the bytes that it writes.
    pub fn take(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.child.stdout.as_mut().expect("a pipe").read_exact(&mut bytes).expect("it goes on");
        bytes
    }

    /// The end of its input, what else it says, and how it ends.
    pub fn end(mut self) -> Over {
        drop(self.child.stdin.take());
        let (mut stdout, mut stderr) = (Vec::new(), String::new());
        self.child.stdout.take().expect("a pipe").read_to_end(&mut stdout).expect("bytes");
        self.child.stderr.take().expect("a pipe").read_to_string(&mut stderr).expect("text");
        let status = program::wait(&mut self.child, LIMIT).expect("it ends when its pipes do");
        Over { status, stdout, stderr }
    }
}

impl Drop for Piped {
    fn drop(&mut self) {
        program::kill_group(&mut self.child);
    }
}

#[derive(Debug)]
pub struct Over {
    pub status: ExitStatus,
    pub stdout: Vec<u8>,
    pub stderr: String,
}

impl Over {
    pub fn succeeded(self) -> (Vec<u8>, String) {
        assert!(self.status.success(), "{}", self.stderr);
        (self.stdout, self.stderr)
    }

    /// Its line of error.
    pub fn failed(self) -> String {
        assert_eq!(self.status.code(), Some(1), "{}", self.stderr);
        let line = self.stderr.lines().last().unwrap_or_default();
        assert!(line.starts_with("error: "), "{}", self.stderr);
        line.to_owned()
    }
}

/// All that a volume or snapshot holds.
pub fn bytes(cluster: &Cluster, name: &str) -> Vec<u8> {
    content(&mut cluster.connect(name))
}

pub fn content(disk: &mut Nbd) -> Vec<u8> {
    let size = disk.size as usize;
    let piece = |at: usize| (at as u64, (size - at).min(8 * MIB) as u32);
    (0..size).step_by(8 * MIB).flat_map(|at| disk.read(piece(at).0, piece(at).1).expect("read")).collect()
}

/// Writes an image from the disk's beginning on.
pub fn fill(disk: &mut Nbd, image: &[u8]) {
    for (piece, at) in image.chunks(8 * MIB).zip((0..).step_by(8 * MIB)) {
        disk.write(at, piece).expect("written");
    }
}

/// `FROM | TO`, both of which succeed.
pub fn pipe(mut from: Command, mut to: Command) {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    let mut importing = program::spawn_with(to.stdout(Stdio::null()), reader.into());
    let mut exporting = program::spawn(from.stdout(writer));
    // It has the pipe's end too.
    drop(from);
    for (what, child) in [("the export", &mut exporting), ("the import", &mut importing)] {
        let status = program::wait(child, 3 * LIMIT).unwrap_or_else(|| panic!("{what} goes on and on"));
        assert!(status.success(), "{what}: {status}");
    }
}
