//! Requests of clients are held back to what their volume and their identity may have a second.
//!
//! Invariants:
//! 1. Over any time, one process lets no more pass than the rate allows and the bucket holds. Each process holds limits by itself.
//! 2. A request that is given up while it waits takes nothing, and those behind it wait for less: only the first of those that
//!    wait has taken anything.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use tepal_metadata::Limited;
use tepal_model::{Limits, Rate, TokenBucket};
use tokio::sync::Notify;

/// What one volume or one identity may have. Shared by all connections that are of it.
#[derive(Debug)]
pub struct Throttle {
    began: Instant,
    is_limited: AtomicBool,
    /// Whose request is the next to pass. In the order in which they come.
    turn: tokio::sync::Mutex<()>,
    buckets: Mutex<Buckets>,
    changed: Notify,
    connections: AtomicU32,
}

#[derive(Debug, Default)]
struct Buckets {
    limits: Limits,
    iops: Option<TokenBucket>,
    bandwidth: Option<TokenBucket>,
}

/// Timers are no finer than that: whoever has waited finds what this part of a second allows, at least.
const TIMER_PART: u64 = 250;

impl Buckets {
    fn follow(&mut self, limits: Limits, now: u64) {
        let set = |bucket: &mut Option<TokenBucket>, rate: Option<Rate>| {
            let rate = rate.map(|rate| Rate { burst: rate.bucket().max(rate.per_second / TIMER_PART), ..rate });
            match (bucket.as_mut(), rate) {
                (Some(bucket), Some(rate)) => bucket.set(rate, now),
                (_, rate) => *bucket = rate.map(|rate| TokenBucket::new(rate, now)),
            }
        };
        set(&mut self.iops, limits.iops);
        set(&mut self.bandwidth, limits.bandwidth);
        self.limits = limits;
    }
}

impl Throttle {
    fn new(limits: Limits) -> Self {
        let throttle = Throttle {
            began: Instant::now(),
            is_limited: AtomicBool::new(false),
            turn: tokio::sync::Mutex::default(),
            buckets: Mutex::default(),
            changed: Notify::new(),
            connections: AtomicU32::new(0),
        };
        throttle.follow(limits);
        throttle
    }

    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn lock(&self) -> MutexGuard<'_, Buckets> {
        self.buckets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whoever waits does so for as long as the new limits say.
    fn follow(&self, limits: Limits) {
        let mut buckets = self.lock();
        if buckets.limits == limits {
            return;
        }
        buckets.follow(limits, self.now());
        self.is_limited.store(limits.iops.is_some() || limits.bandwidth.is_some(), Ordering::Release);
        drop(buckets);
        self.changed.notify_waiters();
    }

    /// Returns when a request of so many bytes may go on; whether it had to wait.
    pub async fn pass(&self, bytes: u64) -> bool {
        self.is_limited() && Box::pin(self.wait(bytes)).await
    }

    /// Whether requests may have to wait.
    pub fn is_limited(&self) -> bool {
        self.is_limited.load(Ordering::Acquire)
    }

    async fn wait(&self, bytes: u64) -> bool {
        let (mut has_waited, _turn) = match self.turn.try_lock() {
            Ok(turn) => (false, turn),
            Err(_) => (true, self.turn.lock().await),
        };
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable(); // before the limits are looked at
            let taken = Tokens::take(self, bytes);
            if taken.wait.is_zero() {
                taken.are_used();
                return has_waited;
            }
            has_waited = true;
            tokio::select! {
                () = tokio::time::sleep(taken.wait) => {
                    taken.are_used();
                    return true;
                }
                () = changed => {}
            }
        }
    }

    /// A place for one more connection; `Err` has the limit.
    pub fn connect(self: &Arc<Self>) -> Result<Connected, u32> {
        let most = self.lock().limits.connections.unwrap_or(u32::MAX);
        let one_more = |now: u32| now.checked_add(1).filter(|&then| then <= most);
        self.connections
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more)
            .map_err(|_| most)
            .map(|_| Connected(self.clone()))
    }
}

/// A connection that counts.
#[derive(Debug)]
pub struct Connected(Arc<Throttle>);

impl Drop for Connected {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Tokens that a request has taken. They are put back unless they are used.
struct Tokens<'a> {
    throttle: &'a Throttle,
    bytes: u64,
    wait: Duration,
}

impl<'a> Tokens<'a> {
    fn take(throttle: &'a Throttle, bytes: u64) -> Self {
        let mut buckets = throttle.lock();
        let now = throttle.now();
        let iops = buckets.iops.as_mut().map_or(0, |bucket| bucket.take(1, now));
        let bandwidth = buckets.bandwidth.as_mut().map_or(0, |bucket| bucket.take(bytes, now));
        Tokens { throttle, bytes, wait: Duration::from_nanos(iops.max(bandwidth)) }
    }

    fn are_used(self) {
        std::mem::forget(self);
    }
}

impl Drop for Tokens<'_> {
    fn drop(&mut self) {
        let mut buckets = self.throttle.lock();
        let now = self.throttle.now();
        if let Some(bucket) = &mut buckets.iops {
            bucket.put_back(1, now);
        }
        if let Some(bucket) = &mut buckets.bandwidth {
            bucket.put_back(self.bytes, now);
        }
    }
}

/// All throttles of this process that somebody uses, or that have limits: what was taken counts for whoever connects again. Clones are
/// the same.
#[derive(Clone, Debug, Default)]
pub struct Throttles(Arc<Mutex<BTreeMap<Limited, Known>>>);

