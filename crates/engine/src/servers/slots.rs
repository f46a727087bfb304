//! Slots and numbers for this server's requests of primaries as a gateway. By them a retried request is recognized.

use crate::view::View;
use std::sync::{Arc, Mutex, MutexGuard};
use tepal_model::Origin;

pub(crate) struct Slots {
    gateway: u64,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    free: Vec<u32>,
    highest: u32,
    number: u64,
}

/// A slot while a request has it. A request that is given up may still be under way. As nobody waits for its outcome, a
/// later request may have its slot.
pub(crate) struct Ticket {
    slots: Arc<Mutex<State>>,
    pub origin: Origin,
}

impl Slots {
    pub fn new(gateway: u64) -> Self {
        Slots { gateway, state: Arc::default() }
    }

    /// The number of this gateway among all that run.
    pub fn gateway(&self) -> u64 {
        self.gateway
    }

    /// Takes a slot for a request that is made in this view.
    pub fn take(&self, view: View) -> Ticket {
        let mut state = lock(&self.state);
        state.number += 1;
        let slot = state.free.pop().unwrap_or_else(|| {
            state.highest += 1;
            state.highest
        });
        Ticket { slots: self.state.clone(), origin: Origin { gateway: self.gateway, slot, number: state.number, view } }
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().expect("nothing panics while it holds the slots")
}

impl Drop for Ticket {
    fn drop(&mut self) {
        lock(&self.slots).free.push(self.origin.slot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_free_again_however_its_request_ends() {
        let slots = Slots::new(1);
        let first = slots.take(1);
        assert_ne!(slots.take(1).origin.slot, first.origin.slot);
        drop(first);
        for _ in 0..10 {
            assert!(slots.take(1).origin.slot <= 2);
        }
    }
}
