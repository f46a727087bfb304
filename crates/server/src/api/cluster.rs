//! The cluster, its servers, and its health.

use super::drives::{self, of_server, reason};
use super::extract::{Input, Named};
use super::failure::Failure;
use super::relay::Scope;
use super::types::{
    ChangeCluster, ClusterInfo, Done, DriveInfo, Health, ServerDrive, ServerInfo, ServerState, SetDraining, Status,
    VolumeState, route,
};
use super::{Context, Shared, health_text, snapshots, volumes};
use crate::drives::{Filled, Fullness};
use crate::moving;
use axum::Json;
use axum::extract::State;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use tepal_metadata::{self as metadata, Command, DriveState, MapRecord, Refusal};
use tepal_model::ServerId;

pub async fn status(State(context): State<Shared>, scope: Scope) -> Json<Status> {
    let mut status = own_status(&context);
    if scope == Scope::Cluster {
        let state = context.parts.metadata.state();
        for (server, said) in context.ask_others::<Status>(route::STATUS).await {
            match said {
                Some(said) => add_to(&mut status, said),
                None => add_to(&mut status, status_on_record(&state, server)),
            }
        }
        status.servers.sort_by_key(|server| server.id);
        let mut single: Vec<&str> = state
            .active_volumes()
            .filter(|volume| state.maps_of(volume).any(|map| has_single_copies(map)))
            .map(|volume| &*volume.name)
            .collect();
        single.sort_unstable();
        status.reason.extend(health_text::one_copy(&single));
        if state.drives.values().any(|record| moving::is_emptied(&state, record)) {
            let mut drives = drives::all(&context, Scope::Cluster).await;
            drives::say_obstacles(&state, &mut drives);
            for (drive, why) in drives.iter().filter_map(|drive| Some((drive, drive.stuck.as_ref()?))) {
                status.health = status.health.max(Health::Degraded);
                status.reason.push(format!("drive {} at {} isn't emptied: {why}", drive.id, drive.path));
            }
        }
    }
    Json(status)
}

/// Whether some of it has one copy only, as it's laid out.
fn has_single_copies(map: &MapRecord) -> bool {
    map.layout.fragments().are_copies() && map.columns.iter().any(|column| column.holders.len() == 1)
}

/// What this server knows of itself, its drives and the volumes on them.
fn own_status(context: &Context) -> Status {
    let state = context.parts.metadata.state();
    let servers = own_server(context).into_iter().collect();
    let (health, mut reason) = health(context);
    let warnings = context.access.credentials().warnings();
    reason.extend(warnings.into_iter().map(|warning| format!("server {}: {warning}", context.server)));
    status_of(&state, (health, reason), servers, &of_server(context))
}

/// The part of the cluster's status that these servers and drives are.
fn status_of(
    state: &metadata::State,
    (health, reason): (Health, Vec<String>),
    servers: Vec<ServerInfo>,
    drives: &[DriveInfo],
) -> Status {
    let space = Space::of(drives);
    Status {
        health,
        reason,
        cluster: state.cluster.name.clone(),
        cluster_id: state.cluster.id,
        view: state.view(),
        servers,
        volumes: state.active_volumes().count() as u64,
        migrations: state.active_volumes().filter(|volume| state.migration_of(volume).is_some()).count() as u64,
        moving: moving::joins(state).count() as u64,
        capacity: space.capacity,
        used: space.used,
        reclaiming: space.reclaiming,
        version: env!("CARGO_PKG_VERSION").to_owned(),
    }
}

fn add_to(status: &mut Status, other: Status) {
    status.health = status.health.max(other.health);
    for reason in other.reason {
        if !status.reason.contains(&reason) {
            status.reason.push(reason);
        }
    }
    status.servers.extend(other.servers);
    status.capacity += other.capacity;
    status.used += other.used;
    status.reclaiming += other.reclaiming;
}

/// Of a server that says nothing itself.
fn status_on_record(state: &metadata::State, server: ServerId) -> Status {
    let info = on_record(state, server);
    let drives: Vec<DriveInfo> =
        state.drives_of_server(server).map(|record| drives::info(state, record, None)).collect();
    let reason = match info.state {
        ServerState::Down => format!("server {server} is down"),
        _ => format!("server {server} doesn't answer"),
    };
    status_of(state, (Health::Degraded, vec![reason]), vec![info], &drives)
}

