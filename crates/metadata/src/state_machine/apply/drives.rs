//! Drives, and the pools that they are in.

use super::{Draft, check_name, clipped};
use crate::command::{NEVER_CAME, Reply};
use crate::record::{
    DriveRecord, DriveState, DriveUse, HolderRecord, MapRecord, PoolRecord, RebuildRecord, ServerState, VolumeState,
};
use crate::refusal::{Refusal, Thing};
use std::collections::BTreeSet;
use std::sync::Arc;
use tepal_model::size::Size;
use tepal_model::{DriveId, Layout, MapId, ServerId};

const MAX_PATH: usize = 4096;
pub(super) const REMOVED: &str = "removed by the operator";

impl Draft {
    pub(super) fn add_drive(
        &mut self,
        id: DriveId,
        server: ServerId,
        pool: &str,
        path: &str,
        capacity: u64,
        purpose: DriveUse,
    ) -> Result<Reply, Refusal> {
        check_path(path)?;
        if capacity == 0 || capacity > i64::MAX as u64 {
            return Err(Refusal::Capacity { capacity });
        }
        if !self.state.servers.contains_key(&server) {
            return Err(Refusal::NoServer(server));
        }
        if !self.state.pools.contains_key(pool) {
            return Err(Refusal::NoPool(clipped(pool, 140)));
        }
        if let Some(known) = self.state.drives.get(&id) {
            return Err(Refusal::DriveExists { id, server: known.server, path: known.path.clone() });
        }
        let state_view = self.next_view();
        self.put_drive(DriveRecord {
            id,
            server,
            pool: pool.to_owned(),
            path: path.to_owned(),
            capacity,
            state: DriveState::Up,
            reason: "added".to_owned(),
            state_view,
            missed_since: None,
            generation: 0,
            purpose,
            name: None,
        });
        let spare = if purpose == DriveUse::Spare { " as a spare" } else { "" };
        self.event("drive", &id.to_string(), format!("added to pool {pool}{spare}: server {server}, {path}"));
        Ok(Reply::Done)
    }

    /// Calls a drive something, or nothing besides its id any more.
    pub(super) fn name_drive(&mut self, id: DriveId, name: Option<&str>) -> Result<Reply, Refusal> {
        let drive = self.drive(id)?;
        if let Some(name) = name {
            check_name(Thing::Drive, name)?;
            let other = self.state.drive_named(name).filter(|other| other.id != id);
            if let Some(other) = other {
                return Err(Refusal::DriveNameTaken { name: name.to_owned(), id: other.id });
            }
        }
        if drive.name.as_deref() != name {
            let text = name.map_or_else(|| "is called by its id".to_owned(), |name| format!("is called {name}"));
            self.put_drive(DriveRecord { name: name.map(str::to_owned), ..drive });
            self.event("drive", &id.to_string(), text);
        }
        Ok(Reply::Done)
    }

    pub(super) fn drive_moved(
        &mut self,
        id: DriveId,
        server: ServerId,
        path: &str,
        generation: u64,
    ) -> Result<Reply, Refusal> {
        check_path(path)?;
        let mut drive = self.drive(id)?;
        if !self.state.servers.contains_key(&server) {
            return Err(Refusal::NoServer(server));
        }
        let (generation, newest) = (generation.min(i64::MAX as u64), drive.generation);
        let is_here = drive.server == server && drive.path == path;
        if is_here && (generation == newest || generation == 0) {
            return Ok(Reply::Done);
        }
        if generation != 0 && (generation < newest || (generation == newest && drive.server != server)) {
            return Err(Refusal::DriveOlder { id, generation, newest });
        }
        if drive.server != server {
            // Its server would go on writing to it, or this is a copy of it.
            if drive.state.takes_writes() {
                return Err(Refusal::DriveInUse { id, server: drive.server });
            }
            self.next_view();
        }
        if !is_here {
            self.event("drive", &id.to_string(), format!("found on server {server} at {path}"));
        }
        drive.generation = newest.max(generation);
        drive.server = server;
        drive.path = path.to_owned();
        self.put_drive(drive);
        Ok(Reply::Done)
    }

