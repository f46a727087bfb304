//! Each operation of the API, as the document tells it.

use crate::access::{CERTIFICATES, SignServer, Signed};
use crate::api::document::{DOCS, OPENAPI};
use crate::api::exposition;
use crate::api::types::route;
use crate::api::types::{
    AcceptLoss, AddDrive, AuthoritiesInfo, AuthorityCertificate, ChangeCluster, CheckParity, CloneSnapshot,
    ClusterInfo, Counters, CountersQuery, CreateIdentity, CreateJoinToken, CreateOutsideIdentity, CreatePool,
    CreateSchedule, CreateSnapshot, CreateVolume, DiffQuery, Directory, Done, DriveInfo, DriveRemoved, FenceQuery,
    FinishImport, Flatten, Follow, ForceQuery, FoundDrive, GatewayNews, Grant, Hold, HoldsKnown, IdentityCertificate,
    IdentityInfo, ImportLive, ImportQuery, Join, JoinToken, JoinTokenInfo, Joined, Loss, MapRun, MigrationInfo,
    NameDrive, NoteImport, NoteReplica, OffsetQuery, OutsideAuthority, ParityChecked, PlexesInfo, PoolInfo, Range,
    RangeQuery, Receive, Received, Relayout, Removal, RemoveVolumeQuery, RenameSnapshot, RenameVolume, RenewIdentity,
    ReplaceDrive, ReplicaQuery, Replication, Reserve, ResizeVolume, RewrapKey, RightInfo, ScheduleInfo, ScheduleRules,
    ScheduleRun, ScopeRightInfo, Scrub, ScrubQuery, ServerInfo, SetDraining, SetDriveUse, SetPoolKey, SetRate,
    ShowSnapshotQuery, SlowWatched, SnapshotDiff, SnapshotInfo, SnapshotQuery, SnapshotRemoval, SqlQuery, SqlRows,
    Status, TOTAL, TracesData, Usage, VolumeInfo, VolumesQuery, WatchSlowQuery, WithdrawQuery, ZeroRange,
};
use crate::api::{METRICS, SHUTDOWN};
use crate::api_types::LimitsShape;
use axum::http::Method;
use schemars::{JsonSchema, Schema, SchemaGenerator};

/// Groups of operations, and what each is about.
pub const TAGS: [(&str, &str); 8] = [
    ("Cluster", "The cluster, its servers, and how things stand."),
    ("Drives", "Drives and the pools that they are in."),
    ("Volumes", "Volumes, and how they go to other layouts."),
    ("Data", "The bytes of volumes and snapshots. Clients that read and write all the time use NBD instead."),
    ("Snapshots", "Snapshots of volumes, and their clones."),
    ("Schedules", "What is done again and again: snapshots and scrubs."),
    ("Access", "Identities, their certificates, and their rights on volumes."),
    ("Replication", "Replicas: volumes that follow a volume of another cluster. For those who send."),
];

type Describe = fn(&mut SchemaGenerator) -> Schema;

/// What a body is.
#[derive(Clone, Copy)]
pub enum Content {
    Nothing,
    Json(Describe),
    /// Of this content type.
    Other(&'static str),
}

pub struct Operation {
    pub method: Method,
    pub path: &'static str,
    pub tag: &'static str,
    /// The document's `operationId`.
    pub id: &'static str,
    pub summary: &'static str,
    pub query: Option<Describe>,
    pub body: Content,
    pub answer: Content,
    pub status: u16,
    /// The header that an answer has besides.
    pub header: Option<&'static str>,
    /// Whoever asks, without a token.
    pub is_open: bool,
}

const BYTES: Content = Content::Other("application/octet-stream");

impl Operation {
    fn query<T: JsonSchema>(self) -> Self {
        Operation { query: Some(|generator| T::json_schema(generator)), ..self }
    }

    fn body<T: JsonSchema>(self) -> Self {
        Operation { body: Content::Json(|generator| generator.subschema_for::<T>()), ..self }
    }

    fn answer<T: JsonSchema>(self) -> Self {
        Operation { answer: Content::Json(|generator| generator.subschema_for::<T>()), ..self }
    }

    fn tagged(self) -> Self {
        Operation { header: Some("ETag"), ..self }
    }

