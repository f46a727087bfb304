//! Reads of pieces that can't be taken over now: there's no room for them here, or nobody can read some block of them.
//!
//! What the source has is read there, and what is here, line by line: nobody writes either, for whoever reads has the turn here, and
//! writes wait for the piece to be taken. What the source still has goes first. What it has let go in part is here.
//!
//! A piece of which a block can't be read stays where it is, and with it the migration: the block's readers are told of exactly that
//! block. If the volumes turn around, it's the source's again, to be written.

use super::handed::Handed;
use super::handing::newest_line;
use super::taking::{NotTaken, SOON, pieces};
use crate::epochs::{Epochs, Subject};
use crate::protocol::primary::read::Reader;
use crate::protocol::primary::{Blocks, Group, Patience};
use crate::seen_through::Asker;
use crate::volume::Moving;
use crate::volume::migrating::Run;
use bytes::Bytes;
use tepal_drive::world::World;
use tepal_model::{BLOCK, Epoch, IoError, Lineage, Segments};

/// Whether what can't be taken over for this is read where it is.
pub fn is_read_there(error: &IoError) -> bool {
    matches!(error, IoError::OutOfSpace | IoError::Damaged { .. })
}

impl<W: World> Group<W> {
    /// As [`Group::read_blocks`], of blocks that may not all be here.
    pub async fn read_untaken(&self, blocks: Blocks, subject: Subject) -> Result<Segments, IoError> {
        let mut segments = Segments::new();
        for piece in pieces(blocks) {
            let (first, end) = (piece.first.max(blocks.first), piece.end().min(blocks.end()));
            segments.extend(self.read_piece(Blocks::new(first, end - first), subject).await?);
        }
        Ok(segments)
    }

    async fn read_piece(&self, blocks: Blocks, subject: Subject) -> Result<Segments, IoError> {
        loop {
            match self.enter((subject.volume, blocks)).await {
                Ok(()) => return self.read_blocks(blocks, subject).await,
                Err(error) if is_read_there(&error) => {}
                Err(error) => return Err(error),
            }
            match self.read_on_both_sides(blocks, subject).await {
                Ok(segments) => return Ok(segments),
                Err(NotTaken::Failed(error)) => return Err(error),
                Err(NotTaken::Yet) if self.patience == Patience::Short => return Err(IoError::Stopping),
                Err(NotTaken::Yet) => self.shared.world.sleep(SOON).await,
            }
        }
    }

    async fn read_on_both_sides(&self, blocks: Blocks, subject: Subject) -> Result<Segments, NotTaken> {
        if let Some(snapshot) = subject.at {
            self.until_unchanging((subject.volume, snapshot), blocks).await.map_err(NotTaken::Failed)?;
        }
        let (moving, epochs, seen) = {
            let state = self.lock();
            let seen = state.serves_volume(subject.volume).and_then(|()| state.seen_at(subject));
            let seen = seen.map_err(NotTaken::Failed)?;
            (state.moving.clone().ok_or(NotTaken::Yet)?, state.epochs.clone(), seen)
        };
        let turn = self.turn_soon(blocks).await?;
        let newest = newest_line(&epochs);
        let _turn = self.settled_for(turn, &Asker::patient(), (Reader::Copies(&newest), blocks)).await?;
        let mut all: Vec<Handed> = Vec::new();
        for run in moving.fenced(self.shared.column.number, blocks) {
            all.extend(self.handed_of_each(&moving, &run, &epochs).await?);
        }
        let all_lines: Vec<&Lineage> = epochs.history.lines().iter().collect();
        let mut at = blocks.first;
        while at < blocks.end() {
            let (count, handed) = self.all_of(Blocks::new(at, blocks.end() - at), (&all_lines, &epochs)).await?;
            all.push(handed);
            at += count;
        }
        {
            let state = self.lock();
            let is_same = state.moving.as_ref().is_some_and(|now| now.is_same_window(&moving));
            if !is_same || state.epochs.view != epochs.view {
                return Err(NotTaken::Yet);
            }
        }
        // Newer ones hide older ones.
        let lines: Vec<Epoch> = epochs.history.lines().iter().rev().map(|line| line.newest()).collect();
        let seen: Vec<Epoch> = lines.into_iter().filter(|&newest| seen.sees(newest)).collect();
        let shown = |block: u64| seen.iter().find_map(|&line| all.iter().find_map(|handed| handed.shown(line, block)));
        Ok(blocks.each().map(|block| shown(block.first).unwrap_or_else(zero)).collect())
    }

    /// What the source has of a run. Of blocks of which some can't be read each is asked for by itself, so the error is of one.
    async fn handed_of_each(&self, moving: &Moving, run: &Run, epochs: &Epochs) -> Result<Vec<Handed>, NotTaken> {
        match self.handed_over(moving, run, epochs).await {
            Err(NotTaken::Failed(IoError::Damaged { .. })) if run.own.count > 1 => {}
            outcome => return outcome,
        }
        let mut all = Vec::new();
        for by in 0..run.own.count {
            let one = |blocks: Blocks| Blocks::new(blocks.first + by, 1);
            let run = Run { own: one(run.own), column: run.column, other: one(run.other) };
            all.extend(self.handed_over(moving, &run, epochs).await?);
        }
        Ok(all)
    }
}

pub(super) fn zero() -> Bytes {
    tepal_model::Buffer::zeroed(BLOCK as usize).freeze()
}
