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
    /// The last beat, in milliseconds after that; and, in the lowest [`LATE_BITS`], how many came late. In one word, so that whoever looks
    /// sees both as of one moment.
    last_and_late: AtomicU64,
}

const LATE_BITS: u32 = 16;

impl Pulse {
    const fn new(began: Instant) -> Self {
        Pulse { began, last_and_late: AtomicU64::new(0) }
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
                tracing::warn!(%error, "can't notice when this process stands still");
            }
        });
        pulse
    }

    /// One thread has it beat.
    fn beat(&self, now: Instant) {
        let (late, _) = self.pauses(now);
        self.last_and_late.store(self.milliseconds(now) << LATE_BITS | u64::from(late), Ordering::Release);
    }

    /// How many there were, with the one after which the beat hasn't come yet; and whether there's such a one.
    fn pauses(&self, now: Instant) -> (u16, bool) {
        let last_and_late = self.last_and_late.load(Ordering::Acquire);
        let is_late = self.milliseconds(now).saturating_sub(last_and_late >> LATE_BITS) > LATE.as_millis() as u64;
        ((last_and_late as u16).wrapping_add(is_late.into()), is_late)
    }

    fn milliseconds(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.began).as_millis() as u64
    }
}

/// What somebody knows of it.
#[derive(Debug)]
pub struct Pauses {
    pulse: &'static Pulse,
    known: u16,
    looked: Instant,
}

impl Pauses {
    /// From now on.
    pub fn of_this_process() -> Self {
        Pauses::of(Pulse::of_this_process(), Instant::now())
    }

    fn of(pulse: &'static Pulse, now: Instant) -> Self {
        Pauses { pulse, known: pulse.pauses(now).0, looked: now }
    }

    /// Whether there was one since the last call, as far as can be told at this moment. Each is told once. While no beat comes, each
    /// call that's late after the last one tells one: several are counted as one then.
    #[must_use]
    pub fn take_new(&mut self, now: Instant) -> bool {
        let (count, is_late) = self.pulse.pauses(now);
        let known = std::mem::replace(&mut self.known, count);
        let looked = std::mem::replace(&mut self.looked, now);
        count != known || (is_late && now.saturating_duration_since(looked) > LATE)
    }

    /// Those until now are of no interest.
    pub fn forget(&mut self, now: Instant) {
        let _ = self.take_new(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_told_once_of_a_pause() {
        let began = Instant::now();
        let pulse: &'static Pulse = Box::leak(Box::new(Pulse::new(began)));
        let at = |milliseconds| began + Duration::from_millis(milliseconds);
        let (mut one, mut other) = (Pauses::of(pulse, began), Pauses::of(pulse, began));
        for beat in [50, 110, 300] {
            pulse.beat(at(beat));
            assert!(!one.take_new(at(beat + 10)));
        }
        assert!(one.take_new(at(1_000)), "the beat hasn't come yet");
        pulse.beat(at(1_001));
        assert!(!one.take_new(at(1_002)), "it came late, as was known");
        assert!(other.take_new(at(1_002)), "it came late");
        assert!(!one.take_new(at(1_003)) && !other.take_new(at(1_003)));
        assert!(!Pauses::of(pulse, at(1_004)).take_new(at(1_005)), "it was before this one");
        assert!(one.take_new(at(2_000)) && !one.take_new(at(2_001)), "without another beat it's one pause");
    }

    #[test]
    fn a_pause_is_told_also_if_it_begins_before_the_beat_after_another_one() {
        let began = Instant::now();
        let pulse: &'static Pulse = Box::leak(Box::new(Pulse::new(began)));
        let at = |milliseconds| began + Duration::from_millis(milliseconds);
        let mut pauses = Pauses::of(pulse, began);
        assert!(pauses.take_new(at(1_000)) && !pauses.take_new(at(1_001)));
        assert!(pauses.take_new(at(5_000)), "it stood still again, and no beat came between");
        pulse.beat(at(5_001));
        assert!(!pauses.take_new(at(5_002)));
    }
}
