//! Layouts: how a volume's data is distributed, and the strings that people write for them.
//!
//! `stripe` | `mirror:N` | `chained` | `ec:M+K` | `plexes:...` (see [`plexes`]) | `quorum:...` (see [`quorum`]), then any of
//! `;extent=64K;durability=strict|flush;domain=drive|server|site;min_copies=N`,
//! with `min_extra=N` in place of `min_copies` for `ec`.

pub mod plexes;
pub mod quorum;

use crate::id::DriveId;
use crate::size::{EXTENT, Size};
use crate::text::shown;
use plexes::{Plexes, PlexesError};
use quorum::{Quorum, QuorumError};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// How a volume's data is distributed over drives, and what an acknowledgement of a write promises.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    /// How many copies there are, and where.
    pub protection: Protection,
    /// The unit of placement, in bytes: a power of two from 4 KiB to 4 MiB. With an erasure code, whole stripes up to 4 MiB.
    pub extent: u32,
    /// What an acknowledged write outlives.
    pub durability: Durability,
    /// What the copies of one extent must not share; the widest that the cluster can offer, if not said.
    pub domain: Option<FailureDomain>,
    /// A write is acknowledged only when at least this many copies have it. Of an erasure code, when it can be read from at least this
    /// many fragments: M, and what `min_extra` says.
    pub min_copies: u8,
}

/// How many copies of the data there are, and where.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Protection {
    /// One copy, striped over all drives (Petal 2).
    Stripe,
    /// `copies` copies of each extent on different failure domains.
    Mirror {
        /// From 2 to [`MAX_COPIES`].
        copies: u8,
    },
    /// Two copies on neighbours in a ring of servers (Petal 2.4): never both on one server, whatever there is to choose from.
    Chained,
    /// An erasure code: M data and K code fragments on different failure domains (RAAC). Any M of them give back all.
    Erasure(Fragments),
    /// On drives that are named, as Vinum's plexes and subdisks say.
    Plexes(Arc<Plexes>),
    /// Kept consistent by those who use it, as Ursa Minor does, with faults that are said.
    Quorum(Quorum),
}

/// What the drives of one column have together: of `data + code` fragments, each in a failure domain of its own, any `data` give back all
/// of the column. Whole copies are one fragment of data, of which the others are the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fragments {
    /// How many hold the data itself; so many suffice.
    pub data: u8,
    /// How many more there are: so many may be lost.
    pub code: u8,
}

impl Fragments {
    /// So many whole copies, at least one.
    pub const fn copies(count: u8) -> Self {
        Fragments { data: 1, code: count.saturating_sub(1) }
    }

    /// All of them.
    pub const fn count(self) -> u8 {
        self.data + self.code
    }

    /// The bytes of a volume that one stripe has: an extent of a drive for each data fragment.
    pub const fn stripe(self) -> u32 {
        EXTENT as u32 * self.data as u32
    }

    /// Whether one that is lost is nowhere else.
    pub const fn is_single(self) -> bool {
        self.code == 0
    }

    /// Whether they are whole copies: each has everything.
    pub const fn are_copies(self) -> bool {
        self.data == 1
    }
}

/// What an acknowledged write outlives. A flush, or a write with FUA, is always on stable media.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Durability {
    /// An acknowledged write is on stable media.
    Strict,
    /// An acknowledged write survives the crash of any process; a flush puts it on stable media.
    Flush,
}

/// What fails as one, from narrow to wide: two copies in different domains aren't lost together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FailureDomain {
    /// One drive.
    Drive,
    /// One server with all its drives.
    Server,
    /// One place with all its servers.
    Site,
}

