//! The program that goes on while things fail under it: random blocks written and read back, each answer checked.

use super::TourError;
use super::pattern::{self, Found, Stamp};
use crate::disk::{Disk, Request};
use nix::errno::Errno;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tepal_model::BLOCK;

const DEPTH: usize = 16;
/// One request in so many is a read.
const READS: u64 = 4;

/// What is known to be on the volume: of each block, the last write that was acknowledged.
#[derive(Clone, Debug)]
pub struct Ledger {
    pub seed: u64,
    pub versions: Vec<u64>,
}

impl Ledger {
    pub fn stamp(&self, block: usize) -> Stamp {
        Stamp { seed: self.seed, block: block as u64, version: self.versions[block] }
    }

    /// Whether this is what the block must hold.
    pub fn check(&self, block: usize, found: Found) -> Result<(), TourError> {
        match found == Found::Written(self.stamp(block)) {
            true => Ok(()),
            false => Err(TourError::Wrong { offset: block as u64 * BLOCK, wanted: self.stamp(block), found }),
        }
    }
}

struct Shared {
    stop: AtomicBool,
    answered: AtomicU64,
    /// The longest time without any answer since [`Writer::forget_waits`], in microseconds.
    longest_wait: AtomicU64,
    /// Of each block, the last write that was begun, and the last that was answered.
    begun: Vec<AtomicU64>,
    ended: Vec<AtomicU64>,
}

pub struct Writer {
    shared: Arc<Shared>,
    thread: JoinHandle<Result<Ledger, TourError>>,
}

impl Writer {
    pub fn start(disk: Arc<Disk>, ledger: Ledger) -> Result<Self, TourError> {
        let versions = || ledger.versions.iter().map(|&version| AtomicU64::new(version)).collect();
        let shared = Arc::new(Shared {
            stop: AtomicBool::new(false),
            answered: AtomicU64::new(0),
            longest_wait: AtomicU64::new(0),
            begun: versions(),
            ended: versions(),
        });
        let work = Work::new(ledger, shared.clone());
        let thread = std::thread::Builder::new().name("writer".into()).spawn(move || work.run(&disk));
        Ok(Writer { shared, thread: thread.map_err(TourError::Thread)? })
    }

    pub fn answered(&self) -> u64 {
        self.shared.answered.load(Ordering::Acquire)
    }

    pub fn forget_waits(&self) {
        self.shared.longest_wait.store(0, Ordering::Release);
    }

    pub fn longest_wait(&self) -> Duration {
        Duration::from_micros(self.shared.longest_wait.load(Ordering::Acquire))
    }

    /// Of each block, the last write that was begun by now.
    pub fn begun(&self) -> Vec<u64> {
        self.shared.begun.iter().map(|version| version.load(Ordering::Acquire)).collect()
    }

    /// Of each block, the last write that was answered by now.
    pub fn ended(&self) -> Vec<u64> {
        self.shared.ended.iter().map(|version| version.load(Ordering::Acquire)).collect()
    }

    /// It found something wrong, and has ended.
    pub fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }

    /// Ends it after what is in flight, and gives what must be on the volume now.
    pub fn finish(self) -> Result<Ledger, TourError> {
        self.shared.stop.store(true, Ordering::Release);
        self.thread.join().map_err(|_| TourError::Writer)?
    }
}

enum Tag {
    Read { block: usize },
    Write { block: usize },
}

struct Work {
    ledger: Ledger,
    shared: Arc<Shared>,
    /// Blocks with a request in flight: nothing can be said of two at once.
    busy: Vec<bool>,
    random: u64,
    wrong: Option<TourError>,
    last: Instant,
}

impl Work {
    fn new(ledger: Ledger, shared: Arc<Shared>) -> Self {
        let (busy, random) = (vec![false; ledger.versions.len()], ledger.seed | 1);
        Work { ledger, shared, busy, random, wrong: None, last: Instant::now() }
    }

    fn run(mut self, disk: &Disk) -> Result<Ledger, TourError> {
        // One borrow for the two closures, which never run at once.
        let work = std::cell::RefCell::new(&mut self);
        disk.keep_busy(
            DEPTH,
            || work.borrow_mut().next(),
            |tag, bytes| match tag {
                Tag::Read { .. } => pattern::read(bytes),
                Tag::Write { .. } => Found::Zeros,
            },
            |tag, answer| work.borrow_mut().done(&tag, answer),
        );
        match self.wrong {
            None => Ok(self.ledger),
            Some(error) => Err(error),
        }
    }

    fn next(&mut self) -> Option<Request<Tag>> {
        if self.wrong.is_some() || self.shared.stop.load(Ordering::Acquire) {
            return None;
        }
        let block = loop {
            let block = (self.draw() % self.busy.len() as u64) as usize;
            if !self.busy[block] {
                break block;
            }
        };
        self.busy[block] = true;
        let offset = block as u64 * BLOCK;
        if self.draw().is_multiple_of(READS) {
            return Some(Request::read(offset, BLOCK as u32, Tag::Read { block }));
        }
        self.ledger.versions[block] += 1;
        self.shared.begun[block].store(self.ledger.versions[block], Ordering::Release);
        let data = pattern::blocks(std::iter::once(self.ledger.stamp(block)));
        Some(Request::write(offset, data, Tag::Write { block }))
    }

    fn done(&mut self, tag: &Tag, answer: Result<Found, Errno>) {
        let waited = u64::try_from(self.last.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.last = Instant::now();
        self.shared.longest_wait.fetch_max(waited, Ordering::AcqRel);
        let (Tag::Read { block } | Tag::Write { block }) = *tag;
        self.busy[block] = false;
        let checked = match (answer, tag) {
            (Ok(found), Tag::Read { .. }) => self.ledger.check(block, found),
            (Ok(_), Tag::Write { .. }) => {
                self.shared.ended[block].store(self.ledger.versions[block], Ordering::Release);
                Ok(())
            }
            (Err(errno), _) => Err(TourError::refused(block as u64 * BLOCK, errno)),
        };
        if let Err(error) = checked {
            self.wrong.get_or_insert(error);
        }
        self.shared.answered.fetch_add(1, Ordering::AcqRel);
    }

    /// Marsaglia's xorshift: nobody needs to be surprised by it.
    fn draw(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }
}
