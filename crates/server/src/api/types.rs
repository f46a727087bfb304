//! The admin API as types: what goes over HTTP between a server and the `tepal` command, or any other client.
//!
//! HTTP/1, JSON bodies with keys in snake_case, sizes in bytes. Every request carries `Authorization: Bearer TOKEN`; one
//! without the right token gets 401 and learns nothing. An answer other than 2xx has an [`ApiError`] as its body.
//!
//! Keys are only added, never renamed or given another meaning: [`Status`], [`VolumeInfo`] and [`DriveInfo`] are also what
//! `-o json` prints. A client ignores keys that it doesn't know.
//!
//! | method and path | body | answer |
//! | --- | --- | --- |
//! | GET `/v1/status` | | [`Status`] |
//! | GET `/v1/cluster` | | [`ClusterInfo`] |
//! | POST `/v1/cluster` | [`ChangeCluster`] | [`ClusterInfo`] |
//! | GET `/v1/servers`, `/v1/servers/{id}` | | [`ServerInfo`] (a list of) |
//! | DELETE `/v1/servers/{id}` | | [`Done`] |
//! | GET `/v1/directory` | | [`Directory`] |
//! | POST `/v1/directory` | [`GatewayNews`] | [`Directory`], as soon as it isn't the one that the gateway has, or after a short while |
//! | GET `/v1/drives` | | list of [`DriveInfo`] |
//! | POST `/v1/drives` | [`AddDrive`] | [`DriveInfo`] |
//! | GET `/v1/drives/scan` | | list of [`FoundDrive`] |
//! | DELETE `/v1/drives/{id}?force=BOOL` | | [`DriveRemoved`] |
//! | POST `/v1/drives/{id}/offline`, `/online` | | [`DriveInfo`] |
//! | GET `/v1/pools`, `/v1/pools/{name}` | | [`PoolInfo`] (a list of) |
//! | POST `/v1/pools` | [`CreatePool`] | [`PoolInfo`] |
//! | DELETE `/v1/pools/{name}` | | [`Done`] |
//! | GET `/v1/volumes`, `/v1/volumes/{name}` | | [`VolumeInfo`] (a list of) |
//! | POST `/v1/volumes` | [`CreateVolume`] | [`VolumeInfo`] |
//! | POST `/v1/volumes/{name}/resize` | [`ResizeVolume`] | [`VolumeInfo`] |
//! | POST `/v1/volumes/{name}/rename` | [`RenameVolume`] | [`VolumeInfo`] |
//! | DELETE `/v1/volumes/{name}?force=BOOL` | | [`Removal`], at once; its space is freed in the background |
//! | GET `/v1/removals` | | list of [`Removal`] that go on |
//! | POST `/v1/volumes/{name}/scrub` | | [`Scrub`]: starts one, or tells of the one that runs |
//! | GET `/v1/volumes/{name}/scrub` | | [`Scrub`]: the one that runs, or the last one |
//! | GET `/v1/volumes/{name}/data?offset=N&length=N` | | the bytes, as `application/octet-stream` |
//! | PUT `/v1/volumes/{name}/data?offset=N` | the bytes | [`Done`] |
//! | POST `/v1/volumes/{name}/zero` | [`Range`] | [`Done`]: these bytes read as zeros, their space is free |
//! | POST `/v1/volumes/{name}/flush` | | [`Done`]: what was written before is on stable media |
//! | GET `/v1/volumes/{name}/map?offset=N&length=N` | | list of [`MapRun`], from `offset` on, maybe not to the end |
//! | POST `/v1/sql` | [`SqlQuery`] | [`SqlRows`] |
//!
//! `{name}` and `{id}` are percent-encoded. `data` takes up to [`MAX_DATA`] bytes a request.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
pub use tepal_metadata::{DEFAULT_POOL, DriveState};
use tepal_model::{ClusterId, DriveId, ServerId};

/// The longest body of `data`, and the longest range it can be asked for, in bytes.
pub const MAX_DATA: u64 = tepal_model::MAX_REQUEST;

