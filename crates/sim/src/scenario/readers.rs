//! The readers of a volume's map, as the metadata would keep them.

use std::collections::BTreeMap;
use tepal_engine::{Epochs, View};
use tepal_model::history::FIRST_EPOCH;
use tepal_model::{Epoch, History, Lineage};

/// The volume and its snapshots.
pub struct Readers {
    head: Lineage,
    /// Epochs are never used again.
    newest: Epoch,
    kept: BTreeMap<Epoch, Lineage>,
    /// The view in which the volume began to write in its epoch.
    since: View,
}

impl Default for Readers {
    /// Of a volume that has never had a snapshot.
    fn default() -> Self {
        Readers { head: Lineage::default(), newest: FIRST_EPOCH, kept: BTreeMap::new(), since: 0 }
    }
}

impl Readers {
    /// The epochs that are kept.
    pub fn kept(&self) -> Vec<Epoch> {
        self.kept.keys().copied().collect()
    }

    /// From that view on the volume goes on in a new epoch. Answered with the one that is kept.
    pub fn take_snapshot(&mut self, view: View) -> Option<Epoch> {
        let (kept, epoch) = (self.head.clone(), self.head.newest());
        self.go_on_from(&kept, view)?;
        self.kept.insert(epoch, kept);
        Some(epoch)
    }

    /// From that view on the volume is again what it was.
    pub fn roll_back(&mut self, to: Epoch, view: View) {
        let kept = self.kept[&to].clone();
        self.go_on_from(&kept, view).expect("few spans");
    }

    fn go_on_from(&mut self, from: &Lineage, view: View) -> Option<()> {
        self.newest += 1;
        self.head = from.with(self.newest)?;
        self.since = view;
        Some(())
    }

    /// Nobody needs that snapshot any more.
    pub fn remove(&mut self, epoch: Epoch) {
        self.kept.remove(&epoch);
    }

    /// What the volume, which has so many bytes, and its snapshots see.
    pub fn epochs(&self, size: u64) -> Epochs {
        let readers = self.kept.values().chain([&self.head]).cloned();
        let history = History::new(readers, self.newest);
        let snapshots = self.kept.keys().map(|&epoch| (epoch, size)).collect();
        Epochs { history, head: self.head.newest(), since: self.since, snapshots }
    }
}
