//! How a volume's extents go round the columns of its map.
//!
//! A map has `C` columns in sets of `W`. Extents go round the columns of one set for `R` rows, which is about [`TURN`] in each
//! column; then the next set takes its turn, and after the last one the first again:
//!
//! ```text
//! W = 2, R = 2, C = 6      set 0     set 1     set 2
//! column                   0   1     2   3     4   5
//! row 0                    0   1     4   5     8   9
//!     1                    2   3     6   7    10  11
//!     2                   12  13    16  17    20  21
//! ```
//!
//! So a map has more columns than drives, of which any number can go to another drive, while what lies side by side in a volume
//! lies side by side on few drives, and a long request meets `W` of them at once. With as many columns as a set has, it's
//! [`crate::Rotation`]: extent `e` is row `e / C` of column `e mod C`.
//!
//! A map with an explicit layout has [`Section`]s instead: within each, extents go round the section's own columns, a unit at a time.

use crate::Candidate;
use crate::plexes::{Section, explicit};
use std::sync::Arc;
use tepal_model::Layout;

/// Bytes of a column that lie side by side before another set takes its turn, if extents aren't larger.
const TURN: u32 = 1 << 20;
/// Columns in a set at most: so many drives carry out one long request.
const WIDEST: u64 = 8;
/// An extent past the end of every volume with an explicit layout: 8 PiB, if extents are as short as can be.
const PAST_ALL: u64 = 1 << 41;
/// A map has at least so many columns, that drives which come later find some to take.
const FEWEST_COLUMNS: u64 = 64;
/// And at most so many, since each has a state of its own.
const MOST_COLUMNS: u64 = 1024;
/// The smallest drive is due at least so many copies, unless that takes more columns than a map may have: so the part of each is
/// exact to a twentieth, though copies are whole.
const COPIES_OF_SMALLEST: u128 = 20;

/// How extents go round columns. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Geometry {
    columns: u32,
    width: u32,
    chunk: u32,
    sections: Option<Arc<[Section]>>,
}

impl Geometry {
    /// `None` unless there is a column, a width that divides their number, and a row in each chunk.
    pub fn new(columns: u32, width: u32, chunk: u32) -> Option<Geometry> {
        let is_sound = columns > 0 && width > 0 && chunk > 0 && columns.is_multiple_of(width);
        is_sound.then_some(Geometry { columns, width, chunk, sections: None })
    }

    /// Of a map that was made with such a layout: so many columns, and the width and chunk that the map has noted. `None` if these don't go
    /// together.
    pub fn of_map(layout: &Layout, columns: usize, width: u32, chunk: u32) -> Option<Geometry> {
        let geometry = match layout.plexes() {
            Some(plexes) => explicit(plexes).ok()?.0,
            None => Geometry::new(u32::try_from(columns).ok()?, width, chunk)?,
        };
        (geometry.columns() == columns).then_some(geometry)
    }

    /// Of at least one section, in order. Their columns follow each other, as they do.
    pub fn of_sections(sections: Vec<Section>) -> Geometry {
        let last = sections.last().expect("there is a section");
        let columns = last.column + last.columns;
        Geometry { columns, width: columns, chunk: 1, sections: Some(sections.into()) }
    }

    /// For a map of one column for each drive, which extents go round one by one.
    pub fn round(columns: usize, extent: u32) -> Option<Geometry> {
        let columns = u32::try_from(columns).ok()?;
        Geometry::new(columns, columns, chunk(extent))
    }

