//! Which requests of gateways this server's drives have carried out, so that one that is sent again, because its primary was
//! lost before it answered, isn't carried out again: it would come back over what others have written since.
//!
//! Every write of a column passes each drive that is up, with the slot and number that its gateway gave it. A gateway uses a slot
//! for one request at a time, so the newest of each slot is enough.

use crate::authority::View;
use crate::servers::answer::CopyId;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard};
use tepal_model::{BLOCK, MapId, REGION};
use tepal_wire::message::Origin;

/// Slots that are remembered for each copy at most.
const MOST_SLOTS: usize = 64 << 10;
/// Regions that were made equal and are remembered one by one, for each copy at most.
const MOST_REGIONS: usize = 64 << 10;

/// Of all copies on the drives of this server.
#[derive(Default)]
pub(crate) struct Applied(Mutex<BTreeMap<CopyId, Notes>>);

#[derive(Default)]
struct Notes {
    /// Which opening of the drive they are about.
    opening: u64,
    gateways: BTreeMap<u64, OfGateway>,
    slots: usize,
    /// Counts what was noted.
    clock: u64,
    equalised: Equalised,
}

/// What came of one run of a gateway.
#[derive(Default)]
struct OfGateway {
    slots: BTreeMap<u32, Note>,
    /// When something was noted last.
    used: u64,
    /// Of requests up to this number, notes were dropped.
    dropped: u64,
}

struct Note {
    number: u64,
    /// Blocks on the drive.
    blocks: Range<u64>,
    fate: Fate,
}

/// What is known of a request on a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// The copy has all of it.
    Applied,
    /// It may have some of it, or had it and has been made equal to another.
    Unsure,
    /// It has nothing of it.
    Absent,
}

/// Since which view who made regions of a copy equal to another, the last time, was the primary: they have whatever requests that other
/// copy had. Of those that it was sent itself, this copy was told.
#[derive(Default)]
struct Equalised {
    regions: BTreeMap<u64, View>,
    /// Regions that aren't remembered one by one were, in this view or before.
    others: View,
}

impl Applied {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<CopyId, Notes>> {
        self.0.lock().expect("nothing panics while it holds what was applied")
    }

    /// The copy has taken this. If that isn't all of the request, it isn't sure from then on that it has it.
    pub fn note(&self, copy: CopyId, opening: u64, origin: Origin, blocks: Range<u64>) {
        let mut copies = self.lock();
        let notes = copies.entry(copy).or_default();
        notes.begin(opening);
        notes.clock += 1;
        let clock = notes.clock;
        let gateway = notes.gateways.entry(origin.gateway).or_default();
        gateway.used = clock;
        let fate = if origin.is_last { Fate::Applied } else { Fate::Unsure };
        match gateway.slots.get_mut(&origin.slot) {
            // Of one that comes late nobody asks any more.
            Some(note) if note.number > origin.number => {}
            Some(note) => *note = Note { number: origin.number, blocks, fate },
            None => {
                gateway.slots.insert(origin.slot, Note { number: origin.number, blocks, fate });
                notes.slots += 1;
                notes.make_room();
            }
        }
    }

    /// It's never used again.
    pub fn forget(&self, map: MapId) {
        self.lock().retain(|copy, _| copy.map != map);
    }

    /// These blocks become what another copy has, by who is the primary since this view.
    pub fn made_equal(&self, copy: CopyId, opening: u64, view: View, blocks: Range<u64>) {
        let mut copies = self.lock();
        let notes = copies.entry(copy).or_default();
        notes.begin(opening);
        let overlaps = |note: &&mut Note| note.blocks.start < blocks.end && blocks.start < note.blocks.end;
        let all = notes.gateways.values_mut().flat_map(|gateway| gateway.slots.values_mut());
        all.filter(overlaps).for_each(|note| note.fate = Fate::Unsure);
        notes.equalised.add(view, &blocks);
    }

    /// What became of a request for these blocks, as far as it was noted: what came before the drive was up isn't. It wasn't sent
    /// before the view `since`.
    pub fn fate(&self, copy: CopyId, opening: u64, origin: Origin, since: View, blocks: &Range<u64>) -> Fate {
        let mut copies = self.lock();
        let Some(notes) = copies.get_mut(&copy) else { return Fate::Absent };
        notes.begin(opening);
        let gateway = notes.gateways.get(&origin.gateway);
        match gateway.and_then(|gateway| gateway.slots.get(&origin.slot)) {
            Some(note) if note.number == origin.number => note.fate,
            Some(note) if note.number > origin.number => Fate::Unsure, // nobody waits for its answer any more
            _ if gateway.is_some_and(|gateway| origin.number <= gateway.dropped) => Fate::Unsure,
            // The other copy may have had it.
            _ if notes.equalised.after(since, blocks) => Fate::Unsure,
            _ => Fate::Absent,
        }
    }
}

impl Notes {
    fn begin(&mut self, opening: u64) {
        if self.opening != opening {
            *self = Notes { opening, ..Notes::default() };
        }
    }

    /// Drops what was noted of the gateway that has been silent for the longest: most likely it's gone.
    fn make_room(&mut self) {
        if self.slots <= MOST_SLOTS {
            return;
        }
        let with_any = self.gateways.values_mut().filter(|gateway| !gateway.slots.is_empty());
        if let Some(silent) = with_any.min_by_key(|gateway| gateway.used) {
            let highest = silent.slots.values().map(|note| note.number).max();
            silent.dropped = silent.dropped.max(highest.unwrap_or(0));
            self.slots -= silent.slots.len();
            silent.slots.clear();
        }
    }
}

