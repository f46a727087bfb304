//! Writing: small pieces into the log, large ones to fresh space first and into the log by name.
//!
//! Space is taken before anything is written, so a full drive says so before the acknowledgement and never after. The
//! caller orders writes that overlap, and sees a write through to its end once it has begun.

use crate::commit::TOO_MANY_MARKS;
use crate::drive::Drive;
use crate::error::{DriveError, Loss};
use crate::extent::{BLOCKS, BlockSpan, ExtentKey, bound_sums, extents_of};
use crate::log::Change;
use crate::state::State;
use crate::state::marks::Marks;
use crate::state::operation::{Changes, Done, Payload};
use crate::world::{Device, DeviceError, Gather, World};
use bytes::Bytes;
use futures_channel::oneshot;
use futures_util::future::try_join_all;
use smallvec::SmallVec;
use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;
use tepal_model::{BLOCK, Buffer, EXTENT, Fate, Lineage, MapId, Origin, Taken, Taking};

/// Pieces of at least this many blocks go to their slot directly, if no block is overwritten in place by that.
const DIRECT: u8 = 8;
/// Data that one operation puts into the log at most, in blocks.
const LOGGED_TOGETHER: u32 = 16;
/// Marks that one operation puts into the log at most.
pub const MARKED_TOGETHER: usize = 1024;
/// What part of the log all marks may take. Those that come with writes may take less, so that there's room for what is
/// known of other drives.
const MOST_MARKS: u64 = 4;
const MOST_MARKS_OF_WRITES: u64 = 8;

/// How often a write looks for space that others give back, until the drive counts as full.
const MOST_ATTEMPTS: usize = 8;

/// One write of whole blocks.
#[derive(Clone, Debug)]
pub struct Write<'a> {
    /// Whose data.
    pub map: MapId,
    /// Number, within what this drive holds of the map, of the first block.
    pub first: u64,
    /// The blocks one after another, each of them in one piece of memory.
    pub data: Gather,
    /// CRC of each block, as computed where the data entered.
    pub crcs: Cow<'a, [u32]>,
    /// Marks that must be stable no later than the data.
    pub marks: Vec<Change>,
    /// Acknowledged only when on stable media.
    pub durable: bool,
    /// It makes copies equal, and may take the space that's kept back for that.
    pub repair: bool,
    /// What is noted of the blocks.
    pub taking: Taking,
    /// Whose data: it goes to the newest layer that this lineage owns, or to a new one.
    pub lineage: &'a Lineage,
}

impl Write<'_> {
    /// Bytes.
    fn length(&self) -> u64 {
        self.data.iter().map(|piece| piece.len() as u64).sum()
    }
}

/// Gathered data cut anew, from the start to the end.
struct Slices<'a> {
    pieces: &'a [Bytes],
    /// Within the first piece.
    at: usize,
}

impl<'a> Slices<'a> {
    fn of(data: &'a Gather) -> Self {
        Slices { pieces: data, at: 0 }
    }

    /// The next bytes as they lie, or copied together if they lie apart.
    fn next(&mut self, length: usize) -> Bytes {
        if let [piece, ..] = self.pieces
            && piece.len() - self.at >= length
        {
            return self.part(length);
        }
        let mut together = Buffer::take(length);
        let mut filled = 0;
        while filled < length {
            let part = self.part(length - filled);
            together[filled..filled + part.len()].copy_from_slice(&part);
            filled += part.len();
        }
        together.freeze()
    }

    /// At most so many, of the first piece.
    fn part(&mut self, most: usize) -> Bytes {
        let piece = &self.pieces[0];
        let part = piece.slice(self.at..piece.len().min(self.at + most));
        self.at += part.len();
        if self.at == piece.len() {
            (self.pieces, self.at) = (&self.pieces[1..], 0);
        }
        part
    }
}

/// A piece of a write that has its place.
struct Placed {
    key: ExtentKey,
    span: BlockSpan,
    slot: u32,
    direct: bool,
    data: Bytes,
}

/// A write that has its place on the drive, and nothing written yet. Either commit it or cancel it.
#[must_use = "its space is held until it's committed or cancelled"]
pub struct Prepared {
    pieces: SmallVec<[Placed; 1]>,
    /// Slots that the layers don't have yet: they replace those they have.
    fresh: Vec<u32>,
}