    pub(super) fn drive_grew(&mut self, id: DriveId, capacity: u64) -> Result<Reply, Refusal> {
        let mut drive = self.drive(id)?;
        if capacity > i64::MAX as u64 {
            return Err(Refusal::Capacity { capacity });
        }
        if capacity > drive.capacity {
            let (before, now) = (Size(drive.capacity), Size(capacity));
            drive.capacity = capacity;
            self.put_drive(drive);
            self.event("drive", &id.to_string(), format!("has grown from {before} to {now}"));
        }
        Ok(Reply::Done)
    }

    pub(super) fn set_drive_state(
        &mut self,
        id: DriveId,
        to: DriveState,
        reason: &str,
        expected_view: Option<u64>,
    ) -> Result<Reply, Refusal> {
        let drive = self.drive(id)?;
        if expected_view.is_some_and(|view| view != drive.state_view) {
            return Err(Refusal::DriveChanged { id, state: drive.state, state_view: drive.state_view });
        }
        if !drive.state.may_become().contains(&to) {
            return Err(Refusal::Transition { id, from: drive.state, to });
        }
        if to == DriveState::Up && expected_view.is_none() {
            return Err(Refusal::ViewNeeded { id });
        }
        let view = self.next_view();
        self.change_drive_state(drive, to, reason, view);
        if !to.takes_writes() {
            self.pass_over_as_before(&[id], view);
        }
        Ok(Reply::Done)
    }

    pub(super) fn drive_is_up(&mut self, id: DriveId, reason: &str, view: u64) -> Result<Reply, Refusal> {
        let drive = self.drive(id)?;
        if self.state.view() != view {
            return Err(Refusal::ViewChanged { view: self.state.view() });
        }
        self.set_drive_state(id, DriveState::Up, reason, Some(drive.state_view))
    }

    /// All of them at once: whoever leads something along with the other server has a drive that's up then, and the other leads
    /// nothing of that any more, so it has no reason to complain in turn.
    pub(super) fn server_cut_off(
        &mut self,
        id: ServerId,
        by: ServerId,
        reason: &str,
        view: u64,
    ) -> Result<Reply, Refusal> {
        if self.state.view() != view {
            return Err(Refusal::ViewChanged { view: self.state.view() });
        }
        for server in [id, by] {
            let record = self.state.servers.get(&server).ok_or(Refusal::NoServer(server))?;
            if record.state != ServerState::Up {
                return Err(Refusal::ServerAlready { id: server, state: record.state });
            }
        }
        let shared = self.drives_along_with(id, by);
        let drives = self.state.drives_of_server(id).filter(|drive| drive.state.takes_writes());
        let drives = drives.filter(|drive| shared.contains(&drive.id));
        let drives: Vec<DriveRecord> = drives.map(|drive| DriveRecord::clone(drive)).collect();
        if !drives.is_empty() {
            let view = self.next_view();
            self.lose_drives(drives, reason, view);
        }
        Ok(Reply::Done)
    }

    /// Those of a server that have copies, or get some, of the same columns as drives of another, or of what volumes leave for
    /// those.
    fn drives_along_with(&self, server: ServerId, other: ServerId) -> BTreeSet<DriveId> {
        let mut shared = BTreeSet::new();
        let is_of =
            |id: &DriveId, whose: ServerId| self.state.drives.get(id).is_some_and(|drive| drive.server == whose);
        for map in self.state.maps.values() {
            for column in map.columns.iter().filter(|column| column.users().any(|id| is_of(&id, other))) {
                shared.extend(column.users().filter(|id| is_of(id, server)));
            }
        }
        // What volumes leave is asked of whoever leads it: a server that has another copy can.
        for migration in self.state.migrations.values() {
            let columns = |map: MapId| self.state.maps.get(&map).into_iter().flat_map(|map| &map.columns);
            if columns(migration.target).any(|column| column.users().any(|id| is_of(&id, other))) {
                let left = columns(migration.source).filter(|column| column.holders.len() > 1);
                shared.extend(left.flat_map(|column| column.users()).filter(|id| is_of(id, server)));
            }
        }
        shared
    }

