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
//! emulate = "hdd"
//! data_threads = 2
//! log_file = "/var/log/tepal.log"
//! insecure = false
//! ```

use serde::Deserialize;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    pub data: Option<PathBuf>,
    pub server: Option<String>,
    pub create: Option<String>,
    pub join: Option<Vec<String>>,
    pub site: Option<String>,
    pub peers: Option<String>,
    pub drives: Option<Vec<DriveSettings>>,
    pub pool: Option<String>,
    pub listen: Option<Vec<String>>,
    pub api: Option<String>,
    pub emulate: Option<String>,
    pub data_threads: Option<i64>,
    pub log_file: Option<PathBuf>,
    pub insecure: Option<bool>,
}

/// A drive: its path, or a table with more about it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged, expecting = "a drive is a path, or a table with `path` and maybe `log`")]
pub enum DriveSettings {
    Path(PathBuf),
    Table(DriveTable),
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DriveTable {
    pub path: PathBuf,
    pub log: Option<PathBuf>,
}

impl DriveSettings {
    pub fn path(&self) -> &Path {
        match self {
            DriveSettings::Path(path) => path,
            DriveSettings::Table(table) => &table.path,
        }
    }

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
    #[error("{}: {error}", path.display())]
    Unreadable { path: PathBuf, error: io::Error },
    #[error("{}: it has more than {MOST_BYTES} bytes: is it a configuration file?", path.display())]
    TooLong { path: PathBuf },
    #[error("{}: it isn't text in UTF-8: is it a configuration file?", path.display())]
    NotText { path: PathBuf },
    #[error("{}, line {line}: {reason}", path.display())]
    Malformed { path: PathBuf, line: usize, reason: String },
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
            emulate: self.emulate.or(other.emulate),
            data_threads: self.data_threads.or(other.data_threads),
            log_file: self.log_file.or(other.log_file),
            insecure: self.insecure.or(other.insecure),
        }
    }
}
