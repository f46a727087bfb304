//! How a `cluster.db` of an earlier form becomes one of the next. Nothing is brought over that isn't checked before.

use super::digest::Digest;
use super::machine::DIGEST;
use super::rows;
use crate::database::StoreError;
use crate::meta_table::{meta, put_meta};
use crate::record::{CopyStatus, DriveState, MapRecord};
use crate::state::State;
use rusqlite::Connection;
use std::path::Path;
use std::sync::Arc;
use tepal_model::{DriveId, Layout};
use tepal_placement::{Geometry, Rotation};

/// Form 1 was of clusters of one server, which was up from the first view on.
pub fn from_form_1(connection: &Connection, file: &Path) -> Result<(), StoreError> {
    let more = "
        ALTER TABLE servers ADD COLUMN state_view INTEGER NOT NULL DEFAULT 1;
        ALTER TABLE servers ADD COLUMN incarnation INTEGER NOT NULL DEFAULT 0;
        ALTER TABLE servers ADD COLUMN folder INTEGER NOT NULL DEFAULT 0;
        ALTER TABLE servers ADD COLUMN boot INTEGER NOT NULL DEFAULT 0;
        ALTER TABLE servers ADD COLUMN site TEXT;
        CREATE TABLE proposers (server TEXT PRIMARY KEY, value TEXT NOT NULL, crc INTEGER NOT NULL) STRICT;";
    connection.execute_batch(more).map_err(StoreError::sqlite(file))?;
    let mut state = with_generations(connection, file, Digest::of_form_1)?;
    let Some(last) = state.servers.keys().next_back() else { return Ok(()) };
    state.counters.server = last.0.saturating_add(1);
    let sql = "INSERT INTO counters (name, next) VALUES ('server', ?1)";
    connection.execute(sql, [state.counters.server]).map_err(StoreError::sqlite(file))?;
    put_with_copies(connection, file, state)
}

/// Form 2 doesn't say in which generation a drive was last used, nor in which view a map was made. One that was form 1 has become the
/// newest at once.
pub fn from_form_2(connection: &Connection, file: &Path) -> Result<(), StoreError> {
    if has_column(connection, file, "drives", "generation")? {
        return Ok(());
    }
    let state = with_generations(connection, file, Digest::of_form_2)?;
    put_with_copies(connection, file, state)
}

/// Form 3 says no lease. One that was of an earlier form has become the newest at once.
pub fn from_form_3(connection: &Connection, file: &Path) -> Result<(), StoreError> {
    if has_column(connection, file, "cluster", "lease_ms")? {
        return Ok(());
    }
    connection.execute_batch(LEASES).map_err(StoreError::sqlite(file))?;
    connection.execute_batch(EPOCHS).map_err(StoreError::sqlite(file))?;
    add_columns(connection, file)?;
    let state = checked(connection, file, Digest::of_form_3)?;
    put_with_copies(connection, file, state)
}

/// Form 4 knows no snapshots: each volume is in the first epoch of its map, in which it has been since it was made. One that was
/// of an earlier form has become the newest at once.
pub fn from_form_4(connection: &Connection, file: &Path) -> Result<(), StoreError> {
    if has_column(connection, file, "volumes", "lineage")? {
        return Ok(());
    }
    connection.execute_batch(EPOCHS).map_err(StoreError::sqlite(file))?;
    add_columns(connection, file)?;
    let state = checked(connection, file, Digest::of_form_4)?;
    put_with_copies(connection, file, state)
}

/// Form 5 says the drives of maps, which have a column for each, with copies on neighbours, and knows no clones. One that was of an
/// earlier form has become the newest at once.
pub fn from_form_5(connection: &Connection, file: &Path) -> Result<(), StoreError> {
    if has_column(connection, file, "maps", "width")? {
        return Ok(());
    }
    add_columns(connection, file)?;
    let state = checked(connection, file, Digest::of_form_5)?;
    put_with_copies(connection, file, state)
}

