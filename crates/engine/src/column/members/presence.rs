//! A group's drives coming and going, and what the group takes from each: [`super`] says who is believed.

use super::{Member, Presence, RegionState};
use crate::column::{Group, State};
use crate::engine::Standing;
use crate::holder::Holder;
use crate::places::CopyStatus;
use crate::view::View;
use tepal_drive::Change;
use tepal_drive::world::World;
use tepal_model::DriveId;
use tepal_model::layout::Durability;

impl<W: World> Group<W> {
    pub fn member_leaving(&self, id: DriveId) {
        let mut state = self.lock();
        let Some(at) = state.members.position(id) else { return };
        let unflushed = state.members.list[at].drive().and_then(Holder::unflushed);
        state.note_who_knows();
        state.members.list[at].stand_for_itself();
        state.members.list[at].presence = Presence::Leaving;
        state.members.list[at].begin_anew();
        state.members.list[at].opening += 1; // a task that still asks the drive what it knows needn't come back
        state.changes += 1;
        if self.shared.durability == Durability::Flush {
            state.unflushed.leaving.extend(unflushed.map(|newest| (at, newest)));
            // Drives that leave together may each have relied on the others.
            let alone = state.unflushed.leaving.iter().filter(|&(&at, _)| has_alone(&state, at));
            let alone: Vec<(usize, u64)> = alone.map(|(&at, &newest)| (at, newest)).collect();
            state.unflushed.alone.extend(alone);
        }
    }

    pub fn is_leaving(&self, id: DriveId) -> bool {
        let state = self.lock();
        let at = state.members.position(id);
        at.is_some_and(|at| matches!(state.members.list[at].presence, Presence::Leaving))
    }

    /// It's agreed that the drive is down. Regions with writes under way, or not surely stable, are marked stale for
    /// the drive. Then writes go on without the drive. A drive that is back by then has been heard anew.
    pub async fn member_left(&self, id: DriveId, left: View, may_return: bool) {
        let leaving = |state: &State<W>| {
            let at = state.members.position(id)?;
            let member = &state.members.list[at];
            matches!(member.presence, Presence::Leaving).then_some((at, member.opening))
        };
        let Some((at, opening)) = leaving(&self.lock()) else { return };
        if self.is_mirrored() {
            self.lock().members.list[at].set_left(Some(left));
            let is_unsure = || {
                let state = self.lock();
                !state.busy.is_empty() && !state.members.list[at].joins()
            };
            // A drive that is up again by then can't be passed over, and is heard anew with all that was under way.
            let is_away = || !self.engine().is_some_and(|engine| engine.is_agreed_up_elsewhere(id));
            if may_return && is_unsure() {
                self.pass_over_absent_while(is_away).await;
            }
            let marking = {
                let mut state = self.lock();
                if leaving(&state) != Some((at, opening)) {
                    return;
                }
                let member = &state.members.list[at];
                let is_believed = may_return && member.status == CopyStatus::Complete;
                let is_marked = !member.joins() && !is_believed;
                let unsure: Vec<u64> = state.busy.keys().copied().filter(|_| is_marked).collect();
                self.mark_stale(&mut state, at, unsure)
            };
            marking.await;
        }
        {
            let mut state = self.lock();
            if leaving(&state) != Some((at, opening)) {
                return;
            }
            state.unflushed.leaving.remove(&at);
            if may_return {
                state.members.list[at].presence = Presence::Missing;
            } else {
                state.fail(at);
            }
        }
        self.wake();
        self.start_recovery();
    }

    /// The drive had left, was up again, and left once more in that view.
    pub fn member_left_later(&self, id: DriveId, left: Option<View>) {
        {
            let mut state = self.lock();
            let Some(at) = state.members.position(id) else { return };
            let member = &mut state.members.list[at];
            if matches!(member.presence, Presence::Missing) && member.left < left {
                member.set_left(left);
            }
        }
        self.wake();
    }

    /// The drive had left, in that view or a later one, and won't return.
    pub fn member_retired(&self, id: DriveId, left: View) {
        {
            let mut state = self.lock();
            let Some(at) = state.members.position(id) else { return };
            let member = &mut state.members.list[at];
            member.set_left(member.left.map(|known| known.min(left)));
            state.fail(at);
        }
        self.wake();
        self.start_recovery(); // other members may have waited to hear from the drive what they miss
    }

