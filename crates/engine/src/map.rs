//! A volume's global map applied: which bytes of which column a range of the volume is, and where a column's copies are.

use crate::epochs::Epochs;
use crate::migration::Laid;
use crate::places::Places;
use crate::volume::Live;
use smallvec::SmallVec;
use std::ops::Range;
use std::sync::Arc;
use tepal_model::size::MAX_ERASURE_CODED;
use tepal_model::{BLOCK, EXTENT, Fragments, Layout, MAX_VOLUME, MapId, REGION, VolumeId};
use tepal_placement::Geometry;

/// What the metadata says of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeSpec {
    /// Which volume, for good.
    pub id: VolumeId,
    /// As it is now; a volume can be renamed.
    pub name: String,
    /// Bytes.
    pub size: u64,
    /// As it was made with.
    pub layout: Layout,
    /// The id by which drives know the volume's data.
    pub map: MapId,
    /// How its extents go round the columns of its map.
    pub geometry: Geometry,
    /// Where the columns are, when it's opened.
    pub places: Arc<Places>,
    /// Of the volume's record, as agreed: counts its changes, from 1.
    pub revision: u64,
    /// Its clients may only read: replication writes to it.
    pub is_replica: bool,
    /// Its bytes are enciphered before drives get them.
    pub is_encrypted: bool,
    /// It's imported while it's used, when it's opened.
    pub live: Option<Arc<Live>>,
    /// What it and its snapshots see, when it's opened.
    pub epochs: Arc<Epochs>,
}

impl VolumeSpec {
    pub(crate) fn laid(&self) -> Laid {
        Laid { layout: self.layout.clone(), geometry: self.geometry.clone() }
    }
}

/// How a volume's bytes go round its columns.
#[derive(Clone, Debug)]
pub(crate) struct Striping {
    pub geometry: Geometry,
    /// Bytes of an extent.
    extent: u64,
}

/// The bytes of a range that are in one column: there they lie side by side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub column: usize,
    /// The first byte, within the column.
    pub offset: u64,
    /// Where they are in the range, in order.
    pub slices: SmallVec<[Range<usize>; 1]>,
}

impl Part {
    pub fn length(&self) -> u64 {
        self.slices.iter().map(|slice| slice.len() as u64).sum()
    }
}

impl Striping {
    pub fn new(laid: &Laid) -> Self {
        Striping { geometry: laid.geometry.clone(), extent: u64::from(laid.layout.extent) }
    }

    /// Whether the columns may be there.
    pub fn fits(laid: &Laid, places: &Places) -> bool {
        let fragments = laid.layout.fragments();
        // Where plexes don't have the same parts of a volume, or share a drive, some columns have fewer copies.
        let fewest = if laid.layout.plexes().is_some() && fragments.are_copies() { 1 } else { fragments.count() };
        places.columns.len() == laid.geometry.columns() && places.is_one(fewest..=fragments.count())
    }

    /// The parts of a range, each column once.
    pub fn parts(&self, offset: u64, length: u64) -> SmallVec<[Part; 1]> {
        let mut parts: SmallVec<[Part; 1]> = SmallVec::new();
        let (first, end, width) = (offset / self.extent, offset + length, self.geometry.width() as usize);
        // Which part each of the last extents is of, as many as a set is wide: then the first of them may come again.
        let mut last: SmallVec<[usize; 8]> = SmallVec::new();
        let mut at = offset;
        while at < end {
            let next = ((at / self.extent + 1) * self.extent).min(end);
            let slice = (at - offset) as usize..(next - offset) as usize;
            let (column, within) = self.locate(at);
            let turn = (at / self.extent - first) as usize % width;
            let known = last.get(turn).copied().filter(|&part| parts[part].column == column);
            // After all sets, the first has its turn again.
            let known = known.or_else(|| parts.iter().position(|part| part.column == column));
            let part = known.unwrap_or(parts.len());
            match parts.get_mut(part) {
                Some(part) => part.slices.push(slice),
                None => parts.push(Part { column, offset: within, slices: SmallVec::from_iter([slice]) }),
            }
            match last.get_mut(turn) {
                Some(last) => *last = part,
                None => last.push(part),
            }
            at = next;
        }
        parts
    }

