//! What an operator has given up of a column: of which too few fragments are left. Nothing is held of it from then on.
//!
//! A region is given up while fewer than the needed fragments can ever be here, and the drives that had the others have failed and are
//! given up. Invariants:
//! 1. Such a region reads as zeros, whatever its members hold, and nobody writes to it.
//! 2. Before enough members are complete again, all that any member holds there was taken out. So a member that is away is waited for,
//!    and no drive takes another's place before.

use super::Stuck;
use crate::column::members::RegionState;
use crate::column::{Group, State};
use std::collections::BTreeSet;
use tepal_drive::world::World;

impl<W: World> Group<W> {
    /// Finds the given-up regions of which a member holds something, to have that taken out.
    pub async fn list_given_up(&self) -> Result<(), Stuck> {
        let changes = {
            let mut state = self.lock();
            if !state.members.are_all_here() {
                return Err(Stuck::Waits(Group::next_change(&mut state)));
            }
            state.changes
        };
        let held = self.extents(true).await.map_err(Stuck::Failed)?;
        let mut state = self.lock();
        // A drive that came or went meanwhile may not have been asked.
        if state.changes == changes {
            let column = &self.shared.column;
            let regions: BTreeSet<u64> = held.into_iter().map(|first| column.region_of(first)).collect();
            let is_given_up = |region: &u64| state.members.clean(*region) == RegionState::GivenUp;
            let regions: Vec<u64> = regions.into_iter().filter(is_given_up).collect();
            state.unsure.regions.extend(regions);
            state.jobs.given_up_listed = Some(changes);
        }
        Ok(())
    }
}

impl<W: World> State<W> {
    /// Whether it's known what is held of what is given up.
    pub fn has_listed_given_up(&self) -> bool {
        !self.members.has_given_up() || self.jobs.given_up_listed == Some(self.changes)
    }
}
