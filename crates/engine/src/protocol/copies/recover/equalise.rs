//! Making copies of a region equal, after a crash or an absence.

use super::copy::{Copy, Saying, ZEROS, taken_by_both};
use crate::column::background::{Stuck, failed};
use crate::column::members::RegionState;
use crate::column::read::{Failed, damaged, lost};
use crate::column::redundancy::Why;
use crate::column::{Blocks, Group};
use futures_util::future::join_all;
use std::collections::BTreeSet;
use std::ops::Range;
use tepal_codec::checksum::block_crcs;
use tepal_drive::world::{Gather, World};
use tepal_drive::{DriveError, Write};
use tepal_model::buffer::join;
use tepal_model::{BLOCK, Buffer, Epoch, IoError, MapId, Taking};

/// The blocks in one step. A region is compared and copied in steps, some at a time.
const STEP: u64 = 16;
const STEPS_AT_ONCE: usize = 16;

/// Some blocks of two copies, of which the target becomes like the source.
pub(super) struct Step<'a, W: World> {
    /// The first block.
    pub first: u64,
    pub source: &'a Copy<W>,
    pub target: &'a Copy<W>,
    saying: Saying<'a>,
    pub why: Why,
    /// For each block, whether the source shows something in an older line that this line sees.
    hides: &'a [bool],
}

/// Decisions while some blocks are made equal. Each is made once: otherwise the blocks might never be equal.
#[derive(Default)]
pub(super) struct Decided {
    /// Blocks of which the copy that was to decide couldn't be read: it may not be readable afterwards either.
    unreadable: BTreeSet<usize>,
    /// Blocks that a copy had no room for, and so decided itself, each with its epoch.
    pub no_room: BTreeSet<(Epoch, usize)>,
}

enum Plan<W: World> {
    Go {
        source: Copy<W>,
        targets: Vec<Copy<W>>,
    },
    /// There's no other clean copy.
    Nothing,
}

impl<W: World> Group<W> {
    /// Makes a region's copies equal: some steps at a time, and each to its end.
    pub(in crate::protocol) async fn equalise_region(&self, region: u64, why: Why) -> Result<(), Stuck> {
        let (first, count) = self.shared.column.blocks_of(region);
        let steps: Vec<u64> = (first..first + count).step_by(STEP as usize).collect();
        for some in steps.chunks(STEPS_AT_ONCE) {
            let outcomes = join_all(some.iter().map(|&first| self.equalise(Blocks { first, count: STEP }, why))).await;
            outcomes.into_iter().collect::<Result<(), Stuck>>()?;
        }
        Ok(())
    }

    /// Makes copies of some blocks of a region equal to the first clean one: the copy on one drive, or all that are
    /// here. Doesn't wait for drives, as it has the blocks' turn.
    async fn equalise(&self, blocks: Blocks, why: Why) -> Result<(), Stuck> {
        let _turn = self.shared.order.line_up_repair(blocks.first, blocks.count).turn().await;
        let mut decided = Decided::default();
        loop {
            let (source, targets) = match self.plan_equalise(blocks, why)? {
                Plan::Go { source, targets } => (source, targets),
                Plan::Nothing => return Ok(()),
            };
            match self.copy_all_lines(blocks, &source, &targets, why, &mut decided).await {
                Ok(()) => return Ok(()),
                Err(Failed::Lost(id, loss)) => {
                    drop((source, targets));
                    self.lose(vec![(id, loss)]).await;
                }
                Err(Failed::Away) => {} // drives have left since the plan, or another copy has decided
                Err(Failed::Io(error)) => return Err(Stuck::Failed(error)),
            }
        }
    }

    fn plan_equalise(&self, blocks: Blocks, why: Why) -> Result<Plan<W>, Stuck> {
        let only = match why {
            Why::Missed(at) => Some(at),
            Why::Unresolved | Why::Doubted => None,
        };
        let mut state = self.lock();
        state.serves().map_err(Stuck::Failed)?;
        let clean = match state.members.clean_copies(&self.shared.column, self.shared.column.region_of(blocks.first)) {
            RegionState::Clean(clean) => clean,
            RegionState::Waiting | RegionState::GivenUp => return Err(Stuck::Waits(Group::next_change(&mut state))),
            RegionState::Lost => return Err(Stuck::Failed(lost(blocks))),
        };
        let copy = |at: usize| Some((at, self.copy(&state, at, blocks.first)?));
        let mut sources = clean.iter().filter_map(|&at| copy(at)).filter(|(at, _)| Some(*at) != only);
        let Some((source_at, source)) = sources.next() else { return Ok(Plan::Nothing) };
        let wanted = |at: usize| only.map_or(at != source_at, |only| at == only);
        // A joining drive is brought up to date in this region later.
        let region = self.shared.column.region_of(blocks.first);
        let comes_later = |at: usize| {
            let member = &state.members.list[at];
            member.joins() && Some(at) != only && member.missed.contains(region)
        };
        let keepers = self.shared.column.keepers(region);
        let keeps = |at: &usize| keepers.contains(state.members.list[*at].fragment);
        let every = (0..self.shared.copies).filter(keeps).filter(|&at| !comes_later(at)).filter_map(copy);
        let targets = every.filter(|(at, _)| wanted(*at)).map(|(_, copy)| copy).collect();
        Ok(Plan::Go { source, targets })
    }

