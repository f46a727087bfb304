//! Drives, and the pools that they are in.

use super::{DriveState, DriveUse, described};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tepal_model::{ClusterId, DriveId, ServerId};

/// A drive of the cluster, also one that isn't there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DriveInfo {
    /// As on the drive's label. Stays as it is, wherever the drive is plugged in.
    #[schemars(with = "described::DriveText")]
    pub id: DriveId,
    /// What it's called besides: unique. Null if it's called by its id.
    #[serde(default)]
    pub name: Option<String>,
    /// The server that it was last seen on.
    #[schemars(with = "described::ServerText")]
    pub server: ServerId,
    /// The name of the pool whose volumes may use it.
    pub pool: String,
    /// Where it was last seen on that server, as an absolute path. A hint: drives are found by their labels.
    pub path: String,
    /// `up`, `behind` (it missed writes and hasn't noted yet which), `missing` (not there), `offline` (taken out by an
    /// operator) or `failed` (for good).
    #[schemars(with = "described::DriveStateText")]
    pub state: DriveState,
    /// Why it is in this state; empty if there's nothing to say.
    pub reason: String,
    /// `active` (it holds its share), `draining` (what it holds goes to others: it's drained, or its server is), `spare` (it holds
    /// nothing until another one has to be replaced) or `removed` (it's forgotten once others have what it held).
    #[serde(rename = "use")]
    #[schemars(with = "described::DriveUseText")]
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

impl DriveInfo {
    /// For people: its name, else its id.
    pub fn called(&self) -> String {
        self.name.clone().unwrap_or_else(|| self.id.to_string())
    }
}

/// What is known of a drive that is open. Counts begin when it's opened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AddDrive {
    /// The server that has the device.
    #[schemars(with = "described::ServerText")]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SetDriveUse {
    /// As in [`DriveInfo::purpose`].
    #[schemars(with = "described::DriveUseText")]
    pub to: DriveUse,
}

/// What a drive is called.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NameDrive {
    /// As in [`DriveInfo::name`].
    pub name: Option<String>,
}

/// Has layouts that name a drive name another one in its place: what lies there goes to that one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReplaceDrive {
    /// Which one.
    #[schemars(with = "described::DriveText")]
    pub by: DriveId,
}

/// Something that could be a drive, seen by a server that looked around.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FoundDrive {
    /// The server that saw it.
    #[schemars(with = "described::ServerText")]
    pub server: ServerId,
    /// On that server. Absolute.
    pub path: String,
    /// Bytes, in whole blocks of 4096. 0 if it couldn't be looked at.
    pub size: u64,
    /// Whether it can be used.
    pub what: Found,
    /// The drive's id, if it has a label.
    #[schemars(with = "Option<described::DriveText>")]
    pub id: Option<DriveId>,
    /// The label's cluster.
    #[schemars(with = "Option<described::ClusterText>")]
    pub cluster: Option<ClusterId>,
    /// For people: `ext4`, `mounted on /`, `of another cluster`, ...
    pub detail: String,
}

/// What a device is to this cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DriveRemoved {
    /// Which drive.
    #[schemars(with = "described::DriveText")]
    pub id: DriveId,
    /// Volumes whose maps still name it: it stays listed as failed until others have what it held. Empty: it's out for good.
    pub still_named_by: Vec<String>,
}

/// A pool: drives of one kind, for volumes that share them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PoolInfo {
    /// Unique.
    pub name: String,
    /// For volumes that are created without a layout. Null if those are `stripe`.
    pub layout: Option<String>,
    /// The name of the key by which new volumes are encrypted if nothing else is said. Null if they aren't.
    #[serde(default)]
    pub key: Option<String>,
    /// In any state, those of one server after the other.
    #[schemars(with = "Vec<described::DriveText>")]
    pub drives: Vec<DriveId>,
    /// How many.
    pub volumes: u64,
    /// Bytes that volumes could take of all its drives, failed ones too, if these were empty.
    pub capacity: u64,
    /// Bytes that volumes take of these, copies counted. Drives that aren't open count as empty.
    pub used: u64,
}

/// By which key new volumes of a pool are encrypted if nothing else is said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SetPoolKey {
    /// Its name, as servers have it. Null: they aren't encrypted.
    pub key: Option<String>,
}

/// Adds a pool without drives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CreatePool {
    /// 1 to 128 of `A-Z a-z 0-9 . _ -`, not beginning with `.` or `-`. No other pool may have it.
    #[schemars(regex(pattern = "^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$"))]
    pub name: String,
    /// For volumes that are created without one. If not said, those are `stripe`.
    #[serde(default)]
    pub layout: Option<String>,
}
