//! Order of writes: those that overlap are done one after another, first come first served; and a read that met one on
//! its way waits for its end.
//!
//! Why reads wait: the copies of a block change at different moments. What a read saw while a write was under way may be
//! on one copy only, and could be gone if that copy were lost now. Once the write has ended, all copies have it.

use futures_channel::oneshot;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

/// Ranges of blocks of one volume. Held ranges don't overlap.
#[derive(Clone, Debug, Default)]
pub struct WriteOrder {
    queues: Arc<Mutex<Queues>>,
}

#[derive(Debug, Default)]
struct Queues {
    held: BTreeMap<u64, Held>,
    waiting: VecDeque<Waiting>,
}

#[derive(Debug)]
struct Held {
    end: u64,
    readers: Vec<oneshot::Sender<()>>,
}

#[derive(Debug)]
struct Waiting {
    first: u64,
    end: u64,
    turn: oneshot::Sender<Turn>,
}

/// A range that is this write's until it's dropped.
#[derive(Debug)]
pub struct Turn {
    order: WriteOrder,
    first: u64,
}

/// A place in line.
#[derive(Debug)]
pub enum Place {
    First(Turn),
    Behind(oneshot::Receiver<Turn>),
}

impl Place {
    /// Waits until no other write of these blocks is under way or came first.
    pub async fn turn(self) -> Turn {
        match self {
            Place::First(turn) => turn,
            Place::Behind(turn) => turn.await.expect("whoever holds the range hands it on"),
        }
    }
}

fn overlaps(a: (u64, u64), b: (u64, u64)) -> bool {
    a.0 < b.1 && b.0 < a.1
}

impl Queues {
    fn is_held(&self, first: u64, end: u64) -> bool {
        self.held.range(..end).next_back().is_some_and(|(&start, held)| overlaps((start, held.end), (first, end)))
    }
}

impl WriteOrder {
    fn lock(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().expect("nothing panics while it holds the queues")
    }

    /// Takes a place in line behind all writes of these blocks that came before this call.
    pub fn line_up(&self, first: u64, count: u64) -> Place {
        let end = first + count.max(1);
        let mut queues = self.lock();
        let behind = queues.waiting.iter().any(|waiting| overlaps((waiting.first, waiting.end), (first, end)));
        if !behind && !queues.is_held(first, end) {
            queues.held.insert(first, Held { end, readers: Vec::new() });
            return Place::First(Turn { order: self.clone(), first });
        }
        let (turn, receiver) = oneshot::channel();
        queues.waiting.push_back(Waiting { first, end, turn });
        Place::Behind(receiver)
    }

    /// The writes of these blocks that are under way now: each resolves when its write has ended.
    pub fn under_way(&self, first: u64, count: u64) -> Vec<oneshot::Receiver<()>> {
        let mut queues = self.lock();
        if queues.held.is_empty() {
            return Vec::new();
        }
        let mut ends = Vec::new();
        for (_, held) in queues.held.range_mut(..first + count).rev() {
            if held.end <= first {
                break; // held ranges don't overlap, so those before end before
            }
            let (sender, receiver) = oneshot::channel();
            held.readers.push(sender);
            ends.push(receiver);
        }
        ends
    }

    #[cfg(test)]
    fn is_idle(&self) -> bool {
        let queues = self.lock();
        queues.held.is_empty() && queues.waiting.is_empty()
    }

    fn release(&self, first: u64) {
        let mut granted = Vec::new();
        {
            let mut queues = self.lock();
            let ended = queues.held.remove(&first);
            drop(ended); // dropping the senders tells the readers
            let mut kept: VecDeque<Waiting> = VecDeque::new();
            while let Some(next) = queues.waiting.pop_front() {
                let range = (next.first, next.end);
                let behind = kept.iter().any(|earlier| overlaps((earlier.first, earlier.end), range));
                if behind || queues.is_held(next.first, next.end) {
                    kept.push_back(next);
                } else {
                    queues.held.insert(next.first, Held { end: next.end, readers: Vec::new() });
                    granted.push(next);
                }
            }
            queues.waiting = kept;
        }
        for next in granted {
            // One that has given up drops its turn here, and so hands it on.
            let _ = next.turn.send(Turn { order: self.clone(), first: next.first });
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.order.release(self.first);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use futures_util::future::LocalBoxFuture;

    fn ask(order: &WriteOrder, first: u64, count: u64) -> LocalBoxFuture<'static, Turn> {
        let order = order.clone();
        let mut asked = order.line_up(first, count).turn().boxed_local();
        match (&mut asked).now_or_never() {
            Some(turn) => futures_util::future::ready(turn).boxed_local(),
            None => asked,
        }
    }

    #[test]
    fn overlapping_writes_go_in_the_order_they_came() {
        let order = WriteOrder::default();
        let first = ask(&order, 10, 10).now_or_never().expect("nothing is in its way");
        let mut second = ask(&order, 15, 10);
        let mut third = ask(&order, 22, 10);
        let fourth = ask(&order, 40, 1).now_or_never().expect("it overlaps nothing");
        assert!((&mut second).now_or_never().is_none());
        assert!((&mut third).now_or_never().is_none(), "it's behind the second, though its blocks are free");
        drop(first);
        let second = second.now_or_never().expect("its turn");
        assert!((&mut third).now_or_never().is_none());
        drop(second);
        assert!(third.now_or_never().is_some());
        drop(fourth);
        assert!(order.is_idle());
    }

    #[test]
    fn a_write_that_gave_up_does_not_hold_up_the_others() {
        let order = WriteOrder::default();
        let first = ask(&order, 0, 4).now_or_never().unwrap();
        let second = ask(&order, 0, 4);
        let third = ask(&order, 0, 4);
        drop(second);
        drop(first);
        assert!(third.now_or_never().is_some());
        assert!(order.is_idle());
    }

    #[test]
    fn a_read_waits_for_the_writes_that_it_met_only() {
        let order = WriteOrder::default();
        let write = ask(&order, 10, 10).now_or_never().unwrap();
        assert_eq!((order.under_way(0, 10).len(), order.under_way(20, 5).len()), (0, 0));
        let mut met = order.under_way(19, 5);
        assert!((&mut met[0]).now_or_never().is_none());
        drop(write);
        assert!((&mut met[0]).now_or_never().is_some());
    }
}
