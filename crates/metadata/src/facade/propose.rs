//! Commands on their way to the leader, and what came of them.

use crate::command::{Command, Proposal, Reply};
use crate::consensus;
use crate::facade::Cause;
use crate::member::Member;
use crate::peers::message::{Answer, Proposed, Request};
use crate::refusal::Refusal;
use openraft::errors::{ClientWriteError, Fatal, RaftError};
use openraft::type_config::async_runtime::watch::WatchReceiver;
use std::pin::pin;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tepal_model::ServerId;

/// Why a command wasn't carried out, or can't be known to have been.
#[derive(Debug, thiserror::Error)]
pub enum ProposeError {
    /// Fix the request: nothing was changed.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// Ask again a little later: nothing was changed.
    #[error("no leader is found{}", leader.map(|id| format!(": {id} doesn't answer")).unwrap_or_default())]
    NoLeader {
        /// Who leads, as far as is known here.
        leader: Option<ServerId>,
    },
    /// Look at the state, then ask again if need be: no leader answered any more while the command was under way.
    #[error(
        "no answer came any more, perhaps as no majority of the servers that vote can be reached: whether the command was carried out must be looked up"
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
        use ProposeError::{Expelled, NoLeader, NoRoom, Refused, Stopped, Storage, Unknown};
        match self {
            Refused(_) | NoLeader { .. } | NoRoom { begun: false, .. } => true,
            NoRoom { begun: true, .. } | Unknown | Stopped | Expelled(_) | Storage(_) => false,
        }
    }
}

const BEGUN: &str = ", then see whether this was carried out";
/// The longest command, as JSON, in bytes.
pub const MAX_COMMAND: usize = 64 << 10;
/// How long a command may wait for room before its proposer is told.
const ROOM_WITHIN: Duration = Duration::from_secs(3);
/// How long a leader that can carry out a command is waited for.
const WITHIN: Duration = Duration::from_secs(30);

impl Member {
    /// Asks whoever leads, and again whoever leads then, until there is an answer. The number that the proposal has
    /// makes that it's carried out once.
    pub async fn propose(&self, command: Command) -> Result<Reply, ProposeError> {
        let bytes = serde_json::to_vec(&command).map_or(usize::MAX, |text| text.len());
        if bytes > MAX_COMMAND {
            return Err(Refusal::TooLong { bytes, limit: MAX_COMMAND }.into());
        }
        if let Some(lack) = self.lack_of_room() {
            return Err(ProposeError::NoRoom { lack, begun: false });
        }
        let ticket = self.proposals.begin().await;
        let from = Some(ticket.from);
        let proposal = Proposal::new(wall_clock_ms(), from, command);
        let asked = Instant::now();
        // Whether it may have reached a log.
        let mut begun = false;
        while asked.elapsed() < WITHIN {
            self.check_running().await?;
            let leader = self.leader();
            let proposed = match leader {
                None => Proposed::NotLeader { leader: None },
                Some(leader) if leader == self.node => self.attempt_patiently(proposal.clone()).await?,
                Some(leader) => self.forward(leader, proposal.clone()).await,
            };
            match proposed {
                Proposed::Answered { index, answer } => return self.shown(index, answer, asked).await,
                Proposed::NotLeader { .. } => self.other_leader(leader).await,
                Proposed::Unknown => {
                    begun = true;
                    self.other_leader(leader).await;
                }
                Proposed::NoRoom { lack, begun: now } => {
                    return Err(ProposeError::NoRoom { lack, begun: begun || now });
                }
            }
        }
        if begun { Err(ProposeError::Unknown) } else { Err(self.no_leader()) }
    }

    fn no_leader(&self) -> ProposeError {
        ProposeError::NoLeader { leader: self.leader().and_then(consensus::server_id) }
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
        match self.call(leader, Request::Propose(proposal), self.patience() * 2).await {
            Ok(Answer::Proposed(proposed)) => proposed,
            Err(crate::peers::network::CallError::Refused(_)) => Proposed::NotLeader { leader: None },
            Ok(_) | Err(_) => Proposed::Unknown,
        }
    }

    /// Here, for as long as this server leads and has room.
    async fn attempt_patiently(&self, proposal: Proposal) -> Result<Proposed, ProposeError> {
        let mut attempt = pin!(self.write(proposal));
        let patience = if self.is_alone() { ROOM_WITHIN } else { self.patience() };
        loop {
            if let Ok(written) = tokio::time::timeout(patience, attempt.as_mut()).await {
                return written;
            }
            if let Some(lack) = self.lack_of_room() {
                return Ok(Proposed::NoRoom { lack, begun: true });
            }
            if self.leader() != Some(self.node) {
                return Ok(Proposed::Unknown);
            }
        }
    }

    /// Here, if this server leads.
    pub async fn attempt_here(&self, proposal: Proposal) -> Proposed {
        if let Some(lack) = self.lack_of_room() {
            return Proposed::NoRoom { lack, begun: false };
        }
        self.write(proposal).await.unwrap_or(Proposed::Unknown)
    }

    /// A cluster's first command.
    pub async fn set_up(&self, proposal: Proposal) -> Result<(), ProposeError> {
        match self.write(proposal).await? {
            Proposed::Answered { answer, .. } => Ok(answer.map(drop)?),
            _ => Err(self.no_leader()),
        }
    }

    async fn write(&self, proposal: Proposal) -> Result<Proposed, ProposeError> {
        match self.raft.client_write(proposal).await {
            Ok(written) => Ok(Proposed::Answered { index: written.log_id.index, answer: written.data }),
            Err(RaftError::APIError(ClientWriteError::ForwardToLeader(forward))) => {
                Ok(Proposed::NotLeader { leader: forward.leader_id })
            }
            Err(RaftError::APIError(ClientWriteError::LogEntryDiscarded(_))) => Ok(Proposed::Unknown),
            Err(RaftError::APIError(error)) => Err(ProposeError::Storage(error.into())),
            Err(RaftError::Fatal(Fatal::Stopped)) => Err(ProposeError::Stopped),
            Err(RaftError::Fatal(error)) => Err(ProposeError::Storage(error.into())),
        }
    }
}

/// Only written down for people, never decided upon.
pub fn wall_clock_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
