//! For those who would rather have an error than wait: requests that take too long fail.

use super::client::{Exchange, Notice, Pending, Shared};
use nix::errno::Errno;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

/// How often it's looked, at most and at least.
const LOOKS: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));

impl Shared {
    /// Fails what isn't answered after so long, until the client is closed. What comes afterwards fails at once, until there is a
    /// connection again: a filesystem that tried one thing after the other would be stuck as before.
    pub(super) fn fail_what_takes_longer(&self, patience: Duration) {
        let look = (patience / 4).clamp(LOOKS.0, LOOKS.1);
        let mut exchange = self.lock();
        while !exchange.closed {
            exchange = self.changed.wait_timeout(exchange, look).unwrap_or_else(PoisonError::into_inner).0;
            let late = exchange.take_late(patience);
            if late.is_empty() {
                continue;
            }
            drop(exchange);
            (self.observer)(Notice::GaveUp { requests: late.len() });
            late.into_iter().for_each(|pending| (pending.done)(Err(Errno::EIO)));
            exchange = self.lock();
        }
    }
}

impl Exchange {
    /// How long the oldest request has been waited for.
    pub(super) fn waited(&self) -> Option<Duration> {
        self.pending.first_key_value().map(|(_, oldest)| oldest.since.elapsed())
    }

    /// Cookies rise, so the oldest come first.
    fn take_late(&mut self, patience: Duration) -> Vec<Pending> {
        let now = Instant::now();
        let mut late = Vec::new();
        while let Some(oldest) = self.pending.first_entry() {
            if now.saturating_duration_since(oldest.get().since) < patience {
                break;
            }
            late.push(oldest.remove());
        }
        if !late.is_empty() {
            self.gave_up = true;
            // Answers to them would be to nobody's requests. The server finishes the others, and hangs up.
            self.stop_link();
        }
        late
    }
}
