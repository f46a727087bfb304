//! The one way in and out of this crate.

#[cfg(test)]
mod crash_tests;
#[cfg(test)]
mod damage_tests;
#[cfg(test)]
mod tests;

use crate::command::{Command, Proposal, Reply, VERSION};
use crate::consensus::{self, Types};
use crate::database::StoreError;
use crate::folder::{self, FolderError, Opened};
use crate::log_store::{Identity, LogStore};
use crate::network::NoPeers;
use crate::query::{Querier, QueryError, QueryLimits, Rows};
use crate::refusal::Refusal;
use crate::state::State;
use crate::state_machine::StateMachine;
use openraft::errors::{ClientWriteError, Fatal, RaftError};
use openraft::impls::BasicNode;
use openraft::type_config::async_runtime::watch::WatchReceiver;
use openraft::{Raft, ServerState};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tepal_model::{ClusterId, ServerId};
use tokio::sync::watch;

/// A server's part of the replicated state. Cheap to clone.
#[derive(Clone)]
pub struct Metadata {
    raft: Raft<Types, StateMachine>,
    log: LogStore,
    machine: StateMachine,
    querier: Querier,
    state: watch::Receiver<Arc<State>>,
}

/// What the consensus core or the database says, in types that stay in this crate.
pub type Cause = Box<dyn std::error::Error + Send + Sync>;

/// Why the state in a data folder can't be used. Nothing in it was changed.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each message says what it is")]
pub enum OpenError {
    /// Create it.
    #[error("{} holds no cluster's state", .0.display())]
    NotThere(PathBuf),
    /// Open it, or choose another folder.
    #[error("{} holds a cluster's state already", .0.display())]
    AlreadyThere(PathBuf),
    /// Stop the other process.
    #[error("{} is in use by another process: is this server running already?", .0.display())]
    Locked(PathBuf),
    /// Call an operator: restore the folder, or have the server rejoin as a new one.
    #[error("{} is damaged: {what}", .file.display())]
    Damaged { file: PathBuf, what: String },
    /// Use a newer build.
    #[error("{} was written by a newer version (format {found}, this build knows up to {known})", .file.display())]
    NewerFormat { file: PathBuf, found: i64, known: i64 },
    /// Fix the request.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// Free some space, then try again.
    #[error("the cluster's state can't be written: {lack}: free some space there")]
    NoRoom { lack: String },
    /// Fix the folder's permissions or device, then try again.
    #[error("{}: {cause}", .path.display())]
    Io { path: PathBuf, cause: Cause },
}

/// Why a command wasn't carried out, or can't be known to have been.
#[derive(Debug, thiserror::Error)]
pub enum ProposeError {
    /// Fix the request: nothing was changed.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// Ask that server, or again a little later: nothing was changed.
    #[error("this server doesn't lead the cluster now{}", leader.map(|id| format!(": {id} does")).unwrap_or_default())]
    NoLeader {
        /// Who leads, as far as is known here.
        leader: Option<ServerId>,
    },
    /// Look at the state, then ask again if need be: the leader changed while the command was under way.
    #[error("the leader changed meanwhile: whether the command was carried out must be looked up")]
    Unknown,
    /// Free some space. If the command has begun, it's carried out then.
    #[error("the cluster's state can't be written: {lack}: free some space there{}", if *.begun { BEGUN } else { "" })]
    NoRoom {
        /// Which file can't be written, and why.
        lack: String,
        /// Whether the command is in the log already.
        begun: bool,
    },
    /// Open it again: the server is stopping. Whether the command was carried out shows then.
    #[error("the server is stopping")]
    Stopped,
    /// Call an operator: the state can't be kept here any more. Whether the command was carried out shows after a
    /// restart.
    #[error("the cluster's state can't be stored: {0}")]
    Storage(Cause),
}

const BEGUN: &str = ", then see whether this was carried out";
/// The longest command, as JSON, in bytes.
const MAX_COMMAND: usize = 64 << 10;
/// How long a command may wait for room before its proposer is told.
const ROOM_WITHIN: Duration = Duration::from_secs(3);
/// A lone voter leads at once, unless its disk hangs.
const LEAD_WITHIN: Duration = Duration::from_secs(30);

