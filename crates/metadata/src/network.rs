//! How voters and learners reach each other. A cluster of one voter reaches nobody, so here every peer is
//! unreachable; a network of real peers takes the place of [`NoPeers`], with nothing else changed.

use crate::consensus::{Types, Vote};
use crate::state_machine::SnapshotFile;
use openraft::OptionalSend;
use openraft::errors::{RPCError, ReplicationClosed, StreamingError, Unreachable};
use openraft::impls::BasicNode;
use openraft::network::{RPCOption, RaftNetworkFactory, RaftNetworkV2};
use openraft::raft::{AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, VoteRequest, VoteResponse};
use openraft::type_config::alias::SnapshotOf;
use std::future::Future;

#[derive(Debug, thiserror::Error)]
#[error("member {0} can't be reached: this build serves clusters of one voter")]
struct NoPeer(u64);

#[derive(Debug)]
pub struct NoPeers;

#[derive(Debug)]
pub struct Peer {
    id: u64,
}

impl Peer {
    fn unreachable(&self) -> Unreachable<Types> {
        Unreachable::new(&NoPeer(self.id))
    }
}

impl RaftNetworkFactory<Types> for NoPeers {
    type Network = Peer;

    async fn new_client(&mut self, target: u64, _node: &BasicNode) -> Peer {
        Peer { id: target }
    }
}

impl RaftNetworkV2<Types> for Peer {
    type SnapshotData = SnapshotFile;

    async fn append_entries(
        &mut self,
        _request: AppendEntriesRequest<Types>,
        _option: RPCOption,
    ) -> Result<AppendEntriesResponse<Types>, RPCError<Types>> {
        Err(self.unreachable().into())
    }

    async fn vote(
        &mut self,
        _request: VoteRequest<Types>,
        _option: RPCOption,
    ) -> Result<VoteResponse<Types>, RPCError<Types>> {
        Err(self.unreachable().into())
    }

    async fn pre_vote(
        &mut self,
        _request: VoteRequest<Types>,
        _option: RPCOption,
    ) -> Result<VoteResponse<Types>, RPCError<Types>> {
        Err(self.unreachable().into())
    }

    async fn full_snapshot(
        &mut self,
        _vote: Vote,
        _snapshot: SnapshotOf<Types, SnapshotFile>,
        _cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<Types>, StreamingError<Types>> {
        Err(self.unreachable().into())
    }
}
