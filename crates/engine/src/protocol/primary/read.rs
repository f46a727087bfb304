//! Reading from any clean copy.

use super::members::Copies;
use super::recover::Stuck;
use super::{Blocks, Group, Moment, State};
use crate::epochs::Subject;
use crate::holder::Holder;
use crate::seen_through::SeenThrough;
use futures_channel::oneshot;
use futures_util::future::join_all;
use smallvec::SmallVec;
use tepal_drive::DriveError;
use tepal_drive::world::World;
use tepal_model::{BLOCK, IoError, Lineage, Segments};

pub(super) enum Plan<W: World> {
    /// For each part of the blocks, a copy of it; and when that was so.
    Go(SmallVec<[Part<W>; 1]>, Moment),
    /// This region's copies may differ: settle that first.
    Resolve(u64),
    Wait(oneshot::Receiver<()>),
    Refuse(IoError),
}

/// Blocks that are read from one copy.
pub(super) struct Part<W: World> {
    at: usize,
    pub drive: Holder<W>,
    pub blocks: Blocks,
    /// What is seen of its layers.
    pub seen: Lineage,
}

/// For whom something is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reader<'a> {
    Client(Subject),
    /// Whoever copies what all see. Wants it settled.
    Copies(&'a Lineage),
    /// Whoever holds the turn of these blocks; what is seen so.
    HasTurn(&'a Lineage),
}

impl<W: World> Group<W> {
    pub async fn read_blocks(&self, blocks: Blocks, subject: Subject) -> Result<Segments, IoError> {
        loop {
            if let Some(snapshot) = subject.at {
                self.until_unchanging((subject.volume, snapshot), blocks).await?;
            }
            self.until_readable(blocks).await?;
            let (segments, then) = self.read_copies(blocks, Reader::Client(subject)).await?;
            self.until_ended(blocks).await?;
            // A write that it met may have been given up, and gone with the drive that had it; or been refused where there was no room.
            let state = self.lock();
            state.serves_volume(subject.volume)?; // it may have gone from here with its snapshots
            state.seen_at(subject)?; // of one that was removed meanwhile, drives may have given things back
            state.serves_blocks(&self.shared.column, (subject.volume, blocks))?; // another map may have it by now, and this one nothing
            if state.is_as_at(then, self.shared.column.regions(blocks.first, blocks.count)) {
                return Ok(segments);
            }
        }
    }

    /// For a write that merges: it has the turn, so nothing is under way.
    pub async fn read_under_turn(&self, blocks: Blocks, seen: &Lineage) -> Result<Segments, IoError> {
        self.read_copies(blocks, Reader::HasTurn(seen)).await.map(|(segments, _)| segments)
    }

    /// Also when that was planned.
    pub async fn read_copies(&self, blocks: Blocks, reader: Reader<'_>) -> Result<(Segments, Moment), IoError> {
        loop {
            let (parts, then) = self.planned(blocks, reader).await?;
            match self.read_parts(parts).await {
                Ok(segments) => return Ok((segments, then)),
                Err(Failed::Lost(id, loss)) => Box::pin(self.lose(vec![(id, loss)])).await,
                Err(Failed::Away) => {} // drives have left since this was planned
                Err(Failed::Io(error)) => return Err(error),
            }
        }
    }

    /// A repair that has begun is not given up with the request that wanted it. What it waits for, if it can't go on.
    pub(super) async fn resolve_to_the_end(&self, region: u64) -> Result<Option<oneshot::Receiver<()>>, IoError> {
        let group = self.clone();
        let resolve = |_| async move {
            match group.resolve(region).await {
                Ok(()) => Ok(None),
                Err(Stuck::Failed(error)) => Err(error),
                Err(Stuck::Waits(change)) => Ok(Some(change)),
            }
        };
        SeenThrough::new(self.shared.world.clone(), resolve).await
    }

    /// From which copies to read, once they are here and settled; and when that was so.
    pub(super) async fn planned(
        &self,
        blocks: Blocks,
        reader: Reader<'_>,
    ) -> Result<(SmallVec<[Part<W>; 1]>, Moment), IoError> {
        loop {
            match self.plan_read(blocks, reader) {
                Plan::Go(parts, then) => return Ok((parts, then)),
                Plan::Refuse(error) => return Err(error),
                Plan::Resolve(region) => {
                    if let Some(change) = self.resolve_to_the_end(region).await? {
                        self.wait(change).await?;
                    }
                }
                Plan::Wait(change) => self.wait(change).await?,
            }
        }
    }

    pub(super) fn plan_read(&self, blocks: Blocks, reader: Reader<'_>) -> Plan<W> {
        let mut state = self.lock();
        let seen = match reader {
            Reader::HasTurn(seen) | Reader::Copies(seen) => state.serves().map(|()| seen.clone()),
            Reader::Client(subject) => state
                .serves_volume(subject.volume)
                .and_then(|()| state.serves_blocks(&self.shared.column, (subject.volume, blocks)))
                .and_then(|()| state.seen_at(subject)),
        };
        let seen = match seen {
            Ok(seen) => seen,
            Err(error) => return Plan::Refuse(error),
        };
        let column = &self.shared.column;
        if !matches!(reader, Reader::HasTurn(_)) && !state.unresolved.is_empty() {
            let mut regions = column.regions(blocks.first, blocks.count);
            if let Some(region) = regions.find(|region| state.unresolved.contains(region)) {
                return Plan::Resolve(region);
            }
        }
        let mut parts: SmallVec<[Part<W>; 1]> = SmallVec::new();
        // While nobody misses anything, all of it has the same clean copies.
        let alike = state.members.list.iter().all(|member| member.missed.is_empty());
        let cut = column.cut(blocks.first, blocks.count).take_while(|_| !alike);
        for (first, count) in cut.chain(alike.then_some((blocks.first, blocks.count))) {
            let at = match choose(&state, column.region_of(first), first / BALANCED, reader) {
                Ok(at) => at,
                Err(Copies::Lost) => return Plan::Refuse(lost()),
                Err(Copies::Waiting | Copies::Clean(_)) => return Plan::Wait(Group::next_change(&mut state)),
            };
            match parts.last_mut() {
                Some(part) if part.at == at => part.blocks.count += count,
                _ => {
                    let Some(drive) = state.members.list[at].drive().cloned() else {
                        return Plan::Wait(Group::next_change(&mut state));
                    };
                    parts.push(Part { at, drive, blocks: Blocks { first, count }, seen: seen.clone() });
                }
            }
        }
        Plan::Go(parts, state.moment())
    }

    async fn read_parts(&self, parts: SmallVec<[Part<W>; 1]>) -> Result<Segments, Failed> {
        if let [part] = parts.as_slice() {
            return self.read_part(part).await;
        }
        let mut segments = Segments::new();
        for part in join_all(parts.iter().map(|part| self.read_part(part))).await {
            segments.extend(part?);
        }
        Ok(segments)
    }

    async fn read_part(&self, part: &Part<W>) -> Result<Segments, Failed> {
        let place = self.shared.column.place(part.blocks.first);
        match part.drive.read(self.shared.column.map, place, part.blocks.count, &part.seen).await {
            Ok(segments) => Ok(segments),
            Err(DriveError::Lost(loss)) => Err(Failed::Lost(part.drive.id(), loss)),
            Err(DriveError::Damaged { .. } | DriveError::OutOfSpace) => {
                Box::pin(self.read_around(part.blocks, &part.seen)).await
            }
        }
    }

    /// Reads block by block, each from whichever clean copy of it is right, and has the others repaired.
    async fn read_around(&self, blocks: Blocks, seen: &Lineage) -> Result<Segments, Failed> {
        let mut segments = Segments::new();
        for block in blocks.each() {
            segments.extend(self.read_block_anywhere(block.first, seen).await?);
        }
        Ok(segments)
    }

    async fn read_block_anywhere(&self, block: u64, seen: &Lineage) -> Result<Segments, Failed> {
        let column = &self.shared.column;
        let copies = self.lock().members.clean(column.region_of(block));
        let Copies::Clean(copies) = copies else { return Err(Failed::Away) };
        let mut bad = Vec::new();
        for at in copies {
            let Some(drive) = self.lock().members.list[at].drive().cloned() else { return Err(Failed::Away) };
            match drive.read(column.map, column.place(block), 1, seen).await {
                Ok(segments) => {
                    bad.into_iter().for_each(|at| self.repair_later(block, at));
                    return Ok(segments);
                }
                Err(DriveError::Lost(loss)) => return Err(Failed::Lost(drive.id(), loss)),
                Err(DriveError::Damaged { .. } | DriveError::OutOfSpace) => bad.push(at),
            }
        }
        Err(Failed::Io(IoError::Damaged { offset: block * BLOCK, length: BLOCK }))
    }

    /// Repairs a copy of a block in the background, and retires a drive that has made too many mistakes. One that may have the only
    /// copy of something is kept, and each of its mistakes repaired: also if that is for another server to say, which leads a column.
    fn repair_later(&self, block: u64, at: usize) {
        let group = self.clone();
        self.shared.world.spawn(Box::pin(async move {
            let (id, drive) = {
                let state = group.lock();
                let member = &state.members.list[at];
                (member.id, member.drive().cloned())
            };
            let has_others = || group.engine().is_some_and(|engine| engine.is_kept_without(id));
            if let Some(holder) = drive.filter(Holder::is_unreadable).filter(|_| has_others()) {
                if let Some(loss) = holder.retire("too many read errors") {
                    group.lose(vec![(id, loss)]).await;
                }
                return;
            }
            if let Err(error) = group.repair(block, at).await {
                tracing::error!(drive = %id, block, %error, "a damaged block was not repaired");
            }
        }));
    }

    /// A range cut at regions.
    pub(super) fn cut(&self, blocks: Blocks) -> impl Iterator<Item = (u64, u64)> + use<W> {
        self.shared.column.cut(blocks.first, blocks.count)
    }
}

/// Why a read has to be begun again, or can't be done.
pub(crate) enum Failed {
    Lost(tepal_model::DriveId, std::sync::Arc<tepal_drive::Loss>),
    /// Drives have left since it was planned.
    Away,
    Io(IoError),
}

pub(crate) fn lost() -> IoError {
    IoError::Unavailable { reason: "the drive that held the data has failed".to_owned() }
}

/// Reads of so many blocks that begin side by side choose the same of copies that are equally good.
const BALANCED: u64 = 16;

/// The clean copy on the drive with the shortest queue (Petal 2.4); of equals one of this server, for others are a way off, and of
/// these one by turns. All that clients ask of the column comes by here, so it's balanced however few requests each of them has under
/// way; what a drive has to read for other columns, its server says when it was read from.
fn choose<W: World>(state: &State<W>, region: u64, turn: u64, reader: Reader<'_>) -> Result<usize, Copies> {
    match state.members.clean(region) {
        // Under a turn the region may be unresolved: there the first copy decides.
        Copies::Clean(copies) if matches!(reader, Reader::HasTurn(_)) || copies.len() == 1 => Ok(copies[0]),
        Copies::Clean(copies) => {
            let turn = turn as usize % copies.len();
            let by_turns = copies[turn..].iter().chain(&copies[..turn]).copied();
            let drive = |at: usize| state.members.list[at].drive();
            let queue = |&at: &usize| drive(at).map(|drive| (drive.reading(), drive.local().is_none()));
            let chosen = by_turns.clone().filter(|&at| drive(at).is_some()).min_by_key(queue).ok_or(Copies::Waiting)?;
            by_turns.filter(|&at| at != chosen).filter_map(drive).for_each(Holder::passed_over);
            Ok(chosen)
        }
        other => Err(other),
    }
}
