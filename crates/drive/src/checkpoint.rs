//! Checkpoints: what the log says is brought into the tables, and the log's start moves up.
//!
//! Order, each step stable before the next: pending data goes to its slots; the committer makes a cut; copy A of every
//! changed page; the header, which commits the checkpoint; copy B of the pages; the header's twin. A crash in between
//! leaves the tables of either this checkpoint or the one before, whole.

use crate::drive::{Drive, Shared};
use crate::error::Loss;
use crate::geometry::HEADERS;
use crate::log::Position;
use crate::log::header::{Header, map_sum};
use crate::state::cut::{Cut, Image};
use crate::state::{State, Turn};
use crate::table::{self, TableKind};
use crate::world::{Device, DeviceError, Gather, World};
use futures_channel::oneshot;
use futures_util::future::try_join_all;
use std::sync::Arc;
use tepal_model::{BLOCK, EXTENT};

/// More changed pages than this start a checkpoint.
const MOST_DIRTY_PAGES: usize = 4096;
/// Slots that are discarded at once at most, so that nobody waits for long who needs them.
const MOST_DISCARDED: usize = 1024;

impl Cut {
    /// Called by the committer, with everything applied on stable media. Replay needs nothing before `tail` if these pages
    /// of checksums are written.
    pub(crate) fn capture<W: World>(state: &mut State, shared: &Shared<W>, sum_pages: &[u32], tail: Position) -> Self {
        let (drive, geometry) = (shared.label.drive, &shared.geometry);
        let checkpoint = state.checkpoint + 1;
        if let Some(&last) = state.dirty_map_pages.last() {
            let known = state.map_versions.len() as u32;
            state.dirty_map_pages.extend(known..last); // the pages before it are no blanks any more
            state.map_versions.resize((last + 1).max(known) as usize, 0);
        }
        let mut images = Vec::new();
        for number in std::mem::take(&mut state.dirty_map_pages) {
            state.map_versions[number as usize] = checkpoint;
            let mut page = table::blank();
            for slot in geometry.map.slots_of(number) {
                let at = geometry.map.at(slot);
                state.map.encode(slot, &mut page[at..at + geometry.map.record]);
            }
            table::seal(&mut page, TableKind::Map, drive, number, checkpoint);
            images.push(Image { kind: TableKind::Map, number, bytes: page.freeze() });
        }
        for (number, mut page) in state.sums.capture(sum_pages) {
            table::seal(&mut page, TableKind::Sums, drive, number, checkpoint);
            images.push(Image { kind: TableKind::Sums, number, bytes: page.freeze() });
        }
        let header = Header {
            checkpoint,
            cut: state.applied,
            tail,
            map_pages: state.map_versions.len() as u32,
            map_sum: map_sum(&state.map_versions),
        };
        Cut { images, header, trimmed: std::mem::take(&mut state.trimmed).into_iter().collect() }
    }
}

impl<W: World> Drive<W> {
    /// Starts what keeps the log short and memory bounded, if it's time. Called after every batch.
    pub(crate) fn after_apply(&self, state: &mut State) {
        let log_filling = state.ring.used() > state.ring.length / 2;
        if log_filling || state.dirty_map_pages.len() + state.sums.dirty() > MOST_DIRTY_PAGES {
            self.start_checkpoint(state);
        } else if state.pending.bytes() > self.shared.options.pending {
            self.start_destaging(state);
        }
        self.schedule_maintenance(state);
    }

    pub(crate) fn start_checkpoint(&self, state: &mut State) {
        if state.checkpointer == Turn::Idle {
            state.checkpointer = Turn::Running;
            let drive = self.clone();
            self.shared.world.spawn(Box::pin(async move { drive.run_checkpoint().await }));
        }
    }

    /// Brings everything that was applied before the call into the tables.
    pub async fn checkpoint(&self) -> Result<(), Arc<Loss>> {
        for _ in 0..2 {
            // The one under way may have made its cut already.
            let receiver = {
                let mut state = self.shared.lock();
                state.alive()?;
                let (sender, receiver) = oneshot::channel();
                state.checkpoint_waiters.push(sender);
                self.start_checkpoint(&mut state);
                receiver
            };
            // Waiters are told by dropping or by sending; either way it's over.
            let _ = receiver.await;
            if self.shared.lock().settled() {
                break;
            }
        }
        self.shared.lock().alive()
    }

