//! Explicit layouts, as Vinum has them (Lehey, FREENIX 1999): a volume is one to eight plexes, each a copy of it or of a part; a plex is
//! subdisks, each a stretch of one drive.
//!
//! Written as `plexes:` and the plexes, with `|` between them. A plex is `concat(...)`, `striped/SIZE(...)` or `raid5/SIZE(...)`, with
//! subdisks in the brackets, and commas between them. A subdisk is `DRIVE:OFFSET+LENGTH`: an id, and bytes of the drive. In a
//! concatenated plex, `@OFFSET` after it says where in the plex it begins, unless that's where the one before ends. `NAME=` before a
//! plex or a subdisk names it; those without are called `p0`, `s0` and so on, after the volume.

use super::{Fragments, MAX_COPIES, MAX_DATA, MAX_EXTENT};
use crate::id::DriveId;
use crate::size::{BLOCK, EXTENT, Size, exact};
use crate::text::{is_name, shown};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Most subdisks of a volume.
pub const MAX_SUBDISKS: usize = 1024;
/// Longest plex, in bytes.
pub const MAX_PLEX: u64 = 4 << 50;
/// A drive's offset is in whole sectors.
const SECTOR: u64 = 512;

/// The plexes of a volume. All rules of [`PlexesError`] hold.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Plexes {
    plexes: Vec<Plex>,
}

/// One copy of a volume, or of a part of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Plex {
    /// Unless it's called by its number.
    pub name: Option<String>,
    /// How its subdisks are put together.
    pub organization: Organization,
    /// In the order of the plex.
    pub subdisks: Vec<Subdisk>,
}

/// How the subdisks of a plex are put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Organization {
    /// One after the other, perhaps with gaps.
    Concat,
    /// Round and round, `stripe` bytes of each.
    Striped {
        /// Bytes.
        stripe: u64,
    },
    /// The same, with parity that goes round too: one subdisk may be lost.
    Raid5 {
        /// Bytes.
        stripe: u64,
    },
}

impl Organization {
    /// As layouts and files write it.
    pub const fn word(self) -> &'static str {
        match self {
            Organization::Concat => "concat",
            Organization::Striped { .. } => "striped",
            Organization::Raid5 { .. } => "raid5",
        }
    }

    /// Bytes of one subdisk before the next has its turn, if they have turns.
    pub const fn stripe(self) -> Option<u64> {
        match self {
            Organization::Concat => None,
            Organization::Striped { stripe } | Organization::Raid5 { stripe } => Some(stripe),
        }
    }
}

/// A stretch of one drive.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Subdisk {
    /// Unless it's called by its number.
    pub name: Option<String>,
    /// That has it.
    pub drive: DriveId,
    /// Where it begins among what volumes may use of the drive, in bytes.
    pub drive_offset: u64,
    /// Bytes.
    pub length: u64,
    /// Where it begins in a concatenated plex, in bytes; 0 in others, where its number says it.
    pub plex_offset: u64,
}

/// The rule that plexes break.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "each message states the rule")]
pub enum PlexesError {
    #[error("'{0}' is no plex: a plex is concat(...), striped/SIZE(...) or raid5/SIZE(...)")]
    Plex(String),
    #[error("'{0}' is no subdisk: a subdisk is DRIVE:OFFSET+LENGTH, and @OFFSET in a concatenated plex")]
    Subdisk(String),
    #[error("name '{0}': {rule}", rule = crate::text::NAME_RULE)]
    Name(String),
    #[error("a volume has 1 to {MAX_COPIES} plexes, and these are {0}")]
    Count(usize),
    #[error("a volume has at most {MAX_SUBDISKS} subdisks, and these are {0}")]
    Subdisks(usize),
    #[error("plex {0}: it has no subdisk")]
    Empty(usize),
    #[error("plex {plex}: a raid5 plex has 3 to {most} subdisks, each on a drive of its own, and this has {found}", most = MAX_DATA + 1)]
    Raid5 { plex: usize, found: usize },
    #[error(
        "plex {0}: a raid5 plex is a volume's only plex; relayout to mirror:N or ec:M+K protects against more losses"
    )]
    Raid5Beside(usize),
    #[error("plex {plex}: a stripe is a multiple of 4K, and {stripe} bytes aren't")]
    Stripe { plex: usize, stripe: u64 },
    #[error(
        "plex {plex}, subdisk {subdisk}: its length is whole blocks of 4K, of whole stripes where there are some, and {length} bytes aren't"
    )]
    Length { plex: usize, subdisk: usize, length: u64 },
    #[error(
        "plex {plex}, subdisk {subdisk}: its offset on the drive is whole sectors of 512 bytes, and {offset} isn't"
    )]
    DriveOffset { plex: usize, subdisk: usize, offset: u64 },
    #[error("plex {plex}, subdisk {subdisk}: its offset in the plex is whole blocks of 4K, and {offset} isn't")]
    PlexOffset { plex: usize, subdisk: usize, offset: u64 },
    #[error("plex {plex}, subdisk {subdisk}: it begins in the plex before the one before it ends, at {end}")]
    InPlex { plex: usize, subdisk: usize, end: u64 },
    #[error(
        "plex {plex}, subdisk {subdisk}: all subdisks of a striped or raid5 plex are as long as the first, {length} bytes"
    )]
    Unequal { plex: usize, subdisk: usize, length: u64 },
    #[error("two subdisks have the same bytes of drive {drive}, from {offset} on")]
    OnDrive { drive: DriveId, offset: u64 },
    #[error("no plex has byte {0} of the volume")]
    Hole(u64),
    #[error("a plex has at most 4P, and this is longer")]
    TooLong,
}

