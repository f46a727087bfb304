//! Volumes as such; their bytes are in [`super::data`].

use super::conditions::Tagged;
use super::extract::{Input, Named, Options};
use super::failure::Failure;
use super::missing_copies::{MissingCopies, losses_left};
use super::relay::Scope;
use super::types::{
    BY_ID, Between, ErrorKind, HoldUse, Incomplete, RecoveryInfo, Removal, RemoveVolumeQuery, RenameVolume, RewrapKey,
    TOTAL, VolumeInfo, VolumeRange, VolumeState, VolumesQuery, path, route,
};
use super::users::{self, Users};
use super::{Context, Shared, Who, health_text, host, live_imports, migrations, replication, snapshots};
use crate::drives::{Filled, Fullness};
use crate::news::in_a_moment;
use crate::volumes::NotServed;
use crate::world::ServerWorld;
use axum::Extension;
use axum::Json;
use axum::extract::State as Extract;
use axum::http::Uri;
use axum::response::IntoResponse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tepal_engine::{Trouble, Volume, VolumeHealth};
use tepal_metadata::{self as metadata, Command, Limited, Refusal, State, VolumeRecord};
use tepal_model::{DriveId, Layout, Limits, MapId, VolumeId};

pub async fn list(
    Extract(context): Extract<Shared>,
    scope: Scope,
    who: Option<Extension<Who>>,
    uri: Uri,
    Options(query): Options<VolumesQuery>,
) -> impl IntoResponse {
    let (total, listed) = page(&context, scope, who.as_deref(), (&uri.to_string(), &query)).await;
    ([(TOTAL, total.to_string())], Json(listed))
}

/// How many there are in all pages, and those of one. `asked`: the path and query by which it's asked for.
pub async fn page(
    context: &Context,
    scope: Scope,
    who: Option<&Who>,
    (asked, query): (&str, &VolumesQuery),
) -> (usize, Vec<VolumeInfo>) {
    let others = match scope {
        Scope::Cluster => context.ask_others::<Vec<VolumeInfo>>(asked).await,
        Scope::Own => Vec::new(),
    };
    let mut elsewhere: BTreeMap<u64, Vec<VolumeInfo>> = BTreeMap::new();
    for said in others.into_iter().filter_map(|(_, said)| said).flatten() {
        elsewhere.entry(said.id).or_default().push(said);
    }
    let state = context.parts.metadata.state();
    let is_wanted = |record: &&Arc<VolumeRecord>| {
        let is_named = query.contains.as_ref().is_none_or(|part| record.name.contains(part));
        is_named && host::may_know(&state, who, record.id)
    };
    let mut wanted: Vec<&Arc<VolumeRecord>> = state.active_volumes().filter(is_wanted).collect();
    wanted.sort_unstable_by(|one, other| one.name.cmp(&other.name));
    let total = wanted.len();
    let count = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    let page = wanted.into_iter().skip(count(query.offset)).take(query.limit.map_or(usize::MAX, count));
    let listed: Vec<VolumeInfo> = page
        .map(|record| {
            let own = info(context, &state, record);
            match scope {
                Scope::Own => in_short(own),
                Scope::Cluster => put_together(own, elsewhere.remove(&record.id.0).unwrap_or_default(), &state),
            }
        })
        .collect();
    (total, listed)
}

pub async fn show(Extract(context): Extract<Shared>, scope: Scope, name: Named) -> Result<Tagged<VolumeInfo>, Failure> {
    match scope {
        Scope::Own => known(&context, &name.0).map(|Tagged(own)| Tagged(in_short(own))),
        Scope::Cluster => everywhere(&context, &name.0).await.map(Tagged),
    }
}

pub async fn everywhere(context: &Context, name: &str) -> Result<VolumeInfo, Failure> {
    let Tagged(own) = one(context, name).await?;
    let id = own.id;
    let others = context.ask_others::<VolumeInfo>(&path(route::VOLUME, &own.by_id())).await;
    let others = others.into_iter().filter_map(|(_, said)| said).filter(|said| said.id == id);
    Ok(put_together(own, others, &context.parts.metadata.state()))
}

