//! Commands on their way to the leader, and what came of them.

use crate::command::{Command, Proposal, Proposer, Reply};
use crate::consensus::{self, LeaderId, Types};
use crate::facade::Cause;
use crate::leases::keeper;
use crate::member::{Confirmed, Member};
use crate::peers::message::{Answer, Proposed, Request};
use crate::record::ServerState;
use crate::refusal::Refusal;
use openraft::errors::{ClientWriteError, Fatal};
use openraft::impls::ProgressResponder;
use openraft::type_config::async_runtime::watch::WatchReceiver;
use std::collections::BTreeSet;
use std::pin::pin;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tepal_model::ServerId;

/// Why a command wasn't carried out, or can't be known to have been.
#[derive(Debug, thiserror::Error)]
pub enum ProposeError {
    /// Fix the request: nothing was changed.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// Ask again a little later: nothing was changed, and nothing of it comes later.
    #[error(
        "server {from} reaches no majority of the servers that vote ({}), so nothing was changed: bring them back, or their network, or ask \
         another server",
        .voters.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
    )]
    NoMajority {
        /// Which server was asked.
        from: ServerId,
        /// As far as is known there.
        voters: BTreeSet<ServerId>,
    },
    /// Look at the state, then ask again if need be: no leader answered any more while the command was under way.
    #[error(
        "no answer came, perhaps because no majority of the servers that vote is reached: whether the command was done isn't known, and it \
         may still be done; look once a majority is there"
    )]
    Unknown,
    /// Free some space. If the command has begun, it's carried out then.
    #[error("the cluster's state can't be written: {lack}: free some space there{}", if *.begun { BEGUN } else { "" })]
    NoRoom {
        /// Which file can't be written, and why.
        lack: String,
        /// Whether the command is in the log already.
        begun: bool,
    },
    /// Open it again: the server is stopping. Whether the command was carried out shows then.
    #[error("the server is stopping")]
    Stopped,
    /// Call an operator: the cluster goes on without this server, or without the data folder that it has.
    #[error("this server is no part of the cluster any more: {0}")]
    Expelled(String),
    /// Call an operator: the state can't be kept here any more. Whether the command was carried out shows after a
    /// restart.
    #[error("the cluster's state can't be stored: {0}")]
    Storage(Cause),
}

impl ProposeError {
    /// Whether it was certainly not carried out, and never will be.
    pub fn is_final(&self) -> bool {
        use ProposeError::{Expelled, NoMajority, NoRoom, Refused, Stopped, Storage, Unknown};
        match self {
            Refused(_) | NoMajority { .. } | NoRoom { begun: false, .. } => true,
            NoRoom { begun: true, .. } | Unknown | Stopped | Expelled(_) | Storage(_) => false,
        }
    }
}

const BEGUN: &str = ", then see whether this was carried out";
/// The longest command, as JSON, in bytes.
pub const MAX_COMMAND: usize = 64 << 10;
/// How long a command may wait for room before its proposer is told.
const ROOM_WITHIN: Duration = Duration::from_secs(3);
/// How long a command that has reached no log waits for a leader that has a majority: longer than it takes to elect one.
const LED_WITHIN: Duration = Duration::from_secs(10);
/// How long the outcome of a command is waited for that may be in a log.
const WITHIN: Duration = Duration::from_secs(30);

tokio::task_local! {
    /// Who asks for what this task proposes.
    static ASKED_BY: String;
}

/// Has the events of all commands that `asking` proposes say who asked for them.
pub async fn asked_by<F: Future>(who: String, asking: F) -> F::Output {
    ASKED_BY.scope(who, asking).await
}

impl Member {
    /// Asks whoever leads, and again whoever leads then, until there is an answer. The number that the proposal has
    /// makes that it's carried out once.
    pub async fn propose(&self, command: Command) -> Result<Reply, ProposeError> {
        Box::pin(self.propose_patiently(command, false)).await
    }

    /// The same, of a server that is in touch with the others, and so no command of which waits in a network for long. Before it is, or
    /// while it isn't any more, nothing is sent: that would still arrive when nobody wants it.
    pub async fn propose_in_touch(&self, command: Command) -> Result<Reply, ProposeError> {
        Box::pin(self.propose_patiently(command, true)).await
    }

