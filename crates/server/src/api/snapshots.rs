//! Snapshots of volumes: made, rolled back to, cloned, renamed, removed. How they differ is in [`super::diff`].
//!
//! Invariant: whatever was acknowledged before a snapshot or a rollback was asked for, is in what it's made of; and nothing that is
//! asked for after it was answered. So it's answered when every server acts by it.

use super::conditions::{Tagged, tagged};
use super::data::on_data_thread;
use super::extract::{Input, Named, Options};
use super::failure::Failure;
use super::relay::Scope;
use super::replication::{self, replicated};
use super::types::{
    BY_ID, CloneSnapshot, CreateSnapshot, ErrorKind, HoldUse, RenameSnapshot, ReplicaQuery, ShowSnapshotQuery,
    SnapshotInfo, SnapshotName, SnapshotQuery, SnapshotRemoval, VolumeInfo, path, route,
};
use super::users::{self, Users};
use super::{Context, Shared, Who, health_text, host, volumes};
use crate::news::in_a_moment;
use crate::world::ServerWorld;
use axum::extract::State as Extract;
use axum::http::Uri;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;
use tepal_engine::{Snapshot, Volume};
use tepal_metadata::{Command, Refusal, Reply, SnapshotRecord, State, Versioned, VolumeRecord};
use tepal_model::layout::Durability;
use tepal_model::{DriveId, Epoch, ServerId, VolumeId};

/// Where nobody asks what a snapshot keeps.
pub const IN_SHORT: ShowSnapshotQuery = ShowSnapshotQuery { count: false };

pub async fn list(
    Extract(context): Extract<Shared>,
    scope: Scope,
    who: Option<Extension<Who>>,
    uri: Uri,
    Options(SnapshotQuery { volume }): Options<SnapshotQuery>,
) -> Result<Json<Vec<SnapshotInfo>>, Failure> {
    let only = match &volume {
        Some(name) => Some(volumes::record_in(&context, scope, name).await?.id),
        None => None,
    };
    let state = context.parts.metadata.state();
    let may_know = |id: VolumeId| host::may_know(&state, who.as_deref(), id);
    if let (Some(id), Some(name)) = (only, &volume)
        && !may_know(id)
    {
        return Err(Refusal::NoVolume(name.chars().take(140).collect()).into());
    }
    let mut listed: Vec<&Arc<VolumeRecord>> =
        state.active_volumes().filter(|record| only.is_none_or(|id| record.id == id) && may_know(record.id)).collect();
    listed.sort_unstable_by_key(|record| &record.name);
    let mut all: Vec<SnapshotInfo> = Vec::new();
    for record in listed {
        all.extend(counted(&context, record.id, of_volume(&context, &state, record)).await?);
    }
    match scope {
        // The one that asks knows of the others.
        Scope::Own => all.retain(|said| is_worth_saying(said) || said.unique != Some(0)),
        Scope::Cluster => {
            let others = context.ask_others::<Vec<SnapshotInfo>>(&uri.to_string()).await;
            put_together(&context, &mut all, others);
        }
    }
    Ok(Json(all))
}

pub async fn show(
    Extract(context): Extract<Shared>,
    scope: Scope,
    name: Named,
    Options(query): Options<ShowSnapshotQuery>,
) -> Result<Response, Failure> {
    let name = name.snapshot()?;
    if scope == Scope::Own {
        return own(&context, &name, query).await.map(|told| Json(told).into_response());
    }
    record(&context, &name).await?;
    let state = context.parts.metadata.state(); // no newer than what is told
    let told = everywhere(&context, &name, query).await?;
    Ok(shown(&state, told))
}

/// With its tag.
fn shown(state: &State, told: SnapshotInfo) -> Response {
    let thing = Versioned::Snapshot(VolumeId(told.volume_id), told.epoch);
    tagged(state, &thing, Json(told))
}

