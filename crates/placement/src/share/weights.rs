//! From capacities to the rates at which failure domains are met, so that each holds its part of the copies.
//!
//! Only `+ - * /` of `f64` are used, in a fixed order: IEEE 754 rounds them in the same way everywhere.

/// An error of a part that is good enough.
const CLOSE: f64 = 0.001;
const ROUNDS: usize = 40;
/// Points at which a distribution is computed.
const STEPS: usize = 64;
/// A part that is so near to 1 is 1.
const NEARLY: f64 = 1.0 - 1e-6;
/// `(1 - x / 2^n)^(2^n)` stands for `exp(-x)`.
const SQUARINGS: u32 = 10;

/// The parts of `copies` copies that domains of these capacities hold: in proportion, but none more than 1, since two copies
/// aren't in one domain. What the largest have beyond that stays empty. Given largest first, at least `copies` of them; the
/// sum is `copies`.
pub fn parts(capacities: &[f64], copies: usize) -> Vec<f64> {
    let mut rest: f64 = capacities.iter().rev().sum();
    let mut full = 0;
    while full < copies && capacities[full] >= rest / (copies - full) as f64 * NEARLY {
        rest -= capacities[full];
        full += 1;
    }
    let left = (copies - full) as f64;
    // Subtracting above may have left a rounding error that matters where the rest is small.
    let rest: f64 = capacities[full..].iter().rev().sum();
    let part = |(place, capacity): (usize, &f64)| if place < full { 1.0 } else { capacity * left / rest };
    capacities.iter().enumerate().map(part).collect()
}

/// How many of the parts, which are sorted, are 1.
pub fn always(parts: &[f64]) -> usize {
    parts.iter().take_while(|part| **part >= 1.0).count()
}

/// How a time of the first meeting becomes a rank, of which the least are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rank {
    /// The time itself: the first of all is a domain in proportion to its rate.
    Time,
    /// The time stretched such that a domain's rank is uniform from 0 to 1 / rate.
    Uniform,
}

impl Rank {
    pub fn for_copies(copies: usize) -> Rank {
        if copies > 1 { Rank::Uniform } else { Rank::Time }
    }

    /// Grows with the time, and falls with the rate.
    pub fn of(self, rate: f64, time: f64) -> f64 {
        match self {
            Rank::Time => time,
            Rank::Uniform => {
                let mut unmet = (1.0 - rate * time / f64::from(1 << SQUARINGS)).max(0.0);
                (0..SQUARINGS).for_each(|_| unmet *= unmet);
                (1.0 - unmet) / rate
            }
        }
    }
}

/// The rates with which domains are among the `copies` least ranks as often as `parts` says; all parts are below 1.
///
/// For many domains a rate is nearly its part. Where a few are to hold much, it's found by trying: a domain's part is the
/// integral, over ranks up to 1 / rate, of its rate times the probability that fewer than `copies` others are below.
pub fn rates(parts: &[f64], copies: usize) -> Vec<f64> {
    let mut rates = parts.to_vec();
    if Rank::for_copies(copies) == Rank::Time {
        return rates;
    }
    for _ in 0..ROUNDS {
        let reached = included(&rates, copies);
        let mut worst: f64 = 0.0;
        for ((rate, part), reached) in rates.iter_mut().zip(parts).zip(&reached) {
            let factor = part / reached;
            worst = worst.max((factor - 1.0).abs());
            // A part near 1 hardly follows its rate.
            *rate *= if *part > 0.9 { factor * factor } else { factor };
        }
        if worst < CLOSE {
            break;
        }
    }
    rates
}

/// How often each domain is among the `copies` least ranks.
fn included(rates: &[f64], copies: usize) -> Vec<f64> {
    let width = highest_rank(rates, copies) / STEPS as f64;
    let mut included = vec![0.0; rates.len()];
    let mut ahead = vec![Few::NONE; rates.len()];
    for step in 0..STEPS {
        let rank = width * (step as f64 + 0.5);
        let mut few = Few::NONE;
        for (ahead, rate) in ahead.iter_mut().zip(rates) {
            *ahead = few;
            few.add((rate * rank).min(1.0), copies);
        }
        few = Few::NONE;
        for ((included, ahead), rate) in included.iter_mut().zip(&ahead).zip(rates).rev() {
            let within = ((1.0 / rate - width * step as f64) / width).clamp(0.0, 1.0);
            *included += rate * width * within * ahead.less_together(&few, copies);
            few.add((rate * rank).min(1.0), copies);
        }
    }
    included
}

/// A rank below which there are surely `copies` others.
fn highest_rank(rates: &[f64], copies: usize) -> f64 {
    let is_surely = |rank: f64| {
        let mut few = Few::NONE;
        rates.iter().for_each(|rate| few.add((rate * rank).min(1.0), copies));
        few.less_together(&Few::NONE, copies) < 1e-4
    };
    let mut high = 1.0;
    while !is_surely(high) {
        high *= 1.25;
    }
    high
}

/// The probabilities that none, one, two and so on of some domains are below a rank.
#[derive(Clone, Copy)]
struct Few([f64; MOST]);

const MOST: usize = tepal_model::layout::MAX_FRAGMENTS as usize;

impl Few {
    const NONE: Few = {
        let mut none = [0.0; MOST];
        none[0] = 1.0;
        Few(none)
    };

    /// Adds a domain that is below with this probability.
    fn add(&mut self, probability: f64, copies: usize) {
        for count in (1..copies).rev() {
            self.0[count] += probability * (self.0[count - 1] - self.0[count]);
        }
        self.0[0] *= 1.0 - probability;
    }

    /// The probability that of these and others together fewer than `copies` are below.
    fn less_together(&self, other: &Few, copies: usize) -> f64 {
        let (mut sum, mut most) = (0.0, 0.0);
        for count in 0..copies {
            most += other.0[count];
            sum += self.0[copies - 1 - count] * most;
        }
        sum
    }
}
