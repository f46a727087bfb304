//! Writing to all copies.

use crate::column::epochs::Writing;
use crate::column::members::join::NO_ROOM;
use crate::column::members::{Member, Presence, RegionState};
use crate::column::read::lost;
use crate::column::redundancy::{Data, Written};
use crate::column::{Blocks, Group, State};
use crate::holder::{Holder, Reserved};
use crate::map::Among;
use futures_channel::oneshot;
use futures_util::future::join_all;
use smallvec::{SmallVec, smallvec};
use std::sync::Arc;
use tepal_drive::world::World;
use tepal_drive::{Change, DriveError, Loss, Mark, MarkKind, Refused, Write};
use tepal_model::layout::Durability;
use tepal_model::{DriveId, IoError, Lineage, Origin, Taking};

/// How often a write looks for space that full drives are giving back: a few times for each copy.
const MOST_ATTEMPTS: usize = 16;

/// One copy, and the marks that must be there along with the data.
pub(in crate::protocol) struct Target<W: World> {
    pub at: usize,
    pub fragment: usize,
    pub drive: Holder<W>,
    pub marks: Vec<Change>,
    /// The stale marks among them: the region and the member.
    stale: SmallVec<[(u64, usize); 1]>,
}

type Targets<W> = SmallVec<[Target<W>; 2]>;

#[expect(
    clippy::large_enum_variant,
    reason = "each write makes one, and takes it apart at once: a box would be one allocation more"
)]
enum Plan<W: World> {
    Go {
        /// The members that are here and take the change.
        targets: Targets<W>,
        /// Members that only have to be told what absent members miss.
        told: Targets<W>,
        /// The number of changes at this moment.
        changes: u64,
        /// The lineage that the write sees.
        lineage: Lineage,
    },
    Wait(oneshot::Receiver<()>),
    /// A complete copy isn't here: first it has to be agreed that the copy is passed over.
    PassOver,
    Refuse(IoError),
}

/// Why a change isn't on all copies.
pub(in crate::protocol) enum NotOnAll {
    /// A copy has no room for the change, and no copy has it.
    Space,
    /// A copy has no room for the change, and others may have it.
    SpaceOnSome,
    /// These drives left.
    Lost(Vec<(DriveId, Arc<Loss>)>),
}

impl<W: World> Group<W> {
    /// Writes whole blocks to every copy.
    pub(in crate::protocol) async fn write_copies(
        &self,
        data: &Data,
        fua: bool,
        writing: &mut Writing,
    ) -> Result<Written, IoError> {
        let write =
            async |targets: &[Target<W>], lineage: &Lineage| self.write_targets(targets, data, fua, lineage).await;
        self.until_keepers_took(data.blocks(), writing, write).await
    }

    /// As [`Group::until_all_took`], by the members that keep whole copies of the blocks. Where those change from region to
    /// region, the blocks are of one region.
    pub(in crate::protocol) async fn until_keepers_took(
        &self,
        blocks: Blocks,
        writing: &mut Writing,
        change: impl AsyncFn(&[Target<W>], &Lineage) -> Result<(), NotOnAll>,
    ) -> Result<Written, IoError> {
        let column = &self.shared.column;
        self.until_all_took((blocks, column.keepers(column.region_of(blocks.first))), writing, change).await
    }

    /// Changes blocks until one pass reaches every one of these members that is here. Doing a change again that a member
    /// already has changes nothing. The caller has the blocks' turn.
    pub(in crate::protocol) async fn until_all_took(
        &self,
        (blocks, among): (Blocks, Among),
        writing: &mut Writing,
        change: impl AsyncFn(&[Target<W>], &Lineage) -> Result<(), NotOnAll>,
    ) -> Result<Written, IoError> {
        if self.is_mirrored() {
            self.lock().begin_busy(&self.shared.column, blocks);
        }
        let outcome = self.change_members((blocks, among), writing, change).await;
        if self.is_mirrored() {
            self.lock().end_busy(&self.shared.column, blocks);
            self.start_settling();
        }
        outcome
    }

    async fn change_members(
        &self,
        (blocks, among): (Blocks, Among),
        writing: &mut Writing,
        change: impl AsyncFn(&[Target<W>], &Lineage) -> Result<(), NotOnAll>,
    ) -> Result<Written, IoError> {
        let mut begun = false;
        loop {
            let (targets, told, changes, lineage) = match self.plan_write((blocks, among), writing) {
                Plan::Go { targets, told, changes, lineage } => (targets, told, changes, lineage),
                Plan::PassOver => {
                    Box::pin(self.pass_over_absent()).await;
                    continue;
                }
                Plan::Refuse(error) => return Err(self.refused(blocks, begun, error)),
                Plan::Wait(change) => return Ok(Written::Waits { change, begun }),
            };
            let outcome = match self.tell(&told).await {
                Ok(()) => change(&targets, &lineage).await,
                lost => lost,
            };
            match outcome {
                Ok(()) if self.took((&targets, &told), blocks, changes) => return Ok(Written::Done),
                Ok(()) => {}
                Err(NotOnAll::Space) => return Err(self.refused(blocks, begun, IoError::OutOfSpace)),
                Err(NotOnAll::SpaceOnSome) => return Err(self.refused(blocks, true, IoError::OutOfSpace)),
                Err(NotOnAll::Lost(drives)) => Box::pin(self.lose(drives)).await,
            }
            begun = true;
        }
    }

