//! Knows what a volume promised (docs/durability.md) and judges every answer by it, block by block, as Crucible's checker
//! does: what is read lies between the last promised and the last issued version, is never mixed, and never goes back.
//!
//! It sits outside the machine under test: it's told when each request begins and how it ends, and of crashes. A request
//! whose machine crashed may have been done or not until an answer tells. Trims and zeroings are writes of zeros. Every
//! write's bytes name the write ([`pattern`]), so a block's bytes tell their own history.

mod content;
mod origin;
pub mod pattern;
mod register;
mod snapshot;
mod story;
#[cfg(test)]
mod tests;

pub use origin::Origin;
pub use pattern::OpId;
pub use snapshot::Cut;
pub use story::Violation;

use bytes::Bytes;
use content::{Content, Span, WHOLE};
use pattern::Value;
use register::{Change, Moment, Register};
use snapshot::Restored;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Duration;
use story::Wrong;
use tepal_model::layout::Durability;
use tepal_model::{BLOCK, Buffer};

/// What was asked of the volume, or happened to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Read,
    Write {
        fua: bool,
    },
    Trim {
        fua: bool,
    },
    Zeroes {
        fua: bool,
    },
    /// The volume shrank, or is about to grow: what lies past its end reads as zeros when it's there again.
    Cut,
    /// The volume becomes what a snapshot shows.
    RollBack,
    /// Which blocks are holes.
    Status,
    Flush,
    Crash(Loss),
}

impl Kind {
    fn fua(self) -> bool {
        matches!(self, Kind::Write { fua: true } | Kind::Trim { fua: true } | Kind::Zeroes { fua: true })
    }

    pub fn is_write(self) -> bool {
        matches!(self, Kind::Write { .. } | Kind::Trim { .. } | Kind::Zeroes { .. } | Kind::Cut | Kind::RollBack)
    }
}

/// What a crash takes with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// `kill -9`: only what was under way.
    Process,
    /// Also what is only in caches.
    Power,
    /// What is only in one drive's cache.
    Drive,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Done,
    /// Refused: surely not done.
    Refused,
    /// Failed, cut off or given up: done or not.
    Unknown,
}

/// How a request ended that wasn't done, as far as anybody can know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// None of it was or will be done.
    Refused,
    /// It may be done now, in part, or not.
    Unknown,
}

/// One line of the run's history.
#[derive(Clone, Debug)]
struct Op {
    kind: Kind,
    offset: u64,
    length: u64,
    begun: Moment,
    begun_at: Duration,
    ended: Option<(Duration, Outcome)>,
    /// The moment of that.
    over: Moment,
    /// It was done, and may have gone with a cache since.
    may_be_lost: bool,
}

/// What the layout promises and what the scenario knows.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    pub durability: Durability,
    /// A read after a crash settles what the crash had left open. Not so where another copy may answer later.
    pub reads_settle: bool,
    /// What a client gave up, or died of, may be done at any time afterwards: it's on its way, to others than those that died.
    pub late: bool,
}

pub struct Checker {
    seed: u64,
    rules: Rules,
    /// What blocks hold to which nobody has written.
    origin: Origin,
    registers: BTreeMap<u64, Register>,
    ops: Vec<Op>,
    under_way: BTreeSet<OpId>,
    moment: Moment,
    /// Cuts and rollbacks that may still be done: also of blocks that nobody has written to yet.
    sweeps: Vec<OpId>,
    /// Each time that the volume was rolled back.
    restored: Vec<Restored>,
}

/// The blocks that these bytes touch, each with which of its bytes.
fn blocks(offset: u64, length: u64) -> impl Iterator<Item = (u64, Span)> {
    (offset / BLOCK..(offset + length).div_ceil(BLOCK)).map(move |number| {
        let start = offset.saturating_sub(number * BLOCK);
        let end = (offset + length - number * BLOCK).min(BLOCK);
        (number, start as u16..end as u16)
    })
}

