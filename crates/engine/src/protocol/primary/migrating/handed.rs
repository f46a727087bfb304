//! What the source has handed over, and how all copies here come to have it.

use super::handing::{newest_line, runs_of};
use crate::epochs::Epochs;
use crate::holder::Holder;
use crate::protocol::primary::epochs::Writing;
use crate::protocol::primary::members::Copies;
use crate::protocol::primary::order::Turn;
use crate::protocol::primary::read::Reader;
use crate::protocol::primary::write::{Data, Written};
use crate::protocol::primary::{Blocks, Group};
use crate::seen_through::Asker;
use crate::volume::MapMigration;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tepal_drive::world::{Gather, World};
use tepal_model::{BLOCK, Buffer, Epoch, IoError, Lineage, Origin, Taken, Taking};
use tepal_wire::message::volume::{self, HandedLine};

/// What a block begins with that stands in for one that nobody can read.
const STANDS_IN: [u8; 4] = [0xd1, 0x5f, 0xa7, 0xe3];

/// What one side has of some blocks, numbered from the first one.
pub(super) struct Handed {
    pub first: u64,
    pub lines: Vec<HandedLine>,
    pub requests: Vec<Taken>,
    /// One for each block that a line holds, in order.
    pub blocks: Vec<Bytes>,
}

impl Handed {
    /// `None` if the data isn't as long as what the lines hold.
    pub fn of(first: u64, lines: Vec<HandedLine>, requests: Vec<Taken>, data: Bytes) -> Option<Self> {
        let held: usize = lines.iter().flat_map(|line| &line.held).map(|run| run.count as usize).sum();
        let block = |nth: usize| data.slice(nth * BLOCK as usize..(nth + 1) * BLOCK as usize);
        let blocks = || (0..held).map(block).collect();
        (data.len() == held * BLOCK as usize).then(|| Handed { first, lines, requests, blocks: blocks() })
    }

    /// What whoever sees a line sees of a block there; `None` if older lines say that.
    fn shown(&self, newest: Epoch, block: u64) -> Option<Result<Bytes, IoError>> {
        let mut before = 0;
        for line in &self.lines {
            let is_it = line.newest == newest;
            for run in &line.held {
                let run = Blocks::new(self.first + u64::from(run.first), run.count.into());
                if is_it && (run.first..run.end()).contains(&block) {
                    return Some(Ok(self.blocks[before + (block - run.first) as usize].clone()));
                }
                before += run.count as usize;
            }
            let has = |runs: &[volume::Blocks]| self.each_of(runs).any(|one| one == block);
            if is_it && has(&line.damaged) {
                return Some(Err(IoError::Damaged { offset: block * BLOCK, length: BLOCK }));
            }
            if is_it && has(&line.hidden) {
                return Some(Ok(zero()));
            }
        }
        None
    }

    /// Something that a line has in a block. Nobody is shown it. It's nothing that anybody writes: by that a copy that missed it wouldn't
    /// differ from one that has it.
    pub fn stand_in(newest: Epoch, block: u64) -> Self {
        let held = vec![volume::Blocks { first: 0, count: 1 }];
        let line = HandedLine { newest, held, hidden: Vec::new(), damaged: Vec::new() };
        let mut data = Buffer::zeroed(BLOCK as usize);
        for part in data.chunks_mut(16) {
            part[..4].copy_from_slice(&STANDS_IN);
            part[4..8].copy_from_slice(&newest.to_le_bytes());
            part[8..].copy_from_slice(&block.to_le_bytes());
        }
        Handed { first: block, lines: vec![line], requests: Vec::new(), blocks: vec![data.freeze()] }
    }

    /// Whether a line has anything of a block itself, be it that it hides what is older.
    pub fn has(&self, newest: Epoch, block: u64) -> bool {
        let of_line = self.lines.iter().filter(|line| line.newest == newest);
        of_line
            .flat_map(|line| [&line.held, &line.hidden, &line.damaged])
            .any(|runs| self.each_of(runs).any(|one| one == block))
    }

    /// The blocks that can't be read in some line.
    pub fn damaged(&self) -> impl Iterator<Item = u64> {
        self.lines.iter().flat_map(|line| self.each_of(&line.damaged))
    }

