//! The admin API as types: what goes over HTTP between a server and the `tepal` command, or any other client.
//!
//! HTTP/1, JSON bodies with keys in snake_case, sizes in bytes. Every request carries `Authorization: Bearer TOKEN`; one
//! without the right token gets 401 and learns nothing. An answer other than 2xx has a [`Problem`] as its body.
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
//! | POST `/v1/drives/{id}/grow` | | [`DriveInfo`] |
//! | POST `/v1/drives/{id}/use` | [`SetDriveUse`] | [`DriveInfo`] |
//! | POST `/v1/drives/{id}/name` | [`NameDrive`] | [`DriveInfo`] |
//! | POST `/v1/drives/{id}/replace` | [`ReplaceDrive`] | [`DriveInfo`] of the other one; what it takes goes there in the background |
//! | GET `/v1/pools`, `/v1/pools/{name}` | | [`PoolInfo`] (a list of) |
//! | POST `/v1/pools` | [`CreatePool`] | [`PoolInfo`] |
//! | DELETE `/v1/pools/{name}` | | [`Done`] |
//! | GET `/v1/volumes?offset=N&limit=N&contains=TEXT` | | list of [`VolumeInfo`], by name; in the header [`TOTAL`], how many in all |
//! | GET `/v1/volumes/{name}` | | [`VolumeInfo`] |
//! | POST `/v1/volumes` | [`CreateVolume`] | [`VolumeInfo`] |
//! | POST `/v1/volumes/{name}/resize` | [`ResizeVolume`] | [`VolumeInfo`] |
//! | POST `/v1/volumes/{name}/rename` | [`RenameVolume`] | [`VolumeInfo`] |
//! | POST `/v1/volumes/{name}/import` | [`NoteImport`] | [`VolumeInfo`]: it's incomplete until that import is finished |
//! | POST `/v1/volumes/{name}/imported` | [`FinishImport`] | [`VolumeInfo`] |
//! | POST `/v1/volumes/{name}/follow` | [`Follow`] | [`VolumeInfo`]: it's a replica |
//! | POST `/v1/volumes/{name}/promote?force=BOOL` | | [`VolumeInfo`]: it's none any more |
//! | POST `/v1/volumes/{name}/receive` | [`Receive`] | [`Done`] |
//! | POST `/v1/volumes/{name}/received` | [`Received`] | [`SnapshotInfo`] |
//! | POST `/v1/volumes/{name}/replica` | [`NoteReplica`] | [`Done`] |
//! | PUT `/v1/volumes/{name}/pieces?import=N` | [`Pieces`] | [`Done`] |
//! | POST `/v1/snapshots/{name}/pieces` | list of [`Range`] | the bytes, one range after the other |
//! | GET `/v1/replications` | | list of [`Replication`] that go on |
//! | POST `/v1/volumes/{name}/relayout` | [`Relayout`] | [`VolumeInfo`]; it goes on in the background |
//! | POST `/v1/volumes/{name}/flatten` | [`Flatten`] | the same |
//! | POST `/v1/volumes/{name}/pause`, `/resume`, `/cancel` | | [`VolumeInfo`], of one that is on its way |
//! | POST `/v1/volumes/{name}/rate` | [`SetRate`] | the same |
//! | GET `/v1/migrations` | | list of [`MigrationInfo`] that go on, by volume |
//! | GET `/v1/plexes`, `/v1/volumes/{name}/plexes` | | [`PlexesInfo`] (a list of, by volume) |
//! | POST `/v1/volumes/{name}/parity` | [`CheckParity`] | [`ParityChecked`]: one step |
//! | DELETE `/v1/volumes/{name}?force=BOOL&snapshots=BOOL` | | [`Removal`], at once; its space is freed in the background |
//! | POST `/v1/holds` | [`Hold`] | [`Done`]: it's in use for some seconds |
//! | GET `/v1/removals` | | list of [`Removal`] that go on |
//! | POST `/v1/volumes/{name}/scrub` | | [`Scrub`]: starts one, or tells of the one that runs |
//! | GET `/v1/volumes/{name}/scrub` | | [`Scrub`]: the one that runs, or the last one |
//! | GET `/v1/volumes/{name}/data?offset=N&length=N&epoch=N` | | the bytes, as `application/octet-stream` |
//! | PUT `/v1/volumes/{name}/data?offset=N&import=N` | the bytes | [`Done`] |
//! | POST `/v1/volumes/{name}/zero` | [`ZeroRange`] | [`Done`]: these bytes read as zeros, their space is free |
//! | POST `/v1/volumes/{name}/flush?import=N` | | [`Done`]: what was written before is on stable media |
//! | GET `/v1/volumes/{name}/map?offset=N&length=N` | | list of [`MapRun`], from `offset` on, maybe not to the end |
//! | POST `/v1/live-imports` | [`ImportLive`] | [`VolumeInfo`] of a new volume, which can be used at once |
//! | GET `/v1/snapshots?volume=NAME` | | list of [`SnapshotInfo`], of all volumes if none is named |
//! | POST `/v1/snapshots` | [`CreateSnapshot`] | [`SnapshotInfo`], once nothing that is written later can be in it |
//! | GET `/v1/snapshots/{name}?count=BOOL` | | [`SnapshotInfo`] |
//! | DELETE `/v1/snapshots/{name}?force=BOOL` | | [`SnapshotRemoval`], at once; its space is freed in the background |
//! | POST `/v1/snapshots/{name}/rename` | [`RenameSnapshot`] | [`SnapshotInfo`] |
//! | POST `/v1/snapshots/{name}/rollback?force=BOOL&replica_of=TEXT` | | [`VolumeInfo`] |
//! | POST `/v1/snapshots/{name}/clone` | [`CloneSnapshot`] | [`VolumeInfo`] of the new volume |
//! | GET `/v1/snapshots/{name}/diff?to=SNAP&offset=N&epoch=N` | | [`SnapshotDiff`], from `offset` on, maybe not to the end |
//! | GET `/v1/snapshots/{name}/data`, `/map` | | as of a volume |
//! | GET `/v1/identities` | | list of [`IdentityInfo`] |
//! | POST `/v1/identities` | [`CreateIdentity`] | [`IdentityCertificate`] |
//! | POST `/v1/identities/{name}/renew` | [`RenewIdentity`] | [`IdentityCertificate`] |
//! | DELETE `/v1/identities/{name}` | | [`Done`], once no server knows it any more |
//! | GET `/v1/volumes/{name}/rights` | | list of [`RightInfo`] |
//! | POST `/v1/volumes/{name}/rights` | [`Grant`] | [`Done`] |
//! | DELETE `/v1/volumes/{name}/rights?to=TEXT` | | [`Done`], once nobody acts by it any more |
//! | POST `/v1/volumes/{name}/key` | [`RewrapKey`] | [`VolumeInfo`] |
//! | POST `/v1/volumes/{name}/limits` | [`Limits`] | [`VolumeInfo`] |
//! | POST `/v1/identities/{name}/limits` | [`Limits`] | [`IdentityInfo`] |
//! | POST `/v1/volumes/{name}/reservation` | [`Reserve`] | [`Done`], once nobody else writes to it any more |
//! | DELETE `/v1/volumes/{name}/reservation?from=HOLDER` | | [`Done`], once nobody who was connected writes to it any more |
//! | GET `/v1/counters?each=BOOL` | | [`Counters`] |
//! | GET `/v1/usage` | | [`Usage`] |
//! | POST `/v1/traces/slow?over_micros=N&volume=NAME&seconds=N` | | [`SlowWatched`]: slow requests are noted for so long |
//! | GET `/v1/traces/slow` | | [`TracesData`]: those that were |
//! | DELETE `/v1/traces/slow` | | [`Done`]: no more are |
//! | GET `/v1/live` | | a stream of server-sent events, [`LiveEvent`]s, until the server stops |
//! | POST `/v1/sql` | [`SqlQuery`] | [`SqlRows`] |
//!
//! `/`, `/console.js` and `/console.css` are the console in the browser. They tell nothing of the cluster, and need no token.
//!
//! `{name}` and `{id}` are percent-encoded; a snapshot's name is `VOLUME@SNAP`. `data` takes up to [`MAX_DATA`] bytes a request.
//!
//! Names are for people, and may have gone over to another thing by the next request. Whoever asks for several things of one volume or
//! snapshot takes its id from the first answer, and says that instead of the name from then on: see [`BY_ID`].