impl Equalised {
    fn regions(blocks: &Range<u64>) -> Range<u64> {
        let in_region = REGION / BLOCK;
        blocks.start / in_region..blocks.end.div_ceil(in_region)
    }

    fn add(&mut self, view: View, blocks: &Range<u64>) {
        let regions = Self::regions(blocks);
        if self.regions.len() + (regions.end - regions.start) as usize > MOST_REGIONS {
            self.regions.clear();
            self.others = view;
        }
        if self.others < view {
            self.regions.extend(regions.map(|region| (region, view)));
        }
    }

    /// Whether any of these blocks may have been made equal by a primary of a later view.
    fn after(&self, view: View, blocks: &Range<u64>) -> bool {
        self.others > view || self.regions.range(Self::regions(blocks)).any(|(_, &equalised)| equalised > view)
    }
}

/// Gives requests of this server as a gateway their slots and numbers.
pub(crate) struct Slots {
    gateway: u64,
    state: Mutex<(Vec<u32>, u32, u64)>,
}

/// A slot while a request has it. One that is given up may still be under way; as nobody asks what becomes of it, a later one
/// may have its slot.
pub(crate) struct Ticket<'a> {
    slots: &'a Slots,
    pub origin: Origin,
}

impl Slots {
    pub fn new(gateway: u64) -> Self {
        Slots { gateway, state: Mutex::default() }
    }

    pub fn take(&self) -> Ticket<'_> {
        let mut state = self.state.lock().expect("nothing panics while it holds the slots");
        let (free, next, number) = &mut *state;
        *number += 1;
        let slot = free.pop().unwrap_or_else(|| {
            *next += 1;
            *next
        });
        Ticket { slots: self, origin: Origin { gateway: self.gateway, slot, number: *number, is_last: true } }
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        self.slots.state.lock().expect("nothing panics while it holds the slots").0.push(self.origin.slot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tepal_model::DriveId;

    const COPY: CopyId = CopyId { drive: DriveId(1), map: MapId(1), column: 0 };

    fn origin(gateway: u64, slot: u32, number: u64) -> Origin {
        Origin { gateway, slot, number, is_last: true }
    }

    #[test]
    fn the_newest_request_of_each_slot_is_known_and_one_that_comes_late_changes_nothing() {
        let applied = Applied::default();
        let fate = |number| applied.fate(COPY, 7, origin(1, 1, number), 3, &(0..1));
        assert_eq!(fate(5), Fate::Absent);
        applied.note(COPY, 7, origin(1, 1, 5), 0..1);
        applied.note(COPY, 7, origin(1, 1, 4), 0..1);
        assert_eq!([4, 5, 6].map(fate), [Fate::Unsure, Fate::Applied, Fate::Absent]);
        applied.note(COPY, 7, Origin { is_last: false, ..origin(1, 1, 6) }, 0..1);
        assert_eq!(fate(6), Fate::Unsure, "some of it");
        applied.note(COPY, 7, origin(1, 1, 6), 1..2);
        assert_eq!(fate(6), Fate::Applied);
        assert_eq!(
            applied.fate(COPY, 8, origin(1, 1, 6), 3, &(0..1)),
            Fate::Absent,
            "of another opening nothing is known"
        );
    }

    /// Story: of three copies, one had taken a write of which this one was never told, and this one was made equal to it. The
    /// write was read and overwritten; then it came a second time, and was done again.
    #[test]
    fn what_was_made_equal_may_have_requests_that_this_copy_was_never_sent() {
        let applied = Applied::default();
        let blocks = REGION / BLOCK;
        applied.made_equal(COPY, 7, 5, 3 * blocks..4 * blocks);
        let fate = |since, first| applied.fate(COPY, 7, origin(1, 1, 1), since, &(first..first + 1));
        assert_eq!((fate(4, 3 * blocks), fate(3, 4 * blocks - 1)), (Fate::Unsure, Fate::Unsure));
        assert_eq!(fate(5, 3 * blocks), Fate::Absent, "it was sent to that primary itself");
        assert_eq!((fate(4, 0), fate(4, 4 * blocks)), (Fate::Absent, Fate::Absent));
        applied.made_equal(COPY, 7, 6, 0..MOST_REGIONS as u64 * blocks);
        assert_eq!((fate(5, 0), fate(6, 0)), (Fate::Unsure, Fate::Absent));
        applied.made_equal(COPY, 7, 8, 0..(MOST_REGIONS + 1) as u64 * blocks);
        assert_eq!((fate(7, 900 * blocks), fate(8, 0)), (Fate::Unsure, Fate::Absent));
    }

    /// Story: after many gateways had come and gone, no request in doubt was ever known again.
    #[test]
    fn where_there_are_too_many_those_of_the_most_silent_gateway_are_dropped_and_the_others_known() {
        let applied = Applied::default();
        for gateway in 0..70 {
            (0..1000).for_each(|slot| applied.note(COPY, 7, origin(gateway, slot, u64::from(slot) + 1), 0..1));
        }
        let fate = |gateway, number| applied.fate(COPY, 7, origin(gateway, number as u32 - 1, number), 3, &(0..1));
        assert_eq!(
            (fate(0, 9), fate(0, 1001), fate(69, 9), fate(69, 1001)),
            (Fate::Unsure, Fate::Absent, Fate::Applied, Fate::Absent)
        );
        assert!(applied.lock()[&COPY].slots <= MOST_SLOTS);
    }

    #[test]
    fn a_slot_is_free_again_however_its_request_ends() {
        let slots = Slots::new(1);
        let first = slots.take();
        assert_ne!(slots.take().origin.slot, first.origin.slot);
        drop(first);
        for _ in 0..10 {
            assert!(slots.take().origin.slot <= 2);
        }
    }
}
