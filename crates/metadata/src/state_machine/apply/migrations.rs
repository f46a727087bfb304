//! Volumes that go from one map to another, a window of chunks at a time.
//!
//! While they go, both maps have the same epochs: one that is handed out is new to both. So the one that is left at the end
//! knows all that volumes and snapshots see.

use super::drives::parse_layout;
use super::volumes::check_size_for;
use super::{Draft, place};
use crate::command::{ALONE, Reply};
use crate::record::{LONGEST_WINDOW, MapRecord, MigrationRecord, VolumeRecord};
use crate::refusal::Refusal;
use crate::state::State;
use std::ops::Range;
use std::sync::Arc;
use tepal_model::ranges::MOST_RANGES;
use tepal_model::size::{chunk, exact};
use tepal_model::{Epoch, Layout, Lineage, MapId, MigrationStage, VolumeId};

/// The first window is a fiftieth of all chunks: large enough that few are agreed, small enough that clients seldom meet it.
const FIRST_WINDOW: u64 = 50;

/// What is refused, and what does it.
const NO_WAY_FROM_QUORUM: &str = "there's no way to another layout; `tepal volume import NEW --live --layout LAYOUT --from nbd://...`, with \
    the address of this volume, makes another volume of it that is used at once";
const NO_WAY_TO_QUORUM: &str = "there's no way to a quorum layout; `tepal volume import NEW --layout LAYOUT --from nbd://...`, with the \
    address of this volume, copies it";

/// What is to go to another map.
struct Goes {
    source: Arc<MapRecord>,
    /// Whether it's the whole of a volume with one range.
    is_all: bool,
    /// Without an end: up to `u64::MAX`.
    bytes: Range<u64>,
}

/// A range as people write it.
fn said(bytes: &Range<u64>) -> String {
    let end = if bytes.end == u64::MAX { String::new() } else { exact(bytes.end) };
    format!("{}..{end}", exact(bytes.start))
}

impl Draft {
    pub(super) fn begin_migration(
        &mut self,
        name: &str,
        (layout, pool): (Option<&str>, Option<&str>),
        (alone, range): (bool, Option<(u64, u64)>),
        (seed, rate): (u64, Option<u64>),
    ) -> Result<Reply, Refusal> {
        check_rate(rate)?;
        let volume = self.whole_volume(name)?;
        if alone && self.version < ALONE {
            return Err(Refusal::CannotLeave(name.to_owned()));
        }
        let goes = self.what_goes(&volume, alone, range)?;
        let layout = match layout {
            Some(layout) => parse_layout(layout)?,
            None if goes.is_all => volume.layout.clone(),
            None => goes.source.layout.clone(),
        };
        self.check_not_of_quorum(&volume, NO_WAY_FROM_QUORUM)?;
        if layout.quorum().is_some() {
            let what = NO_WAY_TO_QUORUM.to_owned();
            return Err(Refusal::NotOfQuorum { volume: name.to_owned(), layout: volume.layout.to_string(), what });
        }
        self.check_not_going(&volume, name)?;
        let source = &goes.source;
        if alone && self.state.volumes.values().all(|other| other.map != source.id || other.id == volume.id) {
            return Err(Refusal::NotShared(name.to_owned()));
        }
        let next = MapId(self.state.counters.map);
        let next_map = next.0.checked_add(1).ok_or(Refusal::NoMapsLeft)?;
        let from_pool = self.state.pool_of(&volume, source).to_owned();
        let pool = pool.unwrap_or(&from_pool);
        if !self.state.pools.contains_key(pool) {
            return Err(Refusal::NoPool(pool.to_owned()));
        }
        let (settled, table) = place::allot(&self.state, pool, &layout, (next, Some(source.id)), self.version)?;
        if !alone && settled == source.layout && *pool == from_pool {
            return Err(Refusal::SameLayout { volume: name.to_owned(), layout: layout.to_string() });
        }
        let joined = (!goes.is_all).then(|| self.map_of_a_range(&volume, (&settled, pool), source.id)).flatten();
        let mut record = MigrationRecord {
            id: joined.unwrap_or(next),
            source: source.id,
            target: joined.unwrap_or(next),
            layout,
            leaves: alone.then_some(volume.id),
            first: 0,
            ends: false,
            seed: seed.min(i64::MAX as u64),
            chunks: 1,
            done: 0,
            fence: 1,
            stage: MigrationStage::Running,
            cancelled: false,
            rate: rate.map(|rate| rate.min(i64::MAX as u64)),
            since: self.state.view() + 1,
            begun_unix_ms: self.unix_ms,
        };
        let longest = self.longest_with_map_of(&volume, &record);
        self.measure(&mut record, &volume, (&goes, settled.extent, longest))?;
        let view = self.next_view();
        let drives = match joined.and_then(|map| self.state.maps.get(&map)) {
            Some(map) => map.drives().len(),
            None => {
                self.state.counters.map = next_map;
                let drives = self.make_map(next, volume.id, settled, &table);
                self.raise_newest_epoch(next, goes.source.newest_epoch);
                drives
            }
        };
        let of_pool = if *pool == from_pool { String::new() } else { format!(" of pool {pool}") };
        self.tell_begin(&volume, &record, (drives, of_pool, &goes));
        let id = record.id;
        self.put_migration(record);
        Ok(Reply::MigrationBegun { id, view })
    }

