//! Volumes that go to another layout, or leave those that they share data with.

use super::conditions::Tagged;
use super::drives;
use super::extract::{Input, Named};
use super::failure::Failure;
use super::relay::Scope;
use super::types::{
    Between, DriveInfo, ErrorKind, Flatten, Migration, MigrationInfo, MigrationState, Relayout, SetRate, VolumeInfo,
    VolumesQuery, route,
};
use super::{Context, Shared, Who, conditions, health_text, host, live_imports, volumes};
use crate::drives::{NAMED, first};
use crate::world::ServerWorld;
use axum::extract::State as Extract;
use axum::response::Response;
use axum::{Extension, Json};
use std::sync::Arc;
use tepal_drive::world::Random;
use tepal_engine::{Trouble, VolumeHealth};
use tepal_metadata::{Command, DriveState, DriveUse, LiveStage, MapRecord, MigrationRecord, State, VolumeRecord};
use tepal_model::layout::plexes::Plexes;
use tepal_model::size::Size;
use tepal_model::{CHUNK, DriveId, Fragments, IoError, Layout, MapId, MigrationStage, VolumeId};

/// Of what is to be taken over, this part must fit besides: a window of it is in both places.
const BESIDES: u64 = 20;

pub async fn relayout(
    Extract(context): Extract<Shared>,
    name: Named,
    who: Option<Extension<Who>>,
    Input(Relayout { layout, pool, range, rate }): Input<Relayout>,
) -> Result<Response, Failure> {
    if let Some(pool) = &pool {
        host::may_create(&context.parts.metadata.state(), who.as_deref(), pool)?;
    }
    let begun = begin(&context, &name.0, (layout, pool), (false, range), rate).await?;
    Ok(conditions::begun(conditions::place_of(&begun.0), begun))
}

pub async fn flatten(
    Extract(context): Extract<Shared>,
    name: Named,
    Input(Flatten { rate }): Input<Flatten>,
) -> Result<Response, Failure> {
    let begun = begin(&context, &name.0, (None, None), (true, None), rate).await?;
    Ok(conditions::begun(conditions::place_of(&begun.0), begun))
}

