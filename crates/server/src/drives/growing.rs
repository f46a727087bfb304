//! A drive takes the room that its device has been given. That is prepared while the drive is in use; then it's away for a moment, as if
//! it had been pulled: requests wait for it, and it catches up on what it missed.

use super::look::Looked;
use super::{DriveOperationError, Drives, OpenDrive};
use crate::device;
use std::path::Path;
use std::time::{Duration, Instant};
use tepal_drive::Loss;
use tepal_drive::world::Device;
use tepal_model::DriveId;

/// How long the device of a drive that was let go may take to be free: until what was under way on it has ended.
const FREE_WITHIN: Duration = Duration::from_secs(10);

impl Drives {
    /// Whatever stops this, the drive has its old size or the new one when it's next taken into use.
    pub async fn grow(&self, id: DriveId) -> Result<(), DriveOperationError> {
        let prepared = self.in_use(id)?;
        let size = self.prepare_growth(&prepared).await?;
        let mut generations = self.turn.lock().await;
        if !self.in_use(id)?.drive.is_same(&prepared.drive) {
            return Err(DriveOperationError::NotInUse { drive: id, state: self.record(id)?.state });
        }
        let path = prepared.path.clone();
        self.table().open.remove(&id);
        drop(prepared);
        self.lose(id, Loss::Gone { drive: id, reason: "it's growing".to_owned() }).await?;
        let grown = self.take_room(id, &path, size).await;
        let back = self.bring_back(&mut generations, id).await;
        if grown.is_ok() {
            tracing::info!(drive = %id, path = %path.display(), size, "drive has grown");
        }
        grown.and(back)
    }

    fn in_use(&self, id: DriveId) -> Result<OpenDrive, DriveOperationError> {
        let state = self.own(id)?.state;
        let open = self.table().open.get(&id).cloned();
        open.ok_or(DriveOperationError::NotInUse { drive: id, state })
    }

    /// What size the drive is to have.
    async fn prepare_growth(&self, open: &OpenDrive) -> Result<u64, DriveOperationError> {
        let (drive, label) = (open.drive.id(), open.drive.label().clone());
        let refuse = |why| DriveOperationError::Grow { drive, why };
        let device = open.device.enlarged().map_err(|error| refuse(error.into()))?;
        let grown = label.grown(device.size()).map_err(refuse)?;
        let size = grown.size;
        let in_use = open.drive.clone();
        let work = move || async move {
            let prepared = tepal_drive::prepare_growth(&device, &grown).await;
            // So that little is left to be flushed and replayed while it's away. If it's lost by that, it doesn't grow.
            let _ = in_use.checkpoint().await;
            prepared
        };
        self.parts.threads.run_on(self.some_thread(), work).await?.map_err(refuse)?;
        Ok(size)
    }

    async fn take_room(&self, drive: DriveId, path: &Path, size: u64) -> Result<(), DriveOperationError> {
        let Looked { device, .. } = self.look_when_free(path).await?;
        let work = move || async move { tepal_drive::grow(&device, drive, size).await };
        let grown = self.parts.threads.run_on(self.some_thread(), work).await?;
        grown.map(drop).map_err(|why| DriveOperationError::Grow { drive, why })
    }

    async fn look_when_free(&self, path: &Path) -> Result<Looked, DriveOperationError> {
        let asked = Instant::now();
        loop {
            match self.look_at(path).await.map_err(DriveOperationError::from) {
                Err(DriveOperationError::Device(device::OpenError::InUse { .. })) if asked.elapsed() < FREE_WITHIN => {}
                looked => return looked,
            }
        }
    }
}
