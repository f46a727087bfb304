//! The primary protocol (Petal 2.4): whole copies, as `stripe`, `mirror:N` and `chained` keep them.
//!
//! Invariants, beside the column's own ([`crate::column`]):
//! 1. Writes that overlap go to all copies in one order: the order of their turns.
//! 2. A region's busy mark is in a copy's log no later than the first data that the mark is about. After a crash the
//!    union of all marks names every region whose copies may differ.
//! 3. A write is acknowledged when every copy that is here has it, and at least `min_copies` of these are clean. For
//!    each copy that isn't here, the copies that took the write say on stable storage that the absent one is stale. The
//!    absence was agreed before, and so was passing the copy over.
//! 4. Any clean copy is read.
//! 5. In a region whose copies may differ, the first clean copy decides.

use crate::column::background::Stuck;
use crate::column::epochs::Writing;
use crate::column::members::RegionState;
use crate::column::order::Turn;
use crate::column::read::{Failed, Part, Reader};
use crate::column::redundancy::{Data, Redundancy, Why, Written};
use crate::column::{Blocks, Group, State};
use smallvec::SmallVec;
use std::collections::BTreeSet;
use tepal_drive::world::World;
use tepal_model::{IoError, Lineage, Origin, Segments, Taken};

/// Each drive of a column has the whole column.
pub(crate) struct Copies;

impl<W: World> Redundancy<W> for Copies {
    async fn put(
        group: &Group<W>,
        _: &Turn,
        data: &Data,
        fua: bool,
        writing: &mut Writing,
    ) -> Result<Written, IoError> {
        group.write_copies(data, fua, writing).await
    }

    async fn clear(
        group: &Group<W>,
        _: &Turn,
        (blocks, origin): (Blocks, Option<Origin>),
        writing: &mut Writing,
    ) -> Result<Written, IoError> {
        group.clear_copies(blocks, origin, writing).await
    }

    async fn note(
        group: &Group<W>,
        _: &Turn,
        (blocks, requests): (Blocks, &[Taken]),
        writing: &mut Writing,
    ) -> Result<Written, IoError> {
        group.note_on_copies(blocks, requests, writing).await
    }

    async fn uncover(group: &Group<W>, _: &Turn, blocks: Blocks, writing: &mut Writing) -> Result<Written, IoError> {
        group.uncover_copies(blocks, writing).await
    }

    fn choose(
        group: &Group<W>,
        state: &State<W>,
        seen: (Blocks, &Lineage),
        reader: Reader<'_>,
    ) -> Result<SmallVec<[Part<W>; 1]>, RegionState> {
        group.choose_copies(state, seen, reader)
    }

    async fn get(group: &Group<W>, parts: SmallVec<[Part<W>; 1]>) -> Result<Segments, Failed> {
        group.read_parts(parts).await
    }

    async fn held(group: &Group<W>, parts: &[Part<W>]) -> Result<Vec<(u64, bool)>, Failed> {
        group.held_by_copies(parts).await
    }

    async fn differing(group: &Group<W>, parts: &[Part<W>], before: &Lineage) -> Result<Vec<(u64, bool)>, Failed> {
        group.differing_on_copies(parts, before).await
    }

    async fn is_empty(group: &Group<W>, blocks: Blocks, seen: &Lineage) -> bool {
        group.copies_are_empty(blocks, seen).await
    }

    async fn holds_nothing(group: &Group<W>) -> bool {
        group.copies_hold_nothing().await
    }

    fn is_bare(group: &Group<W>, state: &State<W>, blocks: Blocks) -> bool {
        group.copies_are_bare(state, blocks)
    }

    async fn extents(group: &Group<W>, noted: bool) -> Result<BTreeSet<u64>, IoError> {
        group.extents_of_copies(noted).await
    }

    async fn fate(group: &Group<W>, origin: Origin, blocks: Blocks) -> Result<Option<Vec<Blocks>>, IoError> {
        group.fate_on_copies(origin, blocks).await
    }

    async fn make_whole(group: &Group<W>, region: u64, why: Why) -> Result<(), Stuck> {
        group.equalise_region(region, why).await
    }

    async fn compare(group: &Group<W>, blocks: Blocks) -> Result<bool, IoError> {
        group.compare_copies_of(blocks).await
    }

    async fn rebuild(group: &Group<W>, block: u64, copy: usize) -> Result<(), IoError> {
        group.repair(block, copy).await
    }

    async fn may_help(group: &Group<W>, block: u64, damaged: usize, other: usize) -> bool {
        group.may_have(block, damaged, other).await
    }
}
