//! Blocks that hold nothing get what another place has: for a volume that is used while it's imported.
//!
//! Invariant: a fill changes no block that holds anything. Whoever wrote there wrote what counts, whether that came before the fill was
//! asked for or while it waited for its turn.

use super::bytes::Merged;
use super::epochs::Writing;
use super::order::Queued;
use super::read::{self, Failed, Reader};
use super::redundancy::{Data, Given, Written};
use super::segments::length;
use super::{Blocks, Group};
use crate::epochs::Subject;
use crate::seen_through::{Asker, SeenThrough};
use futures_channel::oneshot;
use std::ops::Range;
use tepal_drive::world::{Gather, World};
use tepal_model::{BLOCK, IoError, VolumeId};

/// What is written where blocks hold nothing.
enum Plan {
    Go(Data, Vec<Blocks>),
    /// No copy is here that says what is held.
    Wait(oneshot::Receiver<()>),
}

impl<W: World> Group<W> {
    /// Writes to the blocks that hold nothing. Done twice, it comes to the same.
    pub async fn fill_empty(&self, volume: VolumeId, offset: u64, given: Given) -> Result<(), IoError> {
        let range = offset..offset + length(&given.data);
        let blocks = Blocks::touched(range.start, range.end);
        self.enter((volume, blocks)).await?;
        let (group, place) = (self.clone(), self.line_up(blocks));
        let fill = |asker| async move { group.fill_range((place, asker), Writing::of(volume), range, given).await };
        SeenThrough::new(self.shared.world.clone(), fill).await
    }

    async fn fill_range(
        &self,
        (place, asker): (Queued, Asker),
        mut writing: Writing,
        range: Range<u64>,
        given: Given,
    ) -> Result<(), IoError> {
        let (blocks, now) = (Blocks::touched(range.start, range.end), Subject::now(writing.volume));
        let (mut turn, mut begun) = (self.turn(place, &asker).await?, None);
        loop {
            let (data, empty) = match begun.take() {
                // Some copies have it: what they hold isn't somebody else's.
                Some(planned) => planned,
                None => {
                    writing.choose_anew();
                    // A write that only some copies have is either there or not, before it's looked what is there.
                    turn = self.settled(turn, &asker, (now, blocks)).await?;
                    self.may_begin((writing.volume, blocks))?;
                    match self.plan_fill(blocks, (range.start, &given), &mut writing).await {
                        Ok(Plan::Go(data, empty)) => (data, empty),
                        Ok(Plan::Wait(change)) => {
                            turn = self.wait_for_copies(turn, &asker, change, false, blocks).await?;
                            continue;
                        }
                        Err(error) => return Err(self.error_once_all_act(error, &writing).await),
                    }
                }
            };
            match self.write_parts(&turn, &data, &empty, false, &mut writing).await {
                Ok(Written::Done) => return self.until_all_act(&writing).await,
                Err(error) => return Err(self.error_once_all_act(error, &writing).await),
                Ok(Written::Waits { change, begun: has_begun }) => {
                    begun = has_begun.then_some((data, empty));
                    turn = self.wait_for_copies(turn, &asker, change, has_begun, blocks).await?;
                }
            }
        }
    }

    /// The caller has the blocks' turn, and they are settled.
    async fn plan_fill(
        &self,
        blocks: Blocks,
        (offset, given): (u64, &Given),
        writing: &mut Writing,
    ) -> Result<Plan, IoError> {
        let Some(seen) = self.seen_by(writing)? else { return Ok(Plan::Wait(self.in_a_moment())) };
        let runs = loop {
            let parts = match self.plan_read(blocks, Reader::HasTurn(&seen)) {
                read::Plan::Go(parts, _) => parts,
                read::Plan::Wait(change) => return Ok(Plan::Wait(change)),
                read::Plan::Refuse(error) => return Err(error),
                read::Plan::Resolve(_) => return Ok(Plan::Wait(self.in_a_moment())),
            };
            match self.shared.kept.held(self, &parts).await {
                Ok(runs) => break runs,
                Err(Failed::Lost(id, loss)) => self.lose(vec![(id, loss)]).await,
                Err(Failed::Away) => {} // drives have left since the plan
                Err(Failed::Io(error)) => return Err(error),
            }
        };
        let (mut at, mut empty) = (blocks.first, Vec::new());
        for (count, holds) in runs {
            if !holds && count > 0 {
                empty.push(Blocks::new(at, count));
            }
            at += count;
        }
        // Only a volume's last block isn't whole.
        let is_whole = offset.is_multiple_of(BLOCK) && length(&given.data).is_multiple_of(BLOCK);
        let data = match is_whole || empty.is_empty() {
            true => Data::summed(blocks.first, given.clone(), None),
            false => match self.merged(offset, &given.data, &seen).await? {
                Merged::Whole(data) => Data::new(blocks.first, Gather::from_iter([data]), None),
                Merged::Waits(change) => return Ok(Plan::Wait(change)),
            },
        };
        match self.sees_as_before(writing) && self.is_settled(blocks)? {
            true => Ok(Plan::Go(data, empty)),
            false => Ok(Plan::Wait(self.in_a_moment())),
        }
    }
}
