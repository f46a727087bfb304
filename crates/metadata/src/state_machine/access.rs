//! The tables of [`Access`], which have rows and checksums as all other records do.

use super::digest::of;
use super::realm::{self, RealmChange};
use super::rows::{Record, all, delete, integer, optional, parse, put, text};
use crate::access::{
    Access, AuthorityRecord, GrantRecord, IdentityRecord, JoinTokenRecord, KeyHash, Limited, LimitsRecord, LiveRecord,
    ReservationRecord, VolumeKeyRecord,
};
use rusqlite::types::Value;
use rusqlite::{Connection, Row};
use std::sync::Arc;
use tepal_model::{Limits, Rate, VolumeId};

/// A row that an accepted command writes or deletes.
#[derive(Clone, Debug, PartialEq)]
pub enum AccessChange {
    Authority(Arc<AuthorityRecord>),
    Identity(Arc<IdentityRecord>),
    IdentityGone(String),
    Grant(Arc<GrantRecord>),
    GrantGone(VolumeId, String),
    Reservation(Arc<ReservationRecord>),
    ReservationGone(VolumeId),
    VolumeKey(Arc<VolumeKeyRecord>),
    VolumeKeyGone(VolumeId),
    Limits(Arc<LimitsRecord>),
    LimitsGone(Limited),
    JoinToken(Arc<JoinTokenRecord>),
    JoinTokenGone(KeyHash),
    LiveImport(Arc<LiveRecord>),
    LiveImportGone(VolumeId),
    Realm(RealmChange),
}

impl Record for AuthorityRecord {
    const TABLE: &'static str = "authorities";
    const COLUMNS: &'static [&'static str] = &["number", "certificate", "server"];

    fn values(&self) -> Vec<Value> {
        vec![integer(self.number.into()), text(&self.certificate), text(self.server)]
    }

    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(AuthorityRecord { number: row.get(0)?, certificate: row.get(1)?, server: parse(row, 2)? })
    }
}

impl Record for IdentityRecord {
    const TABLE: &'static str = "identities";
    const COLUMNS: &'static [&'static str] = &["name", "role", "groups", "key", "former_key", "created_unix_ms"];

    fn values(&self) -> Vec<Value> {
        vec![
            text(&self.name),
            text(self.role),
            text(self.groups.join(" ")),
            text(self.key),
            optional(self.former_key, text),
            integer(self.created_unix_ms),
        ]
    }

    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        let groups: String = row.get(2)?;
        let former = row.get::<_, Option<String>>(4)?.map(|_| parse(row, 4)).transpose()?;
        Ok(IdentityRecord {
            name: row.get(0)?,
            role: parse(row, 1)?,
            groups: groups.split_whitespace().map(str::to_owned).collect(),
            key: parse(row, 3)?,
            former_key: former,
            created_unix_ms: row.get(5)?,
        })
    }
}

impl Record for GrantRecord {
    const TABLE: &'static str = "grants";
    const COLUMNS: &'static [&'static str] = &["volume", "to_whom", "right_to"];

    fn values(&self) -> Vec<Value> {
        vec![integer(self.volume.0), text(&self.to), text(self.right)]
    }

    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(GrantRecord { volume: VolumeId(row.get(0)?), to: row.get(1)?, right: parse(row, 2)? })
    }
}

impl Record for ReservationRecord {
    const TABLE: &'static str = "reservations";
    const COLUMNS: &'static [&'static str] = &["volume", "holder", "number", "fenced"];

    fn values(&self) -> Vec<Value> {
        let holder = optional(self.holder.as_ref(), text);
        vec![integer(self.volume.0), holder, integer(self.number), text(self.fenced.join(" "))]
    }

    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        let fenced: String = row.get(3)?;
        let fenced = fenced.split_whitespace().map(str::to_owned).collect();
        Ok(ReservationRecord { volume: VolumeId(row.get(0)?), holder: row.get(1)?, number: row.get(2)?, fenced })
    }
}

impl Record for VolumeKeyRecord {
    const TABLE: &'static str = "volume_keys";
    const COLUMNS: &'static [&'static str] = &["volume", "key", "wrapped"];

    fn values(&self) -> Vec<Value> {
        vec![integer(self.volume.0), text(&self.key), text(&self.wrapped)]
    }

    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(VolumeKeyRecord { volume: VolumeId(row.get(0)?), key: row.get(1)?, wrapped: row.get(2)? })
    }
}