pub async fn everywhere(
    context: &Context,
    name: &SnapshotName,
    query: ShowSnapshotQuery,
) -> Result<SnapshotInfo, Failure> {
    record(context, name).await?;
    let mut all = [own(context, name, query).await?];
    let asked = format!("{}?count={}", path(route::SNAPSHOT, &all[0].by_id()), query.count);
    let others = context.ask_others::<SnapshotInfo>(&asked).await;
    let others = others.into_iter().map(|(server, said)| (server, said.map(|said| vec![said])));
    put_together(context, &mut all, others.collect());
    let [info] = all;
    Ok(info)
}

async fn own(
    context: &Context,
    name: &SnapshotName,
    ShowSnapshotQuery { count }: ShowSnapshotQuery,
) -> Result<SnapshotInfo, Failure> {
    let state = context.parts.metadata.state();
    let (volume, snapshot) = find(&state, name)?;
    let own = vec![info(context, volume, snapshot)];
    let counted = if count { counted(context, volume.id, own).await? } else { own };
    counted.into_iter().next().ok_or_else(no_sense)
}

/// With what each of these snapshots of a volume alone keeps on the drives of this server, if that serves the volume.
async fn counted(
    context: &Context,
    volume: VolumeId,
    snapshots: Vec<SnapshotInfo>,
) -> Result<Vec<SnapshotInfo>, Failure> {
    let Some(served) = context.volumes.served(volume).filter(|_| !snapshots.is_empty()) else { return Ok(snapshots) };
    // It may take longer than other requests should wait.
    let kept = tokio::task::spawn_blocking(move || served.kept_by_snapshots()).await;
    let kept = kept.map_err(|error| Failure::new(ErrorKind::Internal, error))?;
    let counted =
        |info: SnapshotInfo| SnapshotInfo { unique: Some(kept.get(&info.epoch).copied().unwrap_or(0)), ..info };
    Ok(snapshots.into_iter().map(counted).collect())
}

/// What a server says of snapshots, by the ids of their volumes and their epochs.
type SaidOf = BTreeMap<(u64, Epoch), SnapshotInfo>;

/// What other servers say, if they do, is added to what this one knows: of snapshots that are in use there, or of which they keep
/// something, or of which they don't know what they keep.
fn put_together(context: &Context, all: &mut [SnapshotInfo], others: Vec<(ServerId, Option<Vec<SnapshotInfo>>)>) {
    let state = context.parts.metadata.state();
    let key = |info: &SnapshotInfo| (info.volume_id, info.epoch);
    let by_key = |said: Vec<SnapshotInfo>| said.into_iter().map(|said| (key(&said), said)).collect();
    let others: Vec<(ServerId, Option<SaidOf>)> =
        others.into_iter().map(|(server, said)| (server, said.map(by_key))).collect();
    for one in all {
        let mut silent: BTreeSet<ServerId> = one.unique.is_none().then_some(context.server).into_iter().collect();
        for (server, said) in &others {
            match said.as_ref().map(|said| said.get(&key(one))) {
                Some(None) => {}
                Some(Some(said)) => {
                    add_said(one, said);
                    match said.unique {
                        Some(unique) => *one.unique.get_or_insert(0) += unique,
                        None => drop(silent.insert(*server)),
                    }
                }
                None => drop(silent.insert(*server)),
            }
        }
        sum_clients(one);
        if one.unique.is_some() {
            one.uncounted_drives = uncounted(&state, VolumeId(one.volume_id), &silent);
        }
    }
}

/// Drives of a volume that are away, or on servers that say nothing of them.
fn uncounted(state: &State, volume: VolumeId, silent: &BTreeSet<ServerId>) -> Vec<DriveId> {
    let drives = state.volumes.get(&volume).map(|record| volumes::drives_of(state, record)).unwrap_or_default();
    let is_counted = |drive: &DriveId| {
        let record = state.drives.get(drive);
        record.is_some_and(|record| record.state.takes_writes() && !silent.contains(&record.server))
    };
    drives.into_iter().filter(|drive| !is_counted(drive)).collect()
}