    /// It goes on after the answer, which says where it can be looked at.
    fn begins(self) -> Self {
        Operation { status: 202, header: Some("Location"), ..self }
    }
}

fn operation(
    (method, path): (Method, &'static str),
    tag: &'static str,
    id: &'static str,
    summary: &'static str,
) -> Operation {
    let (query, body, answer, status, header) = (None, Content::Nothing, Content::Nothing, 200, None);
    Operation { method, path, tag, id, summary, query, body, answer, status, header, is_open: false }
}

fn get(path: &'static str) -> (Method, &'static str) {
    (Method::GET, path)
}

fn post(path: &'static str) -> (Method, &'static str) {
    (Method::POST, path)
}

fn put(path: &'static str) -> (Method, &'static str) {
    (Method::PUT, path)
}

fn delete(path: &'static str) -> (Method, &'static str) {
    (Method::DELETE, path)
}

/// Of whoever asks.
fn open(operation: Operation) -> Operation {
    Operation { is_open: true, ..operation }
}

pub fn all() -> Vec<Operation> {
    let all = [
        cluster(),
        drives(),
        pools(),
        volumes(),
        layouts(),
        data(),
        snapshots(),
        schedules(),
        access(),
        realm(),
        replication(),
    ];
    all.into_iter().flatten().collect()
}

fn cluster() -> Vec<Operation> {
    let of = |place, id, summary| operation(place, "Cluster", id, summary);
    let other = |content, operation: Operation| Operation { answer: Content::Other(content), ..operation };
    vec![
        of(get(route::STATUS), "status", "Health at a glance").answer::<Status>(),
        of(get(route::CLUSTER), "showCluster", "The cluster and what it consists of").answer::<ClusterInfo>(),
        of(post(route::CLUSTER), "changeCluster", "Changes for how long a server may serve unheard")
            .body::<ChangeCluster>()
            .answer::<ClusterInfo>(),
        of(get(route::SERVERS), "listServers", "All servers, by id").answer::<Vec<ServerInfo>>(),
        of(get(route::SERVER), "showServer", "One server").answer::<ServerInfo>(),
        of(delete(route::SERVER), "removeServer", "Takes a server without drives out of the cluster for good")
            .answer::<Done>(),
        of(post(route::SERVER_DRAINING), "drainServer", "Whether what its drives hold goes to others")
            .body::<SetDraining>()
            .answer::<Done>(),
        of(get(route::DIRECTORY), "showDirectory", "What gateways need to know").answer::<Directory>(),
        of(post(route::DIRECTORY), "followDirectory", "The same, as soon as it isn't what the gateway has")
            .body::<GatewayNews>()
            .answer::<Directory>(),
        of(get(route::COUNTERS), "showCounters", "Requests and bytes since the servers started")
            .query::<CountersQuery>()
            .answer::<Counters>(),
        of(get(route::USAGE), "showUsage", "How full the drives were, over time").answer::<Usage>(),
        of(post(route::SLOW), "watchSlowRequests", "Has slow requests noted for some time; forgets earlier ones")
            .query::<WatchSlowQuery>()
            .answer::<SlowWatched>(),
        of(get(route::SLOW), "showSlowRequests", "Slow requests as traces of OpenTelemetry").answer::<TracesData>(),
        of(delete(route::SLOW), "endSlowRequests", "Notes no more slow requests").answer::<Done>(),
        other(
            "text/event-stream",
            of(get(route::LIVE), "followChanges", "Changes as server-sent events, until the server stops"),
        ),
        of(post(route::SQL), "query", "A read-only query of what is agreed").body::<SqlQuery>().answer::<SqlRows>(),
        of(post(SHUTDOWN), "shutdown", "Stops the server that is asked").answer::<Done>(),
        other(
            exposition::CONTENT,
            of(get(METRICS), "showMetrics", "What Prometheus reads, of the server that is asked"),
        ),
        open(other("application/json", of(get(OPENAPI), "showDocument", "This document"))),
        open(other("text/html; charset=utf-8", of(get(DOCS), "showPage", "A page for those who read it"))),
    ]
}

fn drives() -> Vec<Operation> {
    let of = |place, id, summary| operation(place, "Drives", id, summary);
    vec![
        of(get(route::DRIVES), "listDrives", "All drives, by server").answer::<Vec<DriveInfo>>(),
        of(post(route::DRIVES), "addDrive", "Takes a device into the cluster").body::<AddDrive>().answer::<DriveInfo>(),
        of(get(route::DRIVES_SCAN), "scanDrives", "Devices of all servers that answer").answer::<Vec<FoundDrive>>(),
        of(get(route::DRIVE), "showDrive", "One drive").answer::<DriveInfo>().tagged(),
        of(delete(route::DRIVE), "removeDrive", "Takes a drive out of the cluster")
            .query::<ForceQuery>()
            .answer::<DriveRemoved>(),
        of(post(route::DRIVE_OFFLINE), "takeDriveOffline", "It's in use no more until it's put online")
            .answer::<DriveInfo>(),
        of(post(route::DRIVE_ONLINE), "putDriveOnline", "It's used again, and catches up").answer::<DriveInfo>(),
        of(post(route::DRIVE_GROW), "growDrive", "Takes what its device has been enlarged by").answer::<DriveInfo>(),
        of(post(route::DRIVE_NAME), "nameDrive", "What it's called besides its id")
            .body::<NameDrive>()
            .answer::<DriveInfo>()
            .tagged(),
        of(post(route::DRIVE_REPLACE), "replaceDrive", "Another drive takes its place in layouts that name it")
            .body::<ReplaceDrive>()
            .answer::<DriveInfo>(),
        of(post(route::DRIVE_USE), "useDrive", "What it's for").body::<SetDriveUse>().answer::<DriveInfo>().tagged(),
        of(get(route::DRIVE_KEPT), "showKept", "For servers: what others have of a drive that is to go")
            .answer::<Vec<(u32, u64)>>(),
    ]
}

fn pools() -> Vec<Operation> {
    let of = |place, id, summary| operation(place, "Drives", id, summary);
    vec![
        of(get(route::POOLS), "listPools", "All pools, by name").answer::<Vec<PoolInfo>>(),
        of(post(route::POOLS), "createPool", "Makes a pool without drives").body::<CreatePool>().answer::<PoolInfo>(),
        of(get(route::POOL), "showPool", "One pool").answer::<PoolInfo>().tagged(),
        of(delete(route::POOL), "removePool", "Removes a pool without drives and volumes").answer::<Done>(),
    ]
}

fn volumes() -> Vec<Operation> {
    let of = |place, id, summary| operation(place, "Volumes", id, summary);
    let counted = |operation: Operation| Operation { header: Some(TOTAL), ..operation };
    vec![
        counted(of(get(route::VOLUMES), "listVolumes", "Volumes by name, in pages if wanted"))
            .query::<VolumesQuery>()
            .answer::<Vec<VolumeInfo>>(),
        of(post(route::VOLUMES), "createVolume", "Makes a volume, which reads as zeros")
            .body::<CreateVolume>()
            .answer::<VolumeInfo>()
            .tagged(),
        of(get(route::VOLUME), "showVolume", "One volume").answer::<VolumeInfo>().tagged(),
        of(delete(route::VOLUME), "removeVolume", "Removes a volume; its space is freed in the background")
            .query::<RemoveVolumeQuery>()
            .answer::<Removal>(),
        of(get(route::REMOVALS), "listRemovals", "Removed volumes whose space is being freed").answer::<Vec<Removal>>(),
        of(post(route::VOLUME_RESIZE), "resizeVolume", "Makes a volume longer or shorter")
            .body::<ResizeVolume>()
            .answer::<VolumeInfo>()
            .tagged(),
        of(post(route::VOLUME_RENAME), "renameVolume", "Gives a volume another name")
            .body::<RenameVolume>()
            .answer::<VolumeInfo>()
            .tagged(),
        of(post(route::VOLUME_KEY), "rewrapVolumeKey", "Has the key of an encrypted volume wrapped by another one")
            .body::<RewrapKey>()
            .answer::<VolumeInfo>()
            .tagged(),
        of(post(route::VOLUME_LIMITS), "limitVolume", "Holds what clients ask of a volume to so much a second")
            .body::<LimitsShape>()
            .answer::<VolumeInfo>()
            .tagged(),
        of(get(route::VOLUME_LOSS), "showLoss", "What of a volume only failed drives had").answer::<Loss>(),
        of(post(route::VOLUME_LOSS), "acceptLoss", "What is left is served as it is")
            .body::<AcceptLoss>()
            .answer::<Loss>(),
        of(get(route::VOLUME_SCRUB), "showScrub", "The scrub that runs, or the last one").answer::<Scrub>(),
        of(post(route::VOLUME_SCRUB), "startScrub", "Starts a scrub, or tells of the one that runs")
            .query::<ScrubQuery>()
            .answer::<Scrub>()
            .begins(),
        of(get(route::HOLDS), "knowsHolds", "For commands: whether this server knows what is held")
            .answer::<HoldsKnown>(),
        of(post(route::HOLDS), "hold", "For commands: something is in use for some seconds")
            .body::<Hold>()
            .answer::<Done>(),
    ]
}

fn layouts() -> Vec<Operation> {
    let of = |place, id, summary| operation(place, "Volumes", id, summary);
    let shown = |operation: Operation| operation.answer::<VolumeInfo>().tagged();
    vec![
        of(post(route::VOLUME_RELAYOUT), "relayoutVolume", "Has it go to another layout, pool or both")
            .body::<Relayout>()
            .answer::<VolumeInfo>()
            .begins(),
        of(post(route::VOLUME_FLATTEN), "flattenVolume", "Has it leave those that it shares data with")
            .body::<Flatten>()
            .answer::<VolumeInfo>()
            .begins(),
        shown(of(post(route::VOLUME_PAUSE), "pauseMigration", "What is on its way rests")),
        shown(of(post(route::VOLUME_RESUME), "resumeMigration", "What rests goes on")),
        shown(of(post(route::VOLUME_CANCEL), "cancelMigration", "What has gone comes back")),
        shown(of(post(route::VOLUME_RATE), "rateMigration", "Keeps it to a rate").body::<SetRate>()),
        of(get(route::MIGRATIONS), "listMigrations", "Volumes that are on their way").answer::<Vec<MigrationInfo>>(),
        of(get(route::PLEXES), "listPlexes", "Volumes whose layouts name drives").answer::<Vec<PlexesInfo>>(),
        of(get(route::VOLUME_PLEXES), "showPlexes", "The plexes of one").answer::<PlexesInfo>(),
        of(post(route::VOLUME_PARITY), "checkParity", "One step of a comparison of parity with data")
            .body::<CheckParity>()
            .answer::<ParityChecked>(),
    ]
}

fn data() -> Vec<Operation> {
    let of = |place, id, summary| operation(place, "Data", id, summary);
    let bytes = |operation: Operation| Operation { answer: BYTES, ..operation };
    let takes = |operation: Operation| Operation { body: BYTES, ..operation };
    vec![
        bytes(of(get(route::VOLUME_DATA), "readVolume", "Bytes of a volume").query::<RangeQuery>()),
        takes(of(put(route::VOLUME_DATA), "writeVolume", "Writes bytes of a volume"))
            .query::<OffsetQuery>()
            .answer::<Done>(),
        of(post(route::VOLUME_ZERO), "zeroVolume", "These bytes read as zeros, their space is free")
            .body::<ZeroRange>()
            .answer::<Done>(),
        of(post(route::VOLUME_FLUSH), "flushVolume", "What was written before is on stable media")
            .query::<ImportQuery>()
            .answer::<Done>(),
        of(get(route::VOLUME_MAP), "mapVolume", "What is mapped, from the offset on, maybe not to the end")
            .query::<RangeQuery>()
            .answer::<Vec<MapRun>>(),
        takes(of(put(route::VOLUME_PIECES), "writePieces", "For replication: many ranges in one request"))
            .query::<ImportQuery>()
            .answer::<Done>(),
        bytes(
            of(post(route::SNAPSHOT_PIECES), "readPieces", "For replication: ranges of a snapshot")
                .body::<Vec<Range>>(),
        ),
        bytes(of(get(route::SNAPSHOT_DATA), "readSnapshot", "Bytes of a snapshot").query::<RangeQuery>()),
        of(get(route::SNAPSHOT_MAP), "mapSnapshot", "As of a volume").query::<RangeQuery>().answer::<Vec<MapRun>>(),
        of(get(route::SNAPSHOT_DIFF), "diffSnapshot", "How it differs, from the offset on, maybe not to the end")
            .query::<DiffQuery>()
            .answer::<SnapshotDiff>(),
        of(post(route::VOLUME_IMPORT), "noteImport", "An import begins, or has come so far: the volume is incomplete")
            .body::<NoteImport>()
            .answer::<VolumeInfo>()
            .tagged(),
        of(post(route::LIVE_IMPORTS), "importLive", "Makes a volume that is used while it's imported")
            .body::<ImportLive>()
            .answer::<VolumeInfo>()
            .tagged(),
        of(post(route::VOLUME_IMPORTED), "finishImport", "All of an import is there: the volume is whole")
            .body::<FinishImport>()
            .answer::<VolumeInfo>()
            .tagged(),
    ]
}

fn snapshots() -> Vec<Operation> {
    let of = |place, id, summary| operation(place, "Snapshots", id, summary);
    vec![
        of(get(route::SNAPSHOTS), "listSnapshots", "Snapshots by volume, the oldest first")
            .query::<SnapshotQuery>()
            .answer::<Vec<SnapshotInfo>>(),
        of(post(route::SNAPSHOTS), "createSnapshot", "Keeps what a volume holds now")
            .body::<CreateSnapshot>()
            .answer::<SnapshotInfo>(),
        of(get(route::SNAPSHOT), "showSnapshot", "One snapshot")
            .query::<ShowSnapshotQuery>()
            .answer::<SnapshotInfo>()
            .tagged(),
        of(delete(route::SNAPSHOT), "removeSnapshot", "Removes a snapshot; its space is freed in the background")
            .query::<ReplicaQuery>()
            .answer::<SnapshotRemoval>(),
        of(post(route::SNAPSHOT_RENAME), "renameSnapshot", "Gives a snapshot another name")
            .body::<RenameSnapshot>()
            .answer::<SnapshotInfo>()
            .tagged(),
        of(post(route::SNAPSHOT_ROLLBACK), "rollBack", "The volume holds what the snapshot does")
            .query::<ReplicaQuery>()
            .answer::<VolumeInfo>()
            .tagged(),
        of(post(route::SNAPSHOT_CLONE), "cloneSnapshot", "A volume that holds what the snapshot does")
            .body::<CloneSnapshot>()
            .answer::<VolumeInfo>()
            .tagged(),
    ]
}

fn schedules() -> Vec<Operation> {
    let of = |place, id, summary| operation(place, "Schedules", id, summary);
    let shown = |operation: Operation| operation.answer::<ScheduleInfo>().tagged();
    vec![
        of(get(route::SCHEDULES), "listSchedules", "All schedules, by name").answer::<Vec<ScheduleInfo>>(),
        shown(of(post(route::SCHEDULES), "createSchedule", "Makes a schedule").body::<CreateSchedule>()),
        shown(of(get(route::SCHEDULE), "showSchedule", "One schedule")),
        shown(of(post(route::SCHEDULE), "changeSchedule", "Changes what it does").body::<ScheduleRules>()),
        of(delete(route::SCHEDULE), "removeSchedule", "Removes a schedule; its snapshots stay").answer::<Done>(),
        shown(of(post(route::SCHEDULE_PAUSE), "pauseSchedule", "It rests")),
        shown(of(post(route::SCHEDULE_RESUME), "resumeSchedule", "It goes on, and has missed nothing")),
        of(post(route::SCHEDULE_RUN), "runSchedule", "It's run now, beside its times").answer::<ScheduleRun>(),
    ]
}

/// What holds beyond single volumes.
fn realm() -> Vec<Operation> {
    let of = |place, id, summary| operation(place, "Access", id, summary);
    vec![
        of(get(route::POOL_RIGHTS), "listPoolRights", "Who may do what with all volumes of a pool")
            .answer::<Vec<ScopeRightInfo>>()
            .tagged(),
        of(
            post(route::POOL_RIGHTS),
            "grantOnPool",
            "Somebody may do this with all volumes of a pool, those to come too",
        )
        .body::<Grant>()
        .answer::<Done>(),
        of(delete(route::POOL_RIGHTS), "withdrawOnPool", "What was granted on the pool is taken away")
            .query::<WithdrawQuery>()
            .answer::<Done>(),
        of(
            post(route::POOL_KEY),
            "setPoolKey",
            "By which key new volumes of a pool are encrypted if nothing else is said",
        )
        .body::<SetPoolKey>()
        .answer::<PoolInfo>(),
        of(get(route::CLUSTER_RIGHTS), "listClusterRights", "Who may do what with all volumes")
            .answer::<Vec<ScopeRightInfo>>()
            .tagged(),
        of(post(route::CLUSTER_RIGHTS), "grantOnCluster", "Somebody may do this with all volumes, those to come too")
            .body::<Grant>()
            .answer::<Done>(),
        of(delete(route::CLUSTER_RIGHTS), "withdrawOnCluster", "What was granted on the cluster is taken away")
            .query::<WithdrawQuery>()
            .answer::<Done>(),
        of(get(route::AUTHORITIES), "listAuthorities", "By whom certificates are signed that count")
            .answer::<AuthoritiesInfo>(),
        of(
            post(route::AUTHORITIES_ROTATE),
            "rotateAuthority",
            "Makes an authority that is to take the place of the present one",
        )
        .answer::<AuthoritiesInfo>(),
        of(
            post(route::AUTHORITIES_FINISH),
            "finishAuthority",
            "The new authority takes the place: the earlier isn't trusted any more",
        )
        .answer::<AuthoritiesInfo>(),
        of(post(route::OUTSIDE_AUTHORITIES), "addOutsideAuthority", "An authority of others counts for people")
            .body::<OutsideAuthority>()
            .answer::<Done>(),
        of(
            delete(route::OUTSIDE_AUTHORITY),
            "removeOutsideAuthority",
            "It counts no more, and its identities are gone",
        )
        .answer::<Done>(),
        of(
            post(route::OUTSIDE_IDENTITIES),
            "createOutsideIdentity",
            "Adds an identity that an authority of others certifies",
        )
        .body::<CreateOutsideIdentity>()
        .answer::<IdentityInfo>(),
    ]
}

fn access() -> Vec<Operation> {
    let of = |place, id, summary| operation(place, "Access", id, summary);
    vec![
        of(get(route::IDENTITIES), "listIdentities", "All identities, by name").answer::<Vec<IdentityInfo>>(),
        of(post(route::IDENTITIES), "createIdentity", "Signs a certificate for a new identity")
            .body::<CreateIdentity>()
            .answer::<IdentityCertificate>(),
        of(post(route::IDENTITY_RENEW), "renewIdentity", "Signs another one; the last one counts too")
            .body::<RenewIdentity>()
            .answer::<IdentityCertificate>(),
        of(post(route::IDENTITY_LIMITS), "limitIdentity", "Holds what a host asks for to so much a second")
            .body::<LimitsShape>()
            .answer::<IdentityInfo>(),
        of(get(route::JOIN_TOKENS), "listJoinTokens", "Tokens by which servers join").answer::<Vec<JoinTokenInfo>>(),
        of(post(route::JOIN_TOKENS), "createJoinToken", "Makes a token by which one server may join")
            .body::<CreateJoinToken>()
            .answer::<JoinToken>(),
        of(delete(route::JOIN_TOKEN), "removeJoinToken", "Nobody joins by it any more").answer::<Done>(),
        open(of(post(route::JOIN), "join", "For a new server, which shows a token")).body::<Join>().answer::<Joined>(),
        open(of(
            get(route::AUTHORITY),
            "showAuthority",
            "For a new server: the certificate of the cluster's authority",
        ))
        .answer::<AuthorityCertificate>(),
        of(delete(route::IDENTITY), "revokeIdentity", "Its keys count no more").answer::<Done>(),
        of(post(CERTIFICATES), "signServer", "For servers: signs a server's certificate")
            .body::<SignServer>()
            .answer::<Signed>(),
        of(get(route::VOLUME_RIGHTS), "listRights", "Who may do what with a volume")
            .answer::<Vec<RightInfo>>()
            .tagged(),
        of(post(route::VOLUME_RIGHTS), "grant", "Somebody may do this, and no more").body::<Grant>().answer::<Done>(),
        of(delete(route::VOLUME_RIGHTS), "withdraw", "Somebody may do nothing any more")
            .query::<WithdrawQuery>()
            .answer::<Done>(),
        of(post(route::VOLUME_RESERVATION), "reserve", "Only this holder writes from now on")
            .body::<Reserve>()
            .answer::<Done>(),
        of(delete(route::VOLUME_RESERVATION), "fence", "Whoever was connected writes no more")
            .query::<FenceQuery>()
            .answer::<Done>(),
    ]
}

fn replication() -> Vec<Operation> {
    let of = |place, id, summary| operation(place, "Replication", id, summary);
    vec![
        of(get(route::REPLICATIONS), "listReplications", "Those that go on").answer::<Vec<Replication>>(),
        of(post(route::VOLUME_FOLLOW), "followVolume", "The volume is a replica from now on")
            .body::<Follow>()
            .answer::<VolumeInfo>()
            .tagged(),
        of(post(route::VOLUME_PROMOTE), "promote", "The replica is an ordinary volume from now on")
            .query::<ForceQuery>()
            .answer::<VolumeInfo>()
            .tagged(),
        of(post(route::VOLUME_RECEIVE), "receive", "Replication begins to write, or has come so far")
            .body::<Receive>()
            .answer::<Done>(),
        of(post(route::VOLUME_RECEIVED), "received", "All of a snapshot is there, and kept")
            .body::<Received>()
            .answer::<SnapshotInfo>(),
        of(post(route::VOLUME_REPLICA), "noteReplica", "Nothing has changed at the source")
            .body::<NoteReplica>()
            .answer::<Done>(),
    ]
}
