//! What the source of a migration hands over to the target: everything that it has of some blocks. Then the source
//! releases the blocks. Only blocks that are fenced, as this server knows, are handed over: so no client is served here
//! any more that hasn't been answered yet.
//!
//! Where a volume leaves others that have the map, only data that it sees is handed over, and only data that nobody
//! else sees is released: as if the volume had never written it. The others go on meanwhile, and see no more of the
//! released data than before.
//!
//! A line of the map's history is released after the lines that it sees: if the release stops in between, the data that
//! is left is newer than the data that is gone. Each line is taken out of all copies before the next line, so copies
//! differ in one line at most.

use super::handed::Handed;
use super::lines::HeldBy;
use crate::column::epochs::Writing;
use crate::column::members::{Member, Presence, RegionState};
use crate::column::order::Turn;
use crate::column::patience::DRIVES_WAIT;
use crate::column::read::Reader;
use crate::column::redundancy::Written;
use crate::column::{Blocks, Group};
use crate::epochs::Epochs;
use crate::holder::Holder;
use crate::migration::Migration;
use crate::seen_through::{Asker, SeenThrough};
use crate::servers::peers::Reply;
use crate::view::View;
use crate::volume::MapMigration;
use futures_util::future::join_all;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use tepal_drive::Drive;
use tepal_drive::world::World;
use tepal_model::{DriveId, IoError, Lineage, MapId};
use tepal_wire::Payload;
use tepal_wire::message::volume::HandedLine;
use tepal_wire::message::{Answer, VolumeAnswer, VolumeOperation};

/// What the target asks of the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Handing {
    pub what: What,
    pub blocks: Blocks,
    /// The target map.
    pub target: MapId,
    /// The window: [`Migration::since`](crate::Migration::since).
    pub since: View,
    /// The lines: [`Epochs::lines_digest`].
    pub lines: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// Asks which chunks of the window hold anything. Its blocks are empty.
    Holding,
    HandOver,
    Release,
}

impl Handing {
    /// `None` for any other operation.
    pub fn of(operation: &VolumeOperation) -> Option<Self> {
        let handing = |what, first, count: u32, (target, since, lines)| {
            Some(Handing { what, blocks: Blocks::new(first, count.into()), target, since, lines })
        };
        match *operation {
            VolumeOperation::Holding { target, since, lines } => handing(What::Holding, 0, 0, (target, since, lines)),
            VolumeOperation::HandOver { first, count, target, since, lines } => {
                handing(What::HandOver, first, count, (target, since, lines))
            }
            VolumeOperation::Release { first, count, target, since, lines } => {
                handing(What::Release, first, count, (target, since, lines))
            }
            _ => None,
        }
    }

    pub fn message(&self) -> VolumeOperation {
        let Handing { blocks: Blocks { first, count }, target, since, lines, .. } = *self;
        let count = count as u32;
        match self.what {
            What::Holding => VolumeOperation::Holding { target, since, lines },
            What::HandOver => VolumeOperation::HandOver { first, count, target, since, lines },
            What::Release => VolumeOperation::Release { first, count, target, since, lines },
        }
    }

    /// [`IoError::NotNow`] if it has to be asked again: then nothing is lost that wasn't to be.
    pub async fn at<W: World>(&self, group: &Group<W>) -> Result<Reply, IoError> {
        match self.what {
            What::Holding => group.holding(self).await,
            What::HandOver => group.hand_over(self).await,
            What::Release => {
                let (group, handing) = (group.clone(), *self);
                let world = group.shared.world.clone();
                SeenThrough::new(world, |asker| async move { group.release(&handing, asker).await }).await?;
                Ok(Answer::Volume(VolumeAnswer::Released).into())
            }
        }
    }
}

/// The migration, and what its readers see.
type Giving = (Arc<MapMigration>, Arc<Epochs>);

/// Blocks that a drive is asked about at once.
const SPAN: u64 = 1 << 16;

/// Runs of places on a drive, each with its chunk.
type OfDrive<W> = (Drive<W>, Vec<(u64, Range<u64>)>);

