//! Which drives have the copies of a map's columns, as agreed.

#[cfg(test)]
mod tests;

use crate::view::View;
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use tepal_model::{DriveId, Fragments, Layout};
use tepal_placement::Rotation;

/// Of one map, at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Places {
    /// By number.
    pub columns: Vec<Placed>,
    /// The copies that aren't complete, by column and drive.
    pub incomplete: BTreeMap<(usize, DriveId), CopyStatus>,
}

/// Whether a copy has all that was acknowledged or read ([0004](../../../../docs/decisions/0004-who-is-believed.md)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CopyStatus {
    /// It has, also while its drive is away.
    #[default]
    Complete,
    /// The others went on without it, in that view.
    PassedOver(View),
    /// What only it had is lost by an operator's word.
    GivenUp(View),
}

impl CopyStatus {
    /// Later is greater; complete is greatest.
    pub(crate) fn order(self) -> View {
        match self {
            CopyStatus::Complete => View::MAX,
            CopyStatus::PassedOver(view) | CopyStatus::GivenUp(view) => view,
        }
    }
}

/// What changes of a column's copies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CopyChange {
    /// Others go on without these from now on.
    pub passed: Vec<DriveId>,
    /// These have everything that anybody has who may still return.
    pub complete: Vec<DriveId>,
}

/// Where a column's copies are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placed {
    /// In the order of copies.
    pub holders: SmallVec<[Placing; 2]>,
    /// A drive that is to take the place of one of them, and is brought up to date: since which view. By that one stay of it is told
    /// from another.
    pub joins: Option<Placing>,
    /// Which copy's place that drive is to take, by number.
    pub in_place_of: usize,
}

/// One copy of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placing {
    /// On which drive.
    pub drive: DriveId,
    /// The view since which it has its place.
    pub since: View,
}

impl Places {
    /// Columns whose copies all have everything.
    pub fn complete(columns: Vec<Placed>) -> Self {
        Places { columns, incomplete: BTreeMap::new() }
    }

    /// What is agreed of the copy that a drive has of a column.
    pub fn status(&self, column: usize, drive: DriveId) -> CopyStatus {
        self.incomplete.get(&(column, drive)).copied().unwrap_or_default()
    }

    /// Copies on neighbours, one column for each drive: `chained`, and what was made before columns had places of their own. `None` unless
    /// there are as many drives as copies.
    pub fn rotated(drives: &[DriveId], copies: u8, since: View) -> Option<Self> {
        let rotation = Rotation::new(drives.len(), copies)?;
        let column = |number| {
            let holders = rotation.holders(number).map(|at| Placing { drive: drives[at], since });
            Placed { holders: holders.collect(), joins: None, in_place_of: 0 }
        };
        Some(Places::complete((0..rotation.columns()).map(column).collect()))
    }

    /// What is agreed of a column's copies changes, in that view; `false` if fewer than are needed to read would be complete: then nothing
    /// does.
    pub fn count(&mut self, column: usize, change: &CopyChange, view: View, needed: usize) -> bool {
        let mut incomplete = self.incomplete.clone();
        for &drive in &change.complete {
            incomplete.remove(&(column, drive));
        }
        for &drive in &change.passed {
            incomplete.entry((column, drive)).or_insert(CopyStatus::PassedOver(view));
        }
        let complete =
            self.columns[column].drives().filter(|&drive| !incomplete.contains_key(&(column, drive))).count();
        let is_enough = complete >= if change.passed.is_empty() { 1 } else { needed };
        if is_enough {
            self.incomplete = incomplete;
        }
        is_enough
    }

    /// A drive is up: its copies are complete wherever another that hasn't failed could tell what it misses.
    pub fn is_up_again(&mut self, drive: DriveId, has_failed: impl Fn(DriveId) -> bool) {
        let own: Vec<usize> =
            self.incomplete.keys().filter(|(_, incomplete)| *incomplete == drive).map(|(column, _)| *column).collect();
        for column in own {
            let tells = |id: DriveId| !self.incomplete.contains_key(&(column, id)) && !has_failed(id);
            if self.columns[column].drives().any(tells) {
                self.incomplete.remove(&(column, drive));
            }
        }
    }

    /// All drives that hold a column, or are to, in the order of columns, each once.
    pub fn drives(&self) -> Vec<DriveId> {
        let mut seen = std::collections::BTreeSet::new();
        self.columns.iter().flat_map(Placed::all).filter(|&drive| seen.insert(drive)).collect()
    }

    /// Whether each column has so many copies, each on a drive of its own.
    pub(crate) fn is_one(&self, copies: RangeInclusive<u8>) -> bool {
        let is_one = |placed: &Placed| {
            let all: Vec<DriveId> = placed.all().collect();
            let count = u8::try_from(placed.holders.len()).unwrap_or(u8::MAX);
            copies.contains(&count) && (1..all.len()).all(|at| !all[..at].contains(&all[at]))
        };
        *copies.start() > 0 && !self.columns.is_empty() && self.columns.iter().all(is_one)
    }
}

impl Placed {
    /// The drives that have a copy, in order.
    pub fn drives(&self) -> impl Iterator<Item = DriveId> {
        self.holders.iter().map(|placing| placing.drive)
    }

    /// The same, and the one that joins.
    pub fn all(&self) -> impl Iterator<Item = DriveId> {
        self.drives().chain(self.joins.map(|joins| joins.drive))
    }

    /// What the drives have together in a map of this layout: of whole copies, as many as there are drives.
    pub(crate) fn fragments(&self, layout: &Layout) -> Fragments {
        match layout.fragments() {
            fragments if fragments.are_copies() => Fragments::copies(self.holders.len() as u8),
            fragments => fragments,
        }
    }

    /// The view since which the column has these drives.
    pub(crate) fn since(&self) -> View {
        self.holders.iter().chain(&self.joins).map(|placing| placing.since).max().unwrap_or(0)
    }

    /// Whether a drive has a copy.
    pub fn has(&self, id: DriveId) -> bool {
        self.drives().any(|drive| drive == id)
    }

    /// Whether anything of the column may be on a drive.
    pub(crate) fn concerns(&self, id: DriveId) -> bool {
        self.all().any(|drive| drive == id)
    }
}
