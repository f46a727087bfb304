//! Servers in a ring, each with a drive and a gateway, gateways on other machines, and a volume with copies on several of the
//! servers. Servers are killed, lose power, stand still, are cut off from what is agreed or from each other, also in one
//! direction; links and drives are slow; two servers lose only each other, for long; in the end a drive decays.
//!
//! What must hold: nothing acknowledged is lost and no read is wrong, through whichever gateway; no request fails; and once
//! nothing goes wrong any more, all drives come up, and their copies are equal. While two can't reach each other, a third serves all of
//! it, and what is agreed comes to rest. After all servers went down, those that come back serve all of it, though others don't.

mod clones;
mod convergence;
mod council;
mod dark;
mod fencing;
mod gaps;
mod importing;
mod network;
mod node;
mod old_place;
mod plan;
mod resizing;
mod snapshots;

use crate::checker::{Checker, Rules};
use crate::device::{Faults, SimDisk};
use crate::executor::{Core, Executor, Failure, SCENARIO, Sleep};
use crate::random::Stream;
use crate::scenario::taken::Taken;
use crate::workload::Workload;
use crate::world::SimWorld;
use clones::{Clients, Tested, Volumes};
use council::Council;
use fencing::Holders;
use gaps::{Closing, Running};
use network::Network;
use node::{Machine, Node};
use old_place::OldPlace;
use plan::Plan;
use resizing::Turns;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use tepal_drive::geometry::MIN_LOG;
use tepal_drive::{NewDrive, format};
use tepal_model::{ClusterId, DriveId, IoError, MapId, MigrationStage, ServerId, VolumeId};

const DISKS: [&str; 7] = ["d0", "d1", "d2", "d3", "d4", "d5", "d6"];
const SERVERS: [&str; 7] = ["s0", "s1", "s2", "s3", "s4", "s5", "s6"];
const GATEWAYS: [&str; 2] = ["g0", "g1"];
/// A link that is slow takes at most so long: longer than a lease runs, shorter than anybody waits.
const SLOW: Duration = Duration::from_millis(45);

/// A slow drive takes at most so many times as long as others.
const SLOWDOWN: u64 = 64;

/// Within a moment.
pub fn run(executor: &Executor, mut random: Stream) -> Result<u64, Failure> {
    let plan = Plan::short(&mut random);
    run_plan(executor, plan, random)
}

/// Over seconds, with more servers, gateways elsewhere, and servers that stand still.
pub fn run_long(executor: &Executor, mut random: Stream) -> Result<u64, Failure> {
    let plan = Plan::long(&mut random);
    run_plan(executor, plan, random)
}

/// The same, with clones that go their own way again and again, and clients that ask what is mapped.
pub fn run_leaving(executor: &Executor, mut random: Stream) -> Result<u64, Failure> {
    run_plan(executor, Plan::leaving(&mut random), random)
}

/// The same as [`run_long`], with clients that hold the volume, which is taken from them again and again.
pub fn run_fencing(executor: &Executor, mut random: Stream) -> Result<u64, Failure> {
    run_plan(executor, Plan::fencing(&mut random), random)
}

/// The same as [`run_leaving`], with copies or codes, of a volume that is encrypted.
pub fn run_encrypted(executor: &Executor, mut random: Stream) -> Result<u64, Failure> {
    run_plan(executor, Plan::encrypted(&mut random), random)
}

/// The same as [`run_long`], of a volume that is imported while it's used.
pub fn run_imported(executor: &Executor, mut random: Stream) -> Result<u64, Failure> {
    run_plan(executor, Plan::imported(&mut random), random)
}

/// The same as [`run_long`], of a volume whose columns nobody leads.
pub fn run_quorum(executor: &Executor, mut random: Stream) -> Result<u64, Failure> {
    run_plan(executor, Plan::quorum(&mut random), random)
}

/// Over seconds, with ranges that go to layouts of their own, and come together again.
pub fn run_ranges(executor: &Executor, mut random: Stream) -> Result<u64, Failure> {
    run_plan(executor, Plan::ranges(&mut random), random)
}

/// Within a moment, with a volume that an erasure code keeps.
pub fn run_stripes(executor: &Executor, mut random: Stream) -> Result<u64, Failure> {
    run_plan(executor, Plan::stripes(&mut random), random)
}

