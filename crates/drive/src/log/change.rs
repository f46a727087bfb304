//! What a batch says: changes of the map, of checksums and of marks, and whose they are.

use crate::extent::{BLOCKS, BlockSpan, ExtentKey, Sums};
use smallvec::SmallVec;
use tepal_model::{DriveId, Epoch, MapId, Origin, Taken, history::MAX_SPANS};

/// First and last of each run of epochs, ascending.
pub type Epochs = SmallVec<[(Epoch, Epoch); 1]>;

/// One change in a batch; byte table in `docs/formats.md`. Slots are numbers of [`crate::geometry::Geometry::slots`];
/// `sums` has a checksum for each block of the span, bound to its identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Small write: the blocks' data is in the batch's payload, and later goes to their place in the slot.
    Logged {
        /// Which layer of which extent.
        key: ExtentKey,
        /// The slot that the layer has.
        slot: u32,
        /// Which of its blocks.
        span: BlockSpan,
        /// Of each of these blocks.
        sums: Sums,
    },
    /// Large write: the data is in the slot already. A slot that the layer had before is free from here on.
    Placed {
        /// Which layer of which extent.
        key: ExtentKey,
        /// The slot that the layer has from here on.
        slot: u32,
        /// Which of its blocks. If the slot is new to the layer, they are all that it holds.
        span: BlockSpan,
        /// Of each of these blocks.
        sums: Sums,
    },
    /// A layer doesn't hold anything of these blocks any more.
    Cleared {
        /// Which layer of which extent.
        key: ExtentKey,
        /// Which of its blocks.
        span: BlockSpan,
    },
    /// The same for whole extents, from `first` on.
    ClearedExtents {
        /// Of which map.
        map: MapId,
        /// As [`ExtentKey::index`].
        first: u64,
        /// Extents.
        count: u64,
        /// Which of their layers.
        epochs: Epochs,
    },
    /// Who sees this epoch sees nothing of these blocks that is of an earlier one.
    Hid {
        /// Of which map.
        map: MapId,
        /// When.
        epoch: Epoch,
        /// The first one's number, within what the drive holds of the map.
        first: u64,
        /// Blocks.
        count: u64,
    },
    /// That isn't so any more.
    Unhid {
        /// Of which map.
        map: MapId,
        /// What was said in these epochs: the first and the last of them.
        epochs: (Epoch, Epoch),
        /// The first block's number, within what the drive holds of the map.
        first: u64,
        /// Blocks.
        count: u64,
    },
    /// A busy or stale mark set or taken back.
    Marked(Mark),
    /// This mark doesn't hold any more.
    Unmarked(Mark),
    /// Marks of one kind on many regions: of `64 * word` on, those whose bits are set.
    MarkedMany {
        /// Of which map.
        map: MapId,
        /// Which mark.
        kind: MarkKind,
        /// Which 64 regions.
        word: u64,
        /// The region `64 * word` is the lowest bit.
        regions: u64,
    },
    /// No mark on a region of this map holds any more.
    UnmarkedMap {
        /// All of whose marks are gone.
        map: MapId,
    },
    /// Blocks have taken a request.
    Took {
        /// Of which map.
        map: MapId,
        /// Which request, and which blocks: if none, only the request's slot is known.
        taken: Taken,
    },
    /// These blocks haven't taken any.
    Untook {
        /// Of which map.
        map: MapId,
        /// The first one's number, within what the drive holds of the map.
        first: u64,
        /// Blocks.
        count: u64,
    },
    /// What isn't noted of these requests of a gateway may have been forgotten.
    Dropped {
        /// As [`Origin::gateway`].
        gateway: u64,
        /// Up to which number.
        dropped: Dropped,
    },
    /// The same of requests that were made in this view, or before, by gateways of which nothing else is said.
    Forgotten {
        /// As [`Origin::view`].
        view: u64,
    },
    /// No mark that was set before this holds, nor what was noted of requests and of hidden blocks; what does follows.
    NotesReset,
    /// The checkpoint whose cut is this batch writes these pages of the checksum table.
    SumPages {
        /// Number of the first page.
        first: u32,
        /// How many.
        count: u32,
    },
}

