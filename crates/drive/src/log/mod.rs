//! The drive's log: every change goes here first, many to a batch, and is applied only when its batch is written.
//!
//! The log is a ring of blocks. A batch is a header block with the packed changes, more blocks of changes if they don't
//! fit, then the payload of small writes, block by block. Invariants:
//! 1. One batch is under way at a time, so a whole batch after a broken one means that the broken one was whole once.
//! 2. A batch names the CRC of the one before it: what is left over from an earlier lap can't be mistaken for its
//!    continuation. What is left behind the log's end is erased before anything else is written: the same batch may be
//!    made again, or one that doesn't fit where the end was.
//! 3. A batch names the newest batch known to be on stable media when it was made (`durable`). What a batch up to there
//!    says is owed to somebody; a broken one is damage. After it, a broken batch is a torn end, and ends the log.

pub mod batch;
pub mod change;
pub mod header;
pub(crate) mod pace;
pub(crate) mod pending;
pub mod replay;

pub use batch::{Batch, BatchHeader};
pub use change::{Change, Mark, MarkKind};

use tepal_model::BLOCK;

/// Where the next batch goes, and what it must follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// Bytes from the start of the ring.
    pub offset: u64,
    /// The number of the batch that goes there.
    pub sequence: u64,
    /// CRC of the batch before.
    pub previous: u32,
}

/// The free and used parts of the ring.
#[derive(Clone, Debug)]
pub struct Ring {
    /// In bytes, a multiple of [`BLOCK`].
    pub length: u64,
    /// Where the next batch goes, if it fits there.
    pub head: Position,
    /// Where replay would start.
    pub tail: Position,
}

/// What part of the ring ordinary batches leave free at least, so that a checkpoint can write what frees the ring.
pub const RESERVE_PART: u64 = 8;

impl Ring {
    /// Bytes in use. Head and tail meet only when the log is empty.
    pub fn used(&self) -> u64 {
        if self.head.sequence == self.tail.sequence {
            return 0;
        }
        match self.head.offset.checked_sub(self.tail.offset) {
            Some(used) if used > 0 => used,
            _ => self.length + self.head.offset - self.tail.offset,
        }
    }

    /// Where a batch of `bytes` would go: at the head, or at the ring's start if it doesn't fit before the end.
    /// `None` if that would leave less than `reserve` bytes before the tail.
    pub fn place(&self, bytes: u64, reserve: u64) -> Option<u64> {
        let wraps = self.head.offset + bytes > self.length;
        let skipped = if wraps { self.length - self.head.offset } else { 0 };
        // One block always stays free, so that a full ring isn't taken for an empty one.
        let needed = self.used() + skipped + bytes + BLOCK + reserve;
        (needed <= self.length).then_some(if wraps { 0 } else { self.head.offset })
    }

    /// Notes that a batch of `bytes` bytes with this CRC goes to `offset`, which [`Ring::place`] gave. The answer is
    /// where it is.
    pub fn advance(&mut self, offset: u64, bytes: u64, crc: u32) -> Position {
        let placed = Position { offset, ..self.head };
        self.head = Position { offset: offset + bytes, sequence: self.head.sequence + 1, previous: crc };
        placed
    }
}

/// The largest batch of more than one operation in a log of that length, so that one always fits when the ring is empty.
pub fn largest_batch(length: u64) -> u64 {
    (length / RESERVE_PART).min(2 << 20) / BLOCK * BLOCK
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring(length: u64) -> Ring {
        let start = Position { offset: 0, sequence: 1, previous: 0 };
        Ring { length: length * BLOCK, head: start, tail: start }
    }

    #[test]
    fn the_ring_never_runs_into_its_tail() {
        let mut ring = ring(16);
        let mut placed = std::collections::VecDeque::new();
        for step in 0..1000u64 {
            let bytes = (1 + step % 5) * BLOCK;
            while ring.place(bytes, 2 * BLOCK).is_none() {
                placed.pop_front().expect("an empty ring takes any batch");
                ring.tail = placed.front().map_or(ring.head, |&(position, _)| position);
            }
            let offset = ring.place(bytes, 2 * BLOCK).expect("it fits now");
            assert!(offset + bytes <= ring.length);
            for &(other, length) in &placed {
                let other: Position = other;
                assert!(offset + bytes <= other.offset || other.offset + length <= offset, "step {step}");
            }
            let position = ring.advance(offset, bytes, step as u32);
            placed.push_back((position, bytes));
        }
    }

    #[test]
    fn the_reserve_is_for_checkpoints() {
        let mut ring = ring(16);
        while let Some(offset) = ring.place(BLOCK, 2 * BLOCK) {
            ring.advance(offset, BLOCK, 0);
        }
        assert!(ring.place(BLOCK, 0).is_some());
    }
}
