//! Making stripes whole, after a crash or an absence: the log's copies as whole copies are, then the rows in place.

use super::log::Phase;
use super::stripe::{Stripe, runs};
use crate::column::background::{Stuck, failed};
use crate::column::members::RegionState;
use crate::column::read::{Failed, lost};
use crate::column::redundancy::{CodeState, Why};
use crate::column::{Blocks, Group};
use crate::map::ROWS;
use crate::protocol::copies::recover::{Copy, Line, Saying, taken_by_both};
use bytes::Bytes;
use futures_util::future::join_all;
use std::collections::BTreeSet;
use std::ops::Range;
use tepal_codec::checksum::block_crcs;
use tepal_drive::world::{Gather, World};
use tepal_drive::{DriveError, Write};
use tepal_model::buffer::join;
use tepal_model::{BLOCK, Buffer, IoError, Taken, Taking};

/// One member's rows of a stripe.
pub(super) struct Rows<W: World> {
    at: usize,
    fragment: usize,
    pub copy: Copy<W>,
}

/// What a member has of the rows in one line.
pub(super) struct Has {
    /// Rows with data of this line.
    pub data: BTreeSet<u64>,
    /// Rows of which this line hides older lines' data.
    pub hidden: BTreeSet<u64>,
}

impl<W: World> Group<W> {
    /// Makes the fragments of a region whole.
    pub(super) async fn make_stripes_whole(&self, region: u64, why: Why) -> Result<(), Stuck> {
        if self.lock().members.clean(region) == RegionState::GivenUp {
            return self.empty_region(region).await;
        }
        self.equalise_region(region, why).await?;
        let (first, count) = self.shared.column.blocks_of(region);
        for stripe in Stripe::touched(&self.shared.column, Blocks::new(first, count)) {
            self.until_whole(stripe, why).await?;
        }
        // What the log has now is destaged.
        self.may_log(Stripe::touched(&self.shared.column, Blocks::new(first, count)).map(|stripe| stripe.number));
        Ok(())
    }

    async fn until_whole(&self, stripe: Stripe, why: Why) -> Result<(), Stuck> {
        let blocks = stripe.blocks();
        let _turn = self.shared.order.line_up_repair(blocks.first, blocks.count).turn().await;
        loop {
            {
                let mut state = self.lock();
                state.serves().map_err(Stuck::Failed)?;
                match state.members.clean(stripe.region()) {
                    // A row that was never finished would be decoded.
                    RegionState::Clean(_)
                        if matches!(why, Why::Missed(_)) && state.unsure.regions.contains(&stripe.region()) =>
                    {
                        return Err(Stuck::Waits(Group::next_change(&mut state)));
                    }
                    RegionState::Clean(_) => {}
                    RegionState::Waiting | RegionState::GivenUp => {
                        return Err(Stuck::Waits(Group::next_change(&mut state)));
                    }
                    RegionState::Lost => return Err(Stuck::Failed(lost(stripe.blocks()))),
                }
            }
            let outcome = match why {
                Why::Unresolved | Why::Doubted => self.settle_stripe(stripe).await,
                Why::Missed(at) => self.bring_fragment(stripe, at).await,
            };
            match outcome {
                Ok(()) => return Ok(()),
                Err(Failed::Lost(id, loss)) => self.lose(vec![(id, loss)]).await,
                Err(Failed::Away) => {}
                Err(Failed::Io(error)) => return Err(Stuck::Failed(error)),
            }
            self.shared.world.give_way().await;
        }
    }

    /// The clean members of a stripe that are here, except one.
    pub(super) fn clean_rows(&self, stripe: Stripe, but: Option<usize>) -> Result<Vec<Rows<W>>, Failed> {
        let state = self.lock();
        let RegionState::Clean(clean) = state.members.clean(stripe.region()) else { return Err(Failed::Away) };
        let first = stripe.rows(&(0..ROWS)).first;
        let rows = |at: usize| {
            let copy = self.copy(&state, at, first)?;
            Some(Rows { at, fragment: state.members.list[at].fragment, copy })
        };
        Ok(clean.into_iter().filter(|&at| Some(at) != but).filter_map(rows).collect())
    }