/// A mark on one region of a volume (Petal 2.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark {
    /// The map of that volume.
    pub map: MapId,
    /// Which region of the volume, counted in [`tepal_model::REGION`]s.
    pub region: u64,
    /// What it says.
    pub kind: MarkKind,
}

/// What a mark says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MarkKind {
    /// Writes may be under way: after a crash the copies may differ here.
    Busy,
    /// The copy on this drive missed writes here.
    Stale(DriveId),
}

/// Which requests of a gateway may have been forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dropped {
    /// Those up to this number.
    pub number: u64,
    /// The newest view in which one of them was made.
    pub view: u64,
}

const LOGGED: u8 = 1;
const PLACED: u8 = 2;
const CLEARED: u8 = 3;
const CLEARED_EXTENTS: u8 = 4;
const MARKED: u8 = 5;
const UNMARKED: u8 = 6;
const NOTES_RESET: u8 = 7;
const SUM_PAGES: u8 = 8;
const MARKED_MANY: u8 = 9;
const UNMARKED_MAP: u8 = 10;
const TOOK: u8 = 11;
const UNTOOK: u8 = 12;
const FORGOTTEN: u8 = 13;
const DROPPED: u8 = 14;
const HID: u8 = 15;
const UNHID: u8 = 16;
const BUSY: u8 = 1;
const STALE: u8 = 2;

impl Change {
    /// Bytes that it takes in a batch.
    pub fn encoded_length(&self) -> usize {
        match self {
            Change::Logged { sums, .. } | Change::Placed { sums, .. } => 1 + 16 + 4 + 2 + 4 * sums.len(),
            Change::Cleared { .. } => 1 + 16 + 2,
            Change::ClearedExtents { epochs, .. } => 1 + 4 + 8 + 8 + 2 + 8 * epochs.len(),
            Change::Hid { .. } => 1 + 4 + 4 + 8 + 8,
            Change::Unhid { .. } => 1 + 4 + 8 + 8 + 8,
            Change::Marked(_) | Change::Unmarked(_) => 1 + 4 + 8 + 1 + 8,
            Change::MarkedMany { .. } => 1 + 4 + 8 + 1 + 8 + 8,
            Change::UnmarkedMap { .. } => 1 + 4,
            Change::Took { .. } => 1 + 4 + 28 + 8 + 8,
            Change::Untook { .. } => 1 + 4 + 8 + 8,
            Change::Dropped { .. } => 1 + 8 + 8 + 8,
            Change::Forgotten { .. } => 1 + 8,
            Change::NotesReset => 1,
            Change::SumPages { .. } => 1 + 4 + 4,
        }
    }

    /// Of what is nowhere but in the log, and put there afresh by each checkpoint: marks, requests, hidden blocks.
    pub fn is_of_notes(&self) -> bool {
        use Change::{
            Dropped, Forgotten, Hid, Marked, MarkedMany, NotesReset, Took, Unhid, Unmarked, UnmarkedMap, Untook,
        };
        match self {
            Marked(_) | MarkedMany { .. } | Unmarked(_) | UnmarkedMap { .. } => true,
            Took { .. } | Untook { .. } | Dropped { .. } | Forgotten { .. } => true,
            Hid { .. } | Unhid { .. } | NotesReset => true,
            Change::Logged { .. } | Change::Placed { .. } | Change::SumPages { .. } => false,
            Change::Cleared { .. } | Change::ClearedExtents { .. } => false,
        }
    }

    /// Blocks of payload that go with it.
    pub fn payload_blocks(&self) -> u32 {
        match self {
            Change::Logged { span, .. } => span.count.into(),
            _ => 0,
        }
    }

