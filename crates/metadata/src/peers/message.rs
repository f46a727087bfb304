//! What servers say to each other about the metadata. The forms are ours, so that they outlive the consensus
//! library's. Once released, a variant or field is never renamed or given another meaning.

use crate::command::Proposal;
use crate::consensus::Answer as Carried;
use crate::format::{EntryForm, EntryId, MembershipForm, VoteForm};
use serde::{Deserialize, Serialize};
use tepal_model::{ClusterId, ServerId};

/// A request, with who asks whom.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Envelope {
    /// Not known to a server that joins whichever cluster it finds.
    pub cluster: Option<ClusterId>,
    /// None of a server that isn't in the cluster yet.
    pub from: Option<Sender>,
    /// The member that is meant; none if any will do.
    pub to: Option<u64>,
    pub request: Request,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sender {
    pub node: u64,
    pub boot: u64,
    /// The random number of the cluster's last rebuild that it knows of.
    #[serde(default, skip_serializing_if = "is_none")]
    pub history: u64,
}

/// No rebuild, as in messages of before there were any.
fn is_none(history: &u64) -> bool {
    *history == 0
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    Append(Append),
    Vote {
        vote: VoteForm,
        last: Option<EntryId>,
        transfer: bool,
        /// Only asks whether it would be granted.
        pre: bool,
    },
    /// A piece of a snapshot, which is the payload.
    Snapshot(Piece),
    TransferLeader {
        vote: VoteForm,
        to: u64,
        last: Option<EntryId>,
    },
    /// Carry this out, if you lead.
    Propose(Proposal),
    /// Renew my lease, if you lead.
    Renew(Renewal),
    /// Tell when nobody acts in a view before this one any more, if you lead.
    Adopted {
        view: u64,
    },
    /// I begin to take part with this vote and log: do you know of anything of mine that they lack?
    Hello {
        vote: Option<VoteForm>,
        last: Option<EntryId>,
    },
    Join(Join),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Append {
    pub vote: VoteForm,
    pub previous: Option<EntryId>,
    pub entries: Vec<EntryForm>,
    pub committed: Option<EntryId>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Piece {
    pub vote: VoteForm,
    /// The last entry that the snapshot holds.
    pub last: Option<EntryId>,
    pub members: MembershipForm,
    pub offset: u64,
    /// Bytes of the whole snapshot.
    pub total: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Renewal {
    pub server: ServerId,
    pub incarnation: u32,
    pub boot: u64,
    /// The view that the server acts in.
    pub adopted: u64,
    /// Whether it holds a lease now, which shows that it gets answers.
    pub holds: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Join {
    /// The cluster's name, if it matters which cluster it is.
    pub name: Option<String>,
    pub folder: u64,
    pub address: String,
    pub claim: Option<ServerId>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    Append(AppendAnswer),
    Vote {
        vote: VoteForm,
        granted: bool,
        last: Option<EntryId>,
    },
    /// Of a snapshot so many bytes are there; all, if it is installed.
    Snapshot {
        vote: VoteForm,
        next: u64,
    },
    TransferLeader {
        accepted: bool,
    },
    Proposed(Proposed),
    Granted {
        view: u64,
        /// The entry that has to be applied before the grant is used.
        index: u64,
        /// For how long, from when the request left.
        length_ms: u64,
    },
    /// The server that asks is down.
    Down {
        view: u64,
    },
    Adopted,
    Welcome,
    Joined(Joined),
    Refused(Reason),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AppendAnswer {
    Success,
    Partial(Option<EntryId>),
    Conflict,
    HigherVote(VoteForm),
}

/// What became of a proposal at the server that was asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Proposed {
    /// With the entry that it was.
    Answered {
        index: u64,
        answer: Carried,
    },
    /// Nothing was done.
    NotLeader {
        leader: Option<u64>,
    },
    /// It may have been carried out, or may yet be.
    Unknown,
    NoRoom {
        lack: String,
        begun: bool,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Joined {
    pub cluster: ClusterId,
    pub name: String,
    pub created_unix_ms: u64,
    /// The random number of the cluster's last rebuild.
    #[serde(default, skip_serializing_if = "is_none")]
    pub history: u64,
    pub server: ServerId,
    pub incarnation: u32,
    /// Who votes now, with their addresses.
    pub voters: Vec<(u64, String)>,
}

/// Why a request isn't answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    #[error("that server is of another cluster, '{name}' ({id})")]
    OtherCluster { id: ClusterId, name: String },
    #[error(
        "that server is of another rebuild of the cluster ({there:x}) than this one ({here:x}): start servers of one of them only, and have \
         the others join it with empty data folders"
    )]
    OtherRebuild { there: u64, here: u64 },
    #[error("that server isn't the one that is meant")]
    NotMe,
    #[error("that server isn't ready: it has only begun")]
    NotReady,
    #[error("that server doesn't lead")]
    NotLeader { leader: Option<u64> },
    #[error("it isn't so yet")]
    NotYet,
    #[error("{0}")]
    Expelled(Expelled),
    #[error("{0}")]
    Command(crate::refusal::Refusal),
    #[error("the request can't be read: {0}")]
    Unreadable(String),
    #[error("that server has stopped: {0}")]
    Stopped(String),
}

/// Why a server can't take part any more with the data folder that it has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum Expelled {
    #[error("server {0} was removed from the cluster: empty its data folder before it joins anew")]
    Removed(ServerId),
    #[error("server {0} has another data folder by now: this one is void; empty it before it joins anew")]
    Replaced(ServerId),
    #[error(
        "another process runs as server {0}, on a copy of its data folder, and only one may; or this folder is an older copy: \
         then empty it and have the server join anew"
    )]
    Twin(ServerId),
    #[error(
        "the data folder of server {0} is an older copy, which lacks what this server had agreed to: empty it and have \
         the server join anew"
    )]
    Forgot(ServerId),
}
