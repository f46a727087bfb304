//! Names of things. Random ids are drawn by whoever makes the thing; counted ids by the metadata state machine.

use crate::text::shown;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A text isn't the id that was expected. Of a long text the beginning is shown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{text}' is not a {what} id")]
pub struct IdError {
    what: &'static str,
    text: String,
}

/// A random id, written as a fixed number of hexadecimal digits.
macro_rules! random_id {
    ($(#[$doc:meta])* $name:ident, $int:ty, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(pub $int);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:0width$x}", self.0, width = size_of::<$int>() * 2)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}:{self}", $what)
            }
        }

        impl FromStr for $name {
            type Err = IdError;
            fn from_str(text: &str) -> Result<Self, IdError> {
                let valid = text.len() == size_of::<$int>() * 2 && text.bytes().all(|b| b.is_ascii_hexdigit());
                let parsed = if valid { <$int>::from_str_radix(text, 16).ok() } else { None };
                parsed.map($name).ok_or_else(|| IdError { what: $what, text: shown(text) })
            }
        }

        impl TryFrom<String> for $name {
            type Error = IdError;
            fn try_from(text: String) -> Result<Self, IdError> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> String {
                id.to_string()
            }
        }
    };
}

random_id!(
    /// One cluster, for good: on every drive's label and in every server's data folder.
    ClusterId, u128, "cluster"
);
random_id!(
    /// One labelled drive, for good.
    DriveId, u64, "drive"
);

/// One server of a cluster, written `s1`, `s2`, ...
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ServerId(pub u32);

impl fmt::Display for ServerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "s{}", self.0)
    }
}

impl fmt::Debug for ServerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl FromStr for ServerId {
    type Err = IdError;
    fn from_str(text: &str) -> Result<Self, IdError> {
        let digits = text.strip_prefix('s').filter(|d| d.bytes().all(|b| b.is_ascii_digit()));
        let number = digits.and_then(|d| d.parse().ok()).filter(|&n| n > 0);
        number.map(ServerId).ok_or_else(|| IdError { what: "server", text: shown(text) })
    }
}

impl TryFrom<String> for ServerId {
    type Error = IdError;
    fn try_from(text: String) -> Result<Self, IdError> {
        text.parse()
    }
}

impl From<ServerId> for String {
    fn from(id: ServerId) -> String {
        id.to_string()
    }
}

/// One volume, for good; its name may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct VolumeId(pub u64);

/// One immutable global map. Never used again after its volume is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct MapId(pub u32);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_print_and_read_back() {
        assert_eq!("00000000000000ff".parse(), Ok(DriveId(255)));
        assert_eq!(DriveId(255).to_string(), "00000000000000ff");
        assert_eq!("s12".parse(), Ok(ServerId(12)));
        assert_eq!(ServerId(12).to_string(), "s12");
    }

    #[test]
    fn what_is_no_id_is_refused() {
        for text in ["", "s", "s0", "s-1", "s+1", "1", "s99999999999", "S1", "s1 "] {
            assert!(text.parse::<ServerId>().is_err(), "{text}");
        }
        for text in ["", "ff", "+0000000000000ff", "00000000000000fg", "00000000000000ff0"] {
            assert!(text.parse::<DriveId>().is_err(), "{text}");
        }
    }
}
