//! Volumes that go from one map to another.

use super::{Council, State};
use std::sync::Arc;
use tepal_engine::{Laid, Migration, Places, View};
use tepal_model::size::chunk;
use tepal_model::{MapId, MigrationStage, Ranges, VolumeId};

impl Council {
    /// All volumes that have this one's map, or this one alone, are to go to a map of that form, unless some go somewhere already:
    /// whether that is agreed. Volumes with several ranges go nowhere as a whole.
    pub fn begin_migration(
        &self,
        (of, alone): (VolumeId, bool),
        (to, places): (Laid, Places),
        (seed, rate): (u64, Option<u64>),
    ) -> bool {
        let mut state = self.lock();
        let source = state.now.volumes[&of];
        if state.now.ranges.contains_key(&of) || state.import.is_some() {
            return false;
        }
        let is_shared = state.now.volumes.values().filter(|map| **map == source).count() > 1;
        if !state.now.migrations.is_empty() || (alone && !is_shared) {
            return false;
        }
        state.now.view += 1;
        state.newest_map.0 += 1;
        let target = state.newest_map;
        let (from, leaves) = (Laid::clone(&state.now.laid[&source]), alone.then_some(of));
        let goes = |id| state.now.volumes[&id] == source && leaves.is_none_or(|leaver| leaver == id);
        let chunks = state.longest_of(goes).div_ceil(chunk(from.layout.extent, to.layout.extent));
        let (done, fence, reversed, stage, since) = (0, 1, false, MigrationStage::Running, state.now.view);
        let (first, ends) = (0, false);
        let migration = Migration {
            source,
            target,
            from,
            to,
            first,
            chunks,
            ends,
            seed,
            done,
            fence,
            reversed,
            stage,
            rate,
            leaves,
            since,
        };
        state.now.places.insert(target, Arc::new(places));
        state.now.migrations.insert(source, Arc::new(migration));
        state.tell_epochs();
        state.taken_over.clear();
        true
    }

    /// A part of all volumes that have this one's maps is to go to a map of that form, or to one that another of their ranges has: from
    /// the range with the byte `at`, so many chunks at most. Whether that is agreed.
    pub fn begin_range(
        &self,
        (of, at, most): (VolumeId, u64, u64),
        (to, places): (Laid, Places),
        (seed, rate, joins): (u64, Option<u64>, bool),
    ) -> bool {
        let mut state = self.lock();
        let state = &mut *state;
        let ranges = state.ranges_of(of);
        let Some((bytes, source)) = ranges.iter().find(|(bytes, _)| bytes.contains(&at)) else { return false };
        let other = ranges.maps().into_iter().find(|map| *map != source).filter(|_| joins);
        let to = other.map_or(to, |map| Laid::clone(&state.now.laid[&map]));
        let from = Laid::clone(&state.now.laid[&source]);
        let length = chunk(from.layout.extent, to.layout.extent);
        let longest = state.longest_of(|id| state.has(id, source)).div_ceil(length);
        let (begins, ends) = (bytes.start.div_ceil(length), bytes.end / length);
        let first = (at / length).max(begins);
        let is_last = bytes.end == u64::MAX && first + most >= longest;
        let end = if is_last { longest } else { ends.min(first + most) };
        let waits = !state.now.migrations.is_empty() || state.import.is_some();
        if waits || first >= end || ranges.count() > 6 {
            return false;
        }
        state.now.view += 1;
        let target = other.unwrap_or(MapId(state.newest_map.0 + 1));
        if other.is_none() {
            state.newest_map = target;
            state.now.places.insert(target, Arc::new(places));
            state.now.laid.insert(target, Arc::new(to.clone()));
        }
        let (done, fence, reversed, stage, since) = (0, 1, false, MigrationStage::Running, state.now.view);
        let (chunks, ends, leaves) = (end - first, !is_last, None);
        let migration = Migration {
            source,
            target,
            from,
            to,
            first,
            chunks,
            ends,
            seed,
            done,
            fence,
            reversed,
            stage,
            rate,
            leaves,
            since,
        };
        state.now.migrations.insert(source, Arc::new(migration));
        state.tell_epochs();
        state.taken_over.clear();
        true
    }

    /// It rests, or goes on.
    pub fn change_migration(&self, to: MigrationStage) {
        let mut state = self.lock();
        let state = &mut *state;
        let Some(migration) = state.now.migrations.values_mut().next() else { return };
        if migration.stage != to {
            state.now.view += 1;
            let migration = Arc::make_mut(migration);
            (migration.stage, migration.since) = (to, state.now.view);
            state.taken_over.clear();
        }
    }

    /// It goes so fast from now on, in the background.
    pub fn change_rate(&self, to: Option<u64>) {
        let mut state = self.lock();
        state.now.migrations.values_mut().for_each(|migration| Arc::make_mut(migration).rate = to);
    }

