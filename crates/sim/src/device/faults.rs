//! What a simulated drive is told to do wrong, and the log of what it did.

use crate::random::Stream;
use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;
use std::time::Duration;
use tepal_model::BLOCK;

/// How often a fault strikes, and how often at most.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rate {
    pub per_million: u32,
    pub left: u32,
}

impl Rate {
    pub const NEVER: Rate = Rate { per_million: 0, left: 0 };

    pub fn at_most(left: u32, per_million: u32) -> Self {
        Rate { per_million, left }
    }

    pub(super) fn strikes(&mut self, random: &mut Stream) -> bool {
        let strikes = self.left > 0 && random.chance(self.per_million);
        self.left -= u32::from(strikes);
        strikes
    }
}

/// The faults that a drive has in store. All are off at first.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// Says done, does nothing.
    pub lost_write: Rate,
    /// Lands at another block.
    pub misdirected_write: Rate,
    /// Answers with the data of another place.
    pub misdirected_read: Rate,
    /// Fails once; the next try works.
    pub read_error: Rate,
    /// Fails after having written some of the sectors.
    pub write_error: Rate,
    /// Fails, and the flush after it succeeds although data is lost.
    pub flush_error: Rate,
    /// These bytes can't be read until they're written again.
    pub unreadable: Vec<Range<u64>>,
    /// Lost and misdirected writes strike only within these bytes; anywhere if empty.
    pub within: Range<u64>,
    /// Where misdirected writes land and misdirected reads come from; as `within` if empty.
    pub astray: Range<u64>,
    /// Every operation takes so many times as long; 0 counts as 1.
    pub slowdown: u32,
}

impl Faults {
    /// Where misdirected operations go.
    pub(super) fn elsewhere(&self, size: u64) -> Range<u64> {
        let ranges = [&self.astray, &self.within];
        ranges.into_iter().find(|range| !range.is_empty()).cloned().unwrap_or(0..size)
    }

    pub(super) fn fits_elsewhere(&self, length: u64, size: u64) -> bool {
        let Range { start, end } = self.elsewhere(size);
        length <= end - start
    }

    pub(super) fn may_strike(&self, offset: u64, length: u64) -> bool {
        self.within.is_empty() || (self.within.start <= offset && offset + length <= self.within.end)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FaultKind {
    LostWrite,
    MisdirectedWrite { landed: u64 },
    MisdirectedRead { from: u64 },
    ReadError,
    WriteError,
    FlushError,
    Rot,
    Pulled,
}

/// One fault that did strike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    pub at: Duration,
    pub kind: FaultKind,
    pub offset: u64,
    pub length: u64,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {:?} at {}+{}", self.at, self.kind, self.offset, self.length)
    }
}

/// What struck, and which blocks are therefore not what their writer believes.
#[derive(Clone, Debug, Default)]
pub struct FaultLog {
    pub struck: Vec<Fault>,
    damaged: BTreeSet<u64>,
}

impl FaultLog {
    pub(super) fn record(&mut self, at: Duration, kind: FaultKind, offset: u64, length: u64) {
        self.struck.push(Fault { at, kind, offset, length });
        match kind {
            FaultKind::LostWrite | FaultKind::Rot => self.damage(offset, length),
            FaultKind::MisdirectedWrite { landed } => {
                self.damage(offset, length);
                self.damage(landed, length);
            }
            _ => {}
        }
    }

    fn damage(&mut self, offset: u64, length: u64) {
        self.damaged.extend(offset / BLOCK..(offset + length).div_ceil(BLOCK));
    }

    /// These blocks hold again what their writer meant.
    pub(super) fn rewritten(&mut self, offset: u64, length: u64) {
        if !self.damaged.is_empty() {
            let range = offset / BLOCK..(offset + length) / BLOCK;
            self.damaged.retain(|number| !range.contains(number));
        }
    }

    /// Blocks that are not what their writer believes, and haven't been written since.
    pub fn damaged(&self) -> impl Iterator<Item = u64> + '_ {
        self.damaged.iter().copied()
    }

    pub fn count(&self, kind: impl Fn(FaultKind) -> bool) -> usize {
        self.struck.iter().filter(|fault| kind(fault.kind)).count()
    }
}

/// Tells whether a log that was damaged has gone on since, long enough for what's behind the damage to show it.
///
/// Damage to the newest record of a log looks like a write that a power cut prevented: no drive can tell by itself.
#[derive(Clone, Debug, Default)]
pub(super) struct LogWatch {
    pub within: Range<u64>,
    damaged: bool,
    /// Position of the newest write that no flush has covered yet.
    written: Option<u64>,
    /// How often it was written to and then flushed since the damage.
    rounds: u32,
}

/// After so many rounds some whole record says that the damaged one had been stable.
const ROUNDS: u32 = 3;

impl LogWatch {
    fn overlaps(&self, offset: u64, length: u64) -> bool {
        offset < self.within.end && self.within.start < offset + length
    }

    pub fn damage(&mut self, offset: u64, length: u64) {
        if self.overlaps(offset, length) {
            (self.damaged, self.rounds, self.written) = (true, 0, None);
        }
    }

    pub fn wrote(&mut self, offset: u64, length: u64, position: u64) {
        if self.overlaps(offset, length) {
            self.written = Some(position);
        }
    }

    pub fn flushed(&mut self, mark: u64) {
        if self.written.take_if(|written| *written <= mark).is_some() {
            self.rounds += 1;
        }
    }

    pub fn end_is_unsure(&self) -> bool {
        self.damaged && self.rounds < ROUNDS
    }
}
