//! Destaging: data of small writes moves from the log to its slot, and checksums into their table.
//!
//! Invariant: a slot is written in place only with data whose batch is on stable media. So whatever a crash leaves in
//! the slot, replay has the whole block; until then the log keeps it.

use crate::drive::Drive;
use crate::extent::ExtentKey;
use crate::log::pending::PendingSlot;
use crate::state::{State, Turn};
use crate::table::{self, TableKind};
use crate::world::{Device, DeviceError, Gather, World};
use futures_channel::oneshot;
use futures_util::future::try_join_all;
use smallvec::SmallVec;
use std::time::Duration;
use tepal_model::{Buffer, EXTENT};

/// Slots that are written at once at most: as many as `try_join_all` keeps without a queue and an allocation for each.
const MOST_AT_ONCE: usize = 30;
/// And at least, however slow the drive is.
const FEWEST_AT_ONCE: usize = 4;
/// About how long those that are written at once may take: a batch of the log, or a read, may have to wait behind them.
const IN_THE_WAY: Duration = Duration::from_millis(20);

/// How often a page of checksums is read while its copies can't be read.
const ATTEMPTS: usize = 3;

impl<W: World> Drive<W> {
    pub(crate) fn start_destaging(&self, state: &mut State) {
        if state.destager == Turn::Idle && state.checkpointer == Turn::Idle {
            state.destager = Turn::Running;
            let drive = self.clone();
            self.shared.world.spawn(Box::pin(async move {
                if let Err(error) = drive.destage_all().await {
                    drive.shared.lose(error);
                }
                drive.end_destaging();
            }));
        }
    }

    /// Waits for the pass that is under way, and keeps others from starting until [`Self::end_destaging`].
    pub(crate) async fn begin_destaging(&self) {
        loop {
            let ended = {
                let mut state = self.shared.lock();
                if state.destager == Turn::Idle {
                    state.destager = Turn::Running;
                    return;
                }
                let (sender, receiver) = oneshot::channel();
                state.destage_waiters.push(sender);
                receiver
            };
            let _ = ended.await; // told by dropping or by sending; either way it's over
        }
    }

    pub(crate) fn end_destaging(&self) {
        let mut state = self.shared.lock();
        state.destager = Turn::Idle;
        for waiter in state.destage_waiters.drain(..) {
            let _ = waiter.send(()); // who has given up waiting needs no answer
        }
    }

    /// One pass over what is pending now.
    pub(crate) async fn destage_all(&self) -> Result<(), DeviceError> {
        if self.flush().await.is_err() {
            return Ok(()); // the drive is lost, and says so to everyone
        }
        let (mut from, mut at_once) = (0, FEWEST_AT_ONCE);
        loop {
            let (slots, durable) = {
                let mut state = self.shared.lock();
                if state.loss.is_some() {
                    return Ok(());
                }
                let ahead = state.pending.about_from(from);
                state.pace.note_ahead(ahead);
                (state.pending.from(from, at_once), state.durable)
            };
            let Some(&last) = slots.last() else { return Ok(()) };
            let (begun, count) = (self.shared.world.now(), slots.len());
            try_join_all(slots.into_iter().map(|slot| self.destage_slot(slot, durable))).await?;
            let took = self.shared.world.now().0.saturating_sub(begun.0);
            at_once = next_at_once(at_once, took);
            self.shared.lock().pace.destaged(count, took);
            from = last + 1;
            self.shared.world.give_way().await;
        }
    }

    async fn destage_slot(&self, slot: u32, durable: u64) -> Result<(), DeviceError> {
        self.load_sums(slot, true).await?;
        let mut taken = {
            let mut state = self.shared.lock();
            let Some(taken) = state.pending.slot(slot).map(|pending| Taken::of(pending, durable)) else {
                return Ok(());
            };
            if !taken.runs.is_empty() && !state.destaging.insert(slot) {
                return Ok(()); // another pass has it
            }
            taken
        };
        let writes = !taken.runs.is_empty();
        let mut written = Ok(());
        for (first, pieces) in taken.runs.drain(..) {
            let offset = self.shared.geometry.block_offset(slot, first);
            written = self.shared.device.write(offset, pieces).await;
            if written.is_err() {
                break;
            }
        }
        // The page may have been dropped from the cache meanwhile.
        let loaded = self.load_sums(slot, true).await;
        let mut state = self.shared.lock();
        if writes {
            // Another pass may be writing the slot if this one isn't: then it can't be freed yet.
            state.destaging.remove(&slot);
            state.release_freed();
        }
        written.and(loaded)?;
        settle(&mut state, slot, &taken);
        Ok(())
    }