impl Plexes {
    /// Checks the rules.
    pub fn new(plexes: Vec<Plex>) -> Result<Self, PlexesError> {
        if !(1..=usize::from(MAX_COPIES)).contains(&plexes.len()) {
            return Err(PlexesError::Count(plexes.len()));
        }
        let subdisks = plexes.iter().map(|plex| plex.subdisks.len()).sum();
        if subdisks > MAX_SUBDISKS {
            return Err(PlexesError::Subdisks(subdisks));
        }
        for (number, plex) in plexes.iter().enumerate() {
            plex.check(number)?;
            if matches!(plex.organization, Organization::Raid5 { .. }) && plexes.len() > 1 {
                return Err(PlexesError::Raid5Beside(number));
            }
        }
        let plexes = Plexes { plexes };
        plexes.check_drives()?;
        plexes.check_holes()?;
        Ok(plexes)
    }

    /// In order.
    pub fn plexes(&self) -> &[Plex] {
        &self.plexes
    }

    /// Bytes of a volume that they have room for.
    pub fn size(&self) -> u64 {
        self.plexes.iter().map(Plex::size).max().unwrap_or(0)
    }

    /// At most, what the drives of one stretch have together.
    pub fn fragments(&self) -> Fragments {
        match self.plexes.as_slice() {
            [Plex { organization: Organization::Raid5 { .. }, subdisks, .. }] => {
                Fragments { data: subdisks.len() as u8 - 1, code: 1 }
            }
            plexes => Fragments::copies(plexes.len() as u8),
        }
    }

    /// The longest unit that all stripes and ends of subdisks are multiples of, in bytes: a power of two up to 4 MiB. Of a `raid5` plex,
    /// as much of a row as a stripe of an erasure code is.
    pub fn extent(&self) -> u32 {
        if let [Plex { organization: Organization::Raid5 { stripe }, subdisks, .. }] = self.plexes.as_slice() {
            let data = subdisks.len() as u64 - 1;
            let most = u64::from(MAX_EXTENT) / EXTENT / data;
            return (data * EXTENT * (stripe / EXTENT).clamp(1, most)) as u32;
        }
        let all = self.plexes.iter().flat_map(Plex::edges).fold(u64::from(MAX_EXTENT), |all, edge| all | edge);
        1 << all.trailing_zeros()
    }

    /// Of all plexes, in order.
    pub fn subdisks(&self) -> impl Iterator<Item = &Subdisk> {
        self.plexes.iter().flat_map(|plex| &plex.subdisks)
    }

    /// All drives, each once, in order.
    pub fn drives(&self) -> Vec<DriveId> {
        let mut seen = BTreeSet::new();
        let all = self.subdisks().map(|subdisk| subdisk.drive);
        all.filter(|drive| seen.insert(*drive)).collect()
    }

    fn check_drives(&self) -> Result<(), PlexesError> {
        let mut taken: BTreeMap<(DriveId, u64), u64> = BTreeMap::new();
        for subdisk in self.subdisks() {
            let (drive, offset) = (subdisk.drive, subdisk.drive_offset);
            let end = offset.checked_add(subdisk.length).ok_or(PlexesError::TooLong)?;
            let before = taken.range((drive, 0)..(drive, end)).next_back();
            if before.is_some_and(|(_, before)| *before > offset) {
                return Err(PlexesError::OnDrive { drive, offset });
            }
            taken.insert((drive, offset), end);
        }
        Ok(())
    }