    /// The drives that take the blocks, and the epoch, as decided at one moment. The marks that are missing are named.
    fn plan_write(&self, (blocks, among): (Blocks, Among), writing: &mut Writing) -> Plan<W> {
        let mut state = self.lock();
        if let Err(error) = writing.is_served(&state) {
            return Plan::Refuse(error);
        }
        let column = &self.shared.column;
        for region in column.regions(blocks.first, blocks.count) {
            if let Some(refusal) = self.check_copies(&mut state, region) {
                return refusal;
            }
        }
        let lineage = match self.seen_by_in(&state, writing) {
            Ok(Some(lineage)) => lineage,
            Ok(None) => return Plan::Wait(self.in_a_moment()),
            Err(error) => return Plan::Refuse(error),
        };
        if state.members.absent().next().is_some() {
            if !state.members.may_go_on() {
                return Plan::Wait(Group::next_change(&mut state));
            }
            return Plan::PassOver;
        }
        let is_absent =
            |member: &Member<W>| member.drive().is_none() && !member.joins() && among.contains(member.fragment);
        let absent: SmallVec<[usize; 4]> =
            (0..self.shared.copies).filter(|&at| is_absent(&state.members.list[at])).collect();
        for &at in &absent {
            // From now on nobody reads these regions on the absent drives, whenever they return.
            column.regions(blocks.first, blocks.count).for_each(|region| state.members.list[at].missed.begin(region));
        }
        let (mut targets, mut told) = (Targets::new(), Targets::new());
        for (at, member) in state.members.list.iter().enumerate() {
            let Some(drive) = member.drive() else { continue };
            let takes = among.contains(member.fragment);
            if !takes && absent.is_empty() {
                continue;
            }
            let mut target = Target {
                at,
                fragment: member.fragment,
                drive: drive.clone(),
                marks: Vec::new(),
                stale: SmallVec::new(),
            };
            if self.is_mirrored() {
                let regions = column.regions(blocks.first, blocks.count);
                regions.for_each(|region| self.mark(&state, &mut target, (region, takes), &absent));
            }
            match takes {
                true => targets.push(target),
                false if target.marks.is_empty() => {}
                false => told.push(target),
            }
        }
        Plan::Go { targets, told, changes: state.changes, lineage }
    }

    /// Adds the marks that this drive's log doesn't have yet: the busy mark of a region that the drive changes, and a stale mark for
    /// each absent member. All drives that are here are told what an absent member misses: then each of them knows all of that.
    fn mark(&self, state: &State<W>, target: &mut Target<W>, (region, takes): (u64, bool), absent: &[usize]) {
        let mark = |kind| Change::Marked(Mark { map: self.shared.column.map, region, kind });
        if takes && state.busy.get(&region).is_none_or(|busy| !busy.marked.contains(&target.at)) {
            target.marks.push(mark(MarkKind::Busy));
        }
        for &gone in absent.iter().filter(|&&gone| !state.members.list[gone].missed.is_said(region, target.at)) {
            target.marks.push(mark(MarkKind::Stale(state.members.list[gone].id)));
            target.stale.push((region, gone));
        }
    }

    /// Has members that don't take a change told what absent members miss.
    async fn tell(&self, told: &[Target<W>]) -> Result<(), NotOnAll> {
        if told.is_empty() {
            return Ok(());
        }
        self.all_took(told, join_all(told.iter().map(Target::bring_marks)).await)
    }

    /// `None` if the copies of this region can be written now.
    fn check_copies(&self, state: &mut State<W>, region: u64) -> Option<Plan<W>> {
        let leaving = state.members.list.iter().any(|m| matches!(m.presence, Presence::Leaving | Presence::Unheard));
        let enough = match state.members.clean(region) {
            RegionState::Clean(copies) => state.members.sure(&copies) >= self.shared.min_copies,
            RegionState::Waiting | RegionState::GivenUp => false,
            RegionState::Lost => {
                let (first, count) = self.shared.column.blocks_of(region);
                return Some(Plan::Refuse(lost(Blocks::new(first, count))));
            }
        };
        (leaving || !enough).then(|| Plan::Wait(Group::next_change(state)))
    }

    async fn write_targets(
        &self,
        targets: &[Target<W>],
        data: &Data,
        fua: bool,
        lineage: &Lineage,
    ) -> Result<(), NotOnAll> {
        let durable = self.shared.durability == Durability::Strict || fua;
        let write = |target: &Target<W>| Write {
            map: self.shared.column.map,
            first: self.shared.column.place(data.first),
            data: data.data.clone(),
            crcs: data.crcs.as_slice().into(),
            marks: target.marks.clone(),
            durable: durable || !target.stale.is_empty(),
            repair: data.is_kept,
            taking: taking_of(data.origin),
            lineage,
        };
        self.write_each(targets, write).await
    }