    /// In the view `view`, the drives of `server` that took writes don't any more.
    pub(super) fn lose_drives_of(&mut self, server: ServerId, reason: &str, view: u64) {
        let drives = self.state.drives_of_server(server).filter(|drive| drive.state.takes_writes());
        let drives = drives.map(|drive| DriveRecord::clone(drive)).collect();
        self.lose_drives(drives, reason, view);
    }

    fn lose_drives(&mut self, drives: Vec<DriveRecord>, reason: &str, view: u64) {
        let ids: Vec<DriveId> = drives.iter().map(|drive| drive.id).collect();
        for drive in drives {
            self.change_drive_state(drive, DriveState::Missing, reason, view);
        }
        self.pass_over_as_before(&ids, view);
    }

    fn change_drive_state(&mut self, mut drive: DriveRecord, to: DriveState, reason: &str, view: u64) {
        let (name, from) = (drive.id.to_string(), drive.state);
        drive.missed_since = match to {
            DriveState::Up => None,
            _ => drive.missed_since.or(Some(view)),
        };
        drive.state = to;
        drive.state_view = view;
        drive.reason = clipped(reason, 800);
        self.event("drive", &name, format!("{from} -> {to}: {}", drive.reason));
        if to == DriveState::Failed {
            self.cancel_joins_of(drive.id);
        }
        let id = drive.id;
        self.put_drive(drive);
        if to == DriveState::Up {
            self.complete_copies_of(id);
        }
    }

    pub(super) fn remove_drive(&mut self, id: DriveId, force: bool) -> Result<Reply, Refusal> {
        let drive = self.drive(id)?;
        let endangered = self.volumes_endangered_by_loss_of(&drive);
        if !endangered.is_empty() && !force {
            return Err(Refusal::LastCopy { id, volumes: endangered });
        }
        if !endangered.is_empty() {
            let text = format!("removed by force, with perhaps the last copy of data of {}", endangered.join(", "));
            self.event("drive", &id.to_string(), text);
        }
        self.cancel_joins_of(id);
        let volumes: BTreeSet<String> = self.state.volumes_on(id).map(|volume| volume.name.clone()).collect();
        if volumes.is_empty() {
            self.drop_drive(id);
            self.next_view();
            self.event("drive", &id.to_string(), REMOVED.to_owned());
            return Ok(Reply::Done);
        }
        // One that is to be emptied has been replaced, or is not to be.
        let is_replaced = drive.purpose == DriveUse::Active && self.state.may_be_replaced(id);
        let spare = self.state.spare_for(&drive, &BTreeSet::new()).filter(|_| is_replaced);
        if let Some(spare) = spare {
            self.set_drive_use(spare, DriveUse::Active)?;
        }
        let never_came = self.never_came(&drive);
        let missed_since = match never_came {
            Some(before_view) => drive.missed_since.map(|left| left.min(before_view)),
            None => drive.missed_since,
        };
        let drive = DriveRecord { purpose: DriveUse::Removed, missed_since, ..drive };
        if drive.state == DriveState::Failed {
            self.put_drive(drive);
        } else {
            let view = self.next_view();
            self.change_drive_state(drive, DriveState::Failed, REMOVED, view);
            self.pass_over_as_before(&[id], view);
        }
        if let Some(before_view) = never_came {
            self.believe_those_found(id, before_view);
        }
        Ok(Reply::DriveRetired { volumes: volumes.into_iter().collect() })
    }

    /// A rebuild has a drive that it didn't find count as having been up last, as nobody knew what it did. Whoever removes it before
    /// it has come has the others believed. One that has come may have taken writes that no other has. The view in which the drives
    /// that were found count as having left.
    fn never_came(&self, drive: &DriveRecord) -> Option<u64> {
        let is_of_then =
            |rebuild: &&RebuildRecord| drive.state == DriveState::Missing && drive.state_view == rebuild.before_view;
        let rebuild = self.state.rebuilds.iter().find(is_of_then).filter(|_| self.version >= NEVER_CAME);
        rebuild.map(|rebuild| rebuild.before_view)
    }

