//! Reclaiming: what no reader sees any more gives its space back, and layers that no reader can tell apart become one.
//!
//! It begins anew each time, and may stop anywhere: each batch leaves all that is seen as it was. What is read must be whole: a
//! damaged block stays where it is, and with it its layer, until it's repaired.

use crate::drive::{Drive, Shared};
use crate::error::{DriveError, Loss};
use crate::extent::{BlockSpan, ExtentKey};
use crate::layers::join::{Fate, below, fates};
use crate::layers::one_layer;
use crate::log::Change;
use crate::state::State;
use crate::state::operation::{Changes, Join, Move, Payload};
use crate::world::World;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use tepal_model::history::Span;
use tepal_model::{BLOCK, Epoch, History, MapId};

/// Changes that one batch brings about, or a few more.
const CHANGED_TOGETHER: usize = 256;
/// Blocks that are moved in one batch at most.
const MOVED_TOGETHER: u32 = 16;
/// Extents that are looked at before others have their turn.
const LOOKED_AT: usize = 256;

/// How reclaiming ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reclaimed {
    /// All was given back that can be: what can't be read stays until it's repaired.
    All,
    /// Some of it was being written to: that is for another time.
    SomeLater,
}

impl<W: World> Drive<W> {
    /// Gives back what no reader sees any more, and joins layers that no reader can tell apart. Nothing is done to what the history
    /// doesn't know, which may be an older one. Layers that are being written to, or can't be read, are left for another time.
    pub async fn reclaim(&self, map: MapId, history: &History) -> Result<Reclaimed, Arc<Loss>> {
        let _turn = self.shared.reclaim_turn.lock().await;
        self.shared.lock().alive()?;
        let history = Arc::new(history.clone());
        let mut reclaim = Reclaim { drive: self, map, history, damaged: BTreeMap::new() };
        reclaim.clear_unseen().await?;
        loop {
            reclaim.clear_hidden().await?;
            match reclaim.join_all().await? {
                Pass { worked: true, .. } => {}
                Pass { is_busy: true, .. } => return Ok(Reclaimed::SomeLater),
                Pass { .. } => return Ok(Reclaimed::All),
            }
        }
    }
}

impl<W: World> Drive<W> {
    /// Gives back what is there of epochs that nobody sees. Whether nothing is of these any more, also after a loss of power; one that is
    /// being written to is.
    pub async fn has_nothing_of(&self, map: MapId, history: &History, gaps: &[Span]) -> Result<bool, Arc<Loss>> {
        self.shared.lock().alive()?;
        let history = Arc::new(history.clone());
        Reclaim { drive: self, map, history, damaged: BTreeMap::new() }.clear_unseen().await?;
        let has_any = {
            let state = self.shared.lock();
            let noted = state.hidden.epochs_within(map, 0..u64::MAX);
            let mut epochs = state.map.epochs_of(map).map(|(epoch, _)| epoch).chain(noted);
            epochs.any(|epoch| gaps.iter().any(|&(first, last)| (first..=last).contains(&epoch)))
        };
        if !has_any {
            self.flush().await?;
        }
        Ok(!has_any)
    }
}

/// What came of one pass over the extents that have several layers.
#[derive(Default)]
struct Pass {
    /// Something was to be done.
    worked: bool,
    /// Something is being written to, and was left as it is.
    is_busy: bool,
}

struct Reclaim<'a, W: World> {
    drive: &'a Drive<W>,
    map: MapId,
    history: Arc<History>,
    /// Blocks of layers that can't be read.
    damaged: BTreeMap<ExtentKey, u16>,
}

/// What is done to the next extents for which there's something to do.
#[derive(Default)]
struct Plan {
    extents: Vec<u64>,
    /// Each with the blocks that are to be read.
    moves: Vec<(Fate, u16)>,
    slots: Vec<u32>,
    /// Where to look next.
    next: Option<u64>,
    /// As in [`Pass`].
    is_busy: bool,
}

/// Slots that count as being joined until they're handed on, or this is dropped.
struct Joining<'a, W: World> {
    shared: &'a Shared<W>,
    slots: Vec<u32>,
}

