//! Finding the drives when the server starts.

use super::generations::Generations;
use super::identity::{Verdict, judge};
use super::look::{Looked, distinct};
use super::signature;
use super::take::{Candidate, state_after};
use super::{DriveOperationError, Drives, OpenDrive};
use crate::agreed::left;
use crate::device::DriveDevice;
use crate::keeping::longest_state;
use crate::world::ServerWorld;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tepal_drive::geometry::default_state;
use tepal_drive::label::Role;
use tepal_drive::world::{Device, DeviceError, Random};
use tepal_drive::{Label, NewDrive};
use tepal_engine::Standing;
use tepal_metadata::{Command, DriveState, ProposeError, State};
use tepal_model::DriveId;
use tepal_model::size::Size;

/// Why a server can't start with its drives. What one drive has is never a reason: the server goes on without it.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("the state of drives can't be recorded: {0}")]
    Metadata(#[from] ProposeError),
    #[error(transparent)]
    Drives(DriveOperationError),
}

impl From<DriveOperationError> for StartError {
    fn from(error: DriveOperationError) -> Self {
        match error {
            DriveOperationError::Metadata(error) => StartError::Metadata(error),
            other => StartError::Drives(other),
        }
    }
}

/// What is done with the devices that were found.
#[derive(Default)]
struct Plan {
    open: Vec<Candidate>,
    unrecorded: Vec<Candidate>,
    blank: Vec<(PathBuf, DriveDevice)>,
    /// By the drive whose log it is.
    logs: BTreeMap<DriveId, DriveDevice>,
}

impl Drives {
    /// Finds all drives and takes them into use. When this returns, the metadata says of every drive of this server what it
    /// is good for, and the engine has those that are here.
    pub async fn start(&self) -> Result<(), StartError> {
        let mut generations = self.turn.lock().await;
        let state = self.parts.metadata.state();
        let mut plan = self.find(&generations, &state).await;
        self.match_logs(&mut plan);
        let mut absent: BTreeMap<DriveId, (DriveState, String)> = BTreeMap::new();
        for (id, opened) in self.open_all(&mut generations, std::mem::take(&mut plan.open)).await? {
            match opened {
                Ok(open) => {
                    let path = open.path.clone();
                    match self.put_in_service(open).await {
                        // Another server has taken it into use meanwhile.
                        Err(DriveOperationError::Metadata(ProposeError::Refused(why))) => {
                            self.refuse(path, why.to_string());
                        }
                        done => done?,
                    }
                }
                Err(error) => {
                    absent.insert(id, (state_after(&error), error.to_string()));
                }
            }
        }
        self.record_absent(absent).await?;
        self.adopt(&mut generations, plan.unrecorded).await?;
        self.label_blank(&mut generations, plan.blank, plan.logs).await
    }

    async fn find(&self, generations: &Generations, state: &State) -> Plan {
        let configured = self.configured.iter().flat_map(|drive| [Some(drive.path.clone()), drive.log.clone()]);
        let recorded = state.drives_of_server(self.server).map(|record| Some(PathBuf::from(&record.path)));
        let paths = distinct(configured.chain(recorded).flatten());
        let (mut seen, mut devices) = (Vec::new(), Vec::new());
        for (path, looked) in paths.iter().zip(self.look(&paths).await) {
            match looked {
                Ok(Looked { seen: found, device }) => {
                    seen.push(found);
                    devices.push(device);
                }
                Err(error) => self.refuse(path.clone(), error.to_string()),
            }
        }
        let mut plan = Plan::default();
        let verdicts = judge(&seen, state, generations.all(), (self.server, &BTreeMap::new()));
        for ((verdict, found), device) in verdicts.into_iter().zip(seen).zip(devices) {
            let path = found.path;
            let candidate = |label, device| Candidate { path: path.clone(), label, device, log: None };
            match verdict {
                Verdict::Refused(why) => self.refuse(path, why.to_string()),
                Verdict::Ours(label) if is_offline(state, label.drive) => {
                    tracing::info!(drive = %label.drive, path = %path.display(), "drive left offline, as it was");
                }
                Verdict::Ours(label) => plan.open.push(candidate(label, device)),
                Verdict::Unrecorded(label) => plan.unrecorded.push(candidate(label, device)),
                Verdict::Blank if self.recorded_at(&path, state).is_some() => {
                    self.refuse(path, "it has no Tepal label, and the cluster's records have a drive there".to_owned());
                }
                Verdict::Blank => plan.blank.push((path, device)),
                Verdict::LogOf(drive) => {
                    plan.logs.insert(drive, device);
                }
            }
        }
        plan
    }

