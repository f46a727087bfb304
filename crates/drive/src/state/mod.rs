//! What an open drive keeps in memory, behind one lock that is never held across a wait.

pub mod cut;
pub mod hidden;
pub mod map;
pub mod marks;
pub mod operation;
pub mod requests;
pub mod space;

use crate::error::Loss;
use crate::extent::{BlockSpan, ExtentKey};
use crate::geometry::Geometry;
use crate::log::pace::Pace;
use crate::log::pending::Pending;
use crate::log::{Change, Position, RESERVE_PART, Ring};
use crate::state::cut::Cut;
use crate::state::hidden::Hidden;
use crate::state::map::PhysicalMap;
use crate::state::marks::Marks;
use crate::state::operation::Operation;
use crate::state::requests::Requests;
use crate::state::space::Space;
use crate::table::sums::SumCache;
use bytes::Bytes;
use futures_channel::oneshot;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use tepal_model::BLOCK;

/// Somebody's turn at a thing that is done by one at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    Idle,
    Running,
}

#[derive(Debug)]
pub struct State {
    pub map: PhysicalMap,
    pub space: Space,
    pub pending: Pending,
    pub sums: SumCache,
    pub marks: Marks,
    pub requests: Requests,
    pub hidden: Hidden,
    pub ring: Ring,
    /// Where each batch since the tail starts.
    pub batches: VecDeque<Position>,
    /// Operations that wait for a batch, and flushes that wait for the batch under way.
    pub queue: VecDeque<Operation>,
    pub flushes: Vec<oneshot::Sender<Result<(), Arc<Loss>>>>,
    /// The checkpoint that was the newest when what waits found no room in a log that holds nothing but marks.
    pub stuck_since: Option<u64>,
    /// A checkpoint that waits for its cut.
    pub cut: Option<oneshot::Sender<Result<Cut, Arc<Loss>>>>,
    pub committer: Turn,
    pub destager: Turn,
    pub destage_waiters: Vec<oneshot::Sender<()>>,
    pub checkpointer: Turn,
    pub checkpoint_waiters: Vec<oneshot::Sender<()>>,
    pub pace: Pace,
    pub maintenance: Turn,
    /// The newest batch whose changes are in this state, and the newest on stable media.
    pub applied: u64,
    pub durable: u64,
    /// A batch that isn't on stable media speaks of data in slots. The committer's own.
    pub slots_unflushed: bool,
    /// Slots that are free as soon as the batch that freed them is on stable media.
    pub freed: VecDeque<(u64, u32)>,
    /// Freed by a clear, and not yet discarded on the device.
    pub trimmed: BTreeSet<u32>,
    /// Slots that are held while the device discards them, and writes that wait for its end.
    pub discarding: u32,
    pub discard_waiters: Vec<oneshot::Sender<()>>,
    /// Writes under way to each slot, which keep an empty extent its slot.
    pub in_flight: BTreeMap<u32, u32>,
    /// Slots of writes under way that are to replace others.
    pub replacing: u32,
    /// Slots that destaging is writing to, which keep a freed slot from its next owner.
    pub destaging: BTreeSet<u32>,
    /// Slots whose layers are being joined, and which of their blocks have changed since that began.
    pub joining: BTreeMap<u32, u16>,
    pub dirty_map_pages: BTreeSet<u32>,
    /// Which checkpoint wrote each page of the map table; its length is how many pages there are.
    pub map_versions: Vec<u64>,
    pub checkpoint: u64,
    pub dropped_tail: bool,
    /// The newest batch when the drive was opened.
    pub newest_found: u64,
    pub loss: Option<Arc<Loss>>,
    pub closed: bool,
    pub read_errors: u64,
    pub block_errors: u64,
}

/// What a write may not use, so that overwrites and repairs always find room.
pub fn reserve(slots: u32) -> u32 {
    (slots / 100).max(4).min(slots / 4)
}

impl State {
    pub fn alive(&self) -> Result<(), Arc<Loss>> {
        self.loss.as_ref().map_or(Ok(()), |loss| Err(loss.clone()))
    }

    /// Slots that new data may take. What overwrites have taken of the reserve is only lent to them.
    pub fn available(&self) -> u32 {
        let reserve = reserve(self.space.slots());
        (self.space.free() + self.replacing.min(reserve)).saturating_sub(reserve)
    }

    /// Whether an overwrite may go to a fresh slot: out of the reserve, or where there is plenty. New data would find the
    /// drive full for the moment else.
    pub fn may_replace(&self) -> bool {
        let slots = self.space.slots();
        self.replacing < reserve(slots) || self.space.free() > slots / 8
    }

    /// What part of the log ordinary batches leave free: a checkpoint puts all notes into the log afresh, wherever its head is.
    pub fn log_reserve(&self) -> u64 {
        let notes = self.marks.most_bytes() + self.requests.most_bytes() + self.hidden.most_bytes();
        let length = self.ring.length;
        (length / RESERVE_PART).max(2 * notes + length / (2 * RESERVE_PART)) / BLOCK * BLOCK
    }

    /// Whether all marks, with those of so many more words, take at most that part of the log.
    pub fn may_mark(&self, more: usize, part: u64) -> bool {
        self.marks.most_bytes() + more as u64 * Marks::MOST_BYTES_EACH <= self.ring.length / part
    }

