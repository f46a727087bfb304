//! What other servers ask: checked here, then handed to who does it. Nothing that comes in is trusted to be well-formed.

use super::frame;
use super::message::{Answer, Append, AppendAnswer, Envelope, Expelled, Piece, Reason, Request, Sender};
use super::snapshot::Arrived;
use crate::command::{Proposal, VERSION};
use crate::consensus::{self, Entry, Vote};
use crate::facade::propose::MAX_COMMAND;
use crate::format::{EntryForm, EntryId, PayloadForm, VoteForm};
use crate::leases::{Tick, watchman};
use crate::member::{Member, void};
use crate::members::join;
use openraft::raft::{AppendEntriesRequest, AppendEntriesResponse, TransferLeaderRequest, VoteRequest};
use openraft::type_config::alias::SnapshotOf;
use openraft::type_config::async_runtime::watch::WatchReceiver;

/// `from` is where it came from, for the log.
pub async fn answer(member: &Member, from: &str, bytes: &[u8]) -> Vec<u8> {
    let arrived = member.now();
    let answered = match frame::decode::<Envelope>(bytes) {
        Err(error) => Err(Reason::Unreadable(error.to_string())),
        Ok((envelope, payload)) => match admit(member, &envelope) {
            Err(reason) => Err(reason),
            Ok(()) => hand_over(member, envelope, payload, arrived).await,
        },
    };
    let answer = answered.unwrap_or_else(|reason| {
        if !matches!(reason, Reason::NotReady | Reason::NotLeader { .. } | Reason::NotYet) {
            tracing::debug!(from, %reason, "a request is refused");
        }
        Answer::Refused(reason)
    });
    frame::encode(&answer, &[])
}

fn admit(member: &Member, envelope: &Envelope) -> Result<(), Reason> {
    let joins = matches!(envelope.request, Request::Join(_));
    let identity = &member.identity;
    if envelope.cluster != Some(identity.cluster) && !(joins && envelope.cluster.is_none()) {
        return Err(Reason::OtherCluster { id: identity.cluster, name: identity.name.clone() });
    }
    // Neither is told to stop: which of both goes on is for people to say.
    if let Some(sender) = envelope.from.filter(|sender| sender.history != identity.history) {
        return Err(Reason::OtherRebuild { there: identity.history, here: sender.history });
    }
    if envelope.to.is_some_and(|to| to != member.node) {
        return Err(Reason::NotMe);
    }
    if let Some(why) = &*member.peers.expelled.borrow() {
        return Err(Reason::Stopped(why.to_string()));
    }
    let Some(sender) = &envelope.from else {
        return if joins { Ok(()) } else { Err(Reason::Unreadable("it doesn't say who sent it".to_owned())) };
    };
    let Some(server) = consensus::server_id(sender.node) else {
        return Err(Reason::Unreadable("its sender is no server".to_owned()));
    };
    let state = member.state();
    if let Some(why) = void(&state, sender.node) {
        return Err(Reason::Expelled(why));
    }
    if member.is_alone() && state.is_set_up() && server.0 >= state.counters.server {
        // The others have long been a cluster with this server, of which this folder knows nothing.
        let why = Expelled::Forgot(identity.server);
        member.peers.expel(why.clone());
        return Err(Reason::Stopped(why.to_string()));
    }
    if let Request::Hello { vote, last } = &envelope.request {
        member.peers.witness.vouches(sender.node, server, vote.as_ref(), *last).map_err(Reason::Expelled)?;
    }
    member.peers.witness.note_speaking(sender, server).map_err(Reason::Expelled)
}

async fn hand_over(member: &Member, envelope: Envelope, payload: &[u8], arrived: Tick) -> Result<Answer, Reason> {
    let sender = envelope.from;
    let consensus = || match sender {
        Some(sender) if *member.vouched.borrow() => Ok(sender),
        _ => Err(Reason::NotReady),
    };
    match envelope.request {
        Request::Append(append) => self::append(member, consensus()?, append).await,
        Request::Vote { vote, last, transfer, pre } => {
            self::vote(member, consensus()?, vote, last, transfer, pre).await
        }
        Request::Snapshot(piece) => snapshot(member, consensus()?, piece, payload).await,
        Request::TransferLeader { vote, to, last } => {
            consensus()?;
            let request = TransferLeaderRequest::new(vote.into(), to, last.map(Into::into));
            let accepted = member.raft.handle_transfer_leader(request).await.map_err(stopped)?;
            Ok(Answer::TransferLeader { accepted: accepted.is_ok() })
        }
        Request::Propose(proposal) => {
            check_proposal(&proposal, consensus()?)?;
            Ok(Answer::Proposed(member.attempt_here(proposal).await))
        }
        Request::Renew(renewal) => watchman::renew(member, &renewal, arrived).await,
        Request::Adopted { view } => watchman::adopted(member, consensus()?.node, view, arrived).await,
        Request::Hello { .. } if member.state.borrow().is_set_up() => Ok(Answer::Welcome),
        Request::Hello { .. } => Err(Reason::NotReady),
        Request::Join(join) => join::answer(member, join).await,
    }
}

