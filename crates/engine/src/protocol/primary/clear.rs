//! What changes copies without bringing data: blocks are taken out, or uncovered, or what they have taken is noted.

use super::epochs::Writing;
use super::members::Copies;
use super::order::Turn;
use super::write::{NotOnAll, Target, Written, taking_of};
use super::{Blocks, Group};
use crate::holder::Holder;
use futures_util::future::join_all;
use smallvec::SmallVec;
use std::ops::Range;
use std::sync::atomic::Ordering;
use tepal_drive::DriveError;
use tepal_drive::world::World;
use tepal_model::{BLOCK, IoError, Lineage, Origin, Taken, Taking, VolumeId};

/// Empty blocks between others that are cleared with them, in one go.
const SMALL_GAP: u64 = (16 << 20) / BLOCK;

impl<W: World> Group<W> {
    /// Takes blocks out of every copy. The caller has their turn.
    pub async fn clear_blocks(
        &self,
        _: &Turn,
        blocks: Blocks,
        origin: Option<Origin>,
        writing: &mut Writing,
    ) -> Result<Written, IoError> {
        if self.holds_nothing().await {
            return Ok(Written::Done);
        }
        let Some(seen) = self.seen_by(writing)? else {
            return Ok(Written::Waits { change: self.in_a_moment(), begun: false });
        };
        let mut cleared = false;
        for held in self.held(blocks, &seen).await {
            if let Written::Waits { change, begun } = self.clear_copies(held, origin, writing).await? {
                return Ok(Written::Waits { change, begun: begun || cleared });
            }
            cleared = true;
        }
        Ok(Written::Done)
    }

    /// Takes out what one line of the map's history has of these blocks. The caller has their turn.
    pub async fn clear_line(&self, _: &Turn, blocks: Blocks, writing: &mut Writing) -> Result<Written, IoError> {
        self.clear_copies(blocks, None, writing).await
    }

    async fn clear_copies(
        &self,
        blocks: Blocks,
        origin: Option<Origin>,
        writing: &mut Writing,
    ) -> Result<Written, IoError> {
        let run = (self.shared.column.map, self.shared.column.place(blocks.first), blocks.count);
        let clear = async |targets: &[Target<W>], lineage: &Lineage| {
            let full = targets.iter().filter(|target| !target.drive.may_clear(run, lineage));
            let (without, full): (Vec<_>, Vec<_>) = full.partition(|target| self.give_up_if_it_joins(target));
            if !full.is_empty() {
                return Err(NotOnAll::Space);
            } else if !without.is_empty() {
                return Err(NotOnAll::Lost(Vec::new())); // it goes on without those
            }
            // What is hidden from the volume, and stays for snapshots, may take space.
            let clear = async |target: &Target<W>| {
                target.drive.clear(run, target.marks.clone(), taking_of(origin), lineage).await
            };
            self.each_took(targets, clear).await
        };
        self.until_all_took(blocks, writing, clear).await
    }

    /// The copies that are here have taken these requests, and no others. The caller has the blocks' turn.
    pub async fn note_requests(
        &self,
        _: &Turn,
        blocks: Blocks,
        requests: &[Taken],
        writing: &mut Writing,
    ) -> Result<Written, IoError> {
        let run = (self.shared.column.place(blocks.first), blocks.count);
        let note = async |targets: &[Target<W>], _: &Lineage| {
            let note = async |target: &Target<W>| {
                target.bring_marks().await?;
                target.drive.adopt(self.shared.column.map, run, requests.to_vec()).await
            };
            self.each_took(targets, note).await
        };
        self.until_all_took(blocks, writing, note).await
    }

    /// What one line of the map's history has of these blocks goes, and what hides older ones too: they are seen again. The caller has
    /// the turn.
    pub async fn uncover_line(&self, _: &Turn, blocks: Blocks, writing: &mut Writing) -> Result<Written, IoError> {
        let run = (self.shared.column.map, self.shared.column.place(blocks.first), blocks.count);
        let uncover = async |targets: &[Target<W>], lineage: &Lineage| {
            let uncover = async |target: &Target<W>| {
                target.bring_marks().await?;
                target.drive.uncover(run, Taking::Nothing, lineage).await
            };
            self.each_took(targets, uncover).await
        };
        self.until_all_took(blocks, writing, uncover).await
    }