    fn check_holes(&self) -> Result<(), PlexesError> {
        let mut parts: Vec<(u64, u64)> = self.plexes.iter().flat_map(Plex::parts).collect();
        parts.sort_unstable();
        let mut end = 0;
        for (first, past) in parts {
            if first > end {
                return Err(PlexesError::Hole(end));
            }
            end = end.max(past);
        }
        Ok(())
    }
}

impl Plex {
    /// Bytes from its beginning to its end, with its gaps.
    pub fn size(&self) -> u64 {
        self.parts().last().map_or(0, |(_, end)| *end)
    }

    /// The stretches of the volume that it has, as first byte and end, in order: of stripes, all of them are one.
    pub fn parts(&self) -> Vec<(u64, u64)> {
        let count = self.subdisks.len() as u64;
        match self.organization {
            Organization::Concat => {
                self.subdisks.iter().map(|disk| (disk.plex_offset, disk.plex_offset + disk.length)).collect()
            }
            Organization::Striped { .. } => vec![(0, self.subdisks[0].length * count)],
            Organization::Raid5 { .. } => vec![(0, self.subdisks[0].length * (count - 1))],
        }
    }

    /// Every place in the volume where its drives change is a multiple of something of these, or is one of these.
    fn edges(&self) -> Vec<u64> {
        let ends = self.parts().into_iter().flat_map(|(first, end)| [first, end]);
        ends.chain(self.organization.stripe()).collect()
    }

    fn check(&self, plex: usize) -> Result<(), PlexesError> {
        let unit = self.organization.stripe().unwrap_or(BLOCK);
        if unit == 0 || !unit.is_multiple_of(BLOCK) {
            return Err(PlexesError::Stripe { plex, stripe: unit });
        }
        check_name(self.name.as_deref())?;
        let first = self.subdisks.first().ok_or(PlexesError::Empty(plex))?.length;
        let mut end = 0u64;
        for (subdisk, disk) in self.subdisks.iter().enumerate() {
            check_name(disk.name.as_deref())?;
            let (length, offset) = (disk.length, disk.drive_offset);
            if length == 0 || length % unit != 0 {
                return Err(PlexesError::Length { plex, subdisk, length });
            }
            if offset % SECTOR != 0 {
                return Err(PlexesError::DriveOffset { plex, subdisk, offset });
            }
            if self.organization != Organization::Concat {
                if length != first {
                    return Err(PlexesError::Unequal { plex, subdisk, length: first });
                }
            } else if disk.plex_offset % BLOCK != 0 {
                return Err(PlexesError::PlexOffset { plex, subdisk, offset: disk.plex_offset });
            } else if disk.plex_offset < end {
                return Err(PlexesError::InPlex { plex, subdisk, end });
            }
            let begin = if self.organization == Organization::Concat { disk.plex_offset } else { end };
            end = begin.checked_add(length).filter(|end| *end <= MAX_PLEX).ok_or(PlexesError::TooLong)?;
        }
        self.check_raid5(plex)
    }

    fn check_raid5(&self, plex: usize) -> Result<(), PlexesError> {
        let found = self.subdisks.len();
        let drives: BTreeSet<DriveId> = self.subdisks.iter().map(|disk| disk.drive).collect();
        let fits = (3..=usize::from(MAX_DATA) + 1).contains(&found) && drives.len() == found;
        match self.organization {
            Organization::Raid5 { .. } if !fits => Err(PlexesError::Raid5 { plex, found }),
            _ => Ok(()),
        }
    }
}

impl Subdisk {
    /// Where it ends among what volumes may use of the drive, in bytes.
    pub fn end(&self) -> u64 {
        self.drive_offset + self.length
    }

    /// Whether both have some byte of a drive.
    pub fn overlaps(&self, other: &Subdisk) -> bool {
        self.drive == other.drive && self.drive_offset < other.end() && other.drive_offset < self.end()
    }
}

fn check_name(name: Option<&str>) -> Result<(), PlexesError> {
    match name {
        Some(name) if !is_name(name) => Err(PlexesError::Name(shown(name))),
        _ => Ok(()),
    }
}

impl std::str::FromStr for Plexes {
    type Err = PlexesError;