    async fn copy_all_lines(
        &self,
        blocks: Blocks,
        source: &Copy<W>,
        targets: &[Copy<W>],
        why: Why,
        decided: &mut Decided,
    ) -> Result<(), Failed> {
        let lines = self.lines(blocks.count, std::iter::once(source).chain(targets)).await?;
        let map = self.shared.column.map;
        // For each target: whether it has taken other requests, and which blocks no copy can read.
        let mut ends: Vec<(bool, BTreeSet<u64>)> = vec![(false, BTreeSet::new()); targets.len()];
        // For each line, the blocks of which the source shows anything.
        let mut shown: Vec<(Epoch, Vec<bool>)> = Vec::new();
        // Where ranges have gone, they may come again.
        let are_left = {
            let state = self.lock();
            state.migration.is_some() || state.own.is_some()
        };
        for (nth, line) in lines.iter().enumerate() {
            let source = source.on(line);
            let (wanted, taken) = source.content(map, blocks.count).await?;
            let older = || shown.iter().filter(|(newest, _)| line.seen.sees(*newest)).map(|(_, shown)| shown);
            let hides: Vec<bool> = (0..wanted.len()).map(|nth| older().any(|shown| shown[nth])).collect();
            for (target, (differs, unread)) in targets.iter().zip(&mut ends) {
                let target = target.on(line);
                let (found, had) = target.content(map, blocks.count).await?;
                if nth == 0 {
                    *differs = had != taken;
                    // If this stops halfway, and the target decides then, the target must call no request taken that it
                    // hasn't taken.
                    if *differs && lines.len() > 1 && !why.compares_data() {
                        target.adopt(map, 0..blocks.count, &taken_by_both(&had, &taken)).await?;
                    }
                }
                let saying = if lines.len() == 1 { Saying::Those(&taken) } else { Saying::Nothing };
                let step = Step { first: blocks.first, source: &source, target: &target, saying, why, hides: &hides };
                unread.extend(self.copy_differences(&step, &wanted, &found, decided).await?);
                if are_left {
                    self.uncover_what_left(&source, &target, blocks.count, unread).await?;
                }
                // Blocks that were copied have their requests by now, if there's no other line. Blocks of the same
                // content may not.
                if *differs && nth + 1 == lines.len() {
                    target.adopt_all_but(map, unread, blocks.count, &taken).await?;
                }
            }
            shown.push((line.seen.newest(), wanted.iter().map(Option::is_some).collect()));
        }
        Ok(())
    }

    /// Copies the blocks that differ. Returns the blocks that no copy can read.
    async fn copy_differences(
        &self,
        step: &Step<'_, W>,
        wanted: &[Option<u32>],
        found: &[Option<u32>],
        decided: &mut Decided,
    ) -> Result<Vec<u64>, Failed> {
        let blocks = wanted.iter().zip(found).zip(step.hides);
        let mut differs: Vec<bool> = blocks.map(|((wanted, found), hides)| differ(*wanted, *found, *hides)).collect();
        if step.why.compares_data() {
            self.compare_data(step.source, step.target, wanted, &mut differs).await?;
        }
        let mut unread: Vec<u64> = Vec::new();
        let mut at = 0;
        while at < wanted.len() {
            if !differs[at] {
                at += 1;
                continue;
            }
            let hole = wanted[at].is_none();
            let alike = |nth: &usize| differs[*nth] && wanted[*nth].is_none() == hole;
            let end = (at..wanted.len()).take_while(alike).last().unwrap_or(at) + 1;
            unread.extend(self.copy_what_can_be_read(step, at..end, hole, decided).await?);
            at = end;
        }
        Ok(unread)
    }

