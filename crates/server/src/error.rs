//! What keeps a server from serving.

use crate::access::AccessError;
use crate::data_folder::FolderError;
use crate::data_threads;
use crate::drives::{self, GenerationsError};
use crate::log::LogError;
use std::io;
use std::net::SocketAddr;
use tepal_gateway::nbd::BindError;
use tepal_metadata::{JoinError, OpenError, ProposeError};
use tepal_model::ServerId;

/// Why a server didn't start, or can't go on.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The log's file can't be written, or its filter isn't one.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The data folder can't be used.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// The identity by which it's to join can't be used.
    #[error(transparent)]
    Identity(#[from] Box<AccessError>),
    /// Say which cluster to make or to join.
    #[error("{0}; to make a new cluster there, use --create NAME, and to join one, --join ADDR")]
    NoCluster(OpenError),
    /// No server has let it into the cluster.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// The cluster's state in the data folder can't be opened or made.
    #[error(transparent)]
    Metadata(#[from] OpenError),
    /// Name the other folder, or leave out which server this must be.
    #[error("the data folder is that of {found}, and this server was started as {wanted}")]
    OtherServer {
        /// Whose folder it is.
        found: ServerId,
        /// Who this server must be.
        wanted: ServerId,
    },
    /// What the data folder knows of the drives' labels can't be read.
    #[error(transparent)]
    Generations(#[from] GenerationsError),
    /// What became of its drives can't be recorded. What one drive has is never a reason.
    #[error(transparent)]
    Drives(#[from] drives::StartError),
    /// The data threads can't be started.
    #[error(transparent)]
    Threads(#[from] data_threads::StartError),
    /// A data thread has ended while the server was started.
    #[error(transparent)]
    Stopped(#[from] data_threads::Stopped),
    /// Nothing can listen at the API's address.
    #[error("api: can't listen on {address}: {error}")]
    Api {
        /// As configured.
        address: SocketAddr,
        /// The system's.
        error: io::Error,
    },
    /// Nothing can listen at one of the addresses for NBD clients.
    #[error(transparent)]
    Nbd(#[from] BindError),
    /// What a server that starts has to say of itself can't be agreed.
    #[error("the cluster's state can't be changed: {0}")]
    Propose(#[from] ProposeError),
    /// The cluster's state can't be kept any more, or the cluster goes on without this server.
    #[error("{0}; the server has stopped: start it again once that is mended")]
    Failed(ProposeError),
    /// A signal came first. [`serve`](crate::serve()) takes that for success.
    #[error("it was told to stop before it served")]
    Interrupted,
    /// Signals, or the runtime of what isn't data.
    #[error("the server can't be set up: {0}")]
    System(#[source] io::Error),
}
