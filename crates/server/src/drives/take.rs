//! Taking a drive into use.
//!
//! The steps, each harmless if the next never comes: raise the label's generation, write the generation down, open the
//! drive, have the metadata say what it's good for, give it to the engine.

use super::generations::Generations;
use super::{DriveOperationError, Drives, OpenDrive};
use crate::agreed::left;
use crate::device::DriveDevice;
use crate::observed::meter::Meter;
use crate::observed::metered::MeteredDevice;
use crate::slow::Lately;
use crate::world::ServerWorld;
use futures_util::future::join_all;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tepal_drive::world::Device;
use tepal_drive::{Drive, Label, Options, StateOrder};
use tepal_engine::Standing;
use tepal_metadata::{Command, DriveRecord, DriveState, ProposeError};
use tepal_model::DriveId;
use tepal_model::size::Size;

/// A drive of ours that was found, and is to be used.
#[derive(Clone)]
pub struct Candidate {
    pub path: PathBuf,
    pub label: Label,
    pub device: DriveDevice,
    pub log: Option<DriveDevice>,
}

impl Drives {
    /// Opens drives at the same time, on all data threads.
    pub(super) async fn open_all(
        &self,
        generations: &mut Generations,
        candidates: Vec<Candidate>,
    ) -> Result<Vec<(DriveId, Result<OpenDrive, DriveOperationError>)>, DriveOperationError> {
        let raised = join_all(candidates.into_iter().map(|candidate| self.raise(candidate))).await;
        let labels = raised.iter().filter_map(|(_, raised)| raised.as_ref().ok());
        generations.record(labels.map(|candidate| (candidate.label.drive, candidate.label.generation)))?;
        let opening = raised.into_iter().map(|(drive, raised)| async move {
            match raised {
                Ok(candidate) => (drive, self.open_one(candidate).await),
                Err(error) => (drive, Err(error)),
            }
        });
        Ok(join_all(opening).await)
    }

    /// Writes the label anew, with the next generation.
    async fn raise(&self, mut candidate: Candidate) -> (DriveId, Result<Candidate, DriveOperationError>) {
        let drive = candidate.label.drive;
        candidate.label.generation += 1;
        let Candidate { label, device, log, .. } = candidate.clone();
        let known = self.batches.of(drive);
        let work = move || async move { tepal_drive::raise(&label, &device, log.as_ref(), known).await };
        let outcome = match self.parts.threads.run_on(self.some_thread(), work).await {
            Ok(Ok(is_doubtful)) => {
                if is_doubtful {
                    self.doubt(drive);
                }
                Ok(candidate)
            }
            Ok(Err(reason)) => Err(DriveOperationError::Open { path: candidate.path, reason }),
            Err(stopped) => Err(stopped.into()),
        };
        (drive, outcome)
    }

    pub(super) async fn open_one(&self, candidate: Candidate) -> Result<OpenDrive, DriveOperationError> {
        let Candidate { path, device, log, .. } = candidate;
        let (meter, lately) = (Arc::<Meter>::default(), Arc::<Lately>::default());
        let metered = |device: &DriveDevice| MeteredDevice::new(device.clone(), meter.clone(), lately.clone());
        let (for_drive, for_log) = (metered(&device), log.as_ref().map(metered));
        let work = move || async move {
            let drive = Drive::open(ServerWorld, for_drive, for_log, Options::default()).await?;
            // One that can't say it is lost by now, which whoever uses it finds out.
            let kept = drive.kept_order().await.unwrap_or(None);
            Ok((drive, kept))
        };
        match self.parts.threads.run_on(self.some_thread(), work).await? {
            Ok((drive, kept)) => {
                self.check_not_lost(&drive, kept, &path)?;
                self.check_not_ahead(&drive, &path)?;
                Ok(OpenDrive { path, drive, device, log })
            }
            Err(reason) => Err(DriveOperationError::Open { path, reason }),
        }
    }

    /// A drive that keeps a state which was lost when the cluster was rebuilt, or one of another rebuild, may hold what was written by it:
    /// of volumes of which these records say something else, and what others don't have.
    fn check_not_lost(
        &self,
        drive: &Drive<ServerWorld>,
        kept: Option<StateOrder>,
        path: &Path,
    ) -> Result<(), DriveOperationError> {
        let state = self.parts.metadata.state();
        let is_lost = |kept: &StateOrder| !state.has_past(kept.history, kept.view, kept.events);
        let Some(kept) = kept.filter(is_lost) else { return Ok(()) };
        drive.pull("it keeps a state that is none of this cluster's past");
        Err(DriveOperationError::Later { path: path.to_owned(), drive: drive.id(), kept })
    }

    /// Maps are numbered in the order in which they are made. A drive that holds one of those to come has seen a later
    /// state than these records: its unknown maps are no removed volumes, and new volumes would get their numbers.
    fn check_not_ahead(&self, drive: &Drive<ServerWorld>, path: &Path) -> Result<(), DriveOperationError> {
        let state = self.parts.metadata.state();
        let maps = drive.allocated().into_iter().filter(|(map, _)| state.is_map_of_another_past(*map)).count();
        if maps == 0 {
            return Ok(());
        }
        drive.pull("it is of a later state than the cluster's records");
        Err(DriveOperationError::Ahead { path: path.to_owned(), drive: drive.id(), maps, view: state.view() })
    }

