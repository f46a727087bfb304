//! One connection from its first byte to its last.

use super::admission::{Allowance, Permit};
use super::execute::{Job, execute};
use super::in_flight::InFlight;
use super::inbox::Inbox;
use super::limits::Limits;
use super::line::{Line, Protection};
use super::listener::Accepted;
use super::negotiate::{Agreed, HandshakeError, Negotiated, Privacy, negotiate};
use super::stop::Stop;
use super::transmit::{End, State, Transmission, TransmissionError};
use crate::disk::{Exports, VirtualDisk};
use crate::pulse::Pauses;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::{set_socket_keepalive, set_socket_send_buffer_size, set_tcp_keepidle};
use std::future::poll_fn;
use std::io;
use std::os::fd::AsFd;
use std::task::Poll;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep_until, timeout};

/// What the kernel keeps of replies that a client on this machine hasn't read. With its default of 208 KiB the two ends
/// take turns in small steps; measured for reads of 1 MiB, this much is 1.6 times as fast.
const UNIX_SEND_BUFFER: usize = 1 << 20;

/// How long a connection over TCP may be silent before the kernel asks whether the other end is there.
const KEEPALIVE: Duration = Duration::from_secs(60);

/// For what is under way when a client is gone. What still waits then, for a drive perhaps, must not be done when the client has long
/// come back and written something else there.
const AFTER_CLIENT: Duration = Duration::from_millis(200);

