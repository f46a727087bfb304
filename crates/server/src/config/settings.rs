//! Settings as somebody wrote them.
//!
//! ```toml
//! data = "/var/lib/tepal"
//! create = "home"                       # the cluster's name, if there is none in `data` yet
//! server = "s1"
//! join = ["10.0.0.1:7118"]              # instead of `create`: a server of the cluster to join
//! site = "cellar"                       # what this server shares with all that may be lost together with it
//! peers = "127.0.0.1:7118"              # where other servers find this one; unix:DATA/peers.sock if it isn't said
//! listen = ["unix:/run/tepal/nbd.sock", "127.0.0.1:10809"]
//! api = "127.0.0.1:7117"
//! drives = ["/dev/sdb", { path = "/dev/sdc", log = "/dev/nvme0n1p3" }]
//! pool = "default"
//! replace_after = "10m"                 # a drive that is away for so long is one whose copies are made again elsewhere
//! emulate = "hdd"
//! data_threads = 2
//! log_file = "/var/log/tepal.log"
//! insecure = false
//! require_tls = false                   # of NBD clients on this machine too
//! identity = "/etc/tepal/s2"            # made by `tepal identity create --server`: by which this server joins over TLS
//! keys = "/etc/tepal/keys"              # keys by which those of encrypted volumes are wrapped
//! names = ["nas.example"]               # further names of this machine, for its certificate
//! ```

use serde::Deserialize;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// What was written; nothing of it is checked. `None`: nothing was, and what is said here counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// The data folder. There is no default.
    pub data: Option<PathBuf>,
    /// Which server this is, as `s1`. Any, by default; `s1` in a new cluster.
    pub server: Option<String>,
    /// The name of the cluster to make, if there is none in the data folder. None is made by default.
    pub create: Option<String>,
    /// Where servers of the cluster to join are found, each as `HOST:PORT` or `unix:PATH`. None by default.
    pub join: Option<Vec<String>>,
    /// The name of what this server shares with all that may be lost together with it. As it was, by default.
    pub site: Option<String>,
    /// Where other servers find this one, as `IP:PORT` or `unix:PATH`. By default `peers.sock` in the data folder.
    pub peers: Option<String>,
    /// Drives to use besides those that the cluster knows. None by default.
    pub drives: Option<Vec<DriveSettings>>,
    /// The pool of drives that are added by being named here. `default` by default.
    pub pool: Option<String>,
    /// Where NBD clients find the volumes, each as `IP:PORT` or `unix:PATH`. Nowhere by default.
    pub listen: Option<Vec<String>>,
    /// Where the admin API listens, as `IP:PORT`. By default on any free port of loopback.
    pub api: Option<String>,
    /// How long a drive may be away before its copies are made again elsewhere, as `90s`, `10m` or `24h`. That of whichever server leads
    /// counts. Ten minutes by default.
    pub replace_after: Option<String>,
    /// The model whose pace all drives keep: see [`crate::device::emulate::Model`]. By default they are as fast as they
    /// can.
    pub emulate: Option<String>,
    /// From 1 to 1024. By default one for each core.
    pub data_threads: Option<i64>,
    /// Where the log goes. By default to standard error.
    pub log_file: Option<PathBuf>,
    /// Whether other machines may reach the server without encryption. By default not.
    pub insecure: Option<bool>,
    /// Whether NBD clients on loopback need TLS too. By default not.
    pub require_tls: Option<bool>,
    /// The folder of an identity of a server, by which this one joins over TLS. None by default.
    pub identity: Option<PathBuf>,
    /// Names and addresses by which clients find this server, besides those that it knows. None by default.
    pub names: Option<Vec<String>>,
    /// The folder of keys by which those of encrypted volumes are wrapped. None by default.
    pub keys: Option<PathBuf>,
}

/// A drive: its path, or a table with more about it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged, expecting = "a drive is a path, or a table with `path` and maybe `log`")]
pub enum DriveSettings {
    /// A drive with its log on it.
    Path(PathBuf),
    /// With what else is said of it.
    Table(DriveTable),
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DriveTable {
    pub path: PathBuf,
    pub log: Option<PathBuf>,
}

impl DriveSettings {
    /// As written, or relative to the file's folder: see [`Settings::read`].
    pub fn path(&self) -> &Path {
        match self {
            DriveSettings::Path(path) => path,
            DriveSettings::Table(table) => &table.path,
        }
    }

