//! Writes of any bytes to encrypted volumes, which the engine writes in whole sectors.
//!
//! What is read of the sectors at both ends is written again: whoever else writes to other bytes of the same sector meanwhile may have that
//! undone. So this is for imports, which write alone; clients of NBD are told of the sectors, and write whole ones.

use crate::world::ServerWorld;
use bytes::{Bytes, BytesMut};
use tepal_engine::Volume;
use tepal_model::IoError;

/// As [`Volume::write`].
pub async fn write(volume: &Volume<ServerWorld>, offset: u64, data: Bytes) -> Result<(), IoError> {
    let (sector, end) = (volume.least_write(), offset + data.len() as u64);
    if offset.is_multiple_of(sector) && end.is_multiple_of(sector) {
        return volume.write(offset, data, false).await;
    }
    let (first, last) = (offset / sector * sector, end / sector * sector);
    let mut whole = BytesMut::with_capacity((last + sector - first) as usize);
    if first < offset {
        volume.read(first, offset - first).await?.iter().for_each(|bytes| whole.extend_from_slice(bytes));
    }
    whole.extend_from_slice(&data);
    if last < end {
        volume.read(end, last + sector - end).await?.iter().for_each(|bytes| whole.extend_from_slice(bytes));
    }
    volume.write(first, whole.freeze(), false).await
}

/// As [`Volume::write_zeroes`], without space for them. A discard may leave what was there.
pub async fn zero(volume: &Volume<ServerWorld>, offset: u64, length: u64) -> Result<(), IoError> {
    let (sector, end) = (volume.least_write(), offset.saturating_add(length));
    if offset.is_multiple_of(sector) && end.is_multiple_of(sector) {
        return volume.write_zeroes(offset, length, false).await;
    }
    let (first, last) = (offset.next_multiple_of(sector).min(end), end / sector * sector);
    let zeros = |from: u64, to: u64| Bytes::from(vec![0; (to - from) as usize]);
    if offset < first {
        write(volume, offset, zeros(offset, first)).await?;
    }
    if first < last {
        volume.write_zeroes(first, last - first, false).await?;
    }
    if last.max(first) < end {
        write(volume, last.max(first), zeros(last.max(first), end)).await?;
    }
    Ok(())
}
