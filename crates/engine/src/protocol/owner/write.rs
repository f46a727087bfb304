//! Changes: writes go into the log; rows in place are written by destaging, and taken out when whole stripes are cleared.

use super::log::Phase;
use super::stripe::Stripe;
use crate::column::epochs::Writing;
use crate::column::redundancy::{Data, Written};
use crate::column::{Blocks, Group};
use crate::holder::Holder;
use crate::map::{Among, ROWS};
use crate::protocol::copies::write::{Target, taking_of};
use bytes::Bytes;
use futures_util::future::join_all;
use std::ops::Range;
use std::time::Duration;
use tepal_codec::checksum::block_crcs;
use tepal_drive::Write;
use tepal_drive::world::{Gather, World};
use tepal_model::buffer::join;
use tepal_model::{BLOCK, Buffer, IoError, Lineage, MapId, Origin, Taken, Taking};

/// For so long a write waits for room that destaging gives back.
const ROOM_WAIT: Duration = Duration::from_secs(3);
/// How often to look for it.
const ROOM_LOOK: Duration = Duration::from_millis(20);

impl<W: World> Group<W> {
    /// Writes blocks: whole stripes of which nothing is held go in place at once, all others into the log.
    pub(super) async fn write_blocks(&self, data: &Data, fua: bool, writing: &mut Writing) -> Result<Written, IoError> {
        let (column, blocks) = (self.shared.column, data.blocks());
        let is_on_its_way = || self.lock().are_on_their_way(&column, blocks);
        if blocks.count < column.in_stripe() || is_on_its_way() {
            return self.write_log(data, fua, writing).await;
        }
        let mut begun = false;
        for (first, count) in column.cut(blocks.first, blocks.count) {
            let part = Blocks::new(first, count);
            let [before, whole, after] = self.parted(part);
            let fresh_at = if whole.count > 0 { self.holds_nothing_of(whole).await } else { None };
            let parts = match fresh_at.is_some() {
                true => [(before, false), (whole, true), (after, false)],
                false => [(part, false), (Blocks::new(part.end(), 0), false), (Blocks::new(part.end(), 0), false)],
            };
            for (some, in_place) in parts.into_iter().filter(|(some, _)| some.count > 0) {
                let of_part = data.part(some);
                let written = match in_place {
                    true => self.write_stripes(&of_part, writing).await?,
                    false => self.write_log(&of_part, fua, writing).await?,
                };
                if let Some(waits) = waits(written, &mut begun) {
                    return Ok(waits);
                }
                // A drive that has come since may have something of these blocks in its log, which would hide them.
                if in_place && fresh_at.is_some_and(|changes| self.lock().changes != changes) {
                    let written = self.write_log(&of_part, true, writing).await?;
                    if let Some(waits) = waits(written, &mut begun) {
                        return Ok(waits);
                    }
                }
            }
        }
        Ok(Written::Done)
    }

    /// The blocks before, within and after the whole stripes of a range.
    fn parted(&self, blocks: Blocks) -> [Blocks; 3] {
        let in_stripe = self.shared.column.in_stripe();
        let first = blocks.first.next_multiple_of(in_stripe).min(blocks.end());
        let end = (blocks.end() / in_stripe * in_stripe).max(first);
        [
            Blocks::new(blocks.first, first - blocks.first),
            Blocks::new(first, end - first),
            Blocks::new(end, blocks.end() - end),
        ]
    }

    /// Whether nothing is held of these whole stripes of one region, in whatever epoch, in place or in the log, on any drive that was here
    /// at so many changes. The caller has their turn.
    async fn holds_nothing_of(&self, blocks: Blocks) -> Option<u64> {
        let (column, rows) = (&self.shared.column, self.rows_of(blocks));
        let (members, changes): (Vec<Holder<W>>, u64) = {
            let state = self.lock();
            let known = self.shared.log.lock();
            let mut stripes = Stripe::touched(column, blocks);
            if stripes.any(|stripe| state.is_logged(&known, stripe.number))
                || state.unsure.regions.contains(&column.region_of(blocks.first))
            {
                return None;
            }
            (state.members.here().cloned().collect(), state.changes)
        };
        let (map, first) = (column.map, column.place(rows.first));
        let asked = members.iter().map(async |drive| {
            drive.is_bare(map, first, rows.count)
                || drive.epochs_of(map, first, rows.count).await.is_ok_and(|epochs| epochs.is_empty())
        });
        join_all(asked).await.into_iter().all(|is_bare| is_bare).then_some(changes)
    }

