//! Memory for I/O: aligned to a block, so that a device can read into it and write from it directly, and recycled by
//! each thread, so that the hot path neither allocates nor clears memory.

use crate::size::BLOCK;
use bytes::Bytes;
use smallvec::SmallVec;
use std::cell::RefCell;
use std::fmt;
use std::ops::{Deref, DerefMut};

/// The bytes of a request in order, as the pieces that the drives gave. Joined, they're the data.
pub type Segments = SmallVec<[Bytes; 2]>;

#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(4096))]
struct Block([u8; BLOCK as usize]);

/// Bytes that start at a block boundary of memory. A fresh buffer holds zeros or what an earlier user left in it, so
/// whoever takes one fills all of it before showing it to anyone.
pub struct Buffer {
    blocks: Vec<Block>,
    length: usize,
}

/// Size classes are powers of two of blocks: 4 KiB to 1 MiB. Larger buffers are not recycled.
const CLASSES: usize = 9;
/// At most this many blocks, 64 MiB, wait on a thread: what the pending data of four drives comes and goes by.
const POOLED_BLOCKS: usize = 16 << 10;

/// Memory that waits to be used again.
struct Pool {
    classes: [Vec<Vec<Block>>; CLASSES],
    blocks: usize,
}

thread_local! {
    static POOL: RefCell<Pool> = const { RefCell::new(Pool { classes: [const { Vec::new() }; CLASSES], blocks: 0 }) };
}

impl Pool {
    fn take(&mut self, class: usize) -> Option<Vec<Block>> {
        let blocks = self.classes[class].pop()?;
        self.blocks -= blocks.len();
        Some(blocks)
    }

    /// Keeps it, and lets go of some of what most memory waits for instead if that's too much: of what isn't in use.
    fn put(&mut self, class: usize, blocks: Vec<Block>) {
        self.blocks += blocks.len();
        self.classes[class].push(blocks);
        while self.blocks > POOLED_BLOCKS {
            let largest = (0..CLASSES).max_by_key(|&class| self.classes[class].len() << class);
            let Some(gone) = largest.and_then(|class| self.classes[class].pop()) else { return };
            self.blocks -= gone.len();
        }
    }
}

fn class(blocks: usize) -> usize {
    blocks.next_power_of_two().trailing_zeros() as usize
}

impl Buffer {
    /// A buffer of `length` bytes with unspecified contents.
    pub fn take(length: usize) -> Self {
        let needed = length.div_ceil(BLOCK as usize).max(1);
        let class = class(needed);
        if class >= CLASSES {
            return Buffer { blocks: bytemuck::zeroed_vec(needed), length };
        }
        let recycled = POOL.try_with(|pool| pool.borrow_mut().take(class)).ok().flatten();
        Buffer { blocks: recycled.unwrap_or_else(|| bytemuck::zeroed_vec(1 << class)), length }
    }

    /// A buffer of `length` zeros.
    pub fn zeroed(length: usize) -> Self {
        let mut buffer = Self::take(length);
        buffer.fill(0);
        buffer
    }

    /// A buffer that holds a copy of `data`.
    pub fn copy_of(data: &[u8]) -> Self {
        let mut buffer = Self::take(data.len());
        buffer.copy_from_slice(data);
        buffer
    }

    /// Forgets the bytes past `length`.
    pub fn truncate(&mut self, length: usize) {
        self.length = self.length.min(length);
    }

    /// Shared and immutable from here on; recycled when the last slice of it goes.
    pub fn freeze(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let blocks = std::mem::take(&mut self.blocks);
        let class = class(blocks.len());
        if class < CLASSES && blocks.len() == 1 << class {
            // A thread that is ending has no pool any more; then the memory is just freed.
            let _ = POOL.try_with(|pool| pool.borrow_mut().put(class, blocks));
        }
    }
}

impl Deref for Buffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.blocks)[..self.length]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.blocks)[..self.length]
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} bytes)", self.length)
    }
}

static ZEROS: [u8; 1 << 20] = [0; 1 << 20];

/// `length` zeros without memory of their own.
pub fn zeros(length: u64) -> Segments {
    let mut left = length as usize;
    let mut segments = Segments::new();
    while left > 0 {
        let piece = left.min(ZEROS.len());
        segments.push(Bytes::from_static(&ZEROS[..piece]));
        left -= piece;
    }
    segments
}

/// The segments joined: without a copy if there is only one.
pub fn join(segments: &[Bytes]) -> Bytes {
    if let [only] = segments {
        return only.clone();
    }
    let mut joined = Buffer::take(segments.iter().map(Bytes::len).sum());
    let mut at = 0;
    for segment in segments {
        joined[at..at + segment.len()].copy_from_slice(segment);
        at += segment.len();
    }
    joined.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_to_a_block_and_as_long_as_asked() {
        for length in [0, 1, 511, 4096, 4097, 65536, 1 << 20, (1 << 20) + 1, 32 << 20] {
            let buffer = Buffer::take(length);
            assert_eq!(buffer.len(), length);
            assert_eq!(buffer.as_ptr() as usize % BLOCK as usize, 0);
        }
    }

    #[test]
    fn a_buffer_is_recycled_when_its_last_slice_goes() {
        let buffer = Buffer::zeroed(65536);
        let place = buffer.as_ptr();
        let whole = buffer.freeze();
        let slice = whole.slice(100..200);
        drop(whole);
        assert_ne!(Buffer::take(65536).as_ptr(), place, "a slice still needs it");
        drop(slice);
        let one = Buffer::take(65536);
        let other = Buffer::take(65536);
        assert!(one.as_ptr() == place || other.as_ptr() == place);
    }

    #[test]
    fn a_thread_keeps_no_more_than_its_share_of_free_memory() {
        let pooled = || POOL.with_borrow(|pool| pool.blocks);
        let many = |length: usize, total: usize| (0..total / length).map(|_| Buffer::take(length)).collect::<Vec<_>>();
        drop(many(1 << 20, 100 << 20));
        assert_eq!(pooled(), POOLED_BLOCKS);
        drop(many(4096, 80 << 20));
        assert_eq!(pooled(), POOLED_BLOCKS);
        let small = many(4096, 32 << 20);
        assert_eq!(pooled(), POOLED_BLOCKS - (8 << 10), "small ones have taken the place of half of the large ones");
        drop(small);
    }

    #[test]
    fn zeroed_clears_what_an_earlier_user_left() {
        let mut buffer = Buffer::take(8192);
        buffer.fill(7);
        drop(buffer);
        assert!(Buffer::zeroed(8192).iter().all(|&b| b == 0));
    }

    #[test]
    fn segments_join_in_order() {
        let mut segments = zeros(3);
        segments.push(Bytes::from_static(b"abc"));
        assert_eq!(&join(&segments)[..], b"\0\0\0abc");
        assert_eq!(zeros((2 << 20) + 1).iter().map(Bytes::len).sum::<usize>(), (2 << 20) + 1);
    }
}