async fn begin(
    context: &Context,
    name: &str,
    (layout, pool): (Option<String>, Option<String>),
    (alone, range): (bool, Option<Between>),
    rate: Option<u64>,
) -> Result<Tagged<VolumeInfo>, Failure> {
    let record = volumes::record_in(context, Scope::Cluster, name).await?;
    let state = context.parts.metadata.state();
    let range = range.map(|Between { from, to }| (from, to.unwrap_or(u64::MAX)));
    let source = range.and_then(|(from, _)| state.maps.get(&record.table().at(from)));
    // One that can't be read is refused by the command, in its words.
    let wanted: Option<Layout> = match (&layout, source) {
        (Some(text), _) => text.parse().ok(),
        (None, Some(source)) if record.ranges.is_some() => Some(source.layout.clone()),
        (None, _) => Some(record.layout.clone()),
    };
    // What comes back from there goes there after all.
    let comes_back = |migration: &&Arc<MigrationRecord>| {
        let other = state.maps.get(&migration.source).map(|map| state.pool_of(&record, map));
        let is_meant =
            wanted.as_ref() == Some(&migration.layout) && pool.as_deref().is_none_or(|pool| other == Some(pool));
        let goes = migration.is_of_a_part().then(|| migration.bytes(state.chunk_of(migration)));
        let is_same = match (goes, range) {
            (Some(goes), Some((from, to))) => {
                goes.start == from && if to >= record.size { goes.end >= record.size } else { goes.end == to }
            }
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        migration.cancelled && migration.leaves.is_some() == alone && is_meant && is_same
    };
    if let Some(migration) = state.migration_of(&record).filter(comes_back) {
        context.propose(Command::TurnMigration { id: migration.id, cancelled: false }).await?;
        if rate.is_some() {
            context.propose(Command::SetMigrationRate { id: migration.id, rate }).await?;
        }
        return volumes::one(context, &record.by_id()).await;
    }
    let from_pool = source.map_or(&*record.pool, |source| state.pool_of(&record, source));
    let to = pool.as_deref().unwrap_or(from_pool);
    let is_possible = state.migration_about(record.map).is_none() && state.pools.contains_key(to);
    if let Some(wanted) = wanted.filter(|_| is_possible) {
        check_room(context, &state, &record, (&wanted, to), (alone, range)).await?;
    }
    let seed = ServerWorld.next_u64();
    let volume = record.by_id();
    context.propose(Command::BeginMigration { volume, layout, alone, pool, range, seed, rate }).await?;
    context.volumes.settle().await;
    volumes::one(context, &record.by_id()).await
}

/// What the volumes that go have on drives, with as many copies as they get, must fit besides what it leaves free on its way.
async fn check_room(
    context: &Context,
    state: &State,
    record: &VolumeRecord,
    (wanted, pool): (&Layout, &str),
    (alone, range): (bool, Option<(u64, u64)>),
) -> Result<(), Failure> {
    let id = range.map_or(record.map, |(from, _)| record.table().at(from));
    let Some(map) = state.maps.get(&id) else { return Ok(()) };
    let allocated = volumes::everywhere(context, &record.by_id()).await?.allocated;
    // How much of it a range has nobody knows: at most all of itself.
    let allocated = match range {
        None => allocated,
        Some((from, to)) => {
            let (kept, of) = kept_of(&map.layout);
            allocated.min(scaled(to.min(record.size).saturating_sub(from), kept, of))
        }
    };
    let (kept, of) = kept_of(&map.layout);
    let held = scaled(allocated, of, kept);
    // Of what several volumes have together nobody knows how much one of them sees: at most all of itself.
    let goes = if alone { held.min(record.size) } else { held };
    let (kept, of) = kept_of(wanted);
    let wanted_bytes = scaled(goes, kept, of);
    let left_free = if alone || pool != state.pool_of(record, map) { 0 } else { allocated };
    if let Some(plexes) = wanted.plexes() {
        return check_drives(context, (record, map), plexes, (goes, if left_free > 0 { held } else { 0 })).await;
    }
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

/// How many bytes drives keep of how many bytes of data. Plexes needn't all have everything.
fn kept_of(layout: &Layout) -> (u64, u64) {
    match layout.plexes() {
        Some(plexes) => (plexes.subdisks().map(|disk| disk.length).sum(), plexes.size()),
        None => {
            let fragments = layout.fragments();
            (fragments.count() as u64, fragments.data.into())
        }
    }
}

fn scaled(bytes: u64, to: u64, of: u64) -> u64 {
    u64::try_from(u128::from(bytes) * u128::from(to) / u128::from(of.max(1))).unwrap_or(u64::MAX)
}

/// The bytes of data that a map has on a drive, of so many in all.
fn held_on(map: &MapRecord, drive: DriveId, data: u64) -> u64 {
    match map.layout.plexes() {
        Some(plexes) => on_drive(plexes, drive, data),
        None => {
            let copies: usize = map.columns.iter().map(|column| column.holders.len()).sum();
            let here = map.columns.iter().filter(|column| column.is_held_by(drive)).count();
            let (kept, of) = kept_of(&map.layout);
            scaled(scaled(data, kept, of), here as u64, copies as u64)
        }
    }
}

/// The same of plexes.
fn on_drive(plexes: &Plexes, drive: DriveId, data: u64) -> u64 {
    let length = plexes.subdisks().filter(|disk| disk.drive == drive).map(|disk| disk.length).sum();
    scaled(data, length, plexes.size())
}

/// Refuses a layout whose drives have no room each for their part of so many bytes of data, beside what the volume leaves free there: so
/// much of that data it has now.
async fn check_drives(
    context: &Context,
    (record, map): (&VolumeRecord, &MapRecord),
    plexes: &Plexes,
    (goes, leaves): (u64, u64),
) -> Result<(), Failure> {
    let drives = drives::all(context, Scope::Cluster).await;
    for id in plexes.drives() {
        let Some(drive) = drives.iter().find(|drive| drive.id == id && drive.open.is_some()) else { continue };
        let comes = on_drive(plexes, id, goes);
        let needed = comes.saturating_sub(held_on(map, id, leaves)).saturating_add(comes / BESIDES);
        let free = drive.capacity.saturating_sub(drive.used);
        if needed > free {
            let name = drive.called();
            let error = format!(
                "volume '{}' needs {} more on drive {name} than it has now to get there, and the drive has {} free: give that part another \
                 drive, or remove something",
                record.name,
                Size(needed),
                Size(free)
            );
            return Err(Failure::new(ErrorKind::OutOfSpace, error));
        }
    }
    Ok(())
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
        let Ok(VolumeInfo { allocated, .. }) = volumes::everywhere(context, &volume.by_id()).await else { continue };
        let fragments = (source.layout.fragments(), target.layout.fragments());
        let goes = migration.bytes(state.chunk_of(migration));
        let allocated = match migration.is_of_a_part() {
            true => allocated.min(scaled(
                goes.end.min(volume.size).saturating_sub(goes.start),
                fragments.0.count() as u64,
                1,
            )),
            false => allocated,
        };
        // What a volume that parts from others has by itself in the end isn't known before.
        let takes = match migration.leaves {
            None => still_takes(allocated, fragments, (migration.done, migration.chunks), leaves_room),
            Some(_) => 0,
        };
        promised = promised.saturating_add(takes);
    }
    promised
}

/// What a volume that has `allocated` bytes on drives will take besides, if so many of its chunks have gone from the one number of
/// copies to the other, and whether what it leaves is room for it too.
fn still_takes(
    allocated: u64,
    (from, to): (Fragments, Fragments),
    (done, chunks): (u64, u64),
    leaves_room: bool,
) -> u64 {
    // What is kept of as many bytes of either layout as both have whole fragments of.
    let kept = |of: Fragments, other: Fragments| u128::from(of.count()) * u128::from(other.data);
    let (from, to, done, chunks) = (kept(from, to), kept(to, from), u128::from(done), u128::from(chunks));
    let left = chunks - done;
    let kept_now = from * left + to * done;
    let besides = if leaves_room { to.saturating_sub(from) } else { to };
    let more = u128::from(allocated) * left * besides / kept_now.max(1);
    u64::try_from(more).unwrap_or(u64::MAX)
}

pub async fn pause(Extract(context): Extract<Shared>, name: Named) -> Result<Tagged<VolumeInfo>, Failure> {
    let record = volumes::record_in(&context, Scope::Cluster, &name.0).await?;
    match live_imports::set(&context, &record, LiveStage::Paused).await {
        Some(set) => set,
        None => change(&context, &name.0, |id| Command::PauseMigration { id, paused: true }).await,
    }
}

pub async fn resume(Extract(context): Extract<Shared>, name: Named) -> Result<Tagged<VolumeInfo>, Failure> {
    let record = volumes::record_in(&context, Scope::Cluster, &name.0).await?;
    match live_imports::set(&context, &record, LiveStage::Running).await {
        Some(set) => set,
        None => change(&context, &name.0, |id| Command::PauseMigration { id, paused: false }).await,
    }
}

pub async fn cancel(Extract(context): Extract<Shared>, name: Named) -> Result<Tagged<VolumeInfo>, Failure> {
    let record = volumes::record_in(&context, Scope::Cluster, &name.0).await?;
    match live_imports::set(&context, &record, LiveStage::Cancelled).await {
        Some(set) => set,
        None => change(&context, &name.0, |id| Command::TurnMigration { id, cancelled: true }).await,
    }
}

pub async fn set_rate(
    Extract(context): Extract<Shared>,
    name: Named,
    Input(SetRate { rate }): Input<SetRate>,
) -> Result<Tagged<VolumeInfo>, Failure> {
    change(&context, &name.0, |id| Command::SetMigrationRate { id, rate }).await
}

async fn change(
    context: &Context,
    name: &str,
    command: impl FnOnce(MapId) -> Command,
) -> Result<Tagged<VolumeInfo>, Failure> {
    let record = volumes::record_in(context, Scope::Cluster, name).await?;
    let state = context.parts.metadata.state();
    let name = &record.name;
    let Some(migration) = state.migration_of(&record) else {
        if state.access.live_imports.contains_key(&record.id) {
            return Err(Failure::new(ErrorKind::Conflict, health_text::no_rate_of_live(name)));
        }
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
    volumes::one(context, &record.by_id()).await
}

/// With what all servers say of what is in its way, as those do who lead its columns.
pub async fn list(context: Extract<Shared>, scope: Scope) -> Json<Vec<MigrationInfo>> {
    let state = context.parts.metadata.state();
    if !state.active_volumes().any(|record| state.migration_of(record).is_some()) {
        return Json(Vec::new());
    }
    let (_, volumes) = volumes::page(&context, scope, None, (route::VOLUMES, &VolumesQuery::default())).await;
    let info = |volume: VolumeInfo| {
        let record = state.migration_of(state.volumes.get(&VolumeId(volume.id))?)?;
        Some(MigrationInfo {
            volume: volume.name,
            from: layout_of(&state, record.source).unwrap_or_default(),
            begun_unix_ms: record.begun_unix_ms,
            migration: volume.migration?,
        })
    };
    Json(volumes.into_iter().filter_map(info).collect())
}

/// How the volume goes to another map, if it does.
pub fn of_volume(context: &Context, state: &State, record: &VolumeRecord) -> Option<Migration> {
    let migration = state.migration_of(record)?;
    let progress = context.migrations.progress(migration.id);
    let goes = migration.bytes(state.chunk_of(migration));
    let range = migration.is_of_a_part().then(|| Between { from: goes.start, to: migration.ends.then_some(goes.end) });
    let total_bytes = goes.end.min(record.size).saturating_sub(goes.start);
    let part = |chunks: u64| (u128::from(total_bytes) * u128::from(chunks) / u128::from(migration.chunks)) as u64;
    let done_bytes = part(migration.done);
    let rate = progress.rate;
    let mut said = Migration {
        // What it goes back to it has as its own still.
        to: match (migration.cancelled, migration.is_of_a_part()) {
            (true, true) => layout_of(state, migration.target).unwrap_or_default(),
            (true, false) => record.layout.to_string(),
            (false, _) => migration.layout.to_string(),
        },
        range,
        to_pool: changed_pool(state, record, migration),
        done_bytes,
        total_bytes,
        rate,
        seconds_left: (rate > 0).then(|| (total_bytes - done_bytes).div_ceil(rate)),
        state: match migration.stage {
            MigrationStage::Paused => MigrationState::Paused,
            MigrationStage::Running => MigrationState::Running,
        },
        reason: Vec::new(),
        lacks_room: false,
        full_drives: full_drives(context, state, migration.target),
        cancelled: migration.cancelled,
        flattens: migration.leaves.is_some(),
        most_rate: migration.rate,
    };
    // Who leads what can't go on says so; others can't know.
    add_obstacles(&mut said, (context, state), record);
    if said.reason.is_empty() {
        said.reason = progress.obstacles;
    }
    judge(&mut said);
    Some(said)
}

/// What is blocked has no rate, though it had one lately.
fn judge(migration: &mut Migration) {
    if migration.state == MigrationState::Running && (migration.lacks_room || !migration.reason.is_empty()) {
        migration.state = MigrationState::Blocked;
    }
    if migration.state != MigrationState::Running {
        (migration.rate, migration.seconds_left) = (0, None);
    }
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

/// Adds what keeps columns that this server leads, or that nobody does, from being taken over.
fn add_obstacles(migration: &mut Migration, (context, state): (&Context, &State), record: &VolumeRecord) {
    let health = context.volumes.served(record.id).map(|volume| volume.health());
    for trouble in health.as_ref().map(VolumeHealth::troubles).unwrap_or_default() {
        match trouble {
            Trouble::Stays { error: IoError::OutOfSpace } => migration.lacks_room = true,
            Trouble::Stays { error: IoError::Damaged { .. } } => {
                let why = health_text::reason(trouble, state, &record.name);
                let way_out = match state.migration_of(record).filter(|agreed| state.has_outgrown(agreed)) {
                    None => {
                        format!("{}, write these bytes, and have it go once more", way_back(record, migration, state))
                    }
                    Some(agreed) => format!(
                        "put a drive back that has a good copy; it was grown on its way, so it can be turned around only once its \
                         snapshots that are longer than {0} bytes are removed (`tepal snapshot rm`) and it's cut off there, which loses \
                         what is past that (`tepal volume resize {name} {0} --shrink`)",
                        (agreed.first + agreed.chunks) * state.chunk_of(agreed),
                        name = record.name
                    ),
                };
                migration.reason.push(format!("{why}: {way_out}"));
            }
            Trouble::Lost { .. }
            | Trouble::AllWaits { .. }
            | Trouble::WritesWait { .. }
            | Trouble::Obstacle(_)
            | Trouble::Stays { .. }
            | Trouble::NotHandedOver { .. } => {
                migration.reason.push(health_text::reason(trouble, state, &record.name));
            }
            Trouble::Away { .. }
            | Trouble::Failed { .. }
            | Trouble::Behind { .. }
            | Trouble::Comparing { .. }
            | Trouble::LedAnew { .. } => {}
        }
    }
}

/// The command that turns it around.
fn way_back(record: &VolumeRecord, migration: &Migration, state: &State) -> String {
    let name = &record.name;
    match state.migration_of(record) {
        _ if !migration.cancelled => format!("`tepal volume cancel {name}`"),
        _ if migration.flattens => format!("`tepal volume flatten {name}`"),
        Some(agreed) => {
            let range = migration.range.map_or(String::new(), |Between { from, to }| {
                format!(" --range {from}..{}", to.map_or(String::new(), |to| to.to_string()))
            });
            format!("`tepal volume relayout {name}{range} --layout '{}'`", agreed.layout)
        }
        None => format!("`tepal volume relayout {name}`"),
    }
}

/// The drives of this server that have no room for what goes to the map.
fn full_drives(context: &Context, state: &State, target: MapId) -> Vec<DriveId> {
    let Some(map) = state.maps.get(&target) else { return Vec::new() };
    let open = context.drives.open();
    // No extent is longer than that.
    let is_full = |id: &DriveId| {
        let usage = open.get(id).map(|open| open.drive.usage());
        usage.is_some_and(|usage| usage.capacity.saturating_sub(usage.used) < CHUNK)
    };
    map.drives().into_iter().filter(is_full).collect()
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
        all.lacks_room |= other.lacks_room;
        all.full_drives.extend(other.full_drives);
    }
    judge(&mut all);
    Some(all)
}

/// When all servers have said where there's no room, people are told once, with what can be done.
pub fn say_what_lacks_room(volume: &mut VolumeInfo, state: &State) {
    let (Some(migration), Some(record)) = (&mut volume.migration, state.volumes.get(&VolumeId(volume.id))) else {
        return;
    };
    if !migration.lacks_room {
        return;
    }
    migration.full_drives.sort_unstable();
    let turn = match migration.cancelled {
        true => format!("{} has it go there after all", way_back(record, migration, state)),
        false => format!("{} has it come back", way_back(record, migration, state)),
    };
    let where_to = match &migration.full_drives[..] {
        [] => "there was no room for a part of it where it goes when that was tried last".to_owned(),
        [drive] => format!("there's no room for a part of it where it goes, drive {drive} is full"),
        drives => {
            format!("there's no room for a part of it where it goes, drives {} are full", first(drives, NAMED))
        }
    };
    let text =
        format!("{where_to}: it goes on by itself when you add drives, or remove snapshots or volumes; or {turn}");
    migration.reason.insert(0, text);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn running() -> Migration {
        Migration {
            to: "mirror:2".to_owned(),
            to_pool: None,
            range: None,
            done_bytes: 1 << 30,
            total_bytes: 2 << 30,
            rate: 1 << 20,
            seconds_left: Some(1024),
            state: MigrationState::Running,
            reason: vec![],
            lacks_room: false,
            full_drives: vec![],
            cancelled: false,
            flattens: false,
            most_rate: None,
        }
    }

    /// Story: what was blocked had the rate that it had before, and a time left that grew.
    #[test]
    fn what_is_blocked_has_no_rate_and_no_time_left_whichever_server_knows_of_it() {
        let without_room = Migration { lacks_room: true, full_drives: vec![DriveId(1)], ..running() };
        let away = Migration { reason: vec!["a drive is away".to_owned()], ..running() };
        assert_eq!(put_together(Some(running()), [running()]), Some(running()));
        for other in [without_room, away] {
            let all = put_together(Some(running()), [running(), other.clone()]).expect("it's on its way");
            assert_eq!((all.state, all.rate, all.seconds_left), (MigrationState::Blocked, 0, None));
            assert_eq!((all.reason, all.full_drives), (other.reason, other.full_drives));
        }
    }

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
            let copies = (Fragments::copies(copies.0), Fragments::copies(copies.1));
            let takes = still_takes(allocated * mib, copies, gone, true);
            assert_eq!(takes, more * mib, "{allocated} MiB, {copies:?}, {gone:?}");
        }
        assert_eq!(still_takes(60 * mib, (Fragments::copies(2), Fragments::copies(2)), (1, 3), false), 40 * mib);
    }
}
