//! The one way in and out of this crate.
//!
//! What waits comes in a box: a future that the caller could see into would be compiled again, with the consensus core, in each crate
//! that waits for it.

#[cfg(test)]
mod crash_tests;
#[cfg(test)]
mod damage_tests;
#[cfg(test)]
mod form_tests;
pub mod propose;
#[cfg(test)]
mod tests;

use crate::command::{Command, Proposal, Reply};
use crate::consensus;
use crate::database::StoreError;
use crate::folder::{self, FolderError, Opened};
use crate::leases::held::Lease;
use crate::leases::{Tick, keeper, watchman};
use crate::log_store::{Identity, LogStore};
use crate::member::Member;
use crate::members::join::{self, JoinError, JoinRequest};
use crate::members::{begin, housekeeping};
use crate::peers::Caller;
use crate::peers::message::Sender;
use crate::peers::network::Peers;
use crate::peers::snapshot::Arriving;
use crate::peers::witness::Witness;
use crate::proposals::Proposals;
use crate::query::{Querier, QueryError, QueryLimits, Rows};
use crate::record::ServerState;
use crate::refusal::Refusal;
use crate::state::State;
use crate::state_machine::StateMachine;
use crate::timing::Surroundings;
use futures_util::future::BoxFuture;
use openraft::errors::Fatal;
use openraft::impls::BasicNode;
use openraft::type_config::async_runtime::watch::WatchReceiver;
use openraft::{Raft, ServerState as Role};
use propose::ProposeError;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tepal_model::{ClusterId, ServerId};
use tokio::sync::watch;

/// A server's part of the replicated state. Cheap to clone.
#[derive(Clone)]
pub struct Metadata {
    pub(crate) member: Arc<Member>,
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

/// A lone voter leads at once, unless its disk hangs.
const LEAD_WITHIN: Duration = Duration::from_secs(30);

/// How long the state may become, as it's saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateLimit {
    /// Bytes.
    pub bytes: u64,
    /// How long it is.
    pub used: u64,
}

