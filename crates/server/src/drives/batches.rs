//! `batches.json` in the data folder: of each drive, a batch of its log that is surely on it. An image of the drive that was
//! made before, also while it was in use, lacks that batch: so it's known for what it is although its label is the newest.
//!
//! Written every few seconds while drives are written to: what is older than that is noticed.

use crate::private_file;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tepal_model::DriveId;

const FILE: &str = "batches.json";

type Known = BTreeMap<DriveId, u64>;

/// Cheap to clone.
#[derive(Clone)]
pub struct Batches {
    path: PathBuf,
    known: Arc<Mutex<Known>>,
}

impl Batches {
    pub fn open(folder: &Path) -> Self {
        let path = folder.join(FILE);
        let known = private_file::recall(&path).unwrap_or_else(|error| {
            tracing::warn!(path = %path.display(), %error, "older images of drives aren't noticed by their batches now");
            Known::new()
        });
        Batches { path, known: Arc::new(Mutex::new(known)) }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// 0 if nothing is known of the drive.
    pub fn of(&self, drive: DriveId) -> u64 {
        self.known().get(&drive).copied().unwrap_or(0)
    }

    /// Writes down that these are on their drives, unless that is known. Of drives that aren't `kept`, nothing is.
    pub fn note(&self, drives: impl IntoIterator<Item = (DriveId, u64)>, kept: impl Fn(DriveId) -> bool) {
        let mut known = self.known();
        let mut newer = known.clone();
        newer.extend(drives);
        newer.retain(|drive, _| kept(*drive));
        if *known == newer {
            return;
        }
        let text = serde_json::to_vec(&newer).expect("ids are texts, batches are numbers");
        match private_file::replace(&self.path, &text) {
            Ok(()) => *known = newer,
            // What is known stays true; it only gets old.
            Err(error) => {
                tracing::debug!(path = %self.path.display(), %error, "the drives' batches can't be written down")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_recalled_and_those_of_removed_drives_forgotten() {
        let scratch = tempfile::tempdir().expect("a folder");
        let folder = scratch.path();
        let batches = Batches::open(folder);
        assert_eq!(batches.of(DriveId(1)), 0);
        batches.note([(DriveId(1), 7), (DriveId(2), 8)], |_| true);
        batches.note([(DriveId(1), 9)], |_| true);
        let recalled = Batches::open(folder);
        assert_eq!([1, 2].map(|drive| recalled.of(DriveId(drive))), [9, 8]);
        recalled.note([], |drive| drive == DriveId(1));
        assert_eq!([1, 2].map(|drive| Batches::open(folder).of(DriveId(drive))), [9, 0]);
        std::fs::write(folder.join(FILE), "{").expect("ours");
        assert_eq!(Batches::open(folder).of(DriveId(1)), 0, "a broken file is no reason not to start");
    }
}
