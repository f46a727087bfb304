//! The tables of [`Schedules`], which have rows and checksums as all other records do.

use super::digest::of;
use super::rows::{Record, all, delete, integer, optional, parse, put, text};
use crate::schedule::{Covered, MadeRecord, ScheduleRecord, Schedules, ScrubRecord, Work, WorkKind};
use rusqlite::types::{Type, Value};
use rusqlite::{Connection, Row};
use std::sync::Arc;
use tepal_model::schedule::{Ahead, Rhythm, TimeOfDay};
use tepal_model::{Epoch, VolumeId};

/// A row that an accepted command writes or deletes.
#[derive(Clone, Debug, PartialEq)]
pub enum ScheduleChange {
    Schedule(Arc<ScheduleRecord>),
    ScheduleGone(u64),
    Made(Arc<MadeRecord>),
    MadeGone(VolumeId, Epoch),
    Scrub(Arc<ScrubRecord>),
    ScrubGone(VolumeId),
}

impl Record for ScheduleRecord {
    const TABLE: &'static str = "schedules";
    const COLUMNS: &'static [&'static str] = &[
        "id",
        "name",
        "work",
        "volume",
        "pool",
        "every_s",
        "at",
        "zone",
        "keep",
        "within_s",
        "paused",
        "created_unix_ms",
        "done_s",
        "last_run_unix_ms",
        "missed",
        "last_missed_s",
        "error",
    ];

    fn values(&self) -> Vec<Value> {
        let (mut volume, mut pool, mut within) = (Value::Null, Value::Null, Value::Null);
        let mut times = [Value::Null, Value::Null, Value::Null, Value::Null];
        match &self.work {
            Work::Snapshots { of, rhythm, keep } => {
                match of {
                    Covered::Volume(id) => volume = integer(id.0),
                    Covered::Pool(name) => pool = text(name),
                }
                times = [integer(rhythm.every_s), text(rhythm.at), text(rhythm.ahead), text(keep)];
            }
            Work::Scrubs { pool: of, within_s } => {
                pool = optional(of.as_ref(), text);
                within = integer(*within_s);
            }
        }
        let mut values = vec![integer(self.id), text(&self.name), text(self.work.kind()), volume, pool];
        values.extend(times);
        values.extend([
            within,
            integer(self.paused.into()),
            integer(self.created_unix_ms),
            integer(self.done_s),
            optional(self.last_run_unix_ms, integer),
            integer(self.missed),
            optional(self.last_missed_s, integer),
            optional(self.error.as_ref(), text),
        ]);
        values
    }

    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        let work = match parse(row, 2)? {
            WorkKind::Snapshots => {
                let of = match (row.get::<_, Option<u64>>(3)?, row.get::<_, Option<String>>(4)?) {
                    (Some(id), None) => Covered::Volume(VolumeId(id)),
                    (None, Some(pool)) => Covered::Pool(pool),
                    _ => return Err(rusqlite::Error::InvalidColumnType(3, "volume".to_owned(), Type::Null)),
                };
                let (at, ahead) = (parse::<TimeOfDay>(row, 6)?, parse::<Ahead>(row, 7)?);
                Work::Snapshots { of, rhythm: Rhythm { every_s: row.get(5)?, at, ahead }, keep: parse(row, 8)? }
            }
            WorkKind::Scrubs => Work::Scrubs { pool: row.get(4)?, within_s: row.get(9)? },
        };
        Ok(ScheduleRecord {
            id: row.get(0)?,
            name: row.get(1)?,
            work,
            paused: row.get(10)?,
            created_unix_ms: row.get(11)?,
            done_s: row.get(12)?,
            last_run_unix_ms: row.get(13)?,
            missed: row.get(14)?,
            last_missed_s: row.get(15)?,
            error: row.get(16)?,
        })
    }
}

impl Record for MadeRecord {
    const TABLE: &'static str = "schedule_snapshots";
    const COLUMNS: &'static [&'static str] = &["volume", "epoch", "schedule", "due_s", "held"];

    fn values(&self) -> Vec<Value> {
        let (volume, epoch) = (integer(self.volume.0), integer(self.epoch.into()));
        vec![volume, epoch, integer(self.schedule), integer(self.due_s), optional(self.held.as_ref(), text)]
    }

    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        let (volume, epoch) = (VolumeId(row.get(0)?), row.get(1)?);
        Ok(MadeRecord { volume, epoch, schedule: row.get(2)?, due_s: row.get(3)?, held: row.get(4)? })
    }
}

