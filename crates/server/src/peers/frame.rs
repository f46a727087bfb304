//! What goes over a connection between two servers.
//!
//! | offset | bytes | field |
//! | --- | --- | --- |
//! | 0 | 4 | `TpPr` |
//! | 4 | 1 | version |
//! | 5 | 1 | 0 of a call, 1 of an answer |
//! | 6 | 1 | subject |
//! | 7 | 1 | 0 |
//! | 8 | 8 | number of the call, little-endian, as all numbers |
//! | 16 | 4 | bytes of the body |
//! | 20 | 4 | CRC-32C of the body |
//! | 24 | 4 | CRC-32C of what is before |
//! | 28 | | the body |

use std::io;
use tepal_codec::checksum::crc;
use tokio::io::{AsyncRead, AsyncReadExt};

const MAGIC: [u8; 4] = *b"TpPr";
pub const VERSION: u8 = 1;
const HEADER: usize = 28;
/// The longest body that is sent or taken, in bytes.
pub const LONGEST: usize = tepal_metadata::MAX_MESSAGE;

/// Who a call is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Subject {
    /// The metadata, see [`tepal_metadata::Transport`].
    Metadata = 1,
    /// The admin API: a request that another server was asked, see `api::relay`.
    Api = 2,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Call = 0,
    Answer = 1,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    pub way: Way,
    pub subject: Subject,
    pub number: u64,
    pub body: Vec<u8>,
}

/// Why a connection ends.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("it isn't Tepal's")]
    Foreign,
    #[error("it speaks version {0} of this protocol, and this server version {VERSION}")]
    Version(u8),
    #[error("its checksum is wrong")]
    Checksum,
    #[error("it says what nobody asked")]
    Malformed,
    #[error("it is {0} bytes long, and at most {LONGEST} are accepted")]
    TooLong(usize),
}

impl Frame {
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER + self.body.len());
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&[VERSION, self.way as u8, self.subject as u8, 0]);
        bytes.extend_from_slice(&self.number.to_le_bytes());
        bytes.extend_from_slice(&u32::try_from(self.body.len()).unwrap_or(u32::MAX).to_le_bytes());
        bytes.extend_from_slice(&crc(&self.body).to_le_bytes());
        bytes.extend_from_slice(&crc(&bytes).to_le_bytes());
        bytes.extend_from_slice(&self.body);
        bytes
    }

    /// The next frame. What isn't one ends the connection: nobody looks for another behind it.
    pub async fn read(reader: &mut (impl AsyncRead + Unpin)) -> Result<Frame, FrameError> {
        let mut header = [0; HEADER];
        reader.read_exact(&mut header).await?;
        let number = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        if header[..4] != MAGIC {
            return Err(FrameError::Foreign);
        }
        if header[4] != VERSION {
            return Err(FrameError::Version(header[4]));
        }
        if number(24) != crc(&header[..24]) {
            return Err(FrameError::Checksum);
        }
        let way = match header[5] {
            0 => Way::Call,
            1 => Way::Answer,
            _ => return Err(FrameError::Malformed),
        };
        let subject = match header[6] {
            1 => Subject::Metadata,
            2 => Subject::Api,
            _ => return Err(FrameError::Malformed),
        };
        let length = usize::try_from(number(16)).unwrap_or(usize::MAX);
        if length > LONGEST {
            return Err(FrameError::TooLong(length));
        }
        // It grows with what arrives, not with what was announced.
        let mut body = Vec::new();
        (&mut *reader).take(length as u64).read_to_end(&mut body).await?;
        if body.len() < length {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        if number(20) != crc(&body) {
            return Err(FrameError::Checksum);
        }
        let low = u64::from(number(8));
        Ok(Frame { way, subject, number: u64::from(number(12)) << 32 | low, body })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame() -> Frame {
        Frame { way: Way::Answer, subject: Subject::Api, number: 0x0102_0304_0506_0708, body: b"hello".to_vec() }
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_frame_reads_back_and_its_bytes_stay_as_they_are() {
        let bytes = frame().encode();
        assert_eq!(bytes[..20], *b"TpPr\x01\x01\x02\x00\x08\x07\x06\x05\x04\x03\x02\x01\x05\x00\x00\x00");
        assert_eq!(bytes[28..], *b"hello");
        assert_eq!(Frame::read(&mut &bytes[..]).await.expect("whole"), frame());
    }

    #[tokio::test(flavor = "current_thread")]
    async fn what_is_no_frame_is_refused_wherever_a_bit_is_wrong_and_however_short_it_is() {
        let bytes = frame().encode();
        for bit in 0..bytes.len() * 8 {
            let mut wrong = bytes.clone();
            wrong[bit / 8] ^= 1 << (bit % 8);
            assert!(Frame::read(&mut &wrong[..]).await.is_err(), "bit {bit}");
        }
        for length in 0..bytes.len() {
            assert!(matches!(Frame::read(&mut &bytes[..length]).await, Err(FrameError::Io(_))), "{length} bytes");
        }
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_length_that_is_not_accepted_is_refused_before_anything_is_awaited() {
        let mut bytes = frame().encode();
        bytes[16..20].copy_from_slice(&(LONGEST as u32 + 1).to_le_bytes());
        let sum = crc(&bytes[..24]);
        bytes[24..28].copy_from_slice(&sum.to_le_bytes());
        assert!(matches!(Frame::read(&mut &bytes[..28]).await, Err(FrameError::TooLong(_))));
    }
}