    /// Writes whole stripes of one region in place, of which nothing is held: all fragments or, after a crash, none.
    async fn write_stripes(&self, data: &Data, writing: &mut Writing) -> Result<Written, IoError> {
        let (column, blocks) = (&self.shared.column, data.blocks());
        let units = usize::from(self.shared.fragments.data);
        let mut fragments: Vec<(Gather, Vec<u32>)> =
            vec![(Gather::new(), Vec::new()); usize::from(self.shared.fragments.count())];
        for stripe in Stripe::touched(column, blocks) {
            let of_unit = |unit: usize| data.part(stripe.unit(unit, &(0..ROWS)));
            let parts: Vec<Data> = (0..units).map(of_unit).collect();
            let bytes: Vec<Bytes> = parts.iter().map(|part| join(&part.data)).collect();
            let code = self.code_of(&bytes);
            for ((pieces, crcs), (bytes, part)) in fragments.iter_mut().zip(bytes.into_iter().zip(parts)) {
                pieces.push(bytes);
                crcs.extend(part.crcs.iter());
            }
            for ((pieces, crcs), bytes) in fragments[units..].iter_mut().zip(code) {
                crcs.extend(block_crcs(&bytes));
                pieces.push(bytes);
            }
        }
        let _changing = self.changing(Stripe::touched(column, blocks).map(|stripe| stripe.number), Phase::InPlace);
        let first = column.place(self.rows_of(blocks).first);
        let write = async |targets: &[Target<W>], lineage: &Lineage| {
            let write = |target: &Target<W>| Write {
                map: column.map,
                first,
                data: fragments[target.fragment].0.clone(),
                crcs: fragments[target.fragment].1.as_slice().into(),
                marks: target.marks.clone(),
                durable: true,
                repair: false,
                taking: taking_of(data.origin),
                lineage,
            };
            self.write_each(targets, write).await
        };
        self.until_all_took((blocks, Among::ALL), writing, write).await
    }

    /// Writes blocks into the log.
    pub(super) async fn write_log(&self, data: &Data, fua: bool, writing: &mut Writing) -> Result<Written, IoError> {
        let (column, blocks) = (&self.shared.column, data.blocks());
        self.while_too_much_is_logged().await;
        self.logs(blocks);
        let mut begun = false;
        for (first, count) in column.cut(blocks.first, blocks.count) {
            let part = Blocks::new(first, count);
            let written = match part == blocks {
                true => self.write_with_room(data, fua, writing).await?,
                false => self.write_with_room(&data.part(part), fua, writing).await?,
            };
            if let Some(waits) = waits(written, &mut begun) {
                return Ok(waits);
            }
        }
        Ok(Written::Done)
    }

    /// Writes blocks of one region into the log. Where a write finds no room, what the log has of other stripes goes in place, where it
    /// takes less; the write waits a while for that.
    async fn write_with_room(&self, data: &Data, fua: bool, writing: &mut Writing) -> Result<Written, IoError> {
        let began = self.shared.world.now();
        loop {
            let written = self.write_copies(data, fua, writing).await;
            if !matches!(written, Err(IoError::OutOfSpace)) {
                return written;
            }
            let now = self.shared.world.now();
            let may_get_room = {
                let state = self.lock();
                let mut known = self.shared.log.lock();
                known.pressed = Some(now);
                let own: Vec<u64> = Stripe::touched(&self.shared.column, data.blocks()).map(|it| it.number).collect();
                let has_others = known.stripes.keys().any(|stripe| !own.contains(stripe));
                known.listed != Some(state.changes) || has_others
            };
            self.wake();
            if !may_get_room || now.0.saturating_sub(began.0) >= ROOM_WAIT {
                return written;
            }
            self.rest(ROOM_LOOK).await;
        }
    }

