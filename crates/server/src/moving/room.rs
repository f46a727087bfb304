//! Whether what is on drives that are to be emptied has somewhere to go: copies are kept apart, and drives get full.
//!
//! While it hasn't, nothing of it is moved: it would only fill the others, and clients' writes would find no room though there is some
//! where they went before.

use super::{candidates_of, is_to_hold};
use crate::drives::Fullness;
use std::collections::{BTreeMap, BTreeSet};
use tepal_metadata::{DriveState, DriveUse, MapRecord, State};
use tepal_model::size::Size;
use tepal_model::{CHUNK, DriveId, MapId};
use tepal_placement::{Move, moves};

/// What is left on a drive that takes what others are emptied of, as a part of what it has when empty: writes go on meanwhile.
const KEPT: u64 = 20;

/// Extents are as long as a chunk at most.
const FEW: u64 = 2;

/// Bytes of a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriveSpace {
    /// What volumes could take when it's empty.
    pub capacity: u64,
    pub used: u64,
}

impl DriveSpace {
    pub fn left(&self) -> u64 {
        self.capacity.saturating_sub(self.used)
    }

    /// Whether it may soon have no room for what comes to it: not for a few of the longest extents, or for little of what it has in all.
    pub fn is_short(&self) -> bool {
        self.left() < FEW * CHUNK || Fullness::of(self.capacity, self.used) > Fullness::Ample
    }

    /// For what others are emptied of.
    fn for_others(&self) -> u64 {
        self.left().saturating_sub(self.capacity / KEPT)
    }
}

/// Of those that are open, as their servers say.
pub type Spaces = BTreeMap<DriveId, DriveSpace>;

/// What a pool's drives that are to be emptied hold, and what the others could take.
struct Demand {
    held: u64,
    left: u64,
}

impl Demand {
    fn of(state: &State, pool: &str, gone: &BTreeSet<DriveId>, spaces: &Spaces) -> Demand {
        let mut demand = Demand { held: 0, left: 0 };
        for record in state.drives_of_pool(pool) {
            let Some(space) = spaces.get(&record.id) else { continue };
            match is_to_hold(state, record, gone) {
                true if record.state == DriveState::Up => demand.left += space.for_others(),
                true => {}
                false => demand.held += space.used,
            }
        }
        demand
    }

    fn fits(&self) -> bool {
        self.held <= self.left
    }
}

/// Which moves of a pool there's room for.
pub struct Room<'a> {
    state: &'a State,
    spaces: &'a Spaces,
    demand: Demand,
    /// What moves that are under way will take.
    promised: BTreeMap<DriveId, u64>,
}

impl<'a> Room<'a> {
    pub fn of(state: &'a State, pool: &str, gone: &BTreeSet<DriveId>, spaces: &'a Spaces) -> Room<'a> {
        let demand = Demand::of(state, pool, gone, spaces);
        let mut room = Room { state, spaces, demand, promised: BTreeMap::new() };
        for (.., join) in super::joins(state) {
            *room.promised.entry(join.to).or_default() += room.of_copy(join.from);
        }
        room
    }

    /// About what a copy takes that this drive has.
    fn of_copy(&self, drive: DriveId) -> u64 {
        let columns = self.state.maps.values().flat_map(|map| &map.columns);
        let copies = columns.filter(|column| column.is_held_by(drive)).count() as u64;
        self.spaces.get(&drive).map_or(0, |space| space.used / copies.max(1))
    }

    /// Whether a copy that any of these have may be taken by this drive: then it's promised its room. `is_emptied` if it's moved as the
    /// one that has it is to be emptied.
    pub fn take(&mut self, of: impl Iterator<Item = DriveId>, to: DriveId, is_emptied: bool) -> bool {
        let wanted = of.map(|drive| self.of_copy(drive)).max().unwrap_or(0);
        let promised = self.promised.get(&to).copied().unwrap_or(0);
        let left = self.spaces.get(&to).map(|space| if is_emptied { space.for_others() } else { space.left() });
        let fits = left.is_none_or(|left| wanted + promised <= left) && (!is_emptied || self.demand.fits());
        if fits {
            *self.promised.entry(to).or_default() += wanted;
        }
        fits
    }
}

/// Why drives that are to be emptied aren't, of those that can't be now.
pub fn obstacles(state: &State, spaces: &Spaces) -> BTreeMap<DriveId, String> {
    let none_gone = BTreeSet::new();
    let is_drained = |id: &DriveId| state.drives.get(id).is_some_and(|drive| is_emptied(state, drive));
    let mut obstacles = BTreeMap::new();
    for pool in state.pools.keys() {
        let drained: Vec<DriveId> = state.drives_of_pool(pool).map(|drive| drive.id).filter(is_drained).collect();
        if drained.is_empty() {
            continue;
        }
        let maps = super::maps_of(state, pool);
        let ways = ways(state, pool, &maps);
        let demand = Demand::of(state, pool, &none_gone, spaces);
        for drive in drained {
            let held = maps.values().flat_map(|map| &map.columns);
            let held = held.filter(|column| column.is_held_by(drive) && column.joining.is_none()).count();
            let may_go = ways.iter().filter(|way| way.from == drive).count();
            let name_it = maps.values().filter(|map| map.layout.names(drive));
            let name_it: Vec<&str> =
                name_it.flat_map(|map| state.volumes_of(map.id)).map(|volume| &*volume.name).collect();
            if !name_it.is_empty() {
                let text = format!(
                    "the layouts of these volumes name it: {}: `tepal drive replace {drive} OTHER` gives them another",
                    name_it.join(", ")
                );
                obstacles.insert(drive, text);
            } else if held > may_go {
                let left = held - may_go;
                let text = format!(
                    "{left} of its copies have nowhere to go: each needs a drive that shares nothing with the column's other copies, \
                     and there are too few: add one"
                );
                obstacles.insert(drive, text);
            } else if held > 0 && !demand.fits() {
                let (needed, left) = (Size(demand.held), Size(demand.left));
                let text = format!(
                    "others have no room for what it holds: {needed} are to go, and {left} may be taken: add a drive, or remove something"
                );
                obstacles.insert(drive, text);
            }
        }
    }
    obstacles
}

/// Whether an operator wants a drive emptied that serves until then.
pub fn is_emptied(state: &State, drive: &tepal_metadata::DriveRecord) -> bool {
    let is_server_drained = state.servers.get(&drive.server).is_some_and(|server| server.draining);
    let is_meant = is_server_drained || matches!(drive.purpose, DriveUse::Draining | DriveUse::Spare);
    is_meant && drive.state != DriveState::Failed && drive.purpose != DriveUse::Removed
}

fn ways(state: &State, pool: &str, maps: &BTreeMap<MapId, &MapRecord>) -> Vec<Move> {
    let tables: Vec<_> = maps.values().filter(|map| !super::is_named(map)).map(|map| map.table()).collect();
    moves(&tables, &candidates_of(state, pool, &BTreeSet::new(), maps))
}
