//! Writing all copies.

use crate::map::{Holders, Piece};
use crate::members::{Copies, Presence};
use crate::protocol::primary::read::lost;
use crate::volume::{HasTurn, State, Volume};
use bytes::Bytes;
use futures_channel::oneshot;
use futures_util::future::join_all;
use smallvec::SmallVec;
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use tepal_drive::world::World;
use tepal_drive::{Change, Drive, DriveError, Loss, Mark, MarkKind, Prepared, Refused, Write};
use tepal_model::layout::Durability;
use tepal_model::{BLOCK, DriveId, IoError, MapId};

/// Empty blocks between others that are cleared with them, in one go.
const SMALL_GAP: u64 = (16 << 20) / BLOCK;

/// Whole blocks to write.
#[derive(Debug)]
pub(crate) struct Blocks {
    pub first: u64,
    pub data: Bytes,
    pub crcs: Vec<u32>,
}

/// What became of a write.
pub(crate) enum Written {
    Done,
    /// Not enough copies are here, and those that return need the turn to catch up: whoever has it gives it up, or lends
    /// it if some copies have been written.
    Waits {
        change: oneshot::Receiver<()>,
        begun: bool,
    },
}

/// Pieces that lie side by side on one drive, and so are one write there, and the marks that must be there with them.
struct Target<W: World> {
    at: usize,
    drive: Drive<W>,
    first: u64,
    count: u64,
    /// Where the pieces are in the data, in blocks.
    parts: SmallVec<[Range<usize>; 1]>,
    regions: SmallVec<[u64; 1]>,
    marks: Vec<Change>,
    /// What the marks call stale: the region, and the drive by position.
    stale: Vec<(u64, usize)>,
}

/// One for each drive, for most writes lie in one extent.
type Targets<W> = SmallVec<[Target<W>; 2]>;

/// A copy of a piece.
struct Place {
    at: usize,
    /// The first block on the drive.
    first: u64,
    part: Range<usize>,
    region: u64,
    /// The drives by position that miss it.
    absent: Holders,
}

#[expect(clippy::large_enum_variant, reason = "a box would be an allocation for each write")]
enum Plan<W: World> {
    Go(Targets<W>),
    Wait(oneshot::Receiver<()>),
    Refuse(IoError),
}

enum Flush<W: World> {
    /// The drives that are here.
    Go(Vec<Drive<W>>),
    /// One is leaving, or away with what must be flushed.
    Wait(oneshot::Receiver<()>),
    Refuse(IoError),
}

enum Failed {
    Space,
    /// These drives left.
    Lost(Vec<(DriveId, Arc<Loss>)>),
}

impl<W: World> Volume<W> {
    /// The caller has the turn of these blocks, and gives it up before it waits for what is the answer otherwise.
    pub(crate) async fn write_blocks(&self, _: &HasTurn, blocks: Blocks, fua: bool) -> Result<Written, IoError> {
        let (first, count) = (blocks.first, blocks.crcs.len() as u64);
        let mirrored = self.shared.map.rotation.copies() > 1;
        if mirrored {
            self.lock().begin_busy(&self.shared.map, first, count);
        }
        let outcome = self.write_copies(&blocks, fua).await;
        if mirrored {
            self.lock().end_busy(&self.shared.map, first, count);
            self.start_settling();
        }
        outcome
    }

    /// Writes until one pass reaches every copy that is here. Writing again what a copy has already changes nothing.
    async fn write_copies(&self, blocks: &Blocks, fua: bool) -> Result<Written, IoError> {
        let mut begun = false;
        loop {
            let targets = match self.plan_write(blocks.first, blocks.crcs.len() as u64) {
                Plan::Go(targets) => targets,
                Plan::Refuse(error) => return Err(error),
                Plan::Wait(change) => return Ok(Written::Waits { change, begun }),
            };
            begun = true;
            match self.write_targets(&targets, blocks, fua).await {
                Ok(()) if self.took(&targets) => return Ok(Written::Done),
                Ok(()) => {}
                Err(Failed::Space) => return Err(IoError::OutOfSpace),
                Err(Failed::Lost(drives)) => Box::pin(self.lose(drives)).await,
            }
        }
    }

    pub(crate) async fn lose(&self, drives: Vec<(DriveId, Arc<Loss>)>) {
        let Some(engine) = self.engine() else {
            return std::future::pending().await; // the server has stopped: nothing is agreed or acknowledged any more
        };
        for (id, loss) in drives {
            engine.lose_met(id, (*loss).clone()).await;
        }
    }

