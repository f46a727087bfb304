//! A digest of the whole state: the sum of a checksum of each record.
//!
//! A change of one record changes it in one step, so it's cheap to store with every entry. A state that is read back
//! must give the same one, or bits have changed that SQLite doesn't notice. Events are left out: nothing is decided
//! by them.

use super::access;
use super::apply::Change;
use super::rows::{MapRow, Record};
use super::schedules;
use crate::record::{ColumnRecord, HolderRecord, JoinRecord, MapRecord};
use crate::state::{Counters, State};
use rusqlite::types::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use tepal_codec::checksum::{crc, crc_append};
use tepal_model::{Epoch, MapId, VolumeId};

/// The table of maps' columns.
const COLUMNS: &str = "map_columns";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digest(pub u32);

impl Digest {
    pub fn of(state: &State) -> Digest {
        let records = [of(&state.cluster), of_counters(&state.counters)].into_iter();
        let records = records.chain(state.servers.values().map(of));
        let records = records.chain(state.drives.values().map(of));
        let records = records.chain(state.pools.values().map(of));
        let records = records.chain(state.volumes.values().map(of));
        let records = records.chain(state.maps.values().map(of_map));
        let records = records.chain(state.maps.values().flat_map(|map| (0..).zip(&map.columns).map(of_column(map.id))));
        let records = records.chain(state.snapshots.values().flat_map(|snapshots| snapshots.values()).map(of));
        let records = records.chain(state.migrations.values().map(of));
        let records = records.chain(access::sums(&state.access));
        let records = records.chain(schedules::sums(&state.schedules));
        Digest(records.fold(0, u32::wrapping_add))
    }

    /// What form 1 of the database has for the same records: it says less of servers, and doesn't count them.
    pub fn of_form_1(state: &State) -> Digest {
        let Counters { volume, map, event, .. } = state.counters;
        let mut sum = Digest::of_form_2(state).0.wrapping_sub(of_counters(&state.counters));
        sum = sum.wrapping_add(of_numbers(&[volume, map.into(), event]));
        for server in state.servers.values() {
            sum = sum.wrapping_sub(of_first(server, 8)).wrapping_add(of_first(server, 3));
        }
        Digest(sum)
    }

    /// What form 11 has for the same records: all volumes have one range.
    pub fn of_form_11(state: &State) -> Digest {
        let mut sum = Digest::of(state).0;
        for volume in state.volumes.values() {
            sum = sum.wrapping_sub(of(volume)).wrapping_add(of_first(volume, 24));
        }
        for migration in state.migrations.values() {
            sum = sum.wrapping_sub(of(migration)).wrapping_add(of_first(migration, 14));
        }
        Digest(sum)
    }

    /// What form 9 has for the same records: it doesn't say of volumes that they are replicas, nor of snapshots that they are copies.
    pub fn of_form_9(state: &State) -> Digest {
        let mut sum = Digest::of_form_11(state).0;
        for volume in state.volumes.values() {
            sum = sum.wrapping_sub(of_first(volume, 24)).wrapping_add(of_first(volume, 18));
        }
        for snapshot in state.snapshots.values().flat_map(|snapshots| snapshots.values()) {
            sum = sum.wrapping_sub(of(snapshot)).wrapping_add(of_first(snapshot, 6));
        }
        Digest(sum)
    }

    /// What form 8 has for the same records: it doesn't say what drives are called.
    pub fn of_form_8(state: &State) -> Digest {
        let without = |sum: u32, drive| sum.wrapping_sub(of(drive)).wrapping_add(of_first(drive, 11));
        Digest(state.drives.values().fold(Digest::of_form_9(state).0, without))
    }

    /// What form 7 has for the same records: it doesn't say in which epoch a volume went on that was rolled back.
    pub fn of_form_7(state: &State) -> Digest {
        let without = |sum: u32, volume| sum.wrapping_sub(of_first(volume, 18)).wrapping_add(of_first(volume, 16));
        Digest(state.volumes.values().fold(Digest::of_form_8(state).0, without))
    }

    /// What form 6 has for the same records: it doesn't say which copies are complete, nor of volumes that they are incomplete.
    pub fn of_form_6(state: &State) -> Digest {
        let mut sum = Digest::of_form_8(state).0;
        for map in state.maps.values() {
            for (column, record) in (0..).zip(&map.columns) {
                let complete = |holder: &HolderRecord| HolderRecord::complete(holder.drive, holder.since);
                let then = ColumnRecord { holders: record.holders.iter().map(complete).collect(), ..record.clone() };
                sum = sum.wrapping_sub(of_column(map.id)((column, record)));
                sum = sum.wrapping_add(of_column(map.id)((column, &then)));
            }
        }
        for volume in state.volumes.values() {
            sum = sum.wrapping_sub(of_first(volume, 18)).wrapping_add(of_first(volume, 14));
        }
        Digest(sum)
    }

