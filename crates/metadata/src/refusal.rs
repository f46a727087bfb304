//! Why a command was not carried out. A refusal is part of the applied answer: every server comes to the same one,
//! and nothing was changed.

use crate::access::Role;
use crate::record::{DriveState, ServerState};
use crate::schedule::ScheduleRefusal;
use serde::{Deserialize, Serialize};
use tepal_model::size::{Size, exact};
use tepal_model::text::NAME_RULE;
use tepal_model::{DriveId, MapId, MigrationStage, ServerId, VolumeId};

/// The rule that a command broke, or what stood in its way. Its proposer should change the command, or what it's about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "each message says what it is, and what to do")]
pub enum Refusal {
    #[error("the cluster is already set up, as '{name}'")]
    ClusterExists { name: String },
    #[error("the cluster is not set up yet")]
    NoCluster,
    #[error("a cluster's id is a random number other than 0")]
    ClusterId,
    #[error("a lease of {ms} ms is no use: it's from 300 ms to 60 s")]
    Lease { ms: u64 },

    #[error("there is no server {0}: `tepal server ls` lists them")]
    NoServer(ServerId),
    #[error("server {0} is up: stop it before another folder takes its place")]
    ServerIsUp(ServerId),
    #[error("server {id} changed meanwhile: it is {state} since view {state_view}; look again")]
    ServerChanged { id: ServerId, state: ServerState, state_view: u64 },
    #[error("server {id} has drives that aren't removed yet, {drives} of them: `tepal drive rm` takes them out")]
    ServerHasDrives { id: ServerId, drives: usize },
    #[error("server {0} is the only one: a cluster keeps one")]
    LastServer(ServerId),
    #[error("server {0} has another data folder by now: this one is void; empty it and join anew")]
    ServerReplaced(ServerId),
    #[error("this data folder of server {0} is an older copy, or used by another process: empty it and join anew")]
    FolderOld(ServerId),
    #[error("the cluster has used up its 2^32 server ids or this server its 2^32 folders")]
    NoServersLeft,
    #[error(
        "the state of the cluster, of which each drive keeps a copy, would take {needed} bytes, and the smallest drive has room for \
         {limit}: remove volumes or snapshots, or put a larger drive in its place"
    )]
    StateTooLong { needed: u64, limit: u64 },
    #[error("key '{0}' was used for another request: draw a new one for each thing that is to be done")]
    KeyReused(String),
    #[error("it was changed meanwhile: its revision is {current}, and not {expected}; look again")]
    OtherRevision { expected: String, current: String },
    #[error("the command arrived once more after it had been answered: nothing was changed")]
    Late,
    #[error("server {id} is already {state}")]
    ServerAlready { id: ServerId, state: ServerState },
    #[error("'{0}' is not an address: write HOST:PORT or unix:PATH, up to 255 bytes")]
    Address(String),

    #[error("there is no drive {0}: `tepal drive ls` lists them")]
    NoDrive(DriveId),
    #[error("drive {id} is in the cluster already, on server {server} at {path}")]
    DriveExists { id: DriveId, server: ServerId, path: String },
    #[error("no volume's layout names drive {0}: what lies there goes elsewhere by `tepal drive drain`")]
    NotNamed(DriveId),
    #[error(
        "volume '{volume}' is on its way to another layout: when that is over, or after `tepal volume cancel {volume}`"
    )]
    LayoutUnderWay { volume: String },
    #[error("drive {to} can't take the place of {from} for volume '{volume}': {why}")]
    NoReplacement { from: DriveId, to: DriveId, volume: String, why: String },
    #[error("drive {id} is called '{name}' already")]
    DriveNameTaken { name: String, id: DriveId },
    #[error(
        "drive {id} is in use by server {server}: stop that server, or take the drive out of it, before another server uses it"
    )]
    DriveInUse { id: DriveId, server: ServerId },
    #[error("it is an older image of drive {id}: of generation {generation}, and drive {id} was last used in {newest}")]
    DriveOlder { id: DriveId, generation: u64, newest: u64 },
    #[error("{capacity} bytes is not a drive's capacity")]
    Capacity { capacity: u64 },
    #[error("'{0}' is not a drive's path: it has 1 to 4096 bytes")]
    Path(String),
    #[error("drive {id} is {from} and can't become {to}: it may become {}", words(.from.may_become()))]
    Transition { id: DriveId, from: DriveState, to: DriveState },
    #[error(
        "drive {id} can be brought back up only by whoever saw what it missed: name the view it has been behind since"
    )]
    ViewNeeded { id: DriveId },
    #[error("drive {id} changed meanwhile: it is {state} since view {state_view}; look again")]
    DriveChanged { id: DriveId, state: DriveState, state_view: u64 },
    #[error("servers, drives or snapshots have come or gone meanwhile: it is view {view}; look again")]
    ViewChanged { view: u64 },
    #[error(
        "drive {id} may hold the last good copy of data of {}: bring up the other drives of these volumes and wait until they have caught \
         up, or remove the volumes. With --force, requests for what no other drive has in full fail, until `tepal volume accept-loss`",
        volumes_named(.volumes)
    )]
    LastCopy { id: DriveId, volumes: Vec<String> },

    #[error("there is no map {}", .0.0)]
    NoMap(MapId),
    #[error("map {} has no column {column}", .map.0)]
    NoColumn { map: MapId, column: u32 },
    #[error("column {column} of map {} would have no complete copy", .map.0)]
    LastCompleteCopy { map: MapId, column: u32 },
    #[error("no drive of volume '{name}' has failed: nothing of it is lost, so there is nothing to accept")]
    NothingLost { name: String },
    #[error("drive {drive} has no copy of column {column} of map {}", .map.0)]
    NotHolder { map: MapId, column: u32, drive: DriveId },
    #[error("drive {drive} has a copy of column {column} of map {} already", .map.0)]
    HolderAlready { map: MapId, column: u32, drive: DriveId },
    #[error("drive {to} is taking a copy of column {column} of map {} already: wait for that, or cancel it", .map.0)]
    ColumnMoves { map: MapId, column: u32, to: DriveId },
    #[error("drive {to} isn't taking a copy of column {column} of map {}", .map.0)]
    NoMove { map: MapId, column: u32, to: DriveId },
    #[error("drive {to} would be lost together with drive {with}, which has another copy of the same")]
    SharesDomain { to: DriveId, with: DriveId },
    #[error("drive {id} is {state}: only one that is up takes copies of others")]
    DriveNotUp { id: DriveId, state: DriveState },
    #[error("drive {0} is to be emptied, so it takes no copies of others")]
    DriveDraining(DriveId),

    #[error("the cluster has a certificate authority already, made by server {server}")]
    AuthorityExists { server: ServerId },
    #[error("the cluster has no certificate authority yet")]
    NoAuthority,
    #[error("a certificate has 1 to {limit} bytes as PEM")]
    Certificate { limit: usize },
    #[error("there is no identity '{0}': `tepal identity ls` lists them")]
    NoIdentity(String),
    #[error("identity '{0}' exists already: `tepal identity renew` gives it another key")]
    IdentityExists(String),
    #[error("identity '{0}' was a server's and is revoked: it stays so, and another one has another name")]
    IdentityRevoked(String),
    #[error("there are {limit} identities, and no more are possible: revoke some first")]
    TooManyIdentities { limit: usize },
    #[error("an identity has at most {limit} groups")]
    TooManyGroups { limit: usize },
    #[error("that key is identity '{name}''s: each has its own")]
    KeyTaken { name: String },
    #[error("volume '{volume}' has {limit} rights granted, and no more are possible: grant them to groups")]
    TooManyGrants { volume: String, limit: usize },
    #[error(
        "volume '{volume}' is reserved by '{holder}', who alone may use it: `tepal attach --exclusive --take-over` takes it, and \
         `tepal volume fence {volume} --from {holder}` lets everybody in"
    )]
    Reserved { volume: String, holder: String },
    #[error("identity '{name}' is that of server {id}: `tepal server rm {id}` takes the server out, and revokes it")]
    OfMember { name: String, id: ServerId },
    #[error(
        "volume '{volume}' was taken from '{holder}': once nothing there has writes of before on their way, \
         `tepal attach --exclusive --take-over` gives it back"
    )]
    Fenced { volume: String, holder: String },
    #[error("volume '{volume}' isn't reserved by '{from}'")]
    NotHolding { volume: String, from: String },
    #[error("nothing of volume '{volume}' was granted to '{to}': `tepal volume rights {volume}` lists what was")]
    NoGrant { volume: String, to: String },

    #[error("'{0}' is no scope: it's pool:NAME or cluster")]
    Scope(String),
    #[error("nothing of {scope} was granted to '{to}'")]
    NoGrantOn { scope: String, to: String },
    #[error("{limit} rights are granted on {scope}, and no more are possible: grant them to groups")]
    TooManyGrantsOn { scope: String, limit: usize },
    #[error(
        "authority {number} is to take the place of another one already: `tepal identity ca finish` ends that first. If its key is \
         lost for good, `rotate` makes another one while the server that made it is down or has left"
    )]
    Rotating { number: u32 },
    #[error("authority {0} isn't leaving: `tepal identity ca rotate` makes another one first")]
    NotLeaving(u32),
    #[error("there is no authority {0}: `tepal identity ca ls` lists them")]
    NoSuchAuthority(u32),
    #[error("there is no authority '{0}' of others: `tepal identity ca ls` lists them")]
    NoOutsideAuthority(String),
    #[error("there is an authority '{0}' of others already: `tepal identity ca rm` removes it")]
    OutsideAuthorityExists(String),
    #[error("there are {limit} authorities of others, and no more are possible: remove one first")]
    TooManyOutside { limit: usize },
    #[error("identity '{0}' has its certificate from an authority that isn't the cluster's, which renews it")]
    IsOutside(String),
    #[error("a subject is the common name of certificates, of 1 to {limit} bytes in one line")]
    Subject { limit: usize },
    #[error("a server has its certificate from the cluster's own authority")]
    OutsideServer,

    #[error("{0}")]
    Limits(String),
    #[error("connections are limited by identity, not by volume")]
    ConnectionsOfVolume,
    #[error("identity '{name}' is a {role}: limits are for hosts")]
    LimitOfRole { name: String, role: Role },

    #[error(
        "volume '{0}' is still being imported while it's used: this has to wait until all of it is there (`tepal volume show {0}`)"
    )]
    Live(String),
    #[error("volume '{0}' is not being imported while it's used: all of it is there, or it was never imported so")]
    NotLive(String),
    #[error("the live import of volume '{0}' was cancelled: `tepal volume resume {0}` has it go on")]
    LiveCancelled(String),
    #[error("not all of volume '{0}' is there yet")]
    LiveHalfway(String),
    #[error(
        "volume '{0}' can't be imported while it's used: its layout must be of whole copies, such as mirror:2, as blocks of others aren't \
         kept one by one; it can go to another layout once all of it is there"
    )]
    LiveLayout(String),
    #[error("the address of what is imported must have 1 to {limit} bytes, and the volume be as large")]
    LiveAddress { limit: usize },

    #[error("no server may join by this token: it was removed, or never made; `tepal server token create` makes one")]
    NoJoinToken,
    #[error("another server has joined by this token: `tepal server token create` makes a new one")]
    JoinTokenUsed,
    #[error("this token has expired: `tepal server token create` makes a new one")]
    JoinTokenExpired,
    #[error("a token counts for at most {days} days from now")]
    JoinTokenTime { days: u64 },
    #[error("there are {limit} tokens already, as many as a cluster has: `tepal server token rm` removes one")]
    TooManyJoinTokens { limit: usize },

    #[error("a wrapped key is at most {limit} hexadecimal digits")]
    WrappedKey { limit: usize },
    #[error("volume '{0}' isn't encrypted: that is chosen when a volume is created")]
    NotEncrypted(String),
    #[error("the key of volume '{0}' has been wrapped again meanwhile: ask again")]
    KeyChanged(String),

    #[error("there is no pool '{0}': `tepal pool ls` lists them, `tepal pool create` makes one")]
    NoPool(String),
    #[error("pool '{0}' exists already")]
    PoolExists(String),
    #[error("pool '{name}' is in use, with drives: {drives}, and volumes: {volumes}; remove them first")]
    PoolInUse { name: String, drives: usize, volumes: usize },

    #[error("'{name}' is not a name for a {what}: {NAME_RULE}")]
    Name { what: Thing, name: String },
    #[error("there is no volume '{0}': `tepal volume ls` lists them")]
    NoVolume(String),
    #[error("there is no volume with the id {0:?}")]
    NoVolumeId(VolumeId),
    #[error("volume '{0}' exists already")]
    VolumeExists(String),
    #[error("volume '{0}' is in use: remove it first")]
    NotDeleting(String),
    #[error("{size} bytes is not a volume's size: it is a multiple of 512 from 512 to 2^63")]
    Size { size: u64 },
    #[error("{size} bytes is too large for a volume with an erasure code: it has at most 2^61")]
    SizeOfStripes { size: u64 },
    #[error("the plexes have room for {room} bytes, and {size} are wanted: relayout to larger ones first")]
    SizeOfPlexes { size: u64, room: u64 },
    #[error(
        "volume '{name}' has {from} bytes: making it {to} loses what is past the new end; use --shrink if that is meant"
    )]
    Shrink { name: String, from: u64, to: u64 },
    #[error(
        "volume '{0}' was changed by others meanwhile, and bytes that were cut off may lie past its end: do it again"
    )]
    NotCleared(String),
    #[error(
        "volume '{0}' isn't what this import has begun to make of it any more: another import has begun since, or it was cut off or rolled \
         back"
    )]
    ImportChanged(String),
    #[error(
        "volume '{0}' is incomplete, an import of it hasn't come to its end: `tepal volume import {0}` does it again, and with --resume goes on"
    )]
    Incomplete(String),
    #[error(
        "volume '{name}' is a replica of {source_name}, and only replication changes it: clone one of its snapshots to try something out; \
         `tepal replicate promote {name}` makes it an ordinary volume, which ends the replication"
    )]
    IsReplica { name: String, source_name: String },
    #[error("volume '{name}' is a replica of {source_name}, which is another volume than this replication is of")]
    OtherReplica { name: String, source_name: String },
    #[error(
        "volume '{0}' isn't a replica, or not any more: it may have been promoted, and written to since. Leave it as it is, or have it follow \
         by `tepal replicate demote {0}`, which says first what it would lose"
    )]
    NoReplica(String),
    #[error("that isn't done for replication")]
    NotReplicated,
    #[error(
        "replica '{0}' has no whole snapshot yet, only a part of its first one: let the replication go on; if its source is gone for good, \
         --force makes it a volume that is incomplete"
    )]
    NothingWhole(String),
    /// The layout's text breaks one of [`tepal_model::layout::LayoutError`]'s rules, which is quoted.
    #[error("{rule}")]
    Layout { rule: String },
    #[error("pool '{0}' has no drive that is up: `tepal drive add` adds one")]
    NoDrives(String),
    #[error(
        "layout '{layout}': domain=site wants the site of every server of the pool: start each with `tepal serve --site`, and \
         `tepal server ls` shows it"
    )]
    NoSites { layout: String },
    #[error("layout '{layout}': chained puts its two copies on neighbouring servers, so it can't have domain=drive")]
    ChainedDomain { layout: String },
    #[error("volume '{volume}' has no snapshot '{name}'")]
    NoSnapshot { volume: String, name: String },
    #[error("volume '{volume}' has a snapshot '{name}' already")]
    SnapshotExists { volume: String, name: String },
    #[error("volume '{volume}' has {limit} snapshots and clones, and no more are possible: remove some first")]
    TooManySnapshots { volume: String, limit: usize },
    #[error(
        "volume '{name}' still has {snapshots} {}: remove {} first, or with it by --snapshots",
        if *.snapshots == 1 { "snapshot" } else { "snapshots" },
        if *.snapshots == 1 { "that" } else { "them" }
    )]
    VolumeHasSnapshots { name: String, snapshots: usize },
    #[error(
        "volume '{name}' goes back to clones of clones, {limit} deep, and what others hold between can't be kept apart any deeper: \
         `tepal volume flatten {name}` gives it a map of its own"
    )]
    ClonesTooDeep { name: String, limit: usize },
    #[error(
        "what volume '{name}' held before it was rolled back or cloned, time after time, is still being given back: try again in a \
         moment{}",
        drives_waited_for(.drives)
    )]
    GapsStay {
        name: String,
        /// What they have of it can't be given back while they are away.
        drives: Vec<DriveId>,
    },
    #[error(
        "volume '{0}' was rolled back too often while it goes elsewhere: wait until that is done (`tepal volume migrations` shows it)"
    )]
    GapsWaitForMigration(String),
    #[error(
        "volume '{0}' was rolled back too often while its ranges have layouts of their own: bring them to one layout (`tepal volume \
         relayout {0} --range A..B --layout LAYOUT`)"
    )]
    GapsWaitForRanges(String),
    #[error(
        "volume '{volume}' has {ranges} ranges with layouts of their own: say which one goes (`tepal volume show {volume}` lists them, \
         `--range A..B` names one)"
    )]
    HasRanges { volume: String, ranges: usize },
    #[error(
        "volume '{0}' has ranges with layouts of their own, and can't be flattened: bring them to one layout first (`tepal volume relayout \
         {0} --range A..B --layout LAYOUT`)"
    )]
    FlattenOfRanges(String),
    #[error(
        "a range of a volume can't go to or from plexes, which are of whole volumes: relay out the whole of volume '{0}'"
    )]
    RangeOfPlexes(String),
    #[error("the range {}..{} has nothing of volume '{volume}', which has {}", Size(*.from), Size(*.to), Size(*.size))]
    NoSuchRange { volume: String, from: u64, to: u64, size: u64 },
    #[error(
        "a range begins and ends at a multiple of {}, which is whole extents of both layouts: {} isn't one{}",
        Size(*.chunk),
        exact(*.at),
        of_end(*.at, *.size)
    )]
    RangeNotWhole { at: u64, chunk: u64, size: u64 },
    #[error(
        "the bytes {}..{} of volume '{volume}' have several layouts: relay out each of its ranges by itself, this one up to {}",
        Size(*.from),
        Size(*.to),
        Size(*.until)
    )]
    RangeOfSeveral { volume: String, from: u64, to: u64, until: u64 },
    #[error("volume '{volume}' has {most} ranges, and can have no more: bring some to one layout first")]
    TooManyRanges { volume: String, most: usize },
    #[error("volume '{0}' has used up its 2^32 epochs: copy it to a new volume, and go on there")]
    NoEpochsLeft(String),
    #[error(
        "volume '{volume}' {} already: wait until that is done (`tepal volume migrations` shows it), or cancel it \
         (`tepal volume cancel {volume}`)",
        to.as_ref().map_or("is being flattened".to_owned(), |to| format!("goes to {to}"))
    )]
    MigratesAlready {
        volume: String,
        /// A layout; none if it's flattened.
        to: Option<String>,
    },
    #[error(
        "volume '{volume}' is on its way back: wait until that is done (`tepal volume migrations` shows it), or have it go on (`tepal \
         volume {}`)",
        to.as_ref().map_or(format!("flatten {volume}"), |to| format!("relayout {volume} --layout '{to}'"))
    )]
    ComesBack {
        volume: String,
        /// The layout that it was to have; none if it was being flattened.
        to: Option<String>,
    },
    #[error("volume '{volume}' has {layout} already, placed as it would be now")]
    SameLayout { volume: String, layout: String },
    #[error("volume '{0}' shares nothing with other volumes: there is nothing to flatten")]
    NotShared(String),
    #[error("volume '{0}' can't be flattened in this version: export it, and import it to a new volume")]
    CannotLeave(String),
    #[error("volume '{0}' is being flattened: clone it when that is done, or cancel that")]
    Flattening(String),
    #[error("volume '{volume}' has layout {layout}, for which in this version {what}")]
    NotOfQuorum { volume: String, layout: String, what: String },
    #[error("layout {0}: sync isn't available in this version, only async")]
    SyncQuorum(String),
    #[error(
        "drive {drive} has a part of volume '{volume}', and layout {layout} needs all of its drives at any moment, so no part of it moves: \
         copy the volume to one of another layout, and remove it"
    )]
    DriveOfQuorum { drive: DriveId, volume: String, layout: String },
    #[error(
        "volume '{0}' is being flattened, and what it hasn't taken with it yet nobody else would have: do that when it's done (`tepal \
         volume migrations` shows it), or cancel it (`tepal volume cancel {0}`)"
    )]
    FlattenedFrom(String),
    #[error("no volume goes to map {}", .0.0)]
    NoMigration(MapId),
    #[error("the window is from {done} to {fence} by now; look again")]
    WindowChanged { done: u64, fence: u64 },
    #[error("there is no window from {done} to {fence} next")]
    NoWindow { done: u64, fence: u64 },
    #[error("the migration is {0}: that can't be done then")]
    MigrationStage(MigrationStage),
    #[error(
        "volume '{0}' was grown since it began to go: what came to it is in its new place only; let it end, and give it \
         the old layout again then"
    )]
    GrownSince(String),
    #[error("a rate is at least 1 byte a second")]
    Rate,

    #[error("the cluster has used up its 2^32 map ids")]
    NoMapsLeft,

    #[error(transparent)]
    Schedule(ScheduleRefusal),

    #[error("the command has {bytes} bytes, and at most {limit} are taken")]
    TooLong { bytes: usize, limit: usize },
}

