//! Making copies equal again: after a crash, after an absence, after rot.

use super::flush::flush_all;
use super::members::{Copies, Member, Presence};
use super::read::{Failed, lost};
use super::{Blocks, Group, State};
use crate::holder::Holder;
use futures_channel::oneshot;
use futures_util::future::join_all;
use std::collections::BTreeSet;
use std::ops::Range;
use tepal_codec::checksum::block_crcs;
use tepal_drive::world::{Gather, World};
use tepal_drive::{Change, DriveError, Mark, MarkKind, Write};
use tepal_model::buffer::join;
use tepal_model::{BLOCK, DriveId, IoError, MapId, Segments, Taken, Taking};

/// Marks that go into a log as one.
const MARKS_AT_ONCE: usize = 1024;

/// A region is compared and copied in steps of so many blocks, so many of them at a time.
const STEP: u64 = 16;
const STEPS_AT_ONCE: usize = 16;

/// One copy of some blocks: the drive and the first block's place there.
struct Copy<W: World> {
    drive: Holder<W>,
    place: u64,
}

/// How copies are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparing {
    /// Of what was under way at a crash, or must be the same by now.
    Checksums,
    /// Of what a drive missed.
    Data,
}

enum Plan<W: World> {
    Go {
        source: Copy<W>,
        targets: Vec<Copy<W>>,
    },
    /// There's no other clean copy.
    Nothing,
}

/// Why copies can't be made equal now.
pub(crate) enum Stuck {
    /// No clean copy is here; one may return.
    Waits(oneshot::Receiver<()>),
    Failed(IoError),
}

impl<W: World> Group<W> {
    /// Settles a region whose copies may differ since a crash: the first clean copy decides. Those on drives that are away
    /// are stale from then on: somebody may read what was decided.
    pub async fn resolve(&self, region: u64) -> Result<(), Stuck> {
        loop {
            let changes = self.lock().changes;
            self.equalise_region(region, None).await?;
            self.mark_absent_stale(region).await;
            let mut state = self.lock();
            if state.removed {
                return Err(Stuck::Failed(IoError::Fenced));
            }
            // A drive that came meanwhile was not compared everywhere.
            if state.changes == changes {
                state.unresolved.remove(&region);
                return Ok(());
            }
        }
    }

    /// Marks an unresolved region, and all others at once, stale for the drives that are away and have no such mark yet.
    async fn mark_absent_stale(&self, region: u64) {
        let mut marking = Vec::new();
        {
            let mut state = self.lock();
            let list = &state.members.list;
            let is_here = |at: &usize| list[*at].drive().is_some();
            let is_away = |at: &usize| matches!(list[*at].presence, Presence::Missing | Presence::Leaving);
            let members = || 0..self.shared.copies;
            let unsaid = |at: &usize| !members().filter(is_here).all(|by| list[*at].missed.is_said(region, by));
            let absent: Vec<usize> = members().filter(|at| is_away(at) && unsaid(at)).collect();
            for at in absent {
                let unresolved = state.unresolved.iter().copied().collect();
                marking.push(self.mark_stale(&mut state, at, unresolved));
            }
        }
        join_all(marking).await;
    }

