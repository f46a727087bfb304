//! The header of a frame, and a frame's bytes but for its payload. The byte table is in docs/formats.md.
//!
//! The header has a CRC of its own, so a length that a peer claims is believed only when it's what the peer sent, and only
//! up to [`Limits`]. The frame's message and the payload's checksums, together its meta part, have another.

use crate::payload::{Corrupt, Payload};
use tepal_codec::checksum::crc;
use tepal_model::{BLOCK, MAX_REQUEST};

/// Bytes of the header.
pub const HEADER: usize = 64;
/// Longest meta part: the message and the checksums of the payload.
pub const MAX_META: u32 = 1 << 20;
/// Longest payload.
pub const MAX_PAYLOAD: u32 = MAX_REQUEST as u32;

/// What each frame starts with.
pub const MAGIC: [u8; 4] = *b"TPLw";
/// Of this header. Frames of the handshake have it for good, whatever version they choose.
const HEADER_VERSION: u8 = 1;
const IN_DOUBT: u8 = 1;
const META_CRC_AT: usize = 56;
const CRC_AT: usize = 60;

/// What a frame's message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// The first frame of whoever connects.
    Hello = 1,
    /// The server's answer to it, if it's willing.
    Welcome = 2,
    /// The server's last frame, at any time: why this connection ends.
    Refused = 3,
    /// Whoever called asks whether anybody is there. At any time after the welcome.
    Ping = 4,
    /// The answer to it.
    Pong = 5,
    /// A request among metadata servers.
    MetadataRequest = 16,
    /// A request to one drive.
    DriveRequest = 17,
    /// A request to the primary of one column of a volume.
    VolumeRequest = 18,
    /// A request of the admin API that one server passes on to another.
    ApiRequest = 19,
    /// The answer to a [`Kind::MetadataRequest`].
    MetadataAnswer = 32,
    /// The answer to a [`Kind::DriveRequest`].
    DriveAnswer = 33,
    /// The answer to a [`Kind::VolumeRequest`].
    VolumeAnswer = 34,
    /// The answer to a [`Kind::ApiRequest`].
    ApiAnswer = 35,
}

impl Kind {
    fn from_byte(byte: u8) -> Option<Kind> {
        use Kind::*;
        let all = [
            Hello,
            Welcome,
            Refused,
            Ping,
            Pong,
            MetadataRequest,
            DriveRequest,
            VolumeRequest,
            ApiRequest,
            MetadataAnswer,
            DriveAnswer,
            VolumeAnswer,
            ApiAnswer,
        ];
        all.into_iter().find(|&kind| kind as u8 == byte)
    }
}

/// What every frame says besides its message. A field that means nothing in a message is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// Which request of the client this is, or answers. They ascend, also over connections.
    pub request: u64,
    /// The client's slot in the session; see [`crate::session`].
    pub slot: u16,
    /// The epoch of the session that this connection carries: each connection has a higher one.
    pub session: u64,
    /// The newest view that the sender knows.
    pub view: u64,
    /// The volume's revision that the sender acts by.
    pub revision: u64,
    /// In the answer to a read from a drive: how many others it has under way, of everybody. For choosing where to read next.
    pub load: u16,
    /// In a request: it may have been carried out before, by somebody who remembers nothing of it any more.
    pub in_doubt: bool,
}

/// How long the parts of a frame may be that a peer sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Message and checksums, in bytes.
    pub meta: u32,
    /// In bytes.
    pub payload: u32,
}

impl Limits {
    /// Until it's known who the peer is.
    pub const HANDSHAKE: Limits = Limits { meta: 4 << 10, payload: 0 };
    /// After the handshake.
    pub const OPEN: Limits = Limits { meta: MAX_META, payload: MAX_PAYLOAD };
}

/// Why bytes are no frame. The connection ends.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Not Tepal at all.
    #[error("a frame starts with {}, which isn't Tepal's", found.escape_ascii())]
    Magic {
        /// As much of the beginning as has come.
        found: Vec<u8>,
    },
    /// Of a Tepal that is newer than this one can talk to at all.
    #[error("version {found} of the frame header is unknown; {HEADER_VERSION} is known")]
    Version {
        /// As the frame says.
        found: u8,
    },
    /// The header isn't what was sent.
    #[error("a frame was damaged on its way: the checksum of its header is wrong")]
    HeaderCrc,
    /// The message or the checksums aren't what was sent.
    #[error("a frame was damaged on its way: the checksum of its message is wrong")]
    MetaCrc,
    /// The payload isn't what was sent.
    #[error(transparent)]
    Payload(#[from] Corrupt),
    /// The peer says what this version doesn't know.
    #[error("frames of kind {found} are unknown")]
    Kind {
        /// As the frame says.
        found: u8,
    },
    /// The same, within the header.
    #[error("the frame header has unknown bits")]
    Bits,
    /// More than a message may be.
    #[error("a message of {length} bytes with its checksums: at most {most} are accepted")]
    MetaTooLong {
        /// Bytes.
        length: u64,
        /// What is accepted now.
        most: u32,
    },
    /// More than a payload may be.
    #[error("a payload of {length} bytes: at most {most} are accepted")]
    PayloadTooLong {
        /// Bytes.
        length: u32,
        /// What is accepted now.
        most: u32,
    },
    /// A payload starts within a block.
    #[error("a payload starts {cut} bytes into a block")]
    Cut {
        /// As the frame says.
        cut: u16,
    },
}

