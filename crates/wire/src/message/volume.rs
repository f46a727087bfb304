//! What a gateway asks of the primary of a column. Offsets and lengths are bytes of the column.

use super::{Holds, NodeAnswer, NodeOperation, Run, Tag, check_range};
use crate::field::{MAX_LIST, MessageError, record, tagged};
use crate::payload::Payload;
use tepal_model::{BLOCK, DriveId, Epoch, IoError, MAX_REQUEST, MAX_VOLUME, MapId, ServerId, Taken, VolumeId};

/// Bytes that one request makes zeros.
pub const MAX_ZERO: u64 = 256 << 20;

/// One operation on one column of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeRequest {
    /// Which volume; of what maps ask each other, none.
    pub volume: VolumeId,
    /// Which of its maps: while it goes from one to another, it has two.
    pub map: MapId,
    /// Which column of that.
    pub column: u32,
    /// What to do.
    pub operation: VolumeOperation,
}

/// The operations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VolumeOperation {
    /// Answered with the bytes.
    Read {
        /// Byte.
        offset: u64,
        /// Bytes.
        length: u32,
        /// Of which snapshot; `None` for what the volume has now.
        at: Option<Epoch>,
    },
    /// The payload, cut where the column's blocks end.
    Write {
        /// Byte.
        offset: u64,
        /// Answered only when on stable media, whatever the layout's durability.
        fua: bool,
        /// Which one this is.
        tag: Tag,
    },
    /// The payload as for a write, where blocks hold nothing; all others stay as they are. Answered as a write is.
    Fill {
        /// Byte.
        offset: u64,
    },
    /// These bytes are zeros.
    Zero {
        /// Byte.
        offset: u64,
        /// Bytes, at most [`MAX_ZERO`].
        length: u64,
        /// Whether the space is kept.
        allocate: bool,
        /// As for a write.
        fua: bool,
        /// As for a write.
        tag: Tag,
    },
    /// Everything that was acknowledged before is on stable media.
    Flush,
    /// What is allocated.
    Status {
        /// Byte.
        offset: u64,
        /// Bytes.
        length: u64,
        /// Runs at most, from 1 to [`MAX_LIST`].
        limit: u32,
        /// As for a read.
        at: Option<Epoch>,
    },
    /// What may differ from what an older snapshot has there. Answered as a status is.
    Changed {
        /// Byte.
        offset: u64,
        /// Bytes.
        length: u64,
        /// As for a status.
        limit: u32,
        /// As for a read.
        at: Option<Epoch>,
        /// Of which snapshot.
        since: Epoch,
    },
    /// What lies past the volume's end is gone. Answered as a zero is.
    Clear {
        /// The column's first byte past the end.
        from: u64,
    },
    /// A copy of a block was found damaged: write it again from another.
    Repair {
        /// The block's first byte.
        offset: u64,
        /// Which of the column's copies.
        copy: u8,
    },
    /// By who takes these blocks over for another map: all that there is of them.
    HandOver {
        /// The column's.
        first: u64,
        /// At most [`MAX_HANDED`].
        count: u32,
        /// Which map takes them over.
        target: MapId,
        /// Since which view it's the one to take them.
        since: u64,
        /// A digest of the lines of the history, as it knows them: both know the same.
        lines: u64,
    },
    /// By who takes over for another map: what of the window the column has anything of.
    Holding {
        /// As for [`VolumeOperation::HandOver`].
        target: MapId,
        /// The same.
        since: u64,
        /// The same.
        lines: u64,
    },
    /// By the same, which has all of it on stable media: there's nothing of them any more.
    Release {
        /// The column's.
        first: u64,
        /// At most [`MAX_HANDED`].
        count: u32,
        /// As for [`VolumeOperation::HandOver`].
        target: MapId,
        /// The same.
        since: u64,
        /// The same.
        lines: u64,
    },
    /// Of a drive that keeps versions of the column's blocks: there's no primary.
    Node {
        /// Which drive.
        drive: DriveId,
        /// The view since which the column's drives are those that the asker knows. It's refused where others are known since.
        since: u64,
        /// What to do.
        operation: NodeOperation,
    },
}

