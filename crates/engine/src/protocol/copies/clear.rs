//! Changes of copies that bring no data: blocks are taken out, or uncovered, or their requests are noted.

use super::write::{NotOnAll, Target, taking_of};
use crate::column::epochs::Writing;
use crate::column::members::RegionState;
use crate::column::redundancy::Written;
use crate::column::{Blocks, Group, State};
use crate::holder::Holder;
use futures_util::future::join_all;
use smallvec::SmallVec;
use tepal_drive::DriveError;
use tepal_drive::world::World;
use tepal_model::{IoError, Lineage, MapId, Origin, Taken, Taking};

impl<W: World> Group<W> {
    pub(in crate::protocol) async fn clear_copies(
        &self,
        blocks: Blocks,
        origin: Option<Origin>,
        writing: &mut Writing,
    ) -> Result<Written, IoError> {
        let run = (self.shared.column.map, self.shared.column.place(blocks.first), blocks.count);
        let clear = async |targets: &[Target<W>], lineage: &Lineage| {
            self.clear_each(targets, run, taking_of(origin), lineage).await
        };
        self.until_keepers_took(blocks, writing, clear).await
    }

    /// Takes blocks of drives out, on all drives or on none.
    pub(in crate::protocol) async fn clear_each(
        &self,
        targets: &[Target<W>],
        run: (MapId, u64, u64),
        taking: Taking,
        lineage: &Lineage,
    ) -> Result<(), NotOnAll> {
        let full = targets.iter().filter(|target| !target.drive.may_clear(run, lineage));
        let (without, full): (Vec<_>, Vec<_>) = full.partition(|target| self.give_up_if_it_joins(target));
        if !full.is_empty() {
            return Err(NotOnAll::Space);
        } else if !without.is_empty() {
            return Err(NotOnAll::Lost(Vec::new())); // the change goes on without these drives
        }
        // Blocks that are hidden from the volume, and stay for snapshots, may take space.
        let clear =
            async |target: &Target<W>| target.drive.clear(run, target.marks.clone(), taking.clone(), lineage).await;
        self.each_took(targets, clear).await
    }

    /// Notes on the copies that are here that blocks have taken these requests, and no others.
    pub(in crate::protocol) async fn note_on_copies(
        &self,
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
        self.until_keepers_took(blocks, writing, note).await
    }

    /// Takes out what one line of the map's history holds of these blocks, and what hides older lines there: the older
    /// lines are seen again.
    pub(in crate::protocol) async fn uncover_copies(
        &self,
        blocks: Blocks,
        writing: &mut Writing,
    ) -> Result<Written, IoError> {
        let run = (self.shared.column.map, self.shared.column.place(blocks.first), blocks.count);
        let uncover = async |targets: &[Target<W>], lineage: &Lineage| self.uncover_each(targets, run, lineage).await;
        self.until_keepers_took(blocks, writing, uncover).await
    }

    /// Uncovers blocks of drives.
    pub(in crate::protocol) async fn uncover_each(
        &self,
        targets: &[Target<W>],
        run: (MapId, u64, u64),
        lineage: &Lineage,
    ) -> Result<(), NotOnAll> {
        let uncover = async |target: &Target<W>| {
            target.bring_marks().await?;
            target.drive.uncover(run, Taking::Nothing, lineage).await
        };
        self.each_took(targets, uncover).await
    }

    /// Makes a change on every copy at once.
    pub(in crate::protocol) async fn each_took(
        &self,
        targets: &[Target<W>],
        change: impl AsyncFn(&Target<W>) -> Result<(), DriveError>,
    ) -> Result<(), NotOnAll> {
        self.all_took(targets, join_all(targets.iter().map(|target| change(target))).await)
    }

    /// Whether all clean copies of blocks of one region are here and hold nothing.
    pub(in crate::protocol) async fn copies_are_empty(&self, blocks: Blocks, seen: &Lineage) -> bool {
        let column = &self.shared.column;
        let copies: SmallVec<[_; 2]> = {
            let state = self.lock();
            let region = column.region_of(blocks.first);
            let RegionState::Clean(copies) = state.members.clean_copies(column, region) else { return false };
            if state.unsure.regions.contains(&region) {
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

    /// Whether every copy is on a drive of this server and has nothing of these blocks, in any epoch.
    pub(in crate::protocol) fn copies_are_bare(&self, state: &State<W>, blocks: Blocks) -> bool {
        let (map, first) = (self.shared.column.map, self.shared.column.place(blocks.first));
        let copies: SmallVec<[&Holder<W>; 2]> = state.members.here().collect();
        copies.len() >= self.shared.copies && copies.iter().all(|copy| copy.is_bare(map, first, blocks.count))
    }

    /// Whether every copy is here and empty.
    pub(in crate::protocol) async fn copies_hold_nothing(&self) -> bool {
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
    /// Brings the marks ahead of a change that takes none with it.
    pub(in crate::protocol) async fn bring_marks(&self) -> Result<(), DriveError> {
        match self.marks.is_empty() {
            true => Ok(()),
            false => self.drive.record(self.marks.clone(), true).await,
        }
    }
}
