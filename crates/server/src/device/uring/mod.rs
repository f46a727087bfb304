//! Reads and writes by io_uring: a ring for each data thread.
//!
//! A device is only an open file, so any thread uses it through the thread's own ring. Whoever starts an operation puts it
//! into the thread's [`queue::Queue`]; the driver, a task of the same thread, submits all that one turn of the runtime
//! has gathered with one system call, and takes answers in batches.
//!
//! Invariants:
//! 1. Whenever the queue has something to submit or to take, the driver is scheduled, or the ring's descriptor will be
//!    readable: no operation waits for another one to come.
//! 2. The ring ends with the task set that drives it, and only when the kernel has answered everything.
//!
//! The thread must be a tokio runtime's with I/O enabled, and inside a `LocalSet`: one that outlives the operations.

mod operation;
mod queue;

use operation::Operation;
use queue::Queue;
use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use tepal_drive::world::{DeviceError, Gather};
use tepal_model::{BLOCK, Buffer};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::backend::BackendReason;
use super::file::DriveFile;

thread_local! {
    static CURRENT: RefCell<Option<Rc<Ring>>> = const { RefCell::new(None) };
}

/// The ring of this thread.
pub(super) struct Ring {
    queue: RefCell<Queue>,
    driver: RefCell<Driver>,
}

/// Where the driver is in its turn.
enum Driver {
    /// It is scheduled, and will look at the queue.
    Scheduled,
    /// It waits for the kernel, or for this waker.
    Waiting(Waker),
}

impl Ring {
    /// The ring of this thread, made if there is none yet.
    pub fn current() -> io::Result<Rc<Ring>> {
        if let Some(ring) = CURRENT.with_borrow(Clone::clone) {
            return Ok(ring);
        }
        let ring = Rc::new(Ring { queue: RefCell::new(Queue::new()?), driver: RefCell::new(Driver::Scheduled) });
        let descriptor = ring.queue.borrow().ring().as_fd().try_clone_to_owned()?;
        // SAFETY: the descriptor is open and owned by the AsyncFd.
        let readable = unsafe { AsyncFd::register_with_interest(descriptor, Interest::READABLE)? };
        tokio::task::spawn_local(Drive { readable, ring: ring.clone() });
        CURRENT.set(Some(ring.clone()));
        Ok(ring)
    }

    pub async fn read(
        self: Rc<Self>,
        file: &Arc<DriveFile>,
        offset: u64,
        buffer: Buffer,
    ) -> Result<Buffer, DeviceError> {
        let (operation, outcome) = self.start(Operation::read(file.clone(), offset, buffer)).await;
        outcome.map(|()| operation.into_buffer())
    }

    pub async fn write(self: Rc<Self>, file: &Arc<DriveFile>, offset: u64, data: Gather) -> Result<(), DeviceError> {
        self.start(Operation::write(file.clone(), offset, data)).await.1
    }

    pub async fn flush(self: Rc<Self>, file: &Arc<DriveFile>) -> Result<(), DeviceError> {
        self.start(Operation::flush(file.clone())).await.1
    }

    fn start(self: Rc<Self>, operation: Operation) -> Answer {
        let key = self.queue.borrow_mut().start(operation);
        if let Driver::Waiting(waker) = self.driver.replace(Driver::Scheduled) {
            waker.wake();
        }
        Answer { ring: self, key: Some(key) }
    }

    /// Submits, takes answers and wakes their callers. False: the kernel was too short of memory to take all.
    fn turn(&self, least: usize) -> bool {
        let (entered, mut answered) = {
            let mut queue = self.queue.borrow_mut();
            (queue.enter(least), queue.take_answers())
        };
        answered.wake();
        self.queue.borrow_mut().recycle(answered);
        entered
    }

    /// Waits until the kernel has answered everything.
    fn finish(&self) {
        while !self.queue.borrow().is_idle() {
            if !self.turn(1) {
                std::thread::yield_now();
            }
        }
    }
}

/// Reads a block of the file by a ring, to see whether io_uring works for it here.
pub(super) fn try_read(file: &Arc<DriveFile>) -> Result<(), BackendReason> {
    let mut queue = Queue::new().map_err(BackendReason::UringRefused)?;
    let key = queue.start(Operation::read(file.clone(), 0, Buffer::take(BLOCK as usize)));
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready((_, outcome)) = queue.poll(key, &mut context) {
            // Where plain reads fail too it's the drive's fault, and whoever reads its label will hear of it.
            return match (outcome, file.read(0, &mut Buffer::take(BLOCK as usize))) {
                (Err(error), Ok(())) => Err(BackendReason::UringReadFailed(error)),
                _ => Ok(()),
            };
        }
        queue.enter(1);
        let answered = queue.take_answers();
        queue.recycle(answered);
    }
}

/// Tells once that this thread has no ring.
pub(super) fn warn_of_no_ring(error: &io::Error) {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| tracing::warn!("a data thread has no io_uring, its drives use plain threads: {error}"));
}

/// A started operation. Dropping it stops nothing.
struct Answer {
    ring: Rc<Ring>,
    key: Option<usize>,
}

impl Future for Answer {
    type Output = (Operation, Result<(), DeviceError>);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let key = self.key.expect("a future is not polled after it was ready");
        let answer = self.ring.queue.borrow_mut().poll(key, context);
        if answer.is_ready() {
            self.key = None;
        }
        answer
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            let operation = self.ring.queue.borrow_mut().abandon(key);
            drop(operation);
        }
    }
}

/// The task that moves a thread's operations to the kernel and back.
struct Drive {
    readable: AsyncFd<OwnedFd>,
    ring: Rc<Ring>,
}

impl Future for Drive {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let ring = &self.ring;
        loop {
            // Readiness is cleared before the answers are taken, so that one that comes meanwhile makes it ready again.
            let readable = match self.readable.poll_read_ready(context) {
                Poll::Ready(Ok(mut ready)) => {
                    ready.clear_ready();
                    true
                }
                Poll::Ready(Err(_)) => return Poll::Ready(()), // the runtime is shutting down
                Poll::Pending => false,
            };
            if !readable && !ring.queue.borrow_mut().has_work() {
                ring.driver.replace(Driver::Waiting(context.waker().clone()));
                return Poll::Pending;
            }
            if !ring.turn(0) {
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
        }
    }
}

impl Drop for Drive {
    fn drop(&mut self) {
        // A thread that is ending has no current ring any more.
        let _ = CURRENT.try_with(|current| {
            current.borrow_mut().take_if(|current| Rc::ptr_eq(current, &self.ring));
        });
        self.ring.finish();
    }
}
