//! What the volumes of a map, and their snapshots, see of it, as agreed.

use crate::view::View;
use std::collections::BTreeMap;
use tepal_codec::checksum::crc_append;
use tepal_model::history::FIRST_EPOCH;
use tepal_model::{Epoch, History, Lineage, VolumeId};

/// Of one map, at one moment. What a map says by default is that it has never had a snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Epochs {
    /// All readers of the map.
    pub history: History,
    /// Where each of its volumes writes. Of a map that has never had a snapshot none is named: its only volume writes in the first
    /// epoch.
    pub heads: BTreeMap<VolumeId, Head>,
    /// The snapshots that can be read: the volume of each.
    pub snapshots: BTreeMap<Epoch, VolumeId>,
    /// Of a state that says all this. One with a higher view says it anew, or something later.
    pub view: View,
}

/// Where a volume writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The newest that it sees, and no other reader's.
    pub epoch: Epoch,
    /// The view in which it began to. In earlier ones some server may still write in the epoch before.
    pub since: View,
}

/// What somebody reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Subject {
    pub volume: VolumeId,
    /// Up to which of its snapshots; `None` for what it has now.
    pub at: Option<Epoch>,
}

impl Subject {
    pub fn now(volume: VolumeId) -> Self {
        Subject { volume, at: None }
    }
}

impl Epochs {
    /// `None` if there's no such volume any more, or not yet.
    pub(crate) fn head_of(&self, volume: VolumeId) -> Option<Head> {
        match self.heads.is_empty() {
            true => Some(Head { epoch: FIRST_EPOCH, since: 0 }),
            false => self.heads.get(&volume).copied(),
        }
    }

    /// The last of the history's lines: no newer one sees it.
    pub(crate) fn newest_line(&self) -> Lineage {
        self.history.lines().last().cloned().unwrap_or_default()
    }

    /// `None` if there's no such volume or snapshot any more.
    pub(crate) fn seen_at(&self, Subject { volume, at }: Subject) -> Option<&Lineage> {
        let epoch = match at {
            None => self.head_of(volume)?.epoch,
            Some(epoch) => Some(epoch).filter(|epoch| self.snapshots.contains_key(epoch))?,
        };
        self.history.reader(epoch)
    }

    /// Whether nothing begins in this epoch any more, nor ever will.
    pub(crate) fn is_over(&self, epoch: Epoch) -> bool {
        let is_head = match self.heads.is_empty() {
            true => epoch == FIRST_EPOCH,
            false => self.heads.values().any(|head| head.epoch == epoch),
        };
        !is_head && !self.history.is_unknown(epoch)
    }

    /// In no earlier view may anybody act when what is written in any of the heads is told.
    pub(crate) fn since(&self) -> View {
        self.heads.values().map(|head| head.since).max().unwrap_or(0)
    }

    /// The same wherever the same lines are known, and the same of them are those of a volume that leaves the others. The view isn't:
    /// it's that in which a server came to know them.
    pub(crate) fn lines_digest(&self, leaves: Option<VolumeId>) -> u64 {
        let crc = self.history.lines().iter().fold(0, |crc, line| {
            let crc = crc_append(crc, &line.own().to_le_bytes());
            let spans = line.spans().iter().flat_map(|&(first, last)| [first, last]);
            spans.fold(crc, |crc, epoch| crc_append(crc, &epoch.to_le_bytes()))
        });
        let parts = leaves.map(|volume| [self.seen_of(volume), self.seen_only_of(volume)]).into_iter().flatten();
        let crc = parts.fold(crc, |crc, part| {
            let epochs = part.into_iter().map(Lineage::newest).chain([Epoch::MAX]);
            epochs.fold(crc, |crc, epoch| crc_append(crc, &epoch.to_le_bytes()))
        });
        let newest = self.history.lines().last().map_or(0, Lineage::newest);
        (u64::from(newest) << 32) | u64::from(crc)
    }

    /// The lines that this volume and its snapshots see, older ones first.
    pub(crate) fn seen_of(&self, volume: VolumeId) -> Vec<&Lineage> {
        let own: Vec<&Lineage> = self.readers_of(volume).collect();
        let lines = self.history.lines().iter();
        lines.filter(|line| own.iter().any(|reader| reader.sees(line.newest()))).collect()
    }

    /// Those of them that no other volume sees, nor a snapshot of one.
    pub(crate) fn seen_only_of(&self, volume: VolumeId) -> Vec<&Lineage> {
        let own: Vec<Epoch> = self.readers_of(volume).map(Lineage::newest).collect();
        let others = self.history.readers().iter().filter(|reader| !own.contains(&reader.newest()));
        let others: Vec<&Lineage> = others.collect();
        let lines = self.seen_of(volume).into_iter();
        lines.filter(|line| !others.iter().any(|reader| reader.sees(line.newest()))).collect()
    }

    /// What this volume and its snapshots see.
    pub(crate) fn readers_of(&self, volume: VolumeId) -> impl Iterator<Item = &Lineage> {
        let head = self.heads.get(&volume).map(|head| head.epoch);
        let is_own = move |reader: &&Lineage| {
            let newest = reader.newest();
            head == Some(newest) || self.snapshots.get(&newest) == Some(&volume)
        };
        self.history.readers().iter().filter(is_own)
    }

    /// Whether there has never been more than one layer of anything.
    pub(crate) fn is_first(&self) -> bool {
        self.heads.is_empty()
    }
}
