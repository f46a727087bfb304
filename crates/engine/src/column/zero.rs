//! Zeros, with space or without, and data past a volume's end.

use super::bytes::Merged;
use super::epochs::Writing;
use super::members::{NOT_MISSED, RegionState};
use super::order::{Queued, Turn};
use super::redundancy::{Data, Written};
use super::{Blocks, Group, State};
use crate::epochs::Subject;
use crate::seen_through::{Asker, SeenThrough};
use std::collections::BTreeSet;
use std::ops::Range;
use tepal_drive::world::{Gather, World};
use tepal_model::{BLOCK, Buffer, EXTENT, IoError, Origin, VolumeId};
use tepal_wire::message::Tag;

/// Blocks are taken out in steps of this many bytes, so that marks and turns stay small.
pub const STEP: u64 = 64 << 20;
/// Zeros that are to be allocated are written in steps of this many bytes.
pub const ZEROS_STEP: u64 = 1 << 20;

impl<W: World> Group<W> {
    /// Writes zeros, stable when this returns; `allocate` keeps the space.
    pub async fn zero(
        &self,
        volume: VolumeId,
        Range { start: from, end }: Range<u64>,
        allocate: bool,
        tag: Option<Tag>,
    ) -> Result<(), IoError> {
        // A retried request may have been done: the copies that aren't here know.
        let is_in_doubt = tag.is_some_and(|tag| tag.is_in_doubt);
        if !allocate && !is_in_doubt && self.has_nothing_of(volume, &(from..end)) {
            return Ok(());
        }
        let step = if allocate { ZEROS_STEP } else { STEP };
        let (mut at, since) = (from, self.shared.world.now());
        while at < end {
            if at > from && self.has_taken_long(since) {
                return Err(IoError::Unsure);
            }
            let next = ((at / step + 1) * step).min(end);
            let done = match allocate {
                true => self.write(volume, at, zeros(at..next).into(), true, tag).await,
                false => self.take_out(volume, at..next, tag, None).await,
            };
            match done {
                Err(IoError::NotNow | IoError::Stopping) if at > from => return Err(IoError::Unsure), // the steps before are done
                done => done?,
            }
            at = next;
        }
        Ok(())
    }

    /// At most one step. With `end`, only if the volume ends there or before.
    async fn take_out(
        &self,
        volume: VolumeId,
        all: Range<u64>,
        tag: Option<Tag>,
        end: Option<u64>,
    ) -> Result<(), IoError> {
        let blocks = Blocks::touched(all.start, all.end);
        self.enter((volume, blocks)).await?;
        let (group, place) = (self.clone(), self.line_up(blocks));
        let clear = |asker| async move { group.clear((place, asker), (Writing::of(volume), end), all, tag).await };
        SeenThrough::new(self.shared.world.clone(), clear).await
    }

    /// Takes out the data past the volume's end, which is at this byte of the column: data that was cut off doesn't
    /// come back when the volume grows again. The work stops when the volume grows: data that is written there then
    /// stays, and so does data that a rollback brings back.
    pub async fn clear_past(&self, volume: VolumeId, end: u64) -> Result<(), IoError> {
        // Only where something is held: there may be exbibytes between.
        for step in self.steps_past(volume, end).await? {
            // Chunks of another map are cleared there.
            let mut left = self.own(volume, end.max(step * STEP)..(step + 1) * STEP);
            while let Some(own) = left.pop() {
                match self.take_out(volume, own.clone(), None, Some(end)).await {
                    // Some of the range goes to the other map just now.
                    Err(IoError::Fenced) if self.own(volume, own.clone()) != [own.clone()] => {
                        left.extend(self.own(volume, own));
                    }
                    outcome => outcome?,
                }
            }
        }
        Ok(())
    }

    /// The steps in which something is held past the end, or may be: where all drives that have it are away.
    async fn steps_past(&self, volume: VolumeId, end: u64) -> Result<BTreeSet<u64>, IoError> {
        loop {
            let (away, changes) = {
                let mut state = self.lock();
                state.serves_volume(volume)?;
                let known = state.members.clean(NOT_MISSED) != RegionState::Waiting;
                (
                    known
                        .then(|| (self.away_past(&state, end), self.untaken_past(&state, volume, end)))
                        .ok_or_else(|| Group::next_change(&mut state)),
                    state.changes,
                )
            };
            let (away, fenced) = match away {
                Ok(away) => away,
                Err(change) => {
                    self.wait(change).await?; // the drives that know are away
                    continue;
                }
            };
            let held = self.extents(false).await?;
            // A drive that left meanwhile may not have been asked.
            if self.lock().changes == changes {
                let held = held.into_iter().filter_map(|first| step_past((first, EXTENT / BLOCK), end));
                return Ok(away.into_iter().chain(fenced).chain(held).collect());
            }
        }
    }

    /// The steps past the end that may hold something, as all drives that have it are away.
    fn away_past(&self, state: &State<W>, end: u64) -> Vec<u64> {
        let waits = |&region: &u64| state.members.clean(region) == RegionState::Waiting;
        let away = state.members.list.iter().flat_map(|member| member.missed.regions()).filter(waits);
        away.map(|region| self.shared.column.blocks_of(region)).filter_map(|run| step_past(run, end)).collect()
    }

    /// The steps past the end of which the source may still hold something.
    fn untaken_past(&self, state: &State<W>, volume: VolumeId, end: u64) -> Vec<u64> {
        let migration = state.migration_of(volume).ok().flatten();
        let Some(migration) = migration.filter(|migration| migration.takes()) else { return Vec::new() };
        let column = self.shared.column.number;
        let window = migration.window(column).map(|(_, blocks)| blocks);
        let past = window.filter(|blocks| state.takeover.missing((migration, column), *blocks).next().is_some());
        past.filter_map(|blocks| step_past((blocks.first, blocks.count), end)).collect()
    }