/// Why a write has no place on the drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Also of marks, which need room in the log.
    Full,
    /// Slots have been freed, but a crash could still undo that, or old data may still arrive there, or the device is
    /// discarding them: see [`Drive::give_back`].
    FullUntilFlush,
    /// The drive takes part in nothing any more.
    Lost(Arc<Loss>),
}

impl<W: World> Drive<W> {
    /// Prepares and commits.
    pub async fn write(&self, write: Write<'_>) -> Result<(), DriveError> {
        let mut prepared = self.prepare(&write);
        for _ in 0..MOST_ATTEMPTS {
            let Err(Refused::FullUntilFlush) = prepared else { break };
            self.give_back().await?;
            prepared = self.prepare(&write);
        }
        match prepared {
            Ok(prepared) => self.commit(prepared, write).await,
            Err(Refused::Full | Refused::FullUntilFlush) => Err(DriveError::OutOfSpace),
            Err(Refused::Lost(loss)) => Err(loss.into()),
        }
    }

    /// Writes the data to its place. Once begun it must be seen through: what it holds is given back by its end only.
    pub fn commit(&self, prepared: Prepared, write: Write<'_>) -> impl Future<Output = Result<(), DriveError>> {
        self.device().seen(self.id(), "drive write", self.commit_unseen(prepared, write))
    }

    async fn commit_unseen(&self, prepared: Prepared, write: Write<'_>) -> Result<(), DriveError> {
        let length = write.length();
        assert_eq!(length, write.crcs.len() as u64 * BLOCK, "whole blocks, each with its CRC");
        let Prepared { pieces, fresh } = prepared;
        if pieces.iter().any(|piece| piece.direct)
            && let Err(error) = Box::pin(self.write_direct(&pieces)).await
        {
            return Err(self.shared.lose(error).into());
        }
        let mut waiting = SmallVec::new();
        let mut marks = write.marks;
        while marks.len() > MARKED_TOGETHER {
            let rest = marks.split_off(MARKED_TOGETHER);
            waiting.push(self.submit(Changes::from_vec(marks), Payload::new(), write.durable));
            marks = rest;
        }
        let mut changes = Changes::from_vec(marks);
        let (mut payload, mut blocks) = (Payload::new(), 0);
        let (mut noted, mut at) = (0, 0);
        let mut notes = |upto: usize| {
            let blocks = write.first + noted as u64..write.first + upto as u64;
            noted = upto;
            notes_of(&write.taking, write.map, blocks)
        };
        for piece in pieces {
            let count = usize::from(piece.span.count);
            let sums = bound_sums(piece.key, piece.span, &write.crcs[at..at + count]);
            at += count;
            let Placed { key, span, slot, direct, data } = piece;
            if direct {
                changes.push(Change::Placed { key, slot, span, sums });
            } else {
                changes.push(Change::Logged { key, slot, span, sums });
                // It stays until it's destaged; the rest of a long write shouldn't stay with it.
                payload.push(if (data.len() as u64) < length / 2 { Buffer::copy_of(&data).freeze() } else { data });
                blocks += count as u32;
            }
            if blocks >= LOGGED_TOGETHER || changes.len() >= 256 {
                changes.extend(notes(at));
                waiting.push(self.submit(std::mem::take(&mut changes), std::mem::take(&mut payload), write.durable));
                blocks = 0;
            }
        }
        if !changes.is_empty() {
            changes.extend(notes(at));
            waiting.push(self.submit(changes, payload, write.durable));
        }
        let outcome = self.all(waiting).await;
        if !fresh.is_empty() {
            self.shared.lock().replacing -= fresh.len() as u32;
        }
        outcome
    }

    /// Has the slots that were freed before given back, so that others may take them.
    pub async fn give_back(&self) -> Result<(), Arc<Loss>> {
        self.flush().await?;
        let is_destaging = {
            let state = self.shared.lock();
            state.freed.iter().any(|(_, slot)| state.destaging.contains(slot))
        };
        if is_destaging {
            self.begin_destaging().await; // waits for the pass that still writes to them
            self.end_destaging();
        }
        let discarded = {
            let mut state = self.shared.lock();
            (state.discarding > 0).then(|| {
                let (sender, receiver) = oneshot::channel();
                state.discard_waiters.push(sender);
                receiver
            })
        };
        if let Some(discarded) = discarded {
            let _ = discarded.await; // told by dropping or by sending; either way it's over
        }
        Ok(())
    }

