//! Records as rows of `cluster.db`, both ways.

use super::access;
use super::apply::Change;
use super::schedules;
use crate::record::{
    ClusterRecord, ColumnRecord, CopyRecord, DriveRecord, EVENTS_KEPT, HolderRecord, ImportRecord, JoinRecord,
    MapRecord, MigrationRecord, PoolRecord, ReplicaRecord, ReplicaSource, ServerRecord, SnapshotId, SnapshotRecord,
    VolumeRecord,
};
use crate::state::{Counters, State};
use rusqlite::types::{FromSql, FromSqlError, Type, Value};
use rusqlite::{Connection, Row, params_from_iter};
use smallvec::SmallVec;
use std::fmt::Display;
use std::str::FromStr;
use std::sync::Arc;
use tepal_model::{Epoch, Lineage, MAX_VOLUME, MapId, Ranges, VolumeId};
use tepal_placement::Geometry;

/// A record that is one row.
pub trait Record: Sized {
    const TABLE: &'static str;
    /// In the order of [`Record::values`]; those of later forms at the end.
    const COLUMNS: &'static [&'static str];
    fn values(&self) -> Vec<Value>;
    fn read(row: &Row<'_>) -> rusqlite::Result<Self>;
}

pub fn text(value: impl Display) -> Value {
    Value::Text(value.to_string())
}

/// Counters, times and capacities are kept below 2^63 by the state machine.
pub fn integer(value: u64) -> Value {
    Value::Integer(i64::try_from(value).expect("the state machine keeps this below 2^63"))
}

pub fn optional<T>(value: Option<T>, as_value: impl FnOnce(T) -> Value) -> Value {
    value.map_or(Value::Null, as_value)
}

pub fn parse<T: FromStr<Err: std::error::Error + Send + Sync + 'static>>(
    row: &Row<'_>,
    column: usize,
) -> rusqlite::Result<T> {
    parse_text(column, &row.get::<_, String>(column)?)
}

fn parse_text<T: FromStr<Err: std::error::Error + Send + Sync + 'static>>(
    column: usize,
    text: &str,
) -> rusqlite::Result<T> {
    text.parse().map_err(|error| rusqlite::Error::FromSqlConversionFailure(column, Type::Text, Box::new(error)))
}

impl Record for ClusterRecord {
    const TABLE: &'static str = "cluster";
    const COLUMNS: &'static [&'static str] = &["id", "name", "created_unix_ms", "view", "lease_ms", "longest_lease_ms"];

    fn values(&self) -> Vec<Value> {
        vec![
            text(self.id),
            text(&self.name),
            integer(self.created_unix_ms),
            integer(self.view),
            optional(self.lease_ms.as_ref(), |ms| integer(*ms)),
            optional(self.longest_lease_ms.as_ref(), |ms| integer(*ms)),
        ]
    }

    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(ClusterRecord {
            id: parse(row, 0)?,
            name: row.get(1)?,
            created_unix_ms: row.get(2)?,
            view: row.get(3)?,
            lease_ms: row.get(4)?,
            longest_lease_ms: row.get(5)?,
        })
    }
}

impl Record for ServerRecord {
    const TABLE: &'static str = "servers";
    const COLUMNS: &'static [&'static str] =
        &["id", "address", "state", "state_view", "incarnation", "folder", "boot", "site", "draining"];

    fn values(&self) -> Vec<Value> {
        vec![
            text(self.id),
            text(&self.address),
            text(self.state),
            integer(self.state_view),
            integer(self.incarnation.into()),
            integer(self.folder),
            integer(self.boot),
            optional(self.site.as_ref(), text),
            integer(self.draining.into()),
        ]
    }

    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(ServerRecord {
            id: parse(row, 0)?,
            address: row.get(1)?,
            state: parse(row, 2)?,
            state_view: row.get(3)?,
            incarnation: row.get(4)?,
            folder: row.get(5)?,
            boot: row.get(6)?,
            site: row.get(7)?,
            draining: row.get(8)?,
        })
    }
}