/// Blocks that are handed over at once.
pub const MAX_HANDED: u32 = 256;

/// What only the readers of one line of a map's history see of some blocks, older lines apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandedLine {
    /// The newest epoch of the line.
    pub newest: Epoch,
    /// The blocks that it has itself, as runs of first and count, numbered from the first one asked for.
    pub held: Vec<Blocks>,
    /// Those that older lines have, and this one hasn't.
    pub hidden: Vec<Blocks>,
    /// Those that it has itself too, and nobody can read.
    pub damaged: Vec<Blocks>,
}

/// A run of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocks {
    /// Which is the first.
    pub first: u32,
    /// At least one.
    pub count: u32,
}

/// What became of a damaged copy of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RepairOutcome {
    /// It's right, or will be: it was written again, or what is under way will write it.
    Done,
    /// There's no right copy here now, but a drive that is away, or catches up, may have one; or the copy's own drive takes no writes.
    NotNow,
    /// No copy is right.
    Impossible,
}

/// What became of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VolumeAnswer {
    /// Of [`VolumeOperation::Read`]: the payload.
    Read,
    /// Of [`VolumeOperation::Write`].
    Written,
    /// Of [`VolumeOperation::Zero`] and [`VolumeOperation::Clear`].
    Zeroed,
    /// Of [`VolumeOperation::Flush`].
    Flushed,
    /// Of [`VolumeOperation::Status`] and [`VolumeOperation::Changed`], from the offset on. They may end before the last byte: ask on from
    /// there.
    Status {
        /// In order, neighbours differ.
        runs: Vec<Run>,
    },
    /// Of [`VolumeOperation::Repair`].
    Repaired {
        /// What became of the copy.
        outcome: RepairOutcome,
    },
    /// Of [`VolumeOperation::HandOver`]. The payload is what the lines hold, one after the other.
    HandedOver {
        /// So many blocks from the first one on: if that isn't all, the rest is too much for one answer.
        count: u32,
        /// Newer ones first.
        lines: Vec<HandedLine>,
        /// The requests that the blocks have taken, numbered in the same way.
        requests: Vec<Taken>,
    },
    /// Of [`VolumeOperation::Release`].
    Released,
    /// Of [`VolumeOperation::Holding`].
    Holding {
        /// The chunks of the window of which the column may have something.
        chunks: Vec<u64>,
    },
    /// Of [`VolumeOperation::Node`].
    Node(NodeAnswer),
    /// It wasn't done.
    Failed(VolumeFailure),
}

/// Why an operation wasn't done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VolumeFailure {
    /// Tell the client. Offsets and lengths are bytes of the column.
    #[error(transparent)]
    Io(IoError),
    /// Learn these first, and send again what still applies.
    #[error("the request is of an older view than {view}, or an older revision than {revision}")]
    Stale {
        /// The server's view.
        view: u64,
        /// The volume's revision.
        revision: u64,
    },
    /// Ask there, or learn a newer view.
    #[error("another server is the primary of this column")]
    NotPrimary {
        /// Who is, if the server knows.
        server: Option<ServerId>,
    },
    /// Ask again, nothing was done: the server catches up, or the request would have to wait for drives or for its turn.
    #[error("the server is busy")]
    Busy,
    /// Ask again, as one that may have been done: another server has become the primary meanwhile, or it has begun and goes on by itself.
    #[error("the request may have been carried out, or goes on by itself")]
    Unsure,
}

record!(VolumeRequest { volume, map, column, operation });
record!(HandedLine { newest, held, hidden, damaged });
record!(Blocks { first, count });

tagged!(VolumeOperation, "operation on a volume", {
    1 => Read { offset, length, at },
    2 => Write { offset, fua, tag },
    3 => Zero { offset, length, allocate, fua, tag },
    4 => Flush,
    5 => Status { offset, length, limit, at },
    6 => Clear { from },
    7 => Repair { offset, copy },
    8 => HandOver { first, count, target, since, lines },
    9 => Release { first, count, target, since, lines },
    10 => Holding { target, since, lines },
    11 => Changed { offset, length, limit, at, since },
    12 => Fill { offset },
    13 => Node { drive, since, operation },
});