    /// It goes the other way from now on, unless something that goes has grown since it began: that has nothing at the source.
    pub fn turn_migration(&self) {
        let mut state = self.lock();
        let Some((_, was)) = state.now.migrations.first_key_value() else { return };
        let was = was.clone();
        let goes = |id| state.has(id, was.began()) && goes_with(&was, id);
        if !was.ends && state.longest_of(goes) > (was.first + was.chunks) * was.chunk() {
            return;
        }
        state.now.migrations.clear();
        state.now.view += 1;
        state.taken_over.clear();
        let was = Migration::clone(&was);
        let next = Migration {
            source: was.target,
            target: was.source,
            from: was.to,
            to: was.from,
            done: was.chunks - was.fence,
            fence: was.chunks - was.done,
            stage: MigrationStage::Running,
            reversed: !was.reversed,
            since: state.now.view,
            ..was
        };
        let (map, laid, leaves) = (next.source, next.from.clone(), next.leaves);
        let is_of_a_part = next.is_of_a_part();
        state.now.migrations.insert(map, Arc::new(next));
        match is_of_a_part {
            true => state.tell_epochs(), // the volumes' ranges are what they were
            false => state.go_to_map(was.source, leaves, (map, &laid)),
        }
    }

    /// Whether volumes go anywhere.
    pub fn migrates(&self) -> bool {
        !self.lock().now.migrations.is_empty()
    }
}

impl State {
    /// A column has everything of the window; with the last one it's over.
    pub(super) fn take_over(&mut self, map: MapId, column: usize, since: View) -> Option<View> {
        let is_said = |now: &&Arc<Migration>| (now.target, now.since) == (map, since);
        self.now.migrations.values().find(is_said)?;
        self.taken_over.insert(column);
        if self.taken_over.len() == self.now.places[&map].columns.len() {
            self.window_is_over();
        }
        Some(self.now.view)
    }

    /// The next chunk; or they have arrived.
    pub(super) fn window_is_over(&mut self) {
        self.now.view += 1;
        self.taken_over.clear();
        let Some((_, was)) = self.now.migrations.pop_first() else { return };
        let mut next = Migration { since: self.now.view, ..(*was).clone() };
        if was.fence < was.chunks {
            (next.done, next.fence) = (was.fence, was.fence + 1);
            self.now.migrations.insert(next.source, Arc::new(next));
        } else if was.is_of_a_part() {
            self.range_has_gone(&was);
            self.forget_maps();
        } else {
            self.go_to_map(was.source, was.leaves, (was.target, &was.to));
            self.forget_maps();
        }
    }

    /// The volumes' ranges are with it what they are from now on.
    fn range_has_gone(&mut self, was: &Migration) {
        let start = was.first * was.chunk();
        let bytes = start..if was.ends { start + was.chunks * was.chunk() } else { u64::MAX };
        for id in self.now.volumes.keys().copied().filter(|id| self.has(*id, was.began())).collect::<Vec<_>>() {
            let ranges = self.ranges_of(id).with(&bytes, was.target);
            let map = self.now.volumes[&id];
            let map = if ranges.has(map) { map } else { ranges.at(0) };
            self.now.volumes.insert(id, map);
            match ranges.count() {
                1 => self.now.ranges.remove(&id),
                _ => self.now.ranges.insert(id, Arc::new(ranges)),
            };
        }
        let map = self.now.volumes.get(&self.spec.id).copied().unwrap_or(self.spec.map);
        let laid = self.now.laid[&map].clone();
        self.spec.map = map;
        (self.spec.layout, self.spec.geometry) = (laid.layout.clone(), laid.geometry.clone());
        self.spec.places = self.now.places[&map].clone();
        self.tell_epochs();
    }

    pub(super) fn ranges_of(&self, id: VolumeId) -> Ranges {
        self.now.ranges.get(&id).map_or(Ranges::all_in(self.now.volumes[&id]), |ranges| Ranges::clone(ranges))
    }

    /// Whether a volume has a map, by its record.
    pub(super) fn has(&self, id: VolumeId, map: MapId) -> bool {
        self.now.volumes.get(&id) == Some(&map) || self.now.ranges.get(&id).is_some_and(|ranges| ranges.has(map))
    }

    /// The records of volumes that have gone from a map, or of one that has left the others, name another one from now on.
    pub(super) fn go_to_map(&mut self, before: MapId, leaves: Option<VolumeId>, (map, laid): (MapId, &Laid)) {
        let goes = |id: &VolumeId| leaves.is_none_or(|leaver| leaver == *id);
        self.now.volumes.iter_mut().filter(|(id, at)| **at == before && goes(id)).for_each(|(_, at)| *at = map);
        self.now.laid.insert(map, Arc::new(laid.clone()));
        if self.now.volumes.get(&self.spec.id) == Some(&map) {
            self.spec.map = map;
            (self.spec.layout, self.spec.geometry) = (laid.layout.clone(), laid.geometry.clone());
            self.spec.places = self.now.places[&map].clone();
        }
        self.tell_epochs();
    }
}

pub(super) fn goes_with(agreed: &Migration, id: VolumeId) -> bool {
    agreed.leaves.is_none_or(|leaver| leaver == id)
}
