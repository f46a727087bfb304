//! `cluster.db` and the state read from it, on the thread that owns them.

use super::apply::Change;
use super::apply::once::{self, Answered, Outcome, Proposers};
use super::apply::requests::{DoneRequest, Requests};
use super::digest::Digest;
use super::rows;
use super::schema::{FILE, KIND};
use crate::command::Proposal;
use crate::consensus::{Answer, LogId, Payload, SnapshotMeta, StoredMembership};
use crate::database::{self, StoreError};
use crate::format::{self, EntryId, MembershipForm};
use crate::meta_table::{meta, put_meta};
use crate::state::State;
use rusqlite::{Connection, params};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::watch;

const APPLIED: &str = "applied";
const MEMBERSHIP: &str = "membership";
pub(super) const DIGEST: &str = "digest";
/// The last entry of the snapshot that was last installed here: the log may rightly end before it.
const INSTALLED: &str = "installed";
/// The rebuilds of the cluster.
const REBUILDS: &str = "lost";

pub struct Machine {
    pub(super) folder: PathBuf,
    pub(super) file: PathBuf,
    pub(super) connection: Connection,
    /// What the database holds, always.
    pub(super) content: Content,
    pub(super) published: watch::Sender<Arc<State>>,
}

/// Everything that a database or a snapshot of it holds.
#[derive(Clone)]
pub struct Content {
    pub state: Arc<State>,
    pub applied: Option<LogId>,
    pub membership: StoredMembership,
    pub installed: Option<LogId>,
    pub(super) proposers: Proposers,
    pub(super) requests: Arc<Requests>,
    pub(super) digest: Digest,
}

impl Content {
    pub fn snapshot_meta(&self) -> SnapshotMeta {
        SnapshotMeta { last_log_id: self.applied, last_membership: self.membership.clone() }
    }

    /// Reads and checks all of it.
    pub fn load(connection: &Connection, file: &Path) -> Result<Content, StoreError> {
        let mut state = rows::load(connection).map_err(StoreError::sqlite(file))?;
        let digest = Digest::of(&state);
        state.rebuilds = Arc::new(meta(connection, file, REBUILDS)?.unwrap_or_default());
        let stored: Option<u32> = meta(connection, file, DIGEST)?;
        let membership: Option<MembershipForm> = meta(connection, file, MEMBERSHIP)?;
        let applied: Option<EntryId> = meta(connection, file, APPLIED)?;
        let installed: Option<EntryId> = meta(connection, file, INSTALLED)?;
        let blank = Digest::of(&State::before_everything()).0;
        if stored.unwrap_or(blank) != digest.0 {
            return Err(StoreError::damaged(file, "its records don't have the checksum that was stored with them"));
        }
        let membership = membership.map(StoredMembership::try_from).transpose();
        Ok(Content {
            state: Arc::new(state),
            applied: applied.map(LogId::from),
            membership: membership.map_err(|error| StoreError::damaged(file, error))?.unwrap_or_default(),
            installed: installed.map(LogId::from),
            proposers: load_proposers(connection, file)?,
            requests: Arc::new(load_requests(connection, file)?),
            digest,
        })
    }
}

pub fn create(folder: &Path) -> Result<(), StoreError> {
    database::create(&folder.join(FILE), KIND, |_| Ok(()))
}

/// Makes one that holds this state as that after its first entry, with one member; and the snapshot of that, which others begin with.
pub fn create_with(folder: &Path, state: &State, first: LogId, members: StoredMembership) -> Result<(), StoreError> {
    let fill = |connection: &Connection| {
        let nothing = State::before_everything();
        rows::write(connection, &rows::all_of(state), &nothing.counters, &state.counters)?;
        for key in [APPLIED, INSTALLED] {
            put_meta(connection, key, &Some(EntryId::from(&first)))?;
        }
        put_meta(connection, MEMBERSHIP, &MembershipForm::from(&members))?;
        put_meta(connection, REBUILDS, &*state.rebuilds)?;
        put_meta(connection, DIGEST, &Digest::of(state).0)
    };
    for file in [FILE, super::snapshot::FILE] {
        database::create(&folder.join(file), KIND, fill)?;
    }
    Ok(())
}

/// Reads what a folder's state machine holds, and changes nothing.
pub fn read(folder: &Path) -> Result<Content, StoreError> {
    let file = folder.join(FILE);
    let connection = database::open_still(&file)?;
    database::check(&connection, &file, KIND)?;
    Content::load(&connection, &file)
}

impl Machine {
    pub fn open(folder: &Path) -> Result<Self, StoreError> {
        let file = folder.join(FILE);
        let connection = database::open(&file, KIND)?;
        let content = Content::load(&connection, &file)?;
        let (published, _) = watch::channel(content.state.clone());
        Ok(Machine { folder: folder.to_owned(), file, connection, content, published })
    }

    pub fn content(&self) -> &Content {
        &self.content
    }

