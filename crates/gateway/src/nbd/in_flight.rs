//! Requests that the disk is working on.
//!
//! A request is tried at once: what needs no wait (a drive in memory, a cached block) is done before the next is looked
//! at. The places where the others wait are kept and used again, so a request costs no allocation here. Invariants:
//! 1. A place is either free (its future is `None` and its index is in `free`) or busy, never both.
//! 2. After a place was woken its index is in the queue until it's polled; a place woken twice is in it once. A wake meant
//!    for an earlier request in the same place costs one needless poll.

use futures_util::task::AtomicWaker;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

/// Any number of futures of one kind, polled by the task that owns this.
pub struct InFlight<F> {
    places: Vec<Running<F>>,
    free: Vec<usize>,
    woken: Arc<Woken>,
    /// Taken from the queue, to be polled next, last first.
    batch: Vec<usize>,
}

struct Running<F> {
    future: Pin<Box<Option<F>>>,
    bell: Arc<Bell>,
    waker: Waker,
}

/// What wakes one place.
struct Bell {
    index: usize,
    queued: AtomicBool,
    woken: Arc<Woken>,
}

#[derive(Default)]
struct Woken {
    queue: Mutex<Vec<usize>>,
    task: AtomicWaker,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.queued.swap(true, Ordering::AcqRel) {
            self.woken.queue.lock().unwrap_or_else(PoisonError::into_inner).push(self.index);
            self.woken.task.wake();
        }
    }
}

impl<F: Future> Default for InFlight<F> {
    fn default() -> Self {
        InFlight::new()
    }
}

impl<F: Future> InFlight<F> {
    /// Nothing is under way.
    pub fn new() -> Self {
        InFlight { places: Vec::new(), free: Vec::new(), woken: Arc::default(), batch: Vec::new() }
    }

    /// Requests that aren't done.
    pub fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Whether there's none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Starts a request and tries it once. What isn't ready then is handed out by `poll_next` later.
    pub fn start(&mut self, future: F) -> Poll<F::Output> {
        let index = self.free.pop().unwrap_or_else(|| self.add_place());
        let place = &mut self.places[index];
        place.future.as_mut().set(Some(future));
        self.poll_place(index)
    }

    /// The next request that is done. Pending also if there is none; the task is then woken too when a request that is
    /// started later gets done.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<F::Output> {
        loop {
            if self.batch.is_empty() {
                self.woken.task.register(cx.waker());
                let mut queue = self.woken.queue.lock().unwrap_or_else(PoisonError::into_inner);
                std::mem::swap(&mut *queue, &mut self.batch);
                drop(queue);
                self.batch.reverse(); // handed out in the order of their wakes
            }
            let Some(index) = self.batch.pop() else { return Poll::Pending };
            let place = &self.places[index];
            place.bell.queued.store(false, Ordering::Release);
            if place.future.is_some()
                && let Poll::Ready(output) = self.poll_place(index)
            {
                return Poll::Ready(output);
            }
        }
    }

    fn poll_place(&mut self, index: usize) -> Poll<F::Output> {
        let place = &mut self.places[index];
        let future = place.future.as_mut().as_pin_mut().expect("only busy places are polled");
        let output = future.poll(&mut Context::from_waker(&place.waker));
        if output.is_ready() {
            place.future.as_mut().set(None);
            self.free.push(index);
        }
        output
    }

    fn add_place(&mut self) -> usize {
        let index = self.places.len();
        let bell = Arc::new(Bell { index, queued: AtomicBool::new(false), woken: self.woken.clone() });
        let waker = Waker::from(bell.clone());
        self.places.push(Running { future: Box::pin(None), bell, waker });
        index
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_channel::oneshot;
    use std::sync::atomic::AtomicUsize;

    #[derive(Default)]
    struct Count(AtomicUsize);
    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn what_needs_no_wait_is_done_at_once_in_one_place() {
        let mut in_flight = InFlight::new();
        for i in 0..100 {
            assert_eq!(in_flight.start(async move { i }), Poll::Ready(i));
        }
        assert!(in_flight.is_empty());
        assert_eq!(in_flight.places.len(), 1);
    }

    #[test]
    fn requests_are_handed_out_in_the_order_in_which_they_get_done() {
        let count = Arc::new(Count::default());
        let waker = Waker::from(count.clone());
        let cx = &mut Context::from_waker(&waker);
        let mut in_flight = InFlight::new();
        for round in 0..3 {
            let mut senders = Vec::new();
            for _ in 0..10 {
                let (sender, receiver) = oneshot::channel::<usize>();
                assert!(in_flight.start(receiver).is_pending());
                senders.push(Some(sender));
            }
            assert!(in_flight.poll_next(cx).is_pending());
            count.0.store(0, Ordering::Relaxed);
            for i in [7, 3, 0] {
                senders[i].take().unwrap().send(i).unwrap();
            }
            assert_eq!(count.0.load(Ordering::Relaxed), 1, "the task is woken once for all of them");
            for i in [7, 3, 0] {
                assert_eq!(in_flight.poll_next(cx), Poll::Ready(Ok(i)), "round {round}");
            }
            assert!(in_flight.poll_next(cx).is_pending());
            assert_eq!(in_flight.len(), 7);
            drop(senders);
            for _ in 0..7 {
                assert_eq!(in_flight.poll_next(cx), Poll::Ready(Err(oneshot::Canceled)));
            }
            assert!(in_flight.is_empty());
        }
        assert_eq!(in_flight.places.len(), 10, "places are used again");
    }

    #[test]
    fn a_request_that_wakes_itself_while_it_is_polled_is_polled_again() {
        let cx = &mut Context::from_waker(Waker::noop());
        let mut in_flight = InFlight::new();
        let mut left = 3;
        let started = in_flight.start(std::future::poll_fn(move |cx| {
            left -= 1;
            cx.waker().wake_by_ref();
            if left == 0 { Poll::Ready(()) } else { Poll::Pending }
        }));
        assert!(started.is_pending());
        assert!(in_flight.poll_next(cx).is_ready(), "all its wakes are known already");
        assert!(in_flight.poll_next(cx).is_pending());
    }

    #[test]
    fn a_wake_between_two_polls_wakes_the_task() {
        let count = Arc::new(Count::default());
        let waker = Waker::from(count.clone());
        let cx = &mut Context::from_waker(&waker);
        let mut in_flight = InFlight::new();
        let (sender, receiver) = oneshot::channel::<()>();
        assert!(in_flight.start(receiver).is_pending());
        assert!(in_flight.poll_next(cx).is_pending());
        sender.send(()).unwrap();
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
        assert!(in_flight.poll_next(cx).is_ready());
    }
}
