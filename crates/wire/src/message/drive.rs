//! What a primary's server asks of the server of another copy. Blocks are numbered within what the drive holds of the map.

use super::{Holds, MAX_BLOCKS, Run, check_range};
use crate::field::{MAX_LIST, MessageError, record, tagged};
use crate::payload::Payload;
use tepal_model::{DriveId, Epoch, Fate, Lineage, MapId, Origin, Taken, Taking};

/// Words of marks in one answer at most.
pub const MAX_WORDS: usize = 16 << 10;
/// Past the last block that a drive can hold of a map.
const BLOCKS_END: u64 = 1 << 52;

/// One operation on one drive, for one map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriveRequest {
    /// Which drive.
    pub drive: DriveId,
    /// Which opening of it: if it has been opened again since, the request is refused, and the primary hears it anew. 0 in
    /// [`DriveOperation::Hear`].
    pub opening: u64,
    /// Whose data.
    pub map: MapId,
    /// Which column of the map: each has a primary of its own.
    pub column: u32,
    /// What to do.
    pub operation: DriveOperation,
}

/// The operations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DriveOperation {
    /// What the drive knows of the map, before a primary acts on the column. From the answer on, nobody else's requests for
    /// the column are heeded, until somebody hears it in a later view. The marks can be asked for bit by bit: those of the
    /// column are changed by nobody else, and those of others don't matter.
    Hear {
        /// Only the marks after these, in their order.
        after: Option<MarkPlace>,
    },
    /// Answered with the blocks. What holds nothing reads as zeros.
    Read {
        /// Block.
        first: u64,
        /// Blocks.
        count: u32,
        /// Which layers are seen.
        lineage: Lineage,
    },
    /// The CRC of each block, without its data, and the requests that the blocks have taken: what two copies are compared by.
    Checksums {
        /// Block.
        first: u64,
        /// Blocks.
        count: u32,
        /// As for a read.
        lineage: Lineage,
    },
    /// The payload, whole blocks.
    Write {
        /// Block.
        first: u64,
        /// Stable no later than the data.
        marks: Vec<MarkChange>,
        /// Answered only when on stable media.
        durable: bool,
        /// It makes copies equal, and may take the space that's kept back for that.
        repair: bool,
        /// Noted with it: whose write it is, if it's one of a client.
        taking: Taking,
        /// Which layers are seen, and may be changed.
        lineage: Lineage,
    },
    /// These blocks hold nothing any more.
    Clear {
        /// Block.
        first: u64,
        /// Blocks.
        count: u64,
        /// Stable no later.
        marks: Vec<MarkChange>,
        /// As for a write.
        taking: Taking,
        /// As for a write.
        lineage: Lineage,
    },
    /// These blocks are again what others see of them too, or hold nothing.
    Uncover {
        /// Block.
        first: u64,
        /// Blocks.
        count: u64,
        /// As for a write.
        taking: Taking,
        /// As for a write.
        lineage: Lineage,
    },
    /// Sets marks and takes them back, in order.
    Mark {
        /// In order.
        changes: Vec<MarkChange>,
        /// Answered only when on stable media.
        durable: bool,
    },
    /// Everything that was answered before is on stable media.
    Flush,
    /// Which blocks hold something.
    Present {
        /// Block.
        first: u64,
        /// Blocks.
        count: u64,
        /// Extents to look at, at most.
        look: u64,
        /// As for a read.
        lineage: Lineage,
    },
    /// The extents of which the drive holds anything, in order: the first block of each.
    Extents {
        /// Block.
        first: u64,
        /// Blocks.
        count: u64,
        /// Also those that have taken requests that it remembers.
        noted: bool,
    },
    /// Gives back everything that the drive holds of the map, marks included.
    RemoveMap,
    /// What became of a request, as far as it was for these blocks.
    Fate {
        /// Which.
        origin: Origin,
        /// Block.
        first: u64,
        /// Blocks.
        count: u64,
    },
    /// From here on the blocks have taken these requests and no others: stable when it's answered. The data is there.
    Adopt {
        /// Block.
        first: u64,
        /// Blocks.
        count: u64,
        /// Of blocks among these.
        requests: Vec<Taken>,
    },
    /// The epochs of which the drive has anything of these blocks.
    Epochs {
        /// Block.
        first: u64,
        /// Blocks.
        count: u64,
    },
    /// The primary has noted on the drive, which had been away, all that it and others miss in the column.
    Noted {
        /// In which it's the primary still.
        view: u64,
    },
}

/// A mark on one region of a volume (Petal 2.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Which region.
    pub region: u64,
    /// Which mark.
    pub kind: MarkKind,
}

/// What a mark says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MarkKind {
    /// Writes may be under way: after a crash the copies may differ here.
    Busy,
    /// The copy on this drive missed writes here.
    Stale {
        /// Whose.
        drive: DriveId,
    },
}

