//! Which copies are complete: what is agreed, and what this primary has had agreed.
//!
//! Invariants:
//! 1. While a complete copy is absent, nothing is written, no mark is made of an absent copy, and no difference is
//!    resolved. First it's agreed that the copy is passed over. So everything that was ever acknowledged or read is on
//!    every complete copy.
//! 2. The agreement is reached only in the view by which this server leads: of two servers that take themselves for the
//!    primary, one is heard.
//! 3. A column without writes passes no copy over: any of its copies that returns serves.

use super::{Member, Presence};
use crate::column::Group;
use crate::places::{CopyChange, CopyStatus, Places};
use futures_util::future::select;
use std::time::Duration;
use tepal_drive::world::World;
use tepal_model::DriveId;

/// The pause after a failed agreement: by then a newer state is followed. Also how often to look for a copy that is
/// coming.
const SOON: Duration = Duration::from_millis(20);

/// For so long after this server began to lead, copies that are known to be back are waited for rather than passed
/// over.
const COMING: Duration = Duration::from_secs(2);

/// After so long, a returned drive that knows what it misses, in all columns, is up.
const UP_SOON: Duration = Duration::from_secs(3);

impl<W: World> Group<W> {
    /// Returns once no complete copy is absent, or nobody is served any more; or once too few complete ones are here to go on without the
    /// absent ones.
    pub async fn pass_over_absent(&self) {
        self.pass_over_absent_while(|| true).await;
    }

    /// The same, for as long as `matters` is true.
    pub async fn pass_over_absent_while(&self, matters: impl Fn() -> bool) {
        while matters()
            && let Some(absent) = self.absent()
        {
            if !self.lock().members.may_go_on() {
                return; // nothing may be changed before more members are complete and here
            }
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

    /// The complete copies that are absent, if there are any and this server leads.
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

    /// Whether a drive is up, as agreed, and was never reached from here: nobody may be told that such a drive is
    /// passed over.
    fn is_out_of_reach(&self, id: DriveId) -> bool {
        let is_missing = {
            let state = self.lock();
            let at = state.members.position(id).filter(|_| !state.served.removed);
            at.is_some_and(|at| matches!(state.members.list[at].presence, Presence::Missing))
        };
        is_missing && self.engine().is_some_and(|engine| engine.is_agreed_up_elsewhere(id))
    }

    /// Whether the caller may ask for an agreement: one task at a time does.
    fn begin_counting(&self) -> bool {
        !std::mem::replace(&mut self.lock().jobs.counting, true)
    }

    fn end_counting(&self) {
        self.lock().jobs.counting = false;
        self.wake();
    }

    /// Has a change agreed, if that is possible now. The caller has begun to count.
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
                // A state of a later view, followed meanwhile, says what has become of the change since.
                if state.copies_since == since {
                    state.members.count(&change, view);
                }
            }
            None => self.shared.world.sleep(SOON).await,
        }
        self.end_counting();
    }

    /// Has it agreed that the stand-ins for failed complete copies are complete.
    pub async fn count_stand_ins(&self) {
        let complete: Vec<DriveId> = self.lock().members.stand_ins().map(|member| member.id).collect();
        if !complete.is_empty() && self.begin_counting() {
            self.count(CopyChange { passed: Vec::new(), complete }).await;
        }
    }

    /// Has it agreed that a returned drive's copy is complete, though another column keeps the drive from being up: a
    /// column of which no drive that knows is here. `opening` tells this return from later ones.
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

    /// Follows the copies' status in a state of that view.
    pub fn follow_copies(&self, places: &Places, view: u64) {
        let mut has_changed = false;
        {
            let mut state = self.lock();
            let column = self.shared.column.number;
            state.copies_since = state.copies_since.max(view);
            for member in &mut state.members.list {
                let agreed = places.status(column, member.id);
                // The state may not have everything yet that this server has had agreed since.
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
    /// The complete copies without which nothing may be written or resolved. None of them matters where no drive is
    /// here that knows. A failed drive isn't among them: nobody believes it any more.
    pub fn absent(&self) -> impl Iterator<Item = &Member<W>> {
        let is_known = self.is_known();
        self.list.iter().filter(move |member| {
            let is_away = matches!(member.presence, Presence::Missing | Presence::Leaving);
            is_known && is_away && !member.joins() && member.status == CopyStatus::Complete
        })
    }

    /// Whether as many complete members are here as are needed to read: then others may be passed over.
    pub fn may_go_on(&self) -> bool {
        let is_complete =
            |member: &&Member<W>| member.drive().is_some() && member.status == CopyStatus::Complete && !member.joins();
        self.needed == 1 || self.list.iter().filter(is_complete).count() >= self.needed
    }

    /// The stand-ins that are not agreed to be complete yet.
    pub fn stand_ins(&self) -> impl Iterator<Item = &Member<W>> {
        let stands_in = |member: &&Member<W>| member.stands_in() && member.status != CopyStatus::Complete;
        self.list.iter().filter(stands_in).filter(|member| member.drive().is_some())
    }

    fn count(&mut self, change: &CopyChange, view: u64) {
        for member in &mut self.list {
            if change.complete.contains(&member.id) {
                member.is_complete();
            }
            // A passed-over copy whose drive has come meanwhile takes part, and doesn't count until it's agreed that
            // the drive is up.
            if change.passed.contains(&member.id) && member.status == CopyStatus::Complete {
                member.status = CopyStatus::PassedOver(view);
            }
        }
    }

    /// It's agreed that a drive is up: its copy is complete, wherever another copy could tell what it misses.
    pub fn is_up_again(&mut self, at: usize) {
        let tells =
            |member: &Member<W>| member.status == CopyStatus::Complete && !matches!(member.presence, Presence::Failed);
        if self.list.iter().any(tells) {
            self.list[at].status = CopyStatus::Complete;
        }
    }
}