tagged!(VolumeAnswer, "answer of a primary", {
    1 => Read,
    2 => Written,
    3 => Zeroed,
    4 => Flushed,
    5 => Status { runs },
    6 => Repaired { outcome },
    7 => HandedOver { count, lines, requests },
    8 => Released,
    9 => Holding { chunks },
    10 => Node(answer),
    128 => Failed(failure),
});

tagged!(RepairOutcome, "outcome of a repair", { 1 => Done, 2 => NotNow, 3 => Impossible });

tagged!(VolumeFailure, "failure of a primary", {
    1 => Io(error),
    2 => Stale { view, revision },
    3 => NotPrimary { server },
    4 => Busy,
    5 => Unsure,
});

impl VolumeOperation {
    pub(super) fn check(&self, payload: &Payload) -> Result<(), MessageError> {
        let bytes = |offset, length| check_range("a range of bytes", offset, length, MAX_VOLUME);
        let holds = match self {
            VolumeOperation::Node { operation, .. } => return operation.check(payload),
            VolumeOperation::Write { .. } | VolumeOperation::Fill { .. } => Holds::Bytes,
            _ => Holds::Nothing,
        };
        holds.check(payload)?;
        match *self {
            VolumeOperation::Read { offset, length, .. } => {
                check_range("the length of a read", 0, length.into(), MAX_REQUEST)?;
                bytes(offset, length.into())
            }
            VolumeOperation::Write { offset, .. } | VolumeOperation::Fill { offset } => {
                bytes(offset, payload.length())?;
                match u64::from(payload.cut()) == offset % BLOCK {
                    true => Ok(()),
                    false => Err(MessageError::Range { what: "the cut of a payload" }),
                }
            }
            VolumeOperation::Zero { offset, length, .. } => {
                check_range("the length of a zero", 0, length, MAX_ZERO)?;
                bytes(offset, length)
            }
            VolumeOperation::Status { offset, length, limit, .. }
            | VolumeOperation::Changed { offset, length, limit, .. } => {
                check_range("a number of runs", 0, limit.into(), MAX_LIST as u64)?;
                bytes(offset, length)
            }
            VolumeOperation::Clear { from } => check_range("a volume's end", 0, from.max(1), MAX_VOLUME),
            VolumeOperation::Repair { offset, .. } => {
                bytes(offset, BLOCK)?;
                match offset % BLOCK {
                    0 => Ok(()),
                    _ => Err(MessageError::Range { what: "the first byte of a block" }),
                }
            }
            VolumeOperation::HandOver { first, count, .. } | VolumeOperation::Release { first, count, .. } => {
                check_range("a number of blocks", 0, count.into(), MAX_HANDED.into())?;
                check_range("a range of blocks", first, count.into(), MAX_VOLUME / BLOCK)
            }
            VolumeOperation::Flush | VolumeOperation::Holding { .. } | VolumeOperation::Node { .. } => Ok(()),
        }
    }
}

impl VolumeAnswer {
    pub(super) fn check(&self, payload: &Payload) -> Result<(), MessageError> {
        let VolumeAnswer::HandedOver { count, lines, requests } = self else { return Ok(()) };
        let runs = || lines.iter().flat_map(|line| line.held.iter().chain(&line.hidden).chain(&line.damaged));
        let is_within =
            |run: &Blocks| run.count > 0 && run.first.checked_add(run.count).is_some_and(|end| end <= *count);
        let held: u64 = lines.iter().flat_map(|line| &line.held).map(|run| u64::from(run.count)).sum();
        let are_within = runs().all(is_within) && requests.iter().all(|taken| taken.is_within(0, (*count).into()));
        match are_within && *count <= MAX_HANDED && held * BLOCK == payload.length() {
            true => Ok(()),
            false => Err(MessageError::Range { what: "what is handed over" }),
        }
    }
}
