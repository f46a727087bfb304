//! What copies have of some blocks, by the lines of the map's history.

use super::handed::{Handed, runs_of};
use crate::column::members::RegionState;
use crate::column::read::Reader;
use crate::column::{Blocks, Group};
use crate::epochs::Epochs;
use crate::holder::Holder;
use futures_util::future::join_all;
use std::collections::BTreeSet;
use tepal_drive::DriveError;
use tepal_drive::world::World;
use tepal_model::{BLOCK, IoError, Lineage, MAX_REQUEST, Segments, Taken};
use tepal_wire::message::volume::HandedLine;

/// Which blocks count as a line's, where copies that show the same have different blocks of the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeldBy {
    /// Blocks that all copies have. A block that one copy alone has of a line shows nothing that an older line doesn't.
    /// It may be left over from when its drive was away, and must not be written over newer data of the target.
    AllCopies,
    /// Blocks that at least one copy has.
    AnyCopy,
}

impl<W: World> Group<W> {
    /// What these lines have here of the blocks, or of as many of them as an answer holds. The caller has gathered the
    /// blocks and has their turn, and their copies are equal.
    pub(super) async fn all_of(
        &self,
        blocks: Blocks,
        (of, epochs): (&[&Lineage], &Epochs),
        by: HeldBy,
    ) -> Result<(u64, Handed), IoError> {
        let (column, newest) = (&self.shared.column, epochs.newest_line());
        // Blocks of one region have the same copies.
        let (first, count) = column.cut(blocks.first, blocks.count).next().ok_or(IoError::NotNow)?;
        let mut blocks = Blocks::new(first, count);
        let (mut others, changes) = {
            let state = self.lock();
            let RegionState::Clean(clean) = state.members.clean_copies(column, column.region_of(first)) else {
                return Err(IoError::NotNow);
            };
            let mut here: Vec<Holder<W>> =
                clean.into_iter().filter_map(|at| state.members.list[at].drive().cloned()).collect();
            here.sort_by_key(|holder| holder.local().is_none());
            (here.into_iter(), state.changes)
        };
        let holder = others.next().ok_or(IoError::NotNow)?;
        if !self.shared.kept.is_gathered(self, blocks).await? {
            return Err(IoError::NotNow);
        }
        let mut lines = loop {
            let lines = self.lines_of(&holder, others.as_slice(), (blocks, by), of).await?;
            let held: u64 = lines.iter().flat_map(|line| &line.held).map(|run| u64::from(run.count)).sum();
            if held * BLOCK <= MAX_REQUEST || blocks.count == 1 {
                break lines;
            }
            blocks.count /= 2;
        };
        let mut data = Segments::new();
        // All lines at once: clients may wait for this, and there may be hundreds of lines.
        for read in join_all(lines.iter_mut().map(|line| self.read_held(blocks.first, line, epochs))).await {
            data.extend(read?);
        }
        let mut requests = self.requests_of(&holder, blocks, &newest).await?;
        requests.extend(self.shared.kept.noted_elsewhere(self, blocks).await?);
        // A drive that has come or gone meanwhile may have left the holder behind.
        if self.lock().changes != changes {
            return Err(IoError::NotNow);
        }
        let data = tepal_model::buffer::join(&data);
        let handed = Handed::of(blocks.first, lines, requests, data).ok_or(IoError::NotNow)?;
        Ok((blocks.count, handed))
    }

    /// The data that a line holds, its blocks numbered from `first` on. Blocks that can't be read are named as damaged,
    /// and not as held.
    async fn read_held(&self, first: u64, line: &mut HandedLine, epochs: &Epochs) -> Result<Segments, IoError> {
        // Everything that the line sees: another copy may show an older line's data there, if that is the same.
        let seen = epochs.history.line_of(line.newest).ok_or(IoError::NotNow)?;
        let (mut data, mut held, mut damaged) = (Segments::new(), BTreeSet::new(), BTreeSet::new());
        for run in std::mem::take(&mut line.held) {
            let of_run = Blocks::new(first + u64::from(run.first), run.count.into());
            if let Some(read) = self.read_if_right(of_run, seen).await? {
                data.extend(read);
                held.extend(run.first..run.first + run.count);
                continue;
            }
            for (one, number) in of_run.each().zip(run.first..) {
                match self.read_if_right(one, seen).await? {
                    Some(read) => {
                        data.extend(read);
                        held.insert(number);
                    }
                    None => drop(damaged.insert(number)),
                }
            }
        }
        (line.held, line.damaged) = (runs_of(&held), runs_of(&damaged));
        Ok(data)
    }