    /// Gives the space of a write back that won't be made.
    pub fn cancel(&self, prepared: Prepared) {
        let mut state = self.shared.lock();
        for piece in &prepared.pieces {
            state.end_write(piece.slot);
            let unused = !prepared.fresh.contains(&piece.slot) && !state.in_flight.contains_key(&piece.slot);
            if unused && state.map.get(piece.key) == Some((piece.slot, 0)) {
                state.map.remove(piece.key);
                state.freed.push_back((0, piece.slot)); // destaging may still be writing to it
            }
        }
        state.replacing -= prepared.fresh.len() as u32;
        prepared.fresh.into_iter().for_each(|slot| state.space.put(slot));
        state.release_freed();
    }

    async fn all(&self, waiting: SmallVec<[Done; 1]>) -> Result<(), DriveError> {
        for done in waiting {
            self.shared.outcome(done).await?;
        }
        Ok(())
    }

    /// Gives every piece its slot, or none.
    pub fn prepare(&self, write: &Write<'_>) -> Result<Prepared, Refused> {
        let mut state = self.shared.lock();
        state.alive().map_err(Refused::Lost)?;
        let count = write.crcs.len() as u64;
        let Write { map, lineage, .. } = *write;
        let layer_of = |state: &State, index, span: BlockSpan| state.written_to(map, index, span.bits(), lineage);
        let absent = extents_of(write.first, count).filter(|&(index, span, _)| layer_of(&state, index, span).is_none());
        let mut absent = absent.count() as u64;
        let room = if write.repair { state.space.free() } else { state.available() };
        if absent > u64::from(room) {
            let is_full = state.freed.is_empty() && state.discarding == 0;
            return Err(if is_full { Refused::Full } else { Refused::FullUntilFlush });
        }
        if !write.marks.is_empty() && !state.may_mark(Marks::words_of(&write.marks), MOST_MARKS_OF_WRITES) {
            tracing::warn!(drive = %self.id(), "{TOO_MANY_MARKS}: a write is refused");
            return Err(Refused::Full);
        }
        let mut prepared = Prepared { pieces: SmallVec::new(), fresh: Vec::new() };
        let mut run = (0, 0);
        let most = (write.length() / EXTENT).clamp(1, 64) as u32;
        let mut data_of = Slices::of(&write.data);
        for (index, span, _) in extents_of(write.first, count) {
            let layer = layer_of(&state, index, span);
            let key = ExtentKey { map, index, epoch: layer.map_or(lineage.newest(), |layer| layer.epoch) };
            let data = data_of.next(usize::from(span.count) * BLOCK as usize);
            let (slot, direct) = match layer.map(|layer| (layer.slot, layer.present)) {
                None => {
                    let slot = take_slot(&mut state, &mut run, most).expect("there is room: it was counted above");
                    absent -= 1;
                    state.map.insert(key, slot, 0);
                    (slot, span.count >= DIRECT)
                }
                // Nothing is overwritten, and nobody reads blocks that aren't present. But destaging may still be writing
                // blocks to the slot that were cleared meanwhile, or blocks of another layer come to it: that could land on top.
                Some((slot, present)) if present & span.bits() == 0 => {
                    let is_quiet = !state.destaging.contains(&slot) && !state.joining.contains_key(&slot);
                    (slot, span.count >= DIRECT && is_quiet)
                }
                Some((slot, _)) if u32::from(span.count) < BLOCKS => (slot, false),
                // The whole extent is replaced; the reserve is for this. Without any room it goes through the log.
                Some((slot, _)) if u64::from(state.space.free() + run.1) <= absent || !state.may_replace() => {
                    (slot, false)
                }
                Some((slot, _)) => match take_slot(&mut state, &mut run, most) {
                    Some(fresh) => {
                        prepared.fresh.push(fresh);
                        state.replacing += 1;
                        (fresh, true)
                    }
                    None => (slot, false),
                },
            };
            state.begin_write(slot);
            prepared.pieces.push(Placed { key, span, slot, direct, data });
        }
        // What the last run had too much goes back.
        (run.0..run.0 + run.1).for_each(|slot| state.space.put(slot));
        Ok(prepared)
    }

