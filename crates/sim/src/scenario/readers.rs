//! The readers of a map, as the metadata would keep them.

use std::collections::{BTreeMap, BTreeSet};
use tepal_engine::{Epochs, Head, View};
use tepal_model::history::{FIRST_EPOCH, Span, gaps, next_epochs};
use tepal_model::{Epoch, History, Lineage, VolumeId};

/// A volume, its clones, and the snapshots of all of them.
#[derive(Clone)]
pub struct Readers {
    /// What each volume sees, and the view in which it began to write in its epoch.
    heads: BTreeMap<VolumeId, (Lineage, View)>,
    /// Epochs are never used again.
    newest: Epoch,
    /// Drives may lack what is written from now on.
    drives_are_away: bool,
    /// No volume has had a higher id.
    last: VolumeId,
    kept: BTreeMap<Epoch, Kept>,
}

#[derive(Clone)]
struct Kept {
    of: VolumeId,
    lineage: Lineage,
}

impl Readers {
    /// Of a volume that has never had a snapshot.
    pub fn of(volume: VolumeId) -> Self {
        let heads = [(volume, (Lineage::default(), 0))].into();
        Readers { heads, newest: FIRST_EPOCH, drives_are_away: false, last: volume, kept: BTreeMap::new() }
    }

    /// Which epochs were handed out from now on is to be known by their numbers, or needn't be.
    pub fn note_drives_away(&mut self, drives_are_away: bool) {
        self.drives_are_away = drives_are_away;
    }

    /// What these of the volumes and their snapshots leave out, and nobody of them sees.
    pub fn gaps_of(&self, is_one: impl Fn(VolumeId) -> bool) -> Vec<Span> {
        let kept = self.kept.values().filter(|kept| is_one(kept.of)).map(|kept| &kept.lineage);
        gaps(kept.chain(self.heads.iter().filter(|(id, _)| is_one(**id)).map(|(_, (lineage, _))| lineage)))
    }

    /// No drive has anything of these.
    pub fn close(&mut self, closed: &[Span], is_one: impl Fn(VolumeId) -> bool) {
        let kept = self.kept.values_mut().filter(|kept| is_one(kept.of)).map(|kept| &mut kept.lineage);
        let heads = self.heads.iter_mut().filter(|(id, _)| is_one(**id)).map(|(_, (lineage, _))| lineage);
        kept.chain(heads).for_each(|lineage| *lineage = lineage.closing(closed));
    }

    /// The epochs that are kept.
    pub fn kept(&self) -> Vec<Epoch> {
        self.kept.keys().copied().collect()
    }

    /// The volumes that are there.
    pub fn volumes(&self) -> Vec<VolumeId> {
        self.heads.keys().copied().collect()
    }

    /// From that view on the volume goes on in a new epoch. Answered with the one that is kept; `None` if the volume is gone.
    pub fn take_snapshot(&mut self, of: VolumeId, view: View) -> Option<Epoch> {
        let (lineage, _) = self.heads.get(&of)?.clone();
        let epoch = lineage.newest();
        self.go_on_from(of, &lineage, view);
        self.kept.insert(epoch, Kept { of, lineage });
        Some(epoch)
    }

    /// A new volume goes on from a snapshot, if that is kept.
    pub fn clone_snapshot(&mut self, epoch: Epoch, view: View) -> Option<VolumeId> {
        let lineage = self.kept.get(&epoch)?.lineage.clone();
        self.last.0 += 1;
        self.go_on_from(self.last, &lineage, view);
        Some(self.last)
    }

    /// From that view on the snapshot's volume is again what it was.
    pub fn roll_back(&mut self, to: Epoch, view: View) {
        let Kept { of, lineage } = &self.kept[&to];
        let (of, lineage) = (*of, lineage.clone());
        self.go_on_from(of, &lineage, view);
    }

    fn go_on_from(&mut self, volume: VolumeId, from: &Lineage, view: View) {
        let (first, newest) = next_epochs(self.newest, view, self.drives_are_away).expect("few epochs");
        self.newest = newest;
        let head = from.with_run(first, newest).expect("few spans");
        self.heads.insert(volume, (head, view));
    }

    /// Nobody needs that snapshot any more.
    pub fn remove(&mut self, epoch: Epoch) {
        self.kept.remove(&epoch);
    }

    /// Nobody needs a volume any more, nor its snapshots.
    pub fn remove_volume(&mut self, id: VolumeId) {
        self.heads.remove(&id);
        self.kept.retain(|_, kept| kept.of != id);
    }

    /// Whose snapshot that is.
    pub fn volume_of(&self, epoch: Epoch) -> Option<VolumeId> {
        self.kept.get(&epoch).map(|kept| kept.of)
    }

    /// In which epoch a volume writes, and since which view.
    pub fn head_of(&self, id: VolumeId) -> (Epoch, View) {
        let (lineage, since) = &self.heads[&id];
        (lineage.newest(), *since)
    }

    /// What the volumes and their snapshots see, as agreed in that view.
    pub fn epochs(&self, view: View) -> Epochs {
        self.epochs_of(|_| true, view)
    }

    /// What these of them do.
    pub fn epochs_of(&self, is_one: impl Fn(VolumeId) -> bool, view: View) -> Epochs {
        if self.newest == FIRST_EPOCH {
            return Epochs::default();
        }
        let heads = || self.heads.iter().filter(|(id, _)| is_one(**id));
        let kept = || self.kept.iter().filter(|(_, kept)| is_one(kept.of));
        let readers = kept().map(|(_, kept)| &kept.lineage).chain(heads().map(|(_, (lineage, _))| lineage)).cloned();
        let history = History::new(readers, self.newest);
        let head = |(&id, (lineage, since)): (&VolumeId, &(Lineage, View))| {
            (id, Head { epoch: lineage.newest(), since: *since })
        };
        let heads = heads().map(head).collect();
        let snapshots = kept().map(|(&epoch, kept)| (epoch, kept.of)).collect();
        Epochs { history, heads, snapshots, view }
    }

    /// The epochs that this volume or a snapshot of it sees; and those that others do, of these volumes.
    pub fn seen_by(&self, volume: VolumeId, is_other: impl Fn(VolumeId) -> bool) -> [BTreeSet<Epoch>; 2] {
        let kept = self.kept.values().map(|kept| (kept.of, &kept.lineage));
        let all: Vec<_> = kept.chain(self.heads.iter().map(|(&of, (lineage, _))| (of, lineage))).collect();
        let seen = |is_one: &dyn Fn(VolumeId) -> bool| {
            let readers = all.iter().filter(|(of, _)| is_one(*of)).map(|(_, lineage)| lineage);
            readers.flat_map(|reader| (0..=self.newest).filter(|&epoch| reader.sees(epoch))).collect()
        };
        [seen(&|of| of == volume), seen(&|of| of != volume && is_other(of))]
    }
}