    /// Has the metadata say that the drive is here, and gives it to the engine: as current only if it never went away.
    pub(super) async fn put_in_service(&self, open: OpenDrive) -> Result<(), DriveOperationError> {
        let id = open.drive.id();
        self.record_place(id, &open).await?;
        let standing = loop {
            let record = self.record(id)?;
            match record.state {
                DriveState::Up => break Standing::Current,
                DriveState::Behind => break Standing::Behind(left(&record)),
                DriveState::Missing | DriveState::Offline | DriveState::Failed => {
                    let reason = "it is back, and catches up on what it missed".to_owned();
                    let expected_view = Some(record.state_view);
                    let command = Command::SetDriveState { id, to: DriveState::Behind, reason, expected_view };
                    match self.parts.authority.propose(command).await {
                        // Done, or not yet, as servers come and go: look again.
                        Ok(_) | Err(ProposeError::Unknown) => {}
                        Err(error) => return Err(error.into()),
                    }
                }
            }
        };
        let since = self.record(id)?.state_view;
        self.parts.authority.note_behind_since(id, since);
        // By an earlier state others' marks of what it misses are taken for ones of no use, and given up.
        self.parts.authority.caught_up(since).await;
        self.accept(open.clone());
        self.give_to_engine(&open, standing).await
    }

    pub(super) async fn give_to_engine(&self, open: &OpenDrive, standing: Standing) -> Result<(), DriveOperationError> {
        let (id, drive) = (open.drive.id(), open.drive.clone());
        let (backend, why) = (open.device.backend(), open.device.backend_reason());
        tracing::info!(drive = %id, path = %open.path.display(), ?standing, %backend, %why, "drive in service");
        let beyond = drive.label().beyond(open.device.size());
        if beyond > 0 {
            let (beyond, path) = (Size(beyond), open.path.display());
            let unused = match drive.label().grown(open.device.size()) {
                Ok(_) => format!("the drive doesn't use that until `tepal drive grow {id}`"),
                Err(why) => why.to_string(),
            };
            tracing::warn!(drive = %id, %path, %beyond, unused, "the device has grown since it was labelled");
        }
        let (engine, metadata) = (self.parts.engine.clone(), self.parts.metadata.clone());
        let (adding, added) = (engine.clone(), drive.clone());
        let adding = move || async move { adding.add_drive(added, standing) };
        self.parts.threads.run_on(self.some_thread(), adding).await?;
        self.parts.keeper.begin(&open.drive, self.some_thread());
        let work = move || async move {
            // Volumes that were removed while it was away.
            let known = |map| metadata.state().maps.contains_key(&map);
            if let Err(error) = engine.free_unknown(&drive, known).await {
                tracing::warn!(drive = %id, %error, "space of removed volumes can't be given back now");
            }
        };
        Ok(self.parts.threads.run_on(self.some_thread(), work).await?)
    }

    /// Where the drive is, in which generation, and what it has grown to: any other image of it is an older one from here on, also for
    /// other servers.
    async fn record_place(&self, id: DriveId, open: &OpenDrive) -> Result<(), DriveOperationError> {
        let (server, path, generation) = (self.server, open.path.display().to_string(), open.drive.label().generation);
        let found = Command::DriveMoved { id, server, path, generation };
        let capacity = open.drive.usage().capacity;
        let has_grown = !open.drive.label().outgrown.is_empty() && capacity > self.record(id)?.capacity;
        let grew = has_grown.then_some(Command::DriveGrew { id, capacity });
        for command in [Some(found), grew].into_iter().flatten() {
            if let Err(error) = self.parts.authority.propose(command).await {
                open.drive.pull("it couldn't be agreed that it's here");
                return Err(error.into());
            }
        }
        Ok(())
    }

    pub(super) fn record(&self, id: DriveId) -> Result<std::sync::Arc<DriveRecord>, DriveOperationError> {
        self.parts.metadata.state().drives.get(&id).cloned().ok_or(DriveOperationError::Unknown(id))
    }

    /// Says in the metadata that a drive isn't in service, if it says otherwise.
    pub(super) async fn mark_down(
        &self,
        id: DriveId,
        to: DriveState,
        reason: String,
    ) -> Result<(), DriveOperationError> {
        let record = self.record(id)?;
        if record.state.takes_writes() || (record.state == DriveState::Missing && to == DriveState::Failed) {
            let expected_view = Some(record.state_view);
            self.parts.authority.propose(Command::SetDriveState { id, to, reason, expected_view }).await?;
        }
        Ok(())
    }
}

/// What a drive that can't be opened is from now on: what was once damaged never becomes whole; all else may pass.
pub fn state_after(error: &DriveOperationError) -> DriveState {
    use tepal_drive::OpenError::{Header, LogContradicts, LogDamaged, MapLost, MapPage};
    match error {
        DriveOperationError::Open {
            reason: Header | MapPage { .. } | MapLost | LogDamaged { .. } | LogContradicts { .. },
            ..
        } => DriveState::Failed,
        _ => DriveState::Missing,
    }
}
