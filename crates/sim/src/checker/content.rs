//! What one block holds, as the values it's made of.

use super::pattern::{self, Value};
use smallvec::{SmallVec, smallvec};
use std::ops::Range;
use tepal_model::BLOCK;

/// Bytes of one block.
pub type Span = Range<u16>;

pub const WHOLE: Span = 0..BLOCK as u16;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Run {
    end: u16,
    value: Value,
}

/// Runs of values that fill a block; neighbours differ.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Content(SmallVec<[Run; 2]>);

impl Content {
    pub fn of(value: Value) -> Self {
        Content(smallvec![Run { end: WHOLE.end, value }])
    }

    /// The runs with where they start and end.
    pub fn runs(&self) -> impl Iterator<Item = (Span, Value)> + '_ {
        let starts = std::iter::once(0).chain(self.0.iter().map(|run| run.end));
        starts.zip(&self.0).map(|(start, run)| (start..run.end, run.value))
    }

    /// This content with `value` written over `span`.
    pub fn overlaid(&self, span: &Span, value: Value) -> Self {
        if *span == WHOLE {
            return Content::of(value);
        }
        let mut runs: SmallVec<[Run; 2]> = SmallVec::new();
        let mut push = |end: u16, value: Value| match runs.last_mut() {
            Some(last) if last.end >= end => {}
            Some(last) if last.value == value => last.end = end,
            None if end == 0 => {}
            _ => runs.push(Run { end, value }),
        };
        for (run, old) in self.runs().filter(|(run, _)| run.start < span.start) {
            push(run.end.min(span.start), old);
        }
        push(span.end, value);
        for (run, old) in self.runs().filter(|(run, _)| run.end > span.end) {
            push(run.end, old);
        }
        Content(runs)
    }

    /// Whether `data` is what the bytes `span` of the block at `offset` read as.
    pub fn shows(&self, seed: u64, offset: u64, span: &Span, data: &[u8]) -> bool {
        self.runs().all(|(run, value)| {
            let (start, end) = (run.start.max(span.start), run.end.min(span.end));
            start >= end || {
                let piece = &data[usize::from(start - span.start)..usize::from(end - span.start)];
                pattern::matches(seed, value, offset + u64::from(start), piece)
            }
        })
    }

    /// Where in the block `data`, read from its bytes `span`, isn't this content.
    pub fn first_difference(&self, seed: u64, offset: u64, span: &Span, data: &[u8]) -> Option<u16> {
        let differs = |&at: &u16| {
            let byte = usize::from(at - span.start);
            !self.shows(seed, offset, &(at..at + 1), &data[byte..byte + 1])
        };
        if data.len() < span.len() { None } else { span.clone().find(differs) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::pattern::OpId;
    use super::*;

    fn written(op: u32) -> Value {
        Value::Written(OpId(op))
    }

    #[test]
    fn a_partial_write_keeps_what_is_around_it() {
        let content = Content::of(written(1)).overlaid(&(100..200), written(2)).overlaid(&(150..300), Value::Zero);
        let runs: Vec<_> = content.runs().collect();
        assert_eq!(
            runs,
            [(0..100, written(1)), (100..150, written(2)), (150..300, Value::Zero), (300..4096, written(1))]
        );
        assert_eq!(content.overlaid(&(50..350), written(1)), Content::of(written(1)), "equal neighbours join");
        assert_eq!(content.overlaid(&WHOLE, written(3)), Content::of(written(3)));
        let ends = Content::of(written(1)).overlaid(&(0..10), written(2)).overlaid(&(4000..4096), written(3));
        assert_eq!(ends.runs().map(|(span, _)| span).collect::<Vec<_>>(), [0..10, 10..4000, 4000..4096]);
    }

    #[test]
    fn content_shows_exactly_its_own_bytes() {
        let content = Content::of(written(1)).overlaid(&(100..200), written(2));
        let mut data = vec![0; 4096];
        pattern::fill(5, OpId(1), 8192, &mut data);
        pattern::fill(5, OpId(2), 8292, &mut data[100..200]);
        assert!(content.shows(5, 8192, &WHOLE, &data));
        assert!(content.shows(5, 8192, &(150..250), &data[150..250]));
        assert!(!Content::of(written(1)).shows(5, 8192, &(150..250), &data[150..250]));
        data[199] ^= 1;
        assert!(!content.shows(5, 8192, &WHOLE, &data));
        assert!(content.shows(5, 8192, &(200..300), &data[200..300]));
    }
}