pub async fn show(State(context): State<Shared>) -> Json<ClusterInfo> {
    let space = Space::of(&drives::all(&context, Scope::Cluster).await);
    let state = context.parts.metadata.state();
    Json(ClusterInfo {
        id: state.cluster.id,
        name: state.cluster.name.clone(),
        created_unix_ms: state.cluster.created_unix_ms,
        view: state.view(),
        leader: context.parts.metadata.leader(),
        voters: context.parts.metadata.voters().into_iter().collect(),
        servers: state.servers.len() as u64,
        drives: state.drives.len() as u64,
        pools: state.pools.len() as u64,
        volumes: state.active_volumes().count() as u64,
        capacity: space.capacity,
        used: space.used,
        lease_ms: u64::try_from(context.parts.metadata.lease_length().as_millis()).unwrap_or(u64::MAX),
    })
}

pub async fn change(
    State(context): State<Shared>,
    Input(ChangeCluster { lease_ms }): Input<ChangeCluster>,
) -> Result<Json<ClusterInfo>, Failure> {
    context.propose(Command::SetLease { ms: lease_ms }).await?;
    Ok(show(State(context)).await)
}

pub async fn servers(State(context): State<Shared>, scope: Scope) -> Json<Vec<ServerInfo>> {
    let mut all: Vec<ServerInfo> = own_server(&context).into_iter().collect();
    if scope == Scope::Cluster {
        let state = context.parts.metadata.state();
        for (server, said) in context.ask_others::<Vec<ServerInfo>>(route::SERVERS).await {
            all.extend(said.unwrap_or_else(|| vec![on_record(&state, server)]));
        }
        all.sort_by_key(|server| server.id);
    }
    Json(all)
}

pub async fn server(State(context): State<Shared>, id: Named) -> Result<Json<ServerInfo>, Failure> {
    let wanted: ServerId = id.parse()?;
    let Json(all) = servers(State(context), Scope::Cluster).await;
    let found = all.into_iter().find(|server| server.id == wanted);
    found.map(Json).ok_or_else(|| Refusal::NoServer(wanted).into())
}

/// Takes a server without drives out of the cluster for good. If it runs, it ends.
pub async fn remove(State(context): State<Shared>, id: Named) -> Result<Json<Done>, Failure> {
    let id = id.parse()?;
    context.propose(Command::RemoveServer { id }).await?;
    Ok(Json(Done {}))
}

pub async fn set_draining(
    State(context): State<Shared>,
    id: Named,
    Input(SetDraining { draining }): Input<SetDraining>,
) -> Result<Json<Done>, Failure> {
    let id = id.parse()?;
    context.propose(Command::SetServerDraining { id, draining }).await?;
    Ok(Json(Done {}))
}

/// A server of which only the records tell.
fn on_record(state: &metadata::State, id: ServerId) -> ServerInfo {
    let record = state.servers.get(&id);
    let up = record.filter(|record| record.state == metadata::ServerState::Up);
    ServerInfo {
        id,
        state: match up.map(|record| record.draining) {
            Some(true) => ServerState::Draining,
            Some(false) => ServerState::Up,
            None => ServerState::Down,
        },
        site: record.and_then(|record| record.site.clone()),
        api: String::new(),
        nbd: Vec::new(),
        drives: drives_of(state, id),
        pid: 0,
        version: String::new(),
        uptime_ms: 0,
        data_threads: 0,
    }
}

fn drives_of(state: &metadata::State, server: ServerId) -> Vec<ServerDrive> {
    let shown = |drive: &std::sync::Arc<metadata::DriveRecord>| ServerDrive {
        id: drive.id,
        path: drive.path.clone(),
        state: drive.state,
    };
    state.drives_of_server(server).map(shown).collect()
}

