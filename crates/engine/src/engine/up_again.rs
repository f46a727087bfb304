//! Drives that have returned: once it's known everywhere what they miss, it's agreed that they are up.

use super::{AGREE_SOON, Engine};
use crate::holder::Holder;
use crate::servers::answer::CopyId;
use crate::servers::seat::Seated;
use crate::view::View;
use crate::volume::Map;
use std::time::Duration;
use tepal_drive::Drive;
use tepal_drive::world::World;
use tepal_model::DriveId;

/// The pause after a failed agreement that a drive is up.
const AGREE_AGAIN: Duration = Duration::from_secs(5);

impl<W: World> Engine<W> {
    /// Has it agreed that a drive is up again, if it knows by itself what it misses in each volume.
    pub(crate) fn settle_if_known(&self, id: DriveId) {
        let view = self.followed();
        if self.behind(id).is_none() || !self.knows_what_it_misses(id, view) {
            return;
        }
        let Some(opening) = self.begin_settling(id) else { return };
        let engine = self.clone();
        self.world().spawn(Box::pin(async move {
            // The drive's handle isn't kept meanwhile: a drive that is pulled must be free to be opened again.
            let agreed = engine.shared.authority.up_again(id, view).await.is_some();
            // The drive may have left meanwhile, and even be back: then it may miss something again.
            if agreed && let Some(drive) = engine.note_current(id, opening) {
                tracing::debug!(drive = %id, "drive is up again");
                engine.maps().iter().for_each(|map| map.member_is_current(&Holder::Here(drive.clone())));
            }
            if !agreed {
                engine.world().sleep(if view == 0 { AGREE_AGAIN } else { AGREE_SOON }).await;
            }
            engine.end_settling(id);
            engine.settle_if_known(id);
        }));
    }

    /// Whether it's known what a drive of this server misses, in all maps in which it has a place.
    fn knows_what_it_misses(&self, id: DriveId, view: View) -> bool {
        let is_known = || self.maps().iter().all(|map| self.is_known_in(map, id, view));
        // A map that was opened during the first check has to be checked, too. The known maps come first, since they
        // mostly decide.
        is_known() && (self.shared.is_alone || self.has_all_maps_of(id) && is_known())
    }

    /// Whether it's known what a drive of this server misses in a map: to this server or to the other primaries.
    fn is_known_in(&self, map: &Map<W>, id: DriveId, view: View) -> bool {
        if map.is_cut_off() {
            return true; // nothing of the map counts any more
        }
        let Some((_, opening)) = self.opened(id) else { return false };
        let mut columns = (0..map.seats().len()).filter(|&column| map.placed(column).has(id));
        columns.all(|column| match map.seats()[column].now() {
            Seated::Here(group) => group.knows_what_it_misses(id),
            Seated::There(server, _) => {
                self.shared.askers.is_noted(CopyId { drive: id, map: map.id(), column }, server, opening, view)
            }
            Seated::Vacant => false,
        })
    }

    /// The drive's opening, if it's here, wasn't up when it was added, and all maps are open that there were when this
    /// server began.
    fn behind(&self, id: DriveId) -> Option<u64> {
        let state = self.lock();
        let entry = state.drives.get(&id).filter(|entry| state.complete && entry.left.is_some())?;
        let opening = entry.drive().map(|_| entry.opening)?;
        (self.shared.is_alone || state.followed.is_some()).then_some(opening)
    }

    /// Whether all maps that a drive has a place in are open. Looks at each place of each map.
    fn has_all_maps_of(&self, id: DriveId) -> bool {
        let Some((_, now)) = self.followed_state() else { return false };
        let mut its = now.places.iter().filter(|(_, places)| places.columns.iter().any(|placed| placed.has(id)));
        let state = self.lock();
        its.all(|(map, _)| state.maps.contains_key(map))
    }

    /// As [`behind`](Self::behind), if no task settles the drive already.
    fn begin_settling(&self, id: DriveId) -> Option<u64> {
        let opening = self.behind(id)?;
        self.lock().settling.insert(id).then_some(opening)
    }

    fn end_settling(&self, id: DriveId) {
        self.lock().settling.remove(&id);
    }

    /// Notes that the drive is current, and returns it, if the opening is still the same.
    fn note_current(&self, id: DriveId, opening: u64) -> Option<Drive<W>> {
        let mut state = self.lock();
        let entry = state.drives.get_mut(&id).filter(|entry| entry.opening == opening)?;
        let drive = entry.drive()?.clone();
        entry.left = None;
        Some(drive)
    }
}