impl Record for ScrubRecord {
    const TABLE: &'static str = "scrubs";
    const COLUMNS: &'static [&'static str] = &["volume", "begun_unix_ms", "done_unix_ms"];

    fn values(&self) -> Vec<Value> {
        vec![integer(self.volume.0), integer(self.begun_unix_ms), integer(self.done_unix_ms)]
    }

    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(ScrubRecord { volume: VolumeId(row.get(0)?), begun_unix_ms: row.get(1)?, done_unix_ms: row.get(2)? })
    }
}

impl ScheduleChange {
    pub fn write(&self, connection: &Connection) -> rusqlite::Result<()> {
        match self {
            ScheduleChange::Schedule(record) => put(connection, &**record),
            ScheduleChange::ScheduleGone(id) => delete(connection, ScheduleRecord::TABLE, "id", integer(*id)),
            ScheduleChange::Made(record) => put(connection, &**record),
            ScheduleChange::MadeGone(volume, epoch) => {
                let sql = "DELETE FROM schedule_snapshots WHERE volume = ?1 AND epoch = ?2";
                connection.prepare_cached(sql)?.execute((volume.0, *epoch)).map(drop)
            }
            ScheduleChange::Scrub(record) => put(connection, &**record),
            ScheduleChange::ScrubGone(volume) => delete(connection, ScrubRecord::TABLE, "volume", integer(volume.0)),
        }
    }

    /// Table and key of the record, its checksum before all changes, and what this change makes of it; 0 where there's none.
    pub fn step(&self, before: &Schedules) -> (&'static str, String, u32, u32) {
        fn old<R: Record>(record: Option<&Arc<R>>) -> u32 {
            record.map_or(0, of)
        }
        let made = |volume: &VolumeId, epoch: &Epoch| {
            let sum = old(before.made.get(volume).and_then(|made| made.get(epoch)));
            (format!("{} {epoch}", volume.0), sum)
        };
        match self {
            ScheduleChange::Schedule(new) => {
                (ScheduleRecord::TABLE, new.id.to_string(), old(before.by_id.get(&new.id)), of(new))
            }
            ScheduleChange::ScheduleGone(id) => (ScheduleRecord::TABLE, id.to_string(), old(before.by_id.get(id)), 0),
            ScheduleChange::Made(new) => {
                let (key, sum) = made(&new.volume, &new.epoch);
                (MadeRecord::TABLE, key, sum, of(new))
            }
            ScheduleChange::MadeGone(volume, epoch) => {
                let (key, sum) = made(volume, epoch);
                (MadeRecord::TABLE, key, sum, 0)
            }
            ScheduleChange::Scrub(new) => {
                (ScrubRecord::TABLE, new.volume.0.to_string(), old(before.scrubs.get(&new.volume)), of(new))
            }
            ScheduleChange::ScrubGone(volume) => {
                (ScrubRecord::TABLE, volume.0.to_string(), old(before.scrubs.get(volume)), 0)
            }
        }
    }
}

fn all_made(schedules: &Schedules) -> impl Iterator<Item = &Arc<MadeRecord>> {
    schedules.made.values().flat_map(|made| made.values())
}

/// What makes all of it from nothing.
pub fn all_of(schedules: &Schedules) -> impl Iterator<Item = ScheduleChange> {
    let made = all_made(schedules).cloned().map(ScheduleChange::Made);
    let scrubs = schedules.scrubs.values().cloned().map(ScheduleChange::Scrub);
    schedules.by_id.values().cloned().map(ScheduleChange::Schedule).chain(made).chain(scrubs)
}

/// The checksum of each record.
pub fn sums(schedules: &Schedules) -> impl Iterator<Item = u32> {
    let others = all_made(schedules).map(of).chain(schedules.scrubs.values().map(of));
    schedules.by_id.values().map(of).chain(others)
}

/// The rows of one table, for the copy of the state that drives keep.
pub fn made_rows(schedules: &Schedules) -> Vec<Vec<Value>> {
    all_made(schedules).map(|record| record.values()).collect()
}

pub fn load(connection: &Connection) -> rusqlite::Result<Schedules> {
    let mut schedules = Schedules::default();
    for record in all::<ScheduleRecord>(connection)? {
        schedules.by_id.insert(record.id, Arc::new(record));
    }
    for record in all::<MadeRecord>(connection)? {
        schedules.put_made(Arc::new(record));
    }
    for record in all::<ScrubRecord>(connection)? {
        schedules.scrubs.insert(record.volume, Arc::new(record));
    }
    Ok(schedules)
}