/// The same over seconds.
pub fn run_long_stripes(executor: &Executor, mut random: Stream) -> Result<u64, Failure> {
    run_plan(executor, Plan::long_stripes(&mut random), random)
}

/// Over seconds, with plexes of named drives.
pub fn run_plexes(executor: &Executor, mut random: Stream) -> Result<u64, Failure> {
    run_plan(executor, Plan::plexes(&mut random), random)
}

fn run_plan(executor: &Executor, plan: Plan, random: Stream) -> Result<u64, Failure> {
    let core = executor.core().clone();
    executor.run(async move { Ring::new(&core, plan, random).run().await })
}

/// What happens to one of the machines, or to all.
#[derive(Clone, Copy)]
enum Event {
    Dies,
    Starts,
    /// From those who agree.
    IsCutOff,
    LinkIsCut,
    AllIsMended,
    StandsStillOrGoesOn,
    LinkIsSlow,
    IsAwayForLong,
    DriveIsSlow,
    GoesOnAlone,
    /// The volume's.
    RecordChanges,
    SnapshotIsTaken,
    SnapshotIsRead,
    SnapshotIsRemoved,
    OneMissesASnapshot,
    ColumnMoves,
    MoveIsCalledOff,
    SnapshotIsCloned,
    CloneIsUsed,
    CloneIsRemoved,
    /// The volumes go to another layout, or rest on the way, or turn around.
    MigrationBegins,
    MigrationRests,
    MigrationGoesOn,
    MigrationTurns,
    MigrationGoesFasterOrSlower,
    VolumeIsResized,
    VolumeIsRolledBack,
    VolumeIsRolledBackAgainAndAgain,
    AllStart,
}

/// Each as often as it's there.
const EVENTS: &[Event] = &[
    Event::Dies,
    Event::Dies,
    Event::Dies,
    Event::Starts,
    Event::Starts,
    Event::IsCutOff,
    Event::LinkIsCut,
    Event::AllIsMended,
    Event::StandsStillOrGoesOn,
    Event::StandsStillOrGoesOn,
    Event::LinkIsSlow,
    Event::IsAwayForLong,
    Event::DriveIsSlow,
    Event::GoesOnAlone,
    Event::RecordChanges,
    Event::SnapshotIsTaken,
    Event::SnapshotIsTaken,
    Event::SnapshotIsTaken,
    Event::SnapshotIsRead,
    Event::SnapshotIsRemoved,
    Event::OneMissesASnapshot,
    Event::ColumnMoves,
    Event::ColumnMoves,
    Event::ColumnMoves,
    Event::MoveIsCalledOff,
    Event::SnapshotIsCloned,
    Event::SnapshotIsCloned,
    Event::CloneIsUsed,
    Event::CloneIsUsed,
    Event::CloneIsUsed,
    Event::CloneIsRemoved,
    Event::MigrationBegins,
    Event::MigrationBegins,
    Event::MigrationBegins,
    Event::MigrationBegins,
    Event::MigrationRests,
    Event::MigrationGoesOn,
    Event::MigrationTurns,
    Event::MigrationTurns,
    Event::MigrationGoesFasterOrSlower,
    Event::VolumeIsResized,
    Event::VolumeIsResized,
    Event::VolumeIsResized,
    Event::VolumeIsResized,
    Event::VolumeIsRolledBack,
    Event::VolumeIsRolledBack,
    Event::VolumeIsRolledBack,
    Event::VolumeIsRolledBackAgainAndAgain,
    Event::VolumeIsRolledBackAgainAndAgain,
    Event::AllStart,
];
/// So many of them, from the first on, where all happens within a moment.
const IN_A_MOMENT: usize = 8;
/// Of volumes whose columns nobody leads.
const BY_GATEWAYS: &[Event] = &[
    Event::Dies,
    Event::Dies,
    Event::Dies,
    Event::Starts,
    Event::Starts,
    Event::IsCutOff,
    Event::LinkIsCut,
    Event::AllIsMended,
    Event::StandsStillOrGoesOn,
    Event::StandsStillOrGoesOn,
    Event::LinkIsSlow,
    Event::IsAwayForLong,
    Event::DriveIsSlow,
    Event::GoesOnAlone,
    Event::RecordChanges,
    Event::ColumnMoves,
    Event::ColumnMoves,
    Event::ColumnMoves,
    Event::ColumnMoves,
    Event::ColumnMoves,
    Event::MoveIsCalledOff,
    Event::AllStart,
];

