//! A cluster whose servers have all lost their data folders, rebuilt from the state that a drive has kept.
//!
//! Invariants:
//! 1. Whatever was acted by before is of an earlier view, of lower revisions and epochs, and of other folders than what is rebuilt, also
//!    what was agreed after that state and is lost. Each rebuild begins a history of its own ([`RebuildRecord`]), so what is of another is
//!    known.
//! 2. No drive is up: each one shows itself what it misses, as after a power failure of all servers.
//! 3. What wasn't found, or keeps no copy of that view, was up last, unless it's given up. So nobody goes on without what may have gone
//!    on alone.
//! 4. Two rebuilds from one state are two clusters: servers of the one don't hear those of the other, whatever numbers they have.

use crate::facade::{Metadata, OpenError, blocking};
use crate::folder;
use crate::log_store::Identity;
use crate::record::{
    ClusterRecord, CopyStatus, DriveRecord, DriveState, HolderRecord, MapRecord, RebuildRecord, ServerRecord,
    ServerState, VolumeRecord,
};
use crate::state::State;
use futures_util::future::BoxFuture;
use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::Path;
use std::sync::Arc;
use tepal_model::history::last_of_views;
use tepal_model::{DriveId, MapId, ServerId};

/// More views than can have been agreed that nothing is known of.
const VIEWS: u64 = 1_000_000;
/// The same of epochs, maps, volumes and the changes of a volume's record.
const OTHERS: u32 = 10_000;

/// How a cluster is to be rebuilt.
#[derive(Clone, Debug)]
pub struct Rebuild {
    /// Which of its servers is the first again.
    pub server: ServerId,
    /// Where the others will find it.
    pub address: String,
    /// The drives that are there.
    pub found: BTreeMap<DriveId, FoundDrive>,
    /// Drives that nobody waits for any more, and why, for people: what only they held is lost.
    pub given_up: BTreeMap<DriveId, String>,
}

/// A drive that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundDrive {
    /// Which server will have it.
    pub server: ServerId,
    /// Where.
    pub path: String,
    /// As its label says.
    pub generation: u64,
    /// Whether it keeps a copy of the view from which the cluster is rebuilt, and nothing speaks of a later one: without others it did
    /// nothing later then.
    pub keeps_view: bool,
}

/// Why a cluster wasn't rebuilt. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum RebuildError {
    /// Name one of the cluster's servers.
    #[error("the cluster has no server {0}")]
    NoServer(ServerId),
    /// It was counted as far as that goes.
    #[error("the cluster has used up its numbers")]
    NoNumbers,
    /// The folder can't be used.
    #[error(transparent)]
    Open(#[from] OpenError),
}

/// What the cluster begins with.
fn rebuilt(last: &State, rebuild: &Rebuild, (history, folder): (u64, u64)) -> Result<State, RebuildError> {
    let mut state = last.clone();
    let view = state.view().checked_add(VIEWS).filter(|view| *view < i64::MAX as u64);
    let view = view.ok_or(RebuildError::NoNumbers)?;
    let first_map = state.next_map();
    let (after_view, after_events) = (state.view(), state.events());
    count_on(&mut state, view)?;
    let end_map = state.next_map();
    let record = RebuildRecord { history, after_view, after_events, before_view: view, first_map, end_map };
    state.rebuilds = Arc::new(state.rebuilds.iter().copied().chain([record]).collect());
    state.cluster = Arc::new(ClusterRecord { view: view + 1, ..ClusterRecord::clone(&state.cluster) });
    if !state.servers.contains_key(&rebuild.server) {
        return Err(RebuildError::NoServer(rebuild.server));
    }
    for record in state.servers.values_mut() {
        *record = Arc::new(server(record, rebuild, (view, folder))?);
    }
    for record in state.drives.values_mut() {
        *record = Arc::new(drive(record, rebuild, view));
    }
    let went_on = |drive: DriveId| {
        let took_writes = last.drives.get(&drive).is_some_and(|record| record.state.takes_writes());
        let keeps_view = rebuild.found.get(&drive).is_some_and(|found| found.keeps_view);
        took_writes && !keeps_view && !rebuild.given_up.contains_key(&drive)
    };
    // What a drive that was found has, it has: one that wasn't complete then isn't now.
    let goes_first = |holder: &HolderRecord| {
        went_on(holder.drive) && (holder.status.is_complete() || !rebuild.found.contains_key(&holder.drive))
    };
    pass_over_found(&mut state, goes_first, view);
    call_off_joins(&mut state);
    Ok(state)
}

/// Whether it's what a rebuild makes, and nothing was agreed since.
pub fn is_rebuilt(state: &State) -> bool {
    state.rebuilds.last().is_some_and(|rebuild| rebuild.before_view + 1 == state.view())
}