    /// The first blocks of the extents that hold anything, on any drive that is here. With `noted`, also of the extents
    /// that have taken requests.
    pub async fn extents(&self, noted: bool) -> Result<BTreeSet<u64>, IoError> {
        self.shared.kept.extents(self, noted).await
    }

    /// Takes out the whole blocks, and merges the edges. Edge blocks that are nothing but zeros by then are taken out
    /// too.
    async fn clear(
        &self,
        (place, asker): (Queued, Asker),
        (mut writing, end): (Writing, Option<u64>),
        all: Range<u64>,
        tag: Option<Tag>,
    ) -> Result<(), IoError> {
        let (blocks, now) = (Blocks::touched(all.start, all.end), Subject::now(writing.volume));
        let (mut begun, origin) = (false, tag.map(|tag| tag.origin));
        let (mut turn, mut parts) = (self.turn(place, &asker).await?, vec![blocks]);
        let bytes = |part: &Blocks| all.start.max(part.first * BLOCK)..all.end.min(part.end() * BLOCK);
        loop {
            if !begun {
                // Chosen again after each time that the turn was given up.
                writing.choose_anew();
                if let Some(tag) = tag.filter(|tag| tag.is_in_doubt) {
                    (turn, parts) = self.not_yet_taken(turn, &asker, tag.origin, (now, blocks)).await?;
                } else if whole_blocks(&all) != all {
                    turn = self.settled(turn, &asker, (now, blocks)).await?;
                }
                self.may_begin((writing.volume, blocks))?;
                if !self.begins_past(end, &mut writing)? {
                    turn = self.wait_for_copies(turn, &asker, self.in_a_moment(), begun, blocks).await?;
                    continue;
                }
            }
            let parts: Vec<Range<u64>> = parts.iter().map(bytes).collect();
            match self.clear_under_turn(&turn, &parts, (origin, &mut writing), begun).await {
                Ok(Written::Done) => return self.until_all_act(&writing).await,
                Err(error) => return Err(self.error_once_all_act(error, &writing).await),
                Ok(Written::Waits { change, begun: now }) => {
                    begun |= now;
                    turn = self.wait_for_copies(turn, &asker, change, begun, blocks).await?;
                }
            }
        }
    }

    /// Whether the epoch of this write is known. This is asked only of a range past the volume's end. A write past that
    /// end, as it's known here, takes a later turn; and a volume that sees an epoch has its size of then already.
    fn begins_past(&self, end: Option<u64>, writing: &mut Writing) -> Result<bool, IoError> {
        let Some(end) = end else { return Ok(true) };
        if self.seen_by(writing)?.is_none() {
            return Ok(false);
        }
        match self.volume_end(writing.volume).is_some_and(|now| now <= end) {
            true => Ok(true),
            false => Err(IoError::Unavailable { reason: "the volume has grown meanwhile".to_owned() }),
        }
    }

    /// `begun` if some copies have a part of the change already.
    async fn clear_under_turn(
        &self,
        turn: &Turn,
        parts: &[Range<u64>],
        (origin, writing): (Option<Origin>, &mut Writing),
        mut begun: bool,
    ) -> Result<Written, IoError> {
        let pieces = parts.iter().flat_map(|part| {
            let whole = whole_blocks(part);
            [part.start..whole.start, whole.end..part.end, whole]
        });
        for piece in pieces.filter(|piece| !piece.is_empty()) {
            let blocks = Blocks::touched(piece.start, piece.end);
            let written = if piece.start.is_multiple_of(BLOCK) && piece.end.is_multiple_of(BLOCK) {
                self.clear_blocks(turn, blocks, origin, writing).await?
            } else {
                let Some(seen) = self.seen_by(writing)? else {
                    return Ok(Written::Waits { change: self.in_a_moment(), begun });
                };
                if self.held(blocks, &seen).await.is_empty() {
                    continue; // on a full drive there is no room for zeros
                }
                let zeros = zeros(piece.clone());
                let mut merged = self.merged(piece.start, &zeros, &seen).await?;
                while !self.sees_as_before(writing) {
                    let Some(seen) = self.seen_by(writing)? else { continue };
                    merged = self.merged(piece.start, &zeros, &seen).await?;
                }
                match merged {
                    // The block was zeroed piece by piece, and this was the last piece.
                    Merged::Whole(data) if data.iter().all(|&byte| byte == 0) => {
                        self.clear_blocks(turn, blocks, origin, writing).await?
                    }
                    Merged::Whole(data) => {
                        let data = Data::new(blocks.first, Gather::from_iter([data]), origin);
                        self.shared.kept.put(self, turn, (&data, true), writing).await?
                    }
                    Merged::Waits(change) => return Ok(Written::Waits { change, begun }),
                }
            };
            match written {
                Written::Done => begun = true,
                Written::Waits { change, begun: now } => return Ok(Written::Waits { change, begun: begun || now }),
            }
        }
        Ok(Written::Done)
    }
}

/// The whole blocks in a range of bytes. An empty range where the bytes end, if there are none.
fn whole_blocks(bytes: &Range<u64>) -> Range<u64> {
    let (start, end) = (bytes.start.next_multiple_of(BLOCK), bytes.end / BLOCK * BLOCK);
    if start < end { start..end } else { bytes.end..bytes.end }
}

/// The step that a run of blocks begins in, if it reaches past the end.
fn step_past((first, count): (u64, u64), end: u64) -> Option<u64> {
    ((first + count) * BLOCK > end).then_some(first * BLOCK / STEP)
}

fn zeros(range: Range<u64>) -> Gather {
    Gather::from_iter([Buffer::zeroed((range.end - range.start) as usize).freeze()])
}
