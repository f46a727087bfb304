//! Reading versions: from the log, or from home.

use super::bytes::Home;
use super::write::why;
use super::{Node, State, blocks_with};
use bytes::{Bytes, BytesMut};
use std::ops::Range;
use std::sync::Arc;
use tepal_codec::checksum::crc;
use tepal_drive::DriveError;
use tepal_drive::world::World;
use tepal_model::buffer::join;
use tepal_model::{BLOCK, Digest, Lineage, Segments, Version};
use tepal_wire::message::{Complete, Found, NodeFailure, Run, Versions, Which};

/// How often a read begins again because what it read has moved.
const ATTEMPTS: usize = 16;
/// Extents of the drive that one question for what is present looks at.
const LOOK: u64 = 1 << 16;

/// Where the version of a block is that was asked for.
#[derive(Clone, Debug)]
enum Choice {
    InLog { version: Version, is_complete: bool, slot: u32, index: u32 },
    AtHome { version: Version, holds: bool, digests: Vec<Digest>, doubted: Option<u32> },
    Gone,
}

/// Fragments of blocks side by side that lie side by side on the drive.
struct Piece {
    /// Numbers among the blocks that are read.
    blocks: Range<usize>,
    /// Of the drive.
    bytes: Range<u64>,
}

impl<W: World> Node<W> {
    /// The versions that are asked for, and, with `data`, the fragments of those that hold something.
    pub async fn read(
        &self,
        (first, count): (u64, u32),
        which: Which,
        data: bool,
        complete: &[Complete],
    ) -> Result<(Vec<Versions>, Segments), NodeFailure> {
        if first + u64::from(count) > self.0.parts[1] - self.0.parts[0] {
            return Err(NodeFailure::NotHere);
        }
        self.open().await?;
        self.complete(complete);
        let blocks = first..first + u64::from(count);
        for _ in 0..ATTEMPTS {
            let choices = self.choose(&blocks, which, data).await.map_err(why)?;
            if !data {
                return Ok((self.versions_of(&choices, &[]), Segments::new()));
            }
            let read = self.fragments(&blocks, &choices).await;
            self.end_reading(&choices);
            let Some((fragments, damaged)) = read.map_err(why)? else { continue };
            return Ok((self.versions_of(&choices, &damaged), fragments));
        }
        Err(NodeFailure::TooMany)
    }

    /// With `pins`, the log keeps what is chosen until [`end_reading`](Node::end_reading).
    async fn choose(&self, blocks: &Range<u64>, which: Which, pins: bool) -> Result<Vec<Choice>, DriveError> {
        let together = self.shape().homes_together();
        let first_home = self.homes_with(blocks).start * together;
        self.with_homes(blocks, |state, homes| {
            let mut choices = Vec::with_capacity((blocks.end - blocks.start) as usize);
            for block in blocks.clone() {
                let at = block - first_home;
                let home = &homes[(at / together) as usize][(at % together) as usize];
                choices.push(state.choice(block, home, which));
            }
            if pins {
                for choice in &choices {
                    if let Choice::InLog { slot, .. } = choice {
                        state.records.get_mut(slot).expect("what holds a version is there").readers += 1;
                    }
                }
            }
            choices
        })
        .await
    }

    fn end_reading(&self, choices: &[Choice]) {
        let mut is_due = false;
        {
            let mut state = self.lock();
            for choice in choices {
                if let Choice::InLog { slot, .. } = choice
                    && let Some(record) = state.records.get_mut(slot)
                {
                    record.readers -= 1;
                    is_due |= record.readers == 0 && record.needed == 0;
                }
            }
            is_due &= !state.is_due;
            state.is_due |= is_due;
        }
        if is_due {
            self.settle_soon();
        }
    }

