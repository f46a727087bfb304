//! Volumes that go to another layout, or leave those that they share data with.

use super::drives;
use super::extract::{Input, Named};
use super::failure::Failure;
use super::relay::Scope;
use super::types::{
    DriveInfo, ErrorKind, Flatten, Migration, MigrationInfo, MigrationState, Relayout, SetRate, VolumeInfo,
};
use super::{Context, Shared, volumes};
use crate::world::ServerWorld;
use axum::Json;
use axum::extract::State as Extract;
use std::sync::Arc;
use tepal_drive::world::Random;
use tepal_engine::{Trouble, VolumeHealth};
use tepal_metadata::{Command, DriveState, DriveUse, MigrationRecord, State, VolumeRecord};
use tepal_model::size::Size;
use tepal_model::{Layout, MapId, MigrationStage};

/// Of what is to be taken over, this part must fit besides: a window of it is in both places.
const BESIDES: u64 = 20;

pub async fn relayout(
    Extract(context): Extract<Shared>,
    name: Named,
    Input(Relayout { layout, rate }): Input<Relayout>,
) -> Result<Json<VolumeInfo>, Failure> {
    begin(&context, &name.0, Some(layout), false, rate).await
}

pub async fn flatten(
    Extract(context): Extract<Shared>,
    name: Named,
    Input(Flatten { rate }): Input<Flatten>,
) -> Result<Json<VolumeInfo>, Failure> {
    begin(&context, &name.0, None, true, rate).await
}

async fn begin(
    context: &Context,
    name: &str,
    layout: Option<String>,
    alone: bool,
    rate: Option<u64>,
) -> Result<Json<VolumeInfo>, Failure> {
    let record = volumes::record_in(context, Scope::Cluster, name).await?;
    let state = context.parts.metadata.state();
    // One that can't be read is refused by the command, in its words.
    let wanted: Option<Layout> = match &layout {
        Some(text) => text.parse().ok(),
        None => Some(record.layout.clone()),
    };
    // What comes back from there goes there after all.
    let comes_back = |migration: &&Arc<MigrationRecord>| {
        migration.cancelled && migration.leaves.is_some() == alone && wanted.as_ref() == Some(&migration.layout)
    };
    if let Some(migration) = state.migration_of(&record).filter(comes_back) {
        context.propose(Command::TurnMigration { id: migration.id, cancelled: false }).await?;
        if rate.is_some() {
            context.propose(Command::SetMigrationRate { id: migration.id, rate }).await?;
        }
        return volumes::one(context, name).await;
    }
    if let Some(wanted) = wanted.filter(|_| state.migration_about(record.map).is_none()) {
        check_room(context, &state, &record, &wanted, alone).await?;
    }
    let seed = ServerWorld.next_u64();
    context.propose(Command::BeginMigration { volume: name.to_owned(), layout, alone, seed, rate }).await?;
    context.volumes.settle().await;
    volumes::one(context, name).await
}

/// What the volumes that go have on drives, with as many copies as they get, must fit besides what it leaves free on its way.
async fn check_room(
    context: &Context,
    state: &State,
    record: &VolumeRecord,
    wanted: &Layout,
    alone: bool,
) -> Result<(), Failure> {
    let Some(map) = state.map_of(record) else { return Ok(()) };
    let allocated = volumes::everywhere(context, &record.name).await?.allocated;
    let copies = u64::from(map.layout.copies());
    let held = allocated / copies;
    // Of what several volumes have together nobody knows how much one of them sees: at most all of itself.
    let goes = if alone { held.min(record.size) } else { held };
    let wanted_bytes = goes.saturating_mul(u64::from(wanted.copies()));
    let left_free = if alone { 0 } else { allocated };
    let needed = wanted_bytes.saturating_sub(left_free).saturating_add(wanted_bytes / BESIDES);
    let takes_it = |drive: &&DriveInfo| {
        drive.pool == record.pool && drive.state == DriveState::Up && drive.purpose == DriveUse::Active
    };
    let free = |drive: &DriveInfo| drive.capacity.saturating_sub(drive.used);
    let free: u64 = drives::all(context, Scope::Cluster).await.iter().filter(takes_it).map(free).sum();
    if needed <= free {
        return Ok(());
    }
    let error = format!(
        "volume '{}' needs {} more than it has now to get there, and the drives of pool '{}' have {} free: add drives, or remove \
         something",
        record.name,
        Size(needed),
        record.pool,
        Size(free)
    );
    Err(Failure::new(ErrorKind::OutOfSpace, error))
}

pub async fn pause(Extract(context): Extract<Shared>, name: Named) -> Result<Json<VolumeInfo>, Failure> {
    change(&context, &name.0, |id| Command::PauseMigration { id, paused: true }).await
}

pub async fn resume(Extract(context): Extract<Shared>, name: Named) -> Result<Json<VolumeInfo>, Failure> {
    change(&context, &name.0, |id| Command::PauseMigration { id, paused: false }).await
}

pub async fn cancel(Extract(context): Extract<Shared>, name: Named) -> Result<Json<VolumeInfo>, Failure> {
    change(&context, &name.0, |id| Command::TurnMigration { id, cancelled: true }).await
}

