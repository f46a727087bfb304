//! A volume's snapshots: reading them, and what a map's volumes see.

use super::map::Map;
use super::{Run, Volume, Within};
use crate::column::Group;
use crate::epochs::Epochs;
use std::sync::Arc;
use std::time::Duration;
use tepal_drive::world::World;
use tepal_model::{Epoch, IoError, Segments, VolumeId};

/// A volume at some earlier time, to be read. Cheap to clone.
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
    /// The snapshot's volume.
    pub fn volume(&self) -> &Volume<W> {
        &self.volume
    }

    /// Bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Differs from the epochs of all other snapshots that the volume has or had.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// As [`Volume::read`]. `Unavailable` once the snapshot has been removed.
    pub async fn read(&self, offset: u64, length: u64) -> Result<Segments, IoError> {
        self.check_range(offset, length)?;
        self.volume.read_at(offset, length, Some(self.epoch)).await
    }

    /// As [`Volume::can_read`].
    pub async fn can_read(&self, offset: u64, length: u64) -> Result<(), IoError> {
        self.check_range(offset, length)?;
        self.volume.read_stored(offset, length, Some(self.epoch)).await.map(drop)
    }

    /// As [`Volume::block_status`]. `Unavailable` once the snapshot has been removed.
    pub async fn block_status(&self, within: Within) -> Result<Vec<Run>, IoError> {
        self.check_range(within.offset, within.length)?;
        self.volume.status_of(within, Some(self.epoch), None).await
    }

    /// As [`Volume::changed_since`], of an older snapshot of the same volume.
    pub async fn changed_since(&self, older: &Snapshot<W>, within: Within) -> Result<Vec<Run>, IoError> {
        self.check_range(within.offset, within.length)?;
        self.volume.status_of(within, Some(self.epoch), Some(older.epoch)).await
    }

    fn check_range(&self, offset: u64, length: u64) -> Result<(), IoError> {
        let size = self.size;
        match offset.checked_add(length) {
            Some(end) if end <= size => Ok(()),
            _ => Err(IoError::OutOfRange { offset, length, size }),
        }
    }
}

/// How often to look whether it's known here that a volume is gone.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

impl<W: World> Volume<W> {
    /// A snapshot of this volume, as agreed.
    pub fn snapshot(&self, epoch: Epoch, size: u64) -> Snapshot<W> {
        Snapshot { volume: self.clone(), epoch, size }
    }
}

impl<W: World> Map<W> {
    /// What the map's volumes and their snapshots see, as far as is known here.
    pub fn epochs(&self) -> Arc<Epochs> {
        self.shared.epochs.lock().expect("nothing panics while it holds it").clone()
    }

    /// Goes on with the agreed epochs, unless newer ones are known here.
    pub fn go_on_with(&self, epochs: Arc<Epochs>) {
        {
            let mut known = self.shared.epochs.lock().expect("nothing panics while it holds it");
            if epochs.view <= known.view {
                return;
            }
            *known = epochs.clone();
        }
        let groups = self.groups();
        groups.iter().for_each(|group| group.go_on_with(&epochs));
        groups.iter().for_each(Group::learn_that_all_act);
        self.start_reclaiming();
    }

    /// Returns when it's known here that a volume doesn't have this map any more, or that no volume does.
    pub async fn wait_until_lost(&self, volume: VolumeId) {
        while self.epochs().head_of(volume).is_some() {
            let Some(engine) = self.engine() else { return };
            if engine.followed_state().is_some_and(|(_, now)| !now.places.contains_key(&self.id())) {
                return;
            }
            engine.world().sleep(LOOK_AGAIN).await;
        }
    }
}
