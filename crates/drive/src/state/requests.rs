//! Which requests of gateways the blocks have taken, so that one that is sent again isn't carried out again: it would come back
//! over what others have written since. What a request changed and that it did are in one batch, so they are there both or
//! neither, whatever happens; and whoever copies blocks from one drive to another copies this too.
//!
//! A gateway uses a slot for one request at a time, so the newest of each slot is enough: in each map, for what a request has changed in
//! one map and what it's to change in another may lie on one drive.

use crate::log::change::{Change, Dropped};
use smallvec::{SmallVec, smallvec};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use tepal_model::{Fate, MapId, Origin, Taken};

/// Runs of blocks that are remembered at most.
const MOST_RUNS: usize = 4096;
/// Gateways of which requests were forgotten that are remembered at most.
const MOST_GATEWAYS: usize = 1024;
/// What part of the log runs may take, and gateways. What a request has changed side by side may lie in many runs in another map.
const RUNS_PART: u64 = 16;
const GATEWAYS_PART: u64 = 256;
/// One in the log, in bytes.
const RUN_BYTES: u64 = 49;
const GATEWAY_BYTES: u64 = 25;
/// The blocks of a map, however long it is: the first, and how many.
pub const EVERYTHING: (u64, u64) = (0, u64::MAX);
/// What else comes with all of them.
const BYTES_BESIDE: u64 = 16;

#[derive(Debug, Default)]
pub struct Requests {
    most_runs: usize,
    most_gateways: usize,
    /// What the notes are in the log: one without any blocks is there too.
    runs: usize,
    notes: BTreeMap<Key, Note>,
    /// Counts what was noted.
    clock: u64,
    dropped: BTreeMap<u64, Dropped>,
    /// Of gateways that aren't among `dropped`: requests that were made in this view, or before, may have been forgotten.
    forgotten: Option<u64>,
}

/// The gateway, its slot, and the map.
type Key = (u64, u32, MapId);

#[derive(Debug)]
struct Note {
    number: u64,
    view: u64,
    /// Ascending, with gaps between. None if what it changed has been made equal to another copy that hadn't taken it.
    blocks: Runs,
    /// When something was noted last.
    used: u64,
}

type Runs = SmallVec<[Range<u64>; 1]>;

impl Requests {
    pub fn new(log_length: u64) -> Self {
        let most_runs = (log_length / RUNS_PART / RUN_BYTES).min(MOST_RUNS as u64) as usize;
        let most_gateways = (log_length / GATEWAYS_PART / GATEWAY_BYTES).min(MOST_GATEWAYS as u64) as usize;
        Requests { most_runs, most_gateways, ..Requests::default() }
    }

    /// These blocks have taken it.
    pub fn take(&mut self, map: MapId, Taken { origin, first, count }: Taken) {
        self.clock += 1;
        let blocks = first..first.saturating_add(count);
        let fresh = |blocks: Range<u64>, used| Note {
            number: origin.number,
            view: origin.view,
            blocks: Some(blocks).filter(|blocks| !blocks.is_empty()).into_iter().collect(),
            used,
        };
        let (mut before, key) = (0, (origin.gateway, origin.slot, map));
        if let Some(note) = self.notes.get(&key) {
            before = note.runs();
        }
        let note = self.notes.entry(key).or_insert_with(|| fresh(0..0, 0));
        match note.number {
            // Of one that comes late nobody asks any more.
            number if number > origin.number => return,
            number if number == origin.number => {
                note.add(blocks);
                note.used = self.clock;
            }
            _ => *note = fresh(blocks, self.clock),
        }
        self.runs = self.runs + note.runs() - before;
        self.make_room();
    }

    /// The map is gone: nobody asks about it any more.
    fn end_map(&mut self, map: MapId) {
        let runs = &mut self.runs;
        self.notes.retain(|&(.., of), note| {
            let is_kept = of != map;
            *runs -= if is_kept { 0 } else { note.runs() };
            is_kept
        });
    }

    /// The maps of which requests are known.
    pub fn maps(&self) -> BTreeSet<MapId> {
        self.notes.keys().map(|&(.., map)| map).collect()
    }

    /// Runs of blocks that have taken any.
    pub fn blocks(&self) -> impl Iterator<Item = (MapId, &Range<u64>)> {
        self.notes.iter().flat_map(|(&(.., map), note)| note.blocks.iter().map(move |run| (map, run)))
    }

