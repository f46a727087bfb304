//! Scrub of a volume: every copy of every block is read and checked, compared with the others, and repaired.

use crate::column::members::{Member, Presence};
use crate::column::pace::Pace;
use crate::column::{Blocks, Group, State};
use crate::holder::Holder;
use crate::seen_through::SeenThrough;
use crate::servers::reach::Undone;
use crate::servers::seat::Seat;
use crate::volume::operation::Repair;
use crate::volume::{Map, Volume};
use futures_util::future::{Either, select};
use std::collections::BTreeSet;
use std::pin::pin;
use std::time::Duration;
use tepal_drive::DriveError;
use tepal_drive::world::World;
use tepal_model::{BLOCK, DriveId, IoError, MapId};
use tepal_wire::message::RepairOutcome;

/// What a scrub did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScrubSummary {
    /// Drives of this server that were read to the end.
    pub drives_checked: Vec<DriveId>,
    /// Drives that had copies when the scrub began, and that this server didn't read to the end.
    pub drives_unchecked: Vec<DriveId>,
    /// Blocks on drives of this server, copies counted, damaged ones included.
    pub blocks_checked: u64,
    /// Damaged blocks, copies counted, that were written again from a right copy.
    pub repaired: u64,
    /// Offsets, in bytes, of blocks with no right copy.
    pub lost: Vec<u64>,
    /// The same of damaged blocks that can't be repaired now: a drive that is away, or is yet to be compared, may have a right copy.
    pub unrepaired: Vec<u64>,
    /// Extents whose copies differed though each matched its checksum: a drive had lost a write.
    pub unequal_extents: u64,
}

/// Blocks that are compared at a time.
const STEP: u64 = 16;

/// How long somebody may take to lead a column and to repair a block of it.
const PATIENCE: Duration = Duration::from_secs(15);

/// What is known of a damaged copy of a block.
enum Repaired {
    Told(RepairOutcome),
    /// Another map has the block by now.
    Migrated,
}

impl<W: World> Volume<W> {
    /// `progress` is told how many blocks, copies counted, are done.
    pub async fn scrub(&self, progress: impl Fn(u64)) -> Result<ScrubSummary, IoError> {
        let at_once = |blocks| {
            progress(blocks);
            std::future::ready(())
        };
        self.scrub_paced(at_once).await
    }

    /// The same, which goes on when what it's told has come to its end.
    pub async fn scrub_paced<F: Future<Output = ()>>(
        &self,
        progress: impl Fn(u64) -> F,
    ) -> Result<ScrubSummary, IoError> {
        let mut summary = ScrubSummary::default();
        // Columns whose primary doesn't answer.
        let mut silent = BTreeSet::new();
        let maps = self.maps();
        // What becomes a copy from now on is read and checked by who makes it.
        let holders: BTreeSet<DriveId> = maps.iter().flat_map(|map| map.places().drives()).collect();
        for map in &maps {
            // What is hidden in older layers of what was repaired isn't damage.
            map.reclaim_by_what_all_know().await;
        }
        for (map, drive) in maps.iter().flat_map(|map| map.drives_here().into_iter().map(move |drive| (map, drive))) {
            let checked = std::cell::Cell::new(summary.blocks_checked);
            let report = drive.scrub(Some(map.id()), |blocks| {
                checked.set(checked.get() + blocks);
                progress(checked.get())
            });
            let report = match report.await {
                Ok(report) => report,
                Err(DriveError::Lost(loss)) => {
                    if let Some(engine) = self.engine() {
                        engine.lose_met(drive.id(), (*loss).clone()).await;
                    }
                    continue;
                }
                Err(error) => return Err(IoError::Unavailable { reason: error.to_string() }),
            };
            summary.blocks_checked += report.blocks_checked;
            if !summary.drives_checked.contains(&drive.id()) {
                summary.drives_checked.push(drive.id());
            }
            if map.by_gateways().is_some() {
                continue; // all nodes are looked at below
            }
            let places: BTreeSet<u64> = report.damaged.into_iter().map(|(_, place, _)| place).collect();
            for place in places {
                self.repair_place(map, (drive.id(), place), &mut silent, &mut summary).await?;
            }
        }
        summary.drives_unchecked.extend(holders.into_iter().filter(|drive| !summary.drives_checked.contains(drive)));
        for map in &maps {
            if let Some(led) = map.by_gateways() {
                self.scrub_nodes(map, led, &mut summary).await?;
            }
        }
        for seat in maps.iter().flat_map(Map::seats) {
            summary.unequal_extents += self.compare_copies(seat).await?;
        }
        // What couldn't be read had to stay where it was.
        maps.iter().for_each(Map::start_reclaiming);
        Ok(summary)
    }