    /// For a new map of `stripe` or `mirror:N` on these drives, with extents of so many bytes. There's a candidate that has
    /// some capacity.
    ///
    /// One drive gets as many columns as a few, or those that come later would find nothing to take. Its extents lie as they
    /// would in one column, since a set is one wide.
    pub fn of(candidates: &[Candidate<'_>], copies: u8, extent: u32) -> Geometry {
        let used = candidates.iter().map(|drive| drive.capacity).filter(|capacity| *capacity > 0);
        let (total, smallest) = used
            .clone()
            .fold((0, u64::MAX), |(total, smallest), capacity| (total + u128::from(capacity), smallest.min(capacity)));
        let width = (used.count() as u64).clamp(1, WIDEST);
        let in_columns = u128::from(copies.max(1)) * u128::from(smallest);
        let for_smallest = (COPIES_OF_SMALLEST * total).div_ceil(in_columns);
        let wanted = for_smallest.clamp(FEWEST_COLUMNS.into(), MOST_COLUMNS.into()) as u64;
        let columns = wanted.next_multiple_of(width);
        let columns = if columns > MOST_COLUMNS { columns - width } else { columns };
        Geometry { columns: columns as u32, width: width as u32, chunk: chunk(extent), sections: None }
    }

    /// How many columns there are.
    pub fn columns(&self) -> usize {
        self.columns as usize
    }

    /// How many columns a set has.
    pub fn width(&self) -> u32 {
        self.width
    }

    /// How many rows a set is filled by before the next one takes its turn.
    pub fn chunk(&self) -> u32 {
        self.chunk
    }

    fn sets(&self) -> u64 {
        u64::from(self.columns / self.width)
    }

    /// The extents that fill a chunk of each column of one set.
    fn band(&self) -> u64 {
        u64::from(self.width) * u64::from(self.chunk)
    }

    /// The column that an extent is in, and its row there.
    pub fn place(&self, extent: u64) -> (usize, u64) {
        if let Some(sections) = &self.sections {
            let section = &sections[sections.partition_point(|section| section.first <= extent) - 1];
            return section.place(extent);
        }
        let (width, chunk, sets) = (u64::from(self.width), u64::from(self.chunk), self.sets());
        let (band, within) = (extent / self.band(), extent % self.band());
        let column = band % sets * width + within % width;
        (column as usize, band / sets * chunk + within / width)
    }

    /// The extent in a row of a column. Of a row past the end of a section's column, one that no volume has.
    pub fn extent_at(&self, column: usize, row: u64) -> u64 {
        if let Some(sections) = &self.sections {
            let at = section_of(sections, column);
            let end = sections.get(at + 1).map_or(u64::MAX, |next| next.first);
            return Some(sections[at].extent_at(column, row)).filter(|extent| *extent < end).unwrap_or(PAST_ALL);
        }
        let (width, chunk, column) = (u64::from(self.width), u64::from(self.chunk), column as u64);
        let band = row / chunk * self.sets() + column / width;
        band * self.band() + row % chunk * width + column % width
    }

    /// How many rows of a column the extents before `extent` fill.
    pub fn rows_before(&self, column: usize, extent: u64) -> u64 {
        if let Some(sections) = &self.sections {
            let at = section_of(sections, column);
            let end = sections.get(at + 1).map_or(u64::MAX, |next| next.first);
            return sections[at].rows_before(column, extent.min(end));
        }
        let (width, chunk, column) = (u64::from(self.width), u64::from(self.chunk), column as u64);
        let (band, within) = (extent / self.band(), extent % self.band());
        let begun = band / self.sets() * chunk;
        begun
            + match (column / width).cmp(&(band % self.sets())) {
                std::cmp::Ordering::Less => chunk,
                std::cmp::Ordering::Equal => within / width + u64::from(column % width < within % width),
                std::cmp::Ordering::Greater => 0,
            }
    }
}

/// The section that a column is of.
fn section_of(sections: &[Section], column: usize) -> usize {
    sections.partition_point(|section| section.column as usize <= column) - 1
}

/// Rows of extents of so many bytes that lie side by side.
fn chunk(extent: u32) -> u32 {
    (TURN / extent.max(1)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rotation;
    use crate::choose_tests::equal;
    use proptest::prelude::*;

    fn geometry() -> impl Strategy<Value = Geometry> {
        (1u32..20, 1u32..12, 1u32..40)
            .prop_map(|(sets, width, chunk)| Geometry::new(sets * width, width, chunk).unwrap())
    }

    #[test]
    fn extents_lie_as_in_the_picture() {
        let geometry = Geometry::new(6, 2, 2).unwrap();
        let column = |column| (0..3).map(|row| geometry.extent_at(column, row)).collect::<Vec<_>>();
        assert_eq!((column(0), column(3), column(5)), (vec![0, 2, 12], vec![5, 7, 17], vec![9, 11, 21]));
    }

    #[test]
    fn a_width_that_doesnt_divide_the_columns_is_refused() {
        for (columns, width, chunk) in [(0, 1, 1), (4, 0, 1), (4, 2, 0), (4, 3, 1)] {
            assert_eq!(Geometry::new(columns, width, chunk), None);
        }
    }

    #[test]
    fn new_maps_have_columns_for_drives_to_come_and_for_the_smallest_drive() {
        let sized = |sizes: &[u64]| {
            let mut drives = equal(sizes.len(), 1);
            drives.iter_mut().zip(sizes).for_each(|(drive, size)| drive.capacity = size << 30);
            drives
        };
        let many = sized(&vec![1; 500]);
        for (drives, copies, columns, width) in [
            (&sized(&[1])[..], 1, 64, 1),
            (&sized(&[1, 1]), 2, 64, 2),
            (&sized(&[1, 1, 1]), 2, 66, 3),
            (&sized(&[1, 2, 4, 16]), 2, 232, 4),
            (&sized(&[1; 7]), 1, 140, 7),
            (&many, 1, 1024, 8),
            (&many[..7 * 70], 3, 1024, 8),
            (&sized(&[1, 9, 9, 9, 9, 99, 99]), 1, 1022, 7),
        ] {
            let geometry = Geometry::of(drives, copies, 64 << 10);
            assert_eq!(
                (geometry.columns, geometry.width, geometry.chunk),
                (columns, width, 16),
                "{} drives",
                drives.len()
            );
        }
        assert_eq!(Geometry::of(&many, 1, 4 << 20).chunk, 1, "a large extent is a chunk of its own");
    }

    proptest! {
        #[test]
        fn every_extent_has_a_place_of_its_own(geometry in geometry(), extent in 0u64..1 << 51) {
            let (column, row) = geometry.place(extent);
            prop_assert!(column < geometry.columns());
            prop_assert_eq!(geometry.extent_at(column, row), extent);
        }

        #[test]
        fn every_place_has_an_extent_of_its_own(geometry in geometry(), column in 0usize..240, row in 0u64..1 << 40) {
            let column = column % geometry.columns();
            prop_assert_eq!(geometry.place(geometry.extent_at(column, row)), (column, row));
        }

        #[test]
        fn rows_are_counted_and_columns_fill_evenly(geometry in geometry(), extents in 0u64..5_000) {
            let mut rows = vec![0; geometry.columns()];
            (0..extents).for_each(|extent| rows[geometry.place(extent).0] += 1);
            for (column, rows) in rows.iter().enumerate() {
                prop_assert_eq!(geometry.rows_before(column, extents), *rows);
            }
            let spread = rows.iter().max().unwrap() - rows.iter().min().unwrap();
            prop_assert!(spread <= u64::from(geometry.chunk));
        }

        #[test]
        fn rows_are_counted_far_out_too(geometry in geometry(), extent in 0u64..1 << 51) {
            let (here, row) = geometry.place(extent);
            prop_assert_eq!(geometry.rows_before(here, extent), row);
            prop_assert_eq!(geometry.rows_before(here, extent + 1), row + 1);
            let sum: u64 = (0..geometry.columns()).map(|column| geometry.rows_before(column, extent)).sum();
            prop_assert_eq!(sum, extent);
        }

        #[test]
        fn with_one_set_its_the_rotation(columns in 1usize..40, extent in 0u64..1 << 51, size in 12u32..23) {
            let (geometry, rotation) = (Geometry::round(columns, 1 << size).unwrap(), Rotation::new(columns, 1).unwrap());
            prop_assert_eq!(geometry.place(extent), rotation.place(extent));
            for column in 0..columns {
                prop_assert_eq!(geometry.rows_before(column, extent), rotation.rows_before(column, extent));
            }
        }
    }
}
