//! Requests that may have been carried out before: by an earlier primary, which was lost before it answered.

use super::order::Turn;
use super::{Blocks, Group};
use crate::authority::View;
use crate::engine::Engine;
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
                let own = state.copies_here().filter(|_| settled);
                let own = own.filter_map(|(at, holder)| Some((at, holder.local()?.clone())));
                (own.collect::<Vec<_>>(), state.changes)
            };
            let fate = self.fate(&own, (tag.origin, since), blocks).filter(|_| self.lock().changes == changes);
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
    fn fate(&self, own: &[(usize, Drive<W>)], (origin, since): (Origin, View), blocks: Blocks) -> Option<Fate> {
        let engine = self.engine()?;
        let (map, column) = (self.shared.column.map, self.shared.column.number);
        let mut fates = own.iter().filter_map(|(at, drive)| {
            let (opening, up_since) = engine.opening_of(drive)?;
            let first = self.shared.column.place(*at, blocks.first);
            let (copy, blocks) = (CopyId { drive: drive.id(), map, column }, first..first + blocks.count);
            match engine.shared.applied.fate(copy, opening, origin, since, &blocks) {
                Fate::Absent if up_since > since => Some(Fate::Unsure),
                fate => Some(fate),
            }
        });
        let first = fates.next()?;
        Some(if fates.all(|fate| fate == first) { first } else { Fate::Unsure })
    }

    /// A drive of this server has taken blocks of a client's request.
    pub fn has_taken(&self, holder: &Holder<W>, origin: Option<Origin>, place: u64, count: u64) {
        if let Some((engine, opening, copy)) = self.own_copy(holder)
            && let Some(origin) = origin
        {
            engine.shared.applied.note(copy, opening, origin, place..place + count);
        }
    }

    /// Blocks of a drive of this server become what another copy has, from here on.
    pub fn makes_equal(&self, holder: &Holder<W>, place: u64, count: u64) {
        if let Some((engine, opening, copy)) = self.own_copy(holder) {
            engine.shared.applied.made_equal(copy, opening, self.shared.view, place..place + count);
        }
    }

    /// The copy on a drive of this server, and the name of the drive's opening. None where requests don't come twice: alone.
    fn own_copy(&self, holder: &Holder<W>) -> Option<(Engine<W>, u64, CopyId)> {
        let drive = holder.local().filter(|_| self.shared.view > 0)?;
        let engine = self.engine()?;
        let (opening, _) = engine.opening_of(drive)?;
        let copy = CopyId { drive: drive.id(), map: self.shared.column.map, column: self.shared.column.number };
        Some((engine, opening, copy))
    }
}
