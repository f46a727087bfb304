//! Which copies of a column are complete: nothing is acknowledged or settled without one of them before it has left this set (decision
//! 0004).
//!
//! A copy leaves the set by [`Command::CountCopies`](crate::command::Command::CountCopies), which the column's primary asks for before it
//! acknowledges, or settles, anything without that copy. It's in the set again when its drive is up: by then the drive has noted what
//! it misses.

use super::Draft;
use crate::command::{CODES_GIVEN_UP, COPIES_COUNTED, ColumnCopies, Reply};
use crate::record::{ColumnRecord, CopyStatus, DriveState, HolderRecord, MapRecord};
use crate::refusal::Refusal;
use std::cmp::Reverse;
use std::collections::BTreeSet;
use tepal_model::{DriveId, MapId, VolumeId};

impl Draft {
    pub(super) fn count_copies(&mut self, changes: &[ColumnCopies], view: u64) -> Result<Reply, Refusal> {
        // A server that is alone names no view.
        if view != 0 && self.state.view() != view {
            return Err(Refusal::ViewChanged { view: self.state.view() });
        }
        let before = self.changes.len();
        for ColumnCopies { map, column, passed, complete } in changes {
            let mut record = self.column(*map, *column)?;
            let now = CopyStatus::PassedOver(self.state.view());
            for &drive in complete {
                holder(&mut record, *map, *column, drive)?.status = CopyStatus::Complete;
            }
            for &drive in passed {
                if self.drive(drive)?.state == DriveState::Up {
                    return Err(Refusal::ViewChanged { view: self.state.view() });
                }
                let holder = holder(&mut record, *map, *column, drive)?;
                if holder.status.is_complete() {
                    holder.status = now;
                }
            }
            let needed = self.state.maps.get(map).map_or(1, |record| usize::from(record.layout.fragments().data));
            let complete = || record.holders.iter().filter(|holder| holder.status.is_complete()).count();
            // What has too few already may only get more.
            if complete() == 0 || (!passed.is_empty() && complete() < needed) {
                return Err(Refusal::LastCompleteCopy { map: *map, column: *column });
            }
            self.put_column_if_changed(*map, *column, record);
        }
        // A state in which it's agreed is another one: drives keep it, and a rebuild tells it from the one before.
        if self.changes.len() > before {
            let passed: BTreeSet<DriveId> = changes.iter().flat_map(|change| change.passed.iter().copied()).collect();
            let named =
                |drives: &BTreeSet<DriveId>| drives.iter().map(DriveId::to_string).collect::<Vec<_>>().join(", ");
            let (subject, text) = match passed.first() {
                Some(first) => {
                    (first.to_string(), format!("{} parts of volumes go on without: {}", changes.len(), named(&passed)))
                }
                None => ("copies".to_owned(), format!("{} parts of volumes have complete copies again", changes.len())),
            };
            self.event("drive", &subject, text);
        }
        Ok(Reply::Done)
    }

    /// One of the copies that are left counts as complete, where those that were have failed: whatever the others have besides, that one is
    /// right. And regions that only failed drives had are what that copy has. Regions of which too few fragments are left are given up.
    /// Of a volume that is used while it's imported, what is lost is copied once more.
    pub(super) fn accept_loss(&mut self, volume: VolumeId, shown_in: u64) -> Result<Reply, Refusal> {
        if shown_in != 0 && self.state.view() != shown_in {
            return Err(Refusal::ViewChanged { view: self.state.view() });
        }
        let record = self.state.volumes.get(&volume).cloned().ok_or(Refusal::NoVolumeId(volume))?;
        let view = self.state.view() + 1;
        let maps: Vec<MapId> = self.state.maps_of(&record).map(|map| map.id).collect();
        let mut given_up = 0;
        // Servers of before don't know what to do with fragments that are given up, and gateways go by no such word.
        let is_served_by_it = |map: &MapRecord| {
            map.layout.quorum().is_none() && (self.version >= CODES_GIVEN_UP || map.layout.fragments().are_copies())
        };
        let maps: Vec<MapId> =
            maps.into_iter().filter(|map| self.state.maps.get(map).is_some_and(|map| is_served_by_it(map))).collect();
        for (map, column, mut column_record) in self.columns_where(|map, _| maps.contains(&map)) {
            let has_failed = |holder: &HolderRecord| self.has_failed(holder.drive);
            for holder in column_record.holders.iter_mut().filter(|holder| has_failed(holder)) {
                holder.status = CopyStatus::GivenUp(view);
                given_up += 1;
            }
            let left = || column_record.holders.iter().filter(|holder| !has_failed(holder));
            let passed = |holder: &HolderRecord| match holder.status {
                CopyStatus::PassedOver(view) => view,
                CopyStatus::Complete | CopyStatus::GivenUp(_) => 0,
            };
            if !left().any(|holder| holder.status.is_complete()) {
                // A drive that takes writes has what was written since it returned, whenever it was passed over.
                let takes_writes =
                    |holder: &HolderRecord| self.drive(holder.drive).is_ok_and(|drive| drive.state.takes_writes());
                let newest = left().max_by_key(|holder| (takes_writes(holder), passed(holder), Reverse(holder.drive)));
                let newest = newest.map(|holder| holder.drive);
                for holder in column_record.holders.iter_mut().filter(|holder| Some(holder.drive) == newest) {
                    holder.status = CopyStatus::Complete;
                }
            }
            self.put_column_if_changed(map, column, column_record);
        }
        if given_up == 0 {
            return Err(Refusal::NothingLost { name: record.name.clone() });
        }
        self.copy_anew(&record);
        self.next_view();
        let text = "what is left of it is served as it is, by the operator's word: it may miss what was acknowledged";
        self.event("volume", &record.name, text.to_owned());
        Ok(Reply::Done)
    }