    fn from_str(text: &str) -> Result<Self, PlexesError> {
        Plexes::new(text.split('|').map(parse_plex).collect::<Result<_, _>>()?)
    }
}

/// What is named, perhaps, and the name.
fn named(text: &str) -> (Option<String>, &str) {
    match text.split_once('=') {
        Some((name, rest)) => (Some(name.to_owned()), rest),
        None => (None, text),
    }
}

fn parse_plex(text: &str) -> Result<Plex, PlexesError> {
    let no_plex = || PlexesError::Plex(shown(text));
    let (head, subdisks) = text.strip_suffix(')').and_then(|text| text.split_once('(')).ok_or_else(no_plex)?;
    let (name, organization) = named(head);
    let stripe = |size: &str| size.parse::<Size>().map(|size| size.0).map_err(|_| no_plex());
    let organization = match organization.split_once('/') {
        None if organization == "concat" => Organization::Concat,
        Some(("striped", size)) => Organization::Striped { stripe: stripe(size)? },
        Some(("raid5", size)) => Organization::Raid5 { stripe: stripe(size)? },
        _ => return Err(no_plex()),
    };
    let mut end = 0u64;
    let mut parse = |text: &str| {
        let subdisk = parse_subdisk(text, organization, end).ok_or_else(|| PlexesError::Subdisk(shown(text)))?;
        end = subdisk.plex_offset.saturating_add(subdisk.length);
        Ok(subdisk)
    };
    let subdisks = subdisks.split(',').map(&mut parse).collect::<Result<_, _>>()?;
    Ok(Plex { name, organization, subdisks })
}

fn parse_subdisk(text: &str, organization: Organization, end: u64) -> Option<Subdisk> {
    let (name, text) = named(text);
    let (drive, text) = text.split_once(':')?;
    let (offset, text) = text.split_once('+')?;
    let size = |text: &str| text.parse::<Size>().ok().map(|size| size.0);
    let (length, plex_offset) = match text.split_once('@') {
        Some(_) if organization != Organization::Concat => return None,
        Some((length, offset)) => (length, size(offset)?),
        None if organization == Organization::Concat => (text, end),
        None => (text, 0),
    };
    Some(Subdisk { name, drive: drive.parse().ok()?, drive_offset: size(offset)?, length: size(length)?, plex_offset })
}

impl fmt::Display for Plexes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, plex) in self.plexes.iter().enumerate() {
            f.write_str(if number > 0 { "|" } else { "" })?;
            write!(f, "{plex}")?;
        }
        Ok(())
    }
}

impl Plexes {
    /// How the plexes are organized, without their subdisks: for lists.
    pub fn outline(&self) -> String {
        let outline = |plex: &Plex| {
            let stripe = plex.organization.stripe().map(|stripe| format!("/{}", exact(stripe))).unwrap_or_default();
            format!("{}{stripe} of {}", plex.organization.word(), plex.subdisks.len())
        };
        format!("plexes: {}", self.plexes.iter().map(outline).collect::<Vec<_>>().join(" | "))
    }
}

impl fmt::Display for Plex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_name(f, self.name.as_deref())?;
        f.write_str(self.organization.word())?;
        self.organization.stripe().map_or(Ok(()), |stripe| write!(f, "/{}", exact(stripe)))?;
        f.write_str("(")?;
        let mut end = 0;
        for (number, disk) in self.subdisks.iter().enumerate() {
            f.write_str(if number > 0 { "," } else { "" })?;
            write_name(f, disk.name.as_deref())?;
            write!(f, "{}:{}+{}", disk.drive, exact(disk.drive_offset), exact(disk.length))?;
            if self.organization == Organization::Concat {
                if disk.plex_offset != end {
                    write!(f, "@{}", exact(disk.plex_offset))?;
                }
                end = disk.plex_offset + disk.length;
            }
        }
        f.write_str(")")
    }
}

