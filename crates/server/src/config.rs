//! What a server is told at start: by flags, by a TOML file, or by both, where flags win.
//!
//! Two steps: [`Settings`] is what somebody wrote, each part optional; [`Config`] is what a server can run with, every part
//! checked. A server that has a `Config` has nothing left to refuse in it but what only the machine knows.

mod protection;
mod settings;
#[cfg(test)]
mod tests;

pub use protection::Privacy;
pub use settings::{DriveSettings, FileError, Settings};

use crate::data_threads::DataThreads;
use crate::device::emulate::{Model, ModelError};
use std::ffi::OsStr;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tepal_gateway::nbd::{Endpoint, EndpointError};
use tepal_metadata::DEFAULT_POOL;
use tepal_model::ServerId;
use tepal_model::id::IdError;
use tepal_model::text::{NAME_RULE, duration, is_name, shown};

/// What a server runs with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Absolute. Holds the metadata, the token and the addresses; made with mode 0700 if it isn't there.
    pub data: PathBuf,
    /// Which server this must be; the first one of a new cluster, if that matters.
    pub server: Option<ServerId>,
    /// The name of the cluster to make if `data` holds none yet.
    pub create: Option<String>,
    /// Servers of the cluster to join if `data` holds none yet: where their peers find them.
    pub join: Vec<String>,
    /// The place that this server is at, by a name; as it was, if not said.
    pub site: Option<String>,
    /// Where other servers of the cluster find this one. `None`: nowhere, so it stays alone.
    pub peers: Option<Endpoint>,
    /// The drives to use, in no order. Those of the cluster that the metadata knows are tried too.
    pub drives: Vec<DrivePath>,
    /// The pool of drives that are added by being in `drives`.
    pub pool: String,
    /// Where NBD clients find the volumes.
    pub listen: Vec<Endpoint>,
    /// Where the admin API listens. Port 0: any that is free.
    pub api: SocketAddr,
    /// How long a drive may be away before its copies are made again elsewhere, while this server leads.
    pub replace_after: Duration,
    /// All drives slowed to this model.
    pub emulate: Option<Model>,
    /// From 1 to 1024.
    pub data_threads: usize,
    /// Where the log goes; standard error if nowhere else.
    pub log_file: Option<PathBuf>,
    /// How those are kept out that shouldn't come in.
    pub privacy: Privacy,
    /// The folder of the identity by which this server joins, if it has no certificate of its own yet.
    pub identity: Option<PathBuf>,
    /// The folder of keys by which those of encrypted volumes are wrapped.
    pub keys: Option<PathBuf>,
}

/// A drive to use, and the device of its log if that is not on the drive.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DrivePath {
    /// Absolute. A file or a block device.
    pub path: PathBuf,
    /// Absolute. `None` if the log is on the drive itself.
    pub log: Option<PathBuf>,
}

/// Why a server can't run with these settings.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// Mend the configuration file.
    #[error(transparent)]
    File(#[from] FileError),
    /// A setting without which no server runs.
    #[error("{0} is missing: set it in the configuration file, or by --{0}")]
    Missing(&'static str),
    /// A setting's path can't be used.
    #[error("{what}: {reason}")]
    Path {
        /// Which setting.
        what: &'static str,
        /// What the path lacks.
        reason: PathError,
    },
    /// Leave one out: each device is one drive, or the log of one.
    #[error("{path} is given twice")]
    DriveTwice {
        /// Absolute.
        path: PathBuf,
    },
    /// One of the addresses isn't one.
    #[error("listen: {0}")]
    Listen(#[from] EndpointError),
    /// Leave one out.
    #[error("listen: {0} is given twice")]
    ListenTwice(Endpoint),
    /// Name a shorter path; this is the absolute one.
    #[error("listen: the path of a unix socket has at most {SOCKET_PATH} bytes, and {} has more", .0.display())]
    SocketPath(PathBuf),
    /// As written; of a long text the beginning.
    #[error("api: '{0}' is not an address: write IP:PORT, as in 127.0.0.1:7117")]
    Api(String),
    /// Say that this is meant, or listen on loopback alone.
    #[error(
        "{what}: {address} can be reached from other machines, and a gateway offers no TLS in this version: whoever listens in or \
         breaks in could read and write every volume. Listen on 127.0.0.1, or say --insecure if the network is yours alone"
    )]
    Open {
        /// Which setting.
        what: &'static str,
        /// The first one that others can reach.
        address: SocketAddr,
    },
    /// As written; of a long text the beginning.
    #[error("names: '{0}' is no name or address of a machine, as nas.example or 10.0.0.1")]
    MachineName(String),
    /// The setting is no id of a server.
    #[error("server: {0}; write s1, s2, ...")]
    Server(#[from] IdError),
    /// The setting is no model of a drive.
    #[error("emulate: {0}")]
    Emulate(#[from] ModelError),
    /// As written; of a long text the beginning.
    #[error("replace_after: '{0}' is not a time from 1 s to a year: write 90s, 10m or 24h")]
    ReplaceAfter(String),
    /// Choose another name.
    #[error("{what}: '{name}' is not a name: {NAME_RULE}")]
    Name {
        /// Which setting.
        what: &'static str,
        /// As written; of a long text the beginning.
        name: String,
    },
    /// As written.
    #[error("data_threads: {0} is not a number from 1 to {MOST_THREADS}")]
    Threads(i64),
    /// Both settings are there.
    #[error("create and join: a server makes a new cluster, or joins another: leave one out")]
    CreateAndJoin,
    /// As written; of a long text the beginning.
    #[error("join: '{0}' is not an address of a server: write HOST:PORT or unix:PATH, as its --peers says")]
    Join(String),
    /// The setting is no address.
    #[error("peers: {0}")]
    Peers(EndpointError),
    /// The setting has port 0.
    #[error("peers: port 0 is any that is free, and other servers must find this one after a restart too: name a port")]
    AnyPeerPort,
    /// The absolute path, as it was written or as it is by default.
    #[error(
        "peers: other servers must find this one, and {} is too long for a socket: name a shorter unix:PATH, or \
         IP:PORT", .0.display()
    )]
    LongPeerPath(PathBuf),
}

