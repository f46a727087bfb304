//! What can go wrong on a drive.

use crate::geometry::GeometryError;
use crate::label::LabelError;
use crate::world::DeviceError;
use std::sync::Arc;
use tepal_model::{ClusterId, DriveId};

/// An operation on an open drive that wasn't done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DriveError {
    /// Free space first. Nothing was written.
    #[error("the drive is full")]
    OutOfSpace,
    /// Take these blocks (numbers within what the drive holds of the map) from another copy and write them again.
    #[error("{} blocks don't match their checksums or can't be read", blocks.len())]
    Damaged { blocks: Vec<u64> },
    /// Use other copies: this drive takes part in nothing any more.
    #[error("{0}")]
    Lost(Arc<Loss>),
}

/// Why a drive serves no more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Loss {
    /// It may come back and catch up: it was pulled, or closed.
    #[error("drive {drive} is gone: {reason}")]
    Gone { drive: DriveId, reason: String },
    /// It lied or broke: what it holds can't be relied on.
    #[error("drive {drive} is retired: {reason}")]
    Retired { drive: DriveId, reason: String },
}

/// Why a drive can't be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    #[error(transparent)]
    Label(#[from] LabelError),
    #[error(transparent)]
    Geometry(#[from] GeometryError),
    #[error("its label says that it is a {found}")]
    Role { found: String },
    #[error("it is an older image of this drive: its newest batch is {found}, and it had {known}")]
    Older { found: u64, known: u64 },
    #[error("its log is on device {wanted}, which isn't there")]
    LogMissing { wanted: DriveId },
    #[error("the log device given has id {found}, and the drive's log is on {wanted}")]
    LogForeign { wanted: DriveId, found: DriveId },
    #[error("its log, device {log}, was cut short and lengthened again: what it held for the drive is lost")]
    LogCut { log: DriveId },
    #[error(
        "its log, device {log}, is an older image: of generation {generation}, and the drive was last used in {newest}"
    )]
    LogOlder { log: DriveId, generation: u64, newest: u64 },
    #[error(
        "it carries the Tepal label of cluster {cluster}, drive {drive}; wipe it first if it's not needed any more"
    )]
    Labelled { cluster: ClusterId, drive: DriveId },
    #[error("both copies of its header are damaged")]
    Header,
    #[error("page {page} of its map is damaged in both copies")]
    MapPage { page: u32 },
    #[error("its map is not the one that its last checkpoint wrote: the drive lost a write")]
    MapLost,
    #[error("its log is damaged at batch {sequence}, with later batches behind it")]
    LogDamaged { sequence: u64 },
    #[error(
        "its log can't be read at {offset}, where batch {sequence} should be, which it acknowledged, or may have: it's \
         tried again; if it stays so, copy the device to a sound one, or remove the drive if others have what it holds"
    )]
    LogUnread { sequence: u64, offset: u64 },
    #[error("its log contradicts its map at batch {sequence}")]
    LogContradicts { sequence: u64 },
    #[error(transparent)]
    Device(#[from] DeviceError),
}
