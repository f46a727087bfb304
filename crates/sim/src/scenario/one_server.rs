//! One server, several drives, one volume under a workload: `stripe`, `mirror:2` and `mirror:3`. The server is killed and cut
//! from power at any step; drives are pulled and put back, rot, lie, fail; and the volume may be larger than they are.
//!
//! What must hold: nothing acknowledged is lost and no read is wrong; no request fails within what the layout tolerates;
//! and once nothing goes wrong any more, the volume heals by itself ([`super::convergence`]).

use super::agreement::{Agreement, Status};
use super::convergence::{Unsettled, become_healthy, copies_are_equal, scrub_clean, space_returns};
use super::life::{End, NEVER, on_machine, until};
use super::server::{Hardware, Server, drive_id};
use crate::checker::{Checker, Kind, Loss, Rules};
use crate::device::{FaultKind, Faults, Rate, SimDisk};
use crate::executor::{Core, Executor, Failure, SCENARIO, Sleep};
use crate::random::Stream;
use crate::workload::{MayFail, Mix, Workload};
use crate::world::SimWorld;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;
use tepal_drive::geometry::{Geometry, MIN_LOG};
use tepal_drive::{NewDrive, Options, format};
use tepal_engine::VolumeSpec;
use tepal_model::layout::{Durability, Protection};
use tepal_model::{BLOCK, ClusterId, EXTENT, IoError, Layout, MapId, VolumeId};
use tepal_placement::Rotation;

/// What goes wrong besides crashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    None,
    /// The volume is larger than the drives.
    Full,
    /// Any drives are pulled at any time, and put back.
    Pulled,
    /// One drive's blocks rot, its writes are lost or go astray, its reads fail.
    Corruption,
    /// One drive's write or flush fails.
    Broken,
}

#[derive(Clone, Debug)]
struct Plan {
    trouble: Trouble,
    layout: Layout,
    drives: usize,
    drive_size: u64,
    size: u64,
    options: Options,
    lives: u64,
    /// The drive that goes wrong.
    victim: usize,
    mix: Mix,
}

impl Plan {
    fn draw(random: &mut Stream) -> Self {
        use Trouble::{Broken, Corruption, Full, Pulled};
        let trouble = *random.pick(&[Trouble::None, Trouble::None, Full, Pulled, Pulled, Corruption, Broken]);
        let copies = *random.pick(&[1, 2, 2, 2, 3]);
        let protection = if copies == 1 { Protection::Stripe } else { Protection::Mirror { copies } };
        let mut layout = Layout::new(protection);
        layout.extent = *random.pick(&[4 << 10, 64 << 10, 64 << 10, 1 << 20]);
        if random.one_in(2) {
            layout.durability = Durability::Flush;
        }
        if matches!(trouble, Trouble::None | Pulled) && random.one_in(4) {
            layout.min_copies = copies;
        }
        let drives = usize::from(copies) + random.index(3);
        let drive_size = random.between(8..13) << 20;
        let room = (drive_size - (3 << 20)) * drives as u64 / u64::from(copies);
        let size = if trouble == Full { room + room / 2 } else { room.min(16 << 20) / 2 } / BLOCK * BLOCK;
        let mut mix = Mix::draw(random, size);
        if trouble == Full {
            mix.hot = size;
            mix.trim += 1;
        }
        let options = Options {
            sum_cache: *random.pick(&[16 << 10, 64 << 20]),
            pending: *random.pick(&[64 << 10, 1 << 20, 16 << 20]),
            discard: random.one_in(2),
            ..Options::default()
        };
        let (lives, victim) = (random.between(1..5), random.index(drives));
        Plan { trouble, layout, drives, drive_size, size, options, lives, victim, mix }
    }

    fn mirrored(&self) -> bool {
        self.layout.copies() > 1
    }
}

pub fn run(executor: &Executor, mut random: Stream) -> Result<u64, Failure> {
    let plan = Plan::draw(&mut random);
    let core = executor.core().clone();
    core.note(0, || format!("{plan:?}"));
    executor.run(async move { Bench::new(&core, plan, random).run().await })
}

