//! A storage node of Ursa Minor (section 3.2.4): what one drive keeps of one column of a quorum layout. It's the same for all of them.
//!
//! A write brings a new version of a fragment, and the versions before it stay. What a node is told to be complete, it moves *home*: to
//! the place that the block has on the drive. Only there is room for all blocks; versions that aren't complete, or not known to be,
//! are in a *log* of limited size, with an entry for each write.
//!
//! Invariants:
//! 1. A version is in the log, or at home, from before it's acknowledged until a later version of its block is known to be complete.
//! 2. At home is a complete version, or none. While a version moves home, and until the log has let go of it, what was at home before
//!    counts as forgotten: its fragment may have been overwritten.
//! 3. Times that the node has answered never go back: before a time beyond the limit on the drive is used, the limit is raised there.
//! 4. An entry counts if the drive has all blocks of its fragments. These are taken out before their room is used again.

mod bytes;
mod home;
mod read;
mod room;
mod settle;
mod write;

use super::shape::Shape;
use super::way::AsGateway;
use crate::bell::Bell;
use crate::map::Column;
use bytes::{Entry, Home};
use room::Room;
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;
use tepal_codec::checksum::block_crcs;
use tepal_drive::world::{Gather, Tick, World};
use tepal_drive::{Drive, DriveError, Loss, Write};
use tepal_model::Segments;
use tepal_model::buffer::join;
use tepal_model::{BLOCK, DriveId, Lineage, MapId, Taking, Version};
use tepal_wire::message::{Complete, NodeAnswer, NodeFailure, NodeOperation};
pub(crate) use write::Versioned;

/// Entries of a node's log.
const ENTRIES: u32 = 1024;
/// Blocks of fragments in a node's log.
const LOGGED: u32 = 4096;
/// Where entries begin, after the superblock: with a new extent of the drive.
const FIRST_ENTRY: u64 = 16;
/// Times by which the limit is raised at once.
const AHEAD: u64 = 1 << 20;
/// Blocks of homes that a node remembers.
const REMEMBERED: usize = 512;
/// After so long a node asks others which versions are complete.
const LEFT: Duration = Duration::from_secs(3);
/// Before it's looked again whether changes have come to their end.
const ENDING: Duration = Duration::from_millis(2);
/// So many blocks it asks about at once.
const LEFT_TOGETHER: usize = 64;

/// Cheap to clone; clones are the same node.
pub(crate) struct Node<W: World>(Arc<Shared<W>>);

struct Shared<W: World> {
    world: W,
    drive: Drive<W>,
    map: MapId,
    shape: Arc<Shape>,
    /// Finds out which versions of blocks are complete, if nobody has said it for long.
    resolve: Arc<Resolve<W>>,
    /// The first block of each of three parts of what the drive has of the column: fragments at home, what is said of them, and the log.
    parts: [u64; 3],
    state: Mutex<State>,
}

