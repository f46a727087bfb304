//! What a volume says of itself: whether all of it can be read and written, and what keeps it from being whole. Drives are
//! named by id only; who knows more of them finds the words.

use crate::members::{Copies, Member, Presence};
use crate::volume::{State, Volume};
use std::collections::BTreeSet;
use tepal_drive::world::World;
use tepal_model::DriveId;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VolumeHealth {
    Healthy,
    /// All data can be read and written, with fewer copies than the layout wants.
    Degraded(Vec<Trouble>),
    /// All drives are there, and copies are being brought up to date.
    Recovering(Vec<Trouble>),
    /// Some data can't be read or written now.
    Unavailable(Vec<Trouble>),
}

/// One thing that keeps a volume from being healthy; the worst come first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// What only these drives held is gone: requests for it fail.
    Lost { drives: Vec<DriveId> },
    /// Reads and writes of what only these drives hold wait until they are back.
    AllWaits { drives: Vec<DriveId> },
    /// Writes wait, since the layout wants so many copies here; reads go on. One of these drives at least must come back.
    WritesWait { wanted: usize, here: usize, drives: Vec<DriveId> },
    /// It's not here, and may return.
    Away { drive: DriveId },
    /// It's retired for good.
    Failed { drive: DriveId },
    /// It's here, and this many of its regions are not up to date yet.
    Behind { drive: DriveId, regions: u64 },
    /// Copies of so many regions are being compared after a crash.
    Comparing { regions: u64 },
    /// What keeps a returned drive from catching up.
    Obstacle(String),
}

/// Drives, by position, that requests can't do without.
#[derive(Default)]
struct Wanting {
    lost: BTreeSet<usize>,
    all: BTreeSet<usize>,
    writes: BTreeSet<usize>,
    /// How many copies are here where they are fewest, of those that can be read.
    fewest: usize,
}

impl<W: World> Volume<W> {
    pub fn health(&self) -> VolumeHealth {
        let state = self.lock();
        let wanting = self.wanting(&state);
        let ids = |positions: &BTreeSet<usize>| positions.iter().map(|&at| state.members.list[at].id).collect();
        let mut troubles = Vec::new();
        if !wanting.lost.is_empty() {
            troubles.push(Trouble::Lost { drives: ids(&wanting.lost) });
        }
        if !wanting.all.is_empty() {
            troubles.push(Trouble::AllWaits { drives: ids(&wanting.all) });
        }
        if !wanting.writes.is_empty() {
            let (wanted, here) = (state.wanted_copies(), wanting.fewest);
            troubles.push(Trouble::WritesWait { wanted, here, drives: ids(&wanting.writes) });
        }
        let works = troubles.is_empty();
        troubles.extend(state.members.list.iter().filter_map(trouble_with));
        if !state.unresolved.is_empty() {
            troubles.push(Trouble::Comparing { regions: state.unresolved.len() as u64 });
        }
        troubles.extend(state.obstacle.clone().map(Trouble::Obstacle));
        let all_here = state.members.list.iter().all(|member| member.drive().is_some());
        match (works, all_here, troubles.is_empty()) {
            (false, ..) => VolumeHealth::Unavailable(troubles),
            (true, _, true) => VolumeHealth::Healthy,
            (true, true, false) => VolumeHealth::Recovering(troubles),
            (true, false, false) => VolumeHealth::Degraded(troubles),
        }
    }

    fn wanting(&self, state: &State<W>) -> Wanting {
        let (map, members) = (&self.shared.map, &state.members);
        let mut wanting = Wanting { fewest: usize::MAX, ..Wanting::default() };
        for drives in map.all_holders() {
            wanting.look(state, &drives, NOT_MISSED);
        }
        // Where all are here, somebody has it.
        if members.list.iter().any(|member| member.drive().is_none()) {
            let here = members.list.iter().filter(|member| member.drive().is_some());
            here.flat_map(|member| member.missed.regions()).for_each(|region| {
                wanting.look(state, &map.holders(region), region);
            });
        }
        wanting
    }
}

/// Stands for all regions of which no copy is behind.
const NOT_MISSED: u64 = u64::MAX;

impl Wanting {
    fn look<W: World>(&mut self, state: &State<W>, drives: &[usize], region: u64) {
        let members = &state.members;
        match members.clean(drives, region) {
            Copies::Clean(copies) if members.sure(drives, &copies) >= state.wanted_copies() => {}
            Copies::Clean(copies) => {
                self.fewest = self.fewest.min(members.sure(drives, &copies));
                let is_up = |at: &usize| members.list[*at].drive().is_some() && members.list[*at].is_current();
                self.writes.extend(drives.iter().filter(|at| !is_up(at)));
            }
            Copies::Waiting => {
                let gone = |at: &usize| matches!(members.list[*at].presence, Presence::Failed);
                self.all.extend(members.wanted(drives, region).into_iter().filter(|at| !gone(at)));
            }
            Copies::Lost => self.lost.extend(members.wanted(drives, region)),
        }
    }
}

fn trouble_with<W: World>(member: &Member<W>) -> Option<Trouble> {
    let drive = member.id;
    match &member.presence {
        Presence::Here(_) if member.is_current() && member.missed.is_empty() => None,
        Presence::Here(_) => Some(Trouble::Behind { drive, regions: member.missed.len() }),
        Presence::Leaving | Presence::Missing => Some(Trouble::Away { drive }),
        Presence::Failed => Some(Trouble::Failed { drive }),
    }
}
