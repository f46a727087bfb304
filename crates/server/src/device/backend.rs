//! The ways in which a drive's bytes are reached, and why one of them was chosen.

use rustix::io::Errno;
use std::fmt;
use std::io;
use tepal_drive::world::DeviceError;
use tepal_model::BLOCK;

/// How a drive's bytes are reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// io_uring with O_DIRECT: disks.
    Uring,
    /// System calls at once: files on tmpfs.
    MemoryFile,
    /// System calls on threads that may wait: where io_uring or O_DIRECT is refused.
    Plain,
    /// A vector of this process, which nothing outlives: tests.
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
    /// Why it's [`Backend::Plain`] or [`Backend::Memory`].
    #[error("it was asked for")]
    AskedFor,
    /// Why it's [`Backend::Uring`].
    #[error("io_uring and O_DIRECT work on it")]
    Works,
    /// Why it's [`Backend::MemoryFile`].
    #[error("tmpfs makes nobody wait")]
    InMemory,
    /// Why it can't be [`Backend::MemoryFile`].
    #[error("it isn't on tmpfs")]
    NotInMemory,
    /// Why it can't be [`Backend::Memory`].
    #[error("it is a file")]
    IsFile,
    /// Why it's [`Backend::Plain`], as the kernel says of the file.
    #[error("its filesystem has no O_DIRECT")]
    NoDirect,
    /// Why it's [`Backend::Plain`]: bytes, as the kernel says of the file.
    #[error("its O_DIRECT wants multiples of {0} bytes, and a block has {BLOCK}")]
    DirectAlignment(u64),
    /// Why it's [`Backend::Plain`]: the system's error.
    #[error("O_DIRECT is refused: {0}")]
    DirectRefused(Errno),
    /// Why it's [`Backend::Plain`]: the system's error.
    #[error("an O_DIRECT read is refused: {0}")]
    DirectReadRefused(Errno),
    /// Why it's [`Backend::Plain`]: containers often forbid io_uring.
    #[error("io_uring is refused: {0}")]
    UringRefused(io::Error),
    /// Why it's [`Backend::Plain`], whose reads of the same block succeed.
    #[error("io_uring doesn't read it: {0}")]
    UringReadFailed(DeviceError),
}
