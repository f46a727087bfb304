//! Order of writes: writes that overlap are done one after the other, in the order of their arrival. A read that met a
//! write under way waits for the write's end.
//!
//! Why reads wait: the copies of a block change at different moments. Data that a read saw while a write was under way
//! may be on one copy only, and would be gone with that copy. Once the write has ended, all copies have the data.
//!
//! A write that has reached some copies and then waits for others to return can't let later writes pass: the write
//! would land a second time, on newer data. But the missing copies return only by being repaired. So the write keeps
//! its turn and lends it: repairs pass, writes don't. The write goes on when no repair is under way.
//!
//! A read waits before it reads for every overlapping write that has been queued for long. The client that left such a
//! write behind may have gone on elsewhere, and must not see the write appear behind the data that it reads there.
//!
//! A write that is under way when a snapshot is taken may be in the snapshot. So a read that comes after the snapshot
//! waits for the write's end before it reads: otherwise the read could return data older than the snapshot's.

use crate::bell::Bell;
use futures_channel::oneshot;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use tepal_drive::world::Tick;

/// Ranges of blocks of one volume.
#[derive(Clone, Debug, Default)]
pub struct WriteOrder {
    queues: Arc<Mutex<Queues>>,
}

/// Held ranges of one purpose don't overlap. Ranges of both purposes overlap only where a write has lent its turn.
#[derive(Debug, Default)]
struct Queues {
    writes: BTreeMap<u64, Held>,
    repairs: BTreeMap<u64, Held>,
    /// Ordered by number.
    waiting: VecDeque<Waiting>,
    /// How many requests have ever waited.
    numbered: u64,
    /// How many writes have lent their turns.
    lent: usize,
    /// How many writes wait for the end of repairs that they let in.
    reclaimed: usize,
    /// How many writes under way now were so when a snapshot was taken.
    before_snapshot: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    Write,
    /// Makes copies equal, and changes nothing that a client sees.
    Repair,
}

/// When a client's change was queued. `None` for a change that no client has asked for.
type Since = Option<Tick>;

#[derive(Debug)]
struct Held {
    end: u64,
    since: Since,
    readers: Bell,
    lending: Lending,
    /// The change was under way when a snapshot was taken.
    before_snapshot: bool,
}

#[derive(Debug)]
enum Lending {
    /// Nobody else may come in.
    Own,
    /// Repairs may come in.
    Lent,
    /// No more repairs may come in. Repairs under way are waited for.
    Reclaimed(oneshot::Sender<()>),
}

#[derive(Debug)]
struct Waiting {
    number: u64,
    first: u64,
    end: u64,
    since: Since,
    purpose: Purpose,
    /// Reads that wait for this change's end.
    readers: Bell,
    turn: oneshot::Sender<Turn>,
}

/// The right to a range, for one write or repair, until it's dropped.
#[derive(Debug)]
pub struct Turn {
    order: WriteOrder,
    first: u64,
    purpose: Purpose,
}

/// A place in the queue.
#[derive(Debug)]
pub enum Queued {
    First(Turn),
    Behind(Behind),
}

/// Leaves the queue when it's dropped.
#[derive(Debug)]
pub struct Behind {
    order: WriteOrder,
    number: u64,
    turn: oneshot::Receiver<Turn>,
}

impl Drop for Behind {
    fn drop(&mut self) {
        self.order.change(|queues| {
            let place = queues.waiting.binary_search_by_key(&self.number, |waiting| waiting.number).ok()?;
            queues.waiting.remove(place).map(|waiting| waiting.range())
        });
    }
}

impl Queued {
    /// Waits for the end of everything that is in the way, under way or queued before.
    pub async fn turn(self) -> Turn {
        match self {
            Queued::First(turn) => turn,
            Queued::Behind(behind) => behind.turn().await,
        }
    }
}

impl Behind {
    /// For [`WriteOrder::is_held_up`].
    pub fn number(&self) -> u64 {
        self.number
    }

    /// As [`Queued::turn`].
    pub async fn turn(mut self) -> Turn {
        (&mut self.turn).await.expect("whoever holds the range hands it on")
    }
}

fn overlaps(a: (u64, u64), b: (u64, u64)) -> bool {
    a.0 < b.1 && b.0 < a.1
}

