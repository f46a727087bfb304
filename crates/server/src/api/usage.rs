//! How much of the drives was used, and when they will be full if it goes on like that.
//!
//! Each server notes its own drives in memory: often at first, and half as often whenever 1,024 moments are noted. The moments are whole
//! multiples of the time between them, so that what several servers have noted can be added up.

use super::cluster::Space;
use super::drives::of_server;
use super::relay::Scope;
use super::types::{Usage, UsageSample, route};
use super::{Context, Shared};
use axum::Json;
use axum::extract::State;
use std::collections::{BTreeMap, VecDeque};
use std::sync::PoisonError;
use std::time::{SystemTime, UNIX_EPOCH};

/// Between the first samples, in seconds.
const FIRST_EVERY: u64 = 5;
const MOST: usize = 1024;
/// Older ones say nothing of what is to come.
const KEPT: u64 = 28 * DAY;
/// What the forecast goes by.
const LOOKED_AT: u64 = 7 * DAY;
/// Less says nothing.
const LEAST_NOTED: u64 = 60;
const DAY: u64 = 24 * 3600;
/// Nobody plans for longer.
const LONGEST: f64 = 10.0 * 365.0 * DAY as f64;

/// What one server has noted.
pub struct History {
    /// In seconds: it only doubles.
    every: u64,
    samples: VecDeque<UsageSample>,
}

impl Default for History {
    fn default() -> Self {
        History { every: FIRST_EVERY, samples: VecDeque::new() }
    }
}

impl History {
    /// Whether it's time for another sample.
    fn is_due(&self, now: u64) -> bool {
        self.samples.back().is_none_or(|last| now / self.every > last.unix_s / self.every)
    }

    fn note(&mut self, now: u64, used: u64, capacity: u64) {
        self.samples.push_back(UsageSample { unix_s: now / self.every * self.every, used, capacity });
        self.samples.retain(|sample| sample.unix_s + KEPT > now);
        while self.samples.len() > MOST {
            self.every *= 2;
            self.samples.retain(|sample| sample.unix_s.is_multiple_of(self.every));
        }
    }
}

/// To be called every second.
pub fn note(context: &Context) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let mut history = context.used.lock().unwrap_or_else(PoisonError::into_inner);
    if history.is_due(now) {
        let space = Space::of(&of_server(context));
        history.note(now, space.used, space.capacity);
    }
}

pub async fn show(State(context): State<Shared>, scope: Scope) -> Json<Usage> {
    let own: Vec<UsageSample> = {
        let history = context.used.lock().unwrap_or_else(PoisonError::into_inner);
        history.samples.iter().copied().collect()
    };
    let mut all = vec![own];
    if scope == Scope::Cluster {
        let others = context.ask_others::<Usage>(route::USAGE).await;
        all.extend(others.into_iter().filter_map(|(_, said)| Some(said?.samples)));
    }
    Json(put_together(all))
}

/// Of what each server has noted.
fn put_together(all: Vec<Vec<UsageSample>>) -> Usage {
    let last = all.iter().filter_map(|samples| samples.last());
    let (capacity, used) = last.fold((0, 0), |(capacity, used), last| (capacity + last.capacity, used + last.used));
    let slopes: Option<Vec<f64>> = all.iter().map(|samples| slope(samples)).collect();
    let slope = slopes.map(|slopes| slopes.iter().sum::<f64>());
    let left = capacity.saturating_sub(used) as f64;
    let seconds = slope.filter(|slope| *slope > 0.0).map(|slope| left / slope).filter(|seconds| *seconds <= LONGEST);
    let mut sums: BTreeMap<u64, (usize, UsageSample)> = BTreeMap::new();
    for sample in all.iter().flatten() {
        let none = UsageSample { unix_s: sample.unix_s, used: 0, capacity: 0 };
        let (count, sum) = sums.entry(sample.unix_s).or_insert((0, none));
        *count += 1;
        sum.used += sample.used;
        sum.capacity += sample.capacity;
    }
    let by_all = sums.into_values().filter(|(count, _)| *count == all.len());
    Usage {
        capacity,
        used,
        samples: by_all.map(|(_, sum)| sum).collect(),
        growth_per_day: slope.map(|slope| (slope * DAY as f64) as i64),
        full_in_seconds: seconds.map(|seconds| seconds as u64),
        noted_seconds: all.iter().map(|samples| span(samples)).min().unwrap_or(0),
    }
}

