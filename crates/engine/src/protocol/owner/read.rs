//! Reading: from the log what the log has, the rest from its data fragment, or decoded from any M others.

use super::stripe::Stripe;
use crate::column::background::failed;
use crate::column::members::RegionState;
use crate::column::read::{Failed, Part, Reader, damaged};
use crate::column::segments::Rest;
use crate::column::{Blocks, Group, State};
use crate::holder::Holder;
use crate::map::ROWS;
use crate::protocol::copies::recover::ZEROS;
use bytes::Bytes;
use futures_util::future::join_all;
use smallvec::SmallVec;
use std::collections::BTreeSet;
use std::ops::Range;
use tepal_codec::checksum::block_crcs;
use tepal_codec::erasure::{ErasureCode, Fragment};
use tepal_drive::DriveError;
use tepal_drive::world::World;
use tepal_model::buffer::join;
use tepal_model::{BLOCK, Buffer, IoError, Lineage, Segments};

/// A clean fragment of a region that is here.
pub(super) struct Source<W: World> {
    /// The member.
    pub at: usize,
    pub fragment: usize,
    pub drive: Holder<W>,
}

impl<W: World> Group<W> {
    /// For each part of the blocks that is of one data fragment, the member that has it. If that one isn't here, another one.
    pub(super) fn choose_fragments(
        &self,
        state: &State<W>,
        (blocks, seen): (Blocks, &Lineage),
        reader: Reader<'_>,
    ) -> Result<SmallVec<[Part<W>; 1]>, RegionState> {
        let column = &self.shared.column;
        let mut parts: SmallVec<[Part<W>; 1]> = SmallVec::new();
        for (first, count) in column.cut(blocks.first, blocks.count) {
            let region = column.region_of(first);
            let mut is_lost = false;
            let clean = match state.members.clean(region) {
                RegionState::Clean(clean) => clean,
                // Data fragments that are left are right, where a log that is left says what is newer.
                RegionState::Lost if matches!(reader, Reader::Client(_)) => {
                    is_lost = true;
                    match state.members.clean_copies_left(column, region) {
                        RegionState::Clean(_) => state.members.left_of(region),
                        state => return Err(state),
                    }
                }
                // Nothing is held there: any member stands for that.
                RegionState::GivenUp => {
                    let here = state.members.list.iter().position(|member| member.drive().is_some());
                    here.into_iter().collect()
                }
                state => return Err(state),
            };
            for unit in Blocks::new(first, count).pieces(ROWS) {
                let (fragment, _) = Stripe::of(column, unit.first).locate(unit);
                let is_it = |at: &&usize| state.members.list[**at].fragment == fragment;
                let at = match clean.iter().find(is_it) {
                    None if is_lost => return Err(RegionState::Lost),
                    own => own.or(clean.first()).copied().ok_or(RegionState::Waiting)?,
                };
                let drive = state.members.list[at].drive().cloned().ok_or(RegionState::Waiting)?;
                parts.push(Part { at, drive, blocks: unit, seen: seen.clone() });
            }
        }
        Ok(parts)
    }

    pub(super) async fn read_units(&self, parts: SmallVec<[Part<W>; 1]>) -> Result<Segments, Failed> {
        if let [part] = parts.as_slice() {
            return self.read_unit(part).await;
        }
        let mut segments = Segments::new();
        let mut read: Vec<Option<Segments>> = parts.iter().map(|_| None).collect();
        let runs = self.runs_in_place(&parts);
        for (run, found) in runs.iter().zip(join_all(runs.iter().map(|run| self.read_run(&parts, run))).await) {
            for (&nth, of_part) in run.iter().zip(found?) {
                read[nth] = Some(of_part);
            }
        }
        segments.extend(read.into_iter().flatten().flatten());
        Ok(segments)
    }

