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
//! | POST `/v1/servers/{id}/draining` | [`SetDraining`] | [`Done`] |
//! | GET `/v1/directory` | | [`Directory`] |
//! | POST `/v1/directory` | [`GatewayNews`] | [`Directory`], as soon as it isn't the one that the gateway has, or after a short while |
//! | GET `/v1/drives` | | list of [`DriveInfo`] |
//! | POST `/v1/drives` | [`AddDrive`] | [`DriveInfo`] |
//! | GET `/v1/drives/scan` | | list of [`FoundDrive`] |
//! | DELETE `/v1/drives/{id}?force=BOOL` | | [`DriveRemoved`] |
//! | POST `/v1/drives/{id}/offline`, `/online` | | [`DriveInfo`] |
//! | POST `/v1/drives/{id}/use` | [`SetDriveUse`] | [`DriveInfo`] |
//! | GET `/v1/pools`, `/v1/pools/{name}` | | [`PoolInfo`] (a list of) |
//! | POST `/v1/pools` | [`CreatePool`] | [`PoolInfo`] |
//! | DELETE `/v1/pools/{name}` | | [`Done`] |
//! | GET `/v1/volumes`, `/v1/volumes/{name}` | | [`VolumeInfo`] (a list of) |
//! | POST `/v1/volumes` | [`CreateVolume`] | [`VolumeInfo`] |
//! | POST `/v1/volumes/{name}/resize` | [`ResizeVolume`] | [`VolumeInfo`] |
//! | POST `/v1/volumes/{name}/rename` | [`RenameVolume`] | [`VolumeInfo`] |
//! | POST `/v1/volumes/{name}/relayout` | [`Relayout`] | [`VolumeInfo`]; it goes on in the background |
//! | POST `/v1/volumes/{name}/flatten` | [`Flatten`] | the same |
//! | POST `/v1/volumes/{name}/pause`, `/resume`, `/cancel` | | [`VolumeInfo`], of one that is on its way |
//! | POST `/v1/volumes/{name}/rate` | [`SetRate`] | the same |
//! | GET `/v1/migrations` | | list of [`MigrationInfo`] that go on, by volume |
//! | DELETE `/v1/volumes/{name}?force=BOOL&snapshots=BOOL` | | [`Removal`], at once; its space is freed in the background |
//! | GET `/v1/removals` | | list of [`Removal`] that go on |
//! | POST `/v1/volumes/{name}/scrub` | | [`Scrub`]: starts one, or tells of the one that runs |
//! | GET `/v1/volumes/{name}/scrub` | | [`Scrub`]: the one that runs, or the last one |
//! | GET `/v1/volumes/{name}/data?offset=N&length=N` | | the bytes, as `application/octet-stream` |
//! | PUT `/v1/volumes/{name}/data?offset=N` | the bytes | [`Done`] |
//! | POST `/v1/volumes/{name}/zero` | [`Range`] | [`Done`]: these bytes read as zeros, their space is free |
//! | POST `/v1/volumes/{name}/flush` | | [`Done`]: what was written before is on stable media |
//! | GET `/v1/volumes/{name}/map?offset=N&length=N` | | list of [`MapRun`], from `offset` on, maybe not to the end |
//! | GET `/v1/snapshots?volume=NAME` | | list of [`SnapshotInfo`], of all volumes if none is named |
//! | POST `/v1/snapshots` | [`CreateSnapshot`] | [`SnapshotInfo`], once nothing that is written later can be in it |
//! | GET `/v1/snapshots/{name}?count=BOOL` | | [`SnapshotInfo`] |
//! | DELETE `/v1/snapshots/{name}?force=BOOL` | | [`SnapshotRemoval`], at once; its space is freed in the background |
//! | POST `/v1/snapshots/{name}/rename` | [`RenameSnapshot`] | [`SnapshotInfo`] |
//! | POST `/v1/snapshots/{name}/rollback?force=BOOL` | | [`VolumeInfo`] |
//! | POST `/v1/snapshots/{name}/clone` | [`CloneSnapshot`] | [`VolumeInfo`] of the new volume |
//! | GET `/v1/snapshots/{name}/diff?to=SNAP&offset=N` | | [`SnapshotDiff`], from `offset` on, maybe not to the end |
//! | GET `/v1/snapshots/{name}/data`, `/map` | | as of a volume |
//! | POST `/v1/sql` | [`SqlQuery`] | [`SqlRows`] |
//!
//! `{name}` and `{id}` are percent-encoded; a snapshot's name is `VOLUME@SNAP`. `data` takes up to [`MAX_DATA`] bytes a request.

