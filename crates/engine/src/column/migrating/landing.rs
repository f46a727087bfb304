//! How all copies here get the data that the source has handed over.

use super::handed::{Handed, runs_of};
use crate::column::epochs::Writing;
use crate::column::members::RegionState;
use crate::column::order::Turn;
use crate::column::read::Reader;
use crate::column::redundancy::{Data, Written};
use crate::column::{Blocks, Group};
use crate::epochs::Epochs;
use crate::holder::Holder;
use crate::seen_through::Asker;
use crate::volume::MapMigration;
use futures_util::future::join_all;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tepal_drive::world::{Gather, World};
use tepal_model::{BLOCK, Buffer, IoError, Lineage, Origin, Taken, Taking};

impl<W: World> Group<W> {
    /// Writes everything that was handed over to all copies.
    pub(super) async fn write_handed(
        &self,
        mut turn: Turn,
        (migration, blocks): (&MapMigration, Blocks),
        handed: &[Handed],
        epochs: &Arc<Epochs>,
    ) -> Result<(), IoError> {
        let (asker, mut at) = (Asker::present(), vec![0; handed.len()]);
        self.forget_idle_notes(blocks, epochs).await?;
        for line in epochs.history.lines().iter().rev() {
            let mut writes: Vec<(u64, Gather)> = Vec::new();
            for (handed, at) in handed.iter().zip(&mut at) {
                let Some(own) = handed.lines.iter().find(|own| own.newest == line.newest()) else { continue };
                for run in &own.held {
                    let data = handed.blocks[*at..*at + run.count as usize].iter().cloned().collect();
                    *at += run.count as usize;
                    writes.push((handed.first + u64::from(run.first), data));
                }
                for run in &own.hidden {
                    let zeros = Buffer::zeroed(run.count as usize * BLOCK as usize).freeze();
                    writes.push((handed.first + u64::from(run.first), Gather::from_iter([zeros])));
                }
            }
            let write = async |turn: &Turn| {
                let writes = writes.iter().map(async |(first, data)| {
                    let (data, mut writing) =
                        (Data::new(*first, data.clone(), None), Writing::line(epochs.clone(), line));
                    self.shared.kept.put(self, turn, (&data, true), &mut writing).await
                });
                of_all(join_all(writes).await)
            };
            turn = self.on_all_copies((turn, blocks), &asker, write).await?;
        }
        // The blocks that a line hides are here by now. Where they can be hidden, zeros needn't take room any more.
        for line in epochs.history.lines() {
            let own = handed.iter().flat_map(|handed| {
                let of_line = handed.lines.iter().filter(|own| own.newest == line.newest());
                let hidden = of_line.flat_map(|own| &own.hidden);
                hidden.map(|run| Blocks::new(handed.first + u64::from(run.first), run.count.into()))
            });
            let hidden: Vec<Blocks> = own.collect();
            let clear = async |turn: &Turn| {
                let clears = hidden.iter().map(async |hidden| {
                    let mut writing = Writing::line(epochs.clone(), line);
                    match self.shared.kept.clear(self, turn, (*hidden, None), &mut writing).await {
                        // Where there's no room to hide blocks, zeros stay.
                        Err(IoError::OutOfSpace) => Ok(Written::Done),
                        outcome => outcome,
                    }
                });
                of_all(join_all(clears).await)
            };
            turn = self.on_all_copies((turn, blocks), &asker, clear).await?;
        }
        if handed.iter().any(|handed| !handed.requests.is_empty()) {
            self.note_handed(turn, (migration, blocks), handed, epochs).await?;
        }
        Ok(())
    }

    /// Removes notes of copies that hide nothing. Such a note is left where the blocks that it hid are gone, and would
    /// hide blocks that are written there now.
    async fn forget_idle_notes(&self, blocks: Blocks, epochs: &Arc<Epochs>) -> Result<(), IoError> {
        let (column, lines) = (&self.shared.column, epochs.history.lines());
        let here: Vec<Holder<W>> = self.lock().members.here().filter(|_| lines.len() > 1).cloned().collect();
        for holder in here {
            let found = self.epochs_of(&holder, blocks).await?;
            let own: Vec<&Lineage> = lines.iter().filter(|line| found.iter().any(|&epoch| line.owns(epoch))).collect();
            let asked = own.iter().map(|line| self.shown_by_line(&holder, blocks, line));
            for (line, has) in own.iter().zip(join_all(asked).await) {
                let has = has?;
                let idle: BTreeSet<u32> = (0..blocks.count as u32).filter(|block| !has.contains(block)).collect();
                for run in runs_of(&idle) {
                    // Drives may have joined lines by now.
                    if !Arc::ptr_eq(&self.lock().seen.epochs, epochs) {
                        return Err(IoError::NotNow);
                    }
                    let place = column.place(blocks.first + u64::from(run.first));
                    let run = (column.map, place, run.count.into());
                    if let Err(error) = holder.uncover(run, Taking::Nothing, line).await {
                        return Err(self.gone(&holder, error).await);
                    }
                }
            }
        }
        Ok(())
    }

