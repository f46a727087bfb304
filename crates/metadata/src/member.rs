//! What this process is in the cluster: its consensus core, its databases, and everything that its tasks share.

use crate::consensus::{self, LeaderId, LogId, Types};
use crate::facade::StateLimit;
use crate::leases::held::Lease;
use crate::leases::watchman::Leading;
use crate::leases::{Term, Tick};
use crate::log_store::{Identity, LogStore};
use crate::peers::message::{Answer, Request};
use crate::peers::network::{CallError, Peers};
use crate::peers::snapshot::Arriving;
use crate::proposals::Proposals;
use crate::query::Querier;
use crate::record::ServerRecord;
use crate::state::State;
use crate::state_machine::StateMachine;
use crate::timing::Surroundings;
use openraft::type_config::async_runtime::watch::WatchReceiver;
use openraft::{Raft, ReadPolicy, ServerState};
use std::collections::BTreeSet;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::AbortHandle;

pub struct Member {
    pub identity: Identity,
    pub boot: u64,
    pub node: u64,
    /// Whether there was no other server when the folder was opened: nobody took over anything meanwhile.
    pub opened_alone: bool,
    pub raft: Raft<Types, StateMachine>,
    pub log: LogStore,
    pub machine: StateMachine,
    pub querier: Querier,
    pub state: watch::Receiver<Arc<State>>,
    pub peers: Arc<Peers>,
    pub surroundings: Surroundings,
    pub proposals: Proposals,
    /// Whether the others vouched for what this folder remembers: only then it takes part.
    pub vouched: watch::Sender<bool>,
    pub lease: watch::Sender<Lease>,
    /// The view that this server acts by; none while nobody acts by any, and the state counts that is known here.
    pub acts_by: watch::Sender<Option<u64>>,
    /// So many bytes the state that is saved may have.
    pub state_limit: watch::Sender<Option<StateLimit>>,
    pub leading: Mutex<Option<Leading>>,
    /// Counts the leases that were granted.
    pub granted: watch::Sender<u64>,
    pub confirmed: tokio::sync::Mutex<Option<Confirmed>>,
    /// In views before this one no other server acts any more. Whoever asks for a later one holds it locked.
    pub adopted_by_all: tokio::sync::Mutex<u64>,
    pub arriving: tokio::sync::Mutex<Arriving>,
    pub tasks: Mutex<Vec<AbortHandle>>,
}

/// A majority confirmed, after `asked`, that this server leads; and all that it had agreed upon then.
#[derive(Clone, Copy, Debug)]
pub struct Confirmed {
    pub asked: Tick,
    pub leader: LeaderId,
    pub index: u64,
}

/// This server doesn't lead, as far as it knows.
#[derive(Debug)]
pub struct DoesNotLead;

impl Member {
    pub fn now(&self) -> Tick {
        (self.surroundings.clock)()
    }

    pub fn state(&self) -> Arc<State> {
        self.state.borrow().clone()
    }

    /// The view that this server acts by: in earlier ones it does nothing any more.
    pub fn adopted(&self) -> u64 {
        // In this order: who begins to act does so by this state or a later one.
        let known = self.state.borrow().view();
        self.acts_by.borrow().unwrap_or(known)
    }

    /// This server's record, if it's of this folder.
    pub fn record(&self) -> Option<Arc<ServerRecord>> {
        let record = self.state.borrow().servers.get(&self.identity.server).cloned();
        record.filter(|record| record.incarnation == self.identity.incarnation)
    }

    pub fn leader(&self) -> Option<u64> {
        self.raft.server_metrics().borrow_watched().current_leader
    }

    /// The time of leadership that this server believes to be in.
    pub fn leads(&self) -> Option<LeaderId> {
        let metrics = self.raft.server_metrics();
        let metrics = metrics.borrow_watched();
        (metrics.state == ServerState::Leader).then_some(metrics.vote.leader_id)
    }

    /// Whether this server is the only member there is, and nothing else is under way.
    pub fn is_alone(&self) -> bool {
        let metrics = self.raft.server_metrics();
        let metrics = metrics.borrow_watched();
        [&metrics.membership_config, &metrics.committed_membership_config].iter().all(|membership| {
            membership.nodes().count() == 1 && membership.voter_ids().collect::<Vec<_>>() == [self.node]
        })
    }