    /// Writes to all of these drives, or to none if one that is this server's has no room.
    pub(in crate::protocol) async fn write_each<'a>(
        &self,
        targets: &[Target<W>],
        write: impl Fn(&Target<W>) -> Write<'a>,
    ) -> Result<(), NotOnAll> {
        let writes: SmallVec<[Write<'_>; 2]> = targets.iter().map(write).collect();
        let mut prepared = prepare(targets, &writes);
        for _ in 0..MOST_ATTEMPTS {
            let Err(Refusal { at, refused: Refused::FullUntilFlush }) = prepared else { break };
            Box::pin(targets[at].drive.give_back())
                .await
                .map_err(|loss| NotOnAll::Lost(vec![(targets[at].drive.id(), loss)]))?;
            prepared = prepare(targets, &writes);
        }
        let prepared = prepared.map_err(|Refusal { at, refused }| match refused {
            Refused::Full | Refused::FullUntilFlush if self.give_up_if_it_joins(&targets[at]) => {
                NotOnAll::Lost(Vec::new())
            }
            Refused::Full | Refused::FullUntilFlush => NotOnAll::Space,
            Refused::Lost(loss) => NotOnAll::Lost(vec![(targets[at].drive.id(), loss)]),
        })?;
        let commits = targets.iter().zip(prepared).zip(writes);
        let mut commits = commits.map(|((target, prepared), write)| target.drive.commit(prepared, write));
        // A single copy, as in a stripe, needs no joining.
        let outcomes: SmallVec<[_; 2]> = match commits.next() {
            Some(only) if targets.len() == 1 => smallvec![only.await],
            first => join_all(first.into_iter().chain(commits)).await.into(),
        };
        // A drive of this server has found its space before anything was written. Another server's drive may have none
        // now.
        self.all_took(targets, outcomes)
    }

    /// The outcome of a change on every copy.
    pub(in crate::protocol) fn all_took(
        &self,
        targets: &[Target<W>],
        outcomes: impl IntoIterator<Item = Result<(), DriveError>>,
    ) -> Result<(), NotOnAll> {
        let (mut lost, mut is_full) = (Vec::new(), false);
        for (target, outcome) in targets.iter().zip(outcomes) {
            match outcome {
                Ok(()) => {}
                Err(DriveError::Lost(loss)) => lost.push((target.drive.id(), loss)),
                Err(DriveError::OutOfSpace) => is_full |= !self.give_up_if_it_joins(target),
                Err(error @ DriveError::Damaged { .. }) => unreachable!("a change reads nothing: {error}"),
            }
        }
        match (lost.is_empty(), is_full) {
            (true, false) => Ok(()),
            (true, true) => Err(NotOnAll::SpaceOnSome),
            (false, _) => Err(NotOnAll::Lost(lost)),
        }
    }

    /// For a drive without room: a joining drive is given up, and the change goes on without it. Returns whether the
    /// drive was given up.
    pub(in crate::protocol) fn give_up_if_it_joins(&self, target: &Target<W>) -> bool {
        let joins = self.lock().members.list[target.at].joins();
        if joins {
            self.give_up_joining(target.at, NO_ROOM);
        }
        joins
    }

    /// Refuses a change. A change that has begun may be on some copies and not on others.
    fn refused(&self, blocks: Blocks, begun: bool, error: IoError) -> IoError {
        if begun {
            self.differ(blocks);
        }
        error
    }

    /// All targets have the write: whether that can be relied on. A drive that has left since the plan may have lost
    /// the write again, and be back without it. The marks are committed: later writes need not bring them again.
    fn took(&self, (targets, told): (&[Target<W>], &[Target<W>]), blocks: Blocks, changes: u64) -> bool {
        let mut state = self.lock();
        if state.changes != changes {
            return false;
        }
        for target in told.iter().chain(targets) {
            for &(region, stale) in &target.stale {
                state.members.list[stale].missed.said(region, target.at);
            }
        }
        for target in targets.iter().filter(|target| !target.marks.is_empty()) {
            for region in self.shared.column.regions(blocks.first, blocks.count) {
                if let Some(busy) = state.busy.get_mut(&region) {
                    busy.marked.insert(target.at);
                }
            }
        }
        true
    }
}

pub(in crate::protocol) fn taking_of(origin: Option<Origin>) -> Taking {
    origin.map_or(Taking::Nothing, Taking::Request)
}

/// Finds space on all drives, or on none: a full drive must not make the copies differ.
fn prepare<W: World>(targets: &[Target<W>], writes: &[Write<'_>]) -> Result<SmallVec<[Reserved; 2]>, Refusal> {
    let mut prepared: SmallVec<[Reserved; 2]> = SmallVec::with_capacity(targets.len());
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