    async fn propose_patiently(&self, command: Command, only_in_touch: bool) -> Result<Reply, ProposeError> {
        let bytes = serde_json::to_vec(&command).map_or(usize::MAX, |text| text.len());
        if bytes > MAX_COMMAND {
            return Err(Refusal::TooLong { bytes, limit: MAX_COMMAND }.into());
        }
        if let Some(lack) = self.lack_of_room() {
            return Err(ProposeError::NoRoom { lack, begun: false });
        }
        let ticket = self.proposals.begin().await;
        let mut proposal = Proposal::new(wall_clock_ms(), Some(ticket.from), command);
        proposal.who = ASKED_BY.try_with(String::clone).ok();
        let asked = Instant::now();
        // Whether it may have reached a log.
        let mut begun = false;
        while asked.elapsed() < if begun { WITHIN } else { LED_WITHIN } {
            self.check_running().await?;
            let led_by = self.leader();
            let leader = led_by.filter(|_| !only_in_touch || self.is_in_touch());
            let up_since = self.record().map(|record| record.state_view);
            proposal.from = Some(Proposer { up_since, ..ticket.from });
            let proposed = match leader {
                None => Proposed::NotLeader { leader: None },
                Some(leader) if leader == self.node => self.attempt_patiently(proposal.clone(), asked + WITHIN).await?,
                Some(leader) => self.forward(leader, proposal.clone()).await,
            };
            match proposed {
                Proposed::Answered { index, answer } => return self.shown(index, answer, asked).await,
                Proposed::NotLeader { .. } => self.other_leader(led_by).await,
                Proposed::Unknown => {
                    begun = true;
                    self.other_leader(led_by).await;
                }
                Proposed::NoRoom { lack, begun: now } => {
                    return Err(ProposeError::NoRoom { lack, begun: begun || now });
                }
            }
        }
        if begun { Err(ProposeError::Unknown) } else { Err(self.no_majority()) }
    }

    fn no_majority(&self) -> ProposeError {
        let voters = self.voters().into_iter().flatten().filter_map(consensus::server_id).collect();
        ProposeError::NoMajority { from: self.identity.server, voters }
    }

    /// Returns once this server reaches a majority of those that vote; if that takes too long, with what [`Self::propose_in_touch`]
    /// would say.
    pub async fn get_in_touch(&self) -> Result<(), ProposeError> {
        let asked = Instant::now();
        while !self.is_in_touch() {
            self.check_running().await?;
            if asked.elapsed() >= LED_WITHIN {
                return Err(self.no_majority());
            }
            tokio::time::sleep(self.surroundings.timing.heartbeat / 4).await;
        }
        Ok(())
    }

    /// Returns once all that was agreed before this was called shows in the state here; if that takes too long, with what
    /// [`Self::propose_in_touch`] would say.
    pub async fn catch_up(&self) -> Result<(), ProposeError> {
        let asked = Instant::now();
        // What a majority confirms to whoever leads is no earlier than this, and a lease is used once that is here.
        while !self.is_alone() && !keeper::renew(self).await {
            self.check_running().await?;
            if asked.elapsed() >= LED_WITHIN {
                return Err(self.no_majority());
            }
            tokio::time::sleep(self.surroundings.timing.heartbeat / 4).await;
        }
        Ok(())
    }

    /// Whether whoever leads has heard this server lately, or has it down and waits for it to come back.
    fn is_in_touch(&self) -> bool {
        let lease = *self.lease.borrow();
        let is_down = self.record().is_some_and(|record| record.state == ServerState::Down);
        is_down || lease.allows(u64::MAX, self.now())
    }

    async fn check_running(&self) -> Result<(), ProposeError> {
        if let Some(why) = &*self.peers.expelled.borrow() {
            return Err(ProposeError::Expelled(why.to_string()));
        }
        match self.raft.is_initialized().await {
            Ok(_) => Ok(()),
            Err(Fatal::Stopped) => Err(ProposeError::Stopped),
            Err(error) => Err(ProposeError::Storage(error.into())),
        }
    }

    /// Returns a little later, or as soon as another server leads.
    async fn other_leader(&self, leader: Option<u64>) {
        let mut metrics = self.raft.server_metrics();
        let change = async { while self.leader() == leader && metrics.changed().await.is_ok() {} };
        let _ = tokio::time::timeout(self.surroundings.timing.heartbeat, change).await;
    }

    /// What was answered, once it shows here.
    async fn shown(&self, index: u64, answer: consensus::Answer, asked: Instant) -> Result<Reply, ProposeError> {
        if !self.applied(index, WITHIN.saturating_sub(asked.elapsed())).await {
            return Err(ProposeError::Unknown);
        }
        Ok(answer?)
    }