    /// The parts in order, by number: together those that lie side by side on one drive, in stripes of which the log has nothing.
    fn runs_in_place(&self, parts: &[Part<W>]) -> Vec<SmallVec<[usize; 4]>> {
        let column = &self.shared.column;
        let state = self.lock();
        let log = self.shared.log.lock();
        let mut runs: Vec<SmallVec<[usize; 4]>> = Vec::new();
        // The last run of each member, and the place after it.
        let mut last: SmallVec<[Option<(usize, u64)>; 8]> = SmallVec::from_elem(None, state.members.list.len());
        for (nth, part) in parts.iter().enumerate() {
            let stripe = Stripe::of(column, part.blocks.first);
            let (fragment, rows) = stripe.locate(part.blocks);
            let is_direct = !state.is_logged(&log, stripe.number)
                && state.members.list[part.at].fragment == fragment
                && state.members.clean(stripe.region()) != RegionState::GivenUp;
            let first = stripe.rows(&rows).first;
            let end = first + part.blocks.count;
            match last[part.at] {
                Some((run, at)) if is_direct && at == first => runs[run].push(nth),
                _ => runs.push(SmallVec::from_elem(nth, 1)),
            }
            let run = last[part.at].filter(|(_, at)| is_direct && *at == first).map_or(runs.len() - 1, |(run, _)| run);
            last[part.at] = is_direct.then_some((run, end));
        }
        runs
    }

    /// Reads a run of parts, each for itself if the run can't be read at once.
    async fn read_run(&self, parts: &[Part<W>], run: &[usize]) -> Result<SmallVec<[Segments; 4]>, Failed> {
        let (first, column) = (&parts[run[0]], &self.shared.column);
        if run.len() > 1 {
            let stripe = Stripe::of(column, first.blocks.first);
            let place = column.place(stripe.rows(&stripe.locate(first.blocks).1).first);
            let count = run.iter().map(|&nth| parts[nth].blocks.count).sum();
            match first.drive.read(column.map, place, count, &first.seen).await {
                Err(DriveError::Lost(loss)) => return Err(Failed::Lost(first.drive.id(), loss)),
                Err(DriveError::Damaged { .. } | DriveError::OutOfSpace) => {}
                Ok(found) => {
                    let mut rest = Rest::of(found);
                    let of_part = |&nth: &usize| rest.next((parts[nth].blocks.count * BLOCK) as usize);
                    return Ok(run.iter().map(of_part).collect());
                }
            }
        }
        let mut found = SmallVec::new();
        for &nth in run {
            found.push(self.read_unit(&parts[nth]).await?);
        }
        Ok(found)
    }

    async fn read_unit(&self, part: &Part<W>) -> Result<Segments, Failed> {
        let stripe = Stripe::of(&self.shared.column, part.blocks.first);
        let (fragment, rows) = stripe.locate(part.blocks);
        let is_direct = {
            let state = self.lock();
            if state.members.clean(stripe.region()) == RegionState::GivenUp {
                let zeros = Buffer::zeroed((part.blocks.count * BLOCK) as usize).freeze();
                return Ok(Segments::from_iter([zeros]));
            }
            let is_logged = state.is_logged(&self.shared.log.lock(), stripe.number);
            !is_logged && state.members.list[part.at].fragment == fragment
        };
        if is_direct {
            let place = self.shared.column.place(stripe.rows(&rows).first);
            match part.drive.read(self.shared.column.map, place, part.blocks.count, &part.seen).await {
                Err(DriveError::Lost(loss)) => return Err(Failed::Lost(part.drive.id(), loss)),
                Err(DriveError::Damaged { .. } | DriveError::OutOfSpace) => {}
                Ok(segments) => return Ok(segments),
            }
        }
        Box::pin(self.read_with_log(stripe, part)).await
    }

    /// Blocks of one data fragment, from wherever each of them is.
    async fn read_with_log(&self, stripe: Stripe, part: &Part<W>) -> Result<Segments, Failed> {
        loop {
            let since = self.shared.log.lock().changes();
            let (found, decoded) = match self.overlaid(stripe, part.blocks, &part.seen).await {
                Ok((data, decoded)) => (Ok(data), decoded),
                // Fragments that are changing may not fit together.
                Err(Failed::Io(error @ IoError::Damaged { .. })) => (Err(Failed::Io(error)), true),
                Err(failed) => return Err(failed),
            };
            if !self.shared.log.lock().disturbed(stripe.number, since, decoded) {
                return found;
            }
            self.until_changed(stripe).await;
        }
    }

