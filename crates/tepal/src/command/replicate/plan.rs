//! What is to be sent: runs of bytes that the replica lacks, in order, gathered to as much as goes into one request.

use crate::client::{Client, ClientError};
use std::collections::VecDeque;
use tepal_server::api::types::{BY_ID, DifferenceKind, MapRun, Range, SnapshotDiff, SnapshotInfo, path, route};

/// Runs of one request.
const MOST_RUNS: usize = 2000;
/// Zeros of one run, and of one request.
pub const ZEROS: u64 = 256 << 20;
/// As far as is looked ahead for holes.
const LOOK_AHEAD: u64 = 1 << 40;

/// What goes into one request.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// In order of the batches, from 0.
    pub number: u64,
    /// With whether it's zeros.
    pub runs: Vec<(Range, bool)>,
    /// Those that aren't zeros, in all.
    pub bytes: u64,
    /// Once this batch and all before it are written, the replica is right up to here.
    pub end: u64,
}

/// Gathers runs, which come in order.
struct Gatherer {
    runs: VecDeque<(Range, bool)>,
    number: u64,
}

impl Gatherer {
    fn push(&mut self, range: Range, is_zero: bool) {
        match self.runs.back_mut() {
            Some((last, was_zero)) if *was_zero == is_zero && last.offset + last.length == range.offset => {
                last.length += range.length;
            }
            _ => self.runs.push_back((range, is_zero)),
        }
    }

    /// As much as fits. All of it, or only if there's more than that.
    fn take(&mut self, most: u64, all: bool) -> Option<Batch> {
        let bytes: u64 = self.runs.iter().filter(|(_, is_zero)| !is_zero).map(|(range, _)| range.length).sum();
        if self.runs.is_empty() || !all && bytes < most && self.runs.len() <= MOST_RUNS {
            return None;
        }
        let mut batch = Batch { number: self.number, ..Batch::default() };
        let mut zeros = 0;
        while let Some((range, is_zero)) = self.runs.pop_front() {
            let room = if is_zero { ZEROS - zeros } else { most - batch.bytes };
            let length = range.length.min(room);
            if length > 0 {
                batch.runs.push((Range { offset: range.offset, length }, is_zero));
                batch.end = range.offset + length;
            }
            if is_zero {
                zeros += length
            } else {
                batch.bytes += length
            }
            if length < range.length {
                let rest = Range { offset: range.offset + length, length: range.length - length };
                self.runs.push_front((rest, is_zero));
                break;
            } else if batch.runs.len() >= MOST_RUNS {
                break;
            }
        }
        self.number += 1;
        Some(batch)
    }
}

/// Asks as it goes on.
pub struct Plan<'a> {
    client: &'a Client,
    base: Option<&'a SnapshotInfo>,
    to: &'a SnapshotInfo,
    /// Up to here it's known what differs; `None` at the end.
    next: Option<u64>,
    gathered: Gatherer,
}

impl<'a> Plan<'a> {
    /// What differs in a snapshot from an earlier one, or all that it has.
    pub fn new(client: &'a Client, base: Option<&'a SnapshotInfo>, to: &'a SnapshotInfo, from: u64) -> Self {
        let gathered = Gatherer { runs: VecDeque::new(), number: 0 };
        Plan { client, base, to, next: Some(from).filter(|from| *from < to.size), gathered }
    }

    /// The next batch, of so many bytes at most.
    pub fn next(&mut self, most: u64) -> Result<Option<Batch>, ClientError> {
        loop {
            if let Some(batch) = self.gathered.take(most, self.next.is_none()) {
                return Ok(Some(batch));
            }
            let Some(from) = self.next else { return Ok(None) };
            self.next = match self.base {
                Some(base) => self.look_up(base, from)?,
                None => self.look_at_map(from)?,
            };
        }
    }

    fn look_up(&mut self, base: &SnapshotInfo, from: u64) -> Result<Option<u64>, ClientError> {
        let page = noted(self.client, base, Some(self.to), from)?;
        for run in page.runs {
            let range = Range { offset: run.offset, length: run.length };
            self.gathered.push(range, run.kind == DifferenceKind::Zero);
        }
        Ok(page.next)
    }

    /// Holes aren't sent: the replica has holes there too.
    fn look_at_map(&mut self, from: u64) -> Result<Option<u64>, ClientError> {
        let (size, mut at) = (self.to.size, from);
        let map = path(route::SNAPSHOT_MAP, &self.to.by_id());
        let length = (size - at).min(LOOK_AHEAD);
        let runs: Vec<MapRun> = self.client.get(&format!("{map}?offset={at}&length={length}"))?;
        for run in runs {
            let length = run.length.min(size - at);
            if run.mapped {
                self.gathered.push(Range { offset: at, length }, false);
            }
            at += length;
        }
        Ok(Some(at).filter(|at| *at < size))
    }
}

/// A page of what was noted as written since a snapshot, up to another one or up to now.
pub fn noted(
    client: &Client,
    base: &SnapshotInfo,
    to: Option<&SnapshotInfo>,
    from: u64,
) -> Result<SnapshotDiff, ClientError> {
    let to = to.map_or_else(String::new, |to| format!("&to={BY_ID}{}", to.epoch));
    client.get(&format!("{}?noted=true&offset={from}{to}", path(route::SNAPSHOT_DIFF, &base.by_id())))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn gathered(runs: &[(u64, u64, bool)], most: u64) -> Vec<Batch> {
        let mut gatherer = Gatherer { runs: VecDeque::new(), number: 0 };
        for &(offset, length, is_zero) in runs {
            gatherer.push(Range { offset, length }, is_zero);
        }
        std::iter::from_fn(|| gatherer.take(most, true)).collect()
    }

    #[test]
    fn batches_have_all_runs_once_and_in_order() {
        for runs in [
            vec![(0, 10, false), (10, 5, false), (20, 3, true), (40, 100, false)],
            vec![(0, 3 * ZEROS + 7, true), (4 * ZEROS, 5, false)],
            (0..3 * MOST_RUNS as u64).map(|n| (n * 8, 4, n % 3 == 0)).collect(),
            vec![(7, 1000 * MIB, false)],
        ] {
            for most in [1 << 16, MIB, 7 * MIB] {
                let (mut at, batches) = (runs.iter(), gathered(&runs, most));
                let mut left = *at.next().expect("some");
                if runs.len() == 4 {
                    left = (0, 15, false);
                    at.next();
                }
                for (number, batch) in (0..).zip(&batches) {
                    assert_eq!(batch.number, number);
                    assert!(batch.bytes <= most && batch.runs.len() <= MOST_RUNS && !batch.runs.is_empty());
                    for &(range, is_zero) in &batch.runs {
                        assert_eq!((range.offset, is_zero), (left.0, left.2));
                        left = (left.0 + range.length, left.1 - range.length, left.2);
                        if left.1 == 0 {
                            left = at.next().copied().unwrap_or_default();
                        }
                    }
                }
                assert_eq!(left, (0, 0, false), "{most}");
            }
        }
    }

    #[test]
    fn a_batch_says_up_to_where_the_replica_is_right() {
        let batches = gathered(&[(0, MIB, false), (5 * MIB, 3 * MIB, false)], 2 * MIB);
        assert_eq!(batches.iter().map(|batch| batch.end).collect::<Vec<_>>(), [6 * MIB, 8 * MIB]);
    }
}
