//! What the log holds and the slots don't yet: data of small writes, and checksums that aren't in their table.
//!
//! Reads look here first. Destaging moves it to its place; a block that was written again meanwhile stays.

use crate::extent::{BLOCKS, BlockSpan, ExtentKey};
use bytes::Bytes;
use smallvec::SmallVec;
use std::collections::BTreeMap;
use tepal_model::BLOCK;

#[derive(Clone, Debug)]
pub struct PendingBlock {
    /// Bound checksum.
    pub sum: u32,
    /// The batch that brought it.
    pub sequence: u64,
    /// `None` if the data is in the slot already.
    pub data: Option<Bytes>,
}

#[derive(Clone, Debug)]
pub struct PendingSlot {
    pub key: ExtentKey,
    /// A bit for each block that is here.
    bits: u16,
    /// In the order of their bits: most slots have one or two.
    blocks: SmallVec<[PendingBlock; 1]>,
}

impl PendingSlot {
    fn place(&self, block: usize) -> Result<usize, usize> {
        let before = (self.bits & ((1 << block) - 1)).count_ones() as usize;
        if self.bits >> block & 1 == 1 { Ok(before) } else { Err(before) }
    }

    pub fn block(&self, block: usize) -> Option<&PendingBlock> {
        self.place(block).ok().map(|at| &self.blocks[at])
    }

    /// The blocks that are here, each with its number, in order.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &PendingBlock)> {
        (0..BLOCKS as usize).filter(|&block| self.bits >> block & 1 == 1).zip(&self.blocks)
    }

    fn put(&mut self, block: usize, new: PendingBlock) -> Option<PendingBlock> {
        match self.place(block) {
            Ok(at) => Some(std::mem::replace(&mut self.blocks[at], new)),
            Err(at) => {
                self.blocks.insert(at, new);
                self.bits |= 1 << block;
                None
            }
        }
    }
}

#[derive(Debug, Default)]
pub struct Pending {
    slots: BTreeMap<u32, PendingSlot>,
    bytes: u64,
}

impl Pending {
    /// Bytes of data that wait.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn slots(&self) -> usize {
        self.slots.len()
    }

    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    pub fn block(&self, slot: u32, block: usize) -> Option<&PendingBlock> {
        self.slots.get(&slot)?.block(block)
    }

    pub fn slot(&self, slot: u32) -> Option<&PendingSlot> {
        self.slots.get(&slot)
    }

    /// `data` is the span's payload if it's in the log only.
    pub fn add(
        &mut self,
        slot: u32,
        key: ExtentKey,
        span: BlockSpan,
        sums: &[u32],
        sequence: u64,
        data: Option<&Bytes>,
    ) {
        let empty = || PendingSlot { key, bits: 0, blocks: SmallVec::new() };
        let pending = self.slots.entry(slot).or_insert_with(empty);
        pending.key = key;
        for (nth, block) in span.range().enumerate() {
            let at = nth * BLOCK as usize;
            let data = data.map(|data| data.slice(at..at + BLOCK as usize));
            let arriving = data.is_some();
            let old = pending.put(block, PendingBlock { sum: sums[nth], sequence, data });
            self.bytes += if arriving { BLOCK } else { 0 };
            self.bytes -= if old.is_some_and(|old| old.data.is_some()) { BLOCK } else { 0 };
        }
    }

    /// Forgets the blocks of `bits`.
    pub fn forget(&mut self, slot: u32, bits: u16) {
        self.retain(slot, |block, _| bits >> block & 1 == 0);
    }

    /// Forgets the blocks that `keep` refuses.
    pub fn retain(&mut self, slot: u32, keep: impl Fn(usize, &PendingBlock) -> bool) {
        let Some(pending) = self.slots.get_mut(&slot) else { return };
        let gone: SmallVec<[usize; BLOCKS as usize]> =
            pending.iter().filter(|&(number, block)| !keep(number, block)).map(|(number, _)| number).collect();
        for number in gone {
            if let Ok(at) = pending.place(number) {
                let old = pending.blocks.remove(at);
                pending.bits &= !(1 << number);
                self.bytes -= if old.data.is_some() { BLOCK } else { 0 };
            }
        }
        if pending.bits == 0 {
            self.slots.remove(&slot);
        }
    }

    /// Up to `most` slots from `from` on.
    pub fn from(&self, from: u32, most: usize) -> Vec<u32> {
        self.slots.range(from..).take(most).map(|(&slot, _)| slot).collect()
    }

    /// About how many slots there are from `from` on, as if they lay evenly.
    pub fn about_from(&self, from: u32) -> usize {
        let (Some((&first, _)), Some((&last, _))) = (self.slots.first_key_value(), self.slots.last_key_value()) else {
            return 0;
        };
        let (range, ahead) =
            (u64::from(last - first) + 1, (u64::from(last) + 1).saturating_sub(from.max(first).into()));
        (self.slots.len() as u64 * ahead / range) as usize
    }

    /// The oldest batch that is still needed.
    pub fn oldest(&self) -> Option<u64> {
        self.slots.values().flat_map(|slot| &slot.blocks).map(|block| block.sequence).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tepal_model::MapId;

    const KEY: ExtentKey = ExtentKey { map: MapId(1), index: 0, epoch: 0 };

    #[test]
    fn bytes_are_counted_exactly_through_overwrites() {
        let mut pending = Pending::default();
        let data = Bytes::from(vec![1; 3 * BLOCK as usize]);
        pending.add(4, KEY, BlockSpan { first: 2, count: 3 }, &[1, 2, 3], 10, Some(&data));
        assert_eq!(pending.bytes(), 3 * BLOCK);
        pending.add(4, KEY, BlockSpan { first: 3, count: 2 }, &[4, 5], 11, None);
        assert_eq!((pending.bytes(), pending.oldest()), (BLOCK, Some(10)));
        pending.forget(4, 1 << 2);
        assert_eq!((pending.bytes(), pending.oldest(), pending.slots()), (0, Some(11), 1));
        pending.retain(4, |_, block| block.sequence > 11);
        assert!(pending.is_empty());
    }
}
