//! Making the file of a new drive.

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use tepal_model::BLOCK;
use tepal_model::size::Size;

/// Why no file was made for a drive. Nothing is left of one that was begun.
#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    /// Use it as it is, or choose another path.
    #[error("{path} exists already; it is left as it is")]
    Exists {
        /// As it was given.
        path: PathBuf,
    },
    /// Make the folder first.
    #[error("the folder of {path} doesn't exist")]
    NoFolder {
        /// As it was given.
        path: PathBuf,
    },
    /// Also where a filesystem is read-only.
    #[error("{path}: permission denied")]
    PermissionDenied {
        /// As it was given.
        path: PathBuf,
    },
    /// Choose another size.
    #[error("{path}: a drive of {size} is not possible: its size must be a multiple of {BLOCK} bytes, and not zero")]
    BadSize {
        /// As it was given.
        path: PathBuf,
        /// As it was asked for.
        size: Size,
    },
    /// Or its filesystem has no files as long as that.
    #[error("{path}: its filesystem has no room for a file of {size}")]
    TooLarge {
        /// As it was given.
        path: PathBuf,
        /// As it was asked for.
        size: Size,
    },
    /// Another error of the system.
    #[error("{path}: {operation}: {reason}")]
    Failed {
        /// As it was given.
        path: PathBuf,
        /// What was tried, as `create`.
        operation: &'static str,
        /// The system's.
        reason: Errno,
    },
}

/// Makes a sparse file of `size` zeros for a drive, readable and writable by its owner alone. It survives a power loss.
/// What exists already is never touched.
pub fn create_file(path: impl AsRef<Path>, size: u64) -> Result<(), CreateError> {
    let path = path.as_ref();
    let fails = |operation| move |errno| CreateError::new(path, size, operation, errno);
    if size == 0 || !size.is_multiple_of(BLOCK) {
        return Err(CreateError::BadSize { path: path.to_owned(), size: Size(size) });
    }
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR).map_err(fails("create"))?;
    lengthen(path, &file, size).map_err(|(operation, errno)| {
        // It was made just now by us and is of no use; that it can't be removed adds nothing to the error.
        let _ = rustix::fs::unlink(path);
        CreateError::new(path, size, operation, errno)
    })
}

fn lengthen(path: &Path, file: &OwnedFd, size: u64) -> Result<(), (&'static str, Errno)> {
    rustix::fs::ftruncate(file, size).map_err(|errno| ("lengthen", errno))?;
    rustix::fs::fsync(file).map_err(|errno| ("flush", errno))?;
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let folder = rustix::fs::open(folder, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .map_err(|errno| ("open its folder", errno))?;
    rustix::fs::fsync(&folder).map_err(|errno| ("flush its folder", errno))
}

impl CreateError {
    fn new(path: &Path, size: u64, operation: &'static str, errno: Errno) -> Self {
        let path = path.to_owned();
        match errno {
            Errno::EXIST | Errno::LOOP => CreateError::Exists { path },
            Errno::NOENT | Errno::NOTDIR => CreateError::NoFolder { path },
            Errno::ACCESS | Errno::PERM | Errno::ROFS => CreateError::PermissionDenied { path },
            Errno::FBIG | Errno::NOSPC | Errno::INVAL => CreateError::TooLarge { path, size: Size(size) },
            reason => CreateError::Failed { path, operation, reason },
        }
    }
}
