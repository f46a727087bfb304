//! How the parts of messages are packed: numbers little-endian, lists with their length before them, alternatives with a tag
//! of one byte. There's one way to say each thing, and nothing is left over.

use smallvec::SmallVec;
use tepal_model::{ClusterId, DriveId, Epoch, IoError, Lineage, MapId, ServerId, VolumeId, history::MAX_SPANS};

/// Longest text in a message, in bytes. Longer ones are cut.
pub const MAX_TEXT: usize = 512;
/// Longest list in a message.
pub const MAX_LIST: usize = 1 << 16;

/// Why bytes are no message. The peer breaks the rules, or is of another version: the connection ends.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// There's less than it needs.
    #[error("a message ends early")]
    Short,
    /// There's more than it has.
    #[error("{left} bytes are left over after a message")]
    Long {
        /// Bytes.
        left: usize,
    },
    /// One of the alternatives of this version was expected.
    #[error("{found} is no {what}")]
    Tag {
        /// Of what.
        what: &'static str,
        /// As the message says.
        found: u8,
    },
    /// A number that makes no sense.
    #[error("{what} is out of range")]
    Range {
        /// Of what.
        what: &'static str,
    },
    /// Not UTF-8, or too long.
    #[error("a text of {length} bytes isn't one")]
    Text {
        /// Bytes.
        length: usize,
    },
    /// Too long, or longer than the message.
    #[error("a list of {count} doesn't fit")]
    List {
        /// As the message says.
        count: u32,
    },
    /// There's a payload where none belongs, or none, or one that isn't whole blocks.
    #[error("a payload of {length} bytes doesn't go with the message")]
    Payload {
        /// Bytes.
        length: u64,
    },
    /// Of another kind than can come now.
    #[error("a message of kind {found:?} isn't what comes now")]
    Kind {
        /// What came.
        found: crate::frame::Kind,
    },
}

/// Takes fields off the front of some bytes, which may come from anywhere.
#[derive(Debug)]
pub(crate) struct Reader<'a>(pub &'a [u8]);

impl Reader<'_> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], MessageError> {
        let (front, rest) = self.0.split_first_chunk::<N>().ok_or(MessageError::Short)?;
        self.0 = rest;
        Ok(*front)
    }

    /// All of them.
    pub fn whole<T: Field>(bytes: &[u8]) -> Result<T, MessageError> {
        let mut reader = Reader(bytes);
        let field = T::take(&mut reader)?;
        match reader.0.len() {
            0 => Ok(field),
            left => Err(MessageError::Long { left }),
        }
    }
}

