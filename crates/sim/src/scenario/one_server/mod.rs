//! One server, several drives, one volume under a workload: `stripe`, `mirror:2` and `mirror:3`. The server is killed and cut
//! from power at any step; drives are pulled and put back, rot, lie, fail; and the volume may be larger than they are. Meanwhile
//! snapshots are taken, read and removed, and the volume is rolled back.
//!
//! What must hold: nothing acknowledged is lost and no read is wrong; what a snapshot shows is a consistent cut, and never
//! changes; no request fails within what the layout tolerates; and once nothing goes wrong any more, the volume heals by itself
//! ([`super::convergence`]).

mod excuse;
mod hands;
mod plan;
mod snapshots;

use super::agreement::{Agreement, Status};
use super::bay::Bay;
use super::convergence::{Unsettled, become_healthy, copies_are_equal, removal_ends, scrub_clean, space_returns};
use super::life::{End, NEVER, on_machine, until};
use super::record::{Record, VolumeState};
use super::server::{Complete, Hardware, Server, drive_id};
use super::taken::Taken;
use crate::checker::{Checker, Loss, Rules};
use crate::device::{FaultKind, Faults, SimDisk};
use crate::executor::{Core, Executor, Failure, SCENARIO};
use crate::random::Stream;
use crate::workload::Workload;
use crate::world::SimWorld;
use excuse::{excuses, may_fail, returned};
use hands::{Hand, Operator};
use plan::{Hazard, Plan, Struck, rate};
use snapshots::Album;
use std::cell::RefCell;
use std::future::Future;
use std::rc::Rc;
use tepal_drive::NewDrive;
use tepal_engine::{Places, VolumeSpec};
use tepal_model::{ClusterId, DriveId, MapId, VolumeId};
use tepal_placement::Geometry;

pub fn run(executor: &Executor, mut random: Stream) -> Result<u64, Failure> {
    let plan = Plan::draw(&mut random);
    run_plan(executor, plan, random)
}

/// The same under an operator, who resizes and removes the volume; with logs on devices of their own, and drives that are
/// corrupted anywhere.
pub fn run_operated(executor: &Executor, mut random: Stream) -> Result<u64, Failure> {
    let plan = Plan::draw_operated(&mut random);
    run_plan(executor, plan, random)
}

fn run_plan(executor: &Executor, plan: Plan, random: Stream) -> Result<u64, Failure> {
    let core = executor.core().clone();
    core.note(0, || format!("{plan:?}"));
    executor.run(async move { Rig::new(&core, plan, random).run().await })
}

const MAP: MapId = MapId(9);

struct Rig {
    core: Rc<Core>,
    plan: Plan,
    random: Stream,
    hardware: Rc<Hardware>,
    checker: Rc<RefCell<Checker>>,
    workload: Workload,
    album: Album,
    /// Of the victim, up to the last crash.
    failed_flushes: usize,
}

