//! What a process does before it takes part: it has its folder vouched for, and tells that it began.

use crate::command::Command;
use crate::facade::propose::ProposeError;
use crate::format::{EntryId, VoteForm};
use crate::member::Member;
use crate::peers::message::{Answer, Expelled, Request};
use crate::refusal::Refusal;
use openraft::RaftLogReader;
use openraft::storage::RaftLogStorage;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Returns once a majority of the voters has vouched for this folder, this server counted if it votes. All members are
/// asked, and waited for, as the one that knows better may be the slowest, or not have had a vote when the folder was
/// copied.
pub async fn be_vouched_for(member: &Member) {
    while !member.is_expelled() {
        let voters = member.voters();
        let mut others = member.nodes();
        others.extend(voters.iter().flatten());
        others.remove(&member.node);
        let welcomes = match hello(member).await {
            Some(hello) => {
                futures_util::future::join_all(others.iter().map(|node| ask(member, *node, hello.clone()))).await
            }
            None => vec![false; others.len()],
        };
        let mut vouched: BTreeSet<u64> =
            others.iter().zip(welcomes).filter(|(_, welcome)| *welcome).map(|(node, _)| *node).collect();
        vouched.insert(member.node);
        let majority = |set: &BTreeSet<u64>| 2 * set.intersection(&vouched).count() > set.len();
        if !member.is_expelled() && !voters.is_empty() && voters.iter().all(majority) {
            member.vouched.send_replace(true);
            return;
        }
        tokio::time::sleep(member.surroundings.timing.heartbeat).await;
    }
}

async fn ask(member: &Member, node: u64, hello: Request) -> bool {
    let answer = member.call(node, hello, member.patience()).await;
    if let Err(error) = &answer {
        tracing::debug!(node, %error, "it doesn't vouch for this server");
    }
    matches!(answer, Ok(Answer::Welcome))
}

async fn hello(member: &Member) -> Option<Request> {
    let mut log = member.log.clone();
    let vote = log.read_vote().await.ok()?;
    let last = log.get_log_state().await.ok()?.last_log_id;
    Some(Request::Hello { vote: vote.as_ref().map(VoteForm::from), last: last.as_ref().map(EntryId::from) })
}

/// Tells the cluster that a process of this server began, unless it was alone before, and so missed nothing.
pub async fn announce(member: &Arc<Member>) {
    if member.opened_alone {
        return;
    }
    let (id, incarnation) = (member.identity.server, member.identity.incarnation);
    let command = Command::ServerStarted { id, incarnation, boot: member.boot };
    while !member.is_expelled() {
        match member.propose(command.clone()).await {
            Ok(_) => return,
            Err(ProposeError::Refused(Refusal::ServerReplaced(_))) => member.peers.expel(Expelled::Replaced(id)),
            Err(ProposeError::Refused(Refusal::NoServer(_))) => member.peers.expel(Expelled::Removed(id)),
            Err(ProposeError::Refused(Refusal::FolderOld(_) | Refusal::Late)) => {
                member.peers.expel(Expelled::Twin(id));
            }
            Err(ProposeError::Stopped) => return,
            Err(error) => {
                tracing::warn!(%error, "the cluster can't be told yet that this server began");
                tokio::time::sleep(member.surroundings.timing.heartbeat).await;
            }
        }
    }
}

/// Notices when this server was removed, or another folder took its place.
pub async fn notice_removal(member: Arc<Member>) {
    let mut state = member.state.clone();
    loop {
        if let Some(why) = crate::member::void(&state.borrow_and_update(), member.node) {
            member.peers.expel(why);
            return;
        }
        if state.changed().await.is_err() {
            return;
        }
    }
}
