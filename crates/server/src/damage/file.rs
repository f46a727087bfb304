//! `damage.json` in the data folder: the blocks of volumes that no copy had right, as far as the server knew a few seconds ago.
//! What was found at night must still be told in the morning, also if the server was started anew in between.
//!
//! It's a memory, nothing to rely on: whatever is read or written with success is struck off again.

use crate::observed::{Damage, Observations};
use crate::private_file;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tepal_model::VolumeId;
use tokio::time::{MissedTickBehavior, interval};

const FILE: &str = "damage.json";
const EVERY: Duration = Duration::from_secs(5);

pub struct DamageFile {
    path: PathBuf,
    observations: Observations,
    written: Mutex<Damage>,
}

impl DamageFile {
    /// Recalls what is written of volumes that are still there.
    pub fn open(folder: &Path, observations: Observations, is_there: impl Fn(VolumeId) -> bool) -> Self {
        let path = folder.join(FILE);
        let written = private_file::recall(&path).unwrap_or_else(|error| {
            tracing::warn!(path = %path.display(), %error, "damage that was known can't be recalled: scrub the volumes");
            Damage::new()
        });
        for (&volume, runs) in written.iter().filter(|(volume, _)| is_there(VolumeId(**volume))) {
            observations.of(VolumeId(volume)).damaged().recall(runs);
        }
        DamageFile { path, observations, written: Mutex::new(written) }
    }

    /// Writes down what is known, if that is news.
    pub fn save(&self) {
        let known = self.observations.damage();
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        if *written == known {
            return;
        }
        let text = serde_json::to_vec(&known).expect("numbers");
        match private_file::replace(&self.path, &text) {
            Ok(()) => *written = known,
            Err(error) => tracing::warn!(path = %self.path.display(), %error, "known damage can't be written down"),
        }
    }

    /// Until it's dropped.
    pub async fn keep(self: Arc<Self>) {
        let mut ticks = interval(EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.save();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_known_is_recalled_of_the_volumes_that_are_still_there() {
        let scratch = tempfile::tempdir().expect("a folder");
        let folder = scratch.path();
        let observations = Observations::default();
        let file = DamageFile::open(folder, observations.clone(), |_| true);
        file.save();
        assert!(!folder.join(FILE).exists(), "nothing is damaged");
        observations.of(VolumeId(1)).damaged().recall(&[(7, 2), (100, 1)]);
        observations.of(VolumeId(2)).damaged().recall(&[(0, 1)]);
        file.save();
        let later = Observations::default();
        let file = DamageFile::open(folder, later.clone(), |volume| volume == VolumeId(1));
        assert_eq!(later.damage(), Damage::from([(1, vec![(7, 2), (100, 1)])]));
        file.save();
        later.of(VolumeId(1)).damaged().replace(&[]);
        file.save();
        assert_eq!(private_file::recall::<Damage>(&folder.join(FILE)).expect("a file"), Damage::new());
        std::fs::write(folder.join(FILE), "{").expect("ours");
        let none = Observations::default();
        DamageFile::open(folder, none.clone(), |_| true);
        assert!(none.damage().is_empty(), "a broken file is no reason not to start");
    }
}
