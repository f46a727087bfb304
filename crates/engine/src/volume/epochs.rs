//! A volume's snapshots: what is read of them, and what their removal gives back.

use super::{Run, Volume};
use crate::epochs::Epochs;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tepal_drive::world::World;
use tepal_model::{Epoch, IoError, MapId, Segments};

/// What a volume was at some time, to be read. Cheap to clone.
pub struct Snapshot<W: World> {
    volume: Volume<W>,
    epoch: Epoch,
    size: u64,
}

impl<W: World> Clone for Snapshot<W> {
    fn clone(&self) -> Self {
        Snapshot { volume: self.volume.clone(), epoch: self.epoch, size: self.size }
    }
}

impl<W: World> Snapshot<W> {
    /// The volume that it's of.
    pub fn volume(&self) -> &Volume<W> {
        &self.volume
    }

    /// Bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// As [`Volume::read`]. `Unavailable` once the snapshot has been removed.
    pub async fn read(&self, offset: u64, length: u64) -> Result<Segments, IoError> {
        self.check_range(offset, length)?;
        self.volume.read_at(offset, length, Some(self.epoch)).await
    }

    /// As [`Volume::block_status`]. `Unavailable` once the snapshot has been removed.
    pub async fn block_status(&self, offset: u64, length: u64, limit: usize) -> Result<Vec<Run>, IoError> {
        self.check_range(offset, length)?;
        self.volume.block_status_at(offset, length, limit, Some(self.epoch)).await
    }

    fn check_range(&self, offset: u64, length: u64) -> Result<(), IoError> {
        let size = self.size;
        match offset.checked_add(length) {
            Some(end) if end <= size => Ok(()),
            _ => Err(IoError::OutOfRange { offset, length, size }),
        }
    }
}

/// What was written by who hadn't heard yet that a snapshot is gone is given back after this time.
const LATER: Duration = Duration::from_secs(5);

/// Whether space is being given back that no reader's layers need any more.
#[derive(Debug, Default)]
pub(super) struct Reclaiming(Mutex<Turn>);

#[derive(Debug, Default)]
struct Turn {
    is_running: bool,
    /// There's more to give back by now.
    again: bool,
}

impl Reclaiming {
    fn lock(&self) -> std::sync::MutexGuard<'_, Turn> {
        self.0.lock().expect("nothing panics while it holds it")
    }

    /// Whether the caller is to do it.
    fn begin(&self) -> bool {
        let mut turn = self.lock();
        turn.again = turn.is_running;
        !std::mem::replace(&mut turn.is_running, true)
    }

    /// Whether there's more to give back by now.
    fn has_more(&self) -> bool {
        std::mem::take(&mut self.lock().again)
    }

    /// Whether it's to be done again.
    fn end(&self) -> bool {
        let mut turn = self.lock();
        turn.is_running = std::mem::take(&mut turn.again);
        turn.is_running
    }
}

impl<W: World> Volume<W> {
    /// A snapshot of this volume, as agreed.
    pub fn snapshot(&self, epoch: Epoch, size: u64) -> Snapshot<W> {
        Snapshot { volume: self.clone(), epoch, size }
    }

    pub(crate) fn map(&self) -> MapId {
        self.lock().map
    }

    /// What the volume and its snapshots see, as far as is known here.
    pub(crate) fn epochs(&self) -> Arc<Epochs> {
        self.shared.epochs.lock().expect("nothing panics while it holds it").clone()
    }

    /// What is agreed from now on.
    pub(crate) fn go_on_with(&self, epochs: Arc<Epochs>) {
        let before = {
            let mut known = self.shared.epochs.lock().expect("nothing panics while it holds it");
            std::mem::replace(&mut *known, epochs.clone())
        };
        if before == epochs {
            return;
        }
        self.groups().iter().for_each(|group| group.go_on_with(&epochs));
        let is_there = |reader| epochs.history.reader(reader).is_some();
        if !before.history.readers().iter().all(|reader| is_there(reader.newest())) {
            self.start_reclaiming();
        }
    }

    /// Gives back, in the background, what the drives of this server hold and no reader sees.
    pub(crate) fn start_reclaiming(&self) {
        let Some(engine) = self.engine() else { return };
        if *self.epochs() == Epochs::default() || !self.shared.reclaiming.begin() {
            return;
        }
        let volume = self.clone();
        engine.world().spawn(Box::pin(async move {
            loop {
                volume.reclaim().await;
                if volume.shared.reclaiming.has_more() {
                    continue;
                }
                let Some(engine) = volume.engine() else { return };
                engine.world().sleep(LATER).await;
                volume.reclaim().await;
                if !volume.shared.reclaiming.end() {
                    return;
                }
            }
        }));
    }

    /// See [`Drive::reclaim`](tepal_drive::Drive::reclaim).
    pub(crate) async fn reclaim(&self) {
        let epochs = self.epochs();
        if *epochs == Epochs::default() {
            return; // there has never been more than one layer
        }
        for drive in self.drives_here() {
            // If it's lost, that is noticed where it matters.
            if let Err(loss) = drive.reclaim(self.map(), &epochs.history).await {
                tracing::debug!(drive = %drive.id(), %loss, "space of snapshots isn't given back");
            }
        }
    }
}
