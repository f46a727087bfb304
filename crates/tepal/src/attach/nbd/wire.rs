//! The bytes of NBD's transmission phase, as a client writes and reads them. All numbers are big-endian.
//!
//! | request | magic 0x25609513 | flags u16 | type u16 | cookie u64 | offset u64 | length u32 | then a write's data |
//! | simple reply | magic 0x67446698 | error u32 | cookie u64 | then a successful read's data |
//! | structured chunk | magic 0x668e33ef | flags u16 | type u16 | cookie u64 | length u32 | then `length` bytes |

use bytes::Bytes;
use nix::errno::Errno;

pub const REQUEST_MAGIC: u32 = 0x2560_9513;
pub const SIMPLE_MAGIC: u32 = 0x6744_6698;
pub const CHUNK_MAGIC: u32 = 0x668e_33ef;

pub const REQUEST_SIZE: usize = 28;
pub const SIMPLE_SIZE: usize = 16;
pub const CHUNK_SIZE: usize = 20;

pub const CMD_READ: u16 = 0;
pub const CMD_WRITE: u16 = 1;
pub const CMD_DISCONNECT: u16 = 2;
pub const CMD_FLUSH: u16 = 3;
pub const CMD_TRIM: u16 = 4;
pub const CMD_WRITE_ZEROES: u16 = 6;

pub const FLAG_FUA: u16 = 1;
pub const FLAG_NO_HOLE: u16 = 2;

pub const CHUNK_DONE: u16 = 1;
pub const CHUNK_NONE: u16 = 0;
pub const CHUNK_DATA: u16 = 1;
pub const CHUNK_HOLE: u16 = 2;
/// Set in the type of every chunk that reports an error.
pub const CHUNK_IS_ERROR: u16 = 1 << 15;

/// The server is about to end: the request wasn't done, and is to be asked again later.
pub const ESHUTDOWN: u32 = 108;

/// What an export can do: the transmission flags of the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Flags(pub u16);

impl Flags {
    pub const HAS_FLAGS: Flags = Flags(1);
    pub const READ_ONLY: Flags = Flags(1 << 1);
    pub const FLUSH: Flags = Flags(1 << 2);
    pub const FUA: Flags = Flags(1 << 3);
    pub const TRIM: Flags = Flags(1 << 5);
    pub const WRITE_ZEROES: Flags = Flags(1 << 6);

    pub fn has(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }

    pub fn and(self, other: Flags) -> Flags {
        Flags(self.0 & other.0)
    }

    pub fn or(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }
}

/// One thing to do to a volume. Cloning one shares its data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    Read { offset: u64, length: u32 },
    Write { offset: u64, data: Bytes, fua: bool },
    Flush,
    Trim { offset: u64, length: u32, fua: bool },
    WriteZeroes { offset: u64, length: u32, no_hole: bool, fua: bool },
}

impl Operation {
    pub fn header(&self, cookie: u64) -> [u8; REQUEST_SIZE] {
        let flag = |on: bool, flag: u16| if on { flag } else { 0 };
        match *self {
            Operation::Read { offset, length } => request(0, CMD_READ, cookie, offset, length),
            Operation::Write { offset, ref data, fua } => {
                let length = u32::try_from(data.len()).expect("front-ends send at most 32 MiB in one write");
                request(flag(fua, FLAG_FUA), CMD_WRITE, cookie, offset, length)
            }
            Operation::Flush => request(0, CMD_FLUSH, cookie, 0, 0),
            Operation::Trim { offset, length, fua } => request(flag(fua, FLAG_FUA), CMD_TRIM, cookie, offset, length),
            Operation::WriteZeroes { offset, length, no_hole, fua } => {
                let flags = flag(fua, FLAG_FUA) | flag(no_hole, FLAG_NO_HOLE);
                request(flags, CMD_WRITE_ZEROES, cookie, offset, length)
            }
        }
    }

    /// What follows the header.
    pub fn payload(&self) -> Bytes {
        match self {
            Operation::Write { data, .. } => data.clone(),
            _ => Bytes::new(),
        }
    }

    /// How many bytes a successful answer brings.
    pub fn answer_length(&self) -> usize {
        match *self {
            Operation::Read { length, .. } => length as usize,
            _ => 0,
        }
    }
}

pub fn request(flags: u16, kind: u16, cookie: u64, offset: u64, length: u32) -> [u8; REQUEST_SIZE] {
    let mut bytes = [0; REQUEST_SIZE];
    bytes[0..4].copy_from_slice(&REQUEST_MAGIC.to_be_bytes());
    bytes[4..6].copy_from_slice(&flags.to_be_bytes());
    bytes[6..8].copy_from_slice(&kind.to_be_bytes());
    bytes[8..16].copy_from_slice(&cookie.to_be_bytes());
    bytes[16..24].copy_from_slice(&offset.to_be_bytes());
    bytes[24..28].copy_from_slice(&length.to_be_bytes());
    bytes
}

pub fn simple_reply(error: u32, cookie: u64) -> [u8; SIMPLE_SIZE] {
    let mut bytes = [0; SIMPLE_SIZE];
    bytes[0..4].copy_from_slice(&SIMPLE_MAGIC.to_be_bytes());
    bytes[4..8].copy_from_slice(&error.to_be_bytes());
    bytes[8..16].copy_from_slice(&cookie.to_be_bytes());
    bytes
}

/// A request as the kernel's own NBD client sends it to our relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestHeader {
    pub flags: u16,
    pub kind: u16,
    pub cookie: u64,
    pub offset: u64,
    pub length: u32,
}

impl RequestHeader {
    /// `None` if the magic is wrong.
    pub fn parse(bytes: &[u8; REQUEST_SIZE]) -> Option<RequestHeader> {
        (u32_at(bytes, 0) == REQUEST_MAGIC).then(|| RequestHeader {
            flags: u16_at(bytes, 4),
            kind: u16_at(bytes, 6),
            cookie: u64_at(bytes, 8),
            offset: u64_at(bytes, 16),
            length: u32_at(bytes, 24),
        })
    }
}

/// NBD's error numbers are Linux's. One that isn't known is an I/O error.
pub fn errno(error: u32) -> Errno {
    let known = [Errno::EPERM, Errno::EIO, Errno::ENOMEM, Errno::EINVAL, Errno::ENOSPC, Errno::EOVERFLOW];
    match known.into_iter().find(|&known| known as u32 == error) {
        Some(known) => known,
        None if error == Errno::EOPNOTSUPP as u32 => Errno::EOPNOTSUPP,
        None => Errno::EIO,
    }
}

// The callers below have checked the length; an index out of range here would be a fault of ours, not of a peer.

pub fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

pub fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

pub fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) << 32 | u64::from(u32_at(bytes, at + 4))
}
