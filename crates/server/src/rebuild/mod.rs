//! A cluster rebuilt from its drives, after all servers have lost their data folders.
//!
//! ```text
//! look.rs: the drives that are here, their labels and copies of the state
//!   -> plan: the latest state, and what counts for it -> carry_out: a data folder; report.rs: what people are told
//! ```
//!
//! Invariants:
//! 1. Nothing is written to a drive. What is made is the data folder of one server, with which the cluster begins again.
//! 2. The latest state counts that any of the drives keeps whole. Of two images of a drive it's the newer one's, and an image that is older
//!    than any state says counts as not found, as a server takes it.
//! 3. If a drive isn't here that was in use by that state, or one keeps a state of another past, others may know more: that must be
//!    allowed by name.

mod look;
mod report;

pub use report::{DriveReport, Report, Standing, VolumeReport};

use crate::config::default_peers;
use crate::data_folder::{self, FolderError};
use crate::unserved::{UnservedError, block_on};
use look::{Looked, PassedOver, Seen, latest, look, of_one_cluster, pasts, set_apart, without_older_images};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use tepal_drive::{ReadCopiesError, StateCopy, StateOrder};
use tepal_metadata::{
    DriveRecord, DriveState, FoundDrive, Metadata, Rebuild, RebuildError as MetadataError, State, StateCopyError,
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

/// How the drives were chosen, and what becomes of what is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Each by name: it must be a drive.
    Named,
    /// By where drives of this cluster would be. What is none is told of.
    Expected,
    /// All that there is here. What was never a drive isn't told of.
    All,
}

/// How a cluster is to be rebuilt.
#[derive(Clone, Debug)]
pub struct Request {
    /// The data folder to make.
    pub folder: PathBuf,
    /// The drives that are here, with the servers that will have them, if they aren't all for the one that begins.
    pub drives: Vec<(PathBuf, Option<ServerId>)>,
    /// Why these.
    pub choice: Choice,
    /// Which server begins; if it isn't said, the one that had most of the drives.
    pub server: Option<ServerId>,
    /// Where others will find it, if it isn't where it was.
    pub peers: Option<String>,
    /// What may be missing.
    pub others: Others,
    /// Of drives that keep states of different rebuilds, whose go on: the random number of that one, 0 before any. The others are given up.
    pub history: Option<u64>,
}

/// Why a cluster isn't rebuilt. Nothing was changed.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each message says what it is, and what to do")]
pub enum RebuildError {
    #[error("the command can't be run: {0}")]
    System(#[from] io::Error),
    #[error(transparent)]
    Drive(#[from] UnservedError),
    #[error("{}: its copies of the cluster's state can't be read: {error}", path.display())]
    Copies { path: PathBuf, error: ReadCopiesError },
    #[error("no drive was found: name them by --drive")]
    NoDrives,
    #[error(
        "these drives are of different clusters: {} of {cluster}, and {} of {other}: name those of one cluster by --drive", path.display(),
        other_path.display()
    )]
    Clusters { path: PathBuf, cluster: ClusterId, other_path: PathBuf, other: ClusterId },
    #[error("{} and {} both say that they are drive {drive}, and neither is newer: leave the copy out", path.display(), other.display())]
    Cloned { drive: DriveId, path: PathBuf, other: PathBuf },
    #[error(
        "none of these drives keeps a whole copy of the cluster's state: they were labelled by an earlier version, or both copies on \
         each are damaged. Name other drives of the cluster by --drive"
    )]
    NoState,
    #[error(
        "these drives keep states of different pasts, as the cluster was rebuilt and then went on from an earlier state: {}. Say by --history \
         which one goes on: the others' drives are given up then, and what only they hold is lost. Or leave them out", by_history(.0)
    )]
    Histories(Vec<(PathBuf, StateOrder)>),
    #[error("no drive's latest state is of history {wanted:x}: there are {}", by_history(has))]
    NoHistory { wanted: u64, has: Vec<(PathBuf, StateOrder)> },
    #[error("{}: {error}", path.display())]
    Copy { path: PathBuf, error: StateCopyError },
    #[error(
        "{} of the drives that were in use weren't found: {}. Name those that are here by --drive. If they are on other machines, see \
         there by --dry-run that they keep no later state, and say --partial; if they are gone for good, say --without-missing, and \
         what only they held is lost", .0.len(), listed(.0)
    )]
    NotFound(Vec<Absent>),
    #[error(
        "drives were catching up, and weren't found ({}): {}. Whether they have been up since, and have taken writes without those that are \
         here, only they know: begin on their machine, or bring them here and name them by --drive; if they are gone for good, say \
         --without-missing", .0.len(), listed(.0)
    )]
    CaughtUp(Vec<Absent>),
    #[error(
        "drives were catching up, and what they keep of the cluster's state is missing or damaged ({}): {}. Whether they have been up since, \
         and have taken writes that nobody else has, can't be told: don't name them by --drive and say --without-missing, and they are \
         given up",
        .0.len(), listed(.0)
    )]
    Doubtful(Vec<Absent>),
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
    /// What it was by the state.
    pub state: DriveState,
}

