//! Where clients knock: a unix socket, which only its owner may use, or a TCP address.

use super::admission::{Admission, Permit};
use super::stop::Stop;
use std::fmt;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, UnixListener, UnixSocket, UnixStream};

const BACKLOG: u32 = 1024;
/// After an error of `accept` (too many open files, most often): time for others to close some.
const AFTER_ERROR: Duration = Duration::from_millis(50);

/// Why somebody is turned away for want of descriptors.
pub const NO_DESCRIPTORS: &str = "the process may have too few files open, and what is left is kept for drives, servers and commands: raise its \
                                  limit (`ulimit -Hn`, LimitNOFILE of a service) and restart it, or stop some";

/// `unix:PATH`, or an IP address with a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// The path of a unix socket.
    Unix(PathBuf),
    /// Port 0 lets the system choose one.
    Tcp(SocketAddr),
}

/// A text that is no address to listen on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not an address to listen on: write unix:PATH, or IP:PORT as in 127.0.0.1:10809")]
pub struct EndpointError(String);

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        match text.strip_prefix("unix:") {
            Some("") => Err(EndpointError(text.to_owned())),
            Some(path) => Ok(Endpoint::Unix(path.into())),
            None => text.parse().map(Endpoint::Tcp).map_err(|_| EndpointError(text.to_owned())),
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Endpoint::Unix(path) => write!(f, "unix:{}", path.display()),
            Endpoint::Tcp(address) => write!(f, "{address}"),
        }
    }
}

/// Why nothing listens there now.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each message says what it is")]
pub enum BindError {
    #[error("something is listening on {0} already")]
    InUse(PathBuf),
    #[error("{0} exists and is not a socket: remove it, or name another path")]
    NotASocket(PathBuf),
    #[error("can't listen on {endpoint}: {error}")]
    Failed { endpoint: Endpoint, error: io::Error },
}

/// A bound address. The file of a unix socket goes when this is dropped, unless another has taken its place.
#[derive(Debug)]
pub struct Listener(Bound);

#[derive(Debug)]
enum Bound {
    Unix { listener: UnixListener, path: PathBuf, file: (u64, u64) },
    Tcp(TcpListener),
}

/// An accepted connection that can go to another thread, whose runtime then takes it on.
#[derive(Debug)]
pub enum Accepted {
    /// Over a unix socket.
    Unix(std::os::unix::net::UnixStream),
    /// Over TCP.
    Tcp(std::net::TcpStream),
}

impl Accepted {
    /// The number of its descriptor.
    pub fn descriptor(&self) -> u64 {
        let number = match self {
            Accepted::Unix(stream) => stream.as_raw_fd(),
            Accepted::Tcp(stream) => stream.as_raw_fd(),
        };
        u64::try_from(number).unwrap_or(0)
    }
}

impl Listener {
    /// A unix socket is made with mode 0600 from its first moment; one left by a process that is gone is replaced.
    pub async fn bind(endpoint: &Endpoint) -> Result<Self, BindError> {
        let failed = |error| BindError::Failed { endpoint: endpoint.clone(), error };
        match endpoint {
            Endpoint::Tcp(address) => Ok(Listener(Bound::Tcp(TcpListener::bind(address).await.map_err(failed)?))),
            Endpoint::Unix(path) => {
                make_way(path).await?;
                let listener = bind_private(path).map_err(failed)?;
                let file = identity(path).map_err(failed)?;
                Ok(Listener(Bound::Unix { listener, path: path.clone(), file }))
            }
        }
    }

    /// The address as bound: of TCP port 0, the port that was chosen.
    pub fn endpoint(&self) -> io::Result<Endpoint> {
        match &self.0 {
            Bound::Unix { path, .. } => Ok(Endpoint::Unix(path.clone())),
            Bound::Tcp(listener) => listener.local_addr().map(Endpoint::Tcp),
        }
    }

    /// The next connection. An error concerns one connection, or a lack that may pass; the listener goes on listening.
    pub async fn accept(&self) -> io::Result<Accepted> {
        match &self.0 {
            Bound::Unix { listener, .. } => Ok(Accepted::Unix(listener.accept().await?.0.into_std()?)),
            Bound::Tcp(listener) => Ok(Accepted::Tcp(listener.accept().await?.0.into_std()?)),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Bound::Unix { path, file, .. } = &self.0
            && identity(path).is_ok_and(|now| now == *file)
        {
            let _ = fs::remove_file(path); // a leftover is replaced by whoever binds next
        }
    }
}

/// Accepts until asked to stop. `hand` takes each connection to the thread that will serve it.
pub async fn accept_connections(
    listener: &Listener,
    admission: &Arc<Admission>,
    mut stop: Stop,
    mut hand: impl FnMut(Accepted, Permit),
) {
    loop {
        let accepted = tokio::select! {
            biased;
            () = stop.requested() => return,
            accepted = listener.accept() => accepted,
        };
        let limits = admission.limits();
        match accepted {
            // Closed at once, rather than left to wait: whoever came sees the end.
            Ok(accepted) if accepted.descriptor() >= limits.descriptors => admission.surplus().note(NO_DESCRIPTORS),
            Ok(accepted) => match admission.admit() {
                Some(permit) => hand(accepted, permit),
                None => {
                    let most = limits.connections;
                    admission
                        .surplus()
                        .note(&format!("{most} at a time are served: stop some, or use more servers or gateways"));
                }
            },
            Err(error) => {
                admission.surplus().note(&format!("a connection can't be accepted: {error}"));
                tokio::time::sleep(AFTER_ERROR).await;
            }
        }
    }
}

/// Removes a socket that nobody listens on any more.
async fn make_way(path: &Path) -> Result<(), BindError> {
    let Ok(found) = fs::symlink_metadata(path) else { return Ok(()) };
    if !found.file_type().is_socket() {
        return Err(BindError::NotASocket(path.to_owned()));
    }
    match UnixStream::connect(path).await {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path)
            .map_err(|error| BindError::Failed { endpoint: Endpoint::Unix(path.to_owned()), error }),
        // Listening, or too busy to answer, or not ours to talk to.
        _ => Err(BindError::InUse(path.to_owned())),
    }
}

fn bind_private(path: &Path) -> io::Result<UnixListener> {
    let socket = UnixSocket::new_stream()?;
    // Linux gives the socket's own mode to the file that `bind` makes, so there is no moment when others could connect.
    let handle = fs::File::from(socket.as_fd().try_clone_to_owned()?);
    handle.set_permissions(fs::Permissions::from_mode(0o600))?;
    socket.bind(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?; // where the system doesn't do so
    socket.listen(BACKLOG)
}

/// Which file this is, whatever its name.
fn identity(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|found| (found.dev(), found.ino()))
}
