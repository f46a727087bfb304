//! A map of which volumes, or ranges of them, go to another map or come from one.

use super::Map;
use super::table::Own;
use crate::column::Blocks;
use crate::epochs::Epochs;
use crate::map::{Column, Striping};
use crate::migration::{Migration, Phase};
use crate::servers::seat::Seat;
use crate::view::View;
use futures_util::future::join_all;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;
use tepal_drive::world::World;
use tepal_model::{BLOCK, Epoch, IoError, Lineage, MapId};

/// The pause before columns are asked again that couldn't say what they hold.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// A migration, as one of its two maps knows it.
#[derive(Debug)]
pub(crate) struct MapMigration {
    pub agreed: Arc<Migration>,
    /// The map of the two that this is of.
    map: MapId,
    own: Striping,
    other: Striping,
    /// What the map has of the volumes besides what goes; `None`: all of it.
    stays: Option<Arc<Own>>,
    /// Columns that have something of this window.
    busy: OnceLock<u64>,
}

/// What a map knows of its migrations.
#[derive(Default)]
pub(super) struct Migrating {
    /// Whether the map has ever been part of a migration. If not, a look at this is all that requests do.
    ever: AtomicBool,
    now: Mutex<Option<Arc<MapMigration>>>,
    /// The bytes that the map has by the table, if it doesn't have all.
    own: Mutex<Option<Arc<Own>>>,
    /// For the target: which chunks of a window hold anything, by the window's view.
    looked: Mutex<Option<(View, Option<Held>)>>,
}

/// The chunks of a window of which the source may have anything. Of the others there's nothing to be taken over.
pub(crate) type Held = Arc<BTreeSet<u64>>;

/// Some bytes of a volume that lie side by side in one column of each map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub own: Blocks,
    /// The column of the other map, and the blocks there.
    pub column: usize,
    pub other: Blocks,
}

impl MapMigration {
    pub fn new(agreed: Arc<Migration>, map: MapId, stays: Option<Arc<Own>>) -> Self {
        let other = if map == agreed.source { agreed.target } else { agreed.source };
        let (own, other) = (Striping::new(agreed.laid(map)), Striping::new(agreed.laid(other)));
        MapMigration { agreed, map, own, other, stays, busy: OnceLock::new() }
    }

    /// Whether this map is the target.
    pub fn takes(&self) -> bool {
        self.map == self.agreed.target
    }

    /// The phase of the chunk that a byte is in. What doesn't go is as if it had always been here, or never.
    fn phase(&self, offset: u64) -> Phase {
        if self.agreed.covers(offset) {
            return self.agreed.phase(offset);
        }
        let is_here = self.stays.as_ref().is_none_or(|own| own.has(offset));
        if is_here == self.takes() { Phase::New } else { Phase::Old }
    }

    /// Whether other volumes have this map, and stay in it.
    pub fn others_stay(&self) -> bool {
        self.agreed.leaves.is_some() && self.takes() == self.agreed.reversed
    }

    /// The lines that the source hands over, older lines first. For a volume that leaves others, all lines that it
    /// sees. For a volume that comes back, the lines that only it sees: it has the others in common with the other
    /// volumes.
    pub fn handed<'a>(&self, epochs: &'a Epochs) -> Vec<&'a Lineage> {
        match self.agreed.leaves {
            None => epochs.history.lines().iter().collect(),
            Some(volume) if self.agreed.reversed => epochs.seen_only_of(volume),
            Some(volume) => epochs.seen_of(volume),
        }
    }

    /// The lines that the source releases, by their newest epochs. Lines that others see stay.
    pub fn released(&self, epochs: &Epochs) -> BTreeSet<Epoch> {
        let lines = match self.agreed.leaves {
            None => self.handed(epochs),
            Some(volume) => epochs.seen_only_of(volume),
        };
        lines.into_iter().map(Lineage::newest).collect()
    }

    /// What each reader of the migrating volumes sees.
    pub fn readers<'a>(&self, epochs: &'a Epochs) -> Vec<&'a Lineage> {
        match self.agreed.leaves {
            None => epochs.history.readers().iter().collect(),
            Some(volume) => epochs.readers_of(volume).collect(),
        }
    }

    /// Whether the same chunks go the same way, and have gone no other way in between.
    pub fn is_same_window(&self, other: &MapMigration) -> bool {
        let window = |migration: &MapMigration| (migration.agreed.target, migration.agreed.since);
        window(self) == window(other)
    }

    /// The phases of these blocks of a column: runs of blocks with one phase each.
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
            Some((Blocks::new(first, at - first), self.phase(offset)))
        })
    }

    /// Whether this map serves all of these blocks, including blocks that it has yet to take over.
    pub fn serves(&self, column: usize, blocks: Blocks) -> bool {
        self.phases(column, blocks).all(|(_, phase)| (phase == Phase::Old) != self.takes())
    }

    /// Whether all of these blocks are fenced.
    pub fn are_fenced(&self, column: usize, blocks: Blocks) -> bool {
        self.phases(column, blocks).all(|(_, phase)| phase == Phase::Fenced)
    }

    /// The fenced blocks among these, with their places in the other map.
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

    /// How many columns have something of this window: the migration's rate is shared out among them.
    pub fn busy_columns(&self) -> u64 {
        let has_any = |&column: &usize| self.window(column).next().is_some();
        *self.busy.get_or_init(|| (0..self.own.geometry.columns()).filter(has_any).count() as u64)
    }

    /// The blocks of a column that are in the fenced chunks, chunk by chunk.
    pub fn window(&self, column: usize) -> impl Iterator<Item = (u64, Blocks)> + '_ {
        self.agreed.fenced().filter_map(move |bytes| {
            let chunk = bytes.start / self.agreed.chunk();
            let within = self.own.within(column, bytes);
            (!within.is_empty()).then(|| (chunk, Blocks::touched(within.start, within.end)))
        })
    }

    /// Where in its column of this map a byte is that a column of the other map has.
    pub fn own_place(&self, other: usize, offset: u64) -> u64 {
        self.own.locate(self.other.offset_of(other, offset)).1
    }

    /// The chunk of a column's block.
    pub fn chunk_of(&self, column: usize, block: u64) -> u64 {
        self.own.offset_of(column, block * BLOCK) / self.agreed.chunk()
    }
}

