//! Sizes: the orchestrator's are bytes of any number, a volume's are whole sectors.

use crate::failure::Failure;
use crate::spec::CapacityRange;

/// A volume's size is a multiple of this.
const SECTOR: u64 = 512;
/// What a volume has if nobody says how much.
const DEFAULT: u64 = 1 << 30;

/// Which sizes are right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    required: u64,
    limit: Option<u64>,
}

impl Range {
    /// # Errors
    ///
    /// If no size is right.
    pub fn of(asked: Option<&CapacityRange>) -> Result<Range, Failure> {
        let asked = asked.copied().unwrap_or_default();
        let bytes = |bytes: i64| u64::try_from(bytes).map_err(|_| Failure::invalid("a size below 0 was asked for"));
        let (required, limit) = (bytes(asked.required_bytes)?, bytes(asked.limit_bytes)?);
        let limit = Some(limit).filter(|limit| *limit > 0);
        match limit {
            Some(limit) if limit < required => {
                Err(Failure::invalid(format!("at least {required} bytes are asked for, and at most {limit}")))
            }
            _ => Ok(Range { required, limit }),
        }
    }

    /// The size for a new volume, at least as large as what it's made of.
    pub fn size(&self, source: Option<u64>) -> Result<u64, Failure> {
        let least = match (self.required, source) {
            (0, None) => self.limit.map_or(DEFAULT, |limit| DEFAULT.min(limit / SECTOR * SECTOR)).max(SECTOR),
            (required, source) => required.max(source.unwrap_or(SECTOR)),
        };
        let size = least.div_ceil(SECTOR) * SECTOR;
        let too_small = |limit| format!("the volume would have {size} bytes, and at most {limit} are asked for");
        match self.limit {
            Some(limit) if size > limit => Err(Failure::out_of_range(too_small(limit))),
            _ => Ok(size),
        }
    }

    /// Whether a volume of this size is right.
    pub fn has(&self, size: u64) -> bool {
        size >= self.required && self.limit.is_none_or(|limit| size <= limit)
    }

    /// Whether a volume of this size has too little.
    pub fn is_beyond(&self, size: u64) -> bool {
        size < self.required
    }
}

/// As answers have it.
pub fn bytes(size: u64) -> i64 {
    i64::try_from(size).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonic::Code;

    fn range(required_bytes: i64, limit_bytes: i64) -> Result<Range, Code> {
        Range::of(Some(&CapacityRange { required_bytes, limit_bytes })).map_err(|failure| failure.code)
    }

    #[test]
    fn a_size_that_was_asked_for_is_answered_to_the_byte() {
        let size = |required, limit, source| {
            range(required, limit).and_then(|range| range.size(source).map_err(|failure| failure.code))
        };
        assert_eq!(size(10 << 30, 0, None), Ok(10 << 30));
        assert_eq!(size(0, 0, None), Ok(1 << 30));
        assert_eq!(size(0, 1_000_000, None), Ok(999_936));
        assert_eq!(size(1000, 0, None), Ok(1024));
        assert_eq!(size(1000, 1000, None), Err(Code::OutOfRange));
        assert_eq!(size(512, 0, Some(4096)), Ok(4096));
        assert_eq!(size(512, 1024, Some(4096)), Err(Code::OutOfRange));
        assert_eq!(size(0, 100, None), Err(Code::OutOfRange));
        assert_eq!(range(-1, 0), Err(Code::InvalidArgument));
        assert_eq!(range(2, 1), Err(Code::InvalidArgument));
    }
}
