//! Blocks that were cleared in one epoch while older ones keep what they hold: who sees the epoch sees nothing older there.
//!
//! A layer says which of its blocks hold something, and not that a block holds nothing where an older layer holds something. That
//! is noted here, as ranges, and takes no slot. What is in a layer of the note's epoch, or of a later one, was written after it,
//! and is seen. The notes are nowhere but in the log, and put there afresh by each checkpoint.

use crate::extent::{BLOCKS, bits_within};
use crate::log::Change;
use std::collections::BTreeMap;
use std::ops::Range;
use tepal_model::{Epoch, Lineage, MapId};

/// What part of the log all ranges may take.
const RANGES_PART: u64 = 64;
/// One in the log, in bytes.
const RANGE_BYTES: u64 = 25;

#[derive(Debug, Default)]
pub struct Hidden {
    most_ranges: usize,
    /// In all notes.
    ranges: usize,
    notes: BTreeMap<(MapId, Epoch), Ranges>,
}

/// First block of each range and the first one after it; with gaps between.
type Ranges = BTreeMap<u64, u64>;

impl Hidden {
    pub fn new(log_length: u64) -> Self {
        Hidden { most_ranges: (log_length / RANGES_PART / RANGE_BYTES) as usize, ..Hidden::default() }
    }

    /// Who sees this epoch sees nothing of these blocks that is of an earlier one.
    pub fn hide(&mut self, map: MapId, epoch: Epoch, first: u64, count: u64) {
        let (mut first, mut end) = (first, first.saturating_add(count));
        if first == end {
            return;
        }
        let ranges = self.notes.entry((map, epoch)).or_default();
        let touching: Vec<u64> = touching(ranges, first..end).map(|range| range.start).collect();
        for start in touching {
            let range_end = ranges.remove(&start).unwrap_or(end);
            (first, end) = (first.min(start), end.max(range_end));
            self.ranges -= 1;
        }
        ranges.insert(first, end);
        self.ranges += 1;
    }

    /// What was said of these blocks in these epochs isn't so any more.
    pub fn unhide(&mut self, map: MapId, epochs: (Epoch, Epoch), first: u64, count: u64) {
        let (end, mut emptied) = (first.saturating_add(count), Vec::new());
        if first == end {
            return;
        }
        for (&key, ranges) in self.notes.range_mut((map, epochs.0)..=(map, epochs.1.max(epochs.0))) {
            let touched: Vec<Range<u64>> = touching(ranges, first..end).collect();
            for range in touched {
                ranges.remove(&range.start);
                let kept = [range.start..range.end.min(first), range.start.max(end)..range.end];
                let kept = kept.iter().filter(|range| !range.is_empty());
                self.ranges = self.ranges - 1 + kept.clone().count();
                ranges.extend(kept.map(|range| (range.start, range.end)));
            }
            if ranges.is_empty() {
                emptied.push(key);
            }
        }
        emptied.iter().for_each(|key| drop(self.notes.remove(key)));
    }

    /// Nothing that was noted before counts.
    pub fn clear(&mut self) {
        *self = Hidden { most_ranges: self.most_ranges, ..Hidden::default() };
    }

    /// Which blocks of an extent were hidden after this epoch, as this lineage sees it.
    pub fn bits(&self, map: MapId, index: u64, after: Epoch, lineage: &Lineage) -> u16 {
        let first = index * u64::from(BLOCKS);
        let extent = first..first + u64::from(BLOCKS);
        let later = self.notes_after(map, after).filter(|(epoch, _)| lineage.sees(*epoch));
        let ranges = later.flat_map(|(_, ranges)| touching(ranges, extent.clone()));
        ranges.fold(0, |bits, range| bits | bits_within(&range, index))
    }

    fn notes_after(&self, map: MapId, after: Epoch) -> impl Iterator<Item = (Epoch, &Ranges)> {
        let first = after.checked_add(1).map(|first| (map, first));
        let later = first.into_iter().flat_map(move |first| self.notes.range(first..=(map, Epoch::MAX)));
        later.map(|(&(_, epoch), ranges)| (epoch, ranges))
    }

    /// The epochs in which any of these blocks were hidden, ascending.
    pub fn epochs_within(&self, map: MapId, blocks: Range<u64>) -> impl Iterator<Item = Epoch> {
        let notes = self.notes.range((map, 0)..=(map, Epoch::MAX));
        let meets = move |range: Range<u64>| range.start < blocks.end && blocks.start < range.end;
        notes.filter(move |(_, ranges)| touching(ranges, blocks.clone()).any(&meets)).map(|(&(_, epoch), _)| epoch)
    }