/// Why a text is no path to use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// Write a path.
    #[error("the path is empty")]
    Empty,
    /// No system takes such a path.
    #[error("the path has a zero byte in it")]
    Nul,
    /// Its bytes as an absolute path.
    #[error("the path has {0} bytes, and at most {LONGEST_PATH} are possible")]
    TooLong(usize),
    /// Choose a path that is.
    #[error("the path is not UTF-8, which the cluster's records need")]
    NotUnicode,
    /// Change to a folder that is there, or write an absolute path.
    #[error("the current folder is gone, and the path is relative to it")]
    NoCurrentFolder,
}

const LONGEST_PATH: usize = 4095;
/// What fits in a `sockaddr_un` with its closing zero.
const SOCKET_PATH: usize = 107;
const MOST_THREADS: i64 = 1024;
/// As long as a server takes to be repaired by hand for once, or restarted with all its checks.
const REPLACE_AFTER: Duration = Duration::from_secs(600);
const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);
/// The first server of a new cluster, if nothing else is said.
pub const FIRST_SERVER: ServerId = ServerId(1);
/// In the data folder: where other servers find this one, if nothing else is said.
const PEERS: &str = "peers.sock";
/// Any free port of loopback: `addresses.json` tells which.
const DEFAULT_API: &str = "127.0.0.1:0";

impl Config {
    /// What the settings come to. Relative paths are relative to the current folder.
    pub fn new(settings: Settings) -> Result<Self, ConfigError> {
        let join = join_addresses(settings.join.unwrap_or_default())?;
        if settings.create.is_some() && !join.is_empty() {
            return Err(ConfigError::CreateAndJoin);
        }
        let (insecure, require_tls) = (settings.insecure.unwrap_or(false), settings.require_tls.unwrap_or(false));
        let privacy = Privacy::new(insecure, require_tls, settings.names.unwrap_or_default())?;
        let data = absolute("data", &settings.data.ok_or(ConfigError::Missing("data"))?)?;
        let listen = listen_addresses(settings.listen.unwrap_or_default())?;
        let written = settings.api.unwrap_or_else(|| DEFAULT_API.to_owned());
        let api: SocketAddr = written.parse().map_err(|_| ConfigError::Api(shown(&written)))?;
        let peers = peer_address(settings.peers, &data, !join.is_empty())?;
        let mut config = Config {
            data,
            server: settings.server.map(|id| id.parse()).transpose()?,
            create: settings.create.map(|create| name("create", create)).transpose()?,
            join,
            site: settings.site.map(|site| name("site", site)).transpose()?,
            peers,
            drives: drives(settings.drives.unwrap_or_default())?,
            pool: name("pool", settings.pool.unwrap_or_else(|| DEFAULT_POOL.to_owned()))?,
            listen,
            api,
            replace_after: replace_after(settings.replace_after.as_deref())?,
            emulate: settings.emulate.map(|model| model.parse()).transpose()?,
            data_threads: threads(settings.data_threads)?,
            log_file: settings.log_file.map(|path| absolute("log_file", &path)).transpose()?,
            privacy,
            identity: settings.identity.map(|path| absolute("identity", &path)).transpose()?,
            keys: settings.keys.map(|path| absolute("keys", &path)).transpose()?,
        };
        config.privacy.is_open = config.is_open();
        Ok(config)
    }
}

fn replace_after(written: Option<&str>) -> Result<Duration, ConfigError> {
    let Some(written) = written else { return Ok(REPLACE_AFTER) };
    let known = duration(written).filter(|time| (Duration::from_secs(1)..=YEAR).contains(time));
    known.ok_or_else(|| ConfigError::ReplaceAfter(shown(written)))
}

