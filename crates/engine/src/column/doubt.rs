//! Requests that may have been carried out before: by an earlier primary, which was lost before it answered.

use super::members::RegionState;
use super::order::Turn;
use super::patience::lent;
use super::read::{Plan, Reader};
use super::{Blocks, Group};
use crate::epochs::Subject;
use crate::seen_through::Asker;
use tepal_drive::world::World;
use tepal_model::{IoError, Origin};

impl<W: World> Group<W> {
    /// Which of a request's blocks haven't taken it, and are to be changed in this turn. Only when what the copies have is settled,
    /// what a clean one has taken counts: all have, or none.
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

    /// The turn of blocks whose copies are equal. It's lent while they are made so, and given up where that has to wait for drives: nothing
    /// may be begun yet.
    pub async fn settled(
        &self,
        turn: Turn,
        asker: &Asker,
        (subject, blocks): (Subject, Blocks),
    ) -> Result<Turn, IoError> {
        self.settled_for(turn, asker, (Reader::Client(subject), blocks)).await
    }

    /// The same for whoever it is.
    pub async fn settled_for(
        &self,
        mut turn: Turn,
        asker: &Asker,
        (reader, blocks): (Reader<'_>, Blocks),
    ) -> Result<Turn, IoError> {
        while blocks.count > 0 && !self.is_settled(blocks)? {
            let mut plans = self.cut(blocks).map(|(first, _)| self.plan_read(Blocks::new(first, 1), reader));
            let change = match plans.find(|plan| !matches!(plan, Plan::Go(..))) {
                None | Some(Plan::Go(..)) => None, // it's settled by now
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

    pub(super) fn is_settled(&self, blocks: Blocks) -> Result<bool, IoError> {
        let state = self.lock();
        state.serves()?;
        let mut regions = self.shared.column.regions(blocks.first, blocks.count);
        let is_clean = |region| matches!(state.members.clean(region), RegionState::Clean(_));
        let is_settled = regions.all(|region| !state.unsure.regions.contains(&region) && is_clean(region));
        Ok(is_settled && !state.members.has_unheard())
    }
}