    /// The bytes of a column that are within a range of the volume.
    pub fn within(&self, column: usize, range: Range<u64>) -> Range<u64> {
        self.before(column, range.start)..self.before(column, range.end)
    }

    /// How many bytes of a column lie before a byte of the volume.
    pub fn before(&self, column: usize, offset: u64) -> u64 {
        let extent = offset / self.extent;
        let begun = if self.geometry.place(extent).0 == column { offset % self.extent } else { 0 };
        self.geometry.rows_before(column, extent) * self.extent + begun
    }

    /// The column that a byte of the volume is in, and which of its bytes it is.
    pub fn locate(&self, offset: u64) -> (usize, u64) {
        let (column, row) = self.geometry.place(offset / self.extent);
        (column, row * self.extent + offset % self.extent)
    }

    /// Where in the volume a byte of a column is.
    pub fn offset_of(&self, column: usize, offset: u64) -> u64 {
        self.geometry.extent_at(column, offset / self.extent) * self.extent + offset % self.extent
    }

    /// Where so many extents end, of which the first has this byte of the volume.
    pub fn end_of_extents(&self, offset: u64, count: u64) -> u64 {
        (offset / self.extent).saturating_add(count).saturating_mul(self.extent)
    }

    /// The end of the extent that a byte of the volume is in.
    pub fn end_of_extent(&self, offset: u64) -> u64 {
        (offset / self.extent + 1) * self.extent
    }
}

/// Where in a volume of this layout a block lies that a drive holds of its map, in bytes, as `Column` numbers the blocks of drives. Of a
/// fragment in place it's the first block that the fragment's row is of. `None` if the map has no such block.
pub fn byte_of_volume(geometry: &Geometry, layout: &Layout, place: u64) -> Option<u64> {
    let column = Column::new(MapId(0), 0, geometry.columns(), layout.fragments());
    let (number, block) = column.at_place(place);
    let striping = Striping { geometry: geometry.clone(), extent: layout.extent.into() };
    (number < geometry.columns()).then(|| striping.offset_of(number, column.logical(block) * BLOCK))
}

/// One column of a global map: a small linear disk that is kept by fragments. Its blocks are numbered from 0.
///
/// Whole copies of blocks have the blocks' numbers. Where an erasure code keeps the column, whole copies are the log. Fragments in place
/// follow, with numbers of their own: row r of each member's fragment is block `in_place + r`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    pub map: MapId,
    pub number: usize,
    /// How many columns the map has.
    columns: u64,
    /// How many blocks of each drive are kept for each column.
    area: u64,
    /// The number of the first row in place.
    in_place: u64,
    /// How many data fragments a stripe has.
    data: u64,
    /// How many code fragments a stripe has.
    code: u64,
    /// Blocks of a region: whole stripes.
    in_region: u64,
}

/// Some fragments of a column, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Among(u32);

impl Among {
    pub const ALL: Among = Among(u32::MAX);

    pub fn of(fragments: impl Iterator<Item = usize>) -> Self {
        Among(fragments.fold(0, |all, at| all | 1 << at))
    }

    pub fn contains(self, fragment: usize) -> bool {
        self.0 >> fragment & 1 == 1
    }
}

const BLOCKS_IN_REGION: u64 = REGION / BLOCK;
/// Blocks of the longest extent.
const ALIGNMENT: u64 = 1 << 10;
/// Rows of a stripe: blocks of each of its fragments, as many as a drive's extent has.
pub(crate) const ROWS: u64 = EXTENT / BLOCK;

impl Column {
    pub fn new(map: MapId, number: usize, columns: usize, fragments: Fragments) -> Self {
        let columns = columns as u64;
        let longest = if fragments.are_copies() { MAX_VOLUME } else { MAX_ERASURE_CODED };
        // The last chunk of some columns is one that others don't have.
        let in_place = ((longest / BLOCK).div_ceil(columns) + ALIGNMENT).next_multiple_of(ALIGNMENT);
        // Rows are fewer than blocks.
        let area = if fragments.are_copies() { in_place } else { 2 * in_place };
        let (data, code) = (u64::from(fragments.data), u64::from(fragments.code));
        let stripe = data * ROWS;
        let in_region = if fragments.are_copies() { BLOCKS_IN_REGION } else { BLOCKS_IN_REGION / stripe * stripe };
        Column { map, number, columns, area, in_place, data, code, in_region }
    }

