//! How each copy of a volume's columns is, for people who look.

use super::{Map, Volume};
use crate::column::members::{Member, NOT_MISSED, Presence, RegionState};
use crate::column::{Group, State};
use tepal_drive::world::World;
use tepal_model::{DriveId, MapId};

/// The copies of one column, as the column's primary knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnCopies {
    /// The map that has the column.
    pub map: MapId,
    /// Its number in the map.
    pub column: usize,
    /// Regions whose copies may differ since a crash, each of [`tepal_model::REGION`] bytes.
    pub comparing: u64,
    /// The copies that aren't up to date.
    pub behind: Vec<CopyBehind>,
}

/// A copy that isn't up to date.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyBehind {
    /// That has the copy.
    pub drive: DriveId,
    /// What is done about it.
    pub why: Behind,
    /// Regions that the copy lacks, as far as is known; each of [`tepal_model::REGION`] bytes.
    pub regions: u64,
}

/// Why a copy isn't up to date.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behind {
    /// The drive is here, and what it lacks is copied from others.
    CatchesUp,
    /// The drive is here. What it lacks only drives have that are away or gone, or it isn't known yet.
    Waits,
    /// The drive may return.
    Away,
    /// The drive is gone for good.
    Failed,
}

impl<W: World> Volume<W> {
    /// The copies of the columns that this server leads.
    pub fn copies(&self) -> Vec<ColumnCopies> {
        self.maps().iter().flat_map(Map::groups).map(|group| group.copies_of_column()).collect()
    }
}

impl<W: World> Group<W> {
    fn copies_of_column(&self) -> ColumnCopies {
        let (column, state) = (&self.shared.column, self.lock());
        let behind = state.members.list.iter().filter_map(|member| behind(&state, member)).collect();
        ColumnCopies { map: column.map, column: column.number, comparing: state.comparing(), behind }
    }
}

/// What a copy lacks; `None` if it's up to date.
fn behind<W: World>(state: &State<W>, member: &Member<W>) -> Option<CopyBehind> {
    let why = match member.presence {
        Presence::Here(_) if member.missed.is_empty() && member.is_current() => return None,
        Presence::Here(_) => {
            let is_whole = |region| matches!(state.members.clean(region), RegionState::Clean(_));
            let is_known = !member.missed.is_all();
            match is_known && member.missed.regions().next().map_or_else(|| is_whole(NOT_MISSED), is_whole) {
                true => Behind::CatchesUp,
                false => Behind::Waits,
            }
        }
        Presence::Unheard | Presence::Leaving | Presence::Missing => Behind::Away,
        Presence::Failed => Behind::Failed,
    };
    Some(CopyBehind { drive: member.id, why, regions: member.missed.len() })
}
