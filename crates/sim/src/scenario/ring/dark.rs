//! All servers go down, some before the others, and only some of them come back: enough to agree, and of each column a copy that was
//! there to the end. The returned servers serve everything, however long the others stay away. Of the others, some return with an empty
//! drive, and some late.

use super::node::{Machine, Node};
use super::{Ring, SERVERS};
use crate::device::SimDisk;
use crate::executor::Sleep;
use crate::world::SimWorld;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tepal_drive::{Drive, Mark, MarkKind};
use tepal_engine::{Placed, Places};
use tepal_model::{DriveId, MapId};

/// Sets of servers that are tried for one that can serve everything.
const ATTEMPTS: usize = 32;

impl Ring {
    pub(super) async fn all_go_dark(&mut self) {
        self.nothing_goes_wrong();
        self.all_have_all().await;
        self.all_say_so().await;
        let to_the_end = self.go_down().await;
        Sleep::until(&self.core, self.core.now() + Duration::from_micros(self.random.below(100_000))).await;
        let back = self.some_who_can_serve(&to_the_end);
        let never: Vec<usize> = (0..self.plan.servers).filter(|at| !back.contains(at)).collect();
        self.core.note(never.len() as u64, || format!("all went down, and {never:?} don't return"));
        let mut left: Vec<usize> = back.iter().copied().collect();
        while !left.is_empty() {
            Sleep::until(&self.core, self.core.now() + Duration::from_micros(self.random.below(60_000))).await;
            let at = left.swap_remove(self.random.index(left.len()));
            self.start(at);
        }
        for &at in &back {
            let (node, workload) = (self.nodes[at].as_ref().expect("it was started").0.clone(), self.workload());
            workload.start(&node.world, &node.under_test(), self.random.between(20..60));
            self.comes("whoever is back serves all", || workload.is_done()).await;
            self.nodes[at] = Some((node, workload));
        }
        let gateways: Vec<usize> = (self.plan.servers..self.machines.len()).collect();
        let are_done = || {
            let of_gateways = gateways.iter().filter_map(|&at| self.nodes[at].as_ref());
            of_gateways.into_iter().all(|(_, workload)| workload.is_done())
        };
        self.comes("what gateways had asked before is done", are_done).await;
        for at in never {
            if self.random.one_in(2) {
                self.returns_with_an_empty_drive(at).await;
            }
        }
    }

    /// Waits until it's on stable media that no drive misses anything. A drive that goes down just before would say that it misses what it
    /// has, and be of no use alone.
    pub(super) async fn all_say_so(&self) {
        let nodes = self.all_nodes();
        let drives = || nodes.iter().filter_map(Node::drive);
        let misses = |drive: &Drive<SimWorld>, mark: &Mark| mark.kind == MarkKind::Stale(drive.id());
        let misses_any = |drive: Drive<SimWorld>| drive.marks().iter().any(|mark| misses(&drive, mark));
        self.comes("no drive says that it misses anything", || !drives().any(misses_any)).await;
        for drive in drives() {
            let _ = drive.flush().await; // a drive that is lost meanwhile says nothing any more
        }
    }

    /// The new drive takes all places of the old one, whose bytes nobody has any more.
    async fn returns_with_an_empty_drive(&mut self, at: usize) {
        let (old, was) = self.machines[at].drive.clone().expect("servers have drives");
        let (new, disk) = (after(old), SimDisk::new(&self.core, SERVERS[at], was.size()));
        self.core.note(new.0, || format!("{} returns with drive {new} in place of {old}", SERVERS[at]));
        self.machines[at] =
            Rc::new(Machine { id: self.machines[at].id, name: SERVERS[at], drive: Some((new, disk.clone())) });
        self.format(new, &disk).await;
        self.council.add_drive(new, self.machines[at].id);
        self.start(at);
        let council = self.council.clone();
        self.comes("the empty drive has all places of the old one", || council.replace(old, new)).await;
    }

    /// Some servers first; the others, which are answered, take what is written meanwhile.
    async fn go_down(&mut self) -> BTreeSet<usize> {
        let mut first: BTreeSet<usize> = BTreeSet::new();
        if self.random.one_in(2) {
            first
                .extend((0..self.random.below(self.plan.servers as u64)).map(|_| self.random.index(self.plan.servers)));
        }
        for &at in &first {
            self.stop(at);
        }
        for _ in 0..self.random.below(4) {
            self.keep_busy();
            Sleep::until(&self.core, self.core.now() + Duration::from_micros(self.random.below(80_000))).await;
        }
        let to_the_end: BTreeSet<usize> = (0..self.plan.servers).filter(|at| !first.contains(at)).collect();
        to_the_end.iter().for_each(|&at| self.stop(at));
        to_the_end
    }

    /// A majority of the voters and, of each column, a copy that was there to the end: if there's no smaller set by chance, all.
    fn some_who_can_serve(&mut self, to_the_end: &BTreeSet<usize>) -> BTreeSet<usize> {
        let now = self.council.now();
        let needed = |map: &MapId| now.laid.get(map).map_or(1, |laid| usize::from(laid.layout.min_copies));
        for _ in 0..ATTEMPTS {
            let some: BTreeSet<usize> = (0..self.plan.servers).filter(|_| self.random.one_in(2)).collect();
            let voters = some.iter().filter(|&&at| at < self.plan.voters).count();
            let has_copy = |drive: DriveId| {
                let at = machine_of(drive);
                some.contains(&at) && to_the_end.contains(&at)
            };
            let of_table = |(map, table): (_, &Arc<Places>)| {
                let has_enough =
                    |placed: &Placed| placed.drives().filter(|&drive| has_copy(drive)).count() >= needed(map);
                table.columns.iter().all(has_enough)
            };
            let can_agree = voters > self.plan.voters / 2 || self.plan.voters == 0;
            if can_agree && now.places.iter().all(of_table) {
                return some;
            }
        }
        (0..self.plan.servers).collect()
    }
}

/// Of drives, each server has one, or one after another.
pub fn machine_of(drive: DriveId) -> usize {
    (drive.0 as usize - 1) % SERVERS.len()
}

/// The drive that the same server has after it.
fn after(drive: DriveId) -> DriveId {
    DriveId(drive.0 + SERVERS.len() as u64)
}
