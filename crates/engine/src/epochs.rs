//! What a volume and its snapshots see of its map, as agreed.

use crate::authority::View;
use std::collections::BTreeMap;
use tepal_model::history::FIRST_EPOCH;
use tepal_model::{Epoch, History, Lineage};

/// Of one volume, at one moment. A later state has a `since` that isn't lower.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Epochs {
    /// All readers of the map.
    pub history: History,
    /// The epoch that the volume writes in.
    pub head: Epoch,
    /// The view in which it began to. In earlier ones some server may still write in the epoch before.
    pub since: View,
    /// The snapshots that can be read: the bytes of each.
    pub snapshots: BTreeMap<Epoch, u64>,
}

/// Of a volume that has never had a snapshot.
impl Default for Epochs {
    fn default() -> Self {
        Epochs { history: History::default(), head: FIRST_EPOCH, since: 0, snapshots: BTreeMap::new() }
    }
}

impl Epochs {
    /// What the volume itself sees.
    pub(crate) fn head(&self) -> &Lineage {
        self.history.reader(self.head).expect("a volume is a reader of its map")
    }

    /// What is seen at a snapshot; of none, what the volume itself sees. `None` if there's no such snapshot.
    pub(crate) fn at(&self, snapshot: Option<Epoch>) -> Option<&Lineage> {
        match snapshot {
            None => Some(self.head()),
            Some(epoch) => self.history.reader(epoch).filter(|_| self.snapshots.contains_key(&epoch)),
        }
    }
}