    /// The sets of which each has to have a majority, by the latest membership that is known here.
    pub fn voters(&self) -> Vec<BTreeSet<u64>> {
        let metrics = self.raft.server_metrics();
        let metrics = metrics.borrow_watched();
        let sets = metrics.membership_config.membership().get_joint_config().clone();
        match &self.identity.joined {
            Some(voters) if sets.is_empty() => vec![voters.iter().map(|(node, _)| *node).collect()],
            _ => sets,
        }
    }

    /// All members, by the latest membership that is known here.
    pub fn nodes(&self) -> BTreeSet<u64> {
        let metrics = self.raft.server_metrics();
        metrics.borrow_watched().membership_config.nodes().map(|(node, _)| *node).collect()
    }

    /// Where a member said that it is; what the cluster knows goes before this.
    pub fn address(&self, node: u64) -> String {
        let metrics = self.raft.server_metrics();
        let metrics = metrics.borrow_watched();
        let known = metrics.membership_config.membership().get_node(&node).map(|node| node.addr.clone());
        let joined = self.identity.joined.iter().flatten().find(|(voter, _)| *voter == node);
        known.or_else(|| joined.map(|(_, address)| address.clone())).unwrap_or_default()
    }

    /// Where a member is now, as far as the cluster knows.
    pub fn newest_address(&self, node: u64) -> String {
        let known = self.peers.known_address(node);
        known.unwrap_or_else(|| self.address(node))
    }

    pub async fn call(&self, to: u64, request: Request, within: Duration) -> Result<Answer, CallError> {
        self.peers.call(to, &self.address(to), request, &[], within).await
    }

    /// Has a majority confirm that this server leads. Those who wait at the same time share a round.
    pub async fn confirm(&self, asked: Tick) -> Result<Confirmed, DoesNotLead> {
        let mut confirmed = self.confirmed.lock().await;
        if let Some(shared) = *confirmed
            && shared.asked >= asked
        {
            return Ok(shared);
        }
        let asked = self.now();
        let linearizer = self.raft.get_read_linearizer(ReadPolicy::ReadIndex).await.map_err(|_| DoesNotLead)?;
        let id: LogId = *linearizer.read_log_id().log_id();
        let new = Confirmed { asked, leader: id.leader_id, index: id.index };
        *confirmed = Some(new);
        Ok(new)
    }

    /// Returns once everything up to the entry `index` shows in the state here; false if it doesn't in time.
    pub async fn applied(&self, index: u64, within: Duration) -> bool {
        self.raft
            .wait(Some(within))
            .applied_index_at_least(Some(index), "what was agreed upon shows here")
            .await
            .is_ok()
    }

    pub fn leading(&self) -> MutexGuard<'_, Option<Leading>> {
        self.leading.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let handle = tokio::spawn(task).abort_handle();
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner).push(handle);
    }

    pub fn end_tasks(&self) {
        for task in self.tasks.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            task.abort();
        }
    }

    pub fn is_expelled(&self) -> bool {
        self.peers.expelled.borrow().is_some()
    }

    /// What keeps this server's part of the state from being written now.
    pub fn lack_of_room(&self) -> Option<String> {
        self.log.room().lack().or_else(|| self.machine.room().lack())
    }

    /// How long leases last, as agreed.
    pub fn term(&self) -> Term {
        self.of_length(self.state().cluster.lease_ms)
    }

    /// The longest lease that somebody may still hold, as far as is known here.
    pub fn longest_term(&self) -> Term {
        self.of_length(self.state().cluster.longest_lease_ms)
    }

    fn of_length(&self, ms: Option<u64>) -> Term {
        let by_default = self.surroundings.timing.lease;
        Term { length: ms.map_or(by_default.length, Duration::from_millis), ..by_default }
    }

    /// The longest that an answer to a request is waited for.
    pub fn patience(&self) -> Duration {
        self.surroundings.timing.election * 2
    }
}

/// Whether `node` is of a server that was removed, or of a folder that was replaced, as far as `state` knows.
pub fn void(state: &State, node: u64) -> Option<crate::peers::message::Expelled> {
    use crate::peers::message::Expelled;
    let id = consensus::server_id(node)?;
    match state.servers.get(&id) {
        Some(server) if server.incarnation > consensus::incarnation(node) => Some(Expelled::Replaced(id)),
        None if state.is_set_up() && id.0 < state.counters.server => Some(Expelled::Removed(id)),
        _ => None,
    }
}
