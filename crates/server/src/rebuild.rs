//! A cluster rebuilt from its drives, after all servers have lost their data folders.
//!
//! Invariants:
//! 1. Nothing is written to a drive. What is made is the data folder of one server, with which the cluster begins again.
//! 2. The latest state counts that any of the drives keeps whole. Of two images of a drive it's the newer one's.
//! 3. If a drive isn't here that was in use by that state, others may know more: that must be allowed by name.

use crate::config::default_peers;
use crate::data_folder::{self, FolderError};
use crate::device::{self, DriveDevice, OpenOptions};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use tepal_drive::label::{LabelError, Role};
use tepal_drive::{KeptError, KeptStates, Label, StateOrder};
use tepal_metadata::{
    ColumnRecord, DriveRecord, DriveState, FoundDrive, Metadata, Rebuild, RebuildError as MetadataError, SavedState,
    SavedStateError, State, VolumeRecord,
};
use tepal_model::{ClusterId, DriveId, ServerId};

/// What may be gone, and isn't waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Others {
    /// Nothing: a drive that isn't found keeps the cluster from being rebuilt.
    MustBeFound,
    /// They come with their servers, and keep no later state. What only they hold waits for them.
    WillCome,
    /// They won't come: those that were found are believed.
    AreGivenUp,
}

/// How a cluster is to be rebuilt.
#[derive(Clone, Debug)]
pub struct Request {
    /// The data folder to make.
    pub folder: PathBuf,
    /// The drives that are here, with the servers that will have them, if they aren't all for the one that begins.
    pub drives: Vec<(PathBuf, Option<ServerId>)>,
    /// Whether what is no drive is passed over.
    pub passes_over: bool,
    /// Which server begins; if it isn't said, the one that had most of the drives.
    pub server: Option<ServerId>,
    /// Where others will find it, if it isn't where it was.
    pub peers: Option<String>,
    /// What may be missing.
    pub others: Others,
}

/// Why a cluster isn't rebuilt. Nothing was changed.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each message says what it is, and what to do")]
pub enum RebuildError {
    #[error("the command can't be run: {0}")]
    System(#[from] io::Error),
    #[error(
        "{} is in use: stop its server first. While a server of the cluster runs, others join it with empty folders", .0.display()
    )]
    InUse(PathBuf),
    #[error(transparent)]
    Device(device::OpenError),
    #[error("{}: {error}", path.display())]
    Label { path: PathBuf, error: LabelError },
    #[error("{}: {error}", path.display())]
    Kept { path: PathBuf, error: KeptError },
    #[error("no drive was found: name them by --drive")]
    NoDrives,
    #[error(
        "these drives are of different clusters: {} of {cluster}, and {} of {other}: name those of one cluster", path.display(),
        other_path.display()
    )]
    Clusters { path: PathBuf, cluster: ClusterId, other_path: PathBuf, other: ClusterId },
    #[error("{} and {} both say that they are drive {drive}, and neither is newer: leave the copy out", path.display(), other.display())]
    Cloned { drive: DriveId, path: PathBuf, other: PathBuf },
    #[error(
        "none of these drives keeps a whole copy of the cluster's state: they were labelled by an earlier version, or both copies on \
         each are damaged"
    )]
    NoState,
    #[error(
        "{} keeps a state of another rebuild of the cluster, or one that was lost by a rebuild ({kept}), and {} the latest one: leave one \
         of them out", path.display(), latest.display()
    )]
    Histories { path: PathBuf, kept: StateOrder, latest: PathBuf },
    #[error("{}: {error}", path.display())]
    Saved { path: PathBuf, error: SavedStateError },
    #[error(
        "{} of the drives that were in use weren't found: {}. Name those that are here by --drive. If they are on other machines, see \
         there by --dry-run that they keep no later state, and say --partial; if they are gone for good, say --without-missing, and \
         what only they held is lost", .0.len(), listed(.0)
    )]
    NotFound(Vec<Absent>),
    #[error("the cluster has no server {server}: it has {}", has.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))]
    NoServer { server: ServerId, has: Vec<ServerId> },
    #[error(transparent)]
    Folder(#[from] FolderError),
    #[error(transparent)]
    Metadata(#[from] MetadataError),
}

/// A drive that the state names and that wasn't found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Absent {
    /// Its id.
    pub drive: DriveId,
    /// Where it was last.
    pub server: ServerId,
    /// Where it was there.
    pub path: String,
    /// Whether it took writes by the state.
    pub was_in_use: bool,
}

