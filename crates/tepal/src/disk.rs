//! A volume as a program uses it: many requests in flight over NBD, answers taken as they come. For the tour and the bench.

use crate::attach::nbd::client::{Client, ConnectError, PAUSES, Target};
use crate::attach::nbd::{NbdAddress, Operation};
use bytes::Bytes;
use nix::errno::Errno;
use std::sync::mpsc;

/// An open volume. Its requests wait through restarts of the server.
pub struct Disk {
    client: Client,
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
    pub fn open(address: &NbdAddress, volume: &str) -> Result<Self, ConnectError> {
        let target =
            Target { address: address.clone(), volume: volume.to_owned(), export: volume.to_owned(), read_only: false };
        Ok(Disk { client: Client::open(target, PAUSES, Box::new(|_| {}))? })
    }

    /// Keeps up to `depth` requests in flight until `next` has no more and all are answered. `look` sees a read's bytes as
    /// they arrive, on another thread; what it makes of them goes to `done`, together with whatever answers came with it.
    ///
    /// `next` is asked again after each answer: `None` means not now, and once nothing is in flight, never.
    pub fn keep_busy<T: Send + 'static, R: Send + 'static>(
        &self,
        depth: usize,
        mut next: impl FnMut() -> Option<Request<T>>,
        look: fn(&T, &[u8]) -> R,
        mut done: impl FnMut(T, Result<R, Errno>),
    ) {
        let (answer, answers) = mpsc::channel();
        let mut in_flight = 0;
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
            let Ok((tag, result)) = answers.recv() else { return };
            in_flight -= 1;
            done(tag, result);
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