struct Ring {
    core: Rc<Core>,
    random: Stream,
    plan: Plan,
    /// The servers', then the gateways'.
    machines: Vec<Rc<Machine>>,
    /// Those that run.
    nodes: Vec<Option<(Node, Workload)>>,
    council: Council,
    network: Network,
    running: Running,
    checker: Rc<RefCell<Checker>>,
    /// One drive's data isn't all what was written to it.
    has_decayed: bool,
    taken: Taken<Tested>,
    volumes: Volumes,
    /// Of clones, on machines that run.
    clients: Vec<Clients>,
    /// To resize a volume, or to roll it back.
    turns: Turns,
    /// The volume that was there first was never shorter.
    shortest: Rc<Cell<u64>>,
    holders: Holders,
    /// Whoever holds the volume by a lower number has been fenced.
    fenced: Rc<Cell<u64>>,
    /// Where the volume is imported from, if it is.
    old_place: OldPlace,
    /// The import was cancelled at some time.
    was_cancelled: Rc<Cell<bool>>,
}

impl Ring {
    fn new(core: &Rc<Core>, plan: Plan, mut random: Stream) -> Self {
        let mut server = |at: usize| {
            let disk = SimDisk::new(
                core,
                DISKS[at],
                (plan.mebibytes_each() * 2 * (2 + snapshots::MOST + clones::MOST) as u64 + random.between(8..11)) << 20,
            );
            let drive = Some((DriveId(at as u64 + 1), disk));
            Rc::new(Machine { id: ServerId(at as u32 + 1), name: SERVERS[at], drive })
        };
        let mut machines: Vec<Rc<Machine>> = (0..plan.servers).map(&mut server).collect();
        let gateway = |at: usize| Rc::new(Machine { id: ServerId(at as u32 + 101), name: GATEWAYS[at], drive: None });
        machines.extend((0..plan.gateways).map(gateway));
        let voters = machines[..plan.voters].iter().map(|machine| machine.id).collect();
        let council = Council::new(core.time(), voters, plan.spec.clone(), |drive| ServerId(drive.0 as u32));
        let rules = Rules { durability: plan.spec.layout.durability, reads_settle: false, late: true };
        let checker = match &plan.import {
            None => Checker::new(random.draw(), rules),
            Some(import) => {
                council.imports_by(machines[0].id);
                Checker::of_imported(random.draw(), rules, plan.spec.size, (import.length, import.grain))
            }
        };
        let pace = plan.import.as_ref().map_or(importing::IN_A_HURRY, |import| import.pace);
        let old_place = OldPlace::new(checker.origin().clone(), pace);
        let first = Tested::new(plan.spec.id, checker, Vec::new());
        let (checker, volumes) = (first.checker.clone(), Volumes::default());
        volumes.add(first);
        let nodes = machines.iter().map(|_| None).collect();
        let (core, network, shortest) = (core.clone(), Network::new(), Rc::new(Cell::new(plan.spec.size)));
        Ring {
            core,
            random,
            plan,
            machines,
            nodes,
            council,
            network,
            running: Running::default(),
            checker,
            has_decayed: false,
            taken: Taken::default(),
            volumes,
            clients: Vec::new(),
            turns: Turns::default(),
            shortest,
            holders: Holders::default(),
            fenced: Rc::default(),
            old_place,
            was_cancelled: Rc::default(),
        }
    }

