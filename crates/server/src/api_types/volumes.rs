//! Volumes and their bytes.

use super::{BY_ID, Replica, ReplicaOf, Replication, SnapshotInfo, described};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tepal_model::{DriveId, Epoch, Limits, ServerId};

/// A volume. What servers would say that don't answer is missing from its state and its counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
    /// How many more drives may be lost, whichever they are, and it can still be read: as servers agree now. Where it goes to another
    /// layout, the fewest of both.
    #[serde(default)]
    pub losses_left: u64,
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
    /// Who alone may use it, by the holder's own word; none: whoever may.
    #[serde(default)]
    pub reserved_by: Option<String>,
    /// If it's encrypted: the name of the key by which its own is wrapped.
    #[serde(default)]
    pub key: Option<String>,
    /// Servers whose folder of keys lacks that one: their clients can't read or write it. A server without such a folder isn't meant to.
    #[serde(default)]
    #[schemars(with = "Vec<described::ServerText>")]
    pub keyless_servers: Vec<ServerId>,
    /// How much may be asked for of it and its snapshots, by all clients of one server or gateway together.
    #[serde(default, skip_serializing_if = "Limits::is_none")]
    #[schemars(with = "described::LimitsShape")]
    pub limits: Limits,
    /// Imports that write to it.
    #[serde(default)]
    pub imports: u64,
    /// Exports and comparisons that read it.
    #[serde(default)]
    pub exports: u64,
    /// What it has of an import that didn't come to its end, or hasn't yet; none if it's whole.
    #[serde(default)]
    pub incomplete: Option<Incomplete>,
    /// How it's imported while it's used; none if all of it is there.
    #[serde(default)]
    pub live: Option<LiveImport>,
    /// What it follows, if it's a replica: clients only read it then.
    #[serde(default)]
    pub replica: Option<Replica>,
    /// Blocks that no copy had right when they were last read; at least so many are damaged.
    #[serde(default)]
    pub damaged_blocks: u64,
    /// Bytes on drives, copies counted: with all that its snapshots have, and its clones or what it's a clone of.
    pub allocated: u64,
    /// Of `allocated`, bytes that nobody sees any more, as snapshots and clones were removed or the volume was rolled back: at least so
    /// many are being freed in the background.
    #[serde(default)]
    pub reclaiming: u64,
    /// What nobody saw any more in this agreed view is freed on all drives that are here, but for what can't be read until it's repaired.
    #[serde(default)]
    pub reclaimed_view: u64,
    /// Drives of it that are away, or whose server doesn't answer: `allocated` and `reclaiming` lack what they hold.
    #[serde(default)]
    #[schemars(with = "Vec<described::DriveText>")]
    pub uncounted_drives: Vec<DriveId>,
    /// The snapshot that it's a clone of, as `VOLUME@SNAP`, while that is there.
    #[serde(default)]
    pub origin: Option<String>,
    /// The snapshot that it was made of, as `id:7@3`, whether that is still there or not. None if it began blank, or has become a volume
    /// of its own since.
    #[serde(default)]
    pub made_of: Option<String>,
    /// In which it writes. Each snapshot and each rollback begins a new one; the first is 1.
    pub epoch: u64,
    /// Counts the changes of name, size and the like, from 1.
    pub revision: u64,
    /// The name of the pool whose drives it uses.
    pub pool: String,
    /// Its ranges in order, each with a layout of its own; one if all of it has `layout`. `layout` and `pool` are those of one of them.
    #[serde(default)]
    pub ranges: Vec<VolumeRange>,
    /// In the order of the maps.
    #[schemars(with = "Vec<described::DriveText>")]
    pub drives: Vec<DriveId>,
    /// When it was created, in milliseconds since 1970, by the clock of the server that was asked.
    pub created_unix_ms: u64,
    /// The oldest first.
    pub snapshots: Vec<SnapshotInfo>,
    /// How it goes to another layout, or leaves those that it shares data with; none if it doesn't.
    pub migration: Option<Migration>,
    /// What is left to do after drives were away or a crash. All 0 if there's nothing.
    pub recovery: RecoveryInfo,
}