/// Begins an NBD export's name that is a volume's id ([`VolumeInfo::id`]) instead of its name, as `id:7`: it stays when the
/// volume is renamed. No volume's name has a colon.
pub const BY_ID: &str = "id:";

/// Paths of the API. What stands in braces is a parameter, in the form that axum's router takes.
pub mod route {
    /// GET: [`Status`](super::Status) of the whole cluster.
    pub const STATUS: &str = "/v1/status";
    /// GET: [`ClusterInfo`](super::ClusterInfo). POST of [`ChangeCluster`](super::ChangeCluster).
    pub const CLUSTER: &str = "/v1/cluster";
    /// GET: list of [`ServerInfo`](super::ServerInfo), by id.
    pub const SERVERS: &str = "/v1/servers";
    /// GET: [`ServerInfo`](super::ServerInfo). DELETE: takes a server without drives out of the cluster for good.
    pub const SERVER: &str = "/v1/servers/{id}";
    /// GET, and POST of [`GatewayNews`](super::GatewayNews): [`Directory`](super::Directory).
    pub const DIRECTORY: &str = "/v1/directory";
    /// GET: list of [`DriveInfo`](super::DriveInfo). POST of [`AddDrive`](super::AddDrive): takes a device into the
    /// cluster.
    pub const DRIVES: &str = "/v1/drives";
    /// GET: list of [`FoundDrive`](super::FoundDrive), of all servers that answer.
    pub const DRIVES_SCAN: &str = "/v1/drives/scan";
    /// DELETE: takes a drive out of the cluster, see [`DriveRemoved`](super::DriveRemoved) and
    /// [`ForceQuery`](super::ForceQuery).
    pub const DRIVE: &str = "/v1/drives/{id}";
    /// POST: the drive is in use no more until it's put online. Its data stays on it.
    pub const DRIVE_OFFLINE: &str = "/v1/drives/{id}/offline";
    /// POST: the drive is to be used again, and catches up.
    pub const DRIVE_ONLINE: &str = "/v1/drives/{id}/online";
    /// What this server says of a drive that is to go: not for the `tepal` command.
    pub const DRIVE_KEPT: &str = "/v1/drives/{id}/kept";
    /// GET: list of [`PoolInfo`](super::PoolInfo), by name. POST of [`CreatePool`](super::CreatePool).
    pub const POOLS: &str = "/v1/pools";
    /// GET: [`PoolInfo`](super::PoolInfo). DELETE: removes a pool without drives and volumes.
    pub const POOL: &str = "/v1/pools/{name}";
    /// GET: list of [`VolumeInfo`](super::VolumeInfo), by name. POST of [`CreateVolume`](super::CreateVolume).
    pub const VOLUMES: &str = "/v1/volumes";
    /// GET: [`VolumeInfo`](super::VolumeInfo). DELETE: removes the volume and all its data, see
    /// [`ForceQuery`](super::ForceQuery).
    pub const VOLUME: &str = "/v1/volumes/{name}";
    /// POST of [`ResizeVolume`](super::ResizeVolume).
    pub const VOLUME_RESIZE: &str = "/v1/volumes/{name}/resize";
    /// POST of [`RenameVolume`](super::RenameVolume). Whoever has the volume open keeps it.
    pub const VOLUME_RENAME: &str = "/v1/volumes/{name}/rename";
    /// POST starts a scrub, GET tells of it: [`Scrub`](super::Scrub).
    pub const VOLUME_SCRUB: &str = "/v1/volumes/{name}/scrub";
    /// GET with [`RangeQuery`](super::RangeQuery), PUT with [`OffsetQuery`](super::OffsetQuery): bytes of the volume.
    pub const VOLUME_DATA: &str = "/v1/volumes/{name}/data";
    /// POST of [`Range`](super::Range): these bytes read as zeros, and their space is free. Stable when it's answered.
    pub const VOLUME_ZERO: &str = "/v1/volumes/{name}/zero";
    /// POST: what was written before is on stable media.
    pub const VOLUME_FLUSH: &str = "/v1/volumes/{name}/flush";
    /// GET with [`RangeQuery`](super::RangeQuery): list of [`MapRun`](super::MapRun).
    pub const VOLUME_MAP: &str = "/v1/volumes/{name}/map";
    /// GET: list of [`Removal`](super::Removal) that go on.
    pub const REMOVALS: &str = "/v1/removals";
    /// POST of [`SqlQuery`](super::SqlQuery): [`SqlRows`](super::SqlRows).
    pub const SQL: &str = "/v1/sql";
}

