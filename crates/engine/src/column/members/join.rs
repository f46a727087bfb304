//! A drive takes another's place among the copies of a column.
//!
//! That it joins is agreed, and the group is opened anew with it as one more member. It gets all that is written from then on, and is
//! brought up to date as one is that returns. When it has everything, this is agreed too, and the group is opened anew with
//! it in the other's place. Invariants:
//! 1. Until then nothing depends on it: its copy counts for no acknowledgement, and its word for nothing. Whoever serves the
//!    column next compares everything again.
//! 2. When it's agreed that it has its place, every write that was acknowledged is on it, and its log says all that is known of
//!    what others miss. For what was found in one view is agreed only in that view, and no drive leaves without a new one.
//! 3. Clients' writes don't fail when it has no room or isn't reached: they wait until it's agreed that it doesn't join any more.

use super::{Member, Presence};
use crate::column::background::Stuck;
use crate::column::{Group, State};
use std::collections::BTreeSet;
use std::time::Duration;
use tepal_drive::world::World;

/// After it could not be agreed: by then a newer state is followed.
const AGREE_SOON: Duration = Duration::from_millis(50);

/// Why a drive can't have the place that it was to take.
pub const NO_ROOM: &str = "it has no room";
pub const UNREACHED: &str = "its server isn't reached";

impl<W: World> Group<W> {
    /// Finds out in which regions there's anything that a drive that joins may miss, or has and shouldn't. It has been getting all that
    /// is written, so in all others it's as good as any.
    pub async fn list(&self, at: usize) -> Result<(), Stuck> {
        let changes = {
            let mut state = self.lock();
            if state.members.has_unheard() || !state.members.is_known() {
                return Err(Stuck::Waits(Group::next_change(&mut state)));
            }
            state.changes
        };
        let held = self.extents(true).await.map_err(Stuck::Failed)?;
        let mut state = self.lock();
        // One that came or went meanwhile may not have been asked.
        if state.changes == changes && state.members.list[at].missed.is_unlisted() {
            let column = &self.shared.column;
            let held = held.into_iter().map(|first| column.region_of(first));
            // Of what is missed by those that are here, others may have something.
            let missed = state.members.list.iter().flat_map(|member| member.missed.regions());
            let regions: BTreeSet<u64> = held.chain(missed).collect();
            state.members.list[at].missed.list(regions);
        }
        Ok(())
    }

    /// If a drive that joins has everything: has that agreed, until it is or isn't so any more.
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
                // Looked up before it's looked at again: what is found counts for this view.
                let view = engine.followed();
                if group.lock().has_joined() {
                    let (map, number) = (group.shared.column.map, group.shared.column.number);
                    if engine.shared.authority.joined(map, number, joins, view).await {
                        return; // the group ends when that is followed
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

    /// A drive that joins can't have its place, as it has no room or isn't reached. Nobody goes on without it before it's agreed that
    /// it doesn't join, for it may just be agreed that it has its place. When that is followed, the group ends.
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
    /// Whether a drive joins and has everything.
    fn has_joined(&self) -> bool {
        let Some(joins) = self.members.list.iter().find(|member| member.joins) else { return false };
        let has_all = joins.drive().is_some() && joins.noted && joins.missed.is_empty();
        let is_leaving = |member: &Member<W>| matches!(member.presence, Presence::Leaving | Presence::Unheard);
        let is_settled = self.unsure.regions.is_empty() && self.members.is_known();
        has_all && is_settled && !self.members.list.iter().any(is_leaving) && !self.served.removed
    }
}
