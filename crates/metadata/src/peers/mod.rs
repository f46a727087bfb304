//! How the servers of a cluster reach each other for the metadata. This crate knows no sockets: it's given a
//! [`Transport`], and what comes in is handed to [`crate::Metadata::answer`].
//!
//! ```text
//! network.rs   the consensus library's calls, as messages to a peer   ┐
//! proposals    commands to the leader                                 ├─ message.rs ── frame.rs ── Transport
//! leases, join, vouching                                              ┘
//! answer.rs    what came in, handed to who does it
//! ```

pub mod answer;
pub mod frame;
pub mod message;
pub mod network;
pub mod snapshot;
#[cfg(test)]
mod tests;
pub mod witness;

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;
use tepal_model::{ClusterId, ServerId};

/// The longest message that is sent or taken, in bytes.
pub const MAX_MESSAGE: usize = 4 << 20;

/// Who calls, or answers: a process of a server of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The cluster.
    pub cluster: ClusterId,
    /// Which server of it.
    pub server: ServerId,
    /// Higher at each start of the server, also with another data folder.
    pub run: u64,
}

/// A call under way, and the bytes of its answer.
pub type Calling = Pin<Box<dyn Future<Output = Result<Vec<u8>, TransportError>> + Send>>;

/// Carries a request to another server, and its answer back.
///
/// It may lose, delay, repeat and reorder both; it must not hand the answer of one request to another. Messages have
/// checksums of their own.
pub trait Transport: Send + Sync + 'static {
    /// From now on this server calls as one of a cluster; until then, as one that is in none.
    fn introduce(&self, _caller: Caller) {}

    /// `address` is as the server gave it when it joined. The answer is of use for so long as `within`.
    fn call(&self, address: &str, request: Vec<u8>, within: Duration) -> Calling;
}

/// The server can't be reached, or didn't answer in time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TransportError(pub String);

/// For a server that has no others.
#[derive(Debug)]
pub struct NoTransport;

impl Transport for NoTransport {
    fn call(&self, address: &str, _request: Vec<u8>, _within: Duration) -> Calling {
        let error = TransportError(format!("{address} can't be reached: this server serves alone"));
        Box::pin(std::future::ready(Err(error)))
    }
}
