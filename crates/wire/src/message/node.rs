//! What a gateway asks of a drive that keeps versions (Ursa Minor, section 3.2.4): the same for every quorum layout. Blocks are numbered
//! within the column; of each block the drive has one fragment.

use super::{Holds, MAX_BLOCKS, Run, check_range};
use crate::field::{Field, MAX_LIST, MessageError, Reader, record, tagged};
use crate::payload::Payload;
use tepal_model::{BLOCK, Digest, MAX_VOLUME, Version};

/// Blocks that one request writes or reads at most.
pub const MAX_VERSIONED: u32 = 256;
/// Digests of one block at most: one for each fragment.
const MAX_DIGESTS: usize = tepal_model::layout::MAX_FRAGMENTS as usize;
/// Runs of blocks that one message says are complete, at most.
pub const MAX_COMPLETE: usize = 1024;

/// The operations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeOperation {
    /// The greatest time of all versions of the column that the drive has.
    Time {
        /// As for a read.
        complete: Vec<Complete>,
    },
    /// Keeps a version of each of these blocks, beside those that it has. The payload is their fragments, one after another; none, if the
    /// blocks hold nothing from this version on.
    Write {
        /// Block.
        first: u64,
        /// Blocks, at most [`MAX_VERSIONED`].
        count: u32,
        /// Of all of them.
        version: Version,
        /// Where drives may lie, the digests of all fragments of each block, one block after another.
        digests: Vec<Digest>,
        /// As for a read.
        complete: Vec<Complete>,
    },
    /// Which version of each block the drive has; the payload of the answer is their fragments, of those that hold something.
    Read {
        /// Block.
        first: u64,
        /// Blocks, at most [`MAX_VERSIONED`].
        count: u32,
        /// Which one.
        which: Which,
        /// Whether the fragments, and the digests, are wanted.
        data: bool,
        /// Versions that the asker knows to be complete: the drive may forget what is older. Comes before the rest.
        complete: Vec<Complete>,
    },
    /// As for a read, and nothing else.
    Complete {
        /// As for a read.
        complete: Vec<Complete>,
    },
    /// Which blocks may hold something, as runs.
    Present {
        /// Block.
        first: u64,
        /// Blocks.
        count: u64,
        /// Blocks count, too, that hold nothing since some version.
        versions: bool,
    },
}

/// One version of those that a drive has of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// The greatest.
    Latest,
    /// The greatest before this one.
    Before(Version),
    /// This one.
    At(Version),
}

/// A version that each later read sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Complete {
    /// Block.
    pub first: u64,
    /// Blocks.
    pub count: u32,
    /// Of all of them.
    pub version: Version,
}

/// Blocks of which a drive says the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Versions {
    /// How many.
    pub count: u32,
    /// What it has.
    pub found: Found,
}

/// What a drive has of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// This version. Nothing was written if it's none.
    Has {
        /// Which.
        version: Version,
        /// Whether there's a fragment.
        holds: bool,
        /// Whether somebody has told the drive that the version is complete.
        is_complete: bool,
        /// As for a write, of each of the blocks.
        digests: Vec<Digest>,
    },
    /// No such version any more: a later one is complete. Or, of an exact version, it may be one that the drive never had.
    Gone,
    /// A version, and its fragment can't be read.
    Damaged {
        /// Which.
        version: Version,
    },
}

/// What became of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeAnswer {
    /// Of [`NodeOperation::Time`].
    Time {
        /// The greatest.
        time: u64,
    },
    /// Of [`NodeOperation::Write`]: on stable media.
    Written,
    /// Of [`NodeOperation::Read`], in order. The payload is the fragments of the blocks that have one, if they were wanted.
    Versions {
        /// All blocks.
        versions: Vec<Versions>,
    },
    /// Of [`NodeOperation::Complete`].
    Completed,
    /// Of [`NodeOperation::Present`], from the first block on. They may end before the last: ask on from there.
    Present {
        /// In order, neighbours differ.
        runs: Vec<Run>,
    },
    /// It wasn't done.
    Failed(NodeFailure),
}

/// Why an operation wasn't done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NodeFailure {
    /// Ask another drive: the server hasn't this one now, or must not serve.
    #[error("the drive isn't here")]
    NotHere,
    /// Ask again: versions have yet to be forgotten before there's room for more.
    #[error("the drive keeps too many versions")]
    TooMany,
    /// Nothing was written: the drive is full.
    #[error("the drive is full")]
    OutOfSpace,
    /// The drive takes part in nothing any more.
    #[error("the drive has failed")]
    Lost,
    /// The client has no right to that.
    #[error("the client has no right to that")]
    NotAllowed,
    /// Another client has the volume for itself.
    #[error("another client has taken the volume over")]
    Fenced,
}

