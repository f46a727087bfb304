//! What each command does to the state: a pure function of the state and the entry.
//!
//! Invariants:
//! 1. Deterministic: no clock, no randomness, no hash order. Every server that applies the same entries holds the
//!    same state and gave the same answers.
//! 2. A refused command changes nothing, not even a counter or an event.
//! 3. Every change of a drive's or server's state, every one that joins or leaves, every new epoch of a volume, and all gaps in what it
//!    sees that are closed give the next view. A server that goes down takes its drives with it in that same view.
//! 4. Every change of a volume's record gives its next revision, but for those of its epoch, and of how far a replica is.
//! 5. Each drive named by a map's columns has a record; each volume's map and pool exist, and each map has a volume or is one that volumes
//!    go to. Only active volumes have snapshots.
//! 6. A column's holders are different drives, never fewer than when its map was made. One drive at most joins them, which isn't
//!    one of them. Who joins, and who holds a copy, changes with the view.
//!    A column has a complete copy at any time.
//! 7. A map is the source or target of one migration at most, and the two are never the same. The volumes that go have the source until the
//!    end; of a range that goes, the map in which it was when that began. Volumes that share a map have the same ranges.
//! 8. No epoch of a map is handed out twice. Each volume and snapshot has one of its own, the newest of its lineage. What it sees never
//!    changes; how that is said does when gaps are closed.

mod access;
#[cfg(test)]
pub mod access_tests;
#[cfg(test)]
mod clone_tests;
mod cluster;
mod conditions;
mod copies;
#[cfg(test)]
mod copy_tests;
mod drives;
#[cfg(test)]
mod fold_tests;
mod folds;
mod ids;
#[cfg(test)]
mod import_tests;
#[cfg(test)]
mod join_token_tests;
pub mod join_tokens;
#[cfg(test)]
mod limit_tests;
mod limits;
mod live_imports;
#[cfg(test)]
mod live_tests;
#[cfg(test)]
mod migration_tests;
mod migrations;
#[cfg(test)]
mod move_tests;
mod moves;
pub mod once;
pub mod place;
#[cfg(test)]
mod range_tests;
mod realm;
#[cfg(test)]
mod realm_tests;
#[cfg(test)]
mod replace_tests;
mod replacing;
#[cfg(test)]
mod replica_tests;
mod replicas;
pub mod requests;
#[cfg(test)]
mod schedule_tests;
mod schedules;
#[cfg(test)]
mod server_tests;
#[cfg(test)]
pub mod snapshot_tests;
mod snapshots;
#[cfg(test)]
pub mod tests;
#[cfg(test)]
mod volume_key_tests;
mod volume_keys;
mod volumes;

pub use volumes::check_size;

use crate::command::{Command, Proposal, Reply};
use crate::record::{
    ClusterRecord, ColumnRecord, DriveRecord, DriveUse, EventRecord, MapRecord, MigrationRecord, PoolRecord,
    ServerRecord, SnapshotRecord, VolumeRecord, VolumeState,
};
use crate::refusal::{Refusal, Thing};
use crate::state::State;
use crate::state_machine::access::AccessChange;
use crate::state_machine::schedules::ScheduleChange;
use std::sync::Arc;
use tepal_model::text::{is_name, shown};
use tepal_model::{DriveId, Epoch, MapId, ServerId, VolumeId};

/// A row of `cluster.db` that an accepted command writes or deletes, in the order that it happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    Cluster(Arc<ClusterRecord>),
    Server(Arc<ServerRecord>),
    ServerGone(ServerId),
    Drive(Arc<DriveRecord>),
    DriveGone(DriveId),
    Pool(Arc<PoolRecord>),
    PoolGone(String),
    Volume(Arc<VolumeRecord>),
    VolumeGone(VolumeId),
    /// What the map says but for its columns.
    Map(Arc<MapRecord>),
    /// One of a map's columns, which is there.
    Column(MapId, u32, ColumnRecord),
    /// With its columns.
    MapGone(MapId),
    Migration(Arc<MigrationRecord>),
    MigrationGone(MapId),
    Snapshot(Arc<SnapshotRecord>),
    SnapshotGone(VolumeId, Epoch),
    Access(AccessChange),
    Schedules(ScheduleChange),
    Event(EventRecord),
}

