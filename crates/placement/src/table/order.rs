//! Which column a copy is of, and who leads a column: so that requests meet many drives, and the work of a server that fails
//! goes to many.

use super::ColumnHolders;
use super::balance::Column;
use super::drives::Drives;
use crate::Geometry;
use crate::share::{mix, pair};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use tepal_model::layout::FailureDomain;

/// How many exchanges are tried.
const TRIES: u64 = 30_000;
/// So often all columns are looked at, if it still makes a difference.
const ROUNDS: u64 = 8;
/// Of costs.
const UNIT: i64 = 1 << 20;

/// Copies of two columns change places as long as that makes it better: a set should have as many drives as can be, and a server
/// as many others that hold what it holds, in proportion to what they have.
pub fn spread(drives: &Drives, columns: Vec<Column>, geometry: &Geometry, domain: FailureDomain) -> Vec<Column> {
    let (count, copies) = (columns.len() as u64, columns[0].len() as u64);
    let all = count * copies;
    let mut spread = Spread::new(drives, columns, geometry, domain);
    // Each copy with each other one, if these aren't too many; else with some, which are scattered.
    let others = (TRIES / all).min(all).max(1);
    for _ in 0..(TRIES / (all * others)).clamp(1, ROUNDS) {
        let before = spread.cost;
        for one in 0..all {
            for nth in 0..others {
                let other = if others == all { nth } else { pair(one, nth) % all };
                let at = |copy: u64| ((copy / copies) as usize, (copy % copies) as usize);
                spread.exchange_if_better(at(one), at(other));
            }
        }
        if spread.cost == before {
            break;
        }
    }
    spread.columns
}

struct Spread<'a> {
    drives: &'a Drives,
    domain: FailureDomain,
    width: usize,
    columns: Vec<Column>,
    /// What each drive's group is for which the sharing is evened: its server, if there are several.
    group: Vec<u32>,
    /// How many copies each group has.
    sizes: BTreeMap<u32, i64>,
    /// For each set, how many copies a drive has of its columns.
    of_set: BTreeMap<(usize, u32), i64>,
    /// For each two groups, of how many columns both have copies.
    shared: BTreeMap<(u32, u32), i64>,
    cost: i64,
}

