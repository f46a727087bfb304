//! What gateways need to know, and what they say of themselves.

use super::{DriveState, OperationCounters, Right, VolumeCounters, described};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use tepal_model::{ClusterId, DriveId, Epoch, Limits, ServerId};

/// Which volumes there are, where their copies are, and how servers are reached: what a gateway acts by, as a hint. A server
/// that is asked by an older one says so.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Directory {
    /// The cluster whose directory this is.
    #[schemars(with = "described::ClusterText")]
    pub cluster: ClusterId,
    /// Of two directories, the later one has the higher number.
    pub number: u64,
    /// As [`ClusterInfo::view`](super::ClusterInfo::view).
    pub view: u64,
    /// All of them, by id; also those that are down.
    pub servers: Vec<DirectoryServer>,
    /// All of them, by id, in any state.
    pub drives: Vec<DirectoryDrive>,
    /// All of them, by id; without those that are being removed.
    pub volumes: Vec<DirectoryVolume>,
    /// For a gateway that serves over TLS: who has a right to any of these volumes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub people: Vec<DirectoryIdentity>,
    /// For a gateway that serves over TLS: by whom certificates are signed that count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trust: Option<DirectoryTrust>,
}

impl Directory {
    /// Of no cluster.
    #[cfg(test)]
    pub(crate) fn nothing() -> Directory {
        let (servers, drives, volumes, people) = (vec![], vec![], vec![], vec![]);
        Directory { cluster: ClusterId(0), number: 0, view: 0, servers, drives, volumes, people, trust: None }
    }
}

/// Somebody who may come to a gateway.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DirectoryIdentity {
    /// Its name.
    pub name: String,
    /// The SHA-256 of its keys.
    pub keys: Vec<String>,
    /// It may do everything.
    pub everything: bool,
    /// What it may do with which volumes.
    #[schemars(with = "Vec<(u64, described::RightText)>")]
    pub rights: Vec<(u64, Right)>,
}

/// By whom certificates are signed that count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DirectoryTrust {
    /// The cluster's authorities, as PEM.
    pub roots: String,
    /// Those of others, by name, each as PEM.
    pub outside: BTreeMap<String, String>,
}

/// A server, as a gateway needs to know it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DirectoryServer {
    /// As in [`ServerInfo::id`](super::ServerInfo::id).
    #[schemars(with = "described::ServerText")]
    pub id: ServerId,
    /// As the cluster agrees: it may still not answer.
    pub is_up: bool,
    /// Where it is for gateways, as `host:port` or `unix:PATH`.
    pub address: String,
}

/// A drive, as a gateway needs to know it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DirectoryDrive {
    /// As in [`DriveInfo::id`](super::DriveInfo::id).
    #[schemars(with = "described::DriveText")]
    pub id: DriveId,
    /// The server that it was last seen on: who is asked for what it holds.
    #[schemars(with = "described::ServerText")]
    pub server: ServerId,
    /// As in [`DriveInfo::state`](super::DriveInfo::state).
    #[schemars(with = "described::DriveStateText")]
    pub state: DriveState,
    /// The view in which it came into this state.
    pub state_view: u64,
    /// Since which view others may know more.
    pub left: u64,
}

/// A volume, as a gateway needs to know it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DirectoryVolume {
    /// As in [`VolumeInfo::id`](super::VolumeInfo::id).
    pub id: u64,
    /// As in [`VolumeInfo::name`](super::VolumeInfo::name).
    pub name: String,
    /// Bytes.
    pub size: u64,
    /// With its failure domain settled. Of an encrypted volume after [`ENCRYPTED`].
    pub layout: String,
    /// The number of its map, by which drives know its data.
    pub map: u32,
    /// How many columns a set of its map has.
    pub width: u32,
    /// By how many rows a set is filled before the next one takes its turn.
    pub chunk: u32,
    /// By number.
    pub columns: Vec<DirectoryColumn>,
    /// As in [`VolumeInfo::revision`](super::VolumeInfo::revision).
    pub revision: u64,
    /// Its clients may only read.
    #[serde(default)]
    pub is_replica: bool,
    /// As in [`VolumeInfo::limits`](super::VolumeInfo::limits).
    #[serde(default, skip_serializing_if = "Limits::is_none")]
    #[schemars(with = "described::LimitsShape")]
    pub limits: Limits,
    /// Of an encrypted volume.
    #[serde(default)]
    pub key: Option<DirectoryKey>,
    /// How it goes to another map, if it does.
    #[serde(default)]
    pub migration: Option<DirectoryMigration>,
    /// If it has several ranges, or one of it goes to another map.
    #[serde(default)]
    pub ranges: Option<DirectoryRanges>,
    /// By epoch.
    #[serde(default)]
    pub snapshots: Vec<DirectorySnapshot>,
}

