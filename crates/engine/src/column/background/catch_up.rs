//! A returned drive notes what it missed, and its fragments catch up, region by region.

use super::{Stuck, failed};
use crate::column::flush::flush_all;
use crate::column::members::{Member, RegionState};
use crate::column::read::Failed;
use crate::column::redundancy::Why;
use crate::column::{Group, State};
use crate::holder::Holder;
use futures_util::future::join_all;
use tepal_drive::world::World;
use tepal_drive::{Change, Mark, MarkKind};
use tepal_model::{DriveId, IoError};

/// Marks that go into a log together.
const MARKS_AT_ONCE: usize = 1024;

impl<W: World> Group<W> {
    /// Makes a returned drive note the regions that it misses, and the regions that others miss. From then on its word
    /// is enough.
    pub async fn note(&self, at: usize) -> Result<(), Stuck> {
        let mut changes = self.lock().changes;
        // The member whose misses are noted next, and the first region to note.
        let mut next = (0, 0);
        loop {
            let (drive, unsaid, recording) = {
                let mut state = self.lock();
                let drive = state.members.list[at].drive().cloned().filter(|_| state.serves().is_ok());
                let Some(drive) = drive else { return Ok(()) };
                if state.changes != changes {
                    (changes, next) = (state.changes, (0, 0)); // there may be more to note
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

    /// Some missed regions that a drive's log doesn't say, from a member's region on.
    fn unsaid(&self, state: &State<W>, at: usize, (from, first): (usize, u64)) -> Vec<(usize, u64)> {
        // A joining member's misses aren't noted.
        let members = state.members.list.iter().enumerate().skip(from).filter(|(_, member)| !member.joins());
        let unsaid = members.flat_map(|(of, member)| {
            let first = if of == from { first } else { 0 };
            member.missed.unsaid(at, first).map(move |region| (of, region))
        });
        unsaid.take(MARKS_AT_ONCE).collect()
    }

    /// Brings one drive's copy of a region up to date, then takes its stale marks back.
    pub async fn catch_up(&self, at: usize, region: u64) -> Result<(), Stuck> {
        // The drive's handle isn't kept meanwhile: a drive that is pulled must be free to be opened again.
        let (opening, left_out) = {
            let member = &self.lock().members.list[at];
            (member.opening, member.left_out)
        };
        self.shared.kept.make_whole(self, region, Why::Missed(at)).await?;
        // The copied data must not be lost with a cache on another drive once this copy is clean.
        let lost = flush_all(self.drives_but(at)).await;
        if !lost.is_empty() {
            self.lose(lost).await;
            return Ok(()); // the job is tried again
        }
        let is_same = |member: &Member<W>| member.opening == opening && member.left_out == left_out;
        let here = |member: &Member<W>| member.drive().filter(|_| is_same(member)).cloned();
        let (others, mark) = {
            let mut state = self.lock();
            state.serves().map_err(Stuck::Failed)?;
            let member = &state.members.list[at];
            if here(member).is_none() {
                return Ok(()); // the drive left meanwhile, or had no room for some data, and may miss more now
            }
            let mark = Mark { map: self.shared.column.map, region, kind: MarkKind::Stale(member.id) };
            (self.take_back(&mut state, at, mark), mark)
        };
        // The other drives' marks go first, and durably: a drive that leaves without noting this would still call the
        // copy stale when no other copy has the data.
        if let Some(failed) = others.await {
            return self.give_up(failed).await.map_err(Stuck::Failed); // the job is tried again
        }
        let own = {
            let state = self.lock();
            state.serves().map_err(Stuck::Failed)?;
            let member = &state.members.list[at];
            let Some(drive) = here(member) else { return Ok(()) };
            let said = member.missed.is_said(region, at).then_some(drive);
            said.map(|drive| (drive.clone(), drive.record(vec![Change::Unmarked(mark)], true)))
        };
        // Then the drive's own mark goes, before its copy counts as clean: a drive that is alone is believed about
        // itself.
        if let Some((drive, unmarking)) = own
            && let Err(error) = unmarking.await
        {
            return self.give_up(failed(&drive, error)).await.map_err(Stuck::Failed);
        }
        let mut unmarked = Vec::new();
        {
            let mut state = self.lock();
            if state.served.removed || here(&state.members.list[at]).is_none() {
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

    /// Takes back the stale mark of one member's region on the other drives that are here.
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

    /// The drives that are here, except one.
    fn drives_but(&self, at: usize) -> Vec<Holder<W>> {
        let state = self.lock();
        let others = state.members.list.iter().enumerate().filter(|&(other, _)| other != at);
        others.filter_map(|(_, member)| member.drive().cloned()).collect()
    }

    /// Ends a job that failed: a lost drive leaves.
    async fn give_up(&self, failed: Failed) -> Result<(), IoError> {
        match failed {
            Failed::Io(error) => return Err(error),
            Failed::Lost(id, loss) => self.lose(vec![(id, loss)]).await,
            Failed::Away => {}
        }
        Ok(())
    }

    /// Marks regions stale for an absent drive, on every other drive. Regions of which the absent drive has the last
    /// clean copy are left out: no write goes on without that copy. The marks are in the drives' queues when this
    /// returns, and committed when the future is done.
    pub fn mark_stale(&self, state: &mut State<W>, at: usize, regions: Vec<u64>) -> impl Future<Output = ()> + use<W> {
        let regions = if state.served.removed { Vec::new() } else { regions }; // nobody would take the marks back
        let has_others = |region: &u64| matches!(state.members.clean(*region), RegionState::Clean(_));
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
}