impl Field for Digest {
    const LEAST: usize = size_of::<Digest>();
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }
    fn take(reader: &mut Reader<'_>) -> Result<Self, MessageError> {
        let (front, rest) = reader.0.split_first_chunk().ok_or(MessageError::Short)?;
        reader.0 = rest;
        Ok(*front)
    }
}

record!(Version { time, writer, cross });
record!(Complete { first, count, version });
record!(Versions { count, found });

tagged!(Which, "choice of a version", { 1 => Latest, 2 => Before(version), 3 => At(version) });

tagged!(Found, "kind of version", {
    1 => Has { version, holds, is_complete, digests },
    2 => Gone,
    3 => Damaged { version },
});

tagged!(NodeOperation, "operation on versions", {
    1 => Time { complete },
    2 => Write { first, count, version, digests, complete },
    3 => Read { first, count, which, data, complete },
    4 => Complete { complete },
    5 => Present { first, count, versions },
});

tagged!(NodeAnswer, "answer of a drive that keeps versions", {
    1 => Time { time },
    2 => Written,
    3 => Versions { versions },
    4 => Completed,
    5 => Present { runs },
    128 => Failed(failure),
});

tagged!(NodeFailure, "failure of a drive that keeps versions", {
    1 => NotHere,
    2 => TooMany,
    3 => OutOfSpace,
    4 => Lost,
    5 => NotAllowed,
    6 => Fenced,
});

impl NodeOperation {
    /// Whether a client that may only read the volume may ask for it: it's told of versions, and tells of none.
    pub fn only_reads(&self) -> bool {
        match self {
            NodeOperation::Write { .. } | NodeOperation::Complete { .. } => false,
            NodeOperation::Time { complete } | NodeOperation::Read { complete, .. } => complete.is_empty(),
            NodeOperation::Present { .. } => true,
        }
    }

    /// Bytes that the answer may have.
    pub fn wanted(&self) -> u64 {
        match self {
            NodeOperation::Read { count, data: true, .. } => u64::from(*count) * BLOCK,
            _ => 0,
        }
    }

    pub(super) fn check(&self, payload: &Payload) -> Result<(), MessageError> {
        let blocks = |first, count: u64| check_range("a range of blocks", first, count, MAX_VOLUME / BLOCK);
        let versioned = |first, count: u32| {
            check_range("a number of blocks", 0, count.into(), MAX_VERSIONED.into())?;
            blocks(first, count.into())
        };
        let completed = |complete: &[Complete]| {
            check_range("a number of versions", 0, complete.len().max(1) as u64, MAX_COMPLETE as u64)?;
            complete.iter().try_for_each(|one| blocks(one.first, one.count.into()))
        };
        match self {
            NodeOperation::Write { first, count, version, digests, complete } => {
                if payload.length() > 0 {
                    Holds::Bytes.check(payload)?;
                }
                let (blocks, bytes) = (u64::from(*count), payload.length());
                check_range("the length of fragments", 0, bytes.max(1), MAX_BLOCKS.min(blocks) * BLOCK)?;
                if payload.cut() != 0 || blocks == 0 || !bytes.is_multiple_of(blocks) || version.is_none() {
                    return Err(MessageError::Range { what: "a version or its fragments" });
                }
                let most = *count as usize * MAX_DIGESTS;
                if digests.len() > most.min(MAX_LIST) || !digests.len().is_multiple_of(*count as usize) {
                    return Err(MessageError::Range { what: "a number of digests" });
                }
                completed(complete)?;
                versioned(*first, *count)
            }
            NodeOperation::Read { first, count, complete, .. } => {
                Holds::Nothing.check(payload)?;
                completed(complete)?;
                versioned(*first, *count)
            }
            NodeOperation::Time { complete } | NodeOperation::Complete { complete } => {
                Holds::Nothing.check(payload)?;
                completed(complete)
            }
            NodeOperation::Present { first, count, .. } => {
                Holds::Nothing.check(payload)?;
                blocks(*first, *count)
            }
        }
    }
}

impl NodeAnswer {
    pub(super) fn check(&self, payload: &Payload) -> Result<(), MessageError> {
        match self {
            NodeAnswer::Versions { versions } => {
                if payload.length() > 0 {
                    Holds::Bytes.check(payload)?;
                }
                let all: u64 = versions.iter().map(|one| u64::from(one.count)).sum();
                check_range("a number of blocks", 0, all, MAX_VERSIONED.into())?;
                let is_one = |one: &Versions| match &one.found {
                    Found::Has { digests, .. } => one.count > 0 && digests.len() <= one.count as usize * MAX_DIGESTS,
                    Found::Gone | Found::Damaged { .. } => one.count > 0,
                };
                match versions.iter().all(is_one) && payload.cut() == 0 {
                    true => Ok(()),
                    false => Err(MessageError::Range { what: "a run of versions" }),
                }
            }
            _ => Holds::Nothing.check(payload),
        }
    }
}