/// As a gateway reads them: complete versions are told to the nodes, others are made so or passed over.
pub(crate) enum Resolve<W: World> {
    /// As a gateway of one of the map's volumes.
    AsGateway(AsGateway<W>),
    #[cfg(test)]
    ByTest(Rc<dyn Fn(Vec<u64>) -> futures_util::future::LocalBoxFuture<'static, ()>>),
}

impl<W: World> Resolve<W> {
    async fn resolve(&self, blocks: Vec<u64>) {
        if blocks.is_empty() {
            return;
        }
        match self {
            Resolve::AsGateway(way) => way.resolve(blocks).await,
            #[cfg(test)]
            Resolve::ByTest(resolve) => resolve(blocks).await,
        }
    }
}

fn upgraded<W: World>(node: &Weak<Shared<W>>) -> Option<Node<W>> {
    node.upgrade().map(Node)
}

#[derive(Default)]
enum Opening {
    #[default]
    Closed,
    /// Somebody reads the log.
    Begun(Bell),
    Open,
}

struct State {
    opening: Opening,
    /// The greatest that was written, or may have been before the node was opened.
    time: u64,
    /// No version on the drive has a greater one.
    limit: u64,
    /// Somebody raises the limit.
    raising: Option<Bell>,
    slots: Room,
    room: Room,
    records: BTreeMap<u32, Record>,
    /// Versions in the log of each block, ascending.
    versions: BTreeMap<u64, SmallVec<[Held; 1]>>,
    homes: BTreeMap<u64, Arc<Vec<Home>>>,
    /// In the order in which they were remembered.
    remembered: VecDeque<u64>,
    /// Counts the moves home: what was read before one isn't remembered after it.
    moves: u64,
    is_settling: bool,
    /// Somebody will settle soon.
    is_due: bool,
    /// Somebody looks after versions that nobody says anything of.
    is_watched: bool,
    /// Blocks whose home is being overwritten.
    moving: BTreeSet<u64>,
    /// Blocks whose home may have been half overwritten when the node was closed last.
    doubted: BTreeSet<u64>,
    /// Blocks whose fragment was found to be damaged: the same version is taken again.
    damaged: BTreeSet<u64>,
    /// Changes of the drive that are under way.
    changes: usize,
    /// Another drive has the fragment: this one's part is given back.
    is_retired: bool,
}

/// An entry of the log.
#[derive(Debug)]
struct Record {
    entry: Arc<Entry>,
    /// Blocks whose version isn't needed here any more don't count.
    needed: u32,
    readers: u32,
    since: Tick,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    version: Version,
    slot: u32,
    /// Which of the record's blocks.
    index: u32,
    is_complete: bool,
}

/// A change of the drive that is under way.
struct Changing<'a, W: World>(&'a Node<W>);

impl<W: World> Drop for Changing<'_, W> {
    fn drop(&mut self) {
        self.0.lock().changes -= 1;
    }
}

impl<W: World> Clone for Node<W> {
    fn clone(&self) -> Self {
        Node(self.0.clone())
    }
}

impl<W: World> Node<W> {
    pub fn new(world: W, drive: Drive<W>, column: &Column, shape: Arc<Shape>, resolve: Resolve<W>) -> Self {
        let (first, part) = (column.places().0, room_of(column));
        let state = State {
            opening: Opening::Closed,
            time: 0,
            limit: 0,
            raising: None,
            slots: Room::new(ENTRIES),
            room: Room::new(LOGGED),
            records: BTreeMap::new(),
            versions: BTreeMap::new(),
            homes: BTreeMap::new(),
            remembered: VecDeque::new(),
            moves: 0,
            is_settling: false,
            is_due: false,
            is_watched: false,
            moving: BTreeSet::new(),
            doubted: BTreeSet::new(),
            damaged: BTreeSet::new(),
            changes: 0,
            is_retired: false,
        };
        let parts = [first, first + part, first + 2 * part];
        let (map, resolve, state) = (column.map, Arc::new(resolve), Mutex::new(state));
        Node(Arc::new(Shared { world, drive, map, shape, resolve, parts, state }))
    }

    pub fn drive(&self) -> DriveId {
        self.0.drive.id()
    }

    /// Whether it's of this opening of the drive.
    pub fn is_of(&self, drive: &Drive<W>) -> bool {
        self.0.drive.is_same(drive)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().expect("nothing panics while it holds a node's state")
    }

    fn shape(&self) -> &Shape {
        &self.0.shape
    }

    /// The drive's block of a place in the log.
    fn in_log(&self, place: u64) -> u64 {
        self.0.parts[2] + place
    }

    fn entry_place(&self, slot: u32) -> u64 {
        self.in_log(FIRST_ENTRY + u64::from(slot))
    }

    fn data_place(&self, block: u32) -> u64 {
        self.in_log(FIRST_ENTRY + u64::from(ENTRIES + block))
    }

    /// The greatest time of all versions, and the versions that are complete from now on.
    pub async fn time(&self, complete: &[Complete]) -> Result<u64, NodeFailure> {
        self.open().await?;
        self.complete(complete);
        Ok(self.lock().time)
    }

