//! What can be asked of the cluster's state, and what it answers. Commands are entries of the Raft log: once
//! released, a variant or field is never renamed or given another meaning, only added with a higher [`VERSION`], which
//! [`Command::version`] says of it.

mod reply;

use crate::access::{KeyHash, LiveStage, Right, Role};
use crate::conditions::Versioned;
use crate::record::{BY_ID, Cleared, DriveState, DriveUse, ReplicaSource, ServerState};
use crate::schedule::ScheduleCommand;
pub use reply::Reply;
use serde::{Deserialize, Serialize};
use tepal_model::{ClusterId, DriveId, Epoch, Limits, MapId, ServerId, VolumeId};

/// The newest version of commands that this build knows. An entry of a newer one stops the server rather than be
/// misread. 2 has the snapshots of volumes, 3 their clones, copies that move between drives, and volumes that go from one map to another,
/// 4 volumes that go alone, 5 volumes that go to another pool, and others believed where a drive is removed that a rebuild didn't find, 6
/// volumes that grow only as they were cleared, 7 which copies of a column are complete, commands about a volume or snapshot by its id,
/// and imports, 8 epochs that tell which were handed out while drives were away, gaps in a map's history that are closed, and drives that
/// grow, 9 in which epoch a volume went on that was rolled back, 10 rollbacks that raise the volume's revision, 11 volumes with erasure
/// codes, 12 volumes whose layouts name drives, and names of drives, 13 replicas of volumes of other clusters, and other
/// drives in layouts, 14 identities and rights, 15 schedules, encrypted volumes, limits, tokens by which servers join, commands under
/// conditions, ranges of volumes that have layouts of their own, live imports, volumes made for imports, quorum layouts, and what is given
/// up of erasure codes.
pub const VERSION: u32 = 15;

/// From this version on volumes have quorum layouts.
pub(crate) const QUORUM: u32 = 15;

/// From this version on, what is lost of volumes with erasure codes can be given up.
pub(crate) const CODES_GIVEN_UP: u32 = 15;

/// From this version on, [`Command::CreateVolume`] makes columns for drives to come; before, one for each drive.
pub(crate) const MOVABLE: u32 = 3;

/// From this version on, a range of volumes may go to a layout of its own.
const RANGES: u32 = 15;

/// From this version on, a volume may go alone, which leaves the others that have its map.
pub(crate) const ALONE: u32 = 4;

/// From this version on, a volume may go to the drives of another pool.
const TO_POOL: u32 = 5;

/// From this version on, a drive that never came since a rebuild is removed as one that left before others did.
pub(crate) const NEVER_CAME: u32 = 5;

/// From this version on, a volume grows only if nothing can have come past its end since that was cleared.
pub(crate) const GROWS_CLEARED: u32 = 6;

/// From this version on, nobody goes on without a copy before it's agreed that the copy is passed over; before, whoever had heard that a
/// drive was away did.
pub(crate) const COPIES_COUNTED: u32 = 7;

/// From this version on, a command may say the id of what it's about instead of its name: see [`BY_ID`].
pub(crate) const IDS: u32 = 7;

/// From this version on, volumes are known to be incomplete.
const IMPORTS: u32 = 7;

/// From this version on, an epoch that is handed out while drives of the map are away has the number of its view.
pub(crate) const GAPS_CLOSED: u32 = 8;

/// From this version on, a drive may have another capacity than it was added with.
const GROWTHS: u32 = 8;

/// From this version on, a volume's record says in which epoch it went on when it was rolled back, and in which revision it was made
/// smaller.
pub(crate) const ROLLBACKS_NOTED: u32 = 9;

/// From this version on, every rollback raises the revision of the volume's record.
pub(crate) const ROLLBACKS_REVISE: u32 = 10;

/// From this version on, volumes may have an erasure code. Builds before don't know the layout.
const ERASURE_CODES: u32 = 11;

/// From this version on, layouts may name drives, and drives have names. Builds before know neither.
const PLEXES: u32 = 12;

/// From this version on, layouts that name drives may get another drive in place of one.
const REPLACED: u32 = 13;
/// From this version on, volumes may be replicas. Builds before would let clients write to them.
const REPLICAS: u32 = 13;

