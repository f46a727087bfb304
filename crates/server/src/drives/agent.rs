//! The drive agent: notices, once a second, drives that were pulled or replaced, and those that are back (V:Drive's drive
//! agent).

use super::fullness;
use super::generations::Generations;
use super::identity::{Verdict, judge};
use super::look::{Looked, distinct};
use super::take::{Candidate, state_after};
use super::{DriveOperationError, Drives, OpenDrive};
use crate::agreed::left;
use crate::device::Presence;
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tepal_drive::Loss;
use tepal_drive::label::Role;
use tepal_metadata::{DriveRecord, DriveState, ServerState};
use tepal_model::DriveId;
use tokio::time::{Instant, MissedTickBehavior, interval};

const EVERY: Duration = Duration::from_secs(1);
/// In how many looks the drives' batches are written down once.
const BATCHES_EVERY: u64 = 2;
/// How often a drive is tried that is there and can't be used, as long as nothing about its path changes.
const TRY_AGAIN: Duration = Duration::from_secs(15);

/// Why a path can't be used where nothing is.
pub const NOTHING_THERE: &str = "nothing is there";

/// Watches the drives until it's dropped.
pub async fn watch(drives: Arc<Drives>) {
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut attempts, mut fullness) = (Attempts::default(), BTreeMap::new());
    for tick in 0u64.. {
        ticks.tick().await;
        drives.look_after(&mut attempts).await;
        if tick.is_multiple_of(BATCHES_EVERY) {
            let drives = drives.clone();
            // Two flushes of the data folder's disk: nobody is to wait for them.
            let noted = tokio::task::spawn_blocking(move || {
                let open: Vec<_> = drives.open().into_values().map(|open| open.drive).collect();
                drives.note_batches(&open);
            });
            let _ = noted.await;
        }
        fullness::log_changes(&mut fullness, &drives.open());
    }
}

/// What was tried in vain: not again until the path shows something else, or some time has passed.
#[derive(Default)]
pub(super) struct Attempts(BTreeMap<PathBuf, (Sight, Instant)>);

/// What a path shows without opening it.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Sight {
    filesystem: u64,
    inode: u64,
    device: u64,
    size: u64,
}

fn sight(path: &Path) -> Option<Sight> {
    let found = std::fs::metadata(path).ok()?;
    Some(Sight { filesystem: found.dev(), inode: found.ino(), device: found.rdev(), size: found.size() })
}

impl Attempts {
    fn begin_if_due(&mut self, path: &Path) -> bool {
        let Some(seen) = sight(path) else {
            self.0.remove(path);
            return false;
        };
        let now = Instant::now();
        let due = self.0.get(path).is_none_or(|(before, tried)| *before != seen || now - *tried >= TRY_AGAIN);
        if due {
            self.0.insert(path.to_owned(), (seen, now));
        }
        due
    }
}

impl Drives {
    pub(super) async fn look_after(&self, attempts: &mut Attempts) {
        for (id, open) in self.open() {
            if let Some(loss) = loss_of(id, &open) {
                self.let_go(id, loss).await;
            }
        }
        if let Err(error) = self.follow_records().await {
            tracing::debug!(%error, "drives can't be made what they are on record");
        }
        self.look_at_refused();
        let missing = self.missing();
        let due: BTreeSet<PathBuf> = match missing.is_empty() {
            true => return,
            false => self.places_of(&missing).into_iter().filter(|path| attempts.begin_if_due(path)).collect(),
        };
        if due.is_empty() {
            return;
        }
        let mut generations = self.turn.lock().await;
        if self.parts.authority.is_stopping() {
            return;
        }
        // Not those that were taken offline or out, or brought back, while this waited for its turn.
        let missing = self.missing();
        let mut paths = self.places_of(&missing);
        paths.retain(|path| due.contains(path));
        if missing.is_empty() || paths.is_empty() {
            return;
        }
        let wanted: Vec<DriveId> = missing.into_keys().collect();
        if let Err(error) = self.try_paths(&mut generations, &paths, &wanted).await {
            tracing::warn!(%error, "missing drives can't be brought back");
        }
    }

