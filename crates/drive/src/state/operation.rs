//! What waits in line for a batch: changes, and joins of layers, whose changes are found when the batch is made.

use crate::error::Loss;
use crate::extent::ExtentKey;
use crate::log::Change;
use bytes::Bytes;
use futures_channel::oneshot;
use smallvec::SmallVec;
use std::ops::Range;
use std::sync::Arc;
use tepal_model::{Epoch, History, MapId};

/// A small write is one change, with a mark now and then.
pub type Changes = SmallVec<[Change; 2]>;
/// The data of the `Logged` changes, in their order.
pub type Payload = SmallVec<[Bytes; 1]>;
/// Tells when an operation is done.
pub type Done = oneshot::Receiver<Result<(), Arc<Loss>>>;

/// Changes that are committed together: all in one batch.
#[derive(Debug)]
pub struct Operation {
    pub changes: Changes,
    pub payload: Payload,
    /// What the changes are to be found by when the batch is made that they go into.
    pub join: Option<Box<Join>>,
    /// Acknowledged only when on stable media.
    pub durable: bool,
    pub done: oneshot::Sender<Result<(), Arc<Loss>>>,
}

impl Operation {
    pub fn encoded_length(&self) -> usize {
        self.changes.iter().map(Change::encoded_length).sum()
    }

    pub fn payload_blocks(&self) -> u32 {
        self.changes.iter().map(Change::payload_blocks).sum()
    }

    /// Each change, with its data if it is a `Logged` one.
    pub fn changes_with_payload(&self) -> impl Iterator<Item = (&Change, Option<&Bytes>)> {
        let mut payload = self.payload.iter();
        let of = move |change: &Change| if change.payload_blocks() > 0 { payload.next() } else { None };
        self.changes.iter().map(of).zip(&self.changes).map(|(payload, change)| (change, payload))
    }
}

/// Extents whose layers are joined in one batch, and notes that are joined or dropped.
#[derive(Debug)]
pub struct Join {
    pub map: MapId,
    pub history: Arc<History>,
    pub extents: Vec<u64>,
    /// Notes that may be of no use where they are.
    pub notes: Vec<(Epoch, Range<u64>)>,
    pub moves: Vec<Move>,
    /// Of all layers that blocks are moved from or to: `State::joining` has them.
    pub slots: Vec<u32>,
}

/// A block, as it was read.
#[derive(Debug)]
pub struct Move {
    pub from: (ExtentKey, u32),
    pub to: (ExtentKey, u32),
    /// Within the extent.
    pub block: u8,
    pub crc: u32,
    pub data: Bytes,
}
