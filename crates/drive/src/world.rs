//! The injected world: everything that `drive` and `engine` may wait for or ask of the machine.
//!
//! In production these are io_uring and tokio; in simulation, seeded fakes. Code that awaits only these can be run
//! again, step for step, from one number.

use bytes::Bytes;
use futures_util::future::LocalBoxFuture;
use smallvec::SmallVec;
use std::future::Future;
use std::time::Duration;
use tepal_model::{Buffer, DriveId};

/// Pieces of memory that are written one after another, as by `pwritev`.
pub type Gather = SmallVec<[Bytes; 1]>;

/// A block device, or a file that serves as one. Offsets and lengths are multiples of [`tepal_model::BLOCK`]; so are the
/// lengths of the pieces of a write, but their place in memory may be anything.
///
/// A write that has returned is seen by later reads, and survives a power loss only after a later `flush` has returned.
/// Until then each of its sectors may be old or new. Dropping a future doesn't stop what it began.
pub trait Device: 'static {
    /// Bytes, rounded down to a whole block.
    fn size(&self) -> u64;
    /// Fills all of `buffer` from `offset`.
    fn read(&self, offset: u64, buffer: Buffer) -> impl Future<Output = Result<Buffer, DeviceError>>;
    /// Writes all the pieces at `offset`, one after another.
    fn write(&self, offset: u64, data: Gather) -> impl Future<Output = Result<(), DeviceError>>;
    /// Puts every write that has returned on stable media. If it fails, what was not yet stable counts as lost.
    fn flush(&self) -> impl Future<Output = Result<(), DeviceError>>;
    /// Tells the device that nobody needs these bytes. They may read as anything afterwards.
    fn discard(&self, offset: u64, length: u64) -> impl Future<Output = Result<(), DeviceError>>;
    /// Hands on what the drive on this device does for a request, as `drive read`. Whoever looks for what makes requests slow sees it.
    fn seen<F: Future>(&self, _drive: DriveId, _name: &'static str, work: F) -> impl Future<Output = F::Output> {
        work
    }
}

/// An operation that the device didn't do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// This operation failed; others may work.
    #[error("{operation} at {offset}: {reason}")]
    Failed {
        /// What was tried, as `read`.
        operation: &'static str,
        /// Where, in bytes from the device's start; 0 if it was about all of it.
        offset: u64,
        /// For people.
        reason: String,
    },
    /// The device is gone (pulled, detached, file removed or cut short): nothing will work until it's opened again.
    #[error("the device is gone: {0}")]
    Gone(String),
}

/// A point on this process's monotonic clock; points of two processes are never compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Tick(pub Duration);

/// Time as it passes here. It never goes back.
pub trait Clock {
    /// Later calls answer the same or more.
    fn now(&self) -> Tick;
    /// Done when this much time has passed, or a little later.
    fn sleep(&self, duration: Duration) -> impl Future<Output = ()>;
}

/// Numbers that nobody foresees; in simulation, those of a seed.
pub trait Random {
    /// Any number, each as likely.
    fn next_u64(&self) -> u64;
}

/// Starts work that goes on when the request that caused it is dropped, such as the commit of a log batch that others
/// wait for too. It runs on the thread that asked.
pub trait Spawn {
    /// Returns at once. Nobody can stop the work or wait for it, unless it tells somebody itself.
    fn spawn(&self, work: LocalBoxFuture<'static, ()>);
    /// Lets everything else that is ready on this thread go first, requests that have just arrived included. Long work in
    /// the background asks this between its steps: on a drive in memory nothing else would make it wait.
    fn give_way(&self) -> impl Future<Output = ()>;
}

/// All of it, as one type parameter. Cheap to clone.
pub trait World: Clock + Random + Spawn + Clone + 'static {
    /// What drives are opened on.
    type Device: Device;
    /// Hands on what a request waits for, as `wait for a turn`: as [`Device::seen`].
    fn seen<F: Future>(&self, _name: &'static str, wait: F) -> impl Future<Output = F::Output> {
        wait
    }
}
