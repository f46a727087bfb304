//! The leader's task: it grants leases, and declares down whoever fell silent.

use super::Tick;
use super::grants::{Asked, Grants};
use crate::command::{Command, Proposal};
use crate::consensus::{self, LeaderId};
use crate::facade::propose::wall_clock_ms;
use crate::member::{Member, void};
use crate::peers::message::{Answer, Expelled, Reason, Renewal};
use crate::record::ServerState;
use openraft::type_config::async_runtime::watch::WatchReceiver;
use std::sync::Arc;
use std::time::Duration;
use tepal_model::ServerId;

/// One time of leadership.
#[derive(Debug)]
pub struct Leading {
    pub leader: LeaderId,
    pub grants: Grants,
}

impl Member {
    /// What was granted in this time of leadership, which began now if nobody had noticed.
    fn granting<R>(&self, leader: LeaderId, body: impl FnOnce(&mut Grants) -> R) -> R {
        let mut leading = self.leading();
        let mut grants = match leading.take() {
            Some(known) if known.leader == leader => known.grants,
            _ => Grants::new(self.now(), self.longest_term()),
        };
        grants.set_term(self.term(), self.longest_term(), self.now());
        body(&mut leading.insert(Leading { leader, grants }).grants)
    }
}

/// Grants a lease, if this server led when the request arrived or later.
pub async fn renew(member: &Member, renewal: &Renewal, arrived: Tick) -> Result<Answer, Reason> {
    let not_leader = || Reason::NotLeader { leader: member.leader() };
    let within = member.term().length;
    let confirmed = tokio::time::timeout(within, member.confirm(arrived)).await;
    let Ok(Ok(confirmed)) = confirmed else { return Err(not_leader()) };
    if !member.applied(confirmed.index, within).await {
        return Err(Reason::NotYet);
    }
    let state = member.state();
    // Only what is so for good is told as such: this server may itself be one that forgot.
    if let Some(why) = void(&state, consensus::node_id(renewal.server, renewal.incarnation)) {
        return Err(Reason::Expelled(why));
    }
    let known = state.servers.get(&renewal.server);
    let Some(server) = known.filter(|server| server.incarnation == renewal.incarnation) else {
        return Err(Reason::NotYet);
    };
    if renewal.boot < server.boot {
        return Err(Reason::Expelled(Expelled::Twin(renewal.server)));
    }
    if server.state == ServerState::Down {
        return Ok(Answer::Down { view: server.state_view });
    }
    // Who leads hears itself. While it reached no majority it held no lease, and nobody else would declare it down for that.
    let holds = renewal.holds || renewal.server == member.identity.server;
    let asked = Asked { arrived, adopted: renewal.adopted, holds };
    let (id, up_since, view) = (server.id, server.state_view, state.view());
    let granted = member.granting(confirmed.leader, |grants| grants.grant(id, up_since, asked, view));
    match granted {
        Ok(length) => {
            member.granted.send_modify(|count| *count += 1);
            let length_ms = u64::try_from(length.as_millis()).unwrap_or(0);
            Ok(Answer::Granted { view, index: confirmed.index, length_ms })
        }
        Err(_) => Err(Reason::NotYet),
    }
}

/// Whether nobody but `asker` acts in a view before `view` any more; waits a little for that.
pub async fn adopted(member: &Member, asker: u64, view: u64, arrived: Tick) -> Result<Answer, Reason> {
    let mut granted = member.granted.subscribe();
    let asking = async {
        loop {
            granted.mark_unchanged();
            match adopted_now(member, asker, view, arrived).await {
                Err(Reason::NotYet) => {}
                known => return known,
            }
            // Whoever acts by another view asks for a lease at once.
            if granted.changed().await.is_err() {
                return Err(Reason::NotYet);
            }
        }
    };
    tokio::time::timeout(member.surroundings.timing.heartbeat, asking).await.unwrap_or(Err(Reason::NotYet))
}