mod cluster;
mod described;
mod directory;
mod drives;
mod identities;
mod live;
mod plexes;
mod problem;
mod replication;
mod schedules;
mod snapshots;
mod traces;
mod volumes;

pub use cluster::{ChangeCluster, ClusterInfo, Health, ServerDrive, ServerInfo, ServerState, SetDraining, Status};
pub use directory::{
    Directory, DirectoryColumn, DirectoryDrive, DirectoryIdentity, DirectoryKey, DirectoryMap, DirectoryMigration,
    DirectoryRanges, DirectoryServer, DirectorySnapshot, DirectoryTrust, DirectoryVolume, ENCRYPTED, GatewayNews,
    RANGED,
};
pub use drives::{
    AddDrive, CreatePool, DriveInfo, DriveRemoved, Found, FoundDrive, NameDrive, OpenDriveInfo, PoolInfo, ReplaceDrive,
    SetDriveUse, SetPoolKey,
};
pub use identities::{
    AuthoritiesInfo, AuthorityCertificate, AuthorityInfo, CreateIdentity, CreateJoinToken, CreateOutsideIdentity,
    FenceQuery, Grant, IdentityCertificate, IdentityInfo, Join, JoinToken, JoinTokenInfo, Joined, OutsideAuthority,
    OutsideSubject, RenewIdentity, Reserve, Right, RightInfo, Role, ScopeRightInfo, WithdrawQuery,
};
pub use live::{
    Counters, CountersQuery, DriveCounters, GatewayCounters, LATEST, LiveEvent, OperationCounters, OperationSum, READ,
    ServerCounters, TOTAL, Usage, UsageSample, VolumeCounters, VolumesQuery,
};
pub use plexes::{CheckParity, ParityChecked, PartState, PlexInfo, PlexesInfo, SubdiskInfo};
pub use problem::{ApiError, ErrorKind, PROBLEM_JSON, Problem, ProblemType, Revisions};
pub use replication::{
    CopyOf, Follow, NoteReplica, Pieces, Receive, Received, Replica, ReplicaOf, ReplicaOfError, ReplicaQuery,
    Replication, ReplicationRole,
};
pub use schedules::{
    CreateSchedule, DEFAULT_KEEP, HeldSnapshot, ScheduleInfo, ScheduleRules, ScheduleRun, ScrubQuery, Unscrubbed,
    WorkKind,
};
pub use snapshots::{
    CloneSnapshot, CreateSnapshot, DiffQuery, Difference, DifferenceKind, RenameSnapshot, ShowSnapshotQuery,
    SnapshotDiff, SnapshotInfo, SnapshotName, SnapshotNameError, SnapshotQuery, SnapshotRemoval, SourceName,
};
pub use traces::{
    Attribute, AttributeValue, Resource, ResourceSpans, Scope, ScopeSpans, SlowWatched, Span, SpanStatus, TracesData,
    WatchSlowQuery,
};
pub use volumes::{
    AcceptLoss, Between, CreateVolume, DamagedSnapshot, FinishImport, Flatten, Hold, HoldUse, HoldsKnown, ImportLive,
    ImportQuery, Incomplete, LiveImport, LiveImportState, Loss, MapRun, Migration, MigrationInfo, MigrationState,
    NoteImport, OffsetQuery, Range, RangeQuery, RecoveryInfo, Relayout, Removal, RemoveVolumeQuery, RenameVolume,
    ResizeVolume, RewrapKey, Scrub, ScrubState, SetRate, VolumeInfo, VolumeRange, VolumeState, ZeroRange,
};