/// What an accepted command came to.
#[derive(Debug)]
pub struct Applied {
    pub state: State,
    pub changes: Vec<Change>,
    pub reply: Reply,
}

pub fn apply(state: &State, proposal: &Proposal) -> Result<Applied, Refusal> {
    if !state.is_set_up() && !matches!(proposal.command, Command::InitCluster { .. }) {
        return Err(Refusal::NoCluster);
    }
    let mut draft = Draft::new(state, proposal);
    let reply = draft.carry_out(&ids::spelled_out(state, proposal))?;
    draft.check_what_is_shared(state)?;
    Ok(Applied { state: draft.state, changes: draft.changes, reply })
}

/// The state to come, and how it differs. Dropped if the command is refused.
struct Draft {
    state: State,
    changes: Vec<Change>,
    unix_ms: u64,
    /// Who asked for it.
    who: Option<String>,
    /// The version of the command.
    version: u32,
    /// Replication asks, which may change replicas.
    replicates: bool,
}

impl Draft {
    fn new(state: &State, proposal: &Proposal) -> Self {
        let unix_ms = proposal.unix_ms.min(i64::MAX as u64);
        let who = proposal.who.as_ref().map(|who| clipped(who, 100));
        Draft { state: state.clone(), changes: Vec::new(), unix_ms, who, version: proposal.version, replicates: false }
    }

