//! Bytes of a volume, read, written, zeroed: dealt out to its columns, and put together again.

use super::Volume;
use super::operation::{Clear, Read, Status, Write, Zero};
use crate::map::Part;
use crate::protocol::primary::Group;
use crate::protocol::primary::bytes::Rest;
use crate::protocol::primary::zero::{STEP, ZEROS_STEP};
use bytes::Bytes;
use futures_util::future::join_all;
use std::ops::Range;
use tepal_drive::world::{Gather, World};
use tepal_model::layout::Durability;
use tepal_model::{Epoch, IoError, Segments};

/// A run of bytes that are all mapped, or all a hole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Bytes, at least one.
    pub length: u64,
    /// Whether drives hold it; else it reads as zeros.
    pub mapped: bool,
}

/// How many extents one question about what is mapped looks at.
const LOOK: usize = 64 << 10;

impl<W: World> Volume<W> {
    fn check_range(&self, offset: u64, length: u64) -> Result<(), IoError> {
        let size = self.size();
        match offset.checked_add(length) {
            Some(end) if end <= size => Ok(()),
            _ => Err(IoError::OutOfRange { offset, length, size }),
        }
    }

    /// An error of a group names places in its column: where they are in the volume.
    pub(crate) fn in_volume(&self, column: usize, error: IoError) -> IoError {
        match error {
            IoError::Damaged { offset, length } => {
                IoError::Damaged { offset: self.striping().offset_of(column, offset), length }
            }
            other => other,
        }
    }

    /// The bytes, in pieces that joined are `length` long. What holds nothing reads as zeros. Waits for copies that may
    /// return; `Damaged` if no copy is right.
    pub async fn read(&self, offset: u64, length: u64) -> Result<Segments, IoError> {
        self.check_range(offset, length)?;
        self.read_at(offset, length, None).await
    }

    /// Of a snapshot, or what the volume has now.
    pub(super) async fn read_at(&self, offset: u64, length: u64, at: Option<Epoch>) -> Result<Segments, IoError> {
        let parts = self.striping().parts(offset, length);
        if let [part] = parts.as_slice() {
            return self.read_part(part, at).await;
        }
        let mut found: Vec<(usize, Segments)> = Vec::new();
        for (part, segments) in parts.iter().zip(join_all(parts.iter().map(|part| self.read_part(part, at))).await) {
            let mut rest = Rest::of(segments?);
            found.extend(part.slices.iter().map(|slice| (slice.start, rest.next(slice.len()))));
        }
        found.sort_unstable_by_key(|(start, _)| *start);
        Ok(found.into_iter().flat_map(|(_, segments)| segments).collect())
    }

    async fn read_part(&self, part: &Part, at: Option<Epoch>) -> Result<Segments, IoError> {
        self.at_primary(part.column, &Read { offset: part.offset, length: part.length(), at }).await
    }

    /// With `fua`, what was written is stable before this returns, whatever the layout's durability.
    pub async fn write(&self, offset: u64, data: Bytes, fua: bool) -> Result<(), IoError> {
        self.check_range(offset, data.len() as u64)?;
        let parts = self.striping().parts(offset, data.len() as u64);
        if let [part] = parts.as_slice() {
            return self.write_part(part.column, part.offset, Gather::from_iter([data]), fua).await;
        }
        // What is stable when a part of it is done is lost with no drive's cache.
        let is_stable = fua || self.is_strict();
        let unstable = parts.iter().filter(|_| !is_stable).filter_map(|part| self.seats()[part.column].group());
        let lost_before: Vec<(Group<W>, u64)> = unstable.map(|group| (group.clone(), group.times_lost())).collect();
        let write = |part: &Part| {
            let gather = part.slices.iter().map(|slice| data.slice(slice.clone())).collect();
            self.write_part(part.column, part.offset, gather, fua)
        };
        // All take their places in line before any is waited for.
        all(join_all(parts.iter().map(write)).await)?;
        // A drive that had its part may have lost it before another was done: it was the only one that had it.
        match lost_before.into_iter().find_map(|(group, before)| group.lost_since(before)) {
            Some(reason) => Err(IoError::Unavailable { reason }),
            None => Ok(()),
        }
    }

    async fn write_part(&self, column: usize, offset: u64, data: Gather, fua: bool) -> Result<(), IoError> {
        self.at_primary(column, &Write { offset, data, fua }).await
    }

    fn is_strict(&self) -> bool {
        self.lock().layout.durability == Durability::Strict
    }

    /// Gives the space back; reads as zeros afterwards. Stable when this returns.
    pub async fn trim(&self, offset: u64, length: u64) -> Result<(), IoError> {
        self.write_zeroes(offset, length, false).await
    }

    /// Zeros, stable when this returns; `allocate` keeps the space.
    pub async fn write_zeroes(&self, offset: u64, length: u64, allocate: bool) -> Result<(), IoError> {
        self.check_range(offset, length)?;
        // One step of each column at a time.
        let step = if allocate { ZEROS_STEP } else { STEP } * self.seats().len() as u64;
        let mut at = offset;
        while at < offset + length {
            let next = ((at / step + 1) * step).min(offset + length);
            let zeros = |column| self.zero_part(column, self.striping().within(column, at..next), allocate);
            all(join_all((0..self.seats().len()).map(zeros)).await)?;
            at = next;
        }
        Ok(())
    }

    async fn zero_part(&self, column: usize, range: Range<u64>, allocate: bool) -> Result<(), IoError> {
        match range.is_empty() {
            true => Ok(()),
            false => self.at_primary(column, &Zero { range, allocate }).await,
        }
    }

    /// Takes out what lies past the volume's end: what was cut off doesn't come back when the volume grows again. No two
    /// of these, nor a change of size, may be under way at a time.
    pub async fn clear_past_end(&self) -> Result<(), IoError> {
        let clear = async |column| self.at_primary(column, &Clear { from: self.end_of(column) }).await;
        all(join_all((0..self.seats().len()).map(clear)).await)
    }

    /// What is mapped, from `offset` on, as runs that differ from their neighbours: at least one, at most `limit`, and at
    /// most `length` bytes.
    pub async fn block_status(&self, offset: u64, length: u64, limit: usize) -> Result<Vec<Run>, IoError> {
        self.check_range(offset, length)?;
        self.block_status_at(offset, length, limit, None).await
    }

    /// Of a snapshot, or of what the volume has now.
    pub(super) async fn block_status_at(
        &self,
        offset: u64,
        length: u64,
        limit: usize,
        snapshot: Option<Epoch>,
    ) -> Result<Vec<Run>, IoError> {
        let mut runs: Vec<Run> = Vec::new();
        let end = offset + length;
        let mut at = offset;
        for _ in 0..LOOK {
            if at >= end {
                break;
            }
            let past = self.striping().end_of_extent(at).min(end);
            let (column, first) = self.striping().locate(at);
            let status = Status { offset: first, length: past - at, at: snapshot };
            for (length, mapped) in self.at_primary(column, &status).await? {
                let full = runs.len() == limit;
                match runs.last_mut() {
                    Some(run) if run.mapped == mapped => run.length += length,
                    _ if full => return Ok(runs),
                    _ => runs.push(Run { length, mapped }),
                }
                at += length;
            }
        }
        Ok(runs)
    }
}

/// All were done, or the first error.
fn all(outcomes: Vec<Result<(), IoError>>) -> Result<(), IoError> {
    outcomes.into_iter().collect()
}