    /// What is to go: the whole of a volume with one range, or a part of one range.
    fn what_goes(&self, volume: &VolumeRecord, alone: bool, range: Option<(u64, u64)>) -> Result<Goes, Refusal> {
        let name = || volume.name.clone();
        let map = |id: MapId| self.state.maps.get(&id).expect("each range's map exists").clone();
        let (table, longest) = (volume.table(), self.state.longest_with(volume));
        let Some((from, to)) = range else {
            if table.count() > 1 {
                let ranges = table.count();
                return Err(if alone {
                    Refusal::FlattenOfRanges(name())
                } else {
                    Refusal::HasRanges { volume: name(), ranges }
                });
            }
            return Ok(Goes { source: map(volume.map), is_all: true, bytes: 0..u64::MAX });
        };
        if from >= to || from >= volume.size {
            return Err(Refusal::NoSuchRange { volume: name(), from, to, size: volume.size });
        }
        // What ends with the volume, or behind it, is of its last range, and so is what it grows by.
        let end = if to >= volume.size { u64::MAX } else { to };
        let (own, source) = table.iter().find(|(own, _)| own.contains(&from)).expect("each byte is in a range");
        if end > own.end {
            return Err(Refusal::RangeOfSeveral { volume: name(), from, to: to.min(longest), until: own.end });
        }
        let is_all = table.count() == 1 && from == 0 && end == u64::MAX;
        if !is_all && table.with(&(from..end), MapId(u32::MAX)).count() > MOST_RANGES {
            return Err(Refusal::TooManyRanges { volume: name(), most: MOST_RANGES });
        }
        Ok(Goes { source: map(source), is_all, bytes: from..end })
    }

    /// Only one thing of a volume, and of those that share a map with it, goes at a time.
    fn check_not_going(&self, volume: &VolumeRecord, name: &str) -> Result<(), Refusal> {
        let about = volume.maps().into_iter().find_map(|map| self.state.migration_about(map));
        let Some(other) = about else { return Ok(()) };
        let volume = if other.takes(volume) { name.to_owned() } else { self.subject_of(other) };
        if other.cancelled {
            let to = other.leaves.is_none().then(|| other.layout.to_string());
            return Err(Refusal::ComesBack { volume, to });
        }
        let target = self.state.maps.get(&other.target).filter(|_| other.leaves.is_none());
        let to = target.map(|map| map.layout.to_string());
        Err(Refusal::MigratesAlready { volume, to })
    }

    /// The map of another range of the volume that is as one would be made now: a range that goes to it is of it then.
    fn map_of_a_range(&self, volume: &VolumeRecord, (layout, pool): (&Layout, &str), but: MapId) -> Option<MapId> {
        let is_such = |id: &MapId| {
            let map = self.state.maps.get(id).filter(|map| map.id != but && map.layout == *layout);
            map.is_some_and(|map| self.state.pool_of(volume, map) == pool)
        };
        volume.maps().into_iter().find(is_such)
    }

