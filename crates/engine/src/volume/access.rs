//! A volume's bytes, read, written, zeroed: dealt out to its columns, and put together again.

use super::operation::{Clear, Read, Status, Write, Zero};
use super::{Map, Volume};
use crate::column::Group;
use crate::column::bytes::Rest;
use crate::column::zero::{STEP, ZEROS_STEP};
use crate::map::Part;
use crate::servers::reach::{Again, Undone};
use bytes::Bytes;
use futures_util::future::join_all;
use std::collections::BTreeSet;
use std::ops::Range;
use std::time::Duration;
use tepal_drive::world::{Gather, World};
use tepal_model::layout::Durability;
use tepal_model::{CHUNK, Epoch, IoError, Segments};

/// The pause before a request is made to another map.
const MOMENT: Duration = Duration::from_millis(1);

/// So many chunks of a migrating volume are zeroed at once.
const CHUNKS_AT_ONCE: u64 = 16;
/// So many parts of a step that have begun to migrate meanwhile are zeroed at once.
const PARTS_AT_ONCE: usize = 256;
/// For clearing more bytes of a column than this, the primary is asked first which of them hold anything.
const WORTH_ASKING: u64 = 1 << 20;
/// So many bytes of each column are cleared at once: as many as a client's longest request has.
const ASKED_AT_ONCE: u64 = 4 << 30;

impl<W: World> Volume<W> {
    pub(super) fn check_range(&self, offset: u64, length: u64) -> Result<(), IoError> {
        let size = self.size();
        match offset.checked_add(length) {
            Some(end) if end <= size => Ok(()),
            _ => Err(IoError::OutOfRange { offset, length, size }),
        }
    }

    /// The bytes, in pieces that joined are `length` long. Bytes that no drive holds read as zeros. Waits for copies
    /// that may return; `Damaged` if no copy can be read.
    pub async fn read(&self, offset: u64, length: u64) -> Result<Segments, IoError> {
        self.check_range(offset, length)?;
        self.read_at(offset, length, None).await
    }

    /// Bytes of a snapshot, or of the volume as it is now.
    pub(super) async fn read_at(&self, offset: u64, length: u64, at: Option<Epoch>) -> Result<Segments, IoError> {
        let map = self.map();
        if self.migration().is_none() {
            match self.read_in(map, offset, length, at).await {
                Ok(segments) => return Ok(segments),
                Err(Undone::Io(error)) => return Err(error),
                Err(Undone::Migrated(_)) => {}
            }
        }
        Box::pin(self.read_migrating(offset, length, at)).await
    }

    async fn read_in(&self, map: &Map<W>, offset: u64, length: u64, at: Option<Epoch>) -> Result<Segments, Undone> {
        let parts = map.striping().parts(offset, length);
        if let [part] = parts.as_slice() {
            return self.read_part(map, part, at).await;
        }
        let mut found: Vec<(usize, Segments)> = Vec::new();
        let reads = join_all(parts.iter().map(|part| self.read_part(map, part, at)));
        for (part, segments) in parts.iter().zip(reads.await) {
            let mut rest = Rest::of(segments?);
            found.extend(part.slices.iter().map(|slice| (slice.start, rest.next(slice.len()))));
        }
        found.sort_unstable_by_key(|(start, _)| *start);
        Ok(found.into_iter().flat_map(|(_, segments)| segments).collect())
    }

    async fn read_part(&self, map: &Map<W>, part: &Part, at: Option<Epoch>) -> Result<Segments, Undone> {
        self.at_primary(map, part.column, &Read { offset: part.offset, length: part.length(), at }, None).await
    }

