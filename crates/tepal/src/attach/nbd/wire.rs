//! What a client needs of NBD's transmission phase besides the protocol's numbers, which it shares with the gateway.
//!
//! | request | magic 0x25609513 | flags u16 | type u16 | cookie u64 | offset u64 | length u32 | then a write's data |
//! | simple reply | magic 0x67446698 | error u32 | cookie u64 | then a successful read's data |
//! | structured chunk | magic 0x668e33ef | flags u16 | type u16 | cookie u64 | length u32 | then `length` bytes |

use bytes::Bytes;
use nix::errno::Errno;
use tepal_gateway::nbd::wire::{ErrorCode, transmission_flag};
pub use tepal_gateway::nbd::wire::{
    RequestHeader, SIMPLE_REPLY_MAGIC, STRUCTURED_REPLY_MAGIC, chunk, command, command_flag, simple_reply,
};

pub const REQUEST_SIZE: usize = RequestHeader::SIZE;
pub const SIMPLE_SIZE: usize = 16;
pub const CHUNK_SIZE: usize = 20;

/// The server is about to end: the request wasn't done, and is to be asked again later.
pub const ESHUTDOWN: u32 = ErrorCode::ShuttingDown as u32;

/// What an export can do: the transmission flags of the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Flags(pub u16);

impl Flags {
    pub const HAS_FLAGS: Flags = Flags(transmission_flag::HAS_FLAGS);
    pub const READ_ONLY: Flags = Flags(transmission_flag::READ_ONLY);
    pub const FLUSH: Flags = Flags(transmission_flag::SEND_FLUSH);
    pub const FUA: Flags = Flags(transmission_flag::SEND_FUA);
    pub const TRIM: Flags = Flags(transmission_flag::SEND_TRIM);
    pub const WRITE_ZEROES: Flags = Flags(transmission_flag::SEND_WRITE_ZEROES);

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
            Operation::Read { offset, length } => request(0, command::READ, cookie, offset, length),
            Operation::Write { offset, ref data, fua } => {
                let length = u32::try_from(data.len()).expect("front-ends send at most 32 MiB in one write");
                request(flag(fua, command_flag::FUA), command::WRITE, cookie, offset, length)
            }
            Operation::Flush => request(0, command::FLUSH, cookie, 0, 0),
            Operation::Trim { offset, length, fua } => {
                request(flag(fua, command_flag::FUA), command::TRIM, cookie, offset, length)
            }
            Operation::WriteZeroes { offset, length, no_hole, fua } => {
                let flags = flag(fua, command_flag::FUA) | flag(no_hole, command_flag::NO_HOLE);
                request(flags, command::WRITE_ZEROES, cookie, offset, length)
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
    RequestHeader { flags, kind, cookie, offset, length }.encode()
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