impl<W: World> Group<W> {
    /// Whether these blocks have to be handed over, by which migration and which epochs: both maps' epochs say the
    /// same.
    fn gives(&self, Handing { blocks, target, since, lines, .. }: &Handing) -> Result<Giving, IoError> {
        let state = self.lock();
        state.serves()?;
        let asks = |agreed: &Migration| (agreed.target, agreed.since) == (*target, *since);
        let migration = state.migration.as_ref().filter(|migration| !migration.takes() && asks(&migration.agreed));
        let is_fenced = migration.is_some_and(|migration| migration.are_fenced(self.shared.column.number, *blocks));
        // Nothing is known any more of a volume that is gone.
        let leaves = migration.and_then(|migration| migration.agreed.leaves);
        let is_known = leaves.is_none_or(|volume| state.seen.epochs.heads.contains_key(&volume));
        let is_same = || is_known && state.seen.epochs.lines_digest(leaves) == *lines;
        match migration.filter(|_| is_fenced && is_same() && self.shared.view > 0) {
            Some(migration) => Ok((migration.clone(), state.seen.epochs.clone())),
            None => Err(IoError::NotNow),
        }
    }

    /// As [`Group::turn`], but for a moment only: the asker asks again.
    pub async fn turn_soon(&self, blocks: Blocks) -> Result<Turn, IoError> {
        self.for_others().wait_for(Box::pin(self.line_up_unasked(blocks).turn()), DRIVES_WAIT).await
    }

    /// Returns when the changes of blocks that have begun have ended. Its wait is as long as that of [`Group::turn_soon`].
    pub async fn until_ended_soon(&self, blocks: Blocks) -> Result<(), IoError> {
        let ends = join_all(self.shared.order.under_way(blocks.first, blocks.count));
        self.for_others().wait_for(ends, DRIVES_WAIT).await.map(drop)
    }

    /// The chunks of the window of which this column may have anything. Left out are chunks of which a copy here, which
    /// is equal to the others, has nothing.
    async fn holding(&self, handing: &Handing) -> Result<Reply, IoError> {
        let (migration, _) = self.gives(handing)?;
        let changes = self.lock().changes;
        let mut window: Vec<(u64, Blocks)> = migration.window(self.shared.column.number).collect();
        // Waits for changes that had begun before. Changes that begin from here on are refused.
        let ends = window.iter().flat_map(|(_, blocks)| self.shared.order.under_way(blocks.first, blocks.count));
        self.wait_for(join_all(ends.collect::<Vec<_>>()), DRIVES_WAIT).await?;
        let column = &self.shared.column;
        let mut chunks: Vec<u64> = Vec::new();
        let mut runs: BTreeMap<DriveId, OfDrive<W>> = BTreeMap::new();
        if let Some(held) = self.shared.kept.parts_held(self, &window).await? {
            chunks = held;
            window.clear();
        }
        for (chunk, blocks) in window {
            match self.equal_copy_here(blocks)? {
                None => chunks.push(chunk),
                Some(drive) => {
                    let places = column.cut(blocks.first, blocks.count).map(|(first, count)| {
                        let place = column.place(first);
                        (chunk, place..place + count)
                    });
                    runs.entry(drive.id()).or_insert_with(|| (drive, Vec::new())).1.extend(places);
                }
            }
        }
        for (drive, runs) in runs.into_values() {
            let places: Vec<Range<u64>> = runs.iter().map(|(_, places)| places.clone()).collect();
            let hold = drive.hold_anything(column.map, &places);
            let (holding, empty): (Vec<_>, Vec<_>) = runs.into_iter().zip(hold).partition(|(_, holds)| *holds);
            chunks.extend(holding.into_iter().map(|((chunk, _), _)| chunk));
            let empty: Vec<(u64, Range<u64>)> = empty.into_iter().map(|(run, _)| run).collect();
            chunks.extend(self.held_elsewhere(drive.id(), empty).await?);
        }
        if self.lock().changes != changes {
            return Err(IoError::NotNow);
        }
        self.gives(handing)?;
        chunks.sort_unstable();
        chunks.dedup();
        Ok(Answer::Volume(VolumeAnswer::Holding { chunks }).into())
    }

