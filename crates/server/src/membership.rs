//! This server as one of the cluster's: how it gets there, tells where it is, and comes back when it was declared down.

use crate::access::Credentials;
use crate::config::{Config, FIRST_SERVER, default_peers};
use crate::data_folder::{self, Elsewhere, Starting, StartingFile};
use crate::data_links::Reception;
use crate::drives::Drives;
use crate::error::ServeError;
use crate::peers::{self, Answering, OpenPort, PeerLinks, Port, Subject};
use crate::relay::Relay;
use crate::world::ServerWorld;
use futures_util::future::{BoxFuture, FutureExt};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tepal_drive::world::Random;
use tepal_gateway::nbd::Surplus;
use tepal_metadata::{Command, JoinError, JoinRequest, Metadata, OpenError, ServerRecord, ServerState, Surroundings};
use tepal_model::ClusterId;

const CLOSE: Duration = Duration::from_secs(5);
/// How often people are told what a server waits for.
const REMIND: Duration = Duration::from_secs(10);
/// So long a server asks to be let into the cluster, and how often.
const JOIN_WITHIN: Duration = Duration::from_secs(12);
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// After an attempt to come back that failed.
const TRY_AGAIN: Duration = Duration::from_millis(200);

pub struct Membership {
    pub metadata: Metadata,
    pub relay: Relay,
    /// Where others reach this server; as long as it's there, they do.
    port: Option<OpenPort>,
    address: String,
    /// Where this server is, if it was told.
    site: Option<String>,
}

impl Membership {
    /// Opens what the data folder has of the cluster; makes a new one, or joins one, if that was asked for and there is none.
    pub async fn open(config: &Config, api: SocketAddr, credentials: &Credentials) -> Result<Self, ServeError> {
        // One that nobody can reach is known by where its API is.
        let address = config.peers.as_ref().map_or_else(|| api.to_string(), ToString::to_string);
        let links = Arc::new(PeerLinks::new(credentials.clone()));
        let metadata = open_metadata(config, &address, peers::surroundings(links.clone())).await?;
        credentials.introduce(&metadata);
        let relay = Relay::new(links);
        let mut membership = Membership { metadata, relay, port: None, address, site: config.site.clone() };
        if let Some(endpoint) = &config.peers {
            match Port::bind(endpoint, credentials.clone()).await {
                Ok(port) => membership.open_port(port),
                Err(error) if membership.needs_none(config) => {
                    tracing::warn!(%error, "no other server can join this one");
                }
                Err(error) => {
                    membership.close().await;
                    return Err(error.into());
                }
            }
        }
        match config.server.filter(|wanted| *wanted != membership.metadata.server()) {
            None => Ok(membership),
            Some(wanted) => {
                let found = membership.metadata.server();
                membership.close().await;
                Err(ServeError::OtherServer { found, wanted })
            }
        }
    }

    fn open_port(&mut self, port: Port) {
        let answers = Answers { metadata: self.metadata.clone(), relay: self.relay.clone() };
        self.port = Some(port.open(self.metadata.caller(), Arc::new(answers)));
    }

    /// Whether this server is alone, and nobody asked for others to find it.
    fn needs_none(&self, config: &Config) -> bool {
        config.peers == default_peers(&config.data) && self.metadata.state().servers.len() == 1
    }

    /// From here on others are answered who ask for data.
    pub fn hand_data_to(&self, reception: Arc<Reception>) {
        if let Some(port) = &self.port {
            port.hand_data_to(reception);
        }
    }

    /// Connections of others that were turned away, if they can come at all.
    pub fn surplus(&self) -> Option<Arc<Surplus>> {
        self.port.as_ref().map(|port| port.surplus().clone())
    }

    /// What others know of this server, as far as it knows itself.
    fn record(&self) -> Option<Arc<ServerRecord>> {
        self.metadata.state().servers.get(&self.metadata.server()).cloned()
    }

    /// Says in the data folder that this server starts, and for whom it waits: nobody can ask it yet. A server that is alone waits for
    /// nobody.
    pub fn tell_of_start(&self, folder: &Path, waits: bool) -> Option<StartingFile> {
        let (state, server) = (self.metadata.state(), self.metadata.server());
        let voters = self.metadata.voters();
        let others = state.servers.values().filter(|other| other.id != server && voters.contains(&other.id));
        let elsewhere = |other: &Arc<ServerRecord>| Elsewhere { server: other.id, address: other.address.clone() };
        let (address, pid) = (self.address.clone(), std::process::id());
        let looked_for_at = self.record().map_or_else(|| address.clone(), |record| record.address.clone());
        let waits_for = if waits { others.map(elsewhere).collect() } else { Vec::new() };
        let starting = Starting { server, pid, address, looked_for_at, waits_for };
        let written = data_folder::write_starting(folder, &starting);
        written.inspect_err(|error| tracing::warn!(%error, "the data folder can't tell that this server starts")).ok()
    }

