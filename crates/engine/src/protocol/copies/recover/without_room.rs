//! Where a copy has no room for another's data: reads never fail for that.
//!
//! Copies differ where a write was under way at a crash, or was refused by a full drive when others had it: then the
//! region is unsure. The difference was acknowledged to nobody, for an acknowledged write is on all clean copies. And
//! nobody has read it: a read that met the write is done again when the write has been refused, and waits, like all
//! others, until the region is resolved. So any clean copy may decide for a block. The first one does. Where a copy has
//! no room for the first one's data, that copy decides instead.
//!
//! This direction needs no room. Lines are made equal in order, so the copies are already equal in what older lines
//! show. A copy that has no room for a block has no layer of that extent that only this line sees. So either the copy
//! shows older lines there, and the other copy is uncovered: its own blocks there go, and so does what hides the older
//! lines. Or the copy hides older lines there: then the other copy hides them too, with a note, or with zeros in the
//! layer that it has. And where the first copy shows older lines, the full copy is uncovered. Either way each line
//! shows what some copy had, or what older lines show, as if the later write had never been.
//!
//! A copy that is behind isn't asked: nobody reads it before it has been brought up to date, and that begins again if
//! something was left out meanwhile. A joining drive is given up.

use super::copy::{Copy, Saying, ZEROS};
use super::equalise::{Decided, Step};
use crate::column::members::RegionState;
use crate::column::members::join::NO_ROOM;
use crate::column::read::Failed;
use crate::column::redundancy::Why;
use crate::column::{Group, State};
use crate::map::Column;
use std::ops::Range;
use tepal_drive::world::World;
use tepal_model::{DriveId, IoError};

/// What a drive without room is to a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Full {
    /// Its copy is as good as any.
    Clean,
    Behind(usize),
    Joins(usize),
    Away,
}

impl<W: World> Group<W> {
    /// The target has no room for some blocks of the source. Returns the blocks that are left as they are.
    pub(super) async fn do_without_room(
        &self,
        step: &Step<'_, W>,
        run: Range<usize>,
        decided: &mut Decided,
    ) -> Result<Vec<u64>, Failed> {
        if matches!(step.why, Why::Missed(_)) {
            return Err(Failed::Io(IoError::OutOfSpace));
        }
        let full = self.lock().full(step.target.drive.id(), &self.shared.column, step.first);
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
            // The copies were equal: something else is wrong, and it isn't known which data was acknowledged.
            Full::Clean if step.why == Why::Doubted => Err(Failed::Io(IoError::OutOfSpace)),
            Full::Clean => self.settle_without_room(step, run, decided).await.map(|()| Vec::new()),
        }
    }

    async fn settle_without_room(
        &self,
        step: &Step<'_, W>,
        run: Range<usize>,
        decided: &mut Decided,
    ) -> Result<(), Failed> {
        let mut is_changed = false;
        for nth in run {
            let (source, target) = (step.source.after(nth), step.target.after(nth));
            if self.read_alike(&source, &target).await? {
                continue;
            }
            if self.shows_older(&source, 0..1).await? {
                let taken = self.taken_like(&target, &source).await?;
                self.uncover(&target, 0..1, Saying::Those(&taken)).await?;
                continue;
            }
            if !decided.no_room.insert((target.line.seen.newest(), nth)) {
                return Err(Failed::Io(IoError::OutOfSpace));
            }
            if self.shows_older(&target, 0..1).await? {
                let taken = self.taken_like(&source, &target).await?;
                self.uncover(&source, 0..1, Saying::Those(&taken)).await?;
            } else {
                self.make_like(&source, &target).await?;
            }
            is_changed = true;
        }
        // The source has other data now, which all targets get.
        if is_changed { Err(Failed::Away) } else { Ok(()) }
    }

    /// Whether two copies of a block read alike: one may hold zeros where the other holds nothing.
    async fn read_alike(&self, one: &Copy<W>, other: &Copy<W>) -> Result<bool, Failed> {
        let (one, other) = (self.crc(one).await?, self.crc(other).await?);
        Ok(one.unwrap_or(*ZEROS) == other.unwrap_or(*ZEROS))
    }

    async fn crc(&self, copy: &Copy<W>) -> Result<Option<u32>, Failed> {
        Ok(copy.content(self.shared.column.map, 1).await?.0[0])
    }
}

impl<W: World> State<W> {
    fn full(&self, id: DriveId, column: &Column, block: u64) -> Full {
        let Some(at) = self.members.position(id).filter(|&at| self.members.list[at].drive().is_some()) else {
            return Full::Away;
        };
        match self.members.clean_copies(column, column.region_of(block)) {
            _ if self.members.list[at].joins() => Full::Joins(at),
            RegionState::Clean(clean) if clean.contains(&at) => Full::Clean,
            RegionState::Clean(_) => Full::Behind(at),
            RegionState::Waiting | RegionState::Lost | RegionState::GivenUp => Full::Away,
        }
    }
}
