//! Where everything lies on a drive. All offsets are bytes from the drive's start; byte tables are in `docs/formats.md`.
//!
//! ```text
//! label | header 0 | header 1 | log | state 0 | state 1 | map A | sums A | map B | sums B | slots ... | label
//! ```
//!
//! What a drive has grown by is a section of its own behind the label that was its last. Slots and pages go on being counted there:
//!
//! ```text
//! | map A | sums A | map B | sums B | slots ... | label
//! ```

use crate::table::{PageRun, Table, TableKind};
use std::ops::RangeInclusive;
use tepal_model::{BLOCK, EXTENT};

/// Smallest drive, in bytes.
pub const MIN_DRIVE: u64 = 8 << 20;
/// Smallest log, in bytes.
pub const MIN_LOG: u64 = 1 << 20;
/// Largest log, in bytes. What a log device has beyond it isn't used.
pub const MAX_LOG: u64 = 1 << 30;

/// Bytes of a map record: map, epoch, index, present.
pub const MAP_RECORD: usize = 16;
/// Bytes of a checksum record: one CRC for each block of the slot.
pub const SUM_RECORD: usize = 64;

/// The places on one drive. They follow from the sizes that the label says, so they aren't stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Whole blocks of the device, in bytes.
    pub size: u64,
    /// Where the log starts, on the drive itself or on a log device of its own.
    pub log_start: u64,
    /// Bytes of the log; 0 if it's on a device of its own, until that device's is filled in.
    pub log_length: u64,
    /// Where the first of the two places starts in which the cluster's state is kept; the other one follows.
    pub state_start: u64,
    /// Bytes of each of these; 0 on drives that keep none.
    pub state_length: u64,
    /// Which extent each slot holds.
    pub map: Table,
    /// The checksums of each slot's blocks.
    pub sums: Table,
    /// Where slot 0 starts. The others of the first section follow, one extent each.
    pub slots_start: u64,
    /// How many extents fit.
    pub slots: u32,
    /// Where the slots of each section are; one section, and one more for each time that the drive has grown.
    slot_runs: Vec<SlotRun>,
}

/// Slots that lie side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SlotRun {
    /// The number of the first one.
    first: u32,
    /// Where that starts, in bytes.
    start: u64,
}

/// Why a device can't be a drive. Choose a larger device, or another length of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GeometryError {
    /// Less than [`MIN_DRIVE`].
    #[error("{size} bytes are too few for a drive: it needs at least {MIN_DRIVE}")]
    TooSmall {
        /// What the device has, in whole blocks.
        size: u64,
    },
    /// Also of a device that is to hold nothing but a log.
    #[error(
        "a log of {length} bytes doesn't fit: it takes {MIN_LOG} to {MAX_LOG} bytes and at most a quarter of the drive"
    )]
    Log {
        /// What was asked for, in whole blocks; or what a log device has room for.
        length: u64,
    },
    /// The label says a length that no drive has.
    #[error(
        "the label says that the drive, of {size} bytes, has two places of {length} bytes for copies of the cluster's state: each has a \
         sixteenth of the drive at most, and no more than {}. It is damaged, or of a later version", STATE.end()
    )]
    State {
        /// What the device has, in whole blocks.
        size: u64,
        /// Of each.
        length: u64,
    },
    /// The label says that the drive has grown to a size that no drive grows to.
    #[error(
        "the label says that the drive has grown from {from} to {to} bytes, which gains it nothing. It is damaged, or of a later version"
    )]
    Growth {
        /// Its size before.
        from: u64,
        /// Its size afterwards.
        to: u64,
    },
}

/// As many as can be counted, less one.
const MOST_SLOTS: u32 = u32::MAX - 1;

/// Where the first copy of the label is.
pub const LABEL_FIRST: u64 = 0;
/// Where the two headers are. The first is written to commit a checkpoint, the other when all of it is written.
pub const HEADERS: [u64; 2] = [BLOCK, 2 * BLOCK];
const LOG_START: u64 = 4 * BLOCK;

