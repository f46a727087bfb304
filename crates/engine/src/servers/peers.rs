//! Other servers, as the engine is given them.

use crate::view::View;
use futures_util::FutureExt;
use futures_util::future::{LocalBoxFuture, ready};
use tepal_model::ServerId;
use tepal_wire::Payload;
use tepal_wire::message::{Answer, Request};

/// The way to ask other servers.
pub trait Peers: Send + Sync + 'static {
    /// Questions to one server about drives arrive there in the order of these calls, whether or not their futures are
    /// polled. So do questions about volumes, but these go with their futures: a question whose future is dropped
    /// before it was sent isn't sent, as its asker may have done something newer elsewhere by then. Each question is
    /// carried out at most once, through any number of connections. The answer may take as long as that server is away;
    /// a question about drives is given up if the server's absence isn't agreed soon.
    fn ask(&self, server: ServerId, question: Question) -> LocalBoxFuture<'static, Result<Reply, Unreachable>>;
}

/// A request to another server.
#[derive(Clone, Debug)]
pub struct Question {
    /// The view in which it's asked.
    pub view: View,
    /// For a volume, the revision of its record by which it's asked; 0 if that doesn't matter.
    pub revision: u64,
    /// What to do.
    pub request: Request,
    /// The request's data.
    pub payload: Payload,
}

/// The outcome of a question.
#[derive(Clone, Debug)]
pub struct Reply {
    /// The answer.
    pub answer: Answer,
    /// The answer's data.
    pub payload: Payload,
    /// For a read from a drive: how many other reads the drive has under way, of all askers.
    pub load: u16,
}

impl From<Answer> for Reply {
    fn from(answer: Answer) -> Self {
        Reply { answer, payload: Payload::none(), load: 0 }
    }
}

/// The server will not answer: it's down as agreed, or was started again, or can't be reached from here, or this server
/// is being stopped.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Unreachable {
    /// The reason, for people.
    pub reason: String,
    /// Whether the question was sent, and so may have been carried out.
    pub was_sent: bool,
    /// Whether that server is up, as agreed: then the way there is cut.
    pub is_cut_off: bool,
}

impl Unreachable {
    /// The question has reached nobody.
    pub fn unsent(reason: impl Into<String>) -> Self {
        Unreachable { reason: reason.into(), was_sent: false, is_cut_off: false }
    }
}

/// For a server without others.
pub struct Alone;

impl Peers for Alone {
    fn ask(&self, server: ServerId, _: Question) -> LocalBoxFuture<'static, Result<Reply, Unreachable>> {
        ready(Err(Unreachable::unsent(format!("server {server} isn't known: this one is alone")))).boxed_local()
    }
}