/// The held ranges that overlap this one, the last first.
fn met(held: &BTreeMap<u64, Held>, (first, end): (u64, u64)) -> impl Iterator<Item = &Held> {
    // Held ranges of one purpose don't overlap. So if one ends before `first`, all that begin earlier do too.
    held.range(..end).rev().map(|(_, held)| held).take_while(move |held| held.end > first)
}

impl Waiting {
    fn range(&self) -> (u64, u64) {
        (self.first, self.end)
    }

    /// Whether a later request must stay behind this one. A repair passes queued writes: they may be waiting for the
    /// repair.
    fn holds_up(&self, later: (u64, u64), purpose: Purpose) -> bool {
        overlaps(self.range(), later) && (purpose == Purpose::Write || self.purpose == Purpose::Repair)
    }
}

impl Queues {
    fn is_free(&self, range: (u64, u64), purpose: Purpose) -> bool {
        let admits = |held: &Held| purpose == Purpose::Repair && matches!(held.lending, Lending::Lent);
        met(&self.writes, range).all(admits) && met(&self.repairs, range).next().is_none()
    }

    /// Undoes what lending, or reclaiming, has counted.
    fn no_more(&mut self, lending: &Lending) {
        match lending {
            Lending::Own => {}
            Lending::Lent => self.lent -= 1,
            Lending::Reclaimed(_) => self.reclaimed -= 1,
        }
    }

    fn is_lent(&self, range: (u64, u64)) -> bool {
        met(&self.writes, range).any(|held| matches!(held.lending, Lending::Lent))
    }

    /// Undoes what an ended change has counted.
    fn ended(&mut self, ended: &Held) {
        self.no_more(&ended.lending);
        self.before_snapshot -= usize::from(ended.before_snapshot);
    }

    fn held(&mut self, purpose: Purpose) -> &mut BTreeMap<u64, Held> {
        match purpose {
            Purpose::Write => &mut self.writes,
            Purpose::Repair => &mut self.repairs,
        }
    }

    fn hold(&mut self, (first, end): (u64, u64), purpose: Purpose, since: Since, readers: Bell) {
        let held = Held { end, since, readers, lending: Lending::Own, before_snapshot: false };
        self.held(purpose).insert(first, held);
    }

    /// Gives turns to waiting requests that nothing is in the way of any more. Only requests that overlap the freed
    /// blocks are looked at: thousands may wait elsewhere.
    fn grant(&mut self, freed: (u64, u64)) -> Vec<Waiting> {
        let mut granted = Vec::new();
        let mut at = 0;
        while let Some(next) = self.waiting.get(at) {
            let (range, purpose) = (next.range(), next.purpose);
            let is_next = overlaps(range, freed)
                && self.is_free(range, purpose)
                && !self.waiting.range(..at).any(|earlier| earlier.holds_up(range, purpose));
            if is_next && let Some(mut next) = self.waiting.remove(at) {
                self.hold(range, purpose, next.since, std::mem::take(&mut next.readers));
                granted.push(next);
            } else {
                at += 1;
            }
        }
        granted
    }

    /// Tells reclaiming writes that no repair is left in their range.
    fn give_back(&mut self) {
        if self.reclaimed == 0 {
            return;
        }
        let (writes, repairs) = (&mut self.writes, &self.repairs);
        for (&first, held) in writes.iter_mut().filter(|(_, held)| matches!(held.lending, Lending::Reclaimed(_))) {
            if met(repairs, (first, held.end)).next().is_none()
                && let Lending::Reclaimed(owner) = std::mem::replace(&mut held.lending, Lending::Own)
            {
                self.reclaimed -= 1;
                let _ = owner.send(()); // a write that was dropped meanwhile gives its turn up next
            }
        }
    }
}

impl WriteOrder {
    fn lock(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().expect("nothing panics while it holds the queues")
    }

    /// Takes a place behind all queued writes and repairs of these blocks. For a client's request `since` is now: reads
    /// may have to come after its change.
    pub fn line_up(&self, first: u64, count: u64, since: Since) -> Queued {
        self.line_up_for(Purpose::Write, (first, count), since)
    }

