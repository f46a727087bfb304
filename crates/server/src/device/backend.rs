//! The ways in which a drive's bytes are reached, and why one of them was chosen.

use rustix::io::Errno;
use std::fmt;
use std::io;
use tepal_drive::world::DeviceError;
use tepal_model::BLOCK;

/// How a drive's bytes are reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    Uring,
    MemoryFile,
    Plain,
    Memory,
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Backend::Uring => "io_uring",
            Backend::MemoryFile => "memory file",
            Backend::Plain => "plain",
            Backend::Memory => "memory",
        })
    }
}

/// Why a drive has its back-end, or can't have another one.
#[derive(Debug, thiserror::Error)]
pub enum BackendReason {
    #[error("it was asked for")]
    AskedFor,
    #[error("io_uring and O_DIRECT work on it")]
    Works,
    #[error("tmpfs makes nobody wait")]
    InMemory,
    #[error("it isn't on tmpfs")]
    NotInMemory,
    #[error("it is a file")]
    IsFile,
    #[error("its filesystem has no O_DIRECT")]
    NoDirect,
    #[error("its O_DIRECT wants multiples of {0} bytes, and a block has {BLOCK}")]
    DirectAlignment(u64),
    #[error("O_DIRECT is refused: {0}")]
    DirectRefused(Errno),
    #[error("an O_DIRECT read is refused: {0}")]
    DirectReadRefused(Errno),
    #[error("io_uring is refused: {0}")]
    UringRefused(io::Error),
    #[error("io_uring doesn't read it: {0}")]
    UringReadFailed(DeviceError),
}