#[derive(Debug)]
struct Known {
    used: Weak<Throttle>,
    /// While it has limits.
    _kept: Option<Arc<Throttle>>,
}

impl Known {
    fn new(throttle: &Arc<Throttle>, limits: Limits) -> Self {
        Known { used: Arc::downgrade(throttle), _kept: (!limits.is_none()).then(|| throttle.clone()) }
    }
}

impl Throttles {
    /// By the latest limits, which are looked up while nobody else changes them.
    pub fn of(&self, of: Limited, latest: impl FnOnce(&Limited) -> Limits) -> Arc<Throttle> {
        let mut all = self.lock();
        if let Some(throttle) = all.get(&of).and_then(|known| known.used.upgrade()) {
            return throttle;
        }
        let limits = latest(&of);
        let throttle = Arc::new(Throttle::new(limits));
        all.insert(of, Known::new(&throttle, limits));
        throttle
    }

    /// From now on they hold the latest limits.
    pub fn follow(&self, latest: impl Fn(&Limited) -> Limits) {
        let mut all = self.lock();
        all.retain(|of, known| {
            let Some(throttle) = known.used.upgrade() else { return false };
            let limits = latest(of);
            throttle.follow(limits);
            *known = Known::new(&throttle, limits);
            drop(throttle);
            known.used.strong_count() > 0
        });
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Limited, Known>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use tepal_model::VolumeId;

    fn iops(per_second: u64) -> Limits {
        Limits { iops: Some(Rate { per_second, burst: 1 }), ..Limits::default() }
    }

    #[tokio::test]
    async fn a_request_that_waits_goes_on_when_the_limit_is_lifted() {
        let throttle = Arc::new(Throttle::new(iops(1)));
        assert_eq!(throttle.pass(0).now_or_never(), Some(false));
        let waiting = tokio::spawn({
            let throttle = throttle.clone();
            async move {
                for _ in 0..1000 {
                    throttle.pass(0).await;
                }
            }
        });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        throttle.follow(Limits::default());
        assert!(waiting.await.is_ok());
    }

    #[tokio::test]
    async fn requests_that_are_given_up_take_nothing() {
        let throttle = Throttle::new(Limits { bandwidth: Some(Rate { per_second: 1, burst: 1 }), ..Limits::default() });
        for _ in 0..10_000 {
            assert!(throttle.pass(1 << 30).now_or_never().is_none());
        }
        let mut buckets = throttle.lock();
        let wait = buckets.bandwidth.as_mut().map(|bucket| bucket.take(1, throttle.now()));
        assert_eq!(wait, Some(0));
    }

    /// Story: a client with much under way went away, and the next client waited for all of that.
    #[tokio::test]
    async fn requests_wait_no_more_for_those_that_are_given_up() {
        let throttle =
            Throttle::new(Limits { bandwidth: Some(Rate { per_second: 1 << 20, burst: 1 }), ..Limits::default() });
        let given_up: Vec<_> = (0..100).map(|_| Box::pin(throttle.pass(1 << 40)).now_or_never()).collect();
        assert!(given_up.iter().all(Option::is_none));
        let mut ahead: Vec<_> = (0..100).map(|_| Box::pin(throttle.pass(1 << 40))).collect();
        ahead.iter_mut().for_each(|pass| assert!(pass.now_or_never().is_none()));
        let behind = throttle.pass(1);
        drop(ahead);
        assert!(tokio::time::timeout(Duration::from_secs(60), behind).await.is_ok());
    }

    #[tokio::test]
    async fn over_a_second_as_much_passes_as_the_limit_says() {
        let throttle = Throttle::new(iops(2000));
        let began = Instant::now();
        // The bucket has 8: what 4 ms allow.
        for _ in 0..2008 {
            throttle.pass(0).await;
        }
        let took = began.elapsed();
        assert!(took >= Duration::from_secs(1), "{took:?}");
    }

    #[test]
    fn connections_past_the_limit_are_refused_until_one_ends() {
        let throttle = Arc::new(Throttle::new(Limits { connections: Some(2), ..Limits::default() }));
        let one = throttle.connect();
        let two = throttle.connect();
        assert!(one.is_ok() && two.is_ok());
        assert_eq!(throttle.connect().err(), Some(2));
        drop(one);
        assert!(throttle.connect().is_ok());
    }

    #[test]
    fn throttles_that_nobody_uses_take_no_memory() {
        let throttles = Throttles::default();
        for id in 0..10_000 {
            drop(throttles.of(Limited::Volume(VolumeId(id)), |_| Limits::default()));
        }
        throttles.follow(|_| Limits::default());
        assert!(throttles.lock().is_empty());
    }

    /// Story: each request of a host's gateway found a full bucket, as nobody had the throttle between two requests.
    #[tokio::test]
    async fn what_was_taken_counts_for_who_connects_again() {
        let throttles = Throttles::default();
        let connect = || throttles.of(Limited::Volume(VolumeId(1)), |_| iops(1));
        assert_eq!(connect().pass(0).now_or_never(), Some(false));
        let again = connect();
        assert!(Box::pin(again.pass(0)).now_or_never().is_none());
        throttles.follow(|_| Limits::default());
        drop(again);
        throttles.follow(|_| Limits::default());
        assert!(throttles.lock().is_empty());
    }
}