/// A route with its parameter filled in.
pub fn path(route: &str, parameter: &str) -> String {
    let encoded: String = parameter
        .bytes()
        .map(|byte| match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => char::from(byte).to_string(),
            _ => format!("%{byte:02X}"),
        })
        .collect();
    match (route.find('{'), route.find('}')) {
        (Some(open), Some(close)) => format!("{}{encoded}{}", &route[..open], &route[close + 1..]),
        _ => route.to_owned(),
    }
}

/// The body of every answer that isn't a success.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApiError {
    /// One line: what failed on which thing, and what to do.
    pub error: String,
    /// For programs; the answer's status follows from it.
    pub kind: ErrorKind,
}

/// What the caller should do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// 400: fix the request.
    BadRequest,
    /// 401: send the right token.
    Unauthorized,
    /// 404: there is no such thing.
    NotFound,
    /// 409: it exists, is in use, or is in a state that doesn't allow this.
    Conflict,
    /// 507: free space, or add drives.
    OutOfSpace,
    /// 503: wait, or bring drives or servers back.
    Unavailable,
    /// 500: call an operator. Also what this client doesn't know yet.
    #[serde(other)]
    Internal,
}

impl ErrorKind {
    /// The status of an answer of this kind.
    pub const fn http_status(self) -> u16 {
        match self {
            ErrorKind::BadRequest => 400,
            ErrorKind::Unauthorized => 401,
            ErrorKind::NotFound => 404,
            ErrorKind::Conflict => 409,
            ErrorKind::OutOfSpace => 507,
            ErrorKind::Unavailable => 503,
            ErrorKind::Internal => 500,
        }
    }
}

/// The answer of what has nothing to tell: an empty object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {}

// ---- cluster and servers

/// Health at a glance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// The worst that any server, drive or volume gives reason for.
    pub health: Health,
    /// What keeps the health from `ok`, for people. Empty if it is.
    pub reason: Vec<String>,
    /// The cluster's name.
    pub cluster: String,
    /// Stays as it is for good; names may be the same by chance.
    pub cluster_id: ClusterId,
    /// As [`ClusterInfo::view`].
    pub view: u64,
    /// All of them, by id; also those that are down.
    pub servers: Vec<ServerInfo>,
    /// How many volumes there are.
    pub volumes: u64,
    /// Of all drives that are not failed, in bytes.
    pub capacity: u64,
    /// Bytes that volumes take of these, copies counted. Drives that aren't open count as empty.
    pub used: u64,
    /// The version of the server that answers.
    pub version: String,
}

/// The worst thing that is the case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Health {
    /// Everything is as it should be.
    Ok,
    /// Copies are being brought up to date; nothing is missing.
    Recovering,
    /// Something is missing that the layouts make good for.
    Degraded,
    /// The data of a volume can't all be read or written: requests wait or fail.
    Unavailable,
}

/// The cluster and what it consists of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterInfo {
    /// Drawn when the cluster was made, and never changed.
    pub id: ClusterId,
    /// For people; given when the cluster was made.
    pub name: String,
    /// When the cluster was made, in milliseconds since 1970, by the clock of the server that made it.
    pub created_unix_ms: u64,
    /// Counts the changes of membership and of the states of servers and drives. It only rises.
    pub view: u64,
    /// The server that leads what they agree on, if one does now.
    pub leader: Option<ServerId>,
    /// Those of which a majority has to be there for anything to be changed.
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeCluster {
    /// As [`ClusterInfo::lease_ms`], from 300 to 60,000.
    pub lease_ms: u64,
}