fn stopped(error: impl ToString) -> Reason {
    Reason::Stopped(error.to_string())
}

/// The leader whom `vote` names must be the one who sent it.
fn check_leader(sender: Sender, vote: &VoteForm) -> Result<Vote, Reason> {
    if vote.node != sender.node || !vote.committed {
        return Err(Reason::Unreadable("it isn't from the leader that it names".to_owned()));
    }
    Ok((*vote).into())
}

async fn append(member: &Member, sender: Sender, append: Append) -> Result<Answer, Reason> {
    let vote = check_leader(sender, &append.vote)?;
    member.peers.witness.voted(sender.node, &append.vote);
    let entries = entries(append.previous, append.entries)?;
    let request = AppendEntriesRequest {
        vote,
        prev_log_id: append.previous.map(Into::into),
        entries,
        leader_commit: append.committed.map(Into::into),
    };
    let response = member.raft.append_entries(request).await.map_err(stopped)?;
    Ok(Answer::Append(match response {
        AppendEntriesResponse::Success => AppendAnswer::Success,
        AppendEntriesResponse::PartialSuccess(last) => AppendAnswer::Partial(last.as_ref().map(EntryId::from)),
        AppendEntriesResponse::Conflict => AppendAnswer::Conflict,
        AppendEntriesResponse::HigherVote(vote) => AppendAnswer::HigherVote((&vote).into()),
    }))
}

/// Entries that follow each other, and that this build can carry out.
fn entries(previous: Option<EntryId>, forms: Vec<EntryForm>) -> Result<Vec<Entry>, Reason> {
    let mut last = previous;
    let mut entries = Vec::with_capacity(forms.len());
    for form in forms {
        let follows = match last {
            None => form.id.index == 0,
            Some(last) => last.index.checked_add(1) == Some(form.id.index) && form.id.term >= last.term,
        };
        if !follows {
            return Err(Reason::Unreadable("its entries don't follow each other".to_owned()));
        }
        if let PayloadForm::Command(proposal) = &form.payload
            && proposal.version > VERSION
        {
            return Err(Reason::Unreadable(format!("it has a command of the newer version {}", proposal.version)));
        }
        last = Some(form.id);
        entries.push(form.into_entry().map_err(|error| Reason::Unreadable(error.to_string()))?);
    }
    Ok(entries)
}

async fn vote(
    member: &Member,
    sender: Sender,
    vote: VoteForm,
    last: Option<EntryId>,
    transfer: bool,
    pre: bool,
) -> Result<Answer, Reason> {
    if vote.node != sender.node || vote.committed {
        return Err(Reason::Unreadable("it asks for no vote of its sender's".to_owned()));
    }
    let request = VoteRequest { vote: vote.into(), last_log_id: last.map(Into::into), leadership_transfer: transfer };
    let response = if pre {
        member.raft.pre_vote(request).await
    } else {
        member.peers.witness.voted(sender.node, &vote);
        member.raft.vote(request).await
    };
    let response = response.map_err(stopped)?;
    let last = response.last_log_id.as_ref().map(EntryId::from);
    Ok(Answer::Vote { vote: (&response.vote).into(), granted: response.vote_granted, last })
}

async fn snapshot(member: &Member, sender: Sender, piece: Piece, bytes: &[u8]) -> Result<Answer, Reason> {
    let vote = check_leader(sender, &piece.vote)?;
    let total = piece.total;
    let mut arriving = member.arriving.lock().await;
    let ours = member.raft.metrics().borrow_watched().vote;
    if ours > vote {
        return Ok(Answer::Snapshot { vote: (&ours).into(), next: 0 });
    }
    match arriving.take(piece, bytes).await.map_err(stopped)? {
        Arrived::Wanted(next) => Ok(Answer::Snapshot { vote: (&vote).into(), next }),
        Arrived::Whole(meta, snapshot) => {
            let snapshot = SnapshotOf::<consensus::Types, _> { meta, snapshot };
            let response = member.raft.install_full_snapshot(vote, snapshot).await.map_err(stopped)?;
            Ok(Answer::Snapshot { vote: (&response.vote).into(), next: total })
        }
    }
}

fn check_proposal(proposal: &Proposal, sender: Sender) -> Result<(), Reason> {
    let from = proposal.from.map(|from| consensus::node_id(from.server, from.incarnation));
    if from != Some(sender.node) {
        return Err(Reason::Unreadable("it isn't of the one who proposes it".to_owned()));
    }
    let bytes = serde_json::to_vec(&proposal.command).map_or(usize::MAX, |json| json.len());
    if proposal.version > VERSION || bytes > MAX_COMMAND {
        return Err(Reason::Unreadable("this build can't carry it out".to_owned()));
    }
    Ok(())
}
