//! The volumes that there are, with their sizes, snapshots and clones, and who sees what.

use super::migrations::goes_with;
use super::{Council, State};
use crate::scenario::readers::Readers;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tepal_engine::{Epochs, Laid, Migration, View, VolumeSpec};
use tepal_model::{Epoch, MapId, Ranges, VolumeId};

/// A volume with nothing past its end, which is cleared when all act by that view.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Cleared {
    revision: u64,
    epoch: Epoch,
    window: View,
    pub acted_by: View,
}

impl Council {
    /// The volume's record, as the next who looks hears of it.
    pub fn spec(&self) -> VolumeSpec {
        self.lock().spec.clone()
    }

    /// The volume's record is another from now on; what was sent by the one before is stale.
    pub fn change_record(&self) {
        self.lock().spec.revision += 1;
    }

    /// How often the volume was taken from whoever held it.
    pub fn holder(&self) -> u64 {
        self.lock().holder
    }

    /// The volume is taken from whoever holds it: how often it was by then, and in which view that is agreed.
    pub fn take_volume(&self) -> Option<(u64, View)> {
        let mut state = self.lock();
        if !state.has_majority() {
            return None;
        }
        state.holder += 1;
        state.spec.revision += 1;
        state.now.view += 1;
        Some((state.holder, state.now.view))
    }

    /// How long a volume is.
    pub fn size_of(&self, id: VolumeId) -> u64 {
        self.lock().sizes[&id]
    }

    /// How long a volume was when a snapshot of it was taken; also of one that is gone.
    pub fn size_in(&self, epoch: Epoch) -> u64 {
        self.lock().sizes_then[&epoch]
    }

    /// The volume that was there first, as it is.
    pub fn as_cleared(&self) -> Cleared {
        self.lock().as_cleared()
    }

    /// The volume that was there first is so long from now on: whether that is agreed. It grows only as it was when it was cleared.
    pub fn resize(&self, size: u64, cleared: Option<Cleared>) -> bool {
        let mut state = self.lock();
        let grows = size > state.spec.size;
        let is_agreed = state.has_majority() && (!grows || cleared == Some(state.as_cleared()));
        if is_agreed {
            let id = state.spec.id;
            state.become_long(id, size);
        }
        is_agreed
    }

    /// The epochs that are kept.
    pub fn snapshots(&self) -> Vec<Epoch> {
        self.lock().readers.kept()
    }

    /// That volume and its clones, as far as they are there.
    pub fn volumes(&self) -> Vec<VolumeId> {
        self.lock().readers.volumes()
    }

    /// What a clone is opened with.
    pub fn spec_of_clone(&self, id: VolumeId) -> VolumeSpec {
        let state = self.lock();
        let map = state.now.volumes[&id];
        let (laid, places) = (&state.now.laid[&map], state.now.places[&map].clone());
        let (layout, geometry) = (laid.layout.clone(), laid.geometry.clone());
        let epochs = state.now.epochs.get(&map).cloned().unwrap_or_default();
        let (name, revision, size) = (format!("v{}", id.0), 1, state.sizes[&id]);
        VolumeSpec {
            id,
            name,
            size,
            revision,
            is_replica: false,
            is_encrypted: state.spec.is_encrypted,
            live: None,
            map,
            layout,
            geometry,
            places,
            epochs,
        }
    }

    /// Which map each volume has; of one that goes, the one that it leaves.
    pub fn maps(&self) -> BTreeMap<VolumeId, MapId> {
        self.lock().now.volumes.clone()
    }

    /// The maps of each volume's ranges, as [`Council::maps`].
    pub fn all_maps(&self) -> Vec<(MapId, VolumeId)> {
        let state = self.lock();
        let of_volume = |&id: &VolumeId| state.ranges_of(id).maps().into_iter().map(move |map| (map, id));
        state.now.volumes.keys().flat_map(of_volume).collect()
    }

    /// What of a volume is in which map.
    pub fn ranges_of(&self, id: VolumeId) -> Ranges {
        self.lock().ranges_of(id)
    }

    /// How many drives of any one column may be lost, where the fewest may.
    pub fn may_be_lost(&self) -> usize {
        let now = self.now();
        let of_map = |(map, laid): (&MapId, &Arc<Laid>)| match laid.layout.fragments() {
            fragments if fragments.are_copies() => {
                let fewest = now.places[map].columns.iter().map(|column| column.holders.len()).min();
                fewest.map_or(0, |copies| copies - 1)
            }
            fragments => fragments.code.into(),
        };
        now.laid.iter().map(of_map).min().unwrap_or_default()
    }

    /// Nobody needs a snapshot any more: whether that is agreed.
    pub fn remove_snapshot(&self, epoch: Epoch) -> bool {
        self.lock().change_readers(|readers, _| readers.remove(epoch))
    }

    /// Nobody needs a volume any more, nor its snapshots: whether that is agreed.
    pub fn remove_volume(&self, id: VolumeId) -> bool {
        let mut state = self.lock();
        let is_agreed = state.change_readers(|readers, _| readers.remove_volume(id));
        if is_agreed {
            state.forget_volume(id);
        }
        is_agreed
    }

