//! Zeros and discards: dealt out to a volume's columns, and cut into steps.

use super::operation::{Clear, Status, Zero};
use super::read_write::{in_volume, migrated};
use super::{Map, Volume};
use crate::column::zero::{STEP, ZEROS_STEP};
use crate::servers::reach::{Again, Undone};
use futures_util::future::join_all;
use std::collections::BTreeSet;
use std::ops::Range;
use tepal_drive::world::World;
use tepal_model::{CHUNK, IoError};

/// So many chunks of a migrating volume are zeroed at once.
const CHUNKS_AT_ONCE: u64 = 16;
/// So many parts of a step that have begun to migrate meanwhile are zeroed at once.
const PARTS_AT_ONCE: usize = 256;
/// For clearing more bytes of a column than this, the primary is asked first which of them hold anything.
const WORTH_ASKING: u64 = 1 << 20;
/// So many bytes of each column are cleared at once: as many as a client's longest request has.
const ASKED_AT_ONCE: u64 = 4 << 30;

impl<W: World> Volume<W> {
    /// Gives the space back. The bytes read as zeros afterwards. Stable when this returns. While the volume is imported nothing is given
    /// back, and the bytes stay as they are.
    pub async fn trim(&self, offset: u64, length: u64) -> Result<(), IoError> {
        if self.live().is_some() {
            return self.check_range(offset, length);
        }
        self.write_zeroes(offset, length, false).await
    }

    /// Writes zeros, stable when this returns; `allocate` keeps the space.
    pub async fn write_zeroes(&self, offset: u64, length: u64, allocate: bool) -> Result<(), IoError> {
        self.check_range(offset, length)?;
        self.check_written(offset, length)?;
        match self.live() {
            None => self.zero_as_ever(offset, length, allocate).await,
            Some(_) => Box::pin(self.zero_live(offset, length, allocate)).await,
        }
    }

    pub(super) async fn zero_as_ever(&self, offset: u64, length: u64, allocate: bool) -> Result<(), IoError> {
        let mut at = offset;
        while at < offset + length {
            let (map, until) = self.map_at(at);
            // Bytes of a range that stays go to one map.
            let stays = until > map.striping().end_of_extent(at);
            let step = match stays {
                true => (if allocate { ZEROS_STEP } else { ASKED_AT_ONCE }) * map.columns() as u64,
                false => CHUNKS_AT_ONCE * CHUNK,
            };
            let next = ((at / step + 1) * step).min(offset + length);
            let next = if stays { next.min(until) } else { next };
            let mut left = match stays {
                true => self.zero_in(&map, at..next, allocate, None).await?,
                false => vec![(at..next, None)],
            };
            while !left.is_empty() {
                let some = left.split_off(left.len().saturating_sub(PARTS_AT_ONCE));
                left.extend(Box::pin(self.zero_routed(some, allocate)).await?);
            }
            at = next;
        }
        Ok(())
    }

    /// Zeroes bytes in one map. Returns the parts that another map has by now.
    async fn zero_in(
        &self,
        map: &Map<W>,
        bytes: Range<u64>,
        allocate: bool,
        again: Option<&Again>,
    ) -> Result<Vec<(Range<u64>, Option<Again>)>, IoError> {
        let columns = map.columns();
        let within = (0..columns).map(|column| (column, map.striping().within(column, bytes.clone())));
        let within = within.filter(|(_, range)| !range.is_empty());
        let steps = within.map(async |(column, range)| match (allocate, again) {
            (true, _) => Ok(in_steps(range, ZEROS_STEP).map(|range| (column, range)).collect()),
            (false, None) if self.is_of_any_revision() => self.steps_to_clear(map, column, range).await,
            // A zero of one revision comes behind all that was begun by an earlier one: it takes a place in the queue.
            (false, _) => Ok(in_steps(range, STEP).map(|range| (column, range)).collect()),
        });
        let parts: Vec<Vec<(usize, Range<u64>)>> = join_all(steps).await.into_iter().collect::<Result<_, IoError>>()?;
        let mut parts = parts.concat();
        parts.sort_by_key(|(_, range)| range.start);
        let zero = async |(column, range): &(usize, Range<u64>)| {
            self.at_primary(map, *column, &Zero { range: range.clone(), allocate }, again).await
        };
        let mut left = Vec::new();
        // One step of each column at a time.
        for parts in parts.chunks(columns) {
            for ((column, range), again) in migrated(parts.iter().zip(join_all(parts.iter().map(zero)).await))? {
                left.extend(in_volume(map, *column, range.clone()).map(|bytes| (bytes, Some(again.clone()))));
            }
        }
        Ok(left)
    }