    /// Blocks of one data fragment as the log shows them, else as they are in place; and whether any was decoded. The caller knows that
    /// nothing leaves the log meanwhile, nor changes in place.
    pub(super) async fn overlaid(
        &self,
        stripe: Stripe,
        blocks: Blocks,
        seen: &Lineage,
    ) -> Result<(Segments, bool), Failed> {
        let logged = self.logged_blocks(blocks, seen).await?;
        if !logged.is_empty() && (logged.len() as u64) < blocks.count {
            let both = self.both(stripe, blocks, &logged, seen).await;
            // A row in place that can't be read may be in the log.
            if !matches!(both, Err(Failed::Io(IoError::Damaged { .. }))) {
                return both;
            }
        }
        let (mut segments, mut decoded) = (Segments::new(), false);
        let mut at = 0;
        while at < blocks.count {
            let is_logged = logged.contains(&at);
            let count = (at..blocks.count).take_while(|nth| logged.contains(nth) == is_logged).count() as u64;
            let run = Blocks::new(blocks.first + at, count);
            if is_logged {
                segments.extend(self.read_log(run, seen).await?);
            } else {
                let (fragment, rows) = stripe.locate(run);
                let (data, was_decoded) = self.fragment_in_place(stripe, fragment, &rows, seen, None).await?;
                segments.extend(data);
                decoded |= was_decoded;
            }
            at += count;
        }
        Ok((segments, decoded))
    }

    /// Reads the log and the fragment in place at once, and takes each block from where it counts.
    async fn both(
        &self,
        stripe: Stripe,
        blocks: Blocks,
        logged: &BTreeSet<u64>,
        seen: &Lineage,
    ) -> Result<(Segments, bool), Failed> {
        let (fragment, rows) = stripe.locate(blocks);
        let in_place = self.fragment_in_place(stripe, fragment, &rows, seen, None);
        let (log, in_place) = futures_util::future::join(self.read_log(blocks, seen), in_place).await;
        let (mut log, (in_place, decoded)) = (Rest::of(log?), in_place?);
        let (mut in_place, mut segments) = (Rest::of(in_place), Segments::new());
        let mut at = 0;
        while at < blocks.count {
            let is_logged = logged.contains(&at);
            let count = (at..blocks.count).take_while(|nth| logged.contains(nth) == is_logged).count() as u64;
            let length = (count * BLOCK) as usize;
            let (log, in_place) = (log.next(length), in_place.next(length));
            segments.extend(if is_logged { log } else { in_place });
            at += count;
        }
        Ok((segments, decoded))
    }

    /// Which blocks the log shows, numbered from the first one.
    pub(super) async fn logged_blocks(&self, blocks: Blocks, seen: &Lineage) -> Result<BTreeSet<u64>, Failed> {
        let column = &self.shared.column;
        let keeper = self.keeper(column.region_of(blocks.first))?;
        let held = keeper.held(column.map, column.place(blocks.first), blocks.count, seen).await;
        held.map_err(|error| failed(&keeper, error))
    }

    /// A member with a clean copy of a region's log, of this server if possible. All clean copies are equal.
    pub(super) fn keeper(&self, region: u64) -> Result<Holder<W>, Failed> {
        let (state, column) = (self.lock(), &self.shared.column);
        let RegionState::Clean(clean) = state.members.clean_copies_left(column, region) else {
            return Err(Failed::Away);
        };
        let here = clean.into_iter().filter_map(|at| state.members.list[at].drive());
        here.min_by_key(|holder| holder.local().is_none()).cloned().ok_or(Failed::Away)
    }