impl Record for DriveRecord {
    const TABLE: &'static str = "drives";
    const COLUMNS: &'static [&'static str] = &[
        "id",
        "server",
        "pool",
        "path",
        "capacity",
        "state",
        "reason",
        "state_view",
        "missed_since",
        "generation",
        "purpose",
        "name",
    ];

    fn values(&self) -> Vec<Value> {
        vec![
            text(self.id),
            text(self.server),
            text(&self.pool),
            text(&self.path),
            integer(self.capacity),
            text(self.state),
            text(&self.reason),
            integer(self.state_view),
            optional(self.missed_since, integer),
            integer(self.generation),
            text(self.purpose),
            optional(self.name.as_ref(), text),
        ]
    }

    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(DriveRecord {
            id: parse(row, 0)?,
            server: parse(row, 1)?,
            pool: row.get(2)?,
            path: row.get(3)?,
            capacity: row.get(4)?,
            state: parse(row, 5)?,
            reason: row.get(6)?,
            state_view: row.get(7)?,
            missed_since: row.get(8)?,
            generation: row.get(9)?,
            purpose: parse(row, 10)?,
            name: row.get(11)?,
        })
    }
}

impl Record for PoolRecord {
    const TABLE: &'static str = "pools";
    const COLUMNS: &'static [&'static str] = &["name", "layout"];

    fn values(&self) -> Vec<Value> {
        vec![text(&self.name), optional(self.layout.as_ref(), text)]
    }

    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        let layout = row.get::<_, Option<String>>(1)?.map(|layout| parse_text(1, &layout)).transpose()?;
        Ok(PoolRecord { name: row.get(0)?, layout })
    }
}

impl Record for VolumeRecord {
    const TABLE: &'static str = "volumes";
    const COLUMNS: &'static [&'static str] = &[
        "id",
        "name",
        "size",
        "layout",
        "pool",
        "map",
        "epoch",
        "revision",
        "state",
        "created_unix_ms",
        "lineage",
        "epoch_since",
        "origin_volume",
        "origin_epoch",
        "import",
        "imported",
        "begun_in",
        "cut_in",
        "replica_cluster",
        "replica_volume",
        "replica_name",
        "replica_as_of",
        "replica_receives",
        "replica_base",
        "ranges",
    ];

    fn values(&self) -> Vec<Value> {
        vec![
            integer(self.id.0),
            text(&self.name),
            VolumeSize(self.size).value(),
            text(&self.layout),
            text(&self.pool),
            integer(self.map.0.into()),
            integer(self.epoch.into()),
            integer(self.revision),
            text(self.state),
            integer(self.created_unix_ms),
            text(&self.lineage),
            integer(self.epoch_since),
            optional(self.origin, |origin| integer(origin.volume.0)),
            optional(self.origin, |origin| integer(origin.epoch.into())),
            optional(self.import, |import| integer(import.id)),
            optional(self.import, |import| VolumeSize(import.done).value()),
            integer(self.begun_in.into()),
            integer(self.cut_in),
            optional(self.replica.as_ref(), |replica| text(replica.source.cluster)),
            optional(self.replica.as_ref(), |replica| integer(replica.source.volume.0)),
            optional(self.replica.as_ref(), |replica| text(&replica.called)),
            optional(self.replica.as_ref(), |replica| integer(replica.as_of_unix_ms)),
            optional(self.replica.as_ref().and_then(|replica| replica.receives), |epoch| integer(epoch.into())),
            optional(self.replica.as_ref().and_then(|replica| replica.base), |epoch| integer(epoch.into())),
            optional(self.ranges.as_ref(), text),
        ]
    }

    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(VolumeRecord {
            id: VolumeId(row.get(0)?),
            name: row.get(1)?,
            size: row.get::<_, VolumeSize>(2)?.0,
            layout: parse(row, 3)?,
            pool: row.get(4)?,
            map: MapId(row.get(5)?),
            epoch: row.get(6)?,
            revision: row.get(7)?,
            state: parse(row, 8)?,
            created_unix_ms: row.get(9)?,
            lineage: lineage(row, 10, 6)?,
            epoch_since: row.get(11)?,
            origin: origin(row, 12)?,
            import: import(row, 14)?,
            begun_in: row.get(16)?,
            cut_in: row.get(17)?,
            replica: replica(row, 18)?,
            ranges: row.get::<_, Option<String>>(24)?.map(|ranges| parse_text(24, &ranges)).transpose()?,
        })
    }
}

