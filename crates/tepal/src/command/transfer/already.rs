//! Whether a volume holds already what a stream leads to: an earlier try may have written all of it, and made no snapshot of it.

use super::{PIECE, is_zero};
use crate::client::{Client, ClientError};
use crate::command::CommandError;
use crate::command::snapshot::Differences;
use crate::command::source::Source;
use crate::difference_file::Piece;
use crate::output::Progress;
use std::collections::VecDeque;
use std::ops::Range;
use tepal_server::api::types::VolumeInfo;

/// Whether the volume holds just what the pieces lead to. `changed`: in what it differs from what the pieces are based on; if they are
/// based on nothing, all else is to be zeros.
pub fn holds(
    client: &Client,
    volume: &VolumeInfo,
    (mut changed, size): (Option<Changed<'_>>, u64),
    mut next: impl FnMut(&mut Vec<u8>) -> Result<Option<Piece>, CommandError>,
) -> Result<bool, CommandError> {
    let source = Source::of_volume(client, volume);
    if source.size != size {
        return Ok(false);
    }
    let mut progress = Progress::new(format!("comparing {}", volume.name));
    let (mut data, mut end) = (Vec::new(), 0);
    // Whether nothing but what is in pieces was changed.
    let mut is_as_before = |from: u64, to: u64| match &mut changed {
        Some(changed) => changed.pass(from, to),
        None => Ok(reads_as_zeros(&source, from, to)?),
    };
    while let Some(piece) = next(&mut data)? {
        let (offset, length) = match piece {
            Piece::Data { offset } => (offset, data.len() as u64),
            Piece::Zeros { offset, length } => (offset, length),
        };
        let is_there = match piece {
            Piece::Data { .. } => source.read(offset, length)? == data,
            Piece::Zeros { .. } => reads_as_zeros(&source, offset, offset + length)?,
        };
        if !is_there || !is_as_before(end, offset)? {
            return Ok(false);
        }
        end = offset + length;
        progress.set(end, size);
    }
    is_as_before(end, size)
}

pub fn reads_as_zeros(source: &Source<'_>, from: u64, end: u64) -> Result<bool, ClientError> {
    let mut at = from;
    while at < end {
        for run in source.map(at, end - at)? {
            let run_end = end.min(at + run.length);
            while at < run_end {
                let length = if run.mapped { (run_end - at).min(PIECE) } else { run_end - at };
                if run.mapped && !is_zero(&source.read(at, length)?) {
                    return Ok(false);
                }
                at += length;
            }
        }
    }
    Ok(true)
}

/// In what a volume differs from a snapshot: ranges of whole blocks, ascending and apart, asked for as they are needed.
pub struct Changed<'a> {
    /// The snapshot and the volume, to be read. `None`: all bytes of the ranges differ.
    both: Option<[&'a Source<'a>; 2]>,
    /// `None` once all were asked for.
    pages: Option<Differences<'a>>,
    runs: VecDeque<Range<u64>>,
    /// The volume ends before the snapshot does.
    pub is_cut_off: bool,
}

impl<'a> Changed<'a> {
    /// Looks up to the first of them.
    pub fn look(client: &'a Client, base: &'a Source<'a>, now: &'a Source<'a>) -> Result<Self, CommandError> {
        let pages = Some(Differences::new(client, base, now)?);
        let (both, is_cut_off) = (Some([base, now]), now.size < base.size);
        let mut changed = Changed { both, pages, runs: VecDeque::new(), is_cut_off };
        let mut progress = Progress::new(format!("comparing {} with {}", now.name, base.name));
        while changed.runs.is_empty()
            && let Some(reached) = changed.ask()?
        {
            progress.set(reached, now.size);
        }
        Ok(changed)
    }

    /// Whether all that both have is the same.
    pub fn is_none(&self) -> bool {
        self.runs.is_empty()
    }

    /// How far the ranges are known. `None` if all were known.
    fn ask(&mut self) -> Result<Option<u64>, CommandError> {
        let Some(pages) = &mut self.pages else { return Ok(None) };
        let Some(page) = pages.next()? else {
            self.pages = None;
            return Ok(None);
        };
        self.runs.extend(page.runs.iter().map(|run| run.offset..run.offset + run.length));
        Ok(Some(page.next.unwrap_or(page.to_size)))
    }

    /// Whether nothing between these bytes differs. What lies before them isn't asked about any more, and they only rise.
    pub fn pass(&mut self, from: u64, end: u64) -> Result<bool, CommandError> {
        let mut at = from;
        while at < end {
            let Some(run) = self.runs.front() else {
                if self.ask()?.is_none() {
                    return Ok(true);
                }
                continue;
            };
            let (begins, ends) = (run.start.max(at), run.end.min(end));
            if run.end <= at {
                self.runs.pop_front();
            } else if begins >= end {
                return Ok(true);
            } else if self.differs(begins, ends)? {
                return Ok(false);
            } else {
                at = ends;
            }
        }
        Ok(true)
    }

    /// Whether the bytes of a range differ: of a block at its edge, some may be the same.
    fn differs(&self, from: u64, end: u64) -> Result<bool, ClientError> {
        let Some([base, now]) = self.both else { return Ok(true) };
        let mut at = from;
        while at < end {
            let length = (end - at).min(PIECE);
            let there = base.size.saturating_sub(at).min(length);
            let mut before = if there > 0 { base.read(at, there)? } else { Vec::new() };
            before.resize(length as usize, 0);
            if now.read(at, length)? != before {
                return Ok(true);
            }
            at += length;
        }
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::single_range_in_vec_init, reason = "one run of several")]
    fn what_differs_outside_of_all_pieces_is_found() {
        let passes = |runs: &[Range<u64>], pieces: &[Range<u64>]| {
            let mut changed =
                Changed { both: None, pages: None, runs: runs.iter().cloned().collect(), is_cut_off: false };
            let ends = [0].into_iter().chain(pieces.iter().map(|piece| piece.end));
            let begins = pieces.iter().map(|piece| piece.start).chain([100]);
            ends.zip(begins).all(|(from, end)| changed.pass(from, end).expect("nothing is asked"))
        };
        assert!(passes(&[], &[]) && passes(&[], &[10..20]) && passes(&[10..20], &[10..20]));
        assert!(passes(&[10..40], &[10..20, 20..40]) && passes(&[10..12, 14..20, 50..60], &[10..20, 50..60]));
        for (runs, pieces) in [
            (&[10..20][..], &[][..]),
            (&[9..20], &[10..20]),
            (&[10..21], &[10..20]),
            (&[10..20, 99..100], &[10..20]),
            (&[10..40], &[10..20, 30..40]),
            (&[0..1, 10..20], &[10..20]),
        ] {
            assert!(!passes(runs, pieces), "{runs:?} {pieces:?}");
        }
    }
}
