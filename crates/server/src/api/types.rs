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
    pub const STATUS: &str = "/v1/status";
    pub const CLUSTER: &str = "/v1/cluster";
    pub const SERVERS: &str = "/v1/servers";
    pub const SERVER: &str = "/v1/servers/{id}";
    pub const DIRECTORY: &str = "/v1/directory";
    pub const DRIVES: &str = "/v1/drives";
    pub const DRIVES_SCAN: &str = "/v1/drives/scan";
    pub const DRIVE: &str = "/v1/drives/{id}";
    pub const DRIVE_OFFLINE: &str = "/v1/drives/{id}/offline";
    pub const DRIVE_ONLINE: &str = "/v1/drives/{id}/online";
    /// What this server says of a drive that is to go: not for the `tepal` command.
    pub const DRIVE_KEPT: &str = "/v1/drives/{id}/kept";
    pub const POOLS: &str = "/v1/pools";
    pub const POOL: &str = "/v1/pools/{name}";
    pub const VOLUMES: &str = "/v1/volumes";
    pub const VOLUME: &str = "/v1/volumes/{name}";
    pub const VOLUME_RESIZE: &str = "/v1/volumes/{name}/resize";
    pub const VOLUME_RENAME: &str = "/v1/volumes/{name}/rename";
    pub const VOLUME_SCRUB: &str = "/v1/volumes/{name}/scrub";
    pub const VOLUME_DATA: &str = "/v1/volumes/{name}/data";
    pub const VOLUME_ZERO: &str = "/v1/volumes/{name}/zero";
    pub const VOLUME_FLUSH: &str = "/v1/volumes/{name}/flush";
    pub const VOLUME_MAP: &str = "/v1/volumes/{name}/map";
    pub const REMOVALS: &str = "/v1/removals";
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
    pub health: Health,
    /// What keeps the health from `ok`, for people. Empty if it is.
    pub reason: Vec<String>,
    pub cluster: String,
    pub cluster_id: ClusterId,
    pub view: u64,
    pub servers: Vec<ServerInfo>,
    /// How many volumes there are.
    pub volumes: u64,
    /// Of all drives that are not failed, in bytes.
    pub capacity: u64,
    pub used: u64,
    /// The version of the server that answers.
    pub version: String,
}

/// The worst thing that is the case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Health {
    Ok,
    /// Copies are being brought up to date; nothing is missing.
    Recovering,
    /// Something is missing that the layouts make good for.
    Degraded,
    /// The data of a volume can't all be read or written: requests wait or fail.
    Unavailable,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterInfo {
    pub id: ClusterId,
    pub name: String,
    pub created_unix_ms: u64,
    pub view: u64,
    /// The server that leads what they agree on, if one does now.
    pub leader: Option<ServerId>,
    /// Those of which a majority has to be there for anything to be changed.
    pub voters: Vec<ServerId>,
    pub servers: u64,
    pub drives: u64,
    pub pools: u64,
    pub volumes: u64,
    pub capacity: u64,
    pub used: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerInfo {
    pub id: ServerId,
    pub state: ServerState,
    /// What it shares with all servers that may be lost together with it, if it said.
    #[serde(default)]
    pub site: Option<String>,
    /// Its admin API, as HOST:PORT.
    pub api: String,
    /// Where NBD is served, each as `unix:PATH` or HOST:PORT.
    pub nbd: Vec<String>,
    pub drives: Vec<ServerDrive>,
    pub pid: u32,
    pub version: String,
    pub uptime_ms: u64,
    /// CPU cores that carry data.
    pub data_threads: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ServerState {
    Up,
    Down,
    Recovering,
    Draining,
}

/// A drive as its server's list shows it; [`DriveInfo`] has the rest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerDrive {
    pub id: DriveId,
    pub path: String,
    pub state: DriveState,
}

// ---- drives

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriveInfo {
    pub id: DriveId,
    pub server: ServerId,
    pub pool: String,
    pub path: String,
    pub state: DriveState,
    /// Why it is in this state; empty if there's nothing to say.
    pub reason: String,
    /// Bytes that volumes could take of it when empty.
    pub capacity: u64,
    pub used: u64,
    /// What only an open drive can tell.
    pub open: Option<OpenDriveInfo>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenDriveInfo {
    /// `io_uring`, `memory file`, `plain` or `memory`.
    pub backend: String,
    /// Why it is this one.
    pub backend_reason: String,
    /// The model whose pace it keeps, if it's slowed down.
    pub emulated: Option<String>,
    pub log_length: u64,
    pub log_used: u64,
    pub map_memory: u64,
    pub read_errors: u64,
    pub damaged_blocks: u64,
}

/// Takes a file or block device into the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddDrive {
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
    pub server: ServerId,
    pub path: String,
    pub size: u64,
    pub what: Found,
    /// The drive's id, if it has a label.
    pub id: Option<DriveId>,
    /// The label's cluster.
    pub cluster: Option<ClusterId>,
    /// For people: `ext4`, `mounted on /`, `of another cluster`, ...
    pub detail: String,
}

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
    pub id: DriveId,
    /// Volumes whose maps still name it: it stays listed as failed until they are gone. Empty: it's out for good.
    pub still_named_by: Vec<String>,
}

