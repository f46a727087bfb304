//! Gathering: while blocks of a stripe go from one map to another, the stripe is in the log, as whole copies are.
//!
//! A migration hands over and releases single blocks, line by line, and what is released must leave nothing behind. In place that isn't
//! possible: the code of a row is that of all its blocks. So the rows of a stripe go back into the log before anything of the stripe is
//! handed over, or taken over. Newer lines go first: the log never shows a block that is older than the one in place. Each line's rows are
//! taken out in place once the log has all their blocks. The stripe isn't destaged until all its blocks have arrived, or have come back.

use super::log::Phase;
use super::recover::Has;
use super::stripe::{Stripe, runs};
use crate::column::epochs::Writing;
use crate::column::members::RegionState;
use crate::column::read::{Failed, Reader};
use crate::column::redundancy::{Data, Written};
use crate::column::{Blocks, Group};
use crate::holder::Holder;
use crate::map::{Among, ROWS};
use crate::protocol::copies::recover::{Copy, Line};
use crate::protocol::copies::write::Target;
use crate::seen_through::Asker;
use futures_util::future::join_all;
use std::collections::BTreeSet;
use tepal_drive::DriveError;
use tepal_drive::world::{Gather, World};
use tepal_model::{BLOCK, Buffer, IoError, Lineage, Taken};

impl<W: World> Group<W> {
    /// Brings the stripes of blocks that are on their way back into the log. `NotNow` if that has to be tried again.
    pub(super) async fn gather_stripes(&self, blocks: Blocks) -> Result<(), IoError> {
        for stripe in Stripe::touched(&self.shared.column, blocks) {
            // A change that began before the stripe was on its way may be about to put blocks in place.
            let blocks = stripe.blocks();
            self.until_ended_soon(blocks).await?;
            if self.is_gathered(blocks).await? {
                continue;
            }
            let turn = self.turn_soon(stripe.blocks()).await?;
            let newest = self.lock().seen.epochs.newest_line();
            let _turn = self.settled_for(turn, &Asker::present(), (Reader::Copies(&newest), stripe.blocks())).await?;
            match self.gather_stripe(stripe).await {
                Ok(()) => {}
                Err(Failed::Lost(id, loss)) => {
                    self.lose(vec![(id, loss)]).await;
                    return Err(IoError::NotNow);
                }
                Err(Failed::Away) => return Err(IoError::NotNow),
                Err(Failed::Io(error)) => return Err(error),
            }
        }
        Ok(())
    }

    /// The caller has the stripe's turn, and its region is settled.
    async fn gather_stripe(&self, stripe: Stripe) -> Result<(), Failed> {
        let changes = self.lock().changes;
        let members = self.clean_rows(stripe, None)?;
        // Members that are behind may have rows of other lines.
        let all: Vec<Copy<W>> = {
            let (state, first) = (self.lock(), stripe.rows(&(0..ROWS)).first);
            (0..state.members.list.len()).filter_map(|at| self.copy(&state, at, first)).collect()
        };
        let lines = self.lines(ROWS, all.iter()).await?;
        for line in lines.iter().rev() {
            let mut has = Has { data: BTreeSet::new(), hidden: BTreeSet::new() };
            for rows in &members {
                let of_member = self.rows_had(&rows.copy.on(line)).await?;
                has.data.extend(of_member.data);
                has.hidden.extend(of_member.hidden);
            }
            has.hidden.retain(|row| !has.data.contains(row)); // a member without room to hide rows has zeros
            self.log_rows(stripe, line, &has).await?;
            {
                let mut state = self.lock();
                // A drive that has come since may have rows that were never finished.
                if state.changes != changes || state.unsure.regions.contains(&stripe.region()) {
                    return Err(Failed::Away);
                }
                // Reads that have found nothing in the log read again.
                state.unsure.refusals.add(std::iter::once(stripe.region()));
            }
            let _changing = self.changing(std::iter::once(stripe.number), Phase::Leaving);
            // Notes that hide nothing any more go too.
            let run = self.run_of(stripe.rows(&(0..ROWS)));
            let uncover =
                async |targets: &[Target<W>], lineage: &Lineage| self.uncover_each(targets, run, lineage).await;
            let mut writing = Writing::line(line.epochs.clone(), &line.seen);
            let outcome = self.until_all_took((stripe.blocks(), Among::ALL), &mut writing, uncover).await;
            self.gathered(stripe, line, outcome)?;
        }
        Ok(())
    }

    /// Writes the blocks of one line's rows into the log, except those that all copies of the log have already.
    async fn log_rows(&self, stripe: Stripe, line: &Line, has: &Has) -> Result<(), Failed> {
        let mut logged: Option<BTreeSet<u64>> = None;
        for copy in self.copies_of_log(stripe)? {
            let own = copy.on(line).has_itself(self.shared.column.map, stripe.blocks().count).await?;
            logged = Some(logged.map_or_else(|| own.clone(), |logged| &logged & &own));
        }
        let logged = logged.unwrap_or_default();
        for unit in 0..usize::from(self.shared.fragments.data) {
            let is_missing = |row: u64| !logged.contains(&(unit as u64 * ROWS + row));
            let mut parts: Vec<(u64, Gather)> = Vec::new();
            for rows in runs(ROWS, |row| is_missing(row) && has.data.contains(&row)) {
                let (found, _) = self.fragment_in_place(stripe, unit, &rows, &line.seen, None).await?;
                parts.push((stripe.unit(unit, &rows).first, found.into_iter().collect()));
            }
            for rows in runs(ROWS, |row| is_missing(row) && has.hidden.contains(&row)) {
                let zeros = Buffer::zeroed(((rows.end - rows.start) * BLOCK) as usize).freeze();
                parts.push((stripe.unit(unit, &rows).first, Gather::from_iter([zeros])));
            }
            for (first, found) in parts {
                let data = Data { is_kept: true, ..Data::new(first, found, None) };
                self.logs(data.blocks());
                let mut writing = Writing::line(line.epochs.clone(), &line.seen);
                let outcome = self.write_copies(&data, true, &mut writing).await;
                self.gathered(stripe, line, outcome)?;
            }
        }
        Ok(())
    }