impl<W: World> Drop for Joining<'_, W> {
    fn drop(&mut self) {
        if !self.slots.is_empty() {
            self.shared.lock().joining.retain(|slot, _| !self.slots.contains(slot));
        }
    }
}

impl<W: World> Reclaim<'_, W> {
    /// Layers and notes of epochs that nobody sees.
    async fn clear_unseen(&self) -> Result<(), Arc<Loss>> {
        let (map, history) = (self.map, &self.history);
        let is_unseen = |epoch| !history.is_unknown(epoch) && history.line_of(epoch).is_none();
        let changes: Vec<Change> = {
            let state = self.drive.shared.lock();
            let any = state.map.epochs_of(map).any(|(epoch, _)| is_unseen(epoch));
            let layers = state.map.layers_within(map, if any { 0..u64::MAX } else { 0..0 });
            let unseen = layers.filter(|(key, layer)| is_unseen(key.epoch) && layer.present != 0);
            let cleared = unseen.map(|(key, _)| Change::Cleared { key, span: BlockSpan::WHOLE });
            let notes = state.hidden.epochs_within(map, 0..u64::MAX).filter(|&epoch| is_unseen(epoch));
            let (first, count) = (0, u64::MAX);
            cleared.chain(notes.map(|epoch| Change::Unhid { map, epochs: (epoch, epoch), first, count })).collect()
        };
        self.log(changes).await
    }

    /// What is hidden from all who see it, and the notes themselves.
    async fn clear_hidden(&self) -> Result<(), Arc<Loss>> {
        let notes: Vec<_> = self.drive.shared.lock().hidden.of(self.map).collect();
        for (epoch, blocks) in notes {
            let superfluous = below(&self.drive.shared.lock(), &self.history, self.map, epoch, &blocks).superfluous;
            self.log(superfluous).await?;
            self.settle(epoch, blocks).await?;
            self.drive.shared.world.give_way().await;
        }
        Ok(())
    }

    async fn settle(&self, epoch: Epoch, blocks: Range<u64>) -> Result<(), Arc<Loss>> {
        let (map, history, notes) = (self.map, self.history.clone(), vec![(epoch, blocks)]);
        let join = Join { map, history, extents: Vec::new(), notes, moves: Vec::new(), slots: Vec::new() };
        let is_settled = join.changes(&self.drive.shared.lock()).0.is_empty();
        match is_settled {
            true => Ok(()),
            false => self.drive.shared.outcome(self.drive.submit_join(join)).await,
        }
    }

    async fn log(&self, changes: Vec<Change>) -> Result<(), Arc<Loss>> {
        for part in changes.chunks(CHANGED_TOGETHER) {
            let done = self.drive.submit(Changes::from(part), Payload::new(), false);
            self.drive.shared.outcome(done).await?;
            self.drive.shared.world.give_way().await;
        }
        Ok(())
    }

    async fn join_all(&mut self) -> Result<Pass, Arc<Loss>> {
        let (mut from, mut pass) = (Some(0), Pass::default());
        while let Some(first) = from {
            let plan = {
                let mut state = self.drive.shared.lock();
                state.alive()?;
                self.plan(&mut state, first)
            };
            from = plan.next;
            pass.is_busy |= plan.is_busy;
            if !plan.extents.is_empty() {
                pass.worked = true;
                self.carry_out(plan).await?;
            }
            self.drive.shared.world.give_way().await;
        }
        Ok(pass)
    }

    fn plan(&self, state: &mut State, first: u64) -> Plan {
        let extents: Vec<u64> = state.map.stacked(self.map, first).take(LOOKED_AT).collect();
        let mut plan = Plan { next: extents.last().map(|last| last + 1), ..Plan::default() };
        let (mut changes, mut blocks) = (0, 0);
        for index in extents {
            if blocks >= MOVED_TOGETHER || changes >= CHANGED_TOGETHER {
                plan.next = Some(index);
                break;
            }
            let fates = fates(state, &self.history, self.map, index);
            let gone: u32 = fates.iter().map(|fate| fate.gone.count_ones()).sum();
            let mut moved = 0;
            for fate in fates {
                let room = MOVED_TOGETHER.saturating_sub(blocks + moved);
                moved += self.plan_moves(state, fate, room, &mut plan);
            }
            if gone + moved > 0 {
                plan.extents.push(index);
            }
            (changes, blocks) = (changes + gone as usize, blocks + moved);
        }
        plan
    }

    /// Has blocks of a layer moved, at most so many, unless it's being written to. How many.
    fn plan_moves(&self, state: &mut State, fate: Fate, room: u32, plan: &mut Plan) -> u32 {
        let readable = fate.moved & !self.damaged.get(&fate.key).copied().unwrap_or(0);
        let blocks = lowest(readable, room);
        let Some((_, to)) = fate.to.filter(|_| blocks != 0) else { return 0 };
        let is_taken = |slot| state.joining.contains_key(slot) && !plan.slots.contains(slot);
        if [fate.slot, to].iter().any(|slot| state.in_flight.contains_key(slot) || is_taken(slot)) {
            plan.is_busy = true;
            return 0;
        }
        for slot in [fate.slot, to] {
            if !plan.slots.contains(&slot) {
                plan.slots.push(slot);
                state.joining.insert(slot, 0);
            }
        }
        plan.moves.push((fate, blocks));
        blocks.count_ones()
    }

    async fn carry_out(&mut self, plan: Plan) -> Result<(), Arc<Loss>> {
        let mut joining = Joining { shared: &self.drive.shared, slots: plan.slots };
        let mut moves = Vec::new();
        for (fate, blocks) in plan.moves {
            for span in BlockSpan::runs_of(blocks) {
                self.read(fate, span, &mut moves).await?;
            }
        }
        let (map, history, slots) = (self.map, self.history.clone(), std::mem::take(&mut joining.slots));
        let done =
            self.drive.submit_join(Join { map, history, extents: plan.extents, notes: Vec::new(), moves, slots });
        self.drive.shared.outcome(done).await
    }

    async fn read(&mut self, fate: Fate, span: BlockSpan, moves: &mut Vec<Move>) -> Result<(), Arc<Loss>> {
        let Some(to) = fate.to else { return Ok(()) };
        let (first, count, alone) =
            (fate.key.first_block() + u64::from(span.first), span.count, one_layer(fate.key.epoch));
        let crcs = self.drive.crcs(self.map, first, count.into(), &alone).await;
        let read = self.drive.read(self.map, first, count.into(), &alone).await;
        match (crcs, read) {
            (Ok(crcs), Ok(segments)) => {
                let data = segments.iter().flat_map(blocks_of);
                for ((block, crc), data) in span.range().zip(crcs).zip(data) {
                    // One that isn't there any more isn't moved either.
                    let Some(crc) = crc else { continue };
                    moves.push(Move { from: (fate.key, fate.slot), to, block: block as u8, crc, data });
                }
                return Ok(());
            }
            (Err(DriveError::Lost(loss)), _) | (_, Err(DriveError::Lost(loss))) => return Err(loss),
            // Those that are whole are moved in the next pass.
            (_, Err(DriveError::Damaged { blocks })) => {
                let bits = blocks.iter().fold(0, |bits, block| bits | 1 << (block - fate.key.first_block()));
                *self.damaged.entry(fate.key).or_default() |= bits;
            }
            (Err(_), Ok(_)) | (_, Err(DriveError::OutOfSpace)) => {
                *self.damaged.entry(fate.key).or_default() |= span.bits();
            }
        }
        Ok(())
    }
}

/// So many of the bits, the lowest ones.
fn lowest(mut bits: u16, most: u32) -> u16 {
    while bits.count_ones() > most {
        bits &= !(1 << bits.ilog2());
    }
    bits
}

fn blocks_of(segment: &Bytes) -> impl Iterator<Item = Bytes> {
    let starts = (0..segment.len()).step_by(BLOCK as usize);
    starts.map(|at| segment.slice(at..at + BLOCK as usize))
}