    /// Notes in the log that blocks have taken these requests, and no others.
    pub(super) async fn note_in_log(
        &self,
        blocks: Blocks,
        requests: &[Taken],
        writing: &mut Writing,
    ) -> Result<Written, IoError> {
        let mut begun = false;
        for (first, count) in self.shared.column.cut(blocks.first, blocks.count) {
            let place = self.shared.column.place(first);
            let within = requests.iter().filter_map(|taken| taken.within(&(place..place + count)));
            let of_part: Vec<Taken> = within.collect();
            let written = self.note_on_copies(Blocks::new(first, count), &of_part, writing).await?;
            if let Some(waits) = waits(written, &mut begun) {
                return Ok(waits);
            }
        }
        Ok(Written::Done)
    }

    /// Takes blocks out. Whole stripes are taken out in place. Of other stripes, blocks become zeros in the log where anything is held.
    pub(super) async fn clear_stripes(
        &self,
        blocks: Blocks,
        origin: Option<Origin>,
        writing: &mut Writing,
    ) -> Result<Written, IoError> {
        let column = self.shared.column;
        let mut begun = false;
        for (first, count) in column.cut(blocks.first, blocks.count) {
            let part = Blocks::new(first, count);
            let [before, whole, after] = self.parted(part);
            let Some(seen) = self.seen_by(writing)? else {
                return Ok(Written::Waits { change: self.in_a_moment(), begun });
            };
            if self.is_only_logged(part, &seen).await {
                if let Some(waits) = waits(self.clear_copies(part, origin, writing).await?, &mut begun) {
                    return Ok(waits);
                }
                continue;
            }
            let as_zeros = self.is_cleared_by_zeros(whole).await;
            for some in [(before, true), (whole, as_zeros), (after, true)] {
                let (some, true) = some else { continue };
                if some.count == 0 || self.stripes_are_empty(some, &seen).await {
                    continue;
                }
                let zeros = Buffer::zeroed((some.count * BLOCK) as usize).freeze();
                let zeros = Data::new(some.first, Gather::from_iter([zeros]), origin);
                if let Some(waits) = waits(self.write_log(&zeros, true, writing).await?, &mut begun) {
                    return Ok(waits);
                }
            }
            if whole.count > 0
                && !as_zeros
                && let Some(waits) = waits(self.clear_whole(whole, origin, writing).await?, &mut begun)
            {
                return Ok(waits);
            }
        }
        Ok(Written::Done)
    }

    /// Whether whole stripes of one region can't be taken out in place: the log has something of them. What it has of older lines has to
    /// go in place before, or it would be seen again.
    async fn is_cleared_by_zeros(&self, blocks: Blocks) -> bool {
        let column = &self.shared.column;
        let region = column.region_of(blocks.first);
        if blocks.count == 0 || self.lock().unsure.regions.contains(&region) {
            return true; // its copies of the log may differ
        }
        let Ok(keeper) = self.keeper(region) else { return true };
        let logged = keeper.epochs_of(column.map, column.place(blocks.first), blocks.count).await;
        !logged.is_ok_and(|epochs| epochs.is_empty())
    }

    /// Takes out whole stripes of one region: first in place, then from the log, which shows the old blocks meanwhile.
    async fn clear_whole(
        &self,
        blocks: Blocks,
        origin: Option<Origin>,
        writing: &mut Writing,
    ) -> Result<Written, IoError> {
        let numbers = || Stripe::touched(&self.shared.column, blocks).map(|stripe| stripe.number);
        self.may_log(numbers());
        let changing = self.changing(numbers(), Phase::InPlace);
        let run = self.run_of(self.rows_of(blocks));
        let clear = async |targets: &[Target<W>], lineage: &Lineage| {
            self.clear_each(targets, run, taking_of(origin), lineage).await
        };
        let mut begun = false;
        let written = self.until_all_took((blocks, Among::ALL), writing, clear).await?;
        if let Some(waits) = waits(written, &mut begun) {
            return Ok(waits);
        }
        changing.goes_on(Phase::Leaving);
        let written = self.clear_copies(blocks, origin, writing).await?;
        Ok(waits(written, &mut begun).unwrap_or(Written::Done))
    }