/// Where a [`MarkWord`] is in the order of all: by kind, then by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MarkPlace {
    /// Which mark.
    pub kind: MarkKind,
    /// As in [`MarkWord::word`].
    pub word: u64,
}

/// Marks of one kind on 64 regions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MarkWord {
    /// Which mark.
    pub kind: MarkKind,
    /// The regions from `64 * word` on.
    pub word: u64,
    /// Those whose bits are set, the first one's the lowest.
    pub regions: u64,
}

/// A change of a drive's marks for the map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarkChange {
    /// From here on there's this mark.
    Set(Mark),
    /// From here on there isn't.
    Unset(Mark),
    /// Sets many.
    SetMany(MarkWord),
    /// None holds any more.
    UnsetAll,
}

/// What became of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DriveAnswer {
    /// Of [`DriveOperation::Hear`].
    Heard(Heard),
    /// Of [`DriveOperation::Read`]: the payload.
    Read,
    /// Of [`DriveOperation::Checksums`]: `None` for a block that holds nothing.
    Checksums {
        /// Of each block.
        checksums: Vec<Option<u32>>,
        /// Of these blocks.
        requests: Vec<Taken>,
    },
    /// Of [`DriveOperation::Write`].
    Written,
    /// Of [`DriveOperation::Clear`].
    Cleared,
    /// Of [`DriveOperation::Uncover`].
    Uncovered,
    /// Of [`DriveOperation::Mark`].
    Marked,
    /// Of [`DriveOperation::Flush`].
    Flushed,
    /// Of [`DriveOperation::Present`], from the first block on. They may end before the last: ask on from there.
    Present {
        /// In order, neighbours differ.
        runs: Vec<Run>,
    },
    /// Of [`DriveOperation::Extents`].
    Extents {
        /// Ascending.
        extents: Vec<u64>,
        /// Whether there are others after these.
        more: bool,
    },
    /// Of [`DriveOperation::RemoveMap`].
    Removed,
    /// Of [`DriveOperation::Noted`].
    Noted,
    /// Of [`DriveOperation::Fate`].
    Fate(Fate),
    /// Of [`DriveOperation::Adopt`].
    Adopted,
    /// Of [`DriveOperation::Epochs`].
    Epochs {
        /// Ascending.
        epochs: Vec<Epoch>,
    },
    /// It wasn't done.
    Failed(DriveFailure),
}

/// What a drive knows of a map.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Heard {
    /// Which opening of the drive this is: what later requests name. Not 0.
    pub opening: u64,
    /// At most [`MAX_WORDS`].
    pub marks: Vec<MarkWord>,
    /// Whether there are marks after these.
    pub more: bool,
    /// The end of the log was dropped when the drive was opened: other copies are to be preferred.
    pub dropped_tail: bool,
    /// Bytes that the drive holds of the map, in whole extents.
    pub allocated: u64,
}

/// Why an operation wasn't done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DriveFailure {
    /// Use other copies: the drive takes part in nothing any more.
    #[error("{reason}")]
    Lost {
        /// Whether what it holds can't be relied on; else it may return and catch up.
        retired: bool,
        /// For people.
        reason: String,
    },
    /// Free space first. Nothing was written.
    #[error("the drive is full")]
    OutOfSpace,
    /// Take these blocks from another copy and write them again.
    #[error("{} blocks don't match their checksums or can't be read", blocks.len())]
    Damaged {
        /// By number.
        blocks: Vec<u64>,
    },
    /// Learn the newer view first.
    #[error("the request is of an older view than {view}")]
    Stale {
        /// The server's.
        view: u64,
    },
    /// Hear it anew: this drive isn't here, or was opened again.
    #[error("the drive isn't here, or has been opened again")]
    NotHere,
    /// Somebody else is the primary of this map, by the server's view.
    #[error("another server is the primary")]
    NotPrimary,
    /// Ask again: the server catches up, or has too much to do.
    #[error("the server is busy")]
    Busy,
}

record!(DriveRequest { drive, opening, map, column, operation });
record!(MarkPlace { kind, word });
record!(Mark { region, kind });
record!(MarkWord { kind, word, regions });
record!(Heard { opening, marks, more, dropped_tail, allocated });

tagged!(DriveOperation, "operation on a drive", {
    1 => Hear { after },
    2 => Read { first, count, lineage },
    3 => Checksums { first, count, lineage },
    4 => Write { first, durable, repair, taking, marks, lineage },
    5 => Clear { first, count, taking, marks, lineage },
    6 => Mark { durable, changes },
    7 => Flush,
    8 => Present { first, count, look, lineage },
    9 => Extents { first, count, noted },
    10 => RemoveMap,
    11 => Noted { view },
    12 => Fate { origin, first, count },
    13 => Adopt { first, count, requests },
    14 => Epochs { first, count },
    15 => Uncover { first, count, taking, lineage },
});