    /// How long the longest is that goes: the volume's map names all of them.
    fn longest_with_map_of(&self, volume: &VolumeRecord, record: &MigrationRecord) -> u64 {
        if record.leaves.is_some() { self.state.longest_alone(volume) } else { self.state.longest_with(volume) }
    }

    /// Counts the chunks, and checks that they are whole ones and no more than the layout can have.
    fn measure(
        &self,
        record: &mut MigrationRecord,
        volume: &VolumeRecord,
        (goes, extent, longest): (&Goes, u32, u64),
    ) -> Result<(), Refusal> {
        let chunk = chunk(goes.source.extent(), extent);
        let Range { start, end } = goes.bytes;
        let (ends, until) = (end != u64::MAX, end.min(longest));
        check_size_for(&record.layout, until)?;
        if !goes.is_all {
            if record.layout.plexes().is_some() || goes.source.layout.plexes().is_some() {
                return Err(Refusal::RangeOfPlexes(volume.name.clone()));
            }
            let not_whole = [start, if ends { end } else { 0 }].into_iter().find(|at| !at.is_multiple_of(chunk));
            if let Some(at) = not_whole {
                return Err(Refusal::RangeNotWhole { at, chunk, size: volume.size });
            }
        }
        (record.first, record.ends) = (start / chunk, ends);
        record.chunks = (until.div_ceil(chunk) - record.first).max(1);
        record.fence = (record.chunks / FIRST_WINDOW).clamp(1, LONGEST_WINDOW);
        Ok(())
    }

    fn tell_begin(
        &mut self,
        volume: &VolumeRecord,
        record: &MigrationRecord,
        (drives, of_pool, goes): (usize, String, &Goes),
    ) {
        let others = if record.leaves.is_some() { 0 } else { self.state.volumes_of(goes.source.id).count() - 1 };
        let with = match others {
            0 => String::new(),
            1 => " with the other volume of the same origin".to_owned(),
            more => format!(" with the {more} other volumes of the same origin"),
        };
        let (from, to) = (if goes.is_all { &volume.layout } else { &goes.source.layout }, &record.layout);
        let what = match goes.is_all {
            true => String::new(),
            false => format!(" with its bytes {}", said(&goes.bytes)),
        };
        let text = match record.leaves {
            None => format!("begins to go{what} from {from} to {to}, on {drives} drives{of_pool}{with}"),
            Some(_) => format!("begins to leave the volumes that it shares data with, for {drives} drives"),
        };
        self.event("volume", &volume.name, text);
    }

    pub(super) fn move_window(&mut self, id: MapId, since: u64, to: (u64, u64)) -> Result<Reply, Refusal> {
        let mut record = self.migration(id)?;
        if record.since != since {
            return Err(Refusal::WindowChanged { done: record.done, fence: record.fence });
        }
        if record.stage != MigrationStage::Running {
            return Err(Refusal::MigrationStage(record.stage));
        }
        let is_too_long = to.1.saturating_sub(to.0) > LONGEST_WINDOW;
        let is_last = to == (record.chunks, record.chunks) && record.fence == record.chunks;
        if !is_last && (to.0 != record.fence || to.1 <= to.0 || to.1 > record.chunks || is_too_long) {
            return Err(Refusal::NoWindow { done: to.0, fence: to.1 });
        }
        let view = self.next_view();
        if is_last {
            self.finish_migration(&record);
            return Ok(Reply::Done);
        }
        (record.done, record.fence, record.since) = (to.0, to.1, view);
        self.put_migration(record);
        Ok(Reply::Done)
    }