    /// Reads blocks that the log has.
    pub(super) async fn read_log(&self, blocks: Blocks, seen: &Lineage) -> Result<Segments, Failed> {
        let column = &self.shared.column;
        let keeper = self.keeper(column.region_of(blocks.first))?;
        match keeper.read(column.map, column.place(blocks.first), blocks.count, seen).await {
            Ok(segments) => Ok(segments),
            Err(DriveError::Lost(loss)) => Err(Failed::Lost(keeper.id(), loss)),
            Err(DriveError::Damaged { .. } | DriveError::OutOfSpace) => self.read_around(blocks, seen).await,
        }
    }

    /// The clean fragments of a stripe that are here, each once, those of this server first.
    pub(super) fn sources(&self, stripe: Stripe) -> Result<Vec<Source<W>>, Failed> {
        let state = self.lock();
        let RegionState::Clean(clean) = state.members.clean(stripe.region()) else { return Err(Failed::Away) };
        Ok(Self::as_sources(&state, clean))
    }

    /// The same where too few may be left to decode the others.
    fn sources_left(&self, stripe: Stripe) -> Result<Vec<Source<W>>, Failed> {
        let state = self.lock();
        match state.members.clean(stripe.region()) {
            RegionState::Clean(clean) => Ok(Self::as_sources(&state, clean)),
            RegionState::Lost => Ok(Self::as_sources(&state, state.members.left_of(stripe.region()))),
            RegionState::Waiting | RegionState::GivenUp => Err(Failed::Away),
        }
    }

    fn as_sources(state: &State<W>, members: SmallVec<[usize; 4]>) -> Vec<Source<W>> {
        let source = |at: usize| {
            let member = &state.members.list[at];
            Some(Source { at, fragment: member.fragment, drive: member.drive()?.clone() })
        };
        let mut sources: Vec<Source<W>> = members.into_iter().filter_map(source).collect();
        sources.sort_by_key(|source| (source.drive.local().is_none(), source.at));
        let mut seen = BTreeSet::new();
        sources.retain(|source| seen.insert(source.fragment));
        sources
    }

    /// Some rows of a fragment in place, and whether they were decoded. A member that isn't to be read can be named.
    pub(super) async fn fragment_in_place(
        &self,
        stripe: Stripe,
        fragment: usize,
        rows: &Range<u64>,
        seen: &Lineage,
        but: Option<usize>,
    ) -> Result<(Segments, bool), Failed> {
        let blocks = stripe.rows(rows);
        let is_wanted = |source: &Source<W>| source.fragment == fragment && Some(source.at) != but;
        let own = self.sources_left(stripe)?.into_iter().find(is_wanted);
        let mut sums = None;
        if let Some(own) = own {
            if let Some(segments) = self.read_source(&own, blocks, seen).await? {
                return Ok((segments, false));
            }
            sums = Some(self.sums_in_place(&own.drive, blocks, seen).await?);
        }
        let decoded = self.decoded(stripe, fragment, rows, seen, (but, sums.as_deref())).await?;
        Ok((decoded, true))
    }

    /// Blocks in place of one member; `None` if some of them can't be read, which are then rebuilt.
    async fn read_source(
        &self,
        source: &Source<W>,
        blocks: Blocks,
        seen: &Lineage,
    ) -> Result<Option<Segments>, Failed> {
        let column = &self.shared.column;
        match source.drive.read(column.map, column.place(blocks.first), blocks.count, seen).await {
            Ok(segments) => Ok(Some(segments)),
            Err(DriveError::Lost(loss)) => Err(Failed::Lost(source.drive.id(), loss)),
            Err(DriveError::Damaged { .. } | DriveError::OutOfSpace) => {
                self.rebuild_later(blocks, source.at);
                Ok(None)
            }
        }
    }

    /// The fragments in place that can be read of these, each with its number.
    async fn read_sources(
        &self,
        sources: &[&Source<W>],
        blocks: Blocks,
        seen: &Lineage,
    ) -> Result<Vec<(usize, Bytes)>, Failed> {
        let found = join_all(sources.iter().map(|source| self.read_source(source, blocks, seen))).await;
        let mut held = Vec::with_capacity(sources.len());
        for (source, found) in sources.iter().zip(found) {
            held.extend(found?.map(|segments| (source.fragment, join(&segments))));
        }
        Ok(held)
    }

