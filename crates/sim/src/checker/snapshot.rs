//! Judges what a snapshot shows: a consistent cut of what was written.
//!
//! What was acknowledged before the snapshot was asked for is in it, unless it had gone with a cache; nothing is that was sent after it
//! was answered; and with a write that is in, so is every write that had been acknowledged before that one was sent. Where a volume was
//! rolled back, its past is another from then on.

use super::content::Content;
use super::pattern::{self, OpId, Value};
use super::register::Change;
use super::{Checker, Kind, Moment, Op, Outcome, Span, blocks};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Duration;
use tepal_model::BLOCK;

/// Between these moments a snapshot was taken.
#[derive(Clone, Copy, Debug)]
pub struct Cut {
    asked: Moment,
    answered: Moment,
}

/// That the volume was rolled back.
pub(super) struct Restored {
    /// When that was asked for.
    pub begun: Moment,
    /// And answered.
    pub over: Moment,
    /// What it was from then on.
    pub content: BTreeMap<u64, Content>,
}

/// Some bytes of one block that every write covers or doesn't touch, and what a snapshot shows there.
struct Piece<'a> {
    block: u64,
    span: Span,
    /// Those that cover it.
    writes: Vec<(OpId, &'a Op)>,
    /// Which of them it may be that it shows: of a few bytes, several may have written the same.
    shown: Vec<(OpId, &'a Op)>,
    /// Whether it may be that nobody had written there yet.
    shows_base: bool,
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
        let certain =
            pieces.iter().filter(|piece| !piece.shows_base).filter_map(|piece| match piece.shown.as_slice() {
                [(_, only)] if matches!(only.kind, Kind::Write { .. }) => Some(only.begun),
                _ => None,
            });
        let before = certain.max().unwrap_or(0).max(cut.asked);
        let since = self.restored_before(cut).map_or(0, |restored| restored.over);
        pieces.iter().try_for_each(|piece| piece.has_all(since..before, cut))
    }

    /// While nothing was under way, the volume became what a snapshot shows that was right.
    pub fn rolled_back(&mut self, cut: Cut, data: &[u8]) -> Result<(), String> {
        let content = self.content_of(data, cut)?;
        for (&block, register) in &mut self.registers {
            register.restore(content.get(&block).cloned().unwrap_or_else(|| self.origin.content(block)));
        }
        self.moment += 1;
        self.restored.push(Restored { begun: self.moment, over: self.moment, content });
        Ok(())
    }

    /// While all goes on, the volume is about to become what a snapshot shows that was right, of which `data` is all. `most`: how
    /// long it was at most. Until the end of the request is told, no snapshot may be asked for.
    pub fn roll_back_asked(&mut self, now: Duration, cut: Cut, data: &[u8], most: u64) -> Result<OpId, String> {
        let mut content = self.content_of(data, cut)?;
        // What lies past its end isn't told by it, and nobody reads that before it was cut off.
        let end = data.len() as u64;
        for (number, span) in blocks(end, most.saturating_sub(end)).filter(|(_, span)| !span.is_empty()) {
            if self.registers.contains_key(&number) {
                let within = content.remove(&number).unwrap_or_else(|| self.origin.content(number));
                content.insert(number, within.overlaid(&span, Value::Anything));
            }
        }
        let op = self.note(now, Kind::RollBack, 0, most);
        for (number, register) in &mut self.registers {
            let was = content.get(number).cloned().unwrap_or_else(|| self.origin.content(*number));
            register.begin_write(op, Change::Whole(was), self.moment);
        }
        self.sweeps.push(op);
        self.restored.push(Restored { begun: self.moment, over: Moment::MAX, content });
        Ok(op)
    }

    /// Of blocks that ever held something.
    fn content_of(&self, data: &[u8], cut: Cut) -> Result<BTreeMap<u64, Content>, String> {
        let base = self.restored_before(cut).map(|restored| restored.content.clone());
        let mut content: BTreeMap<u64, Content> = base.unwrap_or_default();
        for Piece { block, span, shown, .. } in self.pieces(data, cut)? {
            let Some((id, op)) = shown.last() else { continue };
            let before = content.remove(&block).unwrap_or_else(|| self.origin.content(block));
            content.insert(block, before.overlaid(&span, value_of(*id, op)));
        }
        Ok(content)
    }

    /// What the volume was rolled back to last, before a snapshot was asked for.
    fn restored_before(&self, cut: Cut) -> Option<&Restored> {
        self.restored.iter().rev().find(|restored| restored.begun < cut.asked)
    }

    fn pieces(&self, data: &[u8], cut: Cut) -> Result<Vec<Piece<'_>>, String> {
        let mut writes: BTreeMap<u64, Vec<(OpId, &Op, Span)>> = BTreeMap::new();
        let restored = self.restored_before(cut);
        let (since, base) = (restored.map_or(0, |restored| restored.begun), restored.map(|restored| &restored.content));
        // What was under way when it was rolled back may have been done before that or after.
        let is_after = |op: &Op| op.begun > since || (self.rules.late && (!is_done(op) || op.over > since));
        let is_seen =
            |op: &Op| op.kind.is_write() && op.kind != Kind::RollBack && op.begun < cut.answered && is_after(op);
        for (nth, op) in self.ops.iter().enumerate().filter(|(_, op)| is_seen(op)) {
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
            let ends = ends.into_iter().filter(|end| usize::from(*end) < bytes.len());
            let ends: Vec<u16> = [0].into_iter().chain(ends).chain([bytes.len() as u16]).collect();
            for (start, end) in ends.windows(2).map(|ends| (ends[0], ends[1])).filter(|(start, end)| start < end) {
                let covers = |(.., span): &&(OpId, &Op, Span)| span.start <= start && span.end >= end;
                let writes = of_block.iter().filter(covers).map(|&(id, op, _)| (id, op)).collect();
                let base = base.and_then(|base| base.get(&block));
                pieces.push(self.piece((block, start..end), writes, base, &bytes[start.into()..end.into()])?);
            }
        }
        Ok(pieces)
    }

    fn piece<'a>(
        &self,
        (block, span): (u64, Span),
        writes: Vec<(OpId, &'a Op)>,
        base: Option<&Content>,
        bytes: &[u8],
    ) -> Result<Piece<'a>, String> {
        let offset = block * BLOCK + u64::from(span.start);
        let is_shown = |&&(id, op): &&(OpId, &Op)| pattern::matches(self.seed, value_of(id, op), offset, bytes);
        let shown: Vec<_> = writes.iter().filter(is_shown).copied().collect();
        let base = base.cloned().unwrap_or_else(|| self.origin.content(block));
        let shows_base = base.shows(self.seed, block * BLOCK, &span, bytes);
        if shown.is_empty() && !shows_base {
            return Err(format!("a snapshot shows at {offset} what nobody had written there before it was answered"));
        }
        Ok(Piece { block, span, writes, shown, shows_base })
    }
}

fn value_of(id: OpId, op: &Op) -> Value {
    if matches!(op.kind, Kind::Write { .. }) { Value::Written(id) } else { Value::Zero }
}

fn is_done(op: &Op) -> bool {
    matches!(op.ended, Some((_, Outcome::Done)))
}

impl Piece<'_> {
    /// Nothing newer is missing that was sent and acknowledged between these moments.
    fn has_all(&self, between: Range<Moment>, cut: Cut) -> Result<(), String> {
        let is_older = |one: &Op, than: &Op| is_done(one) && one.over < than.begun;
        let is_due = |op: &Op| is_done(op) && !op.may_be_lost && op.begun > between.start && op.over < between.end;
        let due = self.writes.iter().filter(|(_, op)| is_due(op));
        for (id, write) in due {
            if self.shown.iter().all(|(_, shown)| is_older(shown, write)) {
                let shown: Vec<OpId> = self.shown.iter().map(|(id, _)| *id).collect();
                return Err(format!("a snapshot shows {shown:?} in block {} and lacks {id:?}: {cut:?}", self.block));
            }
        }
        Ok(())
    }
}
