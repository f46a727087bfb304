//! Which requests are answered by the disk and which are refused, and with what error (specification, "Request types" and
//! "Error values"). Pure: what a request may do depends on its header and on what was negotiated.

use super::wire::{ErrorCode, RequestHeader, command, command_flag as flag};
use std::borrow::Cow;
use tepal_model::MAX_REQUEST;

/// A request that keeps to the rules, as the disk understands it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    Read {
        offset: u64,
        length: u64,
    },
    Write {
        offset: u64,
        length: u64,
        fua: bool,
    },
    Flush,
    Trim {
        offset: u64,
        length: u64,
        fua: bool,
    },
    WriteZeroes {
        offset: u64,
        length: u64,
        allocate: bool,
        fua: bool,
    },
    /// A hint, and nothing to be done: there is no cache that the disk could fill ahead of a read.
    Cache,
    BlockStatus {
        offset: u64,
        length: u64,
        one: bool,
    },
    Disconnect,
}

/// What negotiation settled, and the disk as it is now.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    pub structured: bool,
    /// `base:allocation` was selected for this export.
    pub allocation: bool,
    pub read_only: bool,
    pub size: u64,
}

/// Why a request failed, as its reply tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub code: ErrorCode,
    /// Where, if it is one place within the request.
    pub offset: Option<u64>,
    pub message: Cow<'static, str>,
}

impl Failure {
    pub fn new(code: ErrorCode, message: impl Into<Cow<'static, str>>) -> Self {
        Failure { code, offset: None, message: message.into() }
    }
}

/// Bytes that follow the header of this request, whether or not it is refused.
pub fn payload_length(header: &RequestHeader) -> u64 {
    if header.kind == command::WRITE { u64::from(header.length) } else { 0 }
}

