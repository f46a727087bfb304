//! Reading a column's data: what a read waits for before, and what has to be unchanged afterwards.

use super::background::Stuck;
use super::members::RegionState;
use super::{Blocks, Group, Moment};
use crate::epochs::Subject;
use crate::holder::Holder;
use crate::map::ROWS;
use crate::seen_through::SeenThrough;
use futures_channel::oneshot;
use smallvec::SmallVec;
use tepal_drive::world::World;
use tepal_model::{BLOCK, IoError, Lineage, Segments};

/// How blocks are read now.
pub(super) enum Plan<W: World> {
    /// The drive to read each part of the blocks from, and the moment of the plan.
    Go(SmallVec<[Part<W>; 1]>, Moment),
    /// This region's fragments may differ: the region has to be resolved first.
    Resolve(u64),
    Wait(oneshot::Receiver<()>),
    Refuse(IoError),
}

/// Blocks that are read from one drive.
pub(crate) struct Part<W: World> {
    /// The drive's member.
    pub at: usize,
    pub drive: Holder<W>,
    pub blocks: Blocks,
    /// The lineage that is read of its layers.
    pub seen: Lineage,
}

/// The reader of some blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reader<'a> {
    Client(Subject),
    /// A task that copies what all readers of this lineage see. The blocks have to be settled.
    Copies(&'a Lineage),
    /// The holder of the blocks' turn, which sees this lineage.
    HasTurn(&'a Lineage),
}

impl<W: World> Group<W> {
    pub async fn read_blocks(&self, blocks: Blocks, subject: Subject) -> Result<Segments, IoError> {
        loop {
            if let Some(snapshot) = subject.at {
                self.until_unchanging((subject.volume, snapshot), blocks).await?;
            }
            self.until_readable(blocks).await?;
            let (segments, then) = self.read_copies(blocks, Reader::Client(subject)).await?;
            self.until_ended(blocks).await?;
            // A write that this read met may have been given up, and gone with its only drive; or refused where there
            // was no room.
            let state = self.lock();
            state.serves_volume(subject.volume)?; // the volume may have gone from here with its snapshots
            state.seen_at(subject)?; // drives may have given back blocks of a snapshot that was removed meanwhile
            state.serves_blocks(&self.shared.column, (subject.volume, blocks))?; // another map may have the blocks by now
            if state.is_as_at(then, self.shared.column.regions(blocks.first, blocks.count)) {
                return Ok(segments);
            }
        }
    }

    /// For a write that merges: it has the turn, so no other change is under way.
    pub async fn read_under_turn(&self, blocks: Blocks, seen: &Lineage) -> Result<Segments, IoError> {
        self.read_copies(blocks, Reader::HasTurn(seen)).await.map(|(segments, _)| segments)
    }

    /// The data, and the moment of the plan.
    pub async fn read_copies(&self, blocks: Blocks, reader: Reader<'_>) -> Result<(Segments, Moment), IoError> {
        loop {
            let (parts, then) = self.planned(blocks, reader).await?;
            match self.shared.kept.get(self, parts).await {
                Ok(segments) => return Ok((segments, then)),
                Err(Failed::Lost(id, loss)) => Box::pin(self.lose(vec![(id, loss)])).await,
                Err(Failed::Away) => {} // drives have left since the plan
                Err(Failed::Io(error)) => return Err(error),
            }
        }
    }

    /// A repair that has begun isn't given up with its request. Returns a change to wait for, if the repair can't go
    /// on.
    pub(super) async fn resolve_to_the_end(&self, region: u64) -> Result<Option<oneshot::Receiver<()>>, IoError> {
        let group = self.clone();
        let resolve = |_| async move {
            match group.resolve(region).await {
                Ok(()) => Ok(None),
                Err(Stuck::Failed(error)) => Err(error),
                Err(Stuck::Waits(change)) => Ok(Some(change)),
            }
        };
        SeenThrough::new(self.shared.world.clone(), resolve).await
    }

    /// The copies to read from, once they are here and settled, and the moment of the plan.
    pub(super) async fn planned(
        &self,
        blocks: Blocks,
        reader: Reader<'_>,
    ) -> Result<(SmallVec<[Part<W>; 1]>, Moment), IoError> {
        loop {
            match self.plan_read(blocks, reader) {
                Plan::Go(parts, then) => return Ok((parts, then)),
                Plan::Refuse(error) => return Err(error),
                Plan::Resolve(region) => {
                    if let Some(change) = self.resolve_to_the_end(region).await? {
                        self.wait(change).await?;
                    }
                }
                Plan::Wait(change) => self.wait(change).await?,
            }
        }
    }

    pub(super) fn plan_read(&self, blocks: Blocks, reader: Reader<'_>) -> Plan<W> {
        let mut state = self.lock();
        let seen = match reader {
            Reader::HasTurn(seen) | Reader::Copies(seen) => state.serves().map(|()| seen.clone()),
            Reader::Client(subject) => state
                .serves_volume(subject.volume)
                .and_then(|()| state.serves_blocks(&self.shared.column, (subject.volume, blocks)))
                .and_then(|()| state.seen_at(subject)),
        };
        let seen = match seen {
            Ok(seen) => seen,
            Err(error) => return Plan::Refuse(error),
        };
        let column = &self.shared.column;
        if !matches!(reader, Reader::HasTurn(_)) && !state.unsure.regions.is_empty() {
            let mut regions = column.regions(blocks.first, blocks.count);
            if let Some(region) = regions.find(|region| state.unsure.regions.contains(region)) {
                return Plan::Resolve(region);
            }
        }
        match self.shared.kept.choose(self, &state, (blocks, &seen), reader) {
            Ok(parts) => Plan::Go(parts, state.moment()),
            Err(RegionState::Lost) => {
                let parts = column.cut(blocks.first, blocks.count).map(|(first, count)| Blocks::new(first, count));
                let is_lost = |part: &Blocks| {
                    let chosen = self.shared.kept.choose(self, &state, (*part, &seen), reader);
                    matches!(chosen, Err(RegionState::Lost))
                };
                // Of a region some fragments may be left.
                let units =
                    |part: Blocks| part.pieces(if self.shared.fragments.are_copies() { part.end() } else { ROWS });
                Plan::Refuse(lost(parts.flat_map(units).find(is_lost).unwrap_or(blocks)))
            }
            Err(RegionState::Waiting | RegionState::GivenUp | RegionState::Clean(_)) => {
                Plan::Wait(Group::next_change(&mut state))
            }
        }
    }

    /// A range cut at regions.
    pub(super) fn cut(&self, blocks: Blocks) -> impl Iterator<Item = (u64, u64)> + use<W> {
        self.shared.column.cut(blocks.first, blocks.count)
    }
}

/// Why a read has to begin again, or can't be done.
pub(crate) enum Failed {
    Lost(tepal_model::DriveId, std::sync::Arc<tepal_drive::Loss>),
    /// Drives have left since the plan.
    Away,
    Io(IoError),
}

/// What held these blocks has failed for good.
pub(crate) fn lost(blocks: Blocks) -> IoError {
    IoError::Lost { offset: blocks.first * BLOCK, length: blocks.count.saturating_mul(BLOCK) }
}

/// No clean fragment of a block can be read.
pub(crate) fn damaged(block: u64) -> Failed {
    Failed::Io(IoError::Damaged { offset: block * BLOCK, length: BLOCK })
}
