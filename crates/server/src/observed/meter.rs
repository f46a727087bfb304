//! How many requests there were, how much they moved, and how long they took: counted where they pass, read by whoever
//! scrapes the metrics.
//!
//! Counting costs two looks at the clock and a few relaxed additions; a number may be behind its neighbours for a moment.

use crate::api_types::{OperationCounters, OperationSum};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Upper bounds of the latency buckets, in microseconds. One more bucket has what takes longer.
pub const BOUNDS_MICROS: [u64; 16] = [
    20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000,
    10_000_000,
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Read,
    Write,
    Flush,
    /// Also zeroes that may become holes.
    Discard,
}

impl Operation {
    pub const ALL: [Operation; 4] = [Operation::Read, Operation::Write, Operation::Flush, Operation::Discard];

    pub fn as_str(self) -> &'static str {
        match self {
            Operation::Read => "read",
            Operation::Write => "write",
            Operation::Flush => "flush",
            Operation::Discard => "discard",
        }
    }
}

/// Of one volume or drive, since it was opened.
#[derive(Debug, Default)]
pub struct Meter([Counts; Operation::ALL.len()]);

#[derive(Debug, Default)]
struct Counts {
    buckets: [AtomicU64; BOUNDS_MICROS.len() + 1],
    bytes: AtomicU64,
    nanos: AtomicU64,
    errors: AtomicU64,
}

/// What a meter shows of one operation.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    /// How many took at most as long as each of [`BOUNDS_MICROS`], and longer than the bound before; then the rest.
    pub buckets: [u64; BOUNDS_MICROS.len() + 1],
    pub seconds: f64,
    pub bytes: u64,
    pub errors: u64,
}

impl Meter {
    /// Begins an operation that moves so many bytes. One that is given up isn't counted.
    pub fn begin(&self, operation: Operation, bytes: u64) -> Timing<'_> {
        Timing { meter: self, operation, bytes, began: Instant::now() }
    }

    fn count(&self, operation: Operation, bytes: u64, took: Duration, good: bool) {
        let counts = &self.0[operation as usize];
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let bucket = BOUNDS_MICROS.partition_point(|bound| bound * 1000 < nanos);
        counts.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        counts.nanos.fetch_add(nanos, Ordering::Relaxed);
        match good {
            true if bytes == 0 => {}
            true => drop(counts.bytes.fetch_add(bytes, Ordering::Relaxed)),
            false => drop(counts.errors.fetch_add(1, Ordering::Relaxed)),
        }
    }

    pub fn read(&self, operation: Operation) -> Reading {
        let counts = &self.0[operation as usize];
        let now = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Reading {
            buckets: std::array::from_fn(|bucket| now(&counts.buckets[bucket])),
            seconds: now(&counts.nanos) as f64 / 1e9,
            bytes: now(&counts.bytes),
            errors: now(&counts.errors),
        }
    }
}

/// What several meters show together, by operation.
pub fn sum<'a>(meters: impl Iterator<Item = &'a Meter> + Clone) -> Vec<OperationCounters> {
    let of = |operation: Operation| {
        let none = OperationCounters {
            operation: operation.as_str().to_owned(),
            buckets: vec![0; BOUNDS_MICROS.len() + 1],
            micros: 0,
            bytes: 0,
            errors: 0,
        };
        meters.clone().fold(none, |mut all, meter| {
            let reading = meter.read(operation);
            all.buckets.iter_mut().zip(reading.buckets).for_each(|(sum, count)| *sum += count);
            all.micros += (reading.seconds * 1e6) as u64;
            all.bytes += reading.bytes;
            all.errors += reading.errors;
            all
        })
    };
    Operation::ALL.map(of).to_vec()
}

/// What a meter shows in short, of operations of which there were any.
pub fn in_short(meter: &Meter) -> Vec<OperationSum> {
    let all = sum([meter].into_iter()).into_iter().map(|counters| OperationSum {
        operation: counters.operation,
        count: counters.buckets.iter().sum(),
        micros: counters.micros,
        bytes: counters.bytes,
        errors: counters.errors,
    });
    all.filter(|sum| sum.count > 0).collect()
}

/// An operation under way.
#[must_use = "it's counted when it ends"]
pub struct Timing<'a> {
    meter: &'a Meter,
    operation: Operation,
    bytes: u64,
    began: Instant,
}

impl Timing<'_> {
    /// Counts the operation, and hands its outcome on.
    pub fn end<T, E>(self, outcome: Result<T, E>) -> Result<T, E> {
        self.meter.count(self.operation, self.bytes, self.began.elapsed(), outcome.is_ok());
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_operation_is_counted_by_how_long_it_took_and_what_came_of_it() {
        let meter = Meter::default();
        let longest = BOUNDS_MICROS[BOUNDS_MICROS.len() - 1];
        for (micros, good) in [(1, true), (20, true), (21, true), (longest, false), (longest + 1, true)] {
            meter.count(Operation::Write, 4096, Duration::from_micros(micros), good);
        }
        assert_eq!(meter.begin(Operation::Read, 512).end(Ok::<_, ()>(7)), Ok(7));
        let both = &sum([&meter, &meter].into_iter())[Operation::Write as usize];
        assert_eq!((both.operation.as_str(), both.bytes, both.errors), ("write", 8 * 4096, 2));
        assert_eq!((both.buckets[0], both.buckets.iter().sum::<u64>()), (4, 10));
        let kinds: Vec<(String, u64)> = in_short(&meter).into_iter().map(|sum| (sum.operation, sum.count)).collect();
        assert_eq!(kinds, [("read".to_owned(), 1), ("write".to_owned(), 5)]);
        let written = meter.read(Operation::Write);
        let mut buckets = [0; BOUNDS_MICROS.len() + 1];
        (buckets[0], buckets[1], buckets[BOUNDS_MICROS.len() - 1], buckets[BOUNDS_MICROS.len()]) = (2, 1, 1, 1);
        assert_eq!((written.buckets, written.bytes, written.errors), (buckets, 4 * 4096, 1));
        assert_eq!((meter.read(Operation::Read).bytes, meter.read(Operation::Flush).buckets.iter().sum()), (512, 0u64));
    }
}