    fn versions_of(&self, choices: &[Choice], damaged: &[usize]) -> Vec<Versions> {
        let records = self.lock();
        let mut all: Vec<Versions> = Vec::new();
        for (number, choice) in choices.iter().enumerate() {
            let found = match choice {
                Choice::Gone => Found::Gone,
                Choice::InLog { version, .. } | Choice::AtHome { version, .. } if damaged.contains(&number) => {
                    Found::Damaged { version: *version }
                }
                Choice::AtHome { version, holds, digests, .. } => {
                    Found::Has { version: *version, holds: *holds, is_complete: true, digests: digests.clone() }
                }
                Choice::InLog { version, is_complete, slot, index } => {
                    let entry = records.records.get(slot).map(|record| record.entry.clone());
                    let (holds, digests) = entry.map_or((false, Vec::new()), |entry| {
                        (entry.data.is_some(), entry.digests_of(*index, self.shape()).to_vec())
                    });
                    Found::Has { version: *version, holds, is_complete: *is_complete, digests }
                }
            };
            match all.last_mut() {
                Some(last) if last.found == found && self.shape().digests() == 0 => last.count += 1,
                _ => all.push(Versions { count: 1, found }),
            }
        }
        all
    }

    /// The chosen fragments, and the numbers of the blocks whose fragments can't be read. `None` if some have moved meanwhile.
    async fn fragments(
        &self,
        blocks: &Range<u64>,
        choices: &[Choice],
    ) -> Result<Option<(Segments, Vec<usize>)>, DriveError> {
        let fragment = self.shape().fragment() as u64;
        let pieces = self.pieces(blocks, choices);
        let (mut found, mut damaged) = (Segments::new(), Vec::new());
        for piece in pieces {
            match self.read_bytes(&piece.bytes).await {
                Ok(bytes) => found.extend(bytes),
                Err(DriveError::Damaged { .. }) => {
                    // One by one, so that one damaged block doesn't take others with it.
                    for (at, number) in piece.blocks.clone().enumerate() {
                        let start = piece.bytes.start + at as u64 * fragment;
                        match self.read_bytes(&(start..start + fragment)).await {
                            Ok(bytes) => found.extend(bytes),
                            Err(DriveError::Damaged { .. }) => damaged.push(number),
                            Err(error) => return Err(error),
                        }
                    }
                }
                Err(error) => return Err(error),
            }
        }
        if !self.are_still_home(blocks, choices).await? {
            return Ok(None);
        }
        self.drop_half_moved(choices, &mut found, &mut damaged);
        let mut state = self.lock();
        state.damaged.extend(damaged.iter().map(|number| blocks.start + *number as u64));
        drop(state);
        Ok(Some((found, damaged)))
    }

    fn pieces(&self, blocks: &Range<u64>, choices: &[Choice]) -> Vec<Piece> {
        let fragment = self.shape().fragment() as u64;
        let state = self.lock();
        let mut pieces: Vec<Piece> = Vec::new();
        for (number, (block, choice)) in blocks.clone().zip(choices).enumerate() {
            let start = match choice {
                Choice::AtHome { holds: true, .. } => self.0.parts[0] * BLOCK + block * fragment,
                Choice::InLog { slot, index, .. } => match state.records.get(slot).and_then(|record| record.entry.data)
                {
                    Some((first, _)) => self.data_place(first) * BLOCK + u64::from(*index) * fragment,
                    None => continue,
                },
                Choice::AtHome { .. } | Choice::Gone => continue,
            };
            match pieces.last_mut() {
                Some(last) if last.blocks.end == number && last.bytes.end == start => {
                    (last.blocks.end, last.bytes.end) = (number + 1, start + fragment);
                }
                _ => pieces.push(Piece { blocks: number..number + 1, bytes: start..start + fragment }),
            }
        }
        pieces
    }

