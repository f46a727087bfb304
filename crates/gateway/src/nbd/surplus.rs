//! Who came and couldn't be taken in: counted, and said in the log once a minute at most. A crowd that comes again and again must fill
//! neither the log nor the time of whoever reads it.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Between two lines of the log. What is longer ago than this isn't going on any more.
const MINUTE: Duration = Duration::from_secs(60);

/// What was turned away at one door.
#[derive(Debug)]
pub struct Surplus {
    /// As in "NBD clients".
    who: &'static str,
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    /// Since the last line of the log.
    untold: u64,
    told: Option<Instant>,
    /// In the spell that goes on, or went on last: it ends with a minute in which nobody is turned away.
    spell: u64,
    last: Option<Instant>,
    why: String,
}

impl Surplus {
    /// Of nobody so far. `who`: as in "NBD clients".
    pub fn new(who: &'static str) -> Self {
        Surplus { who, seen: Mutex::default() }
    }

    /// One was turned away. `why` also says what to do.
    pub fn note(&self, why: &str) {
        if let Some(count) = self.seen().note(why, Instant::now()) {
            tracing::warn!(count, "{} were turned away: {why}", self.who);
        }
    }

    /// What is going on, for people; `None` if nobody was turned away lately.
    pub fn lately(&self) -> Option<String> {
        self.seen()
            .lately(Instant::now())
            .map(|(count, why)| format!("{} are turned away, {count} lately: {why}", self.who))
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seen {
    /// How many a line of the log is to tell of, if it's time for one.
    fn note(&mut self, why: &str, now: Instant) -> Option<u64> {
        self.spell = if is_recent(self.last, now) { self.spell + 1 } else { 1 };
        self.last = Some(now);
        self.untold += 1;
        if self.why != why {
            why.clone_into(&mut self.why);
        }
        if is_recent(self.told, now) {
            return None;
        }
        self.told = Some(now);
        Some(std::mem::take(&mut self.untold))
    }

    fn lately(&self, now: Instant) -> Option<(u64, &str)> {
        is_recent(self.last, now).then_some((self.spell, self.why.as_str()))
    }
}

fn is_recent(when: Option<Instant>, now: Instant) -> bool {
    when.is_some_and(|when| now.saturating_duration_since(when) < MINUTE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crowd_is_one_line_a_minute_with_its_count() {
        let (mut seen, begin) = (Seen::default(), Instant::now());
        let at = |second| begin + Duration::from_secs(second);
        let told: Vec<_> = [0, 1, 30, 59, 60, 61, 119, 120].map(|second| seen.note("full", at(second))).into();
        assert_eq!(told, [Some(1), None, None, None, Some(4), None, None, Some(3)]);
        assert_eq!(seen.lately(at(179)), Some((8, "full")));
        assert_eq!(seen.lately(at(180)), None);
        seen.note("full again", at(200));
        assert_eq!(seen.lately(at(200)), Some((1, "full again")));
    }
}