async fn adopted_now(member: &Member, asker: u64, view: u64, arrived: Tick) -> Result<Answer, Reason> {
    let Ok(confirmed) = member.confirm(arrived).await else {
        return Err(Reason::NotLeader { leader: member.leader() });
    };
    if !member.applied(confirmed.index, member.patience()).await {
        return Err(Reason::NotYet);
    }
    // It led then: what a later leader has granted isn't known here.
    let (state, now) = (member.state(), confirmed.asked);
    let asker = consensus::server_id(asker);
    let up = state.servers.values().filter(|server| server.state == ServerState::Up && Some(server.id) != asker);
    let up: Vec<ServerId> = up.map(|server| server.id).collect();
    let adopted = member.granting(confirmed.leader, |grants| grants.adopted(view, up.into_iter(), now));
    adopted.map(|()| Answer::Adopted).map_err(|_| Reason::NotYet)
}

/// Watches over the others for as long as this server leads them. Sleeps while it doesn't, and while there are none.
pub async fn watch(member: Arc<Member>) {
    let mut metrics = member.raft.server_metrics();
    let mut state = member.state.clone();
    loop {
        let watching = match member.leads() {
            Some(leader) if !member.is_alone() => Some(look(&member, leader).await),
            _ => {
                *member.leading() = None;
                None
            }
        };
        let slept = member.now();
        let nap = async {
            match watching {
                Some(pause) => tokio::time::sleep(pause).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            changed = metrics.changed() => if changed.is_err() { return },
            changed = state.changed() => if changed.is_err() { return },
            () = nap => {}
        }
        // Whoever sleeps longer than he meant can't tell who was silent.
        let late = watching.map(|pause| slept.after(pause).until(member.now())).unwrap_or_default();
        if late > member.surroundings.timing.heartbeat
            && let Some(leading) = &mut *member.leading()
        {
            leading.grants.deaf_until(member.now());
        }
    }
}

/// Declares down whom it may, and says when to look again.
async fn look(member: &Member, leader: LeaderId) -> Duration {
    let longest = member.term().length / 4;
    let confirmed = tokio::time::timeout(longest, member.confirm(member.now())).await;
    let Ok(Ok(confirmed)) = confirmed else {
        // Whom no majority answers is cut off itself, and the silence of the others says nothing of them.
        member.granting(leader, |grants| grants.deaf_until(member.now()));
        return longest;
    };
    // How long leases have lasted is known only then.
    if !member.applied(confirmed.index, longest).await {
        return longest;
    }
    let state = member.state();
    let mut pause = longest;
    for server in state.servers.values() {
        if server.state == ServerState::Down || server.id == member.identity.server {
            continue;
        }
        let now = member.now();
        let declared = member.granting(leader, |grants| grants.declare(server.id, server.state_view, now));
        match declared {
            Err(held) => pause = pause.min(held.left.max(Duration::from_millis(1))),
            Ok(()) => declare(member, leader, server.id, server.state_view).await,
        }
    }
    let (lease, longest) = (state.cluster.lease_ms, state.cluster.longest_lease_ms);
    if let Some(ms) = lease.filter(|_| longest > lease)
        && member.granting(leader, |grants| grants.long_ones_have_ended(member.now()))
    {
        propose(member, leader, Command::EndLongLeases { ms }).await;
    }
    pause
}

/// Asks once, and only for as long as this time of leadership lasts: a later leader may have granted a lease again.
async fn declare(member: &Member, leader: LeaderId, id: ServerId, up_since: u64) {
    let reason = "it has not renewed its lease".to_owned();
    let command = Command::SetServerState { id, to: ServerState::Down, reason, expected_view: Some(up_since) };
    tracing::warn!(server = %id, "declaring it down: it has not renewed its lease");
    propose(member, leader, command).await;
}

async fn propose(member: &Member, leader: LeaderId, command: Command) {
    let what = format!("{command:?}");
    let proposal = Proposal::new(wall_clock_ms(), None, command);
    if let Err(error) = member.raft.write(proposal).with_leader(leader).await {
        tracing::warn!(%error, what, "what leases say couldn't be agreed on");
    }
}
