//! Knowledge of fragments that may differ, after a crash or an absence, and how that knowledge ends: when the fragments
//! have been made equal.

mod catch_up;
mod given_up;
mod jobs;
mod resolve;

use super::read::Failed;
use crate::holder::Holder;
use futures_channel::oneshot;
pub(crate) use resolve::Resolving;
use tepal_drive::DriveError;
use tepal_drive::world::World;
use tepal_model::IoError;

/// Why fragments can't be made whole now.
pub(crate) enum Stuck {
    /// Too few clean fragments are here; others may return.
    Waits(oneshot::Receiver<()>),
    Failed(IoError),
}

/// A drive's error, as the reason why something couldn't be done.
pub fn failed<W: World>(drive: &Holder<W>, error: DriveError) -> Failed {
    match error {
        DriveError::Lost(loss) => Failed::Lost(drive.id(), loss),
        DriveError::OutOfSpace => Failed::Io(IoError::OutOfSpace),
        DriveError::Damaged { .. } => Failed::Io(IoError::Unavailable { reason: error.to_string() }),
    }
}