impl Metadata {
    /// Makes a new cluster of one voter, this server, in `dir`, which must exist and hold none. `now_ms` is the wall
    /// clock.
    pub async fn create(
        dir: &Path,
        cluster: ClusterId,
        name: &str,
        server: ServerId,
        address: &str,
        now_ms: u64,
    ) -> Result<Self, OpenError> {
        let identity =
            Identity { cluster, name: name.to_owned(), server, address: address.to_owned(), created_unix_ms: now_ms };
        // What the state machine would refuse is refused before there is anything on disk.
        crate::state_machine::apply::apply(&State::before_everything(), &setup(&identity))?;
        let folder = dir.to_owned();
        blocking(dir, move || folder::create(&folder, &identity)).await?;
        Self::open(dir).await
    }

    /// Opens what [`Metadata::create`] made. Whatever was acknowledged before is in [`Metadata::state`] when this
    /// returns.
    pub async fn open(dir: &Path) -> Result<Self, OpenError> {
        let folder = dir.to_owned();
        let opened = blocking(dir, move || folder::open(&folder)).await?;
        let (log, machine) = (opened.log.clone(), opened.machine.clone());
        let started = Self::start(dir, opened).await;
        if started.is_err() {
            close(&log, &machine).await;
        }
        started
    }

    async fn start(dir: &Path, opened: Opened) -> Result<Self, OpenError> {
        let Opened { identity, log, machine, behind } = opened;
        let trouble = |cause: Cause| OpenError::Io { path: dir.to_owned(), cause };
        let id = consensus::node_id(identity.server);
        let config = consensus::config(&identity.name).validate().map_err(|error| trouble(error.into()))?;
        let raft = Raft::new(id, Arc::new(config), NoPeers, log.clone(), machine.clone())
            .await
            .map_err(|error| trouble(error.into()))?;
        let metadata = Metadata { querier: Querier::new(dir), state: machine.state(), raft, log, machine };
        if let Err(cause) = metadata.take_part(&identity, behind).await {
            let lack = metadata.lack_of_room();
            metadata.log.room().close();
            metadata.machine.room().close();
            let _ = metadata.raft.shutdown().await;
            return Err(lack.map_or_else(|| trouble(cause), |lack| OpenError::NoRoom { lack }));
        }
        tokio::spawn(tick_while_there_are_peers(metadata.raft.clone()));
        Ok(metadata)
    }

    /// Finishes setting the cluster up if that was interrupted. A lone voter then leads, and has applied its whole
    /// log.
    async fn take_part(&self, identity: &Identity, behind: bool) -> Result<(), Cause> {
        let id = consensus::node_id(identity.server);
        if !self.raft.is_initialized().await? {
            let members = BTreeMap::from([(id, BasicNode { addr: identity.address.clone() })]);
            self.raft.initialize(members).await?;
        }
        // Asked of the core itself: what it publishes may be a step behind, and a second election would depose the
        // first's winner.
        let position =
            self.raft.with_raft_state(|state| (state.membership_state.effective().nodes().count(), state.server_state));
        let (members, role) = position.await?;
        if members > 1 {
            return Ok(());
        }
        if !matches!(role, ServerState::Leader | ServerState::Candidate) {
            self.raft.trigger().elect(false).await?;
        }
        self.raft.wait(Some(LEAD_WITHIN)).current_leader(id, "a lone voter leads").await?;
        if behind {
            // A leader doesn't apply what it finds in its log until something of its own time is committed after it.
            self.raft.write_blank().await?;
        }
        if !self.state().is_set_up() {
            self.write(setup(identity)).await?;
        }
        Ok(())
    }

    /// Has the cluster carry out `command`. When this returns, the outcome is on stable media on a majority, and
    /// shows in [`Metadata::state`] of this server. Dropping the future doesn't stop the command. If there is no room for
    /// it, that is said after a few seconds.
    pub async fn propose(&self, command: Command) -> Result<Reply, ProposeError> {
        let bytes = serde_json::to_vec(&command).map_or(usize::MAX, |text| text.len());
        if bytes > MAX_COMMAND {
            return Err(Refusal::TooLong { bytes, limit: MAX_COMMAND }.into());
        }
        if let Some(lack) = self.lack_of_room() {
            return Err(ProposeError::NoRoom { lack, begun: false });
        }
        let mut writing = pin!(self.write(Proposal { version: VERSION, unix_ms: wall_clock_ms(), command }));
        loop {
            if let Ok(written) = tokio::time::timeout(ROOM_WITHIN, writing.as_mut()).await {
                return written;
            }
            if let Some(lack) = self.lack_of_room() {
                return Err(ProposeError::NoRoom { lack, begun: true });
            }
        }
    }

    /// What keeps this server's part of the state from being written now: commands wait until it can.
    pub fn lack_of_room(&self) -> Option<String> {
        self.log.room().lack().or_else(|| self.machine.room().lack())
    }