impl Record for LimitsRecord {
    const TABLE: &'static str = "limits";
    const COLUMNS: &'static [&'static str] =
        &["subject", "iops", "iops_burst", "bandwidth", "bandwidth_burst", "connections"];

    fn values(&self) -> Vec<Value> {
        let Limits { iops, bandwidth, connections } = self.limits;
        let rate = |rate: Option<Rate>| {
            [optional(rate, |rate| integer(rate.per_second)), optional(rate, |rate| integer(rate.burst))]
        };
        let rates = [rate(iops), rate(bandwidth)].into_iter().flatten();
        let connections = optional(connections, |most| integer(most.into()));
        std::iter::once(text(&self.of)).chain(rates).chain([connections]).collect()
    }

    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        let rate = |at: usize| {
            let read = (row.get::<_, Option<u64>>(at)?, row.get::<_, Option<u64>>(at + 1)?);
            Ok::<_, rusqlite::Error>(read.0.map(|per_second| Rate { per_second, burst: read.1.unwrap_or(0) }))
        };
        let limits = Limits { iops: rate(1)?, bandwidth: rate(3)?, connections: row.get(5)? };
        Ok(LimitsRecord { of: parse(row, 0)?, limits })
    }
}

impl Record for JoinTokenRecord {
    const TABLE: &'static str = "join_tokens";
    const COLUMNS: &'static [&'static str] = &["hash", "until_unix_ms", "key"];

    fn values(&self) -> Vec<Value> {
        vec![text(self.hash), integer(self.until_unix_ms), optional(self.key, text)]
    }

    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        let key = row.get::<_, Option<String>>(2)?.map(|_| parse(row, 2)).transpose()?;
        Ok(JoinTokenRecord { hash: parse(row, 0)?, until_unix_ms: row.get(1)?, key })
    }
}

impl Record for LiveRecord {
    const TABLE: &'static str = "live_imports";
    const COLUMNS: &'static [&'static str] = &["volume", "address", "length", "done", "stage"];

    fn values(&self) -> Vec<Value> {
        vec![integer(self.volume.0), text(&self.from), integer(self.length), integer(self.done), text(self.stage)]
    }

    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        let (volume, stage) = (VolumeId(row.get(0)?), parse(row, 4)?);
        Ok(LiveRecord { volume, from: row.get(1)?, length: row.get(2)?, done: row.get(3)?, stage })
    }
}

impl AccessChange {
    pub fn write(&self, connection: &Connection) -> rusqlite::Result<()> {
        match self {
            AccessChange::Authority(record) => put(connection, &**record),
            AccessChange::Identity(record) => put(connection, &**record),
            AccessChange::IdentityGone(name) => delete(connection, IdentityRecord::TABLE, "name", text(name)),
            AccessChange::Grant(record) => put(connection, &**record),
            AccessChange::GrantGone(volume, to) => {
                let sql = "DELETE FROM grants WHERE volume = ?1 AND to_whom = ?2";
                connection.prepare_cached(sql)?.execute((volume.0, to)).map(drop)
            }
            AccessChange::Reservation(record) => put(connection, &**record),
            AccessChange::ReservationGone(volume) => {
                delete(connection, ReservationRecord::TABLE, "volume", integer(volume.0))
            }
            AccessChange::VolumeKey(record) => put(connection, &**record),
            AccessChange::VolumeKeyGone(volume) => {
                delete(connection, VolumeKeyRecord::TABLE, "volume", integer(volume.0))
            }
            AccessChange::Limits(record) => put(connection, &**record),
            AccessChange::LimitsGone(of) => delete(connection, LimitsRecord::TABLE, "subject", text(of)),
            AccessChange::JoinToken(record) => put(connection, &**record),
            AccessChange::JoinTokenGone(hash) => delete(connection, JoinTokenRecord::TABLE, "hash", text(hash)),
            AccessChange::LiveImport(record) => put(connection, &**record),
            AccessChange::LiveImportGone(volume) => delete(connection, LiveRecord::TABLE, "volume", integer(volume.0)),
            AccessChange::Realm(change) => change.write(connection),
        }
    }