/// A log that keeps restarts short on small drives and group commits long on large ones.
pub fn default_log(size: u64) -> u64 {
    (size / 64).clamp(MIN_LOG, 256 << 20) / BLOCK * BLOCK
}

/// The shortest and the longest place for the cluster's state, in bytes.
const STATE: RangeInclusive<u64> = 128 << 10..=64 << 20;

/// Room for the state of about a hundred volumes on the smallest drives, and of as many as a cluster may have on those of a few GiB.
pub fn default_state(size: u64) -> u64 {
    (size / 256).clamp(*STATE.start(), *STATE.end()) / BLOCK * BLOCK
}

impl Geometry {
    /// `log_length` is what the drive's own log takes, `None` if the log is on a device of its own. `state_length` is what each place
    /// for the cluster's state takes, 0 if there is none.
    pub fn new(size: u64, log_length: Option<u64>, state_length: u64) -> Result<Self, GeometryError> {
        let size = size / BLOCK * BLOCK;
        if size < MIN_DRIVE {
            return Err(GeometryError::TooSmall { size });
        }
        let own_log = log_length.unwrap_or(0) / BLOCK * BLOCK;
        if log_length.is_some() && (!(MIN_LOG..=MAX_LOG).contains(&own_log) || own_log > size / 4) {
            return Err(GeometryError::Log { length: own_log });
        }
        let state_start = LOG_START + own_log;
        if state_length > size / 16 || state_length > *STATE.end() {
            return Err(GeometryError::State { size, length: state_length });
        }
        let mut new = Geometry {
            size,
            log_start: LOG_START,
            log_length: own_log,
            state_start,
            state_length,
            map: Table::empty(MAP_RECORD),
            sums: Table::empty(SUM_RECORD),
            slots_start: 0,
            slots: 0,
            slot_runs: Vec::new(),
        };
        if !new.add_section(state_start + 2 * state_length, Self::label_last(size)) {
            return Err(GeometryError::TooSmall { size });
        }
        new.slots_start = new.slot_runs[0].start;
        Ok(new)
    }

    /// The same drive on a device that was enlarged to `size` bytes.
    pub fn grown(mut self, size: u64) -> Result<Self, GeometryError> {
        let (from, to) = (self.size, size / BLOCK * BLOCK);
        if to <= from || !self.add_section(from, Self::label_last(to)) {
            return Err(GeometryError::Growth { from, to });
        }
        self.size = to;
        Ok(self)
    }

    /// The smallest size that gains the drive a slot; none if it has as many as there may be.
    pub fn least_growth(&self) -> Option<u64> {
        (self.slots < MOST_SLOTS).then(|| self.section(self.size, 1).slots_start + EXTENT + BLOCK)
    }

    /// As many more slots as there's room for from here to there, with the pages of their records. Whether that's any.
    fn add_section(&mut self, from: u64, end: u64) -> bool {
        let mut slots = u32::try_from(end.saturating_sub(from) / EXTENT).unwrap_or(u32::MAX);
        slots = slots.min(MOST_SLOTS - self.slots);
        while slots > 0 {
            let Section { map, sums, slots_start } = self.section(from, slots);
            if slots_start + u64::from(slots) * EXTENT <= end {
                self.map.runs.extend((self.map.pages < map.pages).then_some(map.run));
                self.sums.runs.extend((self.sums.pages < sums.pages).then_some(sums.run));
                (self.map.pages, self.sums.pages) = (map.pages, sums.pages);
                self.slot_runs.push(SlotRun { first: self.slots, start: slots_start });
                self.slots += slots;
                return true;
            }
            slots -= 1 + slots / 4096;
        }
        false
    }

