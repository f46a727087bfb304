//! The label of a drive in use: whether it's still there. Whoever writes over a drive's start would be noticed by nothing
//! else before the next start, and then the drive would be refused.

use crate::drive::Drive;
use crate::error::Loss;
use crate::geometry::{Geometry, LABEL_FIRST};
use crate::identity::label::{Label, LabelError};
use crate::world::World;
use std::sync::Arc;

impl<W: World> Drive<W> {
    /// All that is on the drive has been looked through since it became doubtful.
    pub async fn believe(&self) -> Result<(), Arc<Loss>> {
        self.write_label(false).await
    }

    /// Reads both copies of the label, and writes them, and what else is in memory of the drive's start, if one of them was
    /// overwritten: then the drive is doubtful. Without any, or with another drive's, this isn't the drive that was
    /// opened, or not any more, and nothing is written to it. Two reads: ask now and then.
    pub async fn look_at_label(&self) -> Result<bool, Arc<Loss>> {
        let shared = &self.shared;
        let (mut ours, mut overwritten, mut unreadable, mut doubtful) = (0, 0, 0, false);
        for offset in [LABEL_FIRST, Geometry::label_last(shared.label.size)] {
            let copy = Label::read_copy(&shared.device, offset).await.map_err(|gone| shared.lose(gone))?;
            match copy {
                Ok(label) if (label.cluster, label.drive) != (shared.label.cluster, shared.label.drive) => {
                    let reason = format!("it has the label of drive {} of cluster {} now", label.drive, label.cluster);
                    self.pull(&reason);
                }
                Ok(label) => {
                    ours += 1;
                    doubtful |= label.doubtful;
                    overwritten += u32::from(label.generation != shared.label.generation);
                }
                Err(LabelError::Device(_)) => unreadable += 1,
                Err(_) => overwritten += 1,
            }
        }
        if ours == 0 && unreadable == 0 {
            self.pull("both copies of its label were overwritten");
        }
        shared.lock().alive()?;
        if overwritten == 0 && unreadable == 0 {
            return Ok(false);
        }
        self.write_label(doubtful || overwritten > 0).await?;
        if overwritten > 0 {
            self.mend_tables().await?;
        }
        Ok(overwritten > 0)
    }

    async fn write_label(&self, doubtful: bool) -> Result<(), Arc<Loss>> {
        let label = Label { doubtful, ..self.shared.label.clone() };
        label.write(&self.shared.device).await.map_err(|error| self.shared.lose(error))
    }
}
