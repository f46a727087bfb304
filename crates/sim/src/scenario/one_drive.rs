//! One drive under a workload of one map: killed, cut from power and pulled at any step, with its log on itself or on
//! another device, full, enlarged between its lives, and with every fault that a drive has.
//!
//! What must hold: everything acknowledged is there after every crash; no read returns wrong bytes, whatever the drive
//! did; an error only where the fault log has its cause; and space is accounted for to the extent.

use super::drive_volume::DriveVolume;
use super::life::{End, NEVER, on_machine, until};
use crate::checker::{Checker, Loss, Rules};
use crate::device::{FaultKind, Faults, Rate, SimDevice, SimDisk};
use crate::executor::{Core, Executor, Failure, Sleep};
use crate::random::Stream;
use crate::workload::{MayFail, Mix, Workload};
use crate::world::SimWorld;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use tepal_drive::error::OpenError;
use tepal_drive::geometry::{MIN_LOG, SUM_RECORD};
use tepal_drive::world::Device;
use tepal_drive::{Drive, DriveError, GrowError, Label, NewDrive, Options, Usage, format, grow, prepare_growth};
use tepal_model::layout::Durability;
use tepal_model::{BLOCK, ClusterId, DriveId, EXTENT, IoError, Lineage, MapId};

const MAP: MapId = MapId(7);

/// What goes wrong besides crashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hazard {
    None,
    /// The volume is larger than the drive.
    Full,
    /// Blocks rot, writes are lost or go astray.
    Corruption,
    /// Reads fail.
    ReadErrors,
    /// A write or a flush fails.
    Broken,
    /// The drive is pulled, and put back.
    Pulled,
}

#[derive(Clone, Debug)]
struct Plan {
    hazard: Hazard,
    durability: Durability,
    size: u64,
    volume: u64,
    log_device: Option<u64>,
    options: Options,
    lives: u64,
    /// Its device is enlarged before some lives, which begin with taking the room.
    grows: bool,
    mix: Mix,
}

impl Plan {
    fn draw(random: &mut Stream) -> Self {
        use Hazard::{Broken, Corruption, Full, Pulled, ReadErrors};
        let hazard = *random.pick(&[Hazard::None, Hazard::None, Full, Corruption, ReadErrors, Broken, Pulled]);
        let size = random.between(8..24) << 20;
        let volume = if hazard == Full { 2 * size } else { size / 2 } / BLOCK * BLOCK;
        let mut mix = Mix::draw(random, volume);
        if hazard == Full {
            mix.hot = volume;
            mix.trim += 1;
        }
        Plan {
            hazard,
            durability: *random.pick(&[Durability::Strict, Durability::Flush]),
            size,
            volume,
            log_device: if random.one_in(4) { Some(random.between(2..4) << 20) } else { None },
            options: Options {
                sum_cache: *random.pick(&[16 << 10, 64 << 20]),
                pending: *random.pick(&[64 << 10, 1 << 20, 16 << 20]),
                discard: random.one_in(2),
                ..Options::default()
            },
            lives: random.between(1..6),
            // What is to be damaged lies side by side in drives that haven't grown.
            grows: random.one_in(3) && hazard != Corruption,
            mix,
        }
    }
}

pub fn run(executor: &Executor, mut random: Stream) -> Result<u64, Failure> {
    let plan = Plan::draw(&mut random);
    let core = executor.core().clone();
    core.note(0, || format!("{plan:?}"));
    executor.run(async move { Rig::new(&core, plan, random).run().await })
}

/// The hardware and who watches it.
struct Rig {
    core: Rc<Core>,
    plan: Plan,
    random: Stream,
    disk: SimDisk,
    log: Option<SimDisk>,
    checker: Rc<RefCell<Checker>>,
    workload: Workload,
    /// The bytes of the drive that hold data.
    slots: Range<u64>,
}

/// What a life has come to.
#[derive(Default)]
struct Life {
    volume: RefCell<Option<Rc<DriveVolume>>>,
    refused: RefCell<Option<OpenError>>,
}

/// A failure of the run: told to the core, which ends it.
struct Told;

