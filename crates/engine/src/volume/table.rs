//! The table of a volume: its ranges, each with its map, and while a range is on its way with the map that it comes from. Every request
//! is routed by it.

use super::{Map, Volume};
use crate::column::Blocks;
use crate::map::Striping;
use crate::migration::cut_at_chunks;
use crate::servers::seat::Seat;
use crate::volume::MapMigration;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use tepal_drive::world::World;
use tepal_model::{BLOCK, MapId, Ranges};

/// The ranges of one volume. Most volumes have one: requests find its map without a lock.
pub(super) struct Table<W: World> {
    /// The map of the only range; of several ranges, one that has the map by which the volume is known.
    maps: Maps<W>,
    is_parted: AtomicBool,
    /// Several ranges; empty where there's one.
    parts: Mutex<Arc<[Part<W>]>>,
}

/// One of several ranges.
struct Part<W: World> {
    bytes: Range<u64>,
    map: Map<W>,
}

/// A range of a volume as it is at one moment.
pub(super) struct Entry<W: World> {
    /// Bytes of the volume. The last range has no end.
    bytes: Range<u64>,
    map: Map<W>,
    /// While the range, or a part of it, is on its way: the migration, and its other map.
    way: Option<(Arc<MapMigration>, Map<W>)>,
}

/// The maps that a volume has been known by, as far as is known here: the last one is the present one.
struct Maps<W: World> {
    map: Map<W>,
    next: OnceLock<Box<Maps<W>>>,
}

impl<W: World> Maps<W> {
    fn of(map: Map<W>) -> Self {
        Maps { map, next: OnceLock::new() }
    }

    fn end(&self) -> &Maps<W> {
        let mut at = self;
        while let Some(next) = at.next.get() {
            at = next;
        }
        at
    }
}

impl<W: World> Table<W> {
    /// All bytes in one map.
    pub fn all_in(map: Map<W>) -> Self {
        Table { maps: Maps::of(map), is_parted: AtomicBool::new(false), parts: Mutex::new(Arc::new([])) }
    }

    pub fn map(&self) -> &Map<W> {
        &self.maps.end().map
    }

    /// Several ranges; none if there's only one.
    fn parts(&self) -> Option<Arc<[Part<W>]>> {
        let is_parted = self.is_parted.load(Ordering::Acquire);
        is_parted.then(|| self.parts.lock().expect("nothing panics while it holds the ranges").clone())
    }

    /// From now on the volume is known by this map. Callers take turns.
    fn go_to(&self, map: Map<W>) {
        let _ = self.maps.end().next.set(Box::new(Maps::of(map))); // nobody else adds one
    }

    /// Callers take turns.
    fn set_parts(&self, parts: Vec<Part<W>>) {
        let is_parted = !parts.is_empty();
        if is_parted {
            *self.parts.lock().expect("nothing panics while it holds the ranges") = parts.into();
        }
        // Whoever sees the mark finds ranges: those of before stay where they are when the mark goes.
        self.is_parted.store(is_parted, Ordering::Release);
    }
}

impl<W: World> Entry<W> {
    /// The map that has to be asked for a byte of this range.
    fn at(&self, offset: u64) -> &Map<W> {
        match &self.way {
            Some((migration, other)) if migration.agreed.covers(offset) => {
                if migration.agreed.serves(offset) == other.id() { other } else { &self.map }
            }
            _ => &self.map,
        }
    }
}

/// The bytes that a map has by the table, where it doesn't have all: of the others, other maps are asked.
#[derive(Debug)]
pub(crate) struct Own {
    ranges: Vec<Range<u64>>,
    striping: Striping,
}

impl Own {
    pub fn new(ranges: Vec<Range<u64>>, striping: Striping) -> Self {
        Own { ranges, striping }
    }

    pub fn ranges(&self) -> &[Range<u64>] {
        &self.ranges
    }

    pub fn has(&self, offset: u64) -> bool {
        self.ranges.iter().any(|range| range.contains(&offset))
    }

    /// The bytes among some of a column that the map has.
    pub fn within(&self, column: usize, bytes: &Range<u64>) -> Vec<Range<u64>> {
        within(&self.ranges, (&self.striping, column), bytes)
    }

    /// Whether the map has all of these blocks of a column.
    pub fn has_blocks(&self, column: usize, blocks: Blocks) -> bool {
        let bytes = blocks.first * BLOCK..blocks.end() * BLOCK;
        self.within(column, &bytes) == [bytes]
    }
}

