//! The holder's task: it renews this server's lease with whoever leads.

use super::held::Lease;
use super::{Tick, watchman};
use crate::member::Member;
use crate::peers::message::{Answer, Reason, Renewal, Request};
use crate::peers::network::CallError;
use crate::record::ServerState;
use openraft::type_config::async_runtime::watch::WatchReceiver;
use std::sync::Arc;
use std::time::Duration;

/// Keeps the lease for as long as this server takes part. While it's alone there is nothing to renew.
pub async fn keep(member: Arc<Member>) {
    let mut metrics = member.raft.server_metrics();
    let mut state = member.state.clone();
    let mut expelled = member.peers.expelled.subscribe();
    let mut acts_by = member.acts_by.subscribe();
    // When the next renewal is due, and whom the last one asked.
    let (mut due, mut asked) = (Tick::default(), None);
    loop {
        let standing = standing(&member);
        if standing.is_none() && (member.now() >= due || asked != member.leader()) {
            asked = member.leader();
            let heartbeat = member.surroundings.timing.heartbeat;
            let pause = if renew(&member).await { member.term().length / 4 } else { heartbeat };
            due = member.now().after(pause);
        }
        if let Some(lease) = standing {
            member.lease.send_if_modified(|known| std::mem::replace(known, lease) != lease);
        }
        let nap = async {
            match standing {
                None => tokio::time::sleep(member.now().until(due)).await,
                Some(_) => std::future::pending().await,
            }
        };
        let changed = tokio::select! {
            changed = metrics.changed() => changed.is_ok(),
            changed = state.changed() => changed.is_ok(),
            changed = expelled.changed() => changed.is_ok(),
            changed = acts_by.changed() => {
                due = Tick::default(); // others may wait for this server to act by what is agreed
                changed.is_ok()
            }
            () = nap => true,
        };
        if !changed {
            return;
        }
    }
}

/// What this server may do if that needs nobody's word; none if it has to renew.
fn standing(member: &Member) -> Option<Lease> {
    if member.is_expelled() {
        return Some(Lease::None);
    }
    if member.is_alone() {
        return Some(Lease::Alone);
    }
    match member.record() {
        None => Some(Lease::None),
        // This process has yet to tell that it began.
        Some(record) if record.boot != member.boot && !member.opened_alone => Some(Lease::None),
        Some(record) if record.state == ServerState::Down => Some(Lease::Down { view: record.state_view }),
        Some(_) => None,
    }
}

/// Asks the leader, and uses what it grants once its view is here, and all that was agreed before it was asked. Whether it granted
/// anything.
pub async fn renew(member: &Member) -> bool {
    let Some(leader) = member.leader() else { return false };
    let length = member.term().length;
    let identity = &member.identity;
    let (server, incarnation) = (identity.server, identity.incarnation);
    let sent = member.now();
    let adopted = member.adopted();
    // Who doesn't follow what is agreed holds none, whatever was granted: another should serve.
    let holds = member.lease.borrow().allows(adopted, sent);
    let renewal = Renewal { server, incarnation, boot: member.boot, adopted, holds };
    let answer = if leader == member.node {
        watchman::renew(member, &renewal, sent).await.map_err(CallError::Refused)
    } else {
        member.call(leader, Request::Renew(renewal), length / 2).await
    };
    let (view, index, granted) = match answer {
        Ok(Answer::Granted { view, index, length_ms }) => (view, index, Duration::from_millis(length_ms)),
        Err(CallError::Refused(Reason::Expelled(why))) => {
            member.peers.expel(why);
            return false;
        }
        _ => return false,
    };
    if !member.applied(index, length).await {
        return false;
    }
    let is_known = member.state.clone().wait_for(|state| state.view() >= view).await.is_ok();
    let up = member.record().is_some_and(|record| record.state == ServerState::Up);
    if !is_known || !up {
        return false;
    }
    let grant = Lease::from_grant(sent, granted, view);
    member.lease.send_modify(|lease| *lease = lease.renewed(grant));
    true
}

/// Asks whoever leads, until no other server acts in a view before this one any more.
pub async fn adopted_by_all(member: &Member, view: u64) {
    loop {
        let answer = match member.leader() {
            _ if member.is_alone() => return,
            Some(leader) if leader == member.node => {
                watchman::adopted(member, member.node, view, member.now()).await.ok()
            }
            Some(leader) => member.call(leader, Request::Adopted { view }, member.patience()).await.ok(),
            None => None,
        };
        if answer == Some(Answer::Adopted) {
            return;
        }
        tokio::time::sleep(member.surroundings.timing.heartbeat / 4).await;
    }
}
