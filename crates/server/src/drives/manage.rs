//! What an operator asks of drives: add, remove, take offline, bring back.

use super::identity::{Verdict, judge};
use super::kept::Kept;
use super::look::{LookError, Looked, same_place};
use super::start::Content;
use super::take::Candidate;
use super::{DriveOperationError, Drives};
use crate::agreed::left;
use crate::config::usable_path;
use crate::device;
use std::path::{Path, PathBuf};
use tepal_drive::Loss;
use tepal_drive::geometry::MIN_DRIVE;
use tepal_metadata::{Command, DriveState, DriveUse, ProposeError, Refusal, Reply, ServerState, State};
use tepal_model::size::Size;
use tepal_model::{DriveId, ServerId};

/// A device that is to become a drive.
#[derive(Clone, Debug)]
pub struct NewDriveRequest {
    pub path: PathBuf,
    pub pool: String,
    /// Make it first, as a file of so many bytes.
    pub create: Option<u64>,
    /// Even if it seems to hold somebody's data; never if it has a Tepal label.
    pub force: bool,
}

impl From<LookError> for DriveOperationError {
    fn from(error: LookError) -> Self {
        match error {
            LookError::Device(error) => error.into(),
            LookError::Stopped(stopped) => stopped.into(),
        }
    }
}

impl Drives {
    /// Adds a device to the cluster. If that fails, nothing is changed.
    pub async fn add(&self, request: NewDriveRequest) -> Result<DriveId, DriveOperationError> {
        let path = usable_path(&request.path)?;
        let mut generations = self.turn.lock().await;
        if let Some((drive, _)) = self.paths_in_use().into_iter().find(|(_, used)| same_place(used, &path)) {
            return Err(DriveOperationError::InUse { path, drive });
        }
        if !self.parts.metadata.state().pools.contains_key(&request.pool) {
            return Err(DriveOperationError::NoPool(request.pool.chars().take(140).collect()));
        }
        let Some(size) = request.create else {
            return self.add_at(&mut generations, path, &request).await;
        };
        if size < MIN_DRIVE {
            return Err(DriveOperationError::TooSmall { path, size: Size(size) });
        }
        let made = match device::create_file(&path, size) {
            Ok(()) => true,
            // Made by this command when it was cut off; whether it's blank is looked at below.
            Err(device::CreateError::Exists { .. }) if is_file_of(&path, size) => false,
            Err(error) => return Err(error.into()),
        };
        let added = self.add_at(&mut generations, path.clone(), &request).await;
        if added.as_ref().is_err_and(DriveOperationError::is_final)
            && made
            && let Err(error) = std::fs::remove_file(&path)
        {
            tracing::warn!(path = %path.display(), %error, "a file that was made for a drive is left");
        }
        added
    }

    async fn add_at(
        &self,
        generations: &mut super::Generations,
        path: PathBuf,
        request: &NewDriveRequest,
    ) -> Result<DriveId, DriveOperationError> {
        let Looked { seen, device } = self.look_at(&path).await?;
        let state = self.parts.metadata.state();
        let verdict =
            judge(std::slice::from_ref(&seen), &state, generations.all(), (self.server, &self.paths_in_use())).pop();
        match verdict.expect("one verdict for one device") {
            Verdict::Refused(why) => Err(DriveOperationError::Refused { path, why }),
            Verdict::LogOf(drive) => Err(DriveOperationError::IsLog { path, drive }),
            Verdict::Ours(label) => {
                let state = self.record(label.drive)?.state;
                Err(DriveOperationError::Recorded { path, drive: label.drive, state })
            }
            Verdict::Unrecorded(label) => {
                let id = label.drive;
                let candidate = Candidate { path, label, device, log: None };
                let mut opened = self.open_all(generations, vec![candidate]).await?;
                let (_, opened) = opened.pop().expect("one answer for one drive");
                self.add_empty(opened?).await?;
                Ok(id)
            }
            Verdict::Blank => {
                if let Some(drive) = self.recorded_at(&path, &state).filter(|_| !request.force) {
                    return Err(DriveOperationError::LabelLost { path, drive });
                }
                let content = if request.force { Content::MayBeLost } else { Content::MustBeEmpty };
                self.make(generations, path, device, None, &request.pool, content).await
            }
        }
    }

    /// The drive of this server that should be at this path. One that was removed shouldn't be anywhere, though others may not have all
    /// that it held yet.
    pub(super) fn recorded_at(&self, path: &Path, state: &State) -> Option<DriveId> {
        let mut stays = state.drives_of_server(self.server).filter(|record| record.purpose != DriveUse::Removed);
        stays.find(|record| Path::new(&record.path) == path).map(|record| record.id)
    }

