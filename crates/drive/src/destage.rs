//! Destaging: data of small writes moves from the log to its slot, and checksums into their table.
//!
//! Invariant: a slot is written in place only with data whose batch is on stable media. So whatever a crash leaves in
//! the slot, replay has the whole block; until then the log keeps it.

use crate::drive::Drive;
use crate::log::change::BLOCKS;
use crate::pending::PendingSlot;
use crate::state::{State, Turn};
use crate::table::{self, TableKind};
use crate::world::{Device, DeviceError, Gather, World};
use futures_util::future::try_join_all;
use tepal_model::{Buffer, EXTENT};

/// Slots that are written at once.
const WIDTH: usize = 32;

impl<W: World> Drive<W> {
    pub(crate) fn start_destaging(&self, state: &mut State) {
        if state.destager == Turn::Idle && state.checkpointer == Turn::Idle {
            state.destager = Turn::Running;
            let drive = self.clone();
            self.shared.world.spawn(Box::pin(async move {
                if let Err(error) = drive.destage_all().await {
                    drive.shared.lose(error);
                }
                drive.shared.lock().destager = Turn::Idle;
            }));
        }
    }

    /// One pass over what is pending now.
    pub(crate) async fn destage_all(&self) -> Result<(), DeviceError> {
        if self.flush().await.is_err() {
            return Ok(()); // the drive is lost, and says so to everyone
        }
        let mut from = 0;
        loop {
            let (slots, durable) = {
                let state = self.shared.lock();
                if state.loss.is_some() {
                    return Ok(());
                }
                (state.pending.from(from, WIDTH), state.durable)
            };
            let Some(&last) = slots.last() else { return Ok(()) };
            try_join_all(slots.into_iter().map(|slot| self.destage_slot(slot, durable))).await?;
            from = last + 1;
        }
    }

    async fn destage_slot(&self, slot: u32, durable: u64) -> Result<(), DeviceError> {
        self.load_sums(slot).await?;
        let taken = {
            let mut state = self.shared.lock();
            let Some(pending) = state.pending.slot(slot).cloned() else { return Ok(()) };
            let has_data = pending.blocks.iter().flatten().any(|block| block.data.is_some());
            if has_data && !state.destaging.insert(slot) {
                return Ok(()); // another pass has it
            }
            pending
        };
        let written = self.write_slot(slot, &taken, durable).await;
        // The page may have been dropped from the cache meanwhile.
        let loaded = self.load_sums(slot).await;
        let mut state = self.shared.lock();
        state.destaging.remove(&slot);
        state.release_freed();
        written.and(loaded)?;
        settle(&mut state, slot, &taken, durable);
        Ok(())
    }

    /// Writes the blocks whose data is in the log only; neighbours in one write.
    async fn write_slot(&self, slot: u32, pending: &PendingSlot, durable: u64) -> Result<(), DeviceError> {
        let mut runs: Vec<(u32, Gather)> = Vec::new();
        for number in 0..BLOCKS {
            let Some(block) = &pending.blocks[number as usize] else { continue };
            let Some(data) = block.data.as_ref().filter(|_| block.sequence <= durable) else { continue };
            match runs.last_mut() {
                Some((first, pieces)) if *first + pieces.len() as u32 == number => pieces.push(data.clone()),
                _ => runs.push((number, Gather::from_iter([data.clone()]))),
            }
        }
        for (first, pieces) in runs {
            self.shared.device.write(self.shared.geometry.block_offset(slot, first), pieces).await?;
        }
        Ok(())
    }

    /// Has the checksum page of this slot in memory. A page that is damaged in both copies, or was never written,
    /// is blank: what it vouched for doesn't match any more and counts as damaged.
    pub(crate) async fn load_sums(&self, slot: u32) -> Result<(), DeviceError> {
        let page = {
            let state = self.shared.lock();
            let page = state.sums.page_of(slot);
            if state.sums.has(page) {
                return Ok(());
            }
            page
        };
        let bytes = self.read_sums(page).await?;
        self.shared.lock().sums.offer(page, bytes);
        Ok(())
    }

    async fn read_sums(&self, page: u32) -> Result<Buffer, DeviceError> {
        let shared = &self.shared;
        let (table, drive) = (&shared.geometry.sums, shared.label.drive);
        for copy in [0, 1] {
            match shared.device.read(table.offset(copy, page), Buffer::take(table::PAGE)).await {
                Ok(bytes) if table::unseal(&bytes, TableKind::Sums, drive, page).is_some() => return Ok(bytes),
                Ok(_) | Err(DeviceError::Failed { .. }) => {}
                Err(gone @ DeviceError::Gone(_)) => return Err(gone),
            }
        }
        Ok(table::blank())
    }
}

/// What was taken is in its place now. Blocks that were written or cleared since stay as they are.
fn settle(state: &mut State, slot: u32, taken: &PendingSlot, durable: u64) {
    let same_owner = state.pending.slot(slot).is_some_and(|pending| pending.key == taken.key);
    if !same_owner {
        return;
    }
    let mut settled = 0u16;
    for (number, block) in taken.blocks.iter().enumerate() {
        let Some(block) = block.as_ref().filter(|block| block.sequence <= durable) else { continue };
        let unchanged = state.pending.block(slot, number).is_some_and(|now| now.sequence == block.sequence);
        if unchanged && state.sums.set(slot, number, block.sum) {
            settled |= 1 << number;
        }
    }
    state.pending.forget(slot, settled);
}

const _: () = assert!(EXTENT / tepal_model::BLOCK == 16, "a slot's blocks fit the 16 bits of the map");
