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
    expected: (Option<Changed<'_>>, u64),
    next: impl FnMut(&mut Vec<u8>) -> Result<Option<Piece>, CommandError>,
) -> Result<bool, CommandError> {
    Ok(first_difference(&Source::of_volume(client, volume), expected, next)?.is_none())
}

/// The first byte that isn't what the pieces lead to, as for [`holds`].
pub fn first_difference(
    source: &Source<'_>,
    (mut changed, size): (Option<Changed<'_>>, u64),
    mut next: impl FnMut(&mut Vec<u8>) -> Result<Option<Piece>, CommandError>,
) -> Result<Option<u64>, CommandError> {
    if source.size != size {
        return Ok(Some(source.size.min(size)));
    }
    let mut progress = Progress::new(format!("comparing {}", source.name));
    let (mut data, mut end) = (Vec::new(), 0);
    // Nothing but what is in pieces was changed.
    let mut changed_between = |from: u64, to: u64| match &mut changed {
        Some(changed) => changed.first(from, to),
        None => Ok(first_byte(source, from, to)?),
    };
    while let Some(piece) = next(&mut data)? {
        let (offset, length) = match piece {
            Piece::Data { offset } => (offset, data.len() as u64),
            Piece::Zeros { offset, length } => (offset, length),
        };
        let mut found = changed_between(end, offset)?;
        if found.is_none() {
            found = match piece {
                Piece::Data { .. } => differs_at(&source.read(offset, length)?, &data).map(|at| offset + at),
                Piece::Zeros { .. } => first_byte(source, offset, offset + length)?,
            };
        }
        if found.is_some() {
            return Ok(found);
        }
        end = offset + length;
        progress.set(end, size);
    }
    changed_between(end, size)
}

/// Of what both have, or where one ends.
fn differs_at(one: &[u8], other: &[u8]) -> Option<u64> {
    (one != other).then(|| one.iter().zip(other).take_while(|(one, other)| one == other).count() as u64)
}

/// Where the first byte is that isn't zero.
fn first_byte(source: &Source<'_>, from: u64, end: u64) -> Result<Option<u64>, ClientError> {
    let mut at = from;
    while at < end {
        for run in source.map(at, end - at)? {
            let run_end = end.min(at + run.length);
            while at < run_end {
                let length = if run.mapped { (run_end - at).min(PIECE) } else { run_end - at };
                if run.mapped {
                    let bytes = source.read(at, length)?;
                    if !is_zero(&bytes) {
                        return Ok(bytes.iter().position(|byte| *byte != 0).map(|found| at + found as u64));
                    }
                }
                at += length;
            }
        }
    }
    Ok(None)
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

    /// The first byte between these that differs. What lies before them isn't asked about any more, and they only rise.
    pub fn first(&mut self, from: u64, end: u64) -> Result<Option<u64>, CommandError> {
        let mut at = from;
        while at < end {
            let Some(run) = self.runs.front() else {
                if self.ask()?.is_none() {
                    return Ok(None);
                }
                continue;
            };
            let (begins, ends) = (run.start.max(at), run.end.min(end));
            if run.end <= at {
                self.runs.pop_front();
            } else if begins >= end {
                return Ok(None);
            } else if let Some(found) = self.first_of(begins, ends)? {
                return Ok(Some(found));
            } else {
                at = ends;
            }
        }
        Ok(None)
    }

    /// The same of the bytes of one range: of a block at its edge, some may be the same.
    fn first_of(&self, from: u64, end: u64) -> Result<Option<u64>, ClientError> {
        let Some([base, now]) = self.both else { return Ok(Some(from)) };
        let mut at = from;
        while at < end {
            let length = (end - at).min(PIECE);
            let there = base.size.saturating_sub(at).min(length);
            let mut before = if there > 0 { base.read(at, there)? } else { Vec::new() };
            before.resize(length as usize, 0);
            if let Some(found) = differs_at(&now.read(at, length)?, &before) {
                return Ok(Some(at + found));
            }
            at += length;
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::single_range_in_vec_init, reason = "one run of several")]
    fn what_differs_outside_of_all_pieces_is_found() {
        let first = |runs: &[Range<u64>], pieces: &[Range<u64>]| {
            let mut changed =
                Changed { both: None, pages: None, runs: runs.iter().cloned().collect(), is_cut_off: false };
            let ends = [0].into_iter().chain(pieces.iter().map(|piece| piece.end));
            let begins = pieces.iter().map(|piece| piece.start).chain([100]);
            ends.zip(begins).find_map(|(from, end)| changed.first(from, end).expect("nothing is asked"))
        };
        for (runs, pieces, found) in [
            (&[][..], &[][..], None),
            (&[], &[10..20], None),
            (&[10..20], &[10..20], None),
            (&[10..40], &[10..20, 20..40], None),
            (&[10..12, 14..20, 50..60], &[10..20, 50..60], None),
            (&[10..20], &[], Some(10)),
            (&[9..20], &[10..20], Some(9)),
            (&[10..21], &[10..20], Some(20)),
            (&[10..20, 99..100], &[10..20], Some(99)),
            (&[10..40], &[10..20, 30..40], Some(20)),
            (&[0..1, 10..20], &[10..20], Some(0)),
        ] {
            assert_eq!(first(runs, pieces), found, "{runs:?} {pieces:?}");
        }
    }
}