    /// Rows that some clean members have and others don't, in one line, were never finished: they are taken out. Rows that all have are
    /// written again, if the log has all their blocks.
    async fn settle_stripe(&self, stripe: Stripe) -> Result<(), Failed> {
        let members = self.clean_rows(stripe, None)?;
        let lines = self.lines(ROWS, members.iter().map(|rows| &rows.copy)).await?;
        let mut noted: Vec<Vec<Taken>> = Vec::with_capacity(members.len());
        for rows in &members {
            noted.push(rows.copy.content(self.shared.column.map, ROWS).await?.1);
        }
        for line in &lines {
            let mut has = Vec::with_capacity(members.len());
            for rows in &members {
                has.push(self.rows_had(&rows.copy.on(line)).await?);
            }
            let in_all = |row: u64| has.iter().all(|has| has.data.contains(&row));
            let in_none = |row: u64| !has.iter().any(|has| has.data.contains(&row) || has.hidden.contains(&row));
            let hidden_in_all = |row: u64| has.iter().all(|has| has.hidden.contains(&row));
            let is_whole = |row: u64| in_all(row) || in_none(row) || hidden_in_all(row);
            let is_hidden = |row: u64| has.iter().any(|has| has.hidden.contains(&row));
            let (hide, uncover) = (
                runs(ROWS, |row| !is_whole(row) && is_hidden(row)),
                runs(ROWS, |row| !is_whole(row) && !is_hidden(row)),
            );
            // Rows that all members have may be half written, if the log has all their blocks.
            let is_logged = self.fully_logged(stripe, &line.seen).await?;
            let again = runs(ROWS, |row| in_all(row) && is_logged[row as usize]);
            if hide.is_empty() && uncover.is_empty() && again.is_empty() {
                continue;
            }
            let mut fragments = Vec::with_capacity(again.len());
            for run in &again {
                let data = self.data_of_rows(stripe, run, &line.seen).await?;
                let code = self.code_of(&data);
                fragments.push((run, data.into_iter().chain(code).collect::<Vec<Bytes>>()));
            }
            // Members that are catching up may have decoded what changes now: they begin again.
            {
                let mut state = self.lock();
                let is_settled = |at: usize| members.iter().any(|rows| rows.at == at);
                for (at, member) in state.members.list.iter_mut().enumerate() {
                    member.left_out += u64::from(member.drive().is_some() && !is_settled(at));
                }
            }
            let _changing = self.changing(std::iter::once(stripe.number), Phase::InPlace);
            // Of rows that are taken out, the requests count that all members without the row have noted: a write of the row isn't among
            // them, and what took it out is.
            let taken_without = |row: &Range<u64>| {
                let lacks = |has: &Has| !has.data.contains(&row.start);
                let without = has.iter().zip(&noted).filter(|(has, _)| lacks(has)).map(|(_, noted)| noted.clone());
                without.reduce(|one, other| taken_by_both(&one, &other)).unwrap_or_default()
            };
            let each = |runs: Vec<Range<u64>>| -> Vec<(Range<u64>, Vec<Taken>)> {
                let rows = runs.into_iter().flatten().map(|row| row..row + 1);
                rows.map(|row| (row.clone(), taken_without(&row))).collect()
            };
            let (hide, uncover) = (each(hide), each(uncover));
            let outcomes = join_all(members.iter().map(async |rows| {
                let copy = rows.copy.on(line);
                for (run, taken) in &hide {
                    self.hide(&copy, run, taken).await?;
                }
                for (run, taken) in &uncover {
                    self.uncover_run(&copy, run, taken).await?;
                }
                for (run, fragments) in &fragments {
                    self.write_run(&copy, run, fragments[rows.fragment].clone()).await?;
                }
                Ok(())
            }));
            outcomes.await.into_iter().collect::<Result<(), Failed>>()?;
        }
        Ok(())
    }

    /// What a member has of a stripe's rows in a line.
    pub(super) async fn rows_had(&self, copy: &Copy<W>) -> Result<Has, Failed> {
        let map = self.shared.column.map;
        let all = copy.has_itself(map, ROWS).await?;
        let data = match copy.line.seen.own_part() {
            Some(own) => copy.held(map, ROWS, &own).await?,
            None => BTreeSet::new(),
        };
        let hidden = all.difference(&data).copied().collect();
        Ok(Has { data, hidden })
    }

    async fn hide(&self, copy: &Copy<W>, rows: &Range<u64>, taken: &[Taken]) -> Result<(), Failed> {
        self.check_line(copy)?;
        let (map, first, count) = (self.shared.column.map, copy.place + rows.start, rows.end - rows.start);
        let taking = copy.taking(Saying::Those(taken), rows.clone());
        let cleared = copy.drive.clear((map, first, count), Vec::new(), taking, &copy.line.seen).await;
        match cleared {
            // All fragments of zeros are zeros.
            Err(DriveError::OutOfSpace) => {
                let zeros = Buffer::zeroed((count * BLOCK) as usize).freeze();
                self.write_run(copy, rows, zeros).await
            }
            outcome => {
                outcome.map_err(|error| failed(&copy.drive, error))?;
                self.check_line(copy)
            }
        }
    }