    /// The steps in which a range of a column is cleared. A discard of a whole disk comes as thousands of ranges, each
    /// in all columns. Most of them hold nothing, as the primary says of a long range at once. A range that reads as a
    /// hole needs no clearing.
    async fn steps_to_clear(
        &self,
        map: &Map<W>,
        column: usize,
        range: Range<u64>,
    ) -> Result<Vec<(usize, Range<u64>)>, IoError> {
        let is_own = !map.is_among() && map.migration().is_none();
        let group = is_own.then(|| map.seats().get(column)?.group()).flatten();
        if group.is_some_and(|group| group.has_nothing_of(self.id(), &range)) {
            return Ok(Vec::new());
        }
        let (mut at, mut held) = (range.start, Vec::new());
        while range.end - at > WORTH_ASKING {
            let status = Status { offset: at, length: range.end - at, at: None, since: None };
            match self.at_primary(map, column, &status, None).await {
                Ok(runs) => {
                    for (length, holds) in runs {
                        held.extend(holds.then_some(at..at + length));
                        at += length;
                    }
                }
                Err(Undone::Io(error)) => return Err(error),
                Err(Undone::Migrated(_)) => break, // by the time of the clearing, too
            }
        }
        held.push(at..range.end); // this may hold something
        Ok(steps_with(&range, held).map(|step| (column, step)).collect())
    }

    async fn zero_routed(
        &self,
        parts: Vec<(Range<u64>, Option<Again>)>,
        allocate: bool,
    ) -> Result<Vec<(Range<u64>, Option<Again>)>, IoError> {
        let routed = parts.iter().flat_map(|(bytes, again)| {
            self.routed(bytes.clone()).into_iter().map(move |(map, bytes)| (map, bytes, again.as_ref()))
        });
        let zero = async |(map, bytes, again): (Map<W>, Range<u64>, Option<&Again>)| {
            self.zero_in(&map, bytes, allocate, again).await
        };
        let left: Vec<_> = join_all(routed.map(zero)).await.into_iter().collect::<Result<Vec<_>, IoError>>()?.concat();
        if !left.is_empty() {
            self.in_a_moment().await?;
        }
        Ok(left)
    }

    /// Takes out the data past the volume's end. Data that was cut off doesn't come back when the volume grows again,
    /// if the volume is still the same then, of the same size in the same epoch, and had no other size since this
    /// began.
    pub async fn clear_past_end(&self) -> Result<(), IoError> {
        loop {
            let maps = self.maps();
            let mut is_done = true;
            // Chunks that go from the first map to the second meanwhile are cleared in one of them.
            for map in in_order_of_going(&maps) {
                let clear =
                    async |column| self.at_primary(map, column, &Clear { from: self.end_in(map, column) }, None).await;
                let outcomes = join_all((0..map.columns()).map(clear)).await;
                is_done &= migrated((0..).zip(outcomes))?.is_empty();
            }
            let now = self.maps();
            let is_same = now.len() == maps.len()
                && in_order_of_going(&now).map(Map::id).eq(in_order_of_going(&maps).map(Map::id));
            if is_done && is_same {
                return Ok(());
            }
            self.in_a_moment().await?;
        }
    }
}

/// The steps of a range that contain any of these bytes.
fn steps_with(range: &Range<u64>, bytes: Vec<Range<u64>>) -> impl Iterator<Item = Range<u64>> {
    let bytes = bytes.into_iter().filter(|bytes| !bytes.is_empty());
    let steps: BTreeSet<u64> = bytes.flat_map(|bytes| bytes.start / STEP..bytes.end.div_ceil(STEP)).collect();
    let Range { start, end } = *range;
    steps.into_iter().map(move |step| (step * STEP).max(start)..((step + 1) * STEP).min(end))
}

/// Cuts a range so that no step is done in part when it's refused: a step that has been done must not be done again,
/// over others' later writes.
fn in_steps(range: Range<u64>, step: u64) -> impl Iterator<Item = Range<u64>> {
    let Range { start, end } = range;
    let count = if start < end { end.div_ceil(step) - start / step } else { 0 };
    (0..count).map(move |nth| {
        let from = (start / step + nth) * step;
        from.max(start)..(from + step).min(end)
    })
}

/// The maps, the source first.
fn in_order_of_going<W: World>(maps: &[Map<W>]) -> impl Iterator<Item = &Map<W>> {
    let takes = |map: &&Map<W>| map.migration().is_some_and(|migration| migration.takes());
    let targets: Vec<bool> = maps.iter().map(|map| takes(&map)).collect();
    let is_target = targets.clone();
    let sources = maps.iter().zip(targets).filter(|(_, takes)| !takes).map(|(map, _)| map);
    sources.chain(maps.iter().zip(is_target).filter(|(_, takes)| *takes).map(|(map, _)| map))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Story: zeros of two steps were refused at the second step, for the volume had begun to migrate. Both steps were
    /// done again, the first one over newer writes.
    #[test]
    #[expect(clippy::single_range_in_vec_init, reason = "one run of several")]
    fn zeros_are_written_step_by_step() {
        let with = |bytes| steps_with(&(5..3 * STEP - 1), bytes).collect::<Vec<_>>();
        assert_eq!(with(vec![7..7, STEP + 3..STEP + 3]), [], "there's nothing to clear");
        assert_eq!(with(vec![6..7, STEP - 1..STEP]), [5..STEP]);
        assert_eq!(
            with(vec![STEP - 1..STEP + 1, 3 * STEP - 2..3 * STEP - 1]),
            [5..STEP, STEP..2 * STEP, 2 * STEP..3 * STEP - 1]
        );
        let steps = |range| in_steps(range, 10).collect::<Vec<_>>();
        assert_eq!(steps(3..25), [3..10, 10..20, 20..25]);
        assert_eq!([steps(10..20), steps(12..13), steps(7..7)].concat(), [10..20, 12..13]);
    }
}
