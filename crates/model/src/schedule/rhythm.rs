//! When something is due: at equal distances, which begin at a time of the day, or of the week.
//!
//! Invariants: which times are due depends on nothing but the rhythm; and whatever a clock shows, at most one run comes of one look at it.

use super::calendar::{self, Ahead, LAST, TimeOfDay, WEEK};
use super::{ScheduleTextError, period_text};
use serde::{Deserialize, Serialize};

/// The smallest distance, in seconds.
pub const SHORTEST: u64 = 1;
/// The largest: 366 days.
pub const LONGEST: u64 = 366 * calendar::DAY;

/// At equal distances from the beginning of a day, where they divide it; else from that of a week, a Monday.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rhythm {
    /// From one time to the next, in seconds: from [`SHORTEST`] to [`LONGEST`].
    pub every_s: u64,
    /// One of the times, of local clocks.
    pub at: TimeOfDay,
    /// Of local clocks.
    pub ahead: Ahead,
}

/// What a look at the clock shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Nothing is to be done yet.
    Nothing,
    /// What was due at this time is to be done now, and nothing of what was due before.
    Now {
        /// Seconds since 1970.
        due_s: u64,
        /// Times since the one before at which nothing was done.
        passed: u64,
        /// Whether it comes long after its time.
        is_late: bool,
    },
    /// The clock has gone back by more than one distance: times up to this one count as done.
    WentBack {
        /// Seconds since 1970.
        to_s: u64,
    },
}

impl Rhythm {
    /// Whether it can be had.
    pub fn check(&self) -> Result<(), ScheduleTextError> {
        match (SHORTEST..=LONGEST).contains(&self.every_s) {
            true => Ok(()),
            false => Err(ScheduleTextError::Every { every: period_text(self.every_s) }),
        }
    }

    /// A time that is due, as a remainder.
    fn phase(&self) -> u64 {
        let monday = calendar::first_monday() + self.at.second() as i64 - 60 * self.ahead.minutes();
        monday.rem_euclid(self.every_s.max(1) as i64) as u64
    }

    /// The last time that is due at this one or before; 0 if there's none.
    pub fn latest(&self, now_s: u64) -> u64 {
        let (every, phase, now) = (self.every_s.max(1), self.phase(), now_s.min(LAST));
        if now < phase { 0 } else { now - (now - phase) % every }
    }

    /// The first time that is due after this one.
    pub fn next(&self, after_s: u64) -> u64 {
        let (phase, latest) = (self.phase(), self.latest(after_s));
        if after_s.min(LAST) < phase { phase } else { latest + self.every_s.max(1) }
    }

    /// How many times are due after the one, and before the other, which is due too.
    fn between(&self, after_s: u64, due_s: u64) -> u64 {
        let first = self.next(after_s);
        due_s.saturating_sub(first) / self.every_s.max(1)
    }

    /// What is done so long after its time comes late, in seconds: who restarts a server doesn't miss a time.
    pub fn patience(&self) -> u64 {
        (self.every_s / 4).clamp(5, 300)
    }

    /// What is to be done, where times up to `done_s` are over.
    pub fn look(&self, done_s: u64, now_s: u64) -> Due {
        let (now, latest) = (now_s.min(LAST), self.latest(now_s));
        if done_s > now.saturating_add(self.every_s) {
            return Due::WentBack { to_s: latest };
        }
        if latest <= done_s {
            return Due::Nothing;
        }
        let is_late = now - latest >= self.patience();
        Due::Now { due_s: latest, passed: self.between(done_s, latest), is_late }
    }

