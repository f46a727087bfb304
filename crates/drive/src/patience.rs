//! Reading blocks that can't be read at once.

use crate::world::{Device, DeviceError};
use tepal_model::{BLOCK, Buffer};

/// How often a block is read before it counts as unreadable: torn by a power loss, perhaps. An error may be a passing one,
/// and what an unreadable block costs is acknowledged data.
pub const ATTEMPTS: usize = 4;

/// A block, unless it stays unreadable.
pub async fn read_patiently<D: Device>(device: &D, offset: u64) -> Result<Option<Buffer>, DeviceError> {
    for _ in 0..ATTEMPTS {
        match device.read(offset, Buffer::take(BLOCK as usize)).await {
            Ok(data) => return Ok(Some(data)),
            Err(DeviceError::Failed { .. }) => {}
            Err(gone) => return Err(gone),
        }
    }
    Ok(None)
}
