//! A volume's global map applied: which blocks of which drive a range of the volume is.

use smallvec::SmallVec;
use tepal_model::{BLOCK, DriveId, Layout, MapId, REGION, VolumeId};
use tepal_placement::{CopyPlace, Rotation};

/// What the metadata says of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeSpec {
    pub id: VolumeId,
    pub name: String,
    /// Bytes.
    pub size: u64,
    pub layout: Layout,
    pub map: MapId,
    /// The drives in the order of the global map.
    pub drives: Vec<DriveId>,
}

/// Blocks of a volume that lie in one extent and in one region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    pub extent: u64,
    /// First block, within the volume.
    pub block: u64,
    pub count: u64,
}

/// The arithmetic of one global map.
#[derive(Clone, Copy, Debug)]
pub struct BlockMap {
    pub rotation: Rotation,
    /// Blocks in an extent.
    extent: u64,
}

const BLOCKS_IN_REGION: u64 = REGION / BLOCK;

impl BlockMap {
    pub fn new(spec: &VolumeSpec) -> Option<Self> {
        let rotation = Rotation::new(spec.drives.len(), spec.layout.copies())?;
        Some(BlockMap { rotation, extent: u64::from(spec.layout.extent) / BLOCK })
    }

    pub fn extent_of(&self, block: u64) -> u64 {
        block / self.extent
    }

    /// The range cut at extents and at regions.
    pub fn pieces(&self, first: u64, count: u64) -> impl Iterator<Item = Piece> + use<> {
        let (extent, unit, end) = (self.extent, self.extent.min(BLOCKS_IN_REGION), first + count);
        let mut at = first;
        std::iter::from_fn(move || {
            (at < end).then(|| {
                let count = (unit - at % unit).min(end - at);
                let piece = Piece { extent: at / extent, block: at, count };
                at += count;
                piece
            })
        })
    }

    /// Extents of one region: 1 if they're larger than it.
    fn extents_in_region(&self) -> u64 {
        (BLOCKS_IN_REGION / self.extent).max(1)
    }

    /// The region that a block is in. All blocks of a region are on the same drives: of extents smaller than a region it's
    /// made of those that lie below each other, in as many rows as it takes.
    pub fn region_of(&self, block: u64) -> u64 {
        if self.extent >= BLOCKS_IN_REGION {
            return block / BLOCKS_IN_REGION;
        }
        let (extent, drives) = (block / self.extent, self.rotation.drives() as u64);
        extent / drives / self.extents_in_region() * drives + extent % drives
    }

    /// The regions that a range touches, each once.
    pub fn regions(&self, first: u64, count: u64) -> impl Iterator<Item = u64> + use<> {
        let last = first + count.max(1) - 1;
        let drives = self.rotation.drives() as u64;
        // What lies side by side: extents, of which each row group has so many; or whole regions.
        let (unit, group, turns) = match self.extent >= BLOCKS_IN_REGION {
            true => (BLOCKS_IN_REGION, 1, 1),
            false => (self.extent, self.extents_in_region() * drives, drives),
        };
        let (from, to) = (first / unit, if count == 0 { first / unit } else { last / unit + 1 });
        (from / group..to.div_ceil(group)).flat_map(move |number| {
            let (start, end) = (from.max(number * group), to.min((number + 1) * group));
            (start..end.min(start + turns)).map(move |at| number * turns + at % turns)
        })
    }

    /// The whole of a region.
    pub fn pieces_of(&self, region: u64) -> impl Iterator<Item = Piece> + use<> {
        let (extent, drives, rows) = (self.extent, self.rotation.drives() as u64, self.extents_in_region());
        let count = extent.min(BLOCKS_IN_REGION);
        (0..rows).map(move |row| {
            let block = match extent >= BLOCKS_IN_REGION {
                true => region * BLOCKS_IN_REGION,
                false => ((region / drives * rows + row) * drives + region % drives) * extent,
            };
            Piece { extent: block / extent, block, count }
        })
    }

    /// The drives that a region's copies are on, in the order of copies.
    pub fn holders(&self, region: u64) -> Holders {
        let extent = match self.extent >= BLOCKS_IN_REGION {
            true => region * BLOCKS_IN_REGION / self.extent,
            false => region % self.rotation.drives() as u64,
        };
        self.holders_of_extent(extent)
    }

    fn holders_of_extent(&self, extent: u64) -> Holders {
        (0..self.rotation.copies()).map(|copy| self.rotation.place(extent, copy).drive).collect()
    }

    /// Each different list of drives that some region's copies are on.
    pub fn all_holders(&self) -> impl Iterator<Item = Holders> + use<> {
        let map = *self;
        (0..self.rotation.drives() as u64).map(move |extent| map.holders_of_extent(extent))
    }

    /// Which drive a copy of the piece is on, and its first block there.
    pub fn place(&self, piece: Piece, copy: usize) -> (usize, u64) {
        let CopyPlace { drive, fragment } = self.rotation.place(piece.extent, copy);
        (drive, fragment * self.extent + piece.block % self.extent)
    }