    /// The outcome of a step. A step that couldn't be finished leaves members different: the region is settled before anything is read
    /// there.
    fn gathered(&self, stripe: Stripe, line: &Line, outcome: Result<Written, IoError>) -> Result<(), Failed> {
        match outcome {
            Ok(Written::Done) if std::sync::Arc::ptr_eq(&self.lock().seen.epochs, &line.epochs) => Ok(()),
            Ok(Written::Done | Written::Waits { begun: true, .. }) => {
                self.differ(stripe.blocks());
                Err(Failed::Away)
            }
            Ok(Written::Waits { .. }) => Err(Failed::Away),
            Err(error) => Err(Failed::Io(error)),
        }
    }

    /// Whether nothing of these blocks' stripes is in place.
    pub(super) async fn is_gathered(&self, blocks: Blocks) -> Result<bool, IoError> {
        for (first, count) in self.shared.column.cut(blocks.first, blocks.count) {
            if !self.is_bare_on_all(self.rows_of(Blocks::new(first, count))).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether no member that is here holds anything of these blocks of one region, as drives number them, in any epoch. `NotNow` if
    /// too few members are here to tell.
    pub(super) async fn is_bare_on_all(&self, blocks: Blocks) -> Result<bool, IoError> {
        let (map, place) = (self.shared.column.map, self.shared.column.place(blocks.first));
        let region = self.shared.column.region_of(blocks.first);
        let (members, changes): (Vec<Holder<W>>, u64) = {
            let state = self.lock();
            if !matches!(state.members.clean(region), RegionState::Clean(_)) {
                return Err(IoError::NotNow);
            }
            (state.members.here().cloned().collect(), state.changes)
        };
        let asked = members.iter().map(async |drive| match drive.is_bare(map, place, blocks.count) {
            true => Ok(true),
            false => drive.epochs_of(map, place, blocks.count).await.map(|epochs| epochs.is_empty()),
        });
        let mut is_bare = true;
        for (drive, answer) in members.iter().zip(join_all(asked).await) {
            match answer {
                Ok(answer) => is_bare &= answer,
                Err(DriveError::Lost(loss)) => {
                    self.lose(vec![(drive.id(), loss)]).await;
                    return Err(IoError::NotNow);
                }
                Err(error) => return Err(IoError::Unavailable { reason: error.to_string() }),
            }
        }
        if self.lock().changes != changes { Err(IoError::NotNow) } else { Ok(is_bare) }
    }

    /// The requests that blocks have taken as noted in place, where a large write has skipped the log.
    pub(super) async fn noted_in_place(&self, blocks: Blocks) -> Result<Vec<Taken>, IoError> {
        let (column, newest) = (&self.shared.column, self.lock().seen.epochs.newest_line());
        let mut noted = Vec::new();
        for unit in blocks.pieces(ROWS) {
            let stripe = Stripe::of(column, unit.first);
            let (_, rows) = stripe.locate(unit);
            let Some(source) = self.sources(stripe).ok().and_then(|sources| sources.into_iter().next()) else {
                return Err(IoError::NotNow);
            };
            let place = column.place(stripe.rows(&rows).first);
            match source.drive.content(column.map, place, unit.count, &newest).await {
                Ok((_, taken)) => noted.extend(
                    taken
                        .into_iter()
                        .map(|taken| Taken { first: taken.first - place + unit.first - blocks.first, ..taken }),
                ),
                Err(DriveError::Lost(loss)) => {
                    self.lose(vec![(source.drive.id(), loss)]).await;
                    return Err(IoError::NotNow);
                }
                Err(error) => return Err(IoError::Unavailable { reason: error.to_string() }),
            }
        }
        Ok(noted)
    }

    /// The numbers of those ranges of blocks of which anything may be held or noted, in the log or in place.
    pub(super) async fn parts_of_stripes_held(&self, parts: &[(u64, Blocks)]) -> Result<Vec<u64>, IoError> {
        // In this order: stripes that are gathered meanwhile go from place to the log.
        let mut held = self.extents_in_place(true).await?;
        held.extend(self.extents_of_copies(true).await?);
        let state = self.lock();
        let is_settled = |region: u64| {
            !state.unsure.regions.contains(&region) && matches!(state.members.clean(region), RegionState::Clean(_))
        };
        let may_hold = |blocks: &Blocks| {
            held.range(blocks.first / ROWS * ROWS..blocks.end()).next().is_some()
                || !self.shared.column.regions(blocks.first, blocks.count).all(is_settled)
        };
        Ok(parts.iter().filter(|(_, blocks)| may_hold(blocks)).map(|(number, _)| *number).collect())
    }
}