    async fn run(mut self) -> u64 {
        for (drive, disk) in self.machines.iter().filter_map(|machine| machine.drive.as_ref()) {
            self.format(*drive, disk).await;
        }
        self.core.spawn(SCENARIO, "council", Box::pin(self.council.clone().serve(self.core.clone())));
        let carried = self.network.clone().carry(self.core.clone(), self.council.clone());
        self.core.spawn(SCENARIO, "network", Box::pin(carried));
        let (core, council, running) = (self.core.clone(), self.council.clone(), self.running.clone());
        let closing = Closing { core, council, running, random: self.core.fork() };
        self.core.spawn(SCENARIO, "gaps", Box::pin(closing.keep_closing()));
        if self.plan.import.is_some() {
            self.core.spawn(SCENARIO, "old place", Box::pin(self.old_place.clone().serve(self.core.clone())));
        }
        self.start_all();
        for _ in 0..self.plan.events {
            self.wait().await;
            self.something_happens().await;
            self.keep_busy();
            if self.plan.clones_leave && self.random.one_in(2) {
                self.a_clone_leaves().await;
            }
            if self.plan.is_held && self.random.one_in(2) {
                self.volume_is_taken();
            }
            if self.plan.import.is_some() {
                self.something_happens_to_the_import();
            }
            if self.plan.volumes_go_back && self.random.one_in(2) {
                self.volume_is_rolled_back_again_and_again().await;
            }
        }
        if self.council.import().is_some() && self.random.one_in(2) {
            self.old_place_is_away().await;
        }
        if self.plan.servers > 2 && self.random.one_in(2) {
            self.two_lose_each_other().await;
        }
        if !self.plan.is_by_gateways && self.random.one_in(2) {
            self.all_go_dark().await;
        }
        self.come_right().await;
        self.checker.borrow().count() as u64
    }

    async fn format(&self, drive: DriveId, disk: &SimDisk) {
        let (cluster, pool) = (ClusterId(1), "default".to_owned());
        let new = NewDrive { cluster, drive, pool, log_length: Some(MIN_LOG) };
        if let Err(error) = format(&disk.open(), None, new).await {
            self.core.fail(format!("formatting a drive failed: {error}"));
        }
    }

    async fn wait(&mut self) {
        let longest = self.random.pick(self.plan.pauses).as_micros() as u64;
        let pause = Duration::from_micros(self.random.below(longest));
        Sleep::until(&self.core, self.core.now() + pause).await;
    }

    fn start(&mut self, at: usize) {
        if self.nodes[at].is_some() {
            return;
        }
        let machine = self.machines[at].clone();
        self.council.revive(machine.id);
        let world = SimWorld::boot(&self.core, machine.name);
        let node = Node::start(world, machine, &self.council, (&self.network, &self.old_place));
        let workload = self.begin_work(&node);
        self.running.started(&node);
        self.nodes[at] = Some((node, workload));
    }

    fn start_all(&mut self) {
        (0..self.machines.len()).for_each(|at| self.start(at));
    }

    fn workload(&self) -> Workload {
        let (shortest, old_place, was_cancelled) =
            (self.shortest.clone(), self.old_place.clone(), self.was_cancelled.clone());
        let may_fail = Rc::new(move |error: &IoError, _, offset, length| match error {
            IoError::OutOfRange { .. } => offset + length > shortest.get(),
            IoError::Unavailable { .. } => was_cancelled.get() || old_place.has_refused(offset, length),
            _ => false,
        });
        Workload::new(&self.core, self.checker.clone(), self.plan.mix.clone(), may_fail)
    }

    fn begin_work(&mut self, node: &Node) -> Workload {
        if self.plan.is_held && self.random.one_in(2) {
            return self.begin_to_hold(node);
        }
        let workload = self.workload();
        workload.start(&node.world, &node.under_test(), self.random.between(self.plan.requests.clone()));
        workload
    }

    /// New clients come where the last ones have ended.
    fn keep_busy(&mut self) {
        if !self.plan.is_busy {
            return;
        }
        for at in 0..self.nodes.len() {
            let idle = self.nodes[at].as_ref().filter(|(_, workload)| workload.is_done());
            let Some(node) = idle.map(|(node, _)| node.clone()) else { continue };
            if self.random.one_in(2) {
                let workload = self.begin_work(&node);
                self.nodes[at] = Some((node, workload));
            }
        }
    }

    fn stop(&mut self, at: usize) {
        let Some((node, _)) = self.nodes[at].take() else { return };
        self.clients.retain(|clients| clients.at != at);
        let power = self.random.one_in(3);
        self.core.note(at as u64, || format!("{} dies, power cut: {power}", node.id()));
        if node.world.is_paused() {
            self.council.join_again(node.id()); // it was cut off by that alone
        }
        node.world.kill();
        self.running.stopped(node.id());
        self.network.died(node.id());
        self.council.died(node.id(), self.core.now());
        match (self.machines[at].disk(), power) {
            (Some(disk), true) => disk.cut_power(),
            (Some(disk), false) => disk.process_killed(),
            (None, _) => {}
        }
    }

