//! What a reader sees of an extent's layers: of each block that of the newest layer that it sees and that has the block, unless the
//! block was hidden later.

pub mod clear;
pub mod join;
pub mod reclaim;
pub mod surplus;

use crate::drive::Drive;
use crate::extent::{BLOCKS, BlockSpan, ExtentKey, bits_within, extents_of};
use crate::state::State;
use crate::state::map::Layer;
use crate::world::World;
use smallvec::SmallVec;
use std::collections::BTreeSet;
use std::ops::Range;
use tepal_model::{Epoch, Lineage, MapId};

/// The blocks of one layer that a reader sees.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    pub key: ExtentKey,
    pub slot: u32,
    /// A bit for each block.
    pub blocks: u16,
}

/// Of an extent, the newest layer first. Most have one.
pub type SeenLayers = SmallVec<[Seen; 1]>;

/// Sees layers of this epoch and no others.
pub fn one_layer(epoch: Epoch) -> Lineage {
    Lineage::new([(epoch, epoch)], epoch).expect("it's one span, whose end is its own")
}

impl State {
    /// Which of these blocks of an extent hold something for this reader, and where.
    pub fn seen(&self, map: MapId, index: u64, blocks: u16, lineage: &Lineage) -> SeenLayers {
        let (mut seen, mut left) = (SeenLayers::new(), blocks);
        for Layer { epoch, slot, present } in self.map.layers(map, index) {
            let found = present & left;
            if found == 0 || !lineage.sees(epoch) {
                continue;
            }
            let blocks = found & !self.hidden_after(map, index, epoch, lineage);
            if blocks != 0 {
                seen.push(Seen { key: ExtentKey { map, index, epoch }, slot, blocks });
            }
            left &= !found; // what hides it here hides it in older layers too
            if left == 0 {
                break;
            }
        }
        seen
    }

    /// Those of these blocks of a map outside of which nothing is held: runs of them, in order.
    fn inhabited(&self, map: MapId, blocks: Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let within = u64::from(BLOCKS);
        let extents = self.map.inhabited(map, blocks.start / within..blocks.end.div_ceil(within));
        extents.map(move |extents| blocks.start.max(extents.start * within)..blocks.end.min(extents.end * within))
    }

    /// Which of these blocks hold something for this reader.
    pub fn present(&self, map: MapId, index: u64, blocks: u16, lineage: &Lineage) -> u16 {
        self.seen(map, index, blocks, lineage).iter().fold(0, |all, seen| all | seen.blocks)
    }

    /// The layer that takes what is written to these blocks. `None` if that is to be a new one, of the newest epoch: there's none
    /// that only this reader sees, or something was hidden since its epoch that is to be seen again.
    pub fn written_to(&self, map: MapId, index: u64, blocks: u16, lineage: &Lineage) -> Option<Layer> {
        let newest = self.map.layers(map, index).find(|layer| lineage.owns(layer.epoch))?;
        (self.hidden_after(map, index, newest.epoch, lineage) & blocks == 0).then_some(newest)
    }

    pub fn hidden_after(&self, map: MapId, index: u64, epoch: Epoch, lineage: &Lineage) -> u16 {
        match self.hidden.is_empty() {
            true => 0,
            false => self.hidden.bits(map, index, epoch, lineage),
        }
    }
}

impl<W: World> Drive<W> {
    /// The epochs of which there's anything of these blocks, ascending: layers, or notes that older ones are hidden.
    pub fn epochs_of(&self, map: MapId, first: u64, count: u64) -> Vec<Epoch> {
        let (state, blocks) = (self.shared.lock(), first..first.saturating_add(count));
        let layers = state.map.layers_of_blocks(map, blocks.clone());
        let holding = layers.filter(|(key, layer)| layer.present & bits_within(&blocks, key.index) != 0);
        let epochs: BTreeSet<Epoch> =
            holding.map(|(key, _)| key.epoch).chain(state.hidden.epochs_within(map, blocks.clone())).collect();
        epochs.into_iter().collect()
    }

    /// Whether none of the blocks hold anything.
    pub fn is_empty(&self, map: MapId, first: u64, count: u64, lineage: &Lineage) -> bool {
        let state = self.shared.lock();
        let mut spans = state.inhabited(map, first..first + count).flat_map(spans_of);
        spans.all(|(index, span, _)| state.present(map, index, span.bits(), lineage) == 0)
    }

    /// Which of the blocks hold something, as runs in order: how many blocks, and whether they do. Ends early once it has looked at
    /// `look` extents.
    pub fn present(&self, map: MapId, first: u64, count: u64, look: u64, lineage: &Lineage) -> Vec<(u64, bool)> {
        let (state, end) = (self.shared.lock(), first + count);
        let mut runs: Vec<(u64, bool)> = Vec::new();
        let mut add = |length: u64, present: bool| match runs.last_mut() {
            _ if length == 0 => {}
            Some(last) if last.1 == present => last.0 += length,
            _ => runs.push((length, present)),
        };
        let (mut at, mut looked) = (first, 0);
        for blocks in state.inhabited(map, first..end) {
            add(blocks.start - at, false);
            at = blocks.start;
            for (index, span, _) in spans_of(blocks) {
                if looked == look {
                    return runs;
                }
                match state.present(map, index, span.bits(), lineage) {
                    0 => add(span.count.into(), false),
                    bits => span.range().for_each(|block| add(1, bits >> block & 1 == 1)),
                }
                at += u64::from(span.count);
                looked += 1;
            }
        }
        add(end - at, false);
        runs
    }
}

fn spans_of(blocks: Range<u64>) -> impl Iterator<Item = (u64, BlockSpan, u64)> {
    extents_of(blocks.start, blocks.end - blocks.start)
}
