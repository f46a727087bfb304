//! Requests that took long, with what they waited for: on demand.
//!
//! Invariants:
//! 1. While nobody watches, a request costs one relaxed load, and nothing is remembered.
//! 2. Watching ends by itself, at a time that is said when it begins.
//! 3. What is kept is bounded: the oldest goes.
//!
//! A server has one [`Recorder`] for all its threads. A request of a client is a trace where it enters; what another server asks is a trace
//! of its own here. Both ends know the request by the same number ([`LINK`]), so that the traces can be put together ([`otlp`]) without a
//! word more on the wire.

pub mod asks;
mod lately;
pub mod otlp;
pub mod trace;

pub use lately::{Done, Lately};
pub use trace::{Kind, Step, Stepped, begin, current};

use futures_util::FutureExt;
use futures_util::future::{Either, LocalBoxFuture};
use std::collections::VecDeque;
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tepal_model::{IoError, VolumeId};
use trace::{Place, Trace};

/// Slow requests that are kept, of clients; and as many that others have asked, of each such request several.
const KEPT: usize = 256;
const KEPT_OF_OTHERS: usize = 2048;

/// By what a request to another server goes at both ends: who asks, over which lane; and which of its requests it is.
pub const LINK: &str = "tepal.link";
pub const REQUEST: &str = "tepal.request";
/// Which server is asked.
pub const PEER: &str = "tepal.peer.id";
/// Of which volume's bytes it is.
pub const VOLUME: &str = "tepal.volume.id";

/// The recorder of this process.
pub static HERE: Recorder = Recorder::new();

/// What is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watched {
    /// Only what took longer.
    pub over: Duration,
    /// `None` for all.
    pub volume: Option<VolumeId>,
    pub until: Instant,
}

/// A request that was slow.
#[derive(Clone, Debug)]
pub struct Slow {
    /// Since 1970.
    pub began: Duration,
    /// The request itself is the first.
    pub steps: Vec<Step>,
    pub id: u128,
    /// Of the first step; those of the others follow.
    pub first_step: u64,
}

#[derive(Debug)]
pub struct Recorder {
    is_on: AtomicBool,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    watched: Option<Watched>,
    of_clients: VecDeque<Arc<Slow>>,
    of_others: VecDeque<Arc<Slow>>,
}

/// Whose request it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asker {
    Client,
    /// Another server, in the course of a request of which it knows.
    Server,
}

impl Recorder {
    const fn new() -> Self {
        let inner = Mutex::new(Inner { watched: None, of_clients: VecDeque::new(), of_others: VecDeque::new() });
        Recorder { is_on: AtomicBool::new(false), inner }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Watches anew: what was kept is forgotten.
    pub fn watch(&self, watched: Watched) {
        let mut inner = self.lock();
        inner.of_clients.clear();
        inner.of_others.clear();
        inner.watched = Some(watched);
        self.is_on.store(true, Ordering::Relaxed);
    }

    /// Watches no more. What was kept is there still.
    pub fn end(&self) {
        self.lock().watched = None;
        self.is_on.store(false, Ordering::Relaxed);
    }

    /// What is watched now.
    pub fn watched(&self) -> Option<Watched> {
        let mut inner = self.lock();
        if inner.watched.is_some_and(|watched| watched.until <= Instant::now()) {
            inner.watched = None;
            self.is_on.store(false, Ordering::Relaxed);
        }
        inner.watched
    }

    /// What was slow, the oldest first: of the newest, so many steps at most.
    pub fn slow(&self, most_steps: usize) -> Vec<Arc<Slow>> {
        let mut slow: Vec<Arc<Slow>> = {
            let inner = self.lock();
            inner.of_clients.iter().chain(&inner.of_others).cloned().collect()
        };
        slow.sort_by_key(|slow| slow.began);
        let mut steps = 0;
        let is_too_much = |slow: &Arc<Slow>| {
            steps += slow.steps.len();
            steps > most_steps
        };
        let left_out = slow.iter().rev().position(is_too_much).map_or(0, |told| slow.len() - told);
        slow.split_off(left_out)
    }

    /// Carries a client's request out.
    pub fn request<T, F>(
        &'static self,
        volume: VolumeId,
        request: impl FnOnce() -> Step,
        work: F,
    ) -> impl Future<Output = Result<T, IoError>>
    where
        F: Future<Output = Result<T, IoError>>,
    {
        if !self.is_on() {
            return Either::Left(work);
        }
        Either::Right(Box::pin(async move {
            match self.watched().filter(|watched| watched.volume.is_none_or(|only| only == volume)) {
                None => work.await,
                Some(watched) => {
                    let place = Trace::begin(request().note(VOLUME, volume.0));
                    let ended = Ended { recorder: self, place: place.clone(), watched, asker: Asker::Client };
                    let outcome = Stepped::new(place.clone(), work).await;
                    outcome.as_ref().err().inspect(|error| place.fail(error));
                    drop(ended);
                    outcome
                }
            }
        }))
    }

    /// Carries out what another server asks, which says so by its notes of [`LINK`], or a gateway elsewhere. It begins within this call.
    /// `request` is there if it may be watched.
    pub fn served<T: 'static>(
        &'static self,
        request: Option<Step>,
        begin: impl FnOnce() -> LocalBoxFuture<'static, T>,
    ) -> LocalBoxFuture<'static, T> {
        let watched = |step: &Step| {
            let watched = self.watched()?;
            let is_other = |only: VolumeId| step.number(VOLUME).is_some_and(|volume| volume != only.0);
            (!watched.volume.is_some_and(is_other)).then_some(watched)
        };
        let Some((step, watched)) = request.and_then(|step| watched(&step).map(|watched| (step, watched))) else {
            return begin();
        };
        let asker = if step.notes.iter().any(|(key, _)| *key == LINK) { Asker::Server } else { Asker::Client };
        let place = Trace::begin(step);
        let work = Stepped::new(place.clone(), place.within(begin));
        let ended = Ended { recorder: self, place, watched, asker };
        async move {
            let outcome = work.await;
            drop(ended);
            outcome
        }
        .boxed_local()
    }

    fn keep(&self, place: &Place, Watched { over, .. }: Watched, asker: Asker) {
        let steps = place.trace().steps();
        // Of what a slow request asked elsewhere, what may have made it slow.
        let enough = if asker == Asker::Server { over / 2 } else { over };
        if steps[0].took.is_none_or(|took| took <= enough) {
            return;
        }
        let [high, low, first_step] = std::array::from_fn(|_| random());
        let id = u128::from(high) << 64 | u128::from(low);
        let slow = Slow { began: place.trace().began_unix(), steps, id, first_step: first_step >> 16 << 16 | 1 };
        let mut inner = self.lock();
        let (kept, most) = match asker {
            Asker::Client => (&mut inner.of_clients, KEPT),
            Asker::Server => (&mut inner.of_others, KEPT_OF_OTHERS),
        };
        if kept.len() >= most {
            kept.pop_front();
        }
        kept.push_back(Arc::new(slow));
    }
}

