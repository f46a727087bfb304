//! Whether a connection that has nothing to do goes on looking for a moment before it sleeps.
//!
//! A client that keeps one request under way sends the next as soon as it has its answer. To be put to sleep and woken
//! between the two costs more than the request itself. So while a client's requests follow its answers at once, the
//! connection looks again and again for a moment; one whose requests come later is waited for asleep. A silent client
//! costs one moment, then nothing.

use std::time::Duration;
use tokio::time::Instant;

/// How long it's looked, and how soon a request must come to count as one that follows at once.
const MOMENT: Duration = Duration::from_micros(100);
/// So many requests in a row must have come at once before it's looked for the next.
const TRUST: u8 = 8;

#[derive(Default)]
pub struct Attention {
    /// When everything was answered, until the next request comes or the moment is over.
    idle_since: Option<Instant>,
    /// How many requests in a row came at once; no more than [`TRUST`].
    prompt: u8,
}

impl Attention {
    /// Something was received.
    pub fn received(&mut self, now: impl FnOnce() -> Instant) {
        if let Some(since) = self.idle_since.take() {
            self.prompt = if now() - since < MOMENT { TRUST.min(self.prompt + 1) } else { 0 };
        }
    }

    /// Nothing is there to be received: whether to look again at once. `answered`: since the last call, requests were
    /// answered, and none is under way now.
    pub fn look_again(&mut self, answered: bool, now: impl FnOnce() -> Instant) -> bool {
        if answered {
            self.idle_since = Some(now());
            return self.prompt >= TRUST;
        }
        let Some(since) = self.idle_since.filter(|_| self.prompt >= TRUST) else { return false };
        if now() - since >= MOMENT {
            self.idle_since = None;
            self.prompt = 0;
        }
        self.idle_since.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client whose requests come so long after the answers. Whether it's looked for the last one until it comes.
    fn looked_for(requests: usize, after: Duration) -> bool {
        let mut attention = Attention::default();
        let mut now = Instant::now();
        let mut looked = false;
        for _ in 0..requests {
            looked = attention.look_again(true, || now);
            now += after / 2;
            looked &= attention.look_again(false, || now);
            now += after / 2;
            attention.received(|| now);
        }
        looked
    }

    #[test]
    fn requests_that_follow_their_answers_at_once_are_looked_for() {
        assert!(looked_for(20, MOMENT / 2));
        assert!(!looked_for(usize::from(TRUST), MOMENT / 2), "not before it's known that they do");
        assert!(!looked_for(20, MOMENT * 3), "they come later");
    }

    #[test]
    fn a_client_that_falls_silent_is_looked_for_only_a_moment() {
        let (mut attention, mut now) = (Attention::default(), Instant::now());
        for _ in 0..=TRUST {
            attention.look_again(true, || now);
            attention.received(|| now);
        }
        assert!(attention.look_again(true, || now));
        now += MOMENT;
        assert!(!attention.look_again(false, || now));
        assert!(!attention.look_again(false, || panic!("the clock isn't asked any more")));
        now += MOMENT;
        attention.received(|| panic!("nor when it speaks again"));
        assert!(!attention.look_again(true, || now), "it has to earn it anew");
    }
}
