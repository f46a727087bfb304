//! `drives.json` in the data folder: the generation in which each drive was last used by this server. An image of a drive
//! that is older than that is known by its label.
//!
//! Invariant: before a drive is written to, its label and this file say the same generation, which no earlier use had. The
//! label is written first; so after a crash in between, the label is ahead, never behind.

use crate::private_file;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use tepal_model::DriveId;

const FILE: &str = "drives.json";

#[derive(Debug)]
pub struct Generations {
    path: PathBuf,
    of: BTreeMap<DriveId, u64>,
}

#[derive(Debug, thiserror::Error)]
pub enum GenerationsError {
    #[error("{}: {error}", path.display())]
    Io { path: PathBuf, error: io::Error },
    /// An operator must decide: without it, an old image of a drive isn't known as one.
    #[error("{} is damaged ({reason}); if no drive was replaced by an older image of it, remove the file", path.display())]
    Damaged { path: PathBuf, reason: String },
}

impl Generations {
    pub fn open(folder: &Path) -> Result<Self, GenerationsError> {
        let path = folder.join(FILE);
        let of = match std::fs::read(&path) {
            Ok(text) => serde_json::from_slice(&text)
                .map_err(|error| GenerationsError::Damaged { path: path.clone(), reason: error.to_string() })?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => BTreeMap::new(),
            Err(error) => return Err(GenerationsError::Io { path, error }),
        };
        Ok(Generations { path, of })
    }

    pub fn all(&self) -> &BTreeMap<DriveId, u64> {
        &self.of
    }

    /// Writes down that these labels are in use now. When this returns, a power loss doesn't undo it.
    pub fn record(&mut self, drives: impl IntoIterator<Item = (DriveId, u64)>) -> Result<(), GenerationsError> {
        let mut of = self.of.clone();
        of.extend(drives);
        self.save(of)
    }

    pub fn forget(&mut self, drive: DriveId) -> Result<(), GenerationsError> {
        let mut of = self.of.clone();
        of.remove(&drive);
        self.save(of)
    }

    fn save(&mut self, of: BTreeMap<DriveId, u64>) -> Result<(), GenerationsError> {
        let text = serde_json::to_vec_pretty(&of).expect("ids are texts, generations are numbers");
        private_file::replace(&self.path, &text)
            .map_err(|error| GenerationsError::Io { path: self.path.clone(), error })?;
        self.of = of;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generations_are_read_back_and_damage_is_named() {
        let scratch = tempfile::tempdir().expect("a folder");
        let folder = scratch.path();
        let mut generations = Generations::open(folder).expect("none yet");
        generations.record([(DriveId(1), 4), (DriveId(2), 1)]).expect("space");
        generations.record([(DriveId(1), 5)]).expect("space");
        generations.forget(DriveId(2)).expect("space");
        assert_eq!(Generations::open(folder).expect("a file").all(), &BTreeMap::from([(DriveId(1), 5)]));
        std::fs::write(folder.join(FILE), "{").expect("ours");
        assert!(matches!(Generations::open(folder), Err(GenerationsError::Damaged { .. })));
    }
}