/// From this version on, there are identities and rights on volumes. Builds before would let everybody in.
const ACCESS: u32 = 14;

/// From this version on, volumes may be encrypted. Builds before would give clients what's stored.
const ENCRYPTION: u32 = 15;

/// From this version on, volumes and identities may have limits.
const LIMITS: u32 = 15;

/// From this version on, every grant begins a new view, there are rights on pools and the cluster, authorities of others, and authorities
/// that take the place of others. Holders that were cut off are remembered, and a server that is removed is revoked.
pub(crate) const REALM: u32 = 15;

/// From this version on, servers may join by tokens.
const JOIN_TOKENS: u32 = 15;

/// From this version on, volumes may be made as incomplete ones, and be used while they are imported. Builds before would read what isn't
/// there yet as zeros.
const LIVE_IMPORTS: u32 = 15;

/// From this version on, there are schedules.
const SCHEDULES: u32 = 15;

/// From this version on, commands may be carried out once for a key, or only while a thing has a revision.
const CONDITIONS: u32 = 15;

/// A command as it stands in the log, with what its proposer chose for everybody.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proposal {
    /// The version of the command.
    pub version: u32,
    /// The proposer's wall clock, for people; nothing is decided by it.
    pub unix_ms: u64,
    /// Who proposed it, by which it's carried out once however often it arrives. None for a cluster's first command.
    pub from: Option<Proposer>,
    /// Who asked for it, for people; none if nobody said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub who: Option<String>,
    pub command: Command,
}

impl Proposal {
    pub fn new(unix_ms: u64, from: Option<Proposer>, command: Command) -> Self {
        Proposal { version: command.version(), unix_ms, from, who: None, command }
    }
}

/// One proposal of one process of one server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proposer {
    pub server: ServerId,
    pub incarnation: u32,
    pub boot: u64,
    /// Counts this process's proposals, from 1.
    pub sequence: u64,
    /// All proposals before this one are over for their proposer: what they came to may be forgotten.
    pub settled: u64,
    /// The view in which its server came into its state, as far as it knew when it sent this. Whoever leads carries it out only if that is
    /// still so; once it's in the log, nothing depends on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub up_since: Option<u64>,
}