    fn carry_out(&mut self, command: &Command) -> Result<Reply, Refusal> {
        match command {
            Command::InitCluster { id, name, server, address } => self.init_cluster(*id, name, *server, address),
            Command::JoinServer { folder, address, claim } => self.join_server(*folder, address, *claim),
            Command::ServerStarted { id, incarnation, boot } => self.server_started(*id, *incarnation, *boot),
            Command::RemoveServer { id } => self.remove_server(*id),
            Command::SetServerAddress { id, address } => self.set_server_address(*id, address),
            Command::SetServerSite { id, site } => self.set_server_site(*id, site.as_deref()),
            Command::SetServerState { id, to, reason, expected_view } => {
                self.set_server_state(*id, *to, reason, *expected_view)
            }
            Command::SetServerDraining { id, draining } => self.set_server_draining(*id, *draining),
            Command::AddDrive { id, server, pool, path, capacity, spare } => {
                let purpose = if *spare { DriveUse::Spare } else { DriveUse::Active };
                self.add_drive(*id, *server, pool, path, *capacity, purpose)
            }
            Command::SetDriveUse { id, to } => self.set_drive_use(*id, *to),
            Command::ReplaceDrive { from, to } => self.replace_drive(*from, *to),
            Command::NameDrive { id, name } => self.name_drive(*id, name.as_deref()),
            Command::DriveMoved { id, server, path, generation } => self.drive_moved(*id, *server, path, *generation),
            Command::DriveGrew { id, capacity } => self.drive_grew(*id, *capacity),
            Command::SetDriveState { id, to, reason, expected_view } => {
                self.set_drive_state(*id, *to, reason, *expected_view)
            }
            Command::DriveIsUp { id, reason, view } => self.drive_is_up(*id, reason, *view),
            Command::ServerCutOff { id, by, reason, view } => self.server_cut_off(*id, *by, reason, *view),
            Command::RemoveDrive { id, force } => self.remove_drive(*id, *force),
            Command::CountCopies { changes, view } => self.count_copies(changes, *view),
            Command::AcceptLoss { volume, view } => self.accept_loss(*volume, *view),
            Command::BeginMove { map, column, from, to } => self.begin_move(*map, *column, *from, *to),
            Command::FinishMove { map, column, to, since, view } => {
                self.finish_move(*map, *column, (*to, *since), *view)
            }
            Command::CancelMove { map, column, to, since } => self.cancel_move(*map, *column, (*to, *since)),
            Command::CreatePool { name, layout } => self.create_pool(name, layout.as_deref()),
            Command::RemovePool { name } => self.remove_pool(name),
            Command::CreateVolume { name, size, layout, pool } => {
                self.create_volume(name, *size, layout.as_deref(), pool)
            }
            Command::ResizeVolume { name, size, shrink, cleared } => self.resize_volume(name, *size, *shrink, *cleared),
            _ if volumes::is_of_import(command) => self.carry_out_of_import(command),
            Command::Follow { .. }
            | Command::Promote { .. }
            | Command::Receive { .. }
            | Command::Received { .. }
            | Command::NoteReplica { .. }
            | Command::Replicated { .. } => self.carry_out_of_replica(command),
            Command::RenameVolume { name, new_name } => self.rename_volume(name, new_name),
            Command::RemoveVolume { name, snapshots } => self.remove_volume(name, *snapshots),
            Command::FinishRemoveVolume { id } => self.finish_remove_volume(*id),
            Command::CreateSnapshot { volume, name } => self.create_snapshot(volume, name),
            Command::RemoveSnapshot { volume, name } => self.remove_snapshot(volume, name),
            Command::RenameSnapshot { volume, name, new_name } => self.rename_snapshot(volume, name, new_name),
            Command::RollBack { volume, name } => self.roll_back(volume, name),
            Command::CloneVolume { volume, snapshot, name } => self.clone_volume(volume, snapshot, name),
            Command::CloseGaps { map, gaps, view } => self.close_gaps(*map, gaps, *view),
            Command::BeginMigration { volume, layout, alone, pool, range, seed, rate } => {
                self.begin_migration(volume, (layout.as_deref(), pool.as_deref()), (*alone, *range), (*seed, *rate))
            }
            Command::MoveWindow { id, since, to } => self.move_window(*id, *since, *to),
            Command::PauseMigration { id, paused } => self.pause_migration(*id, *paused),
            Command::SetMigrationRate { id, rate } => self.set_migration_rate(*id, *rate),
            Command::TurnMigration { id, cancelled } => self.turn_migration(*id, *cancelled),
            Command::SetLease { ms } => self.set_lease(*ms),
            Command::EndLongLeases { ms } => self.end_long_leases(*ms),
            Command::RecordEvent { kind, subject, text } => self.record_event(kind, subject, text),
            Command::Schedule(command) => self.carry_out_of_schedule(command),
            Command::Once { .. } | Command::IfMatch { .. } => self.carry_out_conditional(command),
            about_access => self.carry_out_of_access(about_access),
        }
    }

    fn record_event(&mut self, kind: &str, subject: &str, text: &str) -> Result<Reply, Refusal> {
        self.event(&clipped(kind, 40), &clipped(subject, 200), text.to_owned());
        Ok(Reply::Done)
    }

    fn event(&mut self, kind: &str, subject: &str, text: String) {
        let seq = self.state.counters.event;
        self.state.counters.event += 1;
        self.changes.push(Change::Event(EventRecord {
            seq,
            unix_ms: self.unix_ms,
            kind: kind.to_owned(),
            subject: subject.to_owned(),
            text: clipped(&text, 1000),
            who: self.who.clone(),
        }));
    }

    /// Begins the next view, and returns its number.
    fn next_view(&mut self) -> u64 {
        let mut cluster = ClusterRecord::clone(&self.state.cluster);
        cluster.view += 1;
        let view = cluster.view;
        self.put_cluster(cluster);
        view
    }