impl<'a> Spread<'a> {
    fn new(drives: &'a Drives, columns: Vec<Column>, geometry: &Geometry, domain: FailureDomain) -> Spread<'a> {
        let servers: BTreeSet<u32> = drives.used().map(|drive| drives.server(drive)).collect();
        let group = |drive: u32| if servers.len() > 1 { drives.server(drive) } else { drive };
        let group: Vec<u32> = (0..drives.len() as u32).map(group).collect();
        let mut sizes = BTreeMap::new();
        columns.iter().flatten().for_each(|drive| *sizes.entry(group[*drive as usize]).or_default() += 1);
        let (width, of_set, shared) = (geometry.width() as usize, BTreeMap::new(), BTreeMap::new());
        let mut spread = Spread { drives, domain, width, columns, group, sizes, of_set, shared, cost: 0 };
        (0..spread.columns.len()).for_each(|column| spread.count(column, 1));
        spread
    }

    fn exchange_if_better(&mut self, one: (usize, usize), other: (usize, usize)) {
        if one.0 == other.0 || self.columns[one.0][one.1] == self.columns[other.0][other.1] {
            return;
        }
        let before = self.cost;
        self.exchange(one, other);
        if self.cost >= before || !self.is_apart(one.0) || !self.is_apart(other.0) {
            self.exchange(one, other);
        }
    }

    fn exchange(&mut self, one: (usize, usize), other: (usize, usize)) {
        self.count(one.0, -1);
        self.count(other.0, -1);
        let drive = self.columns[one.0][one.1];
        self.columns[one.0][one.1] = std::mem::replace(&mut self.columns[other.0][other.1], drive);
        self.count(one.0, 1);
        self.count(other.0, 1);
    }

    fn is_apart(&self, column: usize) -> bool {
        let holders = &self.columns[column];
        let domain = |copy: usize| self.drives.domain(self.domain, holders[copy]);
        (1..holders.len()).all(|copy| (0..copy).all(|before| domain(before) != domain(copy)))
    }

    /// Adds to the cost, or takes from it, what a column has to do with all others.
    fn count(&mut self, column: usize, sign: i64) {
        let holders = std::mem::take(&mut self.columns[column]);
        for (copy, &drive) in holders.iter().enumerate() {
            let of_set = self.of_set.entry((column / self.width, drive)).or_default();
            self.cost += grown(of_set, sign) * UNIT;
            for &other in &holders[..copy] {
                let (one, other) = (self.group[drive as usize], self.group[other as usize]);
                let shared = self.shared.entry((one.min(other), one.max(other))).or_default();
                let weight = (self.sizes[&one] * self.sizes[&other]).max(1);
                self.cost += grown(shared, sign) * (UNIT * self.width as i64).max(weight) / weight;
            }
        }
        self.columns[column] = holders;
    }
}

/// Changes a number by one, up or down, and says by how much its square grows.
fn grown(number: &mut i64, sign: i64) -> i64 {
    let before = *number;
    *number += sign;
    *number * *number - before * before
}

/// Puts first in each column who leads it. Each drive leads in proportion to what it holds, rounded up or down, and as far as can
/// be, the leaders of a set are different drives. The others follow in an order that is different from column to column.
pub fn led(drives: &Drives, columns: Vec<Column>, geometry: &Geometry, number: u64) -> Vec<ColumnHolders> {
    let mut leaders = Leaders::new(drives, &columns, geometry.width() as usize);
    leaders.even();
    leaders.part();
    let first = leaders.first;
    let ordered = |(column, (holders, first)): (usize, (Column, usize))| {
        let leader = holders[first];
        let mut others: Column = holders.into_iter().filter(|drive| *drive != leader).collect();
        let seed = pair(number, column as u64);
        others.sort_unstable_by_key(|drive| mix(seed ^ drives.id(*drive).0));
        std::iter::once(leader).chain(others).map(|drive| drives.id(drive)).collect()
    };
    columns.into_iter().zip(first).enumerate().map(ordered).collect()
}

struct Leaders<'a> {
    columns: &'a [Column],
    width: usize,
    /// Which copy of each column leads.
    first: Vec<usize>,
    /// For each set, how many columns a drive leads.
    of_set: BTreeMap<(usize, u32), i64>,
    /// For each drive, how many columns it leads, and of how many it has copies.
    leads: Vec<i64>,
    holds: Vec<i64>,
    /// For each drive, the columns of which it has copies.
    held: Vec<Vec<usize>>,
    copies: i64,
}