    /// Takes a place behind the repairs of these blocks, and behind the writes that have a turn and haven't lent it.
    pub fn line_up_repair(&self, first: u64, count: u64) -> Queued {
        self.line_up_for(Purpose::Repair, (first, count), None)
    }

    fn line_up_for(&self, purpose: Purpose, (first, count): (u64, u64), since: Since) -> Queued {
        let end = first + count.max(1);
        let mut queues = self.lock();
        let behind = queues.waiting.iter().any(|earlier| earlier.holds_up((first, end), purpose));
        if !behind && queues.is_free((first, end), purpose) {
            queues.hold((first, end), purpose, since, Bell::default());
            return Queued::First(Turn { order: self.clone(), first, purpose });
        }
        let (turn, receiver) = oneshot::channel();
        let number = queues.numbered;
        queues.numbered += 1;
        queues.waiting.push_back(Waiting { number, first, end, since, purpose, readers: Bell::default(), turn });
        Queued::Behind(Behind { order: self.clone(), number, turn: receiver })
    }

    /// The writes and repairs of these blocks that are under way now. Each receiver resolves when its change has ended.
    pub fn under_way(&self, first: u64, count: u64) -> Vec<oneshot::Receiver<()>> {
        let mut queues = self.lock();
        let queues = &mut *queues;
        if queues.writes.is_empty() && queues.repairs.is_empty() {
            return Vec::new();
        }
        let mut ends = Vec::new();
        for of_purpose in [&mut queues.writes, &mut queues.repairs] {
            let overlapping = of_purpose.range_mut(..first + count).rev().take_while(|(_, held)| held.end > first);
            ends.extend(overlapping.map(|(_, held)| held.readers.listen()));
        }
        ends
    }

    /// The clients' changes of these blocks that were queued at `then` or before. Each receiver resolves when its
    /// change has ended.
    pub fn in_line_since(&self, first: u64, count: u64, then: Tick) -> Vec<oneshot::Receiver<()>> {
        let mut queues = self.lock();
        let queues = &mut *queues;
        let end = first + count;
        let is_before = |since: Since| since.is_some_and(|since| since <= then);
        let under_way = queues.writes.range_mut(..end).rev().take_while(|(_, held)| held.end > first);
        let under_way = under_way.filter(|(_, held)| is_before(held.since));
        let mut ends: Vec<_> = under_way.map(|(_, held)| held.readers.listen()).collect();
        // Waiting requests are in the order of their arrival.
        let waiting = queues.waiting.iter_mut().take_while(|waiting| waiting.since.is_none_or(|since| since <= then));
        let waiting = waiting.filter(|waiting| is_before(waiting.since) && overlaps(waiting.range(), (first, end)));
        ends.extend(waiting.map(|waiting| waiting.readers.listen()));
        ends
    }

    /// Marks the writes that are under way now: the snapshot that is being taken may show them.
    pub fn note_snapshot(&self) {
        let mut queues = self.lock();
        queues.writes.values_mut().for_each(|held| held.before_snapshot = true);
        queues.before_snapshot = queues.writes.len();
    }

    /// Whether a write of these blocks is under way that already was when a snapshot was taken.
    pub fn may_be_in_snapshot(&self, first: u64, count: u64) -> bool {
        let queues = self.lock();
        queues.before_snapshot > 0 && met(&queues.writes, (first, first + count)).any(|held| held.before_snapshot)
    }

    /// Whether a write of these blocks has lent its turn, and so waits for copies to return.
    pub fn is_lent(&self, first: u64, count: u64) -> bool {
        self.lock().is_lent((first, first + count))
    }

    /// Whether the waiting request with this number is behind a write that has lent its turn, or behind other requests
    /// that are.
    pub fn is_held_up(&self, number: u64) -> bool {
        let queues = self.lock();
        if queues.lent == 0 {
            return false;
        }
        let Ok(place) = queues.waiting.binary_search_by_key(&number, |waiting| waiting.number) else { return false };
        let own = queues.waiting[place].range();
        // Mostly this decides already; and many may ask, one after the other.
        if queues.is_lent(own) {
            return true;
        }
        let mut held_up: Vec<(u64, u64)> = Vec::new();
        for earlier in queues.waiting.range(..place).filter(|earlier| earlier.purpose == Purpose::Write) {
            let range = earlier.range();
            if queues.is_lent(range) || held_up.iter().any(|&other| overlaps(other, range)) {
                held_up.push(range);
            }
        }
        held_up.into_iter().any(|earlier| overlaps(earlier, own))
    }

