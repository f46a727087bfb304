//! One snapshot on its way: several requests are under way to each cluster, so that a link with latency is full.
//!
//! Invariant: what is noted as done is on stable media at the other cluster, with all that comes before it.

use super::link::CONNECTIONS;
use super::pace::Pace;
use super::plan::{Batch, Plan};
use super::{CommandError, ReplicateError};
use crate::client::{Client, ClientError};
use crate::command::transfer::{HOLE, is_zero};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tepal_server::api::types::{Done, Pieces, Range, Receive, SnapshotInfo, path, route};

/// Bytes of one request: it begins with few, as nobody knows how slow the link is.
const FIRST: u64 = 128 << 10;
const LEAST: u64 = 64 << 10;
const MOST: u64 = 4 << 20;
/// A request that takes less may have more in it; one that takes longer has too much.
const QUICK: Duration = Duration::from_millis(250);
const SLOW: Duration = Duration::from_secs(2);
/// Between two notes of how far it is.
const NOTED_EVERY: Duration = Duration::from_secs(2);

/// What others look at while it goes on.
#[derive(Default)]
pub struct Meter {
    /// Bytes that were sent to the other cluster.
    pub sent: AtomicU64,
    /// Bytes from the volume's beginning on that are done.
    pub reached: AtomicU64,
}

pub struct Sending<'a> {
    pub source: &'a Client,
    pub target: &'a Client,
    pub base: Option<&'a SnapshotInfo>,
    pub to: &'a SnapshotInfo,
    /// How its cluster is called, for people.
    pub there: String,
    /// Stands for the replica's name.
    pub replica: &'a str,
    pub receive: Receive,
    pub pace: &'a Pace,
    /// Bytes a second at most.
    pub rate: Option<u64>,
    pub meter: &'a Arc<Meter>,
}

impl Sending<'_> {
    /// Returns when all of it is written; not when it's on stable media.
    pub fn run(&self) -> Result<(), CommandError> {
        let piece = AtomicU64::new(FIRST.min(self.most()));
        let (give, take) = sync_channel::<Batch>(CONNECTIONS);
        let (tell, told) = channel();
        let take = Mutex::new(take);
        std::thread::scope(|scope| {
            for _ in 0..CONNECTIONS {
                let (tell, take, piece) = (tell.clone(), &take, &piece);
                scope.spawn(move || self.work(take, &tell, piece));
            }
            drop(tell);
            let mut written = Written::new(self.receive.done);
            let mut plan = Plan::new(self.source, self.base, self.to, self.receive.done);
            let mut ended = Ok(());
            while ended.is_ok() {
                match plan.next(piece.load(Ordering::Relaxed)) {
                    // Nobody takes any more once one has failed.
                    Ok(Some(batch)) => drop(give.send(batch)),
                    Ok(None) => break,
                    Err(error) => ended = Err(error.into()),
                }
                ended = ended.and_then(|()| self.hear(&mut written, told.try_iter()));
            }
            drop(give);
            // Whoever works still is waited for, also after an error.
            let rest = self.hear(&mut written, told.iter());
            ended.and(rest)
        })
    }

    fn most(&self) -> u64 {
        self.rate.map_or(MOST, |rate| (rate / 8).clamp(LEAST, MOST))
    }

    fn hear(
        &self,
        written: &mut Written,
        told: impl Iterator<Item = Result<(u64, u64), CommandError>>,
    ) -> Result<(), CommandError> {
        let mut ended = Ok(());
        for one in told {
            match one {
                Ok((number, end)) => written.add(number, end),
                Err(error) if ended.is_ok() => ended = Err(error),
                Err(_) => {}
            }
            if ended.is_ok() && written.is_to_be_noted() {
                ended = self.note(written).map_err(CommandError::from);
            }
        }
        ended
    }

    fn note(&self, written: &mut Written) -> Result<(), ClientError> {
        let (done, now) = (written.done, Instant::now());
        self.flush()?;
        let receive = Receive { done, ..self.receive };
        let _: Done = self.target.post_repeatable(&path(route::VOLUME_RECEIVE, self.replica), &receive)?;
        self.meter.reached.store(done, Ordering::Relaxed);
        (written.noted, written.noted_at) = (done, now);
        Ok(())
    }

    pub fn flush(&self) -> Result<(), ClientError> {
        let flush = format!("{}?import={}", path(route::VOLUME_FLUSH, self.replica), self.receive.import);
        let _: Done = self.target.post_repeatable(&flush, &Done {})?;
        Ok(())
    }

    fn work(&self, take: &Mutex<Receiver<Batch>>, tell: &Sender<Result<(u64, u64), CommandError>>, piece: &AtomicU64) {
        let (source, target) = (self.source.twin(), self.target.twin());
        loop {
            let next = take.lock().unwrap_or_else(PoisonError::into_inner).recv();
            let Ok(batch) = next else { return };
            let (number, end) = (batch.number, batch.end);
            let sent = self.send(&source, &target, batch, piece).map(|()| (number, end));
            let has_failed = sent.is_err();
            if tell.send(sent).is_err() || has_failed {
                // What was to be sent isn't taken by others either: they meet the same, and the giver must not wait for ever.
                while take.lock().unwrap_or_else(PoisonError::into_inner).recv().is_ok() {}
                return;
            }
        }
    }

    fn send(&self, source: &Client, target: &Client, batch: Batch, piece: &AtomicU64) -> Result<(), CommandError> {
        let ranges: Vec<Range> = batch.runs.iter().filter(|(_, is_zero)| !is_zero).map(|(range, _)| *range).collect();
        let data = match ranges.is_empty() {
            true => Vec::new(),
            false => source.post_for_bytes(&path(route::SNAPSHOT_PIECES, &self.to.by_id()), &ranges)?,
        };
        if data.len() as u64 != batch.bytes {
            let (what, wanted, found) = (self.to.full_name().to_string(), batch.bytes, data.len() as u64);
            return Err(ReplicateError::Short { what, wanted, found }.into());
        }
        let pieces = without_zeros(&batch.runs, &data, self.base.is_some());
        if pieces.runs.is_empty() {
            return Ok(());
        }
        let body = pieces.encode();
        self.pace.turn(body.len() as u64);
        let began = Instant::now();
        let to = format!("{}?import={}", path(route::VOLUME_PIECES, self.replica), self.receive.import);
        // It may be that cluster that has no room.
        let unwritten = |error| ReplicateError::Unwritten { there: self.there.clone(), error };
        let Done {} = target.put_bytes(&to, &body).map_err(unwritten)?;
        self.meter.sent.fetch_add(body.len() as u64, Ordering::Relaxed);
        let took = began.elapsed();
        let now = piece.load(Ordering::Relaxed);
        if took < QUICK && body.len() as u64 >= now / 2 {
            piece.store((now * 2).min(self.most()), Ordering::Relaxed);
        } else if took > SLOW {
            piece.store((now / 2).max(LEAST), Ordering::Relaxed);
        }
        Ok(())
    }
}

