//! Gaps in a map's history that are closed: what of it nobody sees, and no drive has, needn't be known any more.
//!
//! A volume that is rolled back leaves out the epochs since its snapshot, and a clone those of its origin. While others see them, they're
//! to be kept apart. Else they go: first drives give back what they have of them, then the gap is closed, and a lineage has
//! one span where it had two. So it has no more of them than there are others who go on from the same.
//!
//! Invariants:
//! 1. A gap is closed only when no drive that has a copy of the map, or gets one, has anything of it or ever will. Of drives that take
//!    writes that is asked; one that is away has nothing of epochs that were handed out since it left, of which numbers tell.
//! 2. Who sees what doesn't change.

use super::Draft;
use super::snapshots::as_read;
use crate::command::Reply;
use crate::record::{MapRecord, SnapshotRecord, VolumeRecord};
use crate::refusal::Refusal;
use crate::state::State;
use std::collections::BTreeSet;
use std::sync::Arc;
use tepal_model::history::{Span, gaps};
use tepal_model::{DriveId, Lineage, MapId};

impl State {
    /// The gaps of a map's history that are closed once no drive that takes writes has anything of them. While volumes go to or from the
    /// map, or have several ranges, there are none.
    pub fn gaps_to_close(&self, map: MapId) -> Vec<Span> {
        let is_alone = |map: &&Arc<MapRecord>| {
            self.migration_about(map.id).is_none() && self.volumes_of(map.id).all(|volume| volume.ranges.is_none())
        };
        let Some(map) = self.maps.get(&map).filter(is_alone) else { return Vec::new() };
        let away = self.left_last(map);
        self.gaps_of(map.id).into_iter().filter(|gap| u64::from(gap.0) > away).collect()
    }

    /// Whether gaps of a map's history wait for something, and will be closed then; and the drives that are away which some wait for.
    pub fn gaps_wait(&self, map: MapId) -> (bool, Vec<DriveId>) {
        let gaps = self.gaps_of(map);
        let Some(record) = self.maps.get(&map) else { return (false, Vec::new()) };
        let holds_up = |drive: &DriveId| {
            let left = self.left(*drive).unwrap_or(0);
            gaps.iter().any(|gap| u64::from(gap.0) <= left)
        };
        let drives: BTreeSet<DriveId> = drives_of(record).filter(holds_up).collect();
        (!gaps.is_empty(), drives.into_iter().collect())
    }

    fn gaps_of(&self, map: MapId) -> Vec<Span> {
        let lineages: Vec<&Lineage> = self.lineages_of(map).collect();
        if lineages.iter().all(|lineage| lineage.spans().len() == 1) { Vec::new() } else { gaps(lineages) }
    }

    fn lineages_of(&self, map: MapId) -> impl Iterator<Item = &Lineage> {
        self.readers_of(map)
            .flat_map(|volume| self.snapshots_of(volume.id).map(|snapshot| &snapshot.lineage).chain([&volume.lineage]))
    }

    /// The view in which a drive left; `None` if it takes writes. Nothing that was agreed later was written to it.
    fn left(&self, drive: DriveId) -> Option<u64> {
        self.drives.get(&drive).filter(|record| !record.state.takes_writes()).map(|record| record.state_view)
    }

    /// The view in which the last of a map's drives left that are away; 0 if all take writes.
    fn left_last(&self, map: &MapRecord) -> u64 {
        drives_of(map).filter_map(|drive| self.left(drive)).max().unwrap_or(0)
    }

    /// Whether one of a map's drives is away.
    pub(super) fn has_drives_away(&self, map: MapId) -> bool {
        self.maps.get(&map).is_some_and(|map| drives_of(map).any(|drive| self.left(drive).is_some()))
    }
}

/// Those that have a copy of a column, or get one; some more than once.
fn drives_of(map: &MapRecord) -> impl Iterator<Item = DriveId> {
    map.columns
        .iter()
        .flat_map(|column| column.holders.iter().map(|holder| holder.drive).chain(column.joining.map(|join| join.to)))
}

impl Draft {
    /// Of these gaps no drive has anything that took writes in that view.
    pub(super) fn close_gaps(&mut self, map: MapId, closed: &[Span], view: u64) -> Result<Reply, Refusal> {
        let record = self.state.maps.get(&map).cloned().ok_or(Refusal::NoMap(map))?;
        let came = record.columns.iter().flat_map(|column| {
            column.holders.iter().map(|holder| holder.since).chain(column.joining.map(|join| join.since))
        });
        let changed = drives_of(&record).filter_map(|drive| self.state.drives.get(&drive)).map(|it| it.state_view);
        let is_known = came.chain(changed).all(|since| since <= view);
        let open = self.state.gaps_to_close(map);
        let mut closed = closed.to_vec();
        closed.sort_unstable();
        closed.retain(|gap| open.contains(gap));
        if !is_known || view > self.state.view() || closed.is_empty() {
            return Err(Refusal::ViewChanged { view: self.state.view() });
        }
        let volumes: Vec<Arc<VolumeRecord>> = self.state.readers_of(map).cloned().collect();
        for volume in volumes {
            let kept: Vec<Arc<SnapshotRecord>> = self.state.snapshots_of(volume.id).cloned().collect();
            for snapshot in kept {
                let lineage = as_read(&snapshot.lineage.closing(&closed));
                if lineage != snapshot.lineage {
                    self.put_snapshot(SnapshotRecord { lineage, ..SnapshotRecord::clone(&snapshot) });
                }
            }
            let lineage = as_read(&volume.lineage.closing(&closed));
            if lineage != volume.lineage {
                self.put_volume(VolumeRecord { lineage, ..VolumeRecord::clone(&volume) });
            }
        }
        self.next_view(); // drives may note things of what is closed when nobody acts in an earlier one
        Ok(Reply::Done)
    }
}