impl Rig {
    fn new(core: &Rc<Core>, plan: Plan, mut random: Stream) -> Self {
        let bay = |at| Bay::new(core, at, plan.drive_size, plan.logs[at]);
        let bays: Vec<Bay> = (0..plan.drives).map(bay).collect();
        let drives: Vec<DriveId> = (0..plan.drives).map(drive_id).collect();
        let places =
            Places::rotated(&drives, plan.layout.fragments().count(), 0).expect("there is a drive for each copy");
        let agreement = Agreement::new(drives, [(MAP, places.clone())].into());
        core.spawn(SCENARIO, "agreement", Box::pin(agreement.clone().serve(core.clone())));
        let spec = VolumeSpec {
            id: VolumeId(1),
            name: "v0".to_owned(),
            size: plan.size,
            layout: plan.layout.clone(),
            map: MAP,
            geometry: Geometry::round(plan.drives, plan.layout.extent).expect("there is a drive"),
            places: places.into(),
            revision: 1,
            is_replica: false,
            is_encrypted: false,
            live: None,
            epochs: std::sync::Arc::default(),
        };
        // While all copies are here, the first clean one decides for good.
        let reads_settle = matches!(plan.hazard, Hazard::None | Hazard::Full);
        let rules = Rules { durability: plan.layout.durability, reads_settle, late: false };
        let checker = Rc::new(RefCell::new(Checker::new(random.draw(), rules)));
        let (record, size) = (Record::new(spec.clone()), spec.size);
        let workload = Workload::new(core, checker.clone(), plan.mix.clone(), may_fail(&plan, &bays, &record));
        let album = Album {
            core: core.clone(),
            record: record.clone(),
            checker: checker.clone(),
            workload: workload.clone(),
            taken: Taken::default(),
            asked: Rc::default(),
            durability: plan.layout.durability,
            size,
        };
        let excuses = excuses(&plan, &bays);
        let complete = Complete::new(RefCell::new((0..plan.drives).collect()));
        let returned = returned(core, &checker, &agreement, &spec, &complete);
        let hardware = Hardware { bays, agreement, record, options: plan.options.clone(), excuses, returned, complete };
        Rig {
            core: core.clone(),
            plan,
            random,
            hardware: Rc::new(hardware),
            checker,
            workload,
            album,
            failed_flushes: 0,
        }
    }

