//! A gateway on a client's machine: NBD clients on one side, the primaries of their volumes on the other.
//!
//! ```text
//! NBD client -- data thread: exports -- engine: who leads this column? -- data link --> that server
//! directory.rs: what servers say of volumes, drives and addresses, over their API, state after state
//! ```
//!
//! It has no drives and takes no part in what servers agree on. What it knows of volumes and servers is a hint: servers refuse
//! what is asked by an older state, and it's asked again by a newer one. While none can be asked, requests wait.

mod directory;
mod exports;
mod people;

use crate::access::{AccessError, Credentials};
use crate::config::{self, ConfigError, Privacy};
use crate::data_links::Links;
use crate::data_threads::{DataThreads, StartError};
use crate::descriptors;
use crate::keys::Keyring;
use crate::log::{self, LogError};
use crate::nbd::Front;
use crate::observed::Observations;
use crate::serve::Signals;
use crate::throttle::Throttles;
use crate::world::ServerWorld;
use directory::Followed;
use exports::{GatewayExports, limits_in};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, ready};
use people::{People, trust};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tepal_drive::Loss;
use tepal_drive::world::Random;
use tepal_engine::{Authority, Engine, View};
use tepal_gateway::nbd::{BindError, Endpoint, Protection, TlsSource};
use tepal_model::DriveId;
use tepal_wire::handshake::{ClientId, Sender};
use tokio::sync::mpsc::UnboundedReceiver;

pub use crate::api_types::{Directory, GatewayNews};

/// What a gateway runs with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Where NBD clients find the volumes.
    listen: Vec<Endpoint>,
    data_threads: usize,
    /// Where the log goes; standard error if nowhere else.
    log_file: Option<PathBuf>,
    privacy: Privacy,
    /// The folder of the identity by which servers are called.
    identity: Option<PathBuf>,
    /// The folder of keys by which those of encrypted volumes are wrapped.
    keys: Option<PathBuf>,
    /// How clients have to come.
    clients: Privacy,
}

impl Config {
    /// Relative paths are relative to the current folder.
    pub fn new(
        listen: Vec<String>,
        data_threads: Option<i64>,
        log_file: Option<PathBuf>,
        insecure: bool,
        identity: Option<PathBuf>,
    ) -> Result<Self, ConfigError> {
        let listen = config::listen_addresses(listen)?;
        // Other machines' clients come over TLS, for which the gateway has to be somebody itself.
        if let Some(address) = config::open_to_others(&listen).filter(|_| !insecure && identity.is_none()) {
            return Err(ConfigError::Open { what: "listen", address });
        }
        let clients = Privacy { insecure, ..Privacy::default() };
        let log_file = log_file.map(|path| config::absolute("log_file", &path)).transpose()?;
        let identity = identity.map(|path| config::absolute("identity", &path)).transpose()?;
        // With an identity, servers are called over TLS; without, they answer if they allow that.
        let (insecure, require_tls) = (insecure || identity.is_none(), identity.is_some());
        let privacy = Privacy { insecure, require_tls, ..Privacy::default() };
        let data_threads = config::threads(data_threads)?;
        Ok(Config { listen, data_threads, log_file, privacy, identity, keys: None, clients })
    }

    /// Clients need TLS on loopback too.
    pub fn with_tls_required(self) -> Result<Self, ConfigError> {
        if self.identity.is_none() {
            return Err(ConfigError::Missing("identity"));
        }
        let clients = Privacy { require_tls: true, ..self.clients };
        Ok(Config { clients, ..self })
    }

    /// Whether some client can't come without TLS.
    pub fn wants_tls(&self) -> bool {
        self.listen.iter().any(|address| self.clients.requires_tls(address))
    }

    /// With a folder of keys for encrypted volumes.
    pub fn with_keys(self, folder: Option<PathBuf>) -> Result<Self, ConfigError> {
        let keys = folder.map(|path| config::absolute("keys", &path)).transpose()?;
        Ok(Config { keys, ..self })
    }
}

/// Runs of damaged blocks of a volume that servers are told of.
const MOST_RUNS: usize = 64;

/// What a gateway tells servers of itself. Clones are the same.
#[derive(Clone)]
pub struct Account {
    /// Names this run of it.
    run: u64,
    /// It serves clients over TLS.
    serves: bool,
    clients: Observations,
}

impl Account {
    /// Of one that is about to start.
    pub fn new() -> Self {
        Account { run: ServerWorld.next_u64(), serves: false, clients: Observations::default() }
    }

    /// Of one that serves clients over TLS.
    pub fn of(config: &Config) -> Self {
        Account { serves: config.identity.is_some(), ..Account::new() }
    }

    /// As it's now, to a server by whose directory of that number the gateway acts.
    pub fn news(&self, after: u64) -> GatewayNews {
        let (clients, snapshot_clients) = (self.clients.clients(), self.clients.snapshot_clients());
        let mut damage = self.clients.damage();
        damage.values_mut().for_each(|runs| runs.truncate(MOST_RUNS));
        let (requests, volumes) = (self.clients.requests(), self.clients.volumes());
        GatewayNews {
            gateway: self.run,
            after,
            serves: self.serves,
            clients,
            snapshot_clients,
            damage,
            requests,
            volumes,
        }
    }
}

