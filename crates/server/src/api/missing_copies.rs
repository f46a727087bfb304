//! Which copies of a volume are missing, by what is agreed: all servers say the same, whoever leads what now. What those that are there
//! have yet to catch up on, only who leads them knows.

use super::health_text;
use std::collections::BTreeSet;
use tepal_metadata::{ColumnRecord, DriveState, State, VolumeRecord};
use tepal_model::DriveId;

pub struct MissingCopies {
    /// Whose.
    drives: BTreeSet<DriveId>,
    /// Where fewest are there.
    fewest: Fewest,
}

struct Fewest {
    there: usize,
    of: usize,
}

impl MissingCopies {
    pub fn of(state: &State, record: &VolumeRecord) -> Option<Self> {
        let is_there = |drive: DriveId| {
            let agreed = state.drives.get(&drive).map(|drive| drive.state);
            matches!(agreed, Some(DriveState::Up | DriveState::Behind))
        };
        let columns = || state.maps_of(record).flat_map(|map| &map.columns);
        let holders = |column: &'_ ColumnRecord| column.holders.iter().map(|holder| holder.drive).collect::<Vec<_>>();
        let drives: BTreeSet<DriveId> = columns().flat_map(holders).filter(|drive| !is_there(*drive)).collect();
        let fewest = |column: &ColumnRecord| {
            let there = holders(column).into_iter().filter(|drive| is_there(*drive)).count();
            Fewest { there, of: column.holders.len() }
        };
        let fewest =
            columns().map(fewest).filter(|fewest| fewest.there < fewest.of).min_by_key(|fewest| fewest.there)?;
        Some(MissingCopies { drives, fewest })
    }

    /// Those that are named already aren't named again.
    pub fn add_to(&self, reason: &mut Vec<String>, state: &State) {
        let Fewest { there, of } = self.fewest;
        // Of what has none, it's told what its requests do.
        if there > 0 {
            let copies = if there == 1 { "copy is" } else { "copies are" };
            reason.push(format!("of some of it, {there} of {of} {copies} there"));
        }
        for drive in &self.drives {
            if !health_text::is_named(*drive, reason) {
                reason.push(health_text::fewer_without(*drive, state));
            }
        }
    }
}
