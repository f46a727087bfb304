//! The ranges of a volume: which global map has which of its bytes.

use crate::MapId;
use std::fmt;
use std::ops::Range;
use std::str::FromStr;

/// A volume's ranges in order, each with its map. Each begins where the one before it ends; the last one goes on past the volume's end,
/// so what a volume grows by is the last range's. Of two neighbours the maps differ; ranges that aren't neighbours may have the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ranges {
    /// The first byte of each, ascending from 0.
    list: Vec<(u64, MapId)>,
}

/// A volume has at most so many ranges.
pub const MOST_RANGES: usize = 64;

/// Why a text isn't a list of ranges.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("ranges are first bytes and maps, as 0:1,4194304:2, ascending from 0")]
pub struct RangesError;

impl Ranges {
    /// All in one map.
    #[must_use]
    pub fn all_in(map: MapId) -> Self {
        Ranges { list: vec![(0, map)] }
    }

    /// `None` unless they ascend from 0 and neighbours have different maps.
    #[must_use]
    pub fn new(list: Vec<(u64, MapId)>) -> Option<Self> {
        let begins = list.first().is_some_and(|(first, _)| *first == 0);
        let ascends = list.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 != pair[1].1);
        (begins && ascends && list.len() <= MOST_RANGES).then_some(Ranges { list })
    }

    /// How many there are, at least one.
    #[must_use]
    pub fn count(&self) -> usize {
        self.list.len()
    }

    /// The map of a byte.
    #[must_use]
    pub fn at(&self, offset: u64) -> MapId {
        self.list[self.list.partition_point(|(first, _)| *first <= offset) - 1].1
    }

    /// The ranges with their maps. The last one ends at `u64::MAX`.
    pub fn iter(&self) -> impl Iterator<Item = (Range<u64>, MapId)> + '_ {
        let ends = self.list.iter().skip(1).map(|(first, _)| *first).chain([u64::MAX]);
        self.list.iter().zip(ends).map(|((first, map), end)| (*first..end, *map))
    }

    /// Each map once, in the order of the first range that has it.
    #[must_use]
    pub fn maps(&self) -> Vec<MapId> {
        let mut maps = Vec::new();
        for (_, map) in &self.list {
            if !maps.contains(map) {
                maps.push(*map);
            }
        }
        maps
    }

    /// Whether a range has this map.
    #[must_use]
    pub fn has(&self, map: MapId) -> bool {
        self.list.iter().any(|(_, own)| *own == map)
    }

    /// The bytes that are in this map.
    #[must_use]
    pub fn of(&self, map: MapId) -> Vec<Range<u64>> {
        self.iter().filter(|(_, own)| *own == map).map(|(bytes, _)| bytes).collect()
    }

    /// The same, but these bytes are in that map.
    #[must_use]
    pub fn with(&self, bytes: &Range<u64>, map: MapId) -> Self {
        let mut list: Vec<(u64, MapId)> = Vec::new();
        let mut add = |first: u64, map: MapId| {
            if list.last().is_none_or(|(_, last)| *last != map) {
                list.push((first, map));
            }
        };
        let before = self.iter().filter(|(own, _)| own.start < bytes.start);
        before.for_each(|(own, map)| add(own.start, map));
        add(bytes.start, map);
        let behind = self.iter().filter(|(own, _)| own.end > bytes.end);
        behind.for_each(|(own, map)| add(own.start.max(bytes.end), map));
        Ranges { list }
    }
}

impl fmt::Display for Ranges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (nth, (first, map)) in self.list.iter().enumerate() {
            let comma = if nth == 0 { "" } else { "," };
            write!(f, "{comma}{first}:{}", map.0)?;
        }
        Ok(())
    }
}

impl FromStr for Ranges {
    type Err = RangesError;

    fn from_str(text: &str) -> Result<Self, RangesError> {
        let one = |part: &str| {
            let (first, map) = part.split_once(':')?;
            Some((first.parse().ok()?, MapId(map.parse().ok()?)))
        };
        let list: Option<Vec<_>> = text.split(',').map(one).collect();
        list.and_then(Ranges::new).ok_or(RangesError)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(text: &str) -> Ranges {
        text.parse().unwrap()
    }

    #[test]
    fn each_byte_has_the_map_of_the_range_it_is_in() {
        let ranges = ranges("0:1,100:2,200:1");
        let at = [0, 99, 100, 199, 200, u64::MAX - 1].map(|offset| ranges.at(offset).0);
        assert_eq!(at, [1, 1, 2, 2, 1, 1]);
        assert_eq!(ranges.maps(), [MapId(1), MapId(2)]);
        assert_eq!(ranges.of(MapId(1)), [0..100, 200..u64::MAX]);
        assert!(ranges.has(MapId(2)) && !ranges.has(MapId(3)));
    }

    #[test]
    fn bytes_that_go_to_a_map_are_cut_out_and_joined_to_neighbours_of_that_map() {
        let with = |text: &str, bytes: Range<u64>, map| ranges(text).with(&bytes, MapId(map)).to_string();
        assert_eq!(with("0:1", 0..100, 2), "0:2,100:1");
        assert_eq!(with("0:1", 100..200, 2), "0:1,100:2,200:1");
        assert_eq!(with("0:1", 100..u64::MAX, 2), "0:1,100:2");
        assert_eq!(with("0:1", 0..u64::MAX, 2), "0:2");
        assert_eq!(with("0:1,100:2,200:1", 100..200, 1), "0:1");
        assert_eq!(with("0:1,100:2,200:3", 150..200, 3), "0:1,100:2,150:3");
        assert_eq!(with("0:1,100:2,200:3", 100..150, 1), "0:1,150:2,200:3");
    }

    #[test]
    fn only_ranges_that_ascend_from_zero_are_read_back() {
        for text in ["0:1", "0:1,4194304:2,8388608:1"] {
            assert_eq!(ranges(text).to_string(), text);
        }
        for text in ["", "1:1", "0:1,0:2", "0:1,5:1", "0:1,9:2,5:1", "0:1,", "0", "0:-1", "0:1,x:2"] {
            assert_eq!(text.parse::<Ranges>(), Err(RangesError), "{text}");
        }
        let many: Vec<String> = (0..=MOST_RANGES).map(|nth| format!("{nth}:{}", nth % 2)).collect();
        assert!(many.join(",").parse::<Ranges>().is_err() && many[1..].len() == MOST_RANGES);
    }
}
