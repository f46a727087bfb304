//! Finding the cluster: `--cluster`, else `TEPAL_CLUSTER`, else the folder `--dir` or `./tepal-dev`.
//!
//! A folder is that of a development cluster, or the data folder of one server. A token is looked for in `TEPAL_TOKEN`, then
//! in the folder, then among those that this user's development clusters have left (see [`Keyring`]).

use crate::attach::NbdAddress;
use crate::cli::Global;
use crate::client::Client;
use crate::credentials;
use serde::Deserialize;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use tepal_model::text::shown;

pub const DEFAULT_DIR: &str = "tepal-dev";
const ADDRESSES: &str = "addresses.json";
const STARTING: &str = "starting.json";
const TOKEN: &str = "token";
/// Where the gateway of a development cluster listens, in its folder.
pub const GATEWAY: &str = "nbd.sock";

#[derive(Debug, thiserror::Error)]
pub enum LocateError {
    #[error("{what} '{text}' is not a list of addresses: write HOST:PORT[,HOST:PORT...]")]
    Addresses { what: &'static str, text: String },
    #[error(
        "there is no cluster in {}: start one with `tepal dev up`, or name one by --dir, --cluster or TEPAL_CLUSTER",
        .0.display()
    )]
    NoCluster(PathBuf),
    #[error("no server of the cluster in {} is running: start it with `tepal serve`, or a development cluster with `tepal dev up`", .0.display())]
    NotRunning(PathBuf),
    #[error("no server of the cluster in {} serves yet: {starting}", folder.display())]
    Starting { folder: PathBuf, starting: Box<Starting> },
    #[error("{}: {error}", path.display())]
    Unreadable { path: PathBuf, error: io::Error },
    #[error("{} is not as a server writes it: {error}", path.display())]
    Malformed { path: PathBuf, error: serde_json::Error },
    #[error(transparent)]
    Credentials(#[from] credentials::CredentialsError),
    #[error("volumes are reached over NBD, and the server serves none: start it with --listen")]
    NoNbd,
}

/// Where one server answers, as it writes it into its data folder when it's ready.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Addresses {
    /// HOST:PORT of the admin API.
    pub api: String,
    /// Each `unix:PATH` or HOST:PORT.
    #[serde(default)]
    pub nbd: Vec<String>,
}

impl Addresses {
    /// `None` if the server isn't ready, or was never there.
    pub fn read(data: &Path) -> Result<Option<Self>, LocateError> {
        let path = data.join(ADDRESSES);
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(LocateError::Unreadable { path, error }),
        };
        serde_json::from_slice(&text).map(Some).map_err(|error| LocateError::Malformed { path, error })
    }

    /// Whether NBD clients are accepted at one of its sockets.
    pub fn serves(&self) -> bool {
        let sockets = self.nbd.iter().filter_map(|address| address.strip_prefix("unix:"));
        sockets.into_iter().any(|socket| UnixStream::connect(socket).is_ok())
    }

    pub fn file(data: &Path) -> PathBuf {
        data.join(ADDRESSES)
    }
}

/// A server that runs and doesn't serve yet, as it writes it into its data folder.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Starting {
    server: String,
    pid: i32,
    /// Where other servers find it.
    address: String,
    /// Where they look for it.
    looked_for_at: String,
    /// Servers of which too few have answered.
    waits_for: Vec<Elsewhere>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
struct Elsewhere {
    server: String,
    address: String,
}

impl Starting {
    /// `None` if no such server runs: one that was killed leaves its file.
    fn read(data: &Path) -> Option<Starting> {
        let starting: Starting = serde_json::from_slice(&fs::read(data.join(STARTING)).ok()?).ok()?;
        let found = nix::sys::signal::kill(nix::unistd::Pid::from_raw(starting.pid), None);
        matches!(found, Ok(()) | Err(nix::errno::Errno::EPERM)).then_some(starting)
    }
}

