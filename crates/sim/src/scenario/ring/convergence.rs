//! What a ring comes to once nothing goes wrong any more, or only that two of its servers can't reach each other.

use super::Ring;
use super::council::importing::ImportStage;
use super::dark::machine_of;
use super::importing::IN_A_HURRY;
use super::node::Node;
use crate::device::{Faults, Rate, SimDisk};
use crate::executor::Sleep;
use crate::scenario::life::on_machine;
use crate::world::SimWorld;
use std::collections::BTreeMap;
use std::time::Duration;
use tepal_model::buffer::join;
use tepal_model::{BLOCK, EXTENT, MapId, MigrationStage, VolumeId};

/// So many rows of a column are looked through for one in a range.
const MOST_ROWS: u64 = 4096;
/// How long the volume may take to come right, once nothing goes wrong.
const PATIENCE: Duration = Duration::from_secs(20);

impl Ring {
    pub(super) fn nothing_goes_wrong(&mut self) {
        self.heal();
        self.council.change_migration(MigrationStage::Running);
        self.council.change_rate(None);
        self.start_all();
        self.council.change_import(ImportStage::Running);
    }

    pub(super) fn all_nodes(&self) -> Vec<Node> {
        self.nodes.iter().flatten().map(|(node, _)| node.clone()).collect()
    }

    /// Both take part in what is agreed, so nobody is declared down; and whoever leads can't wait for the other.
    pub(super) async fn two_lose_each_other(&mut self) {
        self.nothing_goes_wrong();
        // What only one of them has can't be copied by the other.
        self.all_have_all().await;
        let (council, nodes) = (self.council.clone(), self.all_nodes());
        // Neighbours have copies of the same.
        let (count, one) = (self.plan.servers, self.random.index(self.plan.servers));
        let (other, third) = ((one + 1) % count, (one + 2 + self.random.index(count - 2)) % count);
        let (one, other) = (self.machines[one].id, self.machines[other].id);
        self.core.note(one.0.into(), || format!("{one} and {other} can't reach each other"));
        self.network.cut((one, other));
        self.network.cut((other, one));
        // What is to be on one server only, nobody else takes over for it; nor does anybody hand over what only one has.
        if !self.is_any_striped() && !self.plan.is_by_gateways && self.random.one_in(2) {
            self.any_migration_begins(2);
            self.council.change_rate(None);
        }
        let workload = self.workload();
        workload.start(&nodes[third].world, &nodes[third].under_test(), self.random.between(20..60));
        self.comes("a third server serves all", || workload.is_done()).await;
        self.comes("what was to go elsewhere has gone", || !council.migrates()).await;
        // Clients of the two have begun something too by then, and marks have been taken back.
        Sleep::until(&self.core, self.core.now() + Duration::from_secs(5)).await;
        let (view, imports) = (self.council.now().view, self.council.import().is_some());
        Sleep::until(&self.core, self.core.now() + Duration::from_secs(1)).await;
        let now = self.council.now();
        // An import may end by then.
        if now.view != view && !imports {
            self.core.fail(format!("what is agreed changes while nothing does: from view {view} to {now:?}"));
        }
    }

    /// All servers run, and nothing moves.
    pub(super) async fn all_have_all(&self) {
        let (council, nodes) = (self.council.clone(), self.all_nodes());
        // One that was just started is still taken for what it was before.
        let are_open = || nodes[..self.plan.servers].iter().all(|node| node.drive().is_some());
        let have_all = || nodes.iter().map(regions_left).sum::<u64>() == 0;
        let all_are_up = || council.all_are_up() && !council.moves_anything() && !council.migrates();
        self.comes("all drives have all", || are_open() && all_are_up() && have_all()).await;
    }

    pub(super) async fn comes(&self, what: &str, has_come: impl Fn() -> bool) {
        let begun = self.core.now();
        while !has_come() {
            if self.core.now() > begun + PATIENCE {
                return self.core.fail(format!("it's never so that {what}: {:?}", self.council.now()));
            }
            Sleep::until(&self.core, self.core.now() + Duration::from_millis(5)).await;
        }
    }