    /// Returns once the others know that this server is here, where they reach it, and at which site it is. A server that is alone has
    /// nobody to wait for.
    pub async fn take_part(&self) -> Result<(), ServeError> {
        let metadata = &self.metadata;
        let waiting = async {
            loop {
                tokio::time::sleep(REMIND).await;
                tracing::warn!("waiting for other servers: a majority of those that vote must be there");
                let (own, record) = (&self.address, self.record());
                if let Some(known) = record.map(|record| record.address.clone()).filter(|known| known != own) {
                    tracing::warn!("others look for this server at {known}, not at {own}: `--peers` was another");
                }
            }
        };
        tokio::select! {
            taken = metadata.wait_for_its_place() => taken.map_err(ServeError::Failed)?,
            () = waiting => {}
        }
        let (id, address) = (metadata.server(), self.address.clone());
        let Some(record) = self.record() else { return Ok(()) };
        if record.address != address {
            metadata.propose(Command::SetServerAddress { id, address }).await?;
        }
        if self.site.is_some() && self.site != record.site {
            metadata.propose(Command::SetServerSite { id, site: self.site.clone() }).await?;
        }
        Ok(())
    }

    pub async fn close(self) {
        let Membership { metadata, port, .. } = self;
        if tokio::time::timeout(CLOSE, metadata.shutdown()).await.is_err() {
            tracing::warn!("the metadata didn't close in time; its next start checks what it finds");
        }
        drop(port);
    }
}

async fn open_metadata(config: &Config, address: &str, surroundings: Surroundings) -> Result<Metadata, ServeError> {
    match Metadata::open_among(&config.data, surroundings.clone()).await {
        Err(OpenError::NotThere(folder)) => match &config.create {
            Some(name) => {
                let id = ClusterId(u128::from(ServerWorld.next_u64()) << 64 | u128::from(ServerWorld.next_u64()));
                let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
                let now_ms = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
                let first = config.server.unwrap_or(FIRST_SERVER);
                Metadata::found(&config.data, id, name, first, address, now_ms).await?;
                let made = Metadata::open_among(&config.data, surroundings).await?;
                tracing::info!(cluster = name, %id, "new cluster");
                Ok(made)
            }
            None if config.join.is_empty() => Err(ServeError::NoCluster(OpenError::NotThere(folder))),
            None => {
                let joined = join(config, address, surroundings).await?;
                tracing::info!(server = %joined.server(), "joined the cluster");
                Ok(joined)
            }
        },
        opened => Ok(opened?),
    }
}

/// Asks for a while: the cluster may be about to start, or to find out that the server whose folder is lost is down.
async fn join(config: &Config, address: &str, surroundings: Surroundings) -> Result<Metadata, JoinError> {
    let (through, address) = (config.join.clone(), address.to_owned());
    let request = JoinRequest { cluster: None, name: None, through, address, claim: config.server };
    let until = Instant::now() + JOIN_WITHIN;
    loop {
        match Metadata::join(&config.data, &request, surroundings.clone()).await {
            Err(error @ (JoinError::StillUp(_) | JoinError::Unreachable(_))) if Instant::now() < until => {
                tracing::warn!(%error, "this server can't join yet");
                tokio::time::sleep(ASK_AGAIN).await;
            }
            joined => return joined,
        }
    }
}

/// What other servers ask, handed to who answers it.
struct Answers {
    metadata: Metadata,
    relay: Relay,
}

impl Answering for Answers {
    fn answer(&self, from: String, subject: Subject, call: Vec<u8>) -> BoxFuture<'static, Vec<u8>> {
        let metadata = self.metadata.clone();
        match subject {
            Subject::Metadata => async move { metadata.answer(&from, &call).await }.boxed(),
            Subject::Api => self.relay.clone().answer(call).boxed(),
        }
    }
}

/// A server that was silent for too long, and so was declared down, lets go of all its drives; then it's up again in a new
/// view, and takes them back into use as drives that were away.
pub async fn return_whenever_down(metadata: Metadata, drives: Arc<Drives>) {
    let mut changes = metadata.watch();
    loop {
        while is_down(&metadata) {
            tracing::warn!("the cluster has declared this server down: it begins anew");
            drives.let_go_of_all("its server was declared down").await;
            if let Err(error) = metadata.return_to_service().await {
                tracing::warn!(%error, "this server can't come back yet");
                tokio::time::sleep(TRY_AGAIN).await;
            }
        }
        if changes.changed().await.is_err() {
            return;
        }
    }
}

fn is_down(metadata: &Metadata) -> bool {
    let record = metadata.state().servers.get(&metadata.server()).cloned();
    record.is_some_and(|record| record.state == ServerState::Down)
}
