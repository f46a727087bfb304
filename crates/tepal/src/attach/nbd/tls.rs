//! TLS over a socket that two threads use: one receives, one sends.
//!
//! Invariant: nobody waits for the socket while it holds the session. Else who sends would keep the receiver from taking what the server
//! must get rid of before it takes more.

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{MsgFlags, recv, send};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, ClientConnection};

/// What one system call receives at most.
const RECEIVED_AT_ONCE: usize = 64 << 10;

#[derive(Debug)]
pub struct TlsStream {
    tcp: TcpStream,
    session: Mutex<Session>,
}

#[derive(Debug)]
struct Session {
    connection: ClientConnection,
    /// As received, still encrypted: from `start` to `end`.
    raw: Box<[u8]>,
    start: usize,
    end: usize,
}

/// Sends what the socket takes now.
struct Out<'a>(&'a TcpStream);

impl Write for Out<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(send(self.0.as_raw_fd(), bytes, MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Session {
    /// Takes what the socket has now: whether there can be more, ever.
    fn receive(&mut self, tcp: &TcpStream) -> io::Result<bool> {
        if self.start == self.end {
            (self.start, self.end) = (0, recv(tcp.as_raw_fd(), &mut self.raw, MsgFlags::MSG_DONTWAIT)?);
            if self.end == 0 {
                return Ok(false);
            }
        }
        let mut unread = &self.raw[self.start..self.end];
        self.start += self.connection.read_tls(&mut unread)?;
        let taken = self.connection.process_new_packets();
        // What answers that goes with what is sent next, if not now.
        while self.connection.wants_write() && self.connection.write_tls(&mut Out(tcp)).is_ok() {}
        taken.map(|_| true).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }
}

impl TlsStream {
    /// Begins TLS with the server of this name or address.
    pub fn begin(tcp: TcpStream, config: Arc<ClientConfig>, host: &str) -> io::Result<TlsStream> {
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        let connection = ClientConnection::new(config, name).map_err(io::Error::other)?;
        let session = Session { connection, raw: vec![0; RECEIVED_AT_ONCE].into(), start: 0, end: 0 };
        let stream = TlsStream { tcp, session: Mutex::new(session) };
        loop {
            drop(stream.flushed(stream.lock())?);
            let mut session = stream.lock();
            if !session.connection.is_handshaking() {
                drop(session);
                return Ok(stream);
            }
            match session.receive(&stream.tcp) {
                Ok(true) => {}
                Ok(false) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Err(error) if is_busy(&error) => {
                    drop(session);
                    stream.wait(PollFlags::POLLIN, stream.tcp.read_timeout()?)?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    pub fn tcp(&self) -> &TcpStream {
        &self.tcp
    }

    pub fn read(&self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            let mut session = self.lock();
            match session.connection.reader().read(into) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return read,
            }
            match session.receive(&self.tcp) {
                Ok(true) => {}
                Ok(false) => return Ok(0),
                Err(error) if is_busy(&error) => {
                    drop(session);
                    self.wait(PollFlags::POLLIN, self.tcp.read_timeout()?)?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// One thread at a time.
    pub fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        let mut session = self.flushed(self.lock())?;
        let written = session.connection.writer().write(bytes)?;
        drop(self.flushed(session)?);
        Ok(written)
    }

    /// With everything sent that is encrypted.
    fn flushed<'a>(&'a self, mut session: MutexGuard<'a, Session>) -> io::Result<MutexGuard<'a, Session>> {
        while session.connection.wants_write() {
            match session.connection.write_tls(&mut Out(&self.tcp)) {
                Ok(_) => {}
                Err(error) if is_busy(&error) => {
                    drop(session);
                    self.wait(PollFlags::POLLOUT, self.tcp.write_timeout()?)?;
                    session = self.lock();
                }
                Err(error) => return Err(error),
            }
        }
        Ok(session)
    }

    fn wait(&self, ready: PollFlags, limit: Option<Duration>) -> io::Result<()> {
        let limit = match limit {
            None => PollTimeout::NONE,
            Some(limit) => PollTimeout::try_from(limit).unwrap_or(PollTimeout::MAX),
        };
        match poll(&mut [PollFd::new(self.tcp.as_fd(), ready)], limit) {
            Ok(0) => Err(io::ErrorKind::TimedOut.into()),
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Session> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_busy(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