    /// Appends it as it is in a batch, [`Change::encoded_length`] bytes. The payload isn't part of that.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Change::Logged { key, slot, span, sums } | Change::Placed { key, slot, span, sums } => {
                out.push(if matches!(self, Change::Logged { .. }) { LOGGED } else { PLACED });
                encode_key(out, key);
                words(out, [*slot]);
                out.extend([span.first, span.count]);
                words(out, sums.iter().copied());
            }
            Change::Cleared { key, span } => {
                out.push(CLEARED);
                encode_key(out, key);
                out.extend([span.first, span.count]);
            }
            Change::ClearedExtents { map, first, count, epochs } => {
                out.push(CLEARED_EXTENTS);
                words(out, [map.0]);
                longs(out, [*first, *count]);
                out.extend((epochs.len() as u16).to_le_bytes());
                words(out, epochs.iter().flat_map(|&(first, last)| [first, last]));
            }
            Change::Hid { map, epoch, first, count } => {
                out.push(HID);
                words(out, [map.0, *epoch]);
                longs(out, [*first, *count]);
            }
            Change::Unhid { map, epochs, first, count } => {
                out.push(UNHID);
                words(out, [map.0, epochs.0, epochs.1]);
                longs(out, [*first, *count]);
            }
            Change::Marked(mark) | Change::Unmarked(mark) => {
                out.push(if matches!(self, Change::Marked(_)) { MARKED } else { UNMARKED });
                encode_marked(out, mark.map, mark.region, mark.kind);
            }
            Change::MarkedMany { map, kind, word, regions } => {
                out.push(MARKED_MANY);
                encode_marked(out, *map, *word, *kind);
                longs(out, [*regions]);
            }
            Change::UnmarkedMap { map } => {
                out.push(UNMARKED_MAP);
                words(out, [map.0]);
            }
            Change::Took { map, taken: Taken { origin, first, count } } => {
                out.push(TOOK);
                words(out, [map.0]);
                longs(out, [origin.gateway]);
                words(out, [origin.slot]);
                longs(out, [origin.number, origin.view, *first, *count]);
            }
            Change::Untook { map, first, count } => {
                out.push(UNTOOK);
                words(out, [map.0]);
                longs(out, [*first, *count]);
            }
            Change::Dropped { gateway, dropped: Dropped { number, view } } => {
                out.push(DROPPED);
                longs(out, [*gateway, *number, *view]);
            }
            Change::Forgotten { view } => {
                out.push(FORGOTTEN);
                longs(out, [*view]);
            }
            Change::NotesReset => out.push(NOTES_RESET),
            Change::SumPages { first, count } => {
                out.push(SUM_PAGES);
                words(out, [*first, *count]);
            }
        }
    }

    /// `None` if the bytes are no change; they may come from anywhere.
    pub fn decode(reader: &mut Reader<'_>) -> Option<Change> {
        let tag = reader.u8()?;
        Some(match tag {
            LOGGED | PLACED => {
                let (key, slot, span) = (decode_key(reader)?, reader.u32()?, decode_span(reader)?);
                let sums = (0..span.count).map(|_| reader.u32()).collect::<Option<Sums>>()?;
                match tag {
                    LOGGED => Change::Logged { key, slot, span, sums },
                    _ => Change::Placed { key, slot, span, sums },
                }
            }
            CLEARED => Change::Cleared { key: decode_key(reader)?, span: decode_span(reader)? },
            CLEARED_EXTENTS => {
                let (map, first, count) = (MapId(reader.u32()?), reader.u64()?, reader.u64()?);
                let runs = Some(reader.u16()?).filter(|&runs| usize::from(runs) <= MAX_SPANS)?;
                let epochs = (0..runs).map(|_| Some((reader.u32()?, reader.u32()?))).collect::<Option<Epochs>>()?;
                Change::ClearedExtents { map, first, count, epochs }
            }
            HID => {
                let (map, epoch) = (MapId(reader.u32()?), reader.u32()?);
                Change::Hid { map, epoch, first: reader.u64()?, count: reader.u64()? }
            }
            UNHID => {
                let (map, epochs) = (MapId(reader.u32()?), (reader.u32()?, reader.u32()?));
                Change::Unhid { map, epochs, first: reader.u64()?, count: reader.u64()? }
            }
            MARKED => Change::Marked(decode_mark(reader)?),
            UNMARKED => Change::Unmarked(decode_mark(reader)?),
            MARKED_MANY => {
                let Mark { map, region: word, kind } = decode_mark(reader)?;
                let regions = reader.u64()?;
                (word <= u64::MAX / 64).then_some(Change::MarkedMany { map, kind, word, regions })?
            }
            UNMARKED_MAP => Change::UnmarkedMap { map: MapId(reader.u32()?) },
            TOOK => {
                let (map, gateway, slot) = (MapId(reader.u32()?), reader.u64()?, reader.u32()?);
                let origin = Origin { gateway, slot, number: reader.u64()?, view: reader.u64()? };
                Change::Took { map, taken: Taken { origin, first: reader.u64()?, count: reader.u64()? } }
            }
            UNTOOK => Change::Untook { map: MapId(reader.u32()?), first: reader.u64()?, count: reader.u64()? },
            DROPPED => {
                let gateway = reader.u64()?;
                Change::Dropped { gateway, dropped: Dropped { number: reader.u64()?, view: reader.u64()? } }
            }
            FORGOTTEN => Change::Forgotten { view: reader.u64()? },
            NOTES_RESET => Change::NotesReset,
            SUM_PAGES => Change::SumPages { first: reader.u32()?, count: reader.u32()? },
            _ => return None,
        })
    }
}