impl Rig {
    fn new(core: &Rc<Core>, plan: Plan, mut random: Stream) -> Self {
        let disk = SimDisk::new(core, "d0", plan.size);
        let log = plan.log_device.map(|size| SimDisk::new(core, "log", size));
        let rules = Rules { durability: plan.durability, reads_settle: true, late: false };
        let checker = Rc::new(RefCell::new(Checker::new(random.draw(), rules)));
        let may_fail = may_fail(plan.hazard, &disk, log.as_ref());
        let workload = Workload::new(core, checker.clone(), plan.mix.clone(), may_fail);
        Rig { core: core.clone(), plan, random, disk, log, checker, workload, slots: 0..0 }
    }

    async fn run(mut self) -> u64 {
        let world = SimWorld::boot(&self.core, "format");
        let new = NewDrive {
            cluster: ClusterId(1),
            drive: DriveId(1),
            pool: "default".to_owned(),
            log_length: self.plan.log_device.is_none().then_some(MIN_LOG),
        };
        let (device, log) = (self.disk.open(), self.log.as_ref().map(SimDisk::open));
        if let Err(error) = format(&device, log.as_ref(), new).await {
            self.core.fail(format!("formatting failed: {error}"));
        }
        drop(world);
        for _ in 0..self.plan.lives {
            if self.live().await.is_err() {
                return std::future::pending().await;
            }
        }
        let _ = self.last_life().await;
        self.checker.borrow().count() as u64
    }

    fn disks(&self) -> impl Iterator<Item = &SimDisk> {
        std::iter::once(&self.disk).chain(&self.log)
    }

    /// Starts a process that opens the drive, and then goes on with `work`.
    fn boot(&self, life: &Rc<Life>) -> SimWorld {
        let world = SimWorld::boot(&self.core, "server");
        let (device, log) = (self.disk.open(), self.log.as_ref().map(SimDisk::open));
        let (options, volume, durability) = (self.plan.options.clone(), self.plan.volume, self.plan.durability);
        let (life, own, grows, core) = (life.clone(), world.clone(), self.plan.grows, self.core.clone());
        world.spawn_named("open", async move {
            if grows && let Err(error) = take_room(&device).await {
                core.fail(format!("growing failed: {error}"));
            }
            match Drive::open(own.clone(), device, log, options).await {
                Ok(drive) => {
                    let opened = DriveVolume::new(own, drive, MAP, volume, durability);
                    *life.volume.borrow_mut() = Some(Rc::new(opened));
                }
                Err(error) => *life.refused.borrow_mut() = Some(error),
            }
        });
        world
    }

    async fn live(&mut self) -> Result<(), Told> {
        let drawn = End::draw(&mut self.random);
        // One copy can't tell data that the drive lost from data that a power cut prevented, so that only mirrors survive both.
        let end = if self.plan.hazard == Hazard::Corruption { End::Close } else { drawn };
        let life = Rc::new(Life::default());
        if self.plan.grows && self.random.one_in(2) {
            self.disk.enlarge(self.disk.size() + self.random.skewed(8 << 20));
        }
        let world = self.boot(&life);
        // A crash comes at some step: while it opens, while it works, or when all is done.
        let requests = self.random.between(20..1_000);
        let deadline = self.core.steps() + end.steps(&mut self.random, requests);
        let opened =
            until(&self.core, deadline, || life.volume.borrow().is_some() || life.refused.borrow().is_some()).await;
        if let Some(error) = life.refused.borrow_mut().take() {
            self.excuse_refusal(&error)?;
        }
        let volume = life.volume.borrow().clone();
        if let (true, Some(volume)) = (opened, volume) {
            self.arm(&volume);
            self.workload.start(&world, &volume, requests);
            let workload = self.workload.clone();
            let lost = || volume.drive().loss().is_some();
            let ended = until(&self.core, deadline, || workload.is_done() || lost()).await;
            if lost() {
                workload.stop();
            } else if ended && end == End::Close {
                self.read_back_in(&world, &volume).await;
                self.close(&world, &volume).await;
            }
        }
        self.end(end, &world);
        Ok(())
    }

    async fn read_back_in(&self, world: &SimWorld, volume: &Rc<DriveVolume>) {
        let (workload, volume) = (self.workload.clone(), volume.clone());
        on_machine(&self.core, world, "read-back", async move { workload.read_back(&*volume).await }).await;
    }

    async fn close(&self, world: &SimWorld, volume: &Rc<DriveVolume>) {
        let volume = volume.clone();
        let closed = on_machine(&self.core, world, "close", async move { volume.drive().close().await }).await;
        let may_be_lost = !matches!(self.plan.hazard, Hazard::None | Hazard::Full);
        if let Err(loss) = closed
            && !may_be_lost
        {
            self.core.fail(format!("closing failed: {loss}"));
        }
    }