impl Checker {
    /// Of a volume of zeros.
    pub fn new(seed: u64, rules: Rules) -> Self {
        let (registers, under_way, sweeps) = (BTreeMap::new(), BTreeSet::new(), Vec::new());
        let origin = Origin::default();
        Checker { seed, rules, origin, registers, ops: Vec::new(), under_way, moment: 0, sweeps, restored: Vec::new() }
    }

    /// Of a volume of that size that is imported from a shorter disk, with holes at multiples of `grain`.
    pub fn of_imported(seed: u64, rules: Rules, size: u64, (length, grain): (u64, u64)) -> Self {
        let mut checker = Checker { origin: Origin::disk(seed, length, grain), ..Checker::new(seed, rules) };
        // Of a block that isn't known yet nobody would know that it was cut off.
        for (number, _) in blocks(0, size) {
            checker.register(number);
        }
        checker
    }

    /// What the volume holds where nobody has written.
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// How many operations there were.
    pub fn count(&self) -> usize {
        self.ops.len()
    }

    /// The most that is under way or unsettled on any block of these bytes. A caller that keeps it small keeps the checker
    /// fast.
    pub fn load(&self, offset: u64, length: u64) -> usize {
        let touched = self.registers.range(offset / BLOCK..(offset + length).div_ceil(BLOCK));
        touched.map(|(_, register)| register.load()).max().unwrap_or(0)
    }

    /// Blocks that anything was ever asked of, as ranges of bytes.
    pub fn touched(&self) -> Vec<Range<u64>> {
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for &number in self.registers.keys() {
            match ranges.last_mut() {
                Some(last) if last.end == number * BLOCK => last.end += BLOCK,
                _ => ranges.push(number * BLOCK..(number + 1) * BLOCK),
            }
        }
        ranges
    }

    /// A request is about to be sent.
    pub fn begin(&mut self, now: Duration, kind: Kind, offset: u64, length: u64) -> OpId {
        let op = self.note(now, kind, offset, length);
        for (number, span) in blocks(offset, length) {
            // Past a volume's end hardly anybody asks for anything.
            if kind == Kind::Cut && number > offset / BLOCK && !self.registers.contains_key(&number) {
                continue;
            }
            let moment = self.moment;
            let register = self.register(number);
            match kind {
                Kind::Read | Kind::Status => register.begin_read(op),
                Kind::Write { .. } => register.begin_write(op, Change::Over(span, Value::Written(op)), moment),
                Kind::Trim { .. } | Kind::Zeroes { .. } | Kind::Cut => {
                    register.begin_write(op, Change::Over(span, Value::Zero), moment);
                }
                Kind::RollBack | Kind::Flush | Kind::Crash(_) => {}
            }
        }
        self.sweeps.extend((kind == Kind::Cut).then_some(op));
        op
    }

    fn note(&mut self, now: Duration, kind: Kind, offset: u64, length: u64) -> OpId {
        self.moment += 1;
        let op = OpId(self.ops.len() as u32 + 1);
        let (begun, ended, over, may_be_lost) = (self.moment, None, Moment::MAX, false);
        self.ops.push(Op { kind, offset, length, begun, begun_at: now, ended, over, may_be_lost });
        self.under_way.insert(op);
        op
    }

    /// Of a block, with all that may become of it if it's new.
    fn register(&mut self, number: u64) -> &mut Register {
        let (sweeps, ops, origin) = (&self.sweeps, &self.ops, &self.origin);
        let keeps_past = self.rules.durability == Durability::Flush;
        self.registers.entry(number).or_insert_with(|| {
            let mut register = Register::new(origin.content(number), keeps_past);
            for &sweep in sweeps {
                let Op { offset, length, begun, .. } = ops[sweep.0 as usize - 1];
                let (start, end) = (offset.max(number * BLOCK), (offset + length).min((number + 1) * BLOCK));
                if let Some((_, span)) = (start < end).then(|| blocks(start, end - start).next()).flatten() {
                    register.begin_write(sweep, Change::Over(span, Value::Zero), begun);
                }
            }
            register
        })
    }

