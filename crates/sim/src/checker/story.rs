//! What went wrong, told so that a reader can find the bug: the block, what was read, what was allowed, and who wrote when.

use super::content::Span;
use super::origin::ORIGIN;
use super::pattern::{self, Value};
use super::{Checker, Kind, Op, OpId, Outcome};
use std::fmt::{self, Write};
use tepal_model::BLOCK;

/// An answer that no history of the block explains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Offset of the block in the volume.
    pub offset: u64,
    pub wrong: Wrong,
    story: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// A read returned bytes that the block can't hold.
    Bytes,
    /// A read returned another number of bytes than asked for.
    Length { got: u64 },
    /// The runs of mapped and unmapped bytes don't fit what was asked, or each other.
    Runs,
    /// Blocks were called a hole that must hold something.
    Hole,
    /// A write was acknowledged although reads have shown that it can't have been done.
    Impossible,
    /// A write was refused, and reads have shown its bytes.
    RefusedYetSeen,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.story)
    }
}

impl std::error::Error for Violation {}

/// At most this many lines of history are told.
const TOLD: usize = 40;

impl Checker {
    pub(super) fn tell(&self, number: u64, op: OpId, wrong: Wrong, span: Span, data: &[u8]) -> Violation {
        let offset = number * BLOCK;
        let mut story = format!("block {number} (bytes {offset}..{}), {}: ", offset + BLOCK, self.describe(op));
        let _ = match wrong {
            Wrong::Bytes => writeln!(story, "returned\n{}", self.decode(number, &span, data)),
            Wrong::Length { got } => writeln!(story, "returned {got} bytes"),
            Wrong::Runs => writeln!(story, "told runs of no length, of too much, or two of a kind side by side"),
            Wrong::Hole => writeln!(story, "called a hole"),
            Wrong::Impossible => writeln!(story, "acknowledged, but what was read doesn't allow it"),
            Wrong::RefusedYetSeen => writeln!(story, "refused, but its bytes were read"),
        };
        if let Some(register) = self.registers.get(&number) {
            story.push_str("  allowed:\n");
            for content in register.possible().iter().take(TOLD) {
                story.push_str("   ");
                for (run, value) in content.runs() {
                    let _ = write!(story, " {}..{}: {}", run.start, run.end, name(value));
                }
                if let Some(at) = content.first_difference(self.seed, offset, &span, data) {
                    let _ = write!(story, " (differs first at {at})");
                }
                story.push('\n');
            }
        }
        story.push_str("  history of the block:\n");
        let touches = |op: &Op| op.offset < offset + BLOCK && offset < op.offset + op.length;
        let common = |op: &Op| matches!(op.kind, Kind::Crash(_) | Kind::Flush);
        let told: Vec<usize> = (0..self.ops.len()).filter(|&i| touches(&self.ops[i]) || common(&self.ops[i])).collect();
        for &index in told.iter().rev().take(TOLD).rev() {
            let _ = writeln!(story, "    {}", self.describe(OpId(index as u32 + 1)));
        }
        Violation { offset, wrong, story }
    }

    fn describe(&self, id: OpId) -> String {
        let op = self.op(id);
        let mut text = format!("#{} {:?}", id.0, op.kind);
        if op.length > 0 {
            let _ = write!(text, " {}+{}", op.offset, op.length);
        }
        let _ = write!(text, " from {:?}", op.begun_at);
        let _ = match op.ended {
            Some((at, Outcome::Done)) => write!(text, " to {at:?}"),
            Some((at, Outcome::Refused)) => write!(text, " refused at {at:?}"),
            Some((at, Outcome::Unknown)) => write!(text, " without result at {at:?}"),
            None => write!(text, " under way"),
        };
        text
    }

    /// Which write each byte comes from.
    fn decode(&self, number: u64, span: &Span, data: &[u8]) -> String {
        let base = number * BLOCK;
        let writes = (0..self.ops.len()).filter(|&i| matches!(self.ops[i].kind, Kind::Write { .. }));
        let mut values: Vec<Value> = writes.map(|i| Value::Written(OpId(i as u32 + 1))).collect();
        values.extend([Value::Zero, Value::Written(ORIGIN)]);
        let mut text = String::new();
        let mut at = 0;
        while at < data.len() {
            let offset = base + u64::from(span.start) + at as u64;
            let window = &data[at..data.len().min(at + 16)];
            let best = values.iter().max_by_key(|&&value| pattern::matching_prefix(self.seed, value, offset, window));
            let value = best.copied().filter(|&value| {
                let length = window.len().min(4);
                pattern::matches(self.seed, value, offset, &window[..length])
            });
            let length = match value {
                Some(value) => self.run_length(value, offset, &data[at..]),
                None => self.unknown_length(&values, offset, &data[at..]),
            };
            let from = usize::from(span.start) + at;
            let _ = match value {
                Some(value) => writeln!(text, "    {from}..{}: {}", from + length, name(value)),
                None => {
                    let shown = &data[at..at + length.min(16)];
                    writeln!(text, "    {from}..{}: bytes that nobody wrote here: {shown:02x?}", from + length)
                }
            };
            at += length;
        }
        text.pop();
        text
    }

    fn run_length(&self, value: Value, offset: u64, data: &[u8]) -> usize {
        let mut length = 0;
        for chunk in data.chunks(64) {
            let matching = pattern::matching_prefix(self.seed, value, offset + length as u64, chunk);
            length += matching;
            if matching < chunk.len() {
                break;
            }
        }
        length.max(1)
    }

    /// Up to where no known value begins.
    fn unknown_length(&self, values: &[Value], offset: u64, data: &[u8]) -> usize {
        let known = |at: usize| {
            let piece = &data[at..data.len().min(at + 8)];
            values.iter().any(|&value| pattern::matches(self.seed, value, offset + at as u64, piece))
        };
        (1..data.len()).find(|&at| at.is_multiple_of(8) && known(at)).unwrap_or(data.len())
    }
}

fn name(value: Value) -> String {
    match value {
        Value::Zero => "zeros".to_owned(),
        Value::Anything => "anything".to_owned(),
        Value::Written(ORIGIN) => "what the disk has that is imported".to_owned(),
        Value::Written(op) => format!("write #{}", op.0),
    }
}