    pub(super) async fn come_right(&mut self) {
        self.nothing_goes_wrong();
        self.old_place.hurry(IN_A_HURRY);
        self.nodes.iter().flatten().for_each(|(_, workload)| workload.stop());
        self.clients.iter().for_each(|clients| clients.workload.stop());
        self.all_is_right().await;
        let nodes = self.all_nodes();
        self.volume_is_whole_again(&nodes).await;
        if self.plan.has_codes {
            // A drive that goes down now is to miss nothing: of what it missed, no other drive's damage could be mended.
            Sleep::until(&self.core, self.core.now() + Duration::from_secs(10)).await;
        }
        // Of a stripe, nobody else has what decays.
        if self.plan.has_faults && !self.is_any_striped() && !self.plan.is_by_gateways && self.random.one_in(2) {
            let one = self.random.index(self.plan.servers);
            self.decay(&nodes[one]);
        }
        for node in &nodes {
            let (workload, volume) = (self.workload(), node.under_test());
            on_machine(&self.core, &node.world, "read-back", async move {
                workload.read_back(&*volume).await;
            })
            .await;
        }
        if self.has_decayed {
            self.scrubs_mend().await;
        }
        self.copies_are_equal(&self.all_nodes()).await;
        if self.plan.is_by_gateways {
            self.scrubs_find_nothing().await;
        }
        if self.plan.has_codes {
            self.code_is_that_of_the_data().await;
            self.the_rest_has_all().await;
        }
        self.nothing_lies_where_it_has_no_place(&self.all_nodes()).await;
        self.clones_are_right(&self.all_nodes()).await;
        self.snapshots_are_right(&self.all_nodes()).await;
    }

    /// Scrubs find no code that isn't that of its data.
    async fn code_is_that_of_the_data(&self) {
        for node in self.all_nodes() {
            let Some(volume) = node.volume_of(self.plan.spec.id) else { continue };
            let scrub = on_machine(&self.core, &node.world, "scrub", async move { volume.scrub(|_| {}).await });
            match scrub.await {
                Ok(found) if found.unequal_extents == 0 && found.lost.is_empty() => {}
                found => self.core.fail(format!("a scrub of {} ends with {found:?}", node.id())),
            }
        }
    }

    /// Returned drives have been given all that they lacked, and what a scrub has found once it doesn't find again.
    async fn scrubs_find_nothing(&self) {
        for is_first in [true, false] {
            for node in self.all_nodes() {
                let volume = node.volume.clone();
                let scrub = on_machine(&self.core, &node.world, "scrub", async move { volume.scrub(|_| {}).await });
                match scrub.await {
                    Ok(found) if found.lost.is_empty() && (is_first || found.repaired == 0) => {}
                    found => self.core.fail(format!("a scrub of {} ends with {found:?}", node.id())),
                }
            }
        }
    }

    /// As many servers go down as every map has fragments more than it needs, and the others can still be read.
    async fn the_rest_has_all(&mut self) {
        self.machines.iter().filter_map(|machine| machine.disk()).for_each(SimDisk::heal);
        self.all_have_all().await;
        self.all_say_so().await;
        let code = self.council.may_be_lost();
        // Those who agree have to be a majority.
        let mut may_go: Vec<usize> = (0..self.plan.servers).collect();
        let (mut gone, mut voters) = (Vec::new(), self.plan.voters);
        while gone.len() < code && !may_go.is_empty() {
            let at = may_go.swap_remove(self.random.index(may_go.len()));
            if at < self.plan.voters {
                if (voters - 1) * 2 <= self.plan.voters {
                    continue;
                }
                voters -= 1;
            }
            self.stop(at);
            gone.push(at);
        }
        self.core.note(gone.len() as u64, || format!("without {gone:?}"));
        let nodes: Vec<Node> = self.nodes.iter().flatten().map(|(node, _)| node.clone()).collect();
        let (one, workload) = (self.random.index(nodes.len()), self.workload());
        let (node, volume) = (nodes[one].clone(), nodes[one].under_test());
        on_machine(&self.core, &node.world, "read-back", async move {
            workload.read_back(&*volume).await;
        })
        .await;
        gone.into_iter().for_each(|at| self.start(at));
        self.nodes.iter().flatten().for_each(|(_, workload)| workload.stop());
        self.all_is_right().await;
    }

    async fn all_is_right(&self) {
        let begun = self.core.now();
        loop {
            let left: u64 = self.all_nodes().iter().map(regions_left).sum();
            let are_done = self.nodes.iter().flatten().all(|(_, workload)| workload.is_done())
                && self.clients.iter().all(|clients| clients.workload.is_done());
            let is_at_rest = !self.council.moves_anything() && !self.council.migrates() && !self.turns.are_taken();
            let is_imported = self.council.import().is_none();
            if self.council.all_are_up() && is_at_rest && is_imported && left == 0 && are_done {
                break;
            }
            if self.core.now() > begun + PATIENCE {
                let agreed = self.council.now();
                return self.core.fail(format!("the ring doesn't come right: {left} regions are left, {agreed:?}"));
            }
            Sleep::until(&self.core, self.core.now() + Duration::from_millis(20)).await;
        }
        // What clients that went away had begun comes to its end. Stripes go in place, and marks are taken back.
        let rest = Duration::from_secs(if self.plan.has_codes { 10 } else { 3 });
        Sleep::until(&self.core, self.core.now() + rest).await;
    }

