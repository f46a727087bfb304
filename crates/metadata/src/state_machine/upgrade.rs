//! How a `cluster.db` of an earlier form becomes one of the next. Nothing is brought over that isn't checked before.

use super::digest::Digest;
use super::machine::DIGEST;
use super::rows;
use crate::database::StoreError;
use crate::meta_table::{meta, put_meta};
use crate::state::State;
use rusqlite::Connection;
use std::path::Path;

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
    put_digest(connection, file, &state)
}

/// Form 2 doesn't say in which generation a drive was last used, nor in which view a map was made. One that was form 1 has become form 3 at once.
pub fn from_form_2(connection: &Connection, file: &Path) -> Result<(), StoreError> {
    let sql = "SELECT count(*) FROM pragma_table_info('drives') WHERE name = 'generation'";
    let is_there: bool = connection.query_row(sql, [], |row| row.get(0)).map_err(StoreError::sqlite(file))?;
    if is_there {
        return Ok(());
    }
    let state = with_generations(connection, file, Digest::of_form_2)?;
    put_digest(connection, file, &state)
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
    let state = rows::load(connection).map_err(StoreError::sqlite(file))?;
    let stored: Option<u32> = meta(connection, file, DIGEST)?;
    if stored.unwrap_or(digest(&State::before_everything()).0) != digest(&state).0 {
        return Err(StoreError::damaged(file, "its records don't have the checksum that was stored with them"));
    }
    Ok(state)
}

fn put_digest(connection: &Connection, file: &Path, state: &State) -> Result<(), StoreError> {
    put_meta(connection, DIGEST, &Digest::of(state).0).map_err(StoreError::sqlite(file))
}
