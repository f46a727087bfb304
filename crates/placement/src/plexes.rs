//! Explicit layouts as a map: where plexes of different organization lie beside each other.
//!
//! The ends of subdisks and of plexes cut a volume into *sections*. Within a section each plex has one drive, or goes round its drives. So
//! a section repeats after some units: each unit of that turn is a column, whose copies are on the drives that the plexes have there.
//!
//! ```text
//! striped/U of drives a b c   | a b c a b c | a b
//! striped/U of drives d e     | d e d e d e |
//! columns                     | 0 1 2 3 4 5 | 6 7
//! ```

use crate::{ColumnHolders, Geometry, Rotation};
use smallvec::SmallVec;
use tepal_model::layout::LayoutError;
use tepal_model::layout::plexes::{Organization, Plex, Plexes, Subdisk};

/// Columns of a map at most, since each has a state of its own.
const MOST_COLUMNS: u64 = 1024;

/// A stretch of a map's extents that go round columns of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Section {
    /// The first extent.
    pub first: u64,
    /// The number of its first column.
    pub column: u32,
    /// How many columns it has.
    pub columns: u32,
    /// How many extents go to one column before the next has its turn.
    pub unit: u64,
}

impl Section {
    /// The column that one of its extents is in, and its row there.
    pub(crate) fn place(&self, extent: u64) -> (usize, u64) {
        let (unit, within) = ((extent - self.first) / self.unit, (extent - self.first) % self.unit);
        let columns = u64::from(self.columns);
        (self.column as usize + (unit % columns) as usize, unit / columns * self.unit + within)
    }

    /// The extent in a row of one of its columns.
    pub(crate) fn extent_at(&self, column: usize, row: u64) -> u64 {
        let unit = row / self.unit * u64::from(self.columns) + (column - self.column as usize) as u64;
        self.first + unit * self.unit + row % self.unit
    }

    /// How many rows of one of its columns its extents before `extent` fill.
    pub(crate) fn rows_before(&self, column: usize, extent: u64) -> u64 {
        let extents = extent.saturating_sub(self.first);
        let (unit, within, columns) = (extents / self.unit, extents % self.unit, u64::from(self.columns));
        let at = (column - self.column as usize) as u64;
        let begun = match at.cmp(&(unit % columns)) {
            std::cmp::Ordering::Less => self.unit,
            std::cmp::Ordering::Equal => within,
            std::cmp::Ordering::Greater => 0,
        };
        unit / columns * self.unit + begun
    }
}

/// How a volume with these plexes goes round columns, and who has each. Of a column whose plexes have the same drive there, that drive has
/// one copy.
pub fn explicit(plexes: &Plexes) -> Result<(Geometry, Vec<ColumnHolders>), LayoutError> {
    let extent = plexes.extent();
    if let [plex @ Plex { organization: Organization::Raid5 { .. }, .. }] = plexes.plexes() {
        return Ok(with_parity(plex, extent));
    }
    let (sections, columns) = cut(plexes)?;
    let columns = columns.iter().zip(turns(&sections)).map(|(there, turn)| holders(plexes, there, turn)).collect();
    Ok((Geometry::of_sections(sections), columns))
}

/// The subdisks that have each column: the numbers of the plex, and of the subdisk in it.
pub fn subdisks_of_columns(plexes: &Plexes) -> Result<Vec<ColumnSubdisks>, LayoutError> {
    if let [plex @ Plex { organization: Organization::Raid5 { .. }, .. }] = plexes.plexes() {
        let all: ColumnSubdisks = (0..plex.subdisks.len()).map(|at| (0, at)).collect();
        return Ok(vec![all; plex.subdisks.len()]);
    }
    Ok(cut(plexes)?.1)
}

/// The subdisks of one column, of each plex that has it.
pub type ColumnSubdisks = SmallVec<[(usize, usize); 4]>;

/// The number of each column within its section.
fn turns(sections: &[Section]) -> impl Iterator<Item = usize> {
    sections.iter().flat_map(|section| 0..section.columns as usize)
}

/// The sections of plexes without parity, and the subdisks of each column.
fn cut(plexes: &Plexes) -> Result<(Vec<Section>, Vec<ColumnSubdisks>), LayoutError> {
    let extent = plexes.extent();
    let mut edges: Vec<u64> =
        plexes.plexes().iter().flat_map(Plex::parts).flat_map(|(first, end)| [first, end]).collect();
    edges.sort_unstable();
    edges.dedup();
    let (mut sections, mut columns): (Vec<Section>, Vec<ColumnSubdisks>) = (Vec::new(), Vec::new());
    for edge in edges.windows(2) {
        let has = |plex: &&Plex| subdisk_at(plex, edge[0]).is_some();
        let (unit, turn) = turn(plexes.plexes().iter().filter(has), extent.into());
        // What is before the first whole unit has one drive of each plex.
        let whole = edge[0].next_multiple_of(unit).min(edge[1]);
        let head = (whole > edge[0]).then_some((edge[0], 1));
        let rest = (edge[1] > whole).then(|| (whole, turn.min((edge[1] - whole).div_ceil(unit))));
        for (first, turn) in head.into_iter().chain(rest) {
            let found = columns.len() as u64 + turn;
            if found > MOST_COLUMNS {
                return Err(LayoutError::Combinations { found, most: MOST_COLUMNS });
            }
            let (first_extent, unit_extents) = (first / u64::from(extent), unit / u64::from(extent));
            let column = columns.len() as u32;
            sections.push(Section { first: first_extent, column, columns: turn as u32, unit: unit_extents });
            columns.extend((0..turn).map(|at| there(plexes, first + at * unit)));
        }
    }
    Ok((sections, columns))
}

