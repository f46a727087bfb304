//! Layouts: how a volume's data is distributed, and the strings that people write for them.
//!
//! `stripe` | `mirror:N` | `chained`, then any of `;extent=64K;durability=strict|flush;domain=drive|server|site;min_copies=N`.

use crate::size::{EXTENT, Size};
use crate::text::shown;
use std::fmt;
use std::str::FromStr;

/// How a volume's data is distributed over drives, and what an acknowledgement of a write promises.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    /// How many copies there are, and where.
    pub protection: Protection,
    /// The unit of placement, in bytes: a power of two from 4 KiB to 4 MiB.
    pub extent: u32,
    /// What an acknowledged write outlives.
    pub durability: Durability,
    /// What the copies of one extent must not share; the widest that the cluster can offer, if not said.
    pub domain: Option<FailureDomain>,
    /// A write is acknowledged only when at least this many copies have it.
    pub min_copies: u8,
}

/// How many copies of the data there are, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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

    /// Whether one that is lost is nowhere else.
    pub const fn is_single(self) -> bool {
        self.code == 0
    }

    /// How many bytes drives keep for so many of a volume.
    pub const fn kept(self, bytes: u64) -> u64 {
        (bytes / self.data as u64).saturating_mul(self.count() as u64)
    }

    /// Of how many bytes of a volume drives keep so many.
    pub const fn held(self, kept: u64) -> u64 {
        kept / self.count() as u64 * self.data as u64
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

/// Smallest extent, in bytes: one block.
pub const MIN_EXTENT: u32 = 4 << 10;
/// Largest extent, in bytes.
pub const MAX_EXTENT: u32 = 4 << 20;
/// Most copies of an extent: as many as Vinum allowed plexes.
pub const MAX_COPIES: u8 = 8;

/// The rule that a layout breaks. Texts are quoted as they were given, long ones by their beginning.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "each message states the rule")]
pub enum LayoutError {
    #[error("unknown layout '{0}': known are stripe, mirror:N, chained")]
    Unknown(String),
    #[error("layout '{0}' is not available in this version: available are stripe, mirror:N, chained")]
    NotAvailable(String),
    #[error("layout '{0}': mirror needs 2 to {MAX_COPIES} copies, as in mirror:2")]
    Copies(String),
    #[error("layout option '{0}' is not known: known are extent, durability, domain, min_copies, each as NAME=VALUE")]
    Option(String),
    #[error("layout option '{0}' is given twice")]
    Twice(String),
    #[error("extent={0}: an extent is a power of two from 4K to 4M")]
    Extent(String),
    #[error("durability={0}: it is strict or flush")]
    Durability(String),
    #[error("domain={0}: it is drive, server or site")]
    Domain(String),
    #[error("min_copies={value}: it is from 1 to the layout's {copies} copies")]
    MinCopies { value: String, copies: u8 },
    #[error("layout '{layout}' keeps {copies} copies on different {domain}s, and there are {found} to use")]
    TooFewDomains { layout: String, copies: u8, domain: FailureDomain, found: usize },
}

impl Layout {
    /// With everything that isn't said as it is by default: extents of 64 KiB, strict, acknowledged with one copy.
    pub fn new(protection: Protection) -> Self {
        Layout { protection, extent: EXTENT as u32, durability: Durability::Strict, domain: None, min_copies: 1 }
    }

    /// What the drives of one column have together, when all is well.
    pub fn fragments(&self) -> Fragments {
        match self.protection {
            Protection::Stripe => Fragments::copies(1),
            Protection::Mirror { copies } => Fragments::copies(copies),
            Protection::Chained => Fragments::copies(2),
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
        Some(("ec" | "quorum", _)) => Err(LayoutError::NotAvailable(shown(text))),
        _ => Err(LayoutError::Unknown(shown(text))),
    }
}

impl Layout {
    fn set(&mut self, name: &str, value: &str) -> Result<(), LayoutError> {
        match name {
            "extent" => {
                let bytes = value.parse::<Size>().map_err(|_| LayoutError::Extent(shown(value)))?.0;
                if !bytes.is_power_of_two() || !(MIN_EXTENT as u64..=MAX_EXTENT as u64).contains(&bytes) {
                    return Err(LayoutError::Extent(shown(value)));
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
        match self.protection {
            Protection::Stripe => write!(f, "stripe")?,
            Protection::Mirror { copies } => write!(f, "mirror:{copies}")?,
            Protection::Chained => write!(f, "chained")?,
        }
        if u64::from(self.extent) != EXTENT {
            write!(f, ";extent={}", Size(self.extent.into()))?;
        }
        if self.durability == Durability::Flush {
            write!(f, ";durability=flush")?;
        }
        if let Some(domain) = self.domain {
            write!(f, ";domain={domain}")?;
        }
        if self.min_copies != 1 {
            write!(f, ";min_copies={}", self.min_copies)?;
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
            ("ec:4+2", "not available"),
            ("mirror", "2 to 8"),
            ("mirror:1", "2 to 8"),
            ("mirror:9", "2 to 8"),
            ("mirror:-2", "2 to 8"),
            ("mirror:99999999999", "2 to 8"),
            ("mirror:2;extent=3K", "power of two"),
            ("mirror:2;extent=8M", "power of two"),
            ("mirror:2;extent=-4K", "power of two"),
            ("mirror:2;durability=maybe", "strict or flush"),
            ("mirror:2;domain=rack", "drive, server or site"),
            ("mirror:2;min_copies=3", "from 1 to the layout's 2"),
            ("mirror:2;min_copies=0", "from 1 to the layout's 2"),
            ("mirror:2;color=red", "not known"),
            ("mirror:2;", "not known"),
            ("mirror:2;extent=4K;extent=8K", "twice"),
        ] {
            let error = text.parse::<Layout>().unwrap_err().to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
