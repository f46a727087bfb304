//! The header of a drive: which checkpoint its tables are of, and where replay starts.

use crate::log::Position;
use bytes::Bytes;
use tepal_codec::checksum::{crc, crc_append};
use tepal_model::{BLOCK, Buffer, DriveId};

/// The block that commits a checkpoint; byte table in `docs/formats.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Its number, counted from 1.
    pub checkpoint: u64,
    /// The map table says everything up to this batch, and nothing after it.
    pub cut: u64,
    /// Where replay starts: the oldest batch whose data isn't in its slots.
    pub tail: Position,
    /// How many pages of the map table have been written; those after hold nothing.
    pub map_pages: u32,
    /// Sum over these pages of a hash of number and checkpoint: tells that one of them is an older one.
    pub map_sum: u64,
}

const MAGIC: [u8; 8] = *b"TEPALhdr";
const CRC_AT: usize = BLOCK as usize - 4;

impl Header {
    /// The block as it's written, with its CRC.
    pub fn encode(&self, drive: DriveId) -> Bytes {
        let mut page = Buffer::zeroed(BLOCK as usize);
        page[0..8].copy_from_slice(&MAGIC);
        let fields = [
            drive.0,
            self.checkpoint,
            self.cut,
            self.tail.offset,
            self.tail.sequence,
            u64::from(self.tail.previous),
            u64::from(self.map_pages),
            self.map_sum,
        ];
        for (field, at) in fields.iter().zip((8..).step_by(8)) {
            page[at..at + 8].copy_from_slice(&field.to_le_bytes());
        }
        let sum = crc(&page[..CRC_AT]);
        page[CRC_AT..].copy_from_slice(&sum.to_le_bytes());
        page.freeze()
    }

    /// `None` if the block is no whole header of this drive.
    pub fn decode(page: &[u8], drive: DriveId) -> Option<Self> {
        let u64_at = |at: usize| u64::from_le_bytes(page[at..at + 8].try_into().expect("8 bytes"));
        let stored = u32::from_le_bytes(page.get(CRC_AT..)?.try_into().ok()?);
        if page[0..8] != MAGIC || stored != crc(&page[..CRC_AT]) || u64_at(8) != drive.0 {
            return None;
        }
        // Nobody has counted so far, and batches start where blocks do; what follows here relies on that.
        if [16, 24, 32, 40].into_iter().any(|at| u64_at(at) > u64::MAX / 2) || !u64_at(32).is_multiple_of(BLOCK) {
            return None;
        }
        Some(Header {
            checkpoint: u64_at(16),
            cut: u64_at(24),
            tail: Position { offset: u64_at(32), sequence: u64_at(40), previous: u32::try_from(u64_at(48)).ok()? },
            map_pages: u32::try_from(u64_at(56)).ok()?,
            map_sum: u64_at(64),
        })
    }
}

/// A hash of which checkpoint wrote each page; it changes if any page is an older one than it should be.
pub fn map_sum(versions: &[u64]) -> u64 {
    let hash = |(page, version): (usize, &u64)| {
        let low = crc(&version.to_le_bytes());
        let bytes = (page as u64).to_le_bytes();
        (u64::from(crc_append(low, &bytes)) << 32) | u64::from(crc_append(!low, &bytes))
    };
    versions.iter().enumerate().map(hash).fold(0, u64::wrapping_add)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn hostile_bytes_are_no_header_or_one_that_can_be_written(
            bytes in prop::collection::vec(any::<u8>(), 0..128), length in 0usize..2 * BLOCK as usize, seal: bool,
        ) {
            let mut page = vec![0; length];
            let filled = bytes.len().min(length);
            page[..filled].copy_from_slice(&bytes[..filled]);
            if seal && length == BLOCK as usize {
                page[..8].copy_from_slice(&MAGIC);
                page[8..16].copy_from_slice(&3u64.to_le_bytes());
                let sum = crc(&page[..CRC_AT]);
                page[CRC_AT..].copy_from_slice(&sum.to_le_bytes());
            }
            if let Some(header) = Header::decode(&page, DriveId(3)) {
                prop_assert_eq!(Header::decode(&header.encode(DriveId(3)), DriveId(3)), Some(header));
            }
        }
    }

    #[test]
    fn headers_read_back_and_notice_any_change() {
        let header = Header {
            checkpoint: 5,
            cut: 90,
            tail: Position { offset: 8192, sequence: 80, previous: 0x1234_5678 },
            map_pages: 3,
            map_sum: map_sum(&[5, 4, 5]),
        };
        let bytes = header.encode(DriveId(3));
        assert_eq!(Header::decode(&bytes, DriveId(3)), Some(header));
        assert_eq!(Header::decode(&bytes, DriveId(4)), None);
        for at in (0..BLOCK as usize).step_by(7) {
            let mut rotten = bytes.to_vec();
            rotten[at] ^= 1;
            assert_eq!(Header::decode(&rotten, DriveId(3)), None, "byte {at}");
        }
    }

    #[test]
    fn numbers_that_nobody_can_count_on_are_no_header() {
        let start = Position { offset: 0, sequence: 1, previous: 0 };
        let header = Header { checkpoint: 1, cut: 0, tail: start, map_pages: 0, map_sum: 0 };
        let forged = [
            Header { checkpoint: u64::MAX, ..header },
            Header { cut: u64::MAX, ..header },
            Header { tail: Position { offset: u64::MAX, ..start }, ..header },
            Header { tail: Position { offset: 4097, ..start }, ..header },
            Header { tail: Position { sequence: u64::MAX, ..start }, ..header },
        ];
        for header in forged {
            assert_eq!(Header::decode(&header.encode(DriveId(3)), DriveId(3)), None, "{header:?}");
        }
    }

    #[test]
    fn one_older_page_changes_the_sum() {
        let versions = [9, 9, 8, 9];
        for page in 0..versions.len() {
            let mut older = versions;
            older[page] -= 1;
            assert_ne!(map_sum(&older), map_sum(&versions), "page {page}");
        }
        assert_ne!(map_sum(&[8, 9]), map_sum(&[9, 8]));
    }
}