/// An extent of stripes isn't longer by default, in bytes: so long a request is one column's.
const TURN: u32 = 1 << 20;
/// Smallest extent, in bytes: one block.
pub const MIN_EXTENT: u32 = 4 << 10;
/// Largest extent, in bytes.
pub const MAX_EXTENT: u32 = 4 << 20;
/// Most copies of an extent: as many as Vinum allowed plexes.
pub const MAX_COPIES: u8 = 8;
/// Most data fragments of an erasure code.
pub const MAX_DATA: u8 = 16;
/// Most code fragments of an erasure code: so many losses can be made good.
pub const MAX_CODE: u8 = 4;
/// Most fragments that the drives of one column have together.
pub const MAX_FRAGMENTS: u8 = MAX_DATA + MAX_CODE;

/// The rule that a layout breaks. Texts are quoted as they were given, long ones by their beginning.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "each message states the rule")]
pub enum LayoutError {
    #[error("unknown layout '{0}': known are stripe, mirror:N, chained, ec:M+K, plexes:..., quorum:M/N,...")]
    Unknown(String),
    #[error("layout '{0}': ec needs 2 to {MAX_DATA} data and 1 to {MAX_CODE} code fragments, as in ec:4+2")]
    Erasure(String),
    #[error("layout plexes: {0}")]
    Plexes(PlexesError),
    #[error("layout quorum: {0}")]
    Quorum(QuorumError),
    #[error("layout plexes: {found} combinations of subdisks lie below each other, and {most} may")]
    Combinations { found: u64, most: u64 },
    #[error("layout plexes: drive {0} isn't there, up and in use in the volume's pool")]
    NoDrive(DriveId),
    #[error("extent={0}: with plexes, the extent follows from the stripes")]
    ExtentOfPlexes(String),
    #[error("domain={0}: with plexes it's drive, since each subdisk says its drive")]
    DomainOfPlexes(String),
    #[error("min_extra={value}: it is from 0 to the layout's {code} code fragments")]
    MinExtra { value: String, code: u8 },
    #[error("layout option '{0}' doesn't go with this layout: ec has min_extra, all others have min_copies")]
    NotOfLayout(String),
    #[error("layout option '{0}' doesn't go with quorum: N - T drives have each write")]
    CopiesOfQuorum(String),
    #[error("layout '{0}': mirror needs 2 to {MAX_COPIES} copies, as in mirror:2")]
    Copies(String),
    #[error(
        "layout option '{0}' is not known: known are extent, durability, domain, min_copies, min_extra, each as NAME=VALUE"
    )]
    Option(String),
    #[error("layout option '{0}' is given twice")]
    Twice(String),
    #[error("extent={0}: an extent is a power of two from 4K to 4M")]
    Extent(String),
    #[error("extent={value}: with ec:{data}+K an extent is whole stripes: a multiple of {}K, up to 4M", u64::from(*data) * EXTENT / 1024)]
    ExtentOfStripes { value: String, data: u8 },
    #[error("durability={0}: it is strict or flush")]
    Durability(String),
    #[error("domain={0}: it is drive, server or site")]
    Domain(String),
    #[error("min_copies={value}: it is from 1 to the layout's {copies} copies")]
    MinCopies { value: String, copies: u8 },
    #[error(
        "layout '{layout}' keeps {count} {what} on different {domain}s, and there are {found} to use", count = fragments.count(),
        what = if fragments.are_copies() { "copies" } else { "fragments" }
    )]
    TooFewDomains { layout: String, fragments: Fragments, domain: FailureDomain, found: usize },
}

impl Layout {
    /// With everything that isn't said as it is by default: strict, acknowledged with one copy, extents of 64 KiB. With an erasure code,
    /// an extent is whole stripes of a MiB at most; and where more than one fragment may be lost, one loss more must be bearable.
    pub fn new(protection: Protection) -> Self {
        let (extent, min_copies) = match &protection {
            Protection::Erasure(fragments @ Fragments { data, code }) => {
                (TURN / fragments.stripe() * fragments.stripe(), data + u8::from(*code > 1))
            }
            Protection::Plexes(plexes) => (plexes.extent(), plexes.fragments().data),
            Protection::Quorum(quorum) => (EXTENT as u32, quorum.thresholds().complete),
            Protection::Stripe | Protection::Mirror { .. } | Protection::Chained => (EXTENT as u32, 1),
        };
        Layout { protection, extent, durability: Durability::Strict, domain: None, min_copies }
    }