tagged!(MarkKind, "kind of mark", { 1 => Busy, 2 => Stale { drive } });

tagged!(MarkChange, "change of a mark", { 1 => Set(mark), 2 => Unset(mark), 3 => SetMany(word), 4 => UnsetAll });

tagged!(DriveAnswer, "answer of a drive", {
    1 => Heard(heard),
    2 => Read,
    3 => Checksums { checksums, requests },
    4 => Written,
    5 => Cleared,
    6 => Marked,
    7 => Flushed,
    8 => Present { runs },
    9 => Extents { more, extents },
    10 => Removed,
    11 => Noted,
    12 => Fate(fate),
    13 => Adopted,
    14 => Epochs { epochs },
    15 => Uncovered,
    128 => Failed(failure),
});

tagged!(Taking, "taking of requests", { 1 => Nothing, 2 => Request(origin), 3 => Those(requests) });

tagged!(Fate, "fate of a request", { 1 => Known { taken }, 2 => Superseded, 3 => Forgotten });

tagged!(DriveFailure, "failure of a drive", {
    1 => Lost { retired, reason },
    2 => OutOfSpace,
    3 => Damaged { blocks },
    4 => Stale { view },
    5 => NotHere,
    6 => NotPrimary,
    7 => Busy,
});

impl DriveOperation {
    pub(super) fn is_repeatable(&self) -> bool {
        use DriveOperation::*;
        match self {
            Hear { .. } | Read { .. } | Checksums { .. } | Present { .. } | Extents { .. } => true,
            DriveOperation::Fate { .. } | Epochs { .. } => true,
            Write { .. } | Clear { .. } | DriveOperation::Mark { .. } | Flush | RemoveMap | Noted { .. } => false,
            Adopt { .. } | Uncover { .. } => false,
        }
    }

    pub(super) fn check(&self, payload: &Payload) -> Result<(), MessageError> {
        let blocks = |first, count| check_range("a range of blocks", first, count, BLOCKS_END);
        let holds = match self {
            DriveOperation::Write { .. } => Holds::Blocks,
            _ => Holds::Nothing,
        };
        holds.check(payload)?;
        match *self {
            DriveOperation::Read { first, count, .. } | DriveOperation::Checksums { first, count, .. } => {
                check_range("a number of blocks", 0, count.into(), MAX_BLOCKS)?;
                blocks(first, count.into())
            }
            DriveOperation::Write { first, ref taking, .. } => {
                let count = payload.sums().len() as u64;
                check_taking(taking, first, count)?;
                blocks(first, count)
            }
            DriveOperation::Clear { first, count, ref taking, .. }
            | DriveOperation::Uncover { first, count, ref taking, .. } => {
                check_taking(taking, first, count)?;
                blocks(first, count)
            }
            DriveOperation::Present { first, count, .. }
            | DriveOperation::Fate { first, count, .. }
            | DriveOperation::Epochs { first, count } => blocks(first, count),
            DriveOperation::Adopt { first, count, ref requests } => {
                check_taken(requests, first, count)?;
                blocks(first, count)
            }
            DriveOperation::Hear { .. }
            | DriveOperation::Mark { .. }
            | DriveOperation::Flush
            | DriveOperation::Extents { .. }
            | DriveOperation::RemoveMap
            | DriveOperation::Noted { .. } => Ok(()),
        }
    }
}

fn check_taking(taking: &Taking, first: u64, count: u64) -> Result<(), MessageError> {
    match taking {
        Taking::Nothing | Taking::Request(_) => Ok(()),
        Taking::Those(requests) => check_taken(requests, first, count),
    }
}

fn check_taken(requests: &[Taken], first: u64, count: u64) -> Result<(), MessageError> {
    match requests.iter().all(|taken| taken.is_within(first, count)) {
        true => Ok(()),
        false => Err(MessageError::Range { what: "a range of blocks that were taken" }),
    }
}

impl MarkWord {
    /// Where it is in the order of all.
    pub fn place(self) -> MarkPlace {
        MarkPlace { kind: self.kind, word: self.word }
    }

    /// Each of them.
    pub fn marks(self) -> impl Iterator<Item = Mark> {
        let set = (0..u64::from(u64::BITS)).filter(move |bit| self.regions >> bit & 1 == 1);
        set.map(move |bit| Mark { region: self.word.wrapping_mul(64).wrapping_add(bit), kind: self.kind })
    }
}

const _: () = assert!(MAX_WORDS <= MAX_LIST && MAX_BLOCKS as usize <= MAX_LIST);
