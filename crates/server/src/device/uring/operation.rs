//! One read, write or flush as the kernel sees it: its queue entry, and what the kernel's answer means.

use crate::device::file::DriveFile;
use crate::device::transfer::{self, Direction, FLUSH, Transfer, failed};
use bytes::Bytes;
use io_uring::types::{Fd, FsyncFlags};
use io_uring::{opcode, squeue};
use libc::iovec;
use rustix::io::Errno;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use tepal_drive::world::{DeviceError, Gather};
use tepal_model::Buffer;

/// Owns all memory that the kernel may touch for it, and keeps the file open.
#[derive(Debug)]
pub(in crate::device) struct Operation {
    file: Arc<DriveFile>,
    work: Work,
}

#[derive(Debug)]
enum Work {
    Read { transfer: Transfer, buffer: Buffer },
    Write { transfer: Transfer, data: Gather },
    Flush,
}

impl Operation {
    pub fn read(file: Arc<DriveFile>, offset: u64, buffer: Buffer) -> Self {
        let transfer = Transfer::new(Direction::Read, offset, buffer.len());
        Operation { file, work: Work::Read { transfer, buffer } }
    }

    pub fn write(file: Arc<DriveFile>, offset: u64, data: Gather) -> Self {
        let data = file.aligned(data);
        let transfer = Transfer::new(Direction::Write, offset, data.iter().map(Bytes::len).sum());
        Operation { file, work: Work::Write { transfer, data } }
    }

    pub fn flush(file: Arc<DriveFile>) -> Self {
        Operation { file, work: Work::Flush }
    }

    /// The memory that a finished read filled.
    pub fn into_buffer(self) -> Buffer {
        match self.work {
            Work::Read { buffer, .. } => buffer,
            Work::Write { .. } | Work::Flush => unreachable!("only a read is asked for its buffer"),
        }
    }

    /// The queue entry for what is still to be done.
    ///
    /// It points into memory that this operation owns outside of itself, and into `pieces`. So the operation may be moved,
    /// but neither of them changed or dropped, before the kernel's answer.
    pub fn entry(&mut self, pieces: &mut Vec<iovec>) -> squeue::Entry {
        let file = Fd(self.file.as_raw_fd());
        match &mut self.work {
            Work::Read { transfer, buffer } => {
                let wanted = &mut buffer[transfer.done()..][..transfer.wanted()];
                opcode::Read::new(file, wanted.as_mut_ptr(), wanted.len() as u32).offset(transfer.position()).build()
            }
            Work::Write { transfer, data } if data.len() == 1 => {
                let wanted = &data[0][transfer.done()..][..transfer.wanted()];
                opcode::Write::new(file, wanted.as_ptr(), wanted.len() as u32).offset(transfer.position()).build()
            }
            Work::Write { transfer, data } => {
                pieces.clear();
                pieces.extend(
                    transfer::rest(data, transfer.done())
                        .map(|piece| iovec { iov_base: piece.as_ptr().cast_mut().cast(), iov_len: piece.len() }),
                );
                opcode::Writev::new(file, pieces.as_ptr(), pieces.len() as u32).offset(transfer.position()).build()
            }
            Work::Flush => opcode::Fsync::new(file).flags(FsyncFlags::DATASYNC).build(),
        }
    }

    /// Takes the kernel's answer to the last entry. `None`: there is more to do, by another entry.
    pub fn answered(&mut self, result: i32) -> Option<Result<(), DeviceError>> {
        let answer = usize::try_from(result).map_err(|_| Errno::from_raw_os_error(-result));
        match &mut self.work {
            Work::Read { transfer, .. } | Work::Write { transfer, .. } => transfer.advance(answer),
            // Never tried again: after a failure the kernel has forgotten which pages it did not write.
            Work::Flush => Some(answer.map(drop).map_err(|errno| failed(FLUSH, 0, errno))),
        }
    }
}
