//! A volume that goes from one map to another: which of the two has which of its bytes.

use super::{Map, Volume};
use crate::authority::View;
use crate::column::Blocks;
use crate::epochs::Epochs;
use crate::map::{Column, Striping};
use crate::migration::{Migration, Phase, cut_at_chunks};
use crate::servers::seat::Seat;
use futures_util::future::join_all;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;
use tepal_drive::world::World;
use tepal_model::{BLOCK, CHUNK, Epoch, IoError, Lineage, MapId};

/// Before columns are asked again that couldn't say what they hold.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// What one of the two maps knows of it.
#[derive(Debug)]
pub(crate) struct MapMigration {
    pub agreed: Arc<Migration>,
    /// Which of the two this is.
    map: MapId,
    own: Striping,
    other: Striping,
    /// Columns that have something of this window.
    busy: OnceLock<u64>,
}

/// Of a map.
#[derive(Default)]
pub(super) struct Migrating {
    /// Whether it has ever been a migration's: all that is done is to look at this, else.
    ever: AtomicBool,
    now: Mutex<Option<Arc<MapMigration>>>,
    /// Of the map that takes over: what is found of a window, by the view since which it's agreed.
    looked: Mutex<Option<(View, Option<Held>)>>,
}

/// The chunks of a window of which the map that is left may have anything. Of the others there's nothing to be taken over.
pub(crate) type Held = Arc<BTreeSet<u64>>;

/// Some bytes of a volume that lie side by side in one column of each of the two maps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub own: Blocks,
    /// The column of the other map, and the blocks there.
    pub column: usize,
    pub other: Blocks,
}

impl MapMigration {
    pub fn new(agreed: Arc<Migration>, map: MapId) -> Self {
        let other = if map == agreed.source { agreed.target } else { agreed.source };
        let (own, other) = (Striping::new(agreed.laid(map)), Striping::new(agreed.laid(other)));
        MapMigration { agreed, map, own, other, busy: OnceLock::new() }
    }

    /// Whether this map takes over.
    pub fn takes(&self) -> bool {
        self.map == self.agreed.target
    }

    /// Whether other volumes have this map, and stay there.
    pub fn others_stay(&self) -> bool {
        self.agreed.leaves.is_some() && self.takes() == self.agreed.reversed
    }

    /// The lines that the source hands over, older ones first. Of a volume that leaves others these are all that it sees; of one that
    /// comes back, those that only it sees: the others it has in common with them.
    pub fn handed<'a>(&self, epochs: &'a Epochs) -> Vec<&'a Lineage> {
        match self.agreed.leaves {
            None => epochs.history.lines().iter().collect(),
            Some(volume) if self.agreed.reversed => epochs.seen_only_of(volume),
            Some(volume) => epochs.seen_of(volume),
        }
    }

    /// Those of them that the source releases, the newest epochs of them: what others see stays.
    pub fn released(&self, epochs: &Epochs) -> BTreeSet<Epoch> {
        let lines = match self.agreed.leaves {
            None => self.handed(epochs),
            Some(volume) => epochs.seen_only_of(volume),
        };
        lines.into_iter().map(Lineage::newest).collect()
    }

    /// What each of those sees who go.
    pub fn readers<'a>(&self, epochs: &'a Epochs) -> Vec<&'a Lineage> {
        match self.agreed.leaves {
            None => epochs.history.readers().iter().collect(),
            Some(volume) => epochs.readers_of(volume).collect(),
        }
    }

    /// Whether the same chunks go the same way, and have gone no other one in between.
    pub fn is_same_window(&self, other: &MapMigration) -> bool {
        let window = |migration: &MapMigration| (migration.agreed.target, migration.agreed.since);
        window(self) == window(other)
    }

    /// The phases of these blocks of a column, as far as they differ, each with how many have it.
    pub fn phases(&self, column: usize, blocks: Blocks) -> impl Iterator<Item = (Blocks, Phase)> + '_ {
        let mut at = blocks.first;
        std::iter::from_fn(move || {
            if at >= blocks.end() {
                return None;
            }
            let offset = self.own.offset_of(column, at * BLOCK);
            let count = (self.own.end_of_extent(offset) - offset) / BLOCK;
            let first = at;
            at = (at + count).min(blocks.end());
            Some((Blocks::new(first, at - first), self.agreed.phase(offset)))
        })
    }

    /// Whether this map serves all of these blocks, those that it's to take over too.
    pub fn serves(&self, column: usize, blocks: Blocks) -> bool {
        self.phases(column, blocks).all(|(_, phase)| (phase == Phase::Old) != self.takes())
    }

    /// Whether all of these blocks are.
    pub fn are_fenced(&self, column: usize, blocks: Blocks) -> bool {
        self.phases(column, blocks).all(|(_, phase)| phase == Phase::Fenced)
    }

    /// Those of these blocks that are fenced, with where they are in the other map.
    pub fn fenced(&self, column: usize, blocks: Blocks) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        for (part, phase) in self.phases(column, blocks) {
            if phase != Phase::Fenced {
                continue;
            }
            let mut at = part.first;
            while at < part.end() {
                let offset = self.own.offset_of(column, at * BLOCK);
                let (other, within) = self.other.locate(offset);
                let left = (self.other.end_of_extent(offset) - offset) / BLOCK;
                let count = left.min(part.end() - at);
                let first = within / BLOCK;
                match runs.last_mut() {
                    Some(run) if run.column == other && run.other.end() == first && run.own.end() == at => {
                        run.own.count += count;
                        run.other.count += count;
                    }
                    _ => {
                        runs.push(Run { own: Blocks::new(at, count), column: other, other: Blocks::new(first, count) })
                    }
                }
                at += count;
            }
        }
        runs
    }

    /// How many columns have something of this window: what they take over in a second is shared out among them.
    pub fn busy_columns(&self) -> u64 {
        let has_any = |&column: &usize| self.window(column).next().is_some();
        *self.busy.get_or_init(|| (0..self.own.geometry.columns()).filter(has_any).count() as u64)
    }

    /// The blocks of a column that are in the chunks that are fenced, chunk by chunk.
    pub fn window(&self, column: usize) -> impl Iterator<Item = (u64, Blocks)> + '_ {
        self.agreed.fenced().filter_map(move |bytes| {
            let chunk = bytes.start / CHUNK;
            let within = self.own.within(column, bytes);
            (!within.is_empty()).then(|| (chunk, Blocks::touched(within.start, within.end)))
        })
    }

    /// The chunk that a block of a column is in.
    pub fn chunk_of(&self, column: usize, block: u64) -> u64 {
        self.own.offset_of(column, block * BLOCK) / CHUNK
    }
}