impl<'a> Leaders<'a> {
    /// Chosen one after the other: who leads least of the set, then least of what it's due.
    fn new(drives: &Drives, columns: &'a [Column], width: usize) -> Leaders<'a> {
        let mut held = vec![Vec::new(); drives.len()];
        for (column, holders) in columns.iter().enumerate() {
            holders.iter().for_each(|drive| held[*drive as usize].push(column));
        }
        let holds = held.iter().map(|columns: &Vec<usize>| columns.len() as i64).collect();
        let (leads, first, copies) = (vec![0; drives.len()], Vec::new(), columns[0].len() as i64);
        let mut leaders = Leaders { columns, width, first, of_set: BTreeMap::new(), leads, holds, held, copies };
        for (column, holders) in columns.iter().enumerate() {
            let load = |drive: u32| {
                let (leads, holds) = (leaders.leads[drive as usize], leaders.holds[drive as usize]);
                (leaders.in_set(column, drive), leads * UNIT / holds)
            };
            let first = (0..holders.len()).min_by_key(|copy| load(holders[*copy])).expect("a column has a holder");
            leaders.count(column, holders[first], 1);
            leaders.first.push(first);
        }
        leaders
    }

    fn in_set(&self, column: usize, drive: u32) -> i64 {
        self.of_set.get(&(column / self.width, drive)).copied().unwrap_or(0)
    }

    fn count(&mut self, column: usize, drive: u32, sign: i64) {
        self.leads[drive as usize] += sign;
        *self.of_set.entry((column / self.width, drive)).or_default() += sign;
    }

    fn leader(&self, column: usize) -> u32 {
        self.columns[column][self.first[column]]
    }

    fn put_first(&mut self, column: usize, drive: u32) {
        self.count(column, self.leader(column), -1);
        self.count(column, drive, 1);
        self.first[column] = self.columns[column].iter().position(|holder| *holder == drive).expect("it has a copy");
    }

    /// Two drives that both have copies of two columns exchange who leads which, as long as sets have more different leaders
    /// by it. Each leads as many as before.
    fn part(&mut self) {
        for _ in 0..ROUNDS {
            let mut is_better = false;
            for column in 0..self.columns.len() {
                let columns = self.columns;
                for &other in &columns[column] {
                    let leader = self.leader(column);
                    let gain = self.in_set(column, leader) - self.in_set(column, other) - 1;
                    if other == leader || gain < 0 {
                        continue;
                    }
                    let back = self.held[leader as usize].iter().copied().find(|back| {
                        *back / self.width != column / self.width
                            && self.leader(*back) == other
                            && gain + self.in_set(*back, other) - self.in_set(*back, leader) > 1
                    });
                    if let Some(back) = back {
                        self.put_first(column, other);
                        self.put_first(back, leader);
                        is_better = true;
                    }
                }
            }
            if !is_better {
                return;
            }
        }
    }

    /// Hands columns on, over as many drives as it takes, until nobody leads more than its part rounded up or less than its
    /// part rounded down. That is possible, since each copy could lead a part of its column.
    fn even(&mut self) {
        while let Some(drive) = (0..self.leads.len()).find(|drive| self.leads[*drive] > self.most(*drive)) {
            let has_room = |leaders: &Self, other: usize| leaders.leads[other] < leaders.most(other);
            assert!(self.hand_on(drive, true, has_room), "the parts of all add up to the columns");
        }
        while let Some(drive) = (0..self.leads.len()).find(|drive| self.leads[*drive] < self.least(*drive)) {
            let has_more = |leaders: &Self, other: usize| leaders.leads[other] > leaders.least(other);
            assert!(self.hand_on(drive, false, has_more), "the parts of all add up to the columns");
        }
    }

    fn most(&self, drive: usize) -> i64 {
        (self.holds[drive] + self.copies - 1) / self.copies
    }

    fn least(&self, drive: usize) -> i64 {
        self.holds[drive] / self.copies
    }

    /// By the shortest way, from a drive or to it, between it and one that will do. Says whether there is one.
    fn hand_on(&mut self, drive: usize, gives: bool, will_do: impl Fn(&Self, usize) -> bool) -> bool {
        let mut come_by: Vec<Option<(usize, usize)>> = vec![None; self.leads.len()];
        let mut queue = VecDeque::from([drive]);
        while let Some(at) = queue.pop_front() {
            for &column in &self.held[at] {
                let leader = self.leader(column) as usize;
                if gives != (leader == at) {
                    continue;
                }
                for other in self.columns[column].iter().map(|other| *other as usize) {
                    let is_step = if gives { other != at } else { other == leader };
                    if is_step && other != drive && come_by[other].is_none() {
                        come_by[other] = Some((column, at));
                        queue.push_back(other);
                        if will_do(self, other) {
                            self.change_leaders(&come_by, other, gives);
                            return true;
                        }
                    }
                }
            }
        }
        false
    }

    fn change_leaders(&mut self, come_by: &[Option<(usize, usize)>], mut to: usize, gives: bool) {
        while let Some((column, from)) = come_by[to] {
            self.put_first(column, if gives { to } else { from } as u32);
            to = from;
        }
    }
}
