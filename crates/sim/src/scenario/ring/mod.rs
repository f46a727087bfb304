//! Servers in a ring, each with a drive and a gateway, and a volume with copies on several of them. Servers are killed, lose
//! power, are cut off from what is agreed or from each other, also in one direction; or two of them only from each other, for long.
//!
//! What must hold: nothing acknowledged is lost and no read is wrong, through whichever gateway; no request fails; and once
//! nothing goes wrong any more, all drives come up, and their copies are equal. While two can't reach each other, a third serves all of
//! it, and what is agreed comes to rest.

mod council;
mod network;
mod node;

use super::life::on_machine;
use crate::checker::{Checker, Rules};
use crate::device::SimDisk;
use crate::executor::{Core, Executor, Failure, SCENARIO, Sleep};
use crate::random::Stream;
use crate::workload::{Mix, Workload};
use crate::world::SimWorld;
use council::Council;
use network::Network;
use node::{Machine, Node};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;
use tepal_drive::geometry::MIN_LOG;
use tepal_drive::{NewDrive, format};
use tepal_engine::VolumeSpec;
use tepal_model::layout::Protection;
use tepal_model::{BLOCK, ClusterId, DriveId, IoError, Layout, MapId, ServerId, VolumeId};

const NAMES: [&str; 5] = ["d0", "d1", "d2", "d3", "d4"];
const SERVERS: [&str; 5] = ["s0", "s1", "s2", "s3", "s4"];
/// How long the volume may take to come right, once nothing goes wrong.
const PATIENCE: Duration = Duration::from_secs(20);

pub fn run(executor: &Executor, random: Stream) -> Result<u64, Failure> {
    let core = executor.core().clone();
    executor.run(async move { Ring::new(&core, random).run().await })
}

struct Ring {
    core: Rc<Core>,
    random: Stream,
    machines: Vec<Rc<Machine>>,
    /// Those that run.
    nodes: Vec<Option<(Node, Workload)>>,
    spec: VolumeSpec,
    council: Council,
    network: Network,
    checker: Rc<RefCell<Checker>>,
    mix: Mix,
}

impl Ring {
    fn new(core: &Rc<Core>, mut random: Stream) -> Self {
        let servers = random.between(2..6) as usize;
        let copies = if servers > 2 && random.one_in(4) { 3 } else { 2 };
        let machine = |at: usize| {
            let disk = SimDisk::new(core, NAMES[at], random.between(8..11) << 20);
            Rc::new(Machine { id: ServerId(at as u32 + 1), drive: DriveId(at as u64 + 1), disk })
        };
        let machines: Vec<Rc<Machine>> = (0..servers).map(machine).collect();
        let mut layout = Layout::new(Protection::Mirror { copies });
        layout.extent = *random.pick(&[4 << 10, 64 << 10, 1 << 20]);
        let size = random.between(1..4) << 20;
        let spec = VolumeSpec {
            id: VolumeId(1),
            name: "v0".to_owned(),
            size,
            layout,
            map: MapId(9),
            drives: machines.iter().map(|machine| machine.drive).collect(),
            made_in: 1,
        };
        let council = Council::new(spec.clone(), |drive| ServerId(drive.0 as u32));
        let mut mix = Mix::draw(&mut random, size / BLOCK * BLOCK);
        mix.clients = mix.clients.min(6);
        let rules = Rules { durability: spec.layout.durability, reads_settle: false, late: true };
        let checker = Rc::new(RefCell::new(Checker::new(random.draw(), rules)));
        let nodes = machines.iter().map(|_| None).collect();
        let (core, network) = (core.clone(), Network::new());
        Ring { core, random, machines, nodes, spec, council, network, checker, mix }
    }

    async fn run(mut self) -> u64 {
        for machine in &self.machines {
            let new = NewDrive {
                cluster: ClusterId(1),
                drive: machine.drive,
                pool: "default".to_owned(),
                log_length: Some(MIN_LOG),
            };
            if let Err(error) = format(&machine.disk.open(), None, new).await {
                self.core.fail(format!("formatting a drive failed: {error}"));
            }
        }
        self.core.spawn(SCENARIO, "council", Box::pin(self.council.clone().serve(self.core.clone())));
        let carried = self.network.clone().carry(self.core.clone(), self.council.clone());
        self.core.spawn(SCENARIO, "network", Box::pin(carried));
        (0..self.machines.len()).for_each(|at| self.start(at));
        for _ in 0..self.random.between(2..14) {
            self.wait().await;
            self.something_happens();
        }
        if self.machines.len() > 2 && self.random.one_in(2) {
            self.two_lose_each_other().await;
        }
        self.come_right().await;
        self.checker.borrow().count() as u64
    }

    async fn wait(&mut self) {
        let longest = *self.random.pick(&[200, 3_000, 60_000]);
        let pause = Duration::from_micros(self.random.below(longest));
        Sleep::until(&self.core, self.core.now() + pause).await;
    }

    fn start(&mut self, at: usize) {
        if self.nodes[at].is_some() {
            return;
        }
        let machine = self.machines[at].clone();
        self.council.lives(machine.id);
        let world = SimWorld::boot(&self.core, SERVERS[at]);
        let node = Node::start(world, machine, &self.council, &self.network, self.spec.clone());
        let workload = self.workload();
        workload.start(&node.world, &node.under_test(), self.random.between(5..120));
        self.nodes[at] = Some((node, workload));
    }

    fn workload(&self) -> Workload {
        Workload::new(&self.core, self.checker.clone(), self.mix.clone(), Rc::new(|_: &IoError, _, _, _| false))
    }