    /// Copies a run. If a part of it can't be read, each block is copied by itself. Returns the blocks that no copy can
    /// read, or that are left for later.
    async fn copy_what_can_be_read(
        &self,
        step: &Step<'_, W>,
        run: Range<usize>,
        hole: bool,
        decided: &mut Decided,
    ) -> Result<Vec<u64>, Failed> {
        // So a write that was given up for want of room takes no room on other drives.
        if step.why == Why::Unresolved
            && !step.target.line.epochs.is_first()
            && self.shows_older(step.source, run.clone()).await?
        {
            self.uncover(step.target, run, step.saying).await?;
            return Ok(Vec::new());
        }
        let copy = |run| self.copy_run(step.source, step.target, run, hole, step.saying);
        match copy(run.clone()).await {
            Err(Failed::Io(IoError::OutOfSpace)) => return self.do_without_room(step, run, decided).await,
            Err(Failed::Io(IoError::Damaged { .. })) => {}
            outcome => return outcome.map(|()| Vec::new()),
        }
        let mut unread = Vec::new();
        for one in run {
            match copy(one..one + 1).await {
                Err(Failed::Io(IoError::OutOfSpace)) => {
                    unread.extend(self.do_without_room(step, one..one + 1, decided).await?);
                    continue;
                }
                Err(Failed::Io(IoError::Damaged { .. })) => {}
                outcome => {
                    outcome?;
                    continue;
                }
            }
            if decided.unreadable.insert(one) && self.decide_by_another(step.source, step.first, one).await? {
                return Err(Failed::Away); // the source has other data now
            }
            match step.why {
                Why::Missed(_) => return Err(damaged(step.first + one as u64)),
                Why::Unresolved | Why::Doubted => unread.push(one as u64),
            }
        }
        Ok(unread)
    }

    /// Makes some blocks of a copy show older lines.
    pub(super) async fn uncover(&self, copy: &Copy<W>, run: Range<usize>, saying: Saying<'_>) -> Result<(), Failed> {
        self.check_line(copy)?;
        let taking = copy.taking(saying, run.start as u64..run.end as u64);
        let blocks = (self.shared.column.map, copy.place + run.start as u64, run.len() as u64);
        let uncovered = copy.drive.uncover(blocks, taking, &copy.line.seen).await;
        uncovered.map_err(|error| failed(&copy.drive, error))?;
        // An uncovering that was under way for long may have met layers that were joined meanwhile: the blocks are
        // compared anew.
        self.check_line(copy)
    }

    /// While a volume goes to another map, blocks that are gone from a line must not be handed over again. Only blocks
    /// that both copies show alike are uncovered, so that the noted requests stay true: all but blocks that couldn't be
    /// read.
    async fn uncover_what_left(
        &self,
        source: &Copy<W>,
        target: &Copy<W>,
        count: u64,
        unread: &BTreeSet<u64>,
    ) -> Result<(), Failed> {
        if self.shows_older(target, 0..count as usize).await? {
            return Ok(());
        }
        let map = self.shared.column.map;
        let (own, wanted) = (target.has_itself(map, count).await?, source.has_itself(map, count).await?);
        for nth in own.difference(&wanted).filter(|nth| !unread.contains(nth)) {
            let one = *nth as usize..*nth as usize + 1;
            // The block may hide older ones.
            if self.shows_older(source, one.clone()).await? {
                self.uncover(target, one, Saying::Nothing).await?;
            }
        }
        Ok(())
    }

    /// Compares the data where the checksums are the same: a block that the drive missed may have the same checksum by
    /// chance.
    async fn compare_data(
        &self,
        source: &Copy<W>,
        target: &Copy<W>,
        wanted: &[Option<u32>],
        differs: &mut [bool],
    ) -> Result<(), Failed> {
        let map = self.shared.column.map;
        let mut at = 0;
        while at < wanted.len() {
            let same = |nth: &usize| !differs[*nth] && wanted[*nth].is_some();
            let count = (at..wanted.len()).take_while(same).count();
            if count > 0 {
                match (source.read(map, at, count).await, target.read(map, at, count).await) {
                    (Ok(wanted), Ok(found)) => {
                        let (wanted, found) = (join(&wanted), join(&found));
                        let blocks = wanted.chunks(BLOCK as usize).zip(found.chunks(BLOCK as usize));
                        blocks.enumerate().for_each(|(nth, (wanted, found))| differs[at + nth] = wanted != found);
                    }
                    _ => {
                        // The target's own damaged blocks are repaired, and reported, when they are read.
                        let own = target.has_itself(map, wanted.len() as u64).await?;
                        for (nth, differs) in differs.iter_mut().enumerate().skip(at).take(count) {
                            *differs = is_otherwise(source, target, map, nth, own.contains(&(nth as u64))).await;
                        }
                    }
                }
            }
            at += count.max(1);
        }
        Ok(())
    }

