//! TLS over a socket between servers. Any thread may send, as without TLS: what is encrypted by one at a time goes out in that order.

use rustix::io::Errno;
use std::io::{self, IoSlice, Read, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tepal_wire::{Inbox, Outbox};
use tokio::net::TcpStream;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, ClientConnection, Connection, ServerConfig, ServerConnection};

/// What one system call receives at most.
const RECEIVED_AT_ONCE: usize = 64 << 10;
/// Bytes that are encrypted before they are sent.
const SENT_AT_ONCE: usize = 256 << 10;
/// The first byte of a TLS handshake (RFC 8446, 5.1). No frame begins with it.
pub const HANDSHAKE: u8 = 22;

/// What the two ends have agreed on, and bytes that are on their way through it.
pub struct Session {
    connection: Connection,
    /// As received, still encrypted: from `start` to `end`.
    raw: Box<[u8]>,
    start: usize,
    end: usize,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Session")
    }
}

/// A socket with TLS over it.
#[derive(Debug)]
pub struct TlsSocket {
    pub tcp: TcpStream,
    session: Mutex<Session>,
}

/// Sends encrypted bytes.
struct Out<'a>(&'a TcpStream);

impl Write for Out<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.try_write_vectored(pieces)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Session {
    fn new(connection: Connection) -> Self {
        let mut session = Session { connection, raw: vec![0; RECEIVED_AT_ONCE].into(), start: 0, end: 0 };
        session.connection.set_buffer_limit(Some(SENT_AT_ONCE));
        session
    }

    /// Sends what is encrypted.
    fn send(&mut self, tcp: &TcpStream) -> io::Result<()> {
        while self.connection.wants_write() {
            self.connection.write_tls(&mut Out(tcp))?;
        }
        Ok(())
    }

    /// Takes what the socket has: whether there can be more, ever.
    fn receive(&mut self, tcp: &TcpStream) -> io::Result<bool> {
        if self.start == self.end {
            (self.start, self.end) = (0, tcp.try_read(&mut self.raw)?);
            if self.end == 0 {
                return Ok(false);
            }
        }
        let mut unread = &self.raw[self.start..self.end];
        let count = self.connection.read_tls(&mut unread)?;
        self.start += count;
        let taken = self.connection.process_new_packets();
        match self.send(tcp) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {} // goes with what is sent next
            sent => sent?,
        }
        taken.map(|_| true).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }

    /// Hands over what is decrypted: so many bytes; `None` if nothing more comes.
    fn hand_over(&mut self, inbox: &mut Inbox) -> io::Result<Option<usize>> {
        let mut count = 0;
        for space in &mut inbox.spaces() {
            let mut filled = 0;
            while filled < space.len() {
                match self.connection.reader().read(&mut space[filled..]) {
                    Ok(0) if count + filled == 0 => return Ok(None),
                    Ok(0) => break,
                    Ok(read) => filled += read,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) => return Err(error),
                }
            }
            count += filled;
            if filled < space.len() {
                break;
            }
        }
        inbox.received(count);
        Ok(Some(count))
    }
}

impl TlsSocket {
    /// Begins TLS with a server, by this server's certificate.
    pub async fn call(tcp: TcpStream, config: Arc<ClientConfig>) -> io::Result<Self> {
        let name = ServerName::IpAddress(tcp.peer_addr()?.ip().into());
        let connection = ClientConnection::new(config, name).map_err(io::Error::other)?;
        TlsSocket::agree(tcp, connection.into()).await
    }

    /// Answers who begins TLS.
    pub async fn answer(tcp: TcpStream, config: Arc<ServerConfig>) -> io::Result<Self> {
        let connection = ServerConnection::new(config).map_err(io::Error::other)?;
        TlsSocket::agree(tcp, connection.into()).await
    }

    async fn agree(tcp: TcpStream, connection: Connection) -> io::Result<Self> {
        let mut session = Session::new(connection);
        loop {
            match session.send(&tcp) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    tcp.writable().await?;
                    continue;
                }
                sent => sent?,
            }
            if !session.connection.is_handshaking() {
                return Ok(TlsSocket { tcp, session: Mutex::new(session) });
            }
            match session.receive(&tcp) {
                Ok(true) => {}
                Ok(false) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => tcp.readable().await?,
                Err(error) => return Err(error),
            }
        }
    }

    /// The certificate that the other end has shown, and those that lead from it to an authority.
    pub fn certificates(&self) -> Option<Vec<CertificateDer<'static>>> {
        self.lock().connection.peer_certificates().map(<[_]>::to_vec)
    }

    /// See [`super::Socket::try_receive`].
    pub fn try_receive(&self, inbox: &mut Inbox) -> io::Result<usize> {
        let mut session = self.lock();
        loop {
            match session.hand_over(inbox)? {
                None => return Ok(0),
                Some(0) => {}
                Some(count) => return Ok(count),
            }
            if !session.receive(&self.tcp)? {
                return Ok(0);
            }
        }
    }

    /// See [`super::Socket::try_send`]. What is encrypted and isn't taken by the socket counts as sent, and still makes it say that it
    /// takes nothing.
    pub fn try_send(&self, outbox: &mut Outbox) -> io::Result<()> {
        let mut session = self.lock();
        loop {
            session.send(&self.tcp)?;
            if outbox.pending() == 0 {
                return Ok(());
            }
            let count = session.connection.writer().write_vectored(&outbox.slices())?;
            if count == 0 {
                return Err(io::Error::from(Errno::NOBUFS));
            }
            outbox.sent(count);
        }
    }

    /// To be taken to another thread.
    pub fn into_parts(self) -> io::Result<(std::net::TcpStream, Session)> {
        let session = self.session.into_inner().unwrap_or_else(PoisonError::into_inner);
        Ok((self.tcp.into_std()?, session))
    }

    /// For the runtime of this thread.
    pub fn from_parts(tcp: std::net::TcpStream, session: Session) -> io::Result<Self> {
        Ok(TlsSocket { tcp: TcpStream::from_std(tcp)?, session: Mutex::new(session) })
    }

    fn lock(&self) -> MutexGuard<'_, Session> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
