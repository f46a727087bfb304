//! Data of a volume that only failed drives had: requests for it fail, until an operator has older copies served.

use super::Volume;
use super::read_write::in_volume;
use crate::column::members::health::Lost;
use crate::servers::seat::{Seat, Seated};
use std::ops::Range;
use tepal_drive::world::World;
use tepal_model::BLOCK;

/// All of a column, up to the volume's end.
const EVERYTHING: Range<u64> = 0..u64::MAX;

impl<W: World> Volume<W> {
    /// The lost bytes of the volume, column by column: of the columns that this server leads, and of the columns that no server
    /// can lead any more. The other columns' primaries report their own losses.
    pub fn lost(&self) -> Vec<Range<u64>> {
        let maps = self.maps();
        let mut lost = Vec::new();
        // Where nobody leads, requests wait for as long as drives are away, for good if need be.
        for map in maps.iter().filter(|map| map.by_gateways().is_none()) {
            let is_gone = |(column, seat): (usize, &Seat<W>)| match seat.now() {
                Seated::Here(group) => matches!(group.lost(), Lost::All),
                Seated::Vacant => map.is_lost(column),
                Seated::There(..) => false,
            };
            if map.seats().iter().enumerate().all(is_gone) {
                self.ranges_in(map.id()).iter().for_each(|own| add(&mut lost, own.start..own.end.min(self.size())));
                continue;
            }
            let ranges = self.ranges_in(map.id());
            for (column, seat) in map.seats().iter().enumerate() {
                let parts = match seat.now() {
                    Seated::Here(group) => parts(group.lost(), |region| group.shared.column.blocks_of(region)),
                    Seated::Vacant if map.is_lost(column) => vec![EVERYTHING],
                    Seated::Vacant | Seated::There(..) => Vec::new(),
                };
                let end = self.end_in(map, column);
                for part in parts {
                    for range in in_volume(map, column, part.start.min(end)..part.end.min(end)) {
                        let own = ranges.iter().map(|own| own.start.max(range.start)..own.end.min(range.end));
                        own.for_each(|own| add(&mut lost, own));
                    }
                }
            }
        }
        lost
    }
}

/// Adds a range, to the last one if it goes on there: what a column has is mostly in order.
fn add(ranges: &mut Vec<Range<u64>>, range: Range<u64>) {
    if range.is_empty() {
        return;
    }
    match ranges.last_mut().filter(|last| last.end == range.start) {
        Some(last) => last.end = range.end,
        None => ranges.push(range),
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
