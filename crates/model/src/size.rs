//! Units, limits, and sizes as people write them (`64K`, `10G`, `1T`, binary; or plain bytes).

use crate::layout::MAX_EXTENT;
use crate::text::shown;
use std::fmt;
use std::str::FromStr;

/// The unit of checksums and of atomicity, in bytes.
pub const BLOCK: u64 = 4096;
/// The unit of a drive's physical map, and the default extent of a layout, in bytes.
pub const EXTENT: u64 = 64 << 10;
/// The unit of busy and stale marks, in bytes.
pub const REGION: u64 = 1 << 20;
/// The unit in which volumes go from one map to another, in bytes, where whole extents of both maps fit: as long as the longest extent.
pub const CHUNK: u64 = MAX_EXTENT as u64;
/// Longest request that a front-end accepts, in bytes.
pub const MAX_REQUEST: u64 = 32 << 20;
/// Largest volume, in bytes.
pub const MAX_VOLUME: u64 = 1 << 63;
/// Largest volume with an erasure code, in bytes: drives number the blocks of its log and of its fragments.
pub const MAX_ERASURE_CODED: u64 = MAX_VOLUME / 4;
/// Largest volume of a quorum layout, in bytes: drives number its fragments, what is said of these, and its log.
pub const MAX_QUORUM: u64 = MAX_VOLUME / 16;

/// The unit in which volumes go from one map to another, in bytes: whole extents of both maps, and at least [`CHUNK`].
pub const fn chunk(one: u32, other: u32) -> u64 {
    let (mut divisor, mut rest) = (one as u64, other as u64);
    while rest > 0 {
        (divisor, rest) = (rest, divisor % rest);
    }
    CHUNK.next_multiple_of(one as u64 / divisor * other as u64)
}

/// A number of bytes that reads and prints as people write sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

/// Why a text isn't a size. Of a long text the beginning is shown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SizeError {
    /// Not a whole number with at most one suffix.
    #[error("'{0}' is not a size: write bytes, or a whole number with K, M, G, T, P or E, as in 10G")]
    Malformed(String),
    /// More than [`MAX_VOLUME`].
    #[error("the size '{0}' is larger than 2^63 bytes")]
    TooLarge(String),
}

const SUFFIXES: [(char, u32); 6] = [('K', 10), ('M', 20), ('G', 30), ('T', 40), ('P', 50), ('E', 60)];

/// So many bytes as text that reads back as the same number: with the largest suffix that divides it.
pub fn exact(bytes: u64) -> String {
    match SUFFIXES.iter().rev().find(|(_, shift)| bytes > 0 && bytes.trailing_zeros() >= *shift) {
        Some((suffix, shift)) => format!("{}{suffix}", bytes >> shift),
        None => bytes.to_string(),
    }
}

impl FromStr for Size {
    type Err = SizeError;

    fn from_str(text: &str) -> Result<Self, SizeError> {
        let malformed = || SizeError::Malformed(shown(text));
        let bare = text.strip_suffix("iB").or_else(|| text.strip_suffix('B')).unwrap_or(text);
        let last = bare.chars().next_back().ok_or_else(malformed)?.to_ascii_uppercase();
        let (digits, shift) = match SUFFIXES.iter().find(|(suffix, _)| *suffix == last) {
            Some(&(_, shift)) => (&bare[..bare.len() - 1], shift),
            None => (bare, 0),
        };
        if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
            return Err(malformed());
        }
        let too_large = || SizeError::TooLarge(shown(text));
        let number: u64 = digits.parse().map_err(|_| too_large())?;
        match number.checked_mul(1 << shift) {
            Some(bytes) if bytes <= MAX_VOLUME => Ok(Size(bytes)),
            _ => Err(too_large()),
        }
    }
}

impl fmt::Display for Size {
    /// Exact where a suffix divides the size, else one decimal of the largest that fits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(&(suffix, shift)) = SUFFIXES.iter().rev().find(|(_, shift)| self.0 >> shift > 0) else {
            return write!(f, "{}", self.0);
        };
        if self.0.trailing_zeros() >= shift {
            return write!(f, "{}{suffix}", self.0 >> shift);
        }
        write!(f, "{:.1}{suffix}", self.0 as f64 / (1u64 << shift) as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exact_sizes_read_back_as_they_are() {
        for (bytes, text) in [
            (0, "0"),
            (512, "512"),
            (4096, "4K"),
            (1536 << 10, "1536K"),
            (1 << 63, "8E"),
            ((1 << 40) + 1, "1099511627777"),
        ] {
            assert_eq!((exact(bytes).as_str(), text.parse::<Size>().map(|size| size.0)), (text, Ok(bytes)));
        }
    }

    #[test]
    fn sizes_read_as_people_write_them() {
        for (text, bytes) in [
            ("0", 0),
            ("512", 512),
            ("64K", 64 << 10),
            ("64k", 64 << 10),
            ("10G", 10 << 30),
            ("10GiB", 10 << 30),
            ("1T", 1 << 40),
            ("8E", 1 << 63),
        ] {
            assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_refused_with_the_text_at_fault() {
        for text in ["", "K", "-1", "1.5G", "G1", "1GG", "0x10", " 1", "1 G", "ten", "∞", "1∞"] {
            assert!(matches!(text.parse::<Size>(), Err(SizeError::Malformed(_))), "{text}");
        }
        for text in ["9E", "99999999999999999999", "9223372036854775809", "18446744073709551615E"] {
            assert!(matches!(text.parse::<Size>(), Err(SizeError::TooLarge(_))), "{text}");
        }
    }

    #[test]
    fn sizes_print_exactly_where_they_can() {
        for (bytes, text) in
            [(0, "0"), (4096, "4K"), (10 << 30, "10G"), (1536, "1.5K"), (1 << 63, "8E"), (1023, "1023")]
        {
            assert_eq!(Size(bytes).to_string(), text);
        }
    }
}