    /// The device of its log; `None` if the log is on the drive itself.
    pub fn log(&self) -> Option<&Path> {
        match self {
            DriveSettings::Path(_) => None,
            DriveSettings::Table(table) => table.log.as_deref(),
        }
    }
}

/// Why a configuration file can't be used.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// Give another path, or permission.
    #[error("{}: {error}", path.display())]
    Unreadable {
        /// Which file.
        path: PathBuf,
        /// The system's.
        error: io::Error,
    },
    /// Name the right file.
    #[error("{}: it has more than {MOST_BYTES} bytes: is it a configuration file?", path.display())]
    TooLong {
        /// Which file.
        path: PathBuf,
    },
    /// Name the right file.
    #[error("{}: it isn't text in UTF-8: is it a configuration file?", path.display())]
    NotText {
        /// Which file.
        path: PathBuf,
    },
    /// Mend this line.
    #[error("{}, line {line}: {reason}", path.display())]
    Malformed {
        /// Which file.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
        /// For people, in one line.
        reason: String,
    },
}

const MOST_BYTES: u64 = 1 << 20;

impl Settings {
    /// Reads a configuration file. Relative paths in it are relative to its folder.
    pub fn read(path: &Path) -> Result<Self, FileError> {
        let unreadable = |error| FileError::Unreadable { path: path.to_owned(), error };
        // Not by its size: a device or a pipe says none, and may never end.
        let file = File::open(path).map_err(unreadable)?;
        let mut text = Vec::new();
        file.take(MOST_BYTES + 1).read_to_end(&mut text).map_err(unreadable)?;
        if text.len() as u64 > MOST_BYTES {
            return Err(FileError::TooLong { path: path.to_owned() });
        }
        let text = String::from_utf8(text).map_err(|_| FileError::NotText { path: path.to_owned() })?;
        let mut settings = Self::parse(&text).map_err(|(line, reason)| FileError::Malformed {
            path: path.to_owned(),
            line,
            reason,
        })?;
        settings.resolve(path.parent().unwrap_or(Path::new("")));
        Ok(settings)
    }

    /// The settings, or the line at fault and what is wrong there.
    pub(super) fn parse(text: &str) -> Result<Self, (usize, String)> {
        toml::from_str(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start.min(text.len()));
            let line = 1 + text.as_bytes()[..at].iter().filter(|byte| **byte == b'\n').count();
            (line, error.message().replace('\n', " "))
        })
    }

    fn resolve(&mut self, folder: &Path) {
        let place = |path: &mut PathBuf| {
            if !path.as_os_str().is_empty() {
                *path = folder.join(&*path);
            }
        };
        self.data.iter_mut().for_each(place);
        self.log_file.iter_mut().for_each(place);
        self.identity.iter_mut().for_each(place);
        self.keys.iter_mut().for_each(place);
        for drive in self.drives.iter_mut().flatten() {
            match drive {
                DriveSettings::Path(path) => place(path),
                DriveSettings::Table(table) => {
                    place(&mut table.path);
                    table.log.iter_mut().for_each(place);
                }
            }
        }
        let listen = self.listen.iter_mut().flatten();
        for listen in listen.chain(&mut self.peers).chain(self.join.iter_mut().flatten()) {
            if let Some(path) = listen.strip_prefix("unix:").filter(|path| !path.is_empty()) {
                *listen = format!("unix:{}", folder.join(path).display());
            }
        }
    }

    /// These settings, and the other's where these say nothing.
    pub fn or(self, other: Settings) -> Settings {
        Settings {
            data: self.data.or(other.data),
            server: self.server.or(other.server),
            create: self.create.or(other.create),
            join: self.join.or(other.join),
            site: self.site.or(other.site),
            peers: self.peers.or(other.peers),
            drives: self.drives.or(other.drives),
            pool: self.pool.or(other.pool),
            listen: self.listen.or(other.listen),
            api: self.api.or(other.api),
            replace_after: self.replace_after.or(other.replace_after),
            emulate: self.emulate.or(other.emulate),
            data_threads: self.data_threads.or(other.data_threads),
            log_file: self.log_file.or(other.log_file),
            insecure: self.insecure.or(other.insecure),
            require_tls: self.require_tls.or(other.require_tls),
            names: self.names.or(other.names),
            identity: self.identity.or(other.identity),
            keys: self.keys.or(other.keys),
        }
    }
}