    /// The checksums that a drive has of blocks in place, of damaged ones too.
    pub(super) async fn sums_in_place(
        &self,
        drive: &Holder<W>,
        blocks: Blocks,
        seen: &Lineage,
    ) -> Result<Vec<u32>, Failed> {
        let column = &self.shared.column;
        let content = drive.content(column.map, column.place(blocks.first), blocks.count, seen).await;
        let (sums, _) = content.map_err(|error| failed(drive, error))?;
        Ok(sums.into_iter().map(|sum| sum.unwrap_or(*ZEROS)).collect())
    }

    /// Some rows of a fragment in place, decoded from others. `sums` are the fragment's checksums, if it's here and damaged: with
    /// them, those M others are found that give what was written, though another one isn't of the same data.
    pub(super) async fn decoded(
        &self,
        stripe: Stripe,
        fragment: usize,
        rows: &Range<u64>,
        seen: &Lineage,
        (but, sums): (Option<usize>, Option<&[u32]>),
    ) -> Result<Segments, Failed> {
        let blocks = stripe.rows(rows);
        let needed = usize::from(self.shared.fragments.data);
        let sources = self.sources_left(stripe)?;
        let mut others = sources.iter().filter(|source| source.fragment != fragment && Some(source.at) != but);
        let mut held: Vec<(usize, Bytes)> = Vec::with_capacity(needed);
        while held.len() < needed {
            let some: Vec<&Source<W>> = others.by_ref().take(needed - held.len()).collect();
            if some.is_empty() {
                return match blocks.count {
                    1 => Err(damaged(self.shared.column.logical(blocks.first))),
                    // Each row may have others that can be read, or be whole itself.
                    _ => Box::pin(self.row_by_row(stripe, fragment, rows, seen, but)).await,
                };
            }
            held.extend(self.read_sources(&some, blocks, seen).await?);
        }
        let decoded = self.decode(fragment, held.iter());
        if sums.is_none_or(|sums| block_crcs(&decoded).eq(sums.iter().copied())) {
            return Ok(Segments::from_iter([decoded]));
        }
        if blocks.count > 1 {
            return Box::pin(self.row_by_row(stripe, fragment, rows, seen, but)).await;
        }
        let rest: Vec<&Source<W>> = others.collect();
        held.extend(self.read_sources(&rest, blocks, seen).await?);
        let sum = sums.and_then(|sums| sums.first()).copied();
        match self.agreed(fragment, &held, sum) {
            Some(agreed) => Ok(Segments::from_iter([agreed])),
            None => {
                tracing::error!(
                    stripe = stripe.number,
                    fragment,
                    "fragments are of different data: a damaged one can't be decoded"
                );
                Err(damaged(self.shared.column.logical(blocks.first)))
            }
        }
    }

    /// One row of a fragment that any M of others give with this checksum. If none do, the checksum itself may have been damaged: then
    /// the others have to agree.
    fn agreed(&self, fragment: usize, others: &[(usize, Bytes)], sum: Option<u32>) -> Option<Bytes> {
        let mut first = None;
        let mut differ = false;
        for some in choices(others.len(), usize::from(self.shared.fragments.data)) {
            let decoded = self.decode(fragment, some.iter().map(|&nth| &others[nth]));
            if block_crcs(&decoded).next() == sum {
                return Some(decoded);
            }
            differ |= first.as_ref().is_some_and(|first| *first != decoded);
            first.get_or_insert(decoded);
        }
        first.filter(|_| !differ)
    }

