//! How what goes on in the background leaves the drives to clients: while any are served, they have three quarters of the time.

use super::Group;
use crate::volume::Map;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tepal_drive::world::{Tick, World};

/// Of the time, for each part of it in which something was done in the background.
const CLIENTS_SHARE: u32 = 3;
/// However slow the drives are, what goes on in the background comes to its end.
pub const LONGEST_TURN: Duration = Duration::from_millis(500);

/// How many requests of clients had been served when something in the background last looked.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Served(u64);

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
    pub async fn give_clients_their_turn(&self, known: &mut Served, now: Served, began: Tick, is_urgent: bool) {
        let before = std::mem::replace(known, now);
        if before != now && !is_urgent {
            let took = self.shared.world.now().0.saturating_sub(began.0);
            self.shared.world.sleep((took * CLIENTS_SHARE).min(LONGEST_TURN)).await;
        }
    }
}