impl<W: World> Map<W> {
    /// What is agreed about where its data goes; `None` if it stays.
    pub fn migration(&self) -> Option<Arc<MapMigration>> {
        match self.shared.migrating.ever.load(Ordering::Acquire) {
            true => self.shared.migrating.now.lock().expect("nothing panics while it holds it").clone(),
            false => None,
        }
    }

    /// Whether it has ever been one that volumes go to, or come from.
    pub fn has_migrated(&self) -> bool {
        self.shared.migrating.ever.load(Ordering::Acquire)
    }

    /// An error of a group names places in its column: where they are in the volume.
    pub fn in_volume(&self, column: usize, error: IoError) -> IoError {
        match error {
            IoError::Damaged { offset, length } => {
                IoError::Damaged { offset: self.striping().offset_of(column, offset), length }
            }
            other => other,
        }
    }

    /// As agreed from now on. Whether that is new.
    pub fn set_migration(&self, agreed: Option<&Arc<Migration>>) -> bool {
        let before = self.migration();
        if before.as_ref().map(|migration| &*migration.agreed) == agreed.map(|agreed| &**agreed) {
            return false;
        }
        let now = agreed.map(|agreed| Arc::new(MapMigration::new(agreed.clone(), self.id())));
        *self.shared.migrating.now.lock().expect("nothing panics while it holds it") = now.clone();
        self.shared.migrating.ever.store(true, Ordering::Release);
        self.groups().iter().for_each(|group| group.set_migration(&now));
        self.seats().iter().for_each(Seat::ring);
        true
    }

    /// What was found of a window. Has it found, if nobody does that already.
    pub fn held(&self, migration: &Arc<MapMigration>) -> Option<Held> {
        let since = migration.agreed.since;
        {
            let mut looked = self.shared.migrating.looked.lock().expect("nothing panics while it holds it");
            match &*looked {
                Some((of, found)) if *of >= since => return found.clone().filter(|_| *of == since),
                _ => *looked = Some((since, None)),
            }
        }
        if let Some(engine) = self.engine() {
            let (map, migration) = (self.clone(), migration.clone());
            engine.world().spawn(Box::pin(async move { map.look_what_is_held(&migration).await }));
        }
        None
    }

    /// Asks each column of the map that is left, until all have answered.
    async fn look_what_is_held(&self, migration: &Arc<MapMigration>) {
        let Some(engine) = self.engine() else { return };
        let Some(source) = engine.map(migration.agreed.source) else { return };
        let mut left: Vec<usize> = (0..source.seats().len()).collect();
        let mut held = BTreeSet::new();
        while self.migration().is_some_and(|now| now.is_same_window(migration)) {
            let Some(group) = self.groups().into_iter().next() else { break };
            let answers = join_all(left.iter().map(|&column| group.ask_what_is_held(migration, column))).await;
            let asked = std::mem::take(&mut left);
            for (column, answer) in asked.into_iter().zip(answers) {
                match answer {
                    Some(chunks) => held.extend(chunks),
                    None => left.push(column),
                }
            }
            if left.is_empty() {
                let held = Arc::new(held);
                self.note_found(migration.agreed.since, Some(held.clone()));
                self.groups().iter().for_each(|group| group.hear_what_is_held(migration, &held));
                return;
            }
            engine.world().sleep(LOOK_AGAIN).await;
        }
        self.note_found(migration.agreed.since, None);
    }

