//! What the target asks of the source.

use super::handed::Handed;
use super::handing::{Handing, What};
use super::taking::NotTaken;
use crate::column::{Blocks, Group};
use crate::epochs::Epochs;
use crate::servers::seat::Seated;
use crate::volume::MapMigration;
use crate::volume::migrating::Run;
use tepal_drive::world::World;
use tepal_model::{Segments, VolumeId};
use tepal_wire::message::{Answer, VolumeAnswer, VolumeFailure, VolumeRequest};

impl<W: World> Group<W> {
    /// The chunks of the window of which a source column may have anything; `None` if its primary can't say.
    pub async fn ask_what_is_held(&self, migration: &MapMigration, column: usize) -> Option<Vec<u64>> {
        let epochs = self.lock().seen.epochs.clone();
        match self.ask_source(migration, column, (What::Holding, Blocks::new(0, 0)), &epochs).await {
            Ok((VolumeAnswer::Holding { chunks }, _)) => Some(chunks),
            _ => None,
        }
    }

    /// What the source has of a run, in as many answers as needed.
    pub(super) async fn handed_over(
        &self,
        migration: &MapMigration,
        run: &Run,
        epochs: &Epochs,
    ) -> Result<Vec<Handed>, NotTaken> {
        let (mut all, mut done) = (Vec::new(), 0);
        while done < run.own.count {
            let left = Blocks::new(run.other.first + done, run.own.count - done);
            let asked = self.ask_source(migration, run.column, (What::HandOver, left), epochs).await;
            let (answer, data) = asked.map_err(|error| error.of_own_column(migration, run.column))?;
            let VolumeAnswer::HandedOver { count, lines, requests } = answer else { return Err(NotTaken::Yet) };
            let count = u64::from(count).min(left.count);
            let data = tepal_model::buffer::join(&data);
            let handed = Handed::of(run.own.first + done, lines, requests, data).filter(|_| count > 0);
            all.push(handed.ok_or(NotTaken::Yet)?);
            done += count;
        }
        Ok(all)
    }

    pub(super) async fn released(&self, migration: &MapMigration, run: &Run, epochs: &Epochs) -> Result<(), NotTaken> {
        match self.ask_source(migration, run.column, (What::Release, run.other), epochs).await? {
            (VolumeAnswer::Released, _) => Ok(()),
            _ => Err(NotTaken::Yet),
        }
    }

    /// Asks the primary of the source's column, once.
    async fn ask_source(
        &self,
        migration: &MapMigration,
        column: usize,
        (what, blocks): (What, Blocks),
        epochs: &Epochs,
    ) -> Result<(VolumeAnswer, Segments), NotTaken> {
        let engine = self.engine().ok_or(NotTaken::Yet)?;
        let map = engine.map(migration.agreed.source).ok_or(NotTaken::Yet)?;
        let seat = map.seats().get(column).ok_or(NotTaken::Yet)?;
        let (target, since) = (migration.agreed.target, migration.agreed.since);
        let handing = Handing { what, blocks, target, since, lines: epochs.lines_digest(migration.agreed.leaves) };
        let reply = match seat.now() {
            Seated::Here(group) => {
                let outcome = handing.at(&group.for_others()).await;
                if !map.may_tell(seat, &group).await {
                    return Err(NotTaken::Yet);
                }
                outcome?
            }
            Seated::There(server, view) => {
                let operation = handing.message();
                let request = VolumeRequest { volume: VolumeId(0), map: map.id(), column: column as u32, operation };
                self.answer_of(&engine, seat, (server, view), request).await.ok_or(NotTaken::Yet)?
            }
            Seated::Vacant => return Err(NotTaken::Yet),
        };
        match reply.answer {
            Answer::Volume(VolumeAnswer::Failed(VolumeFailure::Io(error))) => Err(error.into()),
            Answer::Volume(VolumeAnswer::Failed(_)) => Err(NotTaken::Yet),
            Answer::Volume(answer) => Ok((answer, reply.payload.into_parts().0)),
            Answer::Metadata | Answer::Api | Answer::Drive(_) => Err(NotTaken::Yet),
        }
    }
}
