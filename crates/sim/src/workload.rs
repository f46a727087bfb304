//! Clients of a volume: reads, writes, flushes, trims and zeroings of all sizes, many at once and mostly of the same few
//! places, each told to the checker before it's sent and when it ends.

use crate::checker::{Checker, Fate, Kind, OpId};
use crate::executor::Core;
use crate::random::Stream;
use crate::world::SimWorld;
use bytes::Bytes;
use futures_util::future::{Either, select};
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::ops::Range;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;
use tepal_drive::world::Clock;
use tepal_engine::Run;
use tepal_model::buffer::join;
use tepal_model::{BLOCK, IoError, Segments};

/// What is tested: a virtual disk, as a front-end sees it.
pub trait VolumeUnderTest: 'static {
    fn size(&self) -> u64;
    fn read(&self, offset: u64, length: u64) -> impl Future<Output = Result<Segments, IoError>>;
    fn write(&self, offset: u64, data: Bytes, fua: bool) -> impl Future<Output = Result<(), IoError>>;
    fn flush(&self) -> impl Future<Output = Result<(), IoError>>;
    fn trim(&self, offset: u64, length: u64, fua: bool) -> impl Future<Output = Result<(), IoError>>;
    fn write_zeroes(&self, offset: u64, length: u64, fua: bool) -> impl Future<Output = Result<(), IoError>>;
    fn block_status(&self, offset: u64, length: u64, limit: usize) -> impl Future<Output = Result<Vec<Run>, IoError>>;

    /// Whether a discard that comes now surely changes nothing.
    fn passes_over_trims(&self) -> bool {
        false
    }
}

/// What clients do, and how often, as weights.
#[derive(Clone, Debug)]
pub struct Mix {
    pub read: u32,
    pub write: u32,
    pub flush: u32,
    pub trim: u32,
    pub zeroes: u32,
    /// Questions which blocks are holes.
    pub status: u32,
    /// Of a million writes, so many with FUA.
    pub fua_per_million: u32,
    /// Of a million requests, so many are given up half way.
    pub abandon_per_million: u32,
    /// Of a million requests, so many are not whole blocks.
    pub unaligned_per_million: u32,
    /// All requests are in multiples of it.
    pub sector: u64,
    /// Requests are at most so long.
    pub longest: u64,
    /// Most requests go to the first bytes of the volume, so many.
    pub hot: u64,
    /// Requests are only sent to the first bytes of the volume, so many.
    pub reach: u64,
    pub clients: u32,
    /// After a request a client waits at most so long before its next.
    pub pause: Duration,
}

impl Mix {
    /// A mix of its own for each seed, so that some seeds do one thing a lot.
    pub fn draw(random: &mut Stream, size: u64) -> Self {
        let hot = (BLOCK << random.below(9)).min(size);
        Mix {
            read: random.between(2..20) as u32,
            write: random.between(5..20) as u32,
            flush: random.below(3) as u32,
            trim: random.below(4) as u32,
            zeroes: random.below(3) as u32,
            status: 0,
            fua_per_million: *random.pick(&[0, 50_000, 500_000]),
            abandon_per_million: *random.pick(&[0, 0, 20_000]),
            unaligned_per_million: *random.pick(&[0, 200_000, 700_000]),
            sector: 1,
            longest: *random.pick(&[16 << 10, 64 << 10, 256 << 10, 2 << 20]),
            hot,
            reach: size,
            clients: random.skewed(32) as u32,
            pause: Duration::ZERO,
        }
    }
}

/// Whether this failure of a request is one that the faults so far excuse.
pub type MayFail = Rc<dyn Fn(&IoError, Kind, u64, u64) -> bool>;

/// The clients of one volume. Clones share everything.
#[derive(Clone)]
pub struct Workload {
    core: Rc<Core>,
    checker: Rc<RefCell<Checker>>,
    mix: Rc<Mix>,
    random: Rc<RefCell<Stream>>,
    may_fail: MayFail,
    running: Rc<Cell<u32>>,
    left: Rc<Cell<u64>>,
    refused: Rc<Cell<u64>>,
    holder: Option<Rc<Holder>>,
}

