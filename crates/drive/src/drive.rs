//! An open drive, shared by everything that uses it.

use crate::error::{DriveError, Loss};
use crate::geometry::Geometry;
use crate::identity::label::Label;
use crate::identity::state_copy::Places;
use crate::log::Mark;
use crate::state::requests::EVERYTHING;
use crate::state::{State, Turn, reserve};
use crate::world::{Device, DeviceError, World};
use futures_channel::oneshot;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tepal_model::{BLOCK, DriveId, EXTENT, Epoch, MapId};

/// How long a drive that has been written to stays quiet before its log is brought into its tables.
const QUIET: Duration = Duration::from_secs(1);

/// One open drive. Cheap to clone; the last clone closes nothing, [`Drive::close`] does.
pub struct Drive<W: World> {
    pub(crate) shared: Arc<Shared<W>>,
}

impl<W: World> Clone for Drive<W> {
    fn clone(&self) -> Self {
        Drive { shared: self.shared.clone() }
    }
}

pub(crate) struct Shared<W: World> {
    pub world: W,
    pub device: W::Device,
    /// The log's own device, and where the ring starts on it.
    pub log_device: Option<(W::Device, u64)>,
    pub label: Label,
    pub geometry: Geometry,
    pub options: Options,
    /// One flush of a device at a time. An operating system tells a failure once: two at a time, and the one that isn't
    /// told would take the other's failure for success.
    flush_turns: [futures_util::lock::Mutex<()>; 2],
    /// A drive reclaims for one at a time.
    pub reclaim_turn: futures_util::lock::Mutex<()>,
    /// What is in the places for the cluster's state, if that is known.
    pub kept: futures_util::lock::Mutex<Option<Places>>,
    /// Reads under way.
    pub reading: AtomicUsize,
    state: Mutex<State>,
}

/// How an open drive behaves.
#[derive(Clone, Debug)]
pub struct Options {
    /// Memory for checksums that are on the drive, in bytes.
    pub sum_cache: u64,
    /// Data of small writes that may wait in memory before it's moved to its place, in bytes.
    pub pending: u64,
    /// Whether cleared space is discarded on the device.
    pub discard: bool,
    /// Whether nothing may be written: for looking at a drive.
    pub read_only: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options { sum_cache: 64 << 20, pending: 16 << 20, discard: true, read_only: false }
    }
}

/// How full a drive is, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// What volumes could take of an empty drive.
    pub capacity: u64,
    /// What volumes have taken, in whole extents.
    pub used: u64,
    /// Of the whole ring, also if it's on a device of its own.
    pub log_length: u64,
    /// What of the ring isn't free yet.
    pub log_used: u64,
    /// Memory that the physical map takes.
    pub map_memory: u64,
    /// Reads of data that the device failed, since the drive was opened; a count.
    pub read_errors: u64,
    /// Blocks that reads and scrubs found damaged, since the drive was opened. A block counts each time; what a repair
    /// did isn't subtracted.
    pub block_errors: u64,
}

impl<W: World> Shared<W> {
    pub fn new(
        world: W,
        device: W::Device,
        log_device: Option<(W::Device, u64)>,
        label: Label,
        geometry: Geometry,
        options: Options,
        state: State,
    ) -> Self {
        let state = Mutex::new(state);
        let (flush_turns, reclaim_turn, kept, reading) = Default::default();
        Shared { world, device, log_device, label, geometry, options, flush_turns, reclaim_turn, kept, reading, state }
    }