    /// The blocks of which a line has data itself, or hides older lines' data.
    async fn shown_by_line(
        &self,
        holder: &Holder<W>,
        blocks: Blocks,
        line: &Lineage,
    ) -> Result<BTreeSet<u32>, IoError> {
        let mut has = self.held_by_line(holder, blocks, line).await?;
        has.extend(self.hidden_by_line(holder, blocks, line).await?);
        Ok(has)
    }

    /// Notes on all copies which requests the blocks have taken, at the source or here.
    async fn note_handed(
        &self,
        turn: Turn,
        (migration, blocks): (&MapMigration, Blocks),
        handed: &[Handed],
        epochs: &Arc<Epochs>,
    ) -> Result<(), IoError> {
        let (asker, line, column) = (Asker::present(), epochs.newest_line(), &self.shared.column);
        let turn = self.settled_for(turn, &asker, (Reader::Copies(&line), blocks)).await?;
        if !self.is_window(migration) {
            return Err(IoError::NotNow); // the window may have moved on while the turn was lent
        }
        let (holder, changes) = {
            let state = self.lock();
            let RegionState::Clean(clean) = state.members.clean_copies(column, column.region_of(blocks.first)) else {
                return Err(IoError::NotNow);
            };
            let holder = clean.into_iter().find_map(|at| state.members.list[at].drive().cloned());
            (holder.ok_or(IoError::NotNow)?, state.changes)
        };
        let mut own = self.requests_of(&holder, blocks, &line).await?;
        own.extend(self.shared.kept.noted_elsewhere(self, blocks).await?);
        if self.lock().changes != changes {
            return Err(IoError::NotNow);
        }
        let place = column.place(blocks.first);
        let theirs = handed.iter().flat_map(|handed| {
            let by = handed.first - blocks.first;
            handed.requests.iter().map(move |taken| Taken { first: taken.first + by, ..*taken })
        });
        let all = newest_of_each(own.into_iter().chain(theirs));
        let all: Vec<Taken> = all.into_iter().map(|taken| Taken { first: taken.first + place, ..taken }).collect();
        let mut writing = Writing::line(epochs.clone(), &line);
        let note = async |turn: &Turn| self.shared.kept.note(self, turn, (blocks, &all), &mut writing).await;
        self.on_all_copies((turn, blocks), &asker, note).await.map(drop)
    }

    /// Makes a change, tried until all copies that are here have it. If it ends before, copies that have the change are
    /// told apart from copies that don't.
    pub(super) async fn on_all_copies(
        &self,
        (mut turn, blocks): (Turn, Blocks),
        asker: &Asker,
        mut change: impl AsyncFnMut(&Turn) -> Result<Written, IoError>,
    ) -> Result<Turn, IoError> {
        let mut has_begun = false;
        loop {
            let outcome = match change(&turn).await {
                Ok(Written::Done) => return Ok(turn),
                Ok(Written::Waits { change, begun }) => {
                    has_begun |= begun;
                    self.wait_for_copies(turn, asker, change, true, blocks).await
                }
                Err(error) => Err(error),
            };
            turn = outcome.inspect_err(|_| {
                if has_begun {
                    self.differ(blocks);
                }
            })?;
        }
    }
}

/// The outcome of several changes that ran at once. A change that waits comes before one that failed: the failed one is
/// tried again, and fails again.
fn of_all(outcomes: Vec<Result<Written, IoError>>) -> Result<Written, IoError> {
    let (done, others): (Vec<_>, Vec<_>) =
        outcomes.into_iter().partition(|outcome| matches!(outcome, Ok(Written::Done)));
    let waits = |outcome: &Result<Written, IoError>| outcome.is_ok();
    let (mut waiting, mut failed): (Vec<_>, Vec<_>) = others.into_iter().partition(waits);
    let begun = !done.is_empty() || waiting.iter().any(|waits| matches!(waits, Ok(Written::Waits { begun: true, .. })));
    match (waiting.pop(), failed.pop()) {
        (Some(Ok(Written::Waits { change, .. })), _) => Ok(Written::Waits { change, begun }),
        (_, Some(error)) => error,
        _ => Ok(Written::Done),
    }
}

/// For each slot of a gateway, the newest request and the blocks that have taken it.
fn newest_of_each(taken: impl Iterator<Item = Taken>) -> Vec<Taken> {
    let mut newest: BTreeMap<(u64, u32), (Origin, BTreeSet<u64>)> = BTreeMap::new();
    for Taken { origin, first, count } in taken {
        let (of, blocks) = newest.entry((origin.gateway, origin.slot)).or_insert((origin, BTreeSet::new()));
        if of.number < origin.number {
            (*of, *blocks) = (origin, BTreeSet::new());
        }
        if of.number == origin.number {
            blocks.extend(first..first + count);
        }
    }
    let mut all: Vec<Taken> = Vec::new();
    for (origin, blocks) in newest.into_values() {
        for block in blocks {
            match all.last_mut() {
                Some(last) if last.origin == origin && last.first + last.count == block => last.count += 1,
                _ => all.push(Taken { origin, first: block, count: 1 }),
            }
        }
    }
    all
}
