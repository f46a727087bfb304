//! How fast a scrub goes that may take its time: it's never further than it has to be by then.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// Bytes a second, of one server: none goes slower, or a restart of a server would cost days of it.
const SLOWEST: u64 = 8 << 20;

pub struct Pace {
    bytes: u64,
    begun: Instant,
    /// None if it goes as fast as it can.
    take: Mutex<Option<Duration>>,
    changed: Notify,
}

impl Pace {
    pub fn new(bytes: u64, take: Option<Duration>) -> Self {
        let take = take.map(|take| take.min(longest(bytes)));
        Pace { bytes, begun: Instant::now(), take: Mutex::new(take), changed: Notify::new() }
    }

    fn take(&self) -> Option<Duration> {
        *self.take.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Somebody wants it done sooner, perhaps.
    pub fn hurry(&self, take: Option<Duration>) {
        let mut now = self.take.lock().unwrap_or_else(PoisonError::into_inner);
        *now = now.and_then(|now| Some(now.min(take?)));
        self.changed.notify_waiters();
    }

    /// Returns when so many bytes may be done.
    pub async fn keep(&self, bytes: u64) {
        loop {
            let changed = self.changed.notified();
            let Some(take) = self.take() else { return };
            let early = due(take, bytes, self.bytes).saturating_sub(self.begun.elapsed());
            if early.is_zero() || tokio::time::timeout(early, changed).await.is_err() {
                return;
            }
        }
    }
}

/// At the slowest pace.
fn longest(bytes: u64) -> Duration {
    Duration::from_secs_f64(bytes as f64 / SLOWEST as f64)
}

/// From the beginning on.
fn due(take: Duration, bytes: u64, of_all: u64) -> Duration {
    match of_all {
        0 => Duration::ZERO,
        _ => take.mul_f64(bytes.min(of_all) as f64 / of_all as f64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_due_in_proportion() {
        let take = Duration::from_secs(100);
        for (bytes, seconds) in [(0, 0), (10, 10), (50, 50), (100, 100), (500, 100)] {
            assert_eq!(due(take, bytes, 100), Duration::from_secs(seconds), "{bytes}");
        }
        assert_eq!(due(take, 5, 0), Duration::ZERO);
    }

    #[test]
    fn none_is_slower_than_the_slowest() {
        let pace = Pace::new(SLOWEST * 3, Some(Duration::from_secs(1 << 20)));
        assert_eq!(pace.take(), Some(Duration::from_secs(3)));
    }

    #[tokio::test(flavor = "current_thread")]
    async fn whoever_hurries_wakes_one_that_waits() {
        let pace = Pace::new(SLOWEST * 3600, Some(Duration::from_secs(3600)));
        let waits = tokio::time::timeout(Duration::from_secs(60), pace.keep(SLOWEST * 3600));
        let hurries = async {
            tokio::task::yield_now().await;
            pace.hurry(None);
        };
        let (waited, ()) = tokio::join!(waits, hurries);
        waited.expect("it doesn't wait any more");
        pace.hurry(Some(Duration::from_secs(3600)));
        assert_eq!(pace.take(), None, "nobody slows it down again");
    }
}
