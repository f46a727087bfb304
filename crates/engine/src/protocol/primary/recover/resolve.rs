//! Settling regions whose copies may differ since a crash.

use super::Stuck;
use super::equalise::Why;
use crate::protocol::primary::Group;
use crate::protocol::primary::members::Presence;
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
        let waiting = self.group.lock().resolving.0.remove(&self.region);
        for end in waiting.into_iter().flatten() {
            let _ = end.send(self.error.clone()); // who has given up waiting needs no answer
        }
    }
}

impl<W: World> Group<W> {
    /// Settles a region whose copies may differ since a crash: the first clean copy decides. Those on drives that are away
    /// are stale from then on: somebody may read what was decided. One does it for all who want it meanwhile.
    pub async fn resolve(&self, region: u64) -> Result<(), Stuck> {
        // What kept an attempt from its end that had begun earlier may be over.
        let mut is_earlier = true;
        loop {
            let attempt = {
                let mut state = self.lock();
                if !state.unresolved.contains(&region) {
                    return Ok(());
                }
                state.resolving.join(region)
            };
            let Some(end) = attempt else {
                let mut attempt = Attempt { group: self, region, error: None };
                let outcome = self.resolve_alone(region).await;
                attempt.error = outcome.as_ref().err().and_then(Stuck::error).cloned();
                return outcome;
            };
            match end.await {
                Ok(Some(error)) if !is_earlier => return Err(Stuck::Failed(error)),
                // It was given up perhaps, with who had it.
                Ok(_) | Err(_) => is_earlier = false,
            }
        }
    }

    async fn resolve_alone(&self, region: u64) -> Result<(), Stuck> {
        loop {
            let began = self.lock().moment();
            self.equalise_region(region, Why::Unresolved).await?;
            self.mark_absent_stale(region).await;
            let mut state = self.lock();
            if state.removed {
                return Err(Stuck::Failed(IoError::Fenced));
            }
            // A drive that came meanwhile was not compared everywhere, nor were blocks of a write that was refused since.
            if state.is_as_at(began, std::iter::once(region)) {
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
            let is_away =
                |at: &usize| matches!(list[*at].presence, Presence::Missing | Presence::Leaving) && !list[*at].joins;
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
}