mod directory;
mod snapshots;
mod volumes;

pub use directory::{
    Directory, DirectoryColumn, DirectoryDrive, DirectoryMigration, DirectoryServer, DirectorySnapshot,
    DirectoryVolume, GatewayNews,
};
pub use snapshots::{
    CloneSnapshot, CreateSnapshot, DiffQuery, Difference, DifferenceKind, RenameSnapshot, ShowSnapshotQuery,
    SnapshotDiff, SnapshotInfo, SnapshotName, SnapshotNameError, SnapshotQuery, SnapshotRemoval, SourceName,
};
pub use volumes::{
    CreateVolume, Flatten, MapRun, Migration, MigrationInfo, MigrationState, OffsetQuery, Range, RangeQuery,
    RecoveryInfo, Relayout, Removal, RemoveVolumeQuery, RenameVolume, ResizeVolume, Scrub, ScrubState, SetRate,
    VolumeInfo, VolumeState,
};

use serde::{Deserialize, Serialize};
pub use tepal_metadata::{DEFAULT_POOL, DriveState, DriveUse};
use tepal_model::{ClusterId, DriveId, ServerId};

/// The longest body of `data`, and the longest range it can be asked for, in bytes.
pub const MAX_DATA: u64 = tepal_model::MAX_REQUEST;

/// Begins an NBD export's name that is a volume's id ([`VolumeInfo::id`]) instead of its name, as `id:7`: it stays when the
/// volume is renamed. So does `id:7@3`, the volume's snapshot of epoch 3 ([`SnapshotInfo::epoch`]). No volume's name has a colon.
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
    /// POST of [`SetDraining`](super::SetDraining): whether what its drives hold goes to others.
    pub const SERVER_DRAINING: &str = "/v1/servers/{id}/draining";
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
    /// POST of [`SetDriveUse`](super::SetDriveUse): what the drive is for.
    pub const DRIVE_USE: &str = "/v1/drives/{id}/use";
    /// What this server says of a drive that is to go: not for the `tepal` command.
    pub const DRIVE_KEPT: &str = "/v1/drives/{id}/kept";
    /// GET: list of [`PoolInfo`](super::PoolInfo), by name. POST of [`CreatePool`](super::CreatePool).
    pub const POOLS: &str = "/v1/pools";
    /// GET: [`PoolInfo`](super::PoolInfo). DELETE: removes a pool without drives and volumes.
    pub const POOL: &str = "/v1/pools/{name}";
    /// GET: list of [`VolumeInfo`](super::VolumeInfo), by name. POST of [`CreateVolume`](super::CreateVolume).
    pub const VOLUMES: &str = "/v1/volumes";
    /// GET: [`VolumeInfo`](super::VolumeInfo). DELETE: removes the volume and all its data, see
    /// [`RemoveVolumeQuery`](super::RemoveVolumeQuery).
    pub const VOLUME: &str = "/v1/volumes/{name}";
    /// POST of [`ResizeVolume`](super::ResizeVolume).
    pub const VOLUME_RESIZE: &str = "/v1/volumes/{name}/resize";
    /// POST of [`RenameVolume`](super::RenameVolume). Whoever has the volume open keeps it.
    pub const VOLUME_RENAME: &str = "/v1/volumes/{name}/rename";
    /// POST of [`Relayout`](super::Relayout): the volume goes to another layout.
    pub const VOLUME_RELAYOUT: &str = "/v1/volumes/{name}/relayout";
    /// POST of [`Flatten`](super::Flatten): the volume leaves those that it shares data with.
    pub const VOLUME_FLATTEN: &str = "/v1/volumes/{name}/flatten";
    /// POST: what is on its way rests.
    pub const VOLUME_PAUSE: &str = "/v1/volumes/{name}/pause";
    /// POST: what rests goes on.
    pub const VOLUME_RESUME: &str = "/v1/volumes/{name}/resume";
    /// POST of [`SetRate`](super::SetRate).
    pub const VOLUME_RATE: &str = "/v1/volumes/{name}/rate";
    /// POST: what has gone comes back.
    pub const VOLUME_CANCEL: &str = "/v1/volumes/{name}/cancel";
    /// GET: list of [`MigrationInfo`](super::MigrationInfo), by volume.
    pub const MIGRATIONS: &str = "/v1/migrations";
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
    /// GET with [`SnapshotQuery`](super::SnapshotQuery): list of [`SnapshotInfo`](super::SnapshotInfo), by volume, the oldest
    /// first. POST of [`CreateSnapshot`](super::CreateSnapshot).
    pub const SNAPSHOTS: &str = "/v1/snapshots";
    /// GET: [`SnapshotInfo`](super::SnapshotInfo). DELETE: removes the snapshot, see [`ForceQuery`](super::ForceQuery).
    pub const SNAPSHOT: &str = "/v1/snapshots/{name}";
    /// POST of [`RenameSnapshot`](super::RenameSnapshot). Whoever reads the snapshot goes on.
    pub const SNAPSHOT_RENAME: &str = "/v1/snapshots/{name}/rename";
    /// POST: the volume holds what the snapshot does, see [`ForceQuery`](super::ForceQuery).
    pub const SNAPSHOT_ROLLBACK: &str = "/v1/snapshots/{name}/rollback";
    /// POST of [`CloneSnapshot`](super::CloneSnapshot): a volume that holds what the snapshot does, and can be written to.
    pub const SNAPSHOT_CLONE: &str = "/v1/snapshots/{name}/clone";
    /// GET with [`DiffQuery`](super::DiffQuery): [`SnapshotDiff`](super::SnapshotDiff).
    pub const SNAPSHOT_DIFF: &str = "/v1/snapshots/{name}/diff";
    /// GET with [`RangeQuery`](super::RangeQuery): bytes of the snapshot.
    pub const SNAPSHOT_DATA: &str = "/v1/snapshots/{name}/data";
    /// GET with [`RangeQuery`](super::RangeQuery): list of [`MapRun`](super::MapRun).
    pub const SNAPSHOT_MAP: &str = "/v1/snapshots/{name}/map";
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

