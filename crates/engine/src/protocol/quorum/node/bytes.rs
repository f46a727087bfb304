//! What a node keeps of versions on its drive, as bytes: docs/formats.md has the tables.

use super::super::shape::Shape;
use bytes::Bytes;
use tepal_codec::cross::cross;
use tepal_model::{BLOCK, Buffer, Digest, Version};

const SUPERBLOCK: u64 = u64::from_le_bytes(*b"TplVtime");
const ENTRY: u64 = u64::from_le_bytes(*b"TplVentr");
/// Where an entry's digests begin.
const DIGESTS: usize = 128;
/// What is said of a block at home: that it holds something, or that nobody knows.
const HOLDS: u8 = 1;
const LOST: u8 = 2;

/// Numbers and digests, taken off a block from the front.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn array<const N: usize>(&mut self) -> [u8; N] {
        let (front, rest) = self.0.split_first_chunk().expect("a block has them all");
        self.0 = rest;
        *front
    }

    fn u8(&mut self) -> u8 {
        u8::from_le_bytes(self.array())
    }

    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }

    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }
}

/// The block that says which times may have been used.
pub fn superblock(limit: u64) -> Bytes {
    let mut block = Buffer::zeroed(BLOCK as usize);
    block[..8].copy_from_slice(&SUPERBLOCK.to_le_bytes());
    block[8..16].copy_from_slice(&limit.to_le_bytes());
    block.freeze()
}

/// 0 of a column that has never been written to.
pub fn limit_of(block: &[u8]) -> Option<u64> {
    let mut fields = Fields(block);
    match (fields.u64(), fields.u64()) {
        (SUPERBLOCK, limit) => Some(limit),
        (0, 0) => Some(0),
        _ => None,
    }
}

/// What one write has put into the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its own place among the entries.
    pub slot: u32,
    /// The first block.
    pub first: u64,
    pub count: u32,
    /// Without a cross checksum.
    pub version: Version,
    /// Where in the log's data the fragments are, in blocks; none if the blocks hold nothing.
    pub data: Option<(u32, u32)>,
    /// Those of the first block, then those of the next one.
    pub digests: Vec<Digest>,
}

impl Entry {
    pub fn encode(&self) -> Bytes {
        let mut block = Buffer::zeroed(BLOCK as usize);
        let (start, blocks) = self.data.unwrap_or_default();
        let numbers = [ENTRY, self.first, self.version.time, self.version.writer];
        for (at, number) in numbers.into_iter().enumerate() {
            block[8 * at..8 * at + 8].copy_from_slice(&number.to_le_bytes());
        }
        for (at, number) in [self.slot, self.count, start, blocks].into_iter().enumerate() {
            block[32 + 4 * at..36 + 4 * at].copy_from_slice(&number.to_le_bytes());
        }
        for (at, digest) in self.digests.iter().enumerate() {
            block[DIGESTS + 32 * at..DIGESTS + 32 * (at + 1)].copy_from_slice(digest);
        }
        block.freeze()
    }

    /// `None` if it's none, or one of a layout with other numbers.
    pub fn decode(block: &[u8], shape: &Shape) -> Option<Self> {
        let mut fields = Fields(block);
        let (magic, first, time, writer) = (fields.u64(), fields.u64(), fields.u64(), fields.u64());
        let (slot, count, start, blocks) = (fields.u32(), fields.u32(), fields.u32(), fields.u32());
        let is_one = magic == ENTRY && time > 0 && count > 0 && u64::from(count) <= shape.most_blocks().into();
        if !is_one || (blocks != 0 && blocks != shape.blocks_of(count)) {
            return None;
        }
        let mut digests = Fields(&block[DIGESTS..]);
        let digests =
            (0..if blocks > 0 { count as usize * shape.digests() } else { 0 }).map(|_| digests.array()).collect();
        let data = (blocks > 0).then_some((start, blocks));
        Some(Entry { slot, first, count, version: Version { time, writer, cross: [0; 32] }, data, digests })
    }

    /// The digests of one of its blocks, counted from the first.
    pub fn digests_of(&self, index: u32, shape: &Shape) -> &[Digest] {
        let each = if self.digests.is_empty() { 0 } else { shape.digests() };
        &self.digests[index as usize * each..(index as usize + 1) * each]
    }

    /// The version of one of its blocks, counted from the first.
    pub fn version_of(&self, index: u32, shape: &Shape) -> Version {
        version_with(self.version, self.first + u64::from(index), self.digests_of(index, shape))
    }
}

