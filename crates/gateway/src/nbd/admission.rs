//! Who may come in, and how much memory they may hold: one [`Admission`] for all the connections of a server, on all its
//! threads.
//!
//! Invariants:
//! 1. At most `limits.connections` permits exist, and at most `limits.negotiating` of them belong to connections that
//!    haven't been told to go and haven't finished negotiating.
//! 2. What all [`Allowance`]s hold beyond their base is at most `limits.shared_bytes`.

use super::limits::Limits;
use super::surplus::Surplus;
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use tokio::sync::{AcquireError, Notify, OwnedSemaphorePermit, Semaphore};

/// The grain of the shared memory's account, in bytes.
const UNIT: u64 = 64 << 10;

/// The account of connections and of their memory.
#[derive(Debug)]
pub struct Admission {
    limits: Limits,
    crowd: Mutex<Crowd>,
    memory: Arc<Semaphore>,
    /// Connections that wait for memory.
    starved: AtomicUsize,
    surplus: Arc<Surplus>,
}

#[derive(Debug, Default)]
struct Crowd {
    connections: usize,
    next_id: u64,
    /// Oldest first.
    negotiating: VecDeque<(u64, Arc<Notify>)>,
}

/// A connection's place; dropping it gives the place up.
#[derive(Debug)]
pub struct Permit {
    admission: Arc<Admission>,
    id: u64,
    evicted: Arc<Notify>,
}

impl Admission {
    /// With the limits made workable ([`Limits::workable`]).
    pub fn new(limits: Limits) -> Arc<Self> {
        let limits = limits.workable();
        let units = usize::try_from(limits.shared_bytes / UNIT).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS);
        Arc::new(Admission {
            limits,
            crowd: Mutex::default(),
            memory: Arc::new(Semaphore::new(units)),
            starved: AtomicUsize::new(0),
            surplus: Arc::new(Surplus::new("NBD clients")),
        })
    }

    /// What it holds clients to.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// A place for a new connection, or none if there are too many. Tells the connection that has been negotiating longest
    /// to go if this one makes too many of those.
    pub fn admit(self: &Arc<Self>) -> Option<Permit> {
        let mut crowd = self.crowd();
        if crowd.connections >= self.limits.connections {
            return None;
        }
        if crowd.negotiating.len() >= self.limits.negotiating
            && let Some((_, slowest)) = crowd.negotiating.pop_front()
        {
            slowest.notify_one();
        }
        let id = crowd.next_id;
        let evicted = Arc::new(Notify::new());
        crowd.next_id += 1;
        crowd.connections += 1;
        crowd.negotiating.push_back((id, evicted.clone()));
        Some(Permit { admission: self.clone(), id, evicted })
    }

    /// Those that were turned away.
    pub fn surplus(&self) -> &Arc<Surplus> {
        &self.surplus
    }

    /// Connections that there are now.
    pub fn connections(&self) -> usize {
        self.crowd().connections
    }

    /// Whether some connection waits for memory that others hold.
    #[cfg(test)]
    pub fn is_short_of_memory(&self) -> bool {
        self.starved.load(Ordering::Relaxed) > 0
    }

    fn crowd(&self) -> MutexGuard<'_, Crowd> {
        self.crowd.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Permit {
    /// Whose place it is.
    pub fn admission(&self) -> &Arc<Admission> {
        &self.admission
    }

    /// The connection has an export now and can't be evicted any more.
    pub fn negotiated(&self) {
        self.admission.crowd().negotiating.retain(|(id, _)| *id != self.id);
    }

    /// Returns if this connection must make room for a newer one.
    pub async fn evicted(&self) {
        self.evicted.notified().await;
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut crowd = self.admission.crowd();
        crowd.connections -= 1;
        crowd.negotiating.retain(|(id, _)| *id != self.id);
    }
}

type Acquire = Pin<Box<dyn Future<Output = Result<OwnedSemaphorePermit, AcquireError>>>>;

/// What one connection may hold in memory: a base of its own, and what it takes of the shared rest.
pub struct Allowance {
    admission: Arc<Admission>,
    held: Option<OwnedSemaphorePermit>,
    waiting: Option<Waiting>,
}

struct Waiting {
    admission: Arc<Admission>,
    acquire: Acquire,
}