/// The subdisks that have a byte of the volume.
fn there(plexes: &Plexes, byte: u64) -> ColumnSubdisks {
    let numbered = plexes.plexes().iter().enumerate();
    numbered.filter_map(|(number, plex)| Some((number, subdisk_at(plex, byte)?))).collect()
}

/// The drives of some subdisks, each once. Each plex's drive leads in its turn.
fn holders(plexes: &Plexes, there: &ColumnSubdisks, turn: usize) -> ColumnHolders {
    let mut holders = ColumnHolders::new();
    for &(plex, at) in there {
        let drive = plexes.plexes()[plex].subdisks[at].drive;
        if !holders.contains(&drive) {
            holders.push(drive);
        }
    }
    let first = turn % holders.len();
    holders.rotate_left(first);
    holders
}

/// Rows of a `raid5` plex go round columns of all its drives, each of which has the parity of one column.
fn with_parity(plex: &Plex, extent: u32) -> (Geometry, Vec<ColumnHolders>) {
    let count = plex.subdisks.len();
    let geometry = Geometry::round(count, extent).expect("a plex has few subdisks");
    let rotation = Rotation::new(count, count as u8).expect("there are as many drives as fragments");
    let holders = |column| rotation.holders(column).map(|at| plex.subdisks[at].drive).collect();
    (geometry, (0..count).map(holders).collect())
}

/// The unit in which drives change, and after how many units all comes again. Where they don't change, it's one extent.
fn turn<'a>(plexes: impl Iterator<Item = &'a Plex>, extent: u64) -> (u64, u64) {
    let striped: SmallVec<[(u64, u64); 8]> = plexes
        .filter_map(|plex| match plex.organization {
            Organization::Striped { stripe } if plex.subdisks.len() > 1 => Some((stripe, plex.subdisks.len() as u64)),
            _ => None,
        })
        .collect();
    if striped.is_empty() {
        return (extent, 1);
    }
    let unit = striped.iter().fold(0, |all, (stripe, _)| gcd(all, *stripe));
    (unit, striped.iter().fold(1, |all, (stripe, count)| lcm(all, (stripe / unit).saturating_mul(*count))))
}

/// The number of the subdisk in which a plex has a byte of the volume.
fn subdisk_at(plex: &Plex, byte: u64) -> Option<usize> {
    match plex.organization {
        Organization::Striped { stripe } => {
            let at = (byte / stripe) as usize % plex.subdisks.len();
            (byte < plex.size()).then_some(at)
        }
        Organization::Concat | Organization::Raid5 { .. } => {
            let has = |disk: &Subdisk| (disk.plex_offset..disk.plex_offset + disk.length).contains(&byte);
            plex.subdisks.iter().position(has)
        }
    }
}

fn gcd(one: u64, other: u64) -> u64 {
    if other == 0 { one } else { gcd(other, one % other) }
}

