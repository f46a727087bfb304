//! Resolving regions whose copies may differ since a crash. One task at a time resolves a region, for all tasks that
//! want it. An attempt's failure is told only to tasks that asked before the attempt began.

use super::Stuck;
use crate::column::members::{Member, Presence, RegionState};
use crate::column::redundancy::Why;
use crate::column::{Blocks, Group};
use futures_channel::oneshot;
use futures_util::future::join_all;
use std::collections::BTreeMap;
use tepal_drive::world::World;
use tepal_model::IoError;

/// Regions that are being resolved, with the tasks that wait: each task is told what has failed, if anything has.
#[derive(Default)]
pub(crate) struct Resolving(BTreeMap<u64, Vec<oneshot::Sender<Option<IoError>>>>);

impl Resolving {
    /// The end of an attempt under way; `None` if the caller has to make the attempt.
    fn join(&mut self, region: u64) -> Option<oneshot::Receiver<Option<IoError>>> {
        let Some(waiting) = self.0.get_mut(&region) else {
            self.0.insert(region, Vec::new());
            return None;
        };
        let (sender, end) = oneshot::channel();
        waiting.push(sender);
        Some(end)
    }

    /// The tasks that wait for the end of the attempt.
    fn end(&mut self, region: u64) -> Vec<oneshot::Sender<Option<IoError>>> {
        self.0.remove(&region).unwrap_or_default()
    }
}

/// An attempt to resolve a region. The attempt ends when this is dropped.
struct Attempt<'a, W: World> {
    group: &'a Group<W>,
    region: u64,
    /// Why the attempt failed.
    error: Option<IoError>,
}

impl<W: World> Drop for Attempt<'_, W> {
    fn drop(&mut self) {
        let Ok(mut state) = self.group.shared.state.lock() else { return }; // poisoned: to panic here too would abort
        let waiting = state.unsure.resolving.end(self.region);
        drop(state);
        for end in waiting {
            let _ = end.send(self.error.clone()); // a task that has given up waiting needs no answer
        }
    }
}

impl<W: World> Group<W> {
    /// Resolves a region whose copies may differ since a crash: the first clean copy decides. Copies on absent drives
    /// are passed over, and stale from then on: a client may read the decided data. One task resolves the region for
    /// all that want it meanwhile.
    pub async fn resolve(&self, region: u64) -> Result<(), Stuck> {
        // An attempt that was under way before this call may have met an obstacle that is over by now.
        let mut began_before = true;
        loop {
            let under_way = {
                let mut state = self.lock();
                if !state.unsure.regions.contains(&region) {
                    return Ok(());
                }
                // Each task checks this itself: a waiting task isn't woken by another's attempt that would only wait.
                if matches!(state.members.clean(region), RegionState::Waiting) {
                    state.serves().map_err(Stuck::Failed)?;
                    return Err(Stuck::Waits(Group::next_change(&mut state)));
                }
                state.unsure.resolving.join(region)
            };
            let Some(end) = under_way else {
                let mut attempt = Attempt { group: self, region, error: None };
                let outcome = self.resolve_alone(region).await;
                if let Err(Stuck::Failed(error)) = &outcome {
                    attempt.error = Some(error.clone());
                }
                return outcome;
            };
            match end.await {
                Ok(Some(error)) if !began_before => return Err(Stuck::Failed(error)),
                // The region is resolved, waits for drives, or its attempt was dropped: the next round finds out.
                Ok(_) | Err(_) => began_before = false,
            }
        }
    }

    /// Makes the regions of a write unsure that reached some copies and won't reach the others. The copies are made
    /// equal before anything is read there.
    pub fn differ(&self, blocks: Blocks) {
        {
            let mut state = self.lock();
            let regions = || self.shared.column.regions(blocks.first, blocks.count);
            state.unsure.refusals.add(regions());
            state.unsure.regions.extend(regions());
        }
        self.start_recovery();
    }

    async fn resolve_alone(&self, region: u64) -> Result<(), Stuck> {
        loop {
            self.until_nobody_leaves().await;
            self.pass_over_absent().await;
            let began = {
                let mut state = self.lock();
                if state.members.absent().next().is_some() && !state.members.may_go_on() {
                    state.serves().map_err(Stuck::Failed)?;
                    return Err(Stuck::Waits(Group::next_change(&mut state)));
                }
                state.moment()
            };
            self.shared.kept.make_whole(self, region, Why::Unresolved).await?;
            self.mark_absent_stale(region).await;
            let mut state = self.lock();
            if state.served.removed {
                return Err(Stuck::Failed(IoError::Fenced));
            }
            // A drive that came meanwhile was not compared everywhere, nor were blocks of a write that was refused since.
            if state.is_as_at(began, std::iter::once(region)) {
                state.unsure.regions.remove(&region);
                return Ok(());
            }
        }
    }

    /// Waits until no drive is leaving: until then it isn't known whether anything may be resolved without the drive.
    async fn until_nobody_leaves(&self) {
        loop {
            let change = {
                let mut state = self.lock();
                let leaves = |member: &Member<W>| matches!(member.presence, Presence::Leaving);
                if state.served.removed || !state.members.list.iter().any(leaves) {
                    return;
                }
                Group::next_change(&mut state)
            };
            let _ = change.await; // dropped with the group
        }
    }

    /// Marks an unsure region, and all other unsure regions along with it, stale for absent drives that have no such
    /// mark yet.
    async fn mark_absent_stale(&self, region: u64) {
        let mut marking = Vec::new();
        {
            let mut state = self.lock();
            let list = &state.members.list;
            let is_here = |at: &usize| list[*at].drive().is_some();
            let is_away =
                |at: &usize| matches!(list[*at].presence, Presence::Missing | Presence::Leaving) && !list[*at].joins();
            let members = || 0..self.shared.copies;
            let unsaid = |at: &usize| !members().filter(is_here).all(|by| list[*at].missed.is_said(region, by));
            let absent: Vec<usize> = members().filter(|at| is_away(at) && unsaid(at)).collect();
            for at in absent {
                let unresolved = state.unsure.regions.iter().copied().collect();
                marking.push(self.mark_stale(&mut state, at, unresolved));
            }
        }
        join_all(marking).await;
    }
}