/// A server. Of one that is down, or doesn't answer the server that was asked, only `id`, `state`, `site` and `drives`
/// are known: the rest is empty or 0.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerInfo {
    /// Written `s1`, `s2`, ...
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ServerState {
    /// It serves.
    Up,
    /// It doesn't, and others act in its place. Its drives are missing until it's back.
    Down,
    /// It serves, and some drive of it is `behind`.
    Recovering,
    /// Not in this version.
    Draining,
}

/// A drive as its server's list shows it; [`DriveInfo`] has the rest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerDrive {
    /// As in [`DriveInfo::id`].
    pub id: DriveId,
    /// As in [`DriveInfo::path`].
    pub path: String,
    /// As in [`DriveInfo::state`].
    pub state: DriveState,
}

// ---- drives

/// A drive of the cluster, also one that isn't there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriveInfo {
    /// As on the drive's label. Stays as it is, wherever the drive is plugged in.
    pub id: DriveId,
    /// The server that it was last seen on.
    pub server: ServerId,
    /// The name of the pool whose volumes may use it.
    pub pool: String,
    /// Where it was last seen on that server, as an absolute path. A hint: drives are found by their labels.
    pub path: String,
    /// `up`, `behind` (it missed writes and hasn't noted yet which), `missing` (not there), `offline` (taken out by an
    /// operator) or `failed` (for good).
    pub state: DriveState,
    /// Why it is in this state; empty if there's nothing to say.
    pub reason: String,
    /// Bytes that volumes could take of it when empty.
    pub capacity: u64,
    /// Bytes that volumes take of it, in extents of 64 KiB. 0 if it isn't open.
    pub used: u64,
    /// What only an open drive can tell. Null if it isn't open, or its server doesn't answer.
    pub open: Option<OpenDriveInfo>,
}

/// What is known of a drive that is open. Counts begin when it's opened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenDriveInfo {
    /// `io_uring`, `memory file`, `plain` or `memory`.
    pub backend: String,
    /// Why it is this one.
    pub backend_reason: String,
    /// The model whose pace it keeps, if it's slowed down.
    pub emulated: Option<String>,
    /// Bytes of its log, on the drive itself or on a device of its own.
    pub log_length: u64,
    /// Bytes of its log that aren't free yet. They are when what they say is in its place on the drive.
    pub log_used: u64,
    /// Bytes of the server's memory that the drive's map takes.
    pub map_memory: u64,
    /// Reads of data that the device failed.
    pub read_errors: u64,
    /// Blocks that reads and scrubs couldn't read, or found not to match their checksums. One counts each time.
    pub block_errors: u64,
}

/// Takes a file or block device into the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddDrive {
    /// The server that has the device.
    pub server: ServerId,
    /// On that server. Absolute.
    pub path: String,
    /// `default`, if not said.
    #[serde(default)]
    pub pool: Option<String>,
    /// Make a file of so many bytes there first. Nothing may be there but a blank file of that size.
    #[serde(default)]
    pub create: Option<u64>,
    /// Take it even if it carries data that looks like somebody's (a filesystem, a partition table): that data is lost.
    /// A drive of this or another cluster is never overwritten.
    #[serde(default)]
    pub force: bool,
}

/// Something that could be a drive, seen by a server that looked around.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundDrive {
    /// The server that saw it.
    pub server: ServerId,
    /// On that server. Absolute.
    pub path: String,
    /// Bytes, in whole blocks of 4096. 0 if it couldn't be looked at.
    pub size: u64,
    /// Whether it can be used.
    pub what: Found,
    /// The drive's id, if it has a label.
    pub id: Option<DriveId>,
    /// The label's cluster.
    pub cluster: Option<ClusterId>,
    /// For people: `ext4`, `mounted on /`, `of another cluster`, ...
    pub detail: String,
}

/// What a device is to this cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Found {
    /// `tepal drive add` takes it as it is.
    Free,
    /// In use by this cluster.
    Ours,
    /// Labelled by this cluster, but not in use now.
    OursUnused,
    /// Labelled by another cluster.
    Foreign,
    /// Mounted, or open elsewhere, or too small, or unreadable.
    Unfit,
    /// It carries a filesystem or a partition table.
    InUse,
}

