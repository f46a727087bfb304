//! A connection between servers, over TCP or a unix socket. Any thread may send; whoever owns it waits for it.

use rustix::net::sockopt;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::task::{Context, Poll};
use std::time::Duration;
use tepal_gateway::nbd::Accepted;
use tepal_wire::{Inbox, Outbox};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::net::{TcpStream, UnixStream};

/// A machine that acknowledges nothing for so long is gone, or cut off; a connection to it would be found to be of use again
/// only long after it's back.
const UNHEARD: Duration = Duration::from_secs(3);
/// A machine that has been silent for so long is asked, by its kernel's leave alone, whether it's still there, and so often: what
/// waits for an answer that was lost with the machine has nothing to send that would show it. It's given up after [`UNHEARD`].
const PROBE: Duration = Duration::from_secs(1);

/// A socket that doesn't block.
#[derive(Debug)]
pub struct Socket(AsyncFd<OwnedFd>);

impl AsRef<Socket> for Socket {
    fn as_ref(&self) -> &Socket {
        self
    }
}

impl Socket {
    /// `address` is `unix:PATH` or HOST:PORT.
    pub async fn connect(address: &str) -> io::Result<Socket> {
        let socket: OwnedFd = match address.strip_prefix("unix:") {
            Some(path) => UnixStream::connect(PathBuf::from(path)).await?.into_std()?.into(),
            None => of_tcp(TcpStream::connect(address).await?.into_std()?)?,
        };
        Socket::new(socket)
    }

    pub fn accepted(accepted: Accepted) -> io::Result<Socket> {
        let socket = match accepted {
            Accepted::Unix(stream) => stream.into(),
            Accepted::Tcp(stream) => of_tcp(stream)?,
        };
        Socket::new(socket)
    }

    /// For the runtime of this thread. The socket must not block.
    pub fn new(socket: OwnedFd) -> io::Result<Socket> {
        AsyncFd::register(socket).map(Socket)
    }

    /// To be taken to another thread.
    pub fn into_fd(self) -> OwnedFd {
        self.0.into_inner()
    }

    /// Receives what is there, as far as there's space: so many bytes, none if nothing more ever comes.
    /// [`io::ErrorKind::WouldBlock`] says that nothing is there.
    pub fn try_receive(&self, inbox: &mut Inbox) -> io::Result<usize> {
        let mut received = None;
        let tried = self.0.try_io(Interest::READABLE, |socket| {
            let mut spaces = inbox.spaces();
            let room = spaces.iter().map(|space| space.len()).sum::<usize>();
            let spaces = if spaces[0].is_empty() { &mut spaces[1..] } else { &mut spaces[..] };
            let count = again(|| rustix::io::readv(socket, spaces))?;
            received = Some(count);
            // Less than there was space for is all that there is: the kernel needn't be asked to learn that.
            if count > 0 && count < room { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
        });
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
        while outbox.pending() > 0 {
            let mut sent = None;
            let tried = self.0.try_io(Interest::WRITABLE, |socket| {
                let slices = outbox.slices();
                let offered = slices.iter().map(|slice| slice.len()).sum::<usize>();
                let count = again(|| rustix::io::writev(socket, &slices))?;
                sent = Some(count);
                if count < offered { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
            });
            match sent {
                Some(count) => outbox.sent(count),
                None => tried?,
            }
        }
        Ok(())
    }

    pub fn poll_receivable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.poll_read_ready(cx).map_ok(drop)
    }

    pub fn poll_sendable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.poll_write_ready(cx).map_ok(drop)
    }

    /// Waits until something has come: so many bytes.
    pub async fn receive(&self, inbox: &mut Inbox) -> io::Result<usize> {
        loop {
            match self.try_receive(inbox) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => drop(self.0.readable().await?),
                outcome => return outcome,
            }
        }
    }

    /// Returns when everything in line has gone.
    pub async fn send(&self, outbox: &mut Outbox) -> io::Result<()> {
        loop {
            match self.try_send(outbox) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => drop(self.0.writable().await?),
                outcome => return outcome,
            }
        }
    }

    /// Whoever reads or writes at the other end, or here, is told that it's over.
    pub fn hang_up(&self) {
        let _ = rustix::net::shutdown(self.0.get_ref(), rustix::net::Shutdown::Both); // it may be over already
    }

    #[cfg(test)]
    pub fn fd(&self) -> &OwnedFd {
        self.0.get_ref()
    }
}

fn of_tcp(stream: std::net::TcpStream) -> io::Result<OwnedFd> {
    // Frames are gathered here, and answers to them waited for.
    stream.set_nodelay(true)?;
    sockopt::set_tcp_user_timeout(&stream, UNHEARD.as_millis() as u32)?;
    sockopt::set_socket_keepalive(&stream, true)?;
    sockopt::set_tcp_keepidle(&stream, PROBE)?;
    sockopt::set_tcp_keepintvl(&stream, PROBE)?;
    Ok(stream.into())
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