/// Without what the server that asks knows as well: with many snapshots that would be more than can be passed on.
fn in_short(own: VolumeInfo) -> VolumeInfo {
    let snapshots = own.snapshots.into_iter().filter(snapshots::is_worth_saying).collect();
    VolumeInfo { snapshots, ..own }
}

/// What the servers say of one volume, each of the columns that it leads and of its own drives and clients; of gateways, all say
/// the same.
fn put_together(own: VolumeInfo, others: impl IntoIterator<Item = VolumeInfo>, state: &State) -> VolumeInfo {
    let mut all = own;
    for other in others {
        all.state = worse(all.state, other.state);
        for reason in other.reason {
            if !all.reason.contains(&reason) {
                all.reason.push(reason);
            }
        }
        all.keyless_servers.extend(other.keyless_servers);
        all.clients += other.clients;
        all.imports += other.imports;
        all.exports += other.exports;
        all.clients_of_gateways = all.clients_of_gateways.max(other.clients_of_gateways);
        // Servers may know the same ones or others: at least so many.
        all.damaged_blocks = all.damaged_blocks.max(other.damaged_blocks);
        all.allocated += other.allocated;
        all.reclaiming += other.reclaiming;
        all.reclaimed_view = all.reclaimed_view.min(other.reclaimed_view);
        // Each counts those that it has.
        all.uncounted_drives.retain(|drive| other.uncounted_drives.contains(drive));
        all.recovery.busy_regions += other.recovery.busy_regions;
        all.recovery.stale_regions += other.recovery.stale_regions;
        all.recovery.copied_bytes += other.recovery.copied_bytes;
        all.recovery.bytes_per_second += other.recovery.bytes_per_second;
        all.migration = migrations::put_together(all.migration, other.migration);
        live_imports::add(all.live.as_mut(), other.live);
        for said in &other.snapshots {
            if let Some(one) = all.snapshots.iter_mut().find(|one| one.epoch == said.epoch) {
                snapshots::add_said(one, said);
            }
        }
    }
    all.clients += all.clients_of_gateways;
    all.snapshots.iter_mut().for_each(snapshots::sum_clients);
    migrations::say_what_lacks_room(&mut all, state);
    all
}

fn worse(one: VolumeState, other: VolumeState) -> VolumeState {
    let rank = |state| match state {
        VolumeState::Healthy => 0,
        VolumeState::Recovering => 1,
        VolumeState::Degraded => 2,
        VolumeState::Unavailable => 3,
    };
    if rank(other) > rank(one) { other } else { one }
}

/// Another server may have had it wrapped anew meanwhile: what counts is what was last.
pub async fn rewrap_key(
    Extract(context): Extract<Shared>,
    name: Named,
    Input(RewrapKey { key }): Input<RewrapKey>,
) -> Result<Tagged<VolumeInfo>, Failure> {
    let record = record(&context, &name.0).await?;
    let state = context.parts.metadata.state();
    let known = state.access.volume_keys.get(&record.id);
    let known = known.ok_or_else(|| Failure::from(Refusal::NotEncrypted(record.name.clone())))?;
    let wrapped = context.parts.keyring.rewrap(&known.key, &known.wrapped, &key).await?;
    let (volume, before) = (record.by_id(), known.wrapped.clone());
    context.propose(Command::RewrapKey { volume, key, wrapped, before }).await?;
    one(&context, &record.by_id()).await
}

pub async fn limit(
    Extract(context): Extract<Shared>,
    name: Named,
    Input(limits): Input<Limits>,
) -> Result<Tagged<VolumeInfo>, Failure> {
    let volume = record(&context, &name.0).await?.by_id();
    context.propose(Command::LimitVolume { volume: volume.clone(), limits }).await?;
    one(&context, &volume).await
}

pub async fn rename(
    Extract(context): Extract<Shared>,
    name: Named,
    Input(RenameVolume { new_name }): Input<RenameVolume>,
) -> Result<Tagged<VolumeInfo>, Failure> {
    let id = record(&context, &name.0).await?.by_id();
    context.propose(Command::RenameVolume { name: id.clone(), new_name }).await?;
    context.volumes.settle().await;
    one(&context, &id).await
}

