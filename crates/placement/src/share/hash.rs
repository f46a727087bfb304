//! Hashes written out, since every machine and every version must come to the same ones.

/// Between two states of SplitMix64.
pub const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// A bijection of 64 bits in which every bit of the input sways every bit of the output (Steele, Lea and Flood 2014, the
/// finaliser of SplitMix64).
pub fn mix(mut bits: u64) -> u64 {
    bits = bits.wrapping_add(STEP);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// A hash of two numbers in this order.
pub fn pair(one: u64, other: u64) -> u64 {
    mix(mix(one) ^ other)
}
