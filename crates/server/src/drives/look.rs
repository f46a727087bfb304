//! Looking at devices: which there are, and what their labels say. Nothing is written.

use super::Drives;
use super::identity::Seen;
use crate::data_threads::Stopped;
use crate::device::{self, DriveDevice, OpenOptions};
use futures_util::future::join_all;
use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tepal_drive::Label;

/// A device that is now ours, and what its label says.
pub struct Looked {
    pub seen: Seen,
    pub device: DriveDevice,
}

#[derive(Debug, thiserror::Error)]
pub enum LookError {
    #[error(transparent)]
    Device(#[from] device::OpenError),
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

impl Drives {
    /// Opens the devices for writing, which keeps others out, and reads their labels. Answers in the order of `paths`.
    pub(super) async fn look(&self, paths: &[PathBuf]) -> Vec<Result<Looked, LookError>> {
        join_all(paths.iter().map(|path| self.look_at(path))).await
    }

    pub(super) async fn look_at(&self, path: &Path) -> Result<Looked, LookError> {
        let (owned, emulate) = (path.to_owned(), self.emulate.clone());
        let work = move || async move {
            // Some system calls; a device that hangs in them hangs whoever uses it anyway.
            let options = OpenOptions { writable: true, backend: None };
            let opened = tokio::task::spawn_blocking(move || open_soon(&owned, options)).await;
            let device = opened.unwrap_or_else(|panicked| std::panic::resume_unwind(panicked.into_panic()))?;
            let label = Label::read(&device).await;
            let device = match emulate {
                Some(model) => device.emulate(model),
                None => device,
            };
            Ok::<_, device::OpenError>((device, label))
        };
        let (device, label) = self.parts.threads.run_on(self.some_thread(), work).await??;
        Ok(Looked { seen: Seen { path: path.to_owned(), label }, device })
    }
}

/// How long a server that was killed may take to let go of its drives: the kernel ends its I/O first.
const LINGER: Duration = Duration::from_secs(2);

fn open_soon(path: &Path, options: OpenOptions) -> Result<DriveDevice, device::OpenError> {
    let asked = Instant::now();
    loop {
        match DriveDevice::open(path, options) {
            Err(device::OpenError::InUse { .. }) if asked.elapsed() < LINGER => std::thread::sleep(LINGER / 100),
            other => return other,
        }
    }
}

/// The paths without those that lead to a file or device that an earlier one leads to.
pub fn distinct(paths: impl IntoIterator<Item = PathBuf>) -> Vec<PathBuf> {
    let (mut seen, mut places) = (BTreeSet::new(), BTreeSet::new());
    paths.into_iter().filter(|path| seen.insert(path.clone()) && places.insert(place(path))).collect()
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum FileIdentity {
    Device(u64),
    File(u64, u64),
    Nothing(PathBuf),
}

fn place(path: &Path) -> FileIdentity {
    match std::fs::metadata(path) {
        Ok(found) if found.rdev() != 0 => FileIdentity::Device(found.rdev()),
        Ok(found) => FileIdentity::File(found.dev(), found.ino()),
        Err(_) => FileIdentity::Nothing(path.to_owned()),
    }
}

/// Whether both lead to the same file or device.
pub fn same_place(one: &Path, other: &Path) -> bool {
    one == other || place(one) == place(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_counts_once_whatever_its_names() {
        let folder = tempfile::tempdir().expect("a folder");
        let [file, other, missing] = ["file", "other", "missing"].map(|name| folder.path().join(name));
        std::fs::write(&file, "").expect("ours");
        std::fs::write(&other, "").expect("ours");
        let [link, hard] = ["link", "hard"].map(|name| folder.path().join(name));
        std::os::unix::fs::symlink(&file, &link).expect("ours");
        std::fs::hard_link(&file, &hard).expect("ours");
        let paths = [&file, &link, &other, &hard, &missing, &file].map(Clone::clone);
        assert_eq!(distinct(paths), [file.clone(), other, missing]);
        assert!(same_place(&file, &link));
    }
}