    /// These blocks haven't taken any; if they are all that a map can have, it's gone.
    pub fn untake(&mut self, map: MapId, first: u64, count: u64) {
        if (first, count) == EVERYTHING {
            return self.end_map(map);
        }
        let blocks = first..first.saturating_add(count);
        for (_, note) in self.notes.iter_mut().filter(|((.., of), _)| *of == map) {
            let before = note.runs();
            note.remove(&blocks);
            self.runs = self.runs + note.runs() - before;
        }
        // Of a slot whose newest request is known in another map, one of which nothing is left says nothing.
        let is_said = |&(gateway, slot, of): &Key, note: &Note| {
            let of_slot = self.notes.range((gateway, slot, MapId(0))..=(gateway, slot, MapId(u32::MAX)));
            of_slot.into_iter().any(|((.., other), said)| *other != of && said.number >= note.number)
        };
        let emptied = self.notes.iter().filter(|((.., of), note)| *of == map && note.blocks.is_empty());
        let needless: Vec<Key> = emptied.filter(|(key, note)| is_said(key, note)).map(|(key, _)| *key).collect();
        for key in needless {
            self.notes.remove(&key);
            self.runs -= 1;
        }
    }

    /// Nothing that was noted before counts.
    pub fn clear(&mut self) {
        let Requests { most_runs, most_gateways, .. } = *self;
        *self = Requests { most_runs, most_gateways, ..Requests::default() };
    }

    /// What these are of a gateway may have been forgotten.
    pub fn drop_of(&mut self, gateway: u64, Dropped { number, view }: Dropped) {
        let all = self.dropped.entry(gateway).or_insert(Dropped { number, view });
        *all = Dropped { number: all.number.max(number), view: all.view.max(view) };
        if self.dropped.len() > self.most_gateways {
            let oldest = self.dropped.iter().min_by_key(|(_, dropped)| dropped.view).map(|(&gateway, _)| gateway);
            let dropped = oldest.and_then(|gateway| self.dropped.remove(&gateway));
            dropped.into_iter().for_each(|dropped| self.forget(dropped.view));
        }
    }

    /// The same of all gateways of which nothing else is known.
    pub fn forget(&mut self, view: u64) {
        self.forgotten = self.forgotten.max(Some(view));
    }

    /// What these blocks have taken.
    pub fn within(&self, map: MapId, first: u64, count: u64) -> Vec<Taken> {
        let blocks = first..first.saturating_add(count);
        let notes = self.notes.iter().filter(|((.., of), _)| *of == map);
        notes.flat_map(|(&key, note)| note.taken(key, &blocks)).collect()
    }

    /// What became of a request on these blocks.
    pub fn fate(&self, origin: Origin, map: MapId, first: u64, count: u64) -> Fate {
        let key = (origin.gateway, origin.slot, map);
        match self.notes.get(&key) {
            Some(note) if note.number > origin.number => Fate::Superseded,
            Some(note) if note.number == origin.number => {
                let taken: Vec<Taken> = note.taken(key, &(first..first.saturating_add(count))).collect();
                // It may have come in parts, and those before these have been dropped.
                match taken.iter().map(|taken| taken.count).sum::<u64>() < count && self.may_have_forgotten(origin) {
                    true => Fate::Forgotten,
                    false => Fate::Known { taken },
                }
            }
            _ if self.may_have_forgotten(origin) => Fate::Forgotten,
            _ => Fate::Known { taken: Vec::new() },
        }
    }

    fn may_have_forgotten(&self, origin: Origin) -> bool {
        match self.dropped.get(&origin.gateway) {
            Some(dropped) => dropped.number >= origin.number,
            None => self.forgotten >= Some(origin.view),
        }
    }

    /// What notes all of them again, the latest last.
    pub fn changes(&self) -> Vec<Change> {
        let mut notes: Vec<_> = self.notes.iter().collect();
        notes.sort_unstable_by_key(|(_, note)| note.used);
        let forgotten = self.forgotten.map(|view| Change::Forgotten { view });
        let taken = notes.into_iter().flat_map(|(&key, note)| {
            let nothing = note.blocks.is_empty().then(|| note.run(key, &(0..0)));
            let map = key.2;
            let runs = note.blocks.iter().map(move |run| note.run(key, run));
            nothing.into_iter().chain(runs).map(move |taken| Change::Took { map, taken })
        });
        let dropped = self.dropped.iter().map(|(&gateway, &dropped)| Change::Dropped { gateway, dropped });
        forgotten.into_iter().chain(dropped).chain(taken).collect()
    }

    /// What all of them take in the log, at most.
    pub fn most_bytes(&self) -> u64 {
        self.runs as u64 * RUN_BYTES + self.dropped.len() as u64 * GATEWAY_BYTES + BYTES_BESIDE
    }