fn own_server(context: &Context) -> Option<ServerInfo> {
    let state = context.parts.metadata.state();
    let record = state.servers.get(&context.server)?;
    let drives = drives_of(&state, record.id);
    let recovering = drives.iter().any(|drive| drive.state == DriveState::Behind);
    Some(ServerInfo {
        id: record.id,
        state: match record.state {
            metadata::ServerState::Down => ServerState::Down,
            metadata::ServerState::Up if record.draining => ServerState::Draining,
            metadata::ServerState::Up if recovering => ServerState::Recovering,
            metadata::ServerState::Up => ServerState::Up,
        },
        site: record.site.clone(),
        api: context.address.to_string(),
        nbd: context.nbd.clone(),
        drives,
        pid: std::process::id(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        uptime_ms: u64::try_from(context.started.elapsed().as_millis()).unwrap_or(u64::MAX),
        data_threads: context.parts.threads.count() as u32,
    })
}

/// Bytes of all drives that are not failed.
#[derive(Default)]
pub struct Space {
    pub capacity: u64,
    pub used: u64,
    reclaiming: u64,
}

impl Space {
    pub fn of(drives: &[DriveInfo]) -> Self {
        let drives = drives.iter().filter(|drive| drive.state != DriveState::Failed);
        drives.fold(Space::default(), |sum, drive| Space {
            capacity: sum.capacity + drive.capacity,
            used: sum.used + drive.used,
            reclaiming: sum.reclaiming + drive.reclaiming,
        })
    }
}

/// The open drives of each pool that are short of space, the fullest first.
fn short_of_space(context: &Context) -> BTreeMap<(String, Reverse<Fullness>), Vec<Filled>> {
    let mut short = BTreeMap::<_, Vec<Filled>>::new();
    for drive in of_server(context).into_iter().filter(|drive| drive.open.is_some()) {
        let fullness = Fullness::of(drive.capacity, drive.used);
        if fullness > Fullness::Ample {
            let filled = Filled { id: drive.id, capacity: drive.capacity, used: drive.used };
            short.entry((drive.pool, Reverse(fullness))).or_default().push(filled);
        }
    }
    short
}

/// The worst that is the case, and all that keeps it from being `ok`.
pub fn health(context: &Context) -> (Health, Vec<String>) {
    let state = context.parts.metadata.state();
    let (mut worst, mut reasons) = (Health::Ok, Vec::new());
    let mut add = |health: Health, reason: String| {
        worst = worst.max(health);
        reasons.push(reason);
    };
    let metadata = &context.parts.metadata;
    if let Some(reason) = health_text::no_lease(context.server, metadata.lease(), metadata.now()) {
        let serves = state.active_volumes().next().is_some();
        add(if serves { Health::Unavailable } else { Health::Degraded }, reason);
    }
    if let Some(lack) = metadata.lack_of_room() {
        let until = "until then nothing can be changed, and the writes of a volume that loses a drive wait";
        add(Health::Degraded, format!("the cluster's state can't be written: {lack}: free some space there; {until}"));
    }
    for turned_away in context.surplus.iter().chain([&context.surplus_here]).filter_map(|surplus| surplus.lately()) {
        add(Health::Degraded, format!("server {}: {turned_away}", context.server));
    }
    for other in context.links.cut_off() {
        let text = "the network between them is cut, and requests that need both wait";
        add(Health::Degraded, format!("server {} can't reach server {other}: {text}", context.server));
    }
    for drive in state.drives_of_server(context.server) {
        let health = match drive.state {
            DriveState::Up => continue,
            DriveState::Behind => Health::Recovering,
            DriveState::Missing | DriveState::Offline => Health::Degraded,
            // One that no volume needs was only not removed yet.
            DriveState::Failed if state.volumes_on(drive.id).next().is_none() => continue,
            DriveState::Failed => Health::Degraded,
        };
        add(health, format!("drive {} at {} is {}: {}", drive.id, drive.path, drive.state, reason(context, drive)));
    }
    let recorded = |path: &std::path::Path| {
        state.drives.values().any(|drive| std::path::Path::new(&drive.path) == path && drive.state != DriveState::Up)
    };
    for (path, reason) in context.drives.refused() {
        // What a drive's own record says isn't said twice.
        if !recorded(&path) {
            add(Health::Degraded, format!("{} is not used: {reason}", path.display()));
        }
    }
    for drive in context.drives.doubtful() {
        let text = "it was cut short and lengthened again, or overwritten in part: what is on it is being scrubbed";
        add(Health::Degraded, format!("drive {drive} may have lost data: {text}"));
    }
    for ((pool, Reverse(fullness)), drives) in short_of_space(context) {
        add(Health::Degraded, fullness.text_of(&drives, &format!(" of pool '{pool}'")));
    }
    for snapshot in state.active_volumes().flat_map(|record| snapshots::damaged(context, &state, record)) {
        let said = snapshot.reason.iter().map(|reason| format!("snapshot '{}': {reason}", snapshot.full_name()));
        said.for_each(|reason| add(Health::Degraded, reason));
    }
    for record in state.active_volumes() {
        // What full drives are to it is said above.
        let info = volumes::info_besides_space(context, &state, record);
        let health = match info.state {
            VolumeState::Healthy => continue,
            VolumeState::Recovering => Health::Recovering,
            VolumeState::Degraded => Health::Degraded,
            VolumeState::Unavailable => Health::Unavailable,
        };
        // One by one, for others say some of it too.
        let reasons = info.reason.iter().map(|reason| format!("volume '{}': {reason}", info.name));
        reasons.for_each(|reason| add(health, reason));
    }
    (worst, reasons)
}
