//! Destaging: the log's blocks go in place, stripe by stripe, and leave the log.

use super::log::Phase;
use super::read::cut;
use super::stripe::{Stripe, runs};
use crate::column::background::{Stuck, failed};
use crate::column::epochs::Writing;
use crate::column::members::RegionState;
use crate::column::read::{Failed, lost};
use crate::column::redundancy::{Data, Written};
use crate::column::{Group, State};
use crate::map::ROWS;
use crate::protocol::copies::recover::{Copy, Line};
use bytes::Bytes;
use futures_util::future::{join_all, select};
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tepal_drive::world::{Gather, Tick, World};
use tepal_model::IoError;

/// With more stripes in the log than this, the one whose last write is oldest goes in place. Each takes an extent at least on each
/// drive that has the log.
const MOST_LOGGED: usize = 256;
/// With more than so many, writes are slowed down: a write waits for the longer, the more there are, and for this long at most.
const SLOWED_ABOVE: usize = 4 * MOST_LOGGED;
const LONGEST_WAIT: Duration = Duration::from_millis(50);
/// For so long after a write found no room, all goes in place.
const PRESSED: Duration = Duration::from_secs(10);
/// Stripes that are destaged at a time.
const AT_ONCE: usize = 4;
/// How often to look for stripes that have become quiet.
const LOOK: Duration = Duration::from_millis(500);

/// What to do next.
enum Next {
    List,
    Destage(Vec<u64>),
    Rest,
    End,
}

impl<W: World> Group<W> {
    /// Starts destaging, if there may be anything in the log and no task does it already.
    pub(super) fn start_destaging(&self) {
        {
            let state = self.lock();
            let mut known = self.shared.log.lock();
            let is_done = known.listed == Some(state.changes) && known.stripes.is_empty();
            if known.is_tended || is_done || state.served.removed {
                return;
            }
            known.is_tended = true;
        }
        let group = self.clone();
        self.shared.world.spawn(Box::pin(async move { group.destage_all().await }));
    }

    async fn destage_all(self) {
        // Stripes that couldn't be destaged are tried again after a while.
        let mut postponed: BTreeSet<u64> = BTreeSet::new();
        loop {
            match self.next_to_destage(&postponed) {
                Next::End => return,
                Next::List => {
                    if self.list_log().await.is_err() {
                        self.rest(LOOK).await;
                    }
                }
                Next::Rest => {
                    self.rest(LOOK).await;
                    postponed.clear();
                }
                Next::Destage(stripes) => {
                    let outcomes = join_all(stripes.iter().map(|&stripe| self.destage(stripe))).await;
                    for (stripe, outcome) in stripes.into_iter().zip(outcomes) {
                        if let Err(stuck) = outcome {
                            if let Stuck::Failed(error) = stuck {
                                tracing::debug!(stripe, %error, "a stripe stays in the log for now");
                            }
                            postponed.insert(stripe);
                        }
                    }
                    self.shared.world.give_way().await;
                }
            }
        }
    }

    pub(super) async fn rest(&self, time: Duration) {
        let change = Group::next_change(&mut self.lock());
        select(Box::pin(self.shared.world.sleep(time)), change).await;
    }

    /// Returns at once, or after a moment while the log has more than can be destaged.
    pub(super) async fn while_too_much_is_logged(&self) {
        let logged = self.shared.log.lock().stripes.len();
        if let Some(more) = logged.checked_sub(SLOWED_ABOVE) {
            let wait = LONGEST_WAIT.mul_f32((more as f32 / MOST_LOGGED as f32).min(1.0));
            self.shared.world.sleep(wait).await;
        }
    }