    /// Where missing drives may be: where they were, and where the server was told to have some, unless one that is here is there.
    fn places_of(&self, missing: &BTreeMap<DriveId, PathBuf>) -> Vec<PathBuf> {
        let used: Vec<PathBuf> = self.paths_in_use().into_values().collect();
        let configured = self.configured.iter().map(|drive| drive.path.clone());
        let places = missing.values().cloned().chain(configured);
        distinct(places.filter(|path| !used.contains(path)))
    }

    /// Carries out what was agreed after whoever proposed it had given up.
    async fn follow_records(&self) -> Result<(), DriveOperationError> {
        let (open, state) = (self.open(), self.parts.metadata.state()); // one that is open had been on record before
        let is_failed = |record: &DriveRecord| record.state == DriveState::Failed;
        let is_out = |id: &DriveId| state.drives.get(id).is_none_or(|record| is_failed(record));
        let (out, others): (Vec<DriveId>, Vec<DriveId>) = open.into_keys().partition(is_out);
        for drive in out {
            self.let_go(drive, Loss::Retired { drive, reason: "it was removed from the cluster".to_owned() }).await;
        }
        let is_away = |record: &DriveRecord| matches!(record.state, DriveState::Missing | DriveState::Offline);
        let is_missing = |id: &DriveId| state.drives.get(id).is_some_and(|record| is_away(record));
        for drive in others.into_iter().filter(is_missing) {
            // Those who couldn't reach it went on without it. It's back as soon as it's opened again.
            self.let_go(drive, Loss::Gone { drive, reason: "other servers have gone on without it".to_owned() }).await;
        }
        for record in state.drives_of_server(self.server).filter(|record| is_failed(record)) {
            if self.parts.engine.awaits_drive(record.id) {
                self.retire_absent(record.id).await?;
            }
        }
        let is_unsettled = |id: &DriveId| {
            let takes_writes = self.record(*id).is_ok_and(|record| record.state.takes_writes());
            takes_writes || !self.parts.engine.knows_drive(*id)
        };
        if !self.missing().keys().any(is_unsettled) {
            return Ok(());
        }
        let _turn = self.turn.lock().await;
        if self.parts.authority.is_stopping() {
            return Ok(());
        }
        for id in self.missing().into_keys() {
            self.mark_down(id, DriveState::Missing, "it did not come into service".to_owned()).await?;
            if !self.parts.engine.knows_drive(id) {
                self.parts.engine.add_absent_drive(id, left(&*self.record(id)?), true);
            }
        }
        Ok(())
    }

    /// What isn't there any more is no trouble any more, unless it should be.
    fn look_at_refused(&self) {
        for (path, _) in self.refused() {
            if sight(&path).is_some() {
                continue;
            }
            if self.configured.iter().any(|drive| drive.path == path || drive.log.as_ref() == Some(&path)) {
                self.refuse(path, NOTHING_THERE.to_owned());
            } else {
                self.table().refused.remove(&path);
            }
        }
    }

    /// Drives of this server that should be here and aren't, with the paths where they were last.
    fn missing(&self) -> BTreeMap<DriveId, PathBuf> {
        let (state, open) = (self.parts.metadata.state(), self.paths_in_use());
        if state.servers.get(&self.server).is_none_or(|server| server.state == ServerState::Down) {
            return BTreeMap::new(); // first it has to return itself
        }
        let own = state.drives_of_server(self.server).filter(|record| !open.contains_key(&record.id));
        let awaited =
            own.filter(|record| matches!(record.state, DriveState::Missing | DriveState::Behind | DriveState::Up));
        awaited.map(|record| (record.id, PathBuf::from(&record.path))).collect()
    }

    async fn let_go(&self, id: DriveId, loss: Loss) {
        let _turn = self.turn.lock().await;
        if self.parts.authority.is_stopping() {
            return; // it's closed with the others
        }
        let retired = matches!(loss, Loss::Retired { .. });
        let text = loss.to_string();
        if let Err(error) = self.lose(id, loss).await {
            tracing::error!(drive = %id, %error, "a lost drive can't be let go");
            return;
        }
        let gone = self.table().open.remove(&id);
        if let Some(open) = gone.filter(|_| retired) {
            self.refuse(open.path, text);
        }
    }

    /// Lets go of every drive, as if it had been pulled: what it was good for may have been agreed upon anew meanwhile.
    pub async fn let_go_of_all(&self, reason: &str) {
        for id in self.open().into_keys() {
            self.let_go(id, Loss::Gone { drive: id, reason: reason.to_owned() }).await;
        }
    }

