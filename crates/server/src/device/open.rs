//! Opening a drive: what it is, that nobody else has it, and by which way its bytes are best reached.
//!
//! The way is found by trying: containers forbid io_uring, some filesystems refuse O_DIRECT, and no table knows which.

use super::file::{Caching, DriveFile, Kind, size_of};
use super::plain::Threads;
use super::presence::Identity;
use super::{Backend, BackendReason, FileStore, uring};
use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags, StatxFlags};
use rustix::io::Errno;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tepal_model::{BLOCK, Buffer};

/// How to open a drive.
#[derive(Clone, Copy, Debug)]
pub struct OpenOptions {
    /// Also for writing. Then nobody else may have it open; else others may read it too, if it is a file.
    pub writable: bool,
    /// The back-end to use. None: the best that works.
    pub backend: Option<Backend>,
}

/// Why a drive can't be opened. Nothing was written to it.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Also of a device without a medium.
    #[error("{path}: no such file or device")]
    NotFound {
        /// As it was given.
        path: PathBuf,
    },
    /// Give the server's user permission.
    #[error("{path}: permission denied; is the server's user allowed to read and write it?")]
    PermissionDenied {
        /// As it was given.
        path: PathBuf,
    },
    /// It was to be opened for writing too.
    #[error("{path} can't be written to: it is read-only")]
    ReadOnly {
        /// As it was given.
        path: PathBuf,
    },
    /// Name another path.
    #[error("{path} is {what}; a drive is a block device or a regular file")]
    NotADrive {
        /// As it was given.
        path: PathBuf,
        /// What it is, as `a directory`.
        what: &'static str,
    },
    /// Stop the other process, or unmount it.
    #[error("{path} is in use: another process has it open, or it is mounted")]
    InUse {
        /// As it was given.
        path: PathBuf,
    },
    /// It has less than one block.
    #[error("{path} is too small: {size} bytes")]
    TooSmall {
        /// As it was given.
        path: PathBuf,
        /// Bytes.
        size: u64,
    },
    /// Only where [`OpenOptions::backend`] names one.
    #[error("{path} can't be reached by {backend}: {reason}")]
    BackendRefused {
        /// As it was given.
        path: PathBuf,
        /// The one that was asked for.
        backend: Backend,
        /// Why it can't be that.
        reason: BackendReason,
    },
    /// Another error of the system.
    #[error("{path}: {operation}: {reason}")]
    Failed {
        /// As it was given.
        path: PathBuf,
        /// What was tried, as `open`.
        operation: &'static str,
        /// The system's.
        reason: Errno,
    },
}

impl OpenError {
    fn new(path: &Path, operation: &'static str, errno: Errno) -> Self {
        let path = path.to_owned();
        match errno {
            Errno::NOENT | Errno::NOTDIR | Errno::NXIO | Errno::NODEV | Errno::NOMEDIUM => OpenError::NotFound { path },
            Errno::ACCESS | Errno::PERM => OpenError::PermissionDenied { path },
            Errno::ROFS => OpenError::ReadOnly { path },
            Errno::BUSY | Errno::WOULDBLOCK | Errno::TXTBSY => OpenError::InUse { path },
            reason => OpenError::Failed { path, operation, reason },
        }
    }
}

/// The drive and its size in whole blocks.
pub(super) fn open(path: &Path, options: OpenOptions) -> Result<(FileStore, u64), OpenError> {
    let fails = |operation| move |errno| OpenError::new(path, operation, errno);
    // Looked at before it is opened: opening alone can rewind a tape or wait for a pipe's other end.
    let kind = kind_of(path, rustix::fs::stat(path).map_err(fails("look"))?.st_mode)?;
    let mut flags = if options.writable { OFlags::RDWR } else { OFlags::RDONLY };
    flags |= OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
    if kind == Kind::BlockDevice {
        // Refused when it is mounted, or open in this way elsewhere. No flock: udev takes that to look at devices.
        flags |= OFlags::EXCL;
    }
    let descriptor = rustix::fs::open(path, flags, Mode::empty()).map_err(fails("open"))?;
    let stat = rustix::fs::fstat(&descriptor).map_err(fails("look"))?;
    if kind_of(path, stat.st_mode)? != kind {
        return Err(OpenError::Failed { path: path.to_owned(), operation: "open", reason: Errno::AGAIN });
    }
    if kind == Kind::Regular {
        let lock = match options.writable {
            true => FlockOperation::NonBlockingLockExclusive,
            false => FlockOperation::NonBlockingLockShared,
        };
        rustix::fs::flock(&descriptor, lock).map_err(fails("lock"))?;
    }
    let size = size_of(descriptor.as_fd(), kind).map_err(fails("size"))?;
    if size < BLOCK {
        return Err(OpenError::TooSmall { path: path.to_owned(), size });
    }
    let Choice { backend, file, reason } = choose(path, descriptor, kind, options.backend)?;
    let identity = Identity::new(path.to_owned(), &stat, size);
    Ok((FileStore { file, identity, threads: Threads::new(), backend, reason }, size - size % BLOCK))
}

