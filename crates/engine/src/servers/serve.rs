//! Answers of this server to gateways, as the primary of a column.

use super::peers::Reply;
use crate::column::Group;
use crate::column::migrating::handing::Handing;
use crate::engine::Engine;
use crate::epochs::Subject;
use crate::view::View;
use crate::volume::{Map, Volume};
use tepal_drive::world::World;
use tepal_model::{BLOCK, DriveId, IoError, VolumeId};
use tepal_wire::Payload;
use tepal_wire::message::{Answer, NodeOperation, Run, VolumeAnswer, VolumeFailure, VolumeOperation, VolumeRequest};

/// The most bytes that one question for the status is answered about.
const LOOK: u64 = 1 << 30;

impl<W: World> Engine<W> {
    /// Carries a request out if this server is the primary, and answers only if it still is then.
    pub(crate) async fn answer_for_volume(
        &self,
        (view, revision): (View, u64),
        request: VolumeRequest,
        payload: Payload,
    ) -> Reply {
        let not_here = || failed(VolumeFailure::NotPrimary { server: None });
        let Some(map) = self.map(request.map) else { return not_here() };
        let column = request.column as usize;
        if let VolumeOperation::Node { drive, since, operation } = request.operation {
            let Some(volume) = self.volume(request.volume).filter(|volume| volume.has(map.id())) else {
                return not_here();
            };
            return self.answer_for_node((&volume, revision), (&map, column, since), (drive, operation), payload).await;
        }
        let Some(seat) = map.seats().get(column) else { return not_here() };
        let Some(group) = seat.group() else { return not_here() };
        if let Some(handing) = Handing::of(&request.operation) {
            let outcome = match view < group.shared.view {
                true => return failed(VolumeFailure::Stale { view: group.shared.view, revision: 0 }),
                false => handing.at(&group.for_others()).await,
            };
            let is_told = map.may_tell(seat, &group).await;
            return match outcome {
                _ if !is_told => failed(VolumeFailure::Unsure),
                Ok(reply) => reply,
                Err(IoError::Fenced) => failed(VolumeFailure::Busy),
                Err(error) => refused(error),
            };
        }
        let Some(volume) = self.volume(request.volume).filter(|volume| volume.has(map.id())) else { return not_here() };
        if group.shared.view == 0 {
            // This server has had the volume for itself until now.
            let (engine, id) = (self.clone(), request.volume);
            self.world().spawn(Box::pin(async move { engine.share_volume(id).await }));
            return failed(VolumeFailure::Busy);
        }
        // The request may have been under way since another primary did it for its asker, or since the volume was
        // changed.
        let known = volume.revision();
        if view < group.shared.view || revision < known {
            return failed(VolumeFailure::Stale { view: group.shared.view, revision: known });
        }
        if revision > known {
            return failed(VolumeFailure::Busy); // this server will hear of the change too
        }
        // The volume ends there for the gateway too, or this server will hear of the change.
        if reaches_past(&request.operation, &payload, volume.end_in(&map, column)) {
            return failed(VolumeFailure::Busy);
        }
        let comes_in_steps = matches!(request.operation, VolumeOperation::Zero { .. });
        let only_reads = only_reads(&request.operation);
        let outcome = serve(&group.for_others(), volume.id(), request.operation, payload).await;
        if !map.may_tell(seat, &group).await {
            return failed(VolumeFailure::Unsure);
        }
        // A read is told by the record of its asker: it mustn't show what a change has brought that the asker doesn't know of.
        let now = volume.revision();
        if only_reads && now != revision {
            return failed(VolumeFailure::Stale { view: group.shared.view, revision: now });
        }
        match outcome {
            Ok(reply) => reply,
            // Another map has the bytes; everything may have left this map by now.
            Err(IoError::Fenced) if map.has_migrated() && !volume.is_cut_off() => {
                match comes_in_steps || map.is_cut_off() {
                    true => failed(VolumeFailure::Unsure),
                    false => failed(VolumeFailure::Busy),
                }
            }
            Err(error) => refused(error),
        }
    }
}

impl<W: World> Engine<W> {
    /// Has a node of this server's drives do what a gateway asks, if the gateway knows the volume, and the column's drives, as they are.
    async fn answer_for_node(
        &self,
        (volume, revision): (&Volume<W>, u64),
        (map, column, since): (&Map<W>, usize, View),
        (drive, operation): (DriveId, NodeOperation),
        payload: Payload,
    ) -> Reply {
        let known = volume.revision();
        if revision < known {
            return failed(VolumeFailure::Stale { view: self.followed(), revision: known });
        }
        if revision > known || since > self.followed() {
            return failed(VolumeFailure::Busy); // this server will hear of the change too
        }
        let (placed, view) = (map.clone(), self.followed());
        let knows_drives = move || placed.placed(column).since() <= since;
        if !knows_drives() {
            return failed(VolumeFailure::Stale { view, revision: known });
        }
        let of_asker = volume.clone();
        let may_write = move || !of_asker.is_cut_off() && of_asker.revision() == revision && knows_drives();
        let node = (drive, map, column);
        let (answer, data) = self.answer_by_node(node, operation, payload, std::rc::Rc::new(may_write)).await;
        Reply { payload: Payload::seal(0, data), ..Answer::Volume(VolumeAnswer::Node(answer)).into() }
    }
}