impl VolumeInfo {
    /// Stands for its name in requests, whatever it's called by then: see [`BY_ID`].
    pub fn by_id(&self) -> String {
        format!("{BY_ID}{}", self.id)
    }
}

/// Bytes of a volume between two places.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Between {
    /// The first byte, counted from the volume's start.
    pub from: u64,
    /// The first byte behind them. None: up to the volume's end, and all that it grows by.
    #[serde(default)]
    pub to: Option<u64>,
}

/// A range of a volume, and how it's kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct VolumeRange {
    /// Where it is.
    #[serde(flatten)]
    pub between: Between,
    /// Its layout.
    pub layout: String,
    /// The pool whose drives it uses.
    pub pool: String,
}

/// Whether all of a volume can be read and written, and has all its copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum VolumeState {
    /// All copies that its layout wants are there and up to date.
    Healthy,
    /// All of it can be read and written, with fewer copies than its layout wants; or a drive of it is full, or single blocks are
    /// damaged on every copy, and reads of these fail.
    Degraded,
    /// All its drives are there, and copies are being brought up to date.
    Recovering,
    /// Some of it can't be read or written now: requests wait, or fail as what held it is gone.
    Unavailable,
}

/// A volume on its way to another layout, or to drives where it shares nothing with others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Migration {
    /// The layout that it gets; if this was cancelled, the one that it has again.
    pub to: String,
    /// The pool whose drives it goes to, if it leaves those of another one.
    #[serde(default)]
    pub to_pool: Option<String>,
    /// The only bytes that go, if not all do.
    #[serde(default)]
    pub range: Option<Between>,
    /// Bytes of the volume that are there, holes too. When it's cancelled they are counted anew, from what needs not come back.
    pub done_bytes: u64,
    /// Bytes of the volume, or of the range that goes, in all.
    pub total_bytes: u64,
    /// The same, in a second, over the last half minute; 0 while it rests or is blocked.
    #[serde(default)]
    pub rate: u64,
    /// If it goes on like that; none while that isn't known.
    #[serde(default)]
    pub seconds_left: Option<u64>,
    /// Whether it goes on.
    pub state: MigrationState,
    /// What is in its way, for people.
    #[serde(default)]
    pub reason: Vec<String>,
    /// Something of it has no room where it goes.
    #[serde(default)]
    pub lacks_room: bool,
    /// Drives where it goes that are full.
    #[serde(default)]
    #[schemars(with = "Vec<described::DriveText>")]
    pub full_drives: Vec<DriveId>,
    /// What has gone comes back.
    #[serde(default)]
    pub cancelled: bool,
    /// It leaves the volumes that it shares data with, and keeps its layout.
    #[serde(default)]
    pub flattens: bool,
    /// Bytes a second that it's kept to; none if it takes what clients leave.
    #[serde(default)]
    pub most_rate: Option<u64>,
}

/// Whether a volume goes on to its other layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MigrationState {
    /// It does.
    Running,
    /// It rests until it's resumed: only what clients touch of what is on its way goes.
    Paused,
    /// It would, and something is in its way.
    Blocked,
}

/// A volume's way to another layout, and whose it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MigrationInfo {
    /// The volume's name.
    pub volume: String,
    /// The layout that it comes from.
    pub from: String,
    /// When it began, in milliseconds since 1970, by the clock of the server that was asked.
    pub begun_unix_ms: u64,
    /// How far it is.
    #[serde(flatten)]
    pub migration: Migration,
}