fn kind_of(path: &Path, mode: u32) -> Result<Kind, OpenError> {
    let what = match FileType::from_raw_mode(mode) {
        FileType::RegularFile => return Ok(Kind::Regular),
        FileType::BlockDevice => return Ok(Kind::BlockDevice),
        FileType::Directory => "a directory",
        FileType::CharacterDevice => "a character device",
        FileType::Fifo => "a pipe",
        FileType::Socket => "a socket",
        _ => "something else",
    };
    Err(OpenError::NotADrive { path: path.to_owned(), what })
}

struct Choice {
    backend: Backend,
    file: Arc<DriveFile>,
    reason: BackendReason,
}

fn choose(path: &Path, descriptor: OwnedFd, kind: Kind, wanted: Option<Backend>) -> Result<Choice, OpenError> {
    let fails = |operation| move |errno| OpenError::new(path, operation, errno);
    let in_memory = kind == Kind::Regular && is_in_memory(&descriptor).map_err(fails("look"))?;
    let direct = match wanted.unwrap_or(if in_memory { Backend::MemoryFile } else { Backend::Uring }) {
        Backend::MemoryFile if in_memory => Err(BackendReason::InMemory),
        Backend::Uring | Backend::Plain => try_direct(&descriptor),
        Backend::MemoryFile => return Err(refused(path, Backend::MemoryFile, BackendReason::NotInMemory)),
        Backend::Memory => return Err(refused(path, Backend::Memory, BackendReason::IsFile)),
    };
    if direct.is_err() {
        rustix::fs::fcntl_setfl(&descriptor, OFlags::empty()).map_err(fails("set up"))?;
    }
    let caching = *direct.as_ref().unwrap_or(&Caching::Cached);
    let file = Arc::new(DriveFile::new(descriptor, kind, caching));
    let (backend, reason) = match (wanted, direct) {
        (None | Some(Backend::MemoryFile), Err(reason)) if in_memory => (Backend::MemoryFile, reason),
        (Some(Backend::Plain), Ok(_)) => (Backend::Plain, BackendReason::AskedFor),
        (_, Err(reason)) => (Backend::Plain, reason),
        (_, Ok(_)) => match uring::try_read(&file) {
            Ok(()) => (Backend::Uring, BackendReason::Works),
            Err(reason) => (Backend::Plain, reason),
        },
    };
    match wanted {
        Some(wanted) if wanted != backend => Err(refused(path, wanted, reason)),
        _ => Ok(Choice { backend, file, reason }),
    }
}

fn refused(path: &Path, backend: Backend, reason: BackendReason) -> OpenError {
    OpenError::BackendRefused { path: path.to_owned(), backend, reason }
}

/// Whether the file is on a filesystem that has no device below it.
fn is_in_memory(descriptor: &OwnedFd) -> Result<bool, Errno> {
    const TMPFS: u64 = 0x0102_1994;
    const RAMFS: u64 = 0x8584_58f6;
    let magic = rustix::fs::fstatfs(descriptor)?.f_type as u64 & 0xffff_ffff;
    Ok(magic == TMPFS || magic == RAMFS)
}

/// Turns O_DIRECT on, and reads a block to see it work.
fn try_direct(descriptor: &OwnedFd) -> Result<Caching, BackendReason> {
    let caching = Caching::Direct { alignment: memory_alignment(descriptor)? };
    rustix::fs::fcntl_setfl(descriptor, OFlags::DIRECT).map_err(BackendReason::DirectRefused)?;
    let mut block = Buffer::take(BLOCK as usize);
    match rustix::io::pread(descriptor, &mut block[..], 0) {
        Err(errno @ (Errno::INVAL | Errno::OPNOTSUPP)) => Err(BackendReason::DirectReadRefused(errno)),
        // Other errors are the drive's own; whoever reads its label reports them.
        Ok(_) | Err(_) => Ok(caching),
    }
}

/// What memory for O_DIRECT must be a multiple of.
fn memory_alignment(descriptor: &OwnedFd) -> Result<usize, BackendReason> {
    let answer = rustix::fs::statx(descriptor, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN);
    match answer {
        Ok(stat) if StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::DIOALIGN) => {
            let (memory, offset) = (stat.stx_dio_mem_align as u64, stat.stx_dio_offset_align as u64);
            if memory == 0 || offset == 0 {
                return Err(BackendReason::NoDirect);
            }
            let alignment = offset.max(memory);
            if !BLOCK.is_multiple_of(offset) || !BLOCK.is_multiple_of(memory) {
                return Err(BackendReason::DirectAlignment(alignment));
            }
            Ok(memory as usize)
        }
        // Kernels before 6.1 don't tell; a block is always enough.
        _ => Ok(BLOCK as usize),
    }
}