/// Of many, the first few.
fn listed(absent: &[Absent]) -> String {
    const SHOWN: usize = 4;
    let one = |absent: &Absent| format!("{} (server {}, {})", absent.drive, absent.server, absent.path);
    let more = if absent.len() > SHOWN { ", ..." } else { "" };
    absent.iter().take(SHOWN).map(one).collect::<Vec<_>>().join(", ") + more
}

fn by_history(pasts: &[(PathBuf, StateOrder)]) -> String {
    let one = |(path, order): &(PathBuf, StateOrder)| {
        format!("{:x} (view {}, event {}, on {})", order.history, order.view, order.events, path.display())
    };
    pasts.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// What was found, and what would come of it.
pub struct Plan {
    request: Request,
    state: State,
    /// What the state was read from.
    copy: StateCopy,
    /// Which server begins.
    server: ServerId,
    /// The drives that count.
    found: Vec<Seen>,
    /// Those that don't.
    passed_over: Vec<(Seen, PassedOver)>,
    /// What isn't taken for a drive, as nobody named it, and is to be told of.
    unreadable: Vec<RebuildError>,
    /// The drives that the state names and that weren't found, but those that had failed.
    absent: Vec<Absent>,
}

/// Looks at the drives, and says what would come of it. Nothing is written.
pub fn plan(request: Request) -> Result<Plan, RebuildError> {
    let Looked { seen, unreadable } = block_on(look(&request))?;
    let (seen, older_images) = without_older_images(of_one_cluster(seen)?);
    let (at, copy) = latest(&seen, request.history)?;
    let state = State::from_copy(copy.content());
    let state = state.map_err(|error| RebuildError::Copy { path: at.path.clone(), error })?;
    let copy = copy.clone();
    let all_pasts = pasts(&seen);
    let (found, other_pasts) = set_apart(seen, |one| one.is_of_other_past(&state));
    if request.history.is_none() && !other_pasts.is_empty() {
        return Err(RebuildError::Histories(all_pasts));
    }
    let ids: BTreeSet<DriveId> = found.iter().map(|one| one.label.drive).collect();
    let given_up = other_pasts.iter().map(|(one, _)| one.label.drive);
    let absent = absent(&state, &ids.iter().copied().chain(given_up).collect());
    let server = first_server(&state, &ids, request.server)?;
    let passed_over = older_images.into_iter().chain(other_pasts).collect();
    Ok(Plan { request, state, copy, server, found, passed_over, unreadable, absent })
}

fn absent(state: &State, here: &BTreeSet<DriveId>) -> Vec<Absent> {
    let is_absent = |record: &&DriveRecord| !here.contains(&record.id) && record.state != DriveState::Failed;
    let absent = |record: &DriveRecord| Absent {
        drive: record.id,
        server: record.server,
        path: record.path.clone(),
        state: record.state,
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

fn is_of_one_view(one: StateOrder, other: StateOrder) -> bool {
    (one.history, one.view) == (other.history, other.view)
}

impl Plan {
    /// Whether that may be done without saying more.
    fn check(&self) -> Result<(), RebuildError> {
        let absent = |is_meant: fn(DriveState) -> bool| -> Vec<Absent> {
            self.absent.iter().filter(|absent| is_meant(absent.state)).cloned().collect()
        };
        let (in_use, behind) = (absent(DriveState::takes_writes), absent(|state| state == DriveState::Behind));
        match self.request.others {
            Others::MustBeFound if !in_use.is_empty() => Err(RebuildError::NotFound(in_use)),
            // It left before the others, and may have been up last all the same: neither can be relied on.
            Others::WillCome if !behind.is_empty() => Err(RebuildError::CaughtUp(behind)),
            _ => match self.doubtful() {
                none if none.is_empty() => Ok(()),
                some => Err(RebuildError::Doubtful(some)),
            },
        }
    }

    /// The found ones that may have been up after the state from which the cluster is rebuilt, or may not know yet what they miss:
    /// neither to be believed nor to be done without.
    fn doubtful(&self) -> Vec<Absent> {
        let was_behind = |one: &&Seen| {
            let record = self.state.drives.get(&one.label.drive);
            record.is_some_and(|record| record.state == DriveState::Behind)
        };
        let may_keep_later = |one: &&Seen| one.copy().is_none() || self.has_signs_of_a_later_view(one);
        let doubtful = self.found.iter().filter(was_behind).filter(may_keep_later);
        let named = |one: &Seen| Absent {
            drive: one.label.drive,
            server: one.server.unwrap_or(self.server),
            path: one.path.display().to_string(),
            state: DriveState::Behind,
        };
        doubtful.map(named).collect()
    }

    /// Makes the folder.
    pub fn carry_out(&self) -> Result<(), RebuildError> {
        self.check()?;
        let found = self.found.iter().map(|one| {
            let path = std::path::absolute(&one.path).unwrap_or_else(|_| one.path.clone());
            let (server, path) = (one.server.unwrap_or(self.server), path.display().to_string());
            let (generation, keeps_view) = (one.label.generation, self.keeps_view(one));
            (one.label.drive, FoundDrive { server, path, generation, keeps_view })
        });
        let (server, address) = (self.server, self.address());
        let rebuild = Rebuild { server, address, found: found.collect(), given_up: self.given_up() };
        data_folder::prepare(&self.request.folder)?;
        block_on(async { Ok(Metadata::rebuild(&self.request.folder, &self.state, &rebuild).await?) })
    }

    /// Whether it keeps the view from which the cluster is rebuilt, and no sign of a later one by which it may have acted: a damaged
    /// copy is one, unless it's known to be of that view or before.
    fn keeps_view(&self, one: &Seen) -> bool {
        self.has_view(one) && !self.has_signs_of_a_later_view(one)
    }

    fn has_signs_of_a_later_view(&self, one: &Seen) -> bool {
        let last = self.copy.order();
        let is_of_later_view =
            |order: &Option<StateOrder>| order.is_none_or(|order| order > last && !is_of_one_view(order, last));
        one.copies.damaged.iter().any(is_of_later_view)
    }

    fn has_view(&self, one: &Seen) -> bool {
        one.copy().is_some_and(|copy| is_of_one_view(copy.order(), self.copy.order()))
    }

    fn given_up(&self) -> BTreeMap<DriveId, String> {
        let other_past = |(one, why): &(Seen, PassedOver)| {
            let PassedOver::OtherPast(order) = why else { return None };
            Some((one.label.drive, format!("it was used by a state of the cluster that is given up: {order}")))
        };
        let absent = self.absent.iter().filter(|_| self.request.others == Others::AreGivenUp);
        let absent = absent.map(|absent| (absent.drive, "the cluster was rebuilt without it".to_owned()));
        self.passed_over.iter().filter_map(other_past).chain(absent).collect()
    }

    /// One that was a socket in the data folder is in the new one.
    fn address(&self) -> String {
        if let Some(peers) = &self.request.peers {
            return peers.clone();
        }
        let before = self.state.servers.get(&self.server).map(|record| record.address.clone());
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