    /// Makes a change on every copy at once.
    async fn each_took(
        &self,
        targets: &[Target<W>],
        change: impl AsyncFn(&Target<W>) -> Result<(), DriveError>,
    ) -> Result<(), NotOnAll> {
        self.all_took(targets, join_all(targets.iter().map(|target| change(target))).await)
    }

    /// The parts of a range in which copies hold anything, or may. What is empty in all clean ones needs no clearing: marks
    /// for all of a large volume wouldn't fit into a log.
    pub async fn held(&self, blocks: Blocks, seen: &Lineage) -> Vec<Blocks> {
        let mut held: Vec<Blocks> = Vec::new();
        for (first, count) in self.shared.column.cut(blocks.first, blocks.count) {
            match held.last_mut() {
                _ if self.is_empty(Blocks { first, count }, seen).await => {}
                Some(last) if first - last.end() <= SMALL_GAP => last.count = first + count - last.first,
                _ => held.push(Blocks { first, count }),
            }
        }
        held
    }

    /// Whether all clean copies of blocks of one region are here and hold nothing.
    async fn is_empty(&self, blocks: Blocks, seen: &Lineage) -> bool {
        let column = &self.shared.column;
        let copies: SmallVec<[_; 2]> = {
            let state = self.lock();
            let region = column.region_of(blocks.first);
            let Copies::Clean(copies) = state.members.clean(region) else { return false };
            if state.unresolved.contains(&region) {
                return false;
            }
            let drive = |at: usize| state.members.list[at].drive().cloned();
            copies.into_iter().map(drive).collect()
        };
        for drive in copies {
            let Some(drive) = drive else { return false };
            let place = column.place(blocks.first);
            if !drive.is_empty(column.map, place, blocks.count, seen).await.is_ok_and(|empty| empty) {
                return false;
            }
        }
        true
    }

    /// Whether there is surely nothing to be cleared of these bytes: every copy is on a drive of this server and holds nothing of them, in
    /// whatever epoch, and nobody is changing anything in the column. Then whoever clears them needs no turn, as there is nothing that
    /// could come before or after it: a disk of exbibytes is discarded by ranges, and most of them hold nothing.
    pub fn has_nothing_of(&self, volume: VolumeId, bytes: &Range<u64>) -> bool {
        if self.shared.has_migrated.load(Ordering::Acquire) || !self.shared.order.is_idle() || !self.may_serve() {
            return false;
        }
        let copies: SmallVec<[Holder<W>; 2]> = {
            let state = self.lock();
            let acts = state.everywhere >= state.head_since(volume);
            if !acts || state.serves_volume(volume).is_err() {
                return false;
            }
            state.members.here().cloned().collect()
        };
        let blocks = Blocks::touched(bytes.start, bytes.end);
        let (map, first) = (self.shared.column.map, self.shared.column.place(blocks.first));
        copies.len() >= self.shared.copies && copies.iter().all(|copy| copy.is_bare(map, first, blocks.count))
    }

    /// Every copy is here and empty.
    async fn holds_nothing(&self) -> bool {
        let copies: SmallVec<[Holder<W>; 2]> = self.lock().members.here().cloned().collect();
        if copies.len() < self.shared.copies {
            return false;
        }
        for drive in copies {
            if !drive.allocated_of(self.shared.column.map).await.is_ok_and(|bytes| bytes == 0) {
                return false;
            }
        }
        true
    }
}

impl<W: World> Target<W> {
    /// Ahead of a change that takes none with it.
    async fn bring_marks(&self) -> Result<(), DriveError> {
        match self.marks.is_empty() {
            true => Ok(()),
            false => self.drive.record(self.marks.clone(), true).await,
        }
    }
}