    pub fn each_of(&self, runs: &[volume::Blocks]) -> impl Iterator<Item = u64> {
        runs.iter().flat_map(|run| {
            let first = self.first + u64::from(run.first);
            first..first + u64::from(run.count)
        })
    }
}

/// What whoever sees these lines sees of a block, of each of them where it can be read; newer ones come first.
pub(super) fn shown_on_both(
    (source, own): (&[Handed], &[Handed]),
    lines: &[Epoch],
    block: u64,
) -> Result<Bytes, IoError> {
    let sides = || source.iter().chain(own);
    let shown = |line: &Epoch| sides().filter_map(|side| side.shown(*line, block)).reduce(Result::or);
    lines.iter().find_map(shown).unwrap_or_else(|| Ok(zero()))
}

fn is_zero(data: &Bytes) -> bool {
    data.iter().all(|byte| *byte == 0)
}

fn zero() -> Bytes {
    Buffer::zeroed(BLOCK as usize).freeze()
}

impl<W: World> Group<W> {
    /// All that was handed over is on all copies when this returns.
    pub(super) async fn write_handed(
        &self,
        mut turn: Turn,
        (migration, blocks): (&MapMigration, Blocks),
        handed: &[Handed],
        epochs: &Arc<Epochs>,
    ) -> Result<(), IoError> {
        let asker = Asker::patient();
        let mut at: Vec<usize> = vec![0; handed.len()];
        self.forget_idle_notes(blocks, epochs).await?;
        for line in epochs.history.lines().iter().rev() {
            for (handed, at) in handed.iter().zip(&mut at) {
                let Some(own) = handed.lines.iter().find(|own| own.newest == line.newest()) else { continue };
                let mut writes: Vec<(u64, Gather)> = Vec::new();
                for run in &own.held {
                    let data = handed.blocks[*at..*at + run.count as usize].iter().cloned().collect();
                    *at += run.count as usize;
                    writes.push((handed.first + u64::from(run.first), data));
                }
                for run in &own.hidden {
                    let zeros = Buffer::zeroed(run.count as usize * BLOCK as usize).freeze();
                    writes.push((handed.first + u64::from(run.first), Gather::from_iter([zeros])));
                }
                for (first, data) in writes {
                    let mut writing = Writing::line(epochs.clone(), line);
                    loop {
                        let data = Data::new(first, data.clone(), None);
                        match self.write_blocks(&turn, data, true, &mut writing).await? {
                            Written::Done => break,
                            Written::Waits { change, .. } => {
                                turn = self.wait_for_copies(turn, &asker, change, true, blocks).await?;
                            }
                        }
                    }
                }
            }
        }
        // What a line hides is here by now: zeros take no room any more where they can be hidden.
        for line in epochs.history.lines() {
            let own = handed.iter().flat_map(|handed| {
                let of_line = handed.lines.iter().filter(|own| own.newest == line.newest());
                let hidden = of_line.flat_map(|own| &own.hidden);
                hidden.map(|run| Blocks::new(handed.first + u64::from(run.first), run.count.into()))
            });
            for hidden in own {
                let mut writing = Writing::line(epochs.clone(), line);
                loop {
                    match self.clear_line(&turn, hidden, &mut writing).await {
                        Ok(Written::Waits { change, .. }) => {
                            turn = self.wait_for_copies(turn, &asker, change, true, blocks).await?;
                        }
                        // Where there's no room for that, zeros stay.
                        Ok(Written::Done) | Err(IoError::OutOfSpace) => break,
                        Err(error) => return Err(error),
                    }
                }
            }
        }
        if handed.iter().any(|handed| !handed.requests.is_empty()) {
            self.note_handed(turn, (migration, blocks), handed, epochs).await?;
        }
        Ok(())
    }