    fn next_to_destage(&self, postponed: &BTreeSet<u64>) -> Next {
        let now = self.shared.world.now();
        let quiet = self.engine().map_or(0, |engine| engine.shared.quiet.load(Ordering::Relaxed));
        let quiet = Duration::from_micros(quiet);
        let state = self.lock();
        let mut known = self.shared.log.lock();
        if state.served.removed {
            known.is_tended = false;
            return Next::End;
        }
        if known.listed != Some(state.changes) {
            return if state.members.has_unheard() { Next::Rest } else { Next::List };
        }
        if known.stripes.is_empty() {
            known.is_tended = false;
            return Next::End;
        }
        let many = known.stripes.len() > MOST_LOGGED;
        // While clients write, stripes stay in the log: what is written again and again is as fast as with whole copies, and
        // the others come to have more blocks, and go in place with less for each.
        let since = |then: Tick| now.0.saturating_sub(then.0);
        let is_pressed = known.pressed.is_some_and(|then| since(then) < PRESSED);
        if !many && !is_pressed && since(known.written) < quiet {
            return Next::Rest;
        }
        let due = known.stripes.iter().filter(|(stripe, _)| !postponed.contains(stripe));
        let mut due: Vec<(Tick, u64)> = due.map(|(&stripe, &written)| (written, stripe)).collect();
        due.sort_unstable();
        due.truncate(AT_ONCE);
        if due.is_empty() { Next::Rest } else { Next::Destage(due.into_iter().map(|(_, stripe)| stripe).collect()) }
    }

    /// Finds the stripes of which any log here has something.
    async fn list_log(&self) -> Result<(), IoError> {
        let changes = self.lock().changes;
        let held = self.extents_of_copies(false).await?;
        let stripes: BTreeSet<u64> =
            held.into_iter().map(|first| Stripe::of(&self.shared.column, first).number).collect();
        let state = self.lock();
        // A drive that came meanwhile may not have been asked.
        if state.changes == changes {
            let mut known = self.shared.log.lock();
            for stripe in stripes {
                known.stripes.entry(stripe).or_default();
            }
            known.listed = Some(changes);
        }
        Ok(())
    }

    /// Brings a stripe's blocks from the log in place.
    pub(super) async fn destage(&self, number: u64) -> Result<(), Stuck> {
        let stripe = Stripe::numbered(&self.shared.column, number);
        let blocks = stripe.blocks();
        // Not a repair's turn: that would pass a write that waits for drives, and whose log copies differ meanwhile.
        let _turn = self.line_up_unasked(blocks).turn().await;
        loop {
            let is_on_its_way = self.lock().are_on_their_way(&self.shared.column, blocks);
            if is_on_its_way {
                return self.stays_in_log(stripe).await;
            }
            let changes = {
                let mut state = self.lock();
                state.serves().map_err(Stuck::Failed)?;
                match state.members.clean(stripe.region()) {
                    // First it's decided what the log has.
                    RegionState::Clean(_) if !state.unsure.regions.contains(&stripe.region()) => {}
                    RegionState::Lost => return Err(Stuck::Failed(lost(blocks))),
                    RegionState::Clean(_) | RegionState::Waiting | RegionState::GivenUp => {
                        return Err(Stuck::Waits(Group::next_change(&mut state)));
                    }
                }
                state.changes
            };
            match self.destage_all_lines(stripe, changes).await {
                Ok(()) => {
                    self.shared.log.lock().stripes.remove(&number);
                    return Ok(());
                }
                Err(Failed::Lost(id, loss)) => self.lose(vec![(id, loss)]).await,
                Err(Failed::Away) => {}
                Err(Failed::Io(IoError::NotNow)) => {} // the lines are others by now
                Err(Failed::Io(error)) => return Err(Stuck::Failed(error)),
            }
            self.shared.world.give_way().await;
        }
    }

    /// A stripe that is on its way isn't destaged. Nothing more is to be done of it if the log has nothing.
    async fn stays_in_log(&self, stripe: Stripe) -> Result<(), Stuck> {
        match self.is_bare_on_all(stripe.blocks()).await {
            Ok(true) => {
                self.shared.log.lock().stripes.remove(&stripe.number);
                Ok(())
            }
            Ok(false) | Err(IoError::NotNow) => Err(Stuck::Waits(Group::next_change(&mut self.lock()))),
            Err(error) => Err(Stuck::Failed(error)),
        }
    }

