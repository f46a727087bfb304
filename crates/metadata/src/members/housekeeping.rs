//! The leader's task that makes the members what they should be.

use super::plan::{Candidate, Present, Step, next_step};
use crate::consensus;
use crate::leases::Tick;
use crate::leases::held::Lease;
use crate::member::Member;
use crate::record::ServerState;
use openraft::ChangeMembers;
use openraft::impls::BasicNode;
use openraft::type_config::async_runtime::watch::WatchReceiver;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tepal_model::ServerId;

/// Whoever lacks more entries than this isn't given a vote: the cluster would wait for it.
const NEARLY: u64 = 200;

pub async fn keep_house(member: Arc<Member>) {
    let mut metrics = member.raft.server_metrics();
    let mut state = member.state.clone();
    let mut down_since = BTreeMap::new();
    loop {
        let leads = member.leads().is_some();
        let others = !member.is_alone() || state.borrow_and_update().servers.len() > 1;
        if leads && others {
            note_down(&member, &mut down_since);
            if let Some(step) = next(&member, &down_since) {
                take(&member, step).await;
            }
        } else {
            down_since.clear();
        }
        let nap = async {
            match leads && others {
                // What is caught up, and who is gone, shows only by looking.
                true => tokio::time::sleep(member.surroundings.timing.heartbeat * 2).await,
                false => std::future::pending().await,
            }
        };
        let changed = tokio::select! {
            changed = metrics.changed() => changed.is_ok(),
            changed = state.changed() => changed.is_ok(),
            () = nap => true,
        };
        if !changed {
            return;
        }
    }
}

fn note_down(member: &Member, down_since: &mut BTreeMap<ServerId, Tick>) {
    let (state, now) = (member.state(), member.now());
    let is_down = |id: &ServerId| state.servers.get(id).is_some_and(|server| server.state == ServerState::Down);
    down_since.retain(|id, _| is_down(id));
    for id in state.servers.keys().filter(|id| is_down(id)) {
        down_since.entry(*id).or_insert(now);
    }
}

fn next(member: &Member, down_since: &BTreeMap<ServerId, Tick>) -> Option<Step> {
    let metrics = member.raft.metrics();
    let metrics = metrics.borrow_watched();
    let now = member.now();
    let has_nearly_all = |node: u64| {
        let has = metrics.replication.as_ref().and_then(|all| all.get(&node)).and_then(|last| last.as_ref());
        let all = metrics.last_log_index.unwrap_or(0);
        has.is_some_and(|last| all.saturating_sub(last.index) <= NEARLY)
    };
    let state = member.state();
    let candidate = |server: &Arc<crate::record::ServerRecord>| {
        let node = consensus::node_id(server.id, server.incarnation);
        let since = down_since.get(&server.id);
        let ready = server.state == ServerState::Up && (node == member.node || has_nearly_all(node));
        let gone = since.is_some_and(|since| since.until(now) >= member.surroundings.timing.gone_after);
        Candidate { node, address: server.address.clone(), ready, gone }
    };
    let candidates: Vec<Candidate> = state.servers.values().map(candidate).collect();
    let membership = metrics.membership_config.membership();
    let present = Present {
        nodes: membership.nodes().map(|(node, _)| *node).collect(),
        voters: membership.get_joint_config().clone(),
    };
    let step = next_step(&candidates, &present, member.node)?;
    // While this server may serve for ever, nobody may be able to lead in its place.
    if matches!(step, Step::Vote(_)) && *member.lease.borrow() == Lease::Alone {
        return None;
    }
    Some(step)
}

async fn take(member: &Member, step: Step) {
    tracing::info!(?step, "the members of the consensus change");
    let changes = match step {
        Step::Add(nodes) => {
            ChangeMembers::AddNodes(nodes.into_iter().map(|(node, addr)| (node, BasicNode { addr })).collect())
        }
        Step::Vote(voters) => ChangeMembers::ReplaceAllVoters(voters),
        Step::Remove(nodes) => ChangeMembers::RemoveNodes(nodes.into_iter().collect::<BTreeSet<u64>>()),
    };
    // Who ceases to vote stays a member, until it's found that it shouldn't be one.
    let changing = member.raft.change_membership(changes, true);
    match tokio::time::timeout(member.patience() * 5, changing).await {
        Ok(Ok(_)) => {}
        Ok(Err(error)) => tracing::warn!(%error, "the members couldn't be changed; that is tried again"),
        Err(_) => tracing::warn!("the change of members takes long; it's looked at again"),
    }
}