    /// The chunks of these runs of places of which another copy that is here has anything. That copy shows the same,
    /// but its data may be in a line of its own, or be zeros.
    async fn held_elsewhere(&self, but: DriveId, mut runs: Vec<(u64, Range<u64>)>) -> Result<Vec<u64>, IoError> {
        runs.sort_unstable_by_key(|(_, places)| places.start);
        let others: Vec<Holder<W>> = self.lock().members.here().filter(|other| other.id() != but).cloned().collect();
        let asked = join_all(others.iter().map(|other| self.held_at(other, &runs))).await;
        Ok(asked.into_iter().collect::<Result<Vec<_>, IoError>>()?.concat())
    }

    /// The same of one copy, for runs in ascending order.
    async fn held_at(&self, holder: &Holder<W>, runs: &[(u64, Range<u64>)]) -> Result<Vec<u64>, IoError> {
        let (mut chunks, mut left) = (Vec::new(), vec![runs]);
        while let Some(some) = left.pop() {
            let [(_, from), .., (_, to)] = some else {
                let [(chunk, places)] = some else { continue };
                if !self.is_empty_at(holder, places.clone()).await? {
                    chunks.push(*chunk);
                }
                continue;
            };
            let span = from.start..to.end;
            if span.end - span.start > SPAN || !self.is_empty_at(holder, span).await? {
                left.extend(<[_; 2]>::from(some.split_at(some.len() / 2)));
            }
        }
        Ok(chunks)
    }

    async fn is_empty_at(&self, holder: &Holder<W>, places: Range<u64>) -> Result<bool, IoError> {
        let found = holder.epochs_of(self.shared.column.map, places.start, places.end - places.start).await;
        match found {
            Ok(epochs) => Ok(epochs.is_empty()),
            Err(error) => Err(self.gone(holder, error).await),
        }
    }

    /// A drive of this server whose copy of these blocks is equal to all others; `None` if there's none.
    fn equal_copy_here(&self, blocks: Blocks) -> Result<Option<Drive<W>>, IoError> {
        if !self.is_settled(blocks)? {
            return Ok(None);
        }
        let state = self.lock();
        let mut regions = self.shared.column.regions(blocks.first, blocks.count);
        let is_clean = |at: usize, region| match state.members.clean(region) {
            RegionState::Clean(clean) => clean.contains(&at),
            RegionState::Waiting | RegionState::Lost | RegionState::GivenUp => false,
        };
        let here =
            state.members.list.iter().enumerate().filter_map(|(at, member)| Some((at, member.drive()?.local()?)));
        let regions: Vec<u64> = regions.by_ref().collect();
        let mut clean = here.filter(|(at, _)| regions.iter().all(|&region| is_clean(*at, region)));
        Ok(clean.next().map(|(_, drive)| drive.clone()))
    }

    async fn hand_over(&self, handing: &Handing) -> Result<Reply, IoError> {
        self.gives(handing)?;
        self.shared.kept.gather(self, handing.blocks).await?;
        let turn = self.turn_soon(handing.blocks).await?;
        let (_, epochs) = self.gives(handing)?;
        let newest = epochs.newest_line();
        let _turn = self.settled_for(turn, &Asker::present(), (Reader::Copies(&newest), handing.blocks)).await?;
        let (migration, epochs) = self.gives(handing)?;
        let (count, mut handed) =
            self.all_of(handing.blocks, (&migration.handed(&epochs), &epochs), HeldBy::AllCopies).await?;
        let held = Blocks::new(handing.blocks.first, count);
        let left = self.left_of(held, (&migration, &epochs)).await?;
        if self.is_any_away() {
            self.leave_out_bare_zeros(&mut handed, count, &epochs).await?;
        }
        self.gives(handing)?;
        let Handed { mut lines, requests, blocks: data, .. } = handed;
        // What only some copies have of a line makes no visible difference. But it has to be released, or it would be
        // handed over later.
        let is_named = |lines: &[HandedLine], newest| lines.iter().any(|line| line.newest == newest);
        for newest in left.iter().map(|line| line.newest()) {
            if !is_named(&lines, newest) {
                lines.push(HandedLine { newest, held: Vec::new(), hidden: Vec::new(), damaged: Vec::new() });
            }
        }
        let answer = VolumeAnswer::HandedOver { count: count as u32, lines, requests };
        let data = data.into_iter().collect();
        Ok(Reply { payload: Payload::seal(0, data), ..Answer::Volume(answer).into() })
    }