    /// Has a drive that returned note what it misses, and what others miss. From then on its word is enough.
    pub async fn note(&self, at: usize) -> Result<(), Stuck> {
        if let Some(id) = self.must_give_up(at) {
            // If it's agreed just now that it's up, that counts: it had noted everything.
            if self.engine().is_some_and(|engine| engine.is_settling(id)) {
                return Err(Stuck::Waits(Group::next_change(&mut self.lock())));
            }
            self.note_that_all_is_missed(at).await.map_err(Stuck::Failed)?;
        }
        let mut changes = self.lock().changes;
        // Which member's misses are next, and from which region on.
        let mut next = (0, 0);
        loop {
            let (drive, unsaid, recording) = {
                let mut state = self.lock();
                let drive = state.members.list[at].drive().cloned().filter(|_| state.serves().is_ok());
                let Some(drive) = drive else { return Ok(()) };
                if state.changes != changes {
                    (changes, next) = (state.changes, (0, 0)); // there may be more to say
                }
                let unsaid = self.unsaid(&state, at, next);
                let Some(&(of, last)) = unsaid.last() else {
                    state.members.list[at].noted = true;
                    return Ok(());
                };
                next = (of, last + 1);
                let mark = |&(of, region): &(usize, u64)| self.stale_mark(state.members.list[of].id, region);
                let recording = drive.record(unsaid.iter().map(mark).collect(), true);
                (drive, unsaid, recording)
            };
            if let Err(error) = recording.await {
                return self.give_up(failed(&drive, error)).await.map_err(Stuck::Failed);
            }
            let mut state = self.lock();
            if state.members.list[at].drive().is_none_or(|now| !now.is_same(&drive)) {
                return Ok(());
            }
            unsaid.into_iter().for_each(|(of, region)| state.members.list[of].missed.said(region, at));
        }
    }

    /// The drive that is here, if it must say that it can't know what it has.
    fn must_give_up(&self, at: usize) -> Option<DriveId> {
        let state = self.lock();
        let member = &state.members.list[at];
        (member.drive().is_some() && state.members.must_give_up(member)).then_some(member.id)
    }

    /// Nobody who knew what the drive misses will return: so it says of itself that it can't know, for good.
    async fn note_that_all_is_missed(&self, at: usize) -> Result<(), IoError> {
        let (drive, recording) = {
            let mut state = self.lock();
            state.serves()?;
            let member = &mut state.members.list[at];
            let Some(drive) = member.drive().cloned().filter(|_| !member.missed.is_all() && !member.is_current())
            else {
                return Ok(());
            };
            member.missed.begin_all();
            let mark = self.stale_mark(member.id, self.shared.column.every_region());
            let recording = drive.record(vec![mark], true);
            (drive, recording)
        };
        match recording.await {
            Ok(()) => Ok(()),
            Err(error) => self.give_up(failed(&drive, error)).await,
        }
    }

    /// Some of what members miss and a drive's log doesn't say; from a member's region on.
    fn unsaid(&self, state: &State<W>, at: usize, (from, first): (usize, u64)) -> Vec<(usize, u64)> {
        let members = state.members.list.iter().enumerate().skip(from);
        let unsaid = members.flat_map(|(of, member)| {
            let first = if of == from { first } else { 0 };
            member.missed.unsaid(at, first).map(move |region| (of, region))
        });
        unsaid.take(MARKS_AT_ONCE).collect()
    }

    /// Brings one drive's copy of a region up to date, then takes its stale marks back.
    pub async fn catch_up(&self, at: usize, region: u64) -> Result<(), Stuck> {
        // The drive itself isn't kept meanwhile: if it's pulled, it must be free to be opened again.
        let opening = self.lock().members.list[at].opening;
        self.equalise_region(region, Some(at)).await?;
        // What it has learned from isn't lost with a cache once it's clean.
        let lost = flush_all(self.drives_but(at)).await;
        if !lost.is_empty() {
            self.lose(lost).await;
            return Ok(()); // it's tried again
        }
        let here = |member: &Member<W>| member.drive().filter(|_| member.opening == opening).cloned();
        let (others, mark) = {
            let mut state = self.lock();
            state.serves().map_err(Stuck::Failed)?;
            let member = &state.members.list[at];
            if here(member).is_none() {
                return Ok(()); // it left meanwhile, and may miss more now
            }
            let mark = Mark { map: self.shared.column.map, region, kind: MarkKind::Stale(member.id) };
            (self.take_back(&mut state, at, mark), mark)
        };
        // The word of others first, and for good: who leaves with it, and missed this, would say so when nobody else has the data.
        if let Some(failed) = others.await {
            return self.give_up(failed).await.map_err(Stuck::Failed); // it's tried again
        }
        let own = {
            let state = self.lock();
            state.serves().map_err(Stuck::Failed)?;
            let member = &state.members.list[at];
            let Some(drive) = here(member) else { return Ok(()) };
            let said = member.missed.is_said(region, at).then_some(drive);
            said.map(|drive| (drive.clone(), drive.record(vec![Change::Unmarked(mark)], true)))
        };
        // Then its own, before it counts as clean: alone it would be believed.
        if let Some((drive, unmarking)) = own
            && let Err(error) = unmarking.await
        {
            return self.give_up(failed(&drive, error)).await.map_err(Stuck::Failed);
        }
        let mut unmarked = Vec::new();
        {
            let mut state = self.lock();
            if state.removed || here(&state.members.list[at]).is_none() {
                return Ok(());
            }
            let witnesses = state.members.list[at].missed.end(region).into_iter().flatten();
            for witness in witnesses.filter(|&witness| witness != at) {
                if let Some(witness) = state.members.list[witness].drive() {
                    unmarked.push(witness.record(vec![Change::Unmarked(mark)], false));
                }
            }
        }
        self.wake(); // writes may have waited for another copy
        for done in unmarked {
            let _ = done.await; // a mark too many only costs another look
        }
        Ok(())
    }