    /// `None` if a part of the blocks is damaged. The caller has the turn.
    async fn read_if_right(&self, blocks: Blocks, seen: &Lineage) -> Result<Option<Segments>, IoError> {
        match self.read_copies(blocks, Reader::HasTurn(seen)).await {
            Ok((read, _)) => Ok(Some(read)),
            Err(IoError::Damaged { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The requests that blocks of a copy have taken, numbered from the first one.
    pub async fn requests_of(&self, holder: &Holder<W>, blocks: Blocks, seen: &Lineage) -> Result<Vec<Taken>, IoError> {
        let (column, place) = (&self.shared.column, self.shared.column.place(blocks.first));
        match holder.content(column.map, place, blocks.count, seen).await {
            Ok((_, taken)) => {
                Ok(taken.into_iter().map(|taken| Taken { first: taken.first - place, ..taken }).collect())
            }
            Err(error) => Err(self.gone(holder, error).await),
        }
    }

    /// What each line has of these blocks, newer lines first. The copies show the same, but may show it by different
    /// lines.
    async fn lines_of(
        &self,
        holder: &Holder<W>,
        others: &[Holder<W>],
        (blocks, by): (Blocks, HeldBy),
        of: &[&Lineage],
    ) -> Result<Vec<HandedLine>, IoError> {
        let mut found = self.epochs_of(holder, blocks).await?;
        if by == HeldBy::AnyCopy {
            for other in others {
                found.extend(self.epochs_of(other, blocks).await?);
            }
        }
        let own = of.iter().rev().filter(|line| found.iter().any(|&epoch| line.owns(epoch)));
        let asked = join_all(own.map(|line| self.line_of(holder, others, (blocks, by), line))).await;
        Ok(asked.into_iter().collect::<Result<Vec<_>, IoError>>()?.into_iter().flatten().collect())
    }

    /// The same of one line; `None` if the line has nothing.
    async fn line_of(
        &self,
        holder: &Holder<W>,
        others: &[Holder<W>],
        (blocks, by): (Blocks, HeldBy),
        line: &Lineage,
    ) -> Result<Option<HandedLine>, IoError> {
        let (mut held, mut hidden) =
            (self.held_by_line(holder, blocks, line).await?, self.hidden_by_line(holder, blocks, line).await?);
        for other in others {
            let mut has = self.held_by_line(other, blocks, line).await?;
            if by == HeldBy::AnyCopy {
                held.extend(has);
                hidden.extend(self.hidden_by_line(other, blocks, line).await?);
                continue;
            }
            if !held.is_subset(&has) || !hidden.is_subset(&has) {
                has.extend(self.hidden_by_line(other, blocks, line).await?);
            }
            held.retain(|block| has.contains(block));
            hidden.retain(|block| has.contains(block));
        }
        hidden.retain(|block| !held.contains(block));
        let has_any = !held.is_empty() || !hidden.is_empty();
        Ok(has_any.then(|| HandedLine {
            newest: line.newest(),
            held: runs_of(&held),
            hidden: runs_of(&hidden),
            damaged: Vec::new(),
        }))
    }

    /// The blocks of which a line itself has data, without older lines.
    pub(super) async fn held_by_line(
        &self,
        holder: &Holder<W>,
        blocks: Blocks,
        line: &Lineage,
    ) -> Result<BTreeSet<u32>, IoError> {
        let own = line.own_part().ok_or(IoError::NotNow)?;
        self.present_in(holder, blocks, &own).await
    }

    /// The blocks of which only older lines have data, and which the line doesn't show.
    pub(super) async fn hidden_by_line(
        &self,
        holder: &Holder<W>,
        blocks: Blocks,
        line: &Lineage,
    ) -> Result<BTreeSet<u32>, IoError> {
        let Some(older) = line.older_part() else { return Ok(BTreeSet::new()) };
        let all = self.present_in(holder, blocks, line).await?;
        let older = self.present_in(holder, blocks, &older).await?;
        Ok(older.difference(&all).copied().collect())
    }

    /// Which of these blocks hold something, numbered from the first one.
    pub(super) async fn present_in(
        &self,
        holder: &Holder<W>,
        blocks: Blocks,
        seen: &Lineage,
    ) -> Result<BTreeSet<u32>, IoError> {
        let (column, place) = (&self.shared.column, self.shared.column.place(blocks.first));
        match holder.held(column.map, place, blocks.count, seen).await {
            Ok(held) => Ok(held.into_iter().map(|block| block as u32).collect()),
            Err(error) => Err(self.gone(holder, error).await),
        }
    }

    /// Why a copy couldn't answer.
    pub(super) async fn gone(&self, holder: &Holder<W>, error: DriveError) -> IoError {
        match error {
            DriveError::Lost(loss) => {
                self.lose(vec![(holder.id(), loss)]).await;
                IoError::NotNow
            }
            error => IoError::Unavailable { reason: error.to_string() },
        }
    }

    pub(super) async fn epochs_of(&self, holder: &Holder<W>, blocks: Blocks) -> Result<BTreeSet<u32>, IoError> {
        let column = &self.shared.column;
        match holder.epochs_of(column.map, column.place(blocks.first), blocks.count).await {
            Ok(epochs) => Ok(epochs.into_iter().collect()),
            Err(error) => Err(self.gone(holder, error).await),
        }
    }
}
