//! Requests that may have been carried out before: by an earlier primary, which was lost before it answered.

use super::members::Copies;
use super::order::Turn;
use super::patience::lent;
use super::read::{Plan, Reader};
use super::{Blocks, Group, State};
use crate::epochs::Subject;
use crate::holder::Holder;
use crate::seen_through::Asker;
use tepal_drive::DriveError;
use tepal_drive::world::World;
use tepal_model::{Fate, IoError, Origin};

/// Blocks of one region, and the copy that is asked about them.
struct Asked<W: World> {
    blocks: Blocks,
    holder: Holder<W>,
}

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
            let (asked, changes) = {
                let state = self.lock();
                (self.clean_copies(&state, blocks), state.changes)
            };
            let missing = match asked {
                Some(asked) => self.ask_for_fate(origin, &asked).await?,
                None => None, // drives have left
            };
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
        let is_clean = |region| matches!(state.members.clean(region), Copies::Clean(_));
        let is_settled = regions.all(|region| !state.unresolved.contains(&region) && is_clean(region));
        Ok(is_settled && !state.members.has_unheard())
    }

    /// A clean copy of each region, one of this server if there is; `None` if none is here.
    fn clean_copies(&self, state: &State<W>, blocks: Blocks) -> Option<Vec<Asked<W>>> {
        let column = &self.shared.column;
        let asked = |(first, count): (u64, u64)| {
            let Copies::Clean(clean) = state.members.clean(column.region_of(first)) else { return None };
            let here = clean.into_iter().filter_map(|at| state.members.list[at].drive());
            let holder = here.min_by_key(|holder| holder.local().is_none())?.clone();
            Some(Asked { blocks: Blocks { first, count }, holder })
        };
        column.cut(blocks.first, blocks.count).map(asked).collect()
    }

    /// `None` if a drive has left meanwhile.
    async fn ask_for_fate(&self, origin: Origin, asked: &[Asked<W>]) -> Result<Option<Vec<Blocks>>, IoError> {
        let column = &self.shared.column;
        let unavailable = |reason: &str| Err(IoError::Unavailable { reason: reason.to_owned() });
        let mut missing: Vec<Blocks> = Vec::new();
        for Asked { blocks, holder } in asked {
            let place = column.place(blocks.first);
            let taken = match holder.fate(origin, column.map, place, blocks.count).await {
                Ok(Fate::Known { taken }) => taken,
                Ok(Fate::Superseded) => return unavailable("its gateway has given this request up"),
                Ok(Fate::Forgotten) => {
                    return unavailable(
                        "whether a request was carried out before its server was lost isn't known any more: read what is there before writing again",
                    );
                }
                Err(DriveError::Lost(loss)) => {
                    self.lose(vec![(holder.id(), loss)]).await;
                    return Ok(None);
                }
                Err(error) => return unavailable(&error.to_string()),
            };
            let mut next = blocks.first;
            let runs = taken.iter().map(|taken| (blocks.first + (taken.first - place), taken.count));
            for (first, count) in runs.chain([(blocks.end(), 0)]) {
                if first > next {
                    missing.push(Blocks::new(next, first - next));
                }
                next = first + count;
            }
        }
        Ok(Some(missing))
    }
}
