//! Replicas: volumes that follow a volume of another cluster. Who sends is a command, as for imports; here is what is agreed on.

use super::conditions::Tagged;
use super::extract::{Input, Named, Options};
use super::failure::Failure;
use super::types::{
    CopyOf, Done, Follow, ForceQuery, NoteReplica, Receive, Received, Replica, ReplicaOf, SnapshotInfo, VolumeInfo,
};
use super::{Context, Shared, snapshots, users, volumes};
use axum::Json;
use axum::extract::State as Extract;
use std::time::Instant;
use tepal_metadata::{Command, CopyRecord, ReplicaRecord, ReplicaSource, Reply, VolumeRecord};
use tepal_model::VolumeId;

fn source(of: ReplicaOf) -> ReplicaSource {
    ReplicaSource { cluster: of.cluster, volume: VolumeId(of.volume_id) }
}

fn said(source: ReplicaSource) -> ReplicaOf {
    ReplicaOf { cluster: source.cluster, volume_id: source.volume.0 }
}

pub fn of_volume(record: &ReplicaRecord) -> Replica {
    Replica {
        of: said(record.source),
        called: record.called.clone(),
        as_of_unix_ms: record.as_of_unix_ms,
        base: record.base,
        receives: record.receives,
    }
}

pub fn copy_of(record: CopyRecord) -> CopyOf {
    CopyOf { of: said(record.source), epoch: record.epoch, taken_unix_ms: record.unix_ms }
}

/// What is asked for, in the name of replication if that asks: of which import, if that is to be the replica's.
pub fn replicated(of: Option<ReplicaOf>, import: Option<u64>, command: Command) -> Command {
    match of {
        Some(of) => Command::Replicated { source: source(of), import, command: Box::new(command) },
        None => command,
    }
}

/// Who has it open and could write is told of before, or finds that it can't any more. Answered when nobody writes to it.
pub async fn follow(
    Extract(context): Extract<Shared>,
    name: Named,
    Input(Follow { of, called, base, force }): Input<Follow>,
) -> Result<Tagged<VolumeInfo>, Failure> {
    let record = volumes::record(&context, &name.0).await?;
    if !force {
        in_use(&context, &record, "their writes fail").await?;
    }
    let was_replica = record.replica.is_some();
    context.propose(Command::Follow { name: record.by_id(), source: source(of), called, base }).await?;
    let view = context.parts.metadata.state().view();
    let late = || format!("volume '{}' is a replica, and not every server has heard of it: do it again", record.name);
    context.acted_by(view, late).await?;
    context.volumes.settle().await;
    if !force
        && !was_replica
        && let Err(failure) = in_use(&context, &record, "their writes fail").await
    {
        context.propose(Command::Promote { name: record.by_id(), force: false }).await?;
        return Err(failure);
    }
    volumes::one(&context, &record.by_id()).await
}

async fn in_use(context: &Context, record: &VolumeRecord, forced: &str) -> Result<(), Failure> {
    let users = users::that_stay(context, || users::of_volume(context, record)).await?;
    users.refuse(&format!("volume '{}'", record.name), forced)
}

pub async fn promote(
    Extract(context): Extract<Shared>,
    name: Named,
    Options(ForceQuery { force }): Options<ForceQuery>,
) -> Result<Tagged<VolumeInfo>, Failure> {
    let record = volumes::record(&context, &name.0).await?;
    if !force && record.replica.is_some() {
        let forced = "replication ends with an error, and readers find other bytes than before";
        in_use(&context, &record, forced).await?;
    }
    if let Reply::RolledBack { view, .. } = context.propose(Command::Promote { name: record.by_id(), force }).await? {
        let late = || format!("volume '{}' is promoted, and what is written now may get lost", record.name);
        context.acted_by(view, late).await?;
    }
    context.volumes.settle().await;
    volumes::one(&context, &record.by_id()).await
}

pub async fn receive(
    Extract(context): Extract<Shared>,
    name: Named,
    Input(Receive { of, import, base, before, epoch, done }): Input<Receive>,
) -> Result<Json<Done>, Failure> {
    let name = volumes::record(&context, &name.0).await?.by_id();
    context.propose(Command::Receive { name, source: source(of), import, base, before, epoch, done }).await?;
    Ok(Json(Done {}))
}

pub async fn received(
    Extract(context): Extract<Shared>,
    name: Named,
    Input(Received { import, snapshot, taken_unix_ms }): Input<Received>,
) -> Result<Json<SnapshotInfo>, Failure> {
    let record = volumes::record(&context, &name.0).await?;
    let (served, began) = (volumes::open(&context, &record).await?, Instant::now());
    let command = Command::Received { name: record.by_id(), import, snapshot: snapshot.clone(), taken_unix_ms };
    snapshots::made(&context, (&record, snapshot), served, command, began).await
}

pub async fn note(
    Extract(context): Extract<Shared>,
    name: Named,
    Input(NoteReplica { of, as_of_unix_ms }): Input<NoteReplica>,
) -> Result<Json<Done>, Failure> {
    let name = volumes::record(&context, &name.0).await?.by_id();
    context.propose(Command::NoteReplica { name, source: source(of), as_of_unix_ms }).await?;
    Ok(Json(Done {}))
}