    /// Where so many more slots would be, and the pages of their records that aren't there yet.
    fn section(&self, from: u64, slots: u32) -> Section {
        let pages = [&self.map, &self.sums].map(|table| table.pages_for(self.slots + slots));
        let [map_bytes, sum_bytes] =
            [pages[0] - self.map.pages, pages[1] - self.sums.pages].map(|added| u64::from(added) * BLOCK);
        let second = from + map_bytes + sum_bytes;
        let map = PageRun { first: self.map.pages, copies: [from, second] };
        let sums = PageRun { first: self.sums.pages, copies: [from + map_bytes, second + map_bytes] };
        Section {
            map: Pages { pages: pages[0], run: map },
            sums: Pages { pages: pages[1], run: sums },
            slots_start: (second + map_bytes + sum_bytes).next_multiple_of(EXTENT),
        }
    }

    /// The log of a device that holds nothing else but its label.
    pub fn log_device(size: u64) -> Result<(u64, u64), GeometryError> {
        let length = (size / BLOCK * BLOCK).saturating_sub(LOG_START + BLOCK).min(MAX_LOG);
        if length < MIN_LOG {
            return Err(GeometryError::Log { length });
        }
        Ok((LOG_START, length))
    }

    /// Where the last copy of the label is, on a drive of `size` bytes.
    pub fn label_last(size: u64) -> u64 {
        size / BLOCK * BLOCK - BLOCK
    }

    /// Where the places for copies of the cluster's state start; none on drives that keep none.
    pub fn state_places(&self) -> impl Iterator<Item = u64> + use<> {
        let starts = [self.state_start, self.state_start + self.state_length];
        let keeps = self.state_length > 0;
        starts.into_iter().filter(move |_| keeps)
    }

    /// Where the table of this kind lies.
    pub fn table(&self, kind: TableKind) -> &Table {
        match kind {
            TableKind::Map => &self.map,
            TableKind::Sums => &self.sums,
        }
    }

    /// Where a block of a slot lies.
    pub fn block_offset(&self, slot: u32, block: u32) -> u64 {
        assert!(slot < self.slots, "slot {slot} of {}", self.slots);
        let run = self.slot_runs[self.slot_runs.partition_point(|run| run.first <= slot) - 1];
        run.start + u64::from(slot - run.first) * EXTENT + u64::from(block) * BLOCK
    }
}

/// What a section would add.
struct Section {
    map: Pages,
    sums: Pages,
    slots_start: u64,
}

/// Of one table: how many pages there would be, and where the new ones.
struct Pages {
    pages: u32,
    run: PageRun,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All that is anywhere on the drive, as start and length. `ends` are its sizes, the last one included.
    fn parts(g: &Geometry, ends: &[u64]) -> Vec<(u64, u64)> {
        let mut parts = vec![
            (g.state_start, g.state_length),
            (g.state_start + g.state_length, g.state_length),
            (0, BLOCK),
            (HEADERS[0], BLOCK),
            (HEADERS[1], BLOCK),
            (g.log_start, g.log_length),
        ];
        for table in [&g.map, &g.sums] {
            let pages = (0..table.pages).flat_map(|page| [0, 1].map(|copy| (table.offset(copy, page), BLOCK)));
            parts.extend(pages);
        }
        parts.extend((0..g.slots).map(|slot| (g.block_offset(slot, 0), EXTENT)));
        parts.extend(ends.iter().map(|&size| (Geometry::label_last(size), BLOCK)));
        parts.sort_unstable();
        parts
    }

    fn check_apart(g: &Geometry, ends: &[u64]) {
        let parts = parts(g, ends);
        let overlap = parts.windows(2).find(|w| w[0].0 + w[0].1 > w[1].0);
        assert_eq!(overlap, None, "{ends:?}");
        let (start, length) = parts[parts.len() - 1];
        assert!(start + length <= g.size);
        let records = |table: &Table| u64::from(table.pages) * u64::from(table.records_per_page());
        assert!([&g.map, &g.sums].map(records).iter().all(|&records| records >= u64::from(g.slots)));
    }