fn only_reads(operation: &VolumeOperation) -> bool {
    use VolumeOperation::{Changed, Read, Status};
    matches!(operation, Read { .. } | Status { .. } | Changed { .. })
}

fn refused(error: IoError) -> Reply {
    failed(match error {
        IoError::NotNow | IoError::Stopping => VolumeFailure::Busy,
        IoError::Unsure => VolumeFailure::Unsure,
        error => VolumeFailure::Io(error),
    })
}

fn failed(failure: VolumeFailure) -> Reply {
    Answer::Volume(VolumeAnswer::Failed(failure)).into()
}

/// `end` is the column's first byte past the volume's end.
fn reaches_past(operation: &VolumeOperation, payload: &Payload, end: u64) -> bool {
    let touched = match *operation {
        // A snapshot has a size of its own.
        VolumeOperation::Read { at: Some(_), .. }
        | VolumeOperation::Status { at: Some(_), .. }
        | VolumeOperation::Changed { at: Some(_), .. } => return false,
        VolumeOperation::Read { offset, length, .. } => offset + u64::from(length),
        VolumeOperation::Write { offset, .. } | VolumeOperation::Fill { offset } => offset + payload.length(),
        VolumeOperation::Zero { offset, length, .. }
        | VolumeOperation::Status { offset, length, .. }
        | VolumeOperation::Changed { offset, length, .. } => offset + length,
        VolumeOperation::HandOver { .. } | VolumeOperation::Release { .. } | VolumeOperation::Holding { .. } => 0,
        // A node of a quorum layout has its own end.
        VolumeOperation::Node { .. } => 0,
        // The other way round: the volume must have been cut there.
        VolumeOperation::Clear { from } => return end > from,
        // A block past the end may be a longer snapshot's, or another volume's.
        VolumeOperation::Repair { .. } | VolumeOperation::Flush => 0,
    };
    touched > end
}

async fn serve<W: World>(
    group: &Group<W>,
    volume: VolumeId,
    operation: VolumeOperation,
    payload: Payload,
) -> Result<Reply, IoError> {
    let answer = match operation {
        VolumeOperation::Read { offset, length, at } => {
            let payload = Payload::seal(offset, group.read(Subject { volume, at }, offset, length.into()).await?);
            return Ok(Reply { payload, ..Answer::Volume(VolumeAnswer::Read).into() });
        }
        VolumeOperation::Write { offset, fua, tag } => {
            group.write(volume, offset, payload.into(), fua, Some(tag)).await?;
            VolumeAnswer::Written
        }
        VolumeOperation::Fill { offset } => {
            group.fill_empty(volume, offset, payload.into()).await?;
            VolumeAnswer::Written
        }
        VolumeOperation::Zero { offset, length, allocate, tag, .. } => {
            group.zero(volume, offset..offset + length, allocate, Some(tag)).await?;
            VolumeAnswer::Zeroed
        }
        VolumeOperation::Clear { from } => {
            group.clear_past(volume, from).await?;
            VolumeAnswer::Zeroed
        }
        // Acknowledged data is stable: always so for volumes on several servers.
        VolumeOperation::Flush => {
            group.lock().serves_volume(volume)?;
            VolumeAnswer::Flushed
        }
        // These were answered before.
        VolumeOperation::HandOver { .. }
        | VolumeOperation::Release { .. }
        | VolumeOperation::Holding { .. }
        | VolumeOperation::Node { .. } => {
            return Err(IoError::NotNow);
        }
        VolumeOperation::Repair { offset, copy } => {
            VolumeAnswer::Repaired { outcome: group.try_repair(offset / BLOCK, copy.into()).await? }
        }
        VolumeOperation::Status { offset, length, limit, at } => {
            let runs = group.status(Subject { volume, at }, None, offset, length.min(LOOK)).await?;
            status(runs, limit)
        }
        VolumeOperation::Changed { offset, length, limit, at, since } => {
            let runs = group.status(Subject { volume, at }, Some(since), offset, length.min(LOOK)).await?;
            status(runs, limit)
        }
    };
    Ok(Answer::Volume(answer).into())
}

fn status(mut runs: Vec<(u64, bool)>, limit: u32) -> VolumeAnswer {
    runs.truncate(limit as usize);
    VolumeAnswer::Status { runs: runs.into_iter().map(|(length, holds)| Run { length, holds }).collect() }
}
