//! The owner protocol (RAAC): stripes of an erasure code, as `ec:M+K` keeps them, and a log in front of them.
//!
//! A column has M + K members. In place, member i has fragment i of each stripe: `ROWS` blocks of each of M data and K code fragments. A
//! *row* is one block of each fragment. The log is whole copies of blocks on K + 1 members. A write is acknowledged from the log, and
//! *destaged* later: its rows change in place, then their blocks leave the log. What the log shows of a block counts; where the log shows
//! nothing, the fragments in place do. How the write hole is closed
//! ([0014](../../../../../docs/decisions/0014-stripes-and-their-log.md)):
//!
//! 1. A row that holds anything in place is written only when the log has all M blocks of the row. So whoever finds a half-written row
//!    finds all its blocks in the log, decodes nothing, and writes the row again.
//! 2. A row that holds nothing in place is written, and any row is cleared, without that. So large writes of new stripes skip the log. A
//!    row that some clean members hold and others don't was never finished: the row is taken out in place before anything is read there
//!    (`recover.rs`). What had been acknowledged is in the log.
//! 3. Blocks leave the log only when all members that are here have the row on stable media, and all absent ones are stale.
//! 4. Each line of the map's history has all fragments of a row, or none. Older lines are destaged first, so the log never shows a block
//!    that is older than the one in place.
//! 5. While blocks of a stripe go to another map, or come from one, the stripe is in the log and nothing of it is in place (`gather.rs`): a
//!    migration moves whole copies.
//! 6. All members that are here are told what absent members miss, whether they take part in a change or not. So any member with
//!    authority knows all that the others miss. A region is served while M clean fragments are here: then of K + 1 members with the log
//!    one is here.

mod destage;
mod gather;
mod give_up;
mod log;
mod read;
mod rebuild;
mod recover;
mod status;
mod stripe;
mod write;

use crate::column::background::Stuck;
use crate::column::epochs::Writing;
use crate::column::members::RegionState;
use crate::column::order::Turn;
use crate::column::read::{Failed, Part, Reader};
use crate::column::redundancy::{CodeState, Data, Redundancy, Why, Written};
use crate::column::{Blocks, Group, State};
pub(crate) use log::Log;
use smallvec::SmallVec;
use std::collections::BTreeSet;
use tepal_drive::world::World;
use tepal_model::{IoError, Lineage, Origin, Segments, Taken};

/// Each drive of a column has a fragment of each stripe, and some of the log.
pub(crate) struct Stripes;

impl<W: World> Redundancy<W> for Stripes {
    async fn put(
        group: &Group<W>,
        _: &Turn,
        data: &Data,
        fua: bool,
        writing: &mut Writing,
    ) -> Result<Written, IoError> {
        group.write_blocks(data, fua, writing).await
    }

    async fn clear(
        group: &Group<W>,
        _: &Turn,
        (blocks, origin): (Blocks, Option<Origin>),
        writing: &mut Writing,
    ) -> Result<Written, IoError> {
        group.clear_stripes(blocks, origin, writing).await
    }

    async fn note(
        group: &Group<W>,
        _: &Turn,
        (blocks, requests): (Blocks, &[Taken]),
        writing: &mut Writing,
    ) -> Result<Written, IoError> {
        group.note_in_log(blocks, requests, writing).await
    }

    async fn uncover(group: &Group<W>, _: &Turn, blocks: Blocks, writing: &mut Writing) -> Result<Written, IoError> {
        group.uncover_stripes(blocks, writing).await
    }

    fn choose(
        group: &Group<W>,
        state: &State<W>,
        seen: (Blocks, &Lineage),
        reader: Reader<'_>,
    ) -> Result<SmallVec<[Part<W>; 1]>, RegionState> {
        group.choose_fragments(state, seen, reader)
    }

    async fn get(group: &Group<W>, parts: SmallVec<[Part<W>; 1]>) -> Result<Segments, Failed> {
        group.read_units(parts).await
    }

    async fn held(group: &Group<W>, parts: &[Part<W>]) -> Result<Vec<(u64, bool)>, Failed> {
        group.held_by_stripes(parts).await
    }

    async fn differing(group: &Group<W>, parts: &[Part<W>], before: &Lineage) -> Result<Vec<(u64, bool)>, Failed> {
        group.differing_in_stripes(parts, before).await
    }

    async fn is_empty(group: &Group<W>, blocks: Blocks, seen: &Lineage) -> bool {
        group.stripes_are_empty(blocks, seen).await
    }

    async fn holds_nothing(group: &Group<W>) -> bool {
        group.copies_hold_nothing().await
    }

    fn is_bare(group: &Group<W>, state: &State<W>, blocks: Blocks) -> bool {
        let rows = group.rows_of(blocks);
        group.copies_are_bare(state, blocks) && group.copies_are_bare(state, rows)
    }

    async fn extents(group: &Group<W>, noted: bool) -> Result<BTreeSet<u64>, IoError> {
        group.extents_of_stripes(noted).await
    }

    async fn fate(group: &Group<W>, origin: Origin, blocks: Blocks) -> Result<Option<Vec<Blocks>>, IoError> {
        group.fate_in_stripes(origin, blocks).await
    }

    async fn make_whole(group: &Group<W>, region: u64, why: Why) -> Result<(), Stuck> {
        group.make_stripes_whole(region, why).await
    }

    async fn compare(group: &Group<W>, blocks: Blocks) -> Result<bool, IoError> {
        group.compare_stripes(blocks).await
    }

    async fn check_code(group: &Group<W>, blocks: Blocks, repairs: bool) -> Result<CodeState, IoError> {
        group.check_code(blocks, repairs).await
    }

    async fn rebuild(group: &Group<W>, block: u64, fragment: usize) -> Result<(), IoError> {
        group.rebuild_block(block, fragment).await
    }

    async fn may_help(group: &Group<W>, block: u64, damaged: usize, other: usize) -> bool {
        match group.shared.column.row(block) {
            Some(_) => true, // which fragments belong together can't be seen of one
            None => group.may_have(block, damaged, other).await,
        }
    }

    async fn gather(group: &Group<W>, blocks: Blocks) -> Result<(), IoError> {
        group.gather_stripes(blocks).await
    }

    async fn is_gathered(group: &Group<W>, blocks: Blocks) -> Result<bool, IoError> {
        group.is_gathered(blocks).await
    }

    async fn noted_elsewhere(group: &Group<W>, blocks: Blocks) -> Result<Vec<Taken>, IoError> {
        group.noted_in_place(blocks).await
    }

    async fn parts_held(group: &Group<W>, parts: &[(u64, Blocks)]) -> Result<Option<Vec<u64>>, IoError> {
        group.parts_of_stripes_held(parts).await.map(Some)
    }

    fn tend(group: &Group<W>) {
        group.start_destaging();
    }
}
