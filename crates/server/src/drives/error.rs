//! Why something that was asked of the drives wasn't done.

use super::generations::GenerationsError;
use super::identity::Refused;
use crate::config::PathError;
use crate::data_threads::Stopped;
use crate::device;
use std::path::PathBuf;
use tepal_drive::geometry::MIN_DRIVE;
use tepal_drive::world::DeviceError;
use tepal_drive::{GrowError, StateOrder};
use tepal_metadata::{DriveState, ProposeError};
use tepal_model::size::Size;
use tepal_model::{DriveId, ServerId};

#[derive(Debug, thiserror::Error)]
pub enum DriveOperationError {
    #[error("{0}")]
    Path(#[from] PathError),
    #[error(transparent)]
    Device(#[from] device::OpenError),
    #[error(transparent)]
    Create(#[from] device::CreateError),
    #[error("{}: {size} is too small: a drive has at least {}", path.display(), Size(MIN_DRIVE))]
    TooSmall { path: PathBuf, size: Size },
    #[error("{}: {why}", path.display())]
    Refused { path: PathBuf, why: Refused },
    #[error("{} holds {what}: use --force if that data is to be lost", path.display())]
    NotEmpty { path: PathBuf, what: &'static str },
    #[error("{} is the log of drive {drive}", path.display())]
    IsLog { path: PathBuf, drive: DriveId },
    #[error("{}: the cluster's record of drive {drive} says that it is there, but it has no label", path.display())]
    LabelLost { path: PathBuf, drive: DriveId },
    #[error("{} is in use already, as drive {drive}", path.display())]
    InUse { path: PathBuf, drive: DriveId },
    #[error("{} belongs to drive {drive}, which the cluster has as {state}", path.display())]
    Recorded { path: PathBuf, drive: DriveId, state: DriveState },
    #[error("{}: {reason}", path.display())]
    Open { path: PathBuf, reason: tepal_drive::OpenError },
    #[error(
        "{}: drive {drive} holds data of {maps} volumes that were made after this state of the cluster's records, view {view}: \
         cluster.db seems to be an older copy; put the newest one back. Or the cluster was rebuilt from an earlier state: then rebuild \
         it once more with the drives that keep a later one, or, if there are none and what only this drive has may be lost, \
         `tepal drive rm {drive} --force`, `tepal drive wipe {} --drive {drive}`, and add it anew", path.display(), path.display()
    )]
    Ahead { path: PathBuf, drive: DriveId, maps: usize, view: u64 },
    #[error(
        "{}: drive {drive} was used by a later state of the cluster ({kept}) than that from which the cluster was rebuilt, or by \
         another rebuild: what it holds isn't understood here. Rebuild the cluster once more, with this drive; or, if what only it \
         has may be lost, `tepal drive rm {drive} --force`, `tepal drive wipe {} --drive {drive}`, and add it anew", path.display(),
        path.display()
    )]
    Later { path: PathBuf, drive: DriveId, kept: StateOrder },
    #[error(
        "{}, of {size}, has room for the cluster's state while that takes no more than {room} bytes, and it takes {needed}: choose a larger \
         device, or remove volumes or snapshots", path.display()
    )]
    NoRoomForState { path: PathBuf, size: Size, room: u64, needed: u64 },
    #[error("{}: {reason}", path.display())]
    Io { path: PathBuf, reason: DeviceError },
    #[error("drive {drive} is not at {}: {found}", path.display())]
    NotThere { drive: DriveId, path: PathBuf, found: String },
    #[error("there is no drive {0}: `tepal drive ls` lists them")]
    Unknown(DriveId),
    #[error("drive {drive} is on server {server}: ask that one")]
    OnOtherServer { drive: DriveId, server: ServerId },
    #[error(
        "drive {drive} is on server {server}, which is down: start it, or say --force if it won't come back. {}", cost(.volumes)
    )]
    OfAbsent { drive: DriveId, server: ServerId, volumes: Vec<String> },
    #[error("drive {drive} is {state}, not offline")]
    NotOffline { drive: DriveId, state: DriveState },
    #[error("drive {drive} is {state}: it grows while it's in use")]
    NotInUse { drive: DriveId, state: DriveState },
    #[error("drive {drive} doesn't grow: {why}")]
    Grow { drive: DriveId, why: GrowError },
    #[error("there is no pool '{0}': `tepal pool ls` lists them, `tepal pool create` makes one")]
    NoPool(String),
    #[error(transparent)]
    Generations(#[from] GenerationsError),
    #[error(transparent)]
    Metadata(#[from] ProposeError),
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

/// What is lost with a drive that may hold the last good copy of these volumes' data.
fn cost(volumes: &[String]) -> String {
    if volumes.is_empty() {
        return "Other drives have all that it holds".to_owned();
    }
    let named = volumes.iter().map(|name| format!("'{name}'")).collect::<Vec<_>>().join(", ");
    format!(
        "It may hold the last good copy of data of {named}: with --force, requests for what no other drive has in full fail, until \
         `tepal volume accept-loss`"
    )
}

impl DriveOperationError {
    /// Whether nothing of it can be agreed any more.
    pub fn is_final(&self) -> bool {
        match self {
            DriveOperationError::Metadata(error) => error.is_final(),
            _ => true,
        }
    }
}