/// Of many, the first few.
fn listed(absent: &[Absent]) -> String {
    const SHOWN: usize = 4;
    let one = |absent: &Absent| format!("{} (server {}, {})", absent.drive, absent.server, absent.path);
    let more = if absent.len() > SHOWN { ", ..." } else { "" };
    absent.iter().take(SHOWN).map(one).collect::<Vec<_>>().join(", ") + more
}

/// A drive that is here.
#[derive(Clone, Debug)]
pub struct Found {
    /// Where.
    pub path: PathBuf,
    /// Which server will have it, if it isn't the one that begins.
    pub server: Option<ServerId>,
    /// Its id.
    pub drive: DriveId,
    /// Of its label.
    pub generation: u64,
    /// The latest state that it keeps whole.
    pub keeps: Option<StateOrder>,
    /// Its other copies, which are damaged; of which states, if they still say.
    pub damaged: Vec<Option<StateOrder>>,
}

/// What was found, and what would come of it.
pub struct Plan {
    request: Request,
    /// The state.
    pub saved: SavedState,
    /// Which one it is.
    pub order: StateOrder,
    /// Which server begins.
    pub server: ServerId,
    /// By their ids.
    pub found: Vec<Found>,
    /// The drives that the state names and that weren't found, but those that had failed.
    pub absent: Vec<Absent>,
}

struct Seen {
    path: PathBuf,
    server: Option<ServerId>,
    label: Label,
    kept: KeptStates,
}

/// Looks at the drives, and says what would come of it. Nothing is written.
pub fn plan(request: Request) -> Result<Plan, RebuildError> {
    let seen = block_on(look(&request))?;
    let seen = of_one_cluster(seen)?;
    let newest = seen.iter().filter_map(|one| Some((one, one.kept.whole.first()?))).max_by_key(|(_, kept)| kept.order);
    let (at, kept) = newest.ok_or(RebuildError::NoState)?;
    let saved =
        SavedState::read(&kept.content).map_err(|error| RebuildError::Saved { path: at.path.clone(), error })?;
    let order = kept.order;
    for (one, kept) in seen.iter().filter_map(|one| Some((one, one.kept.whole.first()?.order))) {
        if !saved.state().has_past(kept.history, kept.view, kept.events) {
            return Err(RebuildError::Histories { path: one.path.clone(), kept, latest: at.path.clone() });
        }
    }
    let found: Vec<Found> = seen.iter().map(found).collect();
    let ids: BTreeSet<DriveId> = found.iter().map(|found| found.drive).collect();
    let absent = absent(saved.state(), &ids);
    let server = first_server(saved.state(), &ids, request.server)?;
    Ok(Plan { request, saved, order, server, found, absent })
}

/// On a runtime like that of a data thread, which devices need.
fn block_on<T>(work: impl Future<Output = Result<T, RebuildError>>) -> Result<T, RebuildError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    tokio::task::LocalSet::new().block_on(&runtime, work)
}

async fn look(request: &Request) -> Result<Vec<Seen>, RebuildError> {
    let mut seen = Vec::new();
    for (path, server) in &request.drives {
        let options = OpenOptions { writable: false, backend: None };
        let device = match DriveDevice::open(path, options) {
            Ok(device) => device,
            Err(device::OpenError::InUse { path }) if !request.passes_over => return Err(RebuildError::InUse(path)),
            Err(_) if request.passes_over => continue,
            Err(error) => return Err(RebuildError::Device(error)),
        };
        let label = match Label::read(&device).await {
            Ok(label) => label,
            Err(_) if request.passes_over => continue,
            Err(error) => return Err(RebuildError::Label { path: path.clone(), error }),
        };
        if matches!(label.role, Role::LogOf { .. }) {
            continue;
        }
        let kept = tepal_drive::kept_states(&device, &label).await;
        let kept = kept.map_err(|error| RebuildError::Kept { path: path.clone(), error })?;
        seen.push(Seen { path: path.clone(), server: *server, label, kept });
    }
    Ok(seen)
}