impl Metadata {
    /// Makes a new cluster of one voter, this server, in `dir`, which must exist and hold none. `now_ms` is the wall
    /// clock.
    pub fn create<'a>(
        dir: &'a Path,
        cluster: ClusterId,
        name: &'a str,
        server: ServerId,
        address: &'a str,
        now_ms: u64,
    ) -> BoxFuture<'a, Result<Self, OpenError>> {
        Box::pin(async move {
            Self::found(dir, cluster, name, server, address, now_ms).await?;
            Self::open(dir).await
        })
    }

    /// Makes the folder of a new cluster's first server, as [`Metadata::create`] does, to be opened.
    pub fn found<'a>(
        dir: &'a Path,
        cluster: ClusterId,
        name: &'a str,
        server: ServerId,
        address: &'a str,
        now_ms: u64,
    ) -> BoxFuture<'a, Result<(), OpenError>> {
        Box::pin(async move {
            let identity = Identity {
                cluster,
                name: name.to_owned(),
                server,
                incarnation: 0,
                folder: 0,
                history: 0,
                address: address.to_owned(),
                created_unix_ms: now_ms,
                joined: None,
            };
            // What the state machine would refuse is refused before there is anything on disk.
            crate::state_machine::apply::apply(&State::before_everything(), &setup(&identity))?;
            let folder = dir.to_owned();
            blocking(dir, move || folder::create(&folder, &identity)).await
        })
    }

    /// Has a server with the empty folder `dir` join a cluster. It's a server of the cluster when this returns, and catches
    /// up meanwhile: [`Metadata::wait_for_its_place`] waits for that.
    pub fn join<'a>(
        dir: &'a Path,
        request: &'a JoinRequest,
        surroundings: Surroundings,
    ) -> BoxFuture<'a, Result<Self, JoinError>> {
        Box::pin(async move {
            join::join(dir, request, &*surroundings.transport).await?;
            Ok(Self::open_among(dir, surroundings).await?)
        })
    }

    /// Opens the folder of a server that has no others, as [`Metadata::open_among`] does.
    pub fn open(dir: &Path) -> BoxFuture<'_, Result<Self, OpenError>> {
        Box::pin(async move { Self::open_among(dir, Surroundings::alone()).await })
    }

    /// Opens what [`Metadata::found`] or [`Metadata::join`] made. Of a server that is alone, whatever was acknowledged
    /// before is in [`Metadata::state`] when this returns. Among others it takes part once [`Metadata::answer`] serves
    /// them and they have vouched for it.
    pub fn open_among(dir: &Path, surroundings: Surroundings) -> BoxFuture<'_, Result<Self, OpenError>> {
        Box::pin(async move {
            let folder = dir.to_owned();
            let opened = blocking(dir, move || folder::open(&folder)).await?;
            let (log, machine) = (opened.log.clone(), opened.machine.clone());
            let started = Self::start(dir, opened, surroundings).await;
            if started.is_err() {
                close(&log, &machine).await;
            }
            started
        })
    }

    async fn start(dir: &Path, opened: Opened, surroundings: Surroundings) -> Result<Self, OpenError> {
        let Opened { identity, boot, log, machine, behind, members } = opened;
        let trouble = |cause: Cause| OpenError::Io { path: dir.to_owned(), cause };
        let (server, incarnation) = (identity.server, identity.incarnation);
        let node = consensus::node_id(server, incarnation);
        let config = consensus::config(&identity.name, &surroundings.timing);
        let config = config.validate().map_err(|error| trouble(error.into()))?;
        surroundings.transport.introduce(caller(&identity, boot));
        let peers = Arc::new(Peers {
            cluster: identity.cluster,
            me: Sender { node, boot, history: identity.history },
            transport: surroundings.transport.clone(),
            state: machine.state(),
            witness: Witness::default(),
            expelled: watch::Sender::new(None),
            apart: Mutex::default(),
        });
        let raft = Raft::new(node, Arc::new(config), peers.clone(), log.clone(), machine.clone())
            .await
            .map_err(|error| trouble(error.into()))?;
        let member = Member {
            opened_alone: identity.joined.is_none() && members <= 1,
            identity,
            boot,
            node,
            raft,
            log,
            querier: Querier::new(dir),
            state: machine.state(),
            machine,
            peers,
            surroundings,
            proposals: Proposals::new(server, incarnation, boot),
            vouched: watch::Sender::new(false),
            lease: watch::Sender::new(Lease::None),
            acts_by: watch::Sender::new(None),
            state_limit: watch::Sender::new(None),
            leading: Mutex::default(),
            granted: watch::Sender::default(),
            confirmed: tokio::sync::Mutex::default(),
            adopted_by_all: tokio::sync::Mutex::default(),
            arriving: tokio::sync::Mutex::new(Arriving::new(dir)),
            tasks: Mutex::default(),
        };
        let metadata = Metadata { member: Arc::new(member) };
        if metadata.member.opened_alone
            && let Err(cause) = metadata.lead_alone(behind).await
        {
            let lack = metadata.lack_of_room();
            metadata.member.log.room().close();
            metadata.member.machine.room().close();
            let _ = metadata.member.raft.shutdown().await;
            return Err(lack.map_or_else(|| trouble(cause), |lack| OpenError::NoRoom { lack }));
        }
        metadata.begin();
        Ok(metadata)
    }

    /// Finishes setting the cluster up if that was interrupted. A lone voter then leads, and has applied its whole
    /// log.
    async fn lead_alone(&self, behind: bool) -> Result<(), Cause> {
        let Member { raft, node, identity, .. } = &*self.member;
        if !raft.is_initialized().await? {
            let members = BTreeMap::from([(*node, BasicNode { addr: identity.address.clone() })]);
            raft.initialize(members).await?;
        }
        // Asked of the core itself: what it publishes may be a step behind, and a second election would depose the
        // first's winner.
        let role = raft.with_raft_state(|state| state.server_state).await?;
        if !matches!(role, Role::Leader | Role::Candidate) {
            raft.trigger().elect(false).await?;
        }
        raft.wait(Some(LEAD_WITHIN)).current_leader(*node, "a lone voter leads").await?;
        if behind {
            // A leader doesn't apply what it finds in its log until something of its own time is committed after it.
            raft.write_blank().await?;
        }
        if !self.state().is_set_up() {
            self.member.set_up(setup(identity)).await?;
        }
        self.member.vouched.send_replace(true);
        self.member.lease.send_replace(Lease::Alone);
        Ok(())
    }

    fn begin(&self) {
        let member = &self.member;
        member.spawn(tick_while_there_are_peers(member.clone()));
        member.spawn(keeper::keep(member.clone()));
        member.spawn(watchman::watch(member.clone()));
        member.spawn(housekeeping::keep_house(member.clone()));
        member.spawn(begin::notice_removal(member.clone()));
        if !member.opened_alone {
            let member = member.clone();
            self.member.spawn(async move {
                begin::be_vouched_for(&member).await;
                begin::announce(&member).await;
            });
        }
    }

    /// This server's answer to what another one asked by its [`Transport`](crate::Transport). `from` is where it came
    /// from, for the log.
    pub fn answer<'a>(&'a self, from: &'a str, request: &'a [u8]) -> BoxFuture<'a, Vec<u8>> {
        Box::pin(async move { crate::peers::answer::answer(&self.member, from, request).await })
    }

    /// Has the cluster carry out `command`, once. When this returns, the outcome is on stable media on a majority, and
    /// shows in [`Metadata::state`] of this server. Dropping the future doesn't stop the command. If there is no room for
    /// it, or no majority, that is said after a few seconds. What was said not to be done is never done later.
    pub fn propose(&self, command: Command) -> BoxFuture<'_, Result<Reply, ProposeError>> {
        Box::pin(async move {
            self.check_length(&command)?;
            self.member.propose_in_touch(command).await
        })
    }

    /// Returns once this server reaches a majority of those that vote. If that takes longer than a few seconds, commands would be
    /// refused for
    /// it, and this says why.
    pub fn get_in_touch(&self) -> BoxFuture<'_, Result<(), ProposeError>> {
        Box::pin(async move { self.member.get_in_touch().await })
    }

    /// Returns once all that was agreed before this was called shows in [`Metadata::state`] of this server. If that takes longer than a
    /// few seconds, as it reaches no majority of those that vote, this says so.
    pub fn catch_up(&self) -> BoxFuture<'_, Result<(), ProposeError>> {
        Box::pin(async move { self.member.catch_up().await })
    }

    /// What makes the copy of the state that drives keep ([`State::to_copy`]) longer is refused from now on.
    pub fn limit_state(&self, limit: Option<StateLimit>) {
        self.member.state_limit.send_replace(limit);
    }

    fn check_length(&self, command: &Command) -> Result<(), Refusal> {
        let limit = self.member.state_limit.borrow().filter(|_| command.lengthens());
        // No command is half of it: most needn't be looked at, which takes long where the state is.
        let Some(StateLimit { bytes: limit, .. }) = limit.filter(|limit| limit.used > limit.bytes / 2) else {
            return Ok(());
        };
        let proposal = Proposal::new(0, None, command.clone());
        // What is refused by the state is for whoever leads to say.
        let Ok(applied) = crate::state_machine::apply::apply(&self.state(), &proposal) else { return Ok(()) };
        let needed = applied.state.to_copy().len() as u64;
        if needed > limit { Err(Refusal::StateTooLong { needed, limit }) } else { Ok(()) }
    }

    /// What keeps this server's part of the state from being written now: commands wait until it can.
    pub fn lack_of_room(&self) -> Option<String> {
        self.member.lack_of_room()
    }

    /// Which server of the cluster this is.
    pub fn server(&self) -> ServerId {
        self.member.identity.server
    }

    /// How this process shows itself to others.
    pub fn caller(&self) -> Caller {
        caller(&self.member.identity, self.member.boot)
    }

    /// The server that leads the metadata now, as far as this one knows.
    pub fn leader(&self) -> Option<ServerId> {
        self.member.leader().and_then(consensus::server_id)
    }

    /// The servers of which a majority decides, as far as this one knows.
    pub fn voters(&self) -> BTreeSet<ServerId> {
        self.member.voters().into_iter().flatten().filter_map(consensus::server_id).collect()
    }

    /// The latest state applied on this server. Before a server that joins has caught up, it's empty.
    pub fn state(&self) -> Arc<State> {
        self.member.state()
    }

    /// Whether the command would be carried out as things stand. Nothing is changed.
    pub fn check(&self, command: &Command) -> Result<(), Refusal> {
        let proposal = Proposal::new(0, None, command.clone());
        crate::state_machine::apply::apply(&self.state(), &proposal).map(drop)
    }

    /// Changes whenever a command has been applied on this server.
    pub fn watch(&self) -> watch::Receiver<Arc<State>> {
        self.member.state.clone()
    }

    /// For how long a server may serve unheard, as agreed: others take over soon after that.
    pub fn lease_length(&self) -> Duration {
        self.member.term().length
    }

    /// What this server may do now. Compare it with [`Metadata::now`], again after every wait.
    pub fn lease(&self) -> Lease {
        if self.member.is_expelled() {
            return Lease::None;
        }
        let lease = *self.member.lease.borrow();
        match self.member.record() {
            Some(record) if record.state == ServerState::Down && lease != Lease::None => {
                Lease::Down { view: record.state_view }
            }
            _ => lease,
        }
    }

    /// This server does nothing any more by an earlier view than this: with it, it asks for leases. To be told before anything is
    /// done by a state, and whenever a later one is followed. Until it's told, nothing is done, and whatever is known here counts.
    pub fn act_by(&self, view: u64) {
        self.member.acts_by.send_replace(Some(view));
    }

    /// By the clock that leases are counted by.
    pub fn now(&self) -> Tick {
        self.member.now()
    }

    /// Returns once this process has taken its place: its folder is vouched for, and its server up.
    pub fn wait_for_its_place(&self) -> BoxFuture<'_, Result<(), ProposeError>> {
        Box::pin(async move {
            let ready = async {
                let mut state = self.watch();
                let _ = self.member.vouched.subscribe().wait_for(|vouched| *vouched).await;
                let member = &self.member;
                let told = || member.opened_alone || member.record().is_some_and(|record| record.boot == member.boot);
                while !told() && state.changed().await.is_ok() {}
            };
            tokio::select! {
                () = ready => Ok(()),
                why = self.failed() => Err(why),
            }
        })
    }

    /// Has the cluster agree that this server, which it had declared down, is up again. To be called once the server
    /// has let go of everything it did in earlier views.
    pub fn return_to_service(&self) -> BoxFuture<'_, Result<(), ProposeError>> {
        Box::pin(async move {
            let Some(record) = self.member.record() else { return Ok(()) };
            if record.state == ServerState::Up {
                return Ok(());
            }
            let (id, reason) = (record.id, "it is back".to_owned());
            let expected_view = Some(record.state_view);
            self.propose(Command::SetServerState { id, to: ServerState::Up, reason, expected_view }).await.map(drop)
        })
    }

    /// Returns once no other server acts in a view before `view` any more: each has adopted it, or holds no lease of an
    /// earlier one.
    pub fn adopted_everywhere(&self, view: u64) -> BoxFuture<'_, Result<(), ProposeError>> {
        Box::pin(async move {
            // One asks at a time, on behalf of all that wait here: there may be as many as volumes.
            let mut adopted = self.member.adopted_by_all.lock().await;
            if *adopted >= view {
                return Ok(());
            }
            tokio::select! {
                () = keeper::adopted_by_all(&self.member, view) => {
                    *adopted = view;
                    Ok(())
                }
                why = self.failed() => Err(why),
            }
        })
    }

    /// Runs one read-only SQL statement over this server's `cluster.db`.
    pub fn query<'a>(&'a self, sql: &'a str, limits: QueryLimits) -> BoxFuture<'a, Result<Rows, QueryError>> {
        Box::pin(async move { self.member.querier.query(sql, limits).await })
    }

    /// Returns when this server can't take part any more, with the reason: its storage failed, or the cluster goes on
    /// without it. It should be stopped then.
    pub fn failed(&self) -> BoxFuture<'_, ProposeError> {
        Box::pin(async move {
            let mut metrics = self.member.raft.metrics();
            let mut expelled = self.member.peers.expelled.subscribe();
            loop {
                if let Some(why) = &*expelled.borrow_and_update() {
                    return ProposeError::Expelled(why.to_string());
                }
                let running = metrics.borrow_watched().running_state.clone();
                match running {
                    Err(Fatal::Stopped) => return ProposeError::Stopped,
                    Err(error) => return ProposeError::Storage(error.into()),
                    Ok(()) => {}
                }
                tokio::select! {
                    changed = metrics.changed() => if changed.is_err() { return ProposeError::Stopped },
                    _ = expelled.changed() => {}
                }
            }
        })
    }

    /// Stops taking part, and closes the databases. Other clones answer `Stopped` from now on.
    pub fn shutdown(self) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            self.member.end_tasks();
            self.member.log.room().close();
            self.member.machine.room().close();
            if let Err(error) = self.member.raft.shutdown().await {
                tracing::error!(%error, "the consensus core didn't stop cleanly");
            }
            self.member.querier.close().await;
            close(&self.member.log, &self.member.machine).await;
        })
    }
}