    /// Bytes of what the drive has of the map.
    pub(super) async fn read_bytes(&self, bytes: &Range<u64>) -> Result<Segments, DriveError> {
        let blocks = blocks_with(bytes);
        let count = blocks.end - blocks.start;
        let found = self.0.drive.read(self.0.map, blocks.start, count, &Lineage::default()).await?;
        if bytes.start.is_multiple_of(BLOCK) && bytes.end.is_multiple_of(BLOCK) {
            return Ok(found);
        }
        let from = (bytes.start - blocks.start * BLOCK) as usize;
        Ok(Segments::from_iter([join(&found).slice(from..from + (bytes.end - bytes.start) as usize)]))
    }

    /// Whether what was read at home was there all the while.
    async fn are_still_home(&self, blocks: &Range<u64>, choices: &[Choice]) -> Result<bool, DriveError> {
        if !choices.iter().any(|choice| matches!(choice, Choice::AtHome { .. })) {
            return Ok(true);
        }
        let together = self.shape().homes_together();
        let first_home = self.homes_with(blocks).start * together;
        self.with_homes(blocks, |state, homes: &[Arc<Vec<Home>>]| {
            blocks.clone().zip(choices).all(|(block, choice)| match choice {
                Choice::AtHome { version, .. } => {
                    let at = block - first_home;
                    let home = &homes[(at / together) as usize][(at % together) as usize];
                    home.version == *version && !state.moving.contains(&block)
                }
                Choice::InLog { .. } | Choice::Gone => true,
            })
        })
        .await
    }

    /// A fragment that isn't the one that its home tells of was half overwritten when the node was closed.
    fn drop_half_moved(&self, choices: &[Choice], found: &mut Segments, damaged: &mut Vec<usize>) {
        if !choices.iter().any(|choice| matches!(choice, Choice::AtHome { doubted: Some(_), .. })) {
            return;
        }
        let all = join(found);
        let (fragment, mut kept, mut at) = (self.shape().fragment(), BytesMut::new(), 0);
        for (number, choice) in choices.iter().enumerate() {
            let holds = match choice {
                Choice::AtHome { holds, .. } => *holds,
                Choice::InLog { slot, .. } => {
                    self.lock().records.get(slot).is_some_and(|record| record.entry.data.is_some())
                }
                Choice::Gone => false,
            };
            if !holds || damaged.contains(&number) {
                continue;
            }
            let bytes: Bytes = all.slice(at..at + fragment);
            at += fragment;
            match choice {
                Choice::AtHome { doubted: Some(sum), .. } if crc(&bytes) != *sum => damaged.push(number),
                _ => kept.extend_from_slice(&bytes),
            }
        }
        *found = Segments::from_iter([kept.freeze()]);
    }

    /// Which blocks may hold something, as runs from the first one on; with `versions`, those too that hold nothing since some version.
    pub async fn present(&self, first: u64, count: u64, versions: bool) -> Result<Vec<Run>, NodeFailure> {
        let room = self.0.parts[1] - self.0.parts[0];
        let Some(end) = first.checked_add(count).filter(|end| *end <= room) else { return Err(NodeFailure::NotHere) };
        self.open().await?;
        let (mut held, known) = match versions {
            true => self.have_homes(first..end),
            false => self.have_fragments(first..end),
        };
        let state = self.lock();
        held.extend(state.versions.range(first..known).map(|(block, _)| *block..block + 1));
        drop(state);
        Ok(runs_of(first..known, held))
    }

    /// Blocks of the column that may have fragments at home, and up to which block that's known: a block has one if one of the drive's
    /// blocks is there that has a part of it.
    fn have_fragments(&self, blocks: Range<u64>) -> (Vec<Range<u64>>, u64) {
        let fragment = self.shape().fragment() as u64;
        let bytes = self.shape().bytes_at_home(&blocks);
        let (there, known) = self.are_there(self.0.parts[0], blocks_with(&bytes));
        let of_column = |part: &Range<u64>| {
            (part.start * BLOCK / fragment).max(blocks.start)..(part.end * BLOCK).div_ceil(fragment).min(blocks.end)
        };
        let known = known.map_or(blocks.end, |known| known * BLOCK / fragment);
        (there.iter().map(of_column).collect(), known.clamp(blocks.start, blocks.end))
    }

