//! Joining layers that no reader can tell apart: what only an older one has moves to the newest, and what nobody would miss goes.
//!
//! What is moved is read first, and meanwhile both layers may be written to and cleared. So the changes are found when the batch is
//! made that they go into, from the state as all batches before it have left it. The log has nothing but what was really done,
//! and replay decides nothing. Invariants:
//! 1. A block moves only if it is as it was read, and no reader sees another one: neither the newer layer nor one in between
//!    has it, and it wasn't hidden since.
//! 2. Nothing is written to the slot of the newer layer directly while blocks may come to it through the log: what came later
//!    would land on top.

use crate::extent::{BlockSpan, ExtentKey, bits_within, bound_sums};
use crate::log::Change;
use crate::state::State;
use crate::state::map::Layer;
use crate::state::operation::{Changes, Join, Move, Payload};
use smallvec::SmallVec;
use std::ops::Range;
use tepal_model::{Epoch, History, Lineage, MapId};

/// What becomes of a layer.
#[derive(Clone, Copy, Debug)]
pub struct Fate {
    pub key: ExtentKey,
    pub slot: u32,
    /// Blocks that a newer layer has, or that were hidden, for all who see this layer.
    pub gone: u16,
    /// The layer that its other blocks go to, if it isn't the newest one of its line.
    pub to: Option<(ExtentKey, u32)>,
    pub moved: u16,
}

/// What of one line's layers of an extent was met so far, from the newest one on.
struct Line<'a> {
    line: &'a Lineage,
    newest: (ExtentKey, u32),
    present: u16,
}

/// What becomes of an extent's layers. Of those that the history doesn't know nothing is said.
pub fn fates(state: &State, history: &History, map: MapId, index: u64) -> SmallVec<[Fate; 2]> {
    let mut met: SmallVec<[Line<'_>; 1]> = SmallVec::new();
    let mut fates = SmallVec::new();
    for Layer { epoch, slot, present } in state.map.layers(map, index).filter(|layer| layer.present != 0) {
        // Of one that nobody sees, or of which nothing is known.
        let Some(line) = history.line_of(epoch) else { continue };
        let key = ExtentKey { map, index, epoch };
        let hidden = state.hidden_after(map, index, epoch, line);
        // Of its line no two have the same newest epoch.
        match met.iter_mut().find(|other| other.line.newest() == line.newest()) {
            Some(newer) => {
                let gone = present & (newer.present | hidden);
                newer.present |= present;
                fates.push(Fate { key, slot, gone, to: Some(newer.newest), moved: present & !gone });
            }
            None => {
                fates.push(Fate { key, slot, gone: present & hidden, to: None, moved: 0 });
                met.push(Line { line, newest: (key, slot), present });
            }
        }
    }
    fates
}

/// What a note hides.
#[derive(Default)]
pub struct Below {
    /// Takes out what nobody sees any more.
    pub superfluous: Vec<Change>,
    /// Others see some of it.
    pub is_needed: bool,
}

/// What is below a note. Nothing is said of one of which nothing is known.
pub fn below(state: &State, history: &History, map: MapId, epoch: Epoch, blocks: &Range<u64>) -> Below {
    let mut below = Below::default();
    let Some(line) = history.line_of(epoch) else { return below };
    let older =
        state.map.layers_of_blocks(map, blocks.clone()).filter(|(key, _)| key.epoch < epoch && line.sees(key.epoch));
    for (key, layer) in older {
        let present = layer.present & bits_within(blocks, key.index);
        match line.owns(key.epoch) {
            true => below.superfluous.extend(BlockSpan::runs_of(present).map(|span| Change::Cleared { key, span })),
            false => below.is_needed |= present != 0,
        }
    }
    below
}

/// A note that there's nothing below is dropped. Others join those of the line's first epoch, so that they don't pile up while snapshots
/// come and go.
fn settled(state: &State, history: &History, map: MapId, epoch: Epoch, blocks: &Range<u64>) -> Option<Vec<Change>> {
    let line = history.line_of(epoch)?;
    let below = below(state, history, map, epoch, blocks);
    let is_settled = !below.superfluous.is_empty() || (below.is_needed && epoch == line.own());
    let (first, count) = (blocks.start, blocks.end - blocks.start);
    let joined = below.is_needed.then_some(Change::Hid { map, epoch: line.own(), first, count });
    let dropped = Change::Unhid { map, epochs: (epoch, epoch), first, count };
    (!is_settled).then(|| joined.into_iter().chain([dropped]).collect())
}

impl Join {
    /// What is to be done, as things are now.
    pub fn changes(&self, state: &State) -> (Changes, Payload) {
        let (mut changes, mut payload) = (Changes::new(), Payload::new());
        for &index in &self.extents {
            for fate in fates(state, &self.history, self.map, index) {
                let mut cleared = fate.gone;
                for moved in self.moves.iter().filter(|moved| is_as_it_was(state, &fate, moved)) {
                    let span = BlockSpan { first: moved.block, count: 1 };
                    let (key, slot) = moved.to;
                    changes.push(Change::Logged { key, slot, span, sums: bound_sums(key, span, &[moved.crc]) });
                    payload.push(moved.data.clone());
                    cleared |= span.bits();
                }
                changes.extend(BlockSpan::runs_of(cleared).map(|span| Change::Cleared { key: fate.key, span }));
            }
        }
        let settled = |(epoch, blocks): &(Epoch, Range<u64>)| settled(state, &self.history, self.map, *epoch, blocks);
        changes.extend(self.notes.iter().filter_map(settled).flatten());
        (changes, payload)
    }

    /// It was done, or never will be.
    pub fn end(&self, state: &mut State) {
        state.joining.retain(|slot, _| !self.slots.contains(slot));
    }
}

fn is_as_it_was(state: &State, fate: &Fate, moved: &Move) -> bool {
    let changed = |slot: u32| state.joining.get(&slot).copied().unwrap_or(!0);
    let is_this = (fate.key, fate.slot) == moved.from && fate.to == Some(moved.to);
    // One whose blocks have all changed may have been given back, and taken again by a write that is under way.
    is_this && (fate.moved & !changed(fate.slot)) >> moved.block & 1 == 1 && changed(moved.to.1) != !0
}
