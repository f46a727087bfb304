//! What follows from a quorum layout's numbers: how long fragments are, and how blocks become fragments and fragments blocks.

use bytes::Bytes;
use std::ops::Range;
use tepal_codec::cross::digest;
use tepal_codec::erasure::{ErasureCode, Fragment, ReedSolomon};
use tepal_model::layout::quorum::Quorum;
use tepal_model::{BLOCK, Buffer, Digest, Fragments};
use tepal_wire::message::node::MAX_VERSIONED;

/// Where an entry has room for digests, in bytes.
const ROOM_FOR_DIGESTS: usize = BLOCK as usize - 128;
/// So many blocks have their homes told of by one block at most.
const MOST_TOGETHER: u64 = 128;

/// The form of a column's fragments.
#[derive(Debug)]
pub(crate) struct Shape {
    pub quorum: Quorum,
    /// `None` if each fragment is a copy.
    code: Option<ReedSolomon>,
    /// Bytes of the fragment of one block.
    fragment: usize,
}

impl Shape {
    pub fn new(quorum: Quorum) -> Self {
        let (data, code) = (quorum.data(), quorum.count() - quorum.data());
        let is_coded = data > 1 && code > 0;
        let code =
            is_coded.then(|| ReedSolomon::new(Fragments { data, code }).expect("a layout has numbers that a code has"));
        let fragment =
            if data == 1 { BLOCK as usize } else { (BLOCK as usize).div_ceil(data.into()).next_multiple_of(8) };
        Shape { quorum, code, fragment }
    }

    /// Bytes of the fragment of one block.
    pub fn fragment(&self) -> usize {
        self.fragment
    }

    /// Digests that go along with the fragment of one block.
    pub fn digests(&self) -> usize {
        if self.quorum.liars() > 0 { self.quorum.count().into() } else { 0 }
    }

    /// Blocks that one write has at most.
    pub fn most_blocks(&self) -> u32 {
        match self.digests() {
            0 => MAX_VERSIONED,
            digests => (ROOM_FOR_DIGESTS / (32 * digests)) as u32,
        }
    }

    /// Blocks of the drive that the fragments of so many blocks take in the log.
    pub fn blocks_of(&self, count: u32) -> u32 {
        (count as usize * self.fragment).div_ceil(BLOCK as usize) as u32
    }

    /// Bytes that tell of one block at home.
    pub fn home_bytes(&self) -> usize {
        24 + 32 * self.digests()
    }

    /// So many blocks have their homes told of by one block of the drive.
    pub fn homes_together(&self) -> u64 {
        let most = (BLOCK as usize / self.home_bytes()) as u64;
        (1 << most.ilog2()).min(MOST_TOGETHER)
    }

    /// The bytes of the fragments at home of some blocks, as bytes of the drive's part for them.
    pub fn bytes_at_home(&self, blocks: &Range<u64>) -> Range<u64> {
        blocks.start * self.fragment as u64..blocks.end * self.fragment as u64
    }

    /// The fragments of whole blocks, for each drive in order.
    pub fn encode(&self, data: &Bytes) -> Vec<Bytes> {
        if self.quorum.data() == 1 {
            return vec![data.clone(); self.quorum.count().into()];
        }
        let length = data.len() / BLOCK as usize * self.fragment;
        let split = self.split(data);
        let Some(code) = &self.code else {
            return split.into_iter().map(|part| part.freeze().slice(..length)).collect();
        };
        let mut coded: Vec<Buffer> =
            (self.quorum.data()..self.quorum.count()).map(|_| Buffer::zeroed(padded(length))).collect();
        let (parts, mut places): (Vec<&[u8]>, Vec<&mut [u8]>) =
            (split.iter().map(|part| &part[..]).collect(), coded.iter_mut().map(|part| &mut part[..]).collect());
        code.encode(&parts, &mut places).expect("the counts and lengths are the layout's");
        split.into_iter().chain(coded).map(|part| part.freeze().slice(..length)).collect()
    }

    /// The data fragments of whole blocks, with zeros up to whole blocks.
    fn split(&self, data: &[u8]) -> Vec<Buffer> {
        let (count, each) = (data.len() / BLOCK as usize, self.fragment);
        let mut parts: Vec<Buffer> = (0..self.quorum.data()).map(|_| Buffer::zeroed(padded(count * each))).collect();
        for (block, bytes) in data.chunks_exact(BLOCK as usize).enumerate() {
            for (part, bytes) in parts.iter_mut().zip(bytes.chunks(each)) {
                part[block * each..block * each + bytes.len()].copy_from_slice(bytes);
            }
        }
        parts
    }

