//! Copies that move from drive to drive, a column at a time, and drives that are to be emptied.

use super::Draft;
use super::drives::REMOVED;
use crate::command::Reply;
use crate::record::{ColumnRecord, DriveRecord, DriveState, DriveUse, HolderRecord, JoinRecord, ServerRecord};
use crate::refusal::Refusal;
use tepal_model::layout::FailureDomain;
use tepal_model::{DriveId, MapId, ServerId};

impl Draft {
    pub(super) fn begin_move(&mut self, map: MapId, column: u32, from: DriveId, to: DriveId) -> Result<Reply, Refusal> {
        let mut record = self.column(map, column)?;
        let (giver, taker) = (self.drive(from)?, self.drive(to)?);
        if !record.is_held_by(from) {
            return Err(Refusal::NotHolder { map, column, drive: from });
        }
        if record.is_held_by(to) {
            return Err(Refusal::HolderAlready { map, column, drive: to });
        }
        if let Some(join) = record.joining {
            return Err(Refusal::ColumnMoves { map, column, to: join.to });
        }
        if taker.state != DriveState::Up {
            return Err(Refusal::DriveNotUp { id: to, state: taker.state });
        }
        if taker.purpose == DriveUse::Draining || self.server_of(&taker).is_some_and(|server| server.draining) {
            return Err(Refusal::DriveDraining(to));
        }
        let stay = record.holders.iter().map(|holder| holder.drive).filter(|drive| *drive != from);
        if let Some(with) = stay.into_iter().find(|drive| self.share_domain(map, to, *drive)) {
            return Err(Refusal::SharesDomain { to, with });
        }
        let is_first = !self.state.maps.values().any(|map| map.uses(to));
        let since = self.next_view();
        record.joining = Some(JoinRecord { to, from, since });
        self.put_column(map, column, record);
        if is_first {
            let place = if giver.state == DriveState::Failed { "in place of" } else { "from" };
            self.event("drive", &to.to_string(), format!("begins to take copies, first {place} drive {from}"));
        }
        Ok(Reply::Done)
    }

    pub(super) fn finish_move(
        &mut self,
        map: MapId,
        column: u32,
        (to, since): (DriveId, u64),
        view: u64,
    ) -> Result<Reply, Refusal> {
        let mut record = self.column(map, column)?;
        let join = joining(map, column, &record, (to, since))?;
        if self.state.view() != view {
            return Err(Refusal::ViewChanged { view: self.state.view() });
        }
        let taker = self.drive(to)?;
        if taker.state != DriveState::Up {
            return Err(Refusal::DriveNotUp { id: to, state: taker.state });
        }
        let since = self.next_view();
        let place = record.holders.iter_mut().find(|holder| holder.drive == join.from);
        *place.expect("who is replaced is a holder until then") = HolderRecord::complete(to, since);
        record.joining = None;
        self.put_column(map, column, record);
        if !self.state.maps.values().any(|map| map.uses(join.from)) {
            let text = format!("is empty: its last copy is on drive {to} now");
            self.event("drive", &join.from.to_string(), text);
        }
        self.forget_removed_drives();
        Ok(Reply::Done)
    }

    pub(super) fn cancel_move(&mut self, map: MapId, column: u32, join: (DriveId, u64)) -> Result<Reply, Refusal> {
        let mut record = self.column(map, column)?;
        joining(map, column, &record, join)?;
        self.next_view();
        record.joining = None;
        self.put_column(map, column, record);
        Ok(Reply::Done)
    }

    /// A drive that is lost joins nothing any more. The caller begins a new view.
    pub(super) fn cancel_joins_of(&mut self, drive: DriveId) {
        let joins = |column: &ColumnRecord| column.joining.is_some_and(|join| join.to == drive);
        let maps = self.state.maps.values();
        let found: Vec<(MapId, u32)> = maps
            .flat_map(|map| {
                (0..).zip(&map.columns).filter(|(_, record)| joins(record)).map(|(column, _)| (map.id, column))
            })
            .collect();
        for (map, column) in found {
            let mut record = self.column(map, column).expect("it was just found");
            record.joining = None;
            self.put_column(map, column, record);
        }
    }

    pub(super) fn set_drive_use(&mut self, id: DriveId, to: DriveUse) -> Result<Reply, Refusal> {
        let drive = self.drive(id)?;
        if drive.purpose == to {
            return Ok(Reply::Done);
        }
        if drive.purpose == DriveUse::Removed || to == DriveUse::Removed {
            return Err(Refusal::DriveNotUp { id, state: drive.state });
        }
        if to == DriveUse::Draining {
            self.check_not_kept_by_quorum(id)?;
        }
        let text = match to {
            DriveUse::Active => "is in use: it holds its share",
            DriveUse::Draining => "is to be emptied: what it holds goes to others",
            DriveUse::Spare => "is a spare: it holds nothing until another drive has to be replaced",
            DriveUse::Removed => REMOVED,
        };
        self.put_drive(DriveRecord { purpose: to, ..drive });
        self.event("drive", &id.to_string(), text.to_owned());
        Ok(Reply::Done)
    }

    pub(super) fn set_server_draining(&mut self, id: ServerId, draining: bool) -> Result<Reply, Refusal> {
        let server = self.server(id)?;
        if server.draining == draining {
            return Ok(Reply::Done);
        }
        let drives = self.state.drives.values().filter(|drive| draining && drive.server == id);
        drives.map(|drive| drive.id).try_for_each(|drive| self.check_not_kept_by_quorum(drive))?;
        let text = match draining {
            true => "is to be emptied: what its drives hold goes to those of other servers",
            false => "is in use: its drives hold their share",
        };
        self.put_server(ServerRecord { draining, ..server });
        self.event("server", &id.to_string(), text.to_owned());
        Ok(Reply::Done)
    }

    pub(super) fn column(&self, map: MapId, column: u32) -> Result<ColumnRecord, Refusal> {
        let found = self.state.maps.get(&map).ok_or(Refusal::NoMap(map))?;
        found.columns.get(column as usize).cloned().ok_or(Refusal::NoColumn { map, column })
    }

    /// Whether two drives are, as they are now, in one of the domains that the map's copies are kept apart in. Servers that say no
    /// site are at one of their own.
    fn share_domain(&self, map: MapId, one: DriveId, other: DriveId) -> bool {
        let server = |id: DriveId| self.state.drives.get(&id).and_then(|drive| self.server_of(drive));
        let (Some(first), Some(second)) = (server(one), server(other)) else { return one == other };
        match self.state.maps.get(&map).and_then(|map| map.layout.domain) {
            Some(FailureDomain::Site) => first.id == second.id || (first.site.is_some() && first.site == second.site),
            Some(FailureDomain::Server) => first.id == second.id,
            Some(FailureDomain::Drive) | None => one == other,
        }
    }

    fn server_of(&self, drive: &DriveRecord) -> Option<&ServerRecord> {
        self.state.servers.get(&drive.server).map(|server| &**server)
    }
}

/// The move by which a drive gets a copy of a column, since that view.
fn joining(map: MapId, column: u32, record: &ColumnRecord, (to, since): (DriveId, u64)) -> Result<JoinRecord, Refusal> {
    record.joining.filter(|join| (join.to, join.since) == (to, since)).ok_or(Refusal::NoMove { map, column, to })
}
