//! `tepal drive wipe`: makes a drive that isn't needed any more an empty device again, without a server.

use crate::output::{Outcome, Output};
use serde::Serialize;
use std::path::{Path, PathBuf};
use tepal_drive::Label;
use tepal_drive::label::LabelError;
use tepal_drive::world::DeviceError;
use tepal_model::{ClusterId, DriveId};
use tepal_server::device::DriveDevice;
use tepal_server::unserved::{self, UnservedError, block_on};

#[derive(Debug, thiserror::Error)]
pub enum WipeError {
    #[error(transparent)]
    Unserved(#[from] UnservedError),
    #[error("the command can't be run: {0}")]
    System(#[from] std::io::Error),
    #[error("{} has no Tepal label: there is nothing to wipe", .0.display())]
    NoDrive(PathBuf),
    #[error("{} is drive {drive} of cluster {cluster}: if its data is to be lost, type its id: --drive {drive}", path.display())]
    NotNamed { path: PathBuf, drive: DriveId, cluster: ClusterId },
    #[error("{} is drive {found}, not {named}: nothing is wiped", path.display())]
    Other { path: PathBuf, found: DriveId, named: DriveId },
    #[error("{}: {error}, so nobody knows which drive it is; to wipe it all the same, use --force", path.display())]
    Unknown { path: PathBuf, error: LabelError },
    #[error("{}: {error}", path.display())]
    Device { path: PathBuf, error: DeviceError },
}

#[derive(Serialize)]
struct WipeReport {
    path: String,
    /// `null` if its label couldn't be read.
    drive: Option<DriveId>,
}

/// Nobody may have it open, a server least of all.
pub fn wipe(output: Output, path: &Path, named: Option<DriveId>, force: bool) -> Result<Outcome, WipeError> {
    let device = unserved::open(path, true)?;
    let report = block_on(wipe_free(path, device, named, force))?;
    output.show(&report, |report| format!("{} is wiped", report.path))?;
    Ok(Outcome::Done)
}

async fn wipe_free(
    path: &Path,
    device: DriveDevice,
    named: Option<DriveId>,
    force: bool,
) -> Result<WipeReport, WipeError> {
    let owned = || path.to_owned();
    let drive = match (Label::read(&device).await, named) {
        (Ok(label), Some(named)) if label.drive == named => Some(named),
        (Ok(label), Some(named)) => return Err(WipeError::Other { path: owned(), found: label.drive, named }),
        (Ok(label), None) => {
            return Err(WipeError::NotNamed { path: owned(), drive: label.drive, cluster: label.cluster });
        }
        (Err(LabelError::Missing), _) => return Err(WipeError::NoDrive(owned())),
        (Err(LabelError::Device(error)), _) => return Err(WipeError::Device { path: owned(), error }),
        (Err(_), _) if force => None,
        (Err(error), _) => return Err(WipeError::Unknown { path: owned(), error }),
    };
    tepal_drive::wipe(&device).await.map_err(|error| WipeError::Device { path: owned(), error })?;
    Ok(WipeReport { path: path.display().to_string(), drive })
}