    /// Takes back what the other drives that are here say of one.
    fn take_back(&self, state: &mut State<W>, of: usize, mark: Mark) -> impl Future<Output = Option<Failed>> + use<W> {
        let mut recordings = Vec::new();
        for by in (0..state.members.list.len()).filter(|&by| by != of) {
            let Some(drive) = state.members.list[by].drive().cloned() else { continue };
            if state.members.list[of].missed.unsay_one(mark.region, by) {
                let recording = drive.record(vec![Change::Unmarked(mark)], true);
                recordings.push(async move { recording.await.map_err(|error| failed(&drive, error)) });
            }
        }
        async move { join_all(recordings).await.into_iter().find_map(Result::err) }
    }

    /// The drives that are here, but one.
    fn drives_but(&self, at: usize) -> Vec<Holder<W>> {
        let state = self.lock();
        let others = state.members.list.iter().enumerate().filter(|&(other, _)| other != at);
        others.filter_map(|(_, member)| member.drive().cloned()).collect()
    }

    /// The drive that a job was about is lost, or can't do it.
    async fn give_up(&self, failed: Failed) -> Result<(), IoError> {
        match failed {
            Failed::Io(error) => return Err(error),
            Failed::Lost(id, loss) => self.lose(vec![(id, loss)]).await,
            Failed::Away => {}
        }
        Ok(())
    }

    /// Marks regions stale for a drive that isn't here, on every other drive. Not where it has the last clean copy: nobody
    /// goes on without it. They are in line when this returns, and committed when the future is done.
    pub fn mark_stale(&self, state: &mut State<W>, at: usize, regions: Vec<u64>) -> impl Future<Output = ()> + use<W> {
        let regions = if state.removed { Vec::new() } else { regions }; // nobody would take the marks back
        let has_others = |region: &u64| matches!(state.members.clean(*region), Copies::Clean(_));
        let regions: Vec<u64> = regions.into_iter().filter(has_others).collect();
        regions.iter().for_each(|&region| state.members.list[at].missed.begin(region));
        let id = state.members.list[at].id;
        let mut recordings = Vec::new();
        for (witness, member) in state.members.list.iter().enumerate() {
            if let Some(drive) = member.drive().filter(|_| !regions.is_empty()) {
                let marks = regions.iter().map(|&region| self.stale_mark(id, region)).collect();
                let recording = drive.record(marks, true);
                recordings.push(async move { recording.await.map(|()| witness) });
            }
        }
        let group = self.clone();
        async move {
            for outcome in join_all(recordings).await {
                // A drive that is lost here is noticed by the next write to it.
                let Ok(witness) = outcome else { continue };
                let mut state = group.lock();
                regions.iter().for_each(|&region| state.members.list[at].missed.said(region, witness));
            }
        }
    }

    fn stale_mark(&self, drive: DriveId, region: u64) -> Change {
        Change::Marked(Mark { map: self.shared.column.map, region, kind: MarkKind::Stale(drive) })
    }

