//! The tables of `raft.db`.

use crate::consensus::{Entry, LeaderId, LogId, Payload, Vote};
use crate::database::{self, Kind, StoreError};
use crate::format::{self, EntryForm, EntryId, FormatError, VoteForm};
use crate::meta_table::{meta, put_meta};
use rusqlite::{Connection, OptionalExtension, params};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::{Path, PathBuf};
use tepal_model::{ClusterId, ServerId};

pub const FILE: &str = "raft.db";

pub const KIND: Kind = Kind {
    application: 0x5470_526c, // "TpRl"
    schema: "
        CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL, crc INTEGER NOT NULL) STRICT;
        CREATE TABLE log (
            entry INTEGER PRIMARY KEY, term INTEGER NOT NULL, value TEXT NOT NULL, crc INTEGER NOT NULL
        ) STRICT;
    ",
    steps: &[from_form_1],
};

const IDENTITY: &str = "identity";
const VOTE: &str = "vote";
const PURGED: &str = "purged";
const BOOT: &str = "boot";
/// The low bits of a boot number are random, so that two copies of a folder that are opened don't get the same.
const BOOT_CHANCE: u32 = 20;

/// Which server of which cluster this folder is, and what a cluster's first server needs to finish setting it up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    pub cluster: ClusterId,
    pub name: String,
    pub server: ServerId,
    /// Which of the server's data folders this is, from 0.
    pub incarnation: u32,
    /// The random number of this folder; 0 of the first server's.
    pub folder: u64,
    /// The random number of the cluster's last rebuild; 0 before the first.
    #[serde(default)]
    pub history: u64,
    pub address: String,
    pub created_unix_ms: u64,
    /// Who voted when this server joined, with their addresses; none if it began the cluster.
    pub joined: Option<Vec<(u64, String)>>,
}

/// Where the log begins and ends.
#[derive(Clone, Debug)]
pub struct LogSummary {
    pub purged: Option<LogId>,
    /// The last entry, or `purged` if there's none.
    pub last: Option<LogId>,
    /// The leader who wrote each entry that is there.
    pub leaders: BTreeMap<u64, LeaderId>,
    /// How many members the last entry about them names, if there is one.
    pub members: Option<usize>,
}

pub fn create(folder: &Path, identity: &Identity) -> Result<(), StoreError> {
    database::create(&folder.join(FILE), KIND, |connection| put_meta(connection, IDENTITY, identity))
}

/// One whose entries up to that one are in the state machine, and whose member led when it was agreed.
pub fn create_after(folder: &Path, identity: &Identity, first: &LogId) -> Result<(), StoreError> {
    let EntryId { term, node, .. } = first.into();
    database::create(&folder.join(FILE), KIND, |connection| {
        put_meta(connection, IDENTITY, identity)?;
        put_meta(connection, VOTE, &VoteForm { term, node, committed: true })?;
        put_meta(connection, PURGED, &EntryId::from(first))
    })
}

/// Form 1 was of clusters of one server, whose first folder it is.
fn from_form_1(connection: &Connection, file: &Path) -> Result<(), StoreError> {
    let identity: Option<serde_json::Value> = meta(connection, file, IDENTITY)?;
    let Some(serde_json::Value::Object(mut identity)) = identity else {
        return Err(StoreError::damaged(file, "it doesn't say whose it is"));
    };
    for (name, value) in [("incarnation", 0.into()), ("folder", 0.into()), ("joined", serde_json::Value::Null)] {
        identity.insert(name.to_owned(), value);
    }
    put_meta(connection, IDENTITY, &identity).map_err(StoreError::sqlite(file))
}

pub struct LogTable {
    file: PathBuf,
    connection: Connection,
}

impl LogTable {
    pub fn open(folder: &Path) -> Result<Self, StoreError> {
        let file = folder.join(FILE);
        let connection = database::open(&file, KIND)?;
        Ok(LogTable { file, connection })
    }

    pub fn identity(&self) -> Result<Identity, StoreError> {
        self.meta(IDENTITY)?.ok_or_else(|| StoreError::damaged(&self.file, "it doesn't say whose it is"))
    }

    /// Reads everything once.
    pub fn check(&mut self) -> Result<LogSummary, StoreError> {
        let (purged, last) = (self.purged()?, self.last()?);
        self.vote()?;
        let first = purged.map_or(0, |id| id.index + 1);
        let entries = self.entries(0, u64::MAX)?;
        for (index, entry) in (first..).zip(&entries) {
            if entry.log_id.index != index {
                let what = format!("entry {index} is missing, {} is there", entry.log_id.index);
                return Err(StoreError::damaged(&self.file, what));
            }
        }
        if entries.windows(2).any(|pair| pair[0].log_id.leader_id > pair[1].log_id.leader_id) {
            return Err(StoreError::damaged(&self.file, "its entries' terms go backwards"));
        }
        let leaders = entries.iter().map(|entry| (entry.log_id.index, entry.log_id.leader_id)).collect();
        let members = entries.iter().rev().find_map(|entry| match &entry.payload {
            Payload::Membership(members) => Some(members.nodes().count()),
            _ => None,
        });
        Ok(LogSummary { purged, last: last.or(purged), leaders, members })
    }

