//! How background work leaves the drives to clients: while clients are served, they have three quarters of the time.

use super::Group;
use crate::volume::Map;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tepal_drive::world::{Tick, World};

/// The clients' time, as a multiple of the time that a round of background work took.
const CLIENTS_SHARE: u32 = 3;
/// About the longest time for one round of background work while clients are served: clients wait behind a round, or
/// for a part of it.
const SHORT: Duration = Duration::from_millis(50);
/// Limits the rest between rounds: however slow the drives are, background work comes to its end.
pub const LONGEST_REST: Duration = Duration::from_millis(500);

/// A count of clients' requests, as background work last saw it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Served(u64);

/// How many parts of some background work run at once: fewer where clients would wait for them, and as many as allowed
/// where there are no clients.
pub struct Pace {
    known: Served,
    most: usize,
    at_once: usize,
}

impl Pace {
    pub fn of(known: Served, most: usize) -> Self {
        Pace { known, most, at_once: most }
    }

    pub fn at_once(&self) -> usize {
        self.at_once
    }

    /// Ignores all requests that were served until now.
    pub fn begin_at(&mut self, now: Served) {
        self.known = now;
    }

    /// Learns from how long a round took. Returns whether clients were served meanwhile.
    fn learn(&mut self, now: Served, took: Duration) -> bool {
        let are_clients_served = std::mem::replace(&mut self.known, now) != now;
        let at_once = match took {
            _ if !are_clients_served => self.most,
            long if long > SHORT * 2 => self.at_once / 2,
            long if long > SHORT => self.at_once - 1,
            _ => self.at_once + 1,
        };
        self.at_once = at_once.clamp(1, self.most);
        are_clients_served
    }
}

impl<W: World> Group<W> {
    pub fn served(&self) -> Served {
        Served(self.shared.served.load(Ordering::Relaxed))
    }

    /// The count of this column, and of another map's columns that this server leads.
    pub fn served_with(&self, other: &Map<W>) -> Served {
        let there = other.groups().iter().map(|group| group.served().0).fold(0, u64::wrapping_add);
        Served(self.served().0.wrapping_add(there))
    }

    /// Rests after a round if clients were served since it `began`: the rest is [`CLIENTS_SHARE`] times as long as the
    /// round. Urgent work doesn't rest.
    pub async fn rest_for_clients(&self, pace: &mut Pace, now: Served, began: Tick, is_urgent: bool) {
        let took = self.shared.world.now().0.saturating_sub(began.0);
        if pace.learn(now, took) && !is_urgent {
            self.shared.world.sleep((took * CLIENTS_SHARE).min(LONGEST_REST)).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_rounds_shrink_but_never_stop_beside_clients() {
        let mut pace = Pace::of(Served(0), 8);
        assert!(!pace.learn(Served(0), SHORT * 40));
        assert_eq!(pace.at_once(), 8, "nobody waits");
        let mut served = 0;
        let mut learnt = |took: u32, times: usize| {
            for _ in 0..times {
                served += 1;
                assert!(pace.learn(Served(served), SHORT * took / 10));
            }
            pace.at_once()
        };
        assert_eq!(learnt(21, 1), 4);
        assert_eq!(learnt(11, 1), 3);
        assert_eq!(learnt(100, 5), 1);
        assert_eq!(learnt(5, 3), 4);
        assert_eq!(learnt(5, 20), 8);
    }
}
