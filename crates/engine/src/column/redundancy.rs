//! The seam between leading a column and keeping its data on drives. The leading side (`column/`) decides who may
//! change what, and when. An implementation of [`Redundancy`], one for each folder of `protocol/`, decides which data
//! each drive has.
//!
//! An implementation promises, of a column whose drives come and go as its [`Members`](super::members::Members) say:
//! 1. A change by [`put`](Redundancy::put), [`clear`](Redundancy::clear), [`note`](Redundancy::note) or
//!    [`uncover`](Redundancy::uncover) is kept by as many fragments as the layout demands. Fragments that lack the
//!    change are marked stale before it's reported as done.
//! 2. [`get`](Redundancy::get) returns the data that was put last, or the reason why it can't.
//! 3. Where fragments may differ since a crash, [`make_whole`](Redundancy::make_whole) decides once, for the data of
//!    some fragments. It never decides against acknowledged data.

use super::background::Stuck;
use super::epochs::Writing;
use super::members::RegionState;
use super::order::Turn;
use super::read::{Failed, Part, Reader};
use super::segments::{Rest, length};
use super::{Blocks, Group, State};
use bytes::Bytes;
use futures_channel::oneshot;
use smallvec::SmallVec;
use std::collections::BTreeSet;
use tepal_codec::checksum::block_crcs;
use tepal_drive::world::{Gather, World};
use tepal_model::{BLOCK, IoError, Lineage, Origin, Segments, Taken};
use tepal_wire::Payload;
use tepal_wire::payload::Sums;

/// Bytes to write, as the asker gave them.
#[derive(Clone, Debug)]
pub(crate) struct Given {
    pub data: Gather,
    /// The CRC of each piece, cut where blocks end, if the CRCs are known.
    pub sums: Option<Sums>,
}

impl From<Gather> for Given {
    fn from(data: Gather) -> Self {
        Given { data, sums: None }
    }
}

impl FromIterator<Bytes> for Given {
    fn from_iter<T: IntoIterator<Item = Bytes>>(pieces: T) -> Self {
        Given { data: pieces.into_iter().collect(), sums: None }
    }
}

impl From<Payload> for Given {
    fn from(payload: Payload) -> Self {
        let (data, sums) = payload.into_parts();
        Given { data: data.into_iter().collect(), sums: Some(sums) }
    }
}

/// Whole blocks to write.
#[derive(Debug)]
pub(crate) struct Data {
    pub first: u64,
    pub data: Gather,
    /// The CRC of each block.
    pub crcs: Sums,
    /// The request that the data is of.
    pub origin: Option<Origin>,
    /// The same data is kept elsewhere until this is: drives may use the room that they reserve for repairs.
    pub is_kept: bool,
}

impl Data {
    /// Each piece of the data must consist of whole blocks.
    pub fn new(first: u64, data: Gather, origin: Option<Origin>) -> Self {
        let crcs = data.iter().flat_map(|piece| block_crcs(piece)).collect();
        Data { first, data, crcs, origin, is_kept: false }
    }

    /// The same with the checksums that came with the data, one for each block: they were computed where the data
    /// entered.
    pub fn summed(first: u64, Given { data, sums }: Given, origin: Option<Origin>) -> Self {
        let count = length(&data) / BLOCK;
        match sums.filter(|sums| sums.len() as u64 == count) {
            Some(crcs) => Data { first, data, crcs, origin, is_kept: false },
            None => Data::new(first, data, origin),
        }
    }

    pub fn blocks(&self) -> Blocks {
        Blocks { first: self.first, count: self.crcs.len() as u64 }
    }

    /// The data of some of the blocks.
    pub fn part(&self, blocks: Blocks) -> Self {
        let from = (blocks.first - self.first) as usize;
        let crcs = self.crcs[from..from + blocks.count as usize].into();
        let mut rest = Rest::of(self.data.iter().cloned().collect());
        rest.next(from * BLOCK as usize);
        let data = rest.next(blocks.count as usize * BLOCK as usize).into_iter().collect();
        Data { first: blocks.first, data, crcs, origin: self.origin, is_kept: self.is_kept }
    }
}

/// The outcome of a write.
pub(crate) enum Written {
    Done,
    /// Not enough copies are here, and returning copies need the turn to catch up. The holder of the turn gives it up,
    /// or lends it if some copies have been written.
    Waits {
        change: oneshot::Receiver<()>,
        begun: bool,
    },
}

/// Why fragments of a region may not be whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// A write was under way at a crash, or was refused by some drives. Nobody was told that the write is done, and
    /// nobody has read its data.
    Unresolved,
    /// The fragments were equal once.
    Doubted,
    /// The drive of this member has missed writes.
    Missed(usize),
}

impl Why {
    /// A block that a drive missed may hold the same data by chance.
    pub fn compares_data(self) -> bool {
        matches!(self, Why::Missed(_))
    }
}

/// What a comparison of code with data found.
#[derive(Debug, Default)]
pub(crate) struct CodeState {
    /// Stripes whose code isn't that of their data, by their blocks.
    pub unequal: Vec<Blocks>,
    /// The same where a data fragment isn't here: data that was decoded may be as wrong as the code. Nothing is written again there.
    pub undecided: Vec<Blocks>,
    /// Blocks of stripes that couldn't be compared: a fragment isn't here, or isn't up to date.
    pub unchecked: u64,
}

