//! `damage.json` in the data folder: the blocks of volumes and snapshots that no copy had right, as far as the server knew a few
//! seconds ago. What was found at night must still be told in the morning, also if the server was started anew in between.
//!
//! It's a memory, nothing to rely on: whatever is read or written with success is struck off again.

use crate::observed::{Damage, DamageOf, Observations};
use crate::private_file;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::{MissedTickBehavior, interval};

const FILE: &str = "damage.json";
const EVERY: Duration = Duration::from_secs(5);

pub struct DamageFile {
    path: PathBuf,
    observations: Observations,
    written: Mutex<Damage>,
    is_there: Box<dyn Fn(DamageOf) -> bool + Send + Sync>,
}

impl DamageFile {
    /// Recalls what is written of volumes and snapshots that are still there.
    pub fn open(
        folder: &Path,
        observations: Observations,
        is_there: impl Fn(DamageOf) -> bool + Send + Sync + 'static,
    ) -> Self {
        let path = folder.join(FILE);
        let written = private_file::recall(&path).unwrap_or_else(|error| {
            tracing::warn!(path = %path.display(), %error, "damage that was known can't be recalled: scrub the volumes");
            Damage::new()
        });
        observations.recall(&written, &is_there);
        DamageFile { path, observations, written: Mutex::new(written), is_there: Box::new(is_there) }
    }

    /// Writes down what is known of what is still there, if that is news.
    pub fn save(&self) {
        self.observations.keep_damage(&self.is_there);
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
    use tepal_model::{Epoch, VolumeId};

    fn of(volume: u64, snapshot: Option<Epoch>) -> DamageOf {
        DamageOf { volume: VolumeId(volume), snapshot }
    }

    #[test]
    fn what_was_known_is_recalled_of_volumes_and_snapshots_that_are_still_there() {
        let scratch = tempfile::tempdir().expect("a folder");
        let folder = scratch.path();
        let observations = Observations::default();
        let file = DamageFile::open(folder, observations.clone(), |_| true);
        file.save();
        assert!(!folder.join(FILE).exists(), "nothing is damaged");
        observations.damaged(of(1, None)).recall(&[(7, 2), (100, 1)]);
        observations.damaged(of(1, Some(3))).recall(&[(8, 1)]);
        observations.damaged(of(1, Some(4))).recall(&[(9, 1)]);
        observations.damaged(of(2, None)).recall(&[(0, 1)]);
        file.save();
        let later = Observations::default();
        let is_there = |whose| [of(1, None), of(1, Some(3))].contains(&whose);
        let file = DamageFile::open(folder, later.clone(), is_there);
        let known = [("1".to_owned(), vec![(7, 2), (100, 1)]), ("1@3".to_owned(), vec![(8, 1)])];
        assert_eq!(later.damage(), Damage::from(known));
        later.damaged(of(1, Some(4))).recall(&[(9, 1)]);
        file.save();
        assert_eq!(later.damage().len(), 2, "one is of a snapshot that is gone");
        later.damaged(of(1, None)).replace(&[]);
        later.damaged(of(1, Some(3))).replace(&[]);
        file.save();
        assert_eq!(private_file::recall::<Damage>(&folder.join(FILE)).expect("a file"), Damage::new());
        std::fs::write(folder.join(FILE), "{").expect("ours");
        let none = Observations::default();
        DamageFile::open(folder, none.clone(), |_| true);
        assert!(none.damage().is_empty(), "a broken file is no reason not to start");
    }
}
