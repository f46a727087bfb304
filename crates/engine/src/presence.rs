//! A volume's drives coming and going, and what it takes from each: see [`crate::members`] for who is believed.

use crate::authority::View;
use crate::engine::Standing;
use crate::map::Holders;
use crate::members::Presence;
use crate::volume::{State, Volume};
use tepal_drive::world::World;
use tepal_drive::{Change, Drive};
use tepal_model::DriveId;
use tepal_model::layout::Durability;

impl<W: World> Volume<W> {
    pub(crate) fn member_leaving(&self, id: DriveId) {
        let mut state = self.lock();
        let Some(at) = state.members.position(id) else { return };
        let unflushed = state.members.list[at].drive().and_then(Drive::unflushed);
        state.members.list[at].presence = Presence::Leaving;
        state.changes += 1;
        if state.spec.layout.durability == Durability::Flush {
            state.leaving_unflushed.extend(unflushed.map(|newest| (at, newest)));
            // Of drives that leave together, each may have relied on the others.
            let alone = state.leaving_unflushed.iter().filter(|&(&at, _)| self.has_alone(&state, at));
            let alone: Vec<(usize, u64)> = alone.map(|(&at, &newest)| (at, newest)).collect();
            state.unflushed.extend(alone);
        }
    }

    pub(crate) fn is_leaving(&self, id: DriveId) -> bool {
        let state = self.lock();
        let at = state.members.position(id);
        at.is_some_and(|at| matches!(state.members.list[at].presence, Presence::Leaving))
    }

    /// It's agreed that the drive is down: what was under way or not surely stable is marked stale for it, then writes
    /// go on without it.
    pub(crate) async fn member_left(&self, id: DriveId, left: View, may_return: bool) {
        let Some(at) = self.lock().members.position(id) else { return };
        if self.shared.map.rotation.copies() > 1 {
            let marking = {
                let mut state = self.lock();
                state.members.list[at].left = Some(left);
                let unsure: Vec<u64> = state.busy.keys().copied().collect();
                self.mark_stale(&mut state, at, unsure)
            };
            marking.await;
        }
        {
            let mut state = self.lock();
            state.leaving_unflushed.remove(&at);
            if may_return {
                state.members.list[at].presence = Presence::Missing;
            } else {
                state.fail(at);
            }
        }
        self.wake();
    }

    /// It had left, and won't return.
    pub(crate) fn member_retired(&self, id: DriveId) {
        {
            let mut state = self.lock();
            let Some(at) = state.members.position(id) else { return };
            state.fail(at);
        }
        self.wake();
    }

    pub(crate) fn member_returned(&self, drive: &Drive<W>, standing: Standing) {
        {
            let mut state = self.lock();
            let Some(at) = state.members.position(drive.id()) else { return };
            state.members.list[at].left = standing.left();
            state.members.list[at].presence = Presence::Here(drive.clone());
            state.members.list[at].opening += 1;
            // What it had marked is heard again below.
            for busy in state.busy.values_mut() {
                busy.marked.remove(&at);
            }
            if let Some(newest) = state.unflushed.remove(&at)
                && drive.newest_found() < newest
            {
                let id = drive.id();
                state.lost_unflushed.add(format!("drive {id} has returned without data that had not been flushed"));
            }
            state.changes += 1;
            self.hear(&mut state, at, drive);
            // Where nobody could go on without it, and it may not have all that was under way.
            let holds = |region: u64| self.shared.map.holders(region).contains(&at);
            let missed = &state.members.list[at].missed;
            let unsure = state.busy.keys().copied().filter(|&region| holds(region) && !missed.contains(region));
            let unsure: Vec<u64> = unsure.collect();
            if self.shared.map.rotation.copies() > 1 {
                state.unresolved.extend(unsure);
            }
        }
        self.wake();
        self.start_recovery();
    }

    pub(crate) fn may_be_alone(&self, id: DriveId) -> bool {
        let state = self.lock();
        state.members.position(id).is_some_and(|at| self.has_alone(&state, at))
    }

    /// Whether the drive may hold data of which no other drive that is here and up has a copy.
    fn has_alone(&self, state: &State<W>, at: usize) -> bool {
        let has_all = |other: usize| {
            let member = &state.members.list[other];
            member.drive().is_some() && member.is_current() && member.missed.is_empty()
        };
        let alone =
            |drives: Holders| drives.contains(&at) && !drives.iter().any(|&other| other != at && has_all(other));
        self.shared.map.all_holders().any(alone)
    }

    pub(crate) fn member_is_current(&self, drive: &Drive<W>) {
        let mut state = self.lock();
        let member = state.members.list.iter_mut().find(|member| member.id == drive.id());
        if let Some(member) = member.filter(|member| member.drive().is_some_and(|now| now.is_same(drive))) {
            member.left = None;
        }
        drop(state);
        self.wake();
    }

    /// Whether the drive's word is enough for what it holds of this volume, as it's about itself and about others.
    pub(crate) fn knows_what_it_misses(&self, id: DriveId) -> bool {
        let state = self.lock();
        let Some(at) = state.members.position(id) else { return true };
        let map = &self.shared.map;
        // While a region is unsettled, those that were up decide: it isn't one of them yet.
        let settled = !state.unresolved.iter().any(|&region| map.holders(region).contains(&at));
        // Somebody who knows must have been heard for each extent that it holds.
        let mut holders = map.all_holders().filter(|drives| drives.contains(&at));
        settled && state.members.list[at].noted && holders.all(|drives| state.members.is_known(&drives))
    }

    /// Takes in the marks that a drive has. From the moment at which it's here.
    pub(crate) fn hear(&self, state: &mut State<W>, at: usize, drive: &Drive<W>) {
        let map = state.spec.map;
        let heard = state.members.hear(at, map, &drive.marks());
        if self.shared.map.rotation.copies() > 1 {
            for region in heard.busy {
                state.unresolved.insert(region);
                state.busy.entry(region).or_default().marked.insert(at);
            }
        }
        let outdated = heard.outdated;
        if !outdated.is_empty() {
            let gone = drive.record(outdated.into_iter().map(Change::Unmarked).collect(), false);
            self.shared.world.spawn(Box::pin(async move {
                let _ = gone.await; // if the drive is lost, that is noticed where it matters
            }));
        }
    }
}

impl<W: World> State<W> {
    /// It won't return, nor what it alone had unflushed.
    fn fail(&mut self, at: usize) {
        self.members.list[at].presence = Presence::Failed;
        if self.unflushed.remove(&at).is_some() {
            let id = self.members.list[at].id;
            self.lost_unflushed.add(format!("drive {id} has failed, and data that was not flushed is lost with it"));
        }
    }
}
