//! Hearing drives of other servers: from then on a drive's knowledge counts, and the drive heeds no other primary.

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

/// How long to wait for a server that doesn't know the primary yet.
const AGAIN: Duration = Duration::from_millis(50);

/// A joining drive that isn't reached for so long is done without.
const PATIENCE: Duration = Duration::from_secs(30);

/// How often a primary says again that a drive knows what it misses.
const VOUCH_AGAIN: Duration = Duration::from_millis(500);

impl<W: World> Group<W> {
    /// Asks a drive what it knows, be it up, or returned and not up yet.
    pub fn start_hearing(&self, id: DriveId, server: ServerId, mut standing: Standing) {
        let coming = {
            let mut state = self.lock();
            let Some(at) = state.members.position(id) else { return };
            let member = &mut state.members.list[at];
            // Nobody waits for a joining drive.
            standing = if member.joins() { Standing::Behind(0) } else { standing };
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
        let joins = self.lock().members.list.iter().position(|member| member.joins() && member.id == id);
        while self.awaits(id, coming) {
            match Remote::hear(link.clone()).await {
                Ok(remote) => {
                    if self.awaits(id, coming) {
                        self.member_returned(&Holder::There(remote), standing);
                        if joins.is_none() && self.engine().is_some_and(|engine| engine.is_agreed_up(id)) {
                            self.remote_is_current(id); // agreed since the drive was asked
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
                // The drive is known to miss something: no write waits for it.
                Err(Unheard::CutOff(_)) if standing != Standing::Current => {
                    self.shared.world.sleep(AGAIN).await;
                    // All other servers may reach the drive's server. So after a while another drive is to join
                    // instead.
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

    /// Repeats what is known of a returned drive, until it's agreed that the drive is up: its server may not have heard
    /// it before.
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

    /// Other servers say that this one isn't the primary. If a later state says that it is, this server must begin to
    /// lead anew.
    fn lead_anew(&self) {
        if let Some(engine) = self.engine().filter(|engine| engine.followed() > self.shared.view) {
            engine.lead_anew(self);
        }
    }

    /// Waits until nobody is served any more: a drive's server says that another server is the primary.
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

    /// Whether this coming of the drive is still the one to be heard.
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

    /// Tells the servers of returned drives that the drives know what they miss.
    pub fn tell_noted(&self) {
        let Some(view) = self.engine().map(|engine| engine.followed()) else { return };
        let behind: Vec<Remote> = {
            let state = self.lock();
            if state.served.removed {
                return; // another primary has heard less by now
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
                    group.lose(vec![(remote.id(), loss)]).await; // no other task may have anything to ask the drive
                }
            }));
        }
    }
}
