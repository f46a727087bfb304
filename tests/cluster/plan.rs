//! What a cluster is to be made of.

use super::{Cluster, make_drive};
use std::path::{Path, PathBuf};

/// Where drives are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Media {
    /// Files in the folder for temporary ones.
    Files,
    /// Files in memory, where the machine has /dev/shm.
    Memory,
}

/// A cluster before it's started.
pub struct Plan {
    pub media: Media,
    pub drives: usize,
    pub drive_size: u64,
    /// Also listen on a free port of the loopback address.
    pub tcp: bool,
    pub emulate: Option<&'static str>,
    /// A system call that the server is not allowed.
    pub forbidden: Option<libc::c_long>,
    /// How many files the server may have open, also if it asks for more.
    pub descriptors: Option<libc::rlim_t>,
    /// More drives and arguments of `tepal serve`.
    pub arguments: Vec<String>,
}

impl Default for Plan {
    fn default() -> Self {
        Plan {
            media: Media::Memory,
            drives: 4,
            drive_size: 256 << 20,
            tcp: false,
            emulate: None,
            forbidden: None,
            descriptors: None,
            arguments: vec![],
        }
    }
}

impl Plan {
    /// A cluster that runs.
    pub fn up(self) -> Cluster {
        let mut cluster = self.made();
        cluster.start();
        cluster
    }

    /// A cluster that has drives, and was not started yet.
    pub fn made(self) -> Cluster {
        let scratch = |parent: &Path| {
            let made = tempfile::Builder::new().prefix("tepal-test-").tempdir_in(parent);
            made.unwrap_or_else(|error| panic!("{}: {error}", parent.display()))
        };
        let folder = scratch(&std::env::temp_dir());
        let shm = Path::new("/dev/shm");
        let memory = (self.media == Media::Memory && shm.is_dir()).then(|| scratch(shm));
        let beside = memory.as_ref().unwrap_or(&folder).path();
        let drives: Vec<PathBuf> = (0..self.drives).map(|number| beside.join(format!("drive{number}"))).collect();
        drives.iter().for_each(|path| make_drive(path, self.drive_size));
        Cluster { folder, _memory: memory, plan: self, drives, server: None }
    }
}