    /// What the drives of one column have together, when all is well.
    pub fn fragments(&self) -> Fragments {
        match &self.protection {
            Protection::Stripe => Fragments::copies(1),
            Protection::Mirror { copies } => Fragments::copies(*copies),
            Protection::Chained => Fragments::copies(2),
            Protection::Erasure(fragments) => *fragments,
            Protection::Plexes(plexes) => plexes.fragments(),
            Protection::Quorum(quorum) => Fragments { data: quorum.data(), code: quorum.count() - quorum.data() },
        }
    }

    /// Whether it says that something lies on this drive.
    pub fn names(&self, drive: DriveId) -> bool {
        self.plexes().is_some_and(|plexes| plexes.subdisks().any(|disk| disk.drive == drive))
    }

    /// Which faults are borne, if those who use the volume keep it consistent.
    pub fn quorum(&self) -> Option<Quorum> {
        match self.protection {
            Protection::Quorum(quorum) => Some(quorum),
            _ => None,
        }
    }

    /// Which drives have what, if the layout says it.
    pub fn plexes(&self) -> Option<&Plexes> {
        match &self.protection {
            Protection::Plexes(plexes) => Some(plexes),
            _ => None,
        }
    }
}

impl Default for Layout {
    fn default() -> Self {
        Layout::new(Protection::Stripe)
    }
}

impl FromStr for Layout {
    type Err = LayoutError;

    fn from_str(text: &str) -> Result<Self, LayoutError> {
        let mut parts = text.split(';');
        let mut layout = Layout::new(parse_protection(parts.next().unwrap_or_default())?);
        let mut seen = Vec::new();
        for option in parts {
            let (name, value) = option.split_once('=').ok_or_else(|| LayoutError::Option(shown(option)))?;
            if seen.contains(&name) {
                return Err(LayoutError::Twice(shown(name)));
            }
            seen.push(name);
            layout.set(name, value)?;
        }
        Ok(layout)
    }
}

fn parse_protection(text: &str) -> Result<Protection, LayoutError> {
    match text.split_once(':') {
        None if text == "stripe" => Ok(Protection::Stripe),
        None if text == "chained" => Ok(Protection::Chained),
        None if text == "mirror" => Err(LayoutError::Copies(shown(text))),
        Some(("mirror", copies)) => match copies.parse() {
            Ok(copies) if (2..=MAX_COPIES).contains(&copies) => Ok(Protection::Mirror { copies }),
            _ => Err(LayoutError::Copies(shown(text))),
        },
        None if text == "ec" => Err(LayoutError::Erasure(shown(text))),
        Some(("ec", fragments)) => parse_fragments(fragments).ok_or_else(|| LayoutError::Erasure(shown(text))),
        Some(("plexes", plexes)) => {
            plexes.parse().map(|plexes| Protection::Plexes(Arc::new(plexes))).map_err(LayoutError::Plexes)
        }
        None if text == "quorum" => Err(LayoutError::Quorum(QuorumError::Form)),
        Some(("quorum", quorum)) => quorum.parse().map(Protection::Quorum).map_err(LayoutError::Quorum),
        _ => Err(LayoutError::Unknown(shown(text))),
    }
}

fn parse_fragments(text: &str) -> Option<Protection> {
    let (data, code) = text.split_once('+')?;
    let number = |text: &str, range: std::ops::RangeInclusive<u8>| {
        let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse().ok().filter(|number| is_plain && range.contains(number))
    };
    let (data, code) = (number(data, 2..=MAX_DATA)?, number(code, 1..=MAX_CODE)?);
    Some(Protection::Erasure(Fragments { data, code }))
}