    /// Ends the process, and puts back what was pulled.
    fn end(&self, end: End, world: &SimWorld) {
        world.kill();
        // What a failed flush has left in the cache is seen until the power is cut, and must not be used again. A drive
        // that was retired isn't opened by another process; here a power cut stands for that.
        let flush_failed = self.disks().any(|disk| disk.fault_log().count(|kind| kind == FaultKind::FlushError) > 0);
        let end = if flush_failed { End::PowerCut } else { end };
        for disk in self.disks() {
            match end {
                End::PowerCut => disk.cut_power(),
                End::Kill | End::Close => disk.process_killed(),
            }
            disk.heal();
            disk.plug_in();
        }
        // A drive that was pulled, or whose flush failed, has lost its cache as in a power cut.
        let cache_lost = end == End::PowerCut || matches!(self.plan.hazard, Hazard::Pulled | Hazard::Broken);
        let loss = if cache_lost { Loss::Power } else { Loss::Process };
        self.checker.borrow_mut().crashed(self.core.now(), loss);
    }

    /// Lets the drive go wrong from now on, as planned.
    fn arm(&mut self, volume: &DriveVolume) {
        let geometry = volume.drive().geometry();
        self.slots = geometry.slots_start..geometry.slots_start + u64::from(geometry.slots) * EXTENT;
        let random = &mut self.random;
        let mut rate =
            |most: u64| Rate::at_most(random.below(most + 1) as u32, *random.pick(&[2_000, 20_000, 200_000]));
        match self.plan.hazard {
            Hazard::None | Hazard::Full => {}
            Hazard::Corruption => {
                let (lost_write, misdirected_write, misdirected_read) = (rate(2), rate(2), rate(2));
                let within = self.slots.clone();
                let faults = Faults { lost_write, misdirected_write, misdirected_read, within, ..Faults::default() };
                self.disk.set_faults(faults);
                for _ in 0..self.random.below(3) {
                    let sums = volume.drive().geometry().sums.offset(0, 0);
                    let everywhere = if self.random.one_in(3) { sums..self.slots.end } else { self.slots.clone() };
                    self.disk.rot_somewhere(everywhere);
                }
            }
            Hazard::ReadErrors => {
                let read_error = rate(4);
                let mut unreadable = Vec::new();
                if self.random.one_in(2) {
                    let offset = self.random.between(self.slots.clone()) / BLOCK * BLOCK;
                    unreadable.push(offset..offset + 512);
                }
                self.disk.set_faults(Faults { read_error, unreadable, ..Faults::default() });
            }
            Hazard::Broken => {
                let (write_error, flush_error) = (rate(1), rate(1));
                let faults = Faults { write_error, flush_error, ..Faults::default() };
                let on_log = self.random.one_in(2);
                self.log.as_ref().filter(|_| on_log).unwrap_or(&self.disk).set_faults(faults);
            }
            Hazard::Pulled => {
                let (disk, core) = (self.disk.clone(), self.core.clone());
                let after = self.random.skewed(10_000);
                let pulled = async move {
                    Sleep::steps(&core, after).await;
                    disk.pull();
                };
                volume.world().spawn_named("hand", pulled);
            }
        }
    }

    /// The drive refuses to open: fine if it has a reason.
    fn excuse_refusal(&self, error: &OpenError) -> Result<(), Told> {
        let damaged = self.disks().any(|disk| disk.fault_log().damaged().next().is_some());
        let unreadable = self.plan.hazard == Hazard::ReadErrors;
        if damaged || unreadable {
            return Ok(());
        }
        self.core.fail(format!("the drive can't be opened: {error}"));
        Err(Told)
    }

    /// Everything must be there; then everything is given back, and nothing may be left.
    async fn last_life(&mut self) -> Result<(), Told> {
        let life = Rc::new(Life::default());
        let world = self.boot(&life);
        until(&self.core, NEVER, || life.volume.borrow().is_some() || life.refused.borrow().is_some()).await;
        if let Some(error) = life.refused.borrow_mut().take() {
            return self.excuse_refusal(&error);
        }
        let Some(volume) = life.volume.borrow().clone() else { return Ok(()) };
        self.read_back_in(&world, &volume).await;
        let (core, whole) = (self.core.clone(), self.plan.volume);
        let faults = self.disk.fault_log().struck.len() as u64;
        let outcome =
            on_machine(&self.core, &world, "accounts", async move { accounts(&core, &volume, whole, faults).await })
                .await;
        if let Err(wrong) = outcome {
            self.core.fail(wrong.to_string());
            return std::future::pending().await;
        }
        Ok(())
    }
}

