//! What is written: each block says which block it is and which write of it, and the rest of it follows from that. So a block
//! that is torn, in the wrong place, or of another time is noticed.

pub const BLOCK: usize = 4096;
const WORDS: usize = BLOCK / 8;

/// Which write a block's content is of. Version 0 is the content of a block that was never written: zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Of this use of the volume.
    pub seed: u64,
    pub block: u64,
    pub version: u64,
}

impl Stamp {
    pub fn fill(self, bytes: &mut [u8]) {
        for (index, word) in bytes.chunks_exact_mut(8).enumerate() {
            word.copy_from_slice(&self.word(index).to_le_bytes());
        }
    }

    fn word(self, index: usize) -> u64 {
        match index {
            0 => self.seed,
            1 => self.block,
            2 => self.version,
            _ if self.version == 0 => 0,
            _ => mixed(self.seed ^ mixed(self.block ^ mixed(self.version ^ index as u64))),
        }
    }

    /// The version of this block, or what is wrong with it.
    pub fn read(seed: u64, block: u64, bytes: &[u8]) -> Result<u64, String> {
        let word = |index: usize| u64::from_le_bytes(bytes[index * 8..][..8].try_into().expect("eight bytes"));
        if bytes.iter().all(|byte| *byte == 0) {
            return Ok(0);
        }
        let stamp = Stamp { seed: word(0), block: word(1), version: word(2) };
        if (stamp.seed, stamp.block) != (seed, block) {
            return Err(format!("block {block} holds {stamp:x?}"));
        }
        match (3..WORDS).find(|index| word(*index) != stamp.word(*index)) {
            Some(index) => {
                Err(format!("block {block} begins as version {}, and is wrong at {}", stamp.version, index * 8))
            }
            None => Ok(stamp.version),
        }
    }
}

/// SplitMix64.
pub fn mixed(seed: u64) -> u64 {
    let mut mixed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Bytes in which no two pieces are alike.
pub fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length.next_multiple_of(8)];
    for (index, word) in (0..).zip(bytes.chunks_exact_mut(8)) {
        word.copy_from_slice(&mixed(seed ^ mixed(index)).to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}