impl Layout {
    fn set(&mut self, name: &str, value: &str) -> Result<(), LayoutError> {
        match name {
            "extent" if self.plexes().is_some() => return Err(LayoutError::ExtentOfPlexes(shown(value))),
            "domain" if self.plexes().is_some() && value != "drive" => {
                return Err(LayoutError::DomainOfPlexes(shown(value)));
            }
            "extent" => {
                let fragments = self.fragments();
                let refused = || match fragments.are_copies() || self.quorum().is_some() {
                    true => LayoutError::Extent(shown(value)),
                    false => LayoutError::ExtentOfStripes { value: shown(value), data: fragments.data },
                };
                let bytes = value.parse::<Size>().map_err(|_| refused())?.0;
                let is_whole = match fragments.are_copies() || self.quorum().is_some() {
                    true => bytes.is_power_of_two(),
                    false => bytes.is_multiple_of(fragments.stripe().into()),
                };
                if !is_whole || !(MIN_EXTENT as u64..=MAX_EXTENT as u64).contains(&bytes) {
                    return Err(refused());
                }
                self.extent = bytes as u32;
            }
            "durability" => {
                self.durability = match value {
                    "strict" => Durability::Strict,
                    "flush" => Durability::Flush,
                    _ => return Err(LayoutError::Durability(shown(value))),
                }
            }
            "domain" => {
                self.domain = Some(match value {
                    "drive" => FailureDomain::Drive,
                    "server" => FailureDomain::Server,
                    "site" => FailureDomain::Site,
                    _ => return Err(LayoutError::Domain(shown(value))),
                })
            }
            "min_copies" | "min_extra" if self.quorum().is_some() => {
                return Err(LayoutError::CopiesOfQuorum(shown(name)));
            }
            "min_copies" | "min_extra" if (name == "min_extra") == self.fragments().are_copies() => {
                return Err(LayoutError::NotOfLayout(shown(name)));
            }
            "min_extra" => {
                let Fragments { data, code } = self.fragments();
                self.min_copies = match value.parse::<u8>() {
                    Ok(extra) if extra <= code => data + extra,
                    _ => return Err(LayoutError::MinExtra { value: shown(value), code }),
                }
            }
            "min_copies" => {
                let copies = self.fragments().count();
                self.min_copies = match value.parse() {
                    Ok(min) if (1..=copies).contains(&min) => min,
                    _ => return Err(LayoutError::MinCopies { value: shown(value), copies }),
                }
            }
            _ => return Err(LayoutError::Option(shown(name))),
        }
        Ok(())
    }
}

impl fmt::Display for FailureDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FailureDomain::Drive => "drive",
            FailureDomain::Server => "server",
            FailureDomain::Site => "site",
        })
    }
}

