//! Copies of the cluster's state that a drive keeps, from which a cluster is rebuilt whose servers have all lost theirs.
//!
//! There are two places for it, written in turn. Invariants:
//! 1. The place that has the newest whole copy isn't written to: whatever becomes of a write, that copy stays readable.
//! 2. A copy is never followed by one of an earlier state. Of two of one order, which can say different things, the first place's counts,
//!    and it's the later one once that is kept.
//! 3. What is in it is nothing to the drive.

use crate::drive::Drive;
use crate::error::Loss;
use crate::geometry::GeometryError;
use crate::identity::label::Label;
use crate::patience::read_patiently;
use crate::world::{Device, DeviceError, Gather, World};
use bytes::Bytes;
use std::fmt;
use std::sync::Arc;
use tepal_codec::checksum::crc;
use tepal_model::{BLOCK, Buffer, ClusterId, DriveId};

const MAGIC: [u8; 8] = *b"TEPALsta";
const CRC_AT: usize = BLOCK as usize - 4;
/// So much is written, or read, together.
const TOGETHER: usize = if cfg!(test) { 64 << 10 } else { 1 << 20 };

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
    content: Bytes,
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

    fn header(&self) -> Header {
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

/// Why a state wasn't kept. The one before it is still there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeepError {
    /// It was labelled by an earlier version, or nothing may be written.
    #[error(
        "it has no place for a copy of the cluster's state, as it's of format 4 or opened for reading: drain it, remove it and add it anew"
    )]
    NoPlace,
    /// Of use is only a larger drive.
    #[error(
        "a copy of the cluster's state takes {needed} bytes, and its place for that has {room}: remove volumes or snapshots, or put a \
         larger drive in its place"
    )]
    TooLong {
        /// Bytes.
        needed: u64,
        /// Bytes.
        room: u64,
    },
    /// What is agreed here isn't all that was.
    #[error(
        "it keeps a later state of the cluster ({kept}) than this server has ({given}): the data folder seems to be an older copy; put the \
         newest one back, or empty it and have the server join anew"
    )]
    Later {
        /// That state.
        kept: StateOrder,
        /// The one that it was to keep.
        given: StateOrder,
    },
    /// The drive takes part in nothing any more.
    #[error("{0}")]
    Lost(Arc<Loss>),
}

impl From<Arc<Loss>> for KeepError {
    fn from(loss: Arc<Loss>) -> Self {
        KeepError::Lost(loss)
    }
}

/// The block that a copy begins with; byte table in `docs/formats.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    order: StateOrder,
    length: u64,
    sum: u32,
}

impl Header {
    fn encode(&self, cluster: ClusterId, drive: DriveId) -> Bytes {
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

/// The place that the next copy goes to, and what is in the other one.
fn next_place(places: &Places) -> (usize, Option<Header>) {
    let order = |place: usize| places[place].map(|header| header.order);
    let newest = if order(1) > order(0) { 1 } else { 0 };
    match places[newest] {
        Some(header) => (1 - newest, Some(header)),
        None => (0, None),
    }
}

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

enum Stored {
    Empty,
    Damaged(Option<StateOrder>),
    Whole(StateCopy),
}

async fn read_place<D: Device>(device: &D, label: &Label, start: u64) -> Result<Stored, DeviceError> {
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

impl<W: World> Drive<W> {
    /// Keeps a state in place of those before it: when this returns, it's on stable media. One at a time.
    pub async fn keep_state(&self, copy: &StateCopy) -> Result<(), KeepError> {
        let shared = &self.shared;
        let room = shared.geometry.state_length;
        if room == 0 || shared.options.read_only {
            return Err(KeepError::NoPlace);
        }
        if copy.room() > room {
            return Err(KeepError::TooLong { needed: copy.room(), room });
        }
        let mut known = shared.kept.lock().await;
        let places = match *known {
            Some(places) => places,
            None => {
                let found = self.read_kept().await?;
                // What the last run wrote may not be on stable media.
                shared.flush_slots().await.map_err(|error| shared.lose(error))?;
                found
            }
        };
        *known = Some(places);
        let (place, newest) = next_place(&places);
        match newest {
            Some(newest) if newest == copy.header() => return Ok(()),
            Some(newest) if newest.order > copy.order => {
                return Err(KeepError::Later { kept: newest.order, given: copy.order });
            }
            _ => {}
        }
        *known = None; // until it's known what came of this
        let mut places = places;
        let has_order = newest.is_some_and(|newest| newest.order == copy.order);
        let again = (place == 1 && has_order).then_some(0);
        for place in [Some(place), again].into_iter().flatten() {
            shared.lock().alive()?;
            let start = shared.geometry.state_start + room * place as u64;
            let written = self.write_state(start, copy).await;
            written.map_err(|error| shared.lose(error))?;
            places[place] = Some(copy.header());
        }
        *known = Some(places);
        Ok(())
    }

    /// The latest state that the drive keeps whole.
    pub async fn kept_order(&self) -> Result<Option<StateOrder>, Arc<Loss>> {
        let places = self.read_kept().await?;
        Ok(next_place(&places).1.map(|header| header.order))
    }

    async fn read_kept(&self) -> Result<Places, Arc<Loss>> {
        let mut places = Places::default();
        let (label, geometry) = (&self.shared.label, &self.shared.geometry);
        for (start, found) in geometry.state_places().zip(&mut places) {
            let read = read_place(&self.shared.device, label, start).await.map_err(|gone| self.shared.lose(gone))?;
            if let Stored::Whole(copy) = read {
                *found = Some(copy.header());
            }
        }
        Ok(places)
    }

    async fn write_state(&self, start: u64, copy: &StateCopy) -> Result<(), DeviceError> {
        let shared = &self.shared;
        let header = copy.header().encode(shared.label.cluster, shared.label.drive);
        shared.device.write(start, Gather::from_iter([header])).await?;
        let mut written = 0;
        while written < copy.content.len() {
            let end = copy.content.len().min(written + TOGETHER);
            let piece = copy.content.slice(written..end);
            shared.device.write(start + BLOCK + written as u64, Gather::from_iter([piece])).await?;
            written = end;
            shared.world.give_way().await;
        }
        shared.flush_slots().await
    }
}