    /// Table and key of the record, its checksum before all changes, and what this change makes of it; 0 where there's none.
    pub fn step(&self, before: &Access) -> (&'static str, String, u32, u32) {
        fn old<R: Record>(record: Option<&Arc<R>>) -> u32 {
            record.map_or(0, of)
        }
        let reserved = |volume: &VolumeId| old(before.reservations.get(volume));
        let key = |volume: &VolumeId| old(before.volume_keys.get(volume));
        let live = |volume: &VolumeId| old(before.live_imports.get(volume));
        let grant = |volume: &VolumeId, to: &str| old(before.grants.get(&(*volume, to.to_owned())));
        match self {
            AccessChange::Authority(new) => {
                let old = old(before.authorities.get(&new.number));
                (AuthorityRecord::TABLE, new.number.to_string(), old, of(new))
            }
            AccessChange::Identity(new) => {
                (IdentityRecord::TABLE, new.name.clone(), old(before.identities.get(&new.name)), of(new))
            }
            AccessChange::IdentityGone(name) => {
                (IdentityRecord::TABLE, name.clone(), old(before.identities.get(name)), 0)
            }
            AccessChange::Grant(new) => {
                (GrantRecord::TABLE, format!("{} {}", new.volume.0, new.to), grant(&new.volume, &new.to), of(new))
            }
            AccessChange::GrantGone(volume, to) => {
                (GrantRecord::TABLE, format!("{} {to}", volume.0), grant(volume, to), 0)
            }
            AccessChange::Reservation(new) => {
                (ReservationRecord::TABLE, new.volume.0.to_string(), reserved(&new.volume), of(new))
            }
            AccessChange::ReservationGone(volume) => {
                (ReservationRecord::TABLE, volume.0.to_string(), reserved(volume), 0)
            }
            AccessChange::VolumeKey(new) => {
                (VolumeKeyRecord::TABLE, new.volume.0.to_string(), key(&new.volume), of(new))
            }
            AccessChange::VolumeKeyGone(volume) => (VolumeKeyRecord::TABLE, volume.0.to_string(), key(volume), 0),
            AccessChange::Limits(new) => {
                (LimitsRecord::TABLE, new.of.to_string(), old(before.limits.get(&new.of)), of(new))
            }
            AccessChange::LimitsGone(what) => (LimitsRecord::TABLE, what.to_string(), old(before.limits.get(what)), 0),
            AccessChange::JoinToken(new) => {
                (JoinTokenRecord::TABLE, new.hash.to_string(), old(before.join_tokens.get(&new.hash)), of(new))
            }
            AccessChange::JoinTokenGone(hash) => {
                (JoinTokenRecord::TABLE, hash.to_string(), old(before.join_tokens.get(hash)), 0)
            }
            AccessChange::LiveImport(new) => (LiveRecord::TABLE, new.volume.0.to_string(), live(&new.volume), of(new)),
            AccessChange::LiveImportGone(volume) => (LiveRecord::TABLE, volume.0.to_string(), live(volume), 0),
            AccessChange::Realm(change) => change.step(before),
        }
    }
}

/// What makes all of it from nothing.
pub fn all_of(access: &Access) -> impl Iterator<Item = AccessChange> {
    let authorities = access.authorities.values().cloned().map(AccessChange::Authority);
    let identities = access.identities.values().cloned().map(AccessChange::Identity);
    let reservations = access.reservations.values().cloned().map(AccessChange::Reservation);
    let grants = access.grants.values().cloned().map(AccessChange::Grant);
    let keys = access.volume_keys.values().cloned().map(AccessChange::VolumeKey);
    let limits = access.limits.values().cloned().map(AccessChange::Limits);
    let tokens = access.join_tokens.values().cloned().map(AccessChange::JoinToken);
    let live = access.live_imports.values().cloned().map(AccessChange::LiveImport);
    let realm = realm::all_of(access).map(AccessChange::Realm);
    let own = authorities.chain(identities).chain(grants).chain(reservations);
    own.chain(keys).chain(limits).chain(tokens).chain(live).chain(realm)
}

/// The checksum of each record.
pub fn sums(access: &Access) -> impl Iterator<Item = u32> {
    let authorities = access.authorities.values().map(of);
    let others = access.grants.values().map(of).chain(access.reservations.values().map(of));
    let others = others.chain(access.volume_keys.values().map(of)).chain(access.limits.values().map(of));
    let others = others.chain(access.join_tokens.values().map(of)).chain(access.live_imports.values().map(of));
    authorities.chain(access.identities.values().map(of)).chain(others).chain(realm::sums(access))
}

pub fn load(connection: &Connection) -> rusqlite::Result<Access> {
    let mut access = Access::default();
    for record in all::<AuthorityRecord>(connection)? {
        access.authorities.insert(record.number, Arc::new(record));
    }
    for record in all::<IdentityRecord>(connection)? {
        access.put_identity(Arc::new(record));
    }
    for record in all::<GrantRecord>(connection)? {
        access.grants.insert((record.volume, record.to.clone()), Arc::new(record));
    }
    for record in all::<ReservationRecord>(connection)? {
        access.reservations.insert(record.volume, Arc::new(record));
    }
    for record in all::<VolumeKeyRecord>(connection)? {
        access.volume_keys.insert(record.volume, Arc::new(record));
    }
    for record in all::<LiveRecord>(connection)? {
        access.live_imports.insert(record.volume, Arc::new(record));
    }
    for record in all::<JoinTokenRecord>(connection)? {
        access.join_tokens.insert(record.hash, Arc::new(record));
    }
    for record in all::<LimitsRecord>(connection)? {
        access.limits.insert(record.of.clone(), Arc::new(record));
    }
    realm::load(connection, &mut access)?;
    Ok(access)
}