impl Waiting {
    fn new(admission: &Arc<Admission>, units: u32) -> Self {
        admission.starved.fetch_add(1, Ordering::Relaxed);
        Waiting { admission: admission.clone(), acquire: Box::pin(admission.memory.clone().acquire_many_owned(units)) }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.admission.starved.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Allowance {
    pub fn new(admission: Arc<Admission>) -> Self {
        Allowance { admission, held: None, waiting: None }
    }

    /// Makes sure that this connection may hold `bytes`; else wakes the task when it's worth asking again.
    pub fn poll_cover(&mut self, cx: &mut Context<'_>, bytes: u64) -> Poll<()> {
        loop {
            let missing = self.units(bytes).saturating_sub(self.held_units());
            if missing == 0 {
                self.waiting = None;
                return Poll::Ready(());
            }
            let waiting = match &mut self.waiting {
                Some(waiting) => waiting,
                None => match self.admission.memory.clone().try_acquire_many_owned(missing) {
                    Ok(permit) => {
                        self.keep(permit);
                        continue;
                    }
                    Err(_) => self.waiting.insert(Waiting::new(&self.admission, missing)),
                },
            };
            match waiting.acquire.as_mut().poll(cx) {
                Poll::Ready(Ok(permit)) => {
                    self.waiting = None;
                    self.keep(permit);
                }
                Poll::Ready(Err(AcquireError { .. })) => unreachable!("nobody closes the account of memory"),
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    /// Gives back what isn't needed to hold `bytes`.
    pub fn release_beyond(&mut self, bytes: u64) {
        let needed = self.units(bytes);
        if let Some(held) = &mut self.held {
            let surplus = (held.num_permits() as u32).saturating_sub(needed);
            if surplus > 0 {
                drop(held.split(surplus as usize));
            }
        }
    }

    /// Whether others go short because of what this connection holds.
    pub fn is_wanted_by_others(&self) -> bool {
        let others = self.admission.starved.load(Ordering::Relaxed) - usize::from(self.waiting.is_some());
        self.held_units() > 0 && others > 0
    }

    fn keep(&mut self, permit: OwnedSemaphorePermit) {
        match &mut self.held {
            Some(held) => held.merge(permit),
            None => self.held = Some(permit),
        }
    }

    fn held_units(&self) -> u32 {
        self.held.as_ref().map_or(0, |held| held.num_permits() as u32)
    }

    fn units(&self, bytes: u64) -> u32 {
        let beyond = bytes.saturating_sub(self.admission.limits.connection_base_bytes);
        u32::try_from(beyond.div_ceil(UNIT)).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    fn small() -> Limits {
        Limits { connections: 3, negotiating: 2, connection_base_bytes: 0, shared_bytes: 32 << 20, ..Limits::default() }
    }

    #[test]
    fn no_more_connections_than_allowed_and_a_place_that_is_given_up_is_free_again() {
        let admission = Admission::new(small());
        let permits: Vec<Permit> = (0..3).map_while(|_| admission.admit()).collect();
        assert_eq!(permits.len(), 3);
        assert!(admission.admit().is_none());
        drop(permits);
        assert_eq!(admission.connections(), 0);
        assert!(admission.admit().is_some());
    }

    #[test]
    fn the_slowest_to_negotiate_makes_room_and_who_has_negotiated_does_not() {
        let admission = Admission::new(small());
        let first = admission.admit().unwrap();
        first.negotiated();
        let second = admission.admit().unwrap();
        let third = admission.admit().unwrap();
        assert_eq!(second.evicted().now_or_never(), None, "two may negotiate");
        drop(third);
        let third = admission.admit().unwrap();
        assert_eq!(second.evicted().now_or_never(), None, "one of the two has gone");
        drop(first);
        let fourth = admission.admit().unwrap();
        assert_eq!(second.evicted().now_or_never(), Some(()));
        assert_eq!(third.evicted().now_or_never(), None);
        assert_eq!(fourth.evicted().now_or_never(), None);
    }

    #[test]
    fn memory_beyond_the_base_is_shared_and_waited_for() {
        let admission = Admission::new(small());
        let cx = &mut Context::from_waker(std::task::Waker::noop());
        let mut one = Allowance::new(admission.clone());
        let mut other = Allowance::new(admission.clone());
        assert!(one.poll_cover(cx, 20 << 20).is_ready());
        assert!(other.poll_cover(cx, 13 << 20).is_pending());
        assert!(one.is_wanted_by_others());
        assert!(!other.is_wanted_by_others(), "it holds nothing");
        one.release_beyond(19 << 20);
        assert!(other.poll_cover(cx, 13 << 20).is_ready());
        assert!(!admission.is_short_of_memory());
    }

    #[test]
    fn a_connection_that_goes_while_it_waits_leaves_nothing_behind() {
        let admission = Admission::new(small());
        let cx = &mut Context::from_waker(std::task::Waker::noop());
        let mut one = Allowance::new(admission.clone());
        let mut other = Allowance::new(admission.clone());
        assert!(one.poll_cover(cx, 32 << 20).is_ready());
        assert!(other.poll_cover(cx, 1).is_pending());
        drop(other);
        assert!(!admission.is_short_of_memory());
        drop(one);
        let mut third = Allowance::new(admission);
        assert!(third.poll_cover(cx, 32 << 20).is_ready());
    }
}