    /// What hasn't been found is looked for again when somebody asks.
    fn note_found(&self, since: View, found: Option<Held>) {
        let mut looked = self.shared.migrating.looked.lock().expect("nothing panics while it holds it");
        if looked.as_ref().is_some_and(|(of, _)| *of == since) {
            *looked = found.map(|found| (since, Some(found)));
        }
    }

    /// Everything has gone: nobody is served any more, and all that is left is given back when it isn't known any more.
    pub fn leave(&self) {
        self.shared.migrating.ever.store(true, Ordering::Release);
        self.cut_off();
        self.seats().iter().for_each(Seat::ring);
    }

    pub fn column(&self, number: usize) -> Column {
        Column::new(self.id(), number, self.seats().len())
    }
}

/// The maps that a volume has had, as far as is known here: the last one is its own.
pub(super) struct Maps<W: World> {
    map: Map<W>,
    next: OnceLock<Box<Maps<W>>>,
}

impl<W: World> Maps<W> {
    pub fn of(map: Map<W>) -> Self {
        Maps { map, next: OnceLock::new() }
    }

    pub fn last(&self) -> &Map<W> {
        let mut at = self;
        while let Some(next) = at.next.get() {
            at = next;
        }
        &at.map
    }

    /// One at a time.
    fn add(&self, map: Map<W>) {
        let mut at = self;
        while let Some(next) = at.next.get() {
            at = next;
        }
        let _ = at.next.set(Box::new(Maps::of(map))); // it's the last one
    }
}

impl<W: World> Volume<W> {
    /// As agreed it has this map from now on. Others may still have the one before, and this server may have missed that it was left.
    pub(crate) fn go_to(&self, map: Map<W>) {
        let before = self.map().clone();
        self.shared.maps.add(map);
        before.shared.migrating.ever.store(true, Ordering::Release);
        before.seats().iter().for_each(Seat::ring);
    }

    /// How it goes from one map to another, if it does.
    pub(crate) fn migration(&self) -> Option<Arc<MapMigration>> {
        self.migration_in(self.map())
    }

    /// The same, as one of its maps knows it. Others that have the map may go from it alone.
    fn migration_in(&self, map: &Map<W>) -> Option<Arc<MapMigration>> {
        map.migration().filter(|migration| migration.agreed.takes(self.id()))
    }

    /// Its map, and the one that it goes to, or comes from.
    pub(crate) fn maps(&self) -> Vec<Map<W>> {
        let map = self.map();
        let other = self.migration().and_then(|migration| {
            let agreed = &migration.agreed;
            let other = if agreed.source == map.id() { agreed.target } else { agreed.source };
            self.engine()?.map(other)
        });
        std::iter::once(map.clone()).chain(other).collect()
    }

    /// Whether one of its maps is among these.
    pub fn has_any_map_of(&self, are_among: impl Fn(MapId) -> bool) -> bool {
        self.maps().iter().any(|map| are_among(map.id()))
    }

    /// Whether it has any of its bytes there.
    pub(crate) fn has(&self, map: MapId) -> bool {
        self.map().id() == map || self.migration().is_some_and(|migration| migration.agreed.is_about(map))
    }

    /// Whether a column of that map is asked for these bytes of it.
    pub(crate) fn is_served_by(&self, map: &Map<W>, column: usize, bytes: &Range<u64>) -> bool {
        if !self.has(map.id()) {
            return false;
        }
        match self.migration_in(map) {
            Some(migration) => migration.serves(column, Blocks::touched(bytes.start, bytes.end.max(bytes.start + 1))),
            None => self.map().id() == map.id(),
        }
    }

    /// The map that is to be asked for a byte.
    pub(crate) fn map_at(&self, offset: u64) -> Map<W> {
        let map = self.map();
        let Some(migration) = self.migration() else { return map.clone() };
        match migration.agreed.serves(offset) {
            id if id == map.id() => map.clone(),
            id => self.engine().and_then(|engine| engine.map(id)).unwrap_or_else(|| map.clone()),
        }
    }

    /// Bytes of the volume, cut so that each part is to be asked for at one of its maps.
    pub(crate) fn routed(&self, bytes: Range<u64>) -> Vec<(Map<W>, Range<u64>)> {
        let Some(migration) = self.migration() else { return vec![(self.map().clone(), bytes)] };
        let maps = self.maps();
        let mut routed: Vec<(Map<W>, Range<u64>)> = Vec::new();
        for part in cut_at_chunks(bytes) {
            let id = migration.agreed.serves(part.start);
            let map = maps.iter().find(|map| map.id() == id).unwrap_or(&maps[0]);
            routed.push((map.clone(), part));
        }
        routed
    }
}
