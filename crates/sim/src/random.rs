//! One stream of pseudo-random numbers from one seed (SplitMix64: Steele, Lea and Flood 2014). Everything that a simulated
//! run decides comes from such a stream, so the seed alone repeats the run.

use std::ops::Range;

/// Scatters the bits of `value` (the finalizer of SplitMix64): a bijection on 64 bits.
pub const fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[derive(Clone, Debug)]
pub struct Stream {
    state: u64,
}

impl Stream {
    pub fn new(seed: u64) -> Self {
        Stream { state: mix(seed) }
    }

    pub fn draw(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.state)
    }

    /// A stream of its own, so that what one part draws doesn't shift what another part draws.
    pub fn fork(&mut self) -> Stream {
        Stream::new(self.draw())
    }

    /// Below `bound`, which is not 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "a draw below zero");
        ((u128::from(self.draw()) * u128::from(bound)) >> 64) as u64
    }

    pub fn between(&mut self, range: Range<u64>) -> u64 {
        range.start + self.below(range.end - range.start)
    }

    pub fn index(&mut self, length: usize) -> usize {
        self.below(length as u64) as usize
    }

    pub fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.index(choices.len())]
    }

    /// True in `share` of 1,000,000 draws.
    pub fn chance(&mut self, per_million: u32) -> bool {
        per_million > 0 && self.below(1_000_000) < u64::from(per_million)
    }

    /// True in one of `count` draws.
    pub fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }

    /// The index of one of the weights, as often as its share of their sum.
    pub fn weighted(&mut self, weights: &[u32]) -> usize {
        let mut left = self.below(weights.iter().map(|&w| u64::from(w)).sum());
        for (index, &weight) in weights.iter().enumerate() {
            match left.checked_sub(u64::from(weight)) {
                Some(rest) => left = rest,
                None => return index,
            }
        }
        unreachable!("the draw is below the sum of the weights")
    }

    /// From 1 to `most`, small numbers far more often than large ones: each power of two is as likely as the next.
    pub fn skewed(&mut self, most: u64) -> u64 {
        let bits = self.below(u64::from(64 - most.leading_zeros())) + 1;
        (self.draw() >> (64 - bits)).clamp(1, most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_numbers_and_another_seed_others() {
        let draw = |seed| (0..8).scan(Stream::new(seed), |s, _| Some(s.draw())).collect::<Vec<_>>();
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }

    #[test]
    fn draws_stay_in_their_range_and_reach_all_of_it() {
        let mut stream = Stream::new(7);
        let mut seen = [0; 5];
        for _ in 0..1_000 {
            seen[stream.index(5)] += 1;
            assert!((3..9).contains(&stream.between(3..9)));
            assert!((1..=100).contains(&stream.skewed(100)));
        }
        assert!(seen.iter().all(|&count| count > 100), "{seen:?}");
        assert_eq!(stream.skewed(1), 1);
    }

    #[test]
    fn a_weight_of_zero_is_never_drawn() {
        let mut stream = Stream::new(7);
        for _ in 0..1_000 {
            assert!(matches!(stream.weighted(&[0, 3, 0, 1]), 1 | 3));
            assert!(!stream.chance(0));
        }
    }
}
