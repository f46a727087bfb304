//! The consensus library's types as this crate uses them, under our names, and how it is tuned.

use crate::command::{Proposal, Reply};
use crate::refusal::Refusal;
use openraft::impls::BasicNode;
use std::fmt;
use tepal_model::ServerId;

/// Clocks, tasks and channels for the consensus core. A simulator puts its own here.
pub type Runtime = openraft::impls::TokioRuntime;

openraft::declare_raft_types!(
    pub Types:
        D = Proposal,
        R = Answer,
        NodeId = u64,
        Node = BasicNode,
        AsyncRuntime = Runtime,
);

/// What an applied entry answers to its proposer.
pub type Answer = Result<Reply, Refusal>;
pub type Entry = openraft::type_config::alias::EntryOf<Types>;
pub type LogId = openraft::type_config::alias::LogIdOf<Types>;
pub type Vote = openraft::type_config::alias::VoteOf<Types>;
pub type LeaderId = openraft::type_config::alias::CommittedLeaderIdOf<Types>;
pub type Payload = openraft::type_config::alias::EntryPayloadOf<Types>;
pub type StoredMembership = openraft::type_config::alias::StoredMembershipOf<Types>;
pub type SnapshotMeta = openraft::type_config::alias::SnapshotMetaOf<Types>;

impl fmt::Display for Proposal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.command)
    }
}

pub fn node_id(server: ServerId) -> u64 {
    server.0.into()
}

pub fn server_id(node: u64) -> Option<ServerId> {
    u32::try_from(node).ok().map(ServerId)
}

/// With these, a voter that fell silent is replaced as leader within about 3 seconds.
pub fn config(cluster: &str) -> openraft::Config {
    openraft::Config {
        cluster_name: cluster.to_owned(),
        heartbeat_interval: 250,
        election_timeout_min: 1_000,
        election_timeout_max: 2_000,
        // Ticks begin when there is somebody to hear of: a lone voter needs none, and shall use no CPU.
        enable_tick: false,
        enable_pre_vote: Some(true),
        snapshot_policy: openraft::SnapshotPolicy::LogsSinceLast(SNAPSHOT_EVERY),
        max_in_snapshot_log_to_keep: SNAPSHOT_EVERY / 4,
        replication_lag_threshold: SNAPSHOT_EVERY * 2,
        ..openraft::Config::default()
    }
}

/// Entries between two snapshots. Bounds the log, and so the time to open it.
const SNAPSHOT_EVERY: u64 = 4_000;
