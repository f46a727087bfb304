//! Where a volume is served, and a connection to there.

use super::handshake;
use super::tls::TlsStream;
use crate::credentials;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io::{self, IoSlice, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where NBD answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NbdAddress {
    Unix(PathBuf),
    /// HOST:PORT
    Tcp(String),
    /// Over TLS, with the folder of an identity.
    Tls {
        address: String,
        identity: PathBuf,
    },
}

impl fmt::Display for NbdAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NbdAddress::Unix(path) => write!(f, "unix:{}", path.display()),
            NbdAddress::Tcp(address) | NbdAddress::Tls { address, .. } => f.write_str(address),
        }
    }
}

/// How long a host has to answer a TCP connection's first packet.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// How long a server has for each step of the handshake. No request is under way then, so hanging up is harmless.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub enum Socket {
    Unix(UnixStream),
    Tcp(TcpStream),
    Tls(Box<TlsStream>),
}

impl Socket {
    /// A connection whose reads and writes have the handshake's time limit.
    pub fn connect(address: &NbdAddress) -> io::Result<Socket> {
        let socket = match address {
            NbdAddress::Unix(path) => Socket::Unix(UnixStream::connect(path)?),
            NbdAddress::Tcp(name) => Socket::Tcp(tcp(name)?),
            NbdAddress::Tls { address, identity } => Socket::Tls(Box::new(secured(address, identity)?)),
        };
        socket.limit(Some(HANDSHAKE_LIMIT))?;
        Ok(socket)
    }

    /// Whether the server has greeted already, before TLS began.
    pub fn is_greeted(&self) -> bool {
        matches!(self, Socket::Tls(_))
    }

    /// From here on a silent server is waited for.
    pub fn wait_for_ever(&self) -> io::Result<()> {
        self.limit(None)
    }

    fn limit(&self, limit: Option<Duration>) -> io::Result<()> {
        match self {
            Socket::Unix(stream) => stream.set_read_timeout(limit).and_then(|()| stream.set_write_timeout(limit)),
            Socket::Tcp(stream) => stream.set_read_timeout(limit).and_then(|()| stream.set_write_timeout(limit)),
            Socket::Tls(stream) => {
                stream.tcp().set_read_timeout(limit).and_then(|()| stream.tcp().set_write_timeout(limit))
            }
        }
    }

    /// Ends the connection for every thread that uses it. That it has ended already is as good.
    pub fn shutdown(&self, how: Shutdown) {
        let _ = match self {
            Socket::Unix(stream) => stream.shutdown(how),
            Socket::Tcp(stream) => stream.shutdown(how),
            Socket::Tls(stream) => stream.tcp().shutdown(how),
        };
    }

    pub fn read_some(&self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Socket::Unix(stream) => { stream }.read(into),
            Socket::Tcp(stream) => { stream }.read(into),
            Socket::Tls(stream) => stream.read(into),
        }
    }

    pub fn write_all_vectored(&self, mut slices: &mut [IoSlice<'_>]) -> io::Result<()> {
        IoSlice::advance_slices(&mut slices, 0); // drops empty ones, or the last write could be of nothing
        while !slices.is_empty() {
            // 1024 is the kernel's IOV_MAX.
            let some = &slices[..slices.len().min(1024)];
            let written = match self {
                Socket::Unix(stream) => { stream }.write_vectored(some),
                Socket::Tcp(stream) => { stream }.write_vectored(some),
                Socket::Tls(stream) => stream.write(&some[0]),
            };
            match written {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => IoSlice::advance_slices(&mut slices, written),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// A connection with TLS begun, by the files of an identity. The server has greeted then.
pub fn secured(address: &str, identity: &Path) -> io::Result<TlsStream> {
    let config = credentials::for_nbd(identity).map_err(io::Error::other)?;
    let mut stream = tcp(address)?;
    stream.set_read_timeout(Some(HANDSHAKE_LIMIT))?;
    stream.set_write_timeout(Some(HANDSHAKE_LIMIT))?;
    handshake::start_tls(&mut stream).map_err(io::Error::other)?;
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host).trim_matches(['[', ']']);
    TlsStream::begin(stream, config, host)
}

fn tcp(name: &str) -> io::Result<TcpStream> {
    let mut failure = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    let connected = name
        .to_socket_addrs()?
        .find_map(|address| TcpStream::connect_timeout(&address, CONNECT_LIMIT).map_err(|error| failure = error).ok());
    let stream = connected.ok_or(failure)?;
    stream.set_nodelay(true)?;
    notice_dead_hosts(&stream)?;
    Ok(stream)
}

/// A host that lost its power sends no end of its connections. Keepalive tells (the host's kernel answers it even while
/// the server is stopped or busy), 90 s after the last sign of life; a host that has come back tells at once.
fn notice_dead_hosts(stream: &TcpStream) -> io::Result<()> {
    use nix::sys::socket::{setsockopt, sockopt};
    let fd: BorrowedFd<'_> = stream.as_fd();
    setsockopt(&fd, sockopt::KeepAlive, &true)?;
    setsockopt(&fd, sockopt::TcpKeepIdle, &30)?;
    setsockopt(&fd, sockopt::TcpKeepInterval, &10)?;
    setsockopt(&fd, sockopt::TcpKeepCount, &6)?;
    Ok(())
}

impl Read for &Socket {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.read_some(into)
    }
}

impl Write for &Socket {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        match self {
            Socket::Unix(stream) => { stream }.write(from),
            Socket::Tcp(stream) => { stream }.write(from),
            Socket::Tls(stream) => stream.write(from),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
