//! How what goes on in the background leaves the drives to clients: while any are served, they have three quarters of the time.

use super::Group;
use crate::volume::Map;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tepal_drive::world::{Tick, World};

/// Of the time, for each part of it in which something was done in the background.
const CLIENTS_SHARE: u32 = 3;
/// What goes on at once in the background is over in about this time where clients are served: they wait behind it, or for some of it.
const SHORT: Duration = Duration::from_millis(50);
/// However slow the drives are, what goes on in the background comes to its end.
pub const LONGEST_REST: Duration = Duration::from_millis(500);

/// How many requests of clients had been served when something in the background last looked.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Served(u64);

/// How something goes on in the background beside clients: how many parts of it at once, which are fewer where clients would wait for
/// them, and as many as there may be where there are none.
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

    /// What was served until now is of no matter.
    pub fn begin_at(&mut self, now: Served) {
        self.known = now;
    }

    /// So many at once took so long. Answers whether clients were served meanwhile.
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

    /// Here, and in those columns of another map that are led by this server.
    pub fn served_with(&self, other: &Map<W>) -> Served {
        let there = other.groups().iter().map(|group| group.served().0).fold(0, u64::wrapping_add);
        Served(self.served().0.wrapping_add(there))
    }

    /// If anybody was served meanwhile, clients have the drives for themselves for some times as long as it's gone on since it `began`;
    /// unless it's urgent.
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
    fn what_takes_long_goes_on_less_at_once_while_clients_are_served_and_never_not_at_all() {
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
