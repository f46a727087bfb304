//! The consensus library's calls to another member, as messages.

use super::frame;
use super::message::{Answer, Append, AppendAnswer, Envelope, Expelled, Reason, Request, Sender};
use super::snapshot;
use super::witness::Witness;
use super::{Transport, TransportError};
use crate::consensus::{self, Types, Vote};
use crate::format::{EntryForm, EntryId, VoteForm};
use crate::state::State;
use crate::state_machine::SnapshotFile;
use openraft::OptionalSend;
use openraft::errors::{RPCError, ReplicationClosed, StreamingError, Unreachable};
use openraft::impls::BasicNode;
use openraft::network::{RPCOption, RaftNetworkFactory, RaftNetworkV2};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, TransferLeaderRequest, TransferLeaderResponse,
    VoteRequest, VoteResponse,
};
use openraft::type_config::alias::SnapshotOf;
use std::collections::BTreeSet;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tepal_model::ClusterId;
use tokio::sync::watch;

/// Entries that are sent in one message, in bytes of JSON; but always one.
const APPEND_BYTES: usize = 1 << 20;

/// Everything that a message to another member needs.
pub struct Peers {
    pub cluster: ClusterId,
    pub me: Sender,
    pub transport: Arc<dyn Transport>,
    pub state: watch::Receiver<Arc<State>>,
    pub witness: Witness,
    /// Set once this server may not take part any more.
    pub expelled: watch::Sender<Option<Expelled>>,
    /// Members of another rebuild of the cluster, of which it was said.
    pub apart: Mutex<BTreeSet<u64>>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    #[error(transparent)]
    Transport(#[from] TransportError),
    #[error("no answer came in time")]
    Late,
    #[error("the answer can't be read: {0}")]
    Unreadable(#[from] frame::FrameError),
    #[error("{0}")]
    Refused(Reason),
    #[error("it answered another question")]
    Unexpected,
}

impl Peers {
    /// Where a member said that it is when it was there last, as the state has it.
    pub fn known_address(&self, node: u64) -> Option<String> {
        let server = self.state.borrow().servers.get(&consensus::server_id(node)?)?.clone();
        (consensus::node_id(server.id, server.incarnation) == node).then(|| server.address.clone())
    }

    /// Asks member `to`, whose address is `address` unless the cluster knows a newer one.
    pub async fn call(
        &self,
        to: u64,
        address: &str,
        request: Request,
        payload: &[u8],
        within: Duration,
    ) -> Result<Answer, CallError> {
        let known = self.known_address(to);
        let address = known.as_deref().unwrap_or(address);
        let envelope = Envelope { cluster: Some(self.cluster), from: Some(self.me), to: Some(to), request };
        let answer = call(&*self.transport, address, &envelope, payload, within).await;
        match &answer {
            Err(CallError::Refused(Reason::Expelled(why))) => self.expel(why.clone()),
            Err(CallError::Refused(reason @ Reason::OtherRebuild { .. })) => self.note_apart(to, address, reason),
            _ => {}
        }
        answer
    }

    fn note_apart(&self, node: u64, address: &str, reason: &Reason) {
        if self.apart.lock().unwrap_or_else(PoisonError::into_inner).insert(node) {
            tracing::error!(address, %reason, "another server isn't heard");
        }
    }

    pub fn expel(&self, why: Expelled) {
        self.expelled.send_if_modified(|expelled| {
            let first = expelled.is_none();
            if first {
                tracing::error!(%why, "this server may not take part any more");
                *expelled = Some(why);
            }
            first
        });
    }
}

pub async fn call(
    transport: &dyn Transport,
    address: &str,
    envelope: &Envelope,
    payload: &[u8],
    within: Duration,
) -> Result<Answer, CallError> {
    let calling = transport.call(address, frame::encode(envelope, payload), within);
    let bytes = tokio::time::timeout(within, calling).await.map_err(|_| CallError::Late)??;
    match frame::decode::<Answer>(&bytes)?.0 {
        Answer::Refused(reason) => Err(CallError::Refused(reason)),
        answer => Ok(answer),
    }
}

impl RaftNetworkFactory<Types> for Arc<Peers> {
    type Network = Peer;

    async fn new_client(&mut self, target: u64, node: &BasicNode) -> Peer {
        Peer { peers: self.clone(), id: target, address: node.addr.clone() }
    }
}

pub struct Peer {
    pub(super) peers: Arc<Peers>,
    pub(super) id: u64,
    address: String,
}

impl Peer {
    pub(super) async fn call(
        &self,
        request: Request,
        payload: &[u8],
        within: Duration,
    ) -> Result<Answer, Unreachable<Types>> {
        let answer = self.peers.call(self.id, &self.address, request, payload, within).await;
        answer.map_err(|error| Unreachable::new(&error))
    }

    async fn ask_vote(
        &self,
        asked: VoteRequest<Types>,
        pre: bool,
        option: RPCOption,
    ) -> Result<VoteResponse<Types>, RPCError<Types>> {
        let last = asked.last_log_id.as_ref().map(EntryId::from);
        let request = Request::Vote { vote: (&asked.vote).into(), last, transfer: asked.leadership_transfer, pre };
        match self.call(request, &[], option.soft_ttl()).await? {
            Answer::Vote { vote, granted, last } => {
                self.peers.witness.voted(self.id, &vote);
                Ok(VoteResponse { vote: vote.into(), vote_granted: granted, last_log_id: last.map(Into::into) })
            }
            _ => Err(unexpected().into()),
        }
    }
}

pub(super) fn unexpected() -> Unreachable<Types> {
    Unreachable::new(&CallError::Unexpected)
}

/// As many of the first entries as fit into one message, but at least one.
fn that_fit(entries: &[consensus::Entry]) -> Vec<EntryForm> {
    let mut forms = Vec::new();
    let mut bytes = 0;
    for entry in entries {
        let form = EntryForm::from(entry);
        bytes += serde_json::to_vec(&form).map_or(0, |json| json.len());
        if bytes > APPEND_BYTES && !forms.is_empty() {
            break;
        }
        forms.push(form);
    }
    forms
}

impl RaftNetworkV2<Types> for Peer {
    type SnapshotData = SnapshotFile;

    async fn append_entries(
        &mut self,
        request: AppendEntriesRequest<Types>,
        option: RPCOption,
    ) -> Result<AppendEntriesResponse<Types>, RPCError<Types>> {
        let entries = that_fit(&request.entries);
        let all = entries.len() == request.entries.len();
        let previous = request.prev_log_id.as_ref().map(EntryId::from);
        let last = entries.last().map(|entry| entry.id).or(previous);
        let vote = VoteForm::from(&request.vote);
        let committed = request.leader_commit.as_ref().map(EntryId::from);
        let append = Append { vote, previous, entries, committed };
        match self.call(Request::Append(append), &[], option.soft_ttl()).await? {
            Answer::Append(AppendAnswer::Success) => {
                self.peers.witness.note_entries(self.id, &vote, last);
                Ok(if all {
                    AppendEntriesResponse::Success
                } else {
                    AppendEntriesResponse::PartialSuccess(last.map(Into::into))
                })
            }
            Answer::Append(AppendAnswer::Partial(last)) => {
                self.peers.witness.note_entries(self.id, &vote, last);
                Ok(AppendEntriesResponse::PartialSuccess(last.map(Into::into)))
            }
            Answer::Append(AppendAnswer::Conflict) => Ok(AppendEntriesResponse::Conflict),
            Answer::Append(AppendAnswer::HigherVote(vote)) => {
                self.peers.witness.voted(self.id, &vote);
                Ok(AppendEntriesResponse::HigherVote(vote.into()))
            }
            _ => Err(unexpected().into()),
        }
    }

    async fn vote(
        &mut self,
        asked: VoteRequest<Types>,
        option: RPCOption,
    ) -> Result<VoteResponse<Types>, RPCError<Types>> {
        self.ask_vote(asked, false, option).await
    }

    async fn pre_vote(
        &mut self,
        asked: VoteRequest<Types>,
        option: RPCOption,
    ) -> Result<VoteResponse<Types>, RPCError<Types>> {
        self.ask_vote(asked, true, option).await
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: SnapshotOf<Types, SnapshotFile>,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        option: RPCOption,
    ) -> Result<SnapshotResponse<Types>, StreamingError<Types>> {
        snapshot::send(self, vote, snapshot, cancel, option.soft_ttl()).await
    }

    async fn transfer_leader(
        &mut self,
        request: TransferLeaderRequest<Types>,
        option: RPCOption,
    ) -> Result<TransferLeaderResponse<Types>, RPCError<Types>> {
        let (vote, last) = (request.from_leader().into(), request.last_log_id().map(EntryId::from));
        let asked = Request::TransferLeader { vote, to: *request.to_node_id(), last };
        match self.call(asked, &[], option.soft_ttl()).await? {
            Answer::TransferLeader { accepted: true } => Ok(Ok(())),
            _ => Err(unexpected().into()),
        }
    }
}