    /// Has a member have nothing of some rows in this line. `taken` are the requests that the rows have taken then.
    pub(super) async fn uncover_run(&self, copy: &Copy<W>, rows: &Range<u64>, taken: &[Taken]) -> Result<(), Failed> {
        self.check_line(copy)?;
        let run = (self.shared.column.map, copy.place + rows.start, rows.end - rows.start);
        let taking = copy.taking(Saying::Those(taken), rows.clone());
        let uncovered = copy.drive.uncover(run, taking, &copy.line.seen).await;
        uncovered.map_err(|error| failed(&copy.drive, error))?;
        self.check_line(copy) // by then drives may have joined layers
    }

    pub(super) async fn write_run(&self, copy: &Copy<W>, rows: &Range<u64>, bytes: Bytes) -> Result<(), Failed> {
        self.check_line(copy)?;
        let (count, now) = (bytes.len() as u64, self.shared.world.now());
        let write = Write {
            map: self.shared.column.map,
            first: copy.place + rows.start,
            crcs: block_crcs(&bytes).collect::<Vec<u32>>().into(),
            data: Gather::from_iter([bytes]),
            marks: Vec::new(),
            durable: true,
            repair: self.may_use_reserve(copy),
            taking: Taking::Nothing,
            lineage: &copy.line.seen,
        };
        let outcome = copy.drive.write(write).await;
        let mut state = self.lock();
        state.jobs.copied += count;
        state.jobs.copying.add(count, now);
        drop(state);
        outcome.map_err(|error| failed(&copy.drive, error))?;
        self.check_line(copy)
    }

    /// Brings one member's rows of a stripe up to date.
    async fn bring_fragment(&self, stripe: Stripe, at: usize) -> Result<(), Failed> {
        let target = {
            let state = self.lock();
            let fragment = state.members.list[at].fragment;
            self.copy(&state, at, stripe.rows(&(0..ROWS)).first).map(|copy| Rows { at, fragment, copy })
        };
        let Some(target) = target else { return Ok(()) }; // it's looked for again when it's back
        let sources = self.clean_rows(stripe, Some(at))?;
        let copies = sources.iter().chain([&target]).map(|rows| &rows.copy);
        let lines = self.lines(ROWS, copies).await?;
        let Some(source) = sources.first() else { return Err(Failed::Away) };
        let (_, taken) = source.copy.content(self.shared.column.map, ROWS).await?;
        for line in &lines {
            let wanted = self.rows_had(&source.copy.on(line)).await?;
            let copy = target.copy.on(line);
            let had = self.rows_had(&copy).await?;
            for run in runs(ROWS, |row| wanted.data.contains(&row)) {
                let found = self.fragment_in_place(stripe, target.fragment, &run, &line.seen, Some(at)).await?;
                self.write_run(&copy, &run, join(&found.0)).await?;
            }
            for run in runs(ROWS, |row| wanted.hidden.contains(&row) && !had.hidden.contains(&row)) {
                self.hide(&copy, &run, &taken).await?;
            }
            let has = |row: u64| had.data.contains(&row) || had.hidden.contains(&row);
            let is_wanted = |row: u64| wanted.data.contains(&row) || wanted.hidden.contains(&row);
            for run in runs(ROWS, |row| has(row) && !is_wanted(row)) {
                self.uncover_run(&copy, &run, &taken).await?;
            }
        }
        if taken != target.copy.content(self.shared.column.map, ROWS).await?.1 {
            target.copy.adopt(self.shared.column.map, 0..ROWS, &taken).await?;
        }
        Ok(())
    }

    /// Whether the log's copies of these blocks agree, and the code of the stripes that begin there is that of their data. Makes both so
    /// if they aren't, where it's known what is right.
    pub(super) async fn compare_stripes(&self, blocks: Blocks) -> Result<bool, IoError> {
        let agree = self.compare_copies_of(blocks).await?;
        let code = self.check_code(blocks, true).await?;
        Ok(code.unequal.is_empty() && code.undecided.is_empty() && agree)
    }

    /// Compares the code of the stripes that begin among blocks with their data.
    pub(super) async fn check_code(&self, blocks: Blocks, repairs: bool) -> Result<CodeState, IoError> {
        let mut found = CodeState::default();
        let begins = |stripe: &Stripe| stripe.blocks().first >= blocks.first;
        for stripe in Stripe::touched(&self.shared.column, blocks).filter(begins) {
            match self.compare_stripe(stripe, repairs).await? {
                Compared::Equal => {}
                Compared::Unchecked => found.unchecked += stripe.blocks().count,
                Compared::Undecided => found.undecided.push(stripe.blocks()),
                Compared::Unequal => found.unequal.push(stripe.blocks()),
            }
            self.shared.world.give_way().await;
        }
        Ok(found)
    }

