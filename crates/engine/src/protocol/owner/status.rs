//! What stripes and their log hold, found without reading their data.

use super::stripe::Stripe;
use crate::column::background::failed;
use crate::column::members::RegionState;
use crate::column::read::{Failed, Part};
use crate::column::{Blocks, Group};
use crate::holder::Holder;
use crate::map::ROWS;
use crate::protocol::copies::untold;
use crate::runs::add_runs;
use smallvec::SmallVec;
use std::collections::BTreeSet;
use tepal_drive::DriveError;
use tepal_drive::world::World;
use tepal_model::{Fate, IoError, Lineage, Origin};

impl<W: World> Group<W> {
    /// Which blocks hold something, as runs. A row in place is of all its blocks.
    pub(super) async fn held_by_stripes(&self, parts: &[Part<W>]) -> Result<Vec<(u64, bool)>, Failed> {
        let column = &self.shared.column;
        let mut runs: Vec<(u64, bool)> = Vec::new();
        for part in parts {
            let (_, rows) = Stripe::of(column, part.blocks.first).locate(part.blocks);
            let stripe = Stripe::of(column, part.blocks.first);
            if self.is_given_up(stripe) {
                add_runs(&mut runs, part.blocks.count, &BTreeSet::new());
                continue;
            }
            loop {
                let since = self.shared.log.lock().changes();
                let logged = self.logged_blocks(part.blocks, &part.seen).await?;
                let place = column.place(stripe.rows(&rows).first);
                let in_place = part.drive.held(column.map, place, part.blocks.count, &part.seen).await;
                let in_place = in_place.map_err(|error| failed(&part.drive, error))?;
                if self.shared.log.lock().disturbed(stripe.number, since, true) {
                    self.until_changed(stripe).await;
                    continue;
                }
                add_runs(&mut runs, part.blocks.count, &(&logged | &in_place));
                break;
            }
        }
        Ok(runs)
    }

    /// Which blocks may differ between two readers, as runs.
    pub(super) async fn differing_in_stripes(
        &self,
        parts: &[Part<W>],
        before: &Lineage,
    ) -> Result<Vec<(u64, bool)>, Failed> {
        let column = &self.shared.column;
        let mut runs = Vec::new();
        for Part { drive, blocks, seen, .. } in parts {
            let stripe = Stripe::of(column, blocks.first);
            let (_, rows) = stripe.locate(*blocks);
            // Who has a copy of an older snapshot may have what was given up since.
            if self.lock().members.may_have_given_up() {
                add_runs(&mut runs, blocks.count, &(0..blocks.count).collect());
                continue;
            }
            let keeper = self.keeper(stripe.region())?;
            let logged = self.changed_at(&keeper, *blocks, (before, seen)).await;
            let mut changed = logged.map_err(|error| failed(&keeper, error))?;
            let in_place = self.changed_at(drive, stripe.rows(&rows), (before, seen)).await;
            changed.extend(in_place.map_err(|error| failed(drive, error))?);
            add_runs(&mut runs, blocks.count, &changed);
        }
        Ok(runs)
    }

    /// Whether nothing is held of a stripe, as too little of it was left.
    fn is_given_up(&self, stripe: Stripe) -> bool {
        self.lock().members.clean(stripe.region()) == RegionState::GivenUp
    }

    /// Which of these blocks haven't taken a request; `None` if drives have left. Requests are noted in the log, and in place where the
    /// log was skipped.
    pub(super) async fn fate_in_stripes(&self, origin: Origin, blocks: Blocks) -> Result<Option<Vec<Blocks>>, IoError> {
        let Some(missing) = self.fate_on_copies(origin, blocks).await? else { return Ok(None) };
        let column = &self.shared.column;
        let mut left: Vec<Blocks> = Vec::new();
        for unit in missing.into_iter().flat_map(|blocks| blocks.pieces(ROWS)) {
            let stripe = Stripe::of(column, unit.first);
            let (_, rows) = stripe.locate(unit);
            let Ok(sources) = self.sources(stripe) else { return Ok(None) };
            let Some(source) = sources.first() else { return Ok(None) };
            let place = column.place(stripe.rows(&rows).first);
            let taken = match source.drive.fate(origin, column.map, place, unit.count).await {
                Ok(Fate::Known { taken }) => taken,
                Ok(fate @ (Fate::Superseded | Fate::Forgotten)) => return Err(untold(&fate)),
                Err(DriveError::Lost(loss)) => {
                    self.lose(vec![(source.drive.id(), loss)]).await;
                    return Ok(None);
                }
                Err(error) => return Err(IoError::Unavailable { reason: error.to_string() }),
            };
            let is_taken = |block: u64| {
                let at = place + (block - unit.first);
                taken.iter().any(|taken| (taken.first..taken.first + taken.count).contains(&at))
            };
            for block in unit.each().filter(|block| !is_taken(block.first)) {
                match left.last_mut() {
                    Some(last) if last.end() == block.first => last.count += 1,
                    _ => left.push(block),
                }
            }
        }
        Ok(Some(left))
    }

    /// Whether all clean fragments of blocks of one region are here and hold nothing, nor does the log.
    pub(super) async fn stripes_are_empty(&self, blocks: Blocks, seen: &Lineage) -> bool {
        if !self.copies_are_empty(blocks, seen).await {
            return false;
        }
        let (column, rows) = (&self.shared.column, self.rows_of(blocks));
        let drives: SmallVec<[Option<Holder<W>>; 6]> = {
            let state = self.lock();
            let RegionState::Clean(clean) = state.members.clean(column.region_of(blocks.first)) else { return false };
            clean.into_iter().map(|at| state.members.list[at].drive().cloned()).collect()
        };
        for drive in drives {
            let Some(drive) = drive else { return false };
            let place = column.place(rows.first);
            if !drive.is_empty(column.map, place, rows.count, seen).await.is_ok_and(|empty| empty) {
                return false;
            }
        }
        true
    }

    /// The first blocks of the runs of `ROWS` blocks that hold anything, in the log or in place. With `noted`, also of those that have
    /// taken requests.
    pub(super) async fn extents_of_stripes(&self, noted: bool) -> Result<BTreeSet<u64>, IoError> {
        let mut extents = self.extents_of_copies(noted).await?;
        extents.extend(self.extents_in_place(noted).await?);
        Ok(extents)
    }

    /// The same of what is in place.
    pub(super) async fn extents_in_place(&self, noted: bool) -> Result<BTreeSet<u64>, IoError> {
        let mut extents = BTreeSet::new();
        let column = self.shared.column;
        let members: Vec<Holder<W>> = self.lock().members.here().cloned().collect();
        for drive in members {
            let held = match drive.extents_of(column.map, column.places_in_place(), noted).await {
                Ok(held) => held,
                Err(DriveError::Lost(loss)) => {
                    self.lose(vec![(drive.id(), loss)]).await;
                    continue;
                }
                Err(error) => return Err(IoError::Unavailable { reason: error.to_string() }),
            };
            for place in held {
                let (_, block) = column.at_place(place);
                let stripe = Stripe::numbered(&column, column.row(block).unwrap_or_default() / ROWS);
                let units = 0..usize::from(self.shared.fragments.data);
                extents.extend(units.map(|unit| stripe.unit(unit, &(0..ROWS)).first));
            }
        }
        Ok(extents)
    }
}
