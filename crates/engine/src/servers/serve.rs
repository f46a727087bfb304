//! What gateways ask of this server as the primary of a column.

use super::peers::Reply;
use crate::authority::View;
use crate::engine::Engine;
use crate::protocol::primary::Group;
use tepal_drive::world::{Gather, World};
use tepal_model::IoError;
use tepal_wire::Payload;
use tepal_wire::message::{Answer, Run, VolumeAnswer, VolumeFailure, VolumeOperation, VolumeRequest};

impl<W: World> Engine<W> {
    /// Carries it out if this server is the primary, and answers only what it may still tell then.
    pub(crate) async fn answer_for_volume(&self, view: View, request: VolumeRequest, payload: Payload) -> Reply {
        let not_here = || VolumeAnswer::Failed(VolumeFailure::NotPrimary { server: None });
        let volume = self.volume(request.volume);
        let seat = volume.as_ref().and_then(|volume| volume.seats().get(request.column as usize));
        let Some((seat, group)) = seat.and_then(|seat| Some((seat, seat.group()?))) else {
            return Answer::Volume(not_here()).into();
        };
        // It may have lain somewhere since whoever asked had it done by another.
        if view < group.shared.view {
            let stale = VolumeFailure::Stale { view: group.shared.view, revision: 0 };
            return Answer::Volume(VolumeAnswer::Failed(stale)).into();
        }
        let outcome = serve(&group, request.operation, payload).await;
        if let Some(volume) = &volume
            && !volume.may_tell(seat, &group).await
        {
            return Answer::Volume(VolumeAnswer::Failed(VolumeFailure::Unsure)).into();
        }
        match outcome {
            Ok(reply) => reply,
            Err(error) => Answer::Volume(VolumeAnswer::Failed(VolumeFailure::Io(error))).into(),
        }
    }
}

async fn serve<W: World>(group: &Group<W>, operation: VolumeOperation, payload: Payload) -> Result<Reply, IoError> {
    let answer = match operation {
        VolumeOperation::Read { offset, length } => {
            let payload = Payload::seal(offset, group.read(offset, length.into()).await?);
            return Ok(Reply { answer: Answer::Volume(VolumeAnswer::Read), payload });
        }
        VolumeOperation::Write { offset, fua, tag } => {
            let (data, _) = payload.verify().map_err(|corrupt| IoError::Unavailable { reason: corrupt.to_string() })?;
            group.write(offset, data.into_iter().collect::<Gather>(), fua, Some(tag)).await?;
            VolumeAnswer::Written
        }
        VolumeOperation::Zero { offset, length, allocate, tag, .. } => {
            group.zero(offset..offset + length, allocate, Some(tag)).await?;
            VolumeAnswer::Zeroed
        }
        // What was acknowledged is stable: of volumes on several servers, always.
        VolumeOperation::Flush => {
            group.lock().serves()?;
            VolumeAnswer::Flushed
        }
        VolumeOperation::Status { offset, length, limit } => {
            let mut runs = group.status(offset, length).await?;
            runs.truncate(limit as usize);
            VolumeAnswer::Status { runs: runs.into_iter().map(|(length, holds)| Run { length, holds }).collect() }
        }
    };
    Ok(Answer::Volume(answer).into())
}
