//! A connection between servers, or of a gateway to a server: its socket, what goes over it frame by frame, how it's made, and what is
//! logged where it's refused.

mod refusals;
mod socket;
mod stream;
mod tls;

pub use refusals::Refusals;
pub use socket::{Moved, Socket};
pub use stream::{Ended, Incoming, LONGEST, Outgoing};
pub use tls::HANDSHAKE;

use crate::access::Credentials;
use std::io;
use std::time::Duration;
use tepal_wire::Header;
use tepal_wire::handshake::{CallError, Calling, Hello, Welcome};

/// A server is connected and has welcomed this one within that time, or it isn't there.
pub const CONNECT: Duration = Duration::from_secs(2);
/// Between attempts to connect: this, then twice as long each time, up to the other.
pub const FIRST_PAUSE: Duration = Duration::from_millis(20);
pub const LONGEST_PAUSE: Duration = Duration::from_millis(500);

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

/// Connects, over TLS if the address wants that, and waits for the welcome.
pub async fn call(
    address: &str,
    credentials: &Credentials,
    hello: Hello,
) -> Result<(Incoming, Outgoing, Welcome), NotReached> {
    let calling = async {
        let (mut incoming, mut outgoing) = Incoming::new(Socket::connect(address, credentials).await?).split();
        outgoing.push(&Header { session: hello.epoch, ..Header::default() }, &hello, Vec::new());
        outgoing.send().await?;
        let calling = Calling::new(hello);
        let welcome = incoming.frame(|frame| calling.hear(&frame)).await??;
        Ok((incoming, outgoing, welcome))
    };
    tokio::time::timeout(CONNECT, calling).await.unwrap_or(Err(NotReached::Late))
}