/// Whoever holds a volume, until it's taken away.
#[derive(Default)]
pub struct Holder {
    changes: RefCell<Vec<OpId>>,
    is_fenced: Cell<bool>,
}

impl Holder {
    /// From now on, nothing more that it asks for may be done. What it has asked for to be changed.
    pub fn fence(&self) -> Vec<OpId> {
        self.is_fenced.set(true);
        self.changes.take()
    }
}

/// No client asks for more runs at a time.
const MOST_RUNS: usize = 64;

/// The checker judges a block the faster, the fewer requests overlap in it.
const OVERLAP: usize = 5;

impl Workload {
    pub fn new(core: &Rc<Core>, checker: Rc<RefCell<Checker>>, mix: Mix, may_fail: MayFail) -> Self {
        Workload {
            core: core.clone(),
            checker,
            mix: Rc::new(mix),
            random: Rc::new(RefCell::new(core.fork())),
            may_fail,
            running: Rc::default(),
            left: Rc::default(),
            refused: Rc::default(),
            holder: None,
        }
    }

    /// The clients are this holder's.
    pub fn held_by(self, holder: Rc<Holder>) -> Self {
        Workload { holder: Some(holder), ..self }
    }

    /// Lets the clients send so many requests in all, as tasks of `world`'s machine: they die with it.
    pub fn start(&self, world: &SimWorld, volume: &Rc<impl VolumeUnderTest>, requests: u64) {
        self.left.set(requests);
        self.running.set(self.mix.clients);
        for _ in 0..self.mix.clients {
            let (workload, world, volume) = (self.clone(), world.clone(), volume.clone());
            world.clone().spawn_named("client", async move {
                while let Some(left) = workload.left.get().checked_sub(1) {
                    workload.left.set(left);
                    workload.one(&world, &*volume).await;
                    workload.rest(&world).await;
                }
                workload.running.set(workload.running.get() - 1);
            });
        }
    }

    async fn rest(&self, world: &SimWorld) {
        if !self.mix.pause.is_zero() {
            let longest = self.random.borrow_mut().skewed(self.mix.pause.as_micros() as u64);
            world.sleep(Duration::from_micros(longest)).await;
        }
    }

    /// Whether every client has come to its end. Killed ones never do.
    pub fn is_done(&self) -> bool {
        self.running.get() == 0
    }

    /// Lets every client end after the request that it has under way.
    pub fn stop(&self) {
        self.left.set(0);
    }

    /// How many requests failed, and were excused.
    pub fn refused(&self) -> u64 {
        self.refused.get()
    }

    /// A range for a request to a volume of this size: mostly near the start, aligned or not.
    fn range(&self, random: &mut Stream, size: u64) -> (u64, u64) {
        let mix = &self.mix;
        let reach = mix.reach.min(size);
        let end = if random.one_in(8) { reach } else { mix.hot.min(reach) };
        if random.chance(mix.unaligned_per_million) {
            let (sector, end) = (mix.sector, end / mix.sector * mix.sector);
            let offset = random.below(end) / sector * sector;
            return (offset, random.skewed(mix.longest).next_multiple_of(sector).min(end - offset));
        }
        let block = random.below(end / BLOCK);
        let length = random.skewed(mix.longest / BLOCK) * BLOCK;
        (block * BLOCK, length.min(end / BLOCK * BLOCK - block * BLOCK))
    }

