//! A server from its start to its end.

use crate::access::{self, Access, Claims, Credentials};
use crate::agreed::Followed;
use crate::api::{self, Api, Steward};
use crate::authority::MetadataAuthority;
use crate::config::Config;
use crate::damage::{DamageEvents, DamageFile, Scrubs};
use crate::data_folder::{self, Addresses};
use crate::data_links::{EngineAnswers, Links, Reception};
use crate::data_threads::DataThreads;
use crate::descriptors;
use crate::drives::{self, Drives, Generations, Parts};
use crate::error::ServeError;
use crate::following;
use crate::gaps;
use crate::importing::{self, Imports};
use crate::keeping::{self, Keeper};
use crate::keys::Keyring;
use crate::log;
use crate::membership::{self, Membership};
use crate::migrating::{self, Migrations};
use crate::moving;
use crate::nbd::Front;
use crate::nbd::exports::ServerExports;
use crate::observed::{DamageOf, Observations};
use crate::relay::Reporter;
use crate::scheduling;
use crate::tasks;
use crate::volumes::Volumes;
use crate::world::ServerWorld;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tepal_engine::Engine;
use tepal_metadata::Metadata;
use tepal_wire::handshake::{Host, Sender};
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Notify;

/// How long the drives may take to be closed. What isn't closed then is replayed by the next start.
const CLOSE_DRIVES: Duration = Duration::from_secs(20);

/// Why a server that ran ends.
#[derive(Clone, Copy, Debug)]
enum ExitReason {
    /// SIGTERM or SIGINT.
    Signal,
    /// The API was asked to stop it.
    Requested,
    /// It can't go on.
    Failed,
}

/// Runs a server until it is told to stop. Blocks. Logs by itself, and ends the process at once on any panic.
pub fn serve(config: Config) -> Result<(), ServeError> {
    // First: the log may be in it.
    let existed = config.data.exists();
    data_folder::prepare(&config.data)?;
    if let Err(error) = log::start(config.log_file.as_deref()) {
        if !existed {
            let _ = std::fs::remove_dir(&config.data); // nothing is left of a start that failed
        }
        return Err(error.into());
    }
    log::abort_on_panic();
    descriptors::raise();
    let started = Instant::now();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(ServeError::System)?;
    let threads = Arc::new(DataThreads::start(config.data_threads)?);
    let outcome = runtime.block_on(run(config, started, threads.clone()));
    // Its tasks first, as they use the threads.
    runtime.shutdown_timeout(Duration::from_secs(1));
    drop(threads);
    outcome
}

async fn run(config: Config, started: Instant, threads: Arc<DataThreads>) -> Result<(), ServeError> {
    let mut signals = Signals::listen().map_err(ServeError::System)?;
    let failed = |error| ServeError::Api { address: config.api, error };
    let listener = TcpListener::bind(config.api).await.map_err(failed)?;
    let api_address = listener.local_addr().map_err(failed)?;
    let credentials = credentials_of(&config)?;
    let opening = Membership::open(&config, api_address, &credentials);
    let membership = tokio::select! {
        opened = opening => opened?,
        () = signals.any() => return Ok(()),
    };
    let metadata = membership.metadata.clone();
    let serving = async {
        let folder = config.data.clone();
        let waiting = membership.tell_of_start(&folder, true);
        membership.take_part().await?;
        drop(waiting);
        let _starting = membership.tell_of_start(&folder, false);
        Running::start(config, (started, credentials), threads, &membership, listener, api_address).await
    };
    let server = tokio::select! {
        server = serving => server,
        () = signals.any() => Err(ServeError::Interrupted),
    };
    let outcome = match server {
        Ok(server) => {
            let (reason, outcome) = tokio::select! {
                () = signals.any() => (ExitReason::Signal, Ok(())),
                () = server.stop.notified() => (ExitReason::Requested, Ok(())),
                error = metadata.failed() => (ExitReason::Failed, Err(ServeError::Failed(error))),
            };
            tracing::info!(?reason, "stopping");
            server.close().await;
            outcome
        }
        Err(ServeError::Interrupted) => Ok(()),
        Err(error) => Err(error),
    };
    membership.close().await;
    outcome
}