/// Has the drive take all of its device, if that gains it anything.
async fn take_room(device: &SimDevice) -> Result<(), GrowError> {
    let label = Label::read(device).await?;
    let grown = match label.grown(device.size()) {
        Err(GrowError::NoRoom { .. } | GrowError::TooLittle { .. }) => return Ok(()),
        grown => grown?,
    };
    prepare_growth(device, &grown).await?;
    grow(device, label.drive, grown.size).await.map(drop)
}

/// What the books of a drive have wrong.
#[derive(Debug, thiserror::Error)]
enum Unaccounted {
    #[error("scrubbing failed: {0}")]
    Scrub(DriveError),
    #[error("scrub found {damaged} damaged blocks, and {faults} faults struck")]
    Damaged { damaged: u64, faults: u64 },
    #[error("{mapped} bytes of extents hold data, and the books say {usage:?}")]
    Mapped { mapped: u64, usage: Usage },
    #[error("removing the map failed: {0}")]
    Remove(DriveError),
    #[error("closing failed: {0}")]
    Close(Arc<tepal_drive::Loss>),
    #[error("an emptied drive says {usage:?}, and {unaccounted} slots are unaccounted for")]
    NotEmpty { usage: Usage, unaccounted: i64 },
}

/// Scrubs, compares the books with what is there, gives everything back and looks again.
async fn accounts(core: &Rc<Core>, volume: &DriveVolume, size: u64, faults: u64) -> Result<(), Unaccounted> {
    let drive = volume.drive();
    let report = drive.scrub(None, |_| std::future::ready(())).await.map_err(Unaccounted::Scrub)?;
    // One block of checksums is about many blocks of data.
    let excused = faults * (BLOCK / SUM_RECORD as u64) * (EXTENT / BLOCK);
    let damaged = report.damaged.len() as u64;
    if damaged > excused {
        return Err(Unaccounted::Damaged { damaged, faults });
    }
    let mapped = extents_with_data(&drive.present(MAP, 0, size / BLOCK, u64::MAX, &Lineage::default())) * EXTENT;
    let usage = drive.usage();
    if usage.used != mapped || drive.allocated_of(MAP) != mapped {
        return Err(Unaccounted::Mapped { mapped, usage });
    }
    core.note(1, || format!("{usage:?}, scrubbed {report:?}"));
    drive.remove_map(MAP).await.map_err(Unaccounted::Remove)?;
    drive.close().await.map_err(Unaccounted::Close)?;
    let (usage, unaccounted) = (drive.usage(), drive.slots_unaccounted());
    if usage.used != 0 || unaccounted != 0 { Err(Unaccounted::NotEmpty { usage, unaccounted }) } else { Ok(()) }
}

fn extents_with_data(runs: &[(u64, bool)]) -> u64 {
    let mut block = 0;
    let mut extents = BTreeSet::new();
    for &(count, present) in runs {
        if present {
            extents.extend(block * BLOCK / EXTENT..=(block + count - 1) * BLOCK / EXTENT);
        }
        block += count;
    }
    extents.len() as u64
}

/// Which failures the faults that have struck so far excuse.
fn may_fail(hazard: Hazard, disk: &SimDisk, log: Option<&SimDisk>) -> MayFail {
    let disks: Vec<SimDisk> = std::iter::once(disk).chain(log).cloned().collect();
    Rc::new(move |error, _, _, _| {
        let struck = |kinds: &dyn Fn(FaultKind) -> bool| disks.iter().any(|disk| disk.fault_log().count(kinds) > 0);
        match error {
            IoError::OutOfSpace => hazard == Hazard::Full,
            IoError::Damaged { .. } => struck(&|kind| {
                use FaultKind::{LostWrite, MisdirectedRead, MisdirectedWrite, ReadError, Rot};
                matches!(kind, LostWrite | MisdirectedWrite { .. } | MisdirectedRead { .. } | ReadError | Rot)
            }),
            IoError::Unavailable { .. } => struck(&|kind| {
                use FaultKind::{FlushError, Pulled, ReadError, Rot, WriteError};
                matches!(kind, WriteError | FlushError | Pulled | ReadError | Rot)
            }),
            _ => false,
        }
    })
}
