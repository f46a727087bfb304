//! A volume as its users see it: bytes in, bytes out.
//!
//! Requests become whole blocks here: edges are merged under the same turn that the write has, CRCs are computed once. A
//! write is seen through even if its client goes away, so nothing is left half done.

use crate::authority::View;
use crate::engine::{self, Engine};
use crate::map::{BlockMap, Holders, VolumeSpec};
use crate::members::{BusyRegions, Copies, Member, Members, Missed, Presence};
use crate::order::{Place, Turn, WriteOrder};
use crate::protocol::primary::write::{Blocks, Written};
use crate::seen_through::{Asker, SeenThrough};
use bytes::Bytes;
use futures_channel::oneshot;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use tepal_codec::checksum::block_crcs;
use tepal_drive::world::World;
use tepal_model::{BLOCK, Buffer, DriveId, EXTENT, IoError, Segments, VolumeId, buffer::join};

/// Cheap to clone.
pub struct Volume<W: World> {
    pub(crate) shared: Arc<Shared<W>>,
}

impl<W: World> Clone for Volume<W> {
    fn clone(&self) -> Self {
        Volume { shared: self.shared.clone() }
    }
}

pub(crate) struct Shared<W: World> {
    pub world: W,
    /// The engine has its volumes, not they it.
    engine: Weak<engine::Shared<W>>,
    pub id: VolumeId,
    pub map: BlockMap,
    pub order: WriteOrder,
    state: Mutex<State<W>>,
}

pub(crate) struct State<W: World> {
    pub spec: VolumeSpec,
    pub members: Members<W>,
    pub busy: BusyRegions,
    /// Regions whose copies may differ since a crash.
    pub unresolved: BTreeSet<u64>,
    /// Who waits for a drive to come or go.
    pub bell: Vec<oneshot::Sender<()>>,
    pub recovering: bool,
    pub settling: bool,
    pub removed: bool,
    pub copied: u64,
    /// What keeps a returned drive from catching up.
    pub obstacle: Option<String>,
    /// How often a drive has come or gone.
    pub changes: u64,
    /// Drives, by position, that are leaving with unflushed data: up to which batch.
    pub leaving_unflushed: BTreeMap<usize, u64>,
    /// Those of them that alone held some of it.
    pub unflushed: BTreeMap<usize, u64>,
    /// Those that returned without it: flushes must say so.
    pub lost_unflushed: LostUnflushed,
}

/// Unflushed data that is known to be lost. Every flush that had been asked for before one said so must say so too.
#[derive(Debug, Default)]
pub(crate) struct LostUnflushed {
    times: u64,
    /// How many of them a flush has said.
    said: u64,
    reason: String,
}

impl LostUnflushed {
    pub fn add(&mut self, reason: String) {
        self.times += 1;
        self.reason = reason;
    }

    /// To be asked when a flush begins.
    pub fn said(&self) -> u64 {
        self.said
    }

    /// What a flush must say that began when so many had been said.
    pub fn say(&mut self, said_before: u64) -> Option<String> {
        self.said = self.times;
        (self.times > said_before).then(|| self.reason.clone())
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenVolumeError {
    #[error("volume '{name}' has {drives} drives for {copies} copies")]
    Map { name: String, drives: usize, copies: u8 },
}

/// What is left to do after drives were away or a crash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Regions whose copies are still to be compared.
    pub unresolved_regions: u64,
    /// Regions in which some copy missed writes.
    pub stale_regions: u64,
    /// Bytes copied so far, since the volume was opened.
    pub copied: u64,
}

/// A run of bytes that are all mapped, or all a hole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    pub length: u64,
    pub mapped: bool,
}

/// Trims and zeroes are done in steps of this many bytes, so that marks and turns stay small.
const STEP: u64 = 256 << 20;
/// Zeros that are to be allocated are written in steps of this many bytes.
const ZEROS_STEP: u64 = 1 << 20;
/// How many extents one question about what is mapped looks at.
const LOOK: u64 = 64 << 10;

