//! Extents as a drive holds them: their layers, their blocks, and the checksums of these.

use smallvec::SmallVec;
use std::ops::Range;
use tepal_codec::checksum::{Identity, bind};
use tepal_model::{BLOCK, EXTENT, Epoch, MapId};

/// Blocks in one extent of the physical map.
pub const BLOCKS: u32 = (EXTENT / BLOCK) as u32;

/// One layer of an extent: which extent of which map, as this drive numbers them, and of which time. `index` counts the 64 KiB
/// extents of what the drive holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExtentKey {
    /// Whose data; never 0.
    pub map: MapId,
    /// Less than 2^48.
    pub index: u64,
    /// Which of the extent's layers: when in the map's history it was written.
    pub epoch: Epoch,
}

impl ExtentKey {
    /// Bits that an index has on the drive.
    pub const INDEX_BITS: u32 = 48;

    /// The number, within this drive's share of the map, of the extent's first block.
    pub fn first_block(self) -> u64 {
        self.index * u64::from(BLOCKS)
    }
}

/// Consecutive blocks within one extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockSpan {
    /// Within the extent, counted from 0.
    pub first: u8,
    /// At least 1. The last block is within the extent.
    pub count: u8,
}

impl BlockSpan {
    /// All blocks of an extent.
    pub const WHOLE: BlockSpan = BlockSpan { first: 0, count: BLOCKS as u8 };

    /// A bit for each block, the first block's the lowest.
    pub fn bits(self) -> u16 {
        (((1u32 << self.count) - 1) << self.first) as u16
    }

    /// The blocks that have these bits, as runs in order.
    pub fn runs_of(bits: u16) -> impl Iterator<Item = BlockSpan> {
        let mut left = u32::from(bits);
        std::iter::from_fn(move || {
            let first = left.trailing_zeros();
            (left != 0).then(|| {
                let count = (left >> first).trailing_ones();
                let span = BlockSpan { first: first as u8, count: count as u8 };
                left &= !u32::from(span.bits());
                span
            })
        })
    }

    /// The blocks' numbers within the extent.
    pub fn range(self) -> std::ops::Range<usize> {
        usize::from(self.first)..usize::from(self.first) + usize::from(self.count)
    }
}

/// Most writes are of one block, or of a few.
pub type Sums = SmallVec<[u32; 4]>;

/// Cuts one write into pieces that each lie in one extent.
pub(crate) fn extents_of(first_block: u64, count: u64) -> impl Iterator<Item = (u64, BlockSpan, u64)> {
    const BLOCKS: u64 = self::BLOCKS as u64;
    let end = first_block + count;
    let mut at = first_block;
    std::iter::from_fn(move || {
        (at < end).then(|| {
            let (index, first) = (at / BLOCKS, at % BLOCKS);
            let count = (BLOCKS - first).min(end - at);
            let piece = (index, BlockSpan { first: first as u8, count: count as u8 }, (at - first_block) * BLOCK);
            at += count;
            piece
        })
    })
}

/// A bit for each of these blocks that is within an extent.
pub(crate) fn bits_within(blocks: &Range<u64>, index: u64) -> u16 {
    const BLOCKS: u64 = self::BLOCKS as u64;
    let within = |block: u64| block.saturating_sub(index * BLOCKS).min(BLOCKS);
    ((1u32 << within(blocks.end)) - (1u32 << within(blocks.start.min(blocks.end)))) as u16
}

/// Of each block of the span, its checksum bound to its identity.
pub(crate) fn bound_sums(key: ExtentKey, span: BlockSpan, crcs: &[u32]) -> Sums {
    span.range().zip(crcs).map(|(block, &crc)| bind(crc, identity(key, block))).collect()
}

/// Of a block, by its number within the extent.
pub(crate) fn identity(key: ExtentKey, block: usize) -> Identity {
    Identity { map: key.map, block: key.first_block() + block as u64, epoch: key.epoch }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_is_cut_at_extents() {
        let pieces: Vec<_> = extents_of(14, 20).collect();
        let span = |first, count| BlockSpan { first, count };
        assert_eq!(pieces, [(0, span(14, 2), 0), (1, span(0, 16), 2 * BLOCK), (2, span(0, 2), 18 * BLOCK)]);
        assert_eq!(extents_of(5, 0).count(), 0);
        let bits = |index| bits_within(&(14..34), index);
        assert_eq!([0, 1, 2, 3].map(bits), [0b11 << 14, !0, 0b11, 0]);
    }
}
