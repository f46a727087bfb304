//! One drive's space of one map as a volume: what the engine adds (order of overlapping writes, bytes within blocks), in
//! its simplest form, so that a drive can be tested alone.

use super::locks::RangeLocks;
use crate::workload::VolumeUnderTest;
use crate::world::SimWorld;
use bytes::Bytes;
use futures_channel::oneshot;
use std::future::Future;
use std::rc::Rc;
use tepal_codec::checksum::block_crcs;
use tepal_drive::world::Gather;
use tepal_drive::{Drive, DriveError, Write};
use tepal_engine::Run;
use tepal_model::buffer::{join, zeros};
use tepal_model::layout::Durability;
use tepal_model::{BLOCK, Buffer, IoError, Lineage, MapId, Segments, Taking};

pub struct DriveVolume(Rc<Inner>);

struct Inner {
    world: SimWorld,
    drive: Drive<SimWorld>,
    map: MapId,
    size: u64,
    durability: Durability,
    locks: RangeLocks,
}

fn refusal(error: DriveError) -> IoError {
    match error {
        DriveError::OutOfSpace => IoError::OutOfSpace,
        DriveError::Damaged { blocks } => {
            let offset = blocks.first().map_or(0, |block| block * BLOCK);
            IoError::Damaged { offset, length: blocks.len() as u64 * BLOCK }
        }
        DriveError::Lost(loss) => IoError::Unavailable { reason: loss.to_string() },
    }
}

impl Inner {
    async fn read(&self, offset: u64, length: u64) -> Result<Bytes, IoError> {
        let (first, end) = (offset / BLOCK, (offset + length).div_ceil(BLOCK));
        let segments = self.drive.read(self.map, first, end - first, &Lineage::default()).await.map_err(refusal)?;
        let start = (offset - first * BLOCK) as usize;
        let joined = join(&segments);
        if joined.len() as u64 != (end - first) * BLOCK {
            return Ok(joined); // the checker will say that the length is wrong
        }
        Ok(joined.slice(start..start + length as usize))
    }

    /// Whole blocks that hold `data` at `offset`, with what is around it.
    async fn widened(&self, offset: u64, data: Bytes) -> Result<(u64, Bytes), IoError> {
        let (first, end) = (offset / BLOCK, (offset + data.len() as u64).div_ceil(BLOCK));
        if offset.is_multiple_of(BLOCK) && (data.len() as u64).is_multiple_of(BLOCK) {
            return Ok((first, data));
        }
        let mut whole = Buffer::zeroed(((end - first) * BLOCK) as usize);
        for block in [first, end - 1] {
            let around = self.read(block * BLOCK, BLOCK).await?;
            let at = ((block - first) * BLOCK) as usize;
            whole[at..at + BLOCK as usize].copy_from_slice(&around);
        }
        let at = (offset - first * BLOCK) as usize;
        whole[at..at + data.len()].copy_from_slice(&data);
        Ok((first, whole.freeze()))
    }

    async fn store(&self, offset: u64, data: Bytes, fua: bool) -> Result<(), IoError> {
        let (first, data) = self.widened(offset, data).await?;
        let crcs: Vec<u32> = block_crcs(&data).collect();
        let durable = fua || self.durability == Durability::Strict;
        let data = Gather::from_iter([data]);
        let write = Write {
            map: self.map,
            first,
            data,
            crcs: crcs.into(),
            marks: Vec::new(),
            durable,
            repair: false,
            taking: Taking::Nothing,
            lineage: &Lineage::default(),
        };
        self.drive.write(write).await.map_err(refusal)
    }

    async fn clear(&self, offset: u64, length: u64, fua: bool) -> Result<(), IoError> {
        let end = offset + length;
        let (first, last) = (offset.next_multiple_of(BLOCK), end / BLOCK * BLOCK);
        if first >= last {
            return self.store(offset, join(&zeros(length)), fua).await;
        }
        self.drive
            .clear(self.map, (first / BLOCK, (last - first) / BLOCK), Vec::new(), Taking::Nothing, &Lineage::default())
            .await
            .map_err(refusal)?;
        for (from, to) in [(offset, first), (last, end)] {
            if from < to {
                self.store(from, join(&zeros(to - from)), fua).await?;
            }
        }
        Ok(())
    }
}

impl DriveVolume {
    pub fn new(world: SimWorld, drive: Drive<SimWorld>, map: MapId, size: u64, durability: Durability) -> Self {
        DriveVolume(Rc::new(Inner { world, drive, map, size, durability, locks: RangeLocks::default() }))
    }

    pub fn drive(&self) -> &Drive<SimWorld> {
        &self.0.drive
    }

    pub fn world(&self) -> &SimWorld {
        &self.0.world
    }

    /// Runs a change as a task of its own, so that it's seen through to its end when the request is given up.
    async fn change<F: Future<Output = Result<(), IoError>> + 'static>(
        &self,
        offset: u64,
        length: u64,
        work: impl FnOnce(Rc<Inner>) -> F + 'static,
    ) -> Result<(), IoError> {
        let (tell, told) = oneshot::channel();
        let held = self.0.locks.take(offset / BLOCK..(offset + length).div_ceil(BLOCK)).await;
        let inner = self.0.clone();
        self.0.world.spawn_named("change", async move {
            let result = work(inner).await;
            drop(held);
            let _ = tell.send(result);
        });
        told.await.unwrap_or(Err(IoError::Stopping))
    }
}

impl VolumeUnderTest for DriveVolume {
    fn size(&self) -> u64 {
        self.0.size
    }

    async fn read(&self, offset: u64, length: u64) -> Result<Segments, IoError> {
        self.0.read(offset, length).await.map(|data| Segments::from_iter([data]))
    }

    async fn write(&self, offset: u64, data: Bytes, fua: bool) -> Result<(), IoError> {
        let length = data.len() as u64;
        self.change(offset, length, move |inner| async move { inner.store(offset, data, fua).await }).await
    }

    async fn flush(&self) -> Result<(), IoError> {
        self.0.drive.flush().await.map_err(|loss| refusal(loss.into()))
    }

    async fn trim(&self, offset: u64, length: u64, fua: bool) -> Result<(), IoError> {
        self.change(offset, length, move |inner| async move { inner.clear(offset, length, fua).await }).await
    }

    async fn write_zeroes(&self, offset: u64, length: u64, fua: bool) -> Result<(), IoError> {
        if length > 64 << 10 {
            return self.trim(offset, length, fua).await;
        }
        let data = join(&zeros(length));
        self.change(offset, length, move |inner| async move { inner.store(offset, data, fua).await }).await
    }

    async fn block_status(&self, offset: u64, length: u64, limit: usize) -> Result<Vec<Run>, IoError> {
        let (first, end) = (offset / BLOCK, (offset + length).div_ceil(BLOCK));
        let mut at = offset;
        let runs = self.0.drive.present(self.0.map, first, end - first, u64::MAX, &Lineage::default()).into_iter().map(
            |(blocks, mapped)| {
                let next = ((at / BLOCK + blocks) * BLOCK).min(offset + length);
                let run = Run { length: next - at, mapped };
                at = next;
                run
            },
        );
        Ok(runs.take(limit).collect())
    }
}
