//! This server becomes the primary of a column.

use super::{Engine, Entry, Standing, State, Status};
use crate::column::Group;
use crate::servers::answer::CopyId;
use crate::servers::follow::{ClusterView, DriveStatus};
use tepal_drive::world::World;
use tepal_model::{DriveId, MapId, ServerId};

impl<W: World> Engine<W> {
    /// Other servers led this group's column since the group was opened, unnoticed by this server, which is the primary
    /// again.
    pub(crate) fn lead_anew(&self, group: &Group<W>) {
        let Some(map) = self.map(group.shared.column.map) else { return };
        let column = group.shared.column.number;
        if map.seats()[column].is_still(group) {
            map.begin_yield(column, None);
            let engine = self.clone();
            self.world().spawn(Box::pin(async move { engine.lead(map.id(), column).await }));
        }
    }

    /// Makes this server the primary of a column, by the state that it follows now, once nobody acts in an earlier
    /// view.
    pub(crate) async fn lead(&self, id: MapId, column: usize) {
        let Some(map) = self.map(id) else { return };
        let placed = map.placed(column);
        let drives: Vec<DriveId> = placed.all().collect();
        let Some((me, now)) = self.followed_state() else { return };
        if now.primary(&placed) != Some(me) || !self.lock().has_own_as_agreed((me, &now), &drives) {
            return; // tried again when drives have come or gone here
        }
        let view = now.view;
        self.shared.authority.adopted(view).await;
        map.ended(column).await;
        // From here on no request of an earlier primary is under way on this server's drives.
        for drive in drives.iter().copied() {
            if let Some((drive, opening)) = self.opened(drive) {
                let copy = CopyId { drive: drive.id(), map: id, column };
                if !self.shared.askers.admit(copy, None, view, opening).await {
                    return; // another server is the primary in a later view, which will be known here
                }
                // Except changes that this server's own last turn had queued. A lost drive is no member.
                let _ = drive.catch_up_with_line().await;
            }
        }
        let (group, hearing) = {
            let state = self.lock();
            // In a later view that says the same of these drives, no other server was the primary either: when the
            // primary changes, so do the drives' statuses.
            if !state.maps.contains_key(&id)
                || map.is_cut_off()
                || !state.followed.as_ref().is_some_and(|(_, later)| later.says_the_same(&now, &drives))
                || !state.has_own_as_agreed((me, &now), &drives)
                || map.placed(column) != placed
                || map.seats()[column].group().is_some()
            {
                return;
            }
            let group = map.open_group(self, column, view, |id| state.presence(id));
            map.take_seat(group.clone());
            let there = |id: &DriveId| match state.drives.get(id) {
                Some(Entry { status: Status::There(server), left, .. }) => Some((*id, *server, Standing::of(*left))),
                _ => None,
            };
            (group, drives.iter().filter_map(there).collect::<Vec<_>>())
        };
        for (id, server, standing) in hearing {
            group.start_hearing(id, server, standing);
        }
        group.start_recovery();
        group.start_taking_over();
    }
}

impl<W: World> State<W> {
    /// Whether this server's own drives among these are as agreed. A drive that isn't open yet, or that left later,
    /// shows that the state is what an earlier run of this server knew: with that state's word about others the drive
    /// would be believed, though the others know better. A drive that others have gone on without leaves here first:
    /// until then it would be taken for a drive that has everything.
    fn has_own_as_agreed(&self, (me, now): (ServerId, &ClusterView), drives: &[DriveId]) -> bool {
        let own = drives.iter().filter_map(|id| Some((id, now.drives.get(id).filter(|agreed| agreed.server == me)?)));
        own.into_iter().all(|(id, agreed)| {
            let Some(Entry { status, left, .. }) = self.drives.get(id) else { return false };
            let has_left_here = matches!(status, Status::Missing | Status::Failed);
            let has_left = matches!(agreed.status, DriveStatus::Away(_) | DriveStatus::Retired(_));
            *left <= Some(now.view) && (has_left_here || !has_left)
        })
    }
}