    /// Gives each drive the device of its log, wherever that was found.
    fn match_logs(&self, plan: &mut Plan) {
        for candidate in plan.open.iter_mut().chain(&mut plan.unrecorded) {
            if matches!(candidate.label.role, Role::DataWithLogOn { .. }) {
                candidate.log = plan.logs.remove(&candidate.label.drive);
            }
        }
    }

    /// Drives of this server that were not found are missing from now on.
    async fn record_absent(&self, mut absent: BTreeMap<DriveId, (DriveState, String)>) -> Result<(), StartError> {
        let (state, open) = (self.parts.metadata.state(), self.paths_in_use());
        let refused = self.refused();
        for record in state.drives_of_server(self.server).filter(|record| !open.contains_key(&record.id)) {
            let at_its_path = refused.get(Path::new(&record.path));
            let found = || match at_its_path {
                Some(reason) => format!("not at {}: {reason}", record.path),
                None => format!("not found at {} when the server started", record.path),
            };
            let (to, reason) = absent.remove(&record.id).unwrap_or_else(|| (DriveState::Missing, found()));
            tracing::warn!(drive = %record.id, %to, reason, "drive not in service");
            self.mark_down(record.id, to, reason).await?;
        }
        let state = self.parts.metadata.state();
        for record in state.drives.values().filter(|record| !open.contains_key(&record.id)) {
            let may_return = record.state != DriveState::Failed;
            self.parts.engine.add_absent_drive(record.id, left(record), may_return);
        }
        Ok(())
    }

    /// Takes drives in that were labelled for this cluster just before a crash kept them from being recorded.
    async fn adopt(&self, generations: &mut Generations, found: Vec<Candidate>) -> Result<(), StartError> {
        for (_, opened) in self.open_all(generations, found).await? {
            match opened {
                Ok(open) => {
                    let path = open.path.clone();
                    if let Err(error) = self.add_empty(open).await {
                        self.refuse(path, error.to_string());
                    }
                }
                Err(error) => match &error {
                    DriveOperationError::Open { path, .. }
                    | DriveOperationError::Io { path, .. }
                    | DriveOperationError::Later { path, .. }
                    | DriveOperationError::NoRoomForState { path, .. }
                    | DriveOperationError::Ahead { path, .. } => self.refuse(path.clone(), error.to_string()),
                    _ => return Err(error.into()),
                },
            }
        }
        Ok(())
    }

    /// Makes drives of the configured devices that are empty.
    async fn label_blank(
        &self,
        generations: &mut Generations,
        blank: Vec<(PathBuf, DriveDevice)>,
        logs: BTreeMap<DriveId, DriveDevice>,
    ) -> Result<(), StartError> {
        drop(logs); // those of drives that aren't here
        let mut blank: BTreeMap<PathBuf, DriveDevice> = blank.into_iter().collect();
        for configured in &self.configured {
            let Some(device) = blank.remove(&configured.path) else { continue };
            let log = match &configured.log {
                Some(path) => match blank.remove(path) {
                    Some(log) => Some(log),
                    None => {
                        let reason = format!("its log can't be put on {}, which isn't an empty device", path.display());
                        self.refuse(configured.path.clone(), reason);
                        continue;
                    }
                },
                None => None,
            };
            let path = configured.path.clone();
            let content = Content::MustBeEmpty;
            if let Err(error) = self.make(generations, path.clone(), device, log, &self.pool, content).await {
                self.refuse(path, error.to_string());
            }
        }
        for (path, _) in blank {
            self.refuse(path, "it has no Tepal label".to_owned());
        }
        Ok(())
    }