pub fn check(header: &RequestHeader, terms: &Terms) -> Result<Command, Failure> {
    let invalid = |message: &'static str| Err(Failure::new(ErrorCode::Invalid, message));
    let (offset, length) = (header.offset, u64::from(header.length));
    let allowed = flag::FUA
        | match header.kind {
            command::READ if terms.structured => flag::DF,
            command::WRITE_ZEROES => flag::NO_HOLE | flag::FAST_ZERO,
            command::BLOCK_STATUS => flag::REQ_ONE,
            _ => 0,
        };
    if header.kind == command::DISC {
        return Ok(Command::Disconnect);
    }
    if header.kind > command::BLOCK_STATUS {
        return invalid("unknown command");
    }
    if header.flags & !allowed != 0 {
        return invalid("a flag that this command doesn't have");
    }
    let has = |bit: u16| header.flags & bit != 0;
    let fua = has(flag::FUA);
    let changes = matches!(header.kind, command::WRITE | command::TRIM | command::WRITE_ZEROES);
    if changes && terms.read_only {
        return Err(Failure::new(ErrorCode::NotPermitted, "the export is read-only"));
    }
    if matches!(header.kind, command::READ | command::WRITE) && length > MAX_REQUEST {
        return invalid("longer than the maximum block size");
    }
    let end = offset.checked_add(length);
    if header.kind != command::FLUSH && end.is_none_or(|end| end > terms.size) {
        let code = match header.kind {
            command::WRITE | command::WRITE_ZEROES => ErrorCode::NoSpace,
            _ => ErrorCode::Invalid,
        };
        return Err(Failure::new(code, "reaches past the end of the export"));
    }
    match header.kind {
        command::READ => Ok(Command::Read { offset, length }),
        command::WRITE => Ok(Command::Write { offset, length, fua }),
        command::FLUSH if (offset, length) != (0, 0) => invalid("a flush has neither offset nor length"),
        command::FLUSH => Ok(Command::Flush),
        command::TRIM => Ok(Command::Trim { offset, length, fua }),
        command::CACHE => Ok(Command::Cache),
        // Allocating means writing the zeros, which is no faster than a write of them.
        command::WRITE_ZEROES if has(flag::NO_HOLE) && has(flag::FAST_ZERO) => {
            Err(Failure::new(ErrorCode::NotSupported, "zeros that keep their space are not fast"))
        }
        command::WRITE_ZEROES => Ok(Command::WriteZeroes { offset, length, allocate: has(flag::NO_HOLE), fua }),
        _ if !terms.allocation => invalid("no metadata context was selected"),
        _ if length == 0 => invalid("the status of no bytes"),
        _ => Ok(Command::BlockStatus { offset, length, one: has(flag::REQ_ONE) }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ErrorCode::{Invalid, NoSpace, NotPermitted, NotSupported};
    use proptest::prelude::*;

    const SIZE: u64 = 1 << 40;
    const TERMS: Terms = Terms { structured: true, allocation: true, read_only: false, size: SIZE };
    const MAX: u32 = MAX_REQUEST as u32;

    fn checked(terms: Terms, kind: u16, flags: u16, offset: u64, length: u32) -> Result<Command, ErrorCode> {
        check(&RequestHeader { flags, kind, cookie: 1, offset, length }, &terms).map_err(|failure| failure.code)
    }

    #[test]
    fn requests_at_the_edges_of_the_rules() {
        let cases = [
            (command::READ, 0, 0, MAX, Ok(Command::Read { offset: 0, length: MAX_REQUEST })),
            (command::READ, 0, 0, MAX + 1, Err(Invalid)),
            (command::READ, flag::FUA | flag::DF, SIZE - 1, 1, Ok(Command::Read { offset: SIZE - 1, length: 1 })),
            (command::READ, 0, SIZE, 0, Ok(Command::Read { offset: SIZE, length: 0 })),
            (command::READ, 0, SIZE, 1, Err(Invalid)),
            (command::READ, 0, u64::MAX, 1, Err(Invalid)),
            (command::READ, flag::NO_HOLE, 0, 1, Err(Invalid)),
            (command::WRITE, flag::FUA, 1, 7, Ok(Command::Write { offset: 1, length: 7, fua: true })),
            (command::WRITE, 0, SIZE - 1, 2, Err(NoSpace)),
            (command::WRITE, 0, u64::MAX, u32::MAX, Err(Invalid)),
            (command::WRITE, 0, u64::MAX, 1, Err(NoSpace)),
            (command::WRITE, flag::DF, 0, 1, Err(Invalid)),
            (command::FLUSH, flag::FUA, 0, 0, Ok(Command::Flush)),
            (command::FLUSH, 0, 0, 1, Err(Invalid)),
            (command::FLUSH, 0, 1, 0, Err(Invalid)),
            (command::TRIM, 0, 0, u32::MAX, Ok(Command::Trim { offset: 0, length: u32::MAX.into(), fua: false })),
            (command::TRIM, 0, SIZE - 1, 2, Err(Invalid)),
            (command::TRIM, flag::FAST_ZERO, 0, 2, Err(Invalid)),
            (
                command::WRITE_ZEROES,
                flag::NO_HOLE | flag::FUA,
                0,
                u32::MAX,
                Ok(Command::WriteZeroes { offset: 0, length: u32::MAX.into(), allocate: true, fua: true }),
            ),
            (
                command::WRITE_ZEROES,
                flag::FAST_ZERO,
                0,
                1,
                Ok(Command::WriteZeroes { offset: 0, length: 1, allocate: false, fua: false }),
            ),
            (command::WRITE_ZEROES, flag::FAST_ZERO | flag::NO_HOLE, 0, 1, Err(NotSupported)),
            (command::WRITE_ZEROES, 0, SIZE, 1, Err(NoSpace)),
            (command::WRITE_ZEROES, flag::REQ_ONE, 0, 1, Err(Invalid)),
            (command::CACHE, flag::FUA, 0, u32::MAX, Ok(Command::Cache)),
            (command::CACHE, flag::DF, 0, 1, Err(Invalid)),
            (command::CACHE, 0, SIZE, 1, Err(Invalid)),
            (
                command::BLOCK_STATUS,
                flag::REQ_ONE,
                0,
                u32::MAX,
                Ok(Command::BlockStatus { offset: 0, length: u32::MAX.into(), one: true }),
            ),
            (command::BLOCK_STATUS, 0, 0, 0, Err(Invalid)),
            (command::BLOCK_STATUS, 0, SIZE, 1, Err(Invalid)),
            (command::DISC, 0, 0, 0, Ok(Command::Disconnect)),
            (8, 0, 0, 0, Err(Invalid)),
            (u16::MAX, 0, 0, 0, Err(Invalid)),
            (command::WRITE, 1 << 15, 0, 1, Err(Invalid)),
        ];
        for (kind, flags, offset, length, expected) in cases {
            assert_eq!(checked(TERMS, kind, flags, offset, length), expected, "{kind} {flags:#x} {offset}+{length}");
        }
    }

    #[test]
    fn what_was_not_negotiated_is_refused() {
        let simple = Terms { structured: false, allocation: false, ..TERMS };
        assert_eq!(checked(simple, command::READ, flag::DF, 0, 1), Err(Invalid));
        assert_eq!(checked(simple, command::BLOCK_STATUS, 0, 0, 1), Err(Invalid));
    }

    #[test]
    fn a_read_only_export_permits_what_changes_nothing() {
        let terms = Terms { read_only: true, ..TERMS };
        for kind in [command::WRITE, command::TRIM, command::WRITE_ZEROES] {
            assert_eq!(checked(terms, kind, 0, 0, 1), Err(NotPermitted));
            assert_eq!(checked(terms, kind, 0, SIZE, 1), Err(NotPermitted));
        }
        assert!(checked(terms, command::READ, 0, 0, 1).is_ok());
        assert!(checked(terms, command::BLOCK_STATUS, 0, 0, 1).is_ok());
        assert_eq!(checked(terms, command::FLUSH, 0, 0, 0), Ok(Command::Flush));
    }

    proptest! {
        #[test]
        fn what_passes_lies_within_the_disk_and_within_the_limits(
            flags in 0u16..64, kind in 0u16..10, offset in any::<u64>(), near in 0u64..8, length: u32,
            structured: bool, allocation: bool, read_only: bool, size in any::<u64>(), close: bool,
        ) {
            let offset = if close { size.saturating_sub(near) } else { offset };
            let terms = Terms { structured, allocation, read_only, size };
            let header = RequestHeader { flags, kind, cookie: 0, offset, length };
            let within = |offset: u64, length: u64| offset.checked_add(length).is_some_and(|end| end <= size);
            match check(&header, &terms) {
                Ok(Command::Read { offset, length }) => prop_assert!(within(offset, length) && length <= MAX_REQUEST),
                Ok(Command::Write { offset, length, .. }) => {
                    prop_assert!(within(offset, length) && length <= MAX_REQUEST && !read_only)
                }
                Ok(Command::Trim { offset, length, .. } | Command::WriteZeroes { offset, length, .. }) => {
                    prop_assert!(within(offset, length) && !read_only)
                }
                Ok(Command::BlockStatus { offset, length, .. }) => {
                    prop_assert!(within(offset, length) && length > 0 && allocation)
                }
                Ok(Command::Flush | Command::Cache | Command::Disconnect) | Err(_) => {}
            }
        }
    }
}