    /// Applies a committed change. `payload` holds the data of a `Logged` one.
    pub fn apply(&mut self, change: &Change, sequence: u64, payload: Option<&Bytes>, geometry: &Geometry) {
        match change {
            Change::Logged { key, slot, span, sums } => {
                self.set_present(*key, *slot, *span, geometry);
                self.pending.add(*slot, *key, *span, sums, sequence, payload);
            }
            Change::Placed { key, slot, span, sums } => {
                if let Some((old, _)) = self.map.get(*key).filter(|(old, _)| old != slot) {
                    self.unmap(*key, old, sequence, geometry);
                }
                self.set_present(*key, *slot, *span, geometry);
                self.pending.add(*slot, *key, *span, sums, sequence, None);
            }
            Change::Cleared { key, span } => self.clear(*key, *span, sequence, geometry),
            Change::ClearedExtents { map, first, count, epochs } => {
                let within = self.map.layers_within(*map, *first..first.saturating_add(*count));
                let is_meant = |epoch| epochs.iter().any(|&(first, last)| (first..=last).contains(&epoch));
                let cleared: Vec<_> = within.filter(|(key, _)| is_meant(key.epoch)).map(|(key, _)| key).collect();
                for key in cleared {
                    self.clear(key, BlockSpan::WHOLE, sequence, geometry);
                }
            }
            Change::Hid { map, epoch, first, count } => self.hidden.hide(*map, *epoch, *first, *count),
            Change::Unhid { map, epochs, first, count } => self.hidden.unhide(*map, *epochs, *first, *count),
            Change::Marked(mark) => {
                self.marks.insert(*mark);
            }
            Change::MarkedMany { map, kind, word, regions } => self.marks.insert_many(*map, *kind, *word, *regions),
            Change::Unmarked(mark) => {
                self.marks.remove(mark);
            }
            Change::UnmarkedMap { map } => self.marks.remove_map(*map),
            Change::Took { map, taken } => self.requests.take(*map, *taken),
            Change::Untook { map, first, count } => self.requests.untake(*map, *first, *count),
            Change::Dropped { gateway, dropped } => self.requests.drop_of(*gateway, *dropped),
            Change::Forgotten { view } => self.requests.forget(*view),
            Change::NotesReset => {
                self.marks.clear();
                self.requests.clear();
                self.hidden.clear();
            }
            Change::SumPages { .. } => {} // of use to an interrupted checkpoint only
        }
    }

    fn set_present(&mut self, key: ExtentKey, slot: u32, span: BlockSpan, geometry: &Geometry) {
        if self.map.get(key).is_none() {
            // In replay the slot may be free, or freed by a batch before this one.
            self.space.take(slot);
            self.freed.retain(|&(_, freed)| freed != slot);
            self.map.insert(key, slot, 0);
        }
        self.map.change_present(slot, span.bits(), 0);
        self.note_changed(slot, span.bits());
        self.dirty_map_pages.insert(geometry.map.page_of(slot));
    }

    fn clear(&mut self, key: ExtentKey, span: BlockSpan, sequence: u64, geometry: &Geometry) {
        let Some((slot, _)) = self.map.get(key) else { return };
        self.pending.forget(slot, span.bits());
        self.note_changed(slot, span.bits());
        self.dirty_map_pages.insert(geometry.map.page_of(slot));
        if self.map.change_present(slot, 0, span.bits()) == 0 && !self.in_flight.contains_key(&slot) {
            self.unmap(key, slot, sequence, geometry);
            self.trimmed.insert(slot);
        }
    }

    fn unmap(&mut self, key: ExtentKey, slot: u32, sequence: u64, geometry: &Geometry) {
        self.map.remove(key);
        self.pending.forget(slot, !0);
        self.note_changed(slot, !0);
        self.dirty_map_pages.insert(geometry.map.page_of(slot));
        self.freed.push_back((sequence, slot));
    }

    /// Tells whoever joins the slot's layer with another.
    fn note_changed(&mut self, slot: u32, blocks: u16) {
        if let Some(changed) = self.joining.get_mut(&slot) {
            *changed |= blocks;
        }
    }

    /// Hands freed slots to their next owners: those whose freeing can't be undone by a crash any more.
    pub fn release_freed(&mut self) {
        if self.freed.is_empty() {
            return;
        }
        let (durable, destaging) = (self.durable, &self.destaging);
        let space = &mut self.space;
        self.freed.retain(|&(sequence, slot)| {
            let kept = sequence > durable || destaging.contains(&slot);
            if !kept {
                space.put(slot);
            }
            kept
        });
    }

    pub fn begin_write(&mut self, slot: u32) {
        *self.in_flight.entry(slot).or_default() += 1;
    }

    pub fn end_write(&mut self, slot: u32) {
        if let Some(count) = self.in_flight.get_mut(&slot) {
            *count -= 1;
            if *count == 0 {
                self.in_flight.remove(&slot);
            }
        }
    }

    /// The bound checksum that a present block must match, if it's in memory.
    pub fn expected_sum(&mut self, slot: u32, block: usize) -> Option<u32> {
        match self.pending.block(slot, block) {
            Some(pending) => Some(pending.sum),
            None => self.sums.get(slot, block),
        }
    }

    /// Where replay would have to start: at the oldest batch that pending data needs, but no later than the cut.
    pub fn tail_after(&self, cut: u64) -> Position {
        let oldest = self.pending.oldest().unwrap_or(u64::MAX).min(cut);
        self.batches.iter().find(|batch| batch.sequence >= oldest).copied().unwrap_or(self.ring.head)
    }
}
