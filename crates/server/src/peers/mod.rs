//! How the servers of a cluster reach each other: a port where this one is asked, and a connection to each of the others.
//!
//! ```text
//! Metadata, API --> Links --- one connection a server, many calls at once ---> Port --> who answers
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
mod stream;
#[cfg(test)]
mod tests;

pub use links::Links;
pub use port::{Answering, OpenPort, Port};

use rustix::net::sockopt::set_tcp_user_timeout;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tepal_gateway::nbd::Accepted;
use tepal_metadata::{Caller, Calling, Clock, Surroundings, Tick};
use tepal_wire::message::MAX_OPAQUE;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

/// The longest body of a call or an answer, in bytes.
pub const LONGEST: usize = MAX_OPAQUE as usize;
/// In milliseconds. A machine that acknowledges nothing for so long is gone, or cut off; a connection to it would be found to be
/// of use again only long after it's back.
const UNHEARD: u32 = 3_000;
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
pub fn surroundings(links: Arc<Links>) -> Surroundings {
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

impl tepal_metadata::Transport for Links {
    fn call(&self, address: &str, request: Vec<u8>, within: Duration) -> Calling {
        Box::pin(Links::call(self, address, None, Subject::Metadata, request, within))
    }

    fn introduce(&self, caller: Caller) {
        Links::introduce(self, caller);
    }
}

type Reader = Box<dyn AsyncRead + Send + Unpin>;
type Writer = Box<dyn AsyncWrite + Send + Unpin>;

/// `address` is `unix:PATH` or HOST:PORT.
async fn connect(address: &str) -> io::Result<(Reader, Writer)> {
    match address.strip_prefix("unix:") {
        Some(path) => Ok(halves(UnixStream::connect(PathBuf::from(path)).await?)),
        None => of_tcp(TcpStream::connect(address).await?),
    }
}

fn of_accepted(accepted: Accepted) -> io::Result<(Reader, Writer)> {
    match accepted {
        Accepted::Unix(stream) => Ok(halves(UnixStream::from_std(stream)?)),
        Accepted::Tcp(stream) => of_tcp(TcpStream::from_std(stream)?),
    }
}

fn of_tcp(stream: TcpStream) -> io::Result<(Reader, Writer)> {
    // Each frame is one write, and its answer is waited for.
    stream.set_nodelay(true)?;
    set_tcp_user_timeout(&stream, UNHEARD)?;
    Ok(halves(stream))
}

fn halves(stream: impl AsyncRead + AsyncWrite + Send + 'static) -> (Reader, Writer) {
    let (reader, writer) = tokio::io::split(stream);
    (Box::new(reader), Box::new(writer))
}
