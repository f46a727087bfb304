//! The fate of a request on clean copies.

use crate::column::members::RegionState;
use crate::column::{Blocks, Group, State};
use crate::holder::Holder;
use tepal_drive::DriveError;
use tepal_drive::world::World;
use tepal_model::{Fate, IoError, Origin};

/// Blocks of one region, and the copy that is asked about them.
struct Asked<W: World> {
    blocks: Blocks,
    holder: Holder<W>,
}

impl<W: World> Group<W> {
    /// A clean copy of each region, on this server if possible; `None` if some region has none here.
    fn clean_copies(&self, state: &State<W>, blocks: Blocks) -> Option<Vec<Asked<W>>> {
        let column = &self.shared.column;
        let asked = |(first, count): (u64, u64)| {
            let RegionState::Clean(clean) = state.members.clean_copies(column, column.region_of(first)) else {
                return None;
            };
            let here = clean.into_iter().filter_map(|at| state.members.list[at].drive());
            let holder = here.min_by_key(|holder| holder.local().is_none())?.clone();
            Some(Asked { blocks: Blocks { first, count }, holder })
        };
        column.cut(blocks.first, blocks.count).map(asked).collect()
    }

    /// Which of these blocks haven't taken a request; `None` if drives have left. A clean copy's answer counts: all
    /// copies have taken the request, or none has.
    pub(in crate::protocol) async fn fate_on_copies(
        &self,
        origin: Origin,
        blocks: Blocks,
    ) -> Result<Option<Vec<Blocks>>, IoError> {
        let asked = self.clean_copies(&self.lock(), blocks);
        let Some(asked) = asked else { return Ok(None) };
        let column = &self.shared.column;
        let unavailable = |reason: &str| Err(IoError::Unavailable { reason: reason.to_owned() });
        let mut missing: Vec<Blocks> = Vec::new();
        for Asked { blocks, holder } in &asked {
            let place = column.place(blocks.first);
            let taken = match holder.fate(origin, column.map, place, blocks.count).await {
                Ok(Fate::Known { taken }) => taken,
                Ok(fate @ (Fate::Superseded | Fate::Forgotten)) => return Err(untold(&fate)),
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

/// Why nobody can tell any more whether a request was carried out.
pub(in crate::protocol) fn untold(fate: &Fate) -> IoError {
    let reason = match fate {
        Fate::Superseded => "its gateway has given this request up",
        Fate::Forgotten | Fate::Known { .. } => {
            "whether a request was carried out before its server was lost isn't known any more: read what is there before writing again"
        }
    };
    IoError::Unavailable { reason: reason.to_owned() }
}