    /// The volume is longer from now on: whoever had begun to take out what lay past its end goes on no more.
    pub fn grown(&mut self) {
        self.moment += 1;
        let (ops, moment) = (&self.ops, self.moment);
        for cut in self.sweeps.extract_if(.., |sweep| ops[sweep.0 as usize - 1].kind == Kind::Cut) {
            self.registers.values_mut().for_each(|register| register.abandon_write(cut, moment));
        }
    }

    /// Whoever asked for these changes was fenced: those that aren't done by now never are.
    pub fn fenced(&mut self, changes: &[OpId]) {
        self.moment += 1;
        for &op in changes {
            let Op { offset, length, .. } = *self.op(op);
            for (number, _) in blocks(offset, length) {
                if let Some(register) = self.registers.get_mut(&number) {
                    register.abandon_write(op, self.moment);
                }
            }
        }
    }

    /// Who asks for this change was fenced before it began: none of it may be done, nor acknowledged.
    pub fn forbidden(&mut self, op: OpId) {
        let Op { offset, length, .. } = *self.op(op);
        for (number, _) in blocks(offset, length) {
            let refused = self.registers.get_mut(&number).map(|register| register.refuse_write(op));
            assert!(refused != Some(Err(register::Contradiction)), "it has just begun, and nobody has seen it");
        }
    }

    /// The bytes that a write writes.
    pub fn data(&self, op: OpId) -> Bytes {
        let Op { offset, length, .. } = *self.op(op);
        let mut data = Buffer::take(length as usize);
        pattern::fill(self.seed, op, offset, &mut data);
        data.freeze()
    }

    fn op(&self, op: OpId) -> &Op {
        &self.ops[op.0 as usize - 1]
    }

    fn end(&mut self, op: OpId, now: Duration, outcome: Outcome) -> Op {
        self.moment += 1;
        assert!(self.under_way.remove(&op), "{op:?} has ended before");
        let record = &mut self.ops[op.0 as usize - 1];
        record.ended = Some((now, outcome));
        record.over = self.moment;
        record.clone()
    }

    /// A write, trim, zeroing or flush was acknowledged.
    pub fn acknowledged(&mut self, now: Duration, op: OpId) -> Result<(), Violation> {
        let ended = self.end(op, now, Outcome::Done);
        if ended.kind == Kind::Flush {
            self.registers.values_mut().for_each(|register| register.flushed(ended.begun));
            return Ok(());
        }
        self.sweeps.retain(|sweep| *sweep != op);
        let restored = self.restored.iter_mut().filter(|restored| restored.begun == ended.begun);
        restored.for_each(|restored| restored.over = ended.over);
        for (number, span) in blocks(ended.offset, ended.length) {
            let Some(register) = self.registers.get_mut(&number) else { continue };
            if register.end_write(op, ended.kind.fua(), self.moment).is_err() {
                return Err(self.tell(number, op, Wrong::Impossible, span, &[]));
            }
        }
        Ok(())
    }

    /// A read returned these bytes.
    pub fn returned(&mut self, now: Duration, op: OpId, data: &[u8]) -> Result<(), Violation> {
        let ended = self.end(op, now, Outcome::Done);
        if data.len() as u64 != ended.length {
            return Err(self.tell(ended.offset / BLOCK, op, Wrong::Length { got: data.len() as u64 }, WHOLE, &[]));
        }
        let settles = self.rules.reads_settle.then_some(ended.begun);
        for (number, span) in blocks(ended.offset, ended.length) {
            let start = number * BLOCK + u64::from(span.start) - ended.offset;
            let piece = &data[start as usize..start as usize + span.len()];
            let Some(register) = self.registers.get_mut(&number) else { continue };
            let fits = |content: &Content| content.shows(self.seed, number * BLOCK, &span, piece);
            if register.end_read(op, fits, settles, self.moment).is_err() {
                return Err(self.tell(number, op, Wrong::Bytes, span, piece));
            }
        }
        Ok(())
    }

