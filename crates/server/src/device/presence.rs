//! Whether an open drive is still where it was found. A drive that was pulled may answer from caches for a while, and a file
//! that was removed or replaced answers for ever; only a look at its path tells.

use super::file::DriveFile;
use rustix::fs::Stat;
use rustix::io::Errno;
use std::fmt;
use std::path::PathBuf;

/// What a look at an open drive's path shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Presence {
    /// The same as was opened, and all of it.
    Here,
    /// Nothing is at the path any more: pulled, or removed.
    Missing,
    /// Something else is at the path.
    Replaced,
    /// It ends before where it ended when it was opened.
    CutShort {
        /// Bytes now.
        size: u64,
        /// Bytes when it was opened.
        expected: u64,
    },
    /// It can't be told.
    Unknown(String),
}

impl fmt::Display for Presence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Presence::Here => write!(f, "here"),
            Presence::Missing => write!(f, "there is nothing at its path"),
            Presence::Replaced => write!(f, "replaced by something else"),
            Presence::CutShort { size, expected } => write!(f, "cut short from {expected} to {size} bytes"),
            Presence::Unknown(reason) => write!(f, "out of sight: {reason}"),
        }
    }
}

/// What makes a file this file, and a device this device.
#[derive(Debug)]
pub(super) struct Identity {
    path: PathBuf,
    filesystem: u64,
    inode: u64,
    /// The device that a device node stands for; a node can be made anew for another one.
    device: u64,
    size: u64,
}

impl Identity {
    pub fn new(path: PathBuf, stat: &Stat, size: u64) -> Self {
        Identity { path, filesystem: stat.st_dev, inode: stat.st_ino, device: stat.st_rdev, size }
    }

    pub fn is(&self, stat: &Stat) -> bool {
        (self.filesystem, self.inode, self.device) == (stat.st_dev, stat.st_ino, stat.st_rdev)
    }

    pub fn look(&self, file: &DriveFile) -> Presence {
        match rustix::fs::stat(&self.path) {
            Ok(stat) if !self.is(&stat) => return Presence::Replaced,
            Ok(_) => {}
            Err(Errno::NOENT | Errno::NOTDIR) => return Presence::Missing,
            Err(errno) => return Presence::Unknown(errno.to_string()),
        }
        match file.current_size() {
            Ok(size) if size < self.size => Presence::CutShort { size, expected: self.size },
            Ok(_) => Presence::Here,
            Err(errno) => Presence::Unknown(errno.to_string()),
        }
    }
}
