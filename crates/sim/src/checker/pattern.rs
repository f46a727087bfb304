//! Bytes that name the write they come from. Each write fills what it covers with a pattern of its id and of the place, so
//! that any piece of it, read anywhere, tells which write that was, or that it was none.

use crate::random::mix;
use std::ops::Range;

/// Numbers the operations of a run, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OpId(pub u32);

/// What a byte holds: the pattern of a write, or zero, or whatever it may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Value {
    Zero,
    Written(OpId),
    Anything,
}

const WORD: u64 = 8;

fn word(seed: u64, op: OpId, index: u64) -> u64 {
    // Never zero throughout, and different in every word of every write.
    mix(seed ^ (u64::from(op.0) << 32)).wrapping_add(index.wrapping_mul(0x9e37_79b9_7f4a_7c15)) | 1
}

/// Calls `piece` with each of the words that make up `length` bytes from `offset`, cut at the ends, until it says stop.
fn words(seed: u64, op: OpId, offset: u64, length: usize, mut piece: impl FnMut(Range<usize>, &[u8]) -> bool) -> bool {
    let mut at = 0;
    while at < length {
        let here = offset + at as u64;
        let skip = (here % WORD) as usize;
        let take = (WORD as usize - skip).min(length - at);
        let bytes = word(seed, op, here / WORD).to_le_bytes();
        if !piece(at..at + take, &bytes[skip..skip + take]) {
            return false;
        }
        at += take;
    }
    true
}

/// The bytes of a write to `offset`.
pub fn fill(seed: u64, op: OpId, offset: u64, data: &mut [u8]) {
    if offset.is_multiple_of(WORD) {
        let base = mix(seed ^ (u64::from(op.0) << 32));
        let mut step = (offset / WORD).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut chunks = data.chunks_exact_mut(WORD as usize);
        for chunk in &mut chunks {
            chunk.copy_from_slice(&(base.wrapping_add(step) | 1).to_le_bytes());
            step = step.wrapping_add(0x9e37_79b9_7f4a_7c15);
        }
        let rest = chunks.into_remainder();
        let last = (base.wrapping_add(step) | 1).to_le_bytes();
        rest.copy_from_slice(&last[..rest.len()]);
        return;
    }
    let length = data.len();
    words(seed, op, offset, length, |range, bytes| {
        data[range].copy_from_slice(bytes);
        true
    });
}

/// Whether `data`, read from `offset`, is all of this value.
pub fn matches(seed: u64, value: Value, offset: u64, data: &[u8]) -> bool {
    match value {
        Value::Zero => data.iter().all(|&byte| byte == 0),
        Value::Written(op) => words(seed, op, offset, data.len(), |range, bytes| &data[range] == bytes),
        Value::Anything => true,
    }
}

/// How many bytes from the start of `data` are of this value.
pub fn matching_prefix(seed: u64, value: Value, offset: u64, data: &[u8]) -> usize {
    let whole = |length: usize| matches(seed, value, offset, &data[..length]);
    (1..=data.len()).take_while(|&length| whole(length)).last().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_piece_of_a_write_matches_it_and_no_other_write_or_place() {
        let mut data = vec![0; 10_000];
        fill(9, OpId(3), 1_001, &mut data);
        for (from, to) in [(0, 10_000), (0, 8), (7, 4_000), (1_234, 1_250), (9_990, 10_000)] {
            let piece = &data[from..to];
            let offset = 1_001 + from as u64;
            assert!(matches(9, Value::Written(OpId(3)), offset, piece));
            assert!(!matches(9, Value::Written(OpId(4)), offset, piece));
            assert!(!matches(9, Value::Written(OpId(3)), offset + 8, piece));
            assert!(!matches(8, Value::Written(OpId(3)), offset, piece));
            assert!(!matches(9, Value::Zero, offset, piece));
        }
        let mut aligned = vec![0; 4_096];
        fill(9, OpId(3), 4_096, &mut aligned);
        assert_eq!(
            aligned[..],
            data[4_096 - 1_001..][..4_096],
            "the bytes of a place don't depend on where a write starts"
        );
    }

    #[test]
    fn a_prefix_ends_at_the_first_foreign_byte() {
        let mut data = vec![0; 100];
        fill(9, OpId(3), 5, &mut data);
        data[60..].fill(0);
        assert!((60..64).contains(&matching_prefix(9, Value::Written(OpId(3)), 5, &data)));
        assert_eq!(matching_prefix(9, Value::Zero, 65, &data[60..]), 40);
    }
}
