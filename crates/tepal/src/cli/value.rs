//! Values of arguments that are more than a word: checked here, so that what is wrong is refused before anything is done.

use super::limits::Limit;
use std::collections::BTreeSet;
use std::num::ParseIntError;
use std::str::FromStr;
use tepal_drive::geometry::MIN_DRIVE;
use tepal_gateway::nbd::{Endpoint, EndpointError};
use tepal_model::layout::LayoutError;
use tepal_model::schedule::{self, Ahead, Rhythm, ScheduleTextError, TimeOfDay};
use tepal_model::size::{Size, SizeError};
use tepal_model::text::{self, NAME_RULE, is_name, shown};
use tepal_model::{BLOCK, Layout, ServerId};
use tepal_server::api::types::{Between, Right, SnapshotName, SnapshotNameError, SourceName};
use tepal_server::device::emulate::{Model, ModelError};

/// `NAME=SIZE[,layout=LAYOUT]` of `dev up --volume`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeRequest {
    pub name: String,
    pub size: u64,
    pub layout: Option<Layout>,
}

/// `SERVER:PATH` of a drive that is to be added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DrivePlace {
    pub server: ServerId,
    pub path: String,
}

/// Bytes a second; none for as many as there's time for, written `auto`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate(pub Option<u64>);

/// Servers of one side of a cut: at least one, each once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group(pub BTreeSet<ServerId>);