/// The version of a block with these digests.
pub fn version_with(version: Version, block: u64, digests: &[Digest]) -> Version {
    let cross = if digests.is_empty() { [0; 32] } else { cross(block, digests) };
    Version { cross, ..version }
}

/// What is said of one block at home: its complete version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Home {
    pub version: Version,
    pub holds: bool,
    /// The block that told of it was damaged: it isn't known which version the drive had.
    pub is_lost: bool,
    /// Of the fragment.
    pub crc: u32,
    pub digests: Vec<Digest>,
}

/// The homes of as many blocks as one block of the drive tells of.
pub fn homes_of(block: &[u8], first: u64, shape: &Shape) -> Vec<Home> {
    let home = |at: u64| {
        let mut fields = Fields(&block[at as usize * shape.home_bytes()..]);
        let (time, writer, crc, kind) = (fields.u64(), fields.u64(), fields.u32(), fields.u8());
        let (holds, is_lost) = (kind == HOLDS, kind == LOST);
        let _: [u8; 3] = fields.array();
        let digests: Vec<Digest> = (0..if holds { shape.digests() } else { 0 }).map(|_| fields.array()).collect();
        let version = version_with(Version { time, writer, cross: [0; 32] }, first + at, &digests);
        Home { version, holds, is_lost, crc, digests }
    };
    (0..shape.homes_together()).map(home).collect()
}

pub fn encode_homes(homes: &[Home], shape: &Shape) -> Bytes {
    let mut block = Buffer::zeroed(BLOCK as usize);
    for (bytes, home) in block.chunks_mut(shape.home_bytes()).zip(homes) {
        bytes[..8].copy_from_slice(&home.version.time.to_le_bytes());
        bytes[8..16].copy_from_slice(&home.version.writer.to_le_bytes());
        bytes[16..20].copy_from_slice(&home.crc.to_le_bytes());
        bytes[20] = if home.is_lost { LOST } else { home.holds.into() };
        for (at, digest) in home.digests.iter().enumerate() {
            bytes[24 + 32 * at..24 + 32 * (at + 1)].copy_from_slice(digest);
        }
    }
    block.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(text: &str) -> Shape {
        Shape::new(text.parse().expect("a quorum"))
    }

    #[test]
    fn entries_and_homes_read_back_as_written() {
        for text in ["1/3,t=1,async", "2/5,t=1,b=1,async", "3/5,t=1,async", "1/7,t=2,b=1,async"] {
            let shape = shape(text);
            let count = shape.most_blocks().min(5);
            let digest = |at: u32| -> Digest { std::array::from_fn(|byte| (byte as u32 + at) as u8) };
            let digests: Vec<Digest> = (0..count * shape.digests() as u32).map(digest).collect();
            let version = Version { time: 7, writer: 9, cross: [0; 32] };
            let entry =
                Entry { slot: 3, first: 1 << 40, count, version, data: Some((5, shape.blocks_of(count))), digests };
            assert_eq!(Entry::decode(&entry.encode(), &shape).as_ref(), Some(&entry), "{text}");
            let hole = Entry { data: None, digests: Vec::new(), ..entry.clone() };
            assert_eq!(Entry::decode(&hole.encode(), &shape), Some(hole), "{text}");
            let home = |at: u64| {
                let digests = entry.digests_of(at as u32 % count, &shape).to_vec();
                Home {
                    version: version_with(version, at, &digests),
                    holds: true,
                    is_lost: false,
                    crc: at as u32,
                    digests,
                }
            };
            let homes: Vec<Home> = (0..shape.homes_together()).map(home).collect();
            assert_eq!(homes_of(&encode_homes(&homes, &shape), 0, &shape), homes, "{text}");
        }
        assert_eq!(homes_of(&[0; 4096], 0, &shape("1/3,t=1,async"))[0], Home::default());
    }

    #[test]
    fn bytes_that_are_no_entry_are_none() {
        let shape = shape("1/3,t=1,async");
        assert_eq!(Entry::decode(&[0; 4096], &shape), None);
        assert_eq!(Entry::decode(&[0xff; 4096], &shape), None);
        assert_eq!((limit_of(&[0; 4096]), limit_of(&[1; 4096])), (Some(0), None));
        assert_eq!(limit_of(&superblock(77)), Some(77));
    }
}
