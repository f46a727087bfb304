//! A volume as a program uses it: many requests in flight over NBD, answers taken as they come. For the tour and the bench.
//!
//! Requests wait through restarts of the server, but not for ever: a volume whose drives can't be written answers none.

use crate::attach::nbd::client::{Client, ConnectError, PAUSES, Target};
use crate::attach::nbd::{NbdAddress, Operation};
use crate::interrupt::Interrupt;
use bytes::Bytes;
use nix::errno::Errno;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

/// How long no request may be answered until all are given up.
pub const PATIENCE: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(100);

/// An open volume.
pub struct Disk {
    client: Client,
    interrupt: Interrupt,
    patience: Duration,
}

/// One request, and what its answer is to be known by.
pub struct Request<T> {
    pub operation: Operation,
    pub tag: T,
}

impl<T> Request<T> {
    pub fn read(offset: u64, length: u32, tag: T) -> Self {
        Request { operation: Operation::Read { offset, length }, tag }
    }

    pub fn write(offset: u64, data: Bytes, tag: T) -> Self {
        Request { operation: Operation::Write { offset, data, fua: false }, tag }
    }
}

impl Disk {
    /// The user's interruption ends the waiting for answers.
    pub fn open(address: &NbdAddress, volume: &str, interrupt: &Interrupt) -> Result<Self, ConnectError> {
        Self::of(address, volume, false, interrupt)
    }

    /// Of one that nobody writes to.
    pub fn open_snapshot(address: &NbdAddress, snapshot: &str, interrupt: &Interrupt) -> Result<Self, ConnectError> {
        Self::of(address, snapshot, true, interrupt)
    }

    fn of(address: &NbdAddress, export: &str, read_only: bool, interrupt: &Interrupt) -> Result<Self, ConnectError> {
        let target =
            Target { address: address.clone(), volume: export.to_owned(), export: export.to_owned(), read_only };
        let client = Client::open(target, PAUSES, Box::new(|_| {}))?;
        Ok(Disk { client, interrupt: interrupt.clone(), patience: PATIENCE })
    }

    /// Keeps up to `depth` requests in flight until `next` has no more and all are answered. `look` sees a read's bytes as
    /// they arrive, on another thread; what it makes of them goes to `done`, together with whatever answers came with it.
    ///
    /// `next` is asked again after each answer: `None` means not now, and once nothing is in flight, never. Requests that
    /// are given up end with `EINTR` if the user wants to end, and with `ETIMEDOUT` if no answer came for too long; nothing
    /// works on this disk from then on.
    pub fn keep_busy<T: Send + 'static, R: Send + 'static>(
        &self,
        depth: usize,
        mut next: impl FnMut() -> Option<Request<T>>,
        look: fn(&T, &[u8]) -> R,
        mut done: impl FnMut(T, Result<R, Errno>),
    ) {
        let (answer, answers) = mpsc::channel();
        let (mut in_flight, mut given_up) = (0, None);
        loop {
            while in_flight < depth
                && let Some(Request { operation, tag }) = next()
            {
                let answer = answer.clone();
                in_flight += 1;
                let take = move |result: Result<&[u8], Errno>| {
                    let seen = result.map(|bytes| look(&tag, bytes));
                    // The receiver waits for every answer, so it's there.
                    let _ = answer.send((tag, seen));
                };
                self.client.submit(operation, Box::new(take));
            }
            if in_flight == 0 {
                return;
            }
            let (tag, result) = self.wait(&answers, &mut given_up);
            in_flight -= 1;
            done(tag, result.map_err(|errno| given_up.unwrap_or(errno)));
        }
    }

    /// The next answer. If none comes, all requests are given up, and that is the answer.
    fn wait<A>(&self, answers: &mpsc::Receiver<A>, given_up: &mut Option<Errno>) -> A {
        let since = Instant::now();
        loop {
            match answers.recv_timeout(LOOK) {
                Ok(answer) => return answer,
                Err(RecvTimeoutError::Disconnected) => unreachable!("the caller has a sender"),
                Err(RecvTimeoutError::Timeout) if given_up.is_some() => {}
                Err(RecvTimeoutError::Timeout) => {
                    *given_up = match (self.interrupt.is_raised(), since.elapsed() > self.patience) {
                        (true, _) => Some(Errno::EINTR),
                        (false, true) => Some(Errno::ETIMEDOUT),
                        (false, false) => continue,
                    };
                    self.client.close(); // it answers all that is in flight
                }
            }
        }
    }

    /// Puts everything on stable media.
    pub fn flush(&self) -> Result<(), Errno> {
        let mut once = Some(Request { operation: Operation::Flush, tag: () });
        let mut outcome = Ok(());
        self.keep_busy(1, || once.take(), |(), _| (), |(), answer| outcome = answer);
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attach::nbd::fake_server::{FakeServer, Script, Style, WHOLE};

    /// A disk whose server takes requests and breaks off before each answer.
    fn unanswered(interrupt: &Interrupt, patience: Duration) -> (FakeServer, Disk) {
        let server = FakeServer::start(Style::Whole, std::iter::repeat_n(Script { sends: 0, ..WHOLE }, 10_000));
        let disk = Disk::open(&server.address, "v0", interrupt).expect("it can be opened");
        (server, Disk { patience, ..disk })
    }

    fn answers(disk: &Disk) -> Vec<Result<(), Errno>> {
        let mut answers = Vec::new();
        let mut requests = (0..5).map(|number| Request::read(number * 16, 16, number));
        disk.keep_busy(3, || requests.next(), |_, _| (), |_, answer| answers.push(answer));
        answers
    }

    #[test]
    fn requests_that_are_not_answered_for_too_long_are_given_up() {
        let (_server, disk) = unanswered(&Interrupt::default(), Duration::from_millis(200));
        assert_eq!(answers(&disk), [Err(Errno::ETIMEDOUT); 5]);
        assert!(disk.flush().is_err(), "nothing works on it from then on");
    }

    #[test]
    fn who_wants_to_end_does_not_wait_for_answers() {
        let interrupt = Interrupt::default();
        let (_server, disk) = unanswered(&interrupt, Duration::from_secs(600));
        interrupt.raise();
        assert_eq!(answers(&disk), [Err(Errno::EINTR); 5]);
    }
}