    pub fn member_returned(&self, drive: &Holder<W>, standing: Standing) {
        let opening = {
            let mut state = self.lock();
            let Some(at) = state.members.position(drive.id()).filter(|_| !state.served.removed) else { return };
            state.forget_what_others_have();
            state.members.list[at].stand_for_itself();
            state.members.list[at].set_left(standing.left());
            state.members.list[at].begin_anew();
            state.members.list[at].presence = Presence::Here(drive.clone());
            state.members.list[at].opening += 1;
            // The drive's busy marks are heard again below.
            for busy in state.busy.values_mut() {
                busy.marked.remove(&at);
            }
            if let Some(newest) = state.unflushed.alone.remove(&at)
                && drive.newest_found() < newest
            {
                let id = drive.id();
                state.unflushed.lost.add(format!("drive {id} has returned without data that had not been flushed"));
            }
            state.changes += 1;
            let is_known = state.members.is_known_without(at);
            self.hear(&mut state, at, drive, is_known);
            // Busy regions in which no write could go on without the drive, and the drive may not have all writes that
            // were under way.
            let missed = &state.members.list[at].missed;
            let unsure: Vec<u64> = state.busy.keys().copied().filter(|&region| !missed.contains(region)).collect();
            if self.is_mirrored() {
                state.unsure.regions.extend(unsure);
            }
            let member = &state.members.list[at];
            (member.is_behind() && member.status != CopyStatus::Complete).then_some(member.opening)
        };
        if let Some(opening) = opening {
            let counted = self.clone().count_returned(drive.id(), opening);
            self.shared.world.spawn(Box::pin(counted));
        }
        self.wake();
        self.start_recovery();
    }

    pub fn may_be_alone(&self, id: DriveId) -> bool {
        let state = self.lock();
        state.members.position(id).is_some_and(|at| has_alone(&state, at))
    }

    pub fn member_is_current(&self, drive: &Holder<W>) {
        let mut state = self.lock();
        let is_it = |at: &usize| state.members.list[*at].drive().is_some_and(|now| now.is_same(drive));
        if let Some(at) = state.members.position(drive.id()).filter(is_it) {
            state.members.list[at].set_left(None);
            state.members.list[at].stand_for_itself();
            state.members.is_up_again(at);
        }
        drop(state);
        self.wake();
    }

    /// Whether the drive's word, about itself and about others, is enough for its copy of this group.
    pub fn knows_what_it_misses(&self, id: DriveId) -> bool {
        let state = self.lock();
        state.members.position(id).is_none_or(|at| !state.members.has_unheard() && state.knows_what_it_misses(at))
    }

    /// Takes in a drive's marks, as of the moment at which the drive is here. With `is_known`, others here know what the
    /// members miss that are here.
    pub fn hear(&self, state: &mut State<W>, at: usize, drive: &Holder<W>, is_known: bool) {
        let heard = state.members.hear(at, &self.shared.column, &drive.marks(), is_known);
        if self.is_mirrored() {
            for region in heard.busy {
                state.unsure.regions.insert(region);
                state.busy.entry(region).or_default().marked.insert(at);
            }
            // An outdated copy took something that a complete copy didn't: the complete copy is right.
            state.unsure.regions.extend(heard.overruled);
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

/// Whether a member may hold data that the other members which are here and up can't give back.
fn has_alone<W: World>(state: &State<W>, at: usize) -> bool {
    let others = state.members.list.iter().enumerate().filter(|&(other, _)| other != at);
    let has_all = |member: &Member<W>| member.status == CopyStatus::Complete && member.missed.is_empty();
    let others = others.filter(|(_, member)| member.drive().is_some() && member.is_current() && has_all(member));
    others.count() < state.members.needed
}

impl<W: World> State<W> {
    fn knows_what_it_misses(&self, at: usize) -> bool {
        // While a region is unsure, the drives that were up decide, and this drive isn't up yet. In a lost region no
        // drive decides, nor in one that is given up. Nor does this drive where it says itself that it misses the region. And a drive
        // that knows must have been heard, if any can be.
        let member = &self.members.list[at];
        let is_decided_without = |&region: &u64| {
            member.missed.is_said(region, at)
                || matches!(self.members.clean(region), RegionState::Lost | RegionState::GivenUp)
        };
        let settled = || self.members.is_known() && self.unsure.regions.iter().all(is_decided_without);
        member.noted && (member.missed.is_all() || self.members.is_beyond_knowing() || settled())
    }

    /// Notes which members know what they miss, before a member leaves: it may have been the last that was up.
    fn note_who_knows(&mut self) {
        if self.members.is_known() {
            for at in 0..self.members.list.len() {
                let knows = self.members.list[at].drive().is_some() && self.knows_what_it_misses(at);
                let knows = knows && !self.members.list[at].missed.is_all();
                self.members.list[at].note_whether_it_knows(knows);
            }
        }
    }

    /// An absent drive's unflushed data that another drive has too, which is up, is neither waited for nor lost.
    pub fn forget_what_others_have(&mut self) {
        let had = self.unflushed.alone.keys().copied().filter(|&at| !has_alone(self, at));
        for at in had.collect::<Vec<_>>() {
            self.unflushed.alone.remove(&at);
        }
    }

    /// The drive won't return, nor will the unflushed data that it alone had.
    fn fail(&mut self, at: usize) {
        self.forget_what_others_have();
        self.members.list[at].presence = Presence::Failed;
        if self.members.is_beyond_knowing() {
            self.members.list.iter_mut().for_each(Member::last_complete_failed);
        }
        if self.unflushed.alone.remove(&at).is_some() {
            let id = self.members.list[at].id;
            self.unflushed.lost.add(format!("drive {id} has failed, and data that was not flushed is lost with it"));
        }
    }
}