/// A change of the state. Ids and sizes are chosen by the proposer; names and texts are checked when it's applied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "a field is the one of the record that it sets, where nothing else is said")]
pub enum Command {
    /// The first entry of every cluster: names it, and makes the pool [`crate::DEFAULT_POOL`] and the first server.
    InitCluster { id: ClusterId, name: String, server: ServerId, address: String },
    /// A new server, which gets the next id; it's down until it starts. Asked again with the same `folder`, it answers
    /// the same.
    JoinServer {
        /// The random number of its data folder, below 2^63.
        folder: u64,
        address: String,
        /// Come back as this server, which is down, with an empty folder: the one it had is void from now on.
        claim: Option<ServerId>,
    },
    /// A process of the server began: it knows of none of its writes whether they are on its drives. The server is up in
    /// a new view, with its drives missing until they are found.
    ServerStarted {
        id: ServerId,
        incarnation: u32,
        /// Counts the starts of this folder. A lower one is of an older copy of it.
        boot: u64,
    },
    /// For how long a server may serve unheard, on all servers.
    SetLease {
        /// Milliseconds, from 300 to 60,000.
        ms: u64,
    },
    /// All leases have ended that were longer than those of now: nobody waits for them any more. Of use only while leases are so long.
    EndLongLeases {
        /// Milliseconds.
        ms: u64,
    },
    /// Takes a server without drives out of the cluster for good.
    RemoveServer { id: ServerId },
    /// The server is reached elsewhere now.
    SetServerAddress { id: ServerId, address: String },
    /// The server is at this site now, or doesn't say any more. Maps that were made before stay as they are.
    SetServerSite { id: ServerId, site: Option<String> },
    /// The server went away or came back.
    SetServerState {
        id: ServerId,
        /// When it goes `Down`, its drives that are `Up` or `Behind` are `Missing` in the same view.
        to: ServerState,
        reason: String,
        /// The server's `state_view` when this was decided: if its state has changed since, the command is refused as
        /// [`crate::Refusal::ServerChanged`].
        expected_view: Option<u64>,
    },
    /// Whether what the server's drives hold shall go to others, and nothing new come.
    SetServerDraining { id: ServerId, draining: bool },
    /// Adds an empty drive, which is `Up` at once.
    AddDrive {
        id: DriveId,
        server: ServerId,
        pool: String,
        path: String,
        capacity: u64,
        /// It's for when another one has to be replaced: see [`DriveUse::Spare`].
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        spare: bool,
    },
    /// What the operator wants with the drive.
    SetDriveUse { id: DriveId, to: DriveUse },
    /// What the drive is called besides its id: unique among drives.
    NameDrive { id: DriveId, name: Option<String> },
    /// Layouts that name one drive name another one in its place from now on, which has nothing of these volumes. A spare is in use from
    /// then on. What lies on the one drive is to go to the other.
    ReplaceDrive { from: DriveId, to: DriveId },
    /// The drive was found, and is taken into use in a new generation: perhaps at another place, at another server only if it's not
    /// in use at the one that had it.
    DriveMoved {
        id: DriveId,
        server: ServerId,
        path: String,
        /// Of its label, which was raised for this use. Commands of before don't say it.
        #[serde(default)]
        generation: u64,
    },
    /// The drive has taken more of its device, and has this capacity now. One that is no larger changes nothing.
    DriveGrew {
        id: DriveId,
        /// Bytes.
        capacity: u64,
    },
    /// The drive went away, came back, or was judged ([`DriveState::may_become`]).
    SetDriveState {
        id: DriveId,
        to: DriveState,
        reason: String,
        /// The drive's `state_view` when this was decided: if its state has changed since, the command is refused as
        /// [`crate::Refusal::DriveChanged`]. Must be given for `Behind` to `Up`, or a drive that went away once more
        /// while it was being caught up could be declared whole.
        expected_view: Option<u64>,
    },
    /// A drive that was `Behind` is `Up`: whoever leads a column of it has said, in this view, that it knows what it misses.
    DriveIsUp {
        id: DriveId,
        reason: String,
        /// The cluster's: if that has changed since, another may lead, and the command is refused as
        /// [`crate::Refusal::ViewChanged`].
        view: u64,
    },
    /// A server can't reach another one, though both are up: the other's drives that have copies along with drives of the
    /// first are `Missing`, in one view. Of two that complain of each other, one is heard.
    ServerCutOff {
        /// Which can't be reached.
        id: ServerId,
        /// From where.
        by: ServerId,
        reason: String,
        /// The cluster's: if that has changed since, there may be nothing to complain of any more, and the command is refused as
        /// [`crate::Refusal::ViewChanged`].
        view: u64,
    },
    /// Takes a drive out of the cluster for good.
    RemoveDrive {
        id: DriveId,
        /// Even if the last good copy of something is on it.
        force: bool,
    },
    /// A drive joins a column to take the place of one of its holders, in a new view: it gets new writes, and is brought up
    /// to date. It counts for nothing yet.
    BeginMove {
        map: MapId,
        column: u32,
        /// The holder.
        from: DriveId,
        /// Who is up, shares no failure domain with the other holders, and isn't to be emptied itself.
        to: DriveId,
    },
    /// The drive that joins has everything, as whoever leads the column says: it's a holder from a new view on, in the place of
    /// the other, which isn't any more.
    FinishMove {
        map: MapId,
        column: u32,
        to: DriveId,
        /// The view in which it began to join: another move of the same drive is another one.
        since: u64,
        /// The cluster's: if that has changed since, another may lead, and the command is refused as
        /// [`crate::Refusal::ViewChanged`].
        view: u64,
    },
    /// The drive doesn't join any more, from a new view on.
    CancelMove {
        map: MapId,
        column: u32,
        to: DriveId,
        /// As for the end of it.
        since: u64,
    },
    /// Adds a pool without drives.
    CreatePool {
        name: String,
        /// For its volumes that are created without one.
        layout: Option<String>,
    },
    /// Removes a pool without drives and volumes.
    RemovePool { name: String },
    /// Adds a volume and its map, over the drives of the pool that are up.
    CreateVolume {
        name: String,
        /// Bytes.
        size: u64,
        /// The pool's, if not given.
        layout: Option<String>,
        pool: String,
    },
    /// As [`Command::CreateVolume`] or [`Command::CreateEncrypted`], of a volume that is incomplete from the first on.
    CreateForImport { create: Box<Command>, import: u64 },
    /// Makes the volume larger or smaller.
    ResizeVolume {
        name: String,
        /// Bytes, as it shall be.
        size: u64,
        /// Allow the volume to become smaller, which loses what is past its new end.
        shrink: bool,
        /// What was cleared for it to become larger: if it isn't the volume as it is now, something may lie past its end again, and
        /// the command is refused as [`crate::Refusal::NotCleared`]. Up to version 5 nobody said it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cleared: Option<Cleared>,
    },
    /// An import begins to write to the volume, in the place of any other, or has come so far: the volume is incomplete.
    NoteImport {
        name: String,
        /// Random.
        import: u64,
        /// Bytes that are there for good.
        done: u64,
    },
    /// The volume has all of what was imported: it's whole. Refused as [`crate::Refusal::ImportChanged`] if it has another import by
    /// now, or
    /// was cut off or rolled back.
    FinishImport { name: String, import: u64 },
    /// The volume is a replica of another one from now on, in a new view: only replication writes to it. It holds what it did.
    Follow {
        name: String,
        source: ReplicaSource,
        /// How that is called, for people.
        called: String,
        /// The epoch of its newest snapshot that the source has too, from which it goes on.
        base: Option<Epoch>,
    },
    /// The replica is an ordinary volume from now on. A part of a snapshot that it has is given up: it holds what its newest whole snapshot
    /// does, in a new epoch and a new view.
    Promote {
        name: String,
        /// Also if no snapshot is whole: then it's incomplete.
        force: bool,
    },
    /// Replication begins to write to the replica, in the place of the one that it has found there, or has come so far. Refused as
    /// [`crate::Refusal::ImportChanged`] if the replica isn't as it was found, or has had this snapshot already.
    Receive {
        name: String,
        /// What it's a replica of.
        source: ReplicaSource,
        /// Random: who writes.
        import: u64,
        /// The epoch of the newest whole snapshot that was found; none if none was.
        base: Option<Epoch>,
        /// Who wrote, of a part of a snapshot that was found; none if there was no part.
        before: Option<u64>,
        /// Of the source's snapshot that it gets.
        epoch: Epoch,
        /// Bytes from the beginning on that are there for good.
        done: u64,
    },
    /// The replica has all of the snapshot, and keeps it under this name, in a new view. Refused as
    /// [`crate::Refusal::ImportChanged`] if another one writes by now.
    Received {
        name: String,
        import: u64,
        snapshot: String,
        /// When the source made it.
        taken_unix_ms: u64,
    },
    /// The source holds what the replica's newest snapshot does at this time too.
    NoteReplica { name: String, source: ReplicaSource, as_of_unix_ms: u64 },
    /// Replication of this source asks for it. Refused if the volume is no replica of that, and as
    /// [`crate::Refusal::ImportChanged`] if it's to get another size while not this one writes.
    Replicated {
        source: ReplicaSource,
        /// Who writes; only for another size.
        import: Option<u64>,
        command: Box<Command>,
    },
    /// Gives the volume another name; its users go on.
    RenameVolume { name: String, new_name: String },
    /// The volume is gone for its users at once; its record stays `Deleting` until [`Command::FinishRemoveVolume`].
    RemoveVolume {
        name: String,
        /// With its snapshots. Without this, a volume that has some stays.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        snapshots: bool,
    },
    /// The space of a removed volume is free on every drive: forget it, and its map if no other volume has that.
    FinishRemoveVolume { id: VolumeId },
    /// Keeps what the volume holds now under a name. The volume goes on in a new epoch, in a new view.
    CreateSnapshot {
        volume: String,
        /// Unique among the volume's snapshots.
        name: String,
    },
    /// The snapshot is gone at once, in a new view. What only it saw is free for others.
    RemoveSnapshot { volume: String, name: String },
    /// Gives the snapshot another name.
    RenameSnapshot { volume: String, name: String, new_name: String },
    /// The volume holds what the snapshot does, and has its size, in a new epoch and a new view. What the volume held before is
    /// lost, unless another snapshot keeps it; all its snapshots stay.
    RollBack {
        volume: String,
        /// The snapshot's.
        name: String,
    },
    /// Adds a volume that holds what a snapshot does, and has its size, in a new epoch of the same map and a new view. Nothing is
    /// copied. Either may be removed before the other.
    CloneVolume {
        /// Of which the snapshot is.
        volume: String,
        snapshot: String,
        /// The new volume's.
        name: String,
    },
    /// Nobody sees anything of these runs of epochs, and no drive has any: what volumes and snapshots see is said without them, in a new
    /// view.
    CloseGaps {
        map: MapId,
        /// First and last of each.
        gaps: Vec<(Epoch, Epoch)>,
        /// The cluster's when drives were asked: if some of the map's have come or gone since, the command is refused as
        /// [`crate::Refusal::ViewChanged`].
        view: u64,
    },
    /// Makes a map that volumes begin to go to, in a new view: all that have the volume's, or it alone.
    BeginMigration {
        volume: String,
        /// What they shall have; the volume's, if not given.
        layout: Option<String>,
        /// Whether the volume leaves the others that have the same map. Refused up to version 3.
        alone: bool,
        /// Whose drives shall hold them; the volume's pool, if not given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pool: Option<String>,
        /// Only these bytes go, up to but not including the second number; all, if not given. From version 15 on.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        range: Option<(u64, u64)>,
        /// Random: of the order of chunks.
        seed: u64,
        rate: Option<u64>,
    },
    /// The target has everything of the window: the next one begins, in a new view. With the last one it's over: the volumes have
    /// the target, and a source that nobody has any more is gone.
    MoveWindow {
        id: MapId,
        /// The record's: if it has another window by now, or another direction, the command is refused as
        /// [`crate::Refusal::WindowChanged`].
        since: u64,
        /// The next `done` and `fence`. It begins where the other ends; at the end of all chunks there is none.
        to: (u64, u64),
    },
    /// It rests, or goes on, in a new view.
    PauseMigration { id: MapId, paused: bool },
    /// It's kept to this rate from now on.
    SetMigrationRate { id: MapId, rate: Option<u64> },
    /// What has gone is to come back, or to go after all: source and target change places, in a new view.
    TurnMigration {
        id: MapId,
        /// Which way it goes from now on; if it does already, nothing changes.
        cancelled: bool,
    },
    /// Which copies have everything from now on, of columns that the proposer leads.
    CountCopies {
        changes: Vec<ColumnCopies>,
        /// Refused if it isn't the newest one; 0 if the server is alone.
        view: u64,
    },
    /// Of a volume that has lost data with drives that failed, what is left is served as it is. With an erasure code nothing is left.
    AcceptLoss {
        volume: VolumeId,
        /// The cluster's when it was shown what is lost: if that has changed since, more may be lost, and the command is refused as
        /// [`crate::Refusal::ViewChanged`]. 0 of a build that named none.
        #[serde(default)]
        view: u64,
    },
    /// The cluster has a certificate authority from now on, whose key is in the server's data folder.
    AddAuthority {
        /// As PEM.
        certificate: String,
        server: ServerId,
    },
    /// Whoever shows this key is known by this name from now on.
    AddIdentity { name: String, role: Role, groups: Vec<String>, key: KeyHash },
    /// The identity has another key. The one that it had counts too, until the next.
    RenewIdentity { name: String, key: KeyHash },
    /// The identity's keys count no more, and what was granted to it is taken away, in a new view.
    RemoveIdentity { name: String },
    /// An identity, or a group after [`crate::GROUP`], may do this with the volume, and no more: in a new view if it could do more.
    Grant { volume: String, to: String, right: Right },
    /// The same on all volumes of a scope, as [`crate::Scope`] is written; in a new view.
    GrantOn { scope: String, to: String, right: Right },
    /// What was granted on the scope is taken away, in a new view.
    WithdrawOn { scope: String, to: String },
    /// New volumes of the pool are encrypted by the key of this name, if nothing else is said; none: they aren't.
    SetPoolKey { pool: String, key: Option<String> },
    /// The cluster has one more authority, which signs certificates of all but servers from now on, and is to take the place of the others.
    RotateAuthority { certificate: String, server: ServerId },
    /// This authority signs nothing for servers any more.
    LeaveAuthority { number: u32 },
    /// It isn't trusted any more, in a new view. Refused unless it's leaving.
    RemoveAuthority { number: u32 },
    /// Whoever has a certificate of this authority is who that says, if an identity says so too.
    AddOutsideAuthority { name: String, certificate: String },
    /// It isn't trusted any more, and its identities are gone, in a new view.
    RemoveOutsideAuthority { name: String },
    /// As [`Command::AddIdentity`], of whoever has a certificate of an outside authority with this common name.
    AddOutsideIdentity {
        name: String,
        role: Role,
        groups: Vec<String>,
        authority: String,
        subject: String,
        /// A digest of the authority and the subject, by which it's known.
        key: KeyHash,
    },
    /// What was granted of the volume is taken away, in a new view.
    Withdraw { volume: String, to: String },
    /// This holder alone may write to the volume from now on, in a new view: connections of all others are cut off.
    Reserve {
        volume: String,
        /// By its own word: a name.
        holder: String,
        /// From another holder. Refused as [`crate::Refusal::Reserved`] otherwise.
        take: bool,
    },
    /// Everybody who comes from now on may write to the volume, in a new view: connections so far are cut off.
    Release {
        volume: String,
        /// Refused as [`crate::Refusal::NotHolding`] if another one has it.
        from: Option<String>,
    },
    /// As [`Command::CreateVolume`], of a volume whose bytes are enciphered by a key of its own.
    CreateEncrypted {
        name: String,
        size: u64,
        layout: Option<String>,
        pool: String,
        /// The name of the key that wraps the volume's.
        key: String,
        /// As [`crate::VolumeKeyRecord::wrapped`].
        wrapped: String,
    },
    /// The volume's key, which stays the same, is wrapped by another one from now on.
    RewrapKey {
        volume: String,
        key: String,
        wrapped: String,
        /// What it was wrapped as before. Refused if it has another form by now.
        before: String,
    },
    /// How much may be asked for of a volume from now on; without any, all that the drives can do.
    LimitVolume { volume: String, limits: Limits },
    /// The same of what an identity may ask for.
    LimitIdentity { name: String, limits: Limits },
    /// A server may join by a secret of this hash, once, until that time.
    AddJoinToken { hash: KeyHash, until_unix_ms: u64 },
    /// The secret was shown: who shows it has the identity of a server from now on, by this name and key. Once more by the same key
    /// is done already.
    UseJoinToken { hash: KeyHash, name: String, key: KeyHash },
    /// Nobody joins by it any more.
    RemoveJoinToken { hash: KeyHash },
    /// Volumes that are used while they are imported.
    Live(LiveCommand),
    /// Adds to what people read in `events`.
    RecordEvent { kind: String, subject: String, text: String },
    /// What is done again and again.
    Schedule(ScheduleCommand),
    /// Done if no command was done under this key lately; else answered as that one was. Refused as [`crate::Refusal::KeyReused`] if that
    /// one was for something else.
    Once {
        /// Chosen by the client.
        key: String,
        /// A digest of all that the client asks for.
        content: String,
        command: Box<Command>,
    },
    /// Done if the thing has one of these tags. Refused as [`crate::Refusal::OtherRevision`] otherwise.
    IfMatch {
        thing: Versioned,
        /// As of [`crate::State::tag_of`].
        expected: Vec<String>,
        command: Box<Command>,
    },
}