/// Has a volume, and all that share data with it, go to another layout, another pool or both.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Relayout {
    /// As [`CreateVolume::layout`]; what it has, if not said.
    #[serde(default)]
    pub layout: Option<String>,
    /// The pool whose drives it goes to; its own, if not said.
    #[serde(default)]
    pub pool: Option<String>,
    /// The bytes that go; all, if not said. They are of one range of the volume, and begin and end at multiples of 4 MiB, or of more if
    /// extents of one of the layouts don't divide it.
    #[serde(default)]
    pub range: Option<Between>,
    /// Bytes a second at most, copies not counted; as much as clients leave, if not said.
    #[serde(default)]
    pub rate: Option<u64>,
}

/// Has a volume leave those that it shares data with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Flatten {
    /// As [`Relayout::rate`].
    #[serde(default)]
    pub rate: Option<u64>,
}

/// Keeps what is under way to a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SetRate {
    /// As [`Relayout::rate`].
    pub rate: Option<u64>,
}

/// What is left to do until all copies are equal. A region is a MiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CreateVolume {
    /// 1 to 128 of `A-Z a-z 0-9 . _ -`, not beginning with `.` or `-`. No other volume may have it.
    #[schemars(regex(pattern = "^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$"))]
    pub name: String,
    /// Bytes: a multiple of 512, from 512 to 2^63. It may be more than there is room for: space is taken as data is
    /// written.
    #[schemars(range(min = 512, max = 9_223_372_036_854_775_808u64), extend("multipleOf" = 512))]
    pub size: u64,
    /// If not said: the pool's, else `mirror:2` where it has two drives, else `stripe`.
    #[serde(default)]
    pub layout: Option<String>,
    /// `default`, if not said.
    #[serde(default)]
    pub pool: Option<String>,
    /// The name of a key that the server which is asked has: the volume is encrypted, and its own key wrapped by this one. The
    /// pool's, if not said; not encrypted, if that has none.
    #[serde(default)]
    pub key: Option<String>,
    /// Not encrypted, whatever key the pool has.
    #[serde(default)]
    pub plain: bool,
    /// As of [`NoteImport`]: this import is to write to it, and it's incomplete from the first on.
    #[serde(default)]
    pub import: Option<u64>,
}

/// Has the key of an encrypted volume wrapped by another one. What's stored of the volume stays as it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RewrapKey {
    /// The other key's name. The server that is asked has both.
    pub key: String,
}

/// Makes a volume longer or shorter. New bytes read as zeros.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ResizeVolume {
    /// Bytes as it shall have: a multiple of 512, from 512 to 2^63.
    #[schemars(range(min = 512, max = 9_223_372_036_854_775_808u64), extend("multipleOf" = 512))]
    pub size: u64,
    /// Allow it to become smaller, which loses what is past the new end.
    #[serde(default)]
    pub shrink: bool,
    /// Shrink it even while clients are connected, an import writes to it or an export reads it: what they have past the new end is gone
    /// under them.
    #[serde(default)]
    pub force: bool,
    /// Replication of this source asks for it: of a replica, nobody else may.
    #[serde(default)]
    #[schemars(with = "Option<described::ReplicaText>")]
    pub replica_of: Option<ReplicaOf>,
    /// The import of that replication, as of [`Receive`](super::Receive).
    #[serde(default)]
    pub import: Option<u64>,
}

/// Gives a volume another name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RenameVolume {
    /// As [`CreateVolume::name`].
    #[schemars(regex(pattern = "^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$"))]
    pub new_name: String,
}

/// The query of DELETE of a volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RemoveVolumeQuery {
    /// Even if clients have the volume or a snapshot of it open. False, if not said.
    #[serde(default)]
    pub force: bool,
    /// With its snapshots: a volume that has some stays otherwise. False, if not said.
    #[serde(default)]
    pub snapshots: bool,
}

/// A removed volume whose space is being freed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Removal {
    /// As [`VolumeInfo::id`].
    pub id: u64,
    /// The name that it had; another volume may have it by now. Empty for whoever may not know it.
    pub name: String,
    /// Bytes on drives that are still to be freed.
    pub allocated: u64,
}