    /// The volumes that went have the target from now on, which has all.
    fn finish_migration(&mut self, record: &MigrationRecord) {
        if record.is_of_a_part() {
            return self.finish_range(record);
        }
        let subject = self.subject_of(record);
        let volumes = self.state.volumes.values().filter(|volume| record.takes(volume));
        let volumes: Vec<VolumeRecord> = volumes.map(|volume| VolumeRecord::clone(volume)).collect();
        let pool = volumes.first().zip(self.state.maps.get(&record.target));
        let pool = pool.map(|(volume, map)| self.state.pool_of(volume, map).to_owned());
        let new_pool = pool.filter(|pool| !record.cancelled && volumes.iter().any(|volume| volume.pool != *pool));
        self.drop_migration(record.id);
        for mut volume in volumes {
            volume.map = record.target;
            if !record.cancelled {
                volume.layout = record.layout.clone();
                volume.pool = new_pool.clone().unwrap_or(volume.pool);
                volume.origin = volume.origin.filter(|_| record.leaves.is_none());
            }
            self.revise(volume);
        }
        if self.state.volumes.values().all(|volume| volume.map != record.source) {
            self.drop_map(record.source);
            self.forget_removed_drives();
        }
        let text = match (record.leaves, record.cancelled) {
            (_, true) => "is as it was before: all that had gone has come back".to_owned(),
            (None, false) => match new_pool {
                None => format!("has {} now", record.layout),
                Some(pool) => format!("has {} now, in pool {pool}", record.layout),
            },
            (Some(_), false) => "shares no data with other volumes any more".to_owned(),
        };
        self.event("volume", &subject, text);
    }

    /// The range that went is in the target from now on. A map of which no range is left is gone; one range that is left is the volume.
    fn finish_range(&mut self, record: &MigrationRecord) {
        let (subject, bytes) = (self.subject_of(record), record.bytes(self.state.chunk_of(record)));
        let volumes = self.state.volumes.values().filter(|volume| record.takes(volume));
        let volumes: Vec<VolumeRecord> = volumes.map(|volume| VolumeRecord::clone(volume)).collect();
        self.drop_migration(record.id);
        for mut volume in volumes {
            let table = volume.table().with(&bytes, record.target);
            let before = volume.map;
            volume.map = if table.has(before) { before } else { table.at(0) };
            volume.ranges = (table.count() > 1).then_some(table);
            if volume.map != before {
                let map = self.state.maps.get(&volume.map).expect("each range's map exists").clone();
                let went_there = volume.map == record.target && !record.cancelled;
                volume.layout = if went_there { record.layout.clone() } else { map.layout.clone() };
                let held = VolumeRecord { ranges: Some(volume.table()), ..volume.clone() };
                volume.pool = self.state.pool_of(&held, &map).to_owned();
            }
            self.revise(volume);
        }
        [record.source, record.target].into_iter().for_each(|map| self.drop_map_of_nobody(map));
        self.forget_removed_drives();
        let text = match record.cancelled {
            true => format!("is as it was before: what had gone of its bytes {} has come back", said(&bytes)),
            false => format!("has {} in its bytes {} now", record.layout, said(&bytes)),
        };
        self.event("volume", &subject, text);
    }

    pub(super) fn pause_migration(&mut self, id: MapId, paused: bool) -> Result<Reply, Refusal> {
        let mut record = self.migration(id)?;
        let to = if paused { MigrationStage::Paused } else { MigrationStage::Running };
        if record.stage == to {
            return Ok(Reply::Done);
        }
        (record.stage, record.since) = (to, self.next_view());
        let subject = self.subject_of(&record);
        self.put_migration(record);
        let text = if paused { "rests on its way" } else { "goes on" };
        self.event("volume", &subject, text.to_owned());
        Ok(Reply::Done)
    }

    pub(super) fn set_migration_rate(&mut self, id: MapId, rate: Option<u64>) -> Result<Reply, Refusal> {
        check_rate(rate)?;
        let mut record = self.migration(id)?;
        record.rate = rate.map(|rate| rate.min(i64::MAX as u64));
        self.put_migration(record);
        Ok(Reply::Done)
    }