/// The query of what clients, or a last good copy, may stand in the way of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForceQuery {
    /// Even if the last good copy of something is on the drive, or clients have the volume or snapshot open. False, if not said.
    #[serde(default)]
    pub force: bool,
}

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
    /// Of `used`, what is being freed in the background: as [`DriveInfo::reclaiming`].
    #[serde(default)]
    pub reclaiming: u64,
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
    /// It serves, and what its drives hold goes to others.
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
    /// `active` (it holds its share), `draining` (what it holds goes to others: it's drained, or its server is), `spare` (it holds
    /// nothing until another one has to be replaced) or `removed` (it's forgotten once others have what it held).
    #[serde(rename = "use")]
    pub purpose: DriveUse,
    /// Copies of volumes' columns that it holds: 0 of one that is empty.
    pub copies: u64,
    /// Copies that it takes now, or that others take from it.
    pub moving: u64,
    /// Why what it holds can't go now, if it's to be emptied and that is so.
    #[serde(default)]
    pub stuck: Option<String>,
    /// Bytes that volumes could take of it when empty.
    pub capacity: u64,
    /// Bytes that volumes take of it, in extents of 64 KiB. 0 if it isn't open.
    pub used: u64,
    /// Of `used`, bytes that nobody needs any more, as volumes, snapshots and clones were removed, or a volume was rolled back or
    /// flattened: at least so many are being freed in the background.
    #[serde(default)]
    pub reclaiming: u64,
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

/// What a drive is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetDriveUse {
    /// As in [`DriveInfo::purpose`].
    pub to: DriveUse,
}

/// Whether a server is to be emptied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetDraining {
    /// Whether what its drives hold goes to others, and nothing new comes.
    pub draining: bool,
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
    /// Volumes whose maps still name it: it stays listed as failed until others have what it held. Empty: it's out for good.
    pub still_named_by: Vec<String>,
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