/// A scrub of a volume, over all servers: every copy of every block is read and checked, and damage is repaired.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Scrub {
    /// The volume's name.
    pub volume: String,
    /// As [`VolumeInfo::id`].
    #[serde(default)]
    pub volume_id: u64,
    /// `running` as long as any server runs its part; `failed` if one failed.
    pub state: ScrubState,
    /// Copies counted, as in [`VolumeInfo::allocated`].
    pub checked_bytes: u64,
    /// Copies counted: what the volume had on drives when the scrub began, or `checked_bytes` if that's more.
    pub total_bytes: u64,
    /// Blocks that were damaged on one copy and written again from another.
    pub repaired_blocks: u64,
    /// Drives that were read to the end.
    #[schemars(with = "Vec<described::DriveText>")]
    pub checked_drives: Vec<DriveId>,
    /// Drives that have copies and weren't, as they are away, or their servers: what is wrong there is unknown.
    #[schemars(with = "Vec<described::DriveText>")]
    pub unchecked_drives: Vec<DriveId>,
    /// What is damaged on every copy: a read of it fails.
    pub damaged: Vec<Range>,
    /// What is damaged on every copy that is here, and may be right on a drive that is away: a read of it fails until that one
    /// is back.
    #[serde(default)]
    pub unrepaired: Vec<Range>,
    /// The volume's snapshots of which something can't be read, though the volume itself may be right.
    #[serde(default)]
    pub damaged_snapshots: Vec<DamagedSnapshot>,
    /// Why it failed, if so.
    pub error: Option<String>,
    /// When servers came to the end of their parts, the last one, in milliseconds since 1970 by their clocks. Forgotten at a restart.
    #[serde(default)]
    pub done_unix_ms: Option<u64>,
    /// When servers began with their parts, the first one.
    #[serde(default)]
    pub begun_unix_ms: Option<u64>,
    /// When the last whole scrub that the cluster has on record began: one that a schedule has seen to its end.
    #[serde(default)]
    pub recorded_unix_ms: Option<u64>,
}

/// What of a volume only drives had that have failed: it may miss writes that were acknowledged, and requests for it fail until it's
/// accepted that what is left is served as it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Loss {
    /// The volume's name.
    pub volume: String,
    /// How much it is in all.
    pub bytes: u64,
    /// Where it is; of many ranges the first 10,000.
    pub ranges: Vec<Range>,
    /// Drives that are here have yet to say what they hold: it may be more.
    #[serde(default)]
    pub unsettled: bool,
    /// Who hasn't been heard of that yet: drives and servers, by name.
    #[serde(default)]
    pub waits_for: Vec<String>,
    /// Another one if anything else is lost.
    #[serde(default)]
    pub tag: String,
}

/// Accepts that this is lost, and nothing else.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AcceptLoss {
    /// As [`Loss::tag`], of what was shown.
    pub tag: String,
}

/// What a scrub found damaged of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DamagedSnapshot {
    /// As [`SnapshotInfo::name`](super::SnapshotInfo::name).
    pub name: String,
    /// As [`Scrub::damaged`], or [`Scrub::unrepaired`].
    pub damaged: Vec<Range>,
}

/// How far a scrub is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Range {
    /// The first one, counted from the volume's start.
    pub offset: u64,
    /// How many.
    pub length: u64,
}

/// The query of GET `data` and `map`, of volumes and snapshots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RangeQuery {
    /// The first byte, counted from the volume's start.
    pub offset: u64,
    /// Bytes; for `data`, at most [`MAX_DATA`](super::MAX_DATA).
    pub length: u64,
    /// Of a volume: an epoch of it in which the caller has read something of it before, or its map. Refused as
    /// [`Conflict`](super::ErrorKind::Conflict) if the volume was rolled back since.
    #[serde(default)]
    pub epoch: Option<Epoch>,
    /// The same with a revision that it had then, of one that was made smaller since.
    #[serde(default)]
    pub revision: Option<u64>,
}

