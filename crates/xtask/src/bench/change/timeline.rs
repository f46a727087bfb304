//! A client's throughput before, while and after something is changed, from its own record.

use super::Row;
use super::record::{Io, rates, smoothed};
use crate::bench::targets::median;
use std::ops::Range;

/// Short enough to see a client being kept waiting.
pub const WINDOW_MS: u64 = 2000;

/// I/Os a second.
pub struct Timeline {
    /// Each at the end of what it's the mean of, in seconds since the change began.
    pub points: Vec<(f64, f64)>,
    /// Of these, those that end before the change begins, those that the change has a part in, and those that begin when it's over.
    before: Vec<f64>,
    meanwhile: Vec<f64>,
    after: Vec<f64>,
}

impl Timeline {
    /// `change` and `seen`, which it's a part of, are in milliseconds since 1970. Windows begin where the change does; each value is
    /// the mean of so many of them.
    pub fn of(ios: &[Io], change: &Range<u64>, seen: &Range<u64>, windows: usize) -> Timeline {
        let earlier = change.start.saturating_sub(seen.start) / WINDOW_MS;
        let start = change.start - earlier * WINDOW_MS;
        let values = smoothed(&rates(ios, &(start..seen.end), WINDOW_MS), windows);
        let mut timeline =
            Timeline { points: Vec::new(), before: Vec::new(), meanwhile: Vec::new(), after: Vec::new() };
        for (place, value) in values.into_iter().enumerate() {
            let from = start + place as u64 * WINDOW_MS;
            let until = from + windows as u64 * WINDOW_MS;
            timeline.points.push(((until as f64 - change.start as f64) / 1000.0, value));
            let phase = match () {
                () if until <= change.start => &mut timeline.before,
                () if from < change.end => &mut timeline.meanwhile,
                () => &mut timeline.after,
            };
            phase.push(value);
        }
        timeline
    }

    pub fn before(&self) -> Option<f64> {
        median(self.before.clone())
    }

    pub fn after(&self) -> Option<f64> {
        median(self.after.clone())
    }

    pub fn meanwhile(&self) -> Option<f64> {
        median(self.meanwhile.clone())
    }

    pub fn lowest_before(&self) -> Option<f64> {
        lowest(&self.before)
    }

    pub fn lowest_meanwhile(&self) -> Option<f64> {
        lowest(&self.meanwhile)
    }

    /// A value of this timeline in multiples of what was usual before the change.
    pub fn of_before(&self, value: Option<f64>) -> Option<f64> {
        Some(value? / self.before().filter(|before| *before > 0.0)?)
    }

    pub fn rows(&self, measurement: &'static str, what: &str) -> Vec<Row> {
        let row = |&(at, value): &(f64, f64)| Row { measurement, what: what.to_owned(), at, value };
        self.points.iter().map(row).collect()
    }
}

fn lowest(values: &[f64]) -> Option<f64> {
    values.iter().copied().min_by(f64::total_cmp)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many I/Os in each window since 0.
    fn ios(counts: &[u64]) -> Vec<Io> {
        let of = |(place, &count): (usize, &u64)| {
            let ended_ms = place as u64 * WINDOW_MS + 1;
            std::iter::repeat_n(Io { ended_ms, took_us: 1.0, wrote: false }, count as usize)
        };
        counts.iter().enumerate().flat_map(of).collect()
    }

    const END: u64 = 7 * WINDOW_MS;

    #[test]
    fn each_window_belongs_to_one_phase() {
        let ios = ios(&[20, 40, 10, 12, 50, 60, 70]);
        // It's over in the middle of a window, which is a part of it still.
        let timeline = Timeline::of(&ios, &(2 * WINDOW_MS..3 * WINDOW_MS + 5), &(0..END), 1);
        assert_eq!(timeline.points[0], (-2.0, 10.0));
        assert_eq!(timeline.points.len(), 7);
        assert_eq!(timeline.before(), Some(15.0));
        assert_eq!((timeline.lowest_before(), timeline.lowest_meanwhile()), (Some(10.0), Some(5.0)));
        assert_eq!((timeline.meanwhile(), timeline.after()), (Some(5.5), Some(30.0)));
        assert_eq!(timeline.of_before(timeline.after()), Some(2.0));
    }

    #[test]
    fn a_mean_that_the_change_has_a_part_in_is_neither_before_nor_after() {
        let ios = ios(&[20, 20, 0, 20, 40, 40, 40]);
        let timeline = Timeline::of(&ios, &(2 * WINDOW_MS..3 * WINDOW_MS), &(0..END), 2);
        assert_eq!(timeline.before, [10.0]);
        assert_eq!(timeline.meanwhile, [5.0, 5.0]);
        assert_eq!(timeline.after, [15.0, 20.0, 20.0]);
    }

    #[test]
    fn what_was_not_seen_is_not_measured() {
        let timeline = Timeline::of(&[], &(1000..1000), &(1000..1000), 1);
        assert_eq!((timeline.before(), timeline.of_before(Some(1.0))), (None, None));
        let idle = Timeline::of(&[], &(2 * WINDOW_MS..3 * WINDOW_MS), &(0..END), 1);
        assert_eq!((idle.before(), idle.of_before(Some(1.0))), (Some(0.0), None));
    }
}
