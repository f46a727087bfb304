//! Whether this process stood still: it was stopped, say, or had no processor for a while.
//!
//! What came meanwhile is received afterwards as if it had just been sent, and what had to wait goes on as if nobody had waited long. But
//! a client may have given up before, gone on by another gateway, and written something newer there: what it left behind must not be
//! done over that. So after a pause each connection looks whether its client is still there before it does anything: the end of a
//! stream is read only behind all that was sent before, which would have been begun by then.
//!
//! Not noticed: a pause of one thread alone, and one in which the clock stands still too.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const BEAT: Duration = Duration::from_millis(50);
/// A beat that comes so much after the last one is late. Shorter pauses are no worse than a slow network.
const LATE: Duration = Duration::from_millis(200);

/// Beats as long as this process runs.
#[derive(Debug)]
struct Pulse {
    began: Instant,
    /// The last beat, in milliseconds after that.
    last: AtomicU64,
    /// Beats that came late.
    pauses: AtomicU64,
}

impl Pulse {
    const fn new(began: Instant) -> Self {
        Pulse { began, last: AtomicU64::new(0), pauses: AtomicU64::new(0) }
    }

    fn of_this_process() -> &'static Pulse {
        static PULSE: OnceLock<Pulse> = OnceLock::new();
        static BEATS: OnceLock<()> = OnceLock::new();
        let pulse = PULSE.get_or_init(|| Pulse::new(Instant::now()));
        BEATS.get_or_init(|| {
            let beat = || {
                loop {
                    pulse.beat(Instant::now());
                    thread::sleep(BEAT);
                }
            };
            if let Err(error) = thread::Builder::new().name("pulse".into()).spawn(beat) {
                // Without a beat all is late: connections look each time.
                tracing::warn!(%error, "no thread to notice by that this process stood still");
            }
        });
        pulse
    }

    fn beat(&self, now: Instant) {
        if self.is_late(now) {
            self.pauses.fetch_add(1, Ordering::Release);
        }
        // Whoever sees this beat sees that it came late.
        self.last.store(self.milliseconds(now), Ordering::Release);
    }

    fn is_late(&self, now: Instant) -> bool {
        let since = self.milliseconds(now).saturating_sub(self.last.load(Ordering::Acquire));
        since > LATE.as_millis() as u64
    }

    fn milliseconds(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.began).as_millis() as u64
    }
}

/// What somebody knows of it.
#[derive(Debug)]
pub struct Pauses {
    pulse: &'static Pulse,
    known: u64,
}

impl Pauses {
    /// From now on.
    pub fn of_this_process() -> Self {
        Pauses::of(Pulse::of_this_process())
    }

    fn of(pulse: &'static Pulse) -> Self {
        Pauses { pulse, known: pulse.pauses.load(Ordering::Acquire) }
    }

    /// Whether there was one since the last call, as far as can be told at this moment.
    pub fn any(&mut self, now: Instant) -> bool {
        let is_late = self.pulse.is_late(now);
        let known = std::mem::replace(&mut self.known, self.pulse.pauses.load(Ordering::Acquire));
        is_late || known != self.known
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_told_once_to_each_whoever_of_them_and_the_beat_goes_on_first() {
        let began = Instant::now();
        let pulse: &'static Pulse = Box::leak(Box::new(Pulse::new(began)));
        let (mut one, mut other) = (Pauses::of(pulse), Pauses::of(pulse));
        let at = |milliseconds| began + Duration::from_millis(milliseconds);
        for beat in [50, 110, 300] {
            pulse.beat(at(beat));
            assert!(!one.any(at(beat + 10)));
        }
        assert!(one.any(at(1_000)), "the beat hasn't come yet");
        pulse.beat(at(1_001));
        assert!(one.any(at(1_002)) && other.any(at(1_002)), "it came late");
        assert!(!one.any(at(1_003)) && !other.any(at(1_003)));
        assert!(!Pauses::of(pulse).any(at(1_004)), "it was before this one");
    }
}