impl std::fmt::Display for Starting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Starting { server, pid, address, looked_for_at, waits_for } = self;
        if waits_for.is_empty() {
            return write!(f, "server {server} (process {pid}) is starting: ask again in a moment");
        }
        let others: Vec<String> =
            waits_for.iter().map(|other| format!("{} at {}", other.server, other.address)).collect();
        write!(
            f,
            "server {server} (process {pid}) runs and waits for a majority of those that vote, and looks for {}: start them there, each with \
             `--peers` as it was",
            others.join(", ")
        )?;
        if address != looked_for_at {
            write!(
                f,
                "; they look for {server} at {looked_for_at}, not at {address}: start it with `--peers {looked_for_at}`"
            )?;
        }
        Ok(())
    }
}

pub fn read_token(data: &Path) -> Result<Option<String>, LocateError> {
    let path = data.join(TOKEN);
    match fs::read_to_string(&path) {
        Ok(text) => Ok(Some(text.trim().to_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(LocateError::Unreadable { path, error }),
    }
}

/// The folder that `--dir` names, or the default.
pub fn dir(global: &Global) -> PathBuf {
    global.dir.clone().unwrap_or_else(|| DEFAULT_DIR.into())
}

/// The folder of the development cluster that the options name, if it's one whose servers `tepal dev` starts.
pub fn dev_folder(global: &Global) -> Option<PathBuf> {
    let folder = Some(dir(global)).filter(|_| named_by_address(global).is_none())?;
    let is_dev = data_folders(&folder).is_ok_and(|found| found.first().is_some_and(|first| *first != folder));
    is_dev.then_some(folder)
}

/// A client of the cluster that the options and the environment name.
pub fn client(global: &Global) -> Result<Client, LocateError> {
    if let Some((what, text)) = named_by_address(global) {
        let servers = addresses(what, &text)?;
        let client = Client::new(servers.clone(), None);
        return Ok(match identity(global) {
            Some(folder) => client.with_tls(credentials::of_identity(&folder)?),
            None => Client::new(servers.clone(), token_for(global, &servers)?),
        });
    }
    let folder = dir(global);
    let data = data_folders(&folder)?;
    let mut servers = Vec::new();
    for data in &data {
        servers.extend(Addresses::read(data)?.map(|addresses| addresses.api));
    }
    if servers.is_empty() {
        // One that waits for others has more to say than one that takes its drives into use.
        let starting = data.iter().filter_map(|data| Starting::read(data)).max_by_key(|one| one.waits_for.len());
        return Err(match starting {
            Some(starting) => LocateError::Starting { folder, starting: Box::new(starting) },
            None => LocateError::NotRunning(folder),
        });
    }
    let token = environment_token().map_or_else(|| read_token(&data[0]), |token| Ok(Some(token)))?;
    let client = Client::new(servers, token);
    if let Some(folder) = identity(global) {
        return Ok(client.with_tls(credentials::of_identity(&folder)?));
    }
    // Of servers of which each has one; a new one may not have it yet.
    let own = data.iter().map(|data| credentials::of_server(data)).collect::<Result<Option<Vec<_>>, _>>()?;
    Ok(match own.and_then(|mut own| own.pop()) {
        Some(tls) => client.with_tls(tls),
        None => client,
    })
}

/// The folder of the identity that the options or the environment name.
pub fn identity(global: &Global) -> Option<PathBuf> {
    let environment = || std::env::var_os("TEPAL_IDENTITY").filter(|text| !text.is_empty()).map(PathBuf::from);
    global.identity.clone().or_else(environment)
}

/// A client of another cluster than the one that the options name.
pub fn other(addresses_said: &str) -> Result<Client, LocateError> {
    let servers = addresses("the other cluster", addresses_said)?;
    let said = std::env::var("TEPAL_TO_TOKEN").ok().filter(|text| !text.is_empty());
    let token = said.or_else(|| servers.iter().find_map(|address| Keyring::find()?.get(address)));
    let client = Client::new(servers, token).with_token_of("TEPAL_TO_TOKEN");
    match std::env::var_os("TEPAL_TO_IDENTITY").filter(|text| !text.is_empty()) {
        Some(folder) => Ok(client.with_tls(credentials::of_identity(Path::new(&folder))?)),
        None => Ok(client),
    }
}

/// The addresses that were given, and by what.
fn named_by_address(global: &Global) -> Option<(&'static str, String)> {
    let environment = || std::env::var("TEPAL_CLUSTER").ok().filter(|text| !text.is_empty());
    let named = global.cluster.clone().map(|text| ("--cluster", text));
    named.or_else(|| environment().map(|text| ("TEPAL_CLUSTER", text)))
}

/// The gateway of the development cluster that `--dir` or the default names, if it's there: whatever server dies, it goes on.
pub fn dev_gateway(global: &Global) -> Option<NbdAddress> {
    let socket = std::path::absolute(dir(global).join(GATEWAY)).ok().filter(|_| named_by_address(global).is_none())?;
    UnixStream::connect(&socket).is_ok().then_some(NbdAddress::Unix(socket))
}

fn environment_token() -> Option<String> {
    std::env::var("TEPAL_TOKEN").ok().filter(|text| !text.is_empty())
}

/// The data folders of the servers that a folder is about: its own, or those of a development cluster in it.
fn data_folders(folder: &Path) -> Result<Vec<PathBuf>, LocateError> {
    if let Err(error) = fs::metadata(folder.join(ADDRESSES))
        && error.kind() == io::ErrorKind::PermissionDenied
    {
        return Err(LocateError::Unreadable { path: folder.to_owned(), error });
    }
    if folder.join(ADDRESSES).exists() || folder.join("cluster.db").exists() {
        return Ok(vec![folder.to_owned()]);
    }
    let mut found: Vec<PathBuf> = Vec::new();
    for number in 1.. {
        let data = folder.join(format!("s{number}"));
        if !data.is_dir() {
            break;
        }
        found.push(data);
    }
    if found.is_empty() { Err(LocateError::NoCluster(folder.to_owned())) } else { Ok(found) }
}

pub fn addresses(what: &'static str, text: &str) -> Result<Vec<String>, LocateError> {
    let wrong = || LocateError::Addresses { what, text: shown(text) };
    let plain = text.split(',').map(|part| part.trim().trim_start_matches("http://").trim_end_matches('/'));
    let valid = |part: &&str| {
        let host = |c: char| c.is_ascii_alphanumeric() || ".-_[]:".contains(c);
        part.rsplit_once(':').is_some_and(|(name, port)| !name.is_empty() && port.parse::<u16>().is_ok())
            && part.chars().all(host)
    };
    let servers: Vec<String> = plain.filter(valid).map(str::to_owned).collect();
    if servers.len() == text.split(',').count() { Ok(servers) } else { Err(wrong()) }
}

fn token_for(global: &Global, servers: &[String]) -> Result<Option<String>, LocateError> {
    if let Some(token) = environment_token() {
        return Ok(Some(token));
    }
    if let Some(folder) = &global.dir {
        return read_token(&data_folders(folder)?[0]);
    }
    Ok(servers.iter().find_map(|address| Keyring::find()?.get(address)))
}

/// Where NBD is served, the local socket first.
pub fn nbd(addresses: &[String]) -> Result<NbdAddress, LocateError> {
    let unix =
        addresses.iter().find_map(|address| address.strip_prefix("unix:")).filter(|path| Path::new(path).exists());
    let tcp = || addresses.iter().find(|address| !address.starts_with("unix:"));
    match unix {
        Some(path) => Ok(NbdAddress::Unix(path.into())),
        None => tcp().map(|address| NbdAddress::Tcp(address.clone())).ok_or(LocateError::NoNbd),
    }
}

/// Where NBD is served over TCP, by an identity's files.
pub fn nbd_over_tls(addresses: &[String], identity: &Path) -> Option<NbdAddress> {
    let tcp = addresses.iter().find(|address| !address.starts_with("unix:"));
    tcp.map(|address| NbdAddress::Tls { address: address.clone(), identity: identity.to_owned() })
}

/// The tokens of this user's development clusters by the address of their API, so that `--cluster 127.0.0.1:PORT` works
/// for whoever started one. A folder that only this user can read.
pub struct Keyring {
    folder: PathBuf,
}

impl Keyring {
    /// `None` where there is no place that is surely this user's alone.
    pub fn find() -> Option<Self> {
        let user = nix::unistd::geteuid().as_raw();
        let folder = match std::env::var_os("XDG_RUNTIME_DIR").filter(|text| !text.is_empty()) {
            Some(runtime) => PathBuf::from(runtime).join("tepal"),
            None => std::env::temp_dir().join(format!("tepal-{user}")),
        };
        match fs::DirBuilder::new().mode(0o700).create(&folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return None,
            _ => {}
        }
        let found = fs::symlink_metadata(&folder).ok()?;
        let private = found.is_dir() && found.uid() == user && found.mode() & 0o077 == 0;
        private.then_some(Keyring { folder })
    }

    fn file(&self, address: &str) -> PathBuf {
        self.folder.join(format!("token-{}", address.replace([':', '/'], "-")))
    }

    fn get(&self, address: &str) -> Option<String> {
        fs::read_to_string(self.file(address)).ok().map(|text| text.trim().to_owned())
    }

    pub fn put(&self, address: &str, token: &str) -> io::Result<()> {
        let path = self.file(address);
        let _ = fs::remove_file(&path); // one of an earlier cluster
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        writeln!(file, "{token}")
    }

    /// If it isn't there, all the better.
    pub fn remove(&self, address: &str) {
        let _ = fs::remove_file(self.file(address));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_hosts_and_ports() {
        for (text, found) in [
            ("127.0.0.1:7117", Some(vec!["127.0.0.1:7117"])),
            ("http://127.0.0.1:7117/", Some(vec!["127.0.0.1:7117"])),
            ("a:1,b:2, [::1]:3", Some(vec!["a:1", "b:2", "[::1]:3"])),
            ("", None),
            ("a", None),
            ("a:1,", None),
            (":1", None),
            ("a:99999", None),
            ("a/b:1", None),
            ("a@b:1", None),
            ("a b:1", None),
        ] {
            let servers = addresses("--cluster", text).ok();
            assert_eq!(servers, found.map(|list| list.into_iter().map(str::to_owned).collect()), "{text}");
        }
    }

    #[test]
    fn the_local_socket_is_preferred_and_one_that_is_not_here_is_skipped() {
        let here = tempfile::NamedTempFile::new().expect("space");
        let unix = format!("unix:{}", here.path().display());
        let tcp = "127.0.0.1:10809".to_owned();
        assert_eq!(nbd(&[tcp.clone(), unix]).ok(), Some(NbdAddress::Unix(here.path().into())));
        assert_eq!(nbd(&["unix:/nowhere/at/all".into(), tcp.clone()]).ok(), Some(NbdAddress::Tcp(tcp)));
        assert!(nbd(&[]).is_err());
    }

    /// Story: servers waited for each other, as each had another address than the others knew, and `status` said that none was running.
    #[test]
    fn a_server_that_waits_says_for_whom_and_which_address_is_wrong() {
        let data = tempfile::tempdir().expect("space");
        let read = |pid: i32| {
            let waits = format!(
                r#"{{"server": "s1", "pid": {pid}, "address": "h:8", "looked_for_at": "h:1", "waits_for": [{{"server": "s2", "address": "h:2"}}]}}"#
            );
            fs::write(data.path().join(STARTING), waits).expect("space");
            Starting::read(data.path())
        };
        let text = read(std::process::id() as i32).expect("it runs").to_string();
        for part in ["s1", "s2 at h:2", "they look for s1 at h:1, not at h:8", "--peers h:1"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert_eq!(read(i32::MAX), None, "it was killed");
    }

    #[test]
    fn a_folder_without_a_cluster_is_said_to_have_none() {
        let folder = tempfile::tempdir().expect("space");
        assert!(matches!(data_folders(folder.path()), Err(LocateError::NoCluster(_))));
        fs::create_dir(folder.path().join("s1")).expect("ours");
        assert_eq!(data_folders(folder.path()).ok(), Some(vec![folder.path().join("s1")]));
    }
}
