//! A connection between servers, over TCP or a unix socket. Any thread may send; whoever owns it waits for it.

use super::tls::{HANDSHAKE, Session, TlsSocket};
use crate::access::Credentials;
use rustix::net::sockopt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tepal_gateway::nbd::Accepted;
use tepal_wire::{Inbox, Outbox};
use tokio::io::Interest;
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::CertificateDer;

/// A machine that acknowledges nothing for so long is gone, or cut off; a connection to it would be found to be of use again
/// only long after it's back.
const UNHEARD: Duration = Duration::from_secs(3);
/// A machine that has been silent for so long is asked, by its kernel's leave alone, whether it's still there, and so often: what
/// waits for an answer that was lost with the machine has nothing to send that would show it. It's given up after [`UNHEARD`].
const PROBE: Duration = Duration::from_secs(1);

const WANTED: &str = "TLS is wanted there, and there's no certificate here: `tepal identity create` makes an identity (with --server for a \
                      server), and --identity names its folder";

/// A socket that doesn't block.
#[derive(Debug)]
pub enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
    Tls(Box<TlsSocket>),
}

/// A socket on its way to another thread.
pub enum Moved {
    Plain(Accepted),
    Tls(std::net::TcpStream, Box<Session>),
}

/// The same of each kind.
macro_rules! stream {
    ($socket:expr, $stream:ident => $what:expr) => {
        match $socket {
            Socket::Tcp($stream) => $what,
            Socket::Unix($stream) => $what,
            Socket::Tls(secured) => {
                let $stream = &secured.tcp;
                $what
            }
        }
    };
}

impl AsRef<Socket> for Socket {
    fn as_ref(&self) -> &Socket {
        self
    }
}

impl Socket {
    /// `address` is `unix:PATH` or HOST:PORT.
    pub async fn connect(address: &str, credentials: &Credentials) -> io::Result<Socket> {
        if let Some(path) = address.strip_prefix("unix:") {
            return UnixStream::connect(PathBuf::from(path)).await.map(Socket::Unix);
        }
        if !credentials.wants_tls(address) {
            return of_tcp(TcpStream::connect(address).await?).map(Socket::Tcp);
        }
        let no_certificate = || io::Error::other(WANTED);
        let config = credentials.caller().ok_or_else(no_certificate)?;
        let stream = of_tcp(TcpStream::connect(address).await?)?;
        Ok(Socket::Tls(Box::new(TlsSocket::call(stream, config).await?)))
    }

    /// Of one that was just accepted: with TLS over it, if the caller begins that. Without, it's refused where TLS is required.
    pub async fn secured(self, config: Option<Arc<ServerConfig>>, is_required: bool) -> io::Result<Socket> {
        let Socket::Tcp(stream) = self else { return Ok(self) };
        let mut first = [0];
        stream.peek(&mut first).await?;
        match config {
            Some(config) if first[0] == HANDSHAKE => {
                Ok(Socket::Tls(Box::new(TlsSocket::answer(stream, config).await?)))
            }
            None if first[0] == HANDSHAKE => Err(io::Error::other("there's no certificate here yet")),
            _ if is_required => Err(io::Error::new(io::ErrorKind::PermissionDenied, "TLS is wanted here")),
            _ => Ok(Socket::Tcp(stream)),
        }
    }

