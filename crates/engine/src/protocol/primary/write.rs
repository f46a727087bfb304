//! Writing all copies.

use crate::map::Piece;
use crate::members::{Copies, Presence};
use crate::protocol::primary::read::lost;
use crate::volume::{HasTurn, State, Volume};
use bytes::Bytes;
use futures_channel::oneshot;
use futures_util::future::join_all;
use smallvec::SmallVec;
use std::collections::BTreeSet;
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

/// One copy of one piece, and the marks that must be there with it.
struct Target<W: World> {
    at: usize,
    drive: Drive<W>,
    first: u64,
    region: u64,
    /// Where the piece starts in the data, and its length, in blocks.
    from: usize,
    count: usize,
    marks: Vec<Change>,
    /// Drives that the marks call stale, by position.
    stale: Vec<usize>,
}

/// One for each copy, for most writes lie in one extent.
type Targets<W> = SmallVec<[Target<W>; 2]>;

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
                Ok(()) => {
                    self.note_marks(&targets);
                    return Ok(Written::Done);
                }
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
        let mut targets = Targets::new();
        for piece in map.pieces(first, count) {
            let places: SmallVec<[(usize, u64); 4]> =
                (0..map.rotation.copies()).map(|copy| map.place(piece, copy)).collect();
            let drives: SmallVec<[usize; 4]> = places.iter().map(|&(at, _)| at).collect();
            let region = map.region_of(piece.block);
            if let Some(refusal) = check_copies(&mut state, &drives, region) {
                return refusal;
            }
            // From now on nobody reads what these drives miss, whenever they return.
            let absent: SmallVec<[usize; 4]> =
                drives.iter().copied().filter(|&at| state.members.list[at].drive().is_none()).collect();
            for &at in &absent {
                state.members.list[at].missed.begin(region);
            }
            for (at, first_there) in places {
                let Some(drive) = state.members.list[at].drive().cloned() else { continue };
                let (marks, stale) = marks_needed(&state, at, region, &absent, drives.len() > 1);
                targets.push(Target {
                    at,
                    drive,
                    first: first_there,
                    region,
                    from: (piece.block - first) as usize,
                    count: piece.count as usize,
                    marks,
                    stale,
                });
            }
        }
        Plan::Go(targets)
    }

    async fn write_targets(&self, targets: &[Target<W>], blocks: &Blocks, fua: bool) -> Result<(), Failed> {
        let (map, strict) = {
            let state = self.lock();
            (state.spec.map, state.spec.layout.durability == Durability::Strict)
        };
        let request = Request { blocks, map, durable: strict || fua };
        let prepared = match prepare(targets, &request) {
            Err(Refusal { at, refused: Refused::FullUntilFlush }) => {
                Box::pin(targets[at].drive.flush())
                    .await
                    .map_err(|loss| Failed::Lost(vec![(targets[at].drive.id(), loss)]))?;
                prepare(targets, &request)
            }
            other => other,
        };
        let prepared = prepared.map_err(|Refusal { at, refused }| match refused {
            Refused::Full | Refused::FullUntilFlush => Failed::Space,
            Refused::Lost(loss) => Failed::Lost(vec![(targets[at].drive.id(), loss)]),
        })?;
        let commits = targets
            .iter()
            .zip(prepared)
            .map(|(target, prepared)| target.drive.commit(prepared, target.write(&request)));
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

    /// The marks are committed: later writes need not bring them again.
    fn note_marks(&self, targets: &[Target<W>]) {
        if targets.iter().all(|target| target.marks.is_empty()) {
            return;
        }
        let mut state = self.lock();
        for target in targets {
            if !state.members.list[target.at].drive().is_some_and(|now| now.is_same(&target.drive)) {
                continue; // what it has now is heard when it returns
            }
            if let Some(busy) = state.busy.get_mut(&target.region) {
                busy.marked.insert(target.at);
            }
            for &stale in &target.stale {
                state.members.list[stale].missed.said(target.region, target.at);
            }
        }
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
            if lost.is_empty() {
                self.note_marks(&targets);
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
fn prepare<W: World>(targets: &[Target<W>], request: &Request<'_>) -> Result<SmallVec<[Prepared; 2]>, Refusal> {
    let mut prepared: SmallVec<[Prepared; 2]> = SmallVec::with_capacity(targets.len());
    for (at, target) in targets.iter().enumerate() {
        match target.drive.prepare(&target.write(request)) {
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

/// What is the same for all targets of a write.
struct Request<'a> {
    blocks: &'a Blocks,
    map: MapId,
    durable: bool,
}

struct Refusal {
    /// Which target.
    at: usize,
    refused: Refused,
}

impl<W: World> Target<W> {
    fn write<'a>(&self, request: &Request<'a>) -> Write<'a> {
        let &Request { blocks, map, durable } = request;
        let bytes = self.from * BLOCK as usize..(self.from + self.count) * BLOCK as usize;
        Write {
            map,
            first: self.first,
            data: blocks.data.slice(bytes),
            crcs: &blocks.crcs[self.from..self.from + self.count],
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

/// Marks that this drive's log doesn't have yet: the region's busy mark, and a stale mark for each absent copy.
fn marks_needed<W: World>(
    state: &State<W>,
    at: usize,
    region: u64,
    absent: &[usize],
    mirrored: bool,
) -> (Vec<Change>, Vec<usize>) {
    let mark = |kind| Change::Marked(Mark { map: state.spec.map, region, kind });
    let mut marks = Vec::new();
    if mirrored && state.busy.get(&region).is_none_or(|busy| !busy.marked.contains(&at)) {
        marks.push(mark(MarkKind::Busy));
    }
    let unsaid = |&&gone: &&usize| !state.members.list[gone].missed.is_said(region, at);
    let stale: Vec<usize> = absent.iter().filter(unsaid).copied().collect();
    marks.extend(stale.iter().map(|&gone| mark(MarkKind::Stale(state.members.list[gone].id))));
    (marks, stale)
}