fn span(samples: &[UsageSample]) -> u64 {
    match samples {
        [first, .., last] => last.unix_s - first.unix_s,
        _ => 0,
    }
}

/// Bytes a second, by the line that fits best; none if too little was noted.
fn slope(samples: &[UsageSample]) -> Option<f64> {
    let last = samples.last()?;
    let lately: Vec<UsageSample> =
        samples.iter().copied().filter(|sample| sample.unix_s + LOOKED_AT >= last.unix_s).collect();
    if span(&lately) < LEAST_NOTED {
        return None;
    }
    let points = || lately.iter().map(|sample| ((sample.unix_s - lately[0].unix_s) as f64, sample.used as f64));
    let count = lately.len() as f64;
    let (x, y) = points().fold((0.0, 0.0), |(x, y), point| (x + point.0 / count, y + point.1 / count));
    let (product, square) =
        points().fold((0.0, 0.0), |(p, s), point| (p + (point.0 - x) * (point.1 - y), s + (point.0 - x).powi(2)));
    Some(product / square)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn noted(from: u64, seconds: u64, used: impl Fn(u64) -> u64) -> History {
        let mut history = History::default();
        for now in from..from + seconds {
            if history.is_due(now) {
                history.note(now, used(now - from), 100 * GIB);
            }
        }
        history
    }

    #[test]
    fn a_steady_growth_is_followed_to_the_end_of_the_drives() {
        let history = noted(1_000_000, 3600, |second| GIB + second * 1_000_000);
        let usage = put_together(vec![history.samples.into()]);
        let growth = usage.growth_per_day.expect("known");
        assert!((growth - 86_400_000_000).abs() < 1_000_000, "{growth}");
        let left = (usage.capacity - usage.used) / 1_000_000;
        assert!(usage.full_in_seconds.expect("it grows").abs_diff(left) < 10);
    }

    #[test]
    fn what_does_not_grow_is_never_full() {
        for used in [|_| GIB, |second| 50 * GIB - second] {
            let usage = put_together(vec![noted(5, 600, used).samples.into()]);
            assert!(usage.growth_per_day.is_some() && usage.full_in_seconds.is_none());
        }
    }

    #[test]
    fn nothing_is_foretold_of_less_than_a_minute() {
        let usage = put_together(vec![noted(0, 3600, |_| 0).samples.into(), noted(3590, 10, |_| 1).samples.into()]);
        assert_eq!((usage.growth_per_day, usage.full_in_seconds, usage.noted_seconds), (None, None, 5));
    }

    #[test]
    fn a_month_takes_no_more_memory_than_an_hour() {
        let mut history = History::default();
        for now in (0..40 * DAY).step_by(5) {
            if history.is_due(now) {
                history.note(now, now, GIB);
            }
        }
        assert!((MOST / 2..=MOST).contains(&history.samples.len()), "{}", history.samples.len());
        let first = history.samples.front().expect("some").unix_s;
        assert!((12 * DAY..13 * DAY).contains(&first), "28 days are kept: {first}");
    }

    #[test]
    fn moments_that_all_servers_noted_are_added_up() {
        let (long, short) = (noted(0, 2 * 3600, |_| 3), noted(3600, 3600, |_| 4));
        assert!(long.every > short.every);
        let usage = put_together(vec![long.samples.into(), short.samples.into()]);
        assert!(usage.samples.len() > 100 && usage.samples.iter().all(|sample| sample.used == 7));
    }
}