    /// Does what it's asked. The fragments are those of a write, and count if it may be done when they are on the drive.
    pub async fn answer(
        &self,
        question: NodeOperation,
        fragments: Option<::bytes::Bytes>,
        may_write: Rc<dyn Fn() -> bool>,
    ) -> (NodeAnswer, Segments) {
        let none = Segments::new();
        let failed = |failure| (NodeAnswer::Failed(failure), Segments::new());
        match question {
            NodeOperation::Time { complete } => {
                self.time(&complete).await.map_or_else(failed, |time| (NodeAnswer::Time { time }, none))
            }
            NodeOperation::Write { first, count, version, digests, complete } => {
                self.complete(&complete);
                let written = self.write(Versioned { first, count, version, fragments, digests }, &may_write).await;
                written.map_or_else(failed, |()| (NodeAnswer::Written, none))
            }
            NodeOperation::Read { first, count, which, data, complete } => {
                let read = self.read((first, count), which, data, &complete).await;
                read.map_or_else(failed, |(versions, data)| (NodeAnswer::Versions { versions }, data))
            }
            NodeOperation::Complete { complete } => match self.open().await {
                Ok(()) => {
                    self.complete(&complete);
                    (NodeAnswer::Completed, none)
                }
                Err(failure) => failed(failure),
            },
            NodeOperation::Present { first, count, versions } => {
                let present = self.present(first, count, versions).await;
                present.map_or_else(failed, |runs| (NodeAnswer::Present { runs }, none))
            }
        }
    }

    /// Reads the log, once.
    async fn open(&self) -> Result<(), NodeFailure> {
        loop {
            let waiting = {
                let mut state = self.lock();
                match &mut state.opening {
                    Opening::Open => return Ok(()),
                    Opening::Begun(bell) => Some(bell.listen()),
                    opening @ Opening::Closed => {
                        *opening = Opening::Begun(Bell::default());
                        None
                    }
                }
            };
            match waiting {
                Some(opened) => drop(opened.await), // look again
                None => {
                    let node = self.clone();
                    // Whoever asked may go away meanwhile.
                    self.0.world.spawn(Box::pin(async move { node.read_log().await }));
                }
            }
            if self.0.drive.loss().is_some() {
                return Err(NodeFailure::Lost);
            }
        }
    }

    async fn read_log(&self) {
        let found = self.found_in_log().await;
        let bell = {
            let mut state = self.lock();
            let is_open = found.is_ok();
            if let Ok((limit, entries)) = found {
                (state.limit, state.time) = (limit, limit);
                let now = self.0.world.now();
                entries.into_iter().for_each(|entry| state.take_in(entry, (self.shape(), now)));
            }
            let after = if is_open { Opening::Open } else { Opening::Closed };
            match std::mem::replace(&mut state.opening, after) {
                Opening::Begun(bell) => bell,
                Opening::Closed | Opening::Open => Bell::default(),
            }
        };
        bell.ring();
        self.watch();
    }

    /// Sees to versions of which nobody says for long whether they are complete: their gateway may have gone.
    fn watch(&self) {
        let begins = {
            let mut state = self.lock();
            !state.records.is_empty() && !std::mem::replace(&mut state.is_watched, true)
        };
        if begins {
            // Others may be away for as long as they like: the drive isn't held open for them, or it could never be opened again.
            let (world, node) = (self.0.world.clone(), Arc::downgrade(&self.0));
            self.0.world.spawn(Box::pin(async move {
                loop {
                    world.sleep(LEFT).await;
                    let Some(left) = upgraded(&node) else { return };
                    let Some(blocks) = left.left_for_long().await else { return };
                    let resolve = left.0.resolve.clone();
                    drop(left);
                    resolve.resolve(blocks).await;
                    let Some(node) = upgraded(&node) else { return };
                    node.settle().await;
                }
            }));
        }
    }

    /// Blocks of which nobody has said for long which version is complete; `None` if nobody has to look any more.
    async fn left_for_long(&self) -> Option<Vec<u64>> {
        self.forget_what_home_has_passed().await;
        let mut state = self.lock();
        state.is_watched = !state.records.is_empty() && self.0.drive.loss().is_none();
        state.is_watched.then(|| state.left(self.0.world.now()))
    }

    /// After a crash the log may have versions that aren't later than the one at home: they were on their way out.
    async fn forget_what_home_has_passed(&self) {
        let blocks: Vec<u64> = self.lock().versions.keys().copied().collect();
        for block in blocks {
            let range = block..block + 1;
            let forgotten = self.with_homes(&range, |state, homes| {
                let at = block % homes[0].len() as u64;
                state.forget_up_to(block, homes[0][at as usize].version);
            });
            if forgotten.await.is_err() {
                return; // another time
            }
        }
    }