/// Form 6 doesn't say which copies are complete, nor which volumes are incomplete. One that was of an earlier form has become the newest at
/// once.
pub fn from_form_6(connection: &Connection, file: &Path) -> Result<(), StoreError> {
    if has_column(connection, file, "volumes", "import")? {
        return Ok(());
    }
    let status = "ALTER TABLE map_columns ADD COLUMN status TEXT NOT NULL DEFAULT 'complete'";
    connection.execute_batch(status).map_err(StoreError::sqlite(file))?;
    connection.execute_batch(IMPORTS).map_err(StoreError::sqlite(file))?;
    connection.execute_batch(ROLLBACKS).map_err(StoreError::sqlite(file))?;
    connection.execute_batch(NAMES).map_err(StoreError::sqlite(file))?;
    connection.execute_batch(REPLICAS).map_err(StoreError::sqlite(file))?;
    let state = checked(connection, file, Digest::of_form_6)?;
    put_with_copies(connection, file, state)
}

/// Form 7 doesn't say in which epoch a volume went on that was rolled back. One that was of an earlier form has become the newest at once.
pub fn from_form_7(connection: &Connection, file: &Path) -> Result<(), StoreError> {
    if has_column(connection, file, "volumes", "begun_in")? {
        return Ok(());
    }
    connection.execute_batch(ROLLBACKS).map_err(StoreError::sqlite(file))?;
    connection.execute_batch(NAMES).map_err(StoreError::sqlite(file))?;
    connection.execute_batch(REPLICAS).map_err(StoreError::sqlite(file))?;
    let state = checked(connection, file, Digest::of_form_7)?;
    put_meta(connection, DIGEST, &Digest::of(&state).0).map_err(StoreError::sqlite(file))
}

/// Form 8 doesn't say what drives are called.
pub fn from_form_8(connection: &Connection, file: &Path) -> Result<(), StoreError> {
    if has_column(connection, file, "drives", "name")? {
        return Ok(());
    }
    connection.execute_batch(NAMES).map_err(StoreError::sqlite(file))?;
    connection.execute_batch(REPLICAS).map_err(StoreError::sqlite(file))?;
    let state = checked(connection, file, Digest::of_form_8)?;
    put_meta(connection, DIGEST, &Digest::of(&state).0).map_err(StoreError::sqlite(file))
}

/// Form 9 knows no replicas.
pub fn from_form_9(connection: &Connection, file: &Path) -> Result<(), StoreError> {
    if has_column(connection, file, "volumes", "replica_cluster")? {
        return Ok(());
    }
    connection.execute_batch(REPLICAS).map_err(StoreError::sqlite(file))?;
    let state = checked(connection, file, Digest::of_form_9)?;
    put_meta(connection, DIGEST, &Digest::of(&state).0).map_err(StoreError::sqlite(file))
}

/// Form 10 knows nobody.
pub fn from_form_10(connection: &Connection, file: &Path) -> Result<(), StoreError> {
    if has_column(connection, file, "identities", "key")? {
        return Ok(());
    }
    let state = checked(connection, file, Digest::of_form_11)?;
    put_meta(connection, DIGEST, &Digest::of(&state).0).map_err(StoreError::sqlite(file))
}

/// Form 11 knows no schedules, encrypted volumes, limits and tokens by which servers join, and all volumes have one range.
pub fn from_form_11(connection: &Connection, file: &Path) -> Result<(), StoreError> {
    if has_column(connection, file, "schedules", "done_s")? {
        return Ok(());
    }
    let state = checked(connection, file, Digest::of_form_11)?;
    put_meta(connection, DIGEST, &Digest::of(&state).0).map_err(StoreError::sqlite(file))
}