    pub fn lock(&self) -> MutexGuard<'_, State> {
        // A panic under the lock is a broken invariant: going on could spread it to the drive.
        self.state.lock().expect("no thread has panicked while it changed this drive's state")
    }

    /// The device that the log is on, and where it starts there.
    pub fn log(&self) -> (&W::Device, u64) {
        self.log_device.as_ref().map_or((&self.device, self.geometry.log_start), |(device, start)| (device, *start))
    }

    /// Flushes the device of the slots, which may be the log's too. A drive whose flush has failed is lost, and no later
    /// flush succeeds.
    pub async fn flush_slots(&self) -> Result<(), DeviceError> {
        self.flush(0, &self.device).await
    }

    /// Flushes the device that the log is on.
    pub async fn flush_log(&self) -> Result<(), DeviceError> {
        match &self.log_device {
            Some((device, _)) => self.flush(1, device).await,
            None => self.flush_slots().await,
        }
    }

    async fn flush(&self, turn: usize, device: &W::Device) -> Result<(), DeviceError> {
        let _turn = self.flush_turns[turn].lock().await;
        if let Err(loss) = self.lock().alive() {
            return Err(DeviceError::Gone(loss.to_string()));
        }
        device.flush().await.inspect_err(|error| drop(self.lose(error.clone())))
    }

    pub fn gone(&self, reason: &str) -> Arc<Loss> {
        Arc::new(Loss::Gone { drive: self.label.drive, reason: reason.to_owned() })
    }

    /// From here on the drive does nothing more; the first reason counts.
    pub fn lose(&self, error: DeviceError) -> Arc<Loss> {
        let drive = self.label.drive;
        let mut state = self.lock();
        let loss = state.loss.get_or_insert_with(|| {
            let loss = match error {
                DeviceError::Gone(reason) => Loss::Gone { drive, reason },
                failed @ DeviceError::Failed { .. } => Loss::Retired { drive, reason: failed.to_string() },
            };
            tracing::debug!(%loss, "drive lost");
            Arc::new(loss)
        });
        loss.clone()
    }

    pub async fn outcome(&self, done: oneshot::Receiver<Result<(), Arc<Loss>>>) -> Result<(), Arc<Loss>> {
        done.await.unwrap_or_else(|_| Err(self.gone("the drive was closed")))
    }
}

impl From<Arc<Loss>> for DriveError {
    fn from(loss: Arc<Loss>) -> Self {
        DriveError::Lost(loss)
    }
}

impl<W: World> Drive<W> {
    /// As the label says.
    pub fn id(&self) -> DriveId {
        self.shared.label.drive
    }

    /// As it was when the drive was opened.
    pub fn label(&self) -> &Label {
        &self.shared.label
    }

    /// With the log's true length, also if the log is on a device of its own.
    pub fn geometry(&self) -> &Geometry {
        &self.shared.geometry
    }

    /// What the drive was opened on: its slots and tables, and its log unless that's on a device of its own.
    pub fn device(&self) -> &W::Device {
        &self.shared.device
    }

    /// Whether both are the same opening of the same drive.
    pub fn is_same(&self, other: &Drive<W>) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// Whether the end of the log was dropped when the drive was opened, since its data wasn't in its place: after a power
    /// loss that is as it should be, but a drive that loses writes looks the same. Other copies are to be preferred.
    pub fn dropped_tail(&self) -> bool {
        self.shared.lock().dropped_tail
    }

    /// The newest batch, if not all that it acknowledged is on stable media: an opening that finds it has lost nothing.
    pub fn unflushed(&self) -> Option<u64> {
        let state = self.shared.lock();
        (state.durable != state.applied).then_some(state.applied)
    }

    /// The newest batch that was there when the drive was opened.
    pub fn newest_found(&self) -> u64 {
        self.shared.lock().newest_found
    }

    /// A batch that is on stable media, as are all before it. What lacks it is an older image of this drive.
    pub fn durable(&self) -> u64 {
        self.shared.lock().durable
    }

    /// Why it serves no more, if so.
    pub fn loss(&self) -> Option<Arc<Loss>> {
        self.shared.lock().loss.clone()
    }

    /// Takes the drive out of use, as if it had been pulled.
    pub fn pull(&self, reason: &str) {
        self.shared.lose(DeviceError::Gone(reason.to_owned()));
    }

    /// Takes the drive out of use for good: what it holds can't be relied on.
    pub fn retire(&self, reason: &str) {
        let reason = reason.to_owned();
        self.shared.lose(DeviceError::Failed { operation: "retire", offset: 0, reason });
    }