/// What became of `drive rm`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriveRemoved {
    /// Which drive.
    pub id: DriveId,
    /// Volumes whose maps still name it: it stays listed as failed until they are gone. Empty: it's out for good.
    pub still_named_by: Vec<String>,
}

// ---- what gateways need to know

/// Which volumes there are, where their copies are, and how servers are reached: what a gateway acts by, as a hint. A server
/// that is asked by an older one says so.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Directory {
    /// The cluster whose directory this is.
    pub cluster: ClusterId,
    /// Of two directories, the later one has the higher number.
    pub number: u64,
    /// As [`ClusterInfo::view`].
    pub view: u64,
    /// All of them, by id; also those that are down.
    pub servers: Vec<DirectoryServer>,
    /// All of them, by id, in any state.
    pub drives: Vec<DirectoryDrive>,
    /// All of them, by id; without those that are being removed.
    pub volumes: Vec<DirectoryVolume>,
}

/// A server, as a gateway needs to know it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectoryServer {
    /// As in [`ServerInfo::id`].
    pub id: ServerId,
    /// As the cluster agrees: it may still not answer.
    pub is_up: bool,
    /// Where it is for gateways, as `host:port` or `unix:PATH`.
    pub address: String,
}

/// A drive, as a gateway needs to know it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectoryDrive {
    /// As in [`DriveInfo::id`].
    pub id: DriveId,
    /// The server that it was last seen on: who is asked for what it holds.
    pub server: ServerId,
    /// As in [`DriveInfo::state`].
    pub state: DriveState,
    /// The view in which it came into this state.
    pub state_view: u64,
    /// Since which view others may know more.
    pub left: u64,
}

/// A volume, as a gateway needs to know it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectoryVolume {
    /// As in [`VolumeInfo::id`].
    pub id: u64,
    /// As in [`VolumeInfo::name`].
    pub name: String,
    /// Bytes.
    pub size: u64,
    /// With its failure domain settled.
    pub layout: String,
    /// The number of its map, by which drives know its data.
    pub map: u32,
    /// In the order of the map.
    pub drives: Vec<DriveId>,
    /// The view in which the map was made.
    pub made_in: u64,
    /// As in [`VolumeInfo::revision`].
    pub revision: u64,
}

/// What a gateway says of itself, again and again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GatewayNews {
    /// This run of it.
    pub gateway: u64,
    /// The number of the directory that it has.
    pub after: u64,
    /// By volume, how many clients have it open there.
    pub clients: BTreeMap<u64, u64>,
}

// ---- pools

/// A pool: drives of one kind, for volumes that share them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolInfo {
    /// Unique.
    pub name: String,
    /// For volumes that are created without a layout. Null if those are `stripe`.
    pub layout: Option<String>,
    /// In any state, those of one server after the other.
    pub drives: Vec<DriveId>,
    /// How many.
    pub volumes: u64,
    /// Bytes that volumes could take of all its drives, failed ones too, if these were empty.
    pub capacity: u64,
    /// Bytes that volumes take of these, copies counted. Drives that aren't open count as empty.
    pub used: u64,
}

/// Adds a pool without drives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreatePool {
    /// 1 to 128 of `A-Z a-z 0-9 . _ -`, not beginning with `.` or `-`. No other pool may have it.
    pub name: String,
    /// For volumes that are created without one. If not said, those are `stripe`.
    #[serde(default)]
    pub layout: Option<String>,
}

// ---- volumes

