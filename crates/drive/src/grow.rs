//! A drive whose device was enlarged takes the room: a section of its own behind what it has (`geometry.rs`).
//!
//! Order, each step stable before the next: zeros where the new pages of the tables are; the label at the new end; the first copy of the
//! label. It's the first copy that says where the last one is, so a crash in between leaves the drive with its old size or the new one.

use crate::geometry::{Geometry, GeometryError, LABEL_FIRST};
use crate::identity::label::{Label, LabelError, MOST_GROWTHS, Role};
use crate::open::zero;
use crate::table::PageRun;
use crate::world::{Device, DeviceError, Gather};
use tepal_model::size::Size;
use tepal_model::{BLOCK, DriveId};

/// Why a drive doesn't grow. It's as it was.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GrowError {
    /// Enlarge the device first.
    #[error(
        "its device has no more room than the drive, which has {}: enlarge that first, as by `truncate -s`, `lvextend` or `losetup -c`",
        Size(*size)
    )]
    NoRoom {
        /// The drive's.
        size: u64,
    },
    /// Enlarge the device further.
    #[error(
        "its device has {} more than the drive, which gains nothing by it: enlarge it by {} more, at least",
        Size(*beyond), Size(*needed)
    )]
    TooLittle {
        /// What the device has beyond the drive's end, in bytes.
        beyond: u64,
        /// What it lacks for the drive to gain something.
        needed: u64,
    },
    /// Its label has no room for another size.
    #[error(
        "it has grown {MOST_GROWTHS} times, which is as often as a drive can: empty it (`tepal drive drain`), remove it \
         (`tepal drive rm`), and add its device anew"
    )]
    TooOften,
    /// It has as much as a drive can have.
    #[error("it has {}, which is as much as a drive can use", Size(*size))]
    Largest {
        /// The drive's.
        size: u64,
    },
    /// A log's length is settled when it's made.
    #[error("it's a {0}, and only drives of data grow")]
    Log(String),
    /// Something else is at the device's path by now.
    #[error("its device has the label of drive {0}")]
    Other(DriveId),
    /// The label is missing or damaged, or the device was cut short.
    #[error(transparent)]
    Label(#[from] LabelError),
    /// The label says a size that no drive has.
    #[error(transparent)]
    Geometry(#[from] GeometryError),
    /// Reading or writing failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

impl Label {
    /// As it is once the drive has taken all of a device of this size.
    pub fn grown(&self, size: u64) -> Result<Label, GrowError> {
        if matches!(self.role, Role::LogOf { .. }) {
            return Err(GrowError::Log(self.role.to_string()));
        }
        if size < self.size {
            return Err(LabelError::CutShort { labelled: self.size, found: size }.into());
        }
        let beyond = self.beyond(size);
        if beyond == 0 {
            return Err(GrowError::NoRoom { size: self.size });
        }
        let least = self.geometry()?.least_growth().ok_or(GrowError::Largest { size: self.size })?;
        let size = size / BLOCK * BLOCK;
        if size < least {
            return Err(GrowError::TooLittle { beyond, needed: least - size });
        }
        if self.outgrown.len() >= MOST_GROWTHS {
            return Err(GrowError::TooOften);
        }
        let outgrown = self.all_sizes().collect();
        let grown = Label { size, outgrown, ..self.clone() };
        grown.geometry()?;
        Ok(grown)
    }
}

/// Zeroes the pages of the tables that a drive has once its label is this one: what another use has left there could pass for newer ones.
/// The drive may be in use meanwhile; it knows nothing of that place yet. Takes a while where much comes, about a 400th of it.
pub async fn prepare_growth<D: Device>(device: &D, grown: &Label) -> Result<(), GrowError> {
    let geometry = grown.geometry()?;
    let Some(&before) = grown.outgrown.last() else { return Ok(()) };
    for table in [&geometry.map, &geometry.sums] {
        let new = |run: &&PageRun| run.copies[0] >= before;
        let Some(run) = table.runs.last().filter(new) else { continue };
        for start in run.copies {
            zero(device, start..start + u64::from(table.pages - run.first) * BLOCK).await?;
        }
    }
    Ok(())
}

/// Has a drive that isn't in use take its device up to `size`, for which that was prepared: see [`prepare_growth`].
pub async fn grow<D: Device>(device: &D, drive: DriveId, size: u64) -> Result<Label, GrowError> {
    let label = Label::read(device).await?;
    if label.drive != drive {
        return Err(GrowError::Other(label.drive));
    }
    if device.size() < size {
        return Err(LabelError::CutShort { labelled: size, found: device.size() }.into());
    }
    let grown = label.grown(size)?;
    device.flush().await?;
    let page = grown.encode().freeze();
    for offset in [Geometry::label_last(grown.size), LABEL_FIRST] {
        device.write(offset, Gather::from_iter([page.clone()])).await?;
        device.flush().await?;
    }
    grown.clear_left(device).await?;
    Ok(grown)
}