    /// Drops those that were made in the earliest views, and of these the ones that nothing was heard of for the longest: many at a
    /// time. What is copied from elsewhere is heard of again however old it is.
    fn make_room(&mut self) {
        if self.runs <= self.most_runs {
            return;
        }
        let age = |note: &Note| (note.view, note.used);
        let mut ages: Vec<(u64, u64)> = self.notes.values().map(age).collect();
        let dropped = ages.len().div_ceil(4);
        ages.sort_unstable();
        let newest_dropped = ages[dropped - 1];
        let mut dropped = Vec::new();
        self.notes.retain(|&(gateway, ..), note| {
            let is_kept = age(note) > newest_dropped;
            if !is_kept {
                self.runs -= note.runs();
                dropped.push((gateway, Dropped { number: note.number, view: note.view }));
            }
            is_kept
        });
        dropped.into_iter().for_each(|(gateway, dropped)| self.drop_of(gateway, dropped));
    }
}

impl Note {
    fn runs(&self) -> usize {
        self.blocks.len().max(1)
    }

    fn add(&mut self, mut new: Range<u64>) {
        if new.is_empty() {
            return;
        }
        self.blocks.retain(|run| {
            let touches = run.start <= new.end && new.start <= run.end;
            if touches {
                new = run.start.min(new.start)..run.end.max(new.end);
            }
            !touches
        });
        let at = self.blocks.partition_point(|run| run.start < new.start);
        self.blocks.insert(at, new);
    }

    fn remove(&mut self, gone: &Range<u64>) {
        if self.blocks.iter().any(|run| run.start < gone.end && gone.start < run.end) {
            let parts = |run: &Range<u64>| -> Runs {
                smallvec![run.start..run.end.min(gone.start), run.start.max(gone.end)..run.end]
            };
            self.blocks = self.blocks.iter().flat_map(parts).filter(|run| !run.is_empty()).collect();
        }
    }

    fn run(&self, (gateway, slot, _): Key, run: &Range<u64>) -> Taken {
        let origin = Origin { gateway, slot, number: self.number, view: self.view };
        Taken { origin, first: run.start, count: run.end - run.start }
    }

