//! Which copies are complete: what is agreed of them, and what this primary has agreed.
//!
//! Invariants:
//! 1. Nothing is written, no mark is made of an absent copy, and no difference is settled while a complete copy isn't here. First it's
//!    agreed that the copy is passed over. So what was ever acknowledged or read is on every complete copy.
//! 2. It's agreed only in the view by which this server leads: of two that take themselves for the primary, one is heard.
//! 3. A column that nobody writes to passes nobody over: whoever returns of its copies serves.

use super::{Member, Presence};
use crate::column::Group;
use crate::places::{CopyChange, CopyStatus, Places};
use futures_util::future::select;
use std::time::Duration;
use tepal_drive::world::World;
use tepal_model::DriveId;

/// After it could not be agreed: by then a newer state is followed. And how often to look for a copy that is coming.
const SOON: Duration = Duration::from_millis(20);

/// So long after this server began to lead, copies that are known to be back are waited for rather than passed over.
const COMING: Duration = Duration::from_secs(2);

/// A drive that knows what it misses, of all columns, is up by then.
const UP_SOON: Duration = Duration::from_secs(3);

impl<W: World> Group<W> {
    /// Returns once no complete copy is absent, or nobody is served any more.
    pub async fn pass_over_absent(&self) {
        self.pass_over_absent_while(|| true).await;
    }

    /// The same, for as long as that matters.
    pub async fn pass_over_absent_while(&self, matters: impl Fn() -> bool) {
        while matters()
            && let Some(absent) = self.absent()
        {
            if absent.iter().any(|&id| self.is_coming(id)) || !self.begin_counting() {
                let change = Group::next_change(&mut self.lock());
                select(Box::pin(self.shared.world.sleep(SOON)), change).await;
            } else if let Some(id) = absent.iter().copied().find(|&id| self.is_out_of_reach(id)) {
                self.complain(id, || self.is_out_of_reach(id)).await;
                self.end_counting();
            } else {
                self.count(CopyChange { passed: absent, complete: Vec::new() }).await;
            }
        }
    }

    /// The complete copies that aren't here, if there are any and this server leads.
    fn absent(&self) -> Option<Vec<DriveId>> {
        let state = self.lock();
        let absent: Vec<DriveId> = state.members.absent().map(|member| member.id).collect();
        (!absent.is_empty() && !state.served.removed).then_some(absent)
    }

    /// Whether a drive is back, as agreed, and will be heard in a moment.
    fn is_coming(&self, id: DriveId) -> bool {
        let since = self.shared.world.now().0.saturating_sub(self.shared.led_since.0);
        since < COMING && self.engine().is_some_and(|engine| engine.is_agreed_back(id))
    }

    /// Whether a drive is up, as agreed, and was never reached from here: nobody may be told that it's passed over.
    fn is_out_of_reach(&self, id: DriveId) -> bool {
        let is_missing = {
            let state = self.lock();
            let at = state.members.position(id).filter(|_| !state.served.removed);
            at.is_some_and(|at| matches!(state.members.list[at].presence, Presence::Missing))
        };
        is_missing && self.engine().is_some_and(|engine| engine.is_agreed_up_elsewhere(id))
    }

    /// One at a time asks for it.
    fn begin_counting(&self) -> bool {
        !std::mem::replace(&mut self.lock().jobs.counting, true)
    }

    fn end_counting(&self) {
        self.lock().jobs.counting = false;
        self.wake();
    }

    /// Has it agreed, if that can be now. The caller has begun to count.
    async fn count(&self, change: CopyChange) {
        let Some(engine) = self.engine() else {
            return std::future::pending().await; // the server has stopped: nothing is agreed or acknowledged any more
        };
        let (map, number) = (self.shared.column.map, self.shared.column.number);
        let since = self.lock().copies_since;
        let agreed = engine.shared.authority.count_copies(map, number, change.clone(), engine.followed()).await;
        match agreed {
            Some(view) => {
                let mut state = self.lock();
                // A state of a later view, followed meanwhile, says what has become of it since.
                if state.copies_since == since {
                    state.members.count(&change, view);
                }
            }
            None => self.shared.world.sleep(SOON).await,
        }
        self.end_counting();
    }