    fn put_cluster(&mut self, record: ClusterRecord) {
        self.state.cluster = Arc::new(record);
        self.changes.push(Change::Cluster(self.state.cluster.clone()));
    }

    fn put_server(&mut self, record: ServerRecord) {
        let record = Arc::new(record);
        self.state.servers.insert(record.id, record.clone());
        self.changes.push(Change::Server(record));
    }

    fn drop_server(&mut self, id: ServerId) {
        self.state.servers.remove(&id);
        self.changes.push(Change::ServerGone(id));
    }

    fn put_drive(&mut self, record: DriveRecord) {
        let record = Arc::new(record);
        self.state.drives.insert(record.id, record.clone());
        self.changes.push(Change::Drive(record));
    }

    fn drop_drive(&mut self, id: DriveId) {
        self.state.drives.remove(&id);
        self.changes.push(Change::DriveGone(id));
    }

    fn put_pool(&mut self, record: PoolRecord) {
        let record = Arc::new(record);
        self.state.pools.insert(record.name.clone(), record.clone());
        self.changes.push(Change::Pool(record));
    }

    fn drop_pool(&mut self, name: &str) {
        self.state.pools.remove(name);
        self.changes.push(Change::PoolGone(name.to_owned()));
    }

    fn put_volume(&mut self, record: VolumeRecord) {
        let record = Arc::new(record);
        if let Some(old) = self.state.volumes.insert(record.id, record.clone())
            && old.state == VolumeState::Active
        {
            self.state.names.remove(&old.name);
        }
        if record.state == VolumeState::Active {
            self.state.names.insert(record.name.clone(), record.id);
        }
        self.changes.push(Change::Volume(record));
    }

    fn drop_volume(&mut self, id: VolumeId) {
        self.state.volumes.remove(&id);
        self.changes.push(Change::VolumeGone(id));
    }

    fn put_map(&mut self, record: MapRecord) {
        let record = Arc::new(record);
        self.state.maps.insert(record.id, record.clone());
        self.changes.push(Change::Map(record));
    }

    /// Of a map that is there.
    fn put_column(&mut self, map: MapId, column: u32, record: ColumnRecord) {
        let map = Arc::make_mut(self.state.maps.get_mut(&map).expect("it's there"));
        map.columns[column as usize] = record.clone();
        self.changes.push(Change::Column(map.id, column, record));
    }

    fn drop_map(&mut self, id: MapId) {
        self.state.maps.remove(&id);
        self.changes.push(Change::MapGone(id));
    }

    fn put_migration(&mut self, record: MigrationRecord) {
        let record = Arc::new(record);
        self.state.migrations.insert(record.id, record.clone());
        self.changes.push(Change::Migration(record));
    }

    fn drop_migration(&mut self, id: MapId) {
        self.state.migrations.remove(&id);
        self.changes.push(Change::MigrationGone(id));
    }

    fn put_snapshot(&mut self, record: SnapshotRecord) {
        let record = Arc::new(record);
        let snapshots = self.state.snapshots.entry(record.volume).or_default();
        Arc::make_mut(snapshots).insert(record.epoch, record.clone());
        self.changes.push(Change::Snapshot(record));
    }

    fn drop_snapshot(&mut self, volume: VolumeId, epoch: Epoch) {
        if let Some(snapshots) = self.state.snapshots.get_mut(&volume) {
            Arc::make_mut(snapshots).remove(&epoch);
            if snapshots.is_empty() {
                self.state.snapshots.remove(&volume);
            }
        }
        self.changes.push(Change::SnapshotGone(volume, epoch));
        self.forget_made(volume, epoch);
    }
}

/// At most `limit` characters, so that no client can bloat the state of every server.
fn clipped(text: &str, limit: usize) -> String {
    text.chars().take(limit).collect()
}

fn check_name(what: Thing, name: &str) -> Result<(), Refusal> {
    if is_name(name) { Ok(()) } else { Err(Refusal::Name { what, name: shown(name) }) }
}