    #[test]
    fn nothing_overlaps_and_everything_fits() {
        for size in [MIN_DRIVE, MIN_DRIVE + 4097, 64 << 20, (1 << 30) + 513, 64 << 30] {
            for (log, state) in
                [(None, 0), (Some(MIN_LOG), 0), (None, default_state(size)), (Some(MIN_LOG), default_state(size))]
            {
                let g = Geometry::new(size, log, state).unwrap();
                check_apart(&g, &[size]);
                check_what_is_lost(&g, log.unwrap_or(0) + 2 * state);
            }
        }
        for size in [1 << 40, 100 << 40] {
            check_what_is_lost(&Geometry::new(size, Some(MIN_LOG), 0).unwrap(), MIN_LOG);
        }
    }

    fn check_what_is_lost(g: &Geometry, known: u64) {
        let lost = g.size - u64::from(g.slots) * EXTENT;
        assert!(lost < g.size / 200 + known + (1 << 20), "{}: {lost} bytes hold no data", g.size);
    }

    #[test]
    fn what_several_growths_add_overlaps_nothing_and_moves_nothing() {
        for steps in
            [&[64 << 10, 4096, 513, 5 << 20][..], &[1 << 20; 40], &[1 << 30, 3 << 20, 7 << 30], &[0, 100 << 20]]
        {
            let mut g = Geometry::new(MIN_DRIVE, Some(MIN_LOG), default_state(MIN_DRIVE)).unwrap();
            let (mut ends, mut size) = (vec![MIN_DRIVE], MIN_DRIVE);
            for step in steps {
                size += step;
                let least = g.least_growth().unwrap();
                if size / BLOCK * BLOCK < least {
                    assert_eq!(
                        g.clone().grown(size),
                        Err(GeometryError::Growth { from: g.size, to: size / BLOCK * BLOCK })
                    );
                    continue;
                }
                let before = g.clone();
                g = g.grown(size).unwrap();
                ends.push(size);
                check_apart(&g, &ends);
                assert!((0..before.slots).all(|slot| g.block_offset(slot, 3) == before.block_offset(slot, 3)));
                for (now, before) in [(&g.map, &before.map), (&g.sums, &before.sums)] {
                    assert!((0..before.pages).all(|page| now.offset(1, page) == before.offset(1, page)));
                }
            }
            assert!(ends.len() > 1, "{steps:?}");
            check_what_is_lost(&g, MIN_LOG + 2 * default_state(MIN_DRIVE) + ends.len() as u64 * (EXTENT + 5 * BLOCK));
        }
    }

    #[test]
    fn the_least_growth_gains_one_slot_and_a_block_less_none() {
        let mut g = Geometry::new(MIN_DRIVE, Some(MIN_LOG), 0).unwrap();
        for _ in 0..300 {
            let least = g.least_growth().unwrap();
            assert!(g.clone().grown(least - 1).is_err());
            let slots = g.slots;
            g = g.grown(least).unwrap();
            assert_eq!(g.slots, slots + 1);
        }
    }

    #[test]
    fn a_drive_with_as_many_slots_as_can_be_counted_grows_no_more() {
        let g = Geometry::new(300 << 40, Some(MIN_LOG), 0).unwrap();
        assert_eq!((g.slots, g.least_growth()), (MOST_SLOTS, None));
        assert!(g.grown(400 << 40).is_err());
    }

    #[test]
    fn what_is_too_small_is_refused() {
        assert_eq!(Geometry::new(MIN_DRIVE - 1, None, 0), Err(GeometryError::TooSmall { size: MIN_DRIVE - BLOCK }));
        assert!(matches!(Geometry::new(MIN_DRIVE, Some(4 << 20), 0), Err(GeometryError::Log { .. })));
        assert!(matches!(Geometry::new(MIN_DRIVE, Some(4096), 0), Err(GeometryError::Log { .. })));
        assert!(matches!(Geometry::new(MIN_DRIVE, None, MIN_DRIVE / 8), Err(GeometryError::State { .. })));
    }
}
