//! Where a copy has no room for what another has: reads never fail for that.
//!
//! Copies differ where a write was under way at a crash, or was refused by a drive that's full when others had it: the region is
//! unresolved then. What differs there was acknowledged to nobody, for then all clean copies have it. And nobody has read it: a read
//! that met the write is done again when the write has been refused, and waits, as all others, until the region is resolved. So
//! any clean copy may decide for a block. The first one does; where a copy has no room for what that has, this copy decides instead.
//!
//! The other way there's room. Where a copy would need a new layer of an extent, it has none that only this line sees: so what it
//! holds is what older lines show, in which copies have been made equal before, or it's hidden. The other has that layer, and
//! writes in place what is to be seen there, or clears it. What is hidden takes a note, or zeros out of what is kept back for
//! repairs.
//!
//! Of older lines, what was decided first stays: a newer line shows it too, or what was cleared after it, as if the later
//! write had never been.
//!
//! A copy that's behind isn't asked: nobody reads it before it has been brought up to date, which begins again if something was left
//! out meanwhile. One that joins is given up.

use super::equalise::{Copy, Decided, Step, Why, ZEROS};
use super::join::NO_ROOM;
use super::members::Copies;
use super::read::Failed;
use super::{Group, State};
use std::ops::Range;
use tepal_drive::world::World;
use tepal_model::{DriveId, IoError};

/// What the drive is to the region that has no room there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Full {
    /// Its copy is as good as any.
    Clean,
    Behind(usize),
    Joins(usize),
    Away,
}

impl<W: World> Group<W> {
    /// The target has no room for some blocks of the source. Answers those that are left as they are.
    pub(super) async fn do_without_room(
        &self,
        step: &Step<'_, W>,
        run: Range<usize>,
        decided: &mut Decided,
    ) -> Result<Vec<u64>, Failed> {
        if matches!(step.why, Why::Missed(_)) {
            return Err(Failed::Io(IoError::OutOfSpace));
        }
        let full = self.lock().full(step.target.drive.id(), self.shared.column.region_of(step.first));
        match full {
            Full::Away => Err(Failed::Away),
            Full::Joins(at) => {
                self.give_up_joining(at, NO_ROOM);
                Err(Failed::Away)
            }
            Full::Behind(at) => {
                self.lock().members.list[at].left_out += 1;
                Ok(run.map(|nth| nth as u64).collect())
            }
            // They were equal: something else is wrong, and it isn't known what was acknowledged.
            Full::Clean if step.why == Why::Doubted => Err(Failed::Io(IoError::OutOfSpace)),
            Full::Clean => {
                let mut changed = false;
                for nth in run {
                    let (source, target) = (step.source.after(nth), step.target.after(nth));
                    if self.read_alike(&source, &target).await? {
                        continue;
                    }
                    if !decided.no_room.insert((target.line.seen.newest(), nth)) {
                        return Err(Failed::Io(IoError::OutOfSpace));
                    }
                    self.make_like(&source, &target).await?;
                    changed = true;
                }
                // The source has something else now, which all others get.
                if changed { Err(Failed::Away) } else { Ok(Vec::new()) }
            }
        }
    }

    /// Whether one copy of a block holds zeros, and the other nothing.
    async fn read_alike(&self, one: &Copy<W>, other: &Copy<W>) -> Result<bool, Failed> {
        let (one, other) = (self.crc(one).await?, self.crc(other).await?);
        Ok(one.unwrap_or(*ZEROS) == other.unwrap_or(*ZEROS))
    }

    async fn crc(&self, copy: &Copy<W>) -> Result<Option<u32>, Failed> {
        Ok(copy.content(self.shared.column.map, 1).await?.0[0])
    }
}

impl<W: World> State<W> {
    fn full(&self, id: DriveId, region: u64) -> Full {
        let Some(at) = self.members.position(id).filter(|&at| self.members.list[at].drive().is_some()) else {
            return Full::Away;
        };
        match self.members.clean(region) {
            _ if self.members.list[at].joins => Full::Joins(at),
            Copies::Clean(clean) if clean.contains(&at) => Full::Clean,
            Copies::Clean(_) => Full::Behind(at),
            Copies::Waiting | Copies::Lost => Full::Away,
        }
    }
}
