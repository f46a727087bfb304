//! Judges what a snapshot shows: a consistent cut of what was written.
//!
//! What was acknowledged before the snapshot was asked for is in it; nothing is that was sent after it was answered; and with a
//! write that is in, so is every write that had been acknowledged before that one was sent.

use super::pattern::{self, OpId, Value};
use super::{Checker, Kind, Moment, Op, Outcome, Span, blocks};
use std::collections::{BTreeMap, BTreeSet};
use tepal_model::BLOCK;

/// Between these moments a snapshot was taken.
#[derive(Clone, Copy, Debug)]
pub struct Cut {
    asked: Moment,
    answered: Moment,
}

/// Some bytes of one block that every write covers or doesn't touch, and what a snapshot shows there.
struct Piece<'a> {
    block: u64,
    /// Those that cover it.
    writes: Vec<(OpId, &'a Op)>,
    /// Which of them it may be that it shows: of a few bytes, several may have written the same.
    shown: Vec<(OpId, &'a Op)>,
}

impl Checker {
    /// A snapshot is about to be asked for. Until it's answered, it may be of any later moment.
    pub fn snapshot_asked(&mut self) -> Cut {
        self.moment += 1;
        Cut { asked: self.moment, answered: Moment::MAX }
    }

    /// All of it is known by now.
    pub fn snapshot_answered(&mut self, cut: Cut) -> Cut {
        self.moment += 1;
        Cut { answered: self.moment, ..cut }
    }

    /// `data` is all of what it shows. In words what is wrong with it, if anything.
    pub fn judge_snapshot(&self, cut: Cut, data: &[u8]) -> Result<(), String> {
        let pieces = self.pieces(data, cut)?;
        let certain = pieces.iter().filter_map(|piece| match piece.shown.as_slice() {
            [(_, only)] if matches!(only.kind, Kind::Write { .. }) => Some(only.begun),
            _ => None,
        });
        let before = certain.max().unwrap_or(0).max(cut.asked);
        pieces.iter().try_for_each(|piece| piece.has_all(before, cut))
    }

    fn pieces(&self, data: &[u8], cut: Cut) -> Result<Vec<Piece<'_>>, String> {
        let mut writes: BTreeMap<u64, Vec<(OpId, &Op, Span)>> = BTreeMap::new();
        let changes = self.ops.iter().enumerate().filter(|(_, op)| op.kind.is_write() && op.begun < cut.answered);
        for (nth, op) in changes {
            for (block, span) in blocks(op.offset, op.length).take_while(|(block, _)| block * BLOCK < data.len() as u64)
            {
                writes.entry(block).or_default().push((OpId(nth as u32 + 1), op, span));
            }
        }
        let mut pieces = Vec::new();
        for (nth, bytes) in data.chunks(BLOCK as usize).enumerate() {
            let block = nth as u64;
            let of_block = writes.get(&block).map_or(&[][..], Vec::as_slice);
            let ends: BTreeSet<u16> = of_block.iter().flat_map(|(.., span)| [span.start, span.end]).collect();
            let ends: Vec<u16> = [0].into_iter().chain(ends).chain([bytes.len() as u16]).collect();
            for (start, end) in ends.windows(2).map(|ends| (ends[0], ends[1])).filter(|(start, end)| start < end) {
                let covers = |(.., span): &&(OpId, &Op, Span)| span.start <= start && span.end >= end;
                let writes = of_block.iter().filter(covers).map(|&(id, op, _)| (id, op)).collect();
                let (offset, bytes) = (block * BLOCK + u64::from(start), &bytes[start.into()..end.into()]);
                pieces.push(self.piece(block, writes, offset, bytes)?);
            }
        }
        Ok(pieces)
    }

    fn piece<'a>(
        &self,
        block: u64,
        writes: Vec<(OpId, &'a Op)>,
        offset: u64,
        bytes: &[u8],
    ) -> Result<Piece<'a>, String> {
        let is_shown = |&&(id, op): &&(OpId, &Op)| {
            let value = if matches!(op.kind, Kind::Write { .. }) { Value::Written(id) } else { Value::Zero };
            pattern::matches(self.seed, value, offset, bytes)
        };
        let shown: Vec<_> = writes.iter().filter(is_shown).copied().collect();
        if shown.is_empty() && !pattern::matches(self.seed, Value::Zero, offset, bytes) {
            return Err(format!("a snapshot shows at {offset} what nobody had written there before it was answered"));
        }
        Ok(Piece { block, writes, shown })
    }
}

impl Piece<'_> {
    /// Nothing newer is missing that was acknowledged before that moment.
    fn has_all(&self, before: Moment, cut: Cut) -> Result<(), String> {
        let is_done = |op: &Op| matches!(op.ended, Some((_, Outcome::Done)));
        let is_older = |one: &Op, than: &Op| is_done(one) && one.over < than.begun;
        let due = self.writes.iter().filter(|(_, op)| is_done(op) && op.over < before);
        for (id, write) in due {
            if self.shown.iter().all(|(_, shown)| is_older(shown, write)) {
                let shown: Vec<OpId> = self.shown.iter().map(|(id, _)| *id).collect();
                return Err(format!("a snapshot shows {shown:?} in block {} and lacks {id:?}: {cut:?}", self.block));
            }
        }
        Ok(())
    }
}