    /// Reads while the volume migrates. Parts that have migrated meanwhile are read again from the other map.
    async fn read_migrating(&self, offset: u64, length: u64, at: Option<Epoch>) -> Result<Segments, IoError> {
        'again: loop {
            let routed = self.routed(offset..offset + length);
            let read = |(map, bytes): (_, Range<u64>)| self.read_in(map, bytes.start, bytes.end - bytes.start, at);
            let reads = join_all(routed.iter().map(|(map, bytes)| read((map, bytes.clone())))).await;
            let mut found = Segments::new();
            for segments in reads {
                match segments {
                    Ok(segments) => found.extend(segments),
                    Err(Undone::Io(error)) => return Err(error),
                    Err(Undone::Migrated(_)) => {
                        self.in_a_moment().await?;
                        continue 'again;
                    }
                }
            }
            return Ok(found);
        }
    }

    /// Pauses before a request is made to another map: this server may have to follow first.
    pub(crate) async fn in_a_moment(&self) -> Result<(), IoError> {
        let Some(engine) = self.engine() else { return Err(IoError::Stopping) };
        engine.world().sleep(MOMENT).await;
        Ok(())
    }

    /// With `fua`, the data is stable before this returns, whatever the layout's durability.
    pub async fn write(&self, offset: u64, data: Bytes, fua: bool) -> Result<(), IoError> {
        self.check_range(offset, data.len() as u64)?;
        let map = self.map();
        if self.migration().is_some() {
            return Box::pin(self.write_migrating(vec![Piece { offset, data, again: None }], fua)).await;
        }
        let parts = map.striping().parts(offset, data.len() as u64);
        if let [part] = parts.as_slice() {
            let gather = Gather::from_iter([data.clone()]);
            return match self.write_part(map, part, gather, (fua, None)).await {
                Ok(()) => Ok(()),
                Err(Undone::Io(error)) => Err(error),
                Err(Undone::Migrated(again)) => {
                    let pieces = pieces_of(map, part, &Gather::from_iter([data]), &again);
                    Box::pin(self.write_migrating(pieces, fua)).await
                }
            };
        }
        // Parts that are stable once they are done can't be lost with a drive's cache.
        let is_stable = fua || self.is_strict();
        let unstable = parts.iter().filter(|_| !is_stable).filter_map(|part| map.seats()[part.column].group());
        let lost_before: Vec<(Group<W>, u64)> = unstable.map(|group| (group.clone(), group.times_lost())).collect();
        let gather = |part: &Part| part.slices.iter().map(|slice| data.slice(slice.clone())).collect::<Gather>();
        let write = |part| self.write_part(map, part, gather(part), (fua, None));
        // All parts take their places in their queues before any is waited for.
        let migrated = migrated(parts.iter().zip(join_all(parts.iter().map(write)).await))?;
        if !migrated.is_empty() {
            let pieces = migrated.into_iter().flat_map(|(part, again)| pieces_of(map, part, &gather(part), &again));
            Box::pin(self.write_migrating(pieces.collect(), fua)).await?;
        }
        // A drive may have lost its part before another part was done, and have been the only one that had it.
        match lost_before.into_iter().find_map(|(group, before)| group.lost_since(before)) {
            Some(reason) => Err(IoError::Unavailable { reason }),
            None => Ok(()),
        }
    }

    async fn write_part(
        &self,
        map: &Map<W>,
        part: &Part,
        data: Gather,
        (fua, again): (bool, Option<&Again>),
    ) -> Result<(), Undone> {
        self.at_primary(map, part.column, &Write { offset: part.offset, data, fua }, again).await
    }

    /// Writes while the volume migrates.
    async fn write_migrating(&self, mut pieces: Vec<Piece>, fua: bool) -> Result<(), IoError> {
        loop {
            let mut asked: Vec<Asked<W>> = Vec::new();
            for Piece { offset, data, again } in &pieces {
                for (map, bytes) in self.routed(*offset..offset + data.len() as u64) {
                    let data = data.slice((bytes.start - offset) as usize..(bytes.end - offset) as usize);
                    for part in map.striping().parts(bytes.start, data.len() as u64) {
                        let data = part.slices.iter().map(|slice| data.slice(slice.clone())).collect();
                        asked.push(Asked { map: map.clone(), part, data, again: again.clone() });
                    }
                }
            }
            let write = |asked: &Asked<W>| {
                let Asked { map, part, data, again } = asked.clone();
                async move { self.write_part(&map, &part, data, (fua, again.as_ref())).await }
            };
            let migrated = migrated(asked.iter().zip(join_all(asked.iter().map(write)).await))?;
            if migrated.is_empty() {
                return Ok(());
            }
            let of = |(asked, again): (&Asked<W>, Again)| pieces_of(&asked.map, &asked.part, &asked.data, &again);
            pieces = migrated.into_iter().flat_map(of).collect();
            self.in_a_moment().await?;
        }
    }

    fn is_strict(&self) -> bool {
        self.lock().layout.durability == Durability::Strict
    }

    /// Gives the space back. The bytes read as zeros afterwards. Stable when this returns.
    pub async fn trim(&self, offset: u64, length: u64) -> Result<(), IoError> {
        self.write_zeroes(offset, length, false).await
    }

    /// Writes zeros, stable when this returns; `allocate` keeps the space.
    pub async fn write_zeroes(&self, offset: u64, length: u64, allocate: bool) -> Result<(), IoError> {
        self.check_range(offset, length)?;
        let mut at = offset;
        while at < offset + length {
            let map = self.map();
            let step = match self.migration() {
                None => (if allocate { ZEROS_STEP } else { ASKED_AT_ONCE }) * map.seats().len() as u64,
                Some(_) => CHUNKS_AT_ONCE * CHUNK,
            };
            let next = ((at / step + 1) * step).min(offset + length);
            let mut left = match self.migration() {
                None => self.zero_in(map, at..next, allocate, None).await?,
                Some(_) => vec![(at..next, None)],
            };
            while !left.is_empty() {
                let some = left.split_off(left.len().saturating_sub(PARTS_AT_ONCE));
                left.extend(Box::pin(self.zero_migrating(some, allocate)).await?);
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
        let columns = map.seats().len();
        let within = (0..columns).map(|column| (column, map.striping().within(column, bytes.clone())));
        let within = within.filter(|(_, range)| !range.is_empty());
        let steps = within.map(async |(column, range)| match (allocate, again) {
            (true, _) => Ok(in_steps(range, ZEROS_STEP).map(|range| (column, range)).collect()),
            (false, Some(_)) => Ok(in_steps(range, STEP).map(|range| (column, range)).collect()),
            (false, None) => self.steps_to_clear(map, column, range).await,
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
        let group = is_own.then(|| map.seats()[column].group()).flatten();
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

    async fn zero_migrating(
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
                let outcomes = join_all((0..map.seats().len()).map(clear)).await;
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

/// Data to be written, with its request's number if it had one.
struct Piece {
    offset: u64,
    data: Bytes,
    again: Option<Again>,
}

/// A write of one column of one of the maps.
struct Asked<W: World> {
    map: Map<W>,
    part: Part,
    data: Gather,
    again: Option<Again>,
}

impl<W: World> Clone for Asked<W> {
    fn clone(&self) -> Self {
        let Asked { map, part, data, again } = self;
        Asked { map: map.clone(), part: part.clone(), data: data.clone(), again: again.clone() }
    }
}

/// The pieces of a part that another map has by now.
fn pieces_of<W: World>(map: &Map<W>, part: &Part, data: &Gather, again: &Again) -> Vec<Piece> {
    let mut at = part.offset;
    let mut pieces = Vec::new();
    for data in data {
        let mut left = data.clone();
        while !left.is_empty() {
            let offset = map.striping().offset_of(part.column, at);
            let length = (map.striping().end_of_extent(offset) - offset).min(left.len() as u64);
            pieces.push(Piece { offset, data: left.split_to(length as usize), again: Some(again.clone()) });
            at += length;
        }
    }
    pieces
}

/// Where the bytes of a column are in the volume, extent by extent.
pub(super) fn in_volume<W: World>(
    map: &Map<W>,
    column: usize,
    bytes: Range<u64>,
) -> impl Iterator<Item = Range<u64>> + '_ {
    let mut at = bytes.start;
    std::iter::from_fn(move || {
        (at < bytes.end).then(|| {
            let offset = map.striping().offset_of(column, at);
            let length = (map.striping().end_of_extent(offset) - offset).min(bytes.end - at);
            at += length;
            offset..offset + length
        })
    })
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

/// The parts that were refused because another map has them by now; or the first error.
fn migrated<T>(outcomes: impl Iterator<Item = (T, Result<(), Undone>)>) -> Result<Vec<(T, Again)>, IoError> {
    let mut migrated = Vec::new();
    for (what, outcome) in outcomes {
        match outcome {
            Ok(()) => {}
            Err(Undone::Io(error)) => return Err(error),
            Err(Undone::Migrated(again)) => migrated.push((what, again)),
        }
    }
    Ok(migrated)
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