    async fn found_in_log(&self) -> Result<(u64, Vec<Entry>), DriveError> {
        let superblock = self.read_blocks(self.in_log(0), 1).await?;
        let damaged = || DriveError::Damaged { blocks: vec![self.in_log(0)] };
        let limit = bytes::limit_of(&superblock).ok_or_else(damaged)?;
        let lineage = Lineage::default();
        let all = u64::from(ENTRIES + LOGGED);
        let mut present = Vec::new();
        while (present.len() as u64) < all {
            let at = present.len() as u64;
            for (count, holds) in
                self.0.drive.present(self.0.map, self.in_log(FIRST_ENTRY + at), all - at, all, &lineage)
            {
                present.extend(std::iter::repeat_n(holds, count as usize));
            }
        }
        let (has_entry, has_data) = present.split_at(ENTRIES as usize);
        let mut entries: Vec<Entry> = Vec::new();
        let (mut slots, mut room) = (Room::new(ENTRIES), Room::new(LOGGED));
        for slot in (0..ENTRIES).filter(|slot| has_entry[*slot as usize]) {
            let block = self.read_blocks(self.entry_place(slot), 1).await?;
            let entry = Entry::decode(&block, self.shape()).filter(|entry| {
                let data = entry.data.unwrap_or_default();
                let range = data.0 as usize..(data.0 + data.1) as usize;
                entry.slot == slot && has_data.get(range).is_some_and(|data| data.iter().all(|has| *has))
            });
            match entry {
                Some(entry) if entry.data.is_none_or(|(first, count)| room.take_these(first, count)) => {
                    entries.push(entry)
                }
                _ => self.take_out(self.entry_place(slot), 1).await?,
            }
            slots.take_these(slot, 1);
        }
        for block in (0..LOGGED).filter(|block| has_data[*block as usize]) {
            if room.take_these(block, 1) {
                self.take_out(self.data_place(block), 1).await?;
            }
        }
        Ok((limit, entries))
    }

    async fn read_blocks(&self, first: u64, count: u64) -> Result<::bytes::Bytes, DriveError> {
        let found = self.0.drive.read(self.0.map, first, count, &Lineage::default()).await?;
        Ok(join(&found))
    }

    /// So that the drive holds nothing there any more.
    async fn take_out(&self, first: u64, count: u64) -> Result<(), DriveError> {
        let _change = self.begin_change()?;
        self.0.drive.clear(self.0.map, (first, count), Vec::new(), Taking::Nothing, &Lineage::default()).await
    }

    /// A change of the drive, until it's dropped; an error if the drive has no part of the column any more.
    fn begin_change(&self) -> Result<Changing<'_, W>, DriveError> {
        let mut state = self.lock();
        if state.is_retired {
            let reason = "another drive has its part of a column".to_owned();
            return Err(DriveError::Lost(Arc::new(Loss::Gone { drive: self.drive(), reason })));
        }
        state.changes += 1;
        Ok(Changing(self))
    }

    /// From now on the node changes nothing. Returns when all that it has begun is done.
    pub async fn retire(&self) {
        self.lock().is_retired = true;
        while self.lock().changes > 0 {
            self.0.world.sleep(ENDING).await;
        }
    }

    /// Notes that versions are complete: what is older is forgotten, in time.
    pub fn complete(&self, complete: &[Complete]) {
        let mut is_due = false;
        {
            let mut state = self.lock();
            for one in complete {
                is_due |= state.complete(one);
            }
            is_due &= !state.is_due;
            state.is_due |= is_due;
        }
        if is_due {
            self.settle_soon();
        }
    }

    fn settle_soon(&self) {
        let node = self.clone();
        self.0.world.spawn(Box::pin(async move { node.settle_when_due().await }));
    }

    fn write_of<'a>(&self, first: u64, data: Gather, lineage: &'a Lineage) -> Write<'a> {
        let crcs: Vec<u32> = data.iter().flat_map(|piece| block_crcs(piece)).collect();
        let (map, marks, taking) = (self.0.map, Vec::new(), Taking::Nothing);
        Write { map, first, data, crcs: crcs.into(), marks, durable: true, repair: false, taking, lineage }
    }
}