    /// Others have right copies of what one drive has wrong: a scrub by every server calls nothing lost, and leaves nothing damaged
    /// that it doesn't tell of; also when one has just been started again, and isn't heard yet. Once all is right nothing is left.
    async fn scrubs_mend(&mut self) {
        self.machines.iter().filter_map(|machine| machine.disk()).for_each(SimDisk::heal);
        let mut mended = vec![false; self.machines.len()];
        if self.random.one_in(2) {
            let at = self.random.index(self.plan.servers);
            self.stop(at);
            self.start(at);
            if let Some((_, workload)) = &self.nodes[at] {
                workload.stop();
            }
            Sleep::until(&self.core, self.core.now() + Duration::from_micros(self.random.below(60_000))).await;
            self.all_scrub("early", &mut mended).await;
        }
        self.all_is_right().await;
        for when in ["first", "second"] {
            self.all_scrub(when, &mut mended).await;
            if mended.contains(&false) {
                self.core.fail(format!("the {when} scrubs leave damage, though all is right: {mended:?}"));
            }
        }
        self.nothing_is_damaged().await;
    }

    /// As drives find it by themselves, whatever scrubs of volumes told.
    async fn nothing_is_damaged(&self) {
        for node in self.all_nodes() {
            let (id, Some(drive)) = (node.id(), node.drive()) else { continue };
            let scrub = on_machine(&self.core, &node.world, "drive's scrub", async move {
                drive.scrub(None, |_| std::future::ready(())).await
            });
            match scrub.await {
                Ok(found) if found.damaged.is_empty() => {}
                found => self.core.fail(format!("scrubs have left damage on the drive of {id}: {found:?}")),
            }
        }
    }

    /// `mended`: who has left nothing damaged on its drive, as it says.
    async fn all_scrub(&self, when: &'static str, mended: &mut [bool]) {
        for (at, node) in self.all_nodes().into_iter().enumerate() {
            let (is_here, had_mended) = (node.drive().is_some() || node.disk().is_none(), mended[at]);
            mended[at] = is_here;
            for of in self.one_of_each_map().into_values() {
                mended[at] &= self.scrub(&node, of, (when, had_mended)).await;
            }
        }
    }

