//! Columns whose copies move to other drives: what this server does when that is agreed.
//!
//! A drive that has no place in a column any more gives back what it holds of the column, when no server acts in an
//! earlier view any more. Before, a primary by an earlier state may still read there. Later the drive may have a place
//! again. So giving back is admitted like a request about the copy, one asker at a time, and is done by a server that
//! has a lease, which knows every state that others may act by.

use super::Engine;
use crate::map::Column;
use crate::servers::answer::CopyId;
use crate::servers::follow::ClusterView;
use crate::servers::seat::Seat;
use crate::volume::Map;
use std::collections::BTreeMap;
use std::time::Duration;
use tepal_drive::world::World;
use tepal_drive::{Drive, Mark};
use tepal_model::{DriveId, MapId};

/// How soon to look again whether there's a lease.
const AGAIN: Duration = Duration::from_millis(100);

impl<W: World> Engine<W> {
    /// After `before`, columns may have other places, also of volumes that this server has for itself: these are shared
    /// then. Space at the earlier places is given back. For a map that wasn't named before, all drives here are looked
    /// through.
    pub(crate) fn follow_places(&self, before: &ClusterView) {
        for map in self.maps() {
            let (earlier, now) = (before.places.get(&map.id()), map.places());
            // A map that goes isn't named any more.
            if earlier.is_none() && before.view > 0 && self.lock().places_of(map.id()).is_some() {
                self.start_giving_back_of(&map);
            }
            for (column, is) in now.columns.iter().enumerate() {
                let group = map.seats().get(column).and_then(Seat::group);
                let opened = group.map(|group| group.shared.placed.clone());
                let known = earlier.and_then(|earlier| earlier.columns.get(column)).cloned();
                let Some(was) = opened.or(known).filter(|was| was != is) else { continue };
                let gone: Vec<DriveId> = was.all().filter(|&id| !is.concerns(id)).collect();
                let (engine, map, id) = (self.clone(), map.clone(), map.id());
                self.world().spawn(Box::pin(async move {
                    // A server that has a volume for itself remembers no requests, and no client would retry any.
                    engine.share_map(&map).await;
                    for drive in gone {
                        engine.give_back(id, column, drive).await;
                    }
                }));
            }
        }
        if before.view == 0 {
            // Less may have been known when volumes were opened.
            self.drives_here().iter().for_each(|drive| self.start_giving_back(drive.id()));
        }
    }

    /// Gives back what a drive that is here holds and remembers of columns in which it has no place.
    pub(crate) fn start_giving_back(&self, id: DriveId) {
        if let Some(drive) = self.drive(id) {
            self.start_giving_back_on(drive, &self.maps());
        }
    }

    /// Gives back what the drives that are here hold of a map where they have no place. When the drives were looked
    /// through before, the map wasn't open yet, and others may have written to it there before this server knew of the
    /// map.
    pub(crate) fn start_giving_back_of(&self, map: &Map<W>) {
        self.drives_here().into_iter().for_each(|drive| self.start_giving_back_on(drive, std::slice::from_ref(map)));
    }

    fn start_giving_back_on(&self, drive: Drive<W>, maps: &[Map<W>]) {
        if !self.lock().complete {
            return;
        }
        let columns = |map: &Map<W>| (map.id(), (map.columns(), map.column(0)));
        let maps: BTreeMap<MapId, (usize, Column)> = maps.iter().map(columns).collect();
        let (engine, id) = (self.clone(), drive.id());
        self.world().spawn(Box::pin(async move {
            let of_column = |map: MapId| maps.get(&map).map(|(_, column)| column.places().1);
            let mut columns = drive.parts_held(of_column);
            let column_of = |mark: Mark| Some((mark.map, Column::number_of(mark.region, maps.get(&mark.map)?.0)));
            columns.extend(drive.marks().into_iter().filter_map(column_of));
            for (map, number) in columns {
                engine.give_back(map, number as usize, id).await;
                engine.world().give_way().await;
            }
        }));
    }

    /// Gives back what a drive holds of a column, unless the drive has a place there.
    async fn give_back(&self, id: MapId, number: usize, drive: DriveId) {
        let Some(map) = self.map(id) else { return };
        let copy = CopyId { drive, map: id, column: number };
        let has_place = || map.is_cut_off() || map.placed(number).concerns(drive);
        if has_place() {
            return;
        }
        // The state is looked up afterwards: the places that were looked at are of no later view. Once a state that
        // names the map is followed, this is called again.
        let view = match self.followed_state() {
            Some((_, now)) if now.places.contains_key(&id) => now.view,
            None if self.shared.is_alone => 0,
            Some(_) | None => return,
        };
        self.shared.authority.adopted(view).await;
        map.ended(number).await;
        loop {
            let Some((opened, opening)) = self.opened(drive) else { return };
            if !self.shared.askers.admit(copy, None, view, opening).await {
                return; // another asked in a later view, in which the drive has a place
            }
            let Some(under_way) = self.shared.askers.begin(copy, None, view, opening) else { return };
            if has_place() {
                return;
            }
            if self.shared.authority.may_serve() {
                let column = map.column(number);
                let (first, count) = column.places();
                self.shared.nodes.forget_part(drive, copy.map, number).await;
                if let Err(error) =
                    opened.remove_part(copy.map, first..first + count, |region| column.has(region)).await
                {
                    tracing::warn!(%drive, %error, "space of what was moved is given back when the drive is opened again");
                }
                return;
            }
            drop(under_way);
            self.world().sleep(AGAIN).await;
        }
    }
}
