//! The table `meta` that each database of a data folder has: single values by name, each with a checksum.

use crate::database::StoreError;
use crate::format;
use rusqlite::{Connection, OptionalExtension, params};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::path::Path;

pub fn put_meta<T: Serialize>(connection: &Connection, key: &str, value: &T) -> rusqlite::Result<()> {
    let (text, crc) = format::encode(key, value);
    let mut statement =
        connection.prepare_cached("INSERT OR REPLACE INTO meta (key, value, crc) VALUES (?1, ?2, ?3)")?;
    statement.execute(params![key, text, crc]).map(drop)
}

pub fn meta<T: DeserializeOwned>(connection: &Connection, file: &Path, key: &str) -> Result<Option<T>, StoreError> {
    let read = |row: &rusqlite::Row<'_>| Ok((row.get::<_, String>(0)?, row.get::<_, u32>(1)?));
    let row = connection
        .prepare_cached("SELECT value, crc FROM meta WHERE key = ?1")
        .and_then(|mut statement| statement.query_row([key], read).optional())
        .map_err(StoreError::sqlite(file))?;
    let decode = |(text, crc): (String, u32)| {
        format::decode(key, &text, crc).map_err(|error| StoreError::damaged(file, format!("{key}: {error}")))
    };
    row.map(decode).transpose()
}