impl Default for Account {
    fn default() -> Self {
        Self::new()
    }
}

/// Why a gateway didn't start.
#[derive(Debug, thiserror::Error)]
pub enum GatewayError {
    /// The log's file can't be written, or its filter isn't one.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The identity can't be used.
    #[error(transparent)]
    Identity(#[from] Box<AccessError>),
    /// Clients couldn't know the gateway by its certificate.
    #[error(
        "the certificate in {} names no address by which clients find this gateway: have it made anew by `tepal identity renew NAME \
         --address ADDRESS --to DIR`",
        .0.display()
    )]
    Nameless(PathBuf),
    /// The data threads can't be started.
    #[error(transparent)]
    Threads(#[from] StartError),
    /// Nothing can listen at one of its addresses.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// Signals, or the runtime of what isn't data.
    #[error("the system refuses what a gateway needs: {0}")]
    System(io::Error),
}

/// Serves until it's told to stop by SIGTERM or SIGINT. `first` is what some server says now, `news` what any of them says
/// afterwards, in any order; servers are to be told of its clients.
pub fn run(
    config: Config,
    first: Directory,
    news: UnboundedReceiver<Directory>,
    account: Account,
) -> Result<(), GatewayError> {
    let credentials = Credentials::new(config.privacy.clone());
    if let Some(folder) = &config.identity {
        credentials.read(folder).map_err(Box::new)?;
        if config.wants_tls() && !credentials.can_serve() {
            return Err(GatewayError::Nameless(folder.clone()));
        }
    }
    log::start(config.log_file.as_deref())?;
    log::abort_on_panic();
    descriptors::raise();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(GatewayError::System)?;
    let threads = Arc::new(DataThreads::start(config.data_threads)?);
    let outcome = runtime.block_on(serve(config, (first, credentials), news, account.clients, threads.clone()));
    // Its tasks first, as they use the threads.
    runtime.shutdown_timeout(Duration::from_secs(1));
    drop(threads);
    outcome
}

/// TLS is offered wherever the identity's certificate names addresses.
fn protection(config: &Config, address: &Endpoint, credentials: &Credentials) -> Protection {
    let credentials = credentials.clone();
    let tls = credentials.can_serve().then(|| -> TlsSource { Arc::new(move || credentials.for_clients()) });
    Protection { tls, is_required: config.clients.requires_tls(address) }
}

/// Authorities come and go.
fn believe(config: &Config, credentials: &Credentials, now: &Directory) {
    let Some(folder) = &config.identity else { return };
    if let Some(trust) = trust(now).filter(|trust| *trust != credentials.trust())
        && let Err(error) = credentials.read_with(folder, &trust)
    {
        tracing::warn!(%error, "the identity's files can't be read again: authorities are believed as before");
    }
}

async fn serve(
    config: Config,
    (first, credentials): (Directory, Credentials),
    mut news: UnboundedReceiver<Directory>,
    observations: Observations,
    threads: Arc<DataThreads>,
) -> Result<(), GatewayError> {
    let mut signals = Signals::listen().map_err(GatewayError::System)?;
    let client = ClientId(u128::from(ServerWorld.next_u64()) << 64 | u128::from(ServerWorld.next_u64()));
    let cluster = first.cluster;
    let people = People::new(&credentials);
    people.follow(&first);
    let links = Links::new(cluster, Sender::Client { client }, credentials.clone());
    let engine = Engine::among(ServerWorld, Arc::new(Bystander), Arc::new(links.clone()));
    let followed = Followed::begin(first, engine.clone(), links.clone(), threads.clone()).await;
    let keyring = Keyring::new(config.keys.clone(), cluster);
    let throttles = Throttles::default();
    let known = followed.known();
    let exports = GatewayExports {
        directory: followed.known(),
        engine,
        observations,
        keyring,
        throttles: throttles.clone(),
        people: people.clone(),
        credentials: credentials.clone(),
        client: None,
    };
    let protections = config.listen.iter().map(|address| (address, protection(&config, address, &credentials)));
    let front = Front::open(protections, exports, &threads).await?;
    let nbd: Vec<String> = front.endpoints().iter().map(ToString::to_string).collect();
    tracing::info!(?nbd, "serving");
    loop {
        tokio::select! {
            () = signals.any() => break,
            directory = news.recv() => match directory {
                Some(directory) => {
                    followed.follow(directory).await;
                    let now = known.borrow().clone();
                    believe(&config, &credentials, &now);
                    people.follow(&now);
                    throttles.follow(|of| limits_in(&now, of));
                }
                None => break, // nobody asks any more: the process is ending
            },
        }
    }
    tracing::info!("stopping");
    front.close().await;
    links.stop();
    Ok(())
}

/// Has no say in what is agreed.
struct Bystander;

impl Authority for Bystander {
    fn drive_down(&self, _: DriveId, _: Loss) -> BoxFuture<'static, Option<View>> {
        ready(None).boxed()
    }

    fn up_again(&self, _: DriveId, _: View) -> BoxFuture<'static, Option<View>> {
        ready(None).boxed()
    }
}