    async fn run(mut self) -> u64 {
        for (at, bay) in self.hardware.bays.iter().enumerate() {
            let (cluster, drive, pool) = (ClusterId(1), drive_id(at), "default".to_owned());
            let new = NewDrive { cluster, drive, pool, log_length: None };
            if let Err(error) = bay.format(new).await {
                self.core.fail(format!("formatting drive {at} failed: {error}"));
            }
        }
        for _ in 0..self.plan.lives {
            if !self.live().await {
                return self.checker.borrow().count() as u64;
            }
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

    /// Whether there is still something to be promised.
    async fn live(&mut self) -> bool {
        let lies = self.plan.hazard == Hazard::Corruption && self.random.one_in(2);
        let drawn = End::draw(&mut self.random);
        let end = if self.plan.needs_close(lies) { End::Close } else { drawn };
        let requests = self.random.between(20..600);
        let deadline =
            self.core.steps().saturating_add(end.steps(&mut self.random, requests * self.plan.drives as u64));
        let (world, server) = self.boot();
        let started = until(&self.core, deadline, || server.borrow().is_some()).await;
        let server = server.borrow().clone();
        if let (true, Some(server)) = (started, server) {
            self.arm(&server, lies);
            self.workload.start(&world, &server.under_test(), requests);
            self.operate(&server);
            let workload = self.workload.clone();
            if until(&self.core, deadline, || workload.is_done()).await && end == End::Close {
                self.close(&server).await;
            }
        }
        self.end(end, &world)
    }

    /// Reads everything, then closes the drives.
    async fn close(&self, server: &Server) {
        let (workload, volume, served) = (self.workload.clone(), server.under_test(), server.clone());
        let agreement = self.hardware.agreement.clone();
        on_machine(&self.core, &server.world, "close", async move {
            workload.read_back(&*volume).await;
            agreement.stop();
            let drives: Vec<_> = served.drives().collect();
            for (_, drive) in drives {
                let _ = drive.close().await; // a drive that is lost now is declared down at the next start
            }
        })
        .await;
    }

    /// Whether everything promised still has a copy.
    fn end(&mut self, end: End, world: &SimWorld) -> bool {
        world.kill();
        self.hardware.agreement.crashed(self.random.index(3));
        for bay in &self.hardware.bays {
            for disk in bay.disks() {
                match end {
                    End::PowerCut => disk.cut_power(),
                    End::Kill | End::Close => disk.process_killed(),
                }
                disk.heal();
            }
            if self.random.one_in(2) {
                bay.plug_in();
            }
        }
        // Nobody could tell from its log that there was more; in a server room it would be replaced.
        if self.hardware.bays[self.plan.victim].disks().any(SimDisk::log_end_is_unsure) {
            self.hardware.agreement.declare_down(drive_id(self.plan.victim), false);
            let is_up = |at: usize| self.hardware.agreement.status(drive_id(at)) == Status::Up;
            if self.plan.mirrored() && !(0..self.plan.drives).all(|at| at == self.plan.victim || is_up(at)) {
                return false; // another had left before it did, and may rely on it: two losses at once
            }
        }
        // A drive that was pulled has lost its cache. So has one whose flush failed, which counts for a stripe, and where the
        // process that knew was killed before it was agreed: then the drive looks as good as the others.
        let broken = self.plan.hazard == Hazard::Broken && (!self.plan.mirrored() || self.failed_flush_is_forgotten());
        let cache_lost = broken || self.plan.hazard == Hazard::Pulled;
        let loss = if end == End::PowerCut || cache_lost { Loss::Power } else { Loss::Process };
        self.checker.borrow_mut().crashed(self.core.now(), loss);
        self.album.server_died();
        if self.plan.snapshots && self.random.one_in(4) {
            self.album.roll_back(&mut self.random);
        }
        true
    }

    /// Whether a flush failed in this life, and the drive counts as up all the same.
    fn failed_flush_is_forgotten(&mut self) -> bool {
        let failed = self.hardware.bays[self.plan.victim].struck(|kind| kind == FaultKind::FlushError);
        let known = std::mem::replace(&mut self.failed_flushes, failed);
        failed > known && self.hardware.agreement.status(drive_id(self.plan.victim)) == Status::Up
    }

    /// Lets drives go wrong from now on, as planned.
    fn arm(&mut self, server: &Server, lies: bool) {
        match self.plan.hazard {
            Hazard::None | Hazard::Full => {}
            Hazard::Pulled => {
                let hand = Hand {
                    core: self.core.clone(),
                    server: server.clone(),
                    random: self.random.fork(),
                    is_seen: false,
                };
                let bays = self.hardware.bays.clone();
                server.world.spawn_named("hand", hand.pull_and_put_back(bays));
            }
            Hazard::Corruption => self.corrupt(server, lies),
            Hazard::Broken => {
                let (write_error, flush_error) = (rate(&mut self.random, 1), rate(&mut self.random, 1));
                let victim = &self.hardware.bays[self.plan.victim];
                let on_log = victim.log.is_some() && self.random.one_in(2);
                let disk = victim.log.as_ref().filter(|_| on_log).unwrap_or(&victim.disk);
                disk.set_faults(Faults { write_error, flush_error, ..Faults::default() });
            }
        }
    }

    /// Has snapshots come and go meanwhile, and the volume resized, if planned.
    fn operate(&mut self, server: &Server) {
        if self.plan.snapshots {
            let (album, keeper, random) = (self.album.clone(), server.clone(), self.random.fork());
            server.world.spawn_named("snapshots", album.use_often(keeper, random));
        }
        if !self.plan.resized {
            return;
        }
        let operator = Operator {
            core: self.core.clone(),
            server: server.clone(),
            record: self.hardware.record.clone(),
            workload: self.workload.clone(),
            random: self.random.fork(),
            most: self.plan.size,
        };
        server.world.spawn_named("operator", operator.resize_often());
    }

    fn corrupt(&mut self, server: &Server, lies: bool) {
        let Some(drive) = server.engine.drive(drive_id(self.plan.victim)) else { return };
        let bay = &self.hardware.bays[self.plan.victim];
        if self.plan.struck != Struck::Slots {
            let (disk, log) = bay.log_place(drive.geometry());
            disk.watch_log(log);
        }
        self.plan.corrupt(bay, drive.geometry(), lies, &mut self.random);
    }

    /// No faults any more: everything must be there, and come right.
    async fn last_life(&mut self) {
        self.hardware.bays.iter().for_each(Bay::plug_in);
        let (world, server) = self.boot();
        until(&self.core, NEVER, || server.borrow().is_some()).await;
        let Some(server) = server.borrow().clone() else { return };
        let (workload, agreement, plan) = (self.workload.clone(), self.hardware.agreement.clone(), self.plan.clone());
        let (album, random) = (self.album.clone(), self.random.fork());
        self.settled(&world, async move { converge(&server, &agreement, &workload, (&album, random), &plan).await })
            .await;
        if self.plan.removed && self.end(End::Kill, &world) {
            self.removal().await;
        }
    }

    async fn settled(&self, world: &SimWorld, work: impl Future<Output = Result<(), Unsettled>> + 'static) {
        if let Err(unsettled) = on_machine(&self.core, world, "converge", work).await {
            self.core.fail(unsettled.to_string());
            std::future::pending::<()>().await;
        }
    }

    /// The volume is removed under its users, while drives come and go, and the server crashes. All space must come back.
    async fn removal(&mut self) {
        for _ in 0..self.random.between(1..4) {
            let end = *self.random.pick(&[End::Kill, End::PowerCut]);
            let deadline = self.core.steps() + self.random.skewed(4_000);
            let (world, server) = self.boot();
            until(&self.core, deadline, || server.borrow().is_some()).await;
            let server = server.borrow().clone();
            if let Some(server) = server {
                let hand = Hand {
                    core: self.core.clone(),
                    server: server.clone(),
                    random: self.random.fork(),
                    is_seen: false,
                };
                if self.hardware.record.state() == VolumeState::Active {
                    self.workload.start(&world, &server.under_test(), 100);
                    until(&self.core, self.core.steps() + self.random.skewed(1_000), || false).await;
                    server.begin_removal();
                }
                // Not before: the volume's users may rely on the drives that there are.
                world.spawn_named("hand", hand.pull_and_put_back(self.hardware.bays.clone()));
                until(&self.core, deadline, || false).await;
            }
            if !self.end(end, &world) {
                return;
            }
        }
        self.hardware.bays.iter().for_each(Bay::plug_in);
        let (world, server) = self.boot();
        until(&self.core, NEVER, || server.borrow().is_some()).await;
        let Some(server) = server.borrow().clone() else { return };
        if self.hardware.record.state() == VolumeState::Active {
            server.begin_removal();
        }
        if self.random.one_in(2) {
            let hand =
                Hand { core: self.core.clone(), server: server.clone(), random: self.random.fork(), is_seen: true };
            on_machine(&self.core, &world, "hand", hand.pull_and_put_back(self.hardware.bays.clone())).await;
        }
        let (agreement, record) = (self.hardware.agreement.clone(), self.hardware.record.clone());
        self.settled(&world, async move { removal_ends(&server, &agreement, &record).await }).await;
    }
}

async fn converge(
    server: &Server,
    agreement: &Agreement,
    workload: &Workload,
    (album, random): (&Album, Stream),
    plan: &Plan,
) -> Result<(), Unsettled> {
    let retired = (0..plan.drives).any(|at| matches!(agreement.status(drive_id(at)), Status::Retired(_)));
    if !plan.mirrored() && retired {
        return Ok(()); // what was on it is lost, and said to be
    }
    become_healthy(server, agreement, plan.drives).await?;
    workload.read_back(&*server.under_test()).await;
    let faulty = matches!(plan.hazard, Hazard::Corruption | Hazard::Broken);
    scrub_clean(server, faulty, faulty && !plan.mirrored()).await?;
    copies_are_equal(server).await?;
    workload.read_back(&*server.under_test()).await;
    album.all_are_right(server, plan, random).await?;
    copies_are_equal(server).await?;
    if plan.removed { Ok(()) } else { space_returns(server, plan.size, faulty && !plan.mirrored()).await }
}