/// Each drive once, by its id.
fn of_one_cluster(seen: Vec<Seen>) -> Result<Vec<Seen>, RebuildError> {
    let mut drives: BTreeMap<DriveId, Seen> = BTreeMap::new();
    let first = seen.first().ok_or(RebuildError::NoDrives)?;
    let (path, cluster) = (first.path.clone(), first.label.cluster);
    for one in seen {
        if one.label.cluster != cluster {
            let (other_path, other) = (one.path, one.label.cluster);
            return Err(RebuildError::Clusters { path, cluster, other_path, other });
        }
        let drive = one.label.drive;
        match drives.get(&drive).map(|known| known.label.generation.cmp(&one.label.generation)) {
            Some(std::cmp::Ordering::Greater) => {}
            Some(std::cmp::Ordering::Equal) => {
                let path = drives.remove(&drive).map(|known| known.path).unwrap_or_default();
                return Err(RebuildError::Cloned { drive, path, other: one.path });
            }
            Some(std::cmp::Ordering::Less) | None => drop(drives.insert(drive, one)),
        }
    }
    Ok(drives.into_values().collect())
}

fn found(seen: &Seen) -> Found {
    Found {
        path: seen.path.clone(),
        server: seen.server,
        drive: seen.label.drive,
        generation: seen.label.generation,
        keeps: seen.kept.whole.first().map(|kept| kept.order),
        damaged: seen.kept.damaged.clone(),
    }
}

fn absent(state: &State, found: &BTreeSet<DriveId>) -> Vec<Absent> {
    let is_absent = |record: &&DriveRecord| !found.contains(&record.id) && record.state != DriveState::Failed;
    let absent = |record: &DriveRecord| Absent {
        drive: record.id,
        server: record.server,
        path: record.path.clone(),
        was_in_use: record.state.takes_writes(),
    };
    state.drives.values().map(|record| &**record).filter(is_absent).map(absent).collect()
}

fn first_server(state: &State, found: &BTreeSet<DriveId>, wanted: Option<ServerId>) -> Result<ServerId, RebuildError> {
    let has: Vec<ServerId> = state.servers.keys().copied().collect();
    if let Some(server) = wanted {
        return if has.contains(&server) { Ok(server) } else { Err(RebuildError::NoServer { server, has }) };
    }
    let drives =
        |server: &ServerId| state.drives_of_server(*server).filter(|record| found.contains(&record.id)).count();
    let most = has.iter().rev().max_by_key(|server| drives(server)).copied();
    most.ok_or(RebuildError::NoServer { server: crate::config::FIRST_SERVER, has })
}

impl Plan {
    /// Whether that may be done without saying more.
    pub fn check(&self) -> Result<(), RebuildError> {
        let in_use: Vec<Absent> = self.absent.iter().filter(|absent| absent.was_in_use).cloned().collect();
        match self.request.others {
            Others::MustBeFound if !in_use.is_empty() => Err(RebuildError::NotFound(in_use)),
            _ => Ok(()),
        }
    }

    /// Copies of a later state that are damaged: it was being written, or it's lost.
    pub fn later_ones_damaged(&self) -> impl Iterator<Item = (&Found, StateOrder)> {
        let damaged = self.found.iter().flat_map(|found| found.damaged.iter().map(move |order| (found, *order)));
        damaged.filter_map(|(found, order)| Some((found, order?))).filter(|(_, order)| *order > self.order)
    }

    /// Makes the folder.
    pub fn carry_out(&self) -> Result<(), RebuildError> {
        self.check()?;
        let found = self.found.iter().map(|found| {
            let path = std::path::absolute(&found.path).unwrap_or_else(|_| found.path.clone());
            let (server, path) = (found.server.unwrap_or(self.server), path.display().to_string());
            (found.drive, FoundDrive { server, path, generation: found.generation })
        });
        let rebuild = Rebuild {
            server: self.server,
            address: self.address(),
            found: found.collect(),
            gives_up_others: self.request.others == Others::AreGivenUp,
        };
        data_folder::prepare(&self.request.folder)?;
        block_on(async { Ok(Metadata::rebuild(&self.request.folder, &self.saved, &rebuild).await?) })
    }

    /// One that was a socket in the data folder is in the new one.
    fn address(&self) -> String {
        if let Some(peers) = &self.request.peers {
            return peers.clone();
        }
        let before = self.saved.state().servers.get(&self.server).map(|record| record.address.clone());
        let before = before.unwrap_or_default();
        match default_peers(&self.request.folder).filter(|_| before.starts_with("unix:")) {
            Some(socket) => socket.to_string(),
            None => before,
        }
    }
}

/// This machine's block devices.
pub fn block_devices() -> Vec<PathBuf> {
    crate::drives::block_devices()
}

