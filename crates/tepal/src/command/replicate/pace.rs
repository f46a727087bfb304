//! Keeps what is sent to a rate, whoever sends it.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

pub struct Pace {
    /// Bytes a second.
    rate: Option<u64>,
    /// When everything so far has had its time.
    free: Mutex<Option<Instant>>,
}

impl Pace {
    pub fn new(rate: Option<u64>) -> Self {
        Pace { rate, free: Mutex::default() }
    }

    /// How long these bytes have to wait for those before them.
    fn wait(&self, now: Instant, bytes: u64) -> Duration {
        let Some(rate) = self.rate else { return Duration::ZERO };
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let begin = free.map_or(now, |free| free.max(now));
        *free = Some(begin + Duration::from_secs_f64(bytes as f64 / rate as f64));
        begin - now
    }

    /// Returns when these bytes may be sent.
    pub fn turn(&self, bytes: u64) {
        std::thread::sleep(self.wait(Instant::now(), bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_wait_for_those_before_them_and_not_for_idle_time() {
        let (pace, now) = (Pace::new(Some(1000)), Instant::now());
        let after = |ms| now + Duration::from_millis(ms);
        assert_eq!(pace.wait(now, 500), Duration::ZERO);
        assert_eq!(pace.wait(now, 500), Duration::from_millis(500));
        assert_eq!(pace.wait(after(200), 1000), Duration::from_millis(800));
        assert_eq!(pace.wait(after(60_000), 1000), Duration::ZERO, "what wasn't used is gone");
        assert_eq!(Pace::new(None).wait(now, u64::MAX), Duration::ZERO);
    }
}
