//! A batch on the drive: header, changes, payload. The byte table is in `docs/formats.md`.

use crate::log::change::{Change, Reader};
use crate::world::Gather;
use bytes::Bytes;
use tepal_codec::checksum::{crc, crc_append};
use tepal_model::{BLOCK, Buffer, DriveId};

const MAGIC: [u8; 4] = *b"TPlg";
/// Bytes before the packed changes.
pub const HEADER: usize = 56;
const CRC_AT: usize = 52;
const BLOCK_BYTES: usize = BLOCK as usize;

/// What a batch says of itself; byte table in `docs/formats.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchHeader {
    /// Whose log it's in.
    pub drive: DriveId,
    /// The batch's number, counted from 1.
    pub sequence: u64,
    /// The newest batch that was surely on stable media when this one was made.
    pub durable: u64,
    /// CRC of the batch before this one.
    pub previous: u32,
    /// How many.
    pub changes: u32,
    /// Bytes of the packed changes.
    pub changes_length: u32,
    /// How many.
    pub payload_blocks: u32,
    /// CRC of all payload blocks, so that a batch is whole or not at all.
    pub payload_crc: u32,
    /// CRC of the header and the changes: what the next batch calls `previous`.
    pub crc: u32,
}

impl BatchHeader {
    /// Bytes from the batch's start to its payload.
    pub fn head_length(&self) -> u64 {
        (HEADER as u64 + u64::from(self.changes_length)).next_multiple_of(BLOCK)
    }

    /// Bytes of the whole batch on the drive.
    pub fn length(&self) -> u64 {
        self.head_length() + u64::from(self.payload_blocks) * BLOCK
    }

    /// The header at the start of this block, not yet checked against its CRC; `None` if there is none.
    pub fn peek(block: &[u8], drive: DriveId) -> Option<Self> {
        let u32_at = |at: usize| u32::from_le_bytes(block[at..at + 4].try_into().expect("4 bytes"));
        let u64_at = |at: usize| u64::from_le_bytes(block[at..at + 8].try_into().expect("8 bytes"));
        if block.len() < BLOCK_BYTES || block[0..4] != MAGIC || u64_at(8) != drive.0 {
            return None;
        }
        Some(BatchHeader {
            drive,
            sequence: u64_at(16),
            durable: u64_at(24),
            previous: u32_at(4),
            changes: u32_at(32),
            changes_length: u32_at(36),
            payload_blocks: u32_at(40),
            payload_crc: u32_at(44),
            crc: u32_at(CRC_AT),
        })
    }
}

/// A whole batch in memory.
#[derive(Clone, Debug)]
pub struct Batch {
    /// Checked against both CRCs.
    pub header: BatchHeader,
    /// In the order in which they're applied.
    pub changes: Vec<Change>,
    /// The data of the [`Change::Logged`] ones, in their order.
    pub payload: Bytes,
    /// All of it, as it is on the drive.
    pub bytes: Bytes,
}

/// Gathers changes into the bytes of a batch.
#[derive(Debug, Default)]
pub struct BatchBuilder {
    changes: u32,
    packed: Vec<u8>,
    payload: Vec<Bytes>,
    payload_blocks: u32,
}

impl BatchBuilder {
    /// Bytes that the batch would take with another change of that size.
    pub fn length_with(&self, change_bytes: usize, payload_blocks: u32) -> u64 {
        let head = (HEADER + self.packed.len() + change_bytes) as u64;
        head.next_multiple_of(BLOCK) + u64::from(self.payload_blocks + payload_blocks) * BLOCK
    }

    /// Adds a change with its data: whole blocks for [`Change::Logged`], nothing for others.
    pub fn push(&mut self, change: &Change, payload: impl IntoIterator<Item = Bytes>) {
        change.encode(&mut self.packed);
        self.changes += 1;
        self.payload_blocks += change.payload_blocks();
        self.payload.extend(payload);
    }

    /// Whether nothing has been pushed.
    pub fn is_empty(&self) -> bool {
        self.changes == 0
    }