    /// What form 5 has for the same records: it says the drives of maps, of which each is the first of one column, of drives and
    /// servers not whether they are to be emptied, and of volumes not what they are clones of.
    pub fn of_form_5(state: &State) -> Digest {
        let mut sum = Digest::of_form_9(state).0;
        for server in state.servers.values() {
            sum = sum.wrapping_sub(of(server)).wrapping_add(of_first(server, 8));
        }
        for drive in state.drives.values() {
            sum = sum.wrapping_sub(of(drive)).wrapping_add(of_first(drive, 10));
        }
        for volume in state.volumes.values() {
            sum = sum.wrapping_sub(of_first(volume, 18)).wrapping_add(of_first(volume, 12));
        }
        for map in state.maps.values() {
            let columns = (0..).zip(&map.columns).map(of_column(map.id)).fold(of_map(map), u32::wrapping_add);
            sum = sum.wrapping_sub(columns).wrapping_add(of_map_with_drives(map, 6));
        }
        Digest(sum)
    }

    /// What form 4 has for the same records: it says no epochs of maps, nor what volumes see of them.
    pub fn of_form_4(state: &State) -> Digest {
        let mut sum = Digest::of_form_5(state).0;
        for volume in state.volumes.values() {
            sum = sum.wrapping_sub(of_first(volume, 12)).wrapping_add(of_first(volume, 10));
        }
        for map in state.maps.values() {
            sum = sum.wrapping_sub(of_map_with_drives(map, 6)).wrapping_add(of_map_with_drives(map, 5));
        }
        Digest(sum)
    }

    /// What form 3 has for the same records: it says no lease.
    pub fn of_form_3(state: &State) -> Digest {
        let sum = Digest::of_form_4(state).0.wrapping_sub(of(&state.cluster));
        Digest(sum.wrapping_add(of_first(&state.cluster, 4)))
    }

    /// What form 2 has for the same records: it says no generation of drives, nor when maps were made.
    pub fn of_form_2(state: &State) -> Digest {
        let mut sum = Digest::of_form_3(state).0;
        for map in state.maps.values() {
            sum = sum.wrapping_sub(of_map_with_drives(map, 5)).wrapping_add(of_map_with_drives(map, 4));
        }
        for drive in state.drives.values() {
            sum = sum.wrapping_sub(of_first(drive, 10)).wrapping_add(of_first(drive, 9));
        }
        Digest(sum)
    }

