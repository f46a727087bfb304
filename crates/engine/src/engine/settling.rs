//! Drives that have returned: once all know what they miss, it's agreed that they are up.

use super::{AGREE_SOON, Engine, Status};
use crate::authority::View;
use crate::holder::Holder;
use crate::servers::answer::CopyId;
use crate::servers::seat::Taken;
use crate::volume::Map;
use std::time::Duration;
use tepal_drive::Drive;
use tepal_drive::world::World;
use tepal_model::DriveId;

/// After it could not be agreed that a drive is up.
const AGREE_AGAIN: Duration = Duration::from_secs(5);

impl<W: World> Engine<W> {
    /// A drive that knows by itself what it misses in each volume is up again, once that is agreed.
    pub(crate) fn settle_if_known(&self, id: DriveId) {
        let view = self.followed();
        if self.behind(id).is_none() || !self.maps().iter().all(|map| self.is_known_in(map, id, view)) {
            return;
        }
        let Some(drive) = self.begin_settling(id) else { return };
        let engine = self.clone();
        self.world().spawn(Box::pin(async move {
            let agreed = engine.shared.authority.up_again(id, view).await.is_some();
            // It may have left meanwhile, and even be back: then it may miss something again.
            if agreed && engine.note_current(&drive) {
                tracing::debug!(drive = %id, "drive is up again");
                engine.maps().iter().for_each(|map| map.member_is_current(&Holder::Here(drive.clone())));
            }
            drop(drive);
            if !agreed {
                engine.world().sleep(if view == 0 { AGREE_AGAIN } else { AGREE_SOON }).await;
            }
            engine.end_settling(id);
            engine.settle_if_known(id);
        }));
    }

    /// Whether what a drive of this server misses in a map is known: to this server or to the other primaries.
    fn is_known_in(&self, map: &Map<W>, id: DriveId, view: View) -> bool {
        let Some((_, opening)) = self.opened(id) else { return false };
        let mut columns = (0..map.seats().len()).filter(|&column| map.placed(column).has(id));
        columns.all(|column| match map.seats()[column].now() {
            Taken::Here(group) => group.knows_what_it_misses(id),
            Taken::There(server, _) => {
                self.shared.askers.is_noted(CopyId { drive: id, map: map.id(), column }, server, opening, view)
            }
            Taken::Vacant => false,
        })
    }

    /// The drive, if it's here, wasn't up when it was added, and all volumes are open.
    fn behind(&self, id: DriveId) -> Option<Drive<W>> {
        let state = self.lock();
        let entry = state.drives.get(&id).filter(|entry| state.complete && entry.left.is_some())?;
        entry.drive().cloned()
    }

    /// The same, if nobody is at it already.
    fn begin_settling(&self, id: DriveId) -> Option<Drive<W>> {
        let drive = self.behind(id)?;
        self.lock().settling.insert(id).then_some(drive)
    }

    /// Whether it's being agreed that the drive is up.
    pub(crate) fn is_settling(&self, id: DriveId) -> bool {
        self.lock().settling.contains(&id)
    }

    fn end_settling(&self, id: DriveId) {
        self.lock().settling.remove(&id);
    }

    fn note_current(&self, drive: &Drive<W>) -> bool {
        let mut state = self.lock();
        let Some(entry) = state.drives.get_mut(&drive.id()) else { return false };
        let same = matches!(&entry.status, Status::Here(now) if now.is_same(drive));
        if same {
            entry.left = None;
        }
        same
    }
}