    /// Applies one entry in one transaction, which also says that it was applied.
    pub fn apply(&mut self, id: LogId, payload: &Payload) -> Result<Answer, StoreError> {
        let mut next = self.content.clone();
        next.applied = Some(id);
        let outcome = match payload {
            Payload::Blank => Outcome::of_consensus(),
            Payload::Membership(membership) => {
                next.membership = StoredMembership::new(Some(id), membership.clone());
                Outcome::of_consensus()
            }
            Payload::Normal(proposal) => self.carry_out(proposal)?,
        };
        if let Some(state) = &outcome.state {
            next.digest = self.content.digest.after(&self.content.state, &outcome.changes, &state.counters);
            next.state = Arc::new(state.clone());
        }
        next.proposers.retain(|server, _| !outcome.forgotten.contains(server));
        next.proposers.extend(outcome.answered.iter().map(|answered| (answered.server, answered.clone())));
        if let Some(request) = &outcome.request {
            let requests = Arc::make_mut(&mut next.requests);
            outcome.forgotten_keys.iter().for_each(|key| requests.forget(key));
            requests.put(request.clone());
        }
        self.store(&next, &outcome).map_err(StoreError::sqlite(&self.file))?;
        let changed = outcome.state.is_some();
        self.content = next;
        if changed {
            self.publish();
        }
        Ok(outcome.answer)
    }

    fn carry_out(&self, proposal: &Proposal) -> Result<Outcome, StoreError> {
        if proposal.version > crate::command::VERSION {
            // A server that skipped it would drift from the others for good.
            return Err(StoreError::Newer {
                file: self.file.clone(),
                found: proposal.version.into(),
                known: crate::command::VERSION.into(),
            });
        }
        Ok(once::carry_out(&self.content.state, &self.content.proposers, &self.content.requests, proposal))
    }

    fn store(&mut self, next: &Content, outcome: &Outcome) -> rusqlite::Result<()> {
        let changes: &[Change] = &outcome.changes;
        let transaction = self.connection.transaction()?;
        rows::write(&transaction, changes, &self.content.state.counters, &next.state.counters)?;
        put_meta(&transaction, APPLIED, &next.applied.as_ref().map(EntryId::from))?;
        if next.membership != self.content.membership {
            put_meta(&transaction, MEMBERSHIP, &MembershipForm::from(&next.membership))?;
        }
        if !changes.is_empty() {
            put_meta(&transaction, DIGEST, &next.digest.0)?;
        }
        for server in &outcome.forgotten {
            transaction.prepare_cached("DELETE FROM proposers WHERE server = ?1")?.execute([server.to_string()])?;
        }
        if let Some(answered) = &outcome.answered {
            let (key, value) = (answered.server.to_string(), &**answered);
            let (text, crc) = format::encode(&key, value);
            let sql = "INSERT OR REPLACE INTO proposers (server, value, crc) VALUES (?1, ?2, ?3)";
            transaction.prepare_cached(sql)?.execute(params![key, text, crc])?;
        }
        for key in &outcome.forgotten_keys {
            transaction.prepare_cached("DELETE FROM requests WHERE key = ?1")?.execute([key])?;
        }
        if let Some(request) = &outcome.request {
            let (text, crc) = format::encode(&request.key, &**request);
            let sql = "INSERT OR REPLACE INTO requests (key, value, crc) VALUES (?1, ?2, ?3)";
            transaction.prepare_cached(sql)?.execute(params![request.key, text, crc])?;
        }
        transaction.commit()
    }

    pub(super) fn publish(&self) {
        self.published.send_replace(self.content.state.clone());
    }
}

/// Notes in a snapshot's copy that it was installed.
pub(super) fn mark_installed(connection: &Connection, content: &mut Content) -> rusqlite::Result<()> {
    content.installed = content.applied;
    put_meta(connection, INSTALLED, &content.installed.as_ref().map(EntryId::from))
}

fn load_proposers(connection: &Connection, file: &Path) -> Result<Proposers, StoreError> {
    let rows = || {
        let mut statement = connection.prepare_cached("SELECT server, value, crc FROM proposers")?;
        statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?.collect::<rusqlite::Result<_>>()
    };
    let rows: Vec<(String, String, u32)> = rows().map_err(StoreError::sqlite(file))?;
    let mut proposers = Proposers::new();
    for (server, text, crc) in rows {
        let damaged = |error| StoreError::damaged(file, format!("what server {server} proposed: {error}"));
        let answered: Answered = format::decode(&server, &text, crc).map_err(damaged)?;
        proposers.insert(answered.server, Arc::new(answered));
    }
    Ok(proposers)
}

fn load_requests(connection: &Connection, file: &Path) -> Result<Requests, StoreError> {
    let rows = || {
        let mut statement = connection.prepare_cached("SELECT key, value, crc FROM requests")?;
        statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?.collect::<rusqlite::Result<_>>()
    };
    let rows: Vec<(String, String, u32)> = rows().map_err(StoreError::sqlite(file))?;
    let mut requests = Requests::default();
    for (key, text, crc) in rows {
        let damaged = |error| StoreError::damaged(file, format!("what was done under a client's key: {error}"));
        let request: DoneRequest = format::decode(&key, &text, crc).map_err(damaged)?;
        requests.put(Arc::new(request));
    }
    Ok(requests)
}