/// The bytes among some of a column that are in ranges of the volume.
fn within(ranges: &[Range<u64>], (striping, column): (&Striping, usize), bytes: &Range<u64>) -> Vec<Range<u64>> {
    let of_column = |range: &Range<u64>| {
        let start = striping.before(column, range.start);
        let end = if range.end == u64::MAX { u64::MAX } else { striping.before(column, range.end) };
        start.max(bytes.start)..end.min(bytes.end)
    };
    let mut own: Vec<Range<u64>> = Vec::new();
    for part in ranges.iter().map(of_column).filter(|part| !part.is_empty()) {
        match own.last_mut().filter(|last| last.end == part.start) {
            Some(last) => last.end = part.end,
            None => own.push(part),
        }
    }
    own
}

impl<W: World> Volume<W> {
    /// The map by which the volume is known: of several ranges, that of one of them. While the volume is on its way as a whole, the map
    /// that it comes from.
    pub(crate) fn map(&self) -> &Map<W> {
        self.shared.table.map()
    }

    /// The map of all bytes, where there's one range that stays where it is.
    pub(super) fn only_map(&self) -> Option<&Map<W>> {
        let table = &self.shared.table;
        let map = table.map();
        (!table.is_parted.load(Ordering::Acquire) && self.migration_in(map).is_none()).then_some(map)
    }

    /// From now on, as agreed, the volume is known by this map. Others may still have the earlier map, and this server may
    /// have missed that it was left.
    pub(crate) fn go_to(&self, map: Map<W>) {
        let before = self.map().clone();
        self.shared.table.go_to(map);
        before.note_migrated();
        before.seats().iter().for_each(Seat::ring);
    }

    /// From now on, as agreed, the volume has these ranges; `None`: all is in the map by which it's known.
    pub(crate) fn part(&self, ranges: Option<&Ranges>, map: impl Fn(MapId) -> Option<Map<W>>) {
        let wanted = ranges.map_or(Vec::new(), |ranges| ranges.iter().collect());
        let known = self.shared.table.parts();
        let is_known = match &known {
            Some(parts) => parts.iter().map(|part| (part.bytes.clone(), part.map.id())).eq(wanted.iter().cloned()),
            None => wanted.is_empty(),
        };
        if is_known {
            return;
        }
        let part = |(bytes, id)| Some(Part { bytes, map: map(id)? });
        // A map is missing only if it can't be: then the volume stays as it is known, and its columns refuse what they don't have.
        let Some(parts) = wanted.into_iter().map(part).collect::<Option<Vec<_>>>() else { return };
        let maps: Vec<Map<W>> =
            known.iter().flat_map(|parts| parts.iter()).chain(&parts).map(|part| part.map.clone()).collect();
        self.shared.table.set_parts(parts);
        for map in maps.iter().chain([self.map()]) {
            map.note_migrated();
            map.seats().iter().for_each(Seat::ring);
        }
    }

    /// The volume's ranges, as they are at this moment.
    fn entries(&self) -> Vec<Entry<W>> {
        let Some(parts) = self.shared.table.parts() else {
            let map = self.map().clone();
            return vec![Entry { bytes: 0..u64::MAX, way: self.way_of(&map), map }];
        };
        let entry =
            |part: &Part<W>| Entry { bytes: part.bytes.clone(), way: self.way_of(&part.map), map: part.map.clone() };
        parts.iter().map(entry).collect()
    }

    /// The migration that a map of the volume is in, and the other map of it.
    fn way_of(&self, map: &Map<W>) -> Option<(Arc<MapMigration>, Map<W>)> {
        let migration = self.migration_in(map)?;
        let agreed = &migration.agreed;
        let other = if agreed.source == map.id() { agreed.target } else { agreed.source };
        let other = self.engine()?.map(other)?;
        Some((migration, other))
    }

    /// The migration of a map of the volume, if the volume goes too. Others that have the map may leave it alone.
    fn migration_in(&self, map: &Map<W>) -> Option<Arc<MapMigration>> {
        map.migration().filter(|migration| migration.agreed.takes(self.id()))
    }

    /// The maps of the volume's ranges, and of those that are on their way the other map too. Each once; that by which the volume is
    /// known first.
    pub(crate) fn maps(&self) -> Vec<Map<W>> {
        let mut maps = vec![self.map().clone()];
        for Entry { map, way, .. } in self.entries() {
            for map in [map].into_iter().chain(way.map(|(_, other)| other)) {
                if maps.iter().all(|known| known.id() != map.id()) {
                    maps.push(map);
                }
            }
        }
        maps
    }

    /// Whether one of the volume's maps is among these.
    pub fn has_any_map_of(&self, are_among: impl Fn(MapId) -> bool) -> bool {
        self.maps().iter().any(|map| are_among(map.id()))
    }

    /// Whether the table names that map, other than as one that a range goes to or comes from.
    pub(crate) fn lists(&self, map: MapId) -> bool {
        self.map().id() == map
            || self.shared.table.parts().is_some_and(|parts| parts.iter().any(|part| part.map.id() == map))
    }