    async fn release(&self, handing: &Handing, asker: Asker) -> Result<(), IoError> {
        self.gives(handing)?;
        let blocks = handing.blocks;
        self.shared.kept.gather(self, blocks).await?;
        let turn = self.turn_soon(blocks).await?;
        let (_, epochs) = self.gives(handing)?;
        // Members that haven't been heard yet may have something to be released.
        let newest = epochs.newest_line();
        let mut turn = self.settled_for(turn, &asker, (Reader::Copies(&newest), blocks)).await?;
        let (migration, epochs) = self.gives(handing)?;
        let mut begun = false; // once one line is gone, copies may show other data until the last line is
        for line in self.left_of(blocks, (&migration, &epochs)).await? {
            let mut writing = Writing::line(epochs.clone(), line);
            loop {
                // Absent copies miss this like any other change.
                match self.shared.kept.uncover(self, &turn, blocks, &mut writing).await {
                    Ok(Written::Done) => {
                        begun = true;
                        break;
                    }
                    Ok(Written::Waits { change, begun: now }) => {
                        begun |= now;
                        if !begun {
                            return Err(IoError::NotNow);
                        }
                        turn = self.wait_for_copies(turn, &asker, change, true, blocks).await?;
                    }
                    Err(error) => {
                        if begun {
                            self.differ(blocks);
                        }
                        return Err(error);
                    }
                }
            }
        }
        match migration.others_stay() {
            true => Ok(()), // the requests may be of other volumes
            false => self.forget_requests((turn, blocks), &asker, &epochs).await,
        }
    }

    /// Forgets the requests of released blocks: the target has noted them.
    async fn forget_requests(
        &self,
        (turn, blocks): (Turn, Blocks),
        asker: &Asker,
        epochs: &Arc<Epochs>,
    ) -> Result<(), IoError> {
        let line = epochs.newest_line();
        let here: Vec<Holder<W>> = self.lock().members.here().cloned().collect();
        let mut has_any = false;
        for holder in here {
            has_any |= !self.requests_of(&holder, blocks, &line).await?.is_empty();
        }
        if !has_any {
            return Ok(());
        }
        let mut writing = Writing::line(epochs.clone(), &line);
        let forget = async |turn: &Turn| self.shared.kept.note(self, turn, (blocks, &[]), &mut writing).await;
        self.on_all_copies((turn, blocks), asker, forget).await.map(drop)
    }

    /// The lines to be released of which any copy may have something of these blocks, older lines first.
    async fn left_of<'a>(
        &self,
        blocks: Blocks,
        (migration, epochs): (&MapMigration, &'a Epochs),
    ) -> Result<Vec<&'a Lineage>, IoError> {
        let (is_one_away, changes) = {
            let state = self.lock();
            let is_away = |member: &Member<W>| member.drive().is_none() && !member.joins();
            let may_return = |member: &&Member<W>| !matches!(member.presence, Presence::Failed);
            (state.members.list.iter().filter(may_return).any(is_away), state.changes)
        };
        let found = self.epochs_anywhere(blocks).await?;
        if self.lock().changes != changes || !self.is_settled(blocks)? {
            return Err(IoError::NotNow);
        }
        let released = migration.released(epochs);
        // Where nothing is here, no absent copy is made to miss anything: a thin volume has too many such blocks.
        let is_away_there = is_one_away && !found.is_empty();
        let may_be_there = |line: &&Lineage| is_away_there || found.iter().any(|&epoch| line.owns(epoch));
        let lines = epochs.history.lines().iter().filter(|line| released.contains(&line.newest()));
        Ok(lines.filter(may_be_there).collect())
    }

    /// Whether some copy isn't here, or is behind.
    fn is_any_away(&self) -> bool {
        self.lock().members.list.iter().any(|member| member.drive().is_none() || !member.missed.is_empty())
    }

    /// The epochs of which any copy here has something of these blocks.
    async fn epochs_anywhere(&self, blocks: Blocks) -> Result<BTreeSet<u32>, IoError> {
        let here: Vec<Holder<W>> = self.lock().members.here().cloned().collect();
        let mut found = BTreeSet::new();
        for holder in here {
            found.extend(self.epochs_of(&holder, blocks).await?);
        }
        Ok(found)
    }
}
