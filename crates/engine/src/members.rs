//! The drives of a volume, and which of them knows what.
//!
//! A drive that leaves misses writes; the others keep stale marks for it. After any sequence of leaving and returning,
//! three rules say whose data counts:
//! 1. A drive's word about another (a stale mark) counts if it was up after the other had left.
//! 2. Of the drives that hold an extent, those that are up have authority; if none is, the one that left last has, since
//!    nothing was acknowledged after it left.
//! 3. A copy is clean in a region if a drive with authority for it is here, and no word that counts says it's stale.

use crate::authority::View;
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet};
use tepal_drive::world::World;
use tepal_drive::{Drive, Mark, MarkKind};
use tepal_model::{DriveId, MapId};

/// One drive of the volume.
pub struct Member<W: World> {
    pub id: DriveId,
    pub presence: Presence<W>,
    /// `None` while it's up: it has everything. Else the view in which it was up last.
    pub left: Option<View>,
    /// Regions in which its copies missed writes, each with the drives (by position) whose logs say so. A mark must be
    /// on every drive that has taken a write that this one missed.
    pub stale: BTreeMap<u64, BTreeSet<usize>>,
    /// Requests under way, for balancing.
    pub queue: usize,
}

pub enum Presence<W: World> {
    Here(Drive<W>),
    /// It's being declared down; until that is agreed, writes to its copies wait.
    Leaving,
    /// It may return.
    Missing,
    /// It's retired for good.
    Failed,
}

impl<W: World> Member<W> {
    pub fn drive(&self) -> Option<&Drive<W>> {
        match &self.presence {
            Presence::Here(drive) => Some(drive),
            Presence::Leaving | Presence::Missing | Presence::Failed => None,
        }
    }

    pub fn is_current(&self) -> bool {
        self.left.is_none()
    }

    fn dropped_tail(&self) -> bool {
        self.drive().is_some_and(Drive::dropped_tail)
    }

    /// Later is greater; up is greatest.
    fn left_order(&self) -> View {
        self.left.unwrap_or(View::MAX)
    }
}

/// What can be done with an extent's copies in a region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Copies {
    /// Copy numbers with clean data. Where they may differ, the first decides: one with authority, for it may have
    /// been read meanwhile; and a drive that dropped the end of its log comes after those that didn't.
    Clean(SmallVec<[usize; 4]>),
    /// None now, but a drive may return.
    Waiting,
    /// None, and the drive that had it is retired.
    Lost,
}

pub struct Members<W: World> {
    pub list: Vec<Member<W>>,
}

impl<W: World> Members<W> {
    pub fn position(&self, id: DriveId) -> Option<usize> {
        self.list.iter().position(|member| member.id == id)
    }

    /// When the last of these drives was up: those that were up then have authority.
    fn newest(&self, drives: &[usize]) -> View {
        drives.iter().map(|&at| self.list[at].left_order()).max().unwrap_or(0)
    }

    /// Which copies of an extent, on these drives in the order of copies, are clean in a region.
    pub fn clean(&self, drives: &[usize], region: u64) -> Copies {
        let newest = self.newest(drives);
        let has_authority = |at: usize| self.list[at].left_order() == newest;
        let here = drives.iter().any(|&at| has_authority(at) && self.list[at].drive().is_some());
        if here {
            let clean = |&(_, &at): &(usize, &usize)| {
                let member = &self.list[at];
                member.drive().is_some() && (has_authority(at) || !member.stale.contains_key(&region))
            };
            let mut copies: SmallVec<[usize; 4]> =
                drives.iter().enumerate().filter(clean).map(|(copy, _)| copy).collect();
            copies.sort_by_key(|&copy| (!has_authority(drives[copy]), self.list[drives[copy]].dropped_tail()));
            return Copies::Clean(copies);
        }
        let may_return =
            drives.iter().any(|&at| has_authority(at) && !matches!(self.list[at].presence, Presence::Failed));
        if may_return { Copies::Waiting } else { Copies::Lost }
    }

    /// The drives, of those of an extent, that have all of it: if some data is nowhere else, it is there.
    pub fn authorities(&self, drives: &[usize]) -> impl Iterator<Item = usize> {
        let newest = self.newest(drives);
        drives.iter().copied().filter(move |&at| self.list[at].left_order() == newest)
    }

    /// Takes in what a drive that is here says. What it says of others and doesn't count is outdated.
    pub fn hear(&mut self, speaker: usize, map: MapId, marks: &[Mark]) -> Heard {
        let left = self.list[speaker].left_order();
        let mut heard = Heard::default();
        for mark in marks.iter().filter(|mark| mark.map == map) {
            match mark.kind {
                MarkKind::Busy => {
                    heard.busy.insert(mark.region);
                }
                MarkKind::Stale(drive) => {
                    let about = self.list.iter_mut().find(|member| member.id == drive);
                    match about.filter(|about| about.left_order() < left) {
                        Some(about) => {
                            about.stale.entry(mark.region).or_default().insert(speaker);
                        }
                        None => heard.outdated.push(*mark),
                    }
                }
            }
        }
        heard
    }

    /// Adds to a drive's requests under way.
    pub fn enqueue(&mut self, at: usize) {
        self.list[at].queue += 1;
    }

    pub fn dequeue(&mut self, at: usize) {
        self.list[at].queue -= 1;
    }
}

/// What a drive's marks come to.
#[derive(Debug, Default)]
pub struct Heard {
    pub busy: BTreeSet<u64>,
    pub outdated: Vec<Mark>,
}

/// A region with writes under way, or whose copies aren't all known to be stable.
#[derive(Debug, Default)]
pub struct BusyRegion {
    pub under_way: usize,
    /// Writes so far: tells whether there was one in between.
    pub writes: u64,
    /// Drives on which its busy mark is committed, by position.
    pub marked: BTreeSet<usize>,
}

pub type BusyRegions = BTreeMap<u64, BusyRegion>;