    /// What it becomes when `changes` lead from `before` to a state with the counters `after`.
    pub fn after(self, before: &State, changes: &[Change], after: &Counters) -> Digest {
        let mut sum = self.0.wrapping_sub(of_counters(&before.counters)).wrapping_add(of_counters(after));
        // The records that changed, as they are after the changes so far: one may change more than once.
        let mut current: BTreeMap<(&'static str, String), u32> = BTreeMap::new();
        for (table, key, old, new) in changes.iter().flat_map(|change| steps(before, change)) {
            let old = current.insert((table, key), new).unwrap_or(old);
            sum = sum.wrapping_sub(old).wrapping_add(new);
        }
        Digest(sum)
    }
}

/// The tables and keys of the records that a change is about, and the checksums of what they were before all changes and of
/// what this change makes of them; 0 where there's none.
fn steps(before: &State, change: &Change) -> Vec<(&'static str, String, u32, u32)> {
    fn old<R: Record>(record: Option<&Arc<R>>) -> u32 {
        record.map_or(0, of)
    }
    vec![match change {
        Change::Cluster(new) => ("cluster", String::new(), of(&before.cluster), of(new)),
        Change::Server(new) => ("servers", new.id.to_string(), old(before.servers.get(&new.id)), of(new)),
        Change::ServerGone(id) => ("servers", id.to_string(), old(before.servers.get(id)), 0),
        Change::Drive(new) => ("drives", new.id.to_string(), old(before.drives.get(&new.id)), of(new)),
        Change::DriveGone(id) => ("drives", id.to_string(), old(before.drives.get(id)), 0),
        Change::Pool(new) => ("pools", new.name.clone(), old(before.pools.get(&new.name)), of(new)),
        Change::PoolGone(name) => ("pools", name.clone(), old(before.pools.get(name)), 0),
        Change::Volume(new) => ("volumes", new.id.0.to_string(), old(before.volumes.get(&new.id)), of(new)),
        Change::VolumeGone(id) => ("volumes", id.0.to_string(), old(before.volumes.get(id)), 0),
        Change::Map(new) => ("maps", new.id.0.to_string(), before.maps.get(&new.id).map_or(0, of_map), of_map(new)),
        Change::Column(map, column, new) => {
            let old = before.maps.get(map).and_then(|map| map.columns.get(*column as usize));
            let sum = |record| of_column(*map)((*column, record));
            (COLUMNS, format!("{} {column}", map.0), old.map_or(0, sum), sum(new))
        }
        Change::MapGone(id) => {
            let Some(map) = before.maps.get(id) else { return Vec::new() };
            let columns = (0..)
                .zip(&map.columns)
                .map(|(column, record)| (COLUMNS, format!("{} {column}", id.0), of_column(*id)((column, record)), 0));
            return columns.chain([("maps", id.0.to_string(), of_map(map), 0)]).collect();
        }
        Change::Migration(new) => ("migrations", new.id.0.to_string(), old(before.migrations.get(&new.id)), of(new)),
        Change::MigrationGone(id) => ("migrations", id.0.to_string(), old(before.migrations.get(id)), 0),
        Change::Snapshot(new) => {
            let (key, old_sum) = snapshot(before, new.volume, new.epoch);
            ("snapshots", key, old_sum, of(new))
        }
        Change::SnapshotGone(volume, epoch) => {
            let (key, old_sum) = snapshot(before, *volume, *epoch);
            ("snapshots", key, old_sum, 0)
        }
        Change::Access(change) => change.step(&before.access),
        Change::Schedules(change) => change.step(&before.schedules),
        Change::Event(_) => return Vec::new(),
    }]
}

/// A snapshot's key, and its checksum; 0 if there's none.
fn snapshot(state: &State, volume: VolumeId, epoch: Epoch) -> (String, u32) {
    let found = state.snapshots.get(&volume).and_then(|snapshots| snapshots.get(&epoch));
    (format!("{} {epoch}", volume.0), found.map_or(0, of))
}

pub fn of<R: Record>(record: &Arc<R>) -> u32 {
    of_values(R::TABLE, record.values())
}

/// Of the columns that earlier forms had.
fn of_first<R: Record>(record: &Arc<R>, columns: usize) -> u32 {
    of_values(R::TABLE, record.values().into_iter().take(columns).collect())
}

fn of_map(map: &Arc<MapRecord>) -> u32 {
    of_values(MapRow::TABLE, own_values(map).collect())
}

/// Of so many of the map's own columns, and its drives.
fn of_map_with_drives(map: &Arc<MapRecord>, columns: usize) -> u32 {
    let first = map.columns.iter().filter_map(|column| column.holders.first());
    let drives = first.map(|holder| Value::Text(holder.drive.to_string()));
    of_values(MapRow::TABLE, own_values(map).take(columns).chain(drives).collect())
}

fn own_values(map: &Arc<MapRecord>) -> impl Iterator<Item = Value> {
    let (layout, columns) = (map.layout.clone(), Vec::new());
    MapRow(MapRecord { layout, columns, ..**map }).values().into_iter()
}

/// Of a map's column, with its number.
fn of_column(map: MapId) -> impl Fn((u32, &ColumnRecord)) -> u32 {
    move |(column, record)| {
        let number = |number: u64| Value::Integer(number as i64);
        let mut values = vec![number(map.0.into()), number(column.into())];
        for holder in &record.holders {
            values.extend([Value::Text(holder.drive.to_string()), number(holder.since)]);
        }
        if let Some(JoinRecord { to, from, since }) = record.joining {
            values.extend([Value::Null, Value::Text(to.to_string()), Value::Text(from.to_string()), number(since)]);
        }
        // Of complete copies nothing, as in form 6.
        for (copy, holder) in (0..).zip(&record.holders).filter(|(_, holder)| !holder.status.is_complete()) {
            values.extend([Value::Null, Value::Null, number(copy), Value::Text(holder.status.to_string())]);
        }
        of_values(COLUMNS, values)
    }
}

fn of_counters(counters: &Counters) -> u32 {
    of_numbers(&[counters.server.into(), counters.volume, counters.map.into(), counters.event])
}

fn of_numbers(counters: &[u64]) -> u32 {
    of_values("counters", counters.iter().map(|next| Value::Text(next.to_string())).collect())
}

/// Each value with its type and length before it, so that no two lists of values give the same bytes.
fn of_values(table: &str, values: Vec<Value>) -> u32 {
    let mut sum = crc(table.as_bytes());
    let mut add = |kind: u8, bytes: &[u8]| {
        for part in [&[kind][..], &(bytes.len() as u64).to_le_bytes(), bytes] {
            sum = crc_append(sum, part);
        }
    };
    for value in values {
        match value {
            Value::Null => add(0, &[]),
            Value::Integer(number) => add(1, &number.to_le_bytes()),
            Value::Real(number) => add(2, &number.to_bits().to_le_bytes()),
            Value::Text(text) => add(3, text.as_bytes()),
            Value::Blob(bytes) => add(4, &bytes),
        }
    }
    sum
}