fn decode_key(reader: &mut Reader<'_>) -> Option<ExtentKey> {
    let (map, epoch) = (MapId(reader.u32()?), reader.u32()?);
    let key = ExtentKey { map, epoch, index: reader.u64()? };
    (key.map.0 != 0 && key.index >> ExtentKey::INDEX_BITS == 0).then_some(key)
}

fn decode_span(reader: &mut Reader<'_>) -> Option<BlockSpan> {
    let span = BlockSpan { first: reader.u8()?, count: reader.u8()? };
    (span.count > 0 && u32::from(span.first) + u32::from(span.count) <= BLOCKS).then_some(span)
}

/// Takes little-endian numbers off the front of some bytes.
#[derive(Debug)]
pub struct Reader<'a>(pub &'a [u8]);

impl Reader<'_> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (front, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*front)
    }

    /// The next byte, or `None` if none is left.
    pub fn u8(&mut self) -> Option<u8> {
        self.array().map(|[byte]| byte)
    }

    /// The next two bytes, or `None` if there are fewer.
    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    /// The next four bytes, or `None` if there are fewer.
    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    /// The next eight bytes, or `None` if there are fewer.
    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }
}

fn words(out: &mut Vec<u8>, numbers: impl IntoIterator<Item = u32>) {
    numbers.into_iter().for_each(|number| out.extend(number.to_le_bytes()));
}

fn longs(out: &mut Vec<u8>, numbers: impl IntoIterator<Item = u64>) {
    numbers.into_iter().for_each(|number| out.extend(number.to_le_bytes()));
}

fn encode_key(out: &mut Vec<u8>, key: &ExtentKey) {
    words(out, [key.map.0, key.epoch]);
    longs(out, [key.index]);
}

fn encode_marked(out: &mut Vec<u8>, map: MapId, region_or_word: u64, kind: MarkKind) {
    let (kind, drive) = match kind {
        MarkKind::Busy => (BUSY, 0),
        MarkKind::Stale(drive) => (STALE, drive.0),
    };
    words(out, [map.0]);
    longs(out, [region_or_word]);
    out.push(kind);
    longs(out, [drive]);
}

fn decode_mark(reader: &mut Reader<'_>) -> Option<Mark> {
    let (map, region) = (MapId(reader.u32()?), reader.u64()?);
    let kind = match (reader.u8()?, reader.u64()?) {
        (BUSY, 0) => MarkKind::Busy,
        (STALE, drive) => MarkKind::Stale(DriveId(drive)),
        _ => return None,
    };
    Some(Mark { map, region, kind })
}