    /// Whether nothing damaged is left of the map of a volume.
    async fn scrub(&self, node: &Node, of: VolumeId, (when, had_mended): (&'static str, bool)) -> bool {
        let id = node.id();
        let Some(volume) = node.volume_of(of) else { return false }; // it was started just now
        let scrub = on_machine(&self.core, &node.world, "scrub", async move { volume.scrub(|_| {}).await });
        let found = match scrub.await {
            Ok(found) => found,
            Err(error) => {
                self.core.fail(format!("{id} can't scrub: {error}"));
                return false;
            }
        };
        self.core.note(id.0.into(), || format!("the {when} scrub of {id}, volume {}: {found:?}", of.0));
        if !found.lost.is_empty() || (had_mended && found.repaired > 0) {
            self.core.fail(format!("the {when} scrub of {id} ends with {found:?}; it had mended all: {had_mended}"));
        }
        found.unrepaired.is_empty()
    }

    /// Whether there's only one copy of anything.
    fn is_any_striped(&self) -> bool {
        self.council.may_be_lost() == 0
    }

    /// All copies are equal now: whatever becomes of one drive's, others have what is read. Its reads go wrong anywhere.
    fn decay(&mut self, node: &Node) {
        let Some((drive, disk)) = node.drive().zip(node.disk()) else {
            return self.core.fail(format!("the drive of {} is up and not here", node.id()));
        };
        self.has_decayed = true;
        let geometry = drive.geometry();
        let within = geometry.slots_start..geometry.slots_start + u64::from(geometry.slots) * EXTENT;
        let mut rate = || Rate::at_most(self.random.below(4) as u32, *self.random.pick(&[2_000, 20_000, 200_000]));
        let (read_error, misdirected_read) = (rate(), rate());
        disk.set_faults(Faults { read_error, misdirected_read, within: within.clone(), ..Faults::default() });
        for _ in 0..self.random.below(6) {
            disk.rot_somewhere(within.clone());
        }
    }

    /// One volume of each map.
    fn one_of_each_map(&self) -> BTreeMap<MapId, VolumeId> {
        self.council.all_maps().into_iter().collect()
    }

    /// What was moved is given back.
    async fn nothing_lies_where_it_has_no_place(&self, nodes: &[Node]) {
        for (map, id) in self.one_of_each_map() {
            self.nothing_of_the_map_does(nodes, (map, id)).await;
        }
        let maps = self.one_of_each_map();
        let drives: Vec<_> = nodes.iter().filter_map(Node::drive).collect();
        let is_known =
            |drive: &tepal_drive::Drive<SimWorld>| drive.allocated().iter().all(|(map, _)| maps.contains_key(map));
        self.comes("no map is left that volumes have left", || drives.iter().all(is_known)).await;
    }

    async fn nothing_of_the_map_does(&self, nodes: &[Node], (map, id): (MapId, VolumeId)) {
        let Some(volume) = nodes[0].volume_of(id) else {
            return self.core.fail(format!("volume {} isn't known", id.0));
        };
        let now = self.council.now();
        let (table, laid, ranges) = (now.places[&map].clone(), now.laid[&map].clone(), self.council.ranges_of(id));
        let extent = u64::from(laid.layout.extent);
        // The first block of each column, on all drives that have it: known where the volume has any of it in this map.
        let of_map = |column: usize| {
            let mut extents = (0..MOST_ROWS).map(|row| (row, laid.geometry.extent_at(column, row) * extent));
            extents.find(|(_, at)| ranges.at(*at) == map)
        };
        let first = |column| of_map(column).map(|(row, at)| volume.copies_at(at)[0].1 - row * extent / BLOCK);
        let firsts: Vec<Option<u64>> = (0..table.columns.len()).map(first).collect();
        let drives: Vec<_> = nodes.iter().filter_map(Node::drive).collect();
        let area = match firsts.get(..2) {
            Some(&[Some(first), Some(second)]) => second - first,
            Some(_) => return,
            None => u64::MAX,
        };
        let has_none = |at: usize, first: u64, of: &tepal_drive::Drive<SimWorld>| {
            table.columns[at].has(of.id()) || of.extents_of(map, first, area, true).is_empty()
        };
        let known: Vec<(usize, u64)> =
            firsts.iter().enumerate().filter_map(|(at, first)| Some((at, (*first)?))).collect();
        let all = || known.iter().all(|&(at, first)| drives.iter().all(|drive| has_none(at, first, drive)));
        self.comes("what was moved is given back", all).await;
    }

    /// And all of them can be read.
    async fn copies_are_equal(&self, nodes: &[Node]) {
        for (map, id) in self.one_of_each_map() {
            self.copies_of_the_map_are(nodes, (map, id)).await;
        }
    }

    async fn copies_of_the_map_are(&self, nodes: &[Node], (map, id): (MapId, VolumeId)) {
        let Some(volume) = nodes[0].volume_of(id) else {
            return self.core.fail(format!("volume {} isn't known", id.0));
        };
        let (laid, ranges) = (self.council.now().laid[&map].clone(), self.council.ranges_of(id));
        if !laid.layout.fragments().are_copies() || laid.layout.quorum().is_some() {
            return;
        }
        let extent = u64::from(laid.layout.extent);
        let epochs = self.council.epochs(map);
        let extents = 0..self.plan.spec.size.div_ceil(extent); // it was never longer
        let extents = extents.filter(|number| ranges.at(number * extent) == map);
        for (number, seen) in extents.flat_map(|number| epochs.history.lines().iter().map(move |seen| (number, seen))) {
            let (mut sums, mut all_data) = (Vec::new(), Vec::new());
            for (id, first) in volume.copies_at(number * extent) {
                let at = machine_of(id);
                let Some(drive) = nodes[at].drive() else {
                    return self.core.fail(format!("drive {at} is up and not here"));
                };
                let zeros = tepal_codec::checksum::crc(&[0; BLOCK as usize]);
                let of_copy = drive.crcs(map, first, extent / BLOCK, seen).await;
                // Where much is hidden from some readers only, drives may write zeros.
                sums.push(of_copy.map(|sums| sums.into_iter().map(|sum| sum.unwrap_or(zeros)).collect::<Vec<_>>()));
                let data = drive.read(map, first, extent / BLOCK, seen).await;
                all_data.extend(data.ok().map(|data| join(&data)));
            }
            if sums.iter().any(|sum| *sum != sums[0]) {
                self.core.fail(format!("copies of extent {number} differ, as {seen} sees them: {sums:x?}"));
            }
            if all_data.iter().any(|data| *data != all_data[0]) {
                self.core.fail(format!("the data of copies of extent {number} differs, and nobody notices"));
            }
            if all_data.len() < sums.len() {
                self.core.fail(format!("a copy of extent {number} can't be read"));
            }
        }
    }
}

/// Whose copies aren't equal yet, of the columns that this server leads.
fn regions_left(node: &Node) -> u64 {
    let recovery = node.volume.recovery();
    recovery.unresolved_regions + recovery.stale_regions
}