    /// Has the checksum page of this slot in memory: to check blocks against, or surely the newer of its copies. A page
    /// that is damaged in both copies, or was never written, is blank: what it vouched for doesn't match any more and
    /// counts as damaged.
    pub(crate) async fn load_sums(&self, slot: u32, surely: bool) -> Result<(), DeviceError> {
        loop {
            let (page, writes) = {
                let state = self.shared.lock();
                let page = state.sums.page_of(slot);
                if state.sums.has(page, surely) {
                    return Ok(());
                }
                (page, state.sums.writes())
            };
            let read = Box::pin(self.read_sums(page, surely)).await?;
            let mut state = self.shared.lock();
            if state.sums.offer(page, read.bytes, surely, writes) {
                if read.copies_differ {
                    state.sums.rewrite(page);
                }
                return Ok(());
            }
        }
    }

    /// The first whole copy, or, surely, the newer one: a drive may have lost the writing of either.
    async fn read_sums(&self, page: u32, surely: bool) -> Result<ReadSums, DeviceError> {
        let shared = &self.shared;
        let (table, drive) = (&shared.geometry.sums, shared.label.drive);
        let mut newest: Option<(u64, Buffer)> = None;
        let mut copies_differ = false;
        // A blank page stays: what it takes the place of should surely be unreadable.
        for _ in 0..ATTEMPTS {
            let (mut unread, mut seen) = (false, [None; 2]);
            for copy in [0, 1] {
                match shared.device.read(table.offset(copy, page), Buffer::take(table::PAGE)).await {
                    Ok(bytes) => {
                        seen[copy] = table::unseal(&bytes, TableKind::Sums, drive, page).inspect(|&version| {
                            if newest.as_ref().is_none_or(|(found, _)| *found < version) {
                                newest = Some((version, bytes));
                            }
                        })
                    }
                    Err(DeviceError::Failed { .. }) => unread = true,
                    Err(gone @ DeviceError::Gone(_)) => return Err(gone),
                }
                if newest.is_some() && !surely {
                    break;
                }
            }
            copies_differ = surely && seen[0] != seen[1];
            if !unread || (newest.is_some() && !surely) {
                break; // whole, damaged, or never written
            }
        }
        Ok(ReadSums { bytes: newest.map_or_else(table::blank, |(_, bytes)| bytes), copies_differ })
    }
}

/// How many slots to write at once when so many took this long.
fn next_at_once(at_once: usize, took: Duration) -> usize {
    let next = match took {
        took if took > IN_THE_WAY => at_once / 2,
        took if took < IN_THE_WAY / 2 => at_once * 2,
        _ => at_once,
    };
    next.clamp(FEWEST_AT_ONCE, MOST_AT_ONCE)
}

/// A page of checksums as the drive has it.
struct ReadSums {
    bytes: Buffer,
    /// One of the copies is damaged, unreadable or an older one.
    copies_differ: bool,
}

/// What of a slot's pending blocks goes to its place now: those whose batch is on stable media.
struct Taken {
    key: ExtentKey,
    /// Number, batch and checksum of each.
    blocks: SmallVec<[(usize, u64, u32); 2]>,
    /// Those whose data is in the log only, as the first one's number and the data; neighbours in one write.
    runs: SmallVec<[(u32, Gather); 1]>,
}

impl Taken {
    fn of(pending: &PendingSlot, durable: u64) -> Self {
        let mut taken = Taken { key: pending.key, blocks: SmallVec::new(), runs: SmallVec::new() };
        for (number, block) in pending.iter().filter(|(_, block)| block.sequence <= durable) {
            taken.blocks.push((number, block.sequence, block.sum));
            let Some(data) = &block.data else { continue };
            match taken.runs.last_mut() {
                Some((first, pieces)) if *first as usize + pieces.len() == number => pieces.push(data.clone()),
                _ => taken.runs.push((number as u32, Gather::from_iter([data.clone()]))),
            }
        }
        taken
    }
}

/// What was taken is in its place now. Blocks that were written or cleared since stay as they are.
fn settle(state: &mut State, slot: u32, taken: &Taken) {
    let same_owner = state.pending.slot(slot).is_some_and(|pending| pending.key == taken.key);
    if !same_owner {
        return;
    }
    let mut settled = 0u16;
    for &(number, sequence, sum) in &taken.blocks {
        let unchanged = state.pending.block(slot, number).is_some_and(|now| now.sequence == sequence);
        if unchanged && state.sums.set(slot, number, sum) {
            settled |= 1 << number;
        }
    }
    state.pending.forget(slot, settled);
}

const _: () = assert!(EXTENT / tepal_model::BLOCK == 16, "a slot's blocks fit the 16 bits of the map");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_drive_is_given_few_slots_at_once_and_a_fast_one_many() {
        let settled = |each: Duration, abreast: usize| {
            let took = |at_once: usize| each * at_once.div_ceil(abreast) as u32;
            (0..20).fold(FEWEST_AT_ONCE, |at_once, _| next_at_once(at_once, took(at_once)))
        };
        assert_eq!(settled(Duration::from_millis(8), 1), FEWEST_AT_ONCE);
        assert!(settled(Duration::from_millis(2), 1) < 16);
        assert_eq!(settled(Duration::from_millis(1), 16), MOST_AT_ONCE);
        assert_eq!(settled(Duration::from_micros(50), 4), MOST_AT_ONCE);
    }
}