    /// Counts that the folder is opened once more.
    pub fn begin_boot(&mut self) -> Result<u64, StoreError> {
        let last: u64 = self.meta(BOOT)?.unwrap_or(0);
        let chance = RandomState::new().build_hasher().finish() & ((1 << BOOT_CHANCE) - 1);
        let boot = ((last >> BOOT_CHANCE) + 1) << BOOT_CHANCE | chance;
        self.sql(|connection| put_meta(connection, BOOT, &boot))?;
        Ok(boot)
    }

    pub fn vote(&self) -> Result<Option<Vote>, StoreError> {
        Ok(self.meta::<VoteForm>(VOTE)?.map(Vote::from))
    }

    pub fn save_vote(&mut self, vote: &Vote) -> Result<(), StoreError> {
        put_meta(&self.connection, VOTE, &VoteForm::from(vote)).map_err(StoreError::sqlite(&self.file))
    }

    pub fn purged(&self) -> Result<Option<LogId>, StoreError> {
        Ok(self.meta::<EntryId>(PURGED)?.map(LogId::from))
    }

    /// The last entry that is there.
    pub fn last(&self) -> Result<Option<LogId>, StoreError> {
        let sql = "SELECT entry, value, crc FROM log ORDER BY entry DESC LIMIT 1";
        let row = self.sql(|connection| connection.prepare_cached(sql)?.query_row([], raw_entry).optional())?;
        Ok(row.map(|raw| self.decode(raw)).transpose()?.map(|entry| entry.log_id))
    }

    /// The entries from `first` up to, not including, `end`.
    pub fn entries(&self, first: u64, end: u64) -> Result<Vec<Entry>, StoreError> {
        let sql = "SELECT entry, value, crc FROM log WHERE entry >= ?1 AND entry < ?2 ORDER BY entry";
        let bounds = [first, end].map(|index| index.min(i64::MAX as u64));
        let rows = self.sql(|connection| {
            let mut statement = connection.prepare_cached(sql)?;
            statement.query_map(bounds, raw_entry)?.collect::<rusqlite::Result<Vec<_>>>()
        })?;
        rows.into_iter().map(|raw| self.decode(raw)).collect()
    }

    /// On stable media when this returns.
    pub fn append(&mut self, entries: &[Entry]) -> Result<(), StoreError> {
        let transaction = self.connection.transaction().map_err(StoreError::sqlite(&self.file))?;
        let insert = |entry: &Entry| {
            let (text, crc) = format::encode(&entry.log_id.index.to_string(), &EntryForm::from(entry));
            let sql = "INSERT INTO log (entry, term, value, crc) VALUES (?1, ?2, ?3, ?4)";
            let row = params![entry.log_id.index, entry.log_id.leader_id.term, text, crc];
            transaction.prepare_cached(sql)?.execute(row)
        };
        for entry in entries {
            insert(entry).map_err(StoreError::sqlite(&self.file))?;
        }
        transaction.commit().map_err(StoreError::sqlite(&self.file))
    }

    /// Forgets what comes after `last`, which a new leader has replaced.
    pub fn truncate_after(&mut self, last: Option<u64>) -> Result<(), StoreError> {
        let first_gone = last.map_or(0, |index| index + 1);
        self.sql(|connection| connection.execute("DELETE FROM log WHERE entry >= ?1", [first_gone])).map(drop)
    }

    /// Forgets what comes before and at `upto`, which a snapshot holds.
    pub fn purge(&mut self, upto: &LogId) -> Result<(), StoreError> {
        let transaction = self.connection.transaction().map_err(StoreError::sqlite(&self.file))?;
        put_meta(&transaction, PURGED, &EntryId::from(upto))
            .and_then(|()| transaction.execute("DELETE FROM log WHERE entry <= ?1", [upto.index]))
            .and_then(|_| transaction.commit())
            .map_err(StoreError::sqlite(&self.file))
    }

    fn meta<T: DeserializeOwned>(&self, key: &str) -> Result<Option<T>, StoreError> {
        meta(&self.connection, &self.file, key)
    }

    fn decode(&self, (index, text, crc): (u64, String, u32)) -> Result<Entry, StoreError> {
        let form = format::decode_entry(&index.to_string(), &text, crc);
        match form.and_then(EntryForm::into_entry) {
            Ok(entry) if entry.log_id.index == index => Ok(entry),
            Ok(entry) => {
                Err(StoreError::damaged(&self.file, format!("entry {index} says it is {}", entry.log_id.index)))
            }
            Err(FormatError::NewerCommand(version)) => Err(StoreError::Newer {
                file: self.file.clone(),
                found: version.into(),
                known: crate::command::VERSION.into(),
            }),
            Err(error) => Err(StoreError::damaged(&self.file, format!("entry {index}: {error}"))),
        }
    }

    fn sql<R>(&self, body: impl FnOnce(&Connection) -> rusqlite::Result<R>) -> Result<R, StoreError> {
        body(&self.connection).map_err(StoreError::sqlite(&self.file))
    }
}

fn raw_entry(row: &rusqlite::Row<'_>) -> rusqlite::Result<(u64, String, u32)> {
    Ok((row.get(0)?, row.get(1)?, row.get(2)?))
}
