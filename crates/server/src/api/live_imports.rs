//! Volumes that are used while they are imported.

use super::conditions::Tagged;
use super::creating;
use super::extract::Input;
use super::failure::Failure;
use super::types::{CreateVolume, ErrorKind, ImportLive, LiveImport, LiveImportState, VolumeInfo};
use super::{Context, Shared, Who, volumes};
use crate::importing::{CANCELLED, SourceError, length_of};
use axum::Extension;
use axum::extract::State as Extract;
use tepal_metadata::{Command, LiveCommand, LiveStage, State, VolumeRecord};
use tepal_model::VolumeId;
use tepal_model::size::Size;

pub async fn begin(
    Extract(context): Extract<Shared>,
    who: Option<Extension<Who>>,
    Input(asked): Input<ImportLive>,
) -> Result<Tagged<VolumeInfo>, Failure> {
    let ImportLive { name, from, size, layout, pool, key } = asked;
    if context.parts.metadata.state().volume_named(&name).is_some() {
        let error = format!("volume '{name}' exists already: a live import makes a volume; name another one");
        return Err(Failure::new(ErrorKind::Conflict, error));
    }
    let length = length_of(&from).await.map_err(|error| {
        let kind = match error {
            SourceError::Unreachable { .. } => ErrorKind::Unavailable,
            SourceError::Address(_) | SourceError::Tls | SourceError::Relative | SourceError::Empty(_) => {
                ErrorKind::BadRequest
            }
        };
        Failure::new(kind, error.to_string())
    })?;
    // A volume's size is a multiple of 512.
    let least = length.next_multiple_of(512);
    let size = size.unwrap_or(least);
    if size < least {
        let error = format!("{from} has {}, which don't fit into {}", Size(length), Size(size));
        return Err(Failure::new(ErrorKind::BadRequest, error));
    }
    let volume = CreateVolume { name: name.clone(), size, layout, pool, key, plain: false, import: None };
    let create = creating::to_create(&context, who.as_deref(), volume).await?;
    creating::made(&context, &name, Command::Live(LiveCommand::Import { create: Box::new(create), from, length })).await
}

/// `None` if the volume isn't imported live.
pub async fn set(
    context: &Context,
    record: &VolumeRecord,
    stage: LiveStage,
) -> Option<Result<Tagged<VolumeInfo>, Failure>> {
    if !context.parts.metadata.state().access.live_imports.contains_key(&record.id) {
        return None;
    }
    let name = record.by_id();
    if let Err(failure) = context.propose(Command::Live(LiveCommand::Set { name: name.clone(), stage })).await {
        return Some(Err(failure));
    }
    context.volumes.settle().await;
    Some(volumes::one(context, &name).await)
}

/// What a failed read is told as: nobody waits for bytes that don't come.
pub fn told(context: &Context, volume: VolumeId, failure: Failure) -> Failure {
    if !failure.text().contains(CANCELLED) {
        return failure;
    }
    let state = context.parts.metadata.state();
    let name = state.volumes.get(&volume).map_or_else(String::new, |record| record.name.clone());
    let error = format!("volume '{name}' is only partly here: {CANCELLED}; `tepal volume resume {name}` has it go on");
    Failure::new(ErrorKind::Conflict, error)
}

/// How the volume is imported, if it is.
pub fn of_volume(context: &Context, state: &State, record: &VolumeRecord) -> Option<LiveImport> {
    let live = state.access.live_imports.get(&record.id)?;
    let known = context.parts.imports.known(record.id);
    Some(LiveImport {
        from: live.from.clone(),
        state: match live.stage {
            LiveStage::Running => LiveImportState::Running,
            LiveStage::Paused => LiveImportState::Paused,
            LiveStage::Cancelled => LiveImportState::Cancelled,
        },
        done_bytes: live.done,
        total_bytes: record.size,
        reason: known.and_then(|known| known.trouble()),
    })
}

/// With what another server says keeps it from going on.
pub fn add(own: Option<&mut LiveImport>, other: Option<LiveImport>) {
    if let (Some(own), Some(other)) = (own, other) {
        own.reason = own.reason.take().or(other.reason);
    }
}
