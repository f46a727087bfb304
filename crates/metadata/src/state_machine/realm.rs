//! The tables of what holds beyond single volumes (`crate::realm`).

use super::digest::of;
use super::rows::{Record, all, delete, integer, parse, put, text};
use crate::access::{Access, AuthorityRecord};
use crate::realm::{LeavingRecord, OutsideAuthorityRecord, PoolKeyRecord, Scope, ScopeGrantRecord, SubjectRecord};
use rusqlite::types::Value;
use rusqlite::{Connection, Row};
use std::sync::Arc;

/// A row that an accepted command writes or deletes.
#[derive(Clone, Debug, PartialEq)]
pub enum RealmChange {
    AuthorityGone(u32),
    Leaving(Arc<LeavingRecord>),
    LeavingGone(u32),
    Grant(Arc<ScopeGrantRecord>),
    GrantGone(Scope, String),
    PoolKey(Arc<PoolKeyRecord>),
    PoolKeyGone(String),
    Outside(Arc<OutsideAuthorityRecord>),
    OutsideGone(String),
    Subject(Arc<SubjectRecord>),
    SubjectGone(String),
}

impl Record for LeavingRecord {
    const TABLE: &'static str = "leaving_authorities";
    const COLUMNS: &'static [&'static str] = &["number", "since_unix_ms"];

    fn values(&self) -> Vec<Value> {
        vec![integer(self.number.into()), integer(self.since_unix_ms)]
    }

    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(LeavingRecord { number: row.get(0)?, since_unix_ms: row.get(1)? })
    }
}

impl Record for ScopeGrantRecord {
    const TABLE: &'static str = "scope_grants";
    const COLUMNS: &'static [&'static str] = &["scope", "to_whom", "right_to"];

    fn values(&self) -> Vec<Value> {
        vec![text(&self.scope), text(&self.to), text(self.right)]
    }

    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(ScopeGrantRecord { scope: parse(row, 0)?, to: row.get(1)?, right: parse(row, 2)? })
    }
}

impl Record for PoolKeyRecord {
    const TABLE: &'static str = "pool_keys";
    const COLUMNS: &'static [&'static str] = &["pool", "key"];

    fn values(&self) -> Vec<Value> {
        vec![text(&self.pool), text(&self.key)]
    }

    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(PoolKeyRecord { pool: row.get(0)?, key: row.get(1)? })
    }
}

impl Record for OutsideAuthorityRecord {
    const TABLE: &'static str = "outside_authorities";
    const COLUMNS: &'static [&'static str] = &["name", "certificate"];

    fn values(&self) -> Vec<Value> {
        vec![text(&self.name), text(&self.certificate)]
    }

    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(OutsideAuthorityRecord { name: row.get(0)?, certificate: row.get(1)? })
    }
}

impl Record for SubjectRecord {
    const TABLE: &'static str = "subjects";
    const COLUMNS: &'static [&'static str] = &["identity", "authority", "subject"];

    fn values(&self) -> Vec<Value> {
        vec![text(&self.identity), text(&self.authority), text(&self.subject)]
    }

    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(SubjectRecord { identity: row.get(0)?, authority: row.get(1)?, subject: row.get(2)? })
    }
}

impl RealmChange {
    pub fn write(&self, connection: &Connection) -> rusqlite::Result<()> {
        match self {
            RealmChange::AuthorityGone(number) => {
                delete(connection, AuthorityRecord::TABLE, "number", integer((*number).into()))
            }
            RealmChange::Leaving(record) => put(connection, &**record),
            RealmChange::LeavingGone(number) => {
                delete(connection, LeavingRecord::TABLE, "number", integer((*number).into()))
            }
            RealmChange::Grant(record) => put(connection, &**record),
            RealmChange::GrantGone(scope, to) => {
                let sql = "DELETE FROM scope_grants WHERE scope = ?1 AND to_whom = ?2";
                connection.prepare_cached(sql)?.execute((scope.to_string(), to)).map(drop)
            }
            RealmChange::PoolKey(record) => put(connection, &**record),
            RealmChange::PoolKeyGone(pool) => delete(connection, PoolKeyRecord::TABLE, "pool", text(pool)),
            RealmChange::Outside(record) => put(connection, &**record),
            RealmChange::OutsideGone(name) => delete(connection, OutsideAuthorityRecord::TABLE, "name", text(name)),
            RealmChange::Subject(record) => put(connection, &**record),
            RealmChange::SubjectGone(name) => delete(connection, SubjectRecord::TABLE, "identity", text(name)),
        }
    }

