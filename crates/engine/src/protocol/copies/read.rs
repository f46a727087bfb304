//! Reading from any clean copy.

use crate::column::members::RegionState;
use crate::column::read::{Failed, Part, Reader};
use crate::column::{Blocks, Group, State};
use crate::holder::Holder;
use crate::map::Column;
use futures_util::future::join_all;
use smallvec::SmallVec;
use tepal_drive::DriveError;
use tepal_drive::world::World;
use tepal_model::{BLOCK, IoError, Lineage, Segments};

impl<W: World> Group<W> {
    /// A clean copy of each part of the blocks.
    pub(in crate::protocol) fn choose_copies(
        &self,
        state: &State<W>,
        (blocks, seen): (Blocks, &Lineage),
        reader: Reader<'_>,
    ) -> Result<SmallVec<[Part<W>; 1]>, RegionState> {
        let column = &self.shared.column;
        let mut parts: SmallVec<[Part<W>; 1]> = SmallVec::new();
        // While no member misses anything, all blocks have the same clean copies.
        let alike = state.members.list.iter().all(|member| member.missed.is_empty());
        let cut = column.cut(blocks.first, blocks.count).take_while(|_| !alike);
        for (first, count) in cut.chain(alike.then_some((blocks.first, blocks.count))) {
            let at = choose(state, (column, column.region_of(first)), first / BALANCED, reader)?;
            match parts.last_mut() {
                Some(part) if part.at == at => part.blocks.count += count,
                _ => {
                    let drive = state.members.list[at].drive().cloned().ok_or(RegionState::Waiting)?;
                    parts.push(Part { at, drive, blocks: Blocks { first, count }, seen: seen.clone() });
                }
            }
        }
        Ok(parts)
    }

    pub(in crate::protocol) async fn read_parts(&self, parts: SmallVec<[Part<W>; 1]>) -> Result<Segments, Failed> {
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

    /// Reads block by block, each from any clean copy that can be read, and has the others repaired.
    pub(in crate::protocol) async fn read_around(&self, blocks: Blocks, seen: &Lineage) -> Result<Segments, Failed> {
        let mut segments = Segments::new();
        for block in blocks.each() {
            segments.extend(self.read_block_anywhere(block.first, seen).await?);
        }
        Ok(segments)
    }

    async fn read_block_anywhere(&self, block: u64, seen: &Lineage) -> Result<Segments, Failed> {
        let column = &self.shared.column;
        let copies = self.lock().members.clean_copies_left(column, column.region_of(block));
        let RegionState::Clean(copies) = copies else { return Err(Failed::Away) };
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

    /// Repairs a copy of a block in the background, and retires a drive that has had too many read errors. A drive that
    /// may have the only copy of some data is kept, and each of its errors is repaired. The same holds where only
    /// another server, which leads a column, can say whether there's another copy.
    fn repair_later(&self, block: u64, at: usize) {
        let group = self.clone();
        self.shared.world.spawn(Box::pin(async move {
            if group.retire_if_unreadable(at).await {
                return;
            }
            if let Err(error) = group.repair(block, at).await {
                let id = group.lock().members.list[at].id;
                tracing::error!(drive = %id, block, %error, "a damaged block was not repaired");
            }
        }));
    }

    /// Retires a drive that has had too many read errors, if all that it has is elsewhere too. Whether it's such a drive.
    pub(in crate::protocol) async fn retire_if_unreadable(&self, at: usize) -> bool {
        let (id, drive) = {
            let state = self.lock();
            let member = &state.members.list[at];
            (member.id, member.drive().cloned())
        };
        let has_others = || self.engine().is_some_and(|engine| engine.is_kept_without(id));
        let Some(holder) = drive.filter(Holder::is_unreadable).filter(|_| has_others()) else { return false };
        if let Some(loss) = holder.retire("too many read errors") {
            self.lose(vec![(id, loss)]).await;
        }
        true
    }
}

/// Reads whose first blocks are within the same run of so many blocks choose the same of equally good copies.
const BALANCED: u64 = 16;

/// The clean copy on the drive with the shortest queue (Petal 2.4). Of equals, a drive of this server is chosen, as
/// others are a way off; of several such drives, each in turn. All requests of clients for the column come by here, so
/// the load is balanced however few requests each client has under way. What a drive has to read for other columns, its
/// server reports with each read.
fn choose<W: World>(
    state: &State<W>,
    (column, region): (&Column, u64),
    turn: u64,
    reader: Reader<'_>,
) -> Result<usize, RegionState> {
    match state.members.clean_copies(column, region) {
        // Under a turn the region may be unresolved: there the first copy decides.
        RegionState::Clean(copies) if matches!(reader, Reader::HasTurn(_)) || copies.len() == 1 => Ok(copies[0]),
        RegionState::Clean(copies) => {
            let turn = turn as usize % copies.len();
            let by_turns = copies[turn..].iter().chain(&copies[..turn]).copied();
            let drive = |at: usize| state.members.list[at].drive();
            let queue = |&at: &usize| drive(at).map(|drive| (drive.reading(), drive.local().is_none()));
            let chosen =
                by_turns.clone().filter(|&at| drive(at).is_some()).min_by_key(queue).ok_or(RegionState::Waiting)?;
            by_turns.filter(|&at| at != chosen).filter_map(drive).for_each(Holder::passed_over);
            Ok(chosen)
        }
        other => Err(other),
    }
}
