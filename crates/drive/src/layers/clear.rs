//! Taking blocks out. In the layers that only one reader sees they are cleared; where an older layer still has them, which others
//! see too, a note hides them from this reader, or zeros do.

use crate::drive::Drive;
use crate::error::DriveError;
use crate::extent::{BLOCKS, BlockSpan, ExtentKey, bits_within, extents_of};
use crate::log::Change;
use crate::log::change::Epochs;
use crate::state::State;
use crate::state::operation::{Changes, Payload};
use crate::world::World;
use crate::write::{MARKED_TOGETHER, Write, notes_of};
use smallvec::smallvec;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use tepal_codec::checksum::block_crcs;
use tepal_model::{BLOCK, Buffer, Epoch, Lineage, MapId, Taking};

impl<W: World> Drive<W> {
    /// Takes blocks out: for this lineage they hold nothing, and read as zeros. Extents of which nothing is left give their
    /// space back. Stable when it returns, for the space may then be written in place.
    ///
    /// If the log has no room for another note of what is hidden, zeros are written instead; without space for these some blocks
    /// may be out and others not.
    pub async fn clear(
        &self,
        map: MapId,
        (first, count): (u64, u64),
        mut marks: Vec<Change>,
        taking: Taking,
        lineage: &Lineage,
    ) -> Result<(), DriveError> {
        let blocks = first..first + count;
        let notes = notes_of(&taking, map, blocks.clone());
        if marks.len() + notes.len() >= MARKED_TOGETHER {
            self.log_changes(std::mem::take(&mut marks), false).await?;
        }
        let done = {
            let mut state = self.shared.lock();
            let is_hidden = state.exposed(map, &blocks, lineage).next().is_some();
            let has_room = !is_hidden || state.hidden.has_room(map, lineage.newest(), first, count);
            has_room.then(|| {
                let hides = is_hidden.then_some(Change::Hid { map, epoch: lineage.newest(), first, count });
                let cleared = state.clears(map, &blocks, lineage);
                let changes: Changes = std::mem::take(&mut marks).into_iter().chain(cleared).chain(hides).collect();
                let changes = changes.into_iter().chain(notes.clone()).collect();
                self.submit_now(&mut state, changes, Payload::new(), true)
            })
        };
        match done {
            Some(done) => Ok(self.shared.outcome(done).await?),
            None => {
                self.log_changes(marks, false).await?;
                self.clear_with_zeros(map, blocks, notes, lineage).await
            }
        }
    }

    /// Has blocks be again what this lineage sees of layers that others see too, or nothing: what it alone sees of them goes, and so does
    /// what hides the others from it. That takes no room. Stable when it returns.
    pub async fn uncover(
        &self,
        map: MapId,
        (first, count): (u64, u64),
        taking: Taking,
        lineage: &Lineage,
    ) -> Result<(), DriveError> {
        let blocks = first..first + count;
        let done = {
            let mut state = self.shared.lock();
            let mut changes = state.clears(map, &blocks, lineage);
            changes.extend(owned(lineage).into_iter().map(|epochs| Change::Unhid { map, epochs, first, count }));
            changes.extend(notes_of(&taking, map, blocks));
            self.submit_now(&mut state, Changes::from_vec(changes), Payload::new(), true)
        };
        Ok(self.shared.outcome(done).await?)
    }

    /// Whether there's room now to take blocks out: for a note, or for zeros.
    pub fn may_clear(&self, map: MapId, (first, count): (u64, u64), lineage: &Lineage) -> bool {
        let state = self.shared.lock();
        if state.hidden.has_room(map, lineage.newest(), first, count) {
            return true;
        }
        let exposed: BTreeSet<u64> =
            state.exposed(map, &(first..first + count), lineage).map(|(index, _)| index).collect();
        exposed.len() <= state.available() as usize
    }

    /// A block that an older layer has goes from what it is to zeros at once: without its layer here it would be what it was long
    /// ago.
    async fn clear_with_zeros(
        &self,
        map: MapId,
        blocks: Range<u64>,
        notes: Vec<Change>,
        lineage: &Lineage,
    ) -> Result<(), DriveError> {
        let mut exposed: BTreeMap<u64, u16> = BTreeMap::new();
        for (index, bits) in self.shared.lock().exposed(map, &blocks, lineage) {
            *exposed.entry(index).or_default() |= bits;
        }
        let runs: Vec<Range<u64>> = exposed.into_iter().flat_map(|(index, bits)| runs_of(index, bits)).collect();
        for run in &runs {
            self.write_zeros(map, run, lineage).await?;
        }
        let starts = std::iter::once(blocks.start).chain(runs.iter().map(|run| run.end));
        let ends = runs.iter().map(|run| run.start).chain([blocks.end]);
        let rest: Vec<Range<u64>> = starts.zip(ends).map(|(start, end)| start..end).collect();
        for part in rest.chunks(MARKED_TOGETHER) {
            let changes = {
                let state = self.shared.lock();
                part.iter().flat_map(|run| state.clears(map, run, lineage)).collect()
            };
            self.log_changes(changes, false).await?;
            self.shared.world.give_way().await;
        }
        self.log_together(notes, true).await
    }

