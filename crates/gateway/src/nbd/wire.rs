//! The numbers and the fixed-size messages of the NBD protocol, as its specification (`doc/proto.md` of the NBD project)
//! gives them, for both sides. Everything is big-endian. No I/O, no policy.

#![expect(missing_docs, reason = "numbers have the names of the specification, which says what they mean")]

/// Sent first by the server: "NBDMAGIC".
pub const INIT_MAGIC: u64 = 0x4e42_444d_4147_4943;
/// "IHAVEOPT": precedes the server's handshake flags, and each option of the client.
pub const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
/// Begins each answer to an option.
pub const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// Begins each request.
pub const REQUEST_MAGIC: u32 = 0x2560_9513;
/// Begins a reply without chunks.
pub const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// Begins each chunk of a structured reply.
pub const STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;

/// Longest string (name, query, message) that the protocol allows, in bytes.
pub const MAX_STRING: usize = 4096;

/// Bits of the handshake flags; the client answers with the same bits.
pub mod handshake_flag {
    pub const FIXED_NEWSTYLE: u16 = 1 << 0;
    pub const NO_ZEROES: u16 = 1 << 1;
}

pub mod transmission_flag {
    pub const HAS_FLAGS: u16 = 1 << 0;
    pub const READ_ONLY: u16 = 1 << 1;
    pub const SEND_FLUSH: u16 = 1 << 2;
    pub const SEND_FUA: u16 = 1 << 3;
    pub const SEND_TRIM: u16 = 1 << 5;
    pub const SEND_WRITE_ZEROES: u16 = 1 << 6;
    pub const SEND_DF: u16 = 1 << 7;
    pub const CAN_MULTI_CONN: u16 = 1 << 8;
    pub const SEND_CACHE: u16 = 1 << 10;
    pub const SEND_FAST_ZERO: u16 = 1 << 11;
}

pub mod option {
    pub const EXPORT_NAME: u32 = 1;
    pub const ABORT: u32 = 2;
    pub const LIST: u32 = 3;
    pub const STARTTLS: u32 = 5;
    pub const INFO: u32 = 6;
    pub const GO: u32 = 7;
    pub const STRUCTURED_REPLY: u32 = 8;
    pub const LIST_META_CONTEXT: u32 = 9;
    pub const SET_META_CONTEXT: u32 = 10;
}

pub mod option_reply {
    pub const ACK: u32 = 1;
    /// Set in every kind that reports an error.
    pub const IS_ERROR: u32 = 1 << 31;
    pub const SERVER: u32 = 2;
    pub const INFO: u32 = 3;
    pub const META_CONTEXT: u32 = 4;
    pub const ERR_UNSUP: u32 = (1 << 31) + 1;
    pub const ERR_POLICY: u32 = (1 << 31) + 2;
    pub const ERR_INVALID: u32 = (1 << 31) + 3;
    pub const ERR_TLS_REQUIRED: u32 = (1 << 31) + 5;
    pub const ERR_UNKNOWN: u32 = (1 << 31) + 6;
    pub const ERR_TOO_BIG: u32 = (1 << 31) + 9;
}

pub mod info {
    pub const EXPORT: u16 = 0;
    pub const NAME: u16 = 1;
    pub const DESCRIPTION: u16 = 2;
    pub const BLOCK_SIZE: u16 = 3;
}

pub mod command {
    pub const READ: u16 = 0;
    pub const WRITE: u16 = 1;
    pub const DISC: u16 = 2;
    pub const FLUSH: u16 = 3;
    pub const TRIM: u16 = 4;
    pub const CACHE: u16 = 5;
    pub const WRITE_ZEROES: u16 = 6;
    pub const BLOCK_STATUS: u16 = 7;
}

pub mod command_flag {
    pub const FUA: u16 = 1 << 0;
    pub const NO_HOLE: u16 = 1 << 1;
    pub const DF: u16 = 1 << 2;
    pub const REQ_ONE: u16 = 1 << 3;
    pub const FAST_ZERO: u16 = 1 << 4;
}

pub mod chunk {
    /// The only flag: no further chunk of this reply follows.
    pub const DONE: u16 = 1 << 0;
    pub const NONE: u16 = 0;
    pub const OFFSET_DATA: u16 = 1;
    pub const OFFSET_HOLE: u16 = 2;
    pub const BLOCK_STATUS: u16 = 5;
    /// Set in every kind that reports an error.
    pub const IS_ERROR: u16 = 1 << 15;
    pub const ERROR: u16 = (1 << 15) + 1;
    pub const ERROR_OFFSET: u16 = (1 << 15) + 2;
}

/// Flags of a run in `base:allocation`.
pub mod allocation {
    pub const HOLE: u32 = 1 << 0;
    pub const ZERO: u32 = 1 << 1;
}

/// Errors that a reply may carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum ErrorCode {
    NotPermitted = 1,
    Io = 5,
    Invalid = 22,
    NoSpace = 28,
    NotSupported = 95,
    ShuttingDown = 108,
}