    /// Extents whose copies differed; if another server leads the column, that compares them.
    async fn compare_copies(&self, seat: &Seat<W>) -> Result<u64, IoError> {
        while let Some(group) = seat.group().filter(|group| group.is_mirrored()) {
            match group.compare_copies().await {
                // It has other copies by now.
                Err(IoError::Fenced) if !seat.is_still(&group) && !self.is_cut_off() => {}
                outcome => return outcome,
            }
        }
        Ok(0)
    }

    /// Has a damaged block of a drive written again: who leads its column knows the other copies.
    async fn repair_place(
        &self,
        map: &Map<W>,
        (drive, place): (DriveId, u64),
        silent: &mut BTreeSet<(MapId, usize)>,
        summary: &mut ScrubSummary,
    ) -> Result<(), IoError> {
        let (column, block) = map.column(0).at_place(place);
        let Some(copy) = map.placed(column).all().position(|holder| holder == drive) else {
            return Ok(()); // it isn't one of its copies any more
        };
        let within = map.column(0).logical(block) * BLOCK;
        let offset = map.striping().offset_of(column, within);
        if silent.contains(&(map.id(), column)) {
            summary.unrepaired.push(offset);
            return Ok(());
        }
        let repair = Repair { offset: block * BLOCK, within, copy: copy as u8 };
        match self.repaired_by_primary(map, column, &repair).await {
            // What another map has taken over was read for that. What can't be read stays where it was, and is as damaged there.
            Ok(Some(Repaired::Migrated)) => {
                if let Err(IoError::Damaged { .. }) = self.read(offset, BLOCK).await {
                    tracing::error!(%drive, offset, "a damaged block has no right copy");
                    summary.lost.push(offset);
                }
            }
            Ok(Some(Repaired::Told(RepairOutcome::Done))) => summary.repaired += 1,
            Ok(Some(Repaired::Told(RepairOutcome::Impossible))) => {
                tracing::error!(%drive, offset, "a damaged block has no right copy");
                summary.lost.push(offset);
            }
            Ok(Some(Repaired::Told(RepairOutcome::NotNow))) | Err(IoError::Unavailable { .. }) => {
                tracing::warn!(%drive, offset, "a damaged block can't be repaired now");
                summary.unrepaired.push(offset);
            }
            Ok(None) => {
                tracing::warn!(%drive, offset, "nobody repairs a damaged block now, for {PATIENCE:?}");
                silent.insert((map.id(), column));
                summary.unrepaired.push(offset);
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// `None` if that takes too long.
    async fn repaired_by_primary(
        &self,
        map: &Map<W>,
        column: usize,
        repair: &Repair,
    ) -> Result<Option<Repaired>, IoError> {
        let Some(engine) = self.engine() else { return Err(IoError::Stopping) };
        let asked = self.at_primary(map, column, repair, None);
        match select(pin!(asked), pin!(engine.world().sleep(PATIENCE))).await {
            Either::Left((Ok(outcome), _)) => Ok(Some(Repaired::Told(outcome))),
            Either::Left((Err(Undone::Migrated(_)), _)) => Ok(Some(Repaired::Migrated)),
            Either::Left((Err(Undone::Io(error)), _)) => Err(error),
            Either::Right(_) => Ok(None),
        }
    }
}

impl<W: World> Group<W> {
    /// Writes a damaged copy of a block again, if there's a right one. `Fenced` if another server is to be asked, `NotNow` if
    /// this one is, again.
    pub(crate) async fn try_repair(&self, block: u64, copy: usize) -> Result<RepairOutcome, IoError> {
        if copy >= self.shared.copies {
            return Err(IoError::Unavailable { reason: format!("there's no copy {copy} of that part of the volume") });
        }
        if block >= self.shared.column.places().1 {
            return Err(IoError::Unavailable { reason: format!("no volume has a block {block} in one column") });
        }
        let before = self.copies_that_count(block);
        // Once it writes, it's not given up with whoever wanted it.
        let group = self.clone();
        let repair = |_| async move { group.shared.kept.rebuild(&group, block, copy).await };
        match SeenThrough::new(self.shared.world.clone(), repair).await {
            Ok(()) => Ok(RepairOutcome::Done),
            Err(error @ (IoError::Fenced | IoError::NotNow | IoError::Stopping)) => Err(error),
            // A drive may have come back since the others were looked at, or caught up.
            Err(IoError::Damaged { .. })
                if !self.may_be_elsewhere(block, copy).await && self.copies_that_count(block) == before =>
            {
                Ok(RepairOutcome::Impossible)
            }
            Err(error) => {
                tracing::debug!(block, copy, %error, "a damaged block isn't repaired");
                Ok(RepairOutcome::NotNow)
            }
        }
    }

    /// The copies that are here and miss something around a block.
    fn behind_here(&self, state: &State<W>, block: u64) -> Vec<usize> {
        let region = self.shared.column.region_of(block);
        let is_behind = |member: &Member<W>| member.drive().is_some() && member.missed.contains(region);
        let members = state.members.list.iter().enumerate();
        members.filter(|(_, member)| is_behind(member)).map(|(at, _)| at).collect()
    }

    /// How often a drive has come or gone, and which copies that are here miss something around a block.
    fn copies_that_count(&self, block: u64) -> (u64, Vec<usize>) {
        let state = self.lock();
        (state.changes, self.behind_here(&state, block))
    }

    /// Whether a drive that may return, or one that is here and catches up, may have a right copy of a block that is damaged on another.
    /// What a drive misses is known by the region: of which blocks that is so, shows when they are compared.
    async fn may_be_elsewhere(&self, block: u64, damaged: usize) -> bool {
        let behind = {
            let state = self.lock();
            let is_away = |member: &Member<W>| {
                matches!(member.presence, Presence::Unheard | Presence::Leaving | Presence::Missing)
            };
            if state.members.list.iter().enumerate().any(|(at, member)| at != damaged && is_away(member)) {
                return true;
            }
            self.behind_here(&state, block)
        };
        for other in behind.into_iter().filter(|&other| other != damaged) {
            if self.shared.kept.may_help(self, block, damaged, other).await {
                return true;
            }
        }
        false
    }

    /// Compares all that any drive holds. In how many places the copies differed.
    async fn compare_copies(&self) -> Result<u64, IoError> {
        let column = self.shared.column;
        let regions: BTreeSet<u64> =
            self.extents(false).await?.into_iter().map(|first| column.region_of(first)).collect();
        let mut unequal = 0;
        let mut pace = Pace::of(self.served(), 1);
        for region in regions {
            self.shared.world.give_way().await;
            let began = self.shared.world.now();
            let (first, count) = column.blocks_of(region);
            for first in (first..first + count).step_by(STEP as usize) {
                let blocks = Blocks { first, count: STEP };
                if self.holds_any(blocks).await && !self.shared.kept.compare(self, blocks).await? {
                    unequal += 1;
                }
            }
            // Copies are compared by their checksums; for code, all data is read.
            let is_quick = self.shared.fragments.are_copies();
            self.rest_for_clients(&mut pace, self.served(), began, is_quick).await;
        }
        Ok(unequal)
    }

    async fn holds_any(&self, blocks: Blocks) -> bool {
        let column = &self.shared.column;
        let rows = (!self.shared.fragments.are_copies()).then(|| self.rows_of(blocks));
        let copies: Vec<Holder<W>> = self.lock().members.here().cloned().collect();
        for drive in copies {
            for blocks in [Some(blocks), rows].into_iter().flatten() {
                let epochs = drive.epochs_of(column.map, column.place(blocks.first), blocks.count).await;
                if !epochs.is_ok_and(|epochs| epochs.is_empty()) {
                    return true;
                }
            }
        }
        false
    }
}