    /// Compares the code of a stripe with its data. With `repairs`, code that is surely wrong is written again.
    async fn compare_stripe(&self, stripe: Stripe, repairs: bool) -> Result<Compared, IoError> {
        let blocks = stripe.blocks();
        let _turn = self.shared.order.line_up_repair(blocks.first, blocks.count).turn().await;
        loop {
            let changes = {
                let state = self.lock();
                state.serves()?;
                if !matches!(state.members.clean(stripe.region()), RegionState::Clean(_))
                    || state.unsure.regions.contains(&stripe.region())
                    || self.shared.order.is_lent(blocks.first, blocks.count)
                {
                    return Ok(Compared::Unchecked); // there's nothing to compare with now
                }
                state.changes
            };
            match self.compare_code(stripe, changes, repairs).await {
                Ok(compared) => return Ok(compared),
                Err(Failed::Lost(id, loss)) => self.lose(vec![(id, loss)]).await,
                Err(Failed::Away) => {}
                Err(Failed::Io(error)) => return Err(error),
            }
            self.shared.world.give_way().await;
        }
    }

    /// Compares checksums of code in place with those of the data's code. `changes` is the number of the state's changes before.
    async fn compare_code(&self, stripe: Stripe, changes: u64, repairs: bool) -> Result<Compared, Failed> {
        let members = self.clean_rows(stripe, None)?;
        let fragments: BTreeSet<usize> = members.iter().map(|rows| rows.fragment).collect();
        let lines = self.lines(ROWS, members.iter().map(|rows| &rows.copy)).await?;
        let mut worst = match fragments.len() == usize::from(self.shared.fragments.count()) {
            true => Compared::Equal,
            false => Compared::Unchecked,
        };
        for line in &lines {
            let Some(source) = members.first() else { return Err(Failed::Away) };
            let has = self.rows_had(&source.copy.on(line)).await?;
            for run in runs(ROWS, |row| has.data.contains(&row)) {
                let (data, code) = match self.code_in_place(stripe, &run, line).await {
                    Ok(found) => found,
                    // Who reads all blocks finds that too.
                    Err(Failed::Io(IoError::Damaged { .. })) => {
                        worst = worst.max(Compared::Unchecked);
                        continue;
                    }
                    Err(error) => return Err(error),
                };
                for rows in members.iter().filter(|rows| rows.fragment >= data) {
                    let copy = rows.copy.on(line);
                    let code = &code[rows.fragment - data];
                    if self
                        .sums_in_place(&copy.drive, stripe.rows(&run), &line.seen)
                        .await?
                        .into_iter()
                        .eq(block_crcs(code))
                    {
                        continue;
                    }
                    // Of a fragment that isn't here, what the others give may be wrong, and this code right.
                    let is_sure = (0..data).all(|unit| fragments.contains(&unit));
                    worst = worst.max(if is_sure { Compared::Unequal } else { Compared::Undecided });
                    tracing::error!(drive = %rows.copy.drive.id(), stripe = stripe.number, repairs, is_sure, "code isn't that of its data");
                    if !repairs || !is_sure {
                        continue;
                    }
                    if self.lock().changes != changes {
                        return Err(Failed::Away);
                    }
                    let _changing = self.changing(std::iter::once(stripe.number), Phase::InPlace);
                    self.write_run(&copy, &run, code.clone()).await?;
                }
            }
        }
        Ok(worst)
    }

    /// How many data fragments there are, and the code of some rows as the data is in place.
    async fn code_in_place(
        &self,
        stripe: Stripe,
        rows: &Range<u64>,
        line: &Line,
    ) -> Result<(usize, Vec<Bytes>), Failed> {
        let units = usize::from(self.shared.fragments.data);
        let mut data = Vec::with_capacity(units);
        for unit in 0..units {
            data.push(join(&self.fragment_in_place(stripe, unit, rows, &line.seen, None).await?.0));
        }
        Ok((units, self.code_of(&data)))
    }
}

/// What a comparison of a stripe's code with its data found, from the best to the worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Compared {
    Equal,
    /// Not all of it could be read, or is up to date, and no difference was found.
    Unchecked,
    /// They differ, and a data fragment isn't here: it can't be told which fragment is wrong.
    Undecided,
    Unequal,
}