    /// Writes the direct pieces to their slots; neighbours in one write.
    async fn write_direct(&self, pieces: &[Placed]) -> Result<(), DeviceError> {
        let mut runs: Vec<(u64, u64, Gather)> = Vec::new();
        for piece in pieces.iter().filter(|piece| piece.direct) {
            let offset = self.shared.geometry.block_offset(piece.slot, piece.span.first.into());
            let length = piece.data.len() as u64;
            match runs.last_mut() {
                Some((start, bytes, gather)) if *start + *bytes == offset && gather.len() < 256 => {
                    *bytes += length;
                    gather.push(piece.data.clone());
                }
                _ => runs.push((offset, length, Gather::from_iter([piece.data.clone()]))),
            }
        }
        let writes = runs.into_iter().map(|(offset, _, gather)| self.shared.device.write(offset, gather));
        try_join_all(writes).await.map(drop)
    }

    /// What these blocks have taken of requests.
    pub fn requests(&self, map: MapId, first: u64, count: u64) -> Vec<Taken> {
        self.shared.lock().requests.within(map, first, count)
    }

    /// What became of a request on these blocks.
    pub fn fate(&self, origin: Origin, map: MapId, first: u64, count: u64) -> Fate {
        self.shared.lock().requests.fate(origin, map, first, count)
    }

    /// From here on the blocks have taken these requests and no others, as those of another copy that they were made equal to.
    /// Stable when it returns.
    pub async fn adopt(&self, map: MapId, (first, count): (u64, u64), requests: Vec<Taken>) -> Result<(), DriveError> {
        let changes = notes_of(&Taking::Those(requests), map, first..first + count);
        self.log_together(changes, true).await
    }

    /// Commits marks, or other changes without data. They are in line when this returns, and committed when the future
    /// does.
    ///
    /// Marks for which the log has no room are refused, unless it's but one.
    pub fn record(&self, changes: Vec<Change>, durable: bool) -> impl Future<Output = Result<(), DriveError>> + use<W> {
        let words = Marks::words_of(&changes);
        let is_refused = words > 1 && !self.shared.lock().may_mark(words, MOST_MARKS);
        let logged = (!is_refused).then(|| self.log_changes(changes, durable));
        async move {
            match logged {
                Some(logged) => logged.await,
                None => Err(DriveError::OutOfSpace),
            }
        }
    }

    /// In one batch.
    pub(crate) async fn log_together(&self, changes: Vec<Change>, durable: bool) -> Result<(), DriveError> {
        let done = self.submit(Changes::from_vec(changes), Payload::new(), durable);
        Ok(self.shared.outcome(done).await?)
    }

    pub(crate) fn log_changes(
        &self,
        changes: Vec<Change>,
        durable: bool,
    ) -> impl Future<Output = Result<(), DriveError>> + use<W> {
        let parts = changes
            .chunks(MARKED_TOGETHER)
            .map(|part| self.submit(Changes::from(part), Payload::new(), durable))
            .collect();
        let drive = self.clone();
        async move { drive.all(parts).await }
    }
}

/// What is noted of some of the blocks with what changes them.
pub fn notes_of(taking: &Taking, map: MapId, blocks: Range<u64>) -> Vec<Change> {
    let (first, count) = (blocks.start, blocks.end - blocks.start);
    match taking {
        Taking::Nothing => Vec::new(),
        &Taking::Request(origin) => vec![Change::Took { map, taken: Taken { origin, first, count } }],
        Taking::Those(requests) => {
            let taken = requests.iter().filter_map(|taken| taken.within(&blocks));
            let took = taken.map(|taken| Change::Took { map, taken });
            std::iter::once(Change::Untook { map, first, count }).chain(took).collect()
        }
    }
}

/// The next slot of the run, or of a new run of up to `most`.
fn take_slot(state: &mut State, run: &mut (u32, u32), most: u32) -> Option<u32> {
    if run.1 == 0 {
        *run = state.space.take_run(most)?;
    }
    *run = (run.0 + 1, run.1 - 1);
    Some(run.0 - 1)
}