    /// Where a block is among what a drive holds of the map, on each drive that has a copy: one column lies after the other.
    pub fn place(&self, block: u64) -> u64 {
        self.number as u64 * self.area + block
    }

    /// What a drive keeps for the column: the first block, and how many.
    pub fn places(&self) -> (u64, u64) {
        (self.place(0), self.area)
    }

    /// What a drive keeps of the column's whole copies: the first block, and how many.
    pub fn places_of_copies(&self) -> (u64, u64) {
        (self.place(0), self.in_place)
    }

    /// What a drive keeps of the column's fragments in place: the first block, and how many.
    pub fn places_in_place(&self) -> (u64, u64) {
        (self.place(self.in_place), self.area - self.in_place)
    }

    /// Which column, and which block of it, a block of a drive is. The block may be one in place.
    pub fn at_place(&self, place: u64) -> (usize, u64) {
        ((place / self.area) as usize, place % self.area)
    }

    /// The row in place that a block has the number of; `None` if it's a block of a copy.
    pub fn row(&self, block: u64) -> Option<u64> {
        block.checked_sub(self.in_place)
    }

    /// The number of a row in place.
    pub fn block_of_row(&self, row: u64) -> u64 {
        self.in_place + row
    }

    /// The first block that a row in place is of; any other block as it is.
    pub fn logical(&self, block: u64) -> u64 {
        self.row(block).map_or(block, |row| row / ROWS * self.in_stripe() + row % ROWS)
    }

    /// How many blocks a stripe has.
    pub fn in_stripe(&self) -> u64 {
        self.data * ROWS
    }

    /// The region that a block is in. Regions of all columns of a map have different numbers, and each is at most a MiB of one.
    pub fn region_of(&self, block: u64) -> u64 {
        self.logical(block) / self.in_region * self.columns + self.number as u64
    }

    /// The fragments whose members keep whole copies of a region: all, or those of the log, one more than may be lost. The log's members
    /// change from region to region.
    pub fn keepers(&self, region: u64) -> Among {
        if self.data == 1 {
            return Among::ALL;
        }
        let count = self.data + self.code;
        let first = region / self.columns % count;
        Among::of((first..=first + self.code).map(|at| (at % count) as usize))
    }

    /// The column of a map with so many that a region is of.
    pub fn number_of(region: u64, columns: usize) -> u64 {
        region % columns as u64
    }

    /// Whether a region is of this column.
    pub fn has(&self, region: u64) -> bool {
        Self::number_of(region, self.columns as usize) == self.number as u64
    }

    /// Stands for all regions of the column.
    pub fn every_region(&self) -> u64 {
        (u64::MAX / self.columns - 1) * self.columns + self.number as u64
    }

    /// The regions that blocks touch.
    pub fn regions(&self, first: u64, count: u64) -> impl Iterator<Item = u64> + use<> {
        let column = *self;
        let end = if count == 0 { first } else { first + count };
        (first / self.in_region..end.div_ceil(self.in_region))
            .filter(move |_| count > 0)
            .map(move |number| number * column.columns + column.number as u64)
    }

    /// The first block of a region, and how many there are.
    pub fn blocks_of(&self, region: u64) -> (u64, u64) {
        (region / self.columns * self.in_region, self.in_region)
    }