// ---- what gateways need to know

/// Which volumes there are, where their copies are, and how servers are reached: what a gateway acts by, as a hint. A server
/// that is asked by an older one says so.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Directory {
    pub cluster: ClusterId,
    /// Of two directories, the later one has the higher number.
    pub number: u64,
    pub view: u64,
    pub servers: Vec<DirectoryServer>,
    pub drives: Vec<DirectoryDrive>,
    pub volumes: Vec<DirectoryVolume>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectoryServer {
    pub id: ServerId,
    pub is_up: bool,
    /// Where it is for gateways, as `host:port` or `unix:PATH`.
    pub address: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectoryDrive {
    pub id: DriveId,
    pub server: ServerId,
    pub state: DriveState,
    /// The view in which it came into this state.
    pub state_view: u64,
    /// Since which view others may know more.
    pub left: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectoryVolume {
    pub id: u64,
    pub name: String,
    pub size: u64,
    /// With its failure domain settled.
    pub layout: String,
    pub map: u32,
    /// In the order of the map.
    pub drives: Vec<DriveId>,
    /// The view in which the map was made.
    pub made_in: u64,
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

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolInfo {
    pub name: String,
    /// For volumes that are created without a layout.
    pub layout: Option<String>,
    pub drives: Vec<DriveId>,
    /// How many.
    pub volumes: u64,
    pub capacity: u64,
    pub used: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreatePool {
    pub name: String,
    #[serde(default)]
    pub layout: Option<String>,
}

// ---- volumes

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeInfo {
    pub name: String,
    pub id: u64,
    pub size: u64,
    pub layout: String,
    /// What no two copies share as its drives are now: `drive`, `server` or `site`. None if there is only one copy.
    #[serde(default)]
    pub domain: Option<String>,
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
    pub epoch: u64,
    pub revision: u64,
    pub pool: String,
    /// In the order of the map.
    pub drives: Vec<DriveId>,
    pub created_unix_ms: u64,
    /// Names; none in this version.
    pub snapshots: Vec<String>,
    /// None in this version.
    pub migration: Option<Migration>,
    pub recovery: RecoveryInfo,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VolumeState {
    Healthy,
    Degraded,
    Recovering,
    Unavailable,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Migration {
    /// Layout.
    pub to: String,
    pub done_bytes: u64,
    pub total_bytes: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecoveryInfo {
    pub busy_regions: u64,
    pub stale_regions: u64,
    pub copied_bytes: u64,
    /// As of now.
    #[serde(default)]
    pub bytes_per_second: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreateVolume {
    pub name: String,
    pub size: u64,
    /// The pool's, if not said.
    #[serde(default)]
    pub layout: Option<String>,
    /// `default`, if not said.
    #[serde(default)]
    pub pool: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResizeVolume {
    pub size: u64,
    /// Allow it to become smaller, which loses what is past the new end.
    #[serde(default)]
    pub shrink: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RenameVolume {
    pub new_name: String,
}

/// A removed volume whose space is being freed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Removal {
    pub id: u64,
    /// The name that it had; another volume may have it by now.
    pub name: String,
    /// Bytes on drives that are still to be freed.
    pub allocated: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scrub {
    pub volume: String,
    pub state: ScrubState,
    /// Copies counted, as in [`VolumeInfo::allocated`].
    pub checked_bytes: u64,
    pub total_bytes: u64,
    /// Blocks that were damaged on one copy and written again from another.
    pub repaired_blocks: u64,
    /// What is damaged on every copy: a read of it fails.
    pub damaged: Vec<Range>,
    /// What is damaged on every copy that is here, and may be right on a drive that is away: a read of it fails until that one
    /// is back.
    #[serde(default)]
    pub unrepaired: Vec<Range>,
    /// Why it failed, if so.
    pub error: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScrubState {
    /// There was none since the server started.
    Never,
    Running,
    Done,
    Failed,
}

/// Bytes of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Range {
    pub offset: u64,
    pub length: u64,
}

/// The query of GET `data` and `map`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RangeQuery {
    pub offset: u64,
    pub length: u64,
}

/// The query of PUT `data`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OffsetQuery {
    pub offset: u64,
}

/// The query of DELETE of a drive or a volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForceQuery {
    #[serde(default)]
    pub force: bool,
}

/// A run of bytes that are all mapped, or all a hole that reads as zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MapRun {
    pub length: u64,
    pub mapped: bool,
}

// ---- sql

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SqlQuery {
    pub query: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SqlRows {
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
