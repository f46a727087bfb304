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
    Input(Relayout { layout, pool, rate }): Input<Relayout>,
) -> Result<Json<VolumeInfo>, Failure> {
    begin(&context, &name.0, (layout, pool), false, rate).await
}

pub async fn flatten(
    Extract(context): Extract<Shared>,
    name: Named,
    Input(Flatten { rate }): Input<Flatten>,
) -> Result<Json<VolumeInfo>, Failure> {
    begin(&context, &name.0, (None, None), true, rate).await
}

async fn begin(
    context: &Context,
    name: &str,
    (layout, pool): (Option<String>, Option<String>),
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
        let other = state.maps.get(&migration.source).map(|map| state.pool_of(&record, map));
        let is_meant =
            wanted.as_ref() == Some(&migration.layout) && pool.as_deref().is_none_or(|pool| other == Some(pool));
        migration.cancelled && migration.leaves.is_some() == alone && is_meant
    };
    if let Some(migration) = state.migration_of(&record).filter(comes_back) {
        context.propose(Command::TurnMigration { id: migration.id, cancelled: false }).await?;
        if rate.is_some() {
            context.propose(Command::SetMigrationRate { id: migration.id, rate }).await?;
        }
        return volumes::one(context, name).await;
    }
    if let Some(wanted) = wanted.filter(|_| state.migration_about(record.map).is_none()) {
        let to = pool.as_deref().unwrap_or(&record.pool);
        check_room(context, &state, &record, (&wanted, to), alone).await?;
    }
    let seed = ServerWorld.next_u64();
    context.propose(Command::BeginMigration { volume: name.to_owned(), layout, alone, pool, seed, rate }).await?;
    context.volumes.settle().await;
    volumes::one(context, name).await
}

/// What the volumes that go have on drives, with as many copies as they get, must fit besides what it leaves free on its way.
async fn check_room(
    context: &Context,
    state: &State,
    record: &VolumeRecord,
    (wanted, pool): (&Layout, &str),
    alone: bool,
) -> Result<(), Failure> {
    let Some(map) = state.map_of(record) else { return Ok(()) };
    let allocated = volumes::everywhere(context, &record.name).await?.allocated;
    let copies = u64::from(map.layout.copies());
    let held = allocated / copies;
    // Of what several volumes have together nobody knows how much one of them sees: at most all of itself.
    let goes = if alone { held.min(record.size) } else { held };
    let wanted_bytes = goes.saturating_mul(u64::from(wanted.copies()));
    let left_free = if alone || *pool != *record.pool { 0 } else { allocated };
    let needed = wanted_bytes.saturating_sub(left_free).saturating_add(wanted_bytes / BESIDES);
    let free = free_in(context, pool).await;
    let promised = promised_in(context, state, pool).await;
    if needed <= free.saturating_sub(promised) {
        return Ok(());
    }
    let promised = match promised {
        0 => String::new(),
        _ => format!(", {} of which others on their way will take", Size(promised)),
    };
    let error = format!(
        "volume '{}' needs {} more than it has now to get there, and the drives of pool '{}' have {} free{promised}: add drives, or \
         remove something",
        record.name,
        Size(needed),
        pool,
        Size(free)
    );
    Err(Failure::new(ErrorKind::OutOfSpace, error))
}

/// What the drives that take copies have free.
async fn free_in(context: &Context, pool: &str) -> u64 {
    let takes_it =
        |drive: &&DriveInfo| drive.pool == pool && drive.state == DriveState::Up && drive.purpose == DriveUse::Active;
    let free = |drive: &DriveInfo| drive.capacity.saturating_sub(drive.used);
    drives::all(context, Scope::Cluster).await.iter().filter(takes_it).map(free).sum()
}

/// What the volumes that are on their way will take more than they have now.
async fn promised_in(context: &Context, state: &State, pool: &str) -> u64 {
    let mut promised = 0_u64;
    for migration in state.migrations.values() {
        let goes = |volume: &&Arc<VolumeRecord>| migration.takes(volume);
        let (Some(volume), Some(source), Some(target)) =
            (state.active_volumes().find(goes), state.maps.get(&migration.source), state.maps.get(&migration.target))
        else {
            continue;
        };
        if state.pool_of(volume, target) != pool {
            continue;
        }
        let leaves_room = state.pool_of(volume, source) == pool;
        // Unless it has gone meanwhile.
        let Ok(VolumeInfo { allocated, .. }) = volumes::everywhere(context, &volume.name).await else { continue };
        let copies = (source.layout.copies(), target.layout.copies());
        // What a volume that parts from others has by itself in the end isn't known before.
        let takes = match migration.leaves {
            None => still_takes(allocated, copies, (migration.done, migration.chunks), leaves_room),
            Some(_) => 0,
        };
        promised = promised.saturating_add(takes);
    }
    promised
}

/// What a volume that has `allocated` bytes on drives will take besides, if so many of its chunks have gone from the one number of
/// copies to the other, and whether what it leaves is room for it too.
fn still_takes(allocated: u64, (from, to): (u8, u8), (done, chunks): (u64, u64), leaves_room: bool) -> u64 {
    let (from, to, done, chunks) = (u128::from(from), u128::from(to), u128::from(done), u128::from(chunks));
    let left = chunks - done;
    let copies_of_chunks = from * left + to * done;
    let besides = if leaves_room { to.saturating_sub(from) } else { to };
    let more = u128::from(allocated) * left * besides / copies_of_chunks.max(1);
    u64::try_from(more).unwrap_or(u64::MAX)
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
        to_pool: changed_pool(state, record, migration),
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

/// The pool that it goes to, if that's another one.
fn changed_pool(state: &State, record: &VolumeRecord, migration: &MigrationRecord) -> Option<String> {
    let pool_of = |map| state.maps.get(&map).map(|map| state.pool_of(record, map));
    let to = pool_of(migration.target).filter(|to| pool_of(migration.source) != Some(to))?;
    Some(to.to_owned())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_volume_still_takes_grows_with_its_copies_and_shrinks_as_it_goes() {
        let mib = 1 << 20;
        for (allocated, copies, gone, more) in [
            (40, (1, 2), (0, 10), 40),
            (60, (1, 2), (5, 10), 20),
            (80, (1, 2), (10, 10), 0),
            (60, (2, 3), (5, 5), 0),
            (80, (2, 3), (0, 5), 40),
            (80, (2, 1), (0, 5), 0),
            (60, (2, 1), (2, 4), 0),
            (0, (1, 3), (0, 1), 0),
        ] {
            let takes = still_takes(allocated * mib, copies, gone, true);
            assert_eq!(takes, more * mib, "{allocated} MiB, {copies:?}, {gone:?}");
        }
        assert_eq!(still_takes(60 * mib, (2, 2), (1, 3), false), 40 * mib);
    }
}
