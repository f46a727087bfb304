//! The consensus library's types as this crate uses them, under our names, and how it is tuned.

use crate::command::{Proposal, Reply};
use crate::refusal::Refusal;
use crate::timing::Timing;
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

/// A member for the consensus library: one data folder of a server. With another folder, a server is another member,
/// so that nothing is expected of it that the first one had promised.
pub fn node_id(server: ServerId, incarnation: u32) -> u64 {
    u64::from(incarnation) << 32 | u64::from(server.0)
}

pub fn server_id(node: u64) -> Option<ServerId> {
    let id = node as u32;
    (id > 0).then_some(ServerId(id))
}

pub fn incarnation(node: u64) -> u32 {
    (node >> 32) as u32
}

pub fn config(cluster: &str, timing: &Timing) -> openraft::Config {
    let millis = |span: std::time::Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX).max(1);
    openraft::Config {
        cluster_name: cluster.to_owned(),
        heartbeat_interval: millis(timing.heartbeat),
        election_timeout_min: millis(timing.election),
        election_timeout_max: millis(timing.election * 2).max(2),
        install_snapshot_timeout: millis(timing.election * 10),
        backoff: "50ms 100ms 200ms ...500ms".to_owned(),
        // A server takes part only after the others have vouched for it, so none is led by one that forgot.
        enable_leader_restore: Some(false),
        // Such a one must not stop a leader that meets it.
        allow_log_reversion: Some(true),
        // Ticks begin when there is somebody to hear of: a lone voter needs none, and shall use no CPU.
        enable_tick: false,
        enable_pre_vote: Some(true),
        snapshot_policy: openraft::SnapshotPolicy::LogsSinceLast(SNAPSHOT_EVERY),
        max_payload_entries: 64,
        max_in_snapshot_log_to_keep: SNAPSHOT_EVERY / 4,
        replication_lag_threshold: SNAPSHOT_EVERY * 2,
        ..openraft::Config::default()
    }
}

/// Entries between two snapshots. Bounds the log, and so the time to open it.
const SNAPSHOT_EVERY: u64 = 4_000;