/// What can be encoded into a frame: the types of [`crate::message`] and [`crate::handshake`].
pub trait Encode {
    /// The kind of frame that says it.
    fn kind(&self) -> Kind;
    /// Appends its bytes.
    fn encode(&self, out: &mut Vec<u8>);
}

/// Appends a frame but for its payload, which follows it on the wire. A message longer than [`MAX_META`] or a payload
/// longer than [`MAX_PAYLOAD`] is a mistake of the caller.
pub fn append(out: &mut Vec<u8>, header: &Header, message: &impl Encode, payload: &Payload) {
    let start = out.len();
    out.extend_from_slice(&[0; HEADER]);
    message.encode(out);
    let message_length = out.len() - start - HEADER;
    for sum in payload.sums() {
        out.extend_from_slice(&sum.to_le_bytes());
    }
    let meta = &out[start + HEADER..];
    assert!(meta.len() <= MAX_META as usize, "a message is at most {MAX_META} bytes, and this one is {}", meta.len());
    assert!(payload.length() <= MAX_PAYLOAD.into(), "a payload is at most {MAX_PAYLOAD} bytes");
    let meta_crc = crc(meta);
    let head = &mut out[start..start + HEADER];
    head[0..4].copy_from_slice(&MAGIC);
    head[4] = HEADER_VERSION;
    head[5] = message.kind() as u8;
    head[6] = if header.in_doubt { IN_DOUBT } else { 0 };
    head[8..12].copy_from_slice(&(message_length as u32).to_le_bytes());
    head[12..16].copy_from_slice(&(payload.length() as u32).to_le_bytes());
    head[16..24].copy_from_slice(&header.request.to_le_bytes());
    head[24..32].copy_from_slice(&header.session.to_le_bytes());
    head[32..40].copy_from_slice(&header.view.to_le_bytes());
    head[40..48].copy_from_slice(&header.revision.to_le_bytes());
    head[48..50].copy_from_slice(&header.slot.to_le_bytes());
    head[50..52].copy_from_slice(&header.load.to_le_bytes());
    head[52..54].copy_from_slice(&payload.cut().to_le_bytes());
    head[META_CRC_AT..CRC_AT].copy_from_slice(&meta_crc.to_le_bytes());
    let head_crc = crc(&head[..CRC_AT]);
    head[CRC_AT..].copy_from_slice(&head_crc.to_le_bytes());
}

/// A header that is what its sender sent, and within the limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub kind: Kind,
    pub header: Header,
    /// Bytes.
    pub message: usize,
    /// How many checksums.
    pub sums: usize,
    /// Bytes.
    pub payload: usize,
    pub cut: u16,
    meta_crc: u32,
}

impl Head {
    /// Judges what has come so far of a header: what isn't Tepal's is refused at its first wrong byte.
    pub fn check_start(received: &[u8]) -> Result<(), FrameError> {
        let start = received.len().min(MAGIC.len());
        if received[..start] != MAGIC[..start] {
            return Err(FrameError::Magic { found: received[..start].to_vec() });
        }
        match received.get(4) {
            Some(&found) if found != HEADER_VERSION => Err(FrameError::Version { found }),
            _ => Ok(()),
        }
    }

    pub fn decode(bytes: &[u8; HEADER], limits: Limits) -> Result<Head, FrameError> {
        Head::check_start(bytes)?;
        let u16_at = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"));
        let u64_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
        if u32_at(CRC_AT) != crc(&bytes[..CRC_AT]) {
            return Err(FrameError::HeaderCrc);
        }
        let kind = Kind::from_byte(bytes[5]).ok_or(FrameError::Kind { found: bytes[5] })?;
        if bytes[6] & !IN_DOUBT != 0 || bytes[7] != 0 || u16_at(54) != 0 {
            return Err(FrameError::Bits);
        }
        let (message, payload, cut) = (u32_at(8), u32_at(12), u16_at(52));
        if u64::from(cut) >= BLOCK || (cut > 0 && payload == 0) {
            return Err(FrameError::Cut { cut });
        }
        if payload > limits.payload {
            return Err(FrameError::PayloadTooLong { length: payload, most: limits.payload });
        }
        let sums = Payload::pieces(cut, payload.into());
        let meta = u64::from(message) + 4 * sums;
        if meta > limits.meta.into() {
            return Err(FrameError::MetaTooLong { length: meta, most: limits.meta });
        }
        let header = Header {
            request: u64_at(16),
            session: u64_at(24),
            view: u64_at(32),
            revision: u64_at(40),
            slot: u16_at(48),
            load: u16_at(50),
            in_doubt: bytes[6] & IN_DOUBT != 0,
        };
        let (message, sums, payload) = (message as usize, sums as usize, payload as usize);
        Ok(Head { kind, header, message, sums, payload, cut, meta_crc: u32_at(META_CRC_AT) })
    }

    /// Bytes of the message and the checksums.
    pub fn meta(&self) -> usize {
        self.message + 4 * self.sums
    }

    pub fn check_meta(&self, meta: &[u8]) -> Result<(), FrameError> {
        if crc(meta) == self.meta_crc { Ok(()) } else { Err(FrameError::MetaCrc) }
    }
}
