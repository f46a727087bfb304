//! A digest of the whole state: the sum of a checksum of each record.
//!
//! A change of one record changes it in one step, so it's cheap to store with every entry. A state that is read back
//! must give the same one, or bits have changed that SQLite doesn't notice. Events are left out: nothing is decided
//! by them.

use super::apply::Change;
use super::rows::{MapRow, Record};
use crate::record::{ClusterRecord, DriveRecord, MapRecord, ServerRecord, VolumeRecord};
use crate::state::{Counters, State};
use rusqlite::types::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use tepal_codec::checksum::{crc, crc_append};
use tepal_model::{Epoch, VolumeId};

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
        let records = records.chain(state.snapshots.values().flat_map(|snapshots| snapshots.values()).map(of));
        Digest(records.fold(0, u32::wrapping_add))
    }

    /// What form 1 of the database has for the same records: it says less of servers, and doesn't count them.
    pub fn of_form_1(state: &State) -> Digest {
        let Counters { volume, map, event, .. } = state.counters;
        let mut sum = Digest::of_form_2(state).0.wrapping_sub(of_counters(&state.counters));
        sum = sum.wrapping_add(of_numbers(&[volume, map.into(), event]));
        for server in state.servers.values() {
            let known = server.values().into_iter().take(3).collect();
            sum = sum.wrapping_sub(of(server)).wrapping_add(of_values(ServerRecord::TABLE, known));
        }
        Digest(sum)
    }

    /// What form 4 has for the same records: it says no epochs of maps, nor what volumes see of them.
    pub fn of_form_4(state: &State) -> Digest {
        let mut sum = Digest::of(state).0;
        for volume in state.volumes.values() {
            let known = volume.values().into_iter().take(10).collect();
            sum = sum.wrapping_sub(of(volume)).wrapping_add(of_values(VolumeRecord::TABLE, known));
        }
        for map in state.maps.values() {
            sum = sum.wrapping_sub(of_map(map)).wrapping_add(of_map_columns(map, 5));
        }
        Digest(sum)
    }

    /// What form 3 has for the same records: it says no lease.
    pub fn of_form_3(state: &State) -> Digest {
        let known = state.cluster.values().into_iter().take(4).collect();
        let sum = Digest::of_form_4(state).0.wrapping_sub(of(&state.cluster));
        Digest(sum.wrapping_add(of_values(ClusterRecord::TABLE, known)))
    }

    /// What form 2 has for the same records: it says no generation of drives, nor when maps were made.
    pub fn of_form_2(state: &State) -> Digest {
        let mut sum = Digest::of_form_3(state).0;
        for map in state.maps.values() {
            sum = sum.wrapping_sub(of_map_columns(map, 5)).wrapping_add(of_map_columns(map, 4));
        }
        for drive in state.drives.values() {
            let known = drive.values().into_iter().take(9).collect();
            sum = sum.wrapping_sub(of(drive)).wrapping_add(of_values(DriveRecord::TABLE, known));
        }
        Digest(sum)
    }

    /// What it becomes when `changes` lead from `before` to a state with the counters `after`.
    pub fn after(self, before: &State, changes: &[Change], after: &Counters) -> Digest {
        let mut sum = self.0.wrapping_sub(of_counters(&before.counters)).wrapping_add(of_counters(after));
        // The records that changed, as they are after the changes so far: one may change more than once.
        let mut current: BTreeMap<(&'static str, String), u32> = BTreeMap::new();
        for change in changes {
            let Some((table, key, old, new)) = step(before, change) else { continue };
            let old = current.insert((table, key), new).unwrap_or(old);
            sum = sum.wrapping_sub(old).wrapping_add(new);
        }
        Digest(sum)
    }
}

/// The table and key of the record that a change is about, and the checksums of what it was before all changes and of
/// what this change makes of it; 0 where there's none.
fn step(before: &State, change: &Change) -> Option<(&'static str, String, u32, u32)> {
    fn old<R: Record>(record: Option<&Arc<R>>) -> u32 {
        record.map_or(0, of)
    }
    Some(match change {
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
        Change::MapGone(id) => ("maps", id.0.to_string(), before.maps.get(id).map_or(0, of_map), 0),
        Change::Snapshot(new) => {
            let (key, old_sum) = snapshot(before, new.volume, new.epoch);
            ("snapshots", key, old_sum, of(new))
        }
        Change::SnapshotGone(volume, epoch) => {
            let (key, old_sum) = snapshot(before, *volume, *epoch);
            ("snapshots", key, old_sum, 0)
        }
        Change::Event(_) => return None,
    })
}

/// A snapshot's key, and its checksum; 0 if there's none.
fn snapshot(state: &State, volume: VolumeId, epoch: Epoch) -> (String, u32) {
    let found = state.snapshots.get(&volume).and_then(|snapshots| snapshots.get(&epoch));
    (format!("{} {epoch}", volume.0), found.map_or(0, of))
}

fn of<R: Record>(record: &Arc<R>) -> u32 {
    of_values(R::TABLE, record.values())
}

fn of_map(map: &Arc<MapRecord>) -> u32 {
    of_map_columns(map, MapRow::COLUMNS.len())
}

/// Of so many of the map's own columns, and its drives.
fn of_map_columns(map: &Arc<MapRecord>, columns: usize) -> u32 {
    let own = MapRow(MapRecord::clone(map)).values().into_iter().take(columns);
    let drives = map.drives.iter().map(|drive| Value::Text(drive.to_string()));
    of_values(MapRow::TABLE, own.chain(drives).collect())
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