    /// Nothing has to be taken back first: what is at the target in part the source has too.
    pub(super) fn turn_migration(&mut self, id: MapId, cancelled: bool) -> Result<Reply, Refusal> {
        let record = self.migration(id)?;
        if record.cancelled == cancelled {
            return Ok(Reply::Done);
        }
        let subject = self.subject_of(&record);
        if self.state.has_outgrown(&record) {
            return Err(Refusal::GrownSince(subject));
        }
        let volumes = self.state.volumes.values().filter(|volume| record.takes(volume));
        let volumes: Vec<VolumeRecord> = volumes.map(|volume| VolumeRecord::clone(volume)).collect();
        let (since, is_of_a_part) = (self.next_view(), record.is_of_a_part());
        self.put_migration(MigrationRecord {
            source: record.target,
            target: record.source,
            done: record.chunks - record.fence,
            fence: record.chunks - record.done,
            stage: MigrationStage::Running,
            cancelled,
            since,
            ..record
        });
        // Of a range that goes, the volumes' records say nothing before it's there.
        for mut volume in volumes.into_iter().filter(|_| !is_of_a_part) {
            volume.map = record.target;
            self.revise(volume);
        }
        let text = match cancelled {
            true => "turns around on its way to another layout: what has gone comes back",
            false => "turns around once more: it goes to its other layout after all",
        };
        self.event("volume", &subject, text.to_owned());
        Ok(Reply::Done)
    }

    /// Nobody goes with it any more: the map that was made for it, or that all have left, is gone with it. To be called when
    /// the last volume that went is forgotten.
    pub(super) fn end_migrations_of_nobody(&mut self) {
        let is_over = |record: &&Arc<MigrationRecord>| self.state.volumes.values().all(|volume| !record.takes(volume));
        for record in self.state.migrations.values().filter(is_over).cloned().collect::<Vec<_>>() {
            self.drop_migration(record.id);
            [record.source, record.target].into_iter().for_each(|map| self.drop_map_of_nobody(map));
            self.forget_removed_drives();
        }
    }

    /// What a volume that leaves others sees together with them stays where it is. So it's to be seen by others until the volume has
    /// left: else it would be the volume's alone, and nobody could tell what of it has gone.
    pub(super) fn check_what_is_shared(&self, before: &State) -> Result<(), Refusal> {
        let leave = before.migrations.values().filter(|record| self.state.migrations.contains_key(&record.id));
        for (record, leaver) in leave.filter_map(|record| Some((record, record.leaves?))) {
            let (was, is) = (readers(before, record.source), readers(&self.state, record.source));
            let sees = |readers: &[(VolumeId, Lineage)], is_own: bool, epoch| {
                readers.iter().any(|(of, lineage)| (*of == leaver) == is_own && lineage.sees(epoch))
            };
            let is_shared = |all: &[_], epoch| sees(all, true, epoch) && sees(all, false, epoch);
            let is_lost = |&epoch: &Epoch| is_shared(&was, epoch) && sees(&is, true, epoch) && !sees(&is, false, epoch);
            if was != is && before.history_of(record.source).lines().iter().map(Lineage::newest).any(|e| is_lost(&e)) {
                return Err(Refusal::FlattenedFrom(self.subject_of(record)));
            }
        }
        Ok(())
    }

    /// The map hands out no epoch up to this one.
    pub(super) fn raise_newest_epoch(&mut self, map: MapId, newest_epoch: Epoch) {
        let record = self.state.maps.get(&map).expect("it's there");
        let record = MapRecord { newest_epoch: record.newest_epoch.max(newest_epoch), ..MapRecord::clone(record) };
        self.put_map(record);
    }

    /// Of which volume people read.
    fn subject_of(&self, record: &MigrationRecord) -> String {
        self.state.volumes_that_go(record).next().map_or_else(String::new, |volume| volume.name.clone())
    }

    fn migration(&self, id: MapId) -> Result<MigrationRecord, Refusal> {
        self.state.migrations.get(&id).map(|record| MigrationRecord::clone(record)).ok_or(Refusal::NoMigration(id))
    }
}

/// What each volume that may read a map sees, and each of their snapshots.
fn readers(state: &State, map: MapId) -> Vec<(VolumeId, Lineage)> {
    let of_volume = |volume: &Arc<VolumeRecord>| {
        let snapshots = state.snapshots_of(volume.id).map(|snapshot| snapshot.lineage.clone());
        let seen: Vec<Lineage> = snapshots.chain([volume.lineage.clone()]).collect();
        seen.into_iter().map(|lineage| (volume.id, lineage)).collect::<Vec<_>>()
    };
    state.readers_of(map).flat_map(of_volume).collect()
}

fn check_rate(rate: Option<u64>) -> Result<(), Refusal> {
    if rate == Some(0) { Err(Refusal::Rate) } else { Ok(()) }
}