/// A volume. What servers would say that don't answer is missing from its state and its counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeInfo {
    /// Unique, and may change.
    pub name: String,
    /// Counted from 1; stays as it is for good, and is never used again.
    pub id: u64,
    /// Bytes that its clients see: a multiple of 512.
    pub size: u64,
    /// As it was asked for, such as `mirror:2`: see [`tepal_model::layout`].
    pub layout: String,
    /// What no two copies share as its drives are now: `drive`, `server` or `site`. None if there is only one copy.
    #[serde(default)]
    pub domain: Option<String>,
    /// The worst that is so of any part of it.
    pub state: VolumeState,
    /// What keeps the state from `healthy`, for people; or what soon may.
    pub reason: Vec<String>,
    /// NBD connections that have it open.
    #[serde(default)]
    pub clients: u64,
    /// Of them, those of gateways that aren't servers.
    #[serde(default)]
    pub clients_of_gateways: u64,
    /// Blocks that no copy had right when they were last read; at least so many are damaged.
    #[serde(default)]
    pub damaged_blocks: u64,
    /// Bytes on drives, copies counted.
    pub allocated: u64,
    /// Counts its snapshots, from 1: always 1 in this version.
    pub epoch: u64,
    /// Counts the changes of name, size and the like, from 1.
    pub revision: u64,
    /// The name of the pool whose drives it uses.
    pub pool: String,
    /// In the order of the map.
    pub drives: Vec<DriveId>,
    /// When it was created, in milliseconds since 1970, by the clock of the server that was asked.
    pub created_unix_ms: u64,
    /// Names; none in this version.
    pub snapshots: Vec<String>,
    /// None in this version.
    pub migration: Option<Migration>,
    /// What is left to do after drives were away or a crash. All 0 if there's nothing.
    pub recovery: RecoveryInfo,
}

/// Whether all of a volume can be read and written, and has all its copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VolumeState {
    /// All copies that its layout wants are there and up to date.
    Healthy,
    /// All of it can be read and written, with fewer copies than its layout wants; or a drive of it is full.
    Degraded,
    /// All its drives are there, and copies are being brought up to date.
    Recovering,
    /// Some of it can't be read or written now: requests wait, or fail if no copy is right.
    Unavailable,
}

/// A change of layout that is under way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Migration {
    /// Layout.
    pub to: String,
    /// Bytes of the volume that have the new layout.
    pub done_bytes: u64,
    /// Bytes of the volume in all.
    pub total_bytes: u64,
}

/// What is left to do until all copies are equal. A region is a MiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecoveryInfo {
    /// Regions whose copies may differ since a crash, and are still to be compared.
    pub busy_regions: u64,
    /// Regions in which a copy missed writes, counted for each such copy.
    pub stale_regions: u64,
    /// Bytes copied to bring copies up to date, since the servers began to lead the volume's columns.
    pub copied_bytes: u64,
    /// As of now.
    #[serde(default)]
    pub bytes_per_second: u64,
}

/// Makes a volume, which reads as zeros.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreateVolume {
    /// 1 to 128 of `A-Z a-z 0-9 . _ -`, not beginning with `.` or `-`. No other volume may have it.
    pub name: String,
    /// Bytes: a multiple of 512, from 512 to 2^63. It may be more than there is room for: space is taken as data is
    /// written.
    pub size: u64,
    /// The pool's, if not said.
    #[serde(default)]
    pub layout: Option<String>,
    /// `default`, if not said.
    #[serde(default)]
    pub pool: Option<String>,
}

/// Makes a volume longer or shorter. New bytes read as zeros.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResizeVolume {
    /// Bytes as it shall have: a multiple of 512, from 512 to 2^63.
    pub size: u64,
    /// Allow it to become smaller, which loses what is past the new end.
    #[serde(default)]
    pub shrink: bool,
}

/// Gives a volume another name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RenameVolume {
    /// As [`CreateVolume::name`].
    pub new_name: String,
}

/// A removed volume whose space is being freed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Removal {
    /// As [`VolumeInfo::id`].
    pub id: u64,
    /// The name that it had; another volume may have it by now.
    pub name: String,
    /// Bytes on drives that are still to be freed.
    pub allocated: u64,
}

