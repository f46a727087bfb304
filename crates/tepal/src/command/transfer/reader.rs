//! What is read of a volume or snapshot for an export, also past what is damaged.

use super::{PIECE, TransferError};
use crate::client::ClientError;
use crate::command::CommandError;
use crate::command::source::Source;
use crate::output::{self, Output};
use std::cell::RefCell;
use std::io::Write;
use tepal_model::BLOCK;
use tepal_server::api::types::{MapRun, Range};

/// As far as is looked ahead for holes.
const LOOK_AHEAD: u64 = 1 << 40;
/// Holes are told of in parts, so that it's seen that it goes on.
const LONGEST_HOLE: u64 = 1 << 30;

/// What is read at a time of what is lost: a data fragment of an erasure code's stripe, or a part of one.
const UNIT: u64 = 64 << 10;

pub struct Reader<'a> {
    pub source: &'a Source<'a>,
    /// What only drives had that have failed: nobody answers for it.
    lost: Vec<Range>,
    /// Whether some of that may be there: not all that an erasure code keeps has to be decoded.
    has_code: bool,
    /// What is damaged is zeros, and told at the end.
    keep_going: bool,
    damaged: RefCell<Vec<Range>>,
}

/// Part of what is read.
pub enum Part {
    Data(Vec<u8>),
    /// So many zeros that drives don't hold.
    Hole(u64),
}

impl<'a> Reader<'a> {
    pub fn new(source: &'a Source<'a>, keep_going: bool) -> Result<Self, TransferError> {
        let mut lost = source.lost();
        lost.retain(|range| range.offset < source.size);
        match lost.first() {
            Some(first) if !keep_going => Err(TransferError::Lost {
                what: source.described(),
                bytes: output::size(sum(&lost)),
                offset: first.offset,
            }),
            first => {
                let has_code = first.is_some() && source.has_code();
                Ok(Reader { source, lost, has_code, keep_going, damaged: RefCell::default() })
            }
        }
    }

    /// All of it, in order, without reading what drives don't hold.
    pub fn parts(&self, mut take: impl FnMut(u64, Part) -> Result<(), TransferError>) -> Result<(), TransferError> {
        let mut offset = 0;
        for &Range { offset: lost, length } in &self.lost {
            self.parts_of(offset..lost, &mut take)?;
            offset = (lost + length).min(self.source.size);
            match self.has_code {
                true => self.left_of(lost..offset, &mut take)?,
                false => self.give_up(lost..offset, &mut take)?,
            }
        }
        self.parts_of(offset..self.source.size, &mut take)
    }

    /// What drives have yet of a lost range: an erasure code may have data that it needn't decode.
    fn left_of(
        &self,
        range: std::ops::Range<u64>,
        take: &mut impl FnMut(u64, Part) -> Result<(), TransferError>,
    ) -> Result<(), TransferError> {
        let mut offset = range.start;
        while offset < range.end {
            let end = ((offset / UNIT + 1) * UNIT).min(range.end);
            match self.read_once(offset, end - offset) {
                Ok(bytes) => take(offset, Part::Data(bytes))?,
                Err(TransferError::Damaged { .. }) => self.give_up(offset..end, take)?,
                Err(error) => return Err(error),
            }
            offset = end;
        }
        Ok(())
    }

    /// Zeros in place of what is lost.
    fn give_up(
        &self,
        range: std::ops::Range<u64>,
        take: &mut impl FnMut(u64, Part) -> Result<(), TransferError>,
    ) -> Result<(), TransferError> {
        let length = range.end - range.start;
        self.note(Range { offset: range.start, length });
        take(range.start, Part::Hole(length))
    }

    /// The same of a range.
    pub fn parts_of(
        &self,
        range: std::ops::Range<u64>,
        take: &mut impl FnMut(u64, Part) -> Result<(), TransferError>,
    ) -> Result<(), TransferError> {
        let (size, mut offset) = (range.end, range.start);
        while offset < size {
            let runs: Result<Vec<MapRun>, _> = self.source.map(offset, (size - offset).min(LOOK_AHEAD));
            let runs = match runs {
                // Something of it is lost by now: it's read as if it were there, a piece at a time.
                Err(error) if self.keep_going && error.is_damage() => {
                    vec![MapRun { length: (size - offset).min(PIECE), mapped: true }]
                }
                runs => runs.map_err(|error| self.unreadable(offset, error))?,
            };
            for run in runs {
                let end = size.min(offset.saturating_add(run.length));
                while offset < end {
                    let length = (end - offset).min(if run.mapped { PIECE } else { LONGEST_HOLE });
                    let part = match run.mapped {
                        true => Part::Data(self.read(offset, length)?),
                        false => Part::Hole(length),
                    };
                    take(offset, part)?;
                    offset += length;
                }
            }
        }
        Ok(())
    }

    pub fn read(&self, offset: u64, length: u64) -> Result<Vec<u8>, TransferError> {
        match self.read_once(offset, length) {
            Err(TransferError::Damaged { .. }) if self.keep_going && length <= BLOCK => {
                self.note(Range { offset, length });
                Ok(vec![0; length as usize])
            }
            Err(TransferError::Damaged { .. }) if self.keep_going => {
                let half = (length / 2).next_multiple_of(BLOCK).min(length - 1);
                let mut bytes = self.read(offset, half)?;
                bytes.extend(self.read(offset + half, length - half)?);
                Ok(bytes)
            }
            read => read,
        }
    }

    fn read_once(&self, offset: u64, length: u64) -> Result<Vec<u8>, TransferError> {
        let bytes = self.source.read(offset, length).map_err(|error| self.unreadable(offset, error))?;
        match bytes.len() as u64 {
            found if found == length => Ok(bytes),
            found => Err(TransferError::Short { what: self.source.described(), offset, wanted: length, found }),
        }
    }

    /// Why it isn't read from there on.
    fn unreadable(&self, offset: u64, error: ClientError) -> TransferError {
        let what = self.source.described();
        match error {
            error if error.is_not_found() => {
                let (done, size) = (output::size(offset), output::size(self.source.size));
                TransferError::SourceGone { what, done, size }
            }
            error if error.is_damage() => TransferError::Damaged { what, offset, error },
            error => TransferError::Unreadable { what, offset, error },
        }
    }

    fn note(&self, range: Range) {
        let mut damaged = self.damaged.borrow_mut();
        match damaged.last_mut() {
            Some(last) if last.offset + last.length == range.offset => last.length += range.length,
            _ => damaged.push(range),
        }
    }

    /// Tells what was damaged, if anything was: programs get it on standard error, as the other one has the bytes.
    pub fn conclude(&self, output: Output) -> Result<(), CommandError> {
        let ranges = self.damaged.take();
        if ranges.is_empty() {
            return Ok(());
        }
        if output.is_json() {
            let said = serde_json::json!({ "damaged": ranges });
            let _ = writeln!(std::io::stderr(), "{said}");
        }
        let damaged = sum(&ranges);
        Err(TransferError::KeptGoing { what: self.source.described(), damaged, blocks: ranges }.into())
    }
}

fn sum(ranges: &[Range]) -> u64 {
    ranges.iter().map(|range| range.length).sum()
}
