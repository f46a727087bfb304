//! Messages as bytes: a fixed header, the message as JSON, and bytes that go with it (a piece of a snapshot).
//!
//! | offset | bytes | field |
//! | --- | --- | --- |
//! | 0 | 4 | `TpMm` |
//! | 4 | 2 | version, little-endian, as all numbers |
//! | 6 | 2 | 0 |
//! | 8 | 4 | bytes of JSON |
//! | 12 | 4 | CRC-32C of all other bytes |
//! | 16 | | JSON, then the payload up to the end |

use super::MAX_MESSAGE;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tepal_codec::checksum::{crc, crc_append};

const MAGIC: &[u8; 4] = b"TpMm";
pub const VERSION: u16 = 1;
const HEADER: usize = 16;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    #[error("it is no message of the metadata")]
    Foreign,
    #[error("it is of version {found}, and this build knows version {VERSION}")]
    Version { found: u16 },
    #[error("its checksum is wrong")]
    Checksum,
    #[error("it is malformed: {0}")]
    Malformed(String),
}

pub fn encode<T: Serialize>(message: &T, payload: &[u8]) -> Vec<u8> {
    let json = serde_json::to_vec(message).expect("messages have string keys and no failing serializer");
    let mut bytes = Vec::with_capacity(HEADER + json.len() + payload.len());
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&[0; 2]);
    bytes.extend_from_slice(&u32::try_from(json.len()).expect("messages are small").to_le_bytes());
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(&json);
    bytes.extend_from_slice(payload);
    let sum = checksum(&bytes);
    bytes[12..HEADER].copy_from_slice(&sum.to_le_bytes());
    bytes
}

pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<(T, &[u8]), FrameError> {
    let (Some(header), true) = (bytes.first_chunk::<HEADER>(), bytes.len() <= MAX_MESSAGE) else {
        return Err(FrameError::Foreign);
    };
    if !header.starts_with(MAGIC) {
        return Err(FrameError::Foreign);
    }
    let version = u16::from_le_bytes([header[4], header[5]]);
    if version != VERSION {
        return Err(FrameError::Version { found: version });
    }
    let number = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    if number(12) != checksum(bytes) {
        return Err(FrameError::Checksum);
    }
    if header[6..8] != [0; 2] {
        return Err(FrameError::Malformed("reserved bytes are set".to_owned()));
    }
    let length = usize::try_from(number(8)).unwrap_or(usize::MAX);
    let Some((json, payload)) = bytes[HEADER..].split_at_checked(length) else {
        return Err(FrameError::Malformed("it is shorter than it says".to_owned()));
    };
    let message = serde_json::from_slice(json).map_err(|error| FrameError::Malformed(error.to_string()))?;
    Ok((message, payload))
}

fn checksum(bytes: &[u8]) -> u32 {
    crc_append(crc(&bytes[..12]), &bytes[HEADER..])
}