/// Why a connection ended badly. Nobody else is affected.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each message says what it is")]
pub enum ConnectionError {
    #[error(transparent)]
    Handshake(#[from] HandshakeError),
    #[error("the handshake was not over in time")]
    HandshakeTooSlow,
    #[error("the handshake took longer than that of newer connections, which need its place")]
    Evicted,
    #[error(transparent)]
    Transmission(#[from] TransmissionError),
    #[error("an accepted connection can't be used: {0}")]
    Unusable(#[source] io::Error),
}

/// Serves a connection that a [`super::Listener`] accepted, on the current thread.
pub async fn serve_accepted<E: Exports>(
    accepted: Accepted,
    exports: &E,
    permit: Permit,
    stop: Stop,
    protection: &Protection,
) -> Result<End, ConnectionError> {
    match accepted {
        Accepted::Unix(stream) => {
            // Only slower, where the system allows less. TCP finds its own size.
            let _ = set_socket_send_buffer_size(&stream, UNIX_SEND_BUFFER);
            let stream = UnixStream::from_std(stream).map_err(ConnectionError::Unusable)?;
            serve_connection(stream, exports, permit, stop, protection).await
        }
        Accepted::Tcp(stream) => {
            let stream = TcpStream::from_std(stream).map_err(ConnectionError::Unusable)?;
            stream.set_nodelay(true).map_err(ConnectionError::Unusable)?;
            // A client's machine that lost power doesn't say so, and would keep its place for ever.
            set_tcp_keepidle(&stream, KEEPALIVE).map_err(|error| ConnectionError::Unusable(error.into()))?;
            set_socket_keepalive(&stream, true).map_err(|error| ConnectionError::Unusable(error.into()))?;
            serve_connection(stream, exports, permit, stop, protection).await
        }
    }
}

/// What a client is connected by.
pub trait Stream: AsyncRead + AsyncWrite + Unpin {
    /// Whether the other end has closed its side, whatever is still to be read.
    fn has_hung_up(&self) -> bool;
}

impl Stream for UnixStream {
    fn has_hung_up(&self) -> bool {
        has_hung_up(self)
    }
}

impl Stream for TcpStream {
    fn has_hung_up(&self) -> bool {
        has_hung_up(self)
    }
}

/// Whether the other side has closed it by now, also if not all was read that it had sent before.
pub fn has_hung_up(stream: &impl AsFd) -> bool {
    let left = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
    let mut asked = [PollFd::new(stream, left)];
    let told = poll(&mut asked, Some(&Timespec::default())); // at once
    told.is_ok() && asked[0].revents().intersects(left)
}

/// Serves one client until it goes, breaks the protocol, or the server stops. Dropping the future ends the connection at
/// once and abandons what is under way.
pub async fn serve_connection<S, E>(
    stream: S,
    exports: &E,
    permit: Permit,
    mut stop: Stop,
    protection: &Protection,
) -> Result<End, ConnectionError>
where
    S: Stream,
    E: Exports,
{
    let admission = permit.admission().clone();
    let mut inbox = Inbox::new();
    let (mut stream, agreed) = tokio::select! {
        biased;
        agreed = timeout(admission.limits().handshake, agree(stream, &mut inbox, exports, admission.limits(), protection)) => {
            agreed.map_err(|_| ConnectionError::HandshakeTooSlow)??
        }
        () = permit.evicted() => return Err(ConnectionError::Evicted),
        () = stop.requested() => return Ok(End::Stopped),
    };
    permit.negotiated();
    let ended = match agreed {
        None => Ok(End::Goodbye),
        Some(agreed) => {
            let name = agreed.name.clone();
            tracing::debug!(export = name, structured = agreed.structured, "NBD client attached");
            let ended =
                transmit(&mut stream, inbox, agreed, Allowance::new(admission.clone()), admission.limits(), stop).await;
            match &ended {
                Ok(end) => tracing::debug!(export = name, ?end, "NBD client gone"),
                Err(error) => tracing::info!(export = name, %error, "NBD connection broken off"),
            }
            ended
        }
    };
    // The client may be gone already; then there is nobody to say goodbye to.
    let _ = timeout(admission.limits().patience, stream.shutdown()).await;
    Ok(ended?)
}

/// The whole handshake: over TLS, if the client begins that.
async fn agree<S: Stream, E: Exports>(
    stream: S,
    inbox: &mut Inbox,
    exports: &E,
    limits: &Limits,
    protection: &Protection,
) -> Result<(Line<S>, Option<Agreed<E::Disk>>), HandshakeError> {
    let offered = protection.offered();
    let privacy = match (&offered, protection.is_required) {
        (_, true) => Privacy::Required { is_offered: offered.is_some() },
        (Some(_), false) => Privacy::Offered,
        (None, false) => Privacy::None,
    };
    let mut stream = Line::Plain(stream);
    let agreed = match negotiate(&mut stream, inbox, exports, limits, privacy).await? {
        Negotiated::Agreed(agreed) => Some(agreed),
        Negotiated::Goodbye => None,
        Negotiated::Tls => {
            let (Line::Plain(socket), Some(config)) = (stream, offered) else { return Err(HandshakeError::NoTls) };
            // What came before TLS was begun isn't the client's word, but that of anybody on the way.
            if !inbox.unread().is_empty() {
                return Err(HandshakeError::BytesBeforeTls(inbox.unread().len()));
            }
            stream = Line::secured(socket, config).await.map_err(HandshakeError::Tls)?;
            let certificates = stream.certificates().ok_or(HandshakeError::NoTls)?;
            let exports = exports.shown_to(certificates)?;
            match negotiate(&mut stream, inbox, &exports, limits, Privacy::Secured).await? {
                Negotiated::Agreed(agreed) => Some(agreed),
                Negotiated::Goodbye | Negotiated::Tls => None,
            }
        }
    };
    Ok((stream, agreed))
}

async fn transmit<S, D>(
    stream: &mut S,
    inbox: Inbox,
    agreed: Agreed<D>,
    allowance: Allowance,
    limits: &Limits,
    mut stop: Stop,
) -> Result<End, TransmissionError>
where
    S: Stream,
    D: VirtualDisk,
{
    let disk = &agreed.disk;
    let begin = |job: Job| execute(disk, job);
    let mut in_flight = InFlight::new();
    let mut transmission = Transmission {
        stream,
        disk,
        inbox,
        structured: agreed.structured,
        allocation: agreed.allocation,
        allowance,
        most_requests: limits.requests,
        most_bytes: limits.connection_bytes,
        pauses: Pauses::of_this_process(),
        state: State::new(),
    };
    let mut checks = interval_at(Instant::now() + limits.patience, limits.patience);
    checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut looks = interval_at(Instant::now() + AFTER_CLIENT, AFTER_CLIENT);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut over: Option<Instant> = None;
    loop {
        let (is_left, is_deaf) = (transmission.is_left(), transmission.is_deaf());
        if is_left && over.is_none() {
            over = Some(Instant::now() + AFTER_CLIENT);
        }
        tokio::select! {
            biased;
            ended = poll_fn(|cx| match transmission.poll(cx, &mut in_flight, &begin) {
                Poll::Ready(ended) => Poll::Ready(Some(ended)),
                // Something else is to be waited for.
                Poll::Pending if (!is_left && transmission.is_left()) || (!is_deaf && transmission.is_deaf()) => {
                    Poll::Ready(None)
                }
                Poll::Pending => Poll::Pending,
            }) => if let Some(ended) = ended {
                return ended;
            },
            () = stop.requested(), if !transmission.is_ending() => transmission.end(Ok(End::Stopped)),
            () = sleep_until(over.unwrap_or_else(Instant::now)), if over.is_some() => {
                return Err(TransmissionError::Unfinished);
            }
            // It isn't heard that the client is gone while nothing is received.
            _ = looks.tick(), if is_deaf && over.is_none() => {
                over = transmission.stream.has_hung_up().then(|| Instant::now() + AFTER_CLIENT);
            }
            _ = checks.tick() => transmission.check_progress(&in_flight)?,
        }
    }
}