    async fn write_zeros(&self, map: MapId, run: &Range<u64>, lineage: &Lineage) -> Result<(), DriveError> {
        let zeros = Buffer::zeroed(((run.end - run.start) * BLOCK) as usize).freeze();
        let crcs: Vec<u32> = block_crcs(&zeros).collect();
        let (marks, taking) = (Vec::new(), Taking::Nothing);
        let (first, data, crcs) = (run.start, smallvec![zeros], crcs.into());
        self.write(Write { map, first, data, crcs, marks, durable: false, repair: false, taking, lineage }).await
    }

    /// Gives back everything that the drive holds of a map.
    pub async fn remove_map(&self, map: MapId) -> Result<(), DriveError> {
        let mut changes = all_of(map, 0..u64::MAX);
        changes.push(Change::UnmarkedMap { map });
        self.log_changes(changes, true).await
    }

    /// Gives back everything that the drive holds of a part of a map: of some blocks, in whole extents, and of the regions whose
    /// marks are about them.
    pub async fn remove_part(
        &self,
        map: MapId,
        blocks: Range<u64>,
        has: impl Fn(u64) -> bool,
    ) -> Result<(), DriveError> {
        let in_extent = u64::from(BLOCKS);
        let mut changes = all_of(map, blocks.start / in_extent..blocks.end.div_ceil(in_extent));
        let marks = self.marks().into_iter().filter(|mark| mark.map == map && has(mark.region));
        changes.extend(marks.map(Change::Unmarked));
        self.log_changes(changes, true).await
    }
}

/// Takes out all layers of these extents, what is hidden in them, and the requests that they have taken.
fn all_of(map: MapId, extents: Range<u64>) -> Vec<Change> {
    let (epochs, in_extent) = ((0, Epoch::MAX), u64::from(BLOCKS));
    let (first, count) = (extents.start.saturating_mul(in_extent), extents.end.saturating_mul(in_extent));
    let count = count - first;
    let cleared = Change::ClearedExtents {
        map,
        first: extents.start,
        count: extents.end - extents.start,
        epochs: smallvec![epochs],
    };
    vec![cleared, Change::Untook { map, first, count }, Change::Unhid { map, epochs, first, count }]
}

impl State {
    /// Which of these blocks this lineage would see of layers that others see too, if there were no others: extents, of some more
    /// than once, each with its blocks.
    fn exposed(&self, map: MapId, blocks: &Range<u64>, lineage: &Lineage) -> impl Iterator<Item = (u64, u16)> {
        let is_shared = move |epoch| lineage.sees(epoch) && !lineage.owns(epoch);
        // Without any such layer nothing is looked through: trims of all of a large volume are cheap.
        let range = if self.map.epochs_of(map).any(|(epoch, _)| is_shared(epoch)) { blocks.clone() } else { 0..0 };
        let layers = self.map.layers_of_blocks(map, range.clone());
        layers.filter(move |(key, _)| is_shared(key.epoch)).filter_map(move |(key, layer)| {
            let present = layer.present & bits_within(&range, key.index);
            let exposed = match present {
                0 => 0,
                _ => present & !self.hidden_after(map, key.index, key.epoch, lineage),
            };
            (exposed != 0).then_some((key.index, exposed))
        })
    }

    /// What takes these blocks out of all layers that only this lineage sees.
    fn clears(&self, map: MapId, blocks: &Range<u64>, lineage: &Lineage) -> Vec<Change> {
        let in_extent = u64::from(BLOCKS);
        let whole = blocks.start.div_ceil(in_extent)..blocks.end / in_extent;
        if whole.is_empty() {
            return self.clears_of_parts(map, blocks.clone(), lineage);
        }
        let mut changes = self.clears_of_parts(map, blocks.start..whole.start * in_extent, lineage);
        changes.extend(self.clears_of_parts(map, whole.end * in_extent..blocks.end, lineage));
        let (first, count) = (whole.start, whole.end - whole.start);
        changes.push(Change::ClearedExtents { map, first, count, epochs: owned(lineage) });
        changes
    }

    fn clears_of_parts(&self, map: MapId, blocks: Range<u64>, lineage: &Lineage) -> Vec<Change> {
        let of = |(index, span, _)| {
            let owned = self.map.layers(map, index).filter(|layer| lineage.owns(layer.epoch));
            owned.map(move |layer| Change::Cleared { key: ExtentKey { map, index, epoch: layer.epoch }, span })
        };
        extents_of(blocks.start, blocks.end.saturating_sub(blocks.start)).flat_map(of).collect()
    }
}

fn owned(lineage: &Lineage) -> Epochs {
    let owned = lineage.spans().iter().filter(|span| span.1 >= lineage.own());
    owned.map(|&(first, last)| (first.max(lineage.own()), last)).collect()
}

fn runs_of(index: u64, bits: u16) -> impl Iterator<Item = Range<u64>> {
    let first = index * u64::from(BLOCKS);
    let run = move |span: BlockSpan| first + u64::from(span.first)..first + u64::from(span.first + span.count);
    BlockSpan::runs_of(bits).map(run)
}
