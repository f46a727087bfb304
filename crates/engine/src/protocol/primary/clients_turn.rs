//! How what goes on in the background leaves the drives to clients: while any are served, they have three quarters of the time.

use super::Group;
use crate::volume::Map;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tepal_drive::world::{Tick, World};

/// Of the time, for each part of it in which something was done in the background.
const CLIENTS_SHARE: u32 = 3;
/// What goes on at once in the background is over in about this time where clients are served: they wait behind it, or for some of it.
const SHORT_TURN: Duration = Duration::from_millis(50);
/// However slow the drives are, what goes on in the background comes to its end.
pub const LONGEST_TURN: Duration = Duration::from_millis(500);

/// How many requests of clients had been served when something in the background last looked.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Served(u64);

/// How many things go on at once in the background: fewer where clients would wait for them, as many as there may be where there are none.
pub struct AtOnce {
    most: usize,
    now: usize,
}

impl AtOnce {
    pub fn of(most: usize) -> Self {
        AtOnce { most, now: most }
    }

    pub fn now(&self) -> usize {
        self.now
    }

    /// As many as there may be took so long.
    pub fn learn(&mut self, took: Duration, are_clients_served: bool) {
        self.now = match took {
            _ if !are_clients_served => self.most,
            long if long > SHORT_TURN * 2 => self.now / 2,
            long if long > SHORT_TURN => self.now - 1,
            _ => self.now + 1,
        };
        self.now = self.now.clamp(1, self.most);
    }
}

impl<W: World> Group<W> {
    pub fn served(&self) -> Served {
        Served(self.shared.served.load(Ordering::Relaxed))
    }

    /// Here, and in those columns of another map that are led by this server.
    pub fn served_with(&self, other: &Map<W>) -> Served {
        let there = other.groups().iter().map(|group| group.served().0).fold(0, u64::wrapping_add);
        Served(self.served().0.wrapping_add(there))
    }

    /// If anybody was served meanwhile, clients have the drives for themselves for some times as long as it's gone on since it `began`;
    /// unless it's urgent. Answers whether anybody was.
    pub async fn give_clients_their_turn(&self, known: &mut Served, now: Served, began: Tick, is_urgent: bool) -> bool {
        let before = std::mem::replace(known, now);
        if before != now && !is_urgent {
            let took = self.shared.world.now().0.saturating_sub(began.0);
            self.shared.world.sleep((took * CLIENTS_SHARE).min(LONGEST_TURN)).await;
        }
        before != now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_long_goes_on_less_at_once_while_clients_are_served_and_never_not_at_all() {
        let mut at_once = AtOnce::of(8);
        at_once.learn(SHORT_TURN * 40, false);
        assert_eq!(at_once.now(), 8, "nobody waits");
        let mut learnt = |took: u32, times: usize| {
            (0..times).for_each(|_| at_once.learn(SHORT_TURN * took / 10, true));
            at_once.now()
        };
        assert_eq!(learnt(21, 1), 4);
        assert_eq!(learnt(11, 1), 3);
        assert_eq!(learnt(100, 5), 1);
        assert_eq!(learnt(5, 3), 4);
        assert_eq!(learnt(5, 20), 8);
    }
}