struct Bench {
    core: Rc<Core>,
    plan: Plan,
    random: Stream,
    hardware: Rc<Hardware>,
    checker: Rc<RefCell<Checker>>,
    workload: Workload,
}

impl Bench {
    fn new(core: &Rc<Core>, plan: Plan, mut random: Stream) -> Self {
        const NAMES: [&str; 5] = ["d0", "d1", "d2", "d3", "d4"];
        let disks: Vec<SimDisk> = (0..plan.drives).map(|at| SimDisk::new(core, NAMES[at], plan.drive_size)).collect();
        let agreement = Agreement::new((0..plan.drives).map(drive_id));
        core.spawn(SCENARIO, "agreement", Box::pin(agreement.clone().serve(core.clone())));
        let spec = VolumeSpec {
            id: VolumeId(1),
            name: "v0".to_owned(),
            size: plan.size,
            layout: plan.layout.clone(),
            map: MapId(9),
            drives: (0..plan.drives).map(drive_id).collect(),
        };
        // While all copies are here, the first clean one decides for good.
        let reads_settle = matches!(plan.trouble, Trouble::None | Trouble::Full);
        let rules = Rules { durability: plan.layout.durability, reads_settle };
        let checker = Rc::new(RefCell::new(Checker::new(random.draw(), rules)));
        let workload = Workload::new(core, checker.clone(), plan.mix.clone(), may_fail(&plan, &disks));
        let excuses = excuses(&plan, &disks);
        let returned = returned(core, &checker, &agreement, &spec);
        let hardware = Hardware { disks, agreement, spec, options: plan.options.clone(), excuses, returned };
        Bench { core: core.clone(), plan, random, hardware: Rc::new(hardware), checker, workload }
    }

    async fn run(mut self) -> u64 {
        for (at, disk) in self.hardware.disks.iter().enumerate() {
            let (cluster, drive, pool) = (ClusterId(1), drive_id(at), "default".to_owned());
            let new = NewDrive { cluster, drive, pool, log_length: Some(MIN_LOG) };
            if let Err(error) = format(&disk.open(), None, new).await {
                self.core.fail(format!("formatting drive {at} failed: {error}"));
            }
        }
        for _ in 0..self.plan.lives {
            self.live().await;
        }
        self.last_life().await;
        self.checker.borrow().count() as u64
    }

    /// Starts a process; its server is there once it has opened its drives.
    fn boot(&self) -> (SimWorld, Rc<RefCell<Option<Server>>>) {
        let world = SimWorld::boot(&self.core, "server");
        let server = Rc::new(RefCell::new(None));
        let (slot, own, hardware) = (server.clone(), world.clone(), self.hardware.clone());
        world.spawn_named("start", async move {
            let started = Server::start(own, hardware).await;
            *slot.borrow_mut() = started;
        });
        (world, server)
    }

    async fn live(&mut self) {
        let lies = self.plan.trouble == Trouble::Corruption && self.random.one_in(2);
        let drawn = End::draw(&mut self.random);
        // One copy can't tell data that the drive has lost from data that a power cut prevented; two can.
        let end = if lies && !self.plan.mirrored() { End::Close } else { drawn };
        let requests = self.random.between(20..600);
        let deadline =
            self.core.steps().saturating_add(end.steps(&mut self.random, requests * self.plan.drives as u64));
        let (world, server) = self.boot();
        let started = until(&self.core, deadline, || server.borrow().is_some()).await;
        let server = server.borrow().clone();
        if let (true, Some(server)) = (started, server) {
            self.arm(&server, lies);
            self.workload.start(&world, &server.under_test(), requests);
            let workload = self.workload.clone();
            if until(&self.core, deadline, || workload.is_done()).await && end == End::Close {
                self.close(&server).await;
            }
        }
        self.end(end, &world);
    }