    /// Copies a run of blocks from one copy to another.
    pub(super) async fn copy_run(
        &self,
        source: &Copy<W>,
        target: &Copy<W>,
        run: Range<usize>,
        hole: bool,
        saying: Saying<'_>,
    ) -> Result<(), Failed> {
        let (map, first, count) = (self.shared.column.map, target.place + run.start as u64, run.len() as u64);
        let taking = target.taking(saying, run.start as u64..run.end as u64);
        let lineage = &target.line.seen;
        let outcome = if hole {
            self.check_line(target)?;
            match target.drive.clear((map, first, count), Vec::new(), taking.clone(), lineage).await {
                Err(DriveError::OutOfSpace) => self.write_zeros(target, (first, count), taking).await,
                outcome => outcome,
            }
        } else {
            let data = match source.read(map, run.start, run.len()).await {
                Ok(data) => join(&data),
                Err(DriveError::Lost(loss)) => return Err(Failed::Lost(source.drive.id(), loss)),
                Err(DriveError::Damaged { .. } | DriveError::OutOfSpace) => {
                    return Err(damaged(self.shared.column.at_place(source.place).1 + run.start as u64));
                }
            };
            let (crcs, marks) = (block_crcs(&data).collect(), Vec::new());
            let data = Gather::from_iter([data]);
            let (durable, repair) = (true, self.may_use_reserve(target));
            self.check_line(target)?;
            target.drive.write(Write { map, first, data, crcs, marks, durable, repair, taking, lineage }).await
        };
        let (bytes, now) = (count * BLOCK, self.shared.world.now());
        let mut state = self.lock();
        state.jobs.copied += bytes;
        state.jobs.copying.add(bytes, now);
        drop(state);
        outcome.map_err(|error| failed(&target.drive, error))
    }

    /// Writes zeros, for which there's room that is kept back for repairs.
    async fn write_zeros(
        &self,
        target: &Copy<W>,
        (first, count): (u64, u64),
        taking: Taking,
    ) -> Result<(), DriveError> {
        let data = Gather::from_iter([Buffer::zeroed((count * BLOCK) as usize).freeze()]);
        let crcs = vec![*ZEROS; count as usize].into();
        let (map, marks, lineage) = (self.shared.column.map, Vec::new(), &target.line.seen);
        let (durable, repair) = (true, self.may_use_reserve(target));
        target.drive.write(Write { map, first, data, crcs, marks, durable, repair, taking, lineage }).await
    }

    /// The room that is kept back for repairs is for the copies that a drive has, not for a joining drive's.
    pub(in crate::protocol) fn may_use_reserve(&self, target: &Copy<W>) -> bool {
        self.shared.placed.joins.is_none_or(|joins| joins.drive != target.drive.id())
    }

    /// Whether all clean copies of these blocks of a region hold the same, by their checksums. Makes the copies equal
    /// if they don't.
    pub(in crate::protocol) async fn compare_copies_of(&self, blocks: Blocks) -> Result<bool, IoError> {
        let before = self.lock().jobs.copied;
        match self.equalise(blocks, Why::Doubted).await {
            Ok(()) => Ok(self.lock().jobs.copied == before),
            Err(Stuck::Waits(_)) => Ok(true), // there's no copy to compare with
            Err(Stuck::Failed(error)) => Err(error),
        }
    }
}

/// Whether a block of one copy differs from another's with the same checksum: its data is different by chance, or it's
/// an older line's block, which is damaged.
async fn is_otherwise<W: World>(source: &Copy<W>, target: &Copy<W>, map: MapId, nth: usize, is_own: bool) -> bool {
    match (source.read(map, nth, 1).await, target.read(map, nth, 1).await) {
        (Ok(wanted), Ok(found)) => join(&wanted) != join(&found),
        (Ok(_), Err(DriveError::Damaged { .. })) => !is_own,
        _ => false, // a lost drive is noticed when it's changed; a block that can't be read can't be copied
    }
}

/// Whether a copy that found the second CRC has to become like a copy that wanted the first. Drives that have to hide
/// many blocks from some readers, and not from others, may have to write zeros: zeros equal nothing where there's
/// something to hide. Where there's nothing to hide, a copy may have no zeros: data that is in a source map was never
/// taken over.
fn differ(wanted: Option<u32>, found: Option<u32>, hides: bool) -> bool {
    let shown = |crc: Option<u32>| crc.filter(|crc| !(hides && *crc == *ZEROS));
    shown(wanted) != shown(found)
}