impl Record for SnapshotRecord {
    const TABLE: &'static str = "snapshots";
    const COLUMNS: &'static [&'static str] = &[
        "volume",
        "epoch",
        "name",
        "lineage",
        "size",
        "created_unix_ms",
        "copy_cluster",
        "copy_volume",
        "copy_epoch",
        "copy_unix_ms",
    ];

    fn values(&self) -> Vec<Value> {
        vec![
            integer(self.volume.0),
            integer(self.epoch.into()),
            text(&self.name),
            text(&self.lineage),
            VolumeSize(self.size).value(),
            integer(self.created_unix_ms),
            optional(self.copy_of, |copy| text(copy.source.cluster)),
            optional(self.copy_of, |copy| integer(copy.source.volume.0)),
            optional(self.copy_of, |copy| integer(copy.epoch.into())),
            optional(self.copy_of, |copy| integer(copy.unix_ms)),
        ]
    }

    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(SnapshotRecord {
            volume: VolumeId(row.get(0)?),
            epoch: row.get(1)?,
            name: row.get(2)?,
            lineage: lineage(row, 3, 1)?,
            size: row.get::<_, VolumeSize>(4)?.0,
            created_unix_ms: row.get(5)?,
            copy_of: copy_of(row, 6)?,
        })
    }
}

impl Record for MigrationRecord {
    const TABLE: &'static str = "migrations";
    const COLUMNS: &'static [&'static str] = &[
        "id",
        "source",
        "target",
        "layout",
        "leaves",
        "seed",
        "chunks",
        "done",
        "fence",
        "stage",
        "cancelled",
        "rate",
        "since",
        "begun_unix_ms",
        "first",
        "ends",
    ];

    fn values(&self) -> Vec<Value> {
        vec![
            integer(self.id.0.into()),
            integer(self.source.0.into()),
            integer(self.target.0.into()),
            text(&self.layout),
            optional(self.leaves, |volume| integer(volume.0)),
            integer(self.seed),
            integer(self.chunks),
            integer(self.done),
            integer(self.fence),
            text(self.stage),
            integer(self.cancelled.into()),
            optional(self.rate, integer),
            integer(self.since),
            integer(self.begun_unix_ms),
            integer(self.first),
            integer(self.ends.into()),
        ]
    }

    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        let record = MigrationRecord {
            id: MapId(row.get(0)?),
            source: MapId(row.get(1)?),
            target: MapId(row.get(2)?),
            layout: parse(row, 3)?,
            leaves: row.get::<_, Option<u64>>(4)?.map(VolumeId),
            seed: row.get(5)?,
            chunks: row.get(6)?,
            done: row.get(7)?,
            fence: row.get(8)?,
            stage: parse(row, 9)?,
            cancelled: row.get(10)?,
            rate: row.get(11)?,
            since: row.get(12)?,
            begun_unix_ms: row.get(13)?,
            first: row.get(14)?,
            ends: row.get(15)?,
        };
        match record.is_sound() {
            true => Ok(record),
            false => Err(misplaced(8, row.get(8)?)),
        }
    }
}

