//! Tables: which drives hold the copies of each column of a map, said drive by drive.
//!
//! [`allot`] makes the table of a new map, [`moves`] says what to change when drives come, go or are to be emptied. What is
//! changed is up to whoever agrees on it, so a table is a state, not a function of the drives that there are. Invariants:
//! 1. The holders of a column are different drives. `allot` and `moves` never bring two of a column into one failure domain.
//! 2. Drives hold copies in proportion to their capacity, but no domain more than one of each column: what it has beyond
//!    that isn't used, and the others hold the rest in proportion (`fair.rs`). A new table is within one copy of that on each
//!    drive and in each domain; so are its first holders, who lead (`order.rs`). Its number decides which drives get the copy
//!    more, so that many small tables come to an even whole.
//! 3. `moves` asks for as few as possible: what lies where it may not, then what keeps a drive from its fair share, within one
//!    copy or 5 %, in each table and over all of them (`balance.rs`). When all are done, it asks for nothing; when some are,
//!    for nothing that undoes them.
//! 4. All of it follows from the arguments alone: integers, in a fixed order.

mod balance;
mod drives;
mod fair;
mod order;
#[cfg(test)]
mod tests;

use crate::choose::settled;
use crate::share::{Scale, Share, ShareError, pair};
use crate::{Candidate, ChooseError, Geometry, Rotation, choose, explicit};
use balance::Balance;
use drives::Drives;
use smallvec::SmallVec;
use std::collections::BTreeSet;
use tepal_model::layout::plexes::Plexes;
use tepal_model::layout::{FailureDomain, LayoutError, Protection};
use tepal_model::{DriveId, Layout};

/// The drives of one column, first the one that leads it when all are up.
pub type ColumnHolders = SmallVec<[DriveId; 2]>;

/// Which drives hold the copies of each column of a map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// How extents go round the columns.
    pub geometry: Geometry,
    /// What no two copies of a column share.
    pub domain: FailureDomain,
    /// As many as the geometry has.
    pub columns: Vec<ColumnHolders>,
}

impl Table {
    /// How many copies there are of each column.
    pub fn copies(&self) -> usize {
        self.columns.first().map_or(0, SmallVec::len)
    }

    /// Carries out a change: `to` has the place of `from`. Says whether `from` was a holder.
    pub fn change(&mut self, change: &Move) -> bool {
        let place = self.columns[change.column].iter_mut().find(|holder| **holder == change.from);
        place.map(|holder| *holder = change.to).is_some()
    }
}

/// One copy that should be on another drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Move {
    /// The table's position among those that were given.
    pub table: usize,
    /// The column.
    pub column: usize,
    /// The drive that has the copy.
    pub from: DriveId,
    /// The drive that should have it.
    pub to: DriveId,
}