/// Has volumes served as agreed, those copied that are imported, and damage remembered.
fn keep_volumes(parts: Parts, volumes: Arc<Volumes>, damage: &Arc<DamageFile>) {
    tasks::spawn(importing::keep_copying(parts, volumes.clone()));
    tasks::spawn(volumes.follow());
    tasks::spawn(damage.clone().keep());
}

/// What asks a process to stop.
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    pub fn listen() -> io::Result<Self> {
        Ok(Signals { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    pub async fn any(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// A server that serves.
struct Running {
    config: Config,
    drives: Arc<Drives>,
    damage: Arc<DamageFile>,
    front: Front,
    api: api::Front,
    links: Links,
    reception: Arc<Reception>,
    stop: Arc<Notify>,
}

impl Running {
    async fn start(
        config: Config,
        (started, credentials): (Instant, Credentials),
        threads: Arc<DataThreads>,
        membership: &Membership,
        listener: TcpListener,
        api_address: SocketAddr,
    ) -> Result<Self, ServeError> {
        let metadata = membership.metadata.clone();
        let server = metadata.server();
        let token = data_folder::token(&config.data)?;
        let generations = Generations::open(&config.data)?;
        let caller = metadata.caller();
        let links = Links::new(caller.cluster, Sender::Server { server, boot: caller.run }, credentials.clone());
        let followed = Followed::default();
        let reporter = Reporter::start(metadata.clone(), membership.relay.clone());
        let authority = MetadataAuthority::new(metadata.clone(), followed.clone()).with_reporter(reporter);
        let engine = Engine::among(ServerWorld, Arc::new(authority.clone()), Arc::new(links.clone()));
        let parts = Parts {
            metadata: metadata.clone(),
            engine: engine.clone(),
            authority: authority.clone(),
            threads: threads.clone(),
            claims: Claims::new(&metadata),
            keyring: Keyring::new(config.keys.clone(), caller.cluster),
            imports: Imports::default(),
            keeper: Keeper::start(metadata.clone(), engine.clone(), threads.clone(), keeping::patience),
        };
        let drives = Arc::new(Drives::new(&config, parts.clone(), generations));
        drives.start().await?;
        let volumes = Volumes::new(parts.clone());
        volumes.open_all().await?;
        let host = Host { cluster: caller.cluster, server, boot: caller.run };
        let access = Access::new(&config.data, &parts, &membership.relay, &token, credentials);
        let answers = EngineAnswers::of(&parts);
        let reception = Reception::new(host, Arc::new(answers), &threads);
        membership.hand_data_to(reception.clone());
        tasks::spawn(gaps::keep_closing(parts.clone(), membership.relay.clone(), followed.clone()));
        tasks::spawn(following::follow(parts.clone(), links.clone(), followed));
        let (migrations, observations) = <(Migrations, Observations)>::default();
        tasks::spawn(migrating::keep_going(parts.clone(), membership.relay.reports().clone(), migrations.clone()));
        let damage = Arc::new(open_damage(&config, &metadata, &observations));
        let front = serve_clients(&config, &access, (&volumes, &observations), authority.clone(), &threads).await?;
        let events = DamageEvents::new(engine, metadata.clone(), authority, observations.clone());
        let nbd: Vec<String> = front.endpoints().iter().map(ToString::to_string).collect();
        let stop = Arc::<Notify>::default();
        let scrubs = Scrubs::new(threads.clone(), metadata.clone(), observations.clone());
        let api = api::Front::open(
            listener,
            Api {
                server,
                parts: parts.clone(),
                drives: drives.clone(),
                volumes: volumes.clone(),
                observations,
                migrations,
                scrubs: scrubs.clone(),
                access,
                started,
                address: api_address,
                relay: membership.relay.clone(),
                links: links.clone(),
                nbd: nbd.clone(),
                surplus: [front.surplus().clone()].into_iter().chain(membership.surplus()).collect(),
                stop: stop.clone(),
            },
            token,
        );
        tasks::spawn(moving::keep_even(parts.clone(), api.survey(), config.replace_after));
        keep_volumes(parts, volumes, &damage);
        tasks::spawn(events.keep());
        look_after(&drives, scrubs, metadata, &api.steward());
        let addresses = Addresses { server, pid: std::process::id(), api: api_address.to_string(), nbd };
        data_folder::write_addresses(&config.data, &addresses)?;
        tracing::info!(%server, api = addresses.api, nbd = ?addresses.nbd, after = ?started.elapsed(), "serving");
        Ok(Running { config, drives, damage, front, api, links, reception, stop })
    }

    /// Accepts nobody, lets what is under way finish, and closes the drives.
    async fn close(self) {
        data_folder::remove_addresses(&self.config.data);
        tokio::join!(self.front.close(), self.api.close(), self.reception.close());
        // First: what can't reach others any more because this server goes would blame their drives.
        self.drives.declare_none_down();
        self.links.stop();
        self.damage.save();
        if tokio::time::timeout(CLOSE_DRIVES, self.drives.close()).await.is_err() {
            tracing::warn!("the drives didn't close in time: their logs will be replayed");
        }
    }
}

/// To NBD clients.
async fn serve_clients(
    config: &Config,
    access: &Access,
    (volumes, observations): (&Arc<Volumes>, &Observations),
    authority: MetadataAuthority,
    threads: &Arc<DataThreads>,
) -> Result<Front, ServeError> {
    let exports = ServerExports {
        metadata: access.metadata().clone(),
        volumes: volumes.clone(),
        observations: observations.clone(),
        access: access.clone(),
        authority,
        client: None,
    };
    let protections = config.listen.iter().map(|address| config.protection_of(address, access.source()));
    let front = Front::open(config.listen.iter().zip(protections), exports, threads).await?;
    let (names, wants_tls) = (config.machine_names(), config.wants_tls());
    access::own::first(access, &names, wants_tls).await;
    tasks::spawn(access::own::keep(access.clone(), names, wants_tls));
    warn_if_open(config);
    Ok(front)
}

fn open_damage(config: &Config, metadata: &Metadata, observations: &Observations) -> DamageFile {
    let metadata = metadata.clone();
    let is_there = move |whose: DamageOf| whose.is_in(&metadata.state());
    DamageFile::open(&config.data, observations.clone(), is_there)
}

/// While this server leads the metadata.
fn run_schedules(metadata: &Metadata, steward: &Steward) {
    let clock = scheduling::wall_clock_ms;
    tasks::spawn(scheduling::keep_running(metadata.clone(), steward.clone(), clock));
    tasks::spawn(scheduling::keep_scrubbing(metadata.clone(), steward.clone(), clock));
    tasks::spawn(scheduling::keep_expiring(metadata.clone(), steward.clone()));
}

/// Until the server stops.
fn look_after(drives: &Arc<Drives>, scrubs: Scrubs, metadata: Metadata, steward: &Steward) {
    run_schedules(&metadata, steward);
    tasks::spawn(membership::return_whenever_down(metadata, drives.clone()));
    tasks::spawn(drives::watch(drives.clone()));
    tasks::spawn(drives::settle_doubts(drives.clone(), scrubs));
    tasks::spawn(drives::watch_labels(drives.clone()));
}

/// Those that this server had, or was given to join by.
fn credentials_of(config: &Config) -> Result<Credentials, ServeError> {
    let credentials = Credentials::new(config.privacy.clone());
    access::own::recall(&config.data, &credentials);
    if !credentials.are_there()
        && let Some(folder) = &config.identity
    {
        credentials.read(folder).map_err(Box::new)?;
    }
    Ok(credentials)
}

fn warn_if_open(config: &Config) {
    if config.privacy.is_open {
        tracing::warn!(
            "--insecure: where other machines reach this server, nothing is encrypted, and any NBD client may read and write every volume"
        );
    }
}
