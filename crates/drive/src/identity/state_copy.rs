//! Copies of the cluster's state that a drive keeps, from which a cluster is rebuilt whose servers have all lost theirs.
//!
//! There are two places for it: [`Drive::keep_state`](crate::Drive::keep_state) writes to them in turn.

use crate::geometry::GeometryError;
use crate::identity::label::Label;
use crate::patience::read_patiently;
use crate::world::{Device, DeviceError};
use bytes::Bytes;
use std::fmt;
use tepal_codec::checksum::crc;
use tepal_model::{BLOCK, Buffer, ClusterId, DriveId};

const MAGIC: [u8; 8] = *b"TEPALsta";
const CRC_AT: usize = BLOCK as usize - 4;
/// So much is written, or read, together.
pub(crate) const TOGETHER: usize = if cfg!(test) { 64 << 10 } else { 1 << 20 };

/// Which of two states is the later one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct StateOrder {
    /// The cluster's view.
    pub view: u64,
    /// How many events there had been.
    pub events: u64,
    /// The random number of the cluster's last rebuild; 0 before the first. Two of one number are of one past.
    pub history: u64,
}

impl fmt::Display for StateOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "view {}, event {}", self.view, self.events)?;
        if self.history == 0 { Ok(()) } else { write!(f, ", history {:x}", self.history) }
    }
}

/// A copy of the state, to be kept or as it was. Clones share the bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateCopy {
    order: StateOrder,
    length: u64,
    sum: u32,
    /// With zeros after it, up to a whole block.
    pub(crate) content: Bytes,
}

impl StateCopy {
    /// Of these bytes. Takes as long as their checksum.
    pub fn new(order: StateOrder, content: &[u8]) -> Self {
        let mut padded = Buffer::zeroed(content.len().next_multiple_of(BLOCK as usize));
        padded[..content.len()].copy_from_slice(content);
        StateCopy { order, length: content.len() as u64, sum: crc(content), content: padded.freeze() }
    }

    /// Of which state it is.
    pub fn order(&self) -> StateOrder {
        self.order
    }

    /// The bytes that it was made of.
    pub fn content(&self) -> &[u8] {
        &self.content[..self.length as usize]
    }

    /// How long a place must be for it, in bytes.
    pub fn room(&self) -> u64 {
        BLOCK + self.content.len() as u64
    }

    pub(crate) fn header(&self) -> Header {
        Header { order: self.order, length: self.length, sum: self.sum }
    }
}

/// What there is in both places.
#[derive(Clone, Debug, Default)]
pub struct StateCopies {
    /// Those that are whole, the later one first.
    pub whole: Vec<StateCopy>,
    /// Places with a copy that is damaged, or was being written; of which state, if that can be read.
    pub damaged: Vec<Option<StateOrder>>,
}

/// The block that a copy begins with; byte table in `docs/formats.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub order: StateOrder,
    length: u64,
    sum: u32,
}

impl Header {
    pub(crate) fn encode(&self, cluster: ClusterId, drive: DriveId) -> Bytes {
        let mut page = Buffer::zeroed(BLOCK as usize);
        page[0..8].copy_from_slice(&MAGIC);
        page[8..16].copy_from_slice(&drive.0.to_le_bytes());
        page[16..32].copy_from_slice(&cluster.0.to_le_bytes());
        page[32..40].copy_from_slice(&self.order.view.to_le_bytes());
        page[40..48].copy_from_slice(&self.order.events.to_le_bytes());
        page[48..56].copy_from_slice(&self.length.to_le_bytes());
        page[56..64].copy_from_slice(&self.order.history.to_le_bytes());
        page[64..68].copy_from_slice(&self.sum.to_le_bytes());
        let sum = crc(&page[..CRC_AT]);
        page[CRC_AT..].copy_from_slice(&sum.to_le_bytes());
        page.freeze()
    }

    /// `None` for anything that isn't one of this drive, or can't be in a place so long.
    fn decode(page: &[u8], label: &Label) -> Option<Header> {
        let u32_at = |at: usize| u32::from_le_bytes(page[at..at + 4].try_into().expect("4 bytes"));
        let u64_at = |at: usize| u64::from_le_bytes(page[at..at + 8].try_into().expect("8 bytes"));
        let cluster = u128::from_le_bytes(page[16..32].try_into().expect("16 bytes"));
        let is_ours = page[0..8] == MAGIC && u64_at(8) == label.drive.0 && cluster == label.cluster.0;
        let header = Header {
            order: StateOrder { view: u64_at(32), events: u64_at(40), history: u64_at(56) },
            length: u64_at(48),
            sum: u32_at(64),
        };
        let fits = header.length <= label.state_length.saturating_sub(BLOCK);
        (is_ours && fits && u32_at(CRC_AT) == crc(&page[..CRC_AT])).then_some(header)
    }
}

/// Which places have whole copies, of which states.
pub(crate) type Places = [Option<Header>; 2];

/// What a labelled drive keeps; nothing is written. It may be in use elsewhere: what is being written counts as damaged.
pub async fn read_state_copies<D: Device>(device: &D, label: &Label) -> Result<StateCopies, ReadCopiesError> {
    let mut found = StateCopies::default();
    for start in label.geometry()?.state_places() {
        match read_place(device, label, start).await? {
            Stored::Empty => {}
            Stored::Damaged(order) => found.damaged.push(order),
            Stored::Whole(copy) => found.whole.push(copy),
        }
    }
    found.whole.sort_by_key(|copy| std::cmp::Reverse(copy.order));
    Ok(found)
}

/// Why it can't be said what a drive keeps.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadCopiesError {
    /// Its label says sizes that no drive has.
    #[error(transparent)]
    Geometry(#[from] GeometryError),
    /// The device is gone.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

pub(crate) enum Stored {
    Empty,
    Damaged(Option<StateOrder>),
    Whole(StateCopy),
}

pub(crate) async fn read_place<D: Device>(device: &D, label: &Label, start: u64) -> Result<Stored, DeviceError> {
    let Some(page) = read_patiently(device, start).await? else { return Ok(Stored::Damaged(None)) };
    let Some(header) = Header::decode(&page, label) else {
        // Before the first copy there are zeros; drives of earlier builds may have what was left there of another use.
        return Ok(if page.iter().all(|byte| *byte == 0) { Stored::Empty } else { Stored::Damaged(None) });
    };
    let Header { order, length, sum } = header;
    let mut content = Buffer::zeroed((length as usize).next_multiple_of(BLOCK as usize));
    for (number, piece) in content.chunks_mut(TOGETHER).enumerate() {
        let at = start + BLOCK + (number * TOGETHER) as u64;
        match device.read(at, Buffer::take(piece.len())).await {
            Ok(bytes) => piece.copy_from_slice(&bytes),
            Err(DeviceError::Failed { .. }) => return Ok(Stored::Damaged(Some(order))),
            Err(gone) => return Err(gone),
        }
    }
    match crc(&content[..length as usize]) == sum {
        true => Ok(Stored::Whole(StateCopy { order, length, sum, content: content.freeze() })),
        false => Ok(Stored::Damaged(Some(order))),
    }
}