/// The table of a new map. Tables of different `number`s, best in sequence, even each other out.
pub fn allot(candidates: &[Candidate<'_>], layout: &Layout, number: u64) -> Result<Table, ChooseError> {
    if let Some(plexes) = layout.plexes() {
        return named(candidates, plexes);
    }
    if layout.protection == Protection::Chained {
        return rotate(candidates, layout);
    }
    let candidates: Vec<Candidate<'_>> = candidates.iter().filter(|drive| drive.capacity > 0).copied().collect();
    let candidates = &candidates[..];
    let domain = settled(candidates, layout)?;
    let copies = layout.fragments().count();
    let too_few = |found| {
        let (layout, fragments) = (layout.to_string(), layout.fragments());
        ChooseError::TooFew(LayoutError::TooFewDomains { layout, fragments, domain, found })
    };
    let scale = Scale::of(candidates.iter().map(|drive| drive.capacity)).ok_or(ChooseError::NoDrives)?;
    let share = Share::new(candidates, copies, domain, scale).map_err(|error| match error {
        ShareError::TooFew { found, .. } => too_few(found),
        ShareError::NoSite(server) => ChooseError::NoSite(server),
        ShareError::Copies(_) | ShareError::Crowded { .. } => unreachable!("a layout's copies, and a scale for them"),
    })?;
    let geometry = Geometry::of(candidates, copies, layout.extent);
    let holders =
        |column| share.holders(pair(number, column)).iter().map(|at| candidates[*at as usize].drive).collect();
    let columns = (0..geometry.columns() as u64).map(holders).collect();
    let table = Table { geometry: geometry.clone(), domain, columns };

    let drives = Drives::new(candidates, std::slice::from_ref(&table));
    let quotas = fair::quotas(&drives, geometry.columns(), copies.into(), domain, number);
    let mut balance = Balance::exactly(&drives, &table, &quotas);
    balance.even();
    let columns = order::spread(&drives, balance.into_columns(), &geometry, domain);
    let columns = order::led(&drives, columns, &geometry, number);
    Ok(Table { geometry, domain, columns })
}

/// The table of a map whose layout names its drives.
fn named(candidates: &[Candidate<'_>], plexes: &Plexes) -> Result<Table, ChooseError> {
    let is_there = |drive: &DriveId| candidates.iter().any(|candidate| candidate.drive == *drive);
    if let Some(drive) = plexes.drives().into_iter().find(|drive| !is_there(drive)) {
        return Err(ChooseError::Explicit(LayoutError::NoDrive(drive)));
    }
    let (geometry, columns) = explicit(plexes).map_err(ChooseError::Explicit)?;
    Ok(Table { geometry, domain: FailureDomain::Drive, columns })
}

/// The table of a map with one column for each drive and copies on neighbours ([`Rotation`]): what every map had at first.
pub fn rotate(candidates: &[Candidate<'_>], layout: &Layout) -> Result<Table, ChooseError> {
    let chosen = choose(candidates, layout)?;
    let rotation =
        Rotation::new(chosen.drives.len(), layout.fragments().count()).expect("there are as many drives as copies");
    let geometry = Geometry::round(rotation.columns(), layout.extent).expect("a map has fewer than 2^32 drives");
    let holders = |column| rotation.holders(column).map(|at| chosen.drives[at]).collect();
    Ok(Table { geometry, domain: chosen.domain, columns: (0..rotation.columns()).map(holders).collect() })
}

/// What to change in the tables of a pool, the most urgent first. Drives that hold something and shall not, because they are
/// drained or have failed, are given without capacity, or not at all: but then nobody knows their failure domains.
///
/// A move may be refused or a drive be lost before it's done: ask again then. Of a column's moves, the first is for now.
pub fn moves(tables: &[Table], candidates: &[Candidate<'_>]) -> Vec<Move> {
    let drives = Drives::new(candidates, tables);
    let mut balance = Balance::fairly(&drives, tables);
    balance.leave();
    balance.part();
    balance.even();
    let mut found: Vec<(u8, Move)> = Vec::new();
    for (number, (table, after)) in tables.iter().zip(balance.columns()).enumerate() {
        for (column, (before, after)) in table.columns.iter().zip(after).enumerate() {
            found.extend(
                changes(&drives, table.domain, before, after)
                    .into_iter()
                    .map(|(urgency, from, to)| (urgency, Move { table: number, column, from, to })),
            );
        }
    }
    found.sort_unstable();
    found.into_iter().map(|(_, change)| change).collect()
}

/// What leads from one column to the other: how urgent (0 is most), from where, to where. Each can be done before the others,
/// since a drive makes room for one of its own domain.
fn changes(drives: &Drives, domain: FailureDomain, before: &[DriveId], after: &[u32]) -> Vec<(u8, DriveId, DriveId)> {
    let before: SmallVec<[u32; 4]> = before.iter().map(|id| drives.position(*id)).collect();
    let mut come: Vec<u32> = after.iter().copied().filter(|drive| !before.contains(drive)).collect();
    let (of_its_own, others): (Vec<u32>, Vec<u32>) = before
        .iter()
        .copied()
        .filter(|drive| !after.contains(drive))
        .partition(|from| come.iter().any(|to| drives.domain(domain, *to) == drives.domain(domain, *from)));
    let domains: BTreeSet<u32> = before.iter().map(|drive| drives.domain(domain, *drive)).collect();
    let is_shared = domains.len() < before.len();
    of_its_own
        .into_iter()
        .chain(others)
        .map(|from| {
            let same = |to: &u32| drives.domain(domain, *to) == drives.domain(domain, from);
            let to = come.remove(come.iter().position(same).unwrap_or(0));
            let urgency = if drives.capacity(from) == 0 { 0 } else { 2 - u8::from(is_shared) };
            (urgency, drives.id(from), drives.id(to))
        })
        .collect()
}
