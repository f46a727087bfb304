//! The operations of one thread between their callers and the kernel.
//!
//! Invariants:
//! 1. An operation's memory lives in its slot until the kernel has answered, whoever has stopped waiting for it.
//! 2. At most [`MOST_IN_KERNEL`] operations are with the kernel, so its completion queue never overflows. The others wait
//!    in order in `waiting`; each of them is one request that its front-end has already admitted.
//! 3. Nothing of a caller (a waker, a future) runs while the queue is borrowed.

use super::operation::Operation;
use io_uring::IoUring;
use libc::iovec;
use slab::Slab;
use std::collections::VecDeque;
use std::io;
use std::task::{Context, Poll, Waker};
use tepal_drive::world::DeviceError;

/// Entries that are gathered until they must be submitted.
const SUBMISSIONS: u32 = 256;
/// Operations that the kernel works on at a time, and the size of its completion queue.
const MOST_IN_KERNEL: usize = 1024;

pub(super) struct Queue {
    ring: IoUring,
    slots: Slab<Slot>,
    /// Operations in the submission queue or with the kernel.
    in_kernel: usize,
    waiting: VecDeque<usize>,
    /// For each slot, the memory of a gather's pieces, kept for the slot's next operation.
    pieces: Vec<Vec<iovec>>,
    answered: Answered,
}

/// What a turn leaves to be done when the queue isn't borrowed any more.
#[derive(Default)]
pub(super) struct Answered {
    callers: Vec<Waker>,
    abandoned: Vec<Operation>,
}

impl Answered {
    pub fn wake(&mut self) {
        self.callers.drain(..).for_each(Waker::wake);
        self.abandoned.clear();
    }
}

struct Slot {
    operation: Operation,
    state: State,
}

enum State {
    /// Not yet answered; its caller waits, once it has been polled.
    UnderWay(Option<Waker>),
    /// Not yet answered, and nobody waits.
    Abandoned,
    Answered(Result<(), DeviceError>),
}

impl Queue {
    /// A queue on a new ring. Only the calling thread may use it.
    pub fn new() -> io::Result<Self> {
        let answers = MOST_IN_KERNEL as u32;
        // No deferred task work: with it, an answer does not always make the ring's descriptor readable (Linux 6.18).
        let ring = IoUring::builder()
            .setup_cqsize(answers)
            .setup_submit_all()
            .setup_single_issuer()
            .setup_coop_taskrun()
            .dontfork()
            .build(SUBMISSIONS)
            // Kernels before 6.0 know some of these not.
            .or_else(|_| IoUring::builder().setup_cqsize(answers).dontfork().build(SUBMISSIONS))?;
        Ok(Queue {
            ring,
            slots: Slab::new(),
            in_kernel: 0,
            waiting: VecDeque::new(),
            pieces: Vec::new(),
            answered: Answered::default(),
        })
    }

    pub fn ring(&self) -> &IoUring {
        &self.ring
    }

    /// Takes an operation in. Its key is valid until [`Queue::poll`] has returned it, or [`Queue::abandon`].
    pub fn start(&mut self, operation: Operation) -> usize {
        let key = self.slots.insert(Slot { operation, state: State::UnderWay(None) });
        if self.pieces.len() <= key {
            self.pieces.resize_with(key + 1, Vec::new);
        }
        self.waiting.push_back(key);
        self.fill();
        key
    }

    /// The operation and its outcome, once it has been answered.
    pub fn poll(&mut self, key: usize, context: &mut Context<'_>) -> Poll<(Operation, Result<(), DeviceError>)> {
        let state = &mut self.slots[key].state;
        match state {
            State::UnderWay(Some(waker)) if waker.will_wake(context.waker()) => return Poll::Pending,
            State::UnderWay(waker) => {
                *waker = Some(context.waker().clone());
                return Poll::Pending;
            }
            State::Answered(_) | State::Abandoned => {}
        }
        let slot = self.slots.remove(key);
        match slot.state {
            State::Answered(outcome) => Poll::Ready((slot.operation, outcome)),
            State::UnderWay(_) | State::Abandoned => unreachable!("only its one caller polls or abandons an operation"),
        }
    }

    /// Its caller waits no more. What was begun goes on; the operation is returned if it was answered already.
    pub fn abandon(&mut self, key: usize) -> Option<Operation> {
        let state = &mut self.slots[key].state;
        if let State::Answered(_) = state {
            return Some(self.slots.remove(key).operation);
        }
        *state = State::Abandoned;
        None
    }

    /// Whether something is to be submitted or taken from the kernel now.
    pub fn has_work(&mut self) -> bool {
        !self.ring.submission().is_empty() || !self.ring.completion().is_empty()
    }

    pub fn is_idle(&self) -> bool {
        self.in_kernel == 0 && self.waiting.is_empty()
    }

    /// Submits what was gathered, and waits for `least` answers. False: the kernel asks to be asked again.
    pub fn enter(&mut self, least: usize) -> bool {
        if least == 0 && self.ring.submission().is_empty() {
            return true;
        }
        match self.ring.submit_and_wait(least) {
            Ok(_) => true,
            Err(error) if matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY)) => false,
            Err(error) => panic!("a ring that this thread made and never closed was refused: {error}"),
        }
    }

    /// Takes the kernel's answers, and hands to it again what must go on.
    pub fn take_answers(&mut self) -> Answered {
        let mut answered = std::mem::take(&mut self.answered);
        for answer in self.ring.completion() {
            self.in_kernel -= 1;
            let key = answer.user_data() as usize;
            let slot = &mut self.slots[key];
            let Some(outcome) = slot.operation.answered(answer.result()) else {
                self.waiting.push_front(key);
                continue;
            };
            match std::mem::replace(&mut slot.state, State::Answered(outcome)) {
                State::UnderWay(waker) => answered.callers.extend(waker),
                State::Abandoned => answered.abandoned.push(self.slots.remove(key).operation),
                State::Answered(_) => unreachable!("the kernel answers each entry once"),
            }
        }
        self.fill();
        answered
    }

    /// Gives back the emptied lists, so that the next turn needs no new memory.
    pub fn recycle(&mut self, answered: Answered) {
        self.answered = answered;
    }

    /// Moves waiting operations into the submission queue, which is submitted at once when it is full.
    fn fill(&mut self) {
        while self.in_kernel < MOST_IN_KERNEL
            && let Some(&key) = self.waiting.front()
        {
            if self.ring.submission().is_full() && (!self.enter(0) || self.ring.submission().is_full()) {
                return; // the kernel is short of memory: the driver tries again
            }
            let entry = self.slots[key].operation.entry(&mut self.pieces[key]).user_data(key as u64);
            // SAFETY: the memory that the entry points to is owned by the slot until the kernel's answer.
            if unsafe { self.ring.submission().push(&entry) }.is_err() {
                return;
            }
            self.waiting.pop_front();
            self.in_kernel += 1;
        }
    }
}

impl Drop for Queue {
    /// Memory that the kernel may still write is given up rather than freed.
    fn drop(&mut self) {
        if self.in_kernel > 0 {
            std::mem::forget(std::mem::take(&mut self.slots));
            std::mem::forget(std::mem::take(&mut self.pieces));
        }
    }
}