    /// The range cut at regions, as first block and count.
    pub fn cut(&self, first: u64, count: u64) -> impl Iterator<Item = (u64, u64)> + use<> {
        let length = self.in_region;
        let end = first + count;
        let mut at = first;
        std::iter::from_fn(move || {
            (at < end).then(|| {
                let count = (length - at % length).min(end - at);
                at += count;
                (at - count, count)
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn striping(layout: &str, geometry: Geometry) -> Striping {
        Striping::new(&Laid { layout: layout.parse().unwrap(), geometry })
    }

    #[test]
    fn every_byte_of_a_range_is_in_exactly_one_part_and_each_part_is_one_range_of_its_column() {
        let layouts = [
            ("stripe", (4, 4, 16)),
            ("mirror:2", (6, 2, 2)),
            ("mirror:3;extent=4K", (5, 5, 256)),
            ("mirror:2;extent=4K", (9, 3, 7)),
            ("stripe;extent=4M", (1, 1, 1)),
        ];
        for (layout, (columns, width, chunk)) in layouts {
            let striping = striping(layout, Geometry::new(columns, width, chunk).unwrap());
            for (offset, length) in [(0, 1), (5, 300_000), (65_536, 65_536), (4095, 2_000_000), (7 << 20, 3), (9, 0)] {
                let mut seen = vec![false; length];
                let parts = striping.parts(offset, length as u64);
                for part in &parts {
                    let mut at = part.offset;
                    for slice in &part.slices {
                        for byte in slice.clone() {
                            assert!(!std::mem::replace(&mut seen[byte], true), "twice");
                            assert_eq!(striping.offset_of(part.column, at), offset + byte as u64);
                            at += 1;
                        }
                    }
                    let within = striping.within(part.column, offset..offset + length as u64);
                    assert_eq!((within.start, within.end - within.start), (part.offset, part.length()), "{layout}");
                }
                assert!(seen.into_iter().all(|seen| seen), "{layout} {offset}+{length}");
                let columns: BTreeSet<_> = parts.iter().map(|part| part.column).collect();
                assert_eq!(columns.len(), parts.len(), "each column once");
            }
        }
    }

    #[test]
    fn columns_and_their_regions_are_told_apart_up_to_the_largest_volume() {
        for columns in [1, 2, 5, 4000] {
            let column = Column::new(MapId(1), columns - 1, columns, Fragments::copies(2));
            let last = (MAX_VOLUME / BLOCK).div_ceil(columns as u64) - 1;
            for block in [0, last] {
                let place = column.place(block);
                assert_eq!(column.at_place(place), (columns - 1, block));
                assert!(place / 16 < 1 << 48, "the index of an extent has 48 bits");
            }
            let region = column.region_of(last);
            assert!(column.has(region) && region < column.every_region() && column.has(column.every_region()));
            let (first, count) = column.blocks_of(region);
            assert!((first..first + count).contains(&last));
        }
    }

    #[test]
    fn rows_in_place_are_of_the_regions_of_their_stripes() {
        for (data, columns) in [(2, 1), (3, 7), (4, 2), (7, 3), (16, 4000)] {
            let column = Column::new(MapId(1), columns - 1, columns, Fragments { data, code: 4 });
            let last = (MAX_ERASURE_CODED / BLOCK).div_ceil(columns as u64) - 1;
            for block in [0, column.in_stripe() * 5 + 3, last] {
                let row = block / column.in_stripe() * ROWS + block % ROWS;
                let number = column.block_of_row(row);
                assert_eq!(column.at_place(column.place(number)), (columns - 1, number));
                assert_eq!((column.row(number), column.row(block)), (Some(row), None));
                assert!(column.place(number) / 16 < 1 << 48, "the index of an extent has 48 bits");
                assert_eq!(column.region_of(number), column.region_of(block));
                let (first, count) = column.blocks_of(column.region_of(block));
                assert!((first..first + count).contains(&block) && first.is_multiple_of(column.in_stripe()));
                assert!(count <= BLOCKS_IN_REGION && count.is_multiple_of(column.in_stripe()));
            }
        }
    }

    #[test]
    fn a_range_names_each_region_that_it_touches_once() {
        let column = Column::new(MapId(1), 1, 3, Fragments::copies(2));
        for (first, count) in [(0, 1), (255, 2), (5, 300), (256, 256), (1000, 20_000), (9, 0)] {
            let touched: BTreeSet<u64> = (first..first + count).map(|block| column.region_of(block)).collect();
            assert_eq!(column.regions(first, count).collect::<Vec<_>>(), touched.into_iter().collect::<Vec<_>>());
            let cut: Vec<(u64, u64)> = column.cut(first, count).collect();
            assert_eq!(cut.iter().map(|(_, count)| count).sum::<u64>(), count);
            assert!(cut.iter().all(|&(first, count)| column.regions(first, count).count() == 1));
        }
    }
}