    /// It stands still, or goes on.
    fn pause_or_resume(&mut self, at: usize) {
        let Some((node, _)) = &self.nodes[at] else { return };
        if node.world.is_paused() {
            node.world.resume();
            self.council.join_again(node.id());
        } else {
            node.world.pause();
            self.council.cut_off(node.id(), self.core.now());
        }
    }

    fn any_server_but(&mut self, id: ServerId) -> ServerId {
        let servers = self.machines[..self.plan.servers].iter().map(|machine| machine.id);
        let others: Vec<ServerId> = servers.filter(|other| *other != id).collect();
        *self.random.pick(&others)
    }

    async fn something_happens(&mut self) {
        let at = self.random.index(self.machines.len());
        let id = self.machines[at].id;
        let may_happen = match self.plan.has_faults {
            _ if self.plan.is_by_gateways => BY_GATEWAYS,
            true => EVENTS,
            false => &EVENTS[..IN_A_MOMENT],
        };
        match *self.random.pick(may_happen) {
            Event::Dies => self.stop(at),
            Event::Starts => self.start(at),
            Event::IsCutOff => self.council.cut_off(id, self.core.now()),
            Event::LinkIsCut => {
                let other = self.any_server_but(id);
                self.core.note(id.0.into(), || format!("{id} is cut off from {other}"));
                self.network.cut((id, other));
                if self.random.one_in(2) {
                    self.network.cut((other, id));
                }
            }
            Event::AllIsMended => self.heal(),
            Event::StandsStillOrGoesOn => self.pause_or_resume(at),
            Event::LinkIsSlow => {
                let (other, delay) =
                    (self.any_server_but(id), Duration::from_micros(self.random.skewed(SLOW.as_micros() as u64)));
                self.core.note(id.0.into(), || format!("from {id} to {other} takes {delay:?}"));
                self.network.slow_down((id, other), delay);
            }
            Event::IsAwayForLong => self.one_is_away_for_long(at).await,
            Event::DriveIsSlow => {
                let slowdown = self.random.skewed(SLOWDOWN) as u32;
                if let Some(disk) = self.machines[at].disk() {
                    self.core.note(id.0.into(), || format!("the drive of {id} takes {slowdown} times as long"));
                    disk.set_faults(Faults { slowdown, ..Faults::default() });
                }
            }
            Event::GoesOnAlone => self.one_goes_on_alone(at).await,
            Event::RecordChanges => self.council.change_record(),
            Event::SnapshotIsTaken => self.snapshot_is_taken(at),
            Event::SnapshotIsRead => self.snapshot_is_read(at),
            Event::SnapshotIsRemoved => self.snapshot_is_removed(),
            Event::OneMissesASnapshot => self.one_misses_a_snapshot(at).await,
            Event::ColumnMoves => self.column_moves(),
            Event::MoveIsCalledOff => {
                let (of, _) = self.any_column();
                self.council.end_move(of);
            }
            Event::SnapshotIsCloned => self.snapshot_is_cloned(at),
            Event::CloneIsUsed => self.clone_is_used(at),
            Event::CloneIsRemoved => self.clone_is_removed(),
            Event::MigrationBegins => self.any_migration_begins(1),
            Event::MigrationRests => self.council.change_migration(MigrationStage::Paused),
            Event::MigrationGoesOn => self.council.change_migration(MigrationStage::Running),
            Event::MigrationTurns => self.council.turn_migration(),
            Event::MigrationGoesFasterOrSlower => {
                let rate = self.any_rate();
                self.council.change_rate(rate);
            }
            Event::VolumeIsResized => self.volume_is_resized(at),
            Event::VolumeIsRolledBack => self.volume_is_rolled_back(at),
            Event::VolumeIsRolledBackAgainAndAgain => self.volume_is_rolled_back_again_and_again().await,
            Event::AllStart => self.start_all(),
        }
    }

    /// Any drive is to take the place of any other, also of one that is away.
    fn column_moves(&mut self) {
        let (of, copies) = self.any_column();
        let copy = self.random.index(copies);
        let to = DriveId(self.random.between(1..self.plan.servers as u64 + 1));
        if self.council.begin_move(of, copy, to) {
            self.core.note(of.1 as u64, || format!("copy {copy} of column {of:?} is to go to drive {to}"));
        }
    }

