//! Which drives have the copies of a map's columns, as agreed.

use crate::authority::View;
use smallvec::SmallVec;
use tepal_model::DriveId;
use tepal_placement::Rotation;

/// Of one map, at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Places {
    /// By number.
    pub columns: Vec<Placed>,
}

/// Where a column's copies are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placed {
    /// In the order of copies.
    pub holders: SmallVec<[Placing; 2]>,
    /// A drive that is to take the place of one of them, and is brought up to date: since which view. By that one stay of it is told
    /// from another.
    pub joins: Option<Placing>,
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
    /// Copies on neighbours, one column for each drive: `chained`, and what was made before columns had places of their own. `None` unless
    /// there are as many drives as copies.
    pub fn rotated(drives: &[DriveId], copies: u8, since: View) -> Option<Self> {
        let rotation = Rotation::new(drives.len(), copies)?;
        let column = |number| {
            let holders = rotation.holders(number).map(|at| Placing { drive: drives[at], since });
            Placed { holders: holders.collect(), joins: None }
        };
        Some(Places { columns: (0..rotation.columns()).map(column).collect() })
    }

    /// All drives that hold a column, or are to, in the order of columns, each once.
    pub fn drives(&self) -> Vec<DriveId> {
        let mut seen = std::collections::BTreeSet::new();
        self.columns.iter().flat_map(Placed::all).filter(|&drive| seen.insert(drive)).collect()
    }

    /// Whether each copy of a column is on a drive of its own.
    pub(crate) fn is_one(&self, copies: u8) -> bool {
        let is_one = |placed: &Placed| {
            let all: Vec<DriveId> = placed.all().collect();
            placed.holders.len() == usize::from(copies) && (1..all.len()).all(|at| !all[..at].contains(&all[at]))
        };
        copies > 0 && !self.columns.is_empty() && self.columns.iter().all(is_one)
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

    /// Whether a drive has a copy.
    pub fn has(&self, id: DriveId) -> bool {
        self.drives().any(|drive| drive == id)
    }

    /// Whether anything of the column may be on a drive.
    pub(crate) fn concerns(&self, id: DriveId) -> bool {
        self.all().any(|drive| drive == id)
    }
}