/// A volume in use is removed only by force: its users get errors from then on. So do those of its snapshots.
pub async fn remove(
    Extract(context): Extract<Shared>,
    name: Named,
    Options(RemoveVolumeQuery { force, snapshots }): Options<RemoveVolumeQuery>,
) -> Result<Json<Removal>, Failure> {
    let record = record(&context, &name.0).await?;
    if !force {
        let users = || async {
            let volume = everywhere(&context, &record.by_id()).await?;
            Ok(volume.snapshots.iter().map(Users::of_snapshot).fold(Users::of_volume(&volume), Users::and))
        };
        users::that_stay(&context, users).await?.refuse(&format!("volume '{}'", record.name), users::GET_ERRORS)?;
    }
    let mut removal = removal(&context, &record);
    let others = context.ask_others::<VolumeInfo>(&path(route::VOLUME, &record.by_id())).await;
    if !is_shared(&context.parts.metadata.state(), &record) {
        let said = others.iter().filter_map(|(_, said)| said.as_ref()).filter(|said| said.id == removal.id);
        removal.allocated += said.map(|said| said.allocated).sum::<u64>();
    }
    context.propose(Command::RemoveVolume { name: record.by_id(), snapshots }).await?;
    context.volumes.settle().await;
    Ok(Json(removal))
}

pub async fn removals(
    Extract(context): Extract<Shared>,
    scope: Scope,
    who: Option<Extension<Who>>,
) -> Json<Vec<Removal>> {
    let state = context.parts.metadata.state();
    let deleting = state.volumes.values().filter(|record| record.state == metadata::VolumeState::Deleting);
    let mut removals: Vec<Removal> = deleting.map(|record| removal(&context, record)).collect();
    if scope == Scope::Cluster && !removals.is_empty() {
        let others = context.ask_others::<Vec<Removal>>(route::REMOVALS).await;
        for said in others.into_iter().filter_map(|(_, said)| said).flatten() {
            let known = removals.iter_mut().find(|removal| removal.id == said.id);
            known.into_iter().for_each(|removal| removal.allocated += said.allocated);
        }
    }
    // Whoever has removed a volume waits for its space. What others were called is nobody's business.
    let is_known = |removal: &Removal| host::may_know(&state, who.as_deref(), VolumeId(removal.id));
    removals.iter_mut().filter(|removal| !is_known(removal)).for_each(|removal| removal.name.clear());
    Json(removals)
}

/// As far as this server has it. What a volume shares with others isn't counted: how much of it is its own nobody knows before it's
/// freed.
fn removal(context: &Context, record: &VolumeRecord) -> Removal {
    let is_shared = is_shared(&context.parts.metadata.state(), record);
    let served = context.volumes.served(record.id).filter(|_| !is_shared);
    let allocated = served.map_or(0, |volume| volume.allocated());
    Removal { id: record.id.0, name: record.name.clone(), allocated }
}

fn is_shared(state: &State, record: &VolumeRecord) -> bool {
    state.volumes_of(record.map).any(|other| other.id != record.id)
}

/// Also if another server has just said that it made the volume, and this one hasn't heard of it yet.
pub async fn record(context: &Context, name: &str) -> Result<Arc<VolumeRecord>, Failure> {
    let metadata = &context.parts.metadata;
    if metadata.state().volume_called(name).is_none() {
        let others = context.ask_others::<VolumeInfo>(&path(route::VOLUME, name)).await;
        if others.iter().any(|(_, said)| said.is_some()) {
            in_a_moment(&mut metadata.watch(), |state| state.volume_called(name).is_some()).await;
        }
    }
    record_here(context, name)
}

/// As far as this server alone knows, or with the others' help.
pub async fn record_in(context: &Context, scope: Scope, name: &str) -> Result<Arc<VolumeRecord>, Failure> {
    match scope {
        Scope::Own => record_here(context, name),
        Scope::Cluster => record(context, name).await,
    }
}

fn record_here(context: &Context, name: &str) -> Result<Arc<VolumeRecord>, Failure> {
    let state = context.parts.metadata.state();
    let found = state.volume_called(name).cloned();
    found.ok_or_else(|| Refusal::NoVolume(name.chars().take(140).collect()).into())
}