    /// Reads everything, then closes the drives.
    async fn close(&self, server: &Server) {
        let (workload, volume, served) = (self.workload.clone(), server.under_test(), server.clone());
        on_machine(&self.core, &server.world, "close", async move {
            workload.read_back(&*volume).await;
            let drives: Vec<_> = served.drives().collect();
            for (_, drive) in drives {
                let _ = drive.close().await; // a drive that is lost now is declared down at the next start
            }
        })
        .await;
    }

    fn end(&mut self, end: End, world: &SimWorld) {
        world.kill();
        self.hardware.agreement.crashed(self.random.index(3));
        for disk in &self.hardware.disks {
            match end {
                End::PowerCut => disk.cut_power(),
                End::Kill | End::Close => disk.process_killed(),
            }
            disk.heal();
            if self.random.one_in(2) {
                disk.plug_in();
            }
        }
        // A drive that was pulled has lost its cache, and so has a stripe's whose flush failed.
        let broken = self.plan.trouble == Trouble::Broken && !self.plan.mirrored();
        let cache_lost = broken || self.plan.trouble == Trouble::Pulled;
        let loss = if end == End::PowerCut || cache_lost { Loss::Power } else { Loss::Process };
        self.checker.borrow_mut().crashed(self.core.now(), loss);
    }

    /// Lets drives go wrong from now on, as planned.
    fn arm(&mut self, server: &Server, lies: bool) {
        match self.plan.trouble {
            Trouble::None | Trouble::Full => {}
            Trouble::Pulled => {
                let hand = Hand { core: self.core.clone(), server: server.clone(), random: self.random.fork() };
                let disks = self.hardware.disks.clone();
                server.world.spawn_named("hand", hand.pull_and_put_back(disks));
            }
            Trouble::Corruption => self.corrupt(server, lies),
            Trouble::Broken => {
                let (write_error, flush_error) = (self.rate(1), self.rate(1));
                self.victim().set_faults(Faults { write_error, flush_error, ..Faults::default() });
            }
        }
    }

    fn victim(&self) -> &SimDisk {
        &self.hardware.disks[self.plan.victim]
    }

    fn rate(&mut self, most: u64) -> Rate {
        Rate::at_most(self.random.below(most + 1) as u32, *self.random.pick(&[2_000, 20_000, 200_000]))
    }

    fn corrupt(&mut self, server: &Server, lies: bool) {
        let Some(drive) = server.engine.drive(drive_id(self.plan.victim)) else { return };
        let slots = slots_of(drive.geometry());
        let lies = if lies { 3 } else { 0 };
        let faults = Faults {
            lost_write: self.rate(lies),
            misdirected_write: self.rate(lies),
            misdirected_read: self.rate(3),
            read_error: self.rate(3),
            within: slots.clone(),
            ..Faults::default()
        };
        self.victim().set_faults(faults);
        for _ in 0..self.random.below(4) {
            self.victim().rot_somewhere(slots.clone());
        }
    }

    /// No faults any more: everything must be there, and come right.
    async fn last_life(&mut self) {
        self.hardware.disks.iter().for_each(SimDisk::plug_in);
        let (world, server) = self.boot();
        until(&self.core, NEVER, || server.borrow().is_some()).await;
        let Some(server) = server.borrow().clone() else { return };
        let (workload, agreement, plan) = (self.workload.clone(), self.hardware.agreement.clone(), self.plan.clone());
        let outcome =
            on_machine(
                &self.core,
                &world,
                "converge",
                async move { converge(&server, &agreement, &workload, &plan).await },
            )
            .await;
        if let Err(unsettled) = outcome {
            self.core.fail(unsettled.to_string());
            std::future::pending::<()>().await;
        }
    }
}

fn slots_of(geometry: &Geometry) -> std::ops::Range<u64> {
    geometry.slots_start..geometry.slots_start + u64::from(geometry.slots) * EXTENT
}