    /// Which block of the volume, and which copy of it, a block of a drive is.
    pub fn volume_block(&self, drive: usize, block: u64) -> (u64, usize) {
        let (extent, copy) = self.rotation.extent_at(CopyPlace { drive, fragment: block / self.extent });
        (extent * self.extent + block % self.extent, copy)
    }

    /// The blocks of the volume, as first one and count, that a range of a drive's blocks is.
    pub fn volume_runs(&self, drive: usize, first: u64, count: u64) -> impl Iterator<Item = (u64, u64)> + use<> {
        let map = *self;
        self.pieces(first, count).map(move |there| (map.volume_block(drive, there.block).0, there.count))
    }

    /// The blocks of a range, drive by drive: whole rows as one run, the rest piece by piece.
    pub fn runs_by_drive(&self, first: u64, count: u64) -> Vec<DriveRun> {
        let (extents, fragments) = self.rotation.whole_rows(first.div_ceil(self.extent), (first + count) / self.extent);
        let mut runs = Vec::new();
        let mut edges = vec![(first, count)];
        if !extents.is_empty() {
            let (start, end) = (extents.start * self.extent, extents.end * self.extent);
            edges = vec![(first, start - first), (end, first + count - end)];
            let run = |drive| DriveRun {
                drive,
                first: fragments.start * self.extent,
                count: (fragments.end - fragments.start) * self.extent,
            };
            runs.extend((0..self.rotation.drives()).map(run));
        }
        for piece in edges.into_iter().flat_map(|(first, count)| self.pieces(first, count)) {
            for copy in 0..self.rotation.copies() {
                let (drive, first) = self.place(piece, copy);
                runs.push(DriveRun { drive, first, count: piece.count });
            }
        }
        runs
    }
}

/// Consecutive blocks of one drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriveRun {
    pub drive: usize,
    pub first: u64,
    pub count: u64,
}

/// Positions of drives in the global map.
pub type Holders = SmallVec<[usize; 4]>;

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn map(layout: &str, drives: u64) -> BlockMap {
        let spec = VolumeSpec {
            id: VolumeId(1),
            name: "v".into(),
            size: 1 << 40,
            layout: layout.parse().unwrap(),
            map: MapId(1),
            drives: (0..drives).map(DriveId).collect(),
        };
        BlockMap::new(&spec).unwrap()
    }

    #[test]
    fn every_block_of_a_range_is_in_exactly_one_run_of_each_copys_drive() {
        for (layout, drives) in [("stripe", 4), ("mirror:2", 4), ("mirror:3;extent=4K", 5), ("stripe;extent=4M", 1)] {
            let map = map(layout, drives);
            for (first, count) in [(0, 1), (5, 300), (16, 64), (1000, 2000), (1023, 2), (0, 0)] {
                let mut by_runs = BTreeSet::new();
                for run in map.runs_by_drive(first, count) {
                    for block in run.first..run.first + run.count {
                        assert!(by_runs.insert((run.drive, block)), "{layout}: twice");
                    }
                }
                let mut by_pieces = BTreeSet::new();
                for piece in map.pieces(first, count) {
                    for copy in 0..map.rotation.copies() {
                        let (drive, at) = map.place(piece, copy);
                        for nth in 0..piece.count {
                            by_pieces.insert((drive, at + nth));
                            assert_eq!(map.volume_block(drive, at + nth), (piece.block + nth, copy));
                        }
                        let runs: Vec<_> = map.volume_runs(drive, at, piece.count).collect();
                        assert_eq!(runs, [(piece.block, piece.count)]);
                    }
                }
                assert_eq!(by_runs, by_pieces, "{layout} {first}+{count}");
            }
        }
    }

    #[test]
    fn a_region_is_a_mebibyte_on_the_same_drives_and_a_range_names_each_region_that_it_touches_once() {
        for (layout, drives) in [("stripe", 4), ("mirror:2", 4), ("mirror:3;extent=4K", 5), ("mirror:2;extent=4M", 3)] {
            let map = map(layout, drives);
            for region in [0, 1, 5, 77] {
                let pieces: Vec<Piece> = map.pieces_of(region).collect();
                assert_eq!(pieces.iter().map(|piece| piece.count).sum::<u64>() * BLOCK, REGION);
                for piece in pieces {
                    assert_eq!(map.region_of(piece.block), region, "{layout}");
                    assert_eq!(map.region_of(piece.block + piece.count - 1), region, "{layout}");
                    let drives: Holders = (0..map.rotation.copies()).map(|copy| map.place(piece, copy).0).collect();
                    assert_eq!(drives, map.holders(region), "{layout}");
                }
            }
            for (first, count) in [(0, 1), (255, 2), (5, 300), (16, 64), (1000, 20_000), (1023, 2), (9, 0)] {
                let touched: BTreeSet<u64> = (first..first + count).map(|block| map.region_of(block)).collect();
                let named: Vec<u64> = map.regions(first, count).collect();
                assert_eq!(named.len(), touched.len(), "{layout} {first}+{count}: none twice");
                assert_eq!(named.into_iter().collect::<BTreeSet<_>>(), touched, "{layout} {first}+{count}");
                assert!(
                    map.pieces(first, count).all(|p| map.region_of(p.block) == map.region_of(p.block + p.count - 1))
                );
            }
        }
    }
}