    fn choose(&self, size: u64) -> Option<(Kind, u64, u64)> {
        let mut random = self.random.borrow_mut();
        let mix = &self.mix;
        let fua = random.chance(mix.fua_per_million);
        let kind = match random.weighted(&[mix.read, mix.write, mix.flush, mix.trim, mix.zeroes, mix.status]) {
            0 => Kind::Read,
            1 => Kind::Write { fua },
            2 => return Some((Kind::Flush, 0, 0)),
            3 => Kind::Trim { fua },
            4 => Kind::Zeroes { fua },
            _ => Kind::Status,
        };
        for _ in 0..8 {
            let (offset, length) = self.range(&mut random, size);
            if self.checker.borrow().load(offset, length) < OVERLAP {
                return Some((kind, offset, length));
            }
        }
        None
    }

    async fn one(&self, world: &SimWorld, volume: &impl VolumeUnderTest) {
        let Some((kind, offset, length)) = self.choose(volume.size()) else {
            return world.sleep(Duration::from_micros(200)).await;
        };
        let patience = {
            let mut random = self.random.borrow_mut();
            let abandons = kind != Kind::Flush && random.chance(self.mix.abandon_per_million);
            if abandons { Some(Duration::from_micros(random.below(400))) } else { None }
        };
        let request = pin!(self.request(volume, kind, offset, length));
        let Some(patience) = patience else { return request.await };
        let sleep = pin!(world.sleep(patience));
        if let Either::Right(((), _request)) = select(request, sleep).await {
            // The request's future is dropped here; its end is told by the guard in it.
        }
    }

    /// Sends one request and judges how it ends.
    pub async fn request(&self, volume: &impl VolumeUnderTest, kind: Kind, offset: u64, length: u64) {
        let op = self.checker.borrow_mut().begin(self.core.now(), kind, offset, length);
        self.core.note(u64::from(op.0), || format!("#{} {kind:?} {offset}+{length}", op.0));
        let is_forbidden = self.note_change(op, kind);
        let guard = Guard { workload: self, op, ended: Cell::new(false) };
        let is_passed_over = matches!(kind, Kind::Trim { .. }) && volume.passes_over_trims();
        let result = match kind {
            Kind::Read => match volume.read(offset, length).await {
                Ok(segments) => {
                    guard.ended.set(true);
                    return self.judge(|checker, now| checker.returned(now, op, &join(&segments)), op);
                }
                Err(error) => Err(error),
            },
            Kind::Write { fua } => {
                let data = self.checker.borrow().data(op);
                volume.write(offset, data, fua).await
            }
            Kind::Trim { fua } => volume.trim(offset, length, fua).await,
            Kind::Zeroes { fua } => volume.write_zeroes(offset, length, fua).await,
            Kind::Flush => volume.flush().await,
            Kind::Status => match volume.block_status(offset, length, MOST_RUNS).await {
                Ok(runs) => {
                    guard.ended.set(true);
                    let runs: Vec<_> = runs.into_iter().map(|run| (run.length, run.mapped)).collect();
                    return self.judge(|checker, now| checker.told(now, op, &runs), op);
                }
                Err(error) => Err(error),
            },
            Kind::Cut | Kind::RollBack | Kind::Crash(_) => unreachable!("a client sends no such thing"),
        };
        guard.ended.set(true);
        match result {
            Ok(()) if is_forbidden => self.core.fail(format!("#{} of a fenced client was acknowledged", op.0)),
            Ok(()) if is_passed_over => self.judge(|checker, now| checker.failed(now, op, Fate::Refused), op),
            Ok(()) => self.judge(|checker, now| checker.acknowledged(now, op), op),
            Err(error) => self.excuse(op, &error, kind, offset, length),
        }
    }

    /// Whether it mustn't be done, since whoever asks for it was fenced before.
    fn note_change(&self, op: OpId, kind: Kind) -> bool {
        let Some(holder) = self.holder.as_ref().filter(|_| kind.is_write()) else { return false };
        match holder.is_fenced.get() {
            true => self.checker.borrow_mut().forbidden(op),
            false => holder.changes.borrow_mut().push(op),
        }
        holder.is_fenced.get()
    }

