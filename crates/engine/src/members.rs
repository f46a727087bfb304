//! The drives of a volume, and which of them knows what.
//!
//! A drive that leaves misses writes; the others keep stale marks for it, by region. When it returns it notes on itself
//! what it misses; from then on it's up, though some regions are still to be copied. After any sequence of leaving and
//! returning, three rules say whose data counts:
//! 1. A drive's word about itself counts, and its word about another if it was up after the other had left.
//! 2. Of the drives that hold a region, those that are up have authority; if none is, the one that left last has, since
//!    nothing was acknowledged after it left.
//! 3. A copy is clean in a region if a drive with authority for it is here, and no word that counts says it's stale.

use crate::authority::View;
use crate::map::Holders;
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
    pub missed: Missed,
    /// Requests under way, for balancing.
    pub queue: usize,
    /// How often it was opened: tells whether it left in between.
    pub opening: u64,
    /// Whether its log says all that it and others miss of the regions that it holds, as far as is known here.
    pub noted: bool,
}

/// Regions in which a drive's copies missed writes, each with the drives, by position, whose logs say so. A mark must be on
/// every drive that has taken a write that this one missed.
#[derive(Debug, Default)]
pub struct Missed(BTreeMap<u64, Witnesses>);

/// Drives by position.
type Witnesses = SmallVec<[u16; 4]>;

impl Missed {
    pub fn contains(&self, region: u64) -> bool {
        self.0.contains_key(&region)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn len(&self) -> u64 {
        self.0.len() as u64
    }

    pub fn regions(&self) -> impl Iterator<Item = u64> {
        self.0.keys().copied()
    }

    /// From now on it counts as missed; no log says so yet.
    pub fn begin(&mut self, region: u64) {
        self.0.entry(region).or_default();
    }

    /// A drive's log says so, of a region that was begun.
    pub fn said(&mut self, region: u64, by: usize) {
        let by = by as u16;
        if let Some(witnesses) = self.0.get_mut(&region).filter(|witnesses| !witnesses.contains(&by)) {
            witnesses.push(by);
        }
    }

    pub fn is_said(&self, region: u64, by: usize) -> bool {
        self.0.get(&region).is_some_and(|witnesses| witnesses.contains(&(by as u16)))
    }

    /// The region is up to date. The drives whose logs say otherwise.
    pub fn end(&mut self, region: u64) -> Option<impl Iterator<Item = usize> + use<>> {
        let witnesses = self.0.remove(&region)?;
        Some(witnesses.into_iter().map(usize::from))
    }

    /// What a drive's log doesn't say, of the regions from `first` on.
    pub fn unsaid(&self, by: usize, first: u64) -> impl Iterator<Item = u64> {
        let unsaid = move |(_, witnesses): &(&u64, &Witnesses)| !witnesses.contains(&(by as u16));
        self.0.range(first..).filter(unsaid).map(|(&region, _)| region)
    }

    /// What a drive said is heard anew.
    fn unsay(&mut self, by: usize) {
        self.0.values_mut().for_each(|witnesses| witnesses.retain(|witness| usize::from(*witness) != by));
    }
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

    fn has_authority(&self, drives: &[usize]) -> impl Fn(usize) -> bool + use<'_, W> {
        let newest = self.newest(drives);
        move |at| self.list[at].left_order() == newest
    }

    /// Whether a drive is here that knows what the others of these miss.
    pub fn is_known(&self, drives: &[usize]) -> bool {
        let has_authority = self.has_authority(drives);
        drives.iter().any(|&at| has_authority(at) && self.list[at].drive().is_some())
    }

    /// Which copies of a region, on these drives in the order of copies, are clean.
    pub fn clean(&self, drives: &[usize], region: u64) -> Copies {
        let has_authority = self.has_authority(drives);
        let may_return = |at: usize| !matches!(self.list[at].presence, Presence::Failed);
        let waits = if self.is_known(drives) {
            let is_clean = |at: usize| !self.list[at].missed.contains(region);
            let here = |&(_, &at): &(usize, &usize)| self.list[at].drive().is_some() && is_clean(at);
            let mut copies: SmallVec<[usize; 4]> =
                drives.iter().enumerate().filter(here).map(|(copy, _)| copy).collect();
            if !copies.is_empty() {
                copies.sort_by_key(|&copy| (!has_authority(drives[copy]), self.list[drives[copy]].dropped_tail()));
                return Copies::Clean(copies);
            }
            drives.iter().any(|&at| is_clean(at) && may_return(at))
        } else {
            drives.iter().any(|&at| has_authority(at) && may_return(at))
        };
        if waits { Copies::Waiting } else { Copies::Lost }
    }

    /// How many of these copies will be believed whichever of the others is lost.
    pub fn sure(&self, drives: &[usize], copies: &[usize]) -> usize {
        let has_authority = self.has_authority(drives);
        copies.iter().filter(|&&copy| has_authority(drives[copy])).count()
    }

    /// Without which of these drives a region that has no clean copy here can't be read: those that have it.
    pub fn wanted(&self, drives: &[usize], region: u64) -> Holders {
        let (known, has_authority) = (self.is_known(drives), self.has_authority(drives));
        let has = |at: usize| if known { !self.list[at].missed.contains(region) } else { has_authority(at) };
        drives.iter().copied().filter(|&at| has(at)).collect()
    }

    /// Takes in what a drive that is here says, in place of what it said before. What doesn't count is outdated.
    pub fn hear(&mut self, speaker: usize, map: MapId, marks: &[Mark]) -> Heard {
        let (id, left) = (self.list[speaker].id, self.list[speaker].left_order());
        let mut heard = Heard::default();
        for member in &mut self.list {
            member.missed.unsay(speaker);
            member.noted = false; // it may learn something
        }
        for mark in marks.iter().filter(|mark| mark.map == map) {
            match mark.kind {
                MarkKind::Busy => {
                    heard.busy.insert(mark.region);
                }
                MarkKind::Stale(drive) => {
                    let about = self.list.iter_mut().find(|member| member.id == drive);
                    match about.filter(|about| about.id == id || about.left_order() < left) {
                        Some(about) => {
                            about.missed.begin(mark.region);
                            about.missed.said(mark.region, speaker);
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