    /// Whether no turn is held or waited for.
    pub fn is_idle(&self) -> bool {
        let queues = self.lock();
        queues.writes.is_empty() && queues.repairs.is_empty() && queues.waiting.is_empty()
    }

    /// Changes the queues, then hands out the turns that have become free. `change` returns the blocks that something
    /// has gone from, if any.
    fn change(&self, change: impl FnOnce(&mut Queues) -> Option<(u64, u64)>) {
        let granted = {
            let mut queues = self.lock();
            let freed = change(&mut queues);
            queues.give_back();
            freed.map(|freed| queues.grant(freed)).unwrap_or_default()
        };
        for Waiting { first, purpose, turn, .. } in granted {
            // A waiting request that has given up drops its turn here, and so hands the turn on.
            let _ = turn.send(Turn { order: self.clone(), first, purpose });
        }
    }
}

impl Turn {
    /// Lets repairs of these blocks pass until it's reclaimed.
    pub fn lend(&self) {
        self.order.change(|queues| {
            let held = queues.held(self.purpose).get_mut(&self.first)?;
            let (end, before) = (held.end, std::mem::replace(&mut held.lending, Lending::Lent));
            queues.no_more(&before);
            queues.lent += 1;
            Some((self.first, end))
        });
    }

    /// Lets no more repairs in, and waits for the end of repairs under way.
    pub async fn reclaim(&self) {
        let (sender, receiver) = oneshot::channel();
        self.order.change(|queues| {
            let held = queues.held(self.purpose).get_mut(&self.first)?;
            let before = std::mem::replace(&mut held.lending, Lending::Reclaimed(sender));
            queues.no_more(&before);
            queues.reclaimed += 1;
            None
        });
        let _ = receiver.await; // sent at once if no repair is under way
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        // The readers' bell is dropped with the range, which wakes the readers.
        self.order.change(|queues| {
            let ended = queues.held(self.purpose).remove(&self.first)?;
            queues.ended(&ended);
            Some((self.first, ended.end))
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use futures_util::future::LocalBoxFuture;
    use std::time::Duration;

    fn ask(order: &WriteOrder, first: u64, count: u64) -> LocalBoxFuture<'static, Turn> {
        let order = order.clone();
        let mut asked = order.line_up(first, count, None).turn().boxed_local();
        match (&mut asked).now_or_never() {
            Some(turn) => futures_util::future::ready(turn).boxed_local(),
            None => asked,
        }
    }

    #[test]
    fn overlapping_writes_run_in_the_order_of_arrival() {
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
    fn a_write_that_gave_up_blocks_no_other() {
        let order = WriteOrder::default();
        let first = ask(&order, 0, 4).now_or_never().unwrap();
        let second = ask(&order, 0, 4);
        let third = ask(&order, 0, 4);
        drop(second);
        drop(first);
        assert!(third.now_or_never().is_some());
        assert!(order.is_idle());
    }

    /// Story: requests that were retried, and given up each time before their turn, stayed queued. In the end so many
    /// waited that giving a turn back took a server's thread for minutes.
    #[test]
    fn a_request_that_gives_up_leaves_the_queue() {
        let order = WriteOrder::default();
        let first = ask(&order, 0, 4).now_or_never().unwrap();
        let second = ask(&order, 0, 8);
        let mut third = ask(&order, 6, 2);
        assert!((&mut third).now_or_never().is_none(), "it's behind the second");
        for _ in 0..1000 {
            assert!(ask(&order, 0, 4).now_or_never().is_none());
        }
        assert_eq!(order.lock().waiting.len(), 2);
        drop(second);
        assert!(third.now_or_never().is_some());
        assert!(order.lock().waiting.is_empty());
        drop(first);
        assert!(order.is_idle());
    }

    #[test]
    fn a_read_waits_only_for_overlapping_writes() {
        let order = WriteOrder::default();
        let write = ask(&order, 10, 10).now_or_never().unwrap();
        assert_eq!((order.under_way(0, 10).len(), order.under_way(20, 5).len()), (0, 0));
        let mut met = order.under_way(19, 5);
        assert!((&mut met[0]).now_or_never().is_none());
        drop(write);
        assert!((&mut met[0]).now_or_never().is_some());
    }

    #[test]
    fn a_read_waits_for_long_queued_overlapping_writes() {
        let order = WriteOrder::default();
        let at = |second| Tick(Duration::from_secs(second));
        let line_up = |first, second| order.line_up(first, 10, Some(at(second))).turn().boxed_local();
        let first = line_up(0, 1).now_or_never().unwrap();
        let mut second = line_up(5, 2);
        let given_up = line_up(12, 3);
        assert!((&mut second).now_or_never().is_none());
        let of_no_client = order.line_up(6, 30, None);
        assert_eq!([0, 1, 2, 3].map(|then| order.in_line_since(6, 3, at(then)).len()), [0, 1, 2, 2]);
        assert!(order.in_line_since(30, 1, at(3)).is_empty());
        drop(of_no_client);
        let mut met = order.in_line_since(13, 1, at(3));
        assert_eq!(met.len(), 2, "those that wait, none of which is under way");
        drop(given_up);
        assert!((&mut met[1]).now_or_never().is_some());
        drop(first);
        let second = second.now_or_never().expect("its turn");
        assert!((&mut met[0]).now_or_never().is_none(), "it's under way now");
        drop(second);
        assert!((&mut met[0]).now_or_never().is_some());
        assert!(order.is_idle());
    }

    #[test]
    fn a_snapshot_may_show_only_writes_already_under_way() {
        let order = WriteOrder::default();
        let write = ask(&order, 10, 10).now_or_never().unwrap();
        let mut later = ask(&order, 15, 10);
        order.note_snapshot();
        let elsewhere = ask(&order, 40, 1).now_or_never().unwrap();
        assert_eq!(
            [0, 10, 19, 20, 40].map(|block| order.may_be_in_snapshot(block, 1)),
            [false, true, true, false, false]
        );
        drop(write);
        assert!((&mut later).now_or_never().is_some());
        order.note_snapshot();
        assert_eq!([15, 20, 40].map(|block| order.may_be_in_snapshot(block, 1)), [false, false, true]);
        drop(elsewhere);
        assert_eq!(order.lock().before_snapshot, 0);
    }

    #[test]
    fn only_requests_behind_lent_turns_are_held_up() {
        let order = WriteOrder::default();
        let number = |place: &Queued| match place {
            Queued::Behind(behind) => behind.number(),
            Queued::First(_) => panic!("others are ahead of it"),
        };
        let lent = ask(&order, 0, 10).now_or_never().unwrap();
        let slow = ask(&order, 20, 10).now_or_never().unwrap();
        let behind_both = order.line_up(5, 20, None);
        let behind_slow = order.line_up(26, 2, None);
        let behind_that = order.line_up(22, 2, None);
        let is_held_up = |place: &Queued| order.is_held_up(number(place));
        assert!(![&behind_both, &behind_slow, &behind_that].into_iter().any(is_held_up));
        lent.lend();
        assert!(is_held_up(&behind_both));
        assert!(is_held_up(&behind_that), "behind one that is");
        assert!(!is_held_up(&behind_slow), "the lent blocks are none of its own, nor of one ahead of it");
        drop((lent, slow));
    }

    #[test]
    fn a_lent_turn_lets_repairs_but_no_writes_pass() {
        let order = WriteOrder::default();
        let write = ask(&order, 10, 10).now_or_never().unwrap();
        let mut later = ask(&order, 15, 1);
        let mut repair = order.line_up_repair(12, 4).turn().boxed_local();
        assert!((&mut repair).now_or_never().is_none(), "the turn isn't lent yet");
        write.lend();
        let repair = repair.now_or_never().expect("it passes the write that waits behind");
        assert!((&mut later).now_or_never().is_none());
        let mut own = write.reclaim().boxed_local();
        assert!((&mut own).now_or_never().is_none(), "the repair is under way");
        drop(repair);
        assert!(own.now_or_never().is_some());
        drop(write);
        assert!(later.now_or_never().is_some());
        assert!(order.is_idle());
    }
}