    /// Whether nothing is held in place of the stripes of these blocks of one region, nor of older lines in the log: then blocks can be
    /// taken out of the log one by one. The caller has their turn, so nothing is destaged meanwhile.
    async fn is_only_logged(&self, blocks: Blocks, seen: &Lineage) -> bool {
        let has_older = match seen.older_part() {
            Some(older) => !self.copies_are_empty(blocks, &older).await,
            None => false,
        };
        let region = self.shared.column.region_of(blocks.first);
        let is_unsure = || self.lock().unsure.regions.contains(&region);
        !has_older && !is_unsure() && self.is_bare_on_all(self.rows_of(blocks)).await.unwrap_or(false)
    }

    /// Takes out what one line of the map's history has of blocks that are on their way, and what hides older lines there.
    pub(super) async fn uncover_stripes(&self, blocks: Blocks, writing: &mut Writing) -> Result<Written, IoError> {
        let mut begun = false;
        for (first, count) in self.shared.column.cut(blocks.first, blocks.count) {
            let part = Blocks::new(first, count);
            if !self.is_bare_on_all(self.rows_of(part)).await? {
                return Err(IoError::NotNow); // they have to be gathered first
            }
            if let Some(waits) = waits(self.uncover_copies(part, writing).await?, &mut begun) {
                return Ok(waits);
            }
        }
        Ok(Written::Done)
    }

    /// Writes some rows of a stripe in place, all fragments. The caller has the stripe's turn, and the log has all blocks of rows that
    /// hold anything.
    pub(super) async fn write_rows(
        &self,
        stripe: Stripe,
        rows: &Range<u64>,
        data: &[Bytes],
        writing: &mut Writing,
    ) -> Result<Written, IoError> {
        let fragments: Vec<Bytes> = data.iter().cloned().chain(self.code_of(data)).collect();
        let crcs: Vec<Vec<u32>> = fragments.iter().map(|bytes| block_crcs(bytes).collect()).collect();
        let first = self.shared.column.place(stripe.rows(rows).first);
        let write = async |targets: &[Target<W>], lineage: &Lineage| {
            let write = |target: &Target<W>| Write {
                map: self.shared.column.map,
                first,
                data: Gather::from_iter([fragments[target.fragment].clone()]),
                crcs: crcs[target.fragment].as_slice().into(),
                marks: target.marks.clone(),
                durable: true,
                repair: false,
                taking: Taking::Nothing,
                lineage,
            };
            self.write_each(targets, write).await
        };
        self.until_all_took((stripe.blocks(), Among::ALL), writing, write).await
    }

    /// Takes out some rows of a stripe in place.
    pub(super) async fn clear_rows(
        &self,
        stripe: Stripe,
        rows: &Range<u64>,
        writing: &mut Writing,
    ) -> Result<Written, IoError> {
        let run = self.run_of(stripe.rows(rows));
        let clear = async |targets: &[Target<W>], lineage: &Lineage| {
            self.clear_each(targets, run, Taking::Nothing, lineage).await
        };
        self.until_all_took((stripe.blocks(), Among::ALL), writing, clear).await
    }

    /// Blocks as drives number them.
    pub(super) fn run_of(&self, blocks: Blocks) -> (MapId, u64, u64) {
        (self.shared.column.map, self.shared.column.place(blocks.first), blocks.count)
    }
}

/// What a change of several parts returns if one of them waits.
fn waits(written: Written, begun: &mut bool) -> Option<Written> {
    match written {
        Written::Done => {
            *begun = true;
            None
        }
        Written::Waits { change, begun: now } => Some(Written::Waits { change, begun: *begun || now }),
    }
}
