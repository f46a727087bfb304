//! A drive takes another's place among the copies of a column.
//!
//! It's agreed that the drive joins, and the group is opened anew with the drive as one more member. The drive gets all
//! writes from then on, and is brought up to date like a returned drive. When it has everything, that is agreed too,
//! and the group is opened anew with the drive in the other's place. Invariants:
//! 1. Until then nothing depends on the joining drive: its copy counts for no acknowledgement, and its word for
//!    nothing. The column's next primary compares everything again.
//! 2. When it's agreed that the drive has its place, every acknowledged write is on the drive, and its log says all
//!    that is known of what others miss. For what was found in one view is agreed only in that view, and no drive
//!    leaves without a new view.
//! 3. Clients' writes don't fail when the joining drive has no room or isn't reached: the writes wait until it's agreed
//!    that the drive doesn't join any more.

use super::{Member, Presence};
use crate::column::background::Stuck;
use crate::column::{Group, State};
use std::collections::BTreeSet;
use std::time::Duration;
use tepal_drive::world::World;

/// The pause after a failed agreement: by then a newer state is followed.
const AGREE_SOON: Duration = Duration::from_millis(50);

/// Why a drive can't have the place that it was to take.
pub const NO_ROOM: &str = "it has no room";
pub const UNREACHED: &str = "its server isn't reached";

impl<W: World> Group<W> {
    /// Finds the regions in which a joining drive may miss something, or have something that it shouldn't. The drive
    /// has been getting all writes, so in all other regions its copy is as good as any.
    pub async fn list(&self, at: usize) -> Result<(), Stuck> {
        let changes = {
            let mut state = self.lock();
            if !state.members.show_all_that_is_held() {
                return Err(Stuck::Waits(Group::next_change(&mut state)));
            }
            state.changes
        };
        let held = self.extents(true).await.map_err(Stuck::Failed)?;
        let mut state = self.lock();
        // A drive that came or went meanwhile may not have been asked.
        if state.changes == changes && state.members.list[at].missed.is_unlisted() {
            let column = &self.shared.column;
            let held = held.into_iter().map(|first| column.region_of(first));
            // In regions that the drives here miss, others may have something.
            let missed = state.members.list.iter().flat_map(|member| member.missed.regions());
            let regions: BTreeSet<u64> = held.chain(missed).collect();
            state.members.list[at].missed.list(regions);
        }
        Ok(())
    }

    /// Has it agreed that a joining drive has everything, until that is agreed or not true any more.
    pub fn tell_joined(&self) {
        let Some(joins) = self.shared.placed.joins else { return };
        {
            let mut state = self.lock();
            if state.jobs.telling_joined || !state.has_joined() {
                return;
            }
            state.jobs.telling_joined = true;
        }
        let group = self.clone();
        self.shared.world.spawn(Box::pin(async move {
            while group.still_has_joined() {
                let Some(engine) = group.engine() else { return };
                // The view is looked up before the check: the check counts for this view.
                let view = engine.followed();
                if group.lock().has_joined() {
                    let (map, number) = (group.shared.column.map, group.shared.column.number);
                    if engine.shared.authority.joined(map, number, joins, view).await {
                        return; // the group ends when the agreement is followed
                    }
                }
                group.shared.world.sleep(AGREE_SOON).await;
            }
        }));
    }

    fn still_has_joined(&self) -> bool {
        let mut state = self.lock();
        state.jobs.telling_joined = state.has_joined();
        state.jobs.telling_joined
    }

    /// Gives up a joining drive that has no room or isn't reached. No write goes on without the drive before it's
    /// agreed that it doesn't join: an agreement that it has its place may be under way. When the agreement is
    /// followed, the group ends.
    pub fn give_up_joining(&self, at: usize, reason: &'static str) {
        let Some(joins) = self.shared.placed.joins else { return };
        {
            let mut state = self.lock();
            let member = &mut state.members.list[at];
            if matches!(member.presence, Presence::Leaving) {
                return;
            }
            member.presence = Presence::Leaving;
            member.begin_anew();
            member.opening += 1;
            state.changes += 1;
        }
        let (map, number, group) = (self.shared.column.map, self.shared.column.number, self.clone());
        tracing::warn!(drive = %joins.drive, map = map.0, column = number, reason, "a drive doesn't take copies that it was to take");
        self.shared.world.spawn(Box::pin(async move {
            while group.lock().serves().is_ok() {
                let Some(engine) = group.engine() else { return };
                if engine.shared.authority.cannot_join(map, number, joins).await {
                    return;
                }
                group.shared.world.sleep(AGREE_SOON).await;
            }
        }));
    }
}

impl<W: World> State<W> {
    /// Whether a joining drive has everything.
    fn has_joined(&self) -> bool {
        let Some(joins) = self.members.list.iter().find(|member| member.joins()) else { return false };
        let has_all = joins.drive().is_some() && joins.noted && joins.missed.is_empty();
        let is_leaving = |member: &Member<W>| matches!(member.presence, Presence::Leaving | Presence::Unheard);
        let is_settled = self.unsure.regions.is_empty() && self.members.is_known() && self.has_listed_given_up();
        has_all && is_settled && !self.members.list.iter().any(is_leaving) && !self.served.removed
    }
}
