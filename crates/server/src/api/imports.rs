//! Imports as what is agreed on: from an import's first byte to its last, its volume is incomplete, whatever becomes of the command.

use super::conditions::Tagged;
use super::extract::{Input, Named};
use super::failure::Failure;
use super::types::{FinishImport, NoteImport, VolumeInfo};
use super::{Context, Shared, volumes};
use crate::news::in_a_moment;
use axum::extract::State as Extract;
use std::sync::Arc;
use tepal_metadata::{Command, Refusal, State};
use tepal_model::VolumeId;

pub async fn note(
    Extract(context): Extract<Shared>,
    name: Named,
    Input(NoteImport { import, done }): Input<NoteImport>,
) -> Result<Tagged<VolumeInfo>, Failure> {
    let record = volumes::record(&context, &name.0).await?;
    if context.parts.metadata.state().access.volume_keys.contains_key(&record.id) {
        volumes::unlock(&context, &record).await?; // or nothing could be written of it
    }
    let volume = record.by_id();
    context.propose(Command::NoteImport { name: volume.clone(), import, done }).await?;
    volumes::one(&context, &volume).await
}

pub async fn finish(
    Extract(context): Extract<Shared>,
    name: Named,
    Input(FinishImport { import }): Input<FinishImport>,
) -> Result<Tagged<VolumeInfo>, Failure> {
    let volume = volumes::record(&context, &name.0).await?.by_id();
    context.propose(Command::FinishImport { name: volume.clone(), import }).await?;
    volumes::one(&context, &volume).await
}

/// The revision of the volume's record by which this import writes. Fails if what it writes isn't what the volume is to become any more.
pub async fn check(context: &Context, volume: VolumeId, import: Option<u64>) -> Result<Option<u64>, Failure> {
    let Some(import) = import else {
        let state = context.parts.metadata.state();
        let Some(record) = state.volumes.get(&volume) else { return Ok(None) };
        return match &record.replica {
            Some(replica) => {
                Err(Refusal::IsReplica { name: record.name.clone(), source_name: replica.called.clone() }.into())
            }
            None => Ok(None),
        };
    };
    let own = |state: &State| state.volumes.get(&volume)?.import.map(|own| own.id);
    let is_known = |state: &Arc<State>| own(state) == Some(import) || !state.volumes.contains_key(&volume);
    // Another server may have been told that it begins.
    let state = in_a_moment(&mut context.parts.metadata.watch(), is_known).await;
    match state.volumes.get(&volume) {
        Some(record) if own(&state) == Some(import) => Ok(Some(record.revision)),
        Some(record) => Err(Refusal::ImportChanged(record.name.clone()).into()),
        None => Err(Refusal::NoVolumeId(volume).into()),
    }
}