/// The volume of this name or id, if it's served now, or will be in a moment.
pub async fn served(context: &Context, name: &str) -> Result<Volume<ServerWorld>, Failure> {
    open(context, &*record(context, name).await?).await
}

pub async fn open(context: &Context, record: &VolumeRecord) -> Result<Volume<ServerWorld>, Failure> {
    context.volumes.opened(record).await.map_err(|reason| not_served(record, &reason))
}

/// As [`open`], to read and write its bytes.
pub async fn unlock(context: &Context, record: &VolumeRecord) -> Result<Volume<ServerWorld>, Failure> {
    context.volumes.unlocked(record).await.map_err(|reason| not_served(record, &reason))
}

/// As [`served`], to read and write its bytes.
pub async fn unlocked(context: &Context, name: &str) -> Result<Volume<ServerWorld>, Failure> {
    unlock(context, &*record(context, name).await?).await
}

fn not_served(record: &VolumeRecord, reason: &NotServed) -> Failure {
    // What waiting may mend, but for a key.
    let kind = if matches!(reason, NotServed::Locked { .. }) { ErrorKind::Conflict } else { ErrorKind::Unavailable };
    Failure::new(kind, format!("volume '{}' can't be served now: {reason}", record.name))
}

pub async fn one(context: &Context, name: &str) -> Result<Tagged<VolumeInfo>, Failure> {
    let record = record(context, name).await?;
    Ok(Tagged(info(context, &context.parts.metadata.state(), &record)))
}

fn known(context: &Context, name: &str) -> Result<Tagged<VolumeInfo>, Failure> {
    let record = record_here(context, name)?;
    Ok(Tagged(info(context, &context.parts.metadata.state(), &record)))
}

pub fn info(context: &Context, state: &State, record: &VolumeRecord) -> VolumeInfo {
    let info = info_besides_space(context, state, record);
    let full = full_drives(context, &info.drives);
    match &full[..] {
        [] => info,
        full => {
            let text = Fullness::Full.text_of(full, "");
            let state = if info.state == VolumeState::Healthy { VolumeState::Degraded } else { info.state };
            VolumeInfo { state, reason: [info.reason, vec![text]].concat(), ..info }
        }
    }
}

/// One that is on its way is as it was before.
fn ranges_of(state: &State, record: &VolumeRecord) -> Vec<VolumeRange> {
    let table = record.table();
    let range = |(bytes, id): (std::ops::Range<u64>, MapId)| {
        let map = state.maps.get(&id)?;
        let is_all = table.count() == 1;
        let layout = if is_all { record.layout.clone() } else { Layout { domain: None, ..map.layout.clone() } };
        let to = (bytes.end != u64::MAX).then_some(bytes.end);
        let pool = if is_all { &*record.pool } else { state.pool_of(record, map) };
        Some(VolumeRange {
            between: Between { from: bytes.start, to },
            layout: layout.to_string(),
            pool: pool.to_owned(),
        })
    };
    table.iter().filter_map(range).collect()
}

/// Also those that it goes to.
pub fn drives_of(state: &State, record: &VolumeRecord) -> Vec<DriveId> {
    let mut seen = BTreeSet::new();
    state.maps_of(record).flat_map(|map| map.drives()).filter(|drive| seen.insert(*drive)).collect()
}

/// Those of this server that are full.
fn full_drives(context: &Context, drives: &[DriveId]) -> Vec<Filled> {
    let open = context.drives.open();
    let filled = |&id: &DriveId| {
        let usage = open.get(&id)?.drive.usage();
        Some(Filled { id, capacity: usage.capacity, used: usage.used })
    };
    let is_full = |drive: &Filled| Fullness::of(drive.capacity, drive.used) == Fullness::Full;
    drives.iter().filter_map(filled).filter(is_full).collect()
}