async fn close(log: &LogStore, machine: &StateMachine) {
    log.close().await;
    machine.close().await;
}

/// A server's boots are counted anew in each data folder, and there are not 2^48 of them.
fn caller(identity: &Identity, boot: u64) -> Caller {
    let run = u64::from(identity.incarnation) << 48 | boot & ((1 << 48) - 1);
    Caller { cluster: identity.cluster, server: identity.server, run }
}

/// The first command of a cluster.
fn setup(identity: &Identity) -> Proposal {
    let command = Command::InitCluster {
        id: identity.cluster,
        name: identity.name.clone(),
        server: identity.server,
        address: identity.address.clone(),
    };
    Proposal::new(identity.created_unix_ms, None, command)
}

/// Heartbeats and elections have a point only while there are others, who have vouched for this server; a lone voter
/// shall use no CPU.
async fn tick_while_there_are_peers(member: Arc<Member>) {
    let mut metrics = member.raft.server_metrics();
    let (mut vouched, mut expelled) = (member.vouched.subscribe(), member.peers.expelled.subscribe());
    loop {
        let members = metrics.borrow_watched().membership_config.nodes().count();
        member.raft.runtime_config().tick(members > 1 && *vouched.borrow_and_update() && !member.is_expelled());
        let changed = tokio::select! {
            changed = metrics.changed() => changed.is_ok(),
            changed = vouched.changed() => changed.is_ok(),
            changed = expelled.changed() => changed.is_ok(),
        };
        if !changed {
            return;
        }
    }
}

pub async fn blocking<R: Send + 'static>(
    dir: &Path,
    body: impl FnOnce() -> Result<R, FolderError> + Send + 'static,
) -> Result<R, OpenError> {
    match tokio::task::spawn_blocking(body).await {
        Ok(result) => Ok(result?),
        Err(error) => Err(OpenError::Io { path: dir.to_owned(), cause: error.into() }),
    }
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