/// Zeros go as such, or not at all where the replica has holes already.
fn without_zeros(runs: &[(Range, bool)], data: &[u8], frees: bool) -> Pieces {
    let mut pieces = Pieces { runs: Vec::with_capacity(runs.len()), data: Vec::with_capacity(data.len()) };
    let mut push = |range: Range, is_zero: bool| match pieces.runs.last_mut() {
        Some((last, was_zero)) if *was_zero == is_zero && last.offset + last.length == range.offset => {
            last.length += range.length;
        }
        _ => pieces.runs.push((range, is_zero)),
    };
    let mut at = 0;
    for &(range, is_hole) in runs {
        if is_hole {
            if frees {
                push(range, true);
            }
            continue;
        }
        let bytes = &data[at..at + range.length as usize];
        at += bytes.len();
        for (number, chunk) in (0..).zip(bytes.chunks(HOLE)) {
            let range = Range { offset: range.offset + number * HOLE as u64, length: chunk.len() as u64 };
            let is_zero = is_zero(chunk);
            if !is_zero {
                pieces.data.extend_from_slice(chunk);
            }
            if !is_zero || frees {
                push(range, is_zero);
            }
        }
    }
    pieces
}

/// Which batches are written, that end in any order.
struct Written {
    /// All before this one.
    next: u64,
    /// So many bytes, from the beginning on.
    done: u64,
    later: BTreeMap<u64, u64>,
    noted: u64,
    noted_at: Instant,
}

impl Written {
    fn new(done: u64) -> Self {
        Written { next: 0, done, later: BTreeMap::new(), noted: done, noted_at: Instant::now() }
    }

    fn add(&mut self, number: u64, end: u64) {
        self.later.insert(number, end);
        while let Some(end) = self.later.remove(&self.next) {
            self.next += 1;
            self.done = self.done.max(end);
        }
    }

    fn is_to_be_noted(&self) -> bool {
        self.done > self.noted && self.noted_at.elapsed() >= NOTED_EVERY
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_has_all_before_it_is_done() {
        let mut written = Written::new(5);
        written.add(1, 20);
        assert_eq!(written.done, 5);
        written.add(0, 10);
        assert_eq!(written.done, 20);
        written.add(3, 40);
        written.add(2, 30);
        assert_eq!((written.done, written.next), (40, 4));
    }

    #[test]
    fn zeros_are_freed_where_the_replica_may_have_something() {
        let hole = HOLE as u64;
        let range = |offset, length| Range { offset, length };
        let runs = [(range(0, 3 * hole), false), (range(8 * hole, hole), true), (range(9 * hole, 10), false)];
        let mut data = vec![0; 3 * HOLE + 10];
        data[HOLE] = 1;
        data[3 * HOLE] = 2;
        let pieces = without_zeros(&runs, &data, true);
        let expected = [
            (range(0, hole), true),
            (range(hole, hole), false),
            (range(2 * hole, hole), true),
            (range(8 * hole, hole), true),
            (range(9 * hole, 10), false),
        ];
        assert_eq!((&pieces.runs[..], pieces.data.len()), (&expected[..], HOLE + 10));
        let pieces = without_zeros(&runs, &data, false);
        assert_eq!(pieces.runs, [(range(hole, hole), false), (range(9 * hole, 10), false)]);
    }
}
