//! The proposals of this process: numbered, so that each is carried out once however often it's sent.

use crate::command::Proposer;
use crate::state_machine::apply::once::MAX_OPEN;
use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tepal_model::ServerId;
use tokio::sync::{Semaphore, SemaphorePermit};

pub struct Proposals {
    server: ServerId,
    incarnation: u32,
    boot: u64,
    room: Semaphore,
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    last: u64,
    under_way: BTreeSet<u64>,
}

/// A proposal that somebody waits for. It's settled when this is dropped.
pub struct Ticket<'a> {
    proposals: &'a Proposals,
    pub from: Proposer,
    _room: Option<SemaphorePermit<'a>>,
}

impl Proposals {
    pub fn new(server: ServerId, incarnation: u32, boot: u64) -> Proposals {
        Proposals { server, incarnation, boot, room: Semaphore::new(MAX_OPEN), open: Mutex::default() }
    }

    /// The next proposal, once there is room for one more.
    pub async fn begin(&self) -> Ticket<'_> {
        let room = self.room.acquire().await.ok();
        let mut open = self.open();
        open.last += 1;
        let sequence = open.last;
        open.under_way.insert(sequence);
        let settled = open.under_way.first().copied().unwrap_or(sequence);
        let Proposals { server, incarnation, boot, .. } = *self;
        Ticket {
            proposals: self,
            from: Proposer { server, incarnation, boot, sequence, settled, up_since: None },
            _room: room,
        }
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        self.proposals.open().under_way.remove(&self.from.sequence);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_waits_for_any_more_is_settled_up_to_the_first_that_is_open() {
        let proposals = Proposals::new(ServerId(1), 0, 7);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let (first, second) = (proposals.begin().await, proposals.begin().await);
            assert_eq!((first.from.sequence, second.from.sequence), (1, 2));
            drop(second);
            assert_eq!(proposals.begin().await.from.settled, 1);
            drop(first);
            assert_eq!(proposals.begin().await.from.settled, 4);
        });
    }
}