    /// Has it agreed that what stands in for complete copies that have failed is complete.
    pub async fn count_stand_ins(&self) {
        let complete: Vec<DriveId> = self.lock().members.stand_ins().map(|member| member.id).collect();
        if !complete.is_empty() && self.begin_counting() {
            self.count(CopyChange { passed: Vec::new(), complete }).await;
        }
    }

    /// Has it agreed that the copy of a drive that has returned is complete, though something else keeps the drive from being up: another
    /// column of it, of which nobody who knows is here. `opening` tells this return from later ones.
    pub async fn count_returned(self, id: DriveId, opening: u64) {
        let is_awaited = || {
            let state = self.lock();
            let member = state.members.position(id).map(|at| &state.members.list[at]);
            let is_it = |member: &Member<W>| member.opening == opening && member.is_behind();
            !state.served.removed && member.is_some_and(|member| is_it(member) && member.status != CopyStatus::Complete)
        };
        self.shared.world.sleep(UP_SOON).await;
        while is_awaited() {
            if self.knows_what_it_misses(id) && self.begin_counting() {
                self.count(CopyChange { passed: Vec::new(), complete: vec![id] }).await;
                continue;
            }
            let change = Group::next_change(&mut self.lock());
            select(Box::pin(self.shared.world.sleep(UP_SOON)), change).await;
        }
    }

    /// What a state says that is followed from now on, of that view.
    pub fn follow_copies(&self, places: &Places, view: u64) {
        let mut has_changed = false;
        {
            let mut state = self.lock();
            let column = self.shared.column.number;
            state.copies_since = state.copies_since.max(view);
            for member in &mut state.members.list {
                let agreed = places.status(column, member.id);
                // What this server has had agreed since may not be in it yet.
                let is_newer = match member.status {
                    CopyStatus::Complete => true,
                    CopyStatus::PassedOver(known) | CopyStatus::GivenUp(known) => {
                        view > known || agreed != CopyStatus::Complete
                    }
                };
                if is_newer && member.status != agreed {
                    member.status = agreed;
                    has_changed = true;
                }
            }
        }
        if has_changed {
            self.wake();
            self.start_recovery();
        }
    }
}

impl<W: World> super::Members<W> {
    /// Those without which nothing may be written or settled, where somebody is here who knows. Of one that has failed nobody believes
    /// anything any more.
    pub fn absent(&self) -> impl Iterator<Item = &Member<W>> {
        let is_known = self.is_known();
        self.list.iter().filter(move |member| {
            let is_away = matches!(member.presence, Presence::Missing | Presence::Leaving);
            is_known && is_away && !member.joins && member.status == CopyStatus::Complete
        })
    }

    /// Those that stand in and are not agreed to be complete yet.
    pub fn stand_ins(&self) -> impl Iterator<Item = &Member<W>> {
        let stands_in = |member: &&Member<W>| member.stands_in && member.status != CopyStatus::Complete;
        self.list.iter().filter(stands_in).filter(|member| member.drive().is_some())
    }

    fn count(&mut self, change: &CopyChange, view: u64) {
        for member in &mut self.list {
            if change.complete.contains(&member.id) {
                member.status = CopyStatus::Complete;
                member.stands_in = false;
            }
            // One that has come meanwhile takes part, and doesn't count until it's agreed that it's up.
            if change.passed.contains(&member.id) && member.status == CopyStatus::Complete {
                member.status = CopyStatus::PassedOver(view);
            }
        }
    }

    /// It's agreed that a drive is up: its copy is complete, wherever another could tell what it misses.
    pub fn is_up_again(&mut self, at: usize) {
        let tells =
            |member: &Member<W>| member.status == CopyStatus::Complete && !matches!(member.presence, Presence::Failed);
        if self.list.iter().any(tells) {
            self.list[at].status = CopyStatus::Complete;
        }
    }
}