/// Of volumes that are used while they are imported.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "a field is the one of the record that it sets, where nothing else is said")]
pub enum LiveCommand {
    /// Makes a volume that is used while it's imported from an export.
    Import {
        /// [`Command::CreateVolume`] or [`Command::CreateEncrypted`].
        create: Box<Command>,
        /// The export's address.
        from: String,
        /// Bytes that it has.
        length: u64,
    },
    /// So many bytes of the volume, from the beginning on, are there for good.
    Note { volume: VolumeId, done: u64 },
    /// All of it is there: it's an ordinary volume from now on. Refused as [`crate::Refusal::NotLive`] if it isn't imported.
    Finish { volume: VolumeId },
    /// Has a live import go on, rest, or let go of the export.
    Set { name: String, stage: LiveStage },
}

/// What changes of the copies of one column.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ColumnCopies {
    /// Of which map.
    pub map: MapId,
    /// From 0.
    pub column: u32,
    /// Others go on without these from now on. Each is on a drive that isn't up.
    pub passed: Vec<DriveId>,
    /// These have everything that anybody has who may still return.
    pub complete: Vec<DriveId>,
}

/// The version from which on there are such layouts; 0 if there have always been.
fn since(layout: &str) -> u32 {
    let kinds = [("ec:", ERASURE_CODES), ("plexes:", PLEXES), ("quorum:", QUORUM)];
    kinds.iter().find(|(kind, _)| layout.starts_with(kind)).map_or(0, |(_, version)| *version)
}

