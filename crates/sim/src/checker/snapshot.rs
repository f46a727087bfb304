//! Judges what a snapshot shows: a consistent cut of what was written.
//!
//! What was acknowledged before the snapshot was asked for is in it, unless it had gone with a cache; nothing is that was sent after it
//! was answered; and with a write that is in, so is every write that had been acknowledged before that one was sent. Where a volume was
//! rolled back, its past is another from then on.

use super::content::Content;
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
    span: Span,
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

    /// While nothing was under way, the volume became what a snapshot shows that was right.
    pub fn rolled_back(&mut self, cut: Cut, data: &[u8]) -> Result<(), String> {
        let content = self.content_of(data, cut)?;
        for (&block, register) in &mut self.registers {
            register.restore(content.get(&block).cloned().unwrap_or_else(|| Content::of(Value::Zero)));
        }
        self.moment += 1;
        self.restored.push((self.moment, content));
        Ok(())
    }

    /// Of blocks that ever held something.
    fn content_of(&self, data: &[u8], cut: Cut) -> Result<BTreeMap<u64, Content>, String> {
        let (_, base) = self.restored_before(cut);
        let mut content: BTreeMap<u64, Content> = base.cloned().unwrap_or_default();
        for Piece { block, span, shown, .. } in self.pieces(data, cut)? {
            let Some((id, op)) = shown.last() else { continue };
            let before = content.remove(&block).unwrap_or_else(|| Content::of(Value::Zero));
            content.insert(block, before.overlaid(&span, value_of(*id, op)));
        }
        Ok(content)
    }

    /// When and to what the volume was rolled back last, before a snapshot was asked for.
    fn restored_before(&self, cut: Cut) -> (Moment, Option<&BTreeMap<u64, Content>>) {
        let before = self.restored.iter().rev().find(|(when, _)| *when < cut.asked);
        before.map_or((0, None), |(when, content)| (*when, Some(content)))
    }

    fn pieces(&self, data: &[u8], cut: Cut) -> Result<Vec<Piece<'_>>, String> {
        let mut writes: BTreeMap<u64, Vec<(OpId, &Op, Span)>> = BTreeMap::new();
        let (since, base) = self.restored_before(cut);
        let is_seen = |op: &Op| op.kind.is_write() && op.begun > since && op.begun < cut.answered;
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
        let shows_base = || match base {
            Some(base) => base.shows(self.seed, block * BLOCK, &span, bytes),
            None => pattern::matches(self.seed, Value::Zero, offset, bytes),
        };
        if shown.is_empty() && !shows_base() {
            return Err(format!("a snapshot shows at {offset} what nobody had written there before it was answered"));
        }
        Ok(Piece { block, span, writes, shown })
    }
}

fn value_of(id: OpId, op: &Op) -> Value {
    if matches!(op.kind, Kind::Write { .. }) { Value::Written(id) } else { Value::Zero }
}

impl Piece<'_> {
    /// Nothing newer is missing that was acknowledged before that moment.
    fn has_all(&self, before: Moment, cut: Cut) -> Result<(), String> {
        let is_done = |op: &Op| matches!(op.ended, Some((_, Outcome::Done)));
        let is_older = |one: &Op, than: &Op| is_done(one) && one.over < than.begun;
        let due = self.writes.iter().filter(|(_, op)| is_done(op) && !op.may_be_lost && op.over < before);
        for (id, write) in due {
            if self.shown.iter().all(|(_, shown)| is_older(shown, write)) {
                let shown: Vec<OpId> = self.shown.iter().map(|(id, _)| *id).collect();
                return Err(format!("a snapshot shows {shown:?} in block {} and lacks {id:?}: {cut:?}", self.block));
            }
        }
        Ok(())
    }
}