async fn converge(server: &Server, agreement: &Agreement, workload: &Workload, plan: &Plan) -> Result<(), Unsettled> {
    let retired = (0..plan.drives).any(|at| matches!(agreement.status(drive_id(at)), Status::Retired(_)));
    if !plan.mirrored() && retired {
        return Ok(()); // what was on it is lost, and said to be
    }
    become_healthy(server, agreement, plan.drives).await?;
    workload.read_back(&*server.under_test()).await;
    let faulty = matches!(plan.trouble, Trouble::Corruption | Trouble::Broken);
    scrub_clean(server, faulty, faulty && !plan.mirrored()).await?;
    copies_are_equal(server).await?;
    workload.read_back(&*server.under_test()).await;
    space_returns(server).await
}

/// Pulls drives and puts them back, seen by the server or not.
struct Hand {
    core: Rc<Core>,
    server: Server,
    random: Stream,
}

impl Hand {
    /// A few times; in the end all are in place, or nothing could go on.
    async fn pull_and_put_back(mut self, disks: Vec<SimDisk>) {
        for _ in 0..self.random.skewed(24) {
            self.pause().await;
            let at = self.random.index(disks.len());
            if !disks[at].is_plugged() {
                disks[at].plug_in();
                continue;
            }
            disks[at].pull();
            if self.random.one_in(2) {
                self.server.tell_pulled(at);
            }
        }
        for disk in disks.iter().filter(|disk| !disk.is_plugged()) {
            self.pause().await;
            disk.plug_in();
        }
    }

    async fn pause(&mut self) {
        let micros = self.random.skewed(60_000);
        Sleep::until(&self.core, self.core.now() + Duration::from_micros(micros)).await;
    }
}

/// Which failures of requests the faults so far excuse: within what the layout tolerates, none.
fn may_fail(plan: &Plan, disks: &[SimDisk]) -> MayFail {
    let (trouble, mirrored, victim) = (plan.trouble, plan.mirrored(), disks[plan.victim].clone());
    let caches = plan.layout.durability == Durability::Flush;
    Rc::new(move |error, kind, _, _| {
        let struck = victim.fault_log().count(|kind| !matches!(kind, FaultKind::Pulled)) > 0;
        match error {
            IoError::OutOfSpace => trouble == Trouble::Full,
            IoError::Damaged { .. } => !mirrored && trouble == Trouble::Corruption && struck,
            // What was in the cache of a drive that was pulled is gone, and a flush has to say so.
            IoError::Unavailable { .. } if kind == Kind::Flush && caches && trouble == Trouble::Pulled => true,
            IoError::Unavailable { .. } => !mirrored && struck,
            _ => false,
        }
    })
}

/// A drive that returns has lost its cache, which counts for the blocks that no drive that is up has.
fn returned(
    core: &Rc<Core>,
    checker: &Rc<RefCell<Checker>>,
    agreement: &Agreement,
    spec: &VolumeSpec,
) -> Rc<dyn Fn(usize)> {
    let (core, checker, agreement) = (core.clone(), checker.clone(), agreement.clone());
    let rotation = Rotation::new(spec.drives.len(), spec.layout.copies()).expect("there is a drive for each copy");
    let extent = u64::from(spec.layout.extent) / BLOCK;
    Rc::new(move |at| {
        let alone = |block: u64| {
            let copies = 0..rotation.copies();
            let drives: Vec<usize> = copies.map(|copy| rotation.place(block / extent, copy).drive).collect();
            drives.contains(&at) && drives.iter().all(|&at| agreement.status(drive_id(at)) != Status::Up)
        };
        checker.borrow_mut().drive_returned(core.now(), alone);
    })
}

/// A drive may refuse to open if it lied, or if its flush had failed before it was killed.
fn excuses(plan: &Plan, disks: &[SimDisk]) -> crate::scenario::server::Excuses {
    let (victim, disk) = (plan.victim, disks[plan.victim].clone());
    Rc::new(move |at, _| at == victim && disk.fault_log().count(|kind| kind == FaultKind::FlushError) > 0)
}