    /// Notes of copies that hide nothing go. They are left where what they hid has gone, and would hide what is written there now.
    async fn forget_idle_notes(&self, blocks: Blocks, epochs: &Arc<Epochs>) -> Result<(), IoError> {
        let (column, lines) = (&self.shared.column, epochs.history.lines());
        let here: Vec<Holder<W>> = self.lock().members.here().filter(|_| lines.len() > 1).cloned().collect();
        for holder in here {
            let found = self.epochs_of(&holder, blocks).await?;
            for line in lines.iter().filter(|line| found.iter().any(|&epoch| line.owns(epoch))) {
                let mut has = self.held_by_line(&holder, blocks, line).await?;
                has.extend(self.hidden_by_line(&holder, blocks, line).await?);
                let idle: BTreeSet<u32> = (0..blocks.count as u32).filter(|block| !has.contains(block)).collect();
                for run in runs_of(&idle) {
                    // Drives may have joined lines by now.
                    if !Arc::ptr_eq(&self.lock().epochs, epochs) {
                        return Err(IoError::Stopping);
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

    /// Leaves out zeros of a line where it sees nothing older on any copy: they show what nothing shows, and a copy that was away may
    /// have kept them, though the others had nothing to be released.
    pub(super) async fn leave_out_bare_zeros(
        &self,
        handed: &mut Handed,
        count: u64,
        epochs: &Epochs,
    ) -> Result<(), IoError> {
        let blocks = Blocks::new(handed.first, count);
        let mut data = std::mem::take(&mut handed.blocks).into_iter();
        for line in &mut handed.lines {
            let held = line.held.iter().flat_map(|run| run.first..run.first + run.count);
            let held: Vec<(u32, Bytes)> = held.zip(data.by_ref()).collect();
            let mut bare: BTreeSet<u32> =
                held.iter().filter(|(_, data)| is_zero(data)).map(|(block, _)| *block).collect();
            let seen = epochs.history.line_of(line.newest).and_then(Lineage::older_part);
            if let Some(older) = seen.filter(|_| !bare.is_empty()) {
                let here: Vec<Holder<W>> = self.lock().members.here().cloned().collect();
                for holder in here {
                    let shown = self.present_in(&holder, blocks, &older).await?;
                    bare.retain(|block| !shown.contains(block));
                }
            }
            line.held = runs_of(&held.iter().map(|(block, _)| *block).filter(|block| !bare.contains(block)).collect());
            handed.blocks.extend(held.into_iter().filter(|(block, _)| !bare.contains(block)).map(|(_, data)| data));
        }
        Ok(())
    }

    /// What the blocks have taken of requests, there or here, is noted on all copies.
    async fn note_handed(
        &self,
        turn: Turn,
        (migration, blocks): (&MapMigration, Blocks),
        handed: &[Handed],
        epochs: &Arc<Epochs>,
    ) -> Result<(), IoError> {
        let (asker, line, column) = (Asker::patient(), newest_line(epochs), &self.shared.column);
        let mut turn = self.settled_for(turn, &asker, (Reader::Copies(&line), blocks)).await?;
        if !self.is_window(migration) {
            return Err(IoError::Stopping); // the turn was given up in between
        }
        let (holder, changes) = {
            let state = self.lock();
            let Copies::Clean(clean) = state.members.clean(column.region_of(blocks.first)) else {
                return Err(IoError::Stopping);
            };
            let holder = clean.into_iter().find_map(|at| state.members.list[at].drive().cloned());
            (holder.ok_or(IoError::Stopping)?, state.changes)
        };
        let own = self.requests_of(&holder, blocks, &line).await?;
        if self.lock().changes != changes {
            return Err(IoError::Stopping);
        }
        let place = column.place(blocks.first);
        let theirs = handed.iter().flat_map(|handed| {
            let by = handed.first - blocks.first;
            handed.requests.iter().map(move |taken| Taken { first: taken.first + by, ..*taken })
        });
        let all = newest_of_each(own.into_iter().chain(theirs));
        let all: Vec<Taken> = all.into_iter().map(|taken| Taken { first: taken.first + place, ..taken }).collect();
        let mut writing = Writing::line(epochs.clone(), &line);
        loop {
            match self.note_requests(&turn, blocks, &all, &mut writing).await? {
                Written::Done => return Ok(()),
                Written::Waits { change, .. } => {
                    turn = self.wait_for_copies(turn, &asker, change, true, blocks).await?;
                }
            }
        }
    }
}

/// Of each slot of a gateway, the newest request and the blocks that have taken it.
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