    /// Drives that were removed and of which others have everything by now.
    pub(super) fn forget_removed_drives(&mut self) {
        let is_removed = |drive: &&Arc<DriveRecord>| drive.purpose == DriveUse::Removed;
        let is_unused = |id: &DriveId| !self.state.maps.values().any(|map| map.uses(*id));
        let removed = self.state.drives.values().filter(is_removed).map(|drive| drive.id);
        let unused: Vec<DriveId> = removed.filter(is_unused).collect();
        for id in unused {
            self.drop_drive(id);
            self.next_view();
            self.event("drive", &id.to_string(), "is forgotten: others have what it held".to_owned());
        }
    }

    /// The active volumes, by name, of which an extent may have its last good copy on `drive`: those with a column that has no other
    /// complete copy on a drive that is up.
    fn volumes_endangered_by_loss_of(&self, drive: &DriveRecord) -> Vec<String> {
        if drive.state == DriveState::Failed {
            return Vec::new();
        }
        let stays = |id: DriveId| {
            id != drive.id && self.state.drives.get(&id).is_some_and(|other| other.state == DriveState::Up)
        };
        let at_risk = |map: &MapRecord| {
            let mut held = map.columns.iter().filter(|column| column.is_held_by(drive.id));
            let stays = |holder: &HolderRecord| holder.status.is_complete() && stays(holder.drive);
            let quorum = map.layout.quorum().map(|quorum| quorum.thresholds().answers);
            let needed = usize::from(quorum.unwrap_or(map.layout.fragments().data));
            held.any(|column| column.holders.iter().filter(|holder| stays(holder)).count() < needed)
        };
        let mut names = BTreeSet::new();
        for volume in self.state.volumes_on(drive.id).filter(|volume| volume.state == VolumeState::Active) {
            if self.state.maps_of(volume).any(|map| at_risk(map)) {
                names.insert(volume.name.clone());
            }
        }
        names.into_iter().collect()
    }

    pub(super) fn create_pool(&mut self, name: &str, layout: Option<&str>) -> Result<Reply, Refusal> {
        check_name(Thing::Pool, name)?;
        if self.state.pools.contains_key(name) {
            return Err(Refusal::PoolExists(name.to_owned()));
        }
        let layout = layout.map(parse_layout).transpose()?;
        self.put_pool(PoolRecord { name: name.to_owned(), layout });
        self.event("pool", name, "created".to_owned());
        Ok(Reply::Done)
    }

    pub(super) fn remove_pool(&mut self, name: &str) -> Result<Reply, Refusal> {
        if !self.state.pools.contains_key(name) {
            return Err(Refusal::NoPool(clipped(name, 140)));
        }
        let drives = self.state.drives_of_pool(name).count();
        let volumes = self.state.volumes.values().filter(|volume| volume.pool == name).count();
        if drives + volumes > 0 {
            return Err(Refusal::PoolInUse { name: name.to_owned(), drives, volumes });
        }
        self.drop_pool(name);
        self.drop_schedules_of_pool(name);
        self.drop_realm_of_pool(name);
        self.event("pool", name, "removed".to_owned());
        Ok(Reply::Done)
    }

    pub(super) fn drive(&self, id: DriveId) -> Result<DriveRecord, Refusal> {
        self.state.drives.get(&id).map(|record| DriveRecord::clone(record)).ok_or(Refusal::NoDrive(id))
    }
}

pub(super) fn parse_layout(text: &str) -> Result<Layout, Refusal> {
    text.parse().map_err(|error: tepal_model::layout::LayoutError| Refusal::Layout { rule: error.to_string() })
}

fn check_path(path: &str) -> Result<(), Refusal> {
    if path.is_empty() || path.len() > MAX_PATH || path.contains(char::is_control) {
        return Err(Refusal::Path(clipped(path, 140)));
    }
    Ok(())
}