    /// It was told which bytes are mapped, as lengths of runs from the start of what was asked. A hole must be able to read
    /// as zeros; what is mapped may hold anything.
    pub fn told(&mut self, now: Duration, op: OpId, runs: &[(u64, bool)]) -> Result<(), Violation> {
        let ended = self.end(op, now, Outcome::Done);
        let asked = ended.offset..ended.offset + ended.length;
        let told: u64 = runs.iter().map(|run| run.0).sum();
        let alternate = runs.iter().zip(runs.iter().skip(1)).all(|(one, next)| one.1 != next.1);
        if told == 0 || told > ended.length || !alternate || runs.iter().any(|run| run.0 == 0) {
            return Err(self.tell(ended.offset / BLOCK, op, Wrong::Runs, WHOLE, &[]));
        }
        let mut at = asked.start;
        for &(length, mapped) in runs {
            for (number, span) in blocks(at, length).filter(|_| !mapped) {
                let Some(register) = self.registers.get(&number) else { continue };
                let zeros = [0; BLOCK as usize];
                let hole = |content: &Content| content.shows(self.seed, number * BLOCK, &span, &zeros[..span.len()]);
                if !register.may_show(op, hole) {
                    return Err(self.tell(number, op, Wrong::Hole, span, &[]));
                }
            }
            at += length;
        }
        for (number, _) in blocks(ended.offset, ended.length) {
            if let Some(register) = self.registers.get_mut(&number) {
                register.end_read_unseen(op);
            }
        }
        Ok(())
    }

    /// A request failed, or whoever sent it gave it up.
    pub fn failed(&mut self, now: Duration, op: OpId, fate: Fate) -> Result<(), Violation> {
        let outcome = if fate == Fate::Refused { Outcome::Refused } else { Outcome::Unknown };
        let ended = self.end(op, now, outcome);
        for (number, span) in blocks(ended.offset, ended.length) {
            let Some(register) = self.registers.get_mut(&number) else { continue };
            match fate {
                _ if !ended.kind.is_write() => register.end_read_unseen(op),
                Fate::Unknown if self.rules.late => {}
                Fate::Unknown => register.abandon_write(op, self.moment),
                Fate::Refused => {
                    if register.refuse_write(op).is_err() {
                        return Err(self.tell(number, op, Wrong::RefusedYetSeen, span, &[]));
                    }
                }
            }
        }
        Ok(())
    }

    /// The machine crashed: nothing that was under way will be answered.
    pub fn crashed(&mut self, now: Duration, loss: Loss) {
        for op in self.under_way.clone() {
            self.failed(now, op, Fate::Unknown).expect("nothing is refused by a crash");
        }
        if loss == Loss::Power {
            self.lose_caches(|_| true);
        }
        let crash = self.begin(now, Kind::Crash(loss), 0, 0);
        self.end(crash, now, Outcome::Done);
        for register in self.registers.values_mut() {
            register.crashed(self.moment);
            if loss == Loss::Power {
                register.power_lost();
            }
        }
    }

    /// A drive was without power while its server went on. `alone`: the blocks that no other drive has all of.
    pub fn drive_returned(&mut self, now: Duration, alone: impl Fn(u64) -> bool) {
        let crash = self.begin(now, Kind::Crash(Loss::Drive), 0, 0);
        self.end(crash, now, Outcome::Done);
        let registers = self.registers.iter_mut().filter(|(number, _)| alone(**number));
        registers.for_each(|(_, register)| register.cache_lost());
        self.lose_caches(alone);
    }

    /// What was done of these blocks, and not flushed since, may be gone.
    fn lose_caches(&mut self, lost: impl Fn(u64) -> bool) {
        if self.rules.durability == Durability::Strict {
            return;
        }
        let is_done = |op: &Op| matches!(op.ended, Some((_, Outcome::Done)));
        let flushes = self.ops.iter().filter(|op| op.kind == Kind::Flush && is_done(op)).map(|op| op.begun);
        let flushed = flushes.max().unwrap_or(0);
        let unflushed = |op: &&mut Op| op.kind.is_write() && !op.kind.fua() && is_done(op) && op.over > flushed;
        for op in self.ops.iter_mut().filter(unflushed) {
            op.may_be_lost |= blocks(op.offset, op.length).any(|(block, _)| lost(block));
        }
    }
}
