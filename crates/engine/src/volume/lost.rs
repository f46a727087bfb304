//! Data of a volume that only failed drives had: requests for it fail, until an operator has older copies served.

use super::Volume;
use super::access::in_volume;
use crate::column::members::health::Lost;
use crate::servers::seat::Seated;
use std::ops::Range;
use tepal_drive::world::World;
use tepal_model::BLOCK;

/// All of a column, up to the volume's end.
const EVERYTHING: Range<u64> = 0..u64::MAX;

impl<W: World> Volume<W> {
    /// The lost bytes of the volume, extent by extent: of the columns that this server leads, and of the columns that
    /// no server can lead any more. The other columns' primaries report their own losses.
    pub fn lost(&self) -> Vec<Range<u64>> {
        let maps = self.maps();
        let mut lost = Vec::new();
        for map in &maps {
            for (column, seat) in map.seats().iter().enumerate() {
                let parts = match seat.now() {
                    Seated::Here(group) => parts(group.lost(), |region| group.shared.column.blocks_of(region)),
                    Seated::Vacant if map.is_lost(column) => vec![EVERYTHING],
                    Seated::Vacant | Seated::There(..) => Vec::new(),
                };
                let end = self.end_in(map, column);
                for part in parts {
                    lost.extend(in_volume(map, column, part.start.min(end)..part.end.min(end)));
                }
            }
        }
        lost
    }
}

fn parts(lost: Lost, blocks_of: impl Fn(u64) -> (u64, u64)) -> Vec<Range<u64>> {
    match lost {
        Lost::All => vec![EVERYTHING],
        Lost::Regions(regions) => {
            let bytes = |region| {
                let (first, count) = blocks_of(region);
                first * BLOCK..(first + count) * BLOCK
            };
            regions.into_iter().map(bytes).collect()
        }
    }
}