    async fn destage_all_lines(&self, stripe: Stripe, changes: u64) -> Result<(), Failed> {
        let lines = self.lines(stripe.blocks().count, self.copies_of_log(stripe)?.iter()).await?;
        for line in &lines {
            self.destage_line(stripe, line, changes).await?;
        }
        Ok(())
    }

    /// The clean copies of the stripe's log. They show the same, but may show it by different lines.
    pub(super) fn copies_of_log(&self, stripe: Stripe) -> Result<Vec<Copy<W>>, Failed> {
        let state = self.lock();
        let RegionState::Clean(clean) = state.members.clean_copies(&self.shared.column, stripe.region()) else {
            return Err(Failed::Away);
        };
        let copy = |at| self.copy(&state, at, stripe.blocks().first).ok_or(Failed::Away);
        clean.into_iter().map(copy).collect()
    }

    /// Brings what the log has of one line in place. The log has nothing of older lines any more. `changes` is the number of the state's
    /// changes when the region was found settled.
    async fn destage_line(&self, stripe: Stripe, line: &Line, changes: u64) -> Result<(), Failed> {
        let (map, blocks) = (self.shared.column.map, stripe.blocks());
        // Of this line any copy may have a block that others show by an older line, or in place.
        let (mut own, mut shown): (BTreeSet<u64>, Option<BTreeSet<u64>>) = (BTreeSet::new(), None);
        for copy in self.copies_of_log(stripe)? {
            let copy = copy.on(line);
            own.extend(copy.has_itself(map, blocks.count).await?);
            let of_copy = copy.held(map, blocks.count, &line.seen).await?;
            shown = Some(shown.map_or_else(|| of_copy.clone(), |shown| &shown & &of_copy));
        }
        if own.is_empty() {
            return Ok(());
        }
        let shown = shown.unwrap_or_default();
        let is_shown = |unit: u64, row: u64| shown.contains(&(unit * ROWS + row));
        let units = blocks.count / ROWS;
        // Rows of which the log shows something go in place. Of others it only hides what has gone in place since.
        let touched = |row: u64| (0..units).any(|unit| own.contains(&(unit * ROWS + row)));
        let goes = |row: u64| touched(row) && (0..units).any(|unit| is_shown(unit, row));
        // Where one member hides rows, others may have had no room for that, and hold zeros.
        let mut held: BTreeSet<u64> = BTreeSet::new();
        for source in self.sources(stripe)? {
            let place = self.shared.column.place(stripe.rows(&(0..ROWS)).first);
            let of_source = source.drive.held(map, place, ROWS, &line.seen).await;
            held.extend(of_source.map_err(|error| failed(&source.drive, error))?);
        }
        let changing = self.changing(std::iter::once(stripe.number), Phase::InPlace);
        for is_held in [true, false] {
            for rows in runs(ROWS, |row| goes(row) && held.contains(&row) == is_held) {
                let data = self.data_of_rows(stripe, &rows, &line.seen).await?;
                // A drive that has come since may have rows that were never finished, and may have been read.
                let is_as_found =
                    |state: &State<W>| state.changes == changes && !state.unsure.regions.contains(&stripe.region());
                if !is_as_found(&self.lock()) {
                    return Err(Failed::Away);
                }
                if is_held {
                    self.fill(stripe, &rows, &data, line, is_shown).await?;
                }
                self.place_rows(stripe, &rows, &data, line, is_held).await?;
            }
        }
        changing.goes_on(Phase::Leaving);
        for rows in runs(ROWS, touched) {
            let parts = match rows.end - rows.start == ROWS {
                true => vec![blocks],
                false => (0..units as usize).map(|unit| stripe.unit(unit, &rows)).collect(),
            };
            let uncover = async |part| {
                let mut writing = Writing::line(line.epochs.clone(), &line.seen);
                self.done((stripe, line), self.uncover_copies(part, &mut writing).await)
            };
            join_all(parts.into_iter().map(uncover)).await.into_iter().collect::<Result<(), Failed>>()?;
        }
        Ok(())
    }

