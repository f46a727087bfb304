//! A drive that can be read only, to code that also writes: opening a drive after a crash repairs it. What is written stays
//! in memory and is read from there, so the drive is seen as it would be after the repair, and is left as it is.

use bytes::Bytes;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;
use tepal_drive::world::{Clock, Device, DeviceError, Gather, Random, Spawn, Tick, World};
use tepal_model::{BLOCK, Buffer};
use tepal_server::device::DriveDevice;
use tepal_server::world::ServerWorld;

/// A device below, and the blocks that were written since. Clones share both.
#[derive(Clone)]
pub struct Overlay {
    below: DriveDevice,
    /// By offset.
    written: Rc<RefCell<BTreeMap<u64, Bytes>>>,
}

impl Overlay {
    pub fn new(below: DriveDevice) -> Self {
        Overlay { below, written: Rc::default() }
    }
}

impl Device for Overlay {
    fn size(&self) -> u64 {
        self.below.size()
    }

    async fn read(&self, offset: u64, buffer: Buffer) -> Result<Buffer, DeviceError> {
        let mut buffer = self.below.read(offset, buffer).await?;
        let end = offset + buffer.len() as u64;
        for (&at, block) in self.written.borrow().range(offset..end) {
            let from = (at - offset) as usize;
            buffer[from..from + block.len()].copy_from_slice(block);
        }
        Ok(buffer)
    }

    async fn write(&self, offset: u64, data: Gather) -> Result<(), DeviceError> {
        let blocks = data
            .iter()
            .flat_map(|piece| (0..piece.len()).step_by(BLOCK as usize).map(|at| piece.slice(at..at + BLOCK as usize)));
        self.written.borrow_mut().extend((0..).map(|block| offset + block * BLOCK).zip(blocks));
        Ok(())
    }

    async fn flush(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    /// They may read as anything afterwards, so also as before.
    async fn discard(&self, _offset: u64, _length: u64) -> Result<(), DeviceError> {
        Ok(())
    }
}

/// The server's world, with overlays for drives.
#[derive(Clone)]
pub struct OverlayWorld;

impl Clock for OverlayWorld {
    fn now(&self) -> Tick {
        ServerWorld.now()
    }

    async fn sleep(&self, duration: Duration) {
        ServerWorld.sleep(duration).await;
    }
}

impl Random for OverlayWorld {
    fn next_u64(&self) -> u64 {
        ServerWorld.next_u64()
    }
}

impl Spawn for OverlayWorld {
    fn spawn(&self, work: std::pin::Pin<Box<dyn Future<Output = ()>>>) {
        ServerWorld.spawn(work);
    }

    async fn give_way(&self) {
        ServerWorld.give_way().await;
    }
}

impl World for OverlayWorld {
    type Device = Overlay;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "current_thread")]
    async fn what_is_written_is_read_and_the_drive_stays_as_it_is() {
        let below = DriveDevice::memory(1 << 20);
        let overlay = Overlay::new(below.clone());
        let block = Bytes::from(vec![7; BLOCK as usize]);
        overlay.write(BLOCK, Gather::from_iter([block.clone(), block])).await.expect("memory");
        let read = overlay.clone().read(0, Buffer::take(4 * BLOCK as usize)).await.expect("memory");
        let sevens = |from: u64, to: u64| read[(from * BLOCK) as usize..(to * BLOCK) as usize].iter().all(|&b| b == 7);
        assert!(!sevens(0, 1) && sevens(1, 3) && !sevens(3, 4));
        let kept = below.read(0, Buffer::take(4 * BLOCK as usize)).await.expect("memory");
        assert!(kept.iter().all(|&byte| byte == 0));
    }
}
