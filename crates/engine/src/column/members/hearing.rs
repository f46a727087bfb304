//! Hearing drives of other servers: what they know counts from then on, and nobody else's requests do.

use super::Presence;
use super::join::UNREACHED;
use crate::column::Group;
use crate::engine::Standing;
use crate::holder::Holder;
use crate::servers::remote::{Link, Remote, Unheard};
use futures_util::future::select;
use std::time::Duration;
use tepal_drive::DriveError;
use tepal_drive::world::World;
use tepal_model::{DriveId, ServerId};

/// How long to wait for a server that doesn't know yet who is primary.
const AGAIN: Duration = Duration::from_millis(50);

/// A drive that joins and isn't reached for so long is done without.
const PATIENCE: Duration = Duration::from_secs(30);

/// How often a primary says again that a drive knows what it misses.
const VOUCH_AGAIN: Duration = Duration::from_millis(500);

impl<W: World> Group<W> {
    /// Asks a drive that is up, or has returned and isn't yet, what it knows.
    pub fn start_hearing(&self, id: DriveId, server: ServerId, mut standing: Standing) {
        let coming = {
            let mut state = self.lock();
            let Some(at) = state.members.position(id) else { return };
            let member = &mut state.members.list[at];
            // Nobody waits for one that joins.
            standing = if member.joins { Standing::Behind(0) } else { standing };
            member.set_left(standing.left());
            member.opening += 1;
            member.presence = if standing == Standing::Current { Presence::Unheard } else { Presence::Missing };
            state.changes += 1;
            state.members.list[at].opening
        };
        let Some(engine) = self.engine() else { return };
        let (peers, map, column) = (engine.shared.peers.clone(), self.shared.column.map, self.shared.column.number);
        let (view, deposed) = (self.shared.view, self.shared.deposed.clone());
        let link = Link { peers, server, drive: id, map, column, view, deposed };
        let group = self.clone();
        self.shared.world.spawn(Box::pin(async move { group.hear_remote(link, coming, standing).await }));
    }

    async fn hear_remote(self, link: Link, coming: u64, standing: Standing) {
        let (id, since) = (link.drive, self.shared.world.now());
        let joins = self.lock().members.list.iter().position(|member| member.joins && member.id == id);
        while self.awaits(id, coming) {
            match Remote::hear(link.clone()).await {
                Ok(remote) => {
                    if self.awaits(id, coming) {
                        self.member_returned(&Holder::There(remote), standing);
                        if joins.is_none() && self.engine().is_some_and(|engine| engine.is_agreed_up(id)) {
                            self.remote_is_current(id); // since it was asked
                        }
                        self.vouch(id, coming + 1).await;
                    }
                    return;
                }
                Err(Unheard::NotYet) => self.shared.world.sleep(AGAIN).await,
                Err(Unheard::NotPrimary) => {
                    self.shared.world.sleep(AGAIN).await;
                    self.lead_anew();
                }
                // It's known that it misses something: nobody's writes wait for it.
                Err(Unheard::CutOff(_)) if standing != Standing::Current => {
                    self.shared.world.sleep(AGAIN).await;
                    // All others may reach its server: then somebody else gets what it was to get.
                    let is_late = self.shared.world.now().0.saturating_sub(since.0) >= PATIENCE;
                    if let Some(at) = joins.filter(|_| is_late && self.awaits(id, coming)) {
                        return self.give_up_joining(at, UNREACHED);
                    }
                }
                Err(Unheard::CutOff(loss)) => {
                    if self.complain(id, || self.awaits(id, coming)).await
                        && let Some(engine) = self.engine()
                    {
                        return engine.lose_drive(id, loss).await;
                    }
                }
                Err(Unheard::Lost(loss)) => {
                    let engine = self.engine().filter(|_| self.awaits(id, coming));
                    let Some(engine) = engine else { return };
                    return engine.lose_drive(id, loss).await;
                }
            }
        }
    }

    /// Says again what is known of a drive that has returned, until it's agreed that it's up: its server may not have heard it.
    async fn vouch(&self, id: DriveId, opening: u64) {
        let is_behind = || {
            let state = self.lock();
            let member = state.members.list.iter().find(|member| member.id == id);
            !state.served.removed && member.is_some_and(|member| member.opening == opening && member.is_behind())
        };
        while is_behind() {
            self.shared.world.sleep(VOUCH_AGAIN).await;
            self.tell_noted();
        }
    }

    /// Others say that this server isn't the primary. If a later state says that it is, it must begin again.
    fn lead_anew(&self) {
        if let Some(engine) = self.engine().filter(|engine| engine.followed() > self.shared.view) {
            engine.lead_anew(self);
        }
    }

    /// Waits until nobody is served any more: a drive's server says that somebody else is the primary.
    pub async fn until_deposed(&self) {
        loop {
            let change = {
                let mut state = self.lock();
                if state.served.removed {
                    return;
                }
                Group::next_change(&mut state)
            };
            select(Box::pin(self.shared.world.sleep(AGAIN)), change).await;
            self.lead_anew();
        }
    }

    /// Whether this is still the time of coming that is to be heard.
    fn awaits(&self, id: DriveId, coming: u64) -> bool {
        let state = self.lock();
        let member = state.members.list.iter().find(|member| member.id == id);
        let is_awaited = member.is_some_and(|member| {
            member.opening == coming && matches!(member.presence, Presence::Unheard | Presence::Missing)
        });
        is_awaited && !state.served.removed
    }

    /// It's agreed that a drive of another server is up again.
    pub fn remote_is_current(&self, id: DriveId) {
        {
            let mut state = self.lock();
            let Some(at) = state.members.position(id) else { return };
            if let Presence::Here(Holder::There(_)) = state.members.list[at].presence {
                state.members.list[at].set_left(None);
                state.members.is_up_again(at);
            }
        }
        self.wake();
    }

    /// Tells the servers of drives that have returned that they know what they miss.
    pub fn tell_noted(&self) {
        let Some(view) = self.engine().map(|engine| engine.followed()) else { return };
        let behind: Vec<Remote> = {
            let state = self.lock();
            if state.served.removed {
                return; // another has heard less by now
            }
            let behind = state.members.list.iter().filter(|member| member.is_behind());
            let there = behind.filter_map(|member| match member.drive() {
                Some(Holder::There(remote)) => Some(remote.clone()),
                _ => None,
            });
            there.collect()
        };
        for remote in behind.into_iter().filter(|remote| self.knows_what_it_misses(remote.id())) {
            let group = self.clone();
            self.shared.world.spawn(Box::pin(async move {
                if let Err(DriveError::Lost(loss)) = remote.noted(view).await {
                    group.lose(vec![(remote.id(), loss)]).await; // nobody else may have anything to ask it
                }
            }));
        }
    }
}