    /// Blocks of the column of which versions at home may be told, and up to which block that's known.
    fn have_homes(&self, blocks: Range<u64>) -> (Vec<Range<u64>>, u64) {
        let together = self.shape().homes_together();
        let (there, known) = self.are_there(self.0.parts[1], self.homes_with(&blocks));
        let of_column =
            |part: &Range<u64>| (part.start * together).max(blocks.start)..(part.end * together).min(blocks.end);
        let known = known.map_or(blocks.end, |known| known * together);
        (there.iter().map(of_column).collect(), known.clamp(blocks.start, blocks.end))
    }

    /// Which blocks of one of the drive's parts are there, and up to which block that's known; `None` if of all.
    fn are_there(&self, part: u64, blocks: Range<u64>) -> (Vec<Range<u64>>, Option<u64>) {
        let (first, count) = (part + blocks.start, blocks.end - blocks.start);
        let mut there: Vec<Range<u64>> = Vec::new();
        let mut at = blocks.start;
        for (length, holds) in self.0.drive.present(self.0.map, first, count, LOOK, &Lineage::default()) {
            there.extend(holds.then_some(at..at + length));
            at += length;
        }
        (there, (at < blocks.end).then_some(at))
    }
}

/// Runs of blocks that are in one of the ranges, or in none.
fn runs_of(all: Range<u64>, mut held: Vec<Range<u64>>) -> Vec<Run> {
    held.sort_unstable_by_key(|range| range.start);
    let mut runs: Vec<Run> = Vec::new();
    let mut add = |length: u64, holds: bool| match runs.last_mut() {
        _ if length == 0 => {}
        Some(last) if last.holds == holds => last.length += length,
        _ => runs.push(Run { length, holds }),
    };
    let mut at = all.start;
    for range in held {
        let (start, end) = (range.start.clamp(at, all.end), range.end.clamp(at, all.end));
        add(start - at, false);
        add(end - start, true);
        at = end;
    }
    add(all.end - at, false);
    runs
}

impl State {
    /// What is older than a version that's known to be complete is forgotten, be it there still or not: after a crash the log may have
    /// versions that are older than the one at home.
    fn choice(&self, block: u64, home: &Home, which: Which) -> Choice {
        let held = self.versions.get(&block).map_or(&[][..], |held| held.as_slice());
        let told = held.iter().rev().find(|held| held.is_complete).map(|held| held.version);
        let complete = told.max(Some(home.version)).unwrap_or_default();
        let fits = |version: &Version| match which {
            Which::Latest => true,
            Which::Before(end) => *version < end,
            Which::At(at) => *version == at,
        };
        if let Some(held) = held.iter().rev().find(|held| fits(&held.version) && held.version >= complete) {
            let (slot, index) = (held.slot, held.index);
            return Choice::InLog { version: held.version, is_complete: held.is_complete, slot, index };
        }
        // Home may be half overwritten from when a later version was told to be complete.
        let is_forgotten = home.is_lost || home.version < complete || self.moving.contains(&block);
        if is_forgotten || !fits(&home.version) {
            return Choice::Gone;
        }
        Choice::AtHome {
            version: home.version,
            holds: home.holds,
            digests: home.digests.clone(),
            doubted: self.doubted.contains(&block).then_some(home.crc),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_join_what_overlaps_and_end_with_the_range() {
        let run = |length, holds| Run { length, holds };
        assert_eq!(
            runs_of(5..20, vec![10..12, 11..15, 3..6, 18..40]),
            [run(1, true), run(4, false), run(5, true), run(3, false), run(2, true)]
        );
        assert_eq!(runs_of(0..4, vec![]), [run(4, false)]);
    }
}