pub use described::LimitsShape;
pub use tepal_model::{Limits, Rate};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
/// Begins what stands for the name of a volume that is there, in paths, bodies and queries and as an NBD export, with its id
/// ([`VolumeInfo::id`]), as `id:7`: it's the same one when that is renamed, and never another. So is `id:7@3`, the volume's snapshot of
/// epoch
/// 3 ([`SnapshotInfo::epoch`]). No name has a colon.
pub use tepal_metadata::BY_ID;
pub use tepal_metadata::{DEFAULT_POOL, DriveState, DriveUse};

/// The longest body of `data`, and the longest range it can be asked for, in bytes.
pub const MAX_DATA: u64 = tepal_model::MAX_REQUEST;

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
    /// POST: the drive takes what its device has been enlarged by. It's away for a moment meanwhile.
    pub const DRIVE_GROW: &str = "/v1/drives/{id}/grow";
    /// POST of [`NameDrive`](super::NameDrive): what the drive is called besides its id.
    pub const DRIVE_NAME: &str = "/v1/drives/{id}/name";
    /// POST of [`ReplaceDrive`](super::ReplaceDrive): another drive takes what layouts name this one for.
    pub const DRIVE_REPLACE: &str = "/v1/drives/{id}/replace";
    /// POST of [`SetDriveUse`](super::SetDriveUse): what the drive is for.
    pub const DRIVE_USE: &str = "/v1/drives/{id}/use";
    /// What this server says of a drive that is to go: not for the `tepal` command.
    pub const DRIVE_KEPT: &str = "/v1/drives/{id}/kept";
    /// GET: list of [`PoolInfo`](super::PoolInfo), by name. POST of [`CreatePool`](super::CreatePool).
    pub const POOLS: &str = "/v1/pools";
    /// GET: [`PoolInfo`](super::PoolInfo). DELETE: removes a pool without drives and volumes.
    pub const POOL: &str = "/v1/pools/{name}";
    /// GET with [`VolumesQuery`](super::VolumesQuery): list of [`VolumeInfo`](super::VolumeInfo), by name.
    /// POST of [`CreateVolume`](super::CreateVolume).
    pub const VOLUMES: &str = "/v1/volumes";
    /// GET: [`VolumeInfo`](super::VolumeInfo). DELETE: removes the volume and all its data, see
    /// [`RemoveVolumeQuery`](super::RemoveVolumeQuery).
    pub const VOLUME: &str = "/v1/volumes/{name}";
    /// POST of [`ResizeVolume`](super::ResizeVolume).
    pub const VOLUME_RESIZE: &str = "/v1/volumes/{name}/resize";
    /// POST of [`RenameVolume`](super::RenameVolume). Whoever has the volume open keeps it.
    pub const VOLUME_RENAME: &str = "/v1/volumes/{name}/rename";
    /// POST of [`NoteImport`](super::NoteImport): it's incomplete until that is finished, whatever becomes of who does it.
    pub const VOLUME_IMPORT: &str = "/v1/volumes/{name}/import";
    /// POST of [`ImportLive`](super::ImportLive): [`VolumeInfo`](super::VolumeInfo), which can be used at once. It's paused, gone on with
    /// and cancelled as a migration is.
    pub const LIVE_IMPORTS: &str = "/v1/live-imports";
    /// POST of [`FinishImport`](super::FinishImport): it's whole.
    pub const VOLUME_IMPORTED: &str = "/v1/volumes/{name}/imported";
    /// POST of [`Follow`](super::Follow): the volume is a replica from now on.
    pub const VOLUME_FOLLOW: &str = "/v1/volumes/{name}/follow";
    /// POST: the replica is an ordinary volume from now on, see [`ForceQuery`](super::ForceQuery).
    pub const VOLUME_PROMOTE: &str = "/v1/volumes/{name}/promote";
    /// POST of [`Receive`](super::Receive): replication begins to write to the replica, or has come so far.
    pub const VOLUME_RECEIVE: &str = "/v1/volumes/{name}/receive";
    /// POST of [`Received`](super::Received): all of a snapshot is there, and kept.
    pub const VOLUME_RECEIVED: &str = "/v1/volumes/{name}/received";
    /// POST of [`NoteReplica`](super::NoteReplica): nothing has changed at the source.
    pub const VOLUME_REPLICA: &str = "/v1/volumes/{name}/replica";
    /// PUT with [`ImportQuery`](super::ImportQuery): [`Pieces`](super::Pieces) to be written.
    pub const VOLUME_PIECES: &str = "/v1/volumes/{name}/pieces";
    /// GET: list of [`Replication`](super::Replication) that go on.
    pub const REPLICATIONS: &str = "/v1/replications";
    /// POST of a list of [`Range`](super::Range): these bytes of the snapshot, one range after the other.
    pub const SNAPSHOT_PIECES: &str = "/v1/snapshots/{name}/pieces";
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
    /// GET: [`Loss`](super::Loss). POST: what is left of that is served as it is.
    pub const VOLUME_LOSS: &str = "/v1/volumes/{name}/loss";
    /// GET: list of [`PlexesInfo`](super::PlexesInfo), by volume.
    pub const PLEXES: &str = "/v1/plexes";
    /// GET: [`PlexesInfo`](super::PlexesInfo).
    pub const VOLUME_PLEXES: &str = "/v1/volumes/{name}/plexes";
    /// POST of [`CheckParity`](super::CheckParity): one step of a comparison of parity with data.
    pub const VOLUME_PARITY: &str = "/v1/volumes/{name}/parity";
    /// POST starts a scrub, GET tells of it: [`Scrub`](super::Scrub).
    pub const VOLUME_SCRUB: &str = "/v1/volumes/{name}/scrub";
    /// GET with [`RangeQuery`](super::RangeQuery), PUT with [`OffsetQuery`](super::OffsetQuery): bytes of the volume.
    pub const VOLUME_DATA: &str = "/v1/volumes/{name}/data";
    /// POST of [`ZeroRange`](super::ZeroRange): these bytes read as zeros, and their space is free. Stable when it's answered.
    pub const VOLUME_ZERO: &str = "/v1/volumes/{name}/zero";
    /// POST with [`ImportQuery`](super::ImportQuery): what was written before is on stable media.
    pub const VOLUME_FLUSH: &str = "/v1/volumes/{name}/flush";
    /// GET with [`RangeQuery`](super::RangeQuery): list of [`MapRun`](super::MapRun).
    pub const VOLUME_MAP: &str = "/v1/volumes/{name}/map";
    /// POST of [`Hold`](super::Hold): a command goes on to read or write something. GET: [`HoldsKnown`](super::HoldsKnown).
    pub const HOLDS: &str = "/v1/holds";
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
    /// GET: list of [`IdentityInfo`](super::IdentityInfo), by name. POST of [`CreateIdentity`](super::CreateIdentity).
    pub const IDENTITIES: &str = "/v1/identities";
    /// POST of [`CreateOutsideIdentity`](super::CreateOutsideIdentity): [`IdentityInfo`](super::IdentityInfo).
    pub const OUTSIDE_IDENTITIES: &str = "/v1/outside-identities";
    /// GET: [`AuthoritiesInfo`](super::AuthoritiesInfo).
    pub const AUTHORITIES: &str = "/v1/authorities";
    /// POST: one more, which is to take the place of the one that is there. [`AuthoritiesInfo`](super::AuthoritiesInfo).
    pub const AUTHORITIES_ROTATE: &str = "/v1/authorities/rotate";
    /// POST: it has taken the place. [`AuthoritiesInfo`](super::AuthoritiesInfo).
    pub const AUTHORITIES_FINISH: &str = "/v1/authorities/finish";
    /// POST of [`OutsideAuthority`](super::OutsideAuthority).
    pub const OUTSIDE_AUTHORITIES: &str = "/v1/authorities/outside";
    /// DELETE: it isn't trusted any more.
    pub const OUTSIDE_AUTHORITY: &str = "/v1/authorities/outside/{name}";
    /// GET: list of [`ScopeRightInfo`](super::ScopeRightInfo). POST of [`Grant`](super::Grant). DELETE, see
    /// [`WithdrawQuery`](super::WithdrawQuery).
    pub const POOL_RIGHTS: &str = "/v1/pools/{name}/rights";
    /// The same of all volumes.
    pub const CLUSTER_RIGHTS: &str = "/v1/cluster/rights";
    /// POST of [`SetPoolKey`](super::SetPoolKey): [`PoolInfo`](super::PoolInfo).
    pub const POOL_KEY: &str = "/v1/pools/{name}/key";
    /// DELETE: its keys count no more.
    pub const IDENTITY: &str = "/v1/identities/{name}";
    /// POST of [`RenewIdentity`](super::RenewIdentity).
    pub const IDENTITY_RENEW: &str = "/v1/identities/{name}/renew";
    /// GET: list of [`RightInfo`](super::RightInfo). POST of [`Grant`](super::Grant). DELETE, see
    /// [`WithdrawQuery`](super::WithdrawQuery).
    pub const VOLUME_RIGHTS: &str = "/v1/volumes/{name}/rights";
    /// POST of [`Reserve`](super::Reserve). DELETE, see [`FenceQuery`](super::FenceQuery).
    pub const VOLUME_RESERVATION: &str = "/v1/volumes/{name}/reservation";
    /// POST: by which key the volume's own is wrapped.
    pub const VOLUME_KEY: &str = "/v1/volumes/{name}/key";
    /// GET: list of [`JoinTokenInfo`](super::JoinTokenInfo). POST of [`CreateJoinToken`](super::CreateJoinToken):
    /// [`JoinToken`](super::JoinToken).
    pub const JOIN_TOKENS: &str = "/v1/join-tokens";
    /// DELETE: nobody joins by it any more.
    pub const JOIN_TOKEN: &str = "/v1/join-tokens/{id}";
    /// POST of [`Join`](super::Join): [`Joined`](super::Joined). For servers that have no identity yet.
    pub const JOIN: &str = "/v1/join";
    /// GET: [`AuthorityCertificate`](super::AuthorityCertificate), for whoever asks.
    pub const AUTHORITY: &str = "/v1/authority";
    /// [`Limits`](super::Limits) of a volume.
    pub const VOLUME_LIMITS: &str = "/v1/volumes/{name}/limits";
    /// [`Limits`](super::Limits) of an identity.
    pub const IDENTITY_LIMITS: &str = "/v1/identities/{name}/limits";
    /// GET: list of [`ScheduleInfo`](super::ScheduleInfo), by name. POST of [`CreateSchedule`](super::CreateSchedule).
    pub const SCHEDULES: &str = "/v1/schedules";
    /// GET: [`ScheduleInfo`](super::ScheduleInfo). POST of [`ScheduleRules`](super::ScheduleRules), of the same volumes. DELETE: its
    /// snapshots stay.
    pub const SCHEDULE: &str = "/v1/schedules/{name}";
    /// POST: it rests. [`ScheduleInfo`](super::ScheduleInfo).
    pub const SCHEDULE_PAUSE: &str = "/v1/schedules/{name}/pause";
    /// POST: it goes on, and has missed nothing.
    pub const SCHEDULE_RESUME: &str = "/v1/schedules/{name}/resume";
    /// POST: it's run now, beside its times. [`ScheduleRun`](super::ScheduleRun).
    pub const SCHEDULE_RUN: &str = "/v1/schedules/{name}/run";
    /// GET with [`CountersQuery`](super::CountersQuery): [`Counters`](super::Counters).
    pub const COUNTERS: &str = "/v1/counters";
    /// GET: [`Usage`](super::Usage).
    pub const USAGE: &str = "/v1/usage";
    /// POST with [`WatchSlowQuery`](super::WatchSlowQuery): [`SlowWatched`](super::SlowWatched). GET:
    /// [`TracesData`](super::TracesData). DELETE.
    pub const SLOW: &str = "/v1/traces/slow";
    /// GET: server-sent events, [`LiveEvent`](super::LiveEvent).
    pub const LIVE: &str = "/v1/live";
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

/// The answer of what has nothing to tell: an empty object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Done {}

/// The query of what clients, or a last good copy, may stand in the way of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ForceQuery {
    /// Even if the last good copy of something is on the drive, or clients have the volume or snapshot open. False, if not said.
    #[serde(default)]
    pub force: bool,
}

/// A question about the cluster's state, for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SqlQuery {
    /// One SELECT statement of SQLite. It may run for 5 seconds and give 100 000 rows and 16 MiB.
    pub query: String,
}

/// What the query gives.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
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