/// How it is, and why, without what full drives are to it.
pub fn health_besides_space(context: &Context, state: &State, record: &VolumeRecord) -> (VolumeState, Vec<String>) {
    let volume = context.volumes.served(record.id);
    let said = |troubles: Vec<Trouble>| health_text::reasons(&troubles, state, &record.name);
    let (mut health, mut reason) = match volume.as_ref().map(Volume::health) {
        Some(VolumeHealth::Healthy) => (VolumeState::Healthy, Vec::new()),
        Some(VolumeHealth::Degraded(troubles)) => (VolumeState::Degraded, said(troubles)),
        Some(VolumeHealth::Recovering(troubles)) => (VolumeState::Recovering, said(troubles)),
        Some(VolumeHealth::Unavailable(troubles)) => (VolumeState::Unavailable, said(troubles)),
        None => (VolumeState::Unavailable, vec![context.volumes.why_closed(record.id).to_string()]),
    };
    if let Some(missing) = MissingCopies::of(state, record) {
        health = worse(health, VolumeState::Degraded);
        missing.add_to(&mut reason, state);
    }
    if let Some(damage) = health_text::damage(&context.observations.of(record.id).damaged(None)) {
        health = worse(health, VolumeState::Degraded);
        reason.push(damage);
    }
    (health, reason)
}

/// Without what full drives are to it.
pub fn info_besides_space(context: &Context, state: &State, record: &VolumeRecord) -> VolumeInfo {
    let (health, mut reason) = health_besides_space(context, state, record);
    let volume = context.volumes.served(record.id);
    let observed = context.observations.of(record.id);
    let damaged = observed.damaged(None);
    let recovery = volume.as_ref().map(Volume::recovery).unwrap_or_default();
    match (&record.replica, record.import) {
        (Some(replica), Some(_)) => reason.push(health_text::receives(&replica.called)),
        (None, Some(_)) => reason.push(health_text::incomplete(&record.name)),
        (_, None) => {}
    }
    if let Some(trouble) = context.parts.imports.known(record.id).and_then(|known| known.trouble()) {
        reason.push(format!("its import waits: {trouble}"));
    }
    let key = state.access.volume_keys.get(&record.id);
    let lacks_key = key.is_some_and(|key| context.parts.keyring.lacks(&key.key));
    let (drives, open) = (drives_of(state, record), context.drives.open());
    let is_counted = |drive: &DriveId| volume.is_some() && open.contains_key(drive);
    VolumeInfo {
        name: record.name.clone(),
        id: record.id.0,
        size: record.size,
        layout: record.layout.to_string(),
        domain: state.domain_of(record).map(|domain| domain.to_string()),
        losses_left: losses_left(state, record) as u64,
        reserved_by: state.access.reserved(record.id).0.map(str::to_owned),
        key: key.map(|key| key.key.clone()),
        limits: state.access.limits_of(&Limited::Volume(record.id)),
        keyless_servers: lacks_key.then(|| context.server).into_iter().collect(),
        state: health,
        reason,
        clients: observed.clients(),
        clients_of_gateways: context.gateways.clients(record.id),
        imports: context.holds.count(record.id, None, HoldUse::Import),
        exports: context.holds.count(record.id, None, HoldUse::Export),
        incomplete: record.import.map(|import| Incomplete { import: import.id, done: import.done }),
        live: live_imports::of_volume(context, state, record),
        replica: record.replica.as_ref().map(replication::of_volume),
        damaged_blocks: damaged.count() as u64,
        allocated: volume.as_ref().map_or(0, Volume::allocated),
        reclaiming: volume.as_ref().map_or(0, Volume::surplus),
        reclaimed_view: volume.as_ref().map_or(state.view(), Volume::reclaimed),
        uncounted_drives: drives.iter().copied().filter(|drive| !is_counted(drive)).collect(),
        origin: snapshots::origin_of(state, record),
        made_of: record.origin.map(|origin| format!("{BY_ID}{}@{}", origin.volume.0, origin.epoch)),
        epoch: record.epoch.into(),
        revision: record.revision,
        pool: record.pool.clone(),
        ranges: ranges_of(state, record),
        drives,
        created_unix_ms: record.created_unix_ms,
        snapshots: snapshots::of_volume(context, state, record),
        migration: migrations::of_volume(context, state, record),
        recovery: RecoveryInfo {
            busy_regions: recovery.unresolved_regions,
            stale_regions: recovery.stale_regions,
            copied_bytes: recovery.copied,
            bytes_per_second: recovery.rate,
        },
    }
}
