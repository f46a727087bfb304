//! Copies on neighbours, rotated: `stripe`, `mirror:N` and `chained` over equal drives (Petal 2.4, figure 5).
//!
//! The extents of a volume over `D` drives go round its `D` columns: extent `e` is row `e / D` of column `e mod D`. All of
//! a column is on the same drives, copy `k` of column `c` on drive `(c + k) mod D`. So the load of a drive that fails is
//! spread over its neighbours, and what must be agreed upon is the same for all of a column.

/// Copies rotated over drives that are known by their position in the global map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rotation {
    drives: u64,
    copies: u64,
}

impl Rotation {
    /// `None` unless `1 <= copies <= drives`: two copies of an extent on one drive are one.
    pub fn new(drives: usize, copies: u8) -> Option<Self> {
        let rotation = Rotation { drives: drives as u64, copies: copies.into() };
        (copies >= 1 && drives >= usize::from(copies)).then_some(rotation)
    }

    /// How many columns there are: as many as drives.
    pub fn columns(&self) -> usize {
        self.drives as usize
    }

    /// How many copies there are of each extent.
    pub fn copies(&self) -> usize {
        self.copies as usize
    }

    /// The positions of the drives that a column is on, in the order of copies.
    pub fn holders(&self, column: usize) -> impl Iterator<Item = usize> + use<> {
        let Rotation { drives, copies } = *self;
        (0..copies).map(move |copy| ((column as u64 + copy) % drives) as usize)
    }

    /// Of which column a drive has copy `copy`.
    pub fn column_of(&self, drive: usize, copy: usize) -> usize {
        ((drive as u64 + self.drives - copy as u64) % self.drives) as usize
    }

    /// The column that an extent is in, and its row there.
    pub fn place(&self, extent: u64) -> (usize, u64) {
        ((extent % self.drives) as usize, extent / self.drives)
    }

    /// The extent in a row of a column.
    pub fn extent_at(&self, column: usize, row: u64) -> u64 {
        row * self.drives + column as u64
    }

    /// How many rows of a column the extents before `extent` fill.
    pub fn rows_before(&self, column: usize, extent: u64) -> u64 {
        extent / self.drives + u64::from((column as u64) < extent % self.drives)
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
            let (column, row) = rotation.place(extent);
            prop_assert_eq!(rotation.extent_at(column, row), extent);
            let holders: Vec<_> = rotation.holders(column).collect();
            prop_assert_eq!(holders.iter().collect::<BTreeSet<_>>().len(), usize::from(copies));
            for (copy, &drive) in holders.iter().enumerate() {
                prop_assert_eq!(rotation.column_of(drive, copy), column);
            }
        }

        #[test]
        fn drives_fill_evenly(drives in 1usize..12, copies in 1u8..5, extents in 0u64..200) {
            prop_assume!(drives >= usize::from(copies));
            let rotation = Rotation::new(drives, copies).unwrap();
            let mut held = vec![0; drives];
            for column in 0..rotation.columns() {
                let rows = rotation.rows_before(column, extents);
                prop_assert_eq!(rows, (0..extents).filter(|&extent| rotation.place(extent).0 == column).count() as u64);
                rotation.holders(column).for_each(|drive| held[drive] += rows);
            }
            prop_assert!(held.iter().max().unwrap() - held.iter().min().unwrap() <= u64::from(copies));
        }
    }
}
