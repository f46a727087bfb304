//! All servers go down, some before the others, and only some of them come back: enough to agree, and of each column a copy that was
//! there to
//! the end. They serve everything, however long the others stay away.

use super::Ring;
use crate::executor::Sleep;
use std::collections::BTreeSet;
use std::time::Duration;
use tepal_model::DriveId;

/// Sets of servers that are tried for one that can serve everything.
const ATTEMPTS: usize = 32;

impl Ring {
    pub(super) async fn all_go_dark(&mut self) {
        self.nothing_goes_wrong();
        self.all_have_all().await;
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
        let places = self.council.now().places;
        for _ in 0..ATTEMPTS {
            let some: BTreeSet<usize> = (0..self.plan.servers).filter(|_| self.random.one_in(2)).collect();
            let voters = some.iter().filter(|&&at| at < self.plan.voters).count();
            let has_copy = |drive: DriveId| {
                let at = drive.0 as usize - 1;
                some.contains(&at) && to_the_end.contains(&at)
            };
            let mut columns = places.values().flat_map(|table| &table.columns);
            let can_agree = voters > self.plan.voters / 2 || self.plan.voters == 0;
            if can_agree && columns.all(|placed| placed.drives().any(has_copy)) {
                return some;
            }
        }
        (0..self.plan.servers).collect()
    }
}