    /// The batch as it goes to the drive, its payload where it lies; and the CRC that the next batch names.
    pub fn finish(self, drive: DriveId, sequence: u64, durable: u64, previous: u32) -> (Gather, u32) {
        let head = (HEADER + self.packed.len()).next_multiple_of(BLOCK_BYTES);
        let brought: usize = self.payload.iter().map(Bytes::len).sum();
        let announced = self.payload_blocks as usize * BLOCK_BYTES;
        assert_eq!(brought, announced, "each change brings the payload that it announces");
        let payload_crc = self.payload.iter().fold(crc(&[]), |sum, piece| crc_append(sum, piece));
        let mut bytes = Buffer::take(head);
        bytes[0..4].copy_from_slice(&MAGIC);
        bytes[4..8].copy_from_slice(&previous.to_le_bytes());
        bytes[8..16].copy_from_slice(&drive.0.to_le_bytes());
        bytes[16..24].copy_from_slice(&sequence.to_le_bytes());
        bytes[24..32].copy_from_slice(&durable.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.changes.to_le_bytes());
        bytes[36..40].copy_from_slice(&(self.packed.len() as u32).to_le_bytes());
        bytes[40..44].copy_from_slice(&self.payload_blocks.to_le_bytes());
        bytes[44..48].copy_from_slice(&payload_crc.to_le_bytes());
        bytes[48..52].fill(0);
        bytes[HEADER..HEADER + self.packed.len()].copy_from_slice(&self.packed);
        bytes[HEADER + self.packed.len()..head].fill(0);
        let sum = head_crc(&bytes[..head]);
        bytes[CRC_AT..HEADER].copy_from_slice(&sum.to_le_bytes());
        let mut pieces = Gather::with_capacity(1 + self.payload.len());
        pieces.push(bytes.freeze());
        pieces.extend(self.payload);
        (pieces, sum)
    }
}

fn head_crc(head: &[u8]) -> u32 {
    crc_append(crc(&head[..CRC_AT]), &head[HEADER..])
}

impl Batch {
    /// The batch that starts here, if it's whole.
    pub fn decode(bytes: &Bytes, drive: DriveId) -> Option<Self> {
        let header = BatchHeader::peek(bytes.get(..BLOCK_BYTES)?, drive)?;
        let head = usize::try_from(header.head_length()).ok()?;
        let length = usize::try_from(header.length()).ok()?;
        let whole = bytes.get(..length)?;
        if header.crc != head_crc(&whole[..head]) || header.payload_crc != crc(&whole[head..]) {
            return None;
        }
        let mut reader = Reader(&whole[HEADER..HEADER + header.changes_length as usize]);
        let mut changes = Vec::new();
        for _ in 0..header.changes {
            changes.push(Change::decode(&mut reader)?);
        }
        let payload_blocks: u32 = changes.iter().map(Change::payload_blocks).sum();
        if !reader.0.is_empty() || payload_blocks != header.payload_blocks {
            return None;
        }
        Some(Batch { header, changes, payload: bytes.slice(head..length), bytes: bytes.slice(..length) })
    }