    async fn write(&self, proposal: Proposal) -> Result<Reply, ProposeError> {
        match self.raft.client_write(proposal).await {
            Ok(written) => Ok(written.data?),
            Err(RaftError::APIError(ClientWriteError::ForwardToLeader(forward))) => {
                Err(ProposeError::NoLeader { leader: forward.leader_id.and_then(consensus::server_id) })
            }
            Err(RaftError::APIError(ClientWriteError::LogEntryDiscarded(_))) => Err(ProposeError::Unknown),
            Err(RaftError::APIError(error)) => Err(ProposeError::Storage(error.into())),
            Err(RaftError::Fatal(Fatal::Stopped)) => Err(ProposeError::Stopped),
            Err(RaftError::Fatal(error)) => Err(ProposeError::Storage(error.into())),
        }
    }

    /// The latest state applied on this server.
    pub fn state(&self) -> Arc<State> {
        self.state.borrow().clone()
    }

    /// Changes whenever a command has been applied on this server.
    pub fn watch(&self) -> watch::Receiver<Arc<State>> {
        self.state.clone()
    }

    /// Runs one read-only SQL statement over this server's `cluster.db`.
    pub async fn query(&self, sql: &str, limits: QueryLimits) -> Result<Rows, QueryError> {
        self.querier.query(sql, limits).await
    }

    /// Returns when this server can't take part any more, with the reason: its storage failed. It should be stopped
    /// then.
    pub async fn failed(&self) -> ProposeError {
        let mut metrics = self.raft.metrics();
        loop {
            let running = metrics.borrow_watched().running_state.clone();
            match running {
                Err(Fatal::Stopped) => return ProposeError::Stopped,
                Err(error) => return ProposeError::Storage(error.into()),
                Ok(()) => {}
            }
            if metrics.changed().await.is_err() {
                return ProposeError::Stopped;
            }
        }
    }

    /// Stops taking part, and closes the databases. Other clones answer `Stopped` from now on.
    pub async fn shutdown(self) {
        self.log.room().close();
        self.machine.room().close();
        if let Err(error) = self.raft.shutdown().await {
            tracing::error!(%error, "the consensus core didn't stop cleanly");
        }
        self.querier.close().await;
        close(&self.log, &self.machine).await;
    }
}

async fn close(log: &LogStore, machine: &StateMachine) {
    log.close().await;
    machine.close().await;
}

/// The first command of a cluster.
fn setup(identity: &Identity) -> Proposal {
    let command = Command::InitCluster {
        id: identity.cluster,
        name: identity.name.clone(),
        server: identity.server,
        address: identity.address.clone(),
    };
    Proposal { version: VERSION, unix_ms: identity.created_unix_ms, command }
}

/// Heartbeats and elections have a point only while there are others; a lone voter shall use no CPU.
async fn tick_while_there_are_peers(raft: Raft<Types, StateMachine>) {
    let mut metrics = raft.server_metrics();
    loop {
        let members = metrics.borrow_watched().membership_config.nodes().count();
        raft.runtime_config().tick(members > 1);
        if metrics.changed().await.is_err() {
            return;
        }
    }
}

async fn blocking<R: Send + 'static>(
    dir: &Path,
    body: impl FnOnce() -> Result<R, FolderError> + Send + 'static,
) -> Result<R, OpenError> {
    match tokio::task::spawn_blocking(body).await {
        Ok(result) => Ok(result?),
        Err(error) => Err(OpenError::Io { path: dir.to_owned(), cause: error.into() }),
    }
}

/// Only written down for people, never decided upon.
fn wall_clock_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

impl From<FolderError> for OpenError {
    fn from(error: FolderError) -> Self {
        match error {
            FolderError::Locked(path) => OpenError::Locked(path),
            FolderError::NotThere(path) => OpenError::NotThere(path),
            FolderError::AlreadyThere(path) => OpenError::AlreadyThere(path),
            FolderError::Store(StoreError::Damaged { file, what }) => OpenError::Damaged { file, what },
            FolderError::Store(StoreError::Newer { file, found, known }) => {
                OpenError::NewerFormat { file, found, known }
            }
            FolderError::Store(StoreError::Sqlite { file, source }) => {
                OpenError::Io { path: file, cause: source.into() }
            }
            FolderError::Store(StoreError::File { file, source }) => OpenError::Io { path: file, cause: source.into() },
            FolderError::Store(StoreError::Stopped) => {
                OpenError::Io { path: PathBuf::new(), cause: StoreError::Stopped.into() }
            }
        }
    }
}
