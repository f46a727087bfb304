//! The open file or block device of a drive, and what the kernel does with it while the caller waits.
//!
//! Invariant: memory handed to the kernel for O_DIRECT is aligned as the file asks, see [`DriveFile::aligned`].

use super::transfer::{self, Direction, FLUSH, Transfer, failed};
use bytes::Bytes;
use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use std::io::IoSlice;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use tepal_drive::world::{DeviceError, Gather};
use tepal_model::{BLOCK, Buffer};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Regular,
    BlockDevice,
}

/// How the file's bytes are reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Caching {
    /// O_DIRECT: memory is a multiple of `alignment`.
    Direct { alignment: usize },
    /// Through the page cache, from and to any memory.
    Cached,
}

#[derive(Debug)]
pub(super) struct DriveFile {
    descriptor: OwnedFd,
    kind: Kind,
    caching: Caching,
}

impl DriveFile {
    pub fn new(descriptor: OwnedFd, kind: Kind, caching: Caching) -> Self {
        DriveFile { descriptor, kind, caching }
    }

    /// The same bytes in memory that the kernel takes: what lies in the wrong place is copied.
    pub fn aligned(&self, mut data: Gather) -> Gather {
        let Caching::Direct { alignment } = self.caching else { return data };
        if data.iter().any(|piece| !piece.len().is_multiple_of(BLOCK as usize)) {
            let joined = joined(&data);
            data.clear();
            data.push(joined);
        }
        for piece in &mut data {
            if !(piece.as_ptr() as usize).is_multiple_of(alignment) {
                *piece = Buffer::copy_of(piece).freeze();
            }
        }
        data
    }

    pub fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        let mut transfer = Transfer::new(Direction::Read, offset, buffer.len());
        loop {
            let wanted = &mut buffer[transfer.done()..][..transfer.wanted()];
            let moved = rustix::io::pread(&self.descriptor, wanted, transfer.position());
            if let Some(outcome) = transfer.advance(moved) {
                return outcome;
            }
        }
    }

    pub fn write(&self, offset: u64, data: &Gather) -> Result<(), DeviceError> {
        let length = data.iter().map(Bytes::len).sum();
        let mut transfer = Transfer::new(Direction::Write, offset, length);
        loop {
            let moved = match data.as_slice() {
                [only] => {
                    let wanted = &only[transfer.done()..][..transfer.wanted()];
                    rustix::io::pwrite(&self.descriptor, wanted, transfer.position())
                }
                pieces => {
                    let pieces: Vec<IoSlice> = transfer::rest(pieces, transfer.done()).map(IoSlice::new).collect();
                    rustix::io::pwritev(&self.descriptor, &pieces, transfer.position())
                }
            };
            if let Some(outcome) = transfer.advance(moved) {
                return outcome;
            }
        }
    }

    /// Never tried again: after a failure the kernel has forgotten which pages it did not write.
    pub fn flush(&self) -> Result<(), DeviceError> {
        rustix::fs::fdatasync(&self.descriptor).map_err(|errno| failed(FLUSH, 0, errno))
    }

    /// A hint, so a device that can't do it has done enough.
    pub fn discard(&self, offset: u64, length: u64) -> Result<(), DeviceError> {
        let outcome = match self.kind {
            Kind::Regular => {
                let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                rustix::fs::fallocate(&self.descriptor, punch, offset, length)
            }
            Kind::BlockDevice => discard_blocks(self.descriptor.as_fd(), offset, length),
        };
        match outcome {
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOTTY | Errno::NOSYS | Errno::INVAL | Errno::INTR) => Ok(()),
            Err(errno) => Err(failed("discard", offset, errno)),
        }
    }

    /// Bytes now, which a regular file can change under our feet.
    pub fn current_size(&self) -> Result<u64, Errno> {
        size_of(self.descriptor.as_fd(), self.kind)
    }
}

impl AsRawFd for DriveFile {
    fn as_raw_fd(&self) -> RawFd {
        self.descriptor.as_raw_fd()
    }
}

fn joined(data: &Gather) -> Bytes {
    let mut joined = Buffer::take(data.iter().map(Bytes::len).sum());
    let mut at = 0;
    for piece in data {
        joined[at..at + piece.len()].copy_from_slice(piece);
        at += piece.len();
    }
    joined.freeze()
}

pub(super) fn size_of(descriptor: BorrowedFd<'_>, kind: Kind) -> Result<u64, Errno> {
    match kind {
        Kind::Regular => Ok(rustix::fs::fstat(descriptor)?.st_size as u64),
        Kind::BlockDevice => rustix::fs::seek(descriptor, rustix::fs::SeekFrom::End(0)),
    }
}

fn discard_blocks(descriptor: BorrowedFd<'_>, offset: u64, length: u64) -> Result<(), Errno> {
    /// `_IO(0x12, 119)` of linux/fs.h: takes an offset and a length.
    const BLKDISCARD: rustix::ioctl::Opcode = rustix::ioctl::opcode::none(0x12, 119);
    // SAFETY: BLKDISCARD reads two 64-bit numbers from its argument and writes no memory of ours.
    unsafe { rustix::ioctl::ioctl(descriptor, rustix::ioctl::Setter::<BLKDISCARD, [u64; 2]>::new([offset, length])) }
}