/// What has nothing in it before form 12.
const SINCE_FORM_12: &str = "CREATE TABLE IF NOT EXISTS requests (
        key TEXT PRIMARY KEY, value TEXT NOT NULL, crc INTEGER NOT NULL
    ) STRICT;
    CREATE TABLE IF NOT EXISTS volume_keys (
        volume INTEGER PRIMARY KEY, key TEXT NOT NULL, wrapped TEXT NOT NULL
    ) STRICT;
    CREATE TABLE IF NOT EXISTS limits (
        subject TEXT PRIMARY KEY, iops INTEGER, iops_burst INTEGER, bandwidth INTEGER, bandwidth_burst INTEGER, connections INTEGER
    ) STRICT;
    CREATE TABLE IF NOT EXISTS join_tokens (hash TEXT PRIMARY KEY, until_unix_ms INTEGER NOT NULL, key TEXT) STRICT;
    CREATE TABLE IF NOT EXISTS live_imports (
        volume INTEGER PRIMARY KEY, address TEXT NOT NULL, length INTEGER NOT NULL, done INTEGER NOT NULL, stage TEXT NOT NULL
    ) STRICT;
    CREATE TABLE IF NOT EXISTS schedules (
        id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, work TEXT NOT NULL, volume INTEGER, pool TEXT, every_s INTEGER, at TEXT,
        zone TEXT, keep TEXT, within_s INTEGER, paused INTEGER NOT NULL, created_unix_ms INTEGER NOT NULL, done_s INTEGER NOT NULL,
        last_run_unix_ms INTEGER, missed INTEGER NOT NULL, last_missed_s INTEGER, error TEXT
    ) STRICT;
    CREATE TABLE IF NOT EXISTS schedule_snapshots (
        volume INTEGER NOT NULL, epoch INTEGER NOT NULL, schedule INTEGER NOT NULL, due_s INTEGER NOT NULL, held TEXT,
        PRIMARY KEY (volume, epoch)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS scrubs (
        volume INTEGER PRIMARY KEY, begun_unix_ms INTEGER NOT NULL, done_unix_ms INTEGER NOT NULL
    ) STRICT;
    CREATE TABLE IF NOT EXISTS leaving_authorities (number INTEGER PRIMARY KEY, since_unix_ms INTEGER NOT NULL) STRICT;
    CREATE TABLE IF NOT EXISTS scope_grants (
        scope TEXT NOT NULL, to_whom TEXT NOT NULL, right_to TEXT NOT NULL, PRIMARY KEY (scope, to_whom)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS pool_keys (pool TEXT PRIMARY KEY, key TEXT NOT NULL) STRICT;
    CREATE TABLE IF NOT EXISTS outside_authorities (name TEXT PRIMARY KEY, certificate TEXT NOT NULL) STRICT;
    CREATE TABLE IF NOT EXISTS subjects (identity TEXT PRIMARY KEY, authority TEXT NOT NULL, subject TEXT NOT NULL) STRICT;";

/// There is nobody in it before form 11.
const ACCESS: &str = "CREATE TABLE IF NOT EXISTS authorities (
        number INTEGER PRIMARY KEY, certificate TEXT NOT NULL, server TEXT NOT NULL
    ) STRICT;
    CREATE TABLE IF NOT EXISTS identities (
        name TEXT PRIMARY KEY, role TEXT NOT NULL, groups TEXT NOT NULL, key TEXT NOT NULL, former_key TEXT,
        created_unix_ms INTEGER NOT NULL
    ) STRICT;
    CREATE TABLE IF NOT EXISTS grants (
        volume INTEGER NOT NULL, to_whom TEXT NOT NULL, right_to TEXT NOT NULL, PRIMARY KEY (volume, to_whom)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS reservations (volume INTEGER PRIMARY KEY, holder TEXT, number INTEGER NOT NULL) STRICT;";

/// Volumes have one range before form 12.
const RANGES: &str = "ALTER TABLE volumes ADD COLUMN ranges TEXT;
    ALTER TABLE migrations ADD COLUMN first INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE migrations ADD COLUMN ends INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE reservations ADD COLUMN fenced TEXT NOT NULL DEFAULT '';";

const REPLICAS: &str = "ALTER TABLE volumes ADD COLUMN replica_cluster TEXT;
    ALTER TABLE volumes ADD COLUMN replica_volume INTEGER;
    ALTER TABLE volumes ADD COLUMN replica_name TEXT;
    ALTER TABLE volumes ADD COLUMN replica_as_of INTEGER;
    ALTER TABLE volumes ADD COLUMN replica_receives INTEGER;
    ALTER TABLE volumes ADD COLUMN replica_base INTEGER;
    ALTER TABLE snapshots ADD COLUMN copy_cluster TEXT;
    ALTER TABLE snapshots ADD COLUMN copy_volume INTEGER;
    ALTER TABLE snapshots ADD COLUMN copy_epoch INTEGER;
    ALTER TABLE snapshots ADD COLUMN copy_unix_ms INTEGER;";

const NAMES: &str = "ALTER TABLE drives ADD COLUMN name TEXT;";

const IMPORTS: &str = "ALTER TABLE volumes ADD COLUMN import INTEGER;
    ALTER TABLE volumes ADD COLUMN imported ANY;";

/// What earlier commands would make of it in this form, so that servers which carry those out hold the same.
const ROLLBACKS: &str = "ALTER TABLE volumes ADD COLUMN begun_in INTEGER NOT NULL DEFAULT 0;
     ALTER TABLE volumes ADD COLUMN cut_in INTEGER NOT NULL DEFAULT 0;";

const LEASES: &str = "ALTER TABLE cluster ADD COLUMN lease_ms INTEGER;
    ALTER TABLE cluster ADD COLUMN longest_lease_ms INTEGER;";

/// A volume gets what it would have if it were made anew by the same command, so that servers which carry that out in this form
/// hold the same.
const EPOCHS: &str = "ALTER TABLE volumes ADD COLUMN lineage TEXT NOT NULL DEFAULT '0-1';
    ALTER TABLE volumes ADD COLUMN epoch_since INTEGER NOT NULL DEFAULT 0;
    UPDATE volumes SET epoch_since = ifnull((SELECT made_in FROM maps WHERE maps.id = volumes.map), 0);
    ALTER TABLE maps ADD COLUMN newest_epoch INTEGER NOT NULL DEFAULT 1;
    CREATE TABLE snapshots (
        volume INTEGER NOT NULL, epoch INTEGER NOT NULL, name TEXT NOT NULL, lineage TEXT NOT NULL, size ANY NOT NULL,
        created_unix_ms INTEGER NOT NULL, PRIMARY KEY (volume, epoch)
    ) STRICT, WITHOUT ROWID;
    CREATE UNIQUE INDEX snapshots_by_name ON snapshots (volume, name);";

/// A map gets what it would have if it were made anew by the same command of that form. No volume is a clone, and none goes elsewhere.
const COLUMNS: &str = "ALTER TABLE volumes ADD COLUMN origin_volume INTEGER;
    ALTER TABLE volumes ADD COLUMN origin_epoch INTEGER;
    ALTER TABLE servers ADD COLUMN draining INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE drives ADD COLUMN purpose TEXT NOT NULL DEFAULT 'active';
    ALTER TABLE maps ADD COLUMN width INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE maps ADD COLUMN chunk INTEGER NOT NULL DEFAULT 0;
    CREATE TABLE map_columns (
        map INTEGER NOT NULL, column INTEGER NOT NULL, copy INTEGER NOT NULL, drive TEXT NOT NULL, since INTEGER NOT NULL,
        status TEXT NOT NULL DEFAULT 'complete', PRIMARY KEY (map, column, copy)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE map_joins (
        map INTEGER NOT NULL, column INTEGER NOT NULL, drive_to TEXT NOT NULL, drive_from TEXT NOT NULL,
        since INTEGER NOT NULL, PRIMARY KEY (map, column)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE migrations (
        id INTEGER PRIMARY KEY, source INTEGER NOT NULL, target INTEGER NOT NULL, layout TEXT NOT NULL, leaves INTEGER,
        seed INTEGER NOT NULL, chunks INTEGER NOT NULL, done INTEGER NOT NULL, fence INTEGER NOT NULL, stage TEXT NOT NULL,
        cancelled INTEGER NOT NULL, rate INTEGER, since INTEGER NOT NULL, begun_unix_ms INTEGER NOT NULL
    ) STRICT;";

fn add_columns(connection: &Connection, file: &Path) -> Result<(), StoreError> {
    connection.execute_batch(COLUMNS).map_err(StoreError::sqlite(file))?;
    connection.execute_batch(IMPORTS).map_err(StoreError::sqlite(file))?;
    connection.execute_batch(ROLLBACKS).map_err(StoreError::sqlite(file))?;
    connection.execute_batch(NAMES).map_err(StoreError::sqlite(file))?;
    connection.execute_batch(REPLICAS).map_err(StoreError::sqlite(file))?;
    let mut statement = connection.prepare("SELECT id, layout, made_in FROM maps").map_err(StoreError::sqlite(file))?;
    let maps = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)));
    let maps: Result<Vec<(u32, String, u64)>, _> = maps.and_then(Iterator::collect);
    for (map, layout, made_in) in maps.map_err(StoreError::sqlite(file))? {
        let layout: Layout = layout.parse().map_err(|_| StoreError::damaged(file, "a map has no layout"))?;
        rotate(connection, map, &layout, made_in).map_err(StoreError::sqlite(file))?;
    }
    connection.execute_batch("DROP TABLE map_drives").map_err(StoreError::sqlite(file))
}

/// Which copies a map's drives have. One with fewer drives than copies, of which none was made, has no columns, which is damage.
fn rotate(connection: &Connection, map: u32, layout: &Layout, made_in: u64) -> rusqlite::Result<()> {
    let mut statement = connection.prepare("SELECT drive FROM map_drives WHERE map = ?1 ORDER BY position")?;
    let drives: Vec<String> = statement.query_map([map], |row| row.get(0))?.collect::<Result<_, _>>()?;
    let rotation = Rotation::new(drives.len(), layout.fragments().count());
    let (Some(rotation), Some(geometry)) = (rotation, Geometry::round(drives.len(), layout.extent)) else {
        return Ok(());
    };
    let sql = "INSERT INTO map_columns (map, column, copy, drive, since) VALUES (?1, ?2, ?3, ?4, ?5)";
    for column in 0..rotation.columns() {
        for (copy, holder) in rotation.holders(column).enumerate() {
            connection.prepare_cached(sql)?.execute((map, column, copy, &drives[holder], made_in))?;
        }
    }
    let sql = "UPDATE maps SET width = ?1, chunk = ?2 WHERE id = ?3";
    connection.execute(sql, [geometry.width(), geometry.chunk(), map]).map(drop)
}

fn has_column(connection: &Connection, file: &Path, table: &str, column: &str) -> Result<bool, StoreError> {
    let sql = "SELECT count(*) FROM pragma_table_info(?1) WHERE name = ?2";
    connection.query_row(sql, [table, column], |row| row.get(0)).map_err(StoreError::sqlite(file))
}

/// All records, of drives too, which match the checksum that was stored with them.
fn with_generations(
    connection: &Connection,
    file: &Path,
    digest: impl Fn(&State) -> Digest,
) -> Result<State, StoreError> {
    let more = "ALTER TABLE drives ADD COLUMN generation INTEGER NOT NULL DEFAULT 0;
        ALTER TABLE maps ADD COLUMN made_in INTEGER NOT NULL DEFAULT 0;";
    connection.execute_batch(more).map_err(StoreError::sqlite(file))?;
    connection.execute_batch(LEASES).map_err(StoreError::sqlite(file))?;
    connection.execute_batch(EPOCHS).map_err(StoreError::sqlite(file))?;
    add_columns(connection, file)?;
    checked(connection, file, digest)
}

fn checked(connection: &Connection, file: &Path, digest: impl Fn(&State) -> Digest) -> Result<State, StoreError> {
    connection.execute_batch(ACCESS).map_err(StoreError::sqlite(file))?;
    connection.execute_batch(SINCE_FORM_12).map_err(StoreError::sqlite(file))?;
    // A copy of the state has no events.
    if has_column(connection, file, "events", "seq")? && !has_column(connection, file, "events", "who")? {
        connection.execute_batch("ALTER TABLE events ADD COLUMN who TEXT").map_err(StoreError::sqlite(file))?;
    }
    connection.execute_batch(RANGES).map_err(StoreError::sqlite(file))?;
    let state = rows::load(connection).map_err(StoreError::sqlite(file))?;
    let stored: Option<u32> = meta(connection, file, DIGEST)?;
    if stored.unwrap_or(digest(&State::before_everything()).0) != digest(&state).0 {
        return Err(StoreError::damaged(file, "its records don't have the checksum that was stored with them"));
    }
    Ok(state)
}

/// Before, whoever had heard that a drive was away went on without it: of a column's drives those that are up have everything; if none
/// is, those that left last.
fn put_with_copies(connection: &Connection, file: &Path, mut state: State) -> Result<(), StoreError> {
    let left = |drive: DriveId| {
        let record = state.drives.get(&drive).filter(|record| record.state != DriveState::Up);
        record.map_or(u64::MAX, |record| record.missed_since.unwrap_or(record.state_view))
    };
    let mut maps = state.maps.clone();
    for map in maps.values_mut() {
        let (id, mut columns) = (map.id, map.columns.clone());
        for (number, column) in (0..).zip(&mut columns) {
            let newest = column.holders.iter().map(|holder| left(holder.drive)).max();
            for holder in column.holders.iter_mut().filter(|holder| Some(left(holder.drive)) != newest) {
                holder.status = CopyStatus::PassedOver(left(holder.drive));
            }
            rows::put_column(connection, id, number, column).map_err(StoreError::sqlite(file))?;
        }
        *map = Arc::new(MapRecord { columns, ..MapRecord::clone(map) });
    }
    state.maps = maps;
    put_meta(connection, DIGEST, &Digest::of(&state).0).map_err(StoreError::sqlite(file))
}