/// A scrub of a volume, over all servers: every copy of every block is read and checked, and damage is repaired.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scrub {
    /// The volume's name.
    pub volume: String,
    /// `running` as long as any server runs its part; `failed` if one failed.
    pub state: ScrubState,
    /// Copies counted, as in [`VolumeInfo::allocated`].
    pub checked_bytes: u64,
    /// Copies counted: what the volume had on drives when the scrub began, or `checked_bytes` if that's more.
    pub total_bytes: u64,
    /// Blocks that were damaged on one copy and written again from another.
    pub repaired_blocks: u64,
    /// Drives that were read to the end.
    pub checked_drives: Vec<DriveId>,
    /// Drives that have copies and weren't, as they are away, or their servers: what is wrong there is unknown.
    pub unchecked_drives: Vec<DriveId>,
    /// What is damaged on every copy: a read of it fails.
    pub damaged: Vec<Range>,
    /// What is damaged on every copy that is here, and may be right on a drive that is away: a read of it fails until that one
    /// is back.
    #[serde(default)]
    pub unrepaired: Vec<Range>,
    /// Why it failed, if so.
    pub error: Option<String>,
}

/// How far a scrub is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScrubState {
    /// There was none since the server started.
    Never,
    /// What a server has found is told when it has done its part.
    Running,
    /// Everything was read. There may be damage nevertheless: see [`Scrub::damaged`].
    Done,
    /// It broke off: see [`Scrub::error`]. Start another.
    Failed,
}

/// Bytes of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Range {
    /// The first one, counted from the volume's start.
    pub offset: u64,
    /// How many.
    pub length: u64,
}

/// The query of GET `data` and `map`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RangeQuery {
    /// The first byte, counted from the volume's start.
    pub offset: u64,
    /// Bytes; for `data`, at most [`MAX_DATA`].
    pub length: u64,
}

/// The query of PUT `data`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OffsetQuery {
    /// Where the first byte of the body goes, counted from the volume's start.
    pub offset: u64,
}

/// The query of DELETE of a drive or a volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForceQuery {
    /// Even if the last good copy of something is on the drive, or clients have the volume open. False, if not said.
    #[serde(default)]
    pub force: bool,
}

/// A run of bytes that are all mapped, or all a hole that reads as zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MapRun {
    /// Bytes, at least one.
    pub length: u64,
    /// Whether drives hold it.
    pub mapped: bool,
}

// ---- sql

/// A question about the cluster's state, for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SqlQuery {
    /// One SELECT statement of SQLite. It may run for 5 seconds and give 100 000 rows and 16 MiB.
    pub query: String,
}

/// What the query gives.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SqlRows {
    /// Their names, in order. Each row has a value for each.
    pub columns: Vec<String>,
    /// Null, numbers and text as in JSON; a blob as text of hexadecimal digits, as in `x'00ff'`.
    pub rows: Vec<Vec<serde_json::Value>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_of_error_that_a_client_does_not_know_is_taken_as_internal() {
        let error: ApiError = serde_json::from_str(r#"{"error": "no", "kind": "tired", "more": 1}"#).expect("readable");
        assert_eq!(error.kind, ErrorKind::Internal);
    }

    #[test]
    fn parameters_of_paths_can_not_reach_other_paths() {
        assert_eq!(path(route::VOLUME_RESIZE, "v0"), "/v1/volumes/v0/resize");
        assert_eq!(path(route::VOLUME, "../a?b#c d%ü"), "/v1/volumes/..%2Fa%3Fb%23c%20d%25%C3%BC");
        assert_eq!(path(route::STATUS, ""), "/v1/status");
    }

    #[test]
    fn states_have_the_words_that_outside_checks_read() {
        for (value, word) in [
            (serde_json::to_value(Health::Ok), "ok"),
            (serde_json::to_value(Health::Unavailable), "unavailable"),
            (serde_json::to_value(ServerState::Up), "up"),
            (serde_json::to_value(ServerState::Draining), "draining"),
            (serde_json::to_value(VolumeState::Healthy), "healthy"),
            (serde_json::to_value(VolumeState::Degraded), "degraded"),
            (serde_json::to_value(DriveState::Behind), "behind"),
        ] {
            assert_eq!(value.expect("a word"), word);
        }
    }
}