fn random() -> u64 {
    use tepal_drive::world::Random;
    crate::world::ServerWorld.next_u64()
}

/// Keeps a request that was slow when it's over, also one that is given up.
struct Ended {
    recorder: &'static Recorder,
    place: Place,
    watched: Watched,
    asker: Asker,
}

impl Drop for Ended {
    fn drop(&mut self) {
        self.recorder.keep(&self.place, self.watched, self.asker);
    }
}

/// A step of the request at hand. Costs a look at a variable of the thread where nothing is traced.
pub fn step<F: Future>(step: impl FnOnce() -> Step, work: F) -> impl Future<Output = F::Output> {
    match begin(step) {
        None => Either::Left(work),
        Some(place) => Either::Right(Stepped::new(place, work)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watched(recorder: &Recorder, over: Duration, long: Duration) {
        recorder.watch(Watched { over, volume: Some(VolumeId(1)), until: Instant::now() + long });
    }

    fn recorder() -> &'static Recorder {
        Box::leak(Box::new(Recorder::new()))
    }

    async fn write(recorder: &'static Recorder, volume: u64, long: Duration) {
        let work = async {
            step(|| Step::new("drive", Kind::Internal), tokio::time::sleep(long)).await;
            Ok(())
        };
        let done = recorder.request(VolumeId(volume), || Step::new("write", Kind::Server), work).await;
        done.expect("nothing goes wrong");
    }

    const LONG: Duration = Duration::from_secs(60);
    const SLOW: Duration = Duration::from_millis(20);

    #[tokio::test]
    async fn only_slow_requests_of_the_volume_are_kept_while_it_is_watched() {
        let recorder = recorder();
        write(recorder, 1, SLOW).await;
        watched(recorder, SLOW / 2, LONG);
        write(recorder, 1, Duration::ZERO).await;
        write(recorder, 2, SLOW).await;
        assert!(recorder.slow(usize::MAX).is_empty());
        write(recorder, 1, SLOW).await;
        recorder.end();
        write(recorder, 1, SLOW).await;
        let slow = recorder.slow(usize::MAX);
        let [one] = slow.as_slice() else { panic!("{slow:?}") };
        let names: Vec<_> = one.steps.iter().map(|step| (step.name, step.within)).collect();
        assert_eq!(names, [("write", None), ("drive", Some(0))]);
        assert!(one.steps.iter().all(|step| step.took.is_some_and(|took| took >= SLOW)), "{one:?}");
    }

    #[tokio::test]
    async fn what_is_told_at_once_is_of_the_newest_requests() {
        let recorder = recorder();
        watched(recorder, Duration::ZERO, LONG);
        for _ in 0..4 {
            write(recorder, 1, Duration::ZERO).await; // two steps each
        }
        let began = |most| -> Vec<Duration> { recorder.slow(most).iter().map(|slow| slow.began).collect() };
        let all = began(100);
        assert_eq!((all.len(), began(8).len()), (4, 4));
        assert_eq!((began(7), began(4), began(1)), (all[1..].to_vec(), all[2..].to_vec(), Vec::new()));
    }

    #[tokio::test]
    async fn watching_ends_by_itself_when_its_time_is_over() {
        let recorder = recorder();
        watched(recorder, Duration::ZERO, Duration::ZERO);
        assert!(recorder.is_on());
        write(recorder, 1, Duration::ZERO).await;
        assert!(!recorder.is_on() && recorder.slow(usize::MAX).is_empty());
    }

    #[tokio::test]
    async fn of_too_many_slow_requests_the_newest_are_kept() {
        let recorder = recorder();
        watched(recorder, Duration::ZERO, LONG);
        for _ in 0..KEPT + 3 {
            write(recorder, 1, Duration::ZERO).await;
        }
        let slow = recorder.slow(usize::MAX);
        assert_eq!(slow.len(), KEPT);
        assert!(slow.is_sorted_by(|one, next| one.began <= next.began && one.id != next.id));
    }
}