    /// Whether the volume has any of its bytes in that map.
    pub(crate) fn has(&self, map: MapId) -> bool {
        let is_its = |own: &Map<W>| {
            own.id() == map || self.migration_in(own).is_some_and(|migration| migration.agreed.is_about(map))
        };
        match self.shared.table.parts() {
            None => is_its(self.map()),
            Some(parts) => is_its(self.map()) || parts.iter().any(|part| is_its(&part.map)),
        }
    }

    /// Whether a column of that map is asked for these bytes of the column.
    pub(crate) fn is_served_by(&self, map: &Map<W>, column: usize, bytes: &Range<u64>) -> bool {
        if !self.has(map.id()) {
            return false;
        }
        let blocks = Blocks::touched(bytes.start, bytes.end.max(bytes.start + 1));
        match (self.migration_in(map), self.shared.table.parts()) {
            (Some(migration), _) => migration.serves(column, blocks),
            (None, None) => self.map().id() == map.id(),
            (None, Some(parts)) => {
                let own = parts.iter().filter(|part| part.map.id() == map.id()).map(|part| part.bytes.clone());
                let bytes = blocks.first * BLOCK..blocks.end() * BLOCK;
                within(&own.collect::<Vec<_>>(), (map.striping(), column), &bytes) == [bytes]
            }
        }
    }

    /// The bytes of the volume that may be in that map.
    pub(super) fn ranges_in(&self, map: MapId) -> Vec<Range<u64>> {
        let is_there =
            |entry: &Entry<W>| entry.map.id() == map || entry.way.as_ref().is_some_and(|(_, other)| other.id() == map);
        self.entries().into_iter().filter(is_there).map(|entry| entry.bytes).collect()
    }

    /// The map that has to be asked for a byte, and a byte up to which, extents as long as in that map, it's the same one.
    pub(crate) fn map_at(&self, offset: u64) -> (Map<W>, u64) {
        if let Some(map) = self.only_map() {
            return (map.clone(), u64::MAX);
        }
        let entries = self.entries();
        let entry = entries.iter().find(|entry| entry.bytes.contains(&offset)).unwrap_or(&entries[0]);
        let map = entry.at(offset).clone();
        let goes = entry.way.is_some();
        // The next extent of a range on its way may be in the other map.
        let until = if goes { map.striping().end_of_extent(offset).min(entry.bytes.end) } else { entry.bytes.end };
        (map, until)
    }

    /// Bytes of the volume, cut into parts that each have to be asked for in one of its maps.
    pub(crate) fn routed(&self, bytes: Range<u64>) -> Vec<(Map<W>, Range<u64>)> {
        let mut routed: Vec<(Map<W>, Range<u64>)> = Vec::new();
        for entry in self.entries() {
            let own = bytes.start.max(entry.bytes.start)..bytes.end.min(entry.bytes.end);
            match &entry.way {
                _ if own.is_empty() => {}
                None => routed.push((entry.map.clone(), own)),
                Some((migration, _)) => {
                    let parts = cut_at_chunks(own, migration.agreed.chunk());
                    routed.extend(parts.map(|part| (entry.at(part.start).clone(), part)));
                }
            }
        }
        routed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::migration::Laid;
    use tepal_placement::Geometry;

    /// Story: a column was asked for blocks of a range that other columns' map has.
    #[test]
    #[expect(clippy::single_range_in_vec_init, reason = "one range of several")]
    fn of_a_column_only_the_blocks_of_the_maps_own_ranges_are_its() {
        let laid = Laid { layout: "mirror:2".parse().unwrap(), geometry: Geometry::new(2, 2, 1).unwrap() };
        let own = Own::new(vec![0..4 << 20, 8 << 20..u64::MAX], Striping::new(&laid));
        let within = |column, bytes: Range<u64>| own.within(column, &bytes);
        for column in 0..2 {
            assert_eq!(within(column, 0..6 << 20), [0..2 << 20, 4 << 20..6 << 20]);
            assert_eq!(within(column, 1 << 20..3 << 20), [1 << 20..2 << 20]);
            assert_eq!(within(column, 5 << 20..u64::MAX), [5 << 20..u64::MAX]);
            let block = |mib: u64| Blocks::new((mib << 20) / BLOCK, 1);
            let its = [0, 1, 2, 3, 4, 100].map(|mib| own.has_blocks(column, block(mib)));
            assert_eq!(its, [true, true, false, false, true, true]);
        }
        assert!(own.has(0) && !own.has(4 << 20) && own.has(8 << 20));
        assert!(within(0, 0..0).is_empty());
    }
}
