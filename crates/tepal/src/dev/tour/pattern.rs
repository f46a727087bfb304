//! What the tour writes: blocks that say which block they are and which write of it, so that every byte of one that is lost,
//! stale, misplaced or mixed is noticed.

use bytes::Bytes;
use tepal_model::BLOCK;

const WORDS: usize = BLOCK as usize / 8;
const MAGIC: u64 = u64::from_le_bytes(*b"TOURtour");

/// One write of one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Of one run of the tour.
    pub seed: u64,
    pub block: u64,
    /// Counts the writes of this block in this run, from 1.
    pub version: u64,
}

/// What a block on the volume turns out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    Zeros,
    Written(Stamp),
    /// Not what a tour writes, or not all of one piece.
    Strange,
}

/// The words after the stamp: a sequence that differs for every stamp (SplitMix64).
fn filling(stamp: Stamp) -> impl Iterator<Item = u64> {
    let mut state = stamp.seed ^ stamp.block.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ stamp.version.rotate_left(40);
    std::iter::repeat_with(move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed ^ mixed >> 27
    })
}

fn words(stamp: Stamp) -> impl Iterator<Item = u64> {
    [MAGIC, stamp.seed, stamp.block, stamp.version].into_iter().chain(filling(stamp)).take(WORDS)
}

/// The bytes of consecutive blocks.
pub fn blocks(stamps: impl Iterator<Item = Stamp>) -> Bytes {
    let mut bytes = Vec::new();
    for stamp in stamps {
        bytes.reserve(BLOCK as usize);
        words(stamp).for_each(|word| bytes.extend_from_slice(&word.to_le_bytes()));
    }
    bytes.into()
}

/// What the bytes of one block are.
pub fn read(bytes: &[u8]) -> Found {
    let word = |index: usize| {
        let bytes = bytes.get(index * 8..index * 8 + 8).and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(0, u64::from_le_bytes)
    };
    if bytes.iter().all(|&byte| byte == 0) {
        return Found::Zeros;
    }
    let stamp = Stamp { seed: word(1), block: word(2), version: word(3) };
    let right = bytes.len() == BLOCK as usize && words(stamp).zip(0..).all(|(wanted, index)| word(index) == wanted);
    if right { Found::Written(stamp) } else { Found::Strange }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAMP: Stamp = Stamp { seed: 7, block: 3, version: 2 };

    #[test]
    fn blocks_read_back_as_what_they_are() {
        let bytes = blocks([STAMP, Stamp { block: 4, ..STAMP }].into_iter());
        assert_eq!(read(&bytes[..4096]), Found::Written(STAMP));
        assert_eq!(read(&bytes[4096..]), Found::Written(Stamp { block: 4, ..STAMP }));
        assert_eq!(read(&[0; 4096]), Found::Zeros);
    }

    #[test]
    fn a_wrong_byte_anywhere_and_a_mix_of_two_writes_are_strange() {
        let bytes = blocks([STAMP].into_iter()).to_vec();
        for at in 0..bytes.len() {
            let mut wrong = bytes.clone();
            wrong[at] ^= 1;
            assert_eq!(read(&wrong), Found::Strange, "byte {at}");
        }
        let other = blocks([Stamp { version: 3, ..STAMP }].into_iter());
        let mixed = [&bytes[..2048], &other[2048..]].concat();
        assert_eq!(read(&mixed), Found::Strange);
        assert_eq!(read(&bytes[..512]), Found::Strange);
    }
}