    /// Some steps at a time, and each to its end.
    async fn equalise_region(&self, region: u64, only: Option<usize>) -> Result<(), Stuck> {
        let (first, count) = self.shared.column.blocks_of(region);
        let steps: Vec<u64> = (first..first + count).step_by(STEP as usize).collect();
        for some in steps.chunks(STEPS_AT_ONCE) {
            let outcomes = join_all(some.iter().map(|&first| self.equalise(Blocks { first, count: STEP }, only))).await;
            outcomes.into_iter().collect::<Result<(), Stuck>>()?;
        }
        Ok(())
    }

    /// Makes copies of some blocks of a region equal to the first clean one: that on one drive, or all clean ones. Doesn't
    /// wait for drives: it would have the blocks' turn meanwhile.
    async fn equalise(&self, blocks: Blocks, only: Option<usize>) -> Result<(), Stuck> {
        let _turn = self.shared.order.line_up_repair(blocks.first, blocks.count).turn().await;
        // Blocks of which a copy that couldn't be read was to decide. Once each: it may not be readable afterwards either.
        let mut decided = BTreeSet::new();
        loop {
            let (source, targets) = match self.plan_equalise(blocks, only)? {
                Plan::Go { source, targets } => (source, targets),
                Plan::Nothing => return Ok(()),
            };
            let how = if only.is_some() { Comparing::Data } else { Comparing::Checksums };
            match self.copy_differences(blocks, &source, &targets, how, &mut decided).await {
                Ok(()) => return Ok(()),
                Err(Failed::Lost(id, loss)) => {
                    drop((source, targets));
                    self.lose(vec![(id, loss)]).await;
                }
                Err(Failed::Away) => {} // drives have left since this was planned, or another copy has decided
                Err(Failed::Io(error)) => return Err(Stuck::Failed(error)),
            }
        }
    }

    fn plan_equalise(&self, blocks: Blocks, only: Option<usize>) -> Result<Plan<W>, Stuck> {
        let mut state = self.lock();
        state.serves().map_err(Stuck::Failed)?;
        let clean = match state.members.clean(self.shared.column.region_of(blocks.first)) {
            Copies::Clean(clean) => clean,
            Copies::Waiting => return Err(Stuck::Waits(Group::next_change(&mut state))),
            Copies::Lost => return Err(Stuck::Failed(lost())),
        };
        let copy = |at: usize| Some((at, self.copy(&state, at, blocks.first)?));
        let mut sources = clean.iter().filter_map(|&at| copy(at)).filter(|(at, _)| Some(*at) != only);
        let Some((source_at, source)) = sources.next() else { return Ok(Plan::Nothing) };
        let wanted = |at: usize| only.map_or(at != source_at, |only| at == only);
        let every = (0..self.shared.copies).filter_map(copy);
        let targets = every.filter(|(at, _)| wanted(*at)).map(|(_, copy)| copy).collect();
        Ok(Plan::Go { source, targets })
    }

    /// A copy of blocks from this one on, if its drive is here.
    fn copy(&self, state: &State<W>, at: usize, first: u64) -> Option<Copy<W>> {
        let drive = state.members.list[at].drive()?.clone();
        Some(Copy { drive, place: self.shared.column.place(at, first) })
    }