    /// Whether the header and the changes here are whole, whatever the payload is.
    pub fn head_is_whole(bytes: &[u8], drive: DriveId) -> Option<BatchHeader> {
        let header = BatchHeader::peek(bytes.get(..BLOCK_BYTES)?, drive)?;
        let head = bytes.get(..usize::try_from(header.head_length()).ok()?)?;
        (header.crc == head_crc(head)).then_some(header)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::extent::{BlockSpan, ExtentKey};
    use crate::log::change::Dropped;
    use crate::log::{Mark, MarkKind};
    use proptest::prelude::*;
    use tepal_model::{MapId, Origin, Taken, buffer::join};

    const DRIVE: DriveId = DriveId(5);

    fn sample() -> (Bytes, Vec<Change>) {
        let key = ExtentKey { map: MapId(3), index: 1 << 40, epoch: 6 };
        let span = BlockSpan { first: 14, count: 2 };
        let mark = Mark { map: MapId(3), region: 77, kind: MarkKind::Stale(DriveId(9)) };
        let changes = vec![
            Change::Logged { key, slot: 12, span, sums: [1, 2].into_iter().collect() },
            Change::Placed { key, slot: 13, span: BlockSpan::WHOLE, sums: (0..16).collect() },
            Change::Cleared { key, span },
            Change::ClearedExtents {
                map: MapId(3),
                first: 5,
                count: u64::MAX,
                epochs: [(0, 1), (4, 7)].into_iter().collect(),
            },
            Change::Hid { map: MapId(3), epoch: 2, first: 5, count: 6 },
            Change::Unhid { map: MapId(3), epochs: (0, 2), first: 5, count: u64::MAX },
            Change::NotesReset,
            Change::Took {
                map: MapId(3),
                taken: Taken { origin: Origin { gateway: 1, slot: 2, number: 3, view: 4 }, first: 5, count: 6 },
            },
            Change::Untook { map: MapId(3), first: 5, count: 6 },
            Change::Dropped { gateway: 1, dropped: Dropped { number: 2, view: 3 } },
            Change::Forgotten { view: 4 },
            Change::SumPages { first: 3, count: 9 },
            Change::Marked(mark),
            Change::MarkedMany { map: mark.map, kind: mark.kind, word: 3, regions: 0b1011 },
            Change::UnmarkedMap { map: mark.map },
            Change::Unmarked(Mark { kind: MarkKind::Busy, ..mark }),
        ];
        let mut builder = BatchBuilder::default();
        for change in &changes {
            let payload = (change.payload_blocks() > 0).then(|| Bytes::from(vec![7; 8192]));
            builder.push(change, payload);
        }
        let (pieces, _) = builder.finish(DRIVE, 42, 40, 0xabcd);
        (join(pieces.as_slice()), changes)
    }

    #[test]
    fn batches_read_back() {
        let (bytes, changes) = sample();
        let batch = Batch::decode(&bytes, DRIVE).unwrap();
        assert_eq!(batch.changes, changes);
        assert_eq!((batch.header.sequence, batch.header.durable, batch.header.previous), (42, 40, 0xabcd));
        assert_eq!(batch.header.length(), bytes.len() as u64);
        assert!(batch.payload.iter().all(|&b| b == 7) && batch.payload.len() == 8192);
        assert!(Batch::decode(&bytes, DriveId(6)).is_none(), "another drive's log");
    }

    #[test]
    fn an_extent_of_no_map_is_no_change() {
        for (map, found) in [(1, true), (0, false)] {
            let key = ExtentKey { map: MapId(map), index: 0, epoch: 0 };
            let mut bytes = Vec::new();
            Change::Cleared { key, span: BlockSpan::WHOLE }.encode(&mut bytes);
            assert_eq!(Change::decode(&mut Reader(&bytes)).is_some(), found);
        }
    }

    #[test]
    fn a_batch_is_whole_or_nothing() {
        let (bytes, _) = sample();
        for cut in (0..bytes.len()).step_by(512) {
            let mut torn = bytes[..cut].to_vec();
            torn.resize(bytes.len(), 0);
            assert!(Batch::decode(&torn.into(), DRIVE).is_none(), "torn at {cut}");
            assert!(Batch::decode(&bytes.slice(..cut), DRIVE).is_none(), "ends at {cut}");
        }
        for byte in (0..bytes.len()).step_by(61).filter(|at| !(48..52).contains(at)) {
            let mut rotten = bytes.to_vec();
            rotten[byte] ^= 4;
            assert!(Batch::decode(&rotten.into(), DRIVE).is_none(), "byte {byte}");
        }
    }

    proptest! {
        #[test]
        fn hostile_bytes_do_no_harm(mut bytes in prop::collection::vec(any::<u8>(), 0..9000), seal: bool) {
            if seal && bytes.len() >= BLOCK_BYTES {
                bytes[0..4].copy_from_slice(&MAGIC);
                bytes[8..16].copy_from_slice(&DRIVE.0.to_le_bytes());
            }
            let bytes = Bytes::from(bytes);
            let _ = Batch::decode(&bytes, DRIVE);
            let _ = Batch::head_is_whole(&bytes, DRIVE);
            let _ = Change::decode(&mut Reader(&bytes));
        }
    }
}