    async fn run_checkpoint(self) {
        let outcome = self.checkpoint_once().await;
        if let Err(error) = outcome {
            self.shared.lose(error);
        }
        let mut state = self.shared.lock();
        state.checkpointer = Turn::Idle;
        for waiter in state.checkpoint_waiters.drain(..) {
            let _ = waiter.send(()); // who has given up waiting needs no answer
        }
        self.start_committer(&mut state); // operations may have waited for room
    }

    async fn checkpoint_once(&self) -> Result<(), DeviceError> {
        let shared = &self.shared;
        // What another pass hasn't brought to its slot yet keeps the log's start where it is.
        self.begin_destaging().await;
        let destaged = self.destage_all().await;
        self.end_destaging();
        destaged?;
        let Ok(cut) = self.cut().await else { return Ok(()) };
        self.write_images(&cut.images, 0).await?;
        shared.flush_slots().await?;
        let header = cut.header.encode(shared.label.drive);
        shared.device.write(HEADERS[0], Gather::from_iter([header.clone()])).await?;
        shared.flush_slots().await?;
        {
            let mut state = shared.lock();
            state.checkpoint = cut.header.checkpoint;
            state.sums.written();
            state.ring.tail = cut.header.tail;
            while state.batches.front().is_some_and(|batch| batch.sequence < cut.header.tail.sequence) {
                state.batches.pop_front();
            }
            self.start_committer(&mut state);
        }
        self.write_images(&cut.images, 1).await?;
        shared.flush_slots().await?; // a second header says that the second pages are there
        shared.device.write(HEADERS[1], Gather::from_iter([header])).await?;
        shared.flush_slots().await?;
        self.discard(cut.trimmed).await
    }

    /// Pages that lie side by side go in one write.
    async fn write_images(&self, images: &[Image], copy: usize) -> Result<(), DeviceError> {
        let mut runs: Vec<(u64, Gather)> = Vec::new();
        for image in images {
            let offset = self.shared.geometry.table(image.kind).offset(copy, image.number);
            match runs.last_mut() {
                Some((start, pieces)) if *start + pieces.len() as u64 * BLOCK == offset && pieces.len() < 256 => {
                    pieces.push(image.bytes.clone());
                }
                _ => runs.push((offset, Gather::from_iter([image.bytes.clone()]))),
            }
        }
        for group in runs.chunks_mut(32) {
            let writes =
                group.iter_mut().map(|(offset, pieces)| self.shared.device.write(*offset, std::mem::take(pieces)));
            try_join_all(writes).await?;
        }
        Ok(())
    }

    /// Tells the device about cleared slots that nobody has taken since. They are held meanwhile; who needs them waits for
    /// the discard under way, and has what follows left for the next checkpoint.
    async fn discard(&self, trimmed: Vec<u32>) -> Result<(), DeviceError> {
        if !self.shared.options.discard {
            return Ok(());
        }
        let mut trimmed = trimmed.into_iter().peekable();
        while trimmed.peek().is_some() {
            let mut run: Vec<u32> = Vec::new();
            {
                let mut state = self.shared.lock();
                let offset = |slot| self.shared.geometry.block_offset(slot, 0);
                let follows = |run: &[u32], slot| run.last().is_none_or(|&last| offset(slot) == offset(last) + EXTENT);
                while let Some(slot) = trimmed.next_if(|&slot| run.len() < MOST_DISCARDED && follows(&run, slot)) {
                    if !state.space.take(slot) {
                        break;
                    }
                    run.push(slot);
                }
                state.discarding = run.len() as u32;
            }
            if let Some(&first) = run.first() {
                let offset = self.shared.geometry.block_offset(first, 0);
                let outcome = self.shared.device.discard(offset, run.len() as u64 * EXTENT).await;
                let mut state = self.shared.lock();
                run.iter().for_each(|&slot| state.space.put(slot));
                state.discarding = 0;
                if !state.discard_waiters.is_empty() {
                    state.trimmed.extend(trimmed.by_ref());
                }
                for waiter in state.discard_waiters.drain(..) {
                    let _ = waiter.send(()); // who has given up waiting needs no answer
                }
                drop(state);
                match outcome {
                    Err(error @ DeviceError::Gone(_)) => return Err(error),
                    Err(error) => tracing::debug!(%error, "discard refused"), // a hint that nothing depends on
                    Ok(()) => {}
                }
            }
        }
        Ok(())
    }
}