    /// Has the log show all blocks of rows that hold something in place. Blocks that the log shows already are written along with those
    /// that it lacks: one request takes less than several.
    async fn fill(
        &self,
        stripe: Stripe,
        rows: &Range<u64>,
        data: &[Bytes],
        line: &Line,
        is_shown: impl Fn(u64, u64) -> bool,
    ) -> Result<(), Failed> {
        let lacks = |unit: &usize| rows.clone().any(|row| !is_shown(*unit as u64, row));
        let lacking: Vec<usize> = (0..data.len()).filter(lacks).collect();
        let parts: Vec<(u64, Gather)> = match rows.end - rows.start == ROWS && lacking.len() > 1 {
            true => vec![(stripe.blocks().first, data.iter().cloned().collect())],
            false => lacking.iter().map(|&unit| self.missing(stripe, unit, rows, &data[unit], &is_shown)).collect(),
        };
        let write = async |(first, pieces): (u64, Gather)| {
            let data = Data { is_kept: true, ..Data::new(first, pieces, None) };
            let mut writing = Writing::line(line.epochs.clone(), &line.seen);
            self.done((stripe, line), self.write_copies(&data, true, &mut writing).await)
        };
        join_all(parts.into_iter().map(write)).await.into_iter().collect()
    }

    /// The blocks of one data fragment's rows from the first one that the log lacks to the last.
    fn missing(
        &self,
        stripe: Stripe,
        unit: usize,
        rows: &Range<u64>,
        data: &Bytes,
        is_shown: impl Fn(u64, u64) -> bool,
    ) -> (u64, Gather) {
        let mut lacking = rows.clone().filter(|&row| !is_shown(unit as u64, row));
        let first = lacking.next().unwrap_or(rows.start);
        let end = lacking.last().unwrap_or(first) + 1;
        let piece = cut(data, first - rows.start..end - rows.start);
        (stripe.unit(unit, &(first..end)).first, Gather::from_iter([piece]))
    }

    /// Writes rows in place. Rows of zeros hold nothing.
    async fn place_rows(
        &self,
        stripe: Stripe,
        rows: &Range<u64>,
        data: &[Bytes],
        line: &Line,
        is_held: bool,
    ) -> Result<(), Failed> {
        let count = rows.end - rows.start;
        let is_zero = |row: u64| data.iter().all(|bytes| cut(bytes, row..row + 1).iter().all(|&byte| byte == 0));
        let zeros: Vec<bool> = (0..count).map(is_zero).collect();
        for run in runs(count, |row| !zeros[row as usize]) {
            let some: Vec<Bytes> = data.iter().map(|bytes| cut(bytes, run.clone())).collect();
            let rows = rows.start + run.start..rows.start + run.end;
            let mut writing = Writing::line(line.epochs.clone(), &line.seen);
            self.done((stripe, line), self.write_rows(stripe, &rows, &some, &mut writing).await)?;
        }
        for run in runs(count, |row| zeros[row as usize] && is_held) {
            let rows = rows.start + run.start..rows.start + run.end;
            let mut writing = Writing::line(line.epochs.clone(), &line.seen);
            self.done((stripe, line), self.clear_rows(stripe, &rows, &mut writing).await)?;
        }
        Ok(())
    }

    /// A step of destaging that couldn't be finished leaves members different: its region is settled before anything is read there.
    fn done(&self, (stripe, line): (Stripe, &Line), written: Result<Written, IoError>) -> Result<(), Failed> {
        match written {
            Ok(Written::Done) if Arc::ptr_eq(&self.lock().seen.epochs, &line.epochs) => Ok(()),
            // Once a snapshot is gone, drives may have joined the layers that it kept apart, and have met the step with other layers.
            Ok(Written::Done) => {
                self.differ(stripe.blocks());
                Err(Failed::Io(IoError::NotNow))
            }
            Ok(Written::Waits { begun, .. }) => {
                if begun {
                    self.differ(stripe.blocks());
                }
                let reason = "too few drives are here to bring a stripe from the log in place".to_owned();
                Err(Failed::Io(IoError::Unavailable { reason }))
            }
            Err(error) => Err(Failed::Io(error)),
        }
    }
}