    /// The drive is up: it has noted what it misses, wherever a drive with everything could tell it.
    pub(super) fn complete_copies_of(&mut self, drive: DriveId) {
        let waits = |record: &ColumnRecord| {
            record.holders.iter().any(|holder| holder.drive == drive && !holder.status.is_complete())
        };
        for (map, column, mut record) in self.columns_where(|_, record| waits(record)) {
            let tells = |holder: &HolderRecord| holder.status.is_complete() && !self.has_failed(holder.drive);
            if record.holders.iter().any(tells) {
                let own = record.holders.iter_mut().filter(|holder| holder.drive == drive);
                own.for_each(|holder| holder.status = CopyStatus::Complete);
                self.put_column(map, column, record);
            }
        }
    }

    /// A proposal of an earlier build: servers of that build went on without a drive as soon as it was agreed that it's away.
    pub(super) fn pass_over_as_before(&mut self, gone: &[DriveId], view: u64) {
        if self.version >= COPIES_COUNTED {
            return;
        }
        let is_gone = |holder: &HolderRecord| gone.contains(&holder.drive) && holder.status.is_complete();
        for (map, column, mut record) in self.columns_where(|_, record| record.holders.iter().any(is_gone)) {
            let is_up = |drive: DriveId| self.state.drives.get(&drive).is_some_and(|it| it.state == DriveState::Up);
            if record.holders.iter().any(|holder| is_up(holder.drive)) {
                let gone = record.holders.iter_mut().filter(|holder| is_gone(holder));
                gone.for_each(|holder| holder.status = CopyStatus::PassedOver(view));
                self.put_column(map, column, record);
            }
        }
    }

    /// A drive that a rebuild didn't find, and so took for the one that went on last, is removed before it has come: the copies that were
    /// found are believed, unless another such drive may still come.
    pub(super) fn believe_those_found(&mut self, never_came: DriveId, before_view: u64) {
        let passed = CopyStatus::PassedOver(before_view);
        for (map, column, mut record) in self.columns_where(|_, record| record.is_held_by(never_came)) {
            let own = record.holders.iter_mut().filter(|holder| holder.drive == never_came);
            own.for_each(|holder| holder.status = passed);
            if !record.holders.iter().any(|holder| holder.status.is_complete()) {
                let found = record.holders.iter_mut();
                let found = found.filter(|holder| holder.drive != never_came && holder.status == passed);
                found.for_each(|holder| holder.status = CopyStatus::Complete);
            }
            self.put_column_if_changed(map, column, record);
        }
    }

    fn has_failed(&self, drive: DriveId) -> bool {
        self.state.drives.get(&drive).is_none_or(|record| record.state == DriveState::Failed)
    }

    fn columns_where(&self, is_meant: impl Fn(MapId, &ColumnRecord) -> bool) -> Vec<(MapId, u32, ColumnRecord)> {
        let columns = |map: &MapRecord| {
            let id = map.id;
            let meant = (0..).zip(&map.columns).filter(|(_, record)| is_meant(id, record));
            meant.map(|(column, record)| (id, column, record.clone())).collect::<Vec<_>>()
        };
        self.state.maps.values().flat_map(|map| columns(map)).collect()
    }

    fn put_column_if_changed(&mut self, map: MapId, column: u32, record: ColumnRecord) {
        if self.column(map, column).is_ok_and(|now| now != record) {
            self.put_column(map, column, record);
        }
    }
}

fn holder(record: &mut ColumnRecord, map: MapId, column: u32, drive: DriveId) -> Result<&mut HolderRecord, Refusal> {
    let found = record.holders.iter_mut().find(|holder| holder.drive == drive);
    found.ok_or(Refusal::NotHolder { map, column, drive })
}