    /// How many reads are under way, of all volumes: how long the next one may have to wait.
    pub fn reading(&self) -> usize {
        self.shared.reading.load(Ordering::Relaxed)
    }

    /// Also of a drive that is lost: as it was last known.
    pub fn usage(&self) -> Usage {
        let slots = self.shared.geometry.slots;
        let state = self.shared.lock();
        let freed = state.freed.len() as u32;
        let extents: u64 = state.map.layers_of().values().sum();
        debug_assert!(u64::from(slots - state.space.free() - freed) >= extents);
        Usage {
            // What repairs have taken of what is kept back counts too.
            capacity: (u64::from(slots - reserve(slots))).max(extents) * EXTENT,
            used: extents * EXTENT,
            log_length: state.ring.length,
            log_used: state.ring.used(),
            map_memory: state.map.memory(),
            read_errors: state.read_errors,
            block_errors: state.block_errors,
        }
    }

    /// Bytes that the drive holds of each map, in whole extents of each layer.
    pub fn allocated(&self) -> Vec<(MapId, u64)> {
        let mut bytes = BTreeMap::new();
        for (&(map, _), layers) in self.shared.lock().map.layers_of() {
            *bytes.entry(map).or_default() += layers * EXTENT;
        }
        bytes.into_iter().collect()
    }

    /// Whether it holds nothing of these blocks of a map, in any layer.
    pub fn is_bare(&self, map: MapId, first: u64, count: u64) -> bool {
        self.shared.lock().map.layers_of_blocks(map, first..first.saturating_add(count)).next().is_none()
    }

    /// Where on the device a block of a map is kept, in bytes, if this layer of it is; what is written to it may still be in the log.
    pub fn place_of(&self, map: MapId, block: u64, epoch: Epoch) -> Option<u64> {
        let state = self.shared.lock();
        let mut layers = state.map.layers_of_blocks(map, block..block + 1);
        let (key, layer) = layers.find(|(key, _)| key.epoch == epoch)?;
        Some(self.shared.geometry.block_offset(layer.slot, (block - key.first_block()) as u32))
    }

    /// Bytes that the drive holds of this map, in whole extents of each layer; 0 if it holds nothing of it.
    pub fn allocated_of(&self, map: MapId) -> u64 {
        self.shared.lock().map.epochs_of(map).map(|(_, layers)| layers * EXTENT).sum()
    }

    /// First block of each extent of which the drive holds anything, within a range of blocks of a map, ascending. May look at the whole
    /// map. If `noted`, also of those that have taken requests that it remembers.
    pub fn extents_of(&self, map: MapId, first: u64, count: u64, noted: bool) -> Vec<u64> {
        let (state, in_extent) = (self.shared.lock(), EXTENT / BLOCK);
        let layers = state.map.layers_of_blocks(map, first..first.saturating_add(count));
        let mut extents: BTreeSet<u64> = layers.map(|(key, _)| key.first_block()).collect();
        let taken = noted.then(|| state.requests.within(map, first, count));
        for taken in taken.into_iter().flatten().filter(|taken| taken.count > 0) {
            let (begin, end) = (taken.first / in_extent, (taken.first + taken.count).div_ceil(in_extent));
            extents.extend((begin..end).map(|index| index * in_extent));
        }
        extents.into_iter().collect()
    }

