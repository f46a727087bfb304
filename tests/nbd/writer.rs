//! A client that goes on while things fail under it: blocks written and read back at random, each answer checked against what
//! may be there.

use super::ledger::Covered;
use super::{Address, BLOCK, Errno, Ledger, Nbd, flag, kind};
use crate::nbd::mixed;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const DEPTH: usize = 16;
/// For a server that was killed to be back.
const PATIENCE: Duration = Duration::from_secs(180);
/// A server that has nothing to wait for answers sooner.
const QUIET: Duration = Duration::from_secs(1);

#[derive(Default)]
struct Progress {
    stop: AtomicBool,
    answered: AtomicU64,
}

pub struct Writer {
    progress: Arc<Progress>,
    thread: JoinHandle<Outcome>,
}

/// What must be on the volume, and what was wrong.
struct Outcome {
    ledger: Ledger,
    error: Option<String>,
}

impl Writer {
    /// Begins to write to the blocks of the ledger. If the server goes away, it waits for it to come back.
    pub fn start(address: Address, volume: &str, ledger: Ledger) -> Writer {
        let progress = Arc::new(Progress::default());
        let work = Work {
            progress: progress.clone(),
            random: ledger.seed() | 1,
            busy: vec![false; ledger.blocks()],
            ledger,
            in_flight: BTreeMap::new(),
            sent: 0,
        };
        let volume = volume.to_owned();
        Writer { progress, thread: std::thread::spawn(move || work.run(&address, &volume)) }
    }

    /// Waits until `count` more requests have been answered.
    pub fn go_on_for(&self, count: u64) {
        let before = self.answered();
        crate::program::until("the writer to go on", PATIENCE, || {
            (self.thread.is_finished() || self.answered() >= before + count).then_some(())
        });
    }

    /// How many requests have been answered.
    pub fn answered(&self) -> u64 {
        self.progress.answered.load(Ordering::Acquire)
    }

    /// Waits until nothing is answered any more for a while; how many requests have been answered by then.
    pub fn settled(&self) -> u64 {
        crate::program::until("the writer to wait", PATIENCE, || {
            let before = self.answered();
            std::thread::sleep(QUIET);
            (self.answered() == before).then_some(before)
        })
    }

    /// Ends it after what is in flight; panics if anything was wrong. What must be on the volume now.
    pub fn finish(self) -> Ledger {
        self.progress.stop.store(true, Ordering::Release);
        let Outcome { ledger, error } = self.thread.join().expect("the writer has no reason to panic");
        assert_eq!(error, None, "what the writer found");
        ledger
    }
}

struct InFlight {
    is: Doing,
    first: usize,
    count: usize,
}

enum Doing {
    Read,
    Write { through: bool },
    Flush(Covered),
}

struct Work {
    progress: Arc<Progress>,
    ledger: Ledger,
    /// Blocks with a request in flight: nothing could be said of two at once.
    busy: Vec<bool>,
    in_flight: BTreeMap<u64, InFlight>,
    random: u64,
    sent: u64,
}

/// Why the writer stopped talking to a server.
enum End {
    Asked,
    Gone(std::io::Error),
    Wrong(String),
}

impl Work {
    fn run(mut self, address: &Address, volume: &str) -> Outcome {
        let mut since = Instant::now();
        let error = loop {
            let end = match Nbd::open(address, volume) {
                Ok(mut nbd) => {
                    let end = self.talk(&mut nbd);
                    since = Instant::now();
                    end
                }
                Err(error) => End::Gone(error),
            };
            // Whether what was in flight was done, nobody knows.
            for request in std::mem::take(&mut self.in_flight).into_values() {
                self.busy[request.first..request.first + request.count].fill(false);
            }
            if matches!(end, End::Gone(_)) {
                self.ledger.left_alone();
            }
            match end {
                End::Asked => break None,
                End::Wrong(what) => break Some(what),
                End::Gone(_) if self.progress.stop.load(Ordering::Acquire) => break None,
                End::Gone(error) if since.elapsed() > PATIENCE => break Some(format!("the server is gone: {error}")),
                End::Gone(_) => std::thread::sleep(Duration::from_millis(2)),
            }
        };
        Outcome { ledger: self.ledger, error }
    }

    fn talk(&mut self, nbd: &mut Nbd) -> End {
        loop {
            let stop = self.progress.stop.load(Ordering::Acquire);
            while !stop && self.in_flight.len() < DEPTH {
                if let Err(error) = self.send(nbd) {
                    return End::Gone(error);
                }
            }
            if self.in_flight.is_empty() {
                return End::Asked;
            }
            let (cookie, answer) = match nbd.answer() {
                Ok(answer) => answer,
                Err(error) => return End::Gone(error),
            };
            let Some(request) = self.in_flight.remove(&cookie) else {
                return End::Wrong(format!("an answer to nothing: {cookie}"));
            };
            self.busy[request.first..request.first + request.count].fill(false);
            if let Err(end) = self.take(nbd, request, answer) {
                return end;
            }
            self.progress.answered.fetch_add(1, Ordering::AcqRel);
        }
    }

    fn send(&mut self, nbd: &mut Nbd) -> std::io::Result<()> {
        self.sent += 1;
        if self.sent.is_multiple_of(97) {
            let cookie = nbd.send(kind::FLUSH, 0, 0, 0, &[])?;
            let is = Doing::Flush(self.ledger.covered());
            self.in_flight.insert(cookie, InFlight { is, first: 0, count: 0 });
            return Ok(());
        }
        let (first, count) = self.free_blocks();
        let (offset, length) = ((first * BLOCK) as u64, (count * BLOCK) as u32);
        // Noted first: also of a request that was half sent it isn't known whether it's done.
        let (is, kind, flags, data) = match self.draw() % 4 {
            0 => (Doing::Read, kind::READ, 0, vec![]),
            1 => (Doing::Write { through: true }, kind::WRITE, flag::FUA, self.ledger.issue(first, count)),
            _ => (Doing::Write { through: false }, kind::WRITE, 0, self.ledger.issue(first, count)),
        };
        let cookie = nbd.send(kind, flags, offset, length, &data)?;
        self.busy[first..first + count].fill(true);
        self.in_flight.insert(cookie, InFlight { is, first, count });
        Ok(())
    }

    fn take(&mut self, nbd: &mut Nbd, request: InFlight, answer: Result<(), Errno>) -> Result<(), End> {
        let InFlight { is, first, count } = request;
        answer.map_err(|errno| End::Wrong(format!("a request of {count} blocks at {first} failed: {errno:?}")))?;
        match is {
            Doing::Read => {
                let bytes = nbd.data(count * BLOCK).map_err(End::Gone)?;
                self.ledger.see(first, &bytes).map_err(End::Wrong)
            }
            Doing::Write { through } => {
                self.ledger.promise(first, count, through);
                Ok(())
            }
            Doing::Flush(covered) => {
                self.ledger.flushed(covered);
                Ok(())
            }
        }
    }

    /// A few blocks in a row, or a good many, without a request in flight.
    fn free_blocks(&mut self) -> (usize, usize) {
        let longest = [1, 1, 2, 16][self.draw() as usize % 4].min(self.busy.len());
        loop {
            let first = self.draw() as usize % (self.busy.len() - longest + 1);
            if !self.busy[first..first + longest].contains(&true) {
                return (first, longest);
            }
        }
    }

    fn draw(&mut self) -> u64 {
        self.random = self.random.wrapping_add(1);
        mixed(self.random)
    }
}
