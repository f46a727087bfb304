//! Checksums of blocks, bound to the identity of the block.
//!
//! The CRC of the data is computed once, where the data enters. Binding folds the block's identity into it without
//! touching the data again, so a block that was written to, or read from, the wrong place doesn't match there.

use tepal_model::{BLOCK, MapId};

/// CRC-32C (RFC 3720, appendix B.4) of some bytes.
pub fn crc(data: &[u8]) -> u32 {
    crc32c::crc32c(data)
}

/// CRC-32C of the bytes that `crc` covers followed by `data`.
pub fn crc_append(crc: u32, data: &[u8]) -> u32 {
    crc32c::crc32c_append(crc, data)
}

/// The CRC of each block of `data`, whose length is a whole number of blocks.
pub fn block_crcs(data: &[u8]) -> impl Iterator<Item = u32> {
    debug_assert_eq!(data.len() as u64 % BLOCK, 0);
    data.chunks_exact(BLOCK as usize).map(crc)
}

/// Which block this is: nothing else on any drive has the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The global map whose data this is.
    pub map: MapId,
    /// Block number within what this drive holds of the map.
    pub block: u64,
    /// The volume's epoch when it was written.
    pub epoch: u32,
}

/// The checksum as it's stored: the data's CRC bound to the block's identity. Binding twice gives the CRC back.
pub fn bind(crc: u32, identity: Identity) -> u32 {
    let place = mix(identity.block ^ mix((u64::from(identity.map.0) << 32) | u64::from(identity.epoch)));
    crc ^ (place ^ (place >> 32)) as u32
}

/// A bijection of 64 bits in which every bit of the input sways every bit of the output (Steele, Lea and Flood 2014, the
/// finaliser of SplitMix64).
fn mix(mut bits: u64) -> u64 {
    bits = bits.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: Identity = Identity { map: MapId(7), block: 1234, epoch: 3 };

    #[test]
    fn crc_is_castagnolis() {
        assert_eq!(crc(b"123456789"), 0xe306_9283, "the check value of RFC 3720");
        assert_eq!(crc_append(crc(b"12345"), b"6789"), crc(b"123456789"));
    }

    #[test]
    fn binding_twice_gives_the_crc_back() {
        assert_eq!(bind(bind(0xdead_beef, HERE), HERE), 0xdead_beef);
    }

    #[test]
    fn a_block_does_not_match_at_any_other_place() {
        let data_crc = crc(&[5; 4096]);
        let stored = bind(data_crc, HERE);
        for other in [
            Identity { map: MapId(8), ..HERE },
            Identity { epoch: 4, ..HERE },
            Identity { block: 1235, ..HERE },
            Identity { block: 1234 + (1 << 32), ..HERE },
        ] {
            assert_ne!(bind(data_crc, other), stored, "{other:?}");
        }
    }

    #[test]
    fn neighbours_rarely_collide() {
        let bound = |block| bind(0, Identity { block, ..HERE });
        let mut seen: Vec<u32> = (0..100_000).map(bound).collect();
        seen.sort_unstable();
        seen.dedup();
        assert!(seen.len() > 99_990, "{}", seen.len());
    }
}
