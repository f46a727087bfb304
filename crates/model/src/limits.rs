//! How much may be asked for: requests and bytes a second. A token bucket holds each of them.

use serde::{Deserialize, Serialize};

/// The largest rates and bursts: far beyond what any drive does.
const MOST: u64 = 1 << 50;
/// What may come at once if nothing else was set: what a tenth of a second allows.
const BURST_PART: u64 = 10;

/// A steady rate, and how much may come at once after a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rate {
    /// How much a second, at least 1.
    pub per_second: u64,
    /// The size of the bucket; 0 stands for what a tenth of a second allows.
    #[serde(default)]
    pub burst: u64,
}

impl Rate {
    /// The size of the bucket, at least 1.
    pub fn bucket(&self) -> u64 {
        if self.burst > 0 { self.burst } else { self.per_second.div_ceil(BURST_PART) }
    }
}

/// How much may be asked for of a volume, or by an identity. What is `None` has no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iops: Option<Rate>,
    /// Bytes, of reads and writes together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bandwidth: Option<Rate>,
    /// Connections at a time; of identities.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connections: Option<u32>,
}

/// A limit that can't be held.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a limit is a number from 1 to {MOST}, and so is a burst: {what} is {value}")]
pub struct LimitsError {
    what: &'static str,
    value: u64,
}

impl Limits {
    /// Whether anything is limited.
    pub fn is_none(&self) -> bool {
        *self == Limits::default()
    }

    /// Whether all of them can be held.
    pub fn check(&self) -> Result<(), LimitsError> {
        let of = |what, rate: Option<Rate>| rate.map(|rate| (what, rate));
        for (what, rate) in [of("iops", self.iops), of("bandwidth", self.bandwidth)].into_iter().flatten() {
            let wrong = [rate.per_second, rate.bucket()].into_iter().find(|value| !(1..=MOST).contains(value));
            wrong.map_or(Ok(()), |value| Err(LimitsError { what, value }))?;
        }
        match self.connections {
            Some(0) => Err(LimitsError { what: "connections", value: 0 }),
            _ => Ok(()),
        }
    }
}

/// A bucket that fills at a steady rate. Whoever takes more than is in it waits until the bucket has made up for it, and all that
/// come later wait longer: so turns are in order, and over any time no more passes than the rate allows and the bucket holds.
#[derive(Clone, Debug)]
pub struct TokenBucket {
    rate: Rate,
    /// In billionths of a token; below 0, what those who wait have taken.
    level: i128,
    /// When it was as full as that, in nanoseconds of the caller's clock.
    at: u64,
}

const BILLION: i128 = 1_000_000_000;

impl TokenBucket {
    /// A full one.
    pub fn new(rate: Rate, now: u64) -> Self {
        TokenBucket { rate, level: i128::from(rate.bucket()) * BILLION, at: now }
    }

    /// The same with another rate: who waits has still taken as much.
    pub fn set(&mut self, rate: Rate, now: u64) {
        self.fill(now);
        self.rate = rate;
        self.level = self.level.min(self.full());
    }

    fn full(&self) -> i128 {
        i128::from(self.rate.bucket()) * BILLION
    }

    fn fill(&mut self, now: u64) {
        let since = i128::from(now.saturating_sub(self.at));
        self.level = (self.level + since * i128::from(self.rate.per_second)).min(self.full());
        self.at = self.at.max(now);
    }

    /// Takes tokens, and says for how many nanoseconds whoever took them has to wait.
    pub fn take(&mut self, tokens: u64, now: u64) -> u64 {
        self.fill(now);
        self.level -= i128::from(tokens) * BILLION;
        let lacking = (-self.level).max(0).cast_unsigned();
        u64::try_from(lacking.div_ceil(u128::from(self.rate.per_second.max(1)))).unwrap_or(u64::MAX)
    }

    /// Puts tokens back that somebody took who waits no more.
    pub fn put_back(&mut self, tokens: u64, now: u64) {
        self.fill(now);
        self.level = (self.level + i128::from(tokens) * BILLION).min(self.full());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_burst_passes_at_once_and_the_rest_at_the_rate() {
        let mut bucket = TokenBucket::new(Rate { per_second: 100, burst: 5 }, 0);
        let waits: Vec<u64> = (0..8).map(|_| bucket.take(1, 0)).collect();
        assert_eq!(waits, [0, 0, 0, 0, 0, SECOND / 100, SECOND / 50, 3 * SECOND / 100]);
        assert_eq!(bucket.take(1, SECOND), 0, "it has filled again");
    }

    #[test]
    fn what_is_larger_than_the_bucket_waits_for_all_of_it() {
        let mut bucket = TokenBucket::new(Rate { per_second: 1000, burst: 100 }, 0);
        assert_eq!(bucket.take(1100, 0), SECOND);
        assert_eq!(bucket.take(1, SECOND), SECOND / 1000);
    }

    #[test]
    fn tokens_of_a_taker_that_goes_away_are_there_again() {
        let mut bucket = TokenBucket::new(Rate { per_second: 1, burst: 1 }, 0);
        for _ in 0..10_000 {
            assert_eq!(bucket.take(1, 0), 0);
            assert_eq!(bucket.take(3600, 0), 3600 * SECOND);
            bucket.put_back(3600, 0);
            bucket.put_back(1, 0);
        }
    }

    #[test]
    fn a_higher_rate_shortens_what_has_to_be_waited_for() {
        let mut bucket = TokenBucket::new(Rate { per_second: 1, burst: 1 }, 0);
        assert_eq!(bucket.take(101, 0), 100 * SECOND);
        bucket.set(Rate { per_second: 100, burst: 1 }, 0);
        assert_eq!(bucket.take(0, 0), SECOND);
    }

    #[test]
    fn limits_at_their_ends_are_taken_and_past_them_refused() {
        let rate = |per_second, burst| Some(Rate { per_second, burst });
        for (iops, is_right) in [
            (rate(1, 0), true),
            (rate(MOST, MOST), true),
            (rate(0, 1), false),
            (rate(MOST + 1, 0), false),
            (rate(1, MOST + 1), false),
        ] {
            assert_eq!(Limits { iops, ..Limits::default() }.check().is_ok(), is_right, "{iops:?}");
        }
        assert!(Limits { connections: Some(0), ..Limits::default() }.check().is_err());
    }

    proptest! {
        /// Of whatever comes, at whatever times, no more passes by any time than the burst and the rate allow; and a queue
        /// that is never empty gets all of the rate.
        #[test]
        fn the_rate_is_held_exactly(
            per_second in 1u64..1_000_000,
            burst in 1u64..10_000,
            steps in prop::collection::vec((0u64..SECOND, 1u64..5_000), 1..200),
        ) {
            let mut bucket = TokenBucket::new(Rate { per_second, burst }, 0);
            let (mut now, mut taken) = (0, 0u128);
            for (pause, tokens) in steps {
                now += pause;
                let done = now + bucket.take(tokens, now);
                taken += u128::from(tokens);
                let most = u128::from(burst) * u128::from(SECOND) + u128::from(done) * u128::from(per_second);
                prop_assert!(taken * u128::from(SECOND) <= most);
            }
            let mut full = TokenBucket::new(Rate { per_second, burst }, 0);
            let last = (0..1000).map(|_| full.take(burst, 0)).last().unwrap_or(0);
            let ideal = u128::from(999 * burst) * u128::from(SECOND) / u128::from(per_second);
            prop_assert!(u128::from(last).abs_diff(ideal) <= 1);
        }
    }
}
