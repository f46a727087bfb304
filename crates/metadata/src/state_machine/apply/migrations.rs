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
use std::sync::Arc;
use tepal_model::{Epoch, Lineage, MapId, MigrationStage, VolumeId};

/// The first window is a fiftieth of all chunks: large enough that few are agreed, small enough that clients seldom meet it.
const FIRST_WINDOW: u64 = 50;

impl Draft {
    pub(super) fn begin_migration(
        &mut self,
        name: &str,
        (layout, pool): (Option<&str>, Option<&str>),
        alone: bool,
        (seed, rate): (u64, Option<u64>),
    ) -> Result<Reply, Refusal> {
        check_rate(rate)?;
        let volume = self.whole_volume(name)?;
        if alone && self.version < ALONE {
            return Err(Refusal::CannotLeave(name.to_owned()));
        }
        let layout = layout.map_or(Ok(volume.layout.clone()), parse_layout)?;
        let source = self.state.maps.get(&volume.map).expect("each volume's map exists").clone();
        if let Some(other) = self.state.migration_about(source.id) {
            let volume = if other.takes(&volume) { name.to_owned() } else { self.subject_of(other) };
            if other.cancelled {
                let to = other.leaves.is_none().then(|| other.layout.to_string());
                return Err(Refusal::ComesBack { volume, to });
            }
            let target = self.state.maps.get(&other.target).filter(|_| other.leaves.is_none());
            let to = target.map(|map| map.layout.to_string());
            return Err(Refusal::MigratesAlready { volume, to });
        }
        if alone && self.state.volumes.values().all(|other| other.map != source.id || other.id == volume.id) {
            return Err(Refusal::NotShared(name.to_owned()));
        }
        let target = MapId(self.state.counters.map);
        let next_map = target.0.checked_add(1).ok_or(Refusal::NoMapsLeft)?;
        let pool = pool.unwrap_or(&volume.pool);
        if !self.state.pools.contains_key(pool) {
            return Err(Refusal::NoPool(pool.to_owned()));
        }
        let (settled, table) = place::allot(&self.state, pool, &layout, (target, Some(source.id)), self.version)?;
        if !alone && settled == source.layout && *pool == *volume.pool {
            return Err(Refusal::SameLayout { volume: name.to_owned(), layout: layout.to_string() });
        }
        self.state.counters.map = next_map;
        let view = self.next_view();
        let drives = self.make_map(target, volume.id, settled, &table);
        self.raise_newest_epoch(target, source.newest_epoch);
        let mut record = MigrationRecord {
            id: target,
            source: source.id,
            target,
            layout,
            leaves: alone.then_some(volume.id),
            seed: seed.min(i64::MAX as u64),
            chunks: 1,
            done: 0,
            fence: 1,
            stage: MigrationStage::Running,
            cancelled: false,
            rate: rate.map(|rate| rate.min(i64::MAX as u64)),
            since: view,
            begun_unix_ms: self.unix_ms,
        };
        let longest = self.state.longest_of(&record);
        check_size_for(&record.layout, longest)?;
        record.chunks = longest.div_ceil(self.state.chunk_of(&record));
        record.fence = (record.chunks / FIRST_WINDOW).clamp(1, LONGEST_WINDOW);
        let others = if alone { 0 } else { self.state.volumes_of(source.id).count() - 1 };
        let with = match others {
            0 => String::new(),
            1 => " with the other volume of the same origin".to_owned(),
            more => format!(" with the {more} other volumes of the same origin"),
        };
        let of_pool = if *pool == *volume.pool { String::new() } else { format!(" of pool {pool}") };
        let text = match alone {
            false => {
                format!("begins to go from {} to {}, on {drives} drives{of_pool}{with}", volume.layout, record.layout)
            }
            true => format!("begins to leave the volumes that it shares data with, for {drives} drives"),
        };
        self.put_migration(record);
        self.event("volume", name, text);
        Ok(Reply::MigrationBegun { id: target, view })
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
        let since = self.next_view();
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
        for mut volume in volumes {
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
            for map in [record.source, record.target] {
                if self.state.volumes.values().all(|volume| volume.map != map) && self.state.maps.contains_key(&map) {
                    self.drop_map(map);
                }
            }
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