/// Begins the layout of an encrypted volume: a gateway that knows no encryption knows no such layout, and doesn't serve the volume.
pub const ENCRYPTED: &str = "encrypted ";

/// Begins the layout of a volume with several ranges, behind that of an encrypted one: a gateway that knows no ranges knows no such layout,
/// and doesn't serve the volume.
pub const RANGED: &str = "ranged ";

/// Which maps have which bytes of a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DirectoryRanges {
    /// The first byte and the map of each range, as `0:1,4194304:2`.
    pub list: String,
    /// The maps of these ranges, and of one that is on its way, but for [`DirectoryVolume::map`].
    pub maps: Vec<DirectoryMap>,
}

/// A map of a volume with several.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DirectoryMap {
    /// As [`DirectoryVolume::map`].
    pub map: u32,
    /// As [`DirectoryVolume::layout`].
    pub layout: String,
    /// As [`DirectoryVolume::width`].
    pub width: u32,
    /// As [`DirectoryVolume::chunk`].
    pub chunk: u32,
    /// As [`DirectoryVolume::columns`].
    pub columns: Vec<DirectoryColumn>,
}

/// A volume's key, wrapped.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DirectoryKey {
    /// What the key is called by which it's wrapped.
    pub name: String,
    /// In hexadecimal digits.
    pub wrapped: String,
}

impl std::fmt::Debug for DirectoryKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "wrapped by '{}'", self.name)
    }
}

/// To which map a volume goes, as a gateway needs to know it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DirectoryMigration {
    /// As in [`DirectoryVolume::map`].
    pub target: u32,
    /// As in [`DirectoryVolume::layout`].
    pub layout: String,
    /// As in [`DirectoryVolume::width`].
    pub width: u32,
    /// As in [`DirectoryVolume::chunk`].
    pub chunk: u32,
    /// As in [`DirectoryVolume::columns`].
    pub columns: Vec<DirectoryColumn>,
    /// The map that it comes from; the volume's, if not said.
    #[serde(default)]
    pub source: Option<u32>,
    /// The chunk in which the range begins that goes.
    #[serde(default)]
    pub first: u64,
    /// Whether the range ends with its chunks.
    #[serde(default)]
    pub ends: bool,
    /// How many chunks of 4 MiB go.
    pub chunks: u64,
    /// Of their order.
    pub seed: u64,
    /// So many of them are there.
    pub done: u64,
    /// So many are there or on their way.
    pub fence: u64,
    /// The order is the other way round.
    pub reversed: bool,
    /// The id of the only volume that goes, if not all do that have the map.
    pub leaves: Option<u64>,
    /// The view since which it's so.
    pub since: u64,
}

/// Where a column is, as a gateway needs to know it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DirectoryColumn {
    /// Each with the view since which it holds a copy.
    #[schemars(with = "Vec<(described::DriveText, u64)>")]
    pub holders: Vec<(DriveId, u64)>,
}

/// A snapshot of a volume, as a gateway needs to know it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DirectorySnapshot {
    /// As in [`SnapshotInfo::name`](super::SnapshotInfo::name).
    pub name: String,
    /// As in [`SnapshotInfo::epoch`](super::SnapshotInfo::epoch).
    pub epoch: Epoch,
    /// Bytes.
    pub size: u64,
}

/// What a gateway says of itself, again and again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GatewayNews {
    /// This run of it.
    pub gateway: u64,
    /// The number of the directory that it has.
    pub after: u64,
    /// It serves clients over TLS, and wants to know who may come.
    #[serde(default)]
    pub serves: bool,
    /// By volume, how many clients have it open there.
    pub clients: BTreeMap<u64, u64>,
    /// By volume and epoch, how many clients have a snapshot open there.
    #[serde(default)]
    pub snapshot_clients: BTreeMap<u64, BTreeMap<Epoch, u64>>,
    /// Blocks that its clients couldn't read as no copy has them right: by volume, or VOLUME@EPOCH for a snapshot, the first of a run, and
    /// how many. The first few runs of each.
    #[serde(default)]
    pub damage: BTreeMap<String, Vec<(u64, u64)>>,
    /// Requests of its clients since it was started, of all volumes together.
    #[serde(default)]
    pub requests: Vec<OperationCounters>,
    /// The same of each volume, by id.
    #[serde(default)]
    pub volumes: Vec<VolumeCounters>,
}
