//! The protocols that keep a column's data, one folder each: implementations of [`Redundancy`]. This file alone chooses among them.

#[cfg(test)]
mod checked;
mod copies;
mod owner;
mod primary;
pub(crate) mod quorum;

use crate::column::background::Stuck;
use crate::column::epochs::Writing;
use crate::column::members::RegionState;
use crate::column::order::Turn;
use crate::column::read::{Failed, Part, Reader};
use crate::column::redundancy::{CodeState, Data, Redundancy, Why, Written};
use crate::column::{Blocks, Group, State};
pub(crate) use owner::Log;
pub(crate) use quorum::heal::Look;
pub(crate) use quorum::way::{Led, NodesHere};
/// The way to a column that nobody leads.
pub(crate) type ByGateway<W> = quorum::gateway::Column<W, quorum::way::Way<W>>;
use owner::Stripes;
use primary::Copies;
use smallvec::SmallVec;
use std::collections::BTreeSet;
use tepal_drive::world::World;
use tepal_model::{IoError, Layout, Lineage, Origin, Segments, Taken};

/// Which protocol keeps a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    Copies,
    Stripes,
    #[cfg(test)]
    Checked,
}

/// Forwards to the protocol's implementation of [`Redundancy`], without a table of functions.
macro_rules! by_protocol {
    ($kept:expr, $Protocol:ident => $call:expr) => {
        match $kept {
            Kept::Copies => {
                type $Protocol = Copies;
                $call
            }
            Kept::Stripes => {
                type $Protocol = Stripes;
                $call
            }
            #[cfg(test)]
            Kept::Checked => {
                type $Protocol = checked::Checked;
                $call
            }
        }
    };
}

