//! What connections were refused for, said in the log, but not as often as it happens: a server that was set up wrong calls
//! several times a second, and a stranger as often as he likes.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tepal_wire::handshake::{CallError, Refused};

/// The same is said again after so long, if it still happens.
const AGAIN: Duration = Duration::from_secs(60);
/// Different things that are said in that time.
const MOST: usize = 16;

/// Everything that was said lately.
#[derive(Debug, Default)]
pub struct Refusals(Mutex<BTreeMap<String, Instant>>);

impl Refusals {
    /// Says that `who` (an address, or which side it was) and this server don't come together, and why.
    pub fn note(&self, who: &str, why: &str) {
        if self.is_news(format!("{who}: {why}"), Instant::now()) {
            tracing::warn!(who, why, "a connection between servers was refused");
        }
    }

    /// The same of a caller, unless it passes by itself: then there is nothing to do about it.
    pub fn note_caller(&self, who: &str, refused: &Refused) {
        if refused.reason.passes() {
            tracing::debug!(who, %refused, "a caller has to come again");
        } else {
            self.note(who, &refused.to_string());
        }
    }

    /// The same of a server that was called.
    pub fn note_called(&self, who: &str, error: &CallError) {
        match error {
            CallError::Refused(refused) if refused.reason.passes() => {
                tracing::debug!(who, %refused, "a server is called again");
            }
            error => self.note(who, &error.to_string()),
        }
    }

    fn is_news(&self, text: String, now: Instant) -> bool {
        let mut said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        said.retain(|_, when| now.duration_since(*when) < AGAIN);
        if said.len() >= MOST || said.contains_key(&text) {
            return false;
        }
        said.insert(text, now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tepal_wire::handshake::Reason;

    #[test]
    fn the_same_is_said_once_a_minute_and_not_everything_that_somebody_makes_up() {
        let (refusals, begin) = (Refusals::default(), Instant::now());
        let said = |text: &str, second| refusals.is_news(text.to_owned(), begin + Duration::from_secs(second));
        assert_eq!([said("a", 0), said("a", 59), said("b", 59), said("a", 60)], [true, false, true, true]);
        let many = (0..100).filter(|n| said(&format!("made up {n}"), 61)).count();
        assert!(many < MOST, "{many}");
        assert!(said("b", 200));
    }
    /// Story: each start of a server had the others warn of it, as one that stops.
    #[test]
    fn what_passes_by_itself_is_nothing_to_be_warned_of() {
        let refusals = Refusals::default();
        let said = || refusals.0.lock().expect("not poisoned").len();
        for (reason, is_said) in [(Reason::Starting, 0), (Reason::Stopping, 0), (Reason::OtherCluster, 2)] {
            refusals.note_caller("s2", &Refused::new(reason, "why"));
            refusals.note_called("s3", &CallError::Refused(Refused::new(reason, "why")));
            assert_eq!(said(), is_said, "{reason}");
        }
    }
}