    /// The volume is again what it was, and as long, if that snapshot is still kept. The view in which that is agreed.
    pub fn roll_back(&self, to: Epoch) -> Option<View> {
        let mut state = self.lock();
        let of = state.readers.volume_of(to).filter(|_| state.has_majority())?;
        if !state.change_readers(|readers, view| readers.roll_back(to, view)) {
            return None;
        }
        let size = state.sizes_then[&to];
        if of == state.spec.id || state.sizes[&of] != size {
            state.become_long(of, size); // a new revision too
        }
        Some(state.now.view)
    }

    /// Whether nobody acts by an earlier view.
    pub fn all_act_by(&self, view: View) -> bool {
        self.lock().is_adopted(view, None)
    }

    /// What the volumes of a map and their snapshots see.
    pub fn epochs(&self, map: MapId) -> Arc<Epochs> {
        self.lock().now.epochs.get(&map).cloned().unwrap_or_default()
    }
}

impl State {
    fn as_cleared(&self) -> Cleared {
        let (epoch, since) = self.readers.head_of(self.spec.id);
        let about = self.now.migrations.values().find(|agreed| self.has(self.spec.id, agreed.began()));
        let migration = about.filter(|agreed| goes_with(agreed, self.spec.id));
        let window = migration.map_or(0, |agreed| agreed.since);
        Cleared { revision: self.spec.revision, epoch, window, acted_by: since.max(window) }
    }

    /// No clone ever does.
    fn become_long(&mut self, id: VolumeId, size: u64) {
        assert_eq!(id, self.spec.id, "a clone is as long as its snapshots");
        self.sizes.insert(id, size);
        (self.spec.size, self.spec.revision) = (size, self.spec.revision + 1);
    }

    /// How long the longest is of these volumes and their snapshots.
    pub(super) fn longest_of(&self, are_meant: impl Fn(VolumeId) -> bool) -> u64 {
        let volumes = self.sizes.iter().filter(|(id, _)| are_meant(**id)).map(|(_, size)| *size);
        let kept = self.readers.kept().into_iter();
        let kept = kept.filter(|epoch| self.readers.volume_of(*epoch).is_some_and(&are_meant));
        volumes.chain(kept.map(|epoch| self.sizes_then[&epoch])).max().unwrap_or(1)
    }

    /// What a volume that leaves others shares with them stays shared: whether it's agreed.
    pub(super) fn change_readers(&mut self, change: impl Fn(&mut Readers, View)) -> bool {
        let mut readers = self.readers.clone();
        readers.note_drives_away(!self.away.is_empty());
        change(&mut readers, self.now.view + 1);
        let leaver = self.now.migrations.values().next().and_then(|agreed| Some((agreed.leaves?, agreed)));
        if let Some((leaver, agreed)) = leaver {
            let is_other = |id| self.now.volumes.get(&id).is_some_and(|map| agreed.is_about(*map));
            let [seen, by_others] = self.readers.seen_by(leaver, is_other);
            let [still, still_by_others] = readers.seen_by(leaver, is_other);
            let shared = seen.intersection(&by_others);
            if shared.into_iter().any(|epoch| still.contains(epoch) && !still_by_others.contains(epoch)) {
                return false;
            }
        }
        self.readers = readers;
        self.now.view += 1;
        self.tell_epochs();
        true
    }

    /// Maps that nobody has any more are forgotten, and who goes alone goes nowhere.
    pub(super) fn forget_volume(&mut self, id: VolumeId) {
        self.now.volumes.remove(&id);
        self.now.ranges.remove(&id);
        self.sizes.remove(&id);
        let goes = |agreed: &Migration| {
            let is_its = |id: VolumeId| [agreed.source, agreed.began()].iter().any(|map| self.has(id, *map));
            self.now.volumes.keys().any(|&id| is_its(id) && goes_with(agreed, id))
        };
        let over: Vec<MapId> =
            self.now.migrations.iter().filter(|(_, agreed)| !goes(agreed)).map(|(map, _)| *map).collect();
        over.iter().for_each(|map| drop(self.now.migrations.remove(map)));
        self.forget_maps();
        self.tell_epochs();
    }

    pub(super) fn forget_maps(&mut self) {
        let targets: Vec<MapId> =
            self.now.migrations.values().flat_map(|agreed| [agreed.source, agreed.target]).collect();
        let volumes: BTreeSet<MapId> = self.now.volumes.keys().flat_map(|id| self.ranges_of(*id).maps()).collect();
        let is_used = |map: &MapId| volumes.contains(map) || targets.contains(map);
        self.now.places.retain(|map, _| is_used(map));
        self.now.epochs.retain(|map, _| is_used(map));
        self.now.laid.retain(|map, _| is_used(map));
        self.moving.retain(|(map, _), _| is_used(map));
    }

    /// As of now. Of two maps between which volumes go it's the same.
    pub(super) fn tell_epochs(&mut self) {
        let maps: Vec<MapId> = self.now.places.keys().copied().collect();
        for map in maps {
            let about = self.now.migrations.values().find(|agreed| agreed.is_about(map));
            let is_reader = |id: VolumeId| {
                let of_way = about.is_some_and(|agreed| self.has(id, agreed.source) || self.has(id, agreed.target));
                of_way || self.has(id, map)
            };
            let epochs = self.readers.epochs_of(is_reader, self.now.view);
            self.now.epochs.insert(map, Arc::new(epochs));
        }
    }
}
