//! A fixed order of chunks in which neighbours are far apart, for what goes through a volume while clients use it: what they
//! touch next is as likely to be done already as anything else.
//!
//! The order is a permutation, computed both ways in constant time from the number of chunks and a seed: four rounds of a Feistel network
//! over as many bits as hold the number, gone through again while it leads past the end (Black and Rogaway 2002, "cycle walking").

use crate::share::{mix, pair};

const ROUNDS: u64 = 4;

/// The order of so many chunks by one seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scatter {
    chunks: u64,
    seed: u64,
    /// Bits of one half of a number of the network.
    half: u32,
}

impl Scatter {
    /// `chunks` is at most 2^62: more than the largest volume has of the smallest extents.
    pub fn new(chunks: u64, seed: u64) -> Scatter {
        assert!(chunks <= 1 << 62, "no volume has so many chunks");
        let bits = u64::BITS - chunks.saturating_sub(1).leading_zeros();
        Scatter { chunks, seed, half: bits.div_ceil(2).max(1) }
    }

    /// How many chunks there are.
    pub fn chunks(&self) -> u64 {
        self.chunks
    }

    /// The place of a chunk, which is one of them, in the order.
    pub fn position(&self, chunk: u64) -> u64 {
        self.walk(chunk, Self::forth)
    }

    /// The chunk at a place in the order.
    pub fn chunk(&self, position: u64) -> u64 {
        self.walk(position, Self::back)
    }

    /// Goes on until it's back among the chunks. The network has fewer than four times as many numbers, so that is soon.
    fn walk(&self, from: u64, step: fn(&Self, u64) -> u64) -> u64 {
        assert!(from < self.chunks, "{from} is not one of {} chunks", self.chunks);
        let mut at = step(self, from);
        while at >= self.chunks {
            at = step(self, at);
        }
        at
    }

    fn forth(&self, number: u64) -> u64 {
        let (mut left, mut right) = self.halves(number);
        for round in 0..ROUNDS {
            (left, right) = (right, left ^ self.round(round, right));
        }
        left << self.half | right
    }

    fn back(&self, number: u64) -> u64 {
        let (mut left, mut right) = self.halves(number);
        for round in (0..ROUNDS).rev() {
            (left, right) = (right ^ self.round(round, left), left);
        }
        left << self.half | right
    }

    fn halves(&self, number: u64) -> (u64, u64) {
        (number >> self.half, number & self.mask())
    }

    fn round(&self, round: u64, half: u64) -> u64 {
        pair(mix(self.seed) ^ round, half) & self.mask()
    }

    fn mask(&self) -> u64 {
        (1 << self.half) - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Each chunk has one place, and each place one chunk.
    fn is_bijection(chunks: u64, seed: u64) -> bool {
        let scatter = Scatter::new(chunks, seed);
        let mut seen = vec![false; chunks as usize];
        (0..chunks).all(|chunk| {
            let position = scatter.position(chunk);
            !std::mem::replace(&mut seen[position as usize], true) && scatter.chunk(position) == chunk
        })
    }

    #[test]
    fn every_chunk_of_few_has_a_place_of_its_own() {
        assert!((0..300).all(|chunks| is_bijection(chunks, chunks % 7)));
    }

    #[test]
    fn the_order_stays_as_it_was_first_since_agreed_windows_are_kept_by_it() {
        let order = |chunks, seed| (0..8).map(|at| Scatter::new(chunks, seed).chunk(at)).collect::<Vec<_>>();
        assert_eq!(order(8, 1), [4, 2, 1, 3, 0, 7, 5, 6]);
        assert_eq!(order(1 << 20, 2), [242_917, 285_775, 439_216, 944_601, 152_282, 592_596, 234_211, 824_626]);
    }

    /// A client that writes from one end to the other, or in one place, meets a window as often as its part of all chunks.
    #[test]
    fn neighbours_land_apart_and_a_window_is_spread_over_the_whole_volume() {
        let chunks = 1 << 14;
        for seed in 0..8 {
            let scatter = Scatter::new(chunks, seed);
            let distance = |chunk| scatter.position(chunk).abs_diff(scatter.position(chunk + 1));
            let mean = (0..chunks - 1).map(distance).sum::<u64>() / (chunks - 1);
            assert!(
                mean > chunks / 4,
                "neighbours are {mean} of {chunks} apart, which would be {} by chance",
                chunks / 3
            );
            // A fiftieth of all, which is 327, by sixteenths of the volume: 20 each by chance.
            let mut parts = [0; 16];
            (0..chunks / 50).for_each(|at| parts[(scatter.chunk(at) * 16 / chunks) as usize] += 1);
            assert!(parts.iter().all(|&part| (4..50).contains(&part)), "{parts:?}");
        }
    }

    proptest! {
        #[test]
        fn every_chunk_of_thousands_has_a_place_of_its_own(chunks in 1u64..5000, seed: u64) {
            prop_assert!(is_bijection(chunks, seed));
        }

        #[test]
        fn chunks_of_the_largest_volumes_are_found_again(
            chunks in prop_oneof![Just(1u64 << 40), (1u64 << 40) - 9..(1 << 40) + 9, Just((1 << 41) + 1), Just(1 << 62)],
            chunk: u64,
            seed: u64,
        ) {
            let scatter = Scatter::new(chunks, seed);
            let chunk = chunk % chunks;
            let position = scatter.position(chunk);
            prop_assert!(position < chunks);
            prop_assert_eq!(scatter.chunk(position), chunk);
            prop_assert_eq!(scatter.position(scatter.chunk(chunk)), chunk);
        }
    }
}