impl<W: World> Map<W> {
    /// The agreed migration of the map's data; `None` if the data stays.
    pub fn migration(&self) -> Option<Arc<MapMigration>> {
        match self.shared.migrating.ever.load(Ordering::Acquire) {
            true => self.shared.migrating.now.lock().expect("nothing panics while it holds it").clone(),
            false => None,
        }
    }

    /// Whether the map has ever been a migration's source or target.
    pub fn has_migrated(&self) -> bool {
        self.shared.migrating.ever.load(Ordering::Acquire)
    }

    /// An error of a group, which names a place in its column, with the place in the volume instead.
    pub fn in_volume(&self, column: usize, error: IoError) -> IoError {
        match error {
            IoError::Damaged { offset, length } => {
                IoError::Damaged { offset: self.striping().offset_of(column, offset), length }
            }
            // The blocks behind it in the column are of other extents of the volume.
            IoError::Lost { offset, length } => {
                let offset = self.striping().offset_of(column, offset);
                IoError::Lost { offset, length: length.min(self.striping().end_of_extent(offset) - offset) }
            }
            other => other,
        }
    }

    /// What the map has by the table, where it doesn't have all of its volumes' bytes.
    pub fn own(&self) -> Option<Arc<Own>> {
        match self.shared.migrating.ever.load(Ordering::Acquire) {
            true => self.shared.migrating.own.lock().expect("nothing panics while it holds it").clone(),
            false => None,
        }
    }

    /// From now on requests look whether the map has what they are for.
    pub(super) fn note_migrated(&self) {
        self.shared.migrating.ever.store(true, Ordering::Release);
    }

    /// Goes on with the agreed migration, and with what the map has by the table.
    pub fn set_migration(&self, agreed: Option<&Arc<Migration>>, own: Option<Vec<Range<u64>>>) {
        let before = self.migration();
        let is_same_own = self.own().as_deref().map(Own::ranges) == own.as_deref();
        if is_same_own && before.as_ref().map(|migration| &*migration.agreed) == agreed.map(|agreed| &**agreed) {
            return;
        }
        let own = own.map(|ranges| Arc::new(Own::new(ranges, self.striping().clone())));
        let now = agreed.map(|agreed| Arc::new(MapMigration::new(agreed.clone(), self.id(), own.clone())));
        *self.shared.migrating.now.lock().expect("nothing panics while it holds it") = now.clone();
        *self.shared.migrating.own.lock().expect("nothing panics while it holds it") = own.clone();
        self.note_migrated();
        let way = (now, own);
        self.groups().iter().for_each(|group| group.set_migration(&way));
        self.seats().iter().for_each(Seat::ring);
    }

    /// The chunks of a window that hold anything, if that is known. Starts finding out, if no task does that already.
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

    /// Asks each column of the source, until all have answered.
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

    /// Notes what was found. If nothing was, the next caller of [`Map::held`] starts again.
    fn note_found(&self, since: View, found: Option<Held>) {
        let mut looked = self.shared.migrating.looked.lock().expect("nothing panics while it holds it");
        if looked.as_ref().is_some_and(|(of, _)| *of == since) {
            *looked = found.map(|found| (since, Some(found)));
        }
    }

    /// Everything has migrated: nobody is served from here any more, and the map's space is given back when the map
    /// isn't known any more.
    pub fn leave(&self) {
        self.note_migrated();
        self.cut_off();
        self.seats().iter().for_each(Seat::ring);
    }

    pub fn column(&self, number: usize) -> Column {
        Column::new(self.id(), number, self.columns(), self.fragments())
    }
}