    /// Of any map, and how many copies it has.
    fn any_column(&mut self) -> ((MapId, usize), usize) {
        let places = self.council.now().places;
        let maps: Vec<MapId> = places.keys().copied().collect();
        let map = *self.random.pick(&maps);
        let columns = &places[&map].columns;
        let column = self.random.index(columns.len());
        ((map, column), columns[column].holders.len())
    }

    fn any_migration_begins(&mut self, copies: u8) {
        if self.plan.has_ranges && !self.random.one_in(4) {
            return self.any_range_begins(copies);
        }
        let (of, alone) = (*self.random.pick(&self.council.volumes()), self.random.one_in(2));
        let rate = self.any_rate();
        self.migration_begins(copies, (of, alone), rate);
    }

    /// A part of all that is shared goes to another layout, or to that of another range.
    fn any_range_begins(&mut self, copies: u8) {
        let copies = if self.plan.has_codes { copies.max(2) } else { copies };
        let of = *self.random.pick(&self.council.volumes());
        let (at, most) = (self.random.below(self.plan.spec.size), self.random.between(1..5));
        let (rate, seed, joins) = (self.any_rate(), self.random.draw(), self.random.one_in(2));
        let to =
            plan::another(&mut self.random, self.plan.servers, copies, (self.plan.has_codes, self.plan.has_plexes));
        let laid = to.0.clone();
        if self.council.begin_range((of, at, most), to, (seed, rate, joins)) {
            self.core
                .note(seed, || format!("a range at {at} of volume {} is to go to {laid:?}, or joins: {joins}", of.0));
        }
    }

    /// To another number of copies perhaps, but at least so many, other extents, other places.
    fn migration_begins(&mut self, copies: u8, (of, alone): (VolumeId, bool), rate: Option<u64>) {
        // Where drives fail for good, of one copy nothing would be left.
        let copies = if self.plan.has_codes { copies.max(2) } else { copies };
        let (to, places) =
            plan::another(&mut self.random, self.plan.servers, copies, (self.plan.has_codes, self.plan.has_plexes));
        let seed = self.random.draw();
        if self.council.begin_migration((of, alone), (to.clone(), places), (seed, rate)) {
            let which = if alone { "volume" } else { "all with the map of volume" };
            self.core.note(seed, || format!("{which} {} is to go to {to:?}", of.0));
        }
    }

    /// In bytes a second; mostly as fast as it can.
    fn any_rate(&mut self) -> Option<u64> {
        self.random.one_in(3).then(|| self.random.between(1..64) << 16)
    }

    /// It isn't heard by those who agree, and what it sends comes late: when others have long taken its place.
    async fn one_goes_on_alone(&mut self, at: usize) {
        let id = self.machines[at].id;
        self.core.note(id.0.into(), || format!("{id} goes on alone"));
        for other in self.machines[..self.plan.servers].iter().map(|machine| machine.id).filter(|other| *other != id) {
            self.network.slow_down((id, other), Duration::from_millis(self.random.between(20..200)));
        }
        Sleep::until(&self.core, self.core.now() + Duration::from_millis(self.random.below(10))).await;
        self.council.cut_off(id, self.core.now());
        for _ in 0..self.random.between(1..6) {
            Sleep::until(&self.core, self.core.now() + Duration::from_millis(self.random.between(20..100))).await;
            self.keep_busy();
        }
        self.heal();
    }

    /// What it misses is known only from marks by then; and some of those who have them are restarted too.
    async fn one_is_away_for_long(&mut self, at: usize) {
        self.stop(at);
        for _ in 0..self.random.between(2..5) {
            self.keep_busy();
            Sleep::until(&self.core, self.core.now() + Duration::from_millis(self.random.between(400..1_500))).await;
        }
        if self.random.one_in(2) {
            (0..self.machines.len()).for_each(|at| self.stop(at));
        } else {
            let other = self.random.index(self.machines.len());
            self.stop(other);
        }
        self.start_all();
    }

    fn heal(&mut self) {
        self.network.heal();
        self.old_place.heal();
        for (at, machine) in self.machines.iter().enumerate() {
            if let Some((node, _)) = self.nodes[at].as_ref().filter(|(node, _)| node.world.is_paused()) {
                node.world.resume();
            }
            self.council.join_again(machine.id);
            machine.disk().inspect(|disk| disk.heal());
        }
    }
}
