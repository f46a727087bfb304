//! What would be given back: now, as nobody sees it, and if one reader alone were gone.
//!
//! Both follow from how many layers there are of each epoch, and of how many extents a layer of one epoch lies next below one of
//! another: layers that nobody sees go, and of those that no reader can tell apart one is left of each extent. It's never more than is
//! given back in the end, and it may be less: where layers of other branches lie between those that become one, and where a layer goes
//! because all of it was hidden.

use crate::drive::Drive;
use crate::extent::{BLOCKS, ExtentKey, bits_within};
use crate::state::State;
use crate::state::map::Layer;
use crate::world::World;
use std::collections::BTreeMap;
use std::ops::Range;
use tepal_model::{EXTENT, Epoch, History, Lineage, MapId};

/// Extents that are looked at before others have their turn.
const LOOKED_AT: u64 = 4096;

impl<W: World> Drive<W> {
    /// Bytes that [`reclaim`](Drive::reclaim) gives back, at least, in whole extents of each layer. Looks at counts alone.
    pub fn surplus_of(&self, map: MapId, history: &History) -> u64 {
        let state = self.shared.lock();
        let is_unseen = |epoch: Epoch| !history.is_unknown(epoch) && history.line_of(epoch).is_none();
        let unseen = state.map.epochs_of(map).filter(|&(epoch, _)| is_unseen(epoch)).map(|(_, layers)| layers);
        let is_doubled = |below, above| {
            let newest = |epoch| history.line_of(epoch).map(Lineage::newest);
            newest(below).is_some_and(|line| newest(above) == Some(line))
        };
        let neighbours = state.map.neighbours_of(map);
        let doubled = neighbours.filter(|&(below, above, _)| is_doubled(below, above)).map(|(.., extents)| extents);
        unseen.chain(doubled).sum::<u64>() * EXTENT
    }

    /// For each reader, by its newest epoch, the bytes that would be given back, at least, if it alone were gone. Besides counts, it
    /// looks at what was hidden and at what lies below that.
    pub fn kept_alone(&self, map: MapId, history: &History) -> BTreeMap<Epoch, u64> {
        let mut kept = Kept { history, extents: BTreeMap::new() };
        let notes: Vec<(Epoch, Range<u64>)> = {
            let state = self.shared.lock();
            for (epoch, layers) in state.map.epochs_of(map) {
                kept.add(history.line_of(epoch).and_then(|line| history.only_reader_of(line)), layers);
            }
            for (below, above, extents) in state.map.neighbours_of(map) {
                kept.add(kept.parted_by(below, above), extents);
            }
            state.hidden.of(map).collect()
        };
        for (epoch, blocks) in notes {
            for part in self.parts_of(&blocks) {
                kept.add_hidden(&self.shared.lock(), map, epoch, &part);
            }
        }
        kept.extents.into_iter().map(|(reader, extents)| (reader, extents * EXTENT)).collect()
    }

    /// Cut where others may have their turn; all at once if each slot is looked at anyway.
    fn parts_of(&self, blocks: &Range<u64>) -> Vec<Range<u64>> {
        let (length, step) = (blocks.end - blocks.start, LOOKED_AT * u64::from(BLOCKS));
        if length / u64::from(BLOCKS) > self.shared.geometry.slots.into() {
            return vec![blocks.clone()];
        }
        let cuts = (blocks.start / step + 1..).map(|nth| nth * step).take_while(|&cut| cut < blocks.end);
        let starts: Vec<u64> = std::iter::once(blocks.start).chain(cuts).collect();
        let ends = starts[1..].iter().copied().chain([blocks.end]);
        starts.iter().zip(ends).map(|(&start, end)| start..end).collect()
    }
}

/// What is found of the extents that each reader alone keeps.
struct Kept<'a> {
    history: &'a History,
    extents: BTreeMap<Epoch, u64>,
}

impl Kept<'_> {
    fn parted_by(&self, one: Epoch, other: Epoch) -> Option<Epoch> {
        self.history.parted_by(self.history.line_of(one)?, self.history.line_of(other)?)
    }

    fn add(&mut self, reader: Option<Epoch>, extents: u64) {
        if let Some(reader) = reader {
            *self.extents.entry(reader).or_default() += extents;
        }
    }

    /// Layers of which a note hides all.
    fn add_hidden(&mut self, state: &State, map: MapId, epoch: Epoch, blocks: &Range<u64>) {
        let Some(line) = self.history.line_of(epoch) else { return };
        let is_hidden = |(key, layer): &(ExtentKey, Layer)| {
            let hidden = bits_within(blocks, key.index);
            key.epoch < epoch && line.sees(key.epoch) && layer.present != 0 && layer.present & !hidden == 0
        };
        let below: Vec<(ExtentKey, Layer)> =
            state.map.layers_of_blocks(map, blocks.clone()).filter(is_hidden).collect();
        for (key, _) in below {
            // Of that it's known already.
            let is_doubled = state.map.layers(map, key.index).any(|layer| line.owns(layer.epoch));
            if !is_doubled {
                self.add(self.parted_by(key.epoch, epoch), 1);
            }
        }
    }
}