/// What this server knows of a volume's snapshots, the oldest first.
pub fn of_volume(context: &Context, state: &State, volume: &VolumeRecord) -> Vec<SnapshotInfo> {
    state.snapshots_of(volume.id).map(|snapshot| info(context, volume, snapshot)).collect()
}

/// Those of which something can't be read, as far as is known here.
pub fn damaged(context: &Context, state: &State, volume: &VolumeRecord) -> Vec<SnapshotInfo> {
    let epochs = context.observations.of(volume.id).damaged_epochs();
    let damaged = state.snapshots_of(volume.id).filter(|snapshot| epochs.contains(&snapshot.epoch));
    damaged.map(|snapshot| info(context, volume, snapshot)).collect()
}

fn info(context: &Context, volume: &VolumeRecord, snapshot: &SnapshotRecord) -> SnapshotInfo {
    let damaged = context.observations.of(volume.id).damaged(Some(snapshot.epoch));
    SnapshotInfo {
        volume: volume.name.clone(),
        volume_id: volume.id.0,
        name: snapshot.name.clone(),
        epoch: snapshot.epoch,
        size: snapshot.size,
        created_unix_ms: snapshot.created_unix_ms,
        clients: context.observations.of(volume.id).clients_of_snapshot(snapshot.epoch),
        clients_of_gateways: context.gateways.clients_of_snapshot(volume.id, snapshot.epoch),
        exports: context.holds.count(volume.id, Some(snapshot.epoch), HoldUse::Export),
        unique: None,
        uncounted_drives: Vec::new(),
        damaged_blocks: damaged.count() as u64,
        reason: health_text::damage_of_snapshot(&damaged).into_iter().collect(),
        copy_of: snapshot.copy_of.map(replication::copy_of),
    }
}

/// Whether a server knows something of a snapshot that others may not.
pub fn is_worth_saying(said: &SnapshotInfo) -> bool {
    said.clients + said.clients_of_gateways + said.exports + said.damaged_blocks > 0
}

/// Servers count the clients of their own; of those of gateways, all say the same. Of damage they may know the same or other parts.
pub fn add_said(all: &mut SnapshotInfo, said: &SnapshotInfo) {
    all.clients += said.clients;
    all.exports += said.exports;
    all.clients_of_gateways = all.clients_of_gateways.max(said.clients_of_gateways);
    if said.damaged_blocks > all.damaged_blocks {
        all.damaged_blocks = said.damaged_blocks;
        all.reason.clone_from(&said.reason);
    }
}

/// Once all servers were heard.
pub fn sum_clients(all: &mut SnapshotInfo) {
    all.clients += all.clients_of_gateways;
}

type Found<'a> = (&'a Arc<VolumeRecord>, &'a Arc<SnapshotRecord>);

fn find<'a>(state: &'a State, name: &SnapshotName) -> Result<Found<'a>, Refusal> {
    let SnapshotName { volume, snapshot } = name;
    let record = state.volume_called(volume).ok_or_else(|| Refusal::NoVolume(volume.clone()))?;
    let found = state.snapshot_called(record.id, snapshot);
    let found = found.ok_or_else(|| Refusal::NoSnapshot { volume: record.name.clone(), name: snapshot.clone() })?;
    Ok((record, found))
}

/// Also if another server has just said that it made the snapshot, and this one hasn't heard of it yet.
pub async fn record(
    context: &Context,
    name: &SnapshotName,
) -> Result<(Arc<VolumeRecord>, Arc<SnapshotRecord>), Failure> {
    let metadata = &context.parts.metadata;
    if find(&metadata.state(), name).is_err() {
        let asked = format!("{}?count=false", path(route::SNAPSHOT, &asked_as(name)));
        let others = context.ask_others::<SnapshotInfo>(&asked).await;
        if others.iter().any(|(_, said)| said.is_some()) {
            in_a_moment(&mut metadata.watch(), |state| find(state, name).is_ok()).await;
        }
    }
    let state = metadata.state();
    let (volume, snapshot) = find(&state, name)?;
    Ok((volume.clone(), snapshot.clone()))
}