pub async fn set_rate(
    Extract(context): Extract<Shared>,
    name: Named,
    Input(SetRate { rate }): Input<SetRate>,
) -> Result<Json<VolumeInfo>, Failure> {
    change(&context, &name.0, |id| Command::SetMigrationRate { id, rate }).await
}

async fn change(
    context: &Context,
    name: &str,
    command: impl FnOnce(MapId) -> Command,
) -> Result<Json<VolumeInfo>, Failure> {
    let record = volumes::record_in(context, Scope::Cluster, name).await?;
    let state = context.parts.metadata.state();
    let Some(migration) = state.migration_of(&record) else {
        let error = format!(
            "volume '{name}' has no migration under way: it's where it was to go, or none was begun (`tepal volume relayout`, `tepal volume \
             flatten`)"
        );
        return Err(Failure::new(ErrorKind::Conflict, error));
    };
    match context.propose(command(migration.id)).await {
        // It has just ended.
        Err(_) if context.parts.metadata.state().migration_of(&record).is_none() => {
            Err(Failure::new(ErrorKind::Conflict, format!("volume '{name}' is there already")))
        }
        done => done.map(drop),
    }?;
    volumes::one(context, name).await
}

pub async fn list(Extract(context): Extract<Shared>) -> Json<Vec<MigrationInfo>> {
    let state = context.parts.metadata.state();
    let volumes = state.active_volumes().filter_map(|record| {
        let migration = of_volume(&context, &state, record)?;
        Some((record, state.migration_of(record)?.clone(), migration))
    });
    let info = |(record, migration, said): (&Arc<VolumeRecord>, Arc<MigrationRecord>, Migration)| MigrationInfo {
        volume: record.name.clone(),
        from: layout_of(&state, migration.source).unwrap_or_default(),
        begun_unix_ms: migration.begun_unix_ms,
        migration: said,
    };
    let mut all: Vec<MigrationInfo> = volumes.map(info).collect();
    all.sort_unstable_by(|one, other| one.volume.cmp(&other.volume));
    Json(all)
}

/// How the volume goes to another map, if it does.
pub fn of_volume(context: &Context, state: &State, record: &VolumeRecord) -> Option<Migration> {
    let migration = state.migration_of(record)?;
    let progress = context.migrations.progress(migration.id);
    let total_bytes = record.size;
    let part = |chunks: u64| (u128::from(total_bytes) * u128::from(chunks) / u128::from(migration.chunks)) as u64;
    let done_bytes = part(migration.done);
    let is_running = migration.stage == MigrationStage::Running;
    let rate = if is_running { progress.rate } else { 0 };
    let mut obstacles = progress.obstacles;
    // Who has drives that are full, or leads what can't go on, says so; others can't know.
    obstacles.extend(full_drives(context, state, migration.target));
    obstacles.extend(obstacles_here(context, record));
    Some(Migration {
        // What it goes back to it has as its own still.
        to: if migration.cancelled { record.layout.to_string() } else { migration.layout.to_string() },
        done_bytes,
        total_bytes,
        rate,
        seconds_left: (rate > 0).then(|| (total_bytes - done_bytes).div_ceil(rate)),
        state: match migration.stage {
            MigrationStage::Paused => MigrationState::Paused,
            MigrationStage::Running if !obstacles.is_empty() => MigrationState::Blocked,
            MigrationStage::Running => MigrationState::Running,
        },
        reason: obstacles,
        cancelled: migration.cancelled,
        flattens: migration.leaves.is_some(),
        most_rate: migration.rate,
    })
}

fn layout_of(state: &State, map: MapId) -> Option<String> {
    let map = state.maps.get(&map)?;
    Some(Layout { domain: None, ..map.layout.clone() }.to_string())
}

/// What keeps columns that this server leads from being taken over.
fn obstacles_here(context: &Context, record: &VolumeRecord) -> Vec<String> {
    let troubles = match context.volumes.served(record.id).map(|volume| volume.health()) {
        None | Some(VolumeHealth::Healthy) => Vec::new(),
        Some(
            VolumeHealth::Degraded(troubles) | VolumeHealth::Recovering(troubles) | VolumeHealth::Unavailable(troubles),
        ) => troubles,
    };
    let text = |trouble| match trouble {
        Trouble::Obstacle(text) => Some(text),
        _ => None,
    };
    troubles.into_iter().filter_map(text).collect()
}

/// The drives of this server that have no room for what goes to the map.
fn full_drives(context: &Context, state: &State, target: MapId) -> Vec<String> {
    let Some(map) = state.maps.get(&target) else { return Vec::new() };
    map.drives().into_iter().filter_map(|id| volumes::full_drive(context, id)).collect()
}

/// What several servers say of one migration.
pub fn put_together(own: Option<Migration>, others: impl IntoIterator<Item = Migration>) -> Option<Migration> {
    let mut all = own?;
    for other in others {
        for reason in other.reason {
            if !all.reason.contains(&reason) {
                all.reason.push(reason);
            }
        }
    }
    if all.state == MigrationState::Running && !all.reason.is_empty() {
        all.state = MigrationState::Blocked;
    }
    Some(all)
}
