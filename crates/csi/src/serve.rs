//! The driver's socket.

use crate::cluster::{Api, Cluster};
use crate::controller::drop_all_passing;
use crate::driver::{Driver, Settings};
use crate::machine::Machine;
use crate::spec::controller_server::ControllerServer;
use crate::spec::identity_server::IdentityServer;
use crate::spec::node_server::NodeServer;
use crate::turns::Turns;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{UnixListener, UnixStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;

/// After what couldn't be done when it was started.
const TRY_AGAIN: Duration = Duration::from_secs(30);

/// Why the driver doesn't run.
#[derive(Debug)]
pub enum ServeError {
    /// Another one answers at this socket.
    InUse(PathBuf),
    /// The socket can't be made.
    Socket(PathBuf, io::Error),
    /// It stopped by itself.
    Transport(tonic::transport::Error),
    /// There's no way to be told to end.
    Signals(io::Error),
}

impl std::fmt::Display for ServeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ServeError::InUse(path) => write!(f, "{}: another driver answers there", path.display()),
            ServeError::Socket(path, error) => write!(f, "{}: the socket can't be made: {error}", path.display()),
            ServeError::Transport(error) => write!(f, "the driver's socket failed: {error}"),
            ServeError::Signals(error) => write!(f, "signals can't be heard: {error}"),
        }
    }
}

impl std::error::Error for ServeError {}

/// Answers at a unix socket until SIGTERM or SIGINT, and ends when the calls under way are answered.
///
/// # Errors
///
/// If it can't, or can't go on.
pub async fn serve(
    socket: &Path,
    settings: Settings,
    api: Arc<dyn Api>,
    machine: Arc<dyn Machine>,
) -> Result<(), ServeError> {
    let listener = listen(socket).await?;
    let (mut terminated, mut interrupted) = (
        signal(SignalKind::terminate()).map_err(ServeError::Signals)?,
        signal(SignalKind::interrupt()).map_err(ServeError::Signals)?,
    );
    let told = async move {
        tokio::select! {
            _ = terminated.recv() => {}
            _ = interrupted.recv() => {}
        }
    };
    let (controller, node) = (settings.controller, settings.node);
    let driver = Driver { cluster: Cluster::new(api), machine, turns: Turns::default(), settings: Arc::new(settings) };
    tracing::info!("serving at {}", socket.display());
    if controller {
        tokio::spawn(tidy_up(driver.clone()));
    }
    let served = Server::builder()
        .add_service(IdentityServer::new(driver.clone()))
        .add_optional_service(controller.then(|| ControllerServer::new(driver.clone())))
        .add_optional_service(node.then(|| NodeServer::new(driver)))
        .serve_with_incoming_shutdown(UnixListenerStream::new(listener), told)
        .await;
    let _ = std::fs::remove_file(socket); // if it stays, the next one removes it
    served.map_err(ServeError::Transport)
}

/// Has what an earlier controller has left in the cluster removed, once that can be reached.
async fn tidy_up(driver: Driver) {
    loop {
        let own = driver.clone();
        match tokio::task::spawn_blocking(move || drop_all_passing(&own)).await {
            Ok(Err(failure)) => tracing::info!("what an earlier driver has left can't be removed yet: {failure}"),
            Ok(Ok(())) | Err(_) => return,
        }
        tokio::time::sleep(TRY_AGAIN).await;
    }
}

/// In the place of what a killed one has left.
async fn listen(socket: &Path) -> Result<UnixListener, ServeError> {
    let failed = |error| ServeError::Socket(socket.to_owned(), error);
    if UnixStream::connect(socket).await.is_ok() {
        return Err(ServeError::InUse(socket.to_owned()));
    }
    match std::fs::remove_file(socket) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    UnixListener::bind(socket).map_err(failed)
}
