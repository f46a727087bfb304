//! Copies that are moved until each drive has what it may.
//!
//! A drive that has more than its range gives a copy to the drive that has least in proportion, and one that has less takes
//! from the one that has most, as long as nobody leaves its range by it. So each move brings the whole nearer, whatever else is
//! done or not. Where no column of the one can go to the other, because of failure domains, it's done over others that
//! then have as much as before. Whoever may give or take in one table is chosen by what it has over all.

use super::drives::Drives;
use super::fair::{self, ONE};
use super::{ColumnHolders, Table};
use crate::share::pair;
use smallvec::SmallVec;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::RangeInclusive;
use std::rc::Rc;
use tepal_model::layout::FailureDomain;

/// A share may be off by one in so many, or by one copy.
const EXACT_TO: i64 = 20;
/// As far from its share as a drive may be.
const FAR: i64 = 1 << 10;

/// The holders of a column, by position.
pub type Column = SmallVec<[u32; 4]>;

pub struct Balance<'a> {
    drives: &'a Drives,
    tables: Vec<Work>,
    /// For each drive, the copies that it has.
    held: Vec<BTreeSet<CopyOf>>,
    /// What is due over all tables.
    whole: Due,
}

struct Work {
    domain: FailureDomain,
    columns: Vec<Column>,
    /// How many copies each drive has.
    counts: Vec<u32>,
    /// How many columns each drive leads.
    leads: Vec<u32>,
    due: Rc<Due>,
}

/// What drives are due, by position.
struct Due {
    shares: Vec<i64>,
    ranges: Vec<(u32, u32)>,
    /// Who leans no further is in its range.
    inner: i64,
}

/// A copy: its table, and the column there. In each table, columns come in a scattered order, so that a drive doesn't get several
/// that lie side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct CopyOf {
    table: u32,
    scattered: u32,
    column: u32,
}

/// What is to be even: one table, or all of them.
#[derive(Clone, Copy)]
enum Scope {
    Table(u32),
    Whole,
}

impl Due {
    fn fair(shares: Vec<i64>) -> Due {
        let range = |share: &i64| {
            let least = (share - tolerance(*share)).max(0);
            ((least + ONE - 1) / ONE, (share + tolerance(*share)) / ONE)
        };
        let ranges = shares.iter().map(range).map(|(least, most)| (least as u32, most as u32)).collect();
        Due { shares, ranges, inner: FAR - 1 }
    }
}

fn tolerance(share: i64) -> i64 {
    ONE.max(share / EXACT_TO)
}

