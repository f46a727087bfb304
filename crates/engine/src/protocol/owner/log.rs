//! What the owner remembers of its log, and of changes in place that are under way.

use super::stripe::Stripe;
use crate::column::{Blocks, Group, State};
use futures_util::future::join_all;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};
use tepal_codec::erasure::ReedSolomon;
use tepal_drive::world::{Tick, World};
use tepal_model::Fragments;

/// Stripes whose last change is remembered.
const REMEMBERED: usize = 4096;

/// What the owner of a column remembers beside the column's state. Lock order: the state's lock is the outer one.
pub(crate) struct Log {
    code: Option<ReedSolomon>,
    known: Mutex<Known>,
}

#[derive(Default)]
pub(super) struct Known {
    /// Stripes of which the log may have something, and when each was written last.
    pub stripes: BTreeMap<u64, Tick>,
    /// All drives that were here at so many changes of the state have been asked what their logs have.
    pub listed: Option<u64>,
    /// The last write into the log.
    pub written: Tick,
    /// When a drive had no room for a write last.
    pub pressed: Option<Tick>,
    /// A task destages.
    pub is_tended: bool,
    /// Damaged blocks in place, by member, that are being rebuilt, or weren't lately: until when nobody tries again.
    pub rebuilt: BTreeMap<(usize, u64), Tick>,
    changes: Changes,
}

/// How the rows of a stripe change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// In place: a fragment that is decoded may be of different versions.
    InPlace,
    /// Blocks leave the log.
    Leaving,
}

/// Changes of stripes, that readers tell by whether they met one.
#[derive(Default)]
struct Changes {
    count: u64,
    under_way: BTreeMap<u64, Phase>,
    /// The number of the last change of each stripe that is remembered.
    last: BTreeMap<u64, u64>,
    /// Forgotten changes have at most this number.
    forgotten: u64,
}

impl Log {
    pub fn of(fragments: Fragments) -> Self {
        // Whole copies have no code.
        Log { code: ReedSolomon::new(fragments).ok(), known: Mutex::default() }
    }

    pub(super) fn code(&self) -> &ReedSolomon {
        self.code.as_ref().expect("a column with stripes has a code")
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().expect("nothing panics while it holds what is known of the log")
    }
}

impl Known {
    fn count(&mut self, stripe: u64) {
        let changes = &mut self.changes;
        if changes.last.len() > REMEMBERED {
            changes.forgotten = changes.count;
            changes.last.clear();
        }
        changes.count += 1;
        changes.last.insert(stripe, changes.count);
    }

    /// A change of a stripe goes into this phase. The caller has the turn of the whole stripe.
    pub fn begin(&mut self, stripe: u64, phase: Phase) {
        self.count(stripe);
        self.changes.under_way.insert(stripe, phase);
    }

    pub fn end(&mut self, stripe: u64) {
        self.count(stripe);
        self.changes.under_way.remove(&stripe);
    }

    /// Whether a change of a stripe is under way.
    pub fn is_changing(&self, stripe: u64) -> bool {
        self.changes.under_way.contains_key(&stripe)
    }

    /// The number of changes so far.
    pub fn changes(&self) -> u64 {
        self.changes.count
    }

    /// Whether a reader may have met a change of a stripe, since there were so many changes.
    pub fn disturbed(&self, stripe: u64, since: u64, decoded: bool) -> bool {
        let changes = &self.changes;
        let is_under_way = match changes.under_way.get(&stripe) {
            Some(Phase::Leaving) => true,
            Some(Phase::InPlace) => decoded,
            None => false,
        };
        is_under_way || changes.last.get(&stripe).copied().unwrap_or(changes.forgotten) > since
    }
}

/// A change of a stripe, which ends when this is dropped.
pub(super) struct Changing<'a, W: World> {
    group: &'a Group<W>,
    stripes: Vec<u64>,
}

impl<W: World> Drop for Changing<'_, W> {
    fn drop(&mut self) {
        let Ok(mut known) = self.group.shared.log.known.lock() else { return }; // poisoned: to panic here too would abort
        self.stripes.iter().for_each(|&stripe| known.end(stripe));
    }
}

impl<W: World> Changing<'_, W> {
    pub fn goes_on(&self, phase: Phase) {
        let mut known = self.group.shared.log.lock();
        self.stripes.iter().for_each(|&stripe| known.begin(stripe, phase));
    }
}

impl<W: World> Group<W> {
    /// Stripes change from now on. The caller has their turn.
    pub(super) fn changing(&self, stripes: impl Iterator<Item = u64>, phase: Phase) -> Changing<'_, W> {
        let changing = Changing { group: self, stripes: stripes.collect() };
        changing.goes_on(phase);
        changing
    }

    /// From now on the log may have something of these stripes.
    pub(super) fn may_log(&self, stripes: impl Iterator<Item = u64>) {
        let now = self.shared.world.now();
        {
            let mut known = self.shared.log.lock();
            known.written = now;
            known.stripes.extend(stripes.map(|stripe| (stripe, now)));
        }
        self.start_destaging();
    }

    /// From now on the log may have these blocks.
    pub(super) fn logs(&self, blocks: Blocks) {
        self.may_log(Stripe::touched(&self.shared.column, blocks).map(|stripe| stripe.number));
    }

    /// Returns when no change of a stripe is under way that was when this was called. Of a change that has ended nobody waits: the caller
    /// may have the turn of some of the blocks.
    pub(super) async fn until_changed(&self, stripe: Stripe) {
        if self.shared.log.lock().is_changing(stripe.number) {
            let blocks = stripe.blocks();
            join_all(self.shared.order.under_way(blocks.first, blocks.count)).await;
        }
    }
}

impl<W: World> State<W> {
    /// Whether the log may have something of a stripe.
    pub(super) fn is_logged(&self, known: &Known, stripe: u64) -> bool {
        known.listed != Some(self.changes) || known.stripes.contains_key(&stripe)
    }
}

#[cfg(test)]
impl Log {
    /// Whether it's known that the log has nothing.
    pub fn is_known_empty(&self) -> bool {
        let known = self.lock();
        known.listed.is_some() && !known.is_tended && known.stripes.is_empty()
    }
}