/// A part of a message.
pub(crate) trait Field: Sized {
    /// Fewest bytes that one takes: as many as are announced are in the message, or it's refused before they are made.
    const LEAST: usize;
    fn put(&self, out: &mut Vec<u8>);
    fn take(reader: &mut Reader<'_>) -> Result<Self, MessageError>;
}

macro_rules! numbers {
    ($($number:ident)*) => {
        $(impl Field for $number {
            const LEAST: usize = size_of::<$number>();
            fn put(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }
            fn take(reader: &mut Reader<'_>) -> Result<Self, MessageError> {
                reader.array().map($number::from_le_bytes)
            }
        })*
    };
}

macro_rules! ids {
    ($($id:ident)*) => {
        $(impl Field for $id {
            const LEAST: usize = size_of::<$id>();
            fn put(&self, out: &mut Vec<u8>) {
                self.0.put(out);
            }
            fn take(reader: &mut Reader<'_>) -> Result<Self, MessageError> {
                Field::take(reader).map($id)
            }
        })*
    };
}

/// A struct: its fields in order.
macro_rules! record {
    ($name:ident { $($field:ident),* $(,)? }) => {
        impl $crate::field::Field for $name {
            const LEAST: usize = 1;
            fn put(&self, out: &mut Vec<u8>) {
                $(self.$field.put(out);)*
            }
            fn take(reader: &mut $crate::field::Reader<'_>) -> Result<Self, $crate::field::MessageError> {
                Ok($name { $($field: $crate::field::Field::take(reader)?),* })
            }
        }
    };
}

/// An enum: a tag, then the variant's fields in order.
macro_rules! tagged {
    ($name:ident, $what:literal, { $($tag:literal => $variant:ident $({ $($field:ident),* $(,)? })? $(($inner:ident))?),* $(,)? }) => {
        impl $crate::field::Field for $name {
            const LEAST: usize = 1;
            fn put(&self, out: &mut Vec<u8>) {
                match self {
                    $($name::$variant $({ $($field),* })? $(($inner))? => {
                        out.push($tag);
                        $($($field.put(out);)*)?
                        $($inner.put(out);)?
                    })*
                }
            }
            fn take(reader: &mut $crate::field::Reader<'_>) -> Result<Self, $crate::field::MessageError> {
                Ok(match u8::take(reader)? {
                    $($tag => $name::$variant
                        $({ $($field: $crate::field::Field::take(reader)?),* })?
                        $(({ let $inner = $crate::field::Field::take(reader)?; $inner }))?,)*
                    found => return Err($crate::field::MessageError::Tag { what: $what, found }),
                })
            }
        }
    };
}

pub(crate) use {record, tagged};

numbers! { u8 u16 u32 u64 u128 }
ids! { ClusterId DriveId MapId ServerId VolumeId }

impl Field for bool {
    const LEAST: usize = 1;
    fn put(&self, out: &mut Vec<u8>) {
        out.push((*self).into());
    }
    fn take(reader: &mut Reader<'_>) -> Result<Self, MessageError> {
        match u8::take(reader)? {
            0 => Ok(false),
            1 => Ok(true),
            found => Err(MessageError::Tag { what: "truth", found }),
        }
    }
}

impl<T: Field> Field for Option<T> {
    const LEAST: usize = 1;
    fn put(&self, out: &mut Vec<u8>) {
        self.is_some().put(out);
        if let Some(field) = self {
            field.put(out);
        }
    }
    fn take(reader: &mut Reader<'_>) -> Result<Self, MessageError> {
        bool::take(reader)?.then(|| T::take(reader)).transpose()
    }
}

impl Field for String {
    const LEAST: usize = 2;
    fn put(&self, out: &mut Vec<u8>) {
        let text = &self[..self.floor_char_boundary(MAX_TEXT)];
        (text.len() as u16).put(out);
        out.extend_from_slice(text.as_bytes());
    }
    fn take(reader: &mut Reader<'_>) -> Result<Self, MessageError> {
        let length = usize::from(u16::take(reader)?);
        if length > MAX_TEXT {
            return Err(MessageError::Text { length });
        }
        let (text, rest) = reader.0.split_at_checked(length).ok_or(MessageError::Short)?;
        reader.0 = rest;
        str::from_utf8(text).map(str::to_owned).map_err(|_| MessageError::Text { length })
    }
}

/// Of at most [`MAX_LIST`].
impl<T: Field> Field for Vec<T> {
    const LEAST: usize = 4;
    fn put(&self, out: &mut Vec<u8>) {
        assert!(
            self.len() <= MAX_LIST,
            "a list in a message has at most {MAX_LIST} items, and this one {}",
            self.len()
        );
        (self.len() as u32).put(out);
        self.iter().for_each(|item| item.put(out));
    }
    fn take(reader: &mut Reader<'_>) -> Result<Self, MessageError> {
        let count = u32::take(reader)?;
        if count as usize > MAX_LIST.min(reader.0.len() / T::LEAST) {
            return Err(MessageError::List { count });
        }
        (0..count).map(|_| T::take(reader)).collect()
    }
}

/// The spans, then what is its own.
impl Field for Lineage {
    const LEAST: usize = 2 + 8 + 4;
    fn put(&self, out: &mut Vec<u8>) {
        (self.spans().len() as u16).put(out);
        for (first, last) in self.spans() {
            first.put(out);
            last.put(out);
        }
        self.own().put(out);
    }
    fn take(reader: &mut Reader<'_>) -> Result<Self, MessageError> {
        let count = u16::take(reader)?;
        if usize::from(count) > MAX_SPANS {
            return Err(MessageError::List { count: count.into() });
        }
        let spans = (0..count).map(|_| Ok((Epoch::take(reader)?, Epoch::take(reader)?)));
        let spans: SmallVec<[(Epoch, Epoch); 1]> = spans.collect::<Result<_, MessageError>>()?;
        Lineage::new(spans, Field::take(reader)?).ok_or(MessageError::Range { what: "a lineage" })
    }
}

tagged!(IoError, "kind of error", {
    1 => OutOfRange { offset, length, size },
    2 => ReadOnly,
    3 => OutOfSpace,
    4 => Damaged { offset, length },
    5 => Unavailable { reason },
    6 => Fenced,
    7 => Stopping,
    8 => Unsure,
    9 => NotNow,
    10 => NotAllowed,
    11 => Unaligned { multiple },
    12 => Lost { offset, length },
});