    /// As people say it: `every 1d at 02:30 +02:00`.
    pub fn told(&self) -> String {
        let at = match (self.at.second(), WEEK.is_multiple_of(self.every_s.max(1))) {
            (0, true) if self.ahead == Ahead::default() => String::new(),
            _ => format!(" at {}", self.at),
        };
        let ahead = if self.ahead == Ahead::default() { String::new() } else { format!(" {}", self.ahead) };
        format!("every {}{at}{ahead}", period_text(self.every_s))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::calendar::{DAY, stamp};
    use proptest::prelude::*;

    fn rhythm(every_s: u64, at: &str, ahead: &str) -> Rhythm {
        Rhythm { every_s, at: at.parse().expect("a time"), ahead: ahead.parse().expect("an offset") }
    }

    #[test]
    fn times_of_the_day_are_those_of_local_clocks() {
        // A Sunday.
        let noon = 1_795_910_400 + DAY / 2;
        for (every_s, at, ahead, latest, next) in [
            (3600, "00:00", "UTC", "2026-11-29T12-00Z", "2026-11-29T13-00Z"),
            (3600, "02:15", "UTC", "2026-11-29T11-15Z", "2026-11-29T12-15Z"),
            (3600, "00:00", "+05:30", "2026-11-29T11-30Z", "2026-11-29T12-30Z"),
            (DAY, "02:30", "UTC", "2026-11-29T02-30Z", "2026-11-30T02-30Z"),
            (DAY, "02:30", "+02:00", "2026-11-29T00-30Z", "2026-11-30T00-30Z"),
            (DAY, "23:00", "-05:00", "2026-11-29T04-00Z", "2026-11-30T04-00Z"),
            (WEEK, "02:30", "UTC", "2026-11-23T02-30Z", "2026-11-30T02-30Z"),
            (1, "00:00", "UTC", "2026-11-29T12-00Z", "2026-11-29T12-00-01Z"),
        ] {
            let rhythm = rhythm(every_s, at, ahead);
            let times = (stamp(rhythm.latest(noon)), stamp(rhythm.next(noon)));
            assert_eq!(times, (latest.to_owned(), next.to_owned()), "{}", rhythm.told());
        }
    }

    #[test]
    fn distances_are_from_a_second_to_a_year() {
        for (every_s, is_one) in [(0, false), (SHORTEST, true), (LONGEST, true), (LONGEST + 1, false)] {
            assert_eq!(rhythm(every_s, "00:00", "UTC").check().is_ok(), is_one, "{every_s}");
        }
    }

    #[test]
    fn times_that_passed_unseen_are_one_run() {
        let hourly = rhythm(3600, "00:00", "UTC");
        let done = 100 * 3600;
        assert_eq!(hourly.look(done, done + 3599), Due::Nothing);
        assert_eq!(hourly.look(done, done + 3601), Due::Now { due_s: done + 3600, passed: 0, is_late: false });
        assert_eq!(hourly.look(done, done + 3600 + 299), Due::Now { due_s: done + 3600, passed: 0, is_late: false });
        assert_eq!(hourly.look(done, done + 3600 + 300), Due::Now { due_s: done + 3600, passed: 0, is_late: true });
        assert_eq!(
            hourly.look(done, done + 5 * 3600 + 9),
            Due::Now { due_s: done + 5 * 3600, passed: 4, is_late: false }
        );
    }

    #[test]
    fn a_clock_that_goes_back_far_starts_anew_and_little_waits() {
        let hourly = rhythm(3600, "00:00", "UTC");
        let done = 100 * 3600;
        assert_eq!(hourly.look(done, done - 3600), Due::Nothing);
        assert_eq!(hourly.look(done, done - 3601), Due::WentBack { to_s: done - 2 * 3600 });
    }

    fn rhythms() -> impl Strategy<Value = Rhythm> {
        let every = prop_oneof![1..=100u64, Just(3600), Just(DAY), Just(WEEK), 1..=LONGEST];
        (every, 0..DAY, -840..=840i64).prop_map(|(every_s, at, ahead)| Rhythm {
            every_s,
            at: TimeOfDay::new(at).expect("of a day"),
            ahead: Ahead::new(ahead).expect("on earth"),
        })
    }

    proptest! {
        #[test]
        fn latest_and_next_enclose_any_time(rhythm in rhythms(), now in LONGEST..LAST - LONGEST) {
            let (latest, next) = (rhythm.latest(now), rhythm.next(now));
            prop_assert!(latest <= now && now < next && next - latest == rhythm.every_s);
            prop_assert_eq!(rhythm.latest(latest), latest);
            prop_assert_eq!(rhythm.next(latest), next);
        }

        /// Whatever a clock shows, in whichever order: one look gives at most one run, each time is run once while the clock goes forward,
        /// and each time is either run or said to have passed.
        #[test]
        fn no_clock_makes_a_storm(rhythm in rhythms(), looks in proptest::collection::vec(0..u64::MAX, 1..40)) {
            let mut done = rhythm.latest(LONGEST);
            for now in looks {
                match rhythm.look(done, now) {
                    Due::Nothing => {}
                    Due::Now { due_s, passed, .. } => {
                        prop_assert!(due_s > done && due_s <= now);
                        let first = rhythm.next(done);
                        prop_assert_eq!(first + passed * rhythm.every_s, due_s);
                        done = due_s;
                    }
                    Due::WentBack { to_s } => {
                        prop_assert!(to_s < done && to_s <= now);
                        done = to_s;
                    }
                }
                // A second look at the same clock finds nothing to do.
                prop_assert_eq!(rhythm.look(done, now), Due::Nothing);
            }
        }
    }
}
