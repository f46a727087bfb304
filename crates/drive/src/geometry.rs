//! Where everything lies on a drive. All offsets are bytes from the drive's start; byte tables are in `docs/formats.md`.
//!
//! ```text
//! label | header 0 | header 1 | log | state 0 | state 1 | map A | sums A | map B | sums B | slots ... | label
//! ```

use crate::table::{Table, TableKind};
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
    /// Where slot 0 starts. The others follow, one extent each.
    pub slots_start: u64,
    /// How many extents fit.
    pub slots: u32,
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
}

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
        let tables_start = state_start + 2 * state_length;
        let room = size - BLOCK - tables_start;
        let mut slots = u32::try_from(room / EXTENT).unwrap_or(u32::MAX - 1);
        loop {
            let (map, sums, end) = tables(tables_start, slots);
            let slots_start = end.next_multiple_of(EXTENT);
            if slots_start + u64::from(slots) * EXTENT <= size - BLOCK {
                let log_start = LOG_START;
                return Ok(Geometry {
                    size,
                    log_start,
                    log_length: own_log,
                    state_start,
                    state_length,
                    map,
                    sums,
                    slots_start,
                    slots,
                });
            }
            slots -= 1 + slots / 4096;
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
        self.slots_start + u64::from(slot) * EXTENT + u64::from(block) * BLOCK
    }
}

fn tables(start: u64, slots: u32) -> (Table, Table, u64) {
    let mut map = Table::new(MAP_RECORD, slots);
    let mut sums = Table::new(SUM_RECORD, slots);
    let (map_bytes, sum_bytes) = (map.bytes(), sums.bytes());
    map.copies = [start, start + map_bytes + sum_bytes];
    sums.copies = [start + map_bytes, start + 2 * map_bytes + sum_bytes];
    (map, sums, start + 2 * (map_bytes + sum_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_overlaps_and_everything_fits() {
        for size in [MIN_DRIVE, MIN_DRIVE + 4097, 64 << 20, (1 << 30) + 513, 1 << 40, 100 << 40] {
            for (log, state) in
                [(None, 0), (Some(MIN_LOG), 0), (None, default_state(size)), (Some(MIN_LOG), default_state(size))]
            {
                let g = Geometry::new(size, log, state).unwrap();
                let mut parts = vec![
                    (g.state_start, g.state_length),
                    (g.state_start + g.state_length, g.state_length),
                    (0, BLOCK),
                    (HEADERS[0], BLOCK),
                    (HEADERS[1], BLOCK),
                    (g.log_start, g.log_length),
                    (g.map.copies[0], g.map.bytes()),
                    (g.map.copies[1], g.map.bytes()),
                    (g.sums.copies[0], g.sums.bytes()),
                    (g.sums.copies[1], g.sums.bytes()),
                    (g.slots_start, u64::from(g.slots) * EXTENT),
                    (Geometry::label_last(size), BLOCK),
                ];
                parts.sort_unstable();
                assert!(parts.windows(2).all(|w| w[0].0 + w[0].1 <= w[1].0), "{size}: {parts:?}");
                let (start, length) = parts[parts.len() - 1];
                assert!(start + length <= size);
                let lost = size - u64::from(g.slots) * EXTENT;
                let known = log.unwrap_or(0) + 2 * state;
                assert!(lost < size / 200 + known + (1 << 20), "{size}: {lost} bytes hold no data");
            }
        }
    }

    #[test]
    fn what_is_too_small_is_refused() {
        assert_eq!(Geometry::new(MIN_DRIVE - 1, None, 0), Err(GeometryError::TooSmall { size: MIN_DRIVE - BLOCK }));
        assert!(matches!(Geometry::new(MIN_DRIVE, Some(4 << 20), 0), Err(GeometryError::Log { .. })));
        assert!(matches!(Geometry::new(MIN_DRIVE, Some(4096), 0), Err(GeometryError::Log { .. })));
        assert!(matches!(Geometry::new(MIN_DRIVE, None, MIN_DRIVE / 8), Err(GeometryError::State { .. })));
    }
}
