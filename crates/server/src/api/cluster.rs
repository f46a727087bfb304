//! The cluster, its servers, and its health.

use super::drives::{of_server, reason};
use super::extract::Named;
use super::failure::Failure;
use super::types::{ClusterInfo, DriveInfo, Health, ServerDrive, ServerInfo, ServerState, Status, VolumeState};
use super::{Context, Shared, volumes};
use crate::drives::Fullness;
use axum::Json;
use axum::extract::State;
use std::collections::BTreeMap;
use tepal_metadata::{DriveState, Refusal};
use tepal_model::ServerId;

pub async fn status(State(context): State<Shared>) -> Json<Status> {
    let state = context.parts.metadata.state();
    let (health, reason) = health(&context);
    let space = Space::of(&context);
    Json(Status {
        health,
        reason,
        cluster: state.cluster.name.clone(),
        cluster_id: state.cluster.id,
        view: state.view(),
        servers: all_servers(&context),
        volumes: state.active_volumes().count() as u64,
        capacity: space.capacity,
        used: space.used,
        version: env!("CARGO_PKG_VERSION").to_owned(),
    })
}

pub async fn show(State(context): State<Shared>) -> Json<ClusterInfo> {
    let state = context.parts.metadata.state();
    let space = Space::of(&context);
    Json(ClusterInfo {
        id: state.cluster.id,
        name: state.cluster.name.clone(),
        created_unix_ms: state.cluster.created_unix_ms,
        view: state.view(),
        servers: state.servers.len() as u64,
        drives: state.drives.len() as u64,
        pools: state.pools.len() as u64,
        volumes: state.active_volumes().count() as u64,
        capacity: space.capacity,
        used: space.used,
    })
}

pub async fn servers(State(context): State<Shared>) -> Json<Vec<ServerInfo>> {
    Json(all_servers(&context))
}

pub async fn server(State(context): State<Shared>, id: Named) -> Result<Json<ServerInfo>, Failure> {
    let wanted: ServerId = id.parse()?;
    let found = all_servers(&context).into_iter().find(|server| server.id == wanted);
    found.map(Json).ok_or_else(|| Refusal::NoServer(wanted).into())
}

fn all_servers(context: &Context) -> Vec<ServerInfo> {
    let state = context.parts.metadata.state();
    let own = state.servers.values().filter(|record| record.id == context.server);
    own.map(|record| {
        let drives: Vec<ServerDrive> = state
            .drives_of_server(record.id)
            .map(|drive| ServerDrive { id: drive.id, path: drive.path.clone(), state: drive.state })
            .collect();
        let recovering = drives.iter().any(|drive| drive.state == DriveState::Behind);
        ServerInfo {
            id: record.id,
            state: if recovering { ServerState::Recovering } else { ServerState::Up },
            api: context.address.to_string(),
            nbd: context.nbd.clone(),
            drives,
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            uptime_ms: u64::try_from(context.started.elapsed().as_millis()).unwrap_or(u64::MAX),
            data_threads: context.parts.threads.count() as u32,
        }
    })
    .collect()
}

/// Bytes of all drives that are not failed.
struct Space {
    capacity: u64,
    used: u64,
}

impl Space {
    fn of(context: &Context) -> Self {
        let drives = of_server(context).into_iter().filter(|drive| drive.state != DriveState::Failed);
        drives.fold(Space { capacity: 0, used: 0 }, |sum, drive| Space {
            capacity: sum.capacity + drive.capacity,
            used: sum.used + drive.used,
        })
    }
}

/// The open drive of each pool that has the least space left.
fn fullest_drives(context: &Context) -> BTreeMap<String, DriveInfo> {
    let mut fullest = BTreeMap::<String, DriveInfo>::new();
    let left = |drive: &DriveInfo| drive.capacity.saturating_sub(drive.used);
    for drive in of_server(context).into_iter().filter(|drive| drive.open.is_some()) {
        if fullest.get(&drive.pool).is_none_or(|other| left(&drive) < left(other)) {
            fullest.insert(drive.pool.clone(), drive);
        }
    }
    fullest
}

/// The worst that is the case, and all that keeps it from being `ok`.
fn health(context: &Context) -> (Health, Vec<String>) {
    let state = context.parts.metadata.state();
    let (mut worst, mut reasons) = (Health::Ok, Vec::new());
    let mut add = |health: Health, reason: String| {
        worst = worst.max(health);
        reasons.push(reason);
    };
    if let Some(lack) = context.parts.metadata.lack_of_room() {
        let until = "until then nothing can be changed, and the writes of a volume that loses a drive wait";
        add(Health::Degraded, format!("the cluster's state can't be written: {lack}: free some space there; {until}"));
    }
    for drive in state.drives.values() {
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
        let text =
            "its end was blank, as if it had been cut short and lengthened again: what is on it is being scrubbed";
        add(Health::Degraded, format!("drive {drive} may have lost data: {text}"));
    }
    for (pool, drive) in fullest_drives(context) {
        let fullness = Fullness::of(drive.capacity, drive.used);
        if fullness > Fullness::Ample {
            let text = fullness.text(drive.capacity, drive.used);
            add(Health::Degraded, format!("drive {} of pool '{pool}' is {text}", drive.id));
        }
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
        add(health, format!("volume '{}': {}", info.name, info.reason.join("; ")));
    }
    (worst, reasons)
}
