//! What can go wrong on a drive.

use crate::geometry::GeometryError;
use crate::identity::label::LabelError;
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
    Damaged {
        /// Ascending.
        blocks: Vec<u64>,
    },
    /// Use other copies: this drive takes part in nothing any more.
    #[error("{0}")]
    Lost(Arc<Loss>),
}

/// Why a drive serves no more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Loss {
    /// It may come back and catch up: it was pulled, or closed.
    #[error("drive {drive} is gone: {reason}")]
    Gone {
        /// The one that is gone.
        drive: DriveId,
        /// For people.
        reason: String,
    },
    /// It lied or broke: what it holds can't be relied on.
    #[error("drive {drive} is retired: {reason}")]
    Retired {
        /// The one that isn't relied on any more.
        drive: DriveId,
        /// For people.
        reason: String,
    },
}

/// Why a drive can't be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The label is missing, damaged or of another format, or the device can't be read.
    #[error(transparent)]
    Label(#[from] LabelError),
    /// The device, or the log that the label speaks of, has a length that no drive has.
    #[error(transparent)]
    Geometry(#[from] GeometryError),
    /// The device holds the log of another drive: give the path of that drive.
    #[error("its label says that it is a {found}")]
    Role {
        /// What the label says, for people.
        found: String,
    },
    /// Somebody has put back an old copy of the device. Use the newer one; if there's none, remove the drive.
    #[error("it is an older image of this drive: its newest batch is {found}, and it had {known}")]
    Older {
        /// The newest batch that the log has.
        found: u64,
        /// A batch that was there before: see [`Drive::durable`](crate::Drive::durable).
        known: u64,
    },
    /// Try again when the device is there.
    #[error("its log is on device {wanted}, which isn't there")]
    LogMissing {
        /// What the log device's label has for an id.
        wanted: DriveId,
    },
    /// Give the right log device.
    #[error("the log device given has id {found}, and the drive's log is on {wanted}")]
    LogForeign {
        /// What its label should have for an id.
        wanted: DriveId,
        /// What it has.
        found: DriveId,
    },
    /// Remove the drive: what its log held is on other copies, if anywhere.
    #[error("its log, device {log}, was cut short and lengthened again: what it held for the drive is lost")]
    LogCut {
        /// Id of the log device.
        log: DriveId,
    },
    /// Somebody has put back an old copy of the log device. Use the newer one.
    #[error(
        "its log, device {log}, is an older image: of generation {generation}, and the drive was last used in {newest}"
    )]
    LogOlder {
        /// Id of the log device.
        log: DriveId,
        /// What its label says.
        generation: u64,
        /// The least that it should say.
        newest: u64,
    },
    /// A device with a label isn't labelled again.
    #[error(
        "it carries the Tepal label of cluster {cluster}, drive {drive}; wipe it first if it's not needed any more"
    )]
    Labelled {
        /// Which cluster the label names.
        cluster: ClusterId,
        /// Which drive it names.
        drive: DriveId,
    },
    /// No checkpoint is known: what the drive holds can't be found.
    #[error("both copies of its header are damaged")]
    Header,
    /// What the drive holds isn't known any more.
    #[error("page {page} of its map is damaged in both copies")]
    MapPage {
        /// Which page of the map table, counted from 0.
        page: u32,
    },
    /// Every page is whole, but some are older than the last checkpoint.
    #[error("its map is not the one that its last checkpoint wrote: the drive lost a write")]
    MapLost,
    /// What the drive acknowledged is gone.
    #[error("its log is damaged at batch {sequence}, with later batches behind it")]
    LogDamaged {
        /// The first batch that's missing.
        sequence: u64,
    },
    /// The device may read it another time.
    #[error(
        "its log can't be read at {offset}, where batch {sequence} should be, which it acknowledged, or may have: it's \
         tried again; if it stays so, copy the device to a sound one, or remove the drive if others have what it holds"
    )]
    LogUnread {
        /// The first batch that can't be read.
        sequence: u64,
        /// Where it should be, in bytes from the start of the log's device.
        offset: u64,
    },
    /// Either is damaged, whatever their checksums say.
    #[error("its log contradicts its map at batch {sequence}")]
    LogContradicts {
        /// The first batch that does.
        sequence: u64,
    },
    /// Reading or writing failed. Nothing is known to be damaged.
    #[error(transparent)]
    Device(#[from] DeviceError),
}