    /// Which drives take which piece. Decided at one moment; the marks that are missing are named.
    fn plan_write(&self, first: u64, count: u64) -> Plan<W> {
        let mut state = self.lock();
        if state.removed {
            return Plan::Refuse(IoError::Fenced);
        }
        let map = self.shared.map;
        let mut places: SmallVec<[Place; 2]> = SmallVec::new();
        for piece in map.pieces(first, count) {
            let region = map.region_of(piece.block);
            let drives = map.holders(region);
            if let Some(refusal) = check_copies(&mut state, &drives, region) {
                return refusal;
            }
            // From now on nobody reads what these drives miss, whenever they return.
            let absent: Holders =
                drives.iter().copied().filter(|&at| state.members.list[at].drive().is_none()).collect();
            for &at in &absent {
                state.members.list[at].missed.begin(region);
            }
            let from = (piece.block - first) as usize;
            for copy in 0..map.rotation.copies() {
                let (at, first) = map.place(piece, copy);
                let part = from..from + piece.count as usize;
                places.push(Place { at, first, part, region, absent: absent.clone() });
            }
        }
        places.sort_unstable_by_key(|place| (place.at, place.first));
        let mut targets = Targets::new();
        for place in places {
            let Some(drive) = state.members.list[place.at].drive() else { continue };
            let joins = |target: &&mut Target<W>| target.at == place.at && target.first + target.count == place.first;
            match targets.last_mut().filter(joins) {
                Some(target) => target.add(&state, place),
                None => targets.push(Target::at(&state, drive.clone(), place)),
            }
        }
        Plan::Go(targets)
    }

