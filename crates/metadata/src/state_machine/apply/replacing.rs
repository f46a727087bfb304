//! Another drive in place of one that layouts name: of volumes of plexes (N1, N5 of Vinum: hot spares).
//!
//! The layouts change at once, and the columns' holders one by one: whoever leads the metadata has each column moved from a holder that its
//! layout doesn't name any more to the drive that it names. How extents go round columns depends on no drive.

use super::Draft;
use crate::command::Reply;
use crate::record::{DriveRecord, DriveState, DriveUse, MapRecord, VolumeRecord};
use crate::refusal::Refusal;
use std::sync::Arc;
use tepal_model::layout::plexes::{Plexes, Subdisk};
use tepal_model::layout::{Layout, Protection};
use tepal_model::{DriveId, MapId};

impl Draft {
    pub(super) fn replace_drive(&mut self, from: DriveId, to: DriveId) -> Result<Reply, Refusal> {
        let taker = self.drive(to)?;
        self.drive(from)?;
        if taker.state != DriveState::Up {
            return Err(Refusal::DriveNotUp { id: to, state: taker.state });
        }
        if matches!(taker.purpose, DriveUse::Draining | DriveUse::Removed) {
            return Err(Refusal::DriveDraining(to));
        }
        let names_it = |map: &&Arc<MapRecord>| map.layout.names(from);
        let maps: Vec<Arc<MapRecord>> = self.state.maps.values().filter(names_it).cloned().collect();
        if maps.is_empty() {
            return Err(Refusal::NotNamed(from));
        }
        let mut layouts: Vec<(MapId, Layout)> = Vec::with_capacity(maps.len());
        for map in &maps {
            let layout = self.replaced(map, from, (&taker, &layouts))?;
            layouts.push((map.id, layout));
        }
        self.next_view();
        for (map, layout) in maps.iter().zip(layouts.into_iter().map(|(_, layout)| layout)) {
            let volumes: Vec<VolumeRecord> = self
                .state
                .volumes
                .values()
                .filter(|volume| volume.map == map.id)
                .map(|it| VolumeRecord::clone(it))
                .collect();
            for volume in volumes {
                // As it was asked for: its failure domain may not have been said.
                let domain = volume.layout.domain;
                let text = format!("has drive {to} in place of {from} from now on");
                self.event("volume", &volume.name, text);
                self.revise(VolumeRecord { layout: Layout { domain, ..layout.clone() }, ..volume });
            }
            self.put_map(MapRecord { layout, ..MapRecord::clone(map) });
        }
        if taker.purpose == DriveUse::Spare {
            self.put_drive(DriveRecord { purpose: DriveUse::Active, ..taker });
            self.event("drive", &to.to_string(), format!("is in use in place of drive {from}"));
        }
        Ok(Reply::Done)
    }

    /// A map's layout with the other drive. Subdisks stay at their places there, or get the first that are free: of this and other
    /// layouts, and of those that change with it.
    fn replaced(
        &self,
        map: &MapRecord,
        from: DriveId,
        (taker, changed): (&DriveRecord, &[(MapId, Layout)]),
    ) -> Result<Layout, Refusal> {
        let volume = self.state.volumes.values().find(|volume| volume.map == map.id || volume.id == map.volume);
        let volume = volume.map_or_else(|| format!("of map {}", map.id.0), |volume| volume.name.clone());
        let refused = |why: String| {
            let (from, to, volume) = (from, taker.id, volume.clone());
            Refusal::NoReplacement { from, to, volume, why }
        };
        if self.state.migration_about(map.id).is_some() {
            return Err(Refusal::LayoutUnderWay { volume });
        }
        if self.state.drives.get(&from).is_some_and(|giver| giver.pool != taker.pool) {
            return Err(refused(format!("it's in pool {}", taker.pool)));
        }
        if map.layout.names(taker.id) || map.uses(taker.id) {
            return Err(refused("it has a part of the volume already".to_owned()));
        }
        let plexes = map.layout.plexes().ok_or(Refusal::NotNamed(from))?;
        let others = self.state.maps.values().filter(|other| !changed.iter().any(|(id, _)| *id == other.id));
        let layouts = others.map(|other| &other.layout).chain(changed.iter().map(|(_, layout)| layout));
        let on_taker =
            layouts.filter_map(Layout::plexes).flat_map(Plexes::subdisks).filter(|disk| disk.drive == taker.id);
        let mut taken: Vec<(u64, u64)> = on_taker.map(|disk| (disk.drive_offset, disk.end())).collect();
        let mut all = plexes.plexes().to_vec();
        for disk in all.iter_mut().flat_map(|plex| &mut plex.subdisks).filter(|disk| disk.drive == from) {
            let Some(drive_offset) = place(&mut taken, disk, taker.capacity) else {
                return Err(refused("it has no room for a subdisk where no other subdisk is".to_owned()));
            };
            (disk.drive, disk.drive_offset) = (taker.id, drive_offset);
        }
        let plexes = Plexes::new(all).map_err(|error| refused(error.to_string()))?;
        Ok(Layout { protection: Protection::Plexes(plexes.into()), ..map.layout.clone() })
    }
}

/// Where on a drive a subdisk comes to be: where it was on the other, else in the first gap that is as long.
fn place(taken: &mut Vec<(u64, u64)>, disk: &Subdisk, capacity: u64) -> Option<u64> {
    taken.sort_unstable();
    let is_free = |at: u64| {
        let end = at.checked_add(disk.length).filter(|end| *end <= capacity)?;
        taken.iter().all(|(first, past)| end <= *first || at >= *past).then_some((at, end))
    };
    let gaps = std::iter::once(0).chain(taken.iter().map(|(_, past)| *past));
    let found = std::iter::once(disk.drive_offset).chain(gaps).find_map(is_free)?;
    taken.push(found);
    Some(found.0)
}
