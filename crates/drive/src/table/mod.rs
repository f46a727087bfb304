//! Tables on the drive: records of one size for each slot, in pages of one block, each page kept twice.
//!
//! Invariants:
//! 1. A page is whole (its CRC matches) or refused; it names its table and its own number, so a misdirected one is too.
//! 2. A page carries the number of the checkpoint that wrote it. Copy A of a checkpoint's pages is stable before the
//!    header that commits the checkpoint is written, copy B is written after; so of any two copies, the newest one that
//!    isn't newer than the header is right, and a rotten copy has a twin.

pub(crate) mod sums;

use tepal_codec::checksum::{crc, crc_append};
use tepal_model::{BLOCK, Buffer, DriveId};

/// Bytes of a page.
pub const PAGE: usize = BLOCK as usize;
const HEADER: usize = 32;
const CRC_AT: usize = 28;

/// Where a table lies and how it's divided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// Bytes of a record.
    pub record: usize,
    /// Pages of one copy.
    pub pages: u32,
    /// Where they are, in their order; on a drive that has grown not all side by side.
    pub runs: Vec<PageRun>,
}

/// Pages of a table that lie side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageRun {
    /// The number of the first one.
    pub first: u32,
    /// Where the two copies of it start, in bytes.
    pub copies: [u64; 2],
}

/// The tables that a drive has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableKind {
    /// Which extent each slot holds.
    Map,
    /// The checksums of each slot's blocks.
    Sums,
}

impl TableKind {
    fn magic(self) -> [u8; 4] {
        match self {
            TableKind::Map => *b"TPmp",
            TableKind::Sums => *b"TPcs",
        }
    }
}

impl Table {
    /// Of records of `record` bytes, for no slot yet.
    pub fn empty(record: usize) -> Self {
        Table { record, pages: 0, runs: Vec::new() }
    }

    /// How many pages the records of so many slots take.
    pub fn pages_for(&self, slots: u32) -> u32 {
        slots.div_ceil(self.records_per_page())
    }

    fn per_page(record: usize) -> u32 {
        ((PAGE - HEADER) / record) as u32
    }

    /// What doesn't fit in whole stays unused at the page's end.
    pub fn records_per_page(&self) -> u32 {
        Self::per_page(self.record)
    }

    /// The number of the page that has the slot's record.
    pub fn page_of(&self, slot: u32) -> u32 {
        slot / self.records_per_page()
    }

    /// The slots whose records are on this page; the last page's range may end past the last slot.
    pub fn slots_of(&self, page: u32) -> std::ops::Range<u32> {
        let first = page * self.records_per_page();
        first..first.saturating_add(self.records_per_page())
    }

    /// Where the slot's record starts within its page.
    pub fn at(&self, slot: u32) -> usize {
        HEADER + (slot % self.records_per_page()) as usize * self.record
    }

    /// Where a page of copy 0 or 1 is on the drive, in bytes.
    pub fn offset(&self, copy: usize, page: u32) -> u64 {
        let run = self.runs[self.run_of(page)];
        run.copies[copy] + u64::from(page - run.first) * BLOCK
    }

    /// The first page after this one that doesn't lie beside the page before it; the number of pages, if there is none.
    pub fn run_end(&self, page: u32) -> u32 {
        self.runs.get(self.run_of(page) + 1).map_or(self.pages, |run| run.first)
    }

    fn run_of(&self, page: u32) -> usize {
        assert!(page < self.pages, "page {page} of {}", self.pages);
        self.runs.partition_point(|run| run.first <= page) - 1
    }
}

/// Fills in the header of a page whose records are in place.
pub fn seal(page: &mut [u8], kind: TableKind, drive: DriveId, number: u32, checkpoint: u64) {
    page[0..4].copy_from_slice(&kind.magic());
    page[4..8].copy_from_slice(&number.to_le_bytes());
    page[8..16].copy_from_slice(&checkpoint.to_le_bytes());
    page[16..24].copy_from_slice(&drive.0.to_le_bytes());
    page[24..28].fill(0);
    let sum = page_crc(page);
    page[CRC_AT..HEADER].copy_from_slice(&sum.to_le_bytes());
}

fn page_crc(page: &[u8]) -> u32 {
    crc_append(crc(&page[..CRC_AT]), &page[HEADER..PAGE])
}

/// Which checkpoint wrote this page, or `None` if it isn't that page.
pub fn unseal(page: &[u8], kind: TableKind, drive: DriveId, number: u32) -> Option<u64> {
    let u32_at = |at: usize| u32::from_le_bytes(page[at..at + 4].try_into().expect("4 bytes"));
    let u64_at = |at: usize| u64::from_le_bytes(page[at..at + 8].try_into().expect("8 bytes"));
    let right = page.len() == PAGE
        && page[0..4] == kind.magic()
        && u32_at(4) == number
        && u64_at(16) == drive.0
        && u32_at(CRC_AT) == page_crc(page);
    right.then(|| u64_at(8))
}

/// A page without records.
pub fn blank() -> Buffer {
    Buffer::zeroed(PAGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRIVE: DriveId = DriveId(0x1234);

    fn sealed() -> Buffer {
        let mut page = blank();
        page[100] = 9;
        seal(&mut page, TableKind::Sums, DRIVE, 7, 42);
        page
    }

    #[test]
    fn a_sealed_page_opens_as_itself_only() {
        let page = sealed();
        assert_eq!(unseal(&page, TableKind::Sums, DRIVE, 7), Some(42));
        assert_eq!(unseal(&page, TableKind::Map, DRIVE, 7), None, "another table's page");
        assert_eq!(unseal(&page, TableKind::Sums, DRIVE, 8), None, "a misdirected page");
        assert_eq!(unseal(&page, TableKind::Sums, DriveId(1), 7), None, "another drive's page");
    }

    #[test]
    fn any_flipped_bit_is_noticed() {
        for bit in (0..PAGE * 8).step_by(37).chain(24 * 8..32 * 8) {
            let mut page = sealed();
            page[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(unseal(&page, TableKind::Sums, DRIVE, 7), None, "bit {bit}");
        }
    }

    #[test]
    fn records_do_not_overlap() {
        let table = Table::empty(64);
        assert_eq!(table.records_per_page(), 63);
        assert_eq!((table.page_of(62), table.page_of(63)), (0, 1));
        assert!(table.at(62) + 64 <= PAGE && table.at(63) == HEADER);
        assert_eq!(table.slots_of(1), 63..126);
    }
}