    /// The ranges of a map, each with its epoch.
    pub fn of(&self, map: MapId) -> impl Iterator<Item = (Epoch, Range<u64>)> {
        let notes = self.notes.range((map, 0)..=(map, Epoch::MAX));
        notes.flat_map(|(&(_, epoch), ranges)| ranges.iter().map(move |(&start, &end)| (epoch, start..end)))
    }

    /// Whether there's room in the log for these blocks: beside a range that they meet they take none.
    pub fn has_room(&self, map: MapId, epoch: Epoch, first: u64, count: u64) -> bool {
        let blocks = first..first.saturating_add(count);
        let meets_one =
            || self.notes.get(&(map, epoch)).is_some_and(|ranges| touching(ranges, blocks).next().is_some());
        self.ranges < self.most_ranges || meets_one()
    }

    pub fn is_empty(&self) -> bool {
        self.ranges == 0
    }

    /// What notes all of them again.
    pub fn changes(&self) -> impl Iterator<Item = Change> {
        self.notes.iter().flat_map(|(&(map, epoch), ranges)| {
            ranges.iter().map(move |(&first, &end)| Change::Hid { map, epoch, first, count: end - first })
        })
    }

    /// What all of them take in the log.
    pub fn most_bytes(&self) -> u64 {
        self.ranges as u64 * RANGE_BYTES
    }
}

/// The ranges that meet these blocks, or end or begin where they begin or end.
fn touching(ranges: &Ranges, blocks: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let before = ranges.range(..blocks.start).next_back().filter(|&(_, &end)| end >= blocks.start);
    let within = ranges.range(blocks.start..=blocks.end.max(blocks.start));
    before.into_iter().chain(within).map(|(&start, &end)| start..end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    const MAP: MapId = MapId(1);

    fn again(hidden: &Hidden) -> Hidden {
        let mut again = Hidden { most_ranges: hidden.most_ranges, ..Hidden::default() };
        for change in hidden.changes() {
            let Change::Hid { map, epoch, first, count } = change else { panic!("{change:?}") };
            again.hide(map, epoch, first, count);
        }
        again
    }

    #[test]
    fn blocks_beside_a_range_join_it_and_need_no_room() {
        let mut hidden = Hidden { most_ranges: 1, ..Hidden::default() };
        assert!(hidden.has_room(MAP, 5, 10, 10));
        hidden.hide(MAP, 5, 10, 10);
        assert!(hidden.has_room(MAP, 5, 20, 4) && hidden.has_room(MAP, 5, 6, 4));
        assert!(!hidden.has_room(MAP, 5, 21, 4) && !hidden.has_room(MAP, 4, 20, 4));
        hidden.hide(MAP, 5, 20, 4);
        hidden.hide(MAP, 5, 6, 4);
        assert_eq!(hidden.of(MAP).collect::<Vec<_>>(), [(5, 6..24)]);
    }

    proptest! {
        #[test]
        fn they_are_a_set_of_blocks_for_each_epoch_and_come_back_from_what_is_logged(
            steps in prop::collection::vec((any::<bool>(), 0u32..3, 0u64..60, 0u64..20), 0..60),
        ) {
            let (mut hidden, mut expected) = (Hidden::new(64 << 20), BTreeSet::new());
            for (hides, epoch, first, count) in steps {
                if hides {
                    hidden.hide(MAP, epoch, first, count);
                    expected.extend((first..first + count).map(|block| (epoch, block)));
                } else {
                    hidden.unhide(MAP, (epoch, epoch + 1), first, count);
                    expected.retain(|&(of, block)| of < epoch || of > epoch + 1 || !(first..first + count).contains(&block));
                }
            }
            let lineage = Lineage::new([(0, 0), (2, 2)], 0).expect("spans that are apart");
            for hidden in [&hidden, &again(&hidden)] {
                let blocks = hidden.of(MAP).flat_map(|(epoch, range)| range.map(move |block| (epoch, block)));
                prop_assert_eq!(blocks.collect::<BTreeSet<_>>(), expected.clone());
                prop_assert_eq!(hidden.ranges, hidden.of(MAP).count());
                let length: usize = hidden.changes().map(|change| change.encoded_length()).sum();
                prop_assert_eq!(length as u64, hidden.most_bytes());
                for block in 0..96 {
                    let is_hidden = hidden.bits(MAP, block / 16, 0, &lineage) >> (block % 16) & 1 == 1;
                    prop_assert_eq!(is_hidden, expected.contains(&(2, block)));
                    let epochs: Vec<Epoch> = hidden.epochs_within(MAP, block..block + 1).collect();
                    prop_assert_eq!(epochs, (0..3).filter(|&epoch| expected.contains(&(epoch, block))).collect::<Vec<_>>());
                }
            }
        }
    }
}