    async fn write_targets(&self, targets: &[Target<W>], blocks: &Blocks, fua: bool) -> Result<(), Failed> {
        let (map, strict) = {
            let state = self.lock();
            (state.spec.map, state.spec.layout.durability == Durability::Strict)
        };
        let writes: SmallVec<[Write<'_>; 2]> =
            targets.iter().map(|target| target.write(blocks, map, strict || fua)).collect();
        let prepared = match prepare(targets, &writes) {
            Err(Refusal { at, refused: Refused::FullUntilFlush }) => {
                Box::pin(targets[at].drive.flush())
                    .await
                    .map_err(|loss| Failed::Lost(vec![(targets[at].drive.id(), loss)]))?;
                prepare(targets, &writes)
            }
            other => other,
        };
        let prepared = prepared.map_err(|Refusal { at, refused }| match refused {
            Refused::Full | Refused::FullUntilFlush => Failed::Space,
            Refused::Lost(loss) => Failed::Lost(vec![(targets[at].drive.id(), loss)]),
        })?;
        let commits = targets.iter().zip(prepared).zip(writes);
        let commits = commits.map(|((target, prepared), write)| target.drive.commit(prepared, write));
        let mut lost = Vec::new();
        for (target, outcome) in targets.iter().zip(join_all(commits).await) {
            match outcome {
                Ok(()) => {}
                Err(DriveError::Lost(loss)) => lost.push((target.drive.id(), loss)),
                Err(error @ (DriveError::OutOfSpace | DriveError::Damaged { .. })) => {
                    unreachable!("a prepared write has its space and reads nothing: {error}")
                }
            }
        }
        if lost.is_empty() { Ok(()) } else { Err(Failed::Lost(lost)) }
    }

    /// All targets have the write: whether they are still here. One that has left since may have lost it again, and be
    /// back without it. The marks are committed: later writes need not bring them again.
    fn took(&self, targets: &[Target<W>]) -> bool {
        let mut state = self.lock();
        let is_here =
            |target: &Target<W>| state.members.list[target.at].drive().is_some_and(|now| now.is_same(&target.drive));
        if !targets.iter().all(is_here) {
            return false;
        }
        for target in targets.iter().filter(|target| !target.marks.is_empty()) {
            for region in &target.regions {
                if let Some(busy) = state.busy.get_mut(region) {
                    busy.marked.insert(target.at);
                }
            }
            for &(region, stale) in &target.stale {
                state.members.list[stale].missed.said(region, target.at);
            }
        }
        true
    }

    /// Everything that was acknowledged is stable on every copy that is here.
    pub(crate) async fn flush_members(&self) -> Result<(), IoError> {
        let said = self.lock().lost_unflushed.said();
        loop {
            let drives = match self.plan_flush(said) {
                Flush::Go(drives) => drives,
                Flush::Refuse(error) => return Err(error),
                Flush::Wait(change) => {
                    let _ = change.await; // dropped unsent only when the volume goes
                    continue;
                }
            };
            let lost = flush_all(drives).await;
            if lost.is_empty() {
                return Ok(());
            }
            self.lose(lost).await;
        }
    }

    fn plan_flush(&self, said: u64) -> Flush<W> {
        let mut state = self.lock();
        if state.removed {
            return Flush::Refuse(IoError::Fenced);
        }
        if let Some(reason) = state.lost_unflushed.say(said) {
            return Flush::Refuse(IoError::Unavailable { reason });
        }
        let leaving = state.members.list.iter().any(|member| matches!(member.presence, Presence::Leaving));
        if leaving || !state.unflushed.is_empty() {
            return Flush::Wait(Volume::next_change(&mut state));
        }
        Flush::Go(state.members.list.iter().filter_map(|member| member.drive().cloned()).collect())
    }

    /// Takes blocks out of every copy. The caller has their turn.
    pub(crate) async fn clear_blocks(&self, _: &HasTurn, first: u64, count: u64) -> Result<Written, IoError> {
        if self.holds_nothing() {
            return Ok(Written::Done);
        }
        let mut cleared = false;
        for (first, count) in self.held(first, count) {
            self.lock().begin_busy(&self.shared.map, first, count);
            let outcome = self.clear_copies(first, count).await;
            self.lock().end_busy(&self.shared.map, first, count);
            self.start_settling();
            if let Written::Waits { change, begun } = outcome? {
                return Ok(Written::Waits { change, begun: begun || cleared });
            }
            cleared = true;
        }
        Ok(Written::Done)
    }

    /// The parts of a range, as first block and count, in which copies hold anything, or may. What is empty in all clean
    /// ones needs no clearing: marks for all of a large volume wouldn't fit into a log.
    fn held(&self, first: u64, count: u64) -> Vec<(u64, u64)> {
        let state = self.lock();
        let map = &self.shared.map;
        let is_empty = |piece: Piece| {
            let region = map.region_of(piece.block);
            let Copies::Clean(copies) = state.members.clean(&map.holders(region), region) else { return false };
            !state.unresolved.contains(&region)
                && copies.into_iter().all(|copy| {
                    let (at, there) = map.place(piece, copy);
                    let drive = state.members.list[at].drive();
                    drive.is_some_and(|drive| drive.is_empty(state.spec.map, there, piece.count))
                })
        };
        let mut held: Vec<(u64, u64)> = Vec::new();
        for piece in map.pieces(first, count).filter(|&piece| !is_empty(piece)) {
            match held.last_mut() {
                Some((start, count)) if piece.block - (*start + *count) <= SMALL_GAP => {
                    *count = piece.block + piece.count - *start;
                }
                _ => held.push((piece.block, piece.count)),
            }
        }
        held
    }

    /// Every copy is here and empty.
    fn holds_nothing(&self) -> bool {
        let state = self.lock();
        let map = state.spec.map;
        state.members.list.iter().all(|member| member.drive().is_some_and(|drive| drive.allocated_of(map) == 0))
    }

    async fn clear_copies(&self, first: u64, count: u64) -> Result<Written, IoError> {
        let mut begun = false;
        loop {
            let (targets, map) = match self.plan_write(first, count) {
                Plan::Go(targets) => (targets, self.lock().spec.map),
                Plan::Refuse(error) => return Err(error),
                Plan::Wait(change) => return Ok(Written::Waits { change, begun }),
            };
            begun = true;
            let mut clears = Vec::new();
            let runs = self.shared.map.runs_by_drive(first, count);
            for run in runs {
                let of_drive = || targets.iter().filter(|target| target.at == run.drive);
                let Some(drive) = of_drive().next().map(|target| target.drive.clone()) else { continue };
                let mut named = BTreeSet::new();
                let new = |change: &&Change| matches!(change, Change::Marked(mark) if named.insert(*mark));
                let marks: Vec<Change> = of_drive().flat_map(|target| &target.marks).filter(new).cloned().collect();
                clears.push(async move {
                    let outcome = drive.clear(map, run.first, run.count, marks).await;
                    (drive.id(), outcome)
                });
            }
            let mut lost = Vec::new();
            for (id, outcome) in join_all(clears).await {
                match outcome {
                    Err(DriveError::Lost(loss)) => lost.push((id, loss)),
                    Ok(()) | Err(DriveError::OutOfSpace | DriveError::Damaged { .. }) => {}
                }
            }
            if lost.is_empty() && self.took(&targets) {
                return Ok(Written::Done);
            }
            self.lose(lost).await;
        }
    }
}

/// Flushes drives. Those that were lost by it, or before.
pub(crate) async fn flush_all<W: World>(drives: Vec<Drive<W>>) -> Vec<(DriveId, Arc<Loss>)> {
    let outcomes = join_all(drives.iter().map(Drive::flush)).await;
    drives.iter().zip(outcomes).filter_map(|(drive, outcome)| outcome.err().map(|loss| (drive.id(), loss))).collect()
}

/// Finds space on all drives, or on none: a full drive must not leave the copies different.
fn prepare<W: World>(targets: &[Target<W>], writes: &[Write<'_>]) -> Result<SmallVec<[Prepared; 2]>, Refusal> {
    let mut prepared: SmallVec<[Prepared; 2]> = SmallVec::with_capacity(targets.len());
    for (at, (target, write)) in targets.iter().zip(writes).enumerate() {
        match target.drive.prepare(write) {
            Ok(one) => prepared.push(one),
            Err(refused) => {
                for (target, one) in targets.iter().zip(prepared) {
                    target.drive.cancel(one);
                }
                return Err(Refusal { at, refused });
            }
        }
    }
    Ok(prepared)
}

struct Refusal {
    /// Which target.
    at: usize,
    refused: Refused,
}

impl<W: World> Target<W> {
    fn at(state: &State<W>, drive: Drive<W>, place: Place) -> Self {
        let mut target = Target {
            at: place.at,
            drive,
            first: place.first,
            count: 0,
            parts: SmallVec::new(),
            regions: SmallVec::new(),
            marks: Vec::new(),
            stale: Vec::new(),
        };
        target.add(state, place);
        target
    }

    fn add(&mut self, state: &State<W>, place: Place) {
        self.count += place.part.len() as u64;
        if !self.regions.contains(&place.region) {
            self.regions.push(place.region);
            self.mark(state, place.region, &place.absent);
        }
        match self.parts.last_mut() {
            Some(part) if part.end == place.part.start => part.end = place.part.end,
            _ => self.parts.push(place.part),
        }
    }

    /// Adds the marks of a region that this drive's log doesn't have yet: its busy mark, and a stale mark for each absent
    /// copy.
    fn mark(&mut self, state: &State<W>, region: u64, absent: &[usize]) {
        let mark = |kind| Change::Marked(Mark { map: state.spec.map, region, kind });
        let mirrored = state.spec.layout.copies() > 1;
        if mirrored && state.busy.get(&region).is_none_or(|busy| !busy.marked.contains(&self.at)) {
            self.marks.push(mark(MarkKind::Busy));
        }
        for &gone in absent.iter().filter(|&&gone| !state.members.list[gone].missed.is_said(region, self.at)) {
            self.marks.push(mark(MarkKind::Stale(state.members.list[gone].id)));
            self.stale.push((region, gone));
        }
    }

    fn write<'a>(&self, blocks: &'a Blocks, map: MapId, durable: bool) -> Write<'a> {
        let bytes = |part: &Range<usize>| blocks.data.slice(part.start * BLOCK as usize..part.end * BLOCK as usize);
        let crcs = match self.parts.as_slice() {
            [part] => Cow::Borrowed(&blocks.crcs[part.clone()]),
            parts => parts.iter().flat_map(|part| &blocks.crcs[part.clone()]).copied().collect(),
        };
        Write {
            map,
            first: self.first,
            data: self.parts.iter().map(bytes).collect(),
            crcs,
            marks: self.marks.clone(),
            durable: durable || !self.stale.is_empty(),
            repair: false,
        }
    }
}

/// `None` if the copies of this extent can be written now.
fn check_copies<W: World>(state: &mut State<W>, drives: &[usize], region: u64) -> Option<Plan<W>> {
    let leaving = drives.iter().any(|&at| matches!(state.members.list[at].presence, Presence::Leaving));
    let enough = match state.members.clean(drives, region) {
        Copies::Clean(copies) => state.members.sure(drives, &copies) >= state.wanted_copies(),
        Copies::Waiting => false,
        Copies::Lost => {
            return Some(Plan::Refuse(lost()));
        }
    };
    (leaving || !enough).then(|| Plan::Wait(Volume::next_change(state)))
}