fn lcm(one: u64, other: u64) -> u64 {
    (one / gcd(one, other)).saturating_mul(other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    /// Drives are said by one digit.
    fn plexes(text: &str) -> Plexes {
        let mut written = String::new();
        for (number, part) in text.split('#').enumerate() {
            let (drive, rest) = if number == 0 { ("", part) } else { part.split_at(1) };
            written += &if number == 0 { rest.to_owned() } else { format!("{drive:0>16}{rest}") };
        }
        written.parse().expect(text)
    }

    /// Who has the extent that a byte of the volume is in.
    fn who(found: &(Geometry, Vec<ColumnHolders>), extent: u32, byte: u64) -> BTreeSet<u64> {
        let (column, _) = found.0.place(byte / u64::from(extent));
        found.1[column].iter().map(|drive| drive.0).collect()
    }

    #[test]
    fn mirrored_concatenated_plexes_are_cut_at_the_ends_of_subdisks() {
        let plexes = plexes("concat(#1:0+4K,#2:0+12K)|concat(#3:0+8K,#4:0+8K)");
        let found = explicit(&plexes).unwrap();
        let at = |block: u64| who(&found, plexes.extent(), block * 4096);
        assert_eq!((at(0), at(1), at(2), at(3)), ([1, 3].into(), [2, 3].into(), [2, 4].into(), [2, 4].into()));
        assert_eq!(found.1.len(), 3);
    }

    #[test]
    fn a_plex_with_a_gap_is_filled_by_another() {
        let plexes = plexes("concat(#1:0+4K,#1:4K+4K@8K)|concat(#2:0+16K)");
        let found = explicit(&plexes).unwrap();
        let at = |block: u64| who(&found, plexes.extent(), block * 4096);
        assert_eq!((at(0), at(1), at(2), at(3)), ([1, 2].into(), [2].into(), [1, 2].into(), [2].into()));
    }

    #[test]
    fn striped_plexes_of_different_width_meet_in_all_combinations() {
        let plexes = plexes("striped/4K(#1:0+8K,#2:0+8K,#3:0+8K)|striped/4K(#4:0+8K,#5:0+8K)");
        let found = explicit(&plexes).unwrap();
        let at = |block: u64| who(&found, plexes.extent(), block * 4096);
        assert_eq!((at(0), at(1), at(2), at(3)), ([1, 4].into(), [2, 5].into(), [3, 4].into(), [1, 5].into()));
        assert_eq!((at(4), at(5), found.1.len()), ([2].into(), [3].into(), 4 + 2));
    }

    #[test]
    fn plexes_that_share_a_drive_keep_one_copy_there() {
        let found = explicit(&plexes("striped/4K(#1:0+8K,#2:0+8K)|striped/4K(#1:8K+8K,#3:0+8K)")).unwrap();
        assert_eq!(found.1.iter().map(SmallVec::len).collect::<Vec<_>>(), [1, 2]);
    }

    #[test]
    fn a_raid5_plex_has_parity_on_each_drive_in_turn() {
        let (geometry, columns) = explicit(&plexes("raid5/512K(#1:0+1M,#2:0+1M,#3:0+1M)")).unwrap();
        let parity: BTreeSet<u64> = columns.iter().map(|holders| holders[2].0).collect();
        assert_eq!((geometry.columns(), geometry.width(), parity), (3, 3, [1, 2, 3].into()));
    }

    #[test]
    fn too_many_combinations_are_refused() {
        let plex = |first: u64, count: u64| {
            let disk = |at: u64| format!("{:016x}:0+40M", first + at);
            format!("striped/4K({})", (0..count).map(disk).collect::<Vec<_>>().join(","))
        };
        let primes = [(1, 7), (10, 11), (30, 17)].map(|(first, count)| plex(first, count)).join("|");
        let refused = explicit(&primes.parse().unwrap()).unwrap_err();
        assert!(matches!(refused, LayoutError::Combinations { found: 1309.., most: 1024 }), "{refused}");
    }

    /// Some plexes with drives of their own, of blocks of 4 KiB.
    fn any_plexes() -> impl Strategy<Value = Plexes> {
        let concat = proptest::collection::vec(1u64..9, 1..5).prop_map(|lengths| (0, lengths));
        let striped =
            (1u64..5, 1u64..4, 1usize..5).prop_map(|(stripe, rows, count)| (stripe, vec![stripe * rows; count]));
        proptest::collection::vec(prop_oneof![concat, striped], 1..4).prop_map(|all| {
            let mut drive = 0;
            let mut plex = |(stripe, lengths): (u64, Vec<u64>)| {
                let disks: Vec<String> = lengths
                    .iter()
                    .map(|length| {
                        drive += 1;
                        format!("{drive:016x}:0+{}K", length * 4)
                    })
                    .collect();
                let head = if stripe == 0 { "concat".to_owned() } else { format!("striped/{}K", stripe * 4) };
                format!("{head}({})", disks.join(","))
            };
            all.into_iter().map(&mut plex).collect::<Vec<_>>().join("|").parse().expect("no rule is broken")
        })
    }

    proptest! {
        #[test]
        fn each_block_is_where_each_plex_says(plexes in any_plexes()) {
            let found = explicit(&plexes).unwrap();
            for byte in (0..plexes.size()).step_by(4096) {
                let expected: BTreeSet<u64> = plexes.plexes().iter().filter_map(|plex| Some(plex.subdisks[subdisk_at(plex, byte)?].drive.0)).collect();
                prop_assert_eq!(who(&found, plexes.extent(), byte), expected, "byte {}", byte);
            }
        }

        #[test]
        fn sections_give_every_extent_a_place_of_its_own(plexes in any_plexes()) {
            let (geometry, columns) = explicit(&plexes).unwrap();
            prop_assert_eq!(geometry.columns(), columns.len());
            let extents = plexes.size() / u64::from(plexes.extent());
            let mut rows = vec![0; columns.len()];
            let ends: Vec<u64> = (0..columns.len()).map(|column| geometry.rows_before(column, extents)).collect();
            for (column, end) in ends.into_iter().enumerate() {
                prop_assert!(geometry.extent_at(column, end) >= extents, "nothing has the place of another");
            }
            for extent in 0..extents {
                for (column, rows) in rows.iter().enumerate() {
                    prop_assert_eq!(geometry.rows_before(column, extent), *rows);
                }
                let (column, row) = geometry.place(extent);
                prop_assert_eq!((geometry.extent_at(column, row), row), (extent, rows[column]));
                rows[column] += 1;
            }
        }
    }
}