/// What a rebuild would do, or has done.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// As drives say it.
    pub cluster: ClusterId,
    /// Its name.
    pub name: String,
    /// The view of the state from which it's rebuilt.
    pub view: u64,
    /// How many events there had been.
    pub events: u64,
    /// The servers that it had.
    pub servers: Vec<ServerId>,
    /// The one that begins.
    pub server: ServerId,
    /// Its data folder.
    pub folder: String,
    /// All drives that were found, and those of the cluster that weren't.
    pub drives: Vec<DriveReport>,
    /// The volumes that there were.
    pub volumes: Vec<VolumeReport>,
    /// What people should know.
    pub notes: Vec<String>,
    /// Whether it was done.
    pub done: bool,
}

/// One drive of it.
#[derive(Clone, Debug, Serialize)]
pub struct DriveReport {
    /// Its id.
    pub id: DriveId,
    /// The server that had it; none if the state doesn't know it.
    pub server: Option<ServerId>,
    /// Where it is; none if it wasn't found.
    pub path: Option<String>,
    /// Where it was.
    pub was_at: Option<String>,
    /// The view of the latest state that it keeps whole.
    pub view: Option<u64>,
    /// How many events there had been then.
    pub events: Option<u64>,
}

/// One volume of it.
#[derive(Clone, Debug, Serialize)]
pub struct VolumeReport {
    /// Its name.
    pub name: String,
    /// Bytes.
    pub size: u64,
    /// How many it has.
    pub snapshots: usize,
    /// Its parts, which are on the same drives throughout.
    pub parts: usize,
    /// Those of which a drive with a copy was found.
    pub parts_found: usize,
}

impl Plan {
    /// For people and programs.
    pub fn report(&self, done: bool) -> Report {
        let state = self.saved.state();
        let notes = self.notes();
        Report {
            cluster: state.cluster.id,
            name: state.cluster.name.clone(),
            view: self.order.view,
            events: self.order.events,
            servers: state.servers.keys().copied().collect(),
            server: self.server,
            folder: self.request.folder.display().to_string(),
            drives: self.drives(),
            volumes: self.volumes(),
            notes,
            done,
        }
    }

    fn drives(&self) -> Vec<DriveReport> {
        let state = self.saved.state();
        let found = self.found.iter().map(|found| {
            let record = state.drives.get(&found.drive);
            DriveReport {
                id: found.drive,
                server: record.map(|record| record.server),
                path: Some(found.path.display().to_string()),
                was_at: record.map(|record| record.path.clone()),
                view: found.keeps.map(|order| order.view),
                events: found.keeps.map(|order| order.events),
            }
        });
        let absent = self.absent.iter().map(|absent| DriveReport {
            id: absent.drive,
            server: Some(absent.server),
            path: None,
            was_at: Some(absent.path.clone()),
            view: None,
            events: None,
        });
        found.chain(absent).collect()
    }

    fn volumes(&self) -> Vec<VolumeReport> {
        let state = self.saved.state();
        let is_found = |drive: DriveId| self.found.iter().any(|found| found.drive == drive);
        let report = |volume: &VolumeRecord| {
            let columns: Vec<&ColumnRecord> = state.maps_of(volume).flat_map(|map| &map.columns).collect();
            let has_copy = |column: &&&ColumnRecord| column.holders.iter().any(|holder| is_found(holder.drive));
            VolumeReport {
                name: volume.name.clone(),
                size: volume.size,
                snapshots: state.count_snapshots(volume.id),
                parts: columns.len(),
                parts_found: columns.iter().filter(has_copy).count(),
            }
        };
        state.active_volumes().map(|volume| report(volume)).collect()
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        for (found, order) in self.later_ones_damaged() {
            notes.push(format!(
                "{}: its copy of a later state ({order}) is damaged, or was being written when the drive stopped: what was agreed since \
                 {} isn't known",
                found.path.display(), self.order
            ));
        }
        for found in self.found.iter().filter(|found| found.keeps.is_none()) {
            notes.push(format!("{}: it keeps no whole copy of the cluster's state", found.path.display()));
        }
        let in_use = self.absent.iter().filter(|absent| absent.was_in_use).count();
        if in_use > 0 {
            let what = match self.request.others {
                Others::AreGivenUp => "they are given up, and what only they held is lost",
                Others::WillCome => "what only they held waits for them",
                Others::MustBeFound => "name them by --drive, or say --partial or --without-missing",
            };
            notes.push(format!("{in_use} drives that were in use weren't found: {what}"));
        }
        let others = self.saved.state().servers.len() - 1;
        if others > 0 {
            notes.push(format!(
                "{others} other servers are to join with empty folders, each under its id: `tepal serve --server ID --join ADDR`"
            ));
        }
        notes
    }
}