    fn stop(&mut self, at: usize) {
        let Some((node, _)) = self.nodes[at].take() else { return };
        let power = self.random.one_in(3);
        self.core.note(at as u64, || format!("{} dies, power cut: {power}", node.id()));
        node.world.kill();
        self.network.died(node.id());
        self.council.died(node.id(), self.core.now());
        match power {
            true => self.machines[at].disk.cut_power(),
            false => self.machines[at].disk.process_killed(),
        }
    }

    fn something_happens(&mut self) {
        let at = self.random.index(self.machines.len());
        let id = self.machines[at].id;
        match self.random.below(8) {
            0..=2 => self.stop(at),
            3 | 4 => self.start(at),
            5 => self.council.cut_off(id, self.core.now()),
            6 => {
                let other = self.machines[self.random.index(self.machines.len())].id;
                self.core.note(id.0.into(), || format!("{id} is cut off from {other}"));
                self.network.cut((id, other));
                if self.random.one_in(2) {
                    self.network.cut((other, id));
                }
            }
            _ => {
                self.network.heal();
                self.machines.iter().for_each(|machine| self.council.join_again(machine.id));
            }
        }
    }

    fn nothing_goes_wrong(&mut self) {
        self.network.heal();
        self.machines.iter().for_each(|machine| self.council.join_again(machine.id));
        (0..self.machines.len()).for_each(|at| self.start(at));
    }

    /// Both take part in what is agreed, so nobody is declared down; and whoever leads can't wait for the other.
    async fn two_lose_each_other(&mut self) {
        self.nothing_goes_wrong();
        let (council, machines) = (self.council.clone(), self.machines.clone());
        let nodes: Vec<Node> = self.nodes.iter().flatten().map(|(node, _)| node.clone()).collect();
        // One that was just started is still taken for what it was before.
        let is_open = |(node, machine): (&Node, &Rc<Machine>)| node.engine.drive(machine.drive).is_some();
        let are_open = || nodes.iter().zip(&machines).all(is_open);
        // What only one of them has can't be copied by the other.
        let have_all = || nodes.iter().map(regions_left).sum::<u64>() == 0;
        self.comes("all drives have all", || are_open() && council.all_are_up() && have_all()).await;
        // Neighbours have copies of the same.
        let (count, one) = (self.machines.len(), self.random.index(self.machines.len()));
        let (other, third) = ((one + 1) % count, (one + 2 + self.random.index(count - 2)) % count);
        let (one, other) = (self.machines[one].id, self.machines[other].id);
        self.core.note(one.0.into(), || format!("{one} and {other} can't reach each other"));
        self.network.cut((one, other));
        self.network.cut((other, one));
        let Some((node, _)) = self.nodes[third].clone() else { return };
        let workload = self.workload();
        workload.start(&node.world, &node.under_test(), self.random.between(20..60));
        self.comes("a third server serves all", || workload.is_done()).await;
        // Clients of the two have begun something too by then.
        Sleep::until(&self.core, self.core.now() + Duration::from_millis(500)).await;
        let view = self.council.now().view;
        Sleep::until(&self.core, self.core.now() + Duration::from_secs(1)).await;
        let now = self.council.now();
        if now.view != view {
            self.core.fail(format!("what is agreed changes while nothing does: from view {view} to {now:?}"));
        }
    }

    async fn comes(&self, what: &str, has_come: impl Fn() -> bool) {
        let begun = self.core.now();
        while !has_come() {
            if self.core.now() > begun + PATIENCE {
                return self.core.fail(format!("it's never so that {what}: {:?}", self.council.now()));
            }
            Sleep::until(&self.core, self.core.now() + Duration::from_millis(5)).await;
        }
    }

    async fn come_right(&mut self) {
        self.nothing_goes_wrong();
        let begun = self.core.now();
        let (nodes, workloads): (Vec<Node>, Vec<Workload>) = self.nodes.iter().flatten().cloned().unzip();
        workloads.iter().for_each(Workload::stop);
        loop {
            let left: u64 = nodes.iter().map(regions_left).sum();
            if self.council.all_are_up() && left == 0 && workloads.iter().all(Workload::is_done) {
                break;
            }
            if self.core.now() > begun + PATIENCE {
                let agreed = self.council.now();
                return self.core.fail(format!("the ring doesn't come right: {left} regions are left, {agreed:?}"));
            }
            Sleep::until(&self.core, self.core.now() + Duration::from_millis(20)).await;
        }
        // What clients that went away had begun comes to its end.
        Sleep::until(&self.core, self.core.now() + Duration::from_secs(3)).await;
        for node in &nodes {
            let (workload, volume) = (self.workload(), node.under_test());
            on_machine(&self.core, &node.world, "read-back", async move {
                workload.read_back(&*volume).await;
            })
            .await;
        }
        self.copies_are_equal(&nodes).await;
    }

    async fn copies_are_equal(&self, nodes: &[Node]) {
        let extent = u64::from(self.spec.layout.extent);
        for number in 0..self.spec.size.div_ceil(extent) {
            let mut sums = Vec::new();
            for (at, first) in nodes[0].volume.copies_at(number * extent) {
                let Some(drive) = nodes[at].engine.drive(self.spec.drives[at]) else {
                    return self.core.fail(format!("drive {at} is up and not here"));
                };
                sums.push(drive.crcs(self.spec.map, first, extent / BLOCK).await);
            }
            if sums.iter().any(|sum| *sum != sums[0]) {
                self.core.fail(format!("copies of extent {number} differ: {sums:x?}"));
            }
        }
    }
}

/// Whose copies aren't equal yet, of the columns that this server leads.
fn regions_left(node: &Node) -> u64 {
    let recovery = node.volume.recovery();
    recovery.unresolved_regions + recovery.stale_regions
}