    /// A fragment decoded from M others.
    fn decode<'a>(&self, fragment: usize, others: impl Iterator<Item = &'a (usize, Bytes)>) -> Bytes {
        let held: Vec<Fragment<&[u8]>> =
            others.map(|(number, bytes)| Fragment { number: *number, bytes: &bytes[..] }).collect();
        let mut decoded = Buffer::take(held.first().map_or(0, |one| one.bytes.len()));
        let mut lost = [Fragment { number: fragment, bytes: &mut decoded[..] }];
        self.shared.log.code().decode(&held, &mut lost).expect("M different fragments of one length");
        decoded.freeze()
    }

    async fn row_by_row(
        &self,
        stripe: Stripe,
        fragment: usize,
        rows: &Range<u64>,
        seen: &Lineage,
        but: Option<usize>,
    ) -> Result<Segments, Failed> {
        let mut segments = Segments::new();
        for row in rows.clone() {
            segments.extend(self.fragment_in_place(stripe, fragment, &(row..row + 1), seen, but).await?.0);
        }
        Ok(segments)
    }

    /// Rows of all data fragments, as the log shows them, else as they are in place.
    pub(super) async fn data_of_rows(
        &self,
        stripe: Stripe,
        rows: &Range<u64>,
        seen: &Lineage,
    ) -> Result<Vec<Bytes>, Failed> {
        let units = 0..usize::from(self.shared.fragments.data);
        let read = units.map(|unit| self.overlaid(stripe, stripe.unit(unit, rows), seen));
        join_all(read).await.into_iter().map(|read| read.map(|(segments, _)| join(&segments))).collect()
    }

    /// The code of these data fragments.
    pub(super) fn code_of(&self, data: &[Bytes]) -> Vec<Bytes> {
        let length = data[0].len();
        let mut code: Vec<_> = (0..self.shared.fragments.code).map(|_| Buffer::take(length)).collect();
        let given: Vec<&[u8]> = data.iter().map(|bytes| &bytes[..]).collect();
        let mut places: Vec<&mut [u8]> = code.iter_mut().map(|bytes| &mut bytes[..]).collect();
        self.shared.log.code().encode(&given, &mut places).expect("M fragments of one length");
        code.into_iter().map(Buffer::freeze).collect()
    }

    /// The rows of which every clean copy of the log that is here shows all blocks.
    pub(super) async fn fully_logged(&self, stripe: Stripe, seen: &Lineage) -> Result<Vec<bool>, Failed> {
        let (column, blocks) = (&self.shared.column, stripe.blocks());
        let keepers: Vec<Holder<W>> = {
            let state = self.lock();
            let RegionState::Clean(clean) = state.members.clean_copies(column, stripe.region()) else {
                return Err(Failed::Away);
            };
            clean.into_iter().filter_map(|at| state.members.list[at].drive().cloned()).collect()
        };
        let mut is_logged = vec![true; ROWS as usize];
        for keeper in keepers {
            let shown = keeper.held(column.map, column.place(blocks.first), blocks.count, seen).await;
            let shown = shown.map_err(|error| failed(&keeper, error))?;
            for (row, is_logged) in (0..ROWS).zip(&mut is_logged) {
                *is_logged &= (row..blocks.count).step_by(ROWS as usize).all(|block| shown.contains(&block));
            }
        }
        Ok(is_logged)
    }
}

/// All ways to choose so many of the numbers below `of`.
fn choices(of: usize, count: usize) -> Vec<Vec<usize>> {
    let mut choices: Vec<Vec<usize>> = vec![Vec::new()];
    for nth in 0..count {
        let longer = |chosen: &Vec<usize>| {
            let next = chosen.last().map_or(0, |last| last + 1);
            let chosen = chosen.clone();
            (next..(of + nth + 1).saturating_sub(count)).map(move |number| {
                let mut longer = chosen.clone();
                longer.push(number);
                longer
            })
        };
        choices = choices.iter().flat_map(longer).collect();
    }
    choices
}

/// Some blocks of a run of blocks.
pub(super) fn cut(data: &Bytes, rows: Range<u64>) -> Bytes {
    data.slice((rows.start * BLOCK) as usize..(rows.end * BLOCK) as usize)
}

#[cfg(test)]
mod tests {
    use super::choices;

    #[test]
    fn each_choice_is_made_once() {
        assert_eq!(choices(4, 2), [[0, 1], [0, 2], [0, 3], [1, 2], [1, 3], [2, 3]]);
        assert_eq!((choices(3, 3), choices(2, 3)), (vec![vec![0, 1, 2]], vec![]));
        assert_eq!(choices(19, 16).len(), 969);
    }
}