    /// Has what lies in these bytes, past the volume's end, taken out, and says whether it surely is.
    pub async fn cut(&self, range: Range<u64>, work: impl Future<Output = Option<Result<(), IoError>>>) -> bool {
        let (offset, length) = (range.start, range.end - range.start);
        let op = self.checker.borrow_mut().begin(self.core.now(), Kind::Cut, offset, length);
        self.core.note(u64::from(op.0), || format!("#{} cut {offset}+{length}", op.0));
        let guard = Guard { workload: self, op, ended: Cell::new(false) };
        let result = work.await;
        let Some(result) = result else { return false }; // it was given up
        guard.ended.set(true);
        match &result {
            Ok(()) => self.judge(|checker, now| checker.acknowledged(now, op), op),
            Err(error) => self.excuse(op, error, Kind::Cut, offset, length),
        }
        result.is_ok()
    }

    /// A flush that isn't a client's, and that says whether all is stable now.
    pub async fn flush(&self, volume: &impl VolumeUnderTest) -> bool {
        let op = self.checker.borrow_mut().begin(self.core.now(), Kind::Flush, 0, 0);
        self.core.note(u64::from(op.0), || format!("#{} Flush", op.0));
        let guard = Guard { workload: self, op, ended: Cell::new(false) };
        let result = volume.flush().await;
        guard.ended.set(true);
        match &result {
            Ok(()) => self.judge(|checker, now| checker.acknowledged(now, op), op),
            Err(error) => self.excuse(op, error, Kind::Flush, 0, 0),
        }
        result.is_ok()
    }

    /// Whether the faults so far excuse that this fails.
    pub fn is_excused(&self, error: &IoError, kind: Kind, offset: u64, length: u64) -> bool {
        (self.may_fail)(error, kind, offset, length)
    }

    fn excuse(&self, op: OpId, error: &IoError, kind: Kind, offset: u64, length: u64) {
        if !(self.may_fail)(error, kind, offset, length) {
            return self.core.fail(format!("#{} {kind:?} {offset}+{length} failed without need: {error}", op.0));
        }
        self.refused.set(self.refused.get() + 1);
        self.core.note(u64::from(op.0), || format!("#{} failed: {error}", op.0));
        let fate = match (error, kind) {
            // Of several blocks, some may lie on drives that have space.
            (IoError::OutOfSpace, Kind::Write { .. }) if offset / BLOCK == (offset + length - 1) / BLOCK => {
                Fate::Refused
            }
            // It was refused whole; of a part, others may have been done.
            (IoError::OutOfRange { offset: at, length: of, .. }, _) if (*at, *of) == (offset, length) && *of > 1 => {
                Fate::Refused
            }
            (IoError::ReadOnly | IoError::NotAllowed, _) => Fate::Refused,
            _ => Fate::Unknown, // the edges of a trim are writes of their own
        };
        self.judge(|checker, now| checker.failed(now, op, fate), op);
    }

    fn judge<E: std::fmt::Display>(&self, verdict: impl FnOnce(&mut Checker, Duration) -> Result<(), E>, op: OpId) {
        let now = self.core.now();
        self.core.note(u64::from(op.0), || format!("#{} ends", op.0));
        if let Err(violation) = verdict(&mut self.checker.borrow_mut(), now) {
            self.core.fail(violation.to_string());
        }
    }

    /// Reads everything that was ever touched, one piece after another.
    pub async fn read_back(&self, volume: &impl VolumeUnderTest) {
        let touched = self.checker.borrow().touched();
        for range in touched {
            let mut offset = range.start;
            while offset < range.end {
                let end = range.end.min(offset + (1 << 20)).min(volume.size());
                if offset >= end {
                    break;
                }
                self.request(volume, Kind::Read, offset, end - offset).await;
                offset = end;
            }
        }
    }
}

/// Tells the checker when a request's future is dropped before it ends.
struct Guard<'a> {
    workload: &'a Workload,
    op: OpId,
    ended: Cell<bool>,
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if !self.ended.get() {
            self.workload.judge(|checker, now| checker.failed(now, self.op, Fate::Unknown), self.op);
        }
    }
}
