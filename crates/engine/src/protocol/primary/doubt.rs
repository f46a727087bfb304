//! Requests that may have been carried out before: by an earlier primary, which was lost before it answered.

use super::order::Turn;
use super::{Blocks, Group};
use crate::authority::View;
use crate::holder::Holder;
use crate::servers::answer::CopyId;
use crate::servers::applied::Fate;
use tepal_drive::Drive;
use tepal_drive::world::World;
use tepal_model::IoError;
use tepal_wire::message::{Origin, Tag};

/// What is to be done under a turn.
pub(crate) enum Doubt {
    /// Carry it out, in this turn.
    Do(Turn),
    /// It was carried out.
    Done,
}

impl<W: World> Group<W> {
    /// Finds out whether a request that may have been carried out before was. Only then, that what the copies have is settled,
    /// what this server's copy has taken counts: it's on all of them.
    pub async fn in_doubt(&self, mut turn: Turn, tag: Option<Tag>, blocks: Blocks) -> Result<Doubt, IoError> {
        let Some((tag, since)) = tag.and_then(|tag| Some((tag, tag.in_doubt_since?))) else {
            return Ok(Doubt::Do(turn));
        };
        loop {
            // The engine's lock comes before a group's.
            let (own, changes) = {
                let state = self.lock();
                state.serves()?;
                let mut regions = self.shared.column.regions(blocks.first, blocks.count);
                let settled = !state.members.has_unheard() && !regions.any(|region| state.unresolved.contains(&region));
                let own = state.members.here().filter_map(Holder::local).filter(|_| settled).cloned();
                (own.collect::<Vec<_>>(), state.changes)
            };
            let fate = self.fate(&own, tag.origin, since).filter(|_| self.lock().changes == changes);
            match fate {
                Some(Fate::Absent) => return Ok(Doubt::Do(turn)),
                Some(Fate::Applied) => return Ok(Doubt::Done),
                Some(Fate::Unsure) => {
                    let reason = "whether a request was carried out before its server was lost can't be known";
                    return Err(IoError::Unavailable { reason: reason.to_owned() });
                }
                None => {
                    drop(turn);
                    self.read_blocks(blocks).await?; // settles them
                    turn = self.line_up(blocks).turn().await;
                }
            }
        }
    }

    /// What became of it on the copies of this server; `None` if there is none now.
    fn fate(&self, own: &[Drive<W>], origin: Origin, since: View) -> Option<Fate> {
        let engine = self.engine()?;
        let (map, column) = (self.shared.column.map, self.shared.column.number);
        let mut fates = own.iter().filter_map(|drive| {
            let (opening, up_since) = engine.opening_of(drive)?;
            match engine.shared.applied.fate(CopyId { drive: drive.id(), map, column }, opening, origin) {
                Fate::Absent if up_since > since => Some(Fate::Unsure),
                fate => Some(fate),
            }
        });
        let first = fates.next()?;
        Some(if fates.all(|fate| fate == first) { first } else { Fate::Unsure })
    }

    /// A drive of this server takes blocks of a request from here on. What isn't a client's makes copies equal.
    pub fn takes(&self, holder: &Holder<W>, origin: Option<Origin>, place: u64, count: u64) {
        if self.shared.view == 0 {
            return; // alone, requests don't come twice
        }
        let Some((engine, drive)) = self.engine().zip(holder.local()) else { return };
        let Some((opening, _)) = engine.opening_of(drive) else { return };
        let copy = CopyId { drive: drive.id(), map: self.shared.column.map, column: self.shared.column.number };
        match origin {
            Some(origin) => engine.shared.applied.note(copy, opening, origin, place..place + count),
            None => engine.shared.applied.made_equal(copy, opening, place..place + count),
        }
    }
}