    async fn forward(&self, leader: u64, proposal: Proposal) -> Proposed {
        // Longer than the other one takes to find out that it leads no more, and to wait for a majority.
        match self.call(leader, Request::Propose(proposal), self.patience() * 3).await {
            Ok(Answer::Proposed(proposed)) => proposed,
            Err(crate::peers::network::CallError::Refused(_)) => Proposed::NotLeader { leader: None },
            Ok(_) | Err(_) => Proposed::Unknown,
        }
    }

    /// Nothing gets into the log of a server that has been deposed without knowing: a majority confirms first that it leads. What is in
    /// such a log can't be called back, and is done later if that server happens to lead again.
    async fn confirm_soon(&self) -> Option<Confirmed> {
        tokio::time::timeout(self.patience(), self.confirm(self.now())).await.ok()?.ok()
    }

    /// Here, for as long as this server leads and has room.
    async fn attempt_patiently(&self, proposal: Proposal, until: Instant) -> Result<Proposed, ProposeError> {
        let Some(confirmed) = self.confirm_soon().await else { return Ok(Proposed::NotLeader { leader: None }) };
        let mut attempt = pin!(self.write(proposal, Some(confirmed.leader)));
        let patience = if self.is_alone() { ROOM_WITHIN } else { self.patience() };
        loop {
            if let Ok(written) = tokio::time::timeout(patience, attempt.as_mut()).await {
                return written;
            }
            if let Some(lack) = self.lack_of_room() {
                return Ok(Proposed::NoRoom { lack, begun: true });
            }
            if self.leader() != Some(self.node) || Instant::now() >= until {
                return Ok(Proposed::Unknown);
            }
        }
    }

    /// Here, if this server leads. What was long on its way isn't carried out: its proposer has been declared down meanwhile, as it wasn't
    /// heard, and has long told its client that nothing came of it.
    pub async fn attempt_here(&self, proposal: Proposal) -> Proposed {
        if let Some(lack) = self.lack_of_room() {
            return Proposed::NoRoom { lack, begun: false };
        }
        let Some(confirmed) = self.confirm_soon().await else { return Proposed::NotLeader { leader: None } };
        if !self.applied(confirmed.index, self.patience()).await || self.is_outdated(&proposal) {
            return Proposed::NotLeader { leader: Some(self.node) };
        }
        let writing = self.write(proposal, Some(confirmed.leader));
        match tokio::time::timeout(self.patience(), writing).await {
            Ok(written) => written.unwrap_or(Proposed::Unknown),
            Err(_) => Proposed::Unknown,
        }
    }

    /// Whether its proposer came into another state than it knew when it sent it.
    fn is_outdated(&self, proposal: &Proposal) -> bool {
        let Some(Proposer { server, up_since: Some(up_since), .. }) = proposal.from else { return false };
        self.state().servers.get(&server).is_some_and(|server| server.state_view != up_since)
    }

    /// A cluster's first command.
    pub async fn set_up(&self, proposal: Proposal) -> Result<(), ProposeError> {
        match self.write(proposal, None).await? {
            Proposed::Answered { answer, .. } => Ok(answer.map(drop)?),
            _ => Err(self.no_majority()),
        }
    }

    /// If this server still leads in that time of leadership, or in whichever.
    async fn write(&self, proposal: Proposal, leader: Option<LeaderId>) -> Result<Proposed, ProposeError> {
        let (responder, written) = ProgressResponder::<Types, _>::complete_only();
        let mut request = self.raft.write(proposal).responder(responder);
        if let Some(leader) = leader {
            request = request.with_leader(leader);
        }
        match request.await {
            Ok(()) => {}
            Err(Fatal::Stopped) => return Err(ProposeError::Stopped),
            Err(error) => return Err(ProposeError::Storage(error.into())),
        }
        match written.await {
            Ok(Ok(written)) => Ok(Proposed::Answered { index: written.log_id.index, answer: written.data }),
            Ok(Err(ClientWriteError::ForwardToLeader(forward))) => {
                Ok(Proposed::NotLeader { leader: forward.leader_id })
            }
            Ok(Err(ClientWriteError::LogEntryDiscarded(_))) => Ok(Proposed::Unknown),
            Ok(Err(error)) => Err(ProposeError::Storage(error.into())),
            // The core has ended.
            Err(_) => self.check_running().await.map(|()| Proposed::Unknown),
        }
    }
}

/// Only written down for people, never decided upon.
pub fn wall_clock_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