    async fn copy_differences(
        &self,
        blocks: Blocks,
        source: &Copy<W>,
        targets: &[Copy<W>],
        how: Comparing,
        decided: &mut BTreeSet<usize>,
    ) -> Result<(), Failed> {
        let map = self.shared.column.map;
        let (wanted, taken) = source.content(map, blocks.count).await?;
        for target in targets {
            let (found, had) = target.content(map, blocks.count).await?;
            let mut unread: Vec<u64> = Vec::new();
            let mut differs: Vec<bool> = wanted.iter().zip(&found).map(|(wanted, found)| wanted != found).collect();
            if how == Comparing::Data {
                self.compare_data(source, target, &wanted, &mut differs).await?;
            }
            let mut at = 0;
            while at < wanted.len() {
                if !differs[at] {
                    at += 1;
                    continue;
                }
                let hole = wanted[at].is_none();
                let alike = |nth: &usize| differs[*nth] && wanted[*nth].is_none() == hole;
                let end = (at..wanted.len()).take_while(alike).last().unwrap_or(at) + 1;
                match self.copy_run(source, target, at..end, hole, &taken).await {
                    Err(Failed::Io(IoError::Damaged { .. })) => {
                        for one in at..end {
                            match self.copy_run(source, target, one..one + 1, hole, &taken).await {
                                Err(Failed::Io(IoError::Damaged { .. })) => {
                                    let is_new = decided.insert(one);
                                    if is_new && self.decide_by_another(source, blocks.first, one).await? {
                                        return Err(Failed::Away); // the source has something else now
                                    }
                                    if how == Comparing::Data {
                                        return Err(damaged(blocks.first + one as u64));
                                    }
                                    unread.push(one as u64); // nobody can read it
                                }
                                outcome => outcome?,
                            }
                        }
                    }
                    outcome => outcome?,
                }
                at = end;
            }
            // Those that were copied have it by now; of the same content, they may not.
            if had != taken {
                let mut from = 0;
                for &nth in unread.iter().chain([&blocks.count]) {
                    if from < nth {
                        target.adopt(map, from..nth, &taken).await?;
                    }
                    from = nth + 1;
                }
            }
        }
        Ok(())
    }

    /// Where the copy that should decide can't be read, another that is clean does, of what requests did too: what the first one had
    /// must not be there again when it can be read later. `false` if nobody can read it.
    async fn decide_by_another(&self, source: &Copy<W>, first: u64, nth: usize) -> Result<bool, Failed> {
        let (map, block) = (self.shared.column.map, first + nth as u64);
        let source = source.after(nth);
        for other in self.clean_copies_but(source.drive.id(), block)? {
            let (crcs, taken) = other.content(map, 1).await?;
            match self.copy_run(&other, &source, 0..1, crcs[0].is_none(), &taken).await {
                Err(Failed::Io(IoError::Damaged { .. })) => {}
                outcome => return outcome.map(|()| true),
            }
        }
        Ok(false)
    }

    /// The clean copies of a block that are here, but the one on this drive.
    fn clean_copies_but(&self, id: DriveId, block: u64) -> Result<Vec<Copy<W>>, Failed> {
        let state = self.lock();
        let Copies::Clean(clean) = state.members.clean(self.shared.column.region_of(block)) else {
            return Err(Failed::Away);
        };
        let copies = clean.into_iter().filter_map(|at| self.copy(&state, at, block));
        Ok(copies.filter(|copy| copy.drive.id() != id).collect())
    }