/// A request as it stands on the wire; nothing but its magic has been checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestHeader {
    pub flags: u16,
    pub kind: u16,
    /// The client's own mark, returned in the reply.
    pub cookie: u64,
    /// Bytes.
    pub offset: u64,
    /// Bytes.
    pub length: u32,
}

/// The bytes aren't a request: the two ends have lost step, and nothing after this can be understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a request starts with {0:#010x}, which is not its magic number")]
pub struct BadRequestMagic(pub u32);

impl RequestHeader {
    /// Bytes on the wire.
    pub const SIZE: usize = 28;

    pub fn decode(bytes: &[u8; Self::SIZE]) -> Result<Self, BadRequestMagic> {
        let (magic, rest) = split::<4>(bytes);
        let (flags, rest) = split::<2>(rest);
        let (kind, rest) = split::<2>(rest);
        let (cookie, rest) = split::<8>(rest);
        let (offset, length) = split::<8>(rest);
        let (length, _) = split::<4>(length);
        match u32::from_be_bytes(magic) {
            REQUEST_MAGIC => Ok(RequestHeader {
                flags: u16::from_be_bytes(flags),
                kind: u16::from_be_bytes(kind),
                cookie: u64::from_be_bytes(cookie),
                offset: u64::from_be_bytes(offset),
                length: u32::from_be_bytes(length),
            }),
            other => Err(BadRequestMagic(other)),
        }
    }

    pub fn encode(&self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        bytes[0..4].copy_from_slice(&REQUEST_MAGIC.to_be_bytes());
        bytes[4..6].copy_from_slice(&self.flags.to_be_bytes());
        bytes[6..8].copy_from_slice(&self.kind.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.cookie.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.offset.to_be_bytes());
        bytes[24..28].copy_from_slice(&self.length.to_be_bytes());
        bytes
    }
}

/// The first `N` bytes and the rest. Callers pass slices of a fixed, sufficient length.
fn split<const N: usize>(bytes: &[u8]) -> ([u8; N], &[u8]) {
    let (first, rest) = bytes.split_first_chunk::<N>().expect("a fixed-size message holds its fields");
    (*first, rest)
}

/// The header of a reply without chunks; a successful read's data follow it. `error` is 0 or an [`ErrorCode`].
pub fn simple_reply(error: u32, cookie: u64) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[0..4].copy_from_slice(&SIMPLE_REPLY_MAGIC.to_be_bytes());
    bytes[4..8].copy_from_slice(&error.to_be_bytes());
    bytes[8..16].copy_from_slice(&cookie.to_be_bytes());
    bytes
}

/// The header of one chunk of a structured reply; `length` bytes follow it.
pub fn chunk_header(flags: u16, kind: u16, cookie: u64, length: u32) -> [u8; 20] {
    let mut bytes = [0; 20];
    bytes[0..4].copy_from_slice(&STRUCTURED_REPLY_MAGIC.to_be_bytes());
    bytes[4..6].copy_from_slice(&flags.to_be_bytes());
    bytes[6..8].copy_from_slice(&kind.to_be_bytes());
    bytes[8..16].copy_from_slice(&cookie.to_be_bytes());
    bytes[16..20].copy_from_slice(&length.to_be_bytes());
    bytes
}

/// Appends the answer to an option: header and data.
pub fn put_option_reply(out: &mut Vec<u8>, option: u32, kind: u32, data: &[&[u8]]) {
    let length: usize = data.iter().map(|part| part.len()).sum();
    let length = u32::try_from(length).expect("answers to options are short");
    out.extend_from_slice(&OPTION_REPLY_MAGIC.to_be_bytes());
    out.extend_from_slice(&option.to_be_bytes());
    out.extend_from_slice(&kind.to_be_bytes());
    out.extend_from_slice(&length.to_be_bytes());
    for part in data {
        out.extend_from_slice(part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The example is written out by hand from the specification's table.
    #[test]
    fn a_request_stands_on_the_wire_as_the_specification_says() {
        let bytes: [u8; 28] = [
            0x25, 0x60, 0x95, 0x13, 0x00, 0x01, 0x00, 0x06, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 1, 0, 0, 0x10, 0, 0, 0, 2,
            0,
        ];
        let header = RequestHeader {
            flags: command_flag::FUA,
            kind: command::WRITE_ZEROES,
            cookie: 0x0102_0304_0506_0708,
            offset: (1 << 32) + 4096,
            length: 512,
        };
        assert_eq!(RequestHeader::decode(&bytes), Ok(header));
        assert_eq!(header.encode(), bytes);
    }

    proptest! {
        #[test]
        fn any_request_survives_encoding(
            flags: u16, kind: u16, cookie: u64, offset: u64, length: u32,
        ) {
            let header = RequestHeader { flags, kind, cookie, offset, length };
            prop_assert_eq!(RequestHeader::decode(&header.encode()), Ok(header));
        }

        #[test]
        fn any_bytes_either_decode_to_what_they_say_or_are_refused(bytes: [u8; 28]) {
            match RequestHeader::decode(&bytes) {
                Ok(header) => prop_assert_eq!(header.encode(), bytes),
                Err(BadRequestMagic(magic)) => prop_assert_eq!(&magic.to_be_bytes()[..], &bytes[..4]),
            }
        }
    }
}