    /// As far as it's of these blocks.
    fn taken(&self, key: Key, blocks: &Range<u64>) -> impl Iterator<Item = Taken> {
        let clip = |run: &Range<u64>| run.start.max(blocks.start)..run.end.min(blocks.end);
        self.blocks.iter().map(clip).filter(|run| !run.is_empty()).map(move |run| self.run(key, &run))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MAP: MapId = MapId(1);

    fn origin(gateway: u64, slot: u32, number: u64) -> Origin {
        Origin { gateway, slot, number, view: 3 }
    }

    fn take(requests: &mut Requests, origin: Origin, blocks: Range<u64>) {
        requests.take(MAP, Taken { origin, first: blocks.start, count: blocks.end - blocks.start });
    }

    fn again(requests: &Requests, most_runs: usize) -> Requests {
        let mut again = Requests { most_runs, most_gateways: MOST_GATEWAYS, ..Requests::default() };
        for change in requests.changes() {
            match change {
                Change::Took { map, taken } => again.take(map, taken),
                Change::Forgotten { view } => again.forget(view),
                Change::Dropped { gateway, dropped } => again.drop_of(gateway, dropped),
                other => panic!("{other:?}"),
            }
        }
        again
    }

    #[test]
    fn the_newest_request_of_each_slot_is_known_and_one_that_comes_late_changes_nothing() {
        let mut requests = Requests::new(64 << 20);
        take(&mut requests, origin(1, 1, 5), 0..4);
        take(&mut requests, origin(1, 1, 4), 8..9);
        let fate = |requests: &Requests, number| requests.fate(origin(1, 1, number), MAP, 2, 9);
        assert_eq!(requests.fate(Origin { view: 0, ..origin(2, 1, 1) }, MAP, 0, 9), Fate::Known { taken: vec![] });
        let taken =
            |number, first, count| Fate::Known { taken: vec![Taken { origin: origin(1, 1, number), first, count }] };
        assert_eq!(
            [4, 5, 6].map(|number| fate(&requests, number)),
            [Fate::Superseded, taken(5, 2, 2), Fate::Known { taken: vec![] }]
        );
        take(&mut requests, origin(1, 1, 6), 4..5);
        take(&mut requests, origin(1, 1, 6), 5..6);
        assert_eq!(fate(&requests, 6), taken(6, 4, 2), "bit by bit");
        requests.untake(MAP, 0, 1000);
        assert_eq!(fate(&requests, 5), Fate::Superseded, "what nothing is left of is still the newest");
        requests.take(MapId(2), Taken { origin: origin(1, 1, 6), first: 0, count: 1 });
        requests.untake(MAP, 0, u64::MAX);
        assert_eq!((requests.runs, requests.maps()), (1, BTreeSet::from([MapId(2)])), "nothing of a map that is gone");
    }

    #[test]
    fn what_a_request_has_changed_in_one_map_is_known_when_it_has_changed_another() {
        let mut requests = Requests::new(64 << 20);
        take(&mut requests, origin(1, 1, 5), 0..4);
        requests.take(MapId(2), Taken { origin: origin(1, 1, 5), first: 7, count: 1 });
        let taken = Taken { origin: origin(1, 1, 5), first: 0, count: 4 };
        assert_eq!(requests.fate(origin(1, 1, 5), MAP, 0, 9), Fate::Known { taken: vec![taken] });
    }

    /// Story: after many gateways had come and gone, no request in doubt was ever known again.
    #[test]
    fn where_there_are_too_many_those_that_were_silent_for_the_longest_are_forgotten_and_that_is_known() {
        let mut requests = Requests::new(64 << 20);
        for number in 0..10_000u32 {
            take(&mut requests, Origin { view: u64::from(number / 1000), ..origin(number.into(), 1, 1) }, 0..1);
        }
        let fate = |gateway, view| requests.fate(Origin { view, ..origin(gateway, 1, 1) }, MAP, 0, 1);
        assert!(matches!(fate(9_999, 9), Fate::Known { taken } if taken.len() == 1));
        assert_eq!((fate(1, 0), fate(4_999, 4)), (Fate::Forgotten, Fate::Forgotten));
        assert_eq!(fate(20_000, 9), Fate::Known { taken: Vec::new() }, "what is forgotten was made before");
        let known = |gateway| requests.fate(Origin { view: 9, ..origin(gateway, 1, 2) }, MAP, 0, 1);
        assert_eq!(known(4_999), Fate::Known { taken: Vec::new() }, "later ones of the same gateway are known");
        assert!(requests.notes.len() <= MOST_RUNS && requests.dropped.len() <= MOST_GATEWAYS);
        // The second part of one, whose first part was dropped.
        requests.take(MAP, Taken { origin: Origin { view: 0, ..origin(1, 1, 1) }, first: 1, count: 1 });
        let of_one = |first| requests.fate(Origin { view: 0, ..origin(1, 1, 1) }, MAP, first, 1);
        assert!(of_one(0) == Fate::Forgotten && matches!(of_one(1), Fate::Known { taken } if taken.len() == 1));
        let again = again(&requests, MOST_RUNS);
        assert_eq!((again.dropped, again.forgotten), (requests.dropped, requests.forgotten));
    }

    /// Story: a volume went to another layout, and what was taken over of requests of long ago had those forgotten that were in doubt.
    #[test]
    fn what_is_copied_from_elsewhere_has_nothing_forgotten_that_is_newer() {
        let mut requests = Requests::new(1 << 20);
        let recent = Origin { view: 9, ..origin(1, 1, 1) };
        take(&mut requests, recent, 0..1);
        for gateway in 2..2_000 {
            take(&mut requests, origin(gateway, 1, 1), 0..1);
        }
        assert!(matches!(requests.fate(recent, MAP, 0, 1), Fate::Known { taken } if taken.len() == 1));
    }

    proptest! {
        #[test]
        fn they_are_what_each_block_has_taken_and_come_back_from_what_is_logged(
            steps in prop::collection::vec((0u8..6, 0u32..3, 0u64..40, 0u64..12), 0..120),
        ) {
            let (most, mut number) = (1000, 0);
            let mut requests = Requests { most_runs: most, most_gateways: most, ..Requests::default() };
            // The newest of each slot, and its blocks.
            let mut expected: BTreeMap<u32, (u64, std::collections::BTreeSet<u64>)> = BTreeMap::new();
            for (what, slot, first, count) in steps {
                if what == 0 {
                    requests.untake(MAP, first, count);
                    expected.values_mut().for_each(|(_, blocks)| blocks.retain(|block| !(first..first + count).contains(block)));
                    continue;
                }
                number += u64::from(what == 1);
                let newest = expected.entry(slot).or_insert((number, Default::default()));
                if number > newest.0 {
                    *newest = (number, Default::default());
                }
                newest.1.extend(first..first + count);
                take(&mut requests, origin(7, slot, number), first..first + count);
            }
            for requests in [&requests, &again(&requests, most)] {
                for (&slot, (number, blocks)) in &expected {
                    let Fate::Known { taken } = requests.fate(origin(7, slot, *number), MAP, 0, 100) else { panic!() };
                    let found: Vec<u64> = taken.iter().flat_map(|taken| taken.first..taken.first + taken.count).collect();
                    prop_assert_eq!(found, blocks.iter().copied().collect::<Vec<_>>());
                }
                prop_assert_eq!(requests.runs, requests.notes.values().map(Note::runs).sum::<usize>());
                let length: usize = requests.changes().iter().map(Change::encoded_length).sum();
                prop_assert!(length as u64 <= requests.most_bytes());
            }
        }
    }
}