/// Addresses for NBD clients, each written as `unix:PATH` or `IP:PORT`. Paths become absolute; none may come twice.
pub fn listen_addresses(written: Vec<String>) -> Result<Vec<Endpoint>, ConfigError> {
    let mut addresses = Vec::new();
    for text in written {
        let address = match text.parse()? {
            Endpoint::Unix(path) => Endpoint::Unix(absolute("listen", &path)?),
            tcp => tcp,
        };
        match &address {
            Endpoint::Unix(path) if path.as_os_str().len() > SOCKET_PATH => {
                return Err(ConfigError::SocketPath(path.clone()));
            }
            address if addresses.contains(address) => return Err(ConfigError::ListenTwice(address.clone())),
            _ => addresses.push(address),
        }
    }
    Ok(addresses)
}

fn join_addresses(written: Vec<String>) -> Result<Vec<String>, ConfigError> {
    let one = |text: String| match text.strip_prefix("unix:") {
        Some(path) if !path.is_empty() => Ok(format!("unix:{}", absolute("join", Path::new(path))?.display())),
        Some(_) => Err(ConfigError::Join(shown(&text))),
        None => match text.rsplit_once(':') {
            Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0) => Ok(text),
            _ => Err(ConfigError::Join(shown(&text))),
        },
    };
    written.into_iter().map(one).collect()
}

/// Where other servers find one of which nothing else is said: a socket in its data folder, if its path isn't too long.
pub fn default_peers(data: &Path) -> Option<Endpoint> {
    let path = data.join(PEERS);
    (path.as_os_str().len() <= SOCKET_PATH).then_some(Endpoint::Unix(path))
}

/// Only a server that has others must have an address.
fn peer_address(written: Option<String>, data: &Path, joins: bool) -> Result<Option<Endpoint>, ConfigError> {
    let is_short = |path: &Path| path.as_os_str().len() <= SOCKET_PATH;
    let Some(written) = written else {
        return match default_peers(data) {
            None if joins => Err(ConfigError::LongPeerPath(data.join(PEERS))),
            found => Ok(found),
        };
    };
    match written.parse().map_err(ConfigError::Peers)? {
        Endpoint::Tcp(address) if address.port() == 0 => Err(ConfigError::AnyPeerPort),
        Endpoint::Unix(path) => {
            let path = absolute("peers", &path)?;
            if is_short(&path) { Ok(Some(Endpoint::Unix(path))) } else { Err(ConfigError::LongPeerPath(path)) }
        }
        tcp => Ok(Some(tcp)),
    }
}

/// One of these addresses that other machines can reach.
pub fn open_to_others(listen: &[Endpoint]) -> Option<SocketAddr> {
    listen.iter().filter_map(tcp).find(|address| !address.ip().is_loopback())
}

fn tcp(endpoint: &Endpoint) -> Option<SocketAddr> {
    match endpoint {
        Endpoint::Tcp(address) => Some(*address),
        Endpoint::Unix(_) => None,
    }
}

fn drives(written: Vec<DriveSettings>) -> Result<Vec<DrivePath>, ConfigError> {
    let mut drives: Vec<DrivePath> = Vec::new();
    for drive in written {
        let path = absolute("drive", drive.path())?;
        let log = drive.log().map(|log| absolute("log", log)).transpose()?;
        let known = |path: &PathBuf| drives.iter().any(|drive| drive.path == *path || drive.log.as_ref() == Some(path));
        if let Some(path) = [Some(&path), log.as_ref()].into_iter().flatten().find(|path| known(path)) {
            return Err(ConfigError::DriveTwice { path: path.clone() });
        }
        if log.as_ref() == Some(&path) {
            return Err(ConfigError::DriveTwice { path });
        }
        drives.push(DrivePath { path, log });
    }
    Ok(drives)
}

/// A name as the cluster accepts it, checked before anything is made.
fn name(what: &'static str, written: String) -> Result<String, ConfigError> {
    if is_name(&written) { Ok(written) } else { Err(ConfigError::Name { what, name: shown(&written) }) }
}

/// How many data threads there shall be: one for each core, if it isn't written.
pub fn threads(written: Option<i64>) -> Result<usize, ConfigError> {
    match written {
        None => Ok(DataThreads::one_for_each_core()),
        Some(count @ 1..=MOST_THREADS) => Ok(count as usize),
        Some(count) => Err(ConfigError::Threads(count)),
    }
}

/// [`usable_path`] for the setting that is called `what`.
pub fn absolute(what: &'static str, path: &Path) -> Result<PathBuf, ConfigError> {
    usable_path(path).map_err(|reason| ConfigError::Path { what, reason })
}

/// The path as an absolute one, if it can be one at all. Symbolic links in it stay as they are.
pub fn usable_path(path: &Path) -> Result<PathBuf, PathError> {
    let bytes = OsStr::as_bytes(path.as_os_str());
    if bytes.is_empty() {
        return Err(PathError::Empty);
    }
    if bytes.contains(&0) {
        return Err(PathError::Nul);
    }
    let path = std::path::absolute(path).map_err(|_| PathError::NoCurrentFolder)?;
    match (path.as_os_str().len(), path.to_str()) {
        (length, _) if length > LONGEST_PATH => Err(PathError::TooLong(length)),
        (_, None) => Err(PathError::NotUnicode),
        (_, Some(_)) => Ok(path),
    }
}
