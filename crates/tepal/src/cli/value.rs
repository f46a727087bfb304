//! Values of arguments that are more than a word: checked here, so that what is wrong is refused before anything is done.

use std::str::FromStr;
use tepal_model::layout::LayoutError;
use tepal_model::size::{Size, SizeError};
use tepal_model::{DriveId, Layout};

/// `NAME=SIZE[,layout=LAYOUT]` of `dev up --volume`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeRequest {
    pub name: String,
    pub size: u64,
    pub layout: Option<Layout>,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    #[error("'{0}' is not a volume: write NAME=SIZE or NAME=SIZE,layout=LAYOUT, as in v0=2G,layout=mirror:2")]
    Volume(String),
    #[error("'{0}' is not a name: use 1 to 128 of A-Z a-z 0-9 . _ - and begin with none of . -")]
    Name(String),
    #[error(transparent)]
    Size(#[from] SizeError),
    #[error(transparent)]
    Layout(#[from] LayoutError),
    #[error("'{0}' is not a drive's id, nor the beginning of one: it has 1 to 16 hexadecimal digits")]
    Drive(String),
}

fn shown(text: &str) -> String {
    text.chars().take(60).collect()
}

/// A name of a volume or pool, as the cluster would accept it.
pub fn name(text: &str) -> Result<String, ValueError> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    match text.len() {
        1..=128 if text.bytes().all(allowed) && !text.starts_with(['.', '-']) => Ok(text.to_owned()),
        _ => Err(ValueError::Name(shown(text))),
    }
}

pub fn size(text: &str) -> Result<u64, ValueError> {
    Ok(text.parse::<Size>()?.0)
}

pub fn layout(text: &str) -> Result<Layout, ValueError> {
    Ok(text.parse()?)
}

/// A drive's id, or as much of its beginning as makes it unique.
pub fn drive(text: &str) -> Result<String, ValueError> {
    let length = size_of::<DriveId>() * 2;
    if (1..=length).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Ok(text.to_ascii_lowercase());
    }
    Err(ValueError::Drive(shown(text)))
}

impl FromStr for VolumeRequest {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let malformed = || ValueError::Volume(shown(text));
        let (named, rest) = text.split_once('=').ok_or_else(malformed)?;
        let (sized, option) = match rest.split_once(',') {
            Some((sized, option)) => (sized, Some(option)),
            None => (rest, None),
        };
        let written = option.map(|option| option.strip_prefix("layout=").ok_or_else(malformed)).transpose()?;
        Ok(VolumeRequest { name: name(named)?, size: size(sized)?, layout: written.map(layout).transpose()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_is_a_name_a_size_and_maybe_a_layout() {
        let plain = VolumeRequest { name: "v0".into(), size: 2 << 30, layout: None };
        assert_eq!("v0=2G".parse(), Ok(plain.clone()));
        let layout = "mirror:2;extent=1M".parse().ok();
        assert_eq!("v0=2G,layout=mirror:2;extent=1M".parse(), Ok(VolumeRequest { layout, ..plain }));
    }

    #[test]
    fn what_is_no_volume_is_refused_with_the_part_at_fault() {
        for (text, said) in [
            ("", "NAME=SIZE"),
            ("v0", "NAME=SIZE"),
            ("v0=", "not a size"),
            ("v0=-1", "not a size"),
            ("v0=18446744073709551615E", "larger than"),
            ("=2G", "not a name"),
            ("../x=2G", "not a name"),
            ("v0=2G,", "NAME=SIZE"),
            ("v0=2G,size=3G", "NAME=SIZE"),
            ("v0=2G,layout=raid5", "unknown layout"),
        ] {
            let error = text.parse::<VolumeRequest>().expect_err(text).to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
    }

    #[test]
    fn hostile_names_are_refused() {
        let long = "a".repeat(129);
        for text in ["", ".", "..", "-x", "a/b", "a b", "a\nb", "a\0", "naïve", "a?b", "a%2e", long.as_str()] {
            assert!(matches!(name(text), Err(ValueError::Name(_))), "{text:?}");
        }
        for text in ["a", "v0", "A.b_c-9", &long[..128]] {
            assert_eq!(name(text).as_deref(), Ok(text));
        }
    }

    #[test]
    fn drives_are_named_by_the_beginning_of_their_id() {
        assert_eq!(drive("00FF").as_deref(), Ok("00ff"));
        for text in ["", "xyz", "12345678901234567", "../1", "-1"] {
            assert!(drive(text).is_err(), "{text}");
        }
    }
}