impl fmt::Display for Layout {
    /// The shortest string that reads back as this layout.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.protection {
            Protection::Stripe => write!(f, "stripe")?,
            Protection::Mirror { copies } => write!(f, "mirror:{copies}")?,
            Protection::Chained => write!(f, "chained")?,
            Protection::Erasure(Fragments { data, code }) => write!(f, "ec:{data}+{code}")?,
            Protection::Plexes(plexes) => write!(f, "plexes:{plexes}")?,
            Protection::Quorum(quorum) => write!(f, "quorum:{quorum}")?,
        }
        let by_default = Layout::new(self.protection.clone());
        if self.extent != by_default.extent {
            write!(f, ";extent={}", Size(self.extent.into()))?;
        }
        if self.durability == Durability::Flush {
            write!(f, ";durability=flush")?;
        }
        if let Some(domain) = self.domain {
            write!(f, ";domain={domain}")?;
        }
        match self.fragments() {
            _ if self.min_copies == by_default.min_copies => {}
            fragments if fragments.are_copies() => write!(f, ";min_copies={}", self.min_copies)?,
            Fragments { data, .. } => write!(f, ";min_extra={}", self.min_copies - data)?,
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_read_and_print_the_same() {
        for text in [
            "stripe",
            "mirror:2",
            "chained",
            "chained;domain=server",
            "chained;domain=site;min_copies=2",
            "mirror:2;domain=drive",
            "mirror:3;extent=1M;durability=flush;domain=drive;min_copies=2",
            "stripe;extent=4K",
            "ec:2+1",
            "ec:4+2;min_extra=0",
            "ec:4+2;min_extra=2",
            "ec:3+1;extent=192K;domain=drive;min_extra=1",
            "ec:16+4",
            "plexes:concat(000000000000000a:0+512M)|concat(000000000000000b:0+512M);durability=flush;domain=drive;min_copies=2",
            "quorum:2/5,t=1,b=1,async;extent=16K",
            "quorum:1/3,t=1,async;domain=server",
            "plexes:raid5/4K(000000000000000a:0+8K,000000000000000b:0+8K,000000000000000c:0+8K);min_extra=1",
        ] {
            assert_eq!(text.parse::<Layout>().map(|l| l.to_string()), Ok(text.to_owned()));
        }
        assert_eq!("stripe;extent=64K;durability=strict".parse(), Ok(Layout::new(Protection::Stripe)));
    }

    #[test]
    fn a_layout_that_breaks_a_rule_is_refused_with_the_rule() {
        for (text, said) in [
            ("", "unknown layout"),
            ("raid5", "unknown layout"),
            ("stripe:2", "unknown layout"),
            ("quorum:3", "written as quorum:M/N"),
            ("quorum", "written as quorum:M/N"),
            ("quorum:1/2,t=1,async", "N >= 2t+2b+1 = 3"),
            ("quorum:2/5,t=1,async;extent=12K", "power of two"),
            ("quorum:2/5,t=1,async;min_copies=1", "N - T drives"),
            ("ec", "2 to 16 data and 1 to 4 code"),
            ("ec:4", "2 to 16 data and 1 to 4 code"),
            ("ec:4+0", "2 to 16 data and 1 to 4 code"),
            ("ec:1+1", "2 to 16 data and 1 to 4 code"),
            ("ec:17+1", "2 to 16 data and 1 to 4 code"),
            ("ec:4+5", "2 to 16 data and 1 to 4 code"),
            ("ec:+4+2", "2 to 16 data and 1 to 4 code"),
            ("ec:4+2;min_extra=3", "from 0 to the layout's 2"),
            ("ec:4+2;min_copies=1", "ec has min_extra"),
            ("mirror:2;min_extra=1", "ec has min_extra"),
            ("mirror", "2 to 8"),
            ("mirror:1", "2 to 8"),
            ("mirror:9", "2 to 8"),
            ("mirror:-2", "2 to 8"),
            ("mirror:99999999999", "2 to 8"),
            ("mirror:2;extent=3K", "power of two"),
            ("mirror:2;extent=8M", "power of two"),
            ("ec:3+1;extent=1M", "a multiple of 192K"),
            ("ec:4+2;extent=8M", "a multiple of 256K"),
            ("ec:4+2;extent=0", "a multiple of 256K"),
            ("mirror:2;extent=-4K", "power of two"),
            ("mirror:2;durability=maybe", "strict or flush"),
            ("mirror:2;domain=rack", "drive, server or site"),
            ("mirror:2;min_copies=3", "from 1 to the layout's 2"),
            ("mirror:2;min_copies=0", "from 1 to the layout's 2"),
            ("plexes:concat(000000000000000a:0+512M);extent=4K", "follows from the stripes"),
            ("plexes:concat(000000000000000a:0+512M);domain=server", "it's drive"),
            ("plexes:concat(000000000000000a:0+512M);min_copies=2", "from 1 to the layout's 1"),
            ("plexes", "unknown layout"),
            ("mirror:2;color=red", "not known"),
            ("mirror:2;", "not known"),
            ("mirror:2;extent=4K;extent=8K", "twice"),
        ] {
            let error = text.parse::<Layout>().unwrap_err().to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