/// So much a bench must have to run over.
pub const MIN_BENCH: u64 = 16 << 20;

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    #[error("'{0}' is not a volume: write NAME=SIZE or NAME=SIZE,layout=LAYOUT, as in v0=2G,layout=mirror:2")]
    Volume(String),
    #[error("'{0}' is not a name: {NAME_RULE}")]
    Name(String),
    #[error(transparent)]
    Size(#[from] SizeError),
    #[error("'{0}' is not a list of addresses: write HOST:PORT[,HOST:PORT...]")]
    Servers(String),
    #[error("'{0}' is not a drive to add: write SERVER:PATH, as in s1:/dev/sdb")]
    Place(String),
    #[error("'{0}' is not a list of servers: write it as s1 or s1,s2")]
    Group(String),
    #[error("a limit is at least 1; `none` takes it away")]
    NoCount,
    #[error("a rate is at least 1 byte a second; `auto` is as much as clients leave")]
    NoRate,
    #[error("'{0}' is not a time: write it as 1500ms or 3s")]
    Time(String),
    #[error("at least {} are needed", Size(MIN_BENCH))]
    SmallBench,
    #[error("a drive has at least {}", Size(MIN_DRIVE))]
    SmallDrive,
    #[error("the size of a drive is a multiple of {BLOCK} bytes")]
    OddDrive,
    #[error("'{0}' is no range of bytes: write it as 0..10G, or 10G.. for all from there on")]
    Between(String),
    #[error(transparent)]
    Model(#[from] ModelError),
    #[error(transparent)]
    Layout(#[from] LayoutError),
    #[error("'{0}' is neither a drive's name nor the beginning of its id: {NAME_RULE}")]
    Drive(String),
    #[error(transparent)]
    Snapshot(#[from] SnapshotNameError),
}

/// A name of a volume or pool, as the cluster would accept it.
pub fn name(text: &str) -> Result<String, ValueError> {
    if is_name(text) { Ok(text.to_owned()) } else { Err(ValueError::Name(shown(text))) }
}

/// An identity's name, or a group's after `@`.
pub fn grantee(text: &str) -> Result<String, ValueError> {
    name(text.strip_prefix('@').unwrap_or(text)).map(|_| text.to_owned())
}

/// What may be done with a volume.
pub fn right(text: &str) -> Result<Right, <Right as FromStr>::Err> {
    text.parse()
}

/// `VOLUME@SNAP`.
pub fn snapshot(text: &str) -> Result<SnapshotName, ValueError> {
    Ok(text.parse()?)
}

/// `VOLUME` or `VOLUME@SNAP`.
pub fn source(text: &str) -> Result<SourceName, ValueError> {
    Ok(text.parse()?)
}

pub fn size(text: &str) -> Result<u64, ValueError> {
    Ok(text.parse::<Size>()?.0)
}

/// A count or size from 1.
pub fn count(text: &str) -> Result<u64, ValueError> {
    match size(text)? {
        0 => Err(ValueError::NoCount),
        count => Ok(count),
    }
}

/// The same, or `none`.
pub fn limit(text: &str) -> Result<Limit, ValueError> {
    if text == "none" { Ok(Limit::No) } else { count(text).map(Limit::Of) }
}

/// `50M` or `auto`.
pub fn rate(text: &str) -> Result<Rate, ValueError> {
    match text {
        "auto" => Ok(Rate(None)),
        _ => match size(text)? {
            0 => Err(ValueError::NoRate),
            rate => Ok(Rate(Some(rate))),
        },
    }
}

/// From one time of a schedule to the next, in seconds.
pub fn every(text: &str) -> Result<u64, ScheduleTextError> {
    let every_s = schedule::period(text)?;
    let rhythm = Rhythm { every_s, at: TimeOfDay::default(), ahead: Ahead::default() };
    rhythm.check().map(|()| every_s)
}

/// For how long no volume stays unscrubbed, in seconds.
pub fn within(text: &str) -> Result<u64, ScheduleTextError> {
    let within_s = schedule::period(text)?;
    schedule::check_within(within_s).map(|()| within_s)
}

/// The addresses of `--cluster`; kept as they were typed.
pub fn servers(text: &str) -> Result<String, ValueError> {
    match crate::locate::addresses("--cluster", text) {
        Ok(_) => Ok(text.to_owned()),
        Err(_) => Err(ValueError::Servers(shown(text))),
    }
}

/// Where servers find each other: `unix:PATH` or `IP:PORT`, kept as it was typed.
pub fn peers(text: &str) -> Result<String, EndpointError> {
    text.parse::<Endpoint>().map(|_| text.to_owned())
}

/// The random number of a rebuild, as reports say it.
pub fn history(text: &str) -> Result<u64, ParseIntError> {
    u64::from_str_radix(text, 16)
}

/// The size of a volume for a bench.
pub fn bench_size(text: &str) -> Result<u64, ValueError> {
    match size(text)? {
        small if small < MIN_BENCH => Err(ValueError::SmallBench),
        size => Ok(size),
    }
}

/// The size of a drive that is to be made.
pub fn drive_size(text: &str) -> Result<u64, ValueError> {
    match size(text)? {
        small if small < MIN_DRIVE => Err(ValueError::SmallDrive),
        odd if !odd.is_multiple_of(BLOCK) => Err(ValueError::OddDrive),
        size => Ok(size),
    }
}

/// A time in whole milliseconds.
pub fn milliseconds(text: &str) -> Result<u64, ValueError> {
    let millis = text::duration(text).and_then(|duration| u64::try_from(duration.as_millis()).ok());
    millis.ok_or_else(|| ValueError::Time(shown(text)))
}

/// How long to wait for something, in milliseconds: not for no time at all.
pub fn patience(text: &str) -> Result<u64, ValueError> {
    milliseconds(text).and_then(|millis| if millis > 0 { Ok(millis) } else { Err(ValueError::Time(shown(text))) })
}

/// What drives are slowed to; kept as it was typed.
pub fn model(text: &str) -> Result<String, ValueError> {
    text.parse::<Model>()?;
    Ok(text.to_owned())
}

pub fn layout(text: &str) -> Result<Layout, ValueError> {
    Ok(text.parse()?)
}

/// Bytes of a volume, from the first one up to the second, or to the end: 0..10G, 10G..
pub fn between(text: &str) -> Result<Between, ValueError> {
    let wrong = || ValueError::Between(shown(text));
    let (from, to) = text.split_once("..").ok_or_else(wrong)?;
    let size = |text: &str| text.parse::<Size>().map(|Size(bytes)| bytes);
    let from = if from.is_empty() { 0 } else { size(from).map_err(|_| wrong())? };
    let to = if to.is_empty() { None } else { Some(size(to).map_err(|_| wrong())?) };
    match to {
        Some(to) if to <= from => Err(wrong()),
        to => Ok(Between { from, to }),
    }
}

/// A drive's name or id, or as much of the id's beginning as makes it unique.
pub fn drive(text: &str) -> Result<String, ValueError> {
    match is_name(text) {
        true => Ok(text.to_owned()),
        false => Err(ValueError::Drive(shown(text))),
    }
}

impl FromStr for DrivePlace {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let found = text.split_once(':').filter(|(_, path)| !path.is_empty());
        let place = found.and_then(|(server, path)| Some((server.parse().ok()?, path.to_owned())));
        place.map(|(server, path)| DrivePlace { server, path }).ok_or_else(|| ValueError::Place(shown(text)))
    }
}

impl FromStr for Group {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let servers = text.split(',').map(str::parse).collect::<Result<BTreeSet<_>, _>>();
        servers.map(Group).map_err(|_| ValueError::Group(shown(text)))
    }
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
    fn a_range_is_between_two_sizes_or_open_behind() {
        let is = |text: &str, from, to| assert_eq!(between(text).unwrap(), Between { from, to }, "{text}");
        is("0..10G", 0, Some(10 << 30));
        is("4M..", 4 << 20, None);
        is("..4096", 0, Some(4096));
        for text in ["", "..0", "10G", "10G..4M", "4M..4M", "a..b", "1..2..3", "-1..2"] {
            assert!(between(text).is_err(), "{text}");
        }
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
    fn a_side_of_a_cut_is_one_server_or_several() {
        let group = |servers: &[u32]| Ok(Group(servers.iter().copied().map(ServerId).collect()));
        assert_eq!("s3".parse(), group(&[3]));
        assert_eq!("s2,s1,s2".parse(), group(&[1, 2]));
        for text in ["", ",", "s1,", "s1 s2", "s0", "1", "s1,x"] {
            assert_eq!(text.parse::<Group>(), Err(ValueError::Group(text.to_owned())));
        }
    }

    #[test]
    fn a_drive_to_be_made_is_large_enough_and_whole() {
        assert_eq!(drive_size("8M"), Ok(8 << 20));
        for text in ["0", "1K", "8388607", "8388609", "-8M", ""] {
            assert!(drive_size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_model_is_checked_and_kept_as_it_was_typed() {
        assert_eq!(model("read=100us,iops=5000").as_deref(), Ok("read=100us,iops=5000"));
        for text in ["", "warp", "iops=-1", "read=1us,iops"] {
            assert!(model(text).is_err(), "{text}");
        }
    }

    #[test]
    fn drives_are_called_by_name_or_the_beginning_of_their_id() {
        for text in ["00FF", "xyz", "a"] {
            assert_eq!(drive(text).as_deref(), Ok(text));
        }
        for text in ["", "x/y", "../1", "-1"] {
            assert!(drive(text).is_err(), "{text}");
        }
    }
}
