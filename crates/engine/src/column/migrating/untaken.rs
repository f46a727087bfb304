//! Reads of pieces that can't be taken over now: there's no room for them here, or nobody can read some block of them.
//!
//! The reader gets the source's blocks from the source, and this map's own, line by line. Nobody writes either of them:
//! the reader has the turn here, and writes wait for the piece to be taken over. Blocks that the source can't read, or
//! has released in part, may be here.
//!
//! A piece with a block that can't be read anywhere stays where it is, and with it the migration: the block's readers
//! are told of exactly that block. If the migration turns around, the piece is the source's again, to be written. A
//! block that no migrating volume shows any more is in nobody's way.

use super::handed::{Handed, shown_on_both};
use super::lines::HeldBy;
use super::takeover::pieces;
use super::taking::{NotTaken, SOON};
use crate::column::order::Turn;
use crate::column::patience::Patience;
use crate::column::read::Reader;
use crate::column::{Blocks, Group};
use crate::epochs::{Epochs, Subject};
use crate::seen_through::Asker;
use crate::volume::MapMigration;
use tepal_drive::world::World;
use tepal_model::{Epoch, IoError, Lineage, Segments};
use tepal_wire::message::volume::HandedLine;

/// Whether a piece that can't be taken over for this error is read where it is.
pub fn is_read_there(error: &IoError) -> bool {
    matches!(error, IoError::OutOfSpace | IoError::Damaged { .. })
}

impl<W: World> Group<W> {
    /// As [`Group::read_blocks`], for blocks that may not all be here.
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
                Err(NotTaken::Yet) if self.patience == Patience::Short => return Err(IoError::NotNow),
                Err(NotTaken::Yet) => self.shared.world.sleep(SOON).await,
            }
        }
    }

    async fn read_on_both_sides(&self, blocks: Blocks, subject: Subject) -> Result<Segments, NotTaken> {
        if let Some(snapshot) = subject.at {
            self.until_unchanging((subject.volume, snapshot), blocks).await.map_err(NotTaken::Failed)?;
        }
        let (migration, epochs, seen) = {
            let state = self.lock();
            let seen = state.serves_volume(subject.volume).and_then(|()| state.seen_at(subject));
            let seen = seen.map_err(NotTaken::Failed)?;
            (state.migration.clone().ok_or(NotTaken::Yet)?, state.seen.epochs.clone(), seen)
        };
        self.shared.kept.gather(self, blocks).await?;
        let turn = self.turn_soon(blocks).await?;
        let newest = epochs.newest_line();
        let _turn = self.settled_for(turn, &Asker::present(), (Reader::Copies(&newest), blocks)).await?;
        let mut source: Vec<Handed> = Vec::new();
        for run in migration.fenced(self.shared.column.number, blocks) {
            source.extend(self.handed_over(&migration, &run, &epochs).await?);
        }
        let own = self.all_here(blocks, &epochs).await?;
        {
            let state = self.lock();
            let is_same = state.migration.as_ref().is_some_and(|now| now.is_same_window(&migration));
            if !is_same || state.seen.epochs.view != epochs.view {
                return Err(NotTaken::Yet);
            }
        }
        let lines = lines_seen(&epochs, &seen);
        let shown = blocks.each().map(|block| shown_on_both((&source, &own), &lines, block.first));
        shown.collect::<Result<Segments, IoError>>().map_err(NotTaken::Failed)
    }

    /// What all lines have here of these blocks. The caller has the blocks' turn, and their copies are equal.
    async fn all_here(&self, blocks: Blocks, epochs: &Epochs) -> Result<Vec<Handed>, IoError> {
        let lines: Vec<&Lineage> = epochs.history.lines().iter().collect();
        let (mut all, mut at) = (Vec::new(), blocks.first);
        while at < blocks.end() {
            let (count, handed) =
                self.all_of(Blocks::new(at, blocks.end() - at), (&lines, epochs), HeldBy::AnyCopy).await?;
            all.push(handed);
            at += count;
        }
        Ok(all)
    }

    /// Whether a piece may be taken over of which the source can't read some blocks: each such block is here, or the
    /// migrating volumes see a newer one. Some of these blocks stay at the source, as others see them, and are handed
    /// over again should the piece be taken over anew. So the migrating volume's own writes and clears must go on
    /// hiding them: stand-ins are put here, to be hidden.
    pub(super) async fn check_what_is_damaged(
        &self,
        turn: Turn,
        (migration, blocks): (&MapMigration, Blocks),
        handed: &[Handed],
        epochs: &Epochs,
    ) -> Result<(Turn, Vec<Handed>), NotTaken> {
        let newest = epochs.newest_line();
        let turn = self.settled_for(turn, &Asker::present(), (Reader::Copies(&newest), blocks)).await?;
        let own = self.all_here(blocks, epochs).await?;
        for reader in migration.readers(epochs) {
            let lines = lines_seen(epochs, reader);
            for block in handed.iter().flat_map(Handed::damaged) {
                shown_on_both((handed, &own), &lines, block)?;
            }
        }
        let released = migration.released(epochs);
        let of_line = |handed: &Handed, line: &HandedLine| {
            let is_here = |block: u64| own.iter().any(|own| own.has(line.newest, block));
            let unknown: Vec<u64> = handed.each_of(&line.damaged).filter(|&block| !is_here(block)).collect();
            unknown.into_iter().map(|block| Handed::stand_in(line.newest, block)).collect::<Vec<_>>()
        };
        let stay = |line: &&HandedLine| !released.contains(&line.newest);
        let stands_in = handed.iter().flat_map(|all| all.lines.iter().filter(stay).flat_map(|line| of_line(all, line)));
        let stand_ins = stands_in.collect();
        Ok((turn, stand_ins))
    }
}

/// The lines that a reader sees, newer lines first: they hide older ones.
fn lines_seen(epochs: &Epochs, reader: &Lineage) -> Vec<Epoch> {
    let lines = epochs.history.lines().iter().rev().map(Lineage::newest);
    lines.filter(|&newest| reader.sees(newest)).collect()
}
