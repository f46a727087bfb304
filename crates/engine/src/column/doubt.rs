//! Requests in doubt: an earlier primary may have carried them out, and was lost before it answered.

use super::members::RegionState;
use super::order::Turn;
use super::patience::lent;
use super::read::{Plan, Reader, lost};
use super::{Blocks, Group};
use crate::epochs::Subject;
use crate::seen_through::Asker;
use futures_channel::oneshot;
use tepal_drive::world::World;
use tepal_model::{IoError, Origin};

impl<W: World> Group<W> {
    /// The blocks of a request that haven't taken the request, to be changed in this turn. A clean copy's answer counts
    /// only once the copies are settled: then all copies have taken the request, or none has.
    pub async fn not_yet_taken(
        &self,
        mut turn: Turn,
        asker: &Asker,
        origin: Origin,
        (subject, blocks): (Subject, Blocks),
    ) -> Result<(Turn, Vec<Blocks>), IoError> {
        loop {
            turn = self.settled(turn, asker, (subject, blocks)).await?;
            let changes = self.lock().changes;
            let missing = self.shared.kept.fate(self, origin, blocks).await?;
            if let Some(missing) = missing.filter(|_| self.lock().changes == changes) {
                return Ok((turn, missing));
            }
        }
    }

    /// The turn of blocks once their copies are equal. The turn is lent while the copies are made equal, and given up
    /// where that has to wait for drives: so nothing may be begun yet.
    pub async fn settled(
        &self,
        turn: Turn,
        asker: &Asker,
        (subject, blocks): (Subject, Blocks),
    ) -> Result<Turn, IoError> {
        self.settled_for(turn, asker, (Reader::Client(subject), blocks)).await
    }

    /// As [`Group::settled`], for any reader.
    pub async fn settled_for(
        &self,
        mut turn: Turn,
        asker: &Asker,
        (reader, blocks): (Reader<'_>, Blocks),
    ) -> Result<Turn, IoError> {
        while blocks.count > 0 && !self.is_settled(blocks)? {
            let mut plans = self.cut(blocks).map(|(first, _)| self.plan_read(Blocks::new(first, 1), reader));
            let change = match plans.find(|plan| !matches!(plan, Plan::Go(..))) {
                None | Some(Plan::Go(..)) => self.unsettled(blocks)?,
                Some(Plan::Refuse(error)) => return Err(error),
                Some(Plan::Wait(change)) => Some(change),
                Some(Plan::Resolve(region)) => {
                    let waits;
                    (turn, waits) = lent(turn, asker, self.resolve_to_the_end(region)).await?;
                    waits
                }
            };
            if let Some(change) = change {
                turn = self.wait_for_copies(turn, asker, change, false, blocks).await?;
            }
        }
        Ok(turn)
    }

    /// What blocks wait for that can be read, and may not be settled: who reads what is given up, or left of what is lost, can't change
    /// it. None if they are settled by now.
    fn unsettled(&self, blocks: Blocks) -> Result<Option<oneshot::Receiver<()>>, IoError> {
        let mut state = self.lock();
        for (first, count) in self.cut(blocks) {
            match state.members.clean(self.shared.column.region_of(first)) {
                RegionState::Clean(_) => {}
                RegionState::Lost => return Err(lost(Blocks::new(first, count))),
                RegionState::Waiting | RegionState::GivenUp => return Ok(Some(Group::next_change(&mut state))),
            }
        }
        Ok(None)
    }

    pub(super) fn is_settled(&self, blocks: Blocks) -> Result<bool, IoError> {
        let state = self.lock();
        state.serves()?;
        let mut regions = self.shared.column.regions(blocks.first, blocks.count);
        let is_clean = |region| matches!(state.members.clean(region), RegionState::Clean(_));
        let is_settled = regions.all(|region| !state.unsure.regions.contains(&region) && is_clean(region));
        Ok(is_settled && !state.members.has_unheard())
    }
}
