//! Which copies of a volume are missing, by what is agreed: all servers say the same, whoever leads what now. What those that are there
//! have yet to catch up on, only who leads them knows.

use super::health_text;
use std::collections::BTreeSet;
use tepal_metadata::{ColumnRecord, DriveState, HolderRecord, MapRecord, State, VolumeRecord};
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
    /// So many give back what was written.
    needed: usize,
    /// How many more may be lost.
    spare: usize,
    are_copies: bool,
}

/// How many more drives each part of a volume outlives: fragments that have everything, beyond those that are needed. At the least of its
/// parts, none if it's lost or waits.
pub fn losses_left(state: &State, record: &VolumeRecord) -> usize {
    let of_map = |map: &MapRecord| {
        let needed = needed_of(map);
        let has_all = |holder: &HolderRecord| {
            holder.status.is_complete()
                && state.drives.get(&holder.drive).is_some_and(|drive| drive.state == DriveState::Up)
        };
        // Where nobody leads, the word of a drive doesn't count whose part moves to another.
        let leaves = |column: &ColumnRecord, drive| {
            map.layout.quorum().is_some() && column.joining.is_some_and(|join| join.from == drive)
        };
        let counts = |column: &ColumnRecord, holder: &HolderRecord| has_all(holder) && !leaves(column, holder.drive);
        let of_column = |column: &ColumnRecord| column.holders.iter().filter(|holder| counts(column, holder)).count();
        map.columns.iter().map(of_column).min().unwrap_or(0).saturating_sub(needed)
    };
    state.maps_of(record).map(|map| of_map(map)).min().unwrap_or(0)
}

/// So many copies or fragments give back what was written.
fn needed_of(map: &MapRecord) -> usize {
    let quorum = map.layout.quorum().map(|quorum| quorum.thresholds().answers);
    usize::from(quorum.unwrap_or(map.layout.fragments().data))
}

impl MissingCopies {
    pub fn of(state: &State, record: &VolumeRecord) -> Option<Self> {
        let is_there = |drive: DriveId| {
            let agreed = state.drives.get(&drive).map(|drive| drive.state);
            matches!(agreed, Some(DriveState::Up | DriveState::Behind))
        };
        let columns = || state.maps_of(record).flat_map(|map| map.columns.iter().map(move |column| (column, &**map)));
        let holders = |column: &'_ ColumnRecord| column.holders.iter().map(|holder| holder.drive).collect::<Vec<_>>();
        let drives: BTreeSet<DriveId> =
            columns().flat_map(|(column, _)| holders(column)).filter(|drive| !is_there(*drive)).collect();
        let spare = losses_left(state, record);
        let fewest = |(column, map): (&ColumnRecord, &MapRecord)| {
            let there = holders(column).into_iter().filter(|drive| is_there(*drive)).count();
            let are_copies = map.layout.fragments().are_copies();
            Fewest { there, of: column.holders.len(), needed: needed_of(map), spare, are_copies }
        };
        let fewest =
            columns().map(fewest).filter(|fewest| fewest.there < fewest.of).min_by_key(|fewest| fewest.there)?;
        Some(MissingCopies { drives, fewest })
    }

    /// Those that are named already aren't named again.
    pub fn add_to(&self, reason: &mut Vec<String>, state: &State) {
        let Fewest { there, of, needed, spare, are_copies } = self.fewest;
        // Of what has none, it's told what its requests do.
        if there > 0 {
            let what = if are_copies { "copies" } else { "fragments" };
            let are = if there == 1 { "is" } else { "are" };
            let outlives = match spare {
                _ if there < needed => format!("{needed} are needed"),
                0 => "no more may be lost".to_owned(),
                1 => "one more may be lost".to_owned(),
                more => format!("{more} more may be lost"),
            };
            reason.push(format!("of some of it, {there} of {of} {what} {are} there, and {outlives}"));
        }
        for drive in &self.drives {
            if !health_text::is_named(*drive, reason) {
                reason.push(health_text::fewer_without(*drive, state));
            }
        }
    }
}