    /// As [`super::access::AccessChange::step`].
    pub fn step(&self, before: &Access) -> (&'static str, String, u32, u32) {
        fn old<R: Record>(record: Option<&Arc<R>>) -> u32 {
            record.map_or(0, of)
        }
        let authority =
            |number: &u32| (AuthorityRecord::TABLE, number.to_string(), old(before.authorities.get(number)));
        let leaving = |number: &u32| (LeavingRecord::TABLE, number.to_string(), old(before.leaving.get(number)));
        let grant = |scope: &Scope, to: &String| {
            let known = before.scope_grants.get(&(scope.clone(), to.clone()));
            (ScopeGrantRecord::TABLE, format!("{scope} {to}"), old(known))
        };
        let key = |pool: &String| (PoolKeyRecord::TABLE, pool.clone(), old(before.pool_keys.get(pool)));
        let outside = |name: &String| (OutsideAuthorityRecord::TABLE, name.clone(), old(before.outside.get(name)));
        let subject = |name: &String| (SubjectRecord::TABLE, name.clone(), old(before.subjects.get(name)));
        let ((table, key, old), new) = match self {
            RealmChange::AuthorityGone(number) => (authority(number), 0),
            RealmChange::Leaving(new) => (leaving(&new.number), of(new)),
            RealmChange::LeavingGone(number) => (leaving(number), 0),
            RealmChange::Grant(new) => (grant(&new.scope, &new.to), of(new)),
            RealmChange::GrantGone(scope, to) => (grant(scope, to), 0),
            RealmChange::PoolKey(new) => (key(&new.pool), of(new)),
            RealmChange::PoolKeyGone(pool) => (key(pool), 0),
            RealmChange::Outside(new) => (outside(&new.name), of(new)),
            RealmChange::OutsideGone(name) => (outside(name), 0),
            RealmChange::Subject(new) => (subject(&new.identity), of(new)),
            RealmChange::SubjectGone(name) => (subject(name), 0),
        };
        (table, key, old, new)
    }
}

/// What makes all of it from nothing.
pub fn all_of(access: &Access) -> impl Iterator<Item = RealmChange> {
    let leaving = access.leaving.values().cloned().map(RealmChange::Leaving);
    let grants = access.scope_grants.values().cloned().map(RealmChange::Grant);
    let keys = access.pool_keys.values().cloned().map(RealmChange::PoolKey);
    let outside = access.outside.values().cloned().map(RealmChange::Outside);
    leaving.chain(grants).chain(keys).chain(outside).chain(access.subjects.values().cloned().map(RealmChange::Subject))
}

/// The checksum of each record.
pub fn sums(access: &Access) -> impl Iterator<Item = u32> {
    let sums = access.leaving.values().map(of).chain(access.scope_grants.values().map(of));
    let sums = sums.chain(access.pool_keys.values().map(of)).chain(access.outside.values().map(of));
    sums.chain(access.subjects.values().map(of))
}

/// Hands over the rows of each table.
pub fn rows_of(access: &Access, mut take: impl FnMut(&'static str, &'static [&'static str], Vec<Vec<Value>>)) {
    fn values<'a, R: Record + 'a>(records: impl Iterator<Item = &'a Arc<R>>) -> Vec<Vec<Value>> {
        records.map(|record| record.values()).collect()
    }
    take(LeavingRecord::TABLE, LeavingRecord::COLUMNS, values(access.leaving.values()));
    take(ScopeGrantRecord::TABLE, ScopeGrantRecord::COLUMNS, values(access.scope_grants.values()));
    take(PoolKeyRecord::TABLE, PoolKeyRecord::COLUMNS, values(access.pool_keys.values()));
    take(OutsideAuthorityRecord::TABLE, OutsideAuthorityRecord::COLUMNS, values(access.outside.values()));
    take(SubjectRecord::TABLE, SubjectRecord::COLUMNS, values(access.subjects.values()));
}

pub fn load(connection: &Connection, access: &mut Access) -> rusqlite::Result<()> {
    for record in all::<LeavingRecord>(connection)? {
        access.leaving.insert(record.number, Arc::new(record));
    }
    for record in all::<ScopeGrantRecord>(connection)? {
        access.scope_grants.insert((record.scope.clone(), record.to.clone()), Arc::new(record));
    }
    for record in all::<PoolKeyRecord>(connection)? {
        access.pool_keys.insert(record.pool.clone(), Arc::new(record));
    }
    for record in all::<OutsideAuthorityRecord>(connection)? {
        access.outside.insert(record.name.clone(), Arc::new(record));
    }
    for record in all::<SubjectRecord>(connection)? {
        access.subjects.insert(record.identity.clone(), Arc::new(record));
    }
    Ok(())
}