/// How the data of a column is kept on its drives. The caller has made sure that this server leads the column.
pub(crate) trait Redundancy<W: World> {
    /// Keeps whole blocks. The caller has their turn, as for every change of blocks, and gives it up before it waits as
    /// the answer says.
    async fn put(
        group: &Group<W>,
        turn: &Turn,
        data: &Data,
        fua: bool,
        writing: &mut Writing,
    ) -> Result<Written, IoError>;

    /// Takes blocks out of what the writer sees.
    async fn clear(
        group: &Group<W>,
        turn: &Turn,
        cleared: (Blocks, Option<Origin>),
        writing: &mut Writing,
    ) -> Result<Written, IoError>;

    /// Notes that blocks have taken these requests, and no others.
    async fn note(
        group: &Group<W>,
        turn: &Turn,
        noted: (Blocks, &[Taken]),
        writing: &mut Writing,
    ) -> Result<Written, IoError>;

    /// Takes out what the writer's line of the map's history holds of these blocks, and what hides older lines there:
    /// the older lines are seen again.
    async fn uncover(group: &Group<W>, turn: &Turn, blocks: Blocks, writing: &mut Writing) -> Result<Written, IoError>;

    /// The drives to read blocks from now, for a reader of this lineage; or why there is none.
    fn choose(
        group: &Group<W>,
        state: &State<W>,
        seen: (Blocks, &Lineage),
        reader: Reader<'_>,
    ) -> Result<SmallVec<[Part<W>; 1]>, RegionState>;

    /// Reads the chosen parts.
    async fn get(group: &Group<W>, parts: SmallVec<[Part<W>; 1]>) -> Result<Segments, Failed>;

    /// Which blocks hold something, as runs.
    async fn held(group: &Group<W>, parts: &[Part<W>]) -> Result<Vec<(u64, bool)>, Failed>;

    /// Which blocks may differ between the parts' lineage and `before`, as runs.
    async fn differing(group: &Group<W>, parts: &[Part<W>], before: &Lineage) -> Result<Vec<(u64, bool)>, Failed>;

    /// Whether all clean fragments are here and hold nothing of these blocks of one region.
    async fn is_empty(group: &Group<W>, blocks: Blocks, seen: &Lineage) -> bool;

    /// Whether the same is true of the whole column, in every epoch.
    async fn holds_nothing(group: &Group<W>) -> bool;

    /// Whether nothing is held of these blocks in any epoch, as far as this server knows without asking another.
    fn is_bare(group: &Group<W>, state: &State<W>, blocks: Blocks) -> bool;

    /// The first blocks of the extents that hold anything, on any drive that is here. With `noted`, also of the extents
    /// that have taken requests.
    async fn extents(group: &Group<W>, noted: bool) -> Result<BTreeSet<u64>, IoError>;

    /// Which of these blocks haven't taken a request; `None` if drives have left.
    async fn fate(group: &Group<W>, origin: Origin, blocks: Blocks) -> Result<Option<Vec<Blocks>>, IoError>;

    /// Makes the fragments of a region whole.
    async fn make_whole(group: &Group<W>, region: u64, why: Why) -> Result<(), Stuck>;

    /// Whether the clean fragments of these blocks of a region agree. Makes the fragments whole if they don't.
    async fn compare(group: &Group<W>, blocks: Blocks) -> Result<bool, IoError>;

    /// Whether the code of the stripes that begin among these blocks is that of their data. With `repairs`, code that isn't is written
    /// again where that is surely wrong.
    async fn check_code(_: &Group<W>, _: Blocks, _repairs: bool) -> Result<CodeState, IoError> {
        Ok(CodeState::default())
    }

    /// Makes a damaged fragment of a block right again, if the block wasn't written since.
    async fn rebuild(group: &Group<W>, block: u64, fragment: usize) -> Result<(), IoError>;

    /// Whether another fragment of a block, which isn't clean, may help to rebuild the damaged one.
    async fn may_help(group: &Group<W>, block: u64, damaged: usize, other: usize) -> bool;

    /// Has all lines' data of blocks that are [on their way](State::are_on_their_way) in whole copies, on the clean members that
    /// [keep](crate::map::Column::keepers) such copies. Until the blocks have arrived, they stay there: a migration finds
    /// them by the places of whole copies, and changes them by the functions above.
    async fn gather(_: &Group<W>, _: Blocks) -> Result<(), IoError> {
        Ok(())
    }

    /// Whether these blocks are gathered. The caller has their turn.
    async fn is_gathered(_: &Group<W>, _: Blocks) -> Result<bool, IoError> {
        Ok(true)
    }

    /// Requests that blocks have taken as noted elsewhere than on whole copies, with blocks numbered from the first one.
    async fn noted_elsewhere(_: &Group<W>, _: Blocks) -> Result<Vec<Taken>, IoError> {
        Ok(Vec::new())
    }

    /// The numbers of those ranges of blocks of which anything may be held or noted, elsewhere than on whole copies too; `None` if
    /// whole copies tell.
    async fn parts_held(_: &Group<W>, _: &[(u64, Blocks)]) -> Result<Option<Vec<u64>>, IoError> {
        Ok(None)
    }

    /// A drive has come or gone, or this server begins to lead the column: starts what the protocol does by itself.
    fn tend(_: &Group<W>) {}
}