impl State {
    /// An entry that the log has.
    fn take_in(&mut self, entry: Entry, (shape, now): (&Shape, Tick)) {
        self.slots.take_these(entry.slot, 1);
        if let Some((first, count)) = entry.data {
            self.room.take_these(first, count);
        }
        self.doubted.extend(entry.first..entry.first + u64::from(entry.count));
        self.hold(Arc::new(entry), (shape, now));
    }

    /// From now on readers see its versions.
    fn hold(&mut self, entry: Arc<Entry>, (shape, since): (&Shape, Tick)) {
        let slot = entry.slot;
        self.time = self.time.max(entry.version.time);
        let (mut needed, mut replaced) = (entry.count, Vec::new());
        for index in 0..entry.count {
            let held = Held { version: entry.version_of(index, shape), slot, index, is_complete: false };
            let all = self.versions.entry(entry.first + u64::from(index)).or_default();
            let at = all.partition_point(|other| other.version < held.version);
            match all.get_mut(at).filter(|other| other.version == held.version) {
                // The one before can't be read.
                Some(other) if self.damaged.remove(&(entry.first + u64::from(index))) => {
                    let before = std::mem::replace(other, Held { is_complete: other.is_complete, ..held });
                    replaced.push(before.slot);
                }
                Some(_) => needed -= 1, // two have written it at once
                None => all.insert(at, held),
            }
        }
        self.records.insert(slot, Record { entry, needed, readers: 0, since });
        replaced.into_iter().for_each(|slot| self.forget(slot));
    }

    /// Whether that made anything older, or movable.
    fn complete(&mut self, complete: &Complete) -> bool {
        let (time, writer) = (complete.version.time, complete.version.writer);
        let mut is_new = false;
        for (_, all) in self.versions.range_mut(complete.first..complete.first.saturating_add(complete.count.into())) {
            if let Some(held) = all.iter_mut().find(|held| (held.version.time, held.version.writer) == (time, writer)) {
                is_new |= !std::mem::replace(&mut held.is_complete, true);
            }
        }
        is_new
    }

    /// Blocks whose latest version has been here for long, and may not be complete.
    fn left(&self, now: Tick) -> Vec<u64> {
        let is_old = |held: &Held| {
            let since = self.records.get(&held.slot).map(|record| record.since);
            since.is_some_and(|since| since.0 + LEFT <= now.0)
        };
        let unsure =
            self.versions.iter().filter(|(_, held)| held.last().is_some_and(|held| !held.is_complete && is_old(held)));
        unsure.map(|(block, _)| *block).take(LEFT_TOGETHER).collect()
    }

    /// Versions that aren't later than the one at home, unless that one can't be read.
    fn forget_up_to(&mut self, block: u64, home: Version) {
        if self.damaged.contains(&block) || self.moving.contains(&block) {
            return;
        }
        let Some(held) = self.versions.get_mut(&block) else { return };
        let passed: SmallVec<[u32; 1]> = held.iter().filter(|held| held.version < home).map(|held| held.slot).collect();
        held.retain(|held| held.version >= home);
        if held.is_empty() {
            self.versions.remove(&block);
        }
        passed.into_iter().for_each(|slot| self.forget(slot));
    }

    /// A version of a record isn't needed any more.
    fn forget(&mut self, slot: u32) {
        if let Some(record) = self.records.get_mut(&slot) {
            record.needed -= 1;
        }
    }

    /// Whether there's little room left.
    fn is_tight(&self) -> bool {
        self.slots.used() * 4 > self.slots.all() * 3 || self.room.used() * 2 > self.room.all()
    }
}

/// How many blocks a column may have: a node has a part for their fragments, a part for what is said of these, and its log.
pub(crate) fn room_of(column: &Column) -> u64 {
    column.places().1 / 4 / FIRST_ENTRY * FIRST_ENTRY
}

/// The first block of the drive that has any of these bytes, and the first that has none.
fn blocks_with(bytes: &Range<u64>) -> Range<u64> {
    bytes.start / BLOCK..bytes.end.div_ceil(BLOCK)
}