/// Numbers that may have been given after that state aren't given again, and requests that name them are old.
fn count_on(state: &mut State, view: u64) -> Result<(), RebuildError> {
    let counters = &mut state.counters;
    counters.map = counters.map.checked_add(OTHERS).ok_or(RebuildError::NoNumbers)?;
    counters.volume += u64::from(OTHERS);
    for map in state.maps.values_mut() {
        let counted = map.newest_epoch.checked_add(OTHERS).ok_or(RebuildError::NoNumbers)?;
        let newest_epoch = counted.max(last_of_views(view));
        *map = Arc::new(MapRecord { newest_epoch, ..MapRecord::clone(map) });
    }
    for volume in state.volumes.values_mut() {
        let revision = volume.revision + u64::from(OTHERS);
        *volume = Arc::new(VolumeRecord { revision, ..VolumeRecord::clone(volume) });
    }
    Ok(())
}

/// Every folder that there was is void.
fn server(record: &ServerRecord, rebuild: &Rebuild, (view, folder): (u64, u64)) -> Result<ServerRecord, RebuildError> {
    let incarnation = record.incarnation.checked_add(1).ok_or(RebuildError::NoNumbers)?;
    let is_first = record.id == rebuild.server;
    Ok(ServerRecord {
        state: if is_first { ServerState::Up } else { ServerState::Down },
        state_view: view,
        incarnation,
        boot: 0,
        folder: if is_first { folder } else { record.folder },
        address: if is_first { rebuild.address.clone() } else { record.address.clone() },
        ..record.clone()
    })
}

fn drive(record: &DriveRecord, rebuild: &Rebuild, view: u64) -> DriveRecord {
    let (to, reason, left) = match (rebuild.given_up.get(&record.id), rebuild.found.get(&record.id)) {
        (Some(why), _) => (DriveState::Failed, &**why, view),
        (None, Some(FoundDrive { keeps_view: true, .. })) => (DriveState::Missing, "the cluster was rebuilt", view),
        (None, Some(_)) => (DriveState::Missing, "the cluster was rebuilt, and it kept no copy of that view", view + 1),
        (None, None) => (DriveState::Missing, "it was not found when the cluster was rebuilt", view + 1),
    };
    let is_given_up = to == DriveState::Failed && record.state != DriveState::Failed;
    let mut drive = record.clone();
    if record.state.takes_writes() || is_given_up {
        drive.state = to;
        drive.state_view = view;
        drive.reason = reason.to_owned();
        drive.missed_since = record.missed_since.or(Some(left));
    }
    if let Some(found) = rebuild.found.get(&record.id) {
        drive.server = found.server;
        drive.path.clone_from(&found.path);
        drive.generation = drive.generation.max(found.generation);
    }
    drive
}

/// Where a drive that wasn't found may have gone on alone, those that were found count as passed over.
fn pass_over_found(state: &mut State, goes_first: impl Fn(&HolderRecord) -> bool, view: u64) {
    let failed = |drive: DriveId| state.drives.get(&drive).is_none_or(|record| record.state == DriveState::Failed);
    let mut maps = state.maps.clone();
    for map in maps.values_mut() {
        let mut columns = map.columns.clone();
        for column in columns.iter_mut().filter(|column| column.holders.iter().any(&goes_first)) {
            for holder in &mut column.holders {
                holder.status = match holder.status {
                    _ if goes_first(holder) => CopyStatus::Complete,
                    CopyStatus::Complete if !failed(holder.drive) => CopyStatus::PassedOver(view),
                    status => status,
                };
            }
        }
        *map = Arc::new(MapRecord { columns, ..MapRecord::clone(map) });
    }
    state.maps = maps;
}

/// Of drives that won't return.
fn call_off_joins(state: &mut State) {
    let failed = |drive: DriveId| state.drives.get(&drive).is_none_or(|record| record.state == DriveState::Failed);
    let maps: Vec<MapId> = state.maps.keys().copied().collect();
    for id in maps {
        let map = &state.maps[&id];
        let joins_failed = |column: &crate::record::ColumnRecord| column.joining.is_some_and(|join| failed(join.to));
        if map.columns.iter().any(joins_failed) {
            let mut map = MapRecord::clone(map);
            for column in map.columns.iter_mut().filter(|column| joins_failed(column)) {
                column.joining = None;
            }
            state.maps.insert(id, Arc::new(map));
        }
    }
}

impl Metadata {
    /// Makes the folder of a server with which a cluster begins again from that state, to be opened. The others have to join with
    /// empty folders, each under its id.
    pub fn rebuild<'a>(
        dir: &'a Path,
        last: &'a State,
        rebuild: &'a Rebuild,
    ) -> BoxFuture<'a, Result<(), RebuildError>> {
        Box::pin(async move {
            let draw = || RandomState::new().build_hasher().finish() >> 1 | 1;
            let (history, folder) = (draw(), draw());
            let state = rebuilt(last, rebuild, (history, folder))?;
            let record = &state.servers[&rebuild.server];
            let identity = Identity {
                cluster: state.cluster.id,
                name: state.cluster.name.clone(),
                server: rebuild.server,
                incarnation: record.incarnation,
                folder,
                history,
                address: rebuild.address.clone(),
                created_unix_ms: state.cluster.created_unix_ms,
                joined: None,
            };
            let owned = dir.to_owned();
            Ok(blocking(dir, move || folder::create_with(&owned, &identity, &state)).await?)
        })
    }
}