    /// Whole blocks again, of as many fragments as suffice. They have been found to be right.
    pub fn decode(&self, count: u32, fragments: &[(usize, Bytes)]) -> Bytes {
        let data = usize::from(self.quorum.data());
        if data == 1 {
            return fragments[0].1.clone();
        }
        let length = count as usize * self.fragment;
        let padded_to_blocks = |bytes: &Bytes| {
            let mut buffer = Buffer::zeroed(padded(length));
            buffer[..length].copy_from_slice(bytes);
            buffer
        };
        let held: Vec<(usize, Buffer)> =
            fragments.iter().take(data).map(|(at, bytes)| (*at, padded_to_blocks(bytes))).collect();
        let missing: Vec<usize> = (0..data).filter(|at| held.iter().all(|(held, _)| held != at)).collect();
        let mut lost: Vec<(usize, Buffer)> =
            missing.into_iter().map(|at| (at, Buffer::zeroed(padded(length)))).collect();
        if let (Some(code), false) = (&self.code, lost.is_empty()) {
            let held: Vec<Fragment<&[u8]>> =
                held.iter().map(|(number, bytes)| Fragment { number: *number, bytes: &bytes[..] }).collect();
            let mut lost: Vec<Fragment<&mut [u8]>> =
                lost.iter_mut().map(|(number, bytes)| Fragment { number: *number, bytes: &mut bytes[..] }).collect();
            code.decode(&held, &mut lost).expect("the numbers and lengths are the layout's");
        }
        let parts: Vec<&Buffer> = (0..data)
            .map(|at| {
                held.iter().chain(&lost).find(|(number, _)| *number == at).map(|(_, bytes)| bytes).expect("decoded")
            })
            .collect();
        let mut whole = Buffer::zeroed(count as usize * BLOCK as usize);
        for (block, bytes) in whole.chunks_exact_mut(BLOCK as usize).enumerate() {
            for (part, bytes) in parts.iter().zip(bytes.chunks_mut(self.fragment)) {
                bytes.copy_from_slice(&part[block * self.fragment..block * self.fragment + bytes.len()]);
            }
        }
        whole.freeze()
    }

    /// The digests of all fragments of each block, one block after another; none where drives don't lie.
    pub fn digests_of(&self, fragments: &[Bytes]) -> Vec<Digest> {
        if self.digests() == 0 {
            return Vec::new();
        }
        let blocks = fragments[0].len() / self.fragment;
        let of = |block: usize| {
            fragments.iter().map(move |bytes| digest(&bytes[block * self.fragment..(block + 1) * self.fragment]))
        };
        (0..blocks).flat_map(of).collect()
    }
}

fn padded(length: usize) -> usize {
    length.next_multiple_of(BLOCK as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_fragments_that_suffice_give_the_blocks_back() {
        for text in
            ["1/3,t=1,async", "2/5,t=1,b=1,async", "3/5,t=1,async", "4/4,t=0,async", "5/8,t=1,async", "2/4,t=2,sync"]
        {
            let shape = Shape::new(text.parse().expect("a quorum"));
            for count in [1u32, 2, 7] {
                let data: Bytes = (0..count as u64 * BLOCK).map(|at| (at * 7 % 251) as u8).collect();
                let fragments = shape.encode(&data);
                assert_eq!(fragments.len(), usize::from(shape.quorum.count()));
                assert!(fragments.iter().all(|bytes| bytes.len() == count as usize * shape.fragment()));
                for from in 0..fragments.len() {
                    let some = (0..usize::from(shape.quorum.data())).map(|at| (from + at) % fragments.len());
                    let some: Vec<(usize, Bytes)> = some.map(|at| (at, fragments[at].clone())).collect();
                    assert!(shape.decode(count, &some) == data, "{text}: {count} blocks from {from}");
                }
            }
        }
    }

    #[test]
    fn a_part_of_the_fragments_is_that_of_a_part_of_the_blocks() {
        let shape = Shape::new("3/5,t=1,async".parse().expect("a quorum"));
        let data: Bytes = (0..4 * BLOCK).map(|at| (at * 3 % 241) as u8).collect();
        let (all, second) = (shape.encode(&data), shape.encode(&data.slice(4096..8192)));
        for (all, second) in all.iter().zip(second) {
            assert!(all[shape.fragment()..2 * shape.fragment()] == second[..]);
        }
    }
}