impl Command {
    /// The first [`VERSION`] of builds that carry it out as this one does. Servers of an earlier build go on until a command comes
    /// that they don't know.
    pub(crate) fn version(&self) -> u32 {
        match self {
            Command::Once { command, .. } | Command::IfMatch { command, .. } => CONDITIONS.max(command.version()),
            Command::CreateEncrypted { .. } | Command::RewrapKey { .. } => ENCRYPTION,
            Command::BeginMigration { range: Some(_), .. } => RANGES,
            Command::LimitVolume { .. } | Command::LimitIdentity { .. } => LIMITS,
            Command::CreateForImport { .. } | Command::Live(_) => LIVE_IMPORTS, // none of what it creates is newer
            _ if self.is_of_realm() => REALM,
            Command::RemoveServer { .. }
            | Command::RemoveIdentity { .. }
            | Command::Reserve { .. }
            | Command::Release { .. } => REALM,
            Command::AddJoinToken { .. } | Command::UseJoinToken { .. } | Command::RemoveJoinToken { .. } => {
                JOIN_TOKENS
            }
            Command::CreateVolume { layout: Some(layout), .. }
            | Command::CreatePool { layout: Some(layout), .. }
            | Command::BeginMigration { layout: Some(layout), .. }
                if since(layout) > 0 =>
            {
                since(layout)
            }
            Command::NameDrive { .. } => PLEXES,
            Command::Follow { .. }
            | Command::Promote { .. }
            | Command::Receive { .. }
            | Command::Received { .. }
            | Command::NoteReplica { .. }
            | Command::Replicated { .. } => REPLICAS,
            Command::AddAuthority { .. }
            | Command::AddIdentity { .. }
            | Command::RenewIdentity { .. }
            | Command::Withdraw { .. } => ACCESS,
            Command::Schedule(_) => SCHEDULES,
            Command::ReplaceDrive { .. } => REPLACED,
            Command::DriveGrew { .. } => GROWTHS,
            Command::NoteImport { .. } | Command::FinishImport { .. } => IMPORTS,
            Command::RollBack { .. } => ROLLBACKS_REVISE,
            Command::ResizeVolume { shrink: true, .. } => ROLLBACKS_NOTED,
            Command::CreateSnapshot { .. } | Command::CloneVolume { .. } | Command::CloseGaps { .. } => GAPS_CLOSED,
            _ if self.clone().subject().is_some_and(Subject::says_an_id) => IDS,
            Command::RemoveSnapshot { .. }
            | Command::RenameSnapshot { .. }
            | Command::RemoveVolume { snapshots: true, .. } => 2,
            Command::SetServerDraining { .. }
            | Command::AddDrive { spare: true, .. }
            | Command::SetDriveUse { .. }
            | Command::BeginMove { .. }
            | Command::FinishMove { .. }
            | Command::CancelMove { .. }
            | Command::BeginMigration { alone: false, pool: None, .. }
            | Command::MoveWindow { .. }
            | Command::PauseMigration { .. }
            | Command::SetMigrationRate { .. }
            | Command::TurnMigration { .. } => 3,
            Command::CreateVolume { .. } => MOVABLE,
            Command::BeginMigration { pool: Some(_), .. } => TO_POOL,
            Command::ServerStarted { .. }
            | Command::SetServerState { .. }
            | Command::SetDriveState { .. }
            | Command::DriveIsUp { .. }
            | Command::ServerCutOff { .. }
            | Command::RemoveDrive { .. }
            | Command::CountCopies { .. } => COPIES_COUNTED,
            Command::AcceptLoss { .. } => CODES_GIVEN_UP,
            Command::ResizeVolume { .. } => GROWS_CLEARED,
            Command::BeginMigration { alone: true, .. } => ALONE,
            _ => 1,
        }
    }