/// What a name is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Thing {
    /// A cluster.
    Cluster,
    /// A pool.
    Pool,
    /// Somebody who is known by a key.
    Identity,
    /// Of identities.
    Group,
    /// That signs certificates.
    Authority,
    /// Who alone writes to a volume.
    Holder,
    /// That wraps volumes' keys.
    Key,
    /// A drive.
    Drive,
    /// A volume.
    Volume,
    /// A place where servers are.
    Site,
    /// A volume's snapshot.
    Snapshot,
    /// What is done again and again.
    Schedule,
}

impl std::fmt::Display for Thing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Thing::Cluster => "cluster",
            Thing::Pool => "pool",
            Thing::Identity => "identity",
            Thing::Group => "group",
            Thing::Authority => "authority",
            Thing::Holder => "holder",
            Thing::Key => "key",
            Thing::Drive => "drive",
            Thing::Volume => "volume",
            Thing::Site => "site",
            Thing::Snapshot => "snapshot",
            Thing::Schedule => "schedule",
        })
    }
}

fn words(states: &[DriveState]) -> String {
    match states {
        [] => "nothing else; remove it, and add it as a new drive".to_owned(),
        _ => states.iter().map(|state| state.as_str()).collect::<Vec<_>>().join(" or "),
    }
}

/// The end of a volume is no whole chunk, and is said otherwise.
fn of_end(at: u64, size: u64) -> String {
    if at > size {
        format!(" (a range that ends at the volume's end, {}, goes on as far as the volume grows)", Size(size))
    } else {
        String::new()
    }
}

fn drives_waited_for(drives: &[DriveId]) -> String {
    match drives {
        [] => String::new(),
        [one] => format!(", or once drive {one} is back"),
        [first, rest @ ..] => format!(", or once drive {first} is back and {} more", rest.len()),
    }
}

/// The first few names, so that an error stays one readable line.
fn volumes_named(names: &[String]) -> String {
    const SHOWN: usize = 5;
    let list = names.iter().take(SHOWN).map(|name| format!("'{name}'")).collect::<Vec<_>>().join(", ");
    let plural = if names.len() == 1 { "volume" } else { "volumes" };
    match names.len().saturating_sub(SHOWN) {
        0 => format!("{plural} {list}"),
        more => format!("{plural} {list} and {more} more"),
    }
}