impl<'a> Balance<'a> {
    /// Each drive gets as many copies as its quota says.
    pub fn exactly(drives: &'a Drives, table: &Table, quotas: &[u32]) -> Balance<'a> {
        let due = || Due {
            shares: quotas.iter().map(|quota| i64::from(*quota) * ONE).collect(),
            ranges: quotas.iter().map(|quota| (*quota, *quota)).collect(),
            inner: 0,
        };
        let mut balance = Balance { drives, tables: vec![], held: vec![BTreeSet::new(); drives.len()], whole: due() };
        balance.add(table, Rc::new(due()));
        balance
    }

    /// Each drive gets its fair share.
    pub fn fairly(drives: &'a Drives, tables: &[Table]) -> Balance<'a> {
        let mut known: BTreeMap<(usize, usize, FailureDomain), Rc<Due>> = BTreeMap::new();
        let mut whole = vec![0; drives.len()];
        let due = Due::fair(whole.clone());
        let mut balance = Balance { drives, tables: vec![], held: vec![BTreeSet::new(); drives.len()], whole: due };
        for table in tables {
            let (columns, copies, domain) = (table.columns.len(), table.copies(), table.domain);
            let due = known.entry((columns, copies, domain));
            let due = due.or_insert_with(|| Rc::new(Due::fair(fair::shares(drives, columns, copies, domain)))).clone();
            whole.iter_mut().zip(&due.shares).for_each(|(sum, share)| *sum += share);
            balance.add(table, due);
        }
        balance.whole = Due::fair(whole);
        balance
    }

    fn add(&mut self, table: &Table, due: Rc<Due>) {
        let number = self.tables.len() as u32;
        let drives = self.drives;
        let column = |holders: &ColumnHolders| holders.iter().map(|id| drives.position(*id)).collect::<Column>();
        let columns: Vec<Column> = table.columns.iter().map(column).collect();
        let (mut counts, mut leads) = (vec![0; drives.len()], vec![0; drives.len()]);
        for (column, holders) in columns.iter().enumerate() {
            leads[holders[0] as usize] += 1;
            for &drive in holders {
                counts[drive as usize] += 1;
                self.held[drive as usize].insert(place(number, column));
            }
        }
        self.tables.push(Work { domain: table.domain, columns, counts, leads, due });
    }

    pub fn columns(&self) -> impl Iterator<Item = &Vec<Column>> {
        self.tables.iter().map(|table| &table.columns)
    }

    /// Of the first table.
    pub fn into_columns(mut self) -> Vec<Column> {
        self.tables.remove(0).columns
    }

    /// Brings away what is on drives that shall hold nothing, as far as there are others for it.
    pub fn leave(&mut self) {
        let mut order = self.order(Scope::Whole);
        for drive in (0..self.drives.len() as u32).filter(|drive| self.drives.capacity(*drive) == 0) {
            for place in self.held[drive as usize].clone() {
                self.bring_away(&mut order, place, drive);
            }
        }
    }

    /// Brings away what shares a failure domain with another copy, as far as there are others for it.
    pub fn part(&mut self) {
        let mut order = self.order(Scope::Whole);
        for number in 0..self.tables.len() {
            for column in 0..self.tables[number].columns.len() {
                let table = &self.tables[number];
                let domain = |drive: &u32| self.drives.domain(table.domain, *drive);
                let holders = table.columns[column].clone();
                let shares = |drive: &u32| holders.iter().any(|one| one != drive && domain(one) == domain(drive));
                let mut sharing: Vec<u32> = holders.iter().copied().filter(shares).collect();
                sharing.sort_by_key(|drive| self.lean(Scope::Whole, *drive));
                while sharing.len() > 1 {
                    let from = sharing.pop().expect("there are two");
                    self.bring_away(&mut order, place(number as u32, column), from);
                    let domain = |drive: &u32| self.drives.domain(self.tables[number].domain, *drive);
                    let left = sharing.clone();
                    sharing.retain(|drive| left.iter().any(|one| one != drive && domain(one) == domain(drive)));
                }
            }
        }
    }

    fn bring_away(&mut self, order: &mut BTreeSet<(i64, u32)>, place: CopyOf, from: u32) {
        let table = &self.tables[place.table as usize];
        let has_room = |drive: u32| table.counts[drive as usize] < table.due.ranges[drive as usize].1;
        let mut allowed = order.iter().map(|(_, drive)| *drive).filter(|to| self.may_hold(place, from, *to));
        let first = allowed.next();
        let found = first.filter(|to| has_room(*to)).or_else(|| allowed.find(|to| has_room(*to))).or(first);
        if let Some(to) = found {
            self.shift(order, Scope::Whole, place, from, to);
        }
    }

    /// Brings drives into their ranges, in each table and over all.
    pub fn even(&mut self) {
        for number in 0..self.tables.len() as u32 {
            if self.drives.used().any(|drive| !self.is_in_range(Scope::Table(number), drive)) {
                self.even_out(Scope::Table(number));
            }
        }
        if self.tables.len() > 1 {
            self.even_out(Scope::Whole);
        }
    }

    fn even_out(&mut self, scope: Scope) {
        let mut order = self.order(scope);
        let inner = self.due(scope).inner;
        let mut stuck = BTreeSet::new();
        loop {
            let is_out = |drive: &u32| !stuck.contains(drive) && !self.is_in_range(scope, *drive);
            let over = order.iter().rev().take_while(|(lean, _)| *lean > inner).map(|(_, drive)| *drive).find(is_out);
            let under = order.iter().take_while(|(lean, _)| *lean < -inner).map(|(_, drive)| *drive).find(is_out);
            let (drive, way) = match (over, under) {
                (Some(over), _) => (over, self.way_from(scope, &order, over)),
                (None, Some(under)) => (under, self.way_to(scope, &order, under)),
                (None, None) => return,
            };
            if way.is_empty() {
                stuck.insert(drive);
            }
            for (place, from, to) in way {
                self.shift(&mut order, scope, place, from, to);
            }
        }
    }

    /// How a drive that has too much gets rid of a copy; nothing if it can't.
    fn way_from(&self, scope: Scope, order: &BTreeSet<(i64, u32)>, from: u32) -> Vec<(CopyOf, u32, u32)> {
        let below = self.lean(scope, from);
        let can_take = |drive: &u32| self.count(scope, *drive) < *self.range(scope, *drive).end();
        let lower = order.iter().take_while(|(lean, _)| *lean < below).map(|(_, drive)| *drive).filter(can_take);
        let way = |to: u32| self.copy_for(scope, from, to).map(|place| vec![(place, from, to)]);
        let direct = if self.is_all(scope) {
            lower.clone().find_map(way)
        } else {
            let mut takers: Vec<u32> = lower.clone().collect();
            takers.sort_by_cached_key(|drive| self.lean(Scope::Whole, *drive));
            takers.into_iter().find_map(way)
        };
        direct.unwrap_or_else(|| self.detour(scope, &[from], &lower.collect::<Vec<_>>()))
    }

    /// How a drive that has too little gets a copy; nothing if it can't.
    fn way_to(&self, scope: Scope, order: &BTreeSet<(i64, u32)>, to: u32) -> Vec<(CopyOf, u32, u32)> {
        let above = self.lean(scope, to);
        let can_give = |drive: &u32| self.count(scope, *drive) > *self.range(scope, *drive).start();
        let higher = order.iter().rev().take_while(|(lean, _)| *lean > above).map(|(_, drive)| *drive).filter(can_give);
        let way = |from: u32| self.copy_for(scope, from, to).map(|place| vec![(place, from, to)]);
        let direct = if self.is_all(scope) {
            higher.clone().find_map(way)
        } else {
            let mut givers: Vec<u32> = higher.clone().collect();
            givers.sort_by_cached_key(|drive| Reverse(self.lean(Scope::Whole, *drive)));
            givers.into_iter().find_map(way)
        };
        direct.unwrap_or_else(|| self.detour(scope, &higher.collect::<Vec<_>>(), &[to]))
    }

    fn is_all(&self, scope: Scope) -> bool {
        self.tables.len() == 1 || matches!(scope, Scope::Whole)
    }

    /// A copy that one drive has and the other may have instead: if there's a choice, one by which both lead their part.
    fn copy_for(&self, scope: Scope, from: u32, to: u32) -> Option<CopyOf> {
        let mut first = None;
        for place in self.copies_of(scope, from).filter(|place| self.may_move(scope, *place, from, to)) {
            let table = &self.tables[place.table as usize];
            let column = &table.columns[place.column as usize];
            let of = |counts: &[u32], drive: u32| i64::from(counts[drive as usize]);
            let lacks = of(&table.leads, to) * column.len() as i64 <= of(&table.counts, to);
            if (column[0] == from) == lacks {
                return Some(place);
            }
            first = first.or(Some(place));
        }
        first
    }

    /// The shortest way over other drives.
    fn detour(&self, scope: Scope, from: &[u32], to: &[u32]) -> Vec<(CopyOf, u32, u32)> {
        let mut is_goal = vec![false; self.drives.len()];
        to.iter().for_each(|drive| is_goal[*drive as usize] = true);
        let mut come_by: BTreeMap<u32, (CopyOf, u32)> = BTreeMap::new();
        let mut unseen: Vec<u32> = self.drives.used().filter(|drive| !from.contains(drive)).collect();
        let mut queue: VecDeque<u32> = from.iter().copied().collect();
        while let Some(drive) = queue.pop_front() {
            for place in self.copies_of(scope, drive) {
                let (near, far) = unseen.iter().partition(|other| self.may_move(scope, place, drive, **other));
                unseen = far;
                for other in near {
                    come_by.insert(other, (place, drive));
                    if is_goal[other as usize] {
                        return way_back(&come_by, other);
                    }
                    queue.push_back(other);
                }
            }
        }
        Vec::new()
    }

    fn copies_of(&self, scope: Scope, drive: u32) -> impl Iterator<Item = CopyOf> + '_ {
        let (first, end) = match scope {
            Scope::Table(number) => (number, number + 1),
            Scope::Whole => (0, self.tables.len() as u32),
        };
        let begin = |table| CopyOf { table, scattered: 0, column: 0 };
        self.held[drive as usize].range(begin(first)..begin(end)).copied()
    }

    /// Whether a copy may be moved for the sake of evenness: if its table isn't what is looked at, that mustn't suffer.
    fn may_move(&self, scope: Scope, place: CopyOf, from: u32, to: u32) -> bool {
        let table = &self.tables[place.table as usize];
        let keeps_even = || {
            let (from, to) = (from as usize, to as usize);
            table.counts[from] > table.due.ranges[from].0 && table.counts[to] < table.due.ranges[to].1
        };
        self.may_hold(place, from, to) && (matches!(scope, Scope::Table(_)) || keeps_even())
    }

    /// Whether a drive's copy could be on another one, where no other copy of the column shares its failure domain.
    fn may_hold(&self, place: CopyOf, from: u32, to: u32) -> bool {
        let table = &self.tables[place.table as usize];
        let domain = self.drives.domain(table.domain, to);
        let apart =
            |drive: &u32| *drive != to && (*drive == from || self.drives.domain(table.domain, *drive) != domain);
        self.drives.capacity(to) > 0 && table.columns[place.column as usize].iter().all(apart)
    }

    fn shift(&mut self, order: &mut BTreeSet<(i64, u32)>, scope: Scope, place: CopyOf, from: u32, to: u32) {
        for drive in [from, to] {
            order.remove(&(self.lean(scope, drive), drive));
        }
        let table = &mut self.tables[place.table as usize];
        let column = &mut table.columns[place.column as usize];
        let copy = column.iter().position(|drive| *drive == from).expect("it has the copy");
        column[copy] = to;
        table.counts[from as usize] -= 1;
        table.counts[to as usize] += 1;
        if copy == 0 {
            table.leads[from as usize] -= 1;
            table.leads[to as usize] += 1;
        }
        self.held[from as usize].remove(&place);
        self.held[to as usize].insert(place);
        for drive in [from, to].into_iter().filter(|drive| self.drives.capacity(*drive) > 0) {
            order.insert((self.lean(scope, drive), drive));
        }
    }

    /// Who may hold something, first who has least in proportion.
    fn order(&self, scope: Scope) -> BTreeSet<(i64, u32)> {
        self.drives.used().map(|drive| (self.lean(scope, drive), drive)).collect()
    }

    /// How far above its share a drive is, in parts of [`FAR`]; negative if below.
    fn lean(&self, scope: Scope, drive: u32) -> i64 {
        let share = self.due(scope).shares[drive as usize];
        (i64::from(self.count(scope, drive)) * ONE - share) * FAR / tolerance(share)
    }

    fn is_in_range(&self, scope: Scope, drive: u32) -> bool {
        self.range(scope, drive).contains(&self.count(scope, drive))
    }

    fn range(&self, scope: Scope, drive: u32) -> RangeInclusive<u32> {
        let (least, most) = self.due(scope).ranges[drive as usize];
        least..=most
    }

    fn due(&self, scope: Scope) -> &Due {
        match scope {
            Scope::Table(number) => &self.tables[number as usize].due,
            Scope::Whole => &self.whole,
        }
    }

    fn count(&self, scope: Scope, drive: u32) -> u32 {
        match scope {
            Scope::Table(number) => self.tables[number as usize].counts[drive as usize],
            Scope::Whole => self.held[drive as usize].len() as u32,
        }
    }
}

fn place(table: u32, column: usize) -> CopyOf {
    CopyOf { table, scattered: pair(table.into(), column as u64) as u32, column: column as u32 }
}

/// The moves that lead to `goal`. None if two are about one column: the second might not be allowed after the first.
fn way_back(come_by: &BTreeMap<u32, (CopyOf, u32)>, goal: u32) -> Vec<(CopyOf, u32, u32)> {
    let mut way = Vec::new();
    let mut to = goal;
    while let Some(&(place, from)) = come_by.get(&to) {
        if way.iter().any(|(other, _, _)| *other == place) {
            return Vec::new();
        }
        way.push((place, from, to));
        to = from;
    }
    way
}