/// The snapshot of this name, to be read.
pub async fn served(context: &Context, name: &SnapshotName) -> Result<Snapshot<ServerWorld>, Failure> {
    let (volume, snapshot) = record(context, name).await?;
    Ok(volumes::unlock(context, &volume).await?.snapshot(snapshot.epoch, snapshot.size))
}

/// What is to be said if it isn't there any more.
pub fn gone(context: &Context, name: &SnapshotName) -> Option<Failure> {
    find(&context.parts.metadata.state(), name).err().map(Failure::from)
}

/// As the path of a request has it.
fn asked_as(name: &SnapshotName) -> String {
    match name.snapshot.strip_prefix(BY_ID) {
        Some(epoch) => format!("{}@{epoch}", name.volume),
        None => name.to_string(),
    }
}

/// What stands for a snapshot in what is done about it: it's the same one if it's called otherwise meanwhile.
fn lasting(volume: &VolumeRecord, snapshot: Epoch) -> SnapshotName {
    SnapshotName { volume: volume.by_id(), snapshot: format!("{BY_ID}{snapshot}") }
}

pub async fn create(
    Extract(context): Extract<Shared>,
    who: Option<Extension<Who>>,
    Input(CreateSnapshot { volume, name }): Input<CreateSnapshot>,
) -> Result<Json<SnapshotInfo>, Failure> {
    let record = volumes::record(&context, &volume).await?;
    host::may_change(&context.parts.metadata.state(), who.as_deref(), &record)?;
    let served = volumes::open(&context, &record).await?;
    let began = Instant::now();
    let command = Command::CreateSnapshot { volume: record.by_id(), name: name.clone() };
    made(&context, (&record, name), served, command, began).await
}

/// Once it's agreed, and nothing that is written later can be in it.
pub async fn made(
    context: &Context,
    (record, name): (&VolumeRecord, String),
    served: Volume<ServerWorld>,
    command: Command,
    began: Instant,
) -> Result<Json<SnapshotInfo>, Failure> {
    let Reply::SnapshotCreated { epoch, view } = context.propose(command).await? else { return Err(no_sense()) };
    let agreed = began.elapsed();
    let name = SnapshotName { volume: record.name.clone(), snapshot: name };
    settle(context, &name, view, served).await?;
    tracing::debug!(snapshot = %name, epoch, view, ?agreed, whole = ?began.elapsed(), "snapshot made");
    own(context, &lasting(record, epoch), IN_SHORT).await.map(Json)
}

/// Returns when nothing that is written later can be in a snapshot of this view, and what is in it stays.
pub async fn settle(
    context: &Context,
    name: &SnapshotName,
    view: u64,
    served: Volume<ServerWorld>,
) -> Result<(), Failure> {
    let late = || {
        format!("snapshot '{name}' is made, and what is written now may still get into it: remove it, and make another")
    };
    context.acted_by(view, late).await?;
    keep_on_media(context, served).await
}

/// With `durability=flush`, what was acknowledged may be lost with the power until it's flushed: a snapshot would change.
async fn keep_on_media(context: &Context, volume: Volume<ServerWorld>) -> Result<(), Failure> {
    if volume.is_among() || volume.spec().layout.durability == Durability::Strict {
        return Ok(());
    }
    on_data_thread(context, volume, |volume: Volume<ServerWorld>| async move { volume.flush().await }).await
}