/// The query of PUT `data`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OffsetQuery {
    /// Where the first byte of the body goes, counted from the volume's start.
    pub offset: u64,
    /// As of [`ImportQuery::import`].
    #[serde(default)]
    pub import: Option<u64>,
}

/// The body of POST `zero`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ZeroRange {
    /// Which bytes.
    #[serde(flatten)]
    pub range: Range,
    /// As of [`ImportQuery::import`].
    #[serde(default)]
    pub import: Option<u64>,
}

/// The query of POST `flush`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ImportQuery {
    /// The import that this is of. Refused as [`Conflict`](super::ErrorKind::Conflict) if the volume has another one by now, or was rolled
    /// back or cut off. Not asked about, if not said.
    #[serde(default)]
    pub import: Option<u64>,
}

/// An import begins, in the place of any other, or has come so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NoteImport {
    /// A random number of the command's, below 2^63 and not 0.
    pub import: u64,
    /// From the beginning on, bytes of the input that are in the volume, on stable media.
    pub done: u64,
}

/// All of an import is in the volume, on stable media.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FinishImport {
    /// As of [`NoteImport`].
    pub import: u64,
}

/// What a volume has of an import that didn't come to its end, or hasn't yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Incomplete {
    /// As of [`NoteImport`].
    pub import: u64,
    /// As of [`NoteImport`]: at least so many.
    pub done: u64,
}

/// Makes a volume that is used while it's imported from an export of an NBD server, which nobody writes to from then on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ImportLive {
    /// As [`CreateVolume::name`].
    #[schemars(regex(pattern = "^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$"))]
    pub name: String,
    /// Where the export is, as servers reach it: `nbd://HOST[:PORT]/EXPORT` or `nbd+unix:///EXPORT?socket=PATH`.
    pub from: String,
    /// Bytes, as many as the export has at least; those, if not said.
    #[serde(default)]
    pub size: Option<u64>,
    /// As [`CreateVolume::layout`]; one of whole copies.
    #[serde(default)]
    pub layout: Option<String>,
    /// As [`CreateVolume::pool`].
    #[serde(default)]
    pub pool: Option<String>,
    /// As [`CreateVolume::key`].
    #[serde(default)]
    pub key: Option<String>,
}

/// How a volume is imported while it's used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LiveImport {
    /// The address of the export that it comes from.
    pub from: String,
    /// Whether it goes on.
    pub state: LiveImportState,
    /// Bytes from the beginning on that are there.
    pub done_bytes: u64,
    /// Bytes that the volume has.
    pub total_bytes: u64,
    /// What keeps it from going on, as far as the server that is asked knows, for people.
    #[serde(default)]
    pub reason: Option<String>,
}

/// Whether a live import goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LiveImportState {
    /// The rest is being copied.
    Running,
    /// Nothing is copied; clients go on.
    Paused,
    /// Where it comes from isn't read any more: what isn't there can't be had.
    Cancelled,
}

/// Says that a command of many requests goes on. To be said every second.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Hold {
    /// A random number of the command's, for this.
    pub id: u64,
    /// The volume or snapshot that it reads or writes to, by its name or what stands for it.
    pub of: String,
    /// What it does.
    pub by: HoldUse,
    /// How far it is, if it's replication.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replication: Option<Replication>,
}

/// What a server knows of commands that hold something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HoldsKnown {
    /// Whether each command that goes on has had the time to say so: not right after the server's start.
    pub known: bool,
}

/// What a command does with what it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum HoldUse {
    /// It writes to the volume.
    Import,
    /// It reads it.
    Export,
    /// It sends its snapshots to a replica, and is in nobody's way.
    Replicate,
    /// Nothing any more.
    Ended,
}

/// A run of bytes that are all mapped, or all a hole that reads as zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MapRun {
    /// Bytes, at least one.
    pub length: u64,
    /// Whether drives hold it.
    pub mapped: bool,
}
