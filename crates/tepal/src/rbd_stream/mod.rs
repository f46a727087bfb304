//! Streams of Ceph's `rbd`: what differs between two moments of an image, as `rbd export-diff` writes it, and an image with all its
//! snapshots, as `rbd export --export-format 2` does: properties of the image, and then differences from each snapshot to the next.
//!
//! Invariants:
//! 1. A record is given out only in its place: within the image, behind the one before it, and of a known kind. Streams have no
//!    checksums, so that is all that tells damage from content.
//! 2. An error names the byte of the stream where it was found.
//! 3. Whatever lengths a stream says, no more than [`LONGEST`] bytes of it are held.

mod read;
#[cfg(test)]
mod tests;
mod write;

pub use read::StreamReader;
pub use write::{DiffWriter, begin_image};

use std::io;
use tepal_model::text::shown;

/// The longest data that is given out at once.
pub const LONGEST: u64 = 8 << 20;
/// The first bytes of a stream are enough to know it.
pub const BEGINNING: usize = 13;
/// A volume's size is a multiple of it; an image may have any.
const SECTOR: u64 = 512;

const DIFF: &[u8] = b"rbd diff v1\n";
/// Its records say how long they are.
const DIFF_2: &[u8] = b"rbd diff v2\n";
const IMAGE: &[u8] = b"rbd image v2\n";
/// Between the properties of an image and its differences.
const DIFFS: &[u8] = b"rbd image diffs v2\n";
/// So many bytes of a beginning may be wrong, and it's still taken for what it was.
const MOST_WRONG: usize = 3;

/// What begins a record.
mod tag {
    pub const FROM: u8 = b'f';
    pub const TO: u8 = b't';
    pub const SIZE: u8 = b's';
    pub const PROTECTION: u8 = b'p';
    pub const WRITE: u8 = b'w';
    pub const ZERO: u8 = b'z';
    pub const END: u8 = b'e';
    pub const ORDER: u8 = b'O';
    pub const FEATURES: u8 = b'T';
    pub const STRIPE_UNIT: u8 = b'U';
    pub const STRIPE_COUNT: u8 = b'C';
    pub const PROPERTIES_END: u8 = b'E';
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Differences alone.
    Diff,
    /// An image with its snapshots.
    Image,
}

impl Kind {
    /// Of what begins so.
    pub fn of(beginning: &[u8]) -> Option<Self> {
        match beginning {
            image if image.starts_with(IMAGE) => Some(Kind::Image),
            diff if diff.starts_with(DIFF) || diff.starts_with(DIFF_2) => Some(Kind::Diff),
            _ => None,
        }
    }
}

/// Whether something begins as a stream did until some bytes of that were damaged, or as one of another version.
pub fn begins_as_damaged(beginning: &[u8]) -> bool {
    let is_like = |magic: &&[u8]| {
        let same = magic.iter().zip(beginning).filter(|(one, other)| one == other).count();
        same + MOST_WRONG >= magic.len()
    };
    Kind::of(beginning).is_none() && [DIFF, DIFF_2, IMAGE].iter().any(is_like)
}

/// What differs from what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// The snapshot that it's based on. `None`: all of an image.
    pub since: Option<String>,
    /// The snapshot that it leads to. `None`: the image itself.
    pub to: Option<String>,
    /// Bytes that a volume needs for what it leads to.
    pub size: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    #[error("it can't be read from byte {at} on: {error}")]
    Io { at: u64, error: io::Error },
    #[error("it ends at byte {at}, before its end")]
    CutShort { at: u64 },
    #[error("it goes on after its end, at byte {at}")]
    GoesOn { at: u64 },
    #[error("at byte {at} it has {}, which no record begins with that is known here: it's damaged, or of a newer `rbd`", shown_byte(*.tag))]
    Tag { at: u64, tag: u8 },
    #[error("at byte {at} it isn't right: {what}")]
    Wrong { at: u64, what: &'static str },
    #[error("at byte {at} is a record of {length} bytes at {offset}, and the image has {size}")]
    PastEnd { at: u64, offset: u64, length: u64, size: u64 },
    #[error(
        "at byte {at} is a record of what is at {offset}, and the one before it went up to {end}: such order isn't taken"
    )]
    Order { at: u64, offset: u64, end: u64 },
    #[error("at byte {at} it says that the image has {size} bytes, and a volume has from 512 up to 2^63")]
    Size { at: u64, size: u64 },
    #[error(
        "at byte {at} it names a snapshot '{}', and names here have 1 to 128 of A-Z a-z 0-9 . _ -, the first none of . and -: \
         `rbd snap rename` it, and export once more",
        shown(.name)
    )]
    Name { at: u64, name: String },
    #[error("at byte {at} it says that it has {parts} differences, and a volume has at most {most} snapshots")]
    Parts { at: u64, parts: u64, most: u64 },
}

fn shown_byte(byte: u8) -> String {
    match byte {
        byte if byte.is_ascii_graphic() => format!("'{}'", char::from(byte)),
        byte => format!("{byte:#04x}"),
    }
}