    /// Which of some runs of a map's blocks, in whole extents, hold anything, or have taken requests that are known.
    pub fn hold_anything(&self, map: MapId, runs: &[Range<u64>]) -> Vec<bool> {
        let state = self.shared.lock();
        let mut noted: BTreeMap<u64, u64> = BTreeMap::new();
        let (first, count) = EVERYTHING;
        for taken in state.requests.within(map, first, count) {
            let end = noted.entry(taken.first).or_default();
            *end = (*end).max(taken.first + taken.count);
        }
        // Ascending, with gaps between.
        let mut apart: Vec<Range<u64>> = Vec::new();
        for (start, end) in noted {
            match apart.last_mut() {
                Some(last) if start <= last.end => last.end = last.end.max(end),
                _ => apart.push(start..end),
            }
        }
        let is_noted = |run: &Range<u64>| {
            let after = apart.partition_point(|noted| noted.end <= run.start);
            apart.get(after).is_some_and(|noted| noted.start < run.end)
        };
        let holds = |run: &Range<u64>| state.map.layers_of_blocks(map, run.clone()).next().is_some();
        runs.iter().map(|run| holds(run) || is_noted(run)).collect()
    }

    /// Of which parts of maps the drive holds anything or remembers requests, where a part is so many blocks: of maps of which that is
    /// known. Looks at all that it holds, unless it has nothing of any of them.
    pub fn parts_held(&self, of_part: impl Fn(MapId) -> Option<u64>) -> BTreeSet<(MapId, u64)> {
        let state = self.shared.lock();
        let mut maps: BTreeSet<MapId> = state.map.layers_of().keys().map(|&(map, _)| map).collect();
        maps.extend(state.requests.maps());
        let known: BTreeMap<MapId, u64> = maps.into_iter().filter_map(|map| Some((map, of_part(map)?))).collect();
        if known.is_empty() {
            return BTreeSet::new();
        }
        let part = |map: MapId, block: u64| Some((map, block / known.get(&map)?));
        let held = state.map.keys().filter_map(|key| part(key.map, key.first_block()));
        let asked = state.requests.blocks().filter_map(|(map, run)| part(map, run.start));
        held.chain(asked).collect()
    }

    /// Slots that are neither free nor hold a layer of an extent: 0 when nothing is under way.
    pub fn slots_unaccounted(&self) -> i64 {
        let state = self.shared.lock();
        let extents: u64 = state.map.layers_of().values().sum();
        i64::from(self.shared.geometry.slots)
            - i64::from(state.space.free())
            - state.freed.len() as i64
            - extents as i64
    }

    /// All that hold, of all maps, ascending. What is in line changes nothing yet: see [`Drive::catch_up_with_line`].
    pub fn marks(&self) -> Vec<Mark> {
        let mut marks: Vec<Mark> = self.shared.lock().marks.iter().collect();
        marks.sort_unstable();
        marks
    }

    /// The maps of which it remembers requests.
    pub fn maps_of_requests(&self) -> BTreeSet<MapId> {
        self.shared.lock().requests.maps()
    }

    /// Has the log brought into the tables once the drive has been quiet for a while.
    pub(crate) fn schedule_maintenance(&self, state: &mut State) {
        if state.maintenance == Turn::Running {
            return;
        }
        state.maintenance = Turn::Running;
        let drive = self.clone();
        self.shared.world.spawn(Box::pin(async move { drive.maintain().await }));
    }

    async fn maintain(self) {
        let mut seen = self.shared.lock().applied;
        loop {
            self.shared.world.sleep(QUIET).await;
            let mut state = self.shared.lock();
            if state.closed || state.loss.is_some() {
                return;
            }
            let quiet = state.applied == seen;
            seen = state.applied;
            if quiet {
                state.maintenance = Turn::Idle;
                if !state.settled() {
                    self.start_checkpoint(&mut state);
                }
                return;
            }
        }
    }

    /// Brings the log into the tables and stops. A drive that was closed opens without replay.
    pub async fn close(&self) -> Result<(), Arc<Loss>> {
        let outcome = self.checkpoint().await;
        let mut state = self.shared.lock();
        state.closed = true;
        state.loss.get_or_insert_with(|| self.shared.gone("the drive was closed"));
        outcome
    }
}

impl State {
    /// Whether the tables say all that the log does.
    pub fn settled(&self) -> bool {
        self.pending.is_empty() && self.dirty_map_pages.is_empty() && self.sums.dirty() == 0 && self.trimmed.is_empty()
    }
}
