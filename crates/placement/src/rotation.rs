//! Copies on neighbours, rotated: `stripe`, `mirror:N` and `chained` over equal drives (Petal 2.4, figure 5).
//!
//! Extent `e` of a volume over `D` drives has its copy `c` on drive `(e + c) mod D`. Each drive numbers what it holds
//! without gaps: of row `e / D` it holds `N` fragments, copy `c` as number `c` of the row. So a long range of a volume is
//! one range on each drive, and the drives' shares differ by at most one row.

/// Copies rotated over drives that are known by their position in the global map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rotation {
    drives: u64,
    copies: u64,
}

/// One copy of an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyPlace {
    /// Position of the drive in the global map.
    pub drive: usize,
    /// Number of the fragment on that drive.
    pub fragment: u64,
}

impl Rotation {
    /// `None` unless `1 <= copies <= drives`: two copies of an extent on one drive are one.
    pub fn new(drives: usize, copies: u8) -> Option<Self> {
        let rotation = Rotation { drives: drives as u64, copies: copies.into() };
        (copies >= 1 && drives >= usize::from(copies)).then_some(rotation)
    }

    /// How many drives the copies rotate over.
    pub fn drives(&self) -> usize {
        self.drives as usize
    }

    /// How many copies there are of each extent.
    pub fn copies(&self) -> usize {
        self.copies as usize
    }

    /// Where copy `copy` of the extent is.
    pub fn place(&self, extent: u64, copy: usize) -> CopyPlace {
        assert!(copy < self.copies(), "copy {copy} of {}", self.copies);
        CopyPlace {
            drive: ((extent % self.drives + copy as u64) % self.drives) as usize,
            fragment: extent / self.drives * self.copies + copy as u64,
        }
    }

    /// Which copy of which extent a drive's fragment is.
    pub fn extent_at(&self, place: CopyPlace) -> (u64, usize) {
        let copy = place.fragment % self.copies;
        let first = (place.drive as u64 + self.drives - copy) % self.drives;
        (place.fragment / self.copies * self.drives + first, copy as usize)
    }

    /// The fragments of whole rows within extents `first..end`: rows, as the extents and (the same on every drive) the
    /// fragments that they are. Empty if no row is whole.
    pub fn whole_rows(&self, first: u64, end: u64) -> (std::ops::Range<u64>, std::ops::Range<u64>) {
        let (row, end_row) = (first.div_ceil(self.drives), end / self.drives);
        let end_row = end_row.max(row);
        (row * self.drives..end_row * self.drives, row * self.copies..end_row * self.copies)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn more_copies_than_drives_are_refused() {
        assert!(Rotation::new(1, 2).is_none() && Rotation::new(0, 0).is_none() && Rotation::new(3, 0).is_none());
        assert!(Rotation::new(2, 2).is_some());
    }

    proptest! {
        #[test]
        fn copies_are_on_different_drives_and_found_again(drives in 1usize..40, copies in 1u8..8, extent in 0u64..1 << 51) {
            prop_assume!(drives >= usize::from(copies));
            let rotation = Rotation::new(drives, copies).unwrap();
            let places: Vec<_> = (0..rotation.copies()).map(|copy| rotation.place(extent, copy)).collect();
            let distinct: BTreeSet<_> = places.iter().map(|place| place.drive).collect();
            prop_assert_eq!(distinct.len(), places.len());
            for (copy, &place) in places.iter().enumerate() {
                prop_assert_eq!(rotation.extent_at(place), (extent, copy));
            }
        }

        #[test]
        fn no_two_copies_share_a_fragment_and_drives_fill_evenly(drives in 1usize..12, copies in 1u8..5, extents in 1u64..200) {
            prop_assume!(drives >= usize::from(copies));
            let rotation = Rotation::new(drives, copies).unwrap();
            let mut held = vec![BTreeSet::new(); drives];
            for extent in 0..extents {
                for copy in 0..rotation.copies() {
                    let place = rotation.place(extent, copy);
                    prop_assert!(held[place.drive].insert(place.fragment));
                }
            }
            let counts = held.iter().map(BTreeSet::len);
            prop_assert!(counts.clone().max().unwrap() - counts.min().unwrap() <= usize::from(copies));
        }

        #[test]
        fn whole_rows_are_the_same_range_on_every_drive(drives in 1usize..9, copies in 1u8..4, first in 0u64..60, count in 0u64..60) {
            prop_assume!(drives >= usize::from(copies));
            let rotation = Rotation::new(drives, copies).unwrap();
            let (extents, fragments) = rotation.whole_rows(first, first + count);
            prop_assert!(extents.is_empty() || (first <= extents.start && extents.end <= first + count));
            let mut found = vec![BTreeSet::new(); drives];
            for extent in extents {
                for copy in 0..rotation.copies() {
                    let place = rotation.place(extent, copy);
                    found[place.drive].insert(place.fragment);
                }
            }
            for drive in found {
                prop_assert_eq!(drive, fragments.clone().collect::<BTreeSet<_>>());
            }
        }
    }
}
