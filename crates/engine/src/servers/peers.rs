//! Other servers, as the engine is given them.

use crate::authority::View;
use futures_util::FutureExt;
use futures_util::future::{LocalBoxFuture, ready};
use tepal_model::ServerId;
use tepal_wire::Payload;
use tepal_wire::message::{Answer, Request};

/// How other servers are asked.
pub trait Peers: Send + Sync + 'static {
    /// What is asked of one server about drives arrives there in the order of these calls, whether or not their futures are polled;
    /// so does what is asked about volumes, which goes with its future: dropped before it was sent, it isn't, as whoever wanted it may have
    /// done something newer elsewhere by then. All is carried out at most once, through any number of connections. The answer may take as
    /// long as that server is away; about drives, it's given up if that isn't agreed soon.
    fn ask(&self, server: ServerId, question: Question) -> LocalBoxFuture<'static, Result<Reply, Unreachable>>;
}

/// A request to another server.
#[derive(Clone, Debug)]
pub struct Question {
    /// In which view it's asked.
    pub view: View,
    /// Of a volume: by which revision of its record; 0 if that doesn't matter.
    pub revision: u64,
    /// What to do.
    pub request: Request,
    /// Its data.
    pub payload: Payload,
}

/// What became of it.
#[derive(Clone, Debug)]
pub struct Reply {
    /// What became of it.
    pub answer: Answer,
    /// Its data.
    pub payload: Payload,
    /// Of a read from a drive: how many others the drive has under way, of everybody.
    pub load: u16,
}

impl From<Answer> for Reply {
    fn from(answer: Answer) -> Self {
        Reply { answer, payload: Payload::none(), load: 0 }
    }
}

/// The server will not answer: it's down as agreed, or was started again, or can't be reached from here, or this one is being stopped.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Unreachable {
    /// For people.
    pub reason: String,
    /// Whether what was asked may have been carried out: it was sent.
    pub was_sent: bool,
    /// That server is up, as agreed: it's the way there that is cut.
    pub is_cut_off: bool,
}

impl Unreachable {
    /// Nobody has heard what was asked.
    pub fn unsent(reason: impl Into<String>) -> Self {
        Unreachable { reason: reason.into(), was_sent: false, is_cut_off: false }
    }
}

/// There are no others.
pub struct Alone;

impl Peers for Alone {
    fn ask(&self, server: ServerId, _: Question) -> LocalBoxFuture<'static, Result<Reply, Unreachable>> {
        ready(Err(Unreachable::unsent(format!("server {server} isn't known: this one is alone")))).boxed_local()
    }
}