/// Who reads it gets errors from then on, so that is done by force only.
pub async fn remove(
    Extract(context): Extract<Shared>,
    name: Named,
    Options(ReplicaQuery { force, replica_of }): Options<ReplicaQuery>,
) -> Result<Json<SnapshotRemoval>, Failure> {
    let (volume, snapshot) = record(&context, &name.snapshot()?).await?;
    let name = lasting(&volume, snapshot.epoch);
    if !force {
        let users = || async { Ok(Users::of_snapshot(&everywhere(&context, &name, IN_SHORT).await?)) };
        let users = users::that_stay(&context, users).await?;
        users.refuse(&format!("snapshot '{}@{}'", volume.name, snapshot.name), users::GET_ERRORS)?;
    }
    let SnapshotName { volume, snapshot: name } = name;
    context.propose(replicated(replica_of, None, Command::RemoveSnapshot { volume, name })).await?;
    Ok(Json(SnapshotRemoval { view: context.parts.metadata.state().view() }))
}

pub async fn rename(
    Extract(context): Extract<Shared>,
    name: Named,
    Input(RenameSnapshot { new_name }): Input<RenameSnapshot>,
) -> Result<Response, Failure> {
    let (volume, snapshot) = record(&context, &name.snapshot()?).await?;
    let lasting = lasting(&volume, snapshot.epoch);
    let SnapshotName { volume, snapshot: name } = lasting.clone();
    context.propose(Command::RenameSnapshot { volume, name, new_name }).await?;
    let state = context.parts.metadata.state();
    Ok(shown(&state, own(&context, &lasting, IN_SHORT).await?))
}

/// What clients of the volume think that it holds, it doesn't hold any more: done by force only while there are some.
pub async fn roll_back(
    Extract(context): Extract<Shared>,
    name: Named,
    Options(ReplicaQuery { force, replica_of }): Options<ReplicaQuery>,
) -> Result<Tagged<VolumeInfo>, Failure> {
    let (record, snapshot) = record(&context, &name.snapshot()?).await?;
    if !force {
        let users = users::that_stay(&context, || users::of_volume(&context, &record)).await?;
        users.refuse(&format!("volume '{}'", record.name), "they find other bytes than they have read")?;
    }
    let began = Instant::now();
    let command = Command::RollBack { volume: record.by_id(), name: snapshot.by_id() };
    let command = replicated(replica_of, None, command);
    let Reply::RolledBack { epoch, view } = context.propose(command).await? else { return Err(no_sense()) };
    let late = || format!("volume '{}' is rolled back, and what is written now may get lost: do it again", record.name);
    context.acted_by(view, late).await?;
    context.volumes.settle().await;
    tracing::debug!(volume = record.name, epoch, view, after = ?began.elapsed(), "volume rolled back");
    volumes::one(&context, &record.by_id()).await
}

/// Answered when every server knows of the new volume, so that any of them serves it.
pub async fn clone(
    Extract(context): Extract<Shared>,
    name: Named,
    Input(CloneSnapshot { name: new_name }): Input<CloneSnapshot>,
) -> Result<Tagged<VolumeInfo>, Failure> {
    let (record, kept) = record(&context, &name.snapshot()?).await?;
    let began = Instant::now();
    let (volume, snapshot) = (record.by_id(), kept.by_id());
    let command = Command::CloneVolume { volume, snapshot, name: new_name.clone() };
    let Reply::VolumeCloned { id, view } = context.propose(command).await? else { return Err(no_sense()) };
    context.acted_by(view, || format!("volume '{new_name}' is made, and not all of it may be served yet")).await?;
    context.volumes.settle().await;
    tracing::debug!(snapshot = kept.name, clone = id.0, view, after = ?began.elapsed(), "snapshot cloned");
    volumes::one(&context, &format!("{BY_ID}{}", id.0)).await
}

/// What a volume is a clone of, while that is there.
pub fn origin_of(state: &State, record: &VolumeRecord) -> Option<String> {
    let origin = record.origin?;
    let volume = state.volumes.get(&origin.volume)?;
    let snapshot = state.snapshots_of(origin.volume).find(|snapshot| snapshot.epoch == origin.epoch)?;
    Some(SnapshotName { volume: volume.name.clone(), snapshot: snapshot.name.clone() }.to_string())
}

fn no_sense() -> Failure {
    Failure::new(ErrorKind::Internal, "what was agreed answers something else than what was asked")
}
