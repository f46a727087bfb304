//! Turns: whoever writes some blocks has them to itself.

use futures_channel::oneshot;
use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;

#[derive(Default)]
struct Turns {
    taken: Vec<Range<u64>>,
    waiting: Vec<oneshot::Sender<()>>,
}

#[derive(Clone, Default)]
pub struct RangeLocks(Rc<RefCell<Turns>>);

/// Gives the range back when dropped.
pub struct Held {
    turns: Rc<RefCell<Turns>>,
    range: Range<u64>,
}

impl RangeLocks {
    pub async fn take(&self, range: Range<u64>) -> Held {
        loop {
            let turn = {
                let mut turns = self.0.borrow_mut();
                if turns.taken.iter().all(|taken| taken.end <= range.start || range.end <= taken.start) {
                    turns.taken.push(range.clone());
                    return Held { turns: self.0.clone(), range };
                }
                let (tell, turn) = oneshot::channel();
                turns.waiting.push(tell);
                turn
            };
            let _ = turn.await;
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let waiting = {
            let mut turns = self.turns.borrow_mut();
            if let Some(place) = turns.taken.iter().position(|taken| *taken == self.range) {
                turns.taken.swap_remove(place);
            }
            std::mem::take(&mut turns.waiting)
        };
        for tell in waiting {
            let _ = tell.send(()); // who was killed meanwhile needs no turn
        }
    }
}