#[cfg(test)]
thread_local! {
    /// Columns that are opened from now on are kept by [`checked::Checked`].
    pub(crate) static IS_CHECKED: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Each function does what the function of [`Redundancy`] with the same name does.
impl Kept {
    pub fn by(layout: &Layout) -> Self {
        #[cfg(test)]
        if IS_CHECKED.get() {
            return Kept::Checked;
        }
        match layout.fragments().are_copies() {
            true => Kept::Copies,
            false => Kept::Stripes,
        }
    }

    pub fn tend<W: World>(self, group: &Group<W>) {
        by_protocol!(self, Protocol => Protocol::tend(group))
    }

    pub async fn put<W: World>(
        self,
        group: &Group<W>,
        turn: &Turn,
        (data, fua): (&Data, bool),
        writing: &mut Writing,
    ) -> Result<Written, IoError> {
        by_protocol!(self, Protocol => Protocol::put(group, turn, data, fua, writing).await)
    }

    pub async fn clear<W: World>(
        self,
        group: &Group<W>,
        turn: &Turn,
        cleared: (Blocks, Option<Origin>),
        writing: &mut Writing,
    ) -> Result<Written, IoError> {
        by_protocol!(self, Protocol => Protocol::clear(group, turn, cleared, writing).await)
    }

    pub async fn note<W: World>(
        self,
        group: &Group<W>,
        turn: &Turn,
        noted: (Blocks, &[Taken]),
        writing: &mut Writing,
    ) -> Result<Written, IoError> {
        by_protocol!(self, Protocol => Protocol::note(group, turn, noted, writing).await)
    }

    pub async fn uncover<W: World>(
        self,
        group: &Group<W>,
        turn: &Turn,
        blocks: Blocks,
        writing: &mut Writing,
    ) -> Result<Written, IoError> {
        by_protocol!(self, Protocol => Protocol::uncover(group, turn, blocks, writing).await)
    }

    pub fn choose<W: World>(
        self,
        group: &Group<W>,
        state: &State<W>,
        seen: (Blocks, &Lineage),
        reader: Reader<'_>,
    ) -> Result<SmallVec<[Part<W>; 1]>, RegionState> {
        by_protocol!(self, Protocol => Protocol::choose(group, state, seen, reader))
    }

    pub async fn get<W: World>(self, group: &Group<W>, parts: SmallVec<[Part<W>; 1]>) -> Result<Segments, Failed> {
        by_protocol!(self, Protocol => Protocol::get(group, parts).await)
    }

    pub async fn held<W: World>(self, group: &Group<W>, parts: &[Part<W>]) -> Result<Vec<(u64, bool)>, Failed> {
        by_protocol!(self, Protocol => Protocol::held(group, parts).await)
    }

    pub async fn differing<W: World>(
        self,
        group: &Group<W>,
        parts: &[Part<W>],
        before: &Lineage,
    ) -> Result<Vec<(u64, bool)>, Failed> {
        by_protocol!(self, Protocol => Protocol::differing(group, parts, before).await)
    }

    pub async fn is_empty<W: World>(self, group: &Group<W>, blocks: Blocks, seen: &Lineage) -> bool {
        by_protocol!(self, Protocol => Protocol::is_empty(group, blocks, seen).await)
    }

    pub async fn holds_nothing<W: World>(self, group: &Group<W>) -> bool {
        by_protocol!(self, Protocol => Protocol::holds_nothing(group).await)
    }

    pub fn is_bare<W: World>(self, group: &Group<W>, state: &State<W>, blocks: Blocks) -> bool {
        by_protocol!(self, Protocol => Protocol::is_bare(group, state, blocks))
    }

    pub async fn extents<W: World>(self, group: &Group<W>, noted: bool) -> Result<BTreeSet<u64>, IoError> {
        by_protocol!(self, Protocol => Protocol::extents(group, noted).await)
    }

    pub async fn gather<W: World>(self, group: &Group<W>, blocks: Blocks) -> Result<(), IoError> {
        by_protocol!(self, Protocol => Protocol::gather(group, blocks).await)
    }

    pub async fn is_gathered<W: World>(self, group: &Group<W>, blocks: Blocks) -> Result<bool, IoError> {
        by_protocol!(self, Protocol => Protocol::is_gathered(group, blocks).await)
    }

    pub async fn noted_elsewhere<W: World>(self, group: &Group<W>, blocks: Blocks) -> Result<Vec<Taken>, IoError> {
        by_protocol!(self, Protocol => Protocol::noted_elsewhere(group, blocks).await)
    }

    pub async fn parts_held<W: World>(
        self,
        group: &Group<W>,
        parts: &[(u64, Blocks)],
    ) -> Result<Option<Vec<u64>>, IoError> {
        by_protocol!(self, Protocol => Protocol::parts_held(group, parts).await)
    }

    pub async fn fate<W: World>(
        self,
        group: &Group<W>,
        origin: Origin,
        blocks: Blocks,
    ) -> Result<Option<Vec<Blocks>>, IoError> {
        by_protocol!(self, Protocol => Protocol::fate(group, origin, blocks).await)
    }

    pub async fn make_whole<W: World>(self, group: &Group<W>, region: u64, why: Why) -> Result<(), Stuck> {
        by_protocol!(self, Protocol => Protocol::make_whole(group, region, why).await)
    }

    pub async fn check_code<W: World>(
        self,
        group: &Group<W>,
        blocks: Blocks,
        repairs: bool,
    ) -> Result<CodeState, IoError> {
        by_protocol!(self, Protocol => Protocol::check_code(group, blocks, repairs).await)
    }

    pub async fn compare<W: World>(self, group: &Group<W>, blocks: Blocks) -> Result<bool, IoError> {
        by_protocol!(self, Protocol => Protocol::compare(group, blocks).await)
    }

    pub async fn rebuild<W: World>(self, group: &Group<W>, block: u64, fragment: usize) -> Result<(), IoError> {
        by_protocol!(self, Protocol => Protocol::rebuild(group, block, fragment).await)
    }

    pub async fn may_help<W: World>(self, group: &Group<W>, block: u64, damaged: usize, other: usize) -> bool {
        by_protocol!(self, Protocol => Protocol::may_help(group, block, damaged, other).await)
    }
}