    /// Brings a drive back that is looked for at its own path and the configured ones.
    pub(super) async fn bring_back(
        &self,
        generations: &mut Generations,
        id: DriveId,
    ) -> Result<(), DriveOperationError> {
        let path = PathBuf::from(&self.record(id)?.path);
        let used: Vec<PathBuf> = self.paths_in_use().into_values().collect();
        let configured = self.configured.iter().map(|drive| drive.path.clone()).filter(|path| !used.contains(path));
        let paths = distinct(std::iter::once(path.clone()).chain(configured));
        self.try_paths(generations, &paths, &[id]).await?;
        if self.paths_in_use().contains_key(&id) {
            return Ok(());
        }
        let found = self.refused().remove(&path).unwrap_or_else(|| "nothing with its label was found".to_owned());
        Err(DriveOperationError::NotThere { drive: id, path, found })
    }

    /// Takes those of the wanted drives into use that are at these paths.
    async fn try_paths(
        &self,
        generations: &mut Generations,
        paths: &[PathBuf],
        wanted: &[DriveId],
    ) -> Result<(), DriveOperationError> {
        let (mut seen, mut devices) = (Vec::new(), Vec::new());
        for (path, looked) in paths.iter().zip(self.look(paths).await) {
            match looked {
                Ok(Looked { seen: found, device }) => {
                    seen.push(found);
                    devices.push(device);
                }
                Err(error) => self.refuse(path.clone(), error.to_string()),
            }
        }
        let state = self.parts.metadata.state();
        let verdicts = judge(&seen, &state, generations.all(), (self.server, &self.paths_in_use()));
        let mut candidates = Vec::new();
        for ((verdict, found), device) in verdicts.into_iter().zip(seen).zip(devices) {
            let path = found.path;
            match verdict {
                Verdict::Ours(label) if wanted.contains(&label.drive) => {
                    let log = match label.role {
                        Role::DataWithLogOn { .. } => self.find_log(&path).await,
                        Role::Data { .. } | Role::LogOf { .. } => None,
                    };
                    candidates.push(Candidate { path, label, device, log });
                }
                Verdict::Refused(why) => self.refuse(path, why.to_string()),
                Verdict::Blank => self.refuse(path, "it has no Tepal label".to_owned()),
                Verdict::Ours(_) | Verdict::Unrecorded(_) | Verdict::LogOf(_) => {}
            }
        }
        if candidates.is_empty() {
            return Ok(());
        }
        let paths: BTreeMap<DriveId, PathBuf> =
            candidates.iter().map(|candidate| (candidate.label.drive, candidate.path.clone())).collect();
        for (id, opened) in self.open_all(generations, candidates).await? {
            match opened {
                Ok(open) => {
                    // If it couldn't be recorded that it went away, that is made good first: it is not whole now.
                    self.mark_down(id, DriveState::Missing, "it was away".to_owned()).await?;
                    self.put_in_service(open).await?;
                }
                Err(error) => {
                    self.refuse(paths[&id].clone(), error.to_string());
                    self.mark_down(id, state_after(&error), error.to_string()).await?;
                    if self.record(id)?.state == DriveState::Failed {
                        self.retire_absent(id).await?;
                    }
                }
            }
        }
        Ok(())
    }

    /// The device that is configured for the log of the drive at `path`.
    async fn find_log(&self, path: &Path) -> Option<crate::device::DriveDevice> {
        let configured = self.configured.iter().find(|drive| drive.path == path)?;
        self.look_at(configured.log.as_ref()?).await.ok().map(|looked| looked.device)
    }
}

/// Why an open drive is to be let go, if so.
fn loss_of(id: DriveId, open: &OpenDrive) -> Option<Loss> {
    if let Some(loss) = open.drive.loss() {
        return Some(Loss::clone(&loss));
    }
    for device in [Some(&open.device), open.log.as_ref()].into_iter().flatten() {
        match device.still_there() {
            Presence::Here => {}
            // A look that fails says nothing; I/O that fails does.
            Presence::Unknown(reason) => tracing::debug!(drive = %id, reason, "a drive can't be looked at"),
            gone @ (Presence::Missing | Presence::Replaced | Presence::CutShort { .. }) => {
                return Some(Loss::Gone { drive: id, reason: gone.to_string() });
            }
        }
    }
    None
}