impl<W: World> Volume<W> {
    pub(crate) fn open(
        engine: &Engine<W>,
        spec: VolumeSpec,
        presence: impl Fn(DriveId) -> (Presence<W>, Option<View>),
    ) -> Result<Self, OpenVolumeError> {
        let map = BlockMap::new(&spec).ok_or_else(|| OpenVolumeError::Map {
            name: spec.name.clone(),
            drives: spec.drives.len(),
            copies: spec.layout.copies(),
        })?;
        let member = |&id: &DriveId| {
            let (presence, left) = presence(id);
            Member { id, presence, left, missed: Missed::default(), queue: 0, opening: 0, noted: false }
        };
        let members = Members { list: spec.drives.iter().map(member).collect() };
        let state = State {
            members,
            busy: BusyRegions::new(),
            unresolved: BTreeSet::new(),
            bell: Vec::new(),
            recovering: false,
            settling: false,
            removed: false,
            copied: 0,
            obstacle: None,
            changes: 0,
            leaving_unflushed: BTreeMap::new(),
            unflushed: BTreeMap::new(),
            lost_unflushed: LostUnflushed::default(),
            spec,
        };
        let shared = Shared {
            world: engine.world().clone(),
            engine: Arc::downgrade(&engine.shared),
            id: state.spec.id,
            map,
            order: WriteOrder::default(),
            state: Mutex::new(state),
        };
        let volume = Volume { shared: Arc::new(shared) };
        {
            let mut state = volume.lock();
            for at in 0..state.members.list.len() {
                if let Some(drive) = state.members.list[at].drive().cloned() {
                    volume.hear(&mut state, at, &drive);
                }
            }
        }
        Ok(volume)
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State<W>> {
        self.shared.state.lock().expect("nothing panics while it holds the volume's state")
    }

    /// `None` once the server has stopped.
    pub(crate) fn engine(&self) -> Option<Engine<W>> {
        self.shared.engine.upgrade().map(|shared| Engine { shared })
    }

    pub fn id(&self) -> VolumeId {
        self.shared.id
    }

    pub fn spec(&self) -> VolumeSpec {
        self.lock().spec.clone()
    }

    pub fn size(&self) -> u64 {
        self.lock().spec.size
    }

    /// Takes the size that the metadata says from now on.
    pub fn resize(&self, size: u64) {
        self.lock().spec.size = size;
    }

    pub fn rename(&self, name: &str) {
        self.lock().spec.name = name.to_owned();
    }

    /// Bytes on the drives that are here, copies counted.
    pub fn allocated(&self) -> u64 {
        let state = self.lock();
        let here = state.members.list.iter().filter_map(Member::drive);
        here.map(|drive| drive.allocated_of(state.spec.map)).sum()
    }

    pub fn recovery(&self) -> Recovery {
        let state = self.lock();
        Recovery {
            unresolved_regions: state.unresolved.len() as u64,
            stale_regions: state.members.list.iter().map(|member| member.missed.len()).sum(),
            copied: state.copied,
        }
    }

    fn check_range(&self, offset: u64, length: u64) -> Result<(), IoError> {
        let state = self.lock();
        if state.removed {
            return Err(IoError::Fenced);
        }
        let size = state.spec.size;
        match offset.checked_add(length) {
            Some(end) if end <= size => Ok(()),
            _ => Err(IoError::OutOfRange { offset, length, size }),
        }
    }

    pub async fn read(&self, offset: u64, length: u64) -> Result<Segments, IoError> {
        self.check_range(offset, length)?;
        if length == 0 {
            return Ok(Segments::new());
        }
        let first = offset / BLOCK;
        let end = (offset + length).div_ceil(BLOCK);
        let segments = self.read_blocks(first, end - first).await?;
        Ok(cut(segments, offset - first * BLOCK, length))
    }

    /// With `fua`, what was written is stable before this returns, whatever the layout's durability.
    pub async fn write(&self, offset: u64, data: Bytes, fua: bool) -> Result<(), IoError> {
        self.check_range(offset, data.len() as u64)?;
        if data.is_empty() {
            return Ok(());
        }
        let (first, end) = (offset / BLOCK, (offset + data.len() as u64).div_ceil(BLOCK));
        let place = self.shared.order.line_up(first, end - first);
        let volume = self.clone();
        let write = |asker| async move { volume.write_bytes(place, asker, offset, data, fua).await };
        SeenThrough::new(self.shared.world.clone(), write).await
    }

    pub async fn flush(&self) -> Result<(), IoError> {
        self.check_range(0, 0)?;
        self.flush_members().await
    }

    /// Gives the space back; reads as zeros afterwards.
    pub async fn trim(&self, offset: u64, length: u64, fua: bool) -> Result<(), IoError> {
        self.write_zeroes(offset, length, false, fua).await
    }

    /// Zeros; `allocate` keeps the space.
    pub async fn write_zeroes(&self, offset: u64, length: u64, allocate: bool, fua: bool) -> Result<(), IoError> {
        self.check_range(offset, length)?;
        self.zero(offset, offset + length, allocate, fua).await
    }

    /// Takes out what lies past the volume's end: what was cut off doesn't come back when the volume grows again. No two
    /// of these, nor a change of size, may be under way at a time.
    pub async fn clear_past_end(&self) -> Result<(), IoError> {
        let (from, steps) = loop {
            let change = {
                let mut state = self.lock();
                if state.removed {
                    return Err(IoError::Fenced);
                }
                let waits = |drives: Holders| state.members.clean(&drives, u64::MAX) == Copies::Waiting;
                if !self.shared.map.all_holders().any(waits) {
                    break (state.spec.size, self.steps_past_end(&state));
                }
                Volume::next_change(&mut state) // those who know what there is are away
            };
            let _ = change.await; // dropped unsent only when the volume goes
        };
        // Only where something is: there may be exbibytes between.
        for step in steps {
            self.zero(from.max(step * STEP), (step + 1) * STEP, false, false).await?;
        }
        Ok(())
    }

    /// The steps in which something lies past the volume's end, or may: where all that have it are away.
    fn steps_past_end(&self, state: &State<W>) -> BTreeSet<u64> {
        let (map, members) = (&self.shared.map, &state.members);
        let mut steps = BTreeSet::new();
        let mut add = |first: u64, count: u64| {
            if (first + count) * BLOCK > state.spec.size {
                steps.insert(first * BLOCK / STEP);
            }
        };
        for (at, member) in members.list.iter().enumerate() {
            let extents = member.drive().map(|drive| drive.extents_of(state.spec.map)).unwrap_or_default();
            let runs = extents.into_iter().flat_map(|first| map.volume_runs(at, first, EXTENT / BLOCK));
            runs.for_each(|(first, count)| add(first, count));
            let waits = |&region: &u64| members.clean(&map.holders(region), region) == Copies::Waiting;
            let pieces = member.missed.regions().filter(waits).flat_map(|region| map.pieces_of(region));
            pieces.for_each(|piece| add(piece.block, piece.count));
        }
        steps
    }

    async fn zero(&self, from: u64, end: u64, allocate: bool, fua: bool) -> Result<(), IoError> {
        let step = if allocate { ZEROS_STEP } else { STEP };
        let mut at = from;
        while at < end {
            let next = ((at / step + 1) * step).min(end);
            let first = at / BLOCK;
            let place = self.shared.order.line_up(first, next.div_ceil(BLOCK) - first);
            let volume = self.clone();
            let zero = |asker| async move { volume.zero_step(place, asker, at..next, allocate, fua).await };
            SeenThrough::new(self.shared.world.clone(), zero).await?;
            at = next;
        }
        Ok(())
    }

    /// What is mapped, from `offset` on, as runs that differ from their neighbours: at least one, at most `limit`, and at
    /// most `length` bytes.
    pub async fn block_status(&self, offset: u64, length: u64, limit: usize) -> Result<Vec<Run>, IoError> {
        self.check_range(offset, length)?;
        let mut runs: Vec<Run> = Vec::new();
        let end = offset + length;
        let (first, last) = (offset / BLOCK, end.div_ceil(BLOCK));
        let mut at = offset;
        for piece in self.shared.map.pieces(first, last - first).take(LOOK as usize) {
            for (blocks, mapped) in self.mapped(piece).await? {
                let next = ((at / BLOCK + blocks) * BLOCK).min(end);
                let full = runs.len() == limit;
                match runs.last_mut() {
                    Some(run) if run.mapped == mapped => run.length += next - at,
                    _ if full => return Ok(runs),
                    _ => runs.push(Run { length: next - at, mapped }),
                }
                at = next;
            }
        }
        Ok(runs)
    }

    async fn write_bytes(
        &self,
        place: Place,
        asker: Asker,
        offset: u64,
        data: Bytes,
        fua: bool,
    ) -> Result<(), IoError> {
        let end = offset + data.len() as u64;
        let first = offset / BLOCK;
        let count = end.div_ceil(BLOCK) - first;
        let whole = offset.is_multiple_of(BLOCK) && end.is_multiple_of(BLOCK);
        let (mut turn, mut begun) = (place.turn().await, false);
        loop {
            let data = if whole { data.clone() } else { Box::pin(self.merge_edges(offset, &data)).await? };
            let crcs = block_crcs(&data).collect();
            match self.write_blocks(&turn, Blocks { first, data, crcs }, fua).await? {
                Written::Done => return Ok(()),
                Written::Waits { change, begun: now } => {
                    begun |= now;
                    turn = Box::pin(self.wait_for_copies(turn, &asker, change, begun, (first, count))).await?;
                }
            }
        }
    }

    /// The blocks that the bytes touch, with the rest of the first and last as it's now.
    async fn merge_edges(&self, offset: u64, data: &[u8]) -> Result<Bytes, IoError> {
        let end = offset + data.len() as u64;
        let first = offset / BLOCK * BLOCK;
        let past = end.next_multiple_of(BLOCK);
        let mut whole = Buffer::take((past - first) as usize);
        let mut edges = vec![(first, offset > first), (past - BLOCK, end < past)];
        if past - first == BLOCK {
            edges.truncate(1);
            edges[0].1 = true;
        }
        for (edge, partial) in edges {
            if partial {
                let old = join(&self.read_under_turn(edge / BLOCK, 1).await?);
                let at = (edge - first) as usize;
                whole[at..at + BLOCK as usize].copy_from_slice(&old);
            }
        }
        let at = (offset - first) as usize;
        whole[at..at + data.len()].copy_from_slice(data);
        Ok(whole.freeze())
    }

    async fn zero_step(
        &self,
        place: Place,
        asker: Asker,
        Range { start: from, end: to }: Range<u64>,
        allocate: bool,
        fua: bool,
    ) -> Result<(), IoError> {
        let (inner, inner_end) = (from.next_multiple_of(BLOCK), to / BLOCK * BLOCK);
        if allocate || inner >= inner_end {
            let zeros = Buffer::zeroed((to - from) as usize).freeze();
            return self.write_bytes(place, asker, from, zeros, fua).await;
        }
        let (first, count) = (from / BLOCK, to.div_ceil(BLOCK) - from / BLOCK);
        let (mut turn, mut begun) = (place.turn().await, false);
        loop {
            match self.zero_under_turn(&turn, from..to, inner..inner_end, fua).await? {
                Written::Done => return Ok(()),
                Written::Waits { change, begun: now } => {
                    begun |= now;
                    turn = self.wait_for_copies(turn, &asker, change, begun, (first, count)).await?;
                }
            }
        }
    }

    /// Waits for a drive to come or go, without being in the way of those that must catch up. A write that some copies
    /// have (`begun`) may have been seen: it keeps its turn, or it would land again after newer ones.
    async fn wait_for_copies(
        &self,
        turn: Turn,
        asker: &Asker,
        change: oneshot::Receiver<()>,
        begun: bool,
        (first, count): (u64, u64),
    ) -> Result<Turn, IoError> {
        if begun {
            turn.lend();
            wait_for_change(asker, change).await?;
            turn.reclaim().await;
            return Ok(turn);
        }
        drop(turn);
        wait_for_change(asker, change).await?;
        Ok(self.shared.order.line_up(first, count).turn().await)
    }

    /// The partial blocks at the edges are merged, the whole ones within taken out.
    async fn zero_under_turn(
        &self,
        turn: &HasTurn,
        all: Range<u64>,
        inner: Range<u64>,
        fua: bool,
    ) -> Result<Written, IoError> {
        let mut edges_begun = false;
        for edge in [all.start..inner.start, inner.end..all.end] {
            if edge.is_empty() {
                continue;
            }
            let zeros = Buffer::zeroed((edge.end - edge.start) as usize);
            let data = self.merge_edges(edge.start, &zeros).await?;
            let crcs = block_crcs(&data).collect();
            let first = edge.start / BLOCK;
            if let Written::Waits { change, begun } = self.write_blocks(turn, Blocks { first, data, crcs }, fua).await?
            {
                return Ok(Written::Waits { change, begun: begun || edges_begun });
            }
            edges_begun = true;
        }
        match self.clear_blocks(turn, inner.start / BLOCK, (inner.end - inner.start) / BLOCK).await? {
            Written::Done => Ok(Written::Done),
            Written::Waits { change, begun } => Ok(Written::Waits { change, begun: begun || edges_begun }),
        }
    }

    /// Waits for a drive to come or go.
    pub(crate) fn next_change(state: &mut State<W>) -> oneshot::Receiver<()> {
        let (sender, receiver) = oneshot::channel();
        state.bell.push(sender);
        receiver
    }

    pub(crate) fn wake(&self) {
        let bell = std::mem::take(&mut self.lock().bell);
        for sender in bell {
            let _ = sender.send(()); // who has given up waiting needs no answer
        }
    }

    pub(crate) async fn remove(&self) -> Result<(), IoError> {
        let (drives, map) = {
            let mut state = self.lock();
            state.removed = true;
            (state.members.list.iter().filter_map(|m| m.drive().cloned()).collect::<Vec<_>>(), state.spec.map)
        };
        self.wake();
        let turn = self.shared.order.line_up(0, u64::MAX / 2).turn().await; // all writes have ended, and none will begin
        for drive in drives {
            if let Err(error) = drive.remove_map(map).await {
                tracing::warn!(drive = %drive.id(), %error, "space of a removed volume is given back when the drive returns");
            }
        }
        drop(turn);
        Ok(())
    }
}

/// Waits for a drive to come or go. A write that was given up meanwhile is not made at all: it could land after newer
/// ones.
async fn wait_for_change(asker: &Asker, change: oneshot::Receiver<()>) -> Result<(), IoError> {
    let _ = change.await; // dropped unsent only when the volume goes
    if asker.is_waiting() { Ok(()) } else { Err(IoError::Stopping) }
}

/// The bytes `skip..skip + length` of the segments.
pub(crate) fn cut(segments: Segments, mut skip: u64, mut length: u64) -> Segments {
    let mut kept = Segments::new();
    for segment in segments {
        let size = segment.len() as u64;
        if skip >= size {
            skip -= size;
            continue;
        }
        let take = (size - skip).min(length);
        if take > 0 {
            kept.push(segment.slice(skip as usize..(skip + take) as usize));
        }
        length -= take;
        skip = 0;
    }
    kept
}

impl<W: World> State<W> {
    /// Copies without which no write is acknowledged.
    pub(crate) fn wanted_copies(&self) -> usize {
        usize::from(self.spec.layout.min_copies).max(1)
    }

    pub(crate) fn begin_busy(&mut self, map: &BlockMap, first: u64, count: u64) {
        for region in map.regions(first, count) {
            let busy = self.busy.entry(region).or_default();
            busy.under_way += 1;
            busy.writes += 1;
        }
    }

    pub(crate) fn end_busy(&mut self, map: &BlockMap, first: u64, count: u64) {
        for region in map.regions(first, count) {
            if let Some(busy) = self.busy.get_mut(&region) {
                busy.under_way -= 1;
            }
        }
    }
}

/// The type that shows that a write has its turn.
pub(crate) type HasTurn = Turn;