    /// Looks at the data where the checksums are the same: of all that a drive missed, some block's may be by chance.
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
            if count > 0
                && let (Ok(wanted), Ok(found)) = (source.read(map, at, count).await, target.read(map, at, count).await)
            {
                let (wanted, found) = (join(&wanted), join(&found));
                let blocks = wanted.chunks(BLOCK as usize).zip(found.chunks(BLOCK as usize));
                blocks.enumerate().for_each(|(nth, (wanted, found))| differs[at + nth] = wanted != found);
            }
            at += count.max(1);
        }
        Ok(())
    }

    /// Some blocks of one copy, and what they have taken of requests, become those of another.
    async fn copy_run(
        &self,
        source: &Copy<W>,
        target: &Copy<W>,
        run: Range<usize>,
        hole: bool,
        taken: &[Taken],
    ) -> Result<(), Failed> {
        let (map, first, count) = (self.shared.column.map, target.place + run.start as u64, run.len() as u64);
        let taking = Taking::Those(target.placed(taken, &(run.start as u64..run.end as u64)));
        let outcome = if hole {
            target.drive.clear((map, first, count), Vec::new(), taking).await
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
            target.drive.write(Write { map, first, data, crcs, marks, durable: true, repair: true, taking }).await
        };
        let (bytes, now) = (count * BLOCK, self.shared.world.now());
        let mut state = self.lock();
        state.copied += bytes;
        state.copying.add(bytes, now);
        drop(state);
        outcome.map_err(|error| failed(&target.drive, error))
    }

    /// Writes a damaged copy of a block again, from one that is right.
    pub async fn repair(&self, block: u64, at: usize) -> Result<(), IoError> {
        let _turn = self.shared.order.line_up_repair(block, 1).turn().await;
        let target = {
            let state = self.lock();
            state.serves()?;
            let unresolved = state.unresolved.contains(&self.shared.column.region_of(block));
            self.copy(&state, at, block).filter(|_| !unresolved) // whoever settles that repairs it
        };
        let Some(target) = target else { return Ok(()) };
        if target.read(self.shared.column.map, 0, 1).await.is_ok() {
            return Ok(()); // it was written since
        }
        match self.decide_by_another(&target, block, 0).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(IoError::Damaged { offset: block * BLOCK, length: BLOCK }),
            Err(Failed::Io(error)) => Err(error),
            Err(Failed::Lost(_, loss)) => Err(IoError::Unavailable { reason: loss.to_string() }),
            Err(Failed::Away) => Err(IoError::Unavailable { reason: "no other copy is here".to_owned() }),
        }
    }

    /// Whether all clean copies of these blocks of a region hold the same, by their checksums. Makes them equal if not.
    pub async fn compare(&self, blocks: Blocks) -> Result<bool, IoError> {
        let before = self.lock().copied;
        match self.equalise(blocks, None).await {
            Ok(()) => Ok(self.lock().copied == before),
            Err(Stuck::Waits(_)) => Ok(true), // there's nothing to compare with
            Err(Stuck::Failed(error)) => Err(error),
        }
    }
}

impl<W: World> Copy<W> {
    async fn read(&self, map: MapId, nth: usize, count: usize) -> Result<Segments, DriveError> {
        self.drive.read(map, self.place + nth as u64, count as u64).await
    }

    /// The CRCs of so many blocks, and the requests that they have taken, numbered from the first one.
    async fn content(&self, map: MapId, count: u64) -> Result<(Vec<Option<u32>>, Vec<Taken>), Failed> {
        let content = self.drive.content(map, self.place, count).await;
        let (crcs, taken) = content.map_err(|error| failed(&self.drive, error))?;
        Ok((crcs, taken.into_iter().map(|taken| Taken { first: taken.first - self.place, ..taken }).collect()))
    }

    /// Some of these blocks have taken what those of another copy have, and nothing else.
    async fn adopt(&self, map: MapId, blocks: Range<u64>, taken: &[Taken]) -> Result<(), Failed> {
        let (place, requests) = (self.place + blocks.start, self.placed(taken, &blocks));
        let adopted = self.drive.adopt(map, (place, blocks.end - blocks.start), requests).await;
        adopted.map_err(|error| failed(&self.drive, error))
    }

    /// What some blocks of a copy have taken, as this one numbers them.
    fn placed(&self, taken: &[Taken], blocks: &Range<u64>) -> Vec<Taken> {
        let part = taken.iter().filter_map(|taken| taken.within(blocks));
        part.map(|taken| Taken { first: self.place + taken.first, ..taken }).collect()
    }

    /// The same from a later block on.
    fn after(&self, blocks: usize) -> Self {
        Copy { drive: self.drive.clone(), place: self.place + blocks as u64 }
    }
}

fn failed<W: World>(drive: &Holder<W>, error: DriveError) -> Failed {
    match error {
        DriveError::Lost(loss) => Failed::Lost(drive.id(), loss),
        DriveError::OutOfSpace => Failed::Io(IoError::OutOfSpace),
        DriveError::Damaged { .. } => Failed::Io(IoError::Unavailable { reason: error.to_string() }),
    }
}

fn damaged(block: u64) -> Failed {
    Failed::Io(IoError::Damaged { offset: block * BLOCK, length: BLOCK })
}