fn write_name(f: &mut fmt::Formatter<'_>, name: Option<&str>) -> fmt::Result {
    name.map_or(Ok(()), |name| write!(f, "{name}="))
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "000000000000000a";
    const B: &str = "000000000000000b";
    const C: &str = "000000000000000c";

    fn plexes(text: &str) -> Result<Plexes, String> {
        let text = text.replace('A', A).replace('B', B).replace('C', C);
        text.parse::<Plexes>().map_err(|error| error.to_string())
    }

    #[test]
    fn plexes_read_and_print_the_same() {
        for text in [
            "concat(A:0+512M)",
            "concat(A:135680+512M)|concat(B:0+512M)",
            "concat(A:0+4K,B:0+12K)|striped/8K(B:12K+8K,A:4K+8K)",
            "concat(A:0+4K,B:0+4K@8K)|concat(C:0+12K)",
            "left=striped/512K(l0=A:0+100M,l1=B:0+100M)|right=striped/512K(B:100M+100M,A:100M+100M)",
            "raid5/512K(A:0+128M,B:0+128M,C:0+128M)",
        ] {
            let written = text.replace('A', A).replace('B', B).replace('C', C);
            assert_eq!(plexes(text).map(|read| read.to_string()), Ok(written));
        }
    }

    #[test]
    fn sizes_and_extents_follow_from_the_plexes() {
        for (text, size, extent) in [
            ("concat(A:0+512M)", 512 << 20, 4 << 20),
            ("concat(A:0+4K,B:0+12K)|striped/8K(B:12K+8K,A:4K+8K)", 16 << 10, 4 << 10),
            ("striped/512K(A:0+100M,B:0+100M)", 200 << 20, 512 << 10),
            ("striped/280K(A:0+2800K,B:0+2800K)", 5600 << 10, 8 << 10),
            ("raid5/512K(A:0+128M,B:0+128M,C:0+128M)", 256 << 20, 1 << 20),
            ("raid5/4K(A:0+128M,B:0+128M,C:0+128M)", 256 << 20, 128 << 10),
            ("raid5/16M(A:0+128M,B:0+128M,C:0+128M)", 256 << 20, 4 << 20),
        ] {
            let found = plexes(text).expect(text);
            assert_eq!((found.size(), found.extent()), (size, extent), "{text}");
        }
        let outline = plexes("striped/8K(A:0+8K,B:0+8K)|concat(C:0+4K)").map(|found| found.outline());
        assert_eq!(outline.as_deref(), Ok("plexes: striped/8K of 2 | concat of 1"));
    }

    #[test]
    fn plexes_that_break_a_rule_are_refused_with_the_rule() {
        for (text, said) in [
            ("", "no plex"),
            ("concat", "no plex"),
            ("raid4/512K(A:0+1M)", "no plex"),
            ("striped(A:0+1M)", "no plex"),
            ("striped/x(A:0+1M)", "no plex"),
            ("concat()", "no subdisk"),
            ("concat(A)", "no subdisk"),
            ("concat(A:0)", "no subdisk"),
            ("concat(a b:0+1M)", "no subdisk"),
            ("striped/4K(A:0+1M@1M)", "no subdisk"),
            ("-x=concat(A:0+1M)", "begin with none"),
            ("concat(=A:0+1M)", "1 to 128"),
            ("striped/512(A:0+1M)", "a multiple of 4K"),
            ("striped/0(A:0+1M)", "a multiple of 4K"),
            ("striped/512K(A:0+102480K)", "whole stripes"),
            ("concat(A:0+0)", "whole blocks"),
            ("concat(A:0+1000)", "whole blocks"),
            ("concat(A:100+1M)", "whole sectors"),
            ("concat(A:0+1M@100)", "its offset in the plex"),
            ("concat(A:0+1M,B:0+1M@512K)", "before the one before it ends"),
            ("striped/4K(A:0+1M,B:0+2M)", "as long as the first"),
            ("concat(A:0+1M,A:512K+1M)", "same bytes of drive"),
            ("concat(A:1M+1M)|concat(A:1536K+1M)", "same bytes of drive"),
            ("concat(A:1M+1M)|concat(A:512K+1M)", "same bytes of drive"),
            ("concat(A:0+1M@1M)", "no plex has byte 0"),
            ("concat(A:0+1M,B:0+1M@2M)|concat(C:0+1M)", "no plex has byte 1048576"),
            ("raid5/4K(A:0+1M,B:0+1M)", "3 to 17"),
            ("raid5/4K(A:0+1M,B:0+1M,A:1M+1M)", "a drive of its own"),
            ("raid5/4K(A:0+1M,B:0+1M,C:0+1M)|concat(A:1M+2M)", "only plex"),
            ("concat(A:0+4P,B:0+4K)", "at most 4P"),
        ] {
            let error = plexes(text).expect_err(text);
            assert!(error.contains(said), "{text}: {error}");
        }
        let nine = ["concat(A:0+1M)"; 9].join("|");
        assert!(plexes(&nine).unwrap_err().contains("1 to 8 plexes"));
    }
}