/// In two columns: both are null, or neither is.
fn origin(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<SnapshotId>> {
    match (row.get::<_, Option<u64>>(column)?, row.get::<_, Option<Epoch>>(column + 1)?) {
        (None, None) => Ok(None),
        (Some(volume), Some(epoch)) => Ok(Some(SnapshotId { volume: VolumeId(volume), epoch })),
        (None, Some(_)) => Err(rusqlite::Error::InvalidColumnType(column, "origin_volume".to_owned(), Type::Null)),
        (Some(_), None) => Err(rusqlite::Error::InvalidColumnType(column + 1, "origin_epoch".to_owned(), Type::Null)),
    }
}

/// The same.
fn import(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<ImportRecord>> {
    match (row.get::<_, Option<u64>>(column)?, row.get::<_, Option<VolumeSize>>(column + 1)?) {
        (None, None) => Ok(None),
        (Some(id), Some(VolumeSize(done))) => Ok(Some(ImportRecord { id, done })),
        (None, Some(_)) => Err(rusqlite::Error::InvalidColumnType(column, "import".to_owned(), Type::Null)),
        (Some(_), None) => Err(rusqlite::Error::InvalidColumnType(column + 1, "imported".to_owned(), Type::Null)),
    }
}

/// A cluster, and a volume of it in the next column; both or none.
fn source(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<ReplicaSource>> {
    match (row.get::<_, Option<String>>(column)?, row.get::<_, Option<u64>>(column + 1)?) {
        (None, None) => Ok(None),
        (Some(cluster), Some(volume)) => {
            Ok(Some(ReplicaSource { cluster: parse_text(column, &cluster)?, volume: VolumeId(volume) }))
        }
        (None, Some(_)) => Err(rusqlite::Error::InvalidColumnType(column, "cluster".to_owned(), Type::Null)),
        (Some(_), None) => Err(rusqlite::Error::InvalidColumnType(column + 1, "volume".to_owned(), Type::Null)),
    }
}

fn replica(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<ReplicaRecord>> {
    let Some(source) = source(row, column)? else { return Ok(None) };
    let (called, as_of_unix_ms) = (row.get(column + 2)?, row.get(column + 3)?);
    let (receives, base) = (row.get(column + 4)?, row.get(column + 5)?);
    Ok(Some(ReplicaRecord { source, called, as_of_unix_ms, receives, base }))
}

fn copy_of(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<CopyRecord>> {
    let Some(source) = source(row, column)? else { return Ok(None) };
    Ok(Some(CopyRecord { source, epoch: row.get(column + 2)?, unix_ms: row.get(column + 3)? }))
}

/// A lineage that ends with the epoch in another column.
fn lineage(row: &Row<'_>, column: usize, epoch: usize) -> rusqlite::Result<Lineage> {
    let lineage: Lineage = parse(row, column)?;
    if row.get::<_, Epoch>(epoch)? != lineage.newest() {
        return Err(rusqlite::Error::IntegralValueOutOfRange(epoch, row.get(epoch)?));
    }
    Ok(lineage)
}

/// SQLite's integers end just below the largest volume, which is exact as a real.
struct VolumeSize(u64);

impl VolumeSize {
    fn value(&self) -> Value {
        i64::try_from(self.0).map_or(Value::Real(self.0 as f64), Value::Integer)
    }
}

impl FromSql for VolumeSize {
    fn column_result(value: rusqlite::types::ValueRef<'_>) -> Result<Self, FromSqlError> {
        match value {
            rusqlite::types::ValueRef::Integer(size) => {
                u64::try_from(size).map(VolumeSize).map_err(|_| FromSqlError::OutOfRange(size))
            }
            rusqlite::types::ValueRef::Real(size) if size == MAX_VOLUME as f64 => Ok(VolumeSize(MAX_VOLUME)),
            _ => Err(FromSqlError::InvalidType),
        }
    }
}

/// A map's own row; its columns are rows of other tables.
pub struct MapRow(pub MapRecord);

impl Record for MapRow {
    const TABLE: &'static str = "maps";
    const COLUMNS: &'static [&'static str] =
        &["id", "volume", "layout", "extent", "made_in", "newest_epoch", "width", "chunk"];

    fn values(&self) -> Vec<Value> {
        let map = &self.0;
        let (volume, extent) = (integer(map.volume.0), integer(map.extent().into()));
        let (made_in, newest_epoch) = (integer(map.made_in), integer(map.newest_epoch.into()));
        let (width, chunk) = (integer(map.width.into()), integer(map.chunk.into()));
        vec![integer(map.id.0.into()), volume, text(&map.layout), extent, made_in, newest_epoch, width, chunk]
    }

    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        let map = MapRecord {
            id: MapId(row.get(0)?),
            volume: VolumeId(row.get(1)?),
            layout: parse(row, 2)?,
            width: row.get(6)?,
            chunk: row.get(7)?,
            columns: vec![],
            made_in: row.get(4)?,
            newest_epoch: row.get(5)?,
        };
        if row.get::<_, u32>(3)? != map.extent() {
            return Err(rusqlite::Error::IntegralValueOutOfRange(3, row.get(3)?));
        }
        Ok(MapRow(map))
    }
}

pub struct Counter {
    pub name: &'static str,
    pub next: u64,
}

pub fn counters(counters: &Counters) -> [Counter; 4] {
    [
        Counter { name: "server", next: counters.server.into() },
        Counter { name: "volume", next: counters.volume },
        Counter { name: "map", next: counters.map.into() },
        Counter { name: "event", next: counters.event },
    ]
}

/// Writes what `changes` lists, and the counters if they moved on.
pub fn write(connection: &Connection, changes: &[Change], before: &Counters, after: &Counters) -> rusqlite::Result<()> {
    for change in changes {
        match change {
            Change::Cluster(record) => put(connection, &**record)?,
            Change::Server(record) => put(connection, &**record)?,
            Change::ServerGone(id) => delete(connection, "servers", "id", text(id))?,
            Change::Drive(record) => put(connection, &**record)?,
            Change::DriveGone(id) => delete(connection, "drives", "id", text(id))?,
            Change::Pool(record) => put(connection, &**record)?,
            Change::PoolGone(name) => delete(connection, "pools", "name", text(name))?,
            Change::Volume(record) => put(connection, &**record)?,
            Change::VolumeGone(id) => delete(connection, "volumes", "id", integer(id.0))?,
            Change::Map(record) => put(connection, &MapRow(MapRecord::clone(record)))?,
            Change::Column(map, column, record) => put_column(connection, *map, *column, record)?,
            Change::MapGone(id) => {
                delete(connection, "map_joins", "map", integer(id.0.into()))?;
                delete(connection, "map_columns", "map", integer(id.0.into()))?;
                delete(connection, "maps", "id", integer(id.0.into()))?;
            }
            Change::Migration(record) => put(connection, &**record)?,
            Change::MigrationGone(id) => delete(connection, "migrations", "id", integer(id.0.into()))?,
            Change::Snapshot(record) => put(connection, &**record)?,
            Change::SnapshotGone(volume, epoch) => {
                let sql = "DELETE FROM snapshots WHERE volume = ?1 AND epoch = ?2";
                connection.prepare_cached(sql)?.execute([volume.0, (*epoch).into()])?;
            }
            Change::Access(change) => change.write(connection)?,
            Change::Schedules(change) => change.write(connection)?,
            Change::Event(event) => {
                let sql = "INSERT INTO events (seq, unix_ms, kind, subject, text, who) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
                let row = (event.seq, event.unix_ms, &event.kind, &event.subject, &event.text, &event.who);
                connection.prepare_cached(sql)?.execute(row)?;
                let oldest = event.seq.saturating_sub(EVENTS_KEPT);
                connection.prepare_cached("DELETE FROM events WHERE seq <= ?1")?.execute([oldest])?;
            }
        }
    }
    if before != after {
        let sql = "INSERT OR REPLACE INTO counters (name, next) VALUES (?1, ?2)";
        for counter in counters(after) {
            connection.prepare_cached(sql)?.execute((counter.name, counter.next))?;
        }
    }
    Ok(())
}

/// All of a state, as it is written to a database that has nothing yet.
pub fn all_of(state: &State) -> Vec<Change> {
    let columns = |map: &Arc<MapRecord>| {
        let id = map.id;
        (0..).zip(map.columns.clone()).map(move |(number, column)| Change::Column(id, number, column))
    };
    let changes = std::iter::once(Change::Cluster(state.cluster.clone()));
    let changes = changes.chain(state.servers.values().cloned().map(Change::Server));
    let changes = changes.chain(state.drives.values().cloned().map(Change::Drive));
    let changes = changes.chain(state.pools.values().cloned().map(Change::Pool));
    let changes = changes.chain(state.volumes.values().cloned().map(Change::Volume));
    let changes = changes.chain(state.maps.values().cloned().map(Change::Map));
    let changes = changes.chain(state.maps.values().flat_map(columns));
    let changes = changes.chain(state.migrations.values().cloned().map(Change::Migration));
    let snapshots = state.snapshots.values().flat_map(|all| all.values().cloned());
    let changes = changes.chain(snapshots.map(Change::Snapshot));
    let changes = changes.chain(access::all_of(&state.access).map(Change::Access));
    changes.chain(schedules::all_of(&state.schedules).map(Change::Schedules)).collect()
}

pub fn put<R: Record>(connection: &Connection, record: &R) -> rusqlite::Result<()> {
    let marks = ["?"].repeat(R::COLUMNS.len()).join(", ");
    let sql = format!("INSERT OR REPLACE INTO {} ({}) VALUES ({marks})", R::TABLE, R::COLUMNS.join(", "));
    connection.prepare_cached(&sql)?.execute(params_from_iter(record.values())).map(drop)
}

pub(super) fn put_column(
    connection: &Connection,
    map: MapId,
    column: u32,
    record: &ColumnRecord,
) -> rusqlite::Result<()> {
    let sql =
        "INSERT OR REPLACE INTO map_columns (map, column, copy, drive, since, status) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
    for (copy, holder) in record.holders.iter().enumerate() {
        let row = (map.0, column, copy, holder.drive.to_string(), holder.since, holder.status.to_string());
        connection.prepare_cached(sql)?.execute(row)?;
    }
    match &record.joining {
        Some(join) => {
            let sql = "INSERT OR REPLACE INTO map_joins (map, column, drive_to, drive_from, since) VALUES (?1, ?2, ?3, ?4, ?5)";
            let row = (map.0, column, join.to.to_string(), join.from.to_string(), join.since);
            connection.prepare_cached(sql)?.execute(row)?;
        }
        None => {
            let sql = "DELETE FROM map_joins WHERE map = ?1 AND column = ?2";
            connection.prepare_cached(sql)?.execute((map.0, column))?;
        }
    }
    Ok(())
}

pub fn delete(connection: &Connection, table: &str, key: &str, value: Value) -> rusqlite::Result<()> {
    connection.prepare_cached(&format!("DELETE FROM {table} WHERE {key} = ?1"))?.execute([value]).map(drop)
}

/// Reads the whole state back.
pub fn load(connection: &Connection) -> rusqlite::Result<State> {
    let mut state = State::before_everything();
    for cluster in all::<ClusterRecord>(connection)? {
        state.cluster = Arc::new(cluster);
    }
    state.servers = all(connection)?.into_iter().map(|server: ServerRecord| (server.id, Arc::new(server))).collect();
    state.drives = all(connection)?.into_iter().map(|drive: DriveRecord| (drive.id, Arc::new(drive))).collect();
    state.pools = all(connection)?.into_iter().map(|pool: PoolRecord| (pool.name.clone(), Arc::new(pool))).collect();
    state.volumes = all(connection)?.into_iter().map(|volume: VolumeRecord| (volume.id, Arc::new(volume))).collect();
    state.names = state.active_volumes().map(|volume| (volume.name.clone(), volume.id)).collect();
    state.maps = all(connection)?.into_iter().map(|MapRow(map)| (map.id, Arc::new(map))).collect();
    load_columns(connection, &mut state)?;
    state.migrations =
        all(connection)?.into_iter().map(|record: MigrationRecord| (record.id, Arc::new(record))).collect();
    let lacks_map =
        |record: &&Arc<MigrationRecord>| [record.source, record.target].iter().any(|map| !state.maps.contains_key(map));
    if let Some(record) = state.migrations.values().find(lacks_map) {
        return Err(misplaced(0, record.id.0.into()));
    }
    let lacks_map = |record: &&Arc<VolumeRecord>| {
        record.ranges.iter().flat_map(Ranges::maps).any(|map| !state.maps.contains_key(&map))
    };
    if let Some(record) = state.volumes.values().find(lacks_map) {
        return Err(misplaced(24, record.map.0.into()));
    }
    for snapshot in all::<SnapshotRecord>(connection)? {
        let snapshots = state.snapshots.entry(snapshot.volume).or_default();
        Arc::make_mut(snapshots).insert(snapshot.epoch, Arc::new(snapshot));
    }
    state.access = Arc::new(access::load(connection)?);
    state.schedules = Arc::new(schedules::load(connection)?);
    state.counters = load_counters(connection)?;
    Ok(state)
}

pub fn all<R: Record>(connection: &Connection) -> rusqlite::Result<Vec<R>> {
    let sql = format!("SELECT {} FROM {}", R::COLUMNS.join(", "), R::TABLE);
    connection.prepare_cached(&sql)?.query_map([], R::read)?.collect()
}

/// What isn't in order, or of a map that isn't there, is damage.
fn load_columns(connection: &Connection, state: &mut State) -> rusqlite::Result<()> {
    let sql = "SELECT map, column, copy, drive, since, status FROM map_columns ORDER BY map, column, copy";
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let (map, column, copy): (u32, usize, usize) = (row.get(0)?, row.get(1)?, row.get(2)?);
        let holder = HolderRecord { drive: parse(row, 3)?, since: row.get(4)?, status: parse(row, 5)? };
        let columns = &mut map_of(state, map)?.columns;
        if copy == 0 && column == columns.len() {
            columns.push(ColumnRecord { holders: SmallVec::new(), joining: None });
        }
        let found = columns.last_mut().filter(|record| record.holders.len() == copy);
        found.ok_or_else(|| misplaced(1, column as i64))?.holders.push(holder);
    }
    let mut statement = connection.prepare_cached("SELECT map, column, drive_to, drive_from, since FROM map_joins")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let (map, column): (u32, usize) = (row.get(0)?, row.get(1)?);
        let join = JoinRecord { to: parse(row, 2)?, from: parse(row, 3)?, since: row.get(4)? };
        let found = map_of(state, map)?.columns.get_mut(column);
        let found = found.filter(|record| record.is_held_by(join.from));
        found.ok_or_else(|| misplaced(1, column as i64))?.joining = Some(join);
    }
    let is_sound = |map: &MapRecord| Geometry::of_map(&map.layout, map.columns.len(), map.width, map.chunk).is_some();
    match state.maps.values().find(|map| !is_sound(map)) {
        Some(map) => Err(misplaced(6, map.width.into())),
        None => Ok(()),
    }
}

fn map_of(state: &mut State, map: u32) -> rusqlite::Result<&mut MapRecord> {
    state.maps.get_mut(&MapId(map)).map(Arc::make_mut).ok_or_else(|| misplaced(0, map.into()))
}

fn misplaced(column: usize, value: i64) -> rusqlite::Error {
    rusqlite::Error::IntegralValueOutOfRange(column, value)
}

fn load_counters(connection: &Connection) -> rusqlite::Result<Counters> {
    let mut found = State::before_everything().counters;
    let mut statement = connection.prepare_cached("SELECT name, next FROM counters")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        match row.get::<_, String>(0)?.as_str() {
            "server" => found.server = row.get(1)?,
            "volume" => found.volume = row.get(1)?,
            "map" => found.map = row.get(1)?,
            "event" => found.event = row.get(1)?,
            // The digest, which covers the known ones, shows if one of these is missing.
            _ => {}
        }
    }
    Ok(found)
}