    /// The certificate that the other end has shown, and those that lead from it to an authority.
    pub fn certificates(&self) -> Option<Vec<CertificateDer<'static>>> {
        match self {
            Socket::Tls(secured) => secured.certificates(),
            Socket::Tcp(_) | Socket::Unix(_) => None,
        }
    }

    /// For the runtime of this thread.
    pub fn accepted(accepted: Accepted) -> io::Result<Socket> {
        match accepted {
            Accepted::Unix(stream) => UnixStream::from_std(stream).map(Socket::Unix),
            Accepted::Tcp(stream) => of_tcp(TcpStream::from_std(stream)?).map(Socket::Tcp),
        }
    }

    /// What the other end's machine hasn't acknowledged after so long isn't delivered any more, and the connection is over.
    pub fn deliver_within(&self, long: Duration) -> io::Result<()> {
        match self {
            Socket::Tcp(stream) => Ok(sockopt::set_tcp_user_timeout(stream, long.as_millis() as u32)?),
            Socket::Tls(secured) => Ok(sockopt::set_tcp_user_timeout(&secured.tcp, long.as_millis() as u32)?),
            Socket::Unix(_) => Ok(()), // it's there at once
        }
    }

    /// To be taken to another thread.
    pub fn into_moved(self) -> io::Result<Moved> {
        match self {
            Socket::Unix(stream) => stream.into_std().map(Accepted::Unix).map(Moved::Plain),
            Socket::Tcp(stream) => stream.into_std().map(Accepted::Tcp).map(Moved::Plain),
            Socket::Tls(secured) => secured.into_parts().map(|(stream, session)| Moved::Tls(stream, Box::new(session))),
        }
    }

    /// For the runtime of this thread.
    pub fn moved(moved: Moved) -> io::Result<Socket> {
        match moved {
            Moved::Plain(accepted) => Socket::accepted(accepted),
            Moved::Tls(stream, session) => Ok(Socket::Tls(Box::new(TlsSocket::from_parts(stream, *session)?))),
        }
    }

    /// Receives what is there, as far as there's space: so many bytes, none if nothing more ever comes.
    /// [`io::ErrorKind::WouldBlock`] says that nothing is there.
    pub fn try_receive(&self, inbox: &mut Inbox) -> io::Result<usize> {
        if let Socket::Tls(secured) = self {
            return secured.try_receive(inbox);
        }
        let mut received = None;
        let tried = stream!(self, stream => stream.try_io(Interest::READABLE, || {
            let mut spaces = inbox.spaces();
            let room = spaces.iter().map(|space| space.len()).sum::<usize>();
            let spaces = if spaces[0].is_empty() { &mut spaces[1..] } else { &mut spaces[..] };
            let count = again(|| rustix::io::readv(stream, spaces))?;
            received = Some(count);
            // Less than there was space for is all that there is: the kernel needn't be asked to learn that.
            if count > 0 && count < room { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
        }));
        match received {
            Some(count) => {
                inbox.received(count);
                Ok(count)
            }
            None => tried.map(|()| 0),
        }
    }

    /// Sends of what waits as much as the socket takes now. [`io::ErrorKind::WouldBlock`] says that it takes nothing.
    pub fn try_send(&self, outbox: &mut Outbox) -> io::Result<()> {
        if let Socket::Tls(secured) = self {
            return secured.try_send(outbox);
        }
        while outbox.pending() > 0 {
            let mut sent = None;
            let tried = stream!(self, stream => stream.try_io(Interest::WRITABLE, || {
                let slices = outbox.slices();
                let offered = slices.iter().map(|slice| slice.len()).sum::<usize>();
                let count = again(|| rustix::io::writev(stream, &slices))?;
                sent = Some(count);
                if count < offered { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
            }));
            match sent {
                Some(count) => outbox.sent(count),
                None => tried?,
            }
        }
        Ok(())
    }

    pub fn poll_receivable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        stream!(self, stream => stream.poll_read_ready(cx))
    }

    pub fn poll_sendable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        stream!(self, stream => stream.poll_write_ready(cx))
    }

    /// Waits until something has come: so many bytes.
    pub async fn receive(&self, inbox: &mut Inbox) -> io::Result<usize> {
        loop {
            match self.try_receive(inbox) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    stream!(self, stream => stream.readable().await?)
                }
                outcome => return outcome,
            }
        }
    }

    /// Returns when everything in line has gone.
    pub async fn send(&self, outbox: &mut Outbox) -> io::Result<()> {
        loop {
            match self.try_send(outbox) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    stream!(self, stream => stream.writable().await?)
                }
                outcome => return outcome,
            }
        }
    }

    /// Whoever reads or writes at the other end, or here, is told that it's over.
    pub fn hang_up(&self) {
        // It may be over already.
        let _ = stream!(self, stream => rustix::net::shutdown(stream, rustix::net::Shutdown::Both));
    }
}

fn of_tcp(stream: TcpStream) -> io::Result<TcpStream> {
    // Frames are gathered here, and answers to them waited for.
    stream.set_nodelay(true)?;
    sockopt::set_tcp_user_timeout(&stream, UNHEARD.as_millis() as u32)?;
    sockopt::set_socket_keepalive(&stream, true)?;
    sockopt::set_tcp_keepidle(&stream, PROBE)?;
    sockopt::set_tcp_keepintvl(&stream, PROBE)?;
    Ok(stream)
}

/// Signals interrupt nothing here.
fn again(mut call: impl FnMut() -> rustix::io::Result<usize>) -> io::Result<usize> {
    loop {
        match call() {
            Err(rustix::io::Errno::INTR) => {}
            outcome => return Ok(outcome?),
        }
    }
}