    /// Takes a drive out of the cluster for good. The answer names the volumes whose maps still name it. `kept_elsewhere` is what
    /// other servers say.
    pub async fn remove(
        &self,
        id: DriveId,
        force: bool,
        kept_elsewhere: &Kept,
        on_terms: impl Fn(Command) -> Command,
    ) -> Result<Vec<String>, DriveOperationError> {
        let mut generations = self.turn.lock().await;
        let record = self.record(id)?;
        if record.server != self.server {
            return self.remove_of_absent((id, record.server), force, kept_elsewhere, on_terms).await;
        }
        // A drive that is up may still miss what only this one has; the metadata doesn't know.
        let volumes = self.endangered_without(id, kept_elsewhere);
        if !force && record.state != DriveState::Failed && !volumes.is_empty() {
            return Err(ProposeError::Refused(Refusal::LastCopy { id, volumes }).into());
        }
        let command = on_terms(Command::RemoveDrive { id, force });
        self.parts.metadata.check(&command).map_err(ProposeError::Refused)?;
        // Out of use before it's agreed that it has failed: what only it took after that would be lost without a word. If the
        // removal isn't agreed to after all, or not yet known to be, it's looked for like any drive that is missing.
        let open = self.table().open.remove(&id);
        if open.is_some() {
            self.lose(id, Loss::Gone { drive: id, reason: "it is being removed by the operator".to_owned() }).await?;
        }
        let reply = self.parts.metadata.propose(command).await?;
        // Requests may wait for it.
        self.retire_absent(id).await?;
        if let Some(open) = open {
            self.wipe([Some(open.device), open.log], &open.path).await;
        }
        // It's removed, whatever else is known of it: to whoever asked that is done.
        if let Err(error) = generations.forget(id) {
            tracing::warn!(drive = %id, %error, "the generation of a removed drive stays written down");
        }
        match reply {
            Reply::DriveRetired { volumes } => Ok(volumes),
            _ => {
                self.parts.engine.forget_drive(id);
                Ok(Vec::new())
            }
        }
    }

    /// The same for a drive of a server that won't come back, or not with this drive, as the operator says.
    async fn remove_of_absent(
        &self,
        (drive, server): (DriveId, ServerId),
        force: bool,
        kept_elsewhere: &Kept,
        on_terms: impl Fn(Command) -> Command,
    ) -> Result<Vec<String>, DriveOperationError> {
        let record = self.parts.metadata.state().servers.get(&server).cloned();
        if record.is_some_and(|record| record.state == ServerState::Up) {
            return Err(DriveOperationError::OnOtherServer { drive, server });
        }
        if !force {
            let volumes = self.endangered_without(drive, kept_elsewhere);
            return Err(DriveOperationError::OfAbsent { drive, server, volumes });
        }
        match self.parts.metadata.propose(on_terms(Command::RemoveDrive { id: drive, force })).await? {
            Reply::DriveRetired { volumes } => Ok(volumes),
            _ => Ok(Vec::new()),
        }
    }

    /// Takes a drive out of service until it's brought back with [`Drives::online`].
    pub async fn offline(&self, id: DriveId) -> Result<(), DriveOperationError> {
        let _turn = self.turn.lock().await;
        let record = self.own(id)?;
        if record.state == DriveState::Offline {
            return Ok(());
        }
        let reason = "taken offline by the operator".to_owned();
        let open = self.table().open.remove(&id);
        if open.is_some() {
            self.lose(id, Loss::Gone { drive: id, reason: reason.clone() }).await?;
        }
        let command = Command::SetDriveState { id, to: DriveState::Offline, reason, expected_view: None };
        self.parts.metadata.propose(command).await?;
        Ok(())
    }

    /// Brings a drive back that was taken offline; it catches up then.
    pub async fn online(&self, id: DriveId) -> Result<(), DriveOperationError> {
        let mut generations = self.turn.lock().await;
        let record = self.own(id)?;
        if record.state != DriveState::Offline {
            return Err(DriveOperationError::NotOffline { drive: id, state: record.state });
        }
        self.bring_back(&mut generations, id).await
    }

    pub(super) fn own(&self, id: DriveId) -> Result<std::sync::Arc<tepal_metadata::DriveRecord>, DriveOperationError> {
        let record = self.record(id)?;
        if record.server != self.server {
            return Err(DriveOperationError::OnOtherServer { drive: id, server: record.server });
        }
        Ok(record)
    }

    pub(super) async fn lose(&self, id: DriveId, loss: Loss) -> Result<(), DriveOperationError> {
        let engine = self.parts.engine.clone();
        Ok(self
            .parts
            .threads
            .run_on(self.some_thread(), move || async move { engine.lose_drive(id, loss).await })
            .await?)
    }

    /// Nobody is to wait any more for a drive that isn't here. That must have been agreed.
    pub(super) async fn retire_absent(&self, id: DriveId) -> Result<(), DriveOperationError> {
        let engine = self.parts.engine.clone();
        let state = self.parts.metadata.state();
        let left = state.drives.get(&id).map_or(state.view(), |record| left(record));
        let retire = move || async move { engine.retire_absent(id, left) };
        Ok(self.parts.threads.run_on(self.some_thread(), retire).await?)
    }
}

fn is_file_of(path: &Path, size: u64) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|found| found.is_file() && found.len() == size)
}
