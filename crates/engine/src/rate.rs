//! How fast something goes on: bytes in a second, of the last few seconds.

use std::time::Duration;
use tepal_drive::world::Tick;

const WINDOW: Duration = Duration::from_secs(4);

/// Bytes of the window that began last, and of the one before.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rate {
    began: Tick,
    bytes: u64,
    before: Option<u64>,
}

impl Rate {
    pub fn add(&mut self, bytes: u64, now: Tick) {
        self.turn(now);
        self.bytes += bytes;
    }

    /// In a second.
    pub fn at(mut self, now: Tick) -> u64 {
        self.turn(now);
        let elapsed = now.0.saturating_sub(self.began.0);
        match self.before {
            // The rest of the last window, as far as this one isn't over.
            Some(before) => {
                let rest = 1.0 - elapsed.as_secs_f64() / WINDOW.as_secs_f64();
                ((self.bytes as f64 + before as f64 * rest) / WINDOW.as_secs_f64()) as u64
            }
            None if elapsed.is_zero() => 0,
            None => (self.bytes as f64 / elapsed.as_secs_f64()) as u64,
        }
    }

    fn turn(&mut self, now: Tick) {
        let elapsed = now.0.saturating_sub(self.began.0);
        if elapsed >= WINDOW * 2 {
            *self = Rate { began: now, bytes: 0, before: None };
        } else if elapsed >= WINDOW {
            *self = Rate { began: Tick(self.began.0 + WINDOW), bytes: 0, before: Some(self.bytes) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steady_flow_has_its_rate_and_one_that_has_ended_none() {
        let mut rate = Rate::default();
        let at = |millis| Tick(Duration::from_millis(millis));
        assert_eq!(rate.at(at(0)), 0);
        for step in 100..300 {
            rate.add(1000, at(step * 100));
        }
        for millis in [29_900, 30_500, 31_000] {
            assert!((7_000..=10_500).contains(&rate.at(at(millis))), "{}", rate.at(at(millis)));
        }
        assert_eq!(rate.at(at(60_000)), 0);
    }
}
