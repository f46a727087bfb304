//! How the servers of a cluster reach each other: a port where this one is asked, and a connection to each of the others.
//!
//! ```text
//! Metadata, API --> PeerLinks --- one connection a server, many calls at once ---> Port --> who answers
//! ```
//!
//! They speak the protocol of [`tepal_wire`]. Each connection begins with its handshake, which refuses other clusters and
//! versions; then the caller sends requests of the metadata and of the API, of which each is answered once.
//!
//! Invariants:
//! 1. The answer to a call goes to that call or to nobody: calls are numbered, and all bytes have checksums.
//! 2. What a peer can make this server hold is bounded: connections, calls at once, and bytes of each.
//! 3. A peer that doesn't answer holds up its own callers only, each for as long as it's willing to wait.
//!
//! A call is sent once: what is asked again, or answered too late, is for those above to tell apart. So there is no session that
//! goes on over connections.

mod links;
mod port;
#[cfg(test)]
mod tests;

pub use links::PeerLinks;
pub use port::{Answering, OpenPort, Port};

use crate::connection::LONGEST;
use std::sync::Arc;
use std::time::Duration;
use tepal_metadata::{Caller, Clock, Surroundings, Tick};

// What the metadata sends must arrive.
const _: () = assert!(tepal_metadata::MAX_MESSAGE <= LONGEST);

/// Who a call is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// The metadata, see [`tepal_metadata::Transport`].
    Metadata,
    /// The admin API: a request that another server was asked, see `api::relay`.
    Api,
}

/// What the metadata is given of the world.
pub fn surroundings(links: Arc<PeerLinks>) -> Surroundings {
    Surroundings::new(links, boot_clock())
}

/// Time since the machine started, in which it also grows older while it sleeps. The monotonic clock stands still then, and
/// a lease would outlive the sleep.
fn boot_clock() -> Clock {
    Arc::new(|| {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        Tick(Duration::new(u64::try_from(now.tv_sec).unwrap_or(0), u32::try_from(now.tv_nsec).unwrap_or(0)))
    })
}

impl tepal_metadata::Transport for PeerLinks {
    fn call(&self, address: &str, request: Vec<u8>, within: Duration) -> tepal_metadata::Calling {
        Box::pin(PeerLinks::call(self, address, None, Subject::Metadata, request, within))
    }

    fn introduce(&self, caller: Caller) {
        PeerLinks::introduce(self, caller);
    }
}
