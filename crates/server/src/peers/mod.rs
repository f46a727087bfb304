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
mod refusals;
mod socket;
mod stream;
#[cfg(test)]
mod tests;

pub use links::PeerLinks;
pub use port::{Answering, OpenPort, Port};
pub use refusals::Refusals;
pub use socket::Socket;
pub use stream::Incoming;

use std::io;
use std::sync::Arc;
use std::time::Duration;
use stream::{Ended, Outgoing};
use tepal_metadata::{Caller, Clock, Surroundings, Tick};
use tepal_wire::Header;
use tepal_wire::handshake::{CallError, Calling, Hello, Welcome};
use tepal_wire::message::MAX_OPAQUE;

/// The longest body of a call or an answer, in bytes.
pub const LONGEST: usize = MAX_OPAQUE as usize;
/// A server is connected and has welcomed this one within that time, or it isn't there.
pub const CONNECT: Duration = Duration::from_secs(2);
/// Between attempts to connect: this, then twice as long each time, up to the other.
pub const FIRST_PAUSE: Duration = Duration::from_millis(20);
pub const LONGEST_PAUSE: Duration = Duration::from_millis(500);
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

/// Why a server isn't reached.
#[derive(Debug, thiserror::Error)]
pub enum NotReached {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("it doesn't answer")]
    Late,
    #[error("what answers is no Tepal server, or can't be understood: {0}")]
    Ended(#[from] Ended),
    #[error(transparent)]
    Refused(#[from] CallError),
}

/// Connects, and waits for the welcome.
pub async fn call(address: &str, hello: Hello) -> Result<(Incoming, Outgoing, Welcome), NotReached> {
    let calling = async {
        let (mut incoming, mut outgoing) = Incoming::new(Socket::connect(address).await?).split();
        outgoing.push(&Header { session: hello.epoch, ..Header::default() }, &hello, Vec::new());
        outgoing.send().await?;
        let calling = Calling::new(hello);
        let welcome = incoming.frame(|frame| calling.hear(&frame)).await??;
        Ok((incoming, outgoing, welcome))
    };
    tokio::time::timeout(CONNECT, calling).await.unwrap_or(Err(NotReached::Late))
}