    /// The volume or snapshot that has to be there already.
    pub(crate) fn subject(&mut self) -> Option<Subject<'_>> {
        let (volume, snapshot) = match self {
            Command::ResizeVolume { name, .. }
            | Command::NoteImport { name, .. }
            | Command::FinishImport { name, .. }
            | Command::Follow { name, .. }
            | Command::Promote { name, .. }
            | Command::Receive { name, .. }
            | Command::Received { name, .. }
            | Command::NoteReplica { name, .. }
            | Command::RenameVolume { name, .. }
            | Command::RemoveVolume { name, .. }
            | Command::CreateSnapshot { volume: name, .. }
            | Command::Grant { volume: name, .. }
            | Command::Withdraw { volume: name, .. }
            | Command::Reserve { volume: name, .. }
            | Command::Release { volume: name, .. }
            | Command::RewrapKey { volume: name, .. }
            | Command::Live(LiveCommand::Set { name, .. })
            | Command::LimitVolume { volume: name, .. }
            | Command::BeginMigration { volume: name, .. } => (name, None),
            Command::RemoveSnapshot { volume, name }
            | Command::RenameSnapshot { volume, name, .. }
            | Command::RollBack { volume, name }
            | Command::CloneVolume { volume, snapshot: name, .. } => (volume, Some(name)),
            Command::Replicated { command, .. } | Command::Once { command, .. } | Command::IfMatch { command, .. } => {
                return command.subject();
            }
            _ => return None,
        };
        Some(Subject { volume, snapshot })
    }

    /// Whether the state has more records after it, which only the user takes away again.
    pub(crate) fn lengthens(&self) -> bool {
        use Command::{
            AddAuthority, AddDrive, AddIdentity, AddJoinToken, BeginMigration, CloneVolume, CreateEncrypted,
            CreateForImport, CreatePool, CreateSnapshot, CreateVolume, Grant, GrantOn, LimitIdentity, LimitVolume,
            Received, Schedule,
        };
        if let Command::Once { command, .. } | Command::IfMatch { command, .. } = self {
            return command.lengthens();
        }
        matches!(
            self,
            AddAuthority { .. }
                | AddDrive { .. }
                | AddIdentity { .. }
                | AddJoinToken { .. }
                | Grant { .. }
                | GrantOn { .. }
                | Command::RotateAuthority { .. }
                | Command::AddOutsideAuthority { .. }
                | Command::AddOutsideIdentity { .. }
                | Command::SetPoolKey { key: Some(_), .. }
                | LimitVolume { .. }
                | LimitIdentity { .. }
                | BeginMigration { .. }
                | CloneVolume { .. }
                | CreatePool { .. }
                | CreateSnapshot { .. }
                | CreateVolume { .. }
                | CreateEncrypted { .. }
                | CreateForImport { .. }
                | Received { .. }
                | Command::Live(LiveCommand::Import { .. })
                | Schedule(ScheduleCommand::Create { .. } | ScheduleCommand::Take { .. })
        )
    }
}

/// What a command calls the volume that it's about, and the snapshot of it.
pub(crate) struct Subject<'a> {
    pub volume: &'a mut String,
    pub snapshot: Option<&'a mut String>,
}

impl Subject<'_> {
    fn says_an_id(self) -> bool {
        self.volume.starts_with(BY_ID) || self.snapshot.is_some_and(|name| name.starts_with(BY_ID))
    }
}
