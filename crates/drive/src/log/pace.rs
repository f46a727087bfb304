//! How fast the log may fill while a checkpoint frees it: so that writers are slowed down to what the drive does, bit by bit, and don't
//! find the log full and wait until the whole checkpoint is done.

use crate::world::Tick;
use std::time::Duration;

/// Until the next look, however slow the drive is.
const LONGEST: Duration = Duration::from_millis(50);
/// What a checkpoint takes besides its slots, in slots: pages of tables, flushes.
const BESIDES: usize = 64;

/// What is known of the pass that moves pending data to its slots, and of the last batch.
#[derive(Debug, Default)]
pub struct Pace {
    /// Time that a slot takes, as of late.
    each: Duration,
    /// Slots that the pass has yet to write.
    left: usize,
    /// When the last batch began, and its bytes.
    last: Option<(Tick, u64)>,
}

impl Pace {
    /// The pass has about so many slots ahead.
    pub fn note_ahead(&mut self, slots: usize) {
        self.left = slots;
    }

    /// So many slots took this long, together.
    pub fn destaged(&mut self, slots: usize, took: Duration) {
        let each = took / slots.max(1) as u32;
        self.each = if self.each.is_zero() { each } else { (self.each * 7 + each) / 8 };
    }

    /// A batch begins.
    pub fn batch(&mut self, now: Tick, bytes: u64) {
        self.last = Some((now, bytes));
    }

    /// How long the next batch should wait while a checkpoint is under way and the log has room for `room` bytes: it's shared out
    /// over the time that the checkpoint will take. `None` if it needn't.
    pub fn wait(&self, now: Tick, room: u64) -> Option<Duration> {
        let (began, bytes) = self.last?;
        let left = self.each.as_secs_f64() * (self.left + BESIDES) as f64;
        let share = Duration::from_secs_f64(left * bytes as f64 / room.max(bytes) as f64);
        let wait = (began.0 + share).checked_sub(now.0)?;
        (!wait.is_zero()).then_some(wait.min(LONGEST))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A slow drive had its log filled in three seconds, and writers then waited nine for the checkpoint that emptied it.
    #[test]
    fn writers_are_slowed_to_what_the_drive_does_and_never_stand_still() {
        let (batch, mut room, mut now, mut left) = (128u64 << 10, 8u64 << 20, Tick::default(), 2000);
        let (mut pace, mut longest) = (Pace::default(), Duration::ZERO);
        while left > 0 {
            assert!(room >= batch, "the log is full with {left} slots to go");
            pace.batch(now, batch);
            let began = now;
            loop {
                // A slot takes 4 ms. A batch takes 8 ms, in which two slots are written.
                left -= 2;
                pace.note_ahead(left);
                now = Tick(now.0 + Duration::from_millis(8));
                pace.destaged(2, Duration::from_millis(8));
                if left == 0 || pace.wait(now, room - batch).is_none() {
                    break;
                }
            }
            room -= batch;
            longest = longest.max(now.0 - began.0);
        }
        assert!(longest < Duration::from_millis(400), "{longest:?}");
    }

    #[test]
    fn a_drive_that_keeps_up_makes_nobody_wait() {
        let mut pace = Pace::default();
        pace.note_ahead(2000);
        pace.destaged(30, Duration::from_micros(600));
        pace.batch(Tick::default(), 64 << 10);
        assert_eq!(pace.wait(Tick(Duration::from_millis(1)), 8 << 20), None);
    }
}