    /// Labels a device that has no label, and adds it to the cluster.
    pub(super) async fn make(
        &self,
        generations: &mut Generations,
        path: PathBuf,
        device: DriveDevice,
        log: Option<DriveDevice>,
        pool: &str,
        content: Content,
    ) -> Result<DriveId, DriveOperationError> {
        let state = self.parts.metadata.state();
        if !state.pools.contains_key(pool) {
            return Err(DriveOperationError::NoPool(pool.chars().take(140).collect()));
        }
        check_room_for(&state, &path, device.size(), default_state(device.size()))?;
        let new = NewDrive {
            cluster: state.cluster.id,
            drive: DriveId(ServerWorld.next_u64()),
            pool: pool.to_owned(),
            log_length: None,
        };
        let label = self.label(path.clone(), device.clone(), log.clone(), new, content).await?;
        let id = label.drive;
        generations.record([(id, label.generation)])?;
        let candidate = Candidate { path: path.clone(), label, device: device.clone(), log: log.clone() };
        let added = match self.open_one(candidate).await {
            Ok(open) => self.add_empty(open).await,
            Err(error) => Err(error),
        };
        if let Err(error) = added {
            // What may yet be on record must be there then.
            if error.is_final() {
                self.wipe([Some(device), log], &path).await;
                generations.forget(id)?;
            }
            return Err(error);
        }
        Ok(id)
    }

    async fn label(
        &self,
        path: PathBuf,
        device: DriveDevice,
        log: Option<DriveDevice>,
        new: NewDrive,
        content: Content,
    ) -> Result<Label, DriveOperationError> {
        let work = move || async move {
            for device in [Some(&device), log.as_ref()].into_iter().flatten() {
                let io = |reason: DeviceError| DriveOperationError::Io { path: path.clone(), reason };
                if content == Content::MustBeEmpty
                    && let Some(what) = signature::content(device).await.map_err(io)?
                {
                    return Err(DriveOperationError::NotEmpty { path, what });
                }
            }
            let labelled = tepal_drive::format(&device, log.as_ref(), new).await;
            labelled.map_err(|reason| DriveOperationError::Open { path, reason })
        };
        self.parts.threads.run_on(self.some_thread(), work).await?
    }

    /// Records an open drive that has nothing on it, and puts it in service.
    pub(super) async fn add_empty(&self, open: OpenDrive) -> Result<(), DriveOperationError> {
        let id = open.drive.id();
        if !open.drive.allocated().is_empty() || !open.drive.marks().is_empty() {
            let why = super::identity::Refused::Removed { drive: id };
            return Err(DriveOperationError::Refused { path: open.path, why });
        }
        let geometry = open.drive.geometry();
        check_room_for(&self.parts.metadata.state(), &open.path, geometry.size, geometry.state_length)?;
        let (pool, capacity) = (open.drive.label().pool.clone(), open.drive.usage().capacity);
        let path = open.path.display().to_string();
        let add = Command::AddDrive { id, server: self.server, pool, path, capacity, spare: false };
        // Once it's agreed, a volume may be put on it, and must not find it missing: it's on record as up.
        self.give_to_engine(&open, Standing::Current).await?;
        if let Err(error) = self.parts.authority.propose(add).await {
            self.parts.engine.forget_drive(id);
            return Err(error.into());
        }
        self.accept(open);
        Ok(())
    }

    /// Best effort: what keeps its label is refused with a clear reason when it's added again.
    pub(super) async fn wipe(&self, devices: [Option<DriveDevice>; 2], path: &Path) {
        for device in devices.into_iter().flatten() {
            let wiped =
                self.parts.threads.run_on(self.some_thread(), move || async move { tepal_drive::wipe(&device).await });
            if let Ok(Err(error)) = wiped.await {
                tracing::warn!(path = %path.display(), %error, "a device that isn't used any more keeps its label");
            }
        }
    }
}

/// A drive that can't keep the state keeps others from adding to it. `place` is what it has for a copy; 0 if it keeps none.
fn check_room_for(state: &State, path: &Path, size: u64, place: u64) -> Result<(), DriveOperationError> {
    let (room, needed) = (longest_state(place), state.to_copy().len() as u64);
    if place == 0 || needed <= room {
        return Ok(());
    }
    Err(DriveOperationError::NoRoomForState { path: path.to_owned(), size: Size(size), room, needed })
}

/// Whether data that seems to be on a device keeps it from being made a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    MustBeEmpty,
    MayBeLost,
}

fn is_offline(state: &State, drive: DriveId) -> bool {
    state.drives.get(&drive).is_some_and(|record| record.state == DriveState::Offline)
}
