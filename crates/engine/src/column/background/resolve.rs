//! Resolving regions whose copies may differ since a crash. A region is resolved by one at a time, for all who want it; what has failed is
//! told only to those who came before the attempt began.

use super::Stuck;
use crate::column::members::{Member, Presence, RegionState};
use crate::column::redundancy::Why;
use crate::column::{Blocks, Group};
use futures_channel::oneshot;
use futures_util::future::join_all;
use std::collections::BTreeMap;
use tepal_drive::world::World;
use tepal_model::IoError;

/// Regions that are being settled, and who waits for that: each hears what has failed, if anything has.
#[derive(Default)]
pub(crate) struct Resolving(BTreeMap<u64, Vec<oneshot::Sender<Option<IoError>>>>);

impl Resolving {
    /// The end of what is under way; `None` if it's the caller who is to do it.
    fn join(&mut self, region: u64) -> Option<oneshot::Receiver<Option<IoError>>> {
        let Some(waiting) = self.0.get_mut(&region) else {
            self.0.insert(region, Vec::new());
            return None;
        };
        let (sender, end) = oneshot::channel();
        waiting.push(sender);
        Some(end)
    }

    /// Who waits for the end of it.
    fn end(&mut self, region: u64) -> Vec<oneshot::Sender<Option<IoError>>> {
        self.0.remove(&region).unwrap_or_default()
    }
}

/// It has ended when this is gone.
struct Attempt<'a, W: World> {
    group: &'a Group<W>,
    region: u64,
    /// What has failed.
    error: Option<IoError>,
}

impl<W: World> Drop for Attempt<'_, W> {
    fn drop(&mut self) {
        let Ok(mut state) = self.group.shared.state.lock() else { return }; // poisoned: to panic here too would abort
        let waiting = state.unsure.resolving.end(self.region);
        drop(state);
        for end in waiting {
            let _ = end.send(self.error.clone()); // who has given up waiting needs no answer
        }
    }
}

impl<W: World> Group<W> {
    /// Settles a region whose copies may differ since a crash: the first clean copy decides. Those on drives that are away
    /// are passed over, and stale from then on: somebody may read what was decided. One does it for all who want it meanwhile.
    pub async fn resolve(&self, region: u64) -> Result<(), Stuck> {
        // What an attempt has met that was under way when this was asked may be over.
        let mut began_before = true;
        loop {
            let under_way = {
                let mut state = self.lock();
                if !state.unsure.regions.contains(&region) {
                    return Ok(());
                }
                // Each for himself: whoever waits isn't woken by another's attempt that would only wait.
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
                // It's resolved, waits for drives, or was given up with who had it: that is looked at again.
                Ok(_) | Err(_) => began_before = false,
            }
        }
    }

    /// A write reached some copies and won't reach the others: they are made equal, before anything is read there.
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
            let began = self.lock().moment();
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

    /// Of a drive that leaves, it isn't known yet whether anything may be settled without it.
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

    /// Marks an unresolved region, and all others at once, stale for the drives that are away and have no such mark yet.
    async fn mark_absent_stale(&self, region: u64) {
        let mut marking = Vec::new();
        {
            let mut state = self.lock();
            let list = &state.members.list;
            let is_here = |at: &usize| list[*at].drive().is_some();
            let is_away =
                |at: &usize| matches!(list[*at].presence, Presence::Missing | Presence::Leaving) && !list[*at].joins;
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
