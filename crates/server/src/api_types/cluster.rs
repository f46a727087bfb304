//! The cluster and its servers.

use super::{DriveState, described};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tepal_model::{ClusterId, DriveId, ServerId};

/// Health at a glance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Status {
    /// The worst that any server, drive or volume gives reason for.
    pub health: Health,
    /// What keeps the health from `ok`, for people. Empty if it is.
    pub reason: Vec<String>,
    /// The cluster's name.
    pub cluster: String,
    /// Stays as it is for good; names may be the same by chance.
    #[schemars(with = "described::ClusterText")]
    pub cluster_id: ClusterId,
    /// As [`ClusterInfo::view`].
    pub view: u64,
    /// All of them, by id; also those that are down.
    pub servers: Vec<ServerInfo>,
    /// How many volumes there are.
    pub volumes: u64,
    /// How many of them are on their way to another layout, or to other drives.
    #[serde(default)]
    pub migrations: u64,
    /// Copies of volumes' columns that drives take from others now.
    #[serde(default)]
    pub moving: u64,
    /// Of all drives that are not failed, in bytes.
    pub capacity: u64,
    /// Bytes that volumes take of these, copies counted. Drives that aren't open count as empty.
    pub used: u64,
    /// Of `used`, what is being freed in the background: as [`DriveInfo::reclaiming`](super::DriveInfo::reclaiming).
    #[serde(default)]
    pub reclaiming: u64,
    /// The version of the server that answers.
    pub version: String,
}

/// The worst thing that is the case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Health {
    /// Everything is as it should be.
    Ok,
    /// Copies are being brought up to date; nothing is missing.
    Recovering,
    /// Something is missing that the layouts make good for, or single blocks are damaged on every copy.
    Degraded,
    /// The data of a volume can't all be read or written: requests wait, or fail as what held it is gone.
    Unavailable,
}

/// The cluster and what it consists of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClusterInfo {
    /// Drawn when the cluster was made, and never changed.
    #[schemars(with = "described::ClusterText")]
    pub id: ClusterId,
    /// For people; given when the cluster was made.
    pub name: String,
    /// When the cluster was made, in milliseconds since 1970, by the clock of the server that made it.
    pub created_unix_ms: u64,
    /// Counts the changes of membership and of the states of servers and drives. It only rises.
    pub view: u64,
    /// The server that leads what they agree on, if one does now.
    #[schemars(with = "Option<described::ServerText>")]
    pub leader: Option<ServerId>,
    /// Those of which a majority has to be there for anything to be changed.
    #[schemars(with = "Vec<described::ServerText>")]
    pub voters: Vec<ServerId>,
    /// How many there are; also those that are down.
    pub servers: u64,
    /// How many there are, in any state.
    pub drives: u64,
    /// How many there are.
    pub pools: u64,
    /// How many there are; without those that are being removed.
    pub volumes: u64,
    /// Bytes that volumes could take of all drives that are not failed, if these were empty.
    pub capacity: u64,
    /// Bytes that volumes take of these, copies counted. Drives that aren't open count as empty.
    pub used: u64,
    /// For how long a server may serve unheard, in milliseconds; others take over soon after that.
    pub lease_ms: u64,
}

/// What of a cluster can be changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ChangeCluster {
    /// As [`ClusterInfo::lease_ms`], from 300 to 60,000.
    #[schemars(range(min = 300, max = 60_000))]
    pub lease_ms: u64,
}

/// A server. Of one that is down, or doesn't answer the server that was asked, only `id`, `state`, `site` and `drives`
/// are known: the rest is empty or 0.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ServerInfo {
    /// Written `s1`, `s2`, ...
    #[schemars(with = "described::ServerText")]
    pub id: ServerId,
    /// As the cluster agrees: a server that is `up` may still not answer.
    pub state: ServerState,
    /// What it shares with all servers that may be lost together with it, if it said.
    #[serde(default)]
    pub site: Option<String>,
    /// Its admin API, as HOST:PORT.
    pub api: String,
    /// Where NBD is served, each as `unix:PATH` or HOST:PORT.
    pub nbd: Vec<String>,
    /// Those that were last seen on it, by id, in any state.
    pub drives: Vec<ServerDrive>,
    /// Its process, on its machine.
    pub pid: u32,
    /// The version of Tepal that it runs.
    pub version: String,
    /// Milliseconds since it was started.
    pub uptime_ms: u64,
    /// CPU cores that carry data.
    pub data_threads: u32,
}

/// Whether a server serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ServerState {
    /// It serves.
    Up,
    /// It doesn't, and others act in its place. Its drives are missing until it's back.
    Down,
    /// It serves, and some drive of it is `behind`.
    Recovering,
    /// It serves, and what its drives hold goes to others.
    Draining,
}

/// A drive as its server's list shows it; [`DriveInfo`](super::DriveInfo) has the rest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ServerDrive {
    /// As in [`DriveInfo::id`](super::DriveInfo::id).
    #[schemars(with = "described::DriveText")]
    pub id: DriveId,
    /// As in [`DriveInfo::path`](super::DriveInfo::path).
    pub path: String,
    /// As in [`DriveInfo::state`](super::DriveInfo::state).
    #[schemars(with = "described::DriveStateText")]
    pub state: DriveState,
}

/// Whether a server is to be emptied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SetDraining {
    /// Whether what its drives hold goes to others, and nothing new comes.
    pub draining: bool,
}
