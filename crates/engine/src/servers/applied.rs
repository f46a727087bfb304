//! Which requests of gateways this server's drives have carried out, so that one that is sent again, because its primary was
//! lost before it answered, isn't carried out again: it would come back over what others have written since.
//!
//! Every write of a column passes each drive that is up, with the slot and number that its gateway gave it. A gateway uses a slot
//! for one request at a time, so the newest of each slot is enough.

use crate::servers::answer::CopyId;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard};
use tepal_model::MapId;
use tepal_wire::message::Origin;

/// Slots that are remembered for each copy at most.
const MOST: usize = 64 << 10;

/// Of all copies on the drives of this server.
#[derive(Default)]
pub(crate) struct Applied(Mutex<BTreeMap<CopyId, Notes>>);

#[derive(Default)]
struct Notes {
    /// Which opening of the drive they are about.
    opening: u64,
    slots: BTreeMap<(u64, u32), Note>,
    /// Some were dropped.
    incomplete: bool,
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

impl Applied {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<CopyId, Notes>> {
        self.0.lock().expect("nothing panics while it holds what was applied")
    }

    /// The copy takes this now; if that isn't all of the request, it isn't sure from then on that it has it.
    pub fn note(&self, copy: CopyId, opening: u64, origin: Origin, blocks: Range<u64>) {
        let mut copies = self.lock();
        let notes = copies.entry(copy).or_default();
        notes.begin(opening);
        if notes.slots.len() >= MOST {
            notes.slots.clear();
            notes.incomplete = true;
        }
        let fate = if origin.is_last { Fate::Applied } else { Fate::Unsure };
        notes.slots.insert((origin.gateway, origin.slot), Note { number: origin.number, blocks, fate });
    }

    /// It's never used again.
    pub fn forget(&self, map: MapId) {
        self.lock().retain(|copy, _| copy.map != map);
    }

    /// These blocks have become what another copy has.
    pub fn made_equal(&self, copy: CopyId, opening: u64, blocks: Range<u64>) {
        let mut copies = self.lock();
        let Some(notes) = copies.get_mut(&copy) else { return };
        notes.begin(opening);
        let overlaps = |note: &&mut Note| note.blocks.start < blocks.end && blocks.start < note.blocks.end;
        notes.slots.values_mut().filter(overlaps).for_each(|note| note.fate = Fate::Unsure);
    }

    /// As far as it was noted: what came before the drive was up isn't.
    pub fn fate(&self, copy: CopyId, opening: u64, origin: Origin) -> Fate {
        let mut copies = self.lock();
        let Some(notes) = copies.get_mut(&copy) else { return Fate::Absent };
        notes.begin(opening);
        match notes.slots.get(&(origin.gateway, origin.slot)) {
            Some(note) if note.number == origin.number => note.fate,
            Some(note) if note.number > origin.number => Fate::Unsure, // nobody waits for its answer any more
            _ if notes.incomplete => Fate::Unsure,
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
}

/// Gives requests of this server as a gateway their slots and numbers.
pub(crate) struct Slots {
    gateway: u64,
    state: Mutex<(Vec<u32>, u32, u64)>,
}

/// A slot while a request has it. One that is given up keeps it: it may still be under way.
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

impl Ticket<'_> {
    /// It's answered.
    pub fn end(self) {
        self.slots.state.lock().expect("nothing panics while it holds the slots").0.push(self.origin.slot);
    }
}
