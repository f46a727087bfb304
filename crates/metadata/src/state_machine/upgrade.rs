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
    let mut state = rows::load(connection).map_err(StoreError::sqlite(file))?;
    let stored: Option<u32> = meta(connection, file, DIGEST)?;
    if stored.unwrap_or(Digest::of_form_1(&State::before_everything()).0) != Digest::of_form_1(&state).0 {
        return Err(StoreError::damaged(file, "its records don't have the checksum that was stored with them"));
    }
    let Some(last) = state.servers.keys().next_back() else { return Ok(()) };
    state.counters.server = last.0.saturating_add(1);
    let sql = "INSERT INTO counters (name, next) VALUES ('server', ?1)";
    let counted = connection.execute(sql, [state.counters.server]).map(drop);
    counted.and_then(|()| put_meta(connection, DIGEST, &Digest::of(&state).0)).map_err(StoreError::sqlite(file))
}
