//! What fio notes of every I/O, and what can be said of it: rates over time, and percentiles.

use crate::failure::Failure;
use crate::workspace::answer;
use std::ops::Range;

/// One I/O of a client.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Io {
    /// When it ended, in milliseconds since 1970.
    pub ended_ms: u64,
    /// Microseconds.
    pub took_us: f64,
    pub wrote: bool,
}

/// Reads fio's log of latencies: a line for each I/O, of when it ended in milliseconds, how long it took in nanoseconds, its
/// direction, and what isn't looked at.
pub fn parse(log: &str) -> Result<Vec<Io>, Failure> {
    log.lines().map(|line| of_line(line).ok_or(answer("fio's log", "an I/O's time, length and direction"))).collect()
}

fn of_line(line: &str) -> Option<Io> {
    let mut cells = line.split(',').map(str::trim);
    let ended_ms = cells.next()?.parse().ok()?;
    let took: u64 = cells.next()?.parse().ok()?;
    let wrote = cells.next()?.parse::<u8>().ok()? == 1;
    Some(Io { ended_ms, took_us: took as f64 / 1000.0, wrote })
}

/// The I/Os that ended in a span.
pub fn within(ios: &[Io], span: &Range<u64>) -> impl Iterator<Item = Io> {
    ios.iter().copied().filter(|io| span.contains(&io.ended_ms))
}

/// How long the I/Os of a span took, in microseconds.
pub fn latencies(ios: &[Io], span: &Range<u64>) -> Vec<f64> {
    within(ios, span).map(|io| io.took_us).collect()
}

/// The smallest value that at least this share of all doesn't exceed.
pub fn percentile(mut values: Vec<f64>, share: f64) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let rank = (values.len() as f64 * share).ceil() as usize;
    values.get(rank.saturating_sub(1)).copied()
}

/// I/Os a second in each whole window of a span, from its beginning on.
pub fn rates(ios: &[Io], span: &Range<u64>, window_ms: u64) -> Vec<f64> {
    let windows = span.end.saturating_sub(span.start) / window_ms;
    let mut counts = vec![0u64; windows as usize];
    for io in within(ios, span) {
        if let Some(count) = counts.get_mut(((io.ended_ms - span.start) / window_ms) as usize) {
            *count += 1;
        }
    }
    counts.into_iter().map(|count| count as f64 * 1000.0 / window_ms as f64).collect()
}

/// The mean of each value and those before it, so many in all. Where fewer are before it there is none.
pub fn smoothed(values: &[f64], over: usize) -> Vec<f64> {
    values.windows(over).map(|window| window.iter().sum::<f64>() / over as f64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "1795418573567, 8663, 1, 4096, 16195584, 0\n1795418573999, 70500, 0, 4096, 0, 0\n";

    fn ios(ends: &[u64]) -> Vec<Io> {
        ends.iter().map(|&ended_ms| Io { ended_ms, took_us: ended_ms as f64, wrote: false }).collect()
    }

    #[test]
    fn each_line_is_an_io_with_its_end_its_length_and_its_direction() {
        let read = parse(LOG).unwrap();
        assert_eq!(read[0], Io { ended_ms: 1_795_418_573_567, took_us: 8.663, wrote: true });
        assert_eq!(read[1], Io { ended_ms: 1_795_418_573_999, took_us: 70.5, wrote: false });
        assert_eq!(parse("").unwrap(), []);
    }

    #[test]
    fn a_log_that_is_cut_off_is_no_measurement() {
        for log in ["17954185", "17954185, 86", "17954185, 86, one, 4096", "fio: a remark"] {
            assert!(parse(log).is_err(), "{log}");
        }
    }

    #[test]
    fn a_percentile_is_a_value_that_was_measured() {
        let values = || (1..=1000).rev().map(f64::from).collect::<Vec<_>>();
        assert_eq!(percentile(values(), 0.999), Some(999.0));
        assert_eq!(percentile(values(), 0.5), Some(500.0));
        assert_eq!(percentile(values(), 1.0), Some(1000.0));
        assert_eq!(percentile(vec![7.0], 0.001), Some(7.0));
        assert_eq!(percentile(Vec::new(), 0.5), None);
    }

    #[test]
    fn rates_count_whole_windows_also_those_in_which_nothing_ended() {
        let ios = ios(&[99, 100, 150, 299, 300, 500, 549]);
        assert_eq!(rates(&ios, &(100..550), 100), [20.0, 10.0, 10.0, 0.0]);
        assert_eq!(rates(&ios, &(100..150), 100), [0.0; 0]);
    }

    #[test]
    fn only_what_ended_in_a_span_counts() {
        assert_eq!(latencies(&ios(&[1, 2, 3, 4]), &(2..4)), [2.0, 3.0]);
    }

    #[test]
    fn a_smoothed_value_is_the_mean_of_itself_and_those_before() {
        assert_eq!(smoothed(&[1.0, 3.0, 5.0, 1.0], 2), [2.0, 4.0, 3.0]);
        assert_eq!(smoothed(&[1.0, 3.0], 1), [1.0, 3.0]);
        assert_eq!(smoothed(&[1.0], 2), [0.0; 0]);
    }
}
