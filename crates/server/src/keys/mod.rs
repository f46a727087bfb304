//! The keys by which the keys of encrypted volumes are wrapped: a folder of files, one for each.
//!
//! ```text
//! NAME.key          64 hexadecimal digits, drawn at random: `tepal key create`
//! NAME.passphrase   words; a line feed at the end doesn't count
//! NAME.command      a command line for sh, which prints what NAME.key would have: of a program that asks a key service
//! ```
//!
//! The cluster never has these keys. A server or a gateway that should read and write encrypted volumes has such a folder; another one
//! keeps and moves their data as it is, and says which key it lacks.
//!
//! Files are read when a key is needed, so that one can come or go without a restart. Secrets are wiped from memory once a key is made of
//! them; what a passphrase gave is kept, as it takes long to make.

mod wrapped;

pub use wrapped::UnwrapError;

use crate::world::ServerWorld;
use ring::digest::{SHA256, digest};
use rustix::process::{Pid, Signal, kill_process_group};
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};
use tepal_engine::Volume;
use tepal_model::ClusterId;
use tepal_model::text::{NAME_RULE, is_name, shown};
use tokio::task::spawn_blocking;
use wrapped::{SECRET, VolumeKey, WrappingKey, from_hex};
use zeroize::Zeroizing;

/// A command may take so long to print a key.
const COMMAND_LIMIT: Duration = Duration::from_secs(30);
/// So long it counts whether a key is there.
const LOOK_AGAIN: Duration = Duration::from_secs(2);
/// Of files, by how their names end.
const KINDS: [&str; 3] = ["key", "passphrase", "command"];
const TOO_LONG: &str = "the command took more than 30 s";
/// Bytes of a file, and of what a command prints.
const LONGEST: u64 = 4096;
/// Bytes of a passphrase.
const SHORTEST_PASSPHRASE: usize = 8;

/// Why a key can't be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// Start it with the folder.
    #[error("key '{0}' is needed, and it was given no folder of keys: start the server or gateway with --keys DIR")]
    NoFolder(String),
    /// Put the file there.
    #[error(
        "key '{name}' is needed, and {} has none of {name}.key, {name}.passphrase and {name}.command: copy the key's file there",
        folder.display()
    )]
    Missing {
        /// The key's.
        name: String,
        /// Where it was looked for.
        folder: PathBuf,
    },
    /// Choose another name.
    #[error("'{0}' is no name of a key: {NAME_RULE}")]
    Name(String),
    /// Another file has that name.
    #[error("{} is there already: a key that may have wrapped others is not replaced", .0.display())]
    Exists(PathBuf),
    /// Change its mode.
    #[error("{} may be read or written by others than its owner: chmod 600 it", .0.display())]
    Open(PathBuf),
    /// Change its mode.
    #[error("{} may be written by others than its owner, who could put other keys there: chmod 700 it", .0.display())]
    OpenFolder(PathBuf),
    /// Mend the file.
    #[error("{}: {reason}", path.display())]
    File {
        /// Which file.
        path: PathBuf,
        /// For people.
        reason: String,
    },
    /// It's another key, of the same name.
    #[error("key '{name}' of {}: {error}", folder.display())]
    Unwrap {
        /// The key's.
        name: String,
        /// Where it is.
        folder: PathBuf,
        /// What is wrong with it.
        error: UnwrapError,
    },
    /// The system's.
    #[error("{}: {error}", path.display())]
    System {
        /// Which file.
        path: PathBuf,
        /// What it said.
        error: io::Error,
    },
}

/// Cheap to clone. Clones are the same.
#[derive(Clone)]
pub struct Keyring {
    shared: Arc<Shared>,
}

struct Shared {
    folder: Option<PathBuf>,
    cluster: ClusterId,
    /// By name: when it was looked whether there's no such key, and what came of it.
    lacking: Mutex<BTreeMap<String, (Instant, bool)>>,
    /// By name: what passphrases gave, by their hash; and what commands printed last.
    made: Mutex<BTreeMap<String, (Origin, WrappingKey)>>,
}

#[derive(Clone, PartialEq, Eq)]
enum Origin {
    Passphrase(Vec<u8>),
    Command,
}

impl Keyring {
    /// Of the files in this folder, if one is given. The log says if it isn't there: perhaps its path is wrong.
    pub fn new(folder: Option<PathBuf>, cluster: ClusterId) -> Self {
        if let Some(folder) = folder.as_deref().filter(|folder| !folder.is_dir()) {
            tracing::warn!(folder = %folder.display(), "there is no such folder of keys");
        }
        Keyring { shared: Arc::new(Shared { folder, cluster, lacking: Mutex::default(), made: Mutex::default() }) }
    }

    /// A new volume's key, wrapped by the key of this name. `other`: what that key has wrapped already, so that not two keys of different
    /// servers have the same name.
    pub async fn draw(&self, name: &str, other: Option<&str>) -> Result<String, KeyError> {
        let (shared, name, other) = (self.shared.clone(), name.to_owned(), other.map(str::to_owned));
        blocking(move || {
            let key = match other {
                None => shared.key(&name, false)?,
                Some(other) => shared.key_that_wrapped(&name, &other)?.0,
            };
            Ok(key.wrap(&VolumeKey::draw()))
        })
        .await
    }

    /// Whether a folder was given that has no such key.
    pub fn lacks(&self, name: &str) -> bool {
        let Some(folder) = &self.shared.folder else { return false };
        let mut lacking = self.shared.lacking.lock().unwrap_or_else(PoisonError::into_inner);
        match lacking.get(name) {
            Some((looked, lacks)) if looked.elapsed() < LOOK_AGAIN => *lacks,
            _ => {
                let lacks = !KINDS.iter().any(|kind| folder.join(format!("{name}.{kind}")).exists());
                lacking.insert(name.to_owned(), (Instant::now(), lacks));
                lacks
            }
        }
    }

    /// The same volume's key, wrapped by another key.
    pub async fn rewrap(&self, from: &str, wrapped: &str, to: &str) -> Result<String, KeyError> {
        let (shared, from, wrapped, to) = (self.shared.clone(), from.to_owned(), wrapped.to_owned(), to.to_owned());
        blocking(move || {
            let key = shared.unwrap(&from, &wrapped)?;
            Ok(shared.key(&to, false)?.wrap(&key))
        })
        .await
    }

    /// Has the volume read and written from now on.
    pub async fn unlock(&self, volume: &Volume<ServerWorld>, name: &str, wrapped: &str) -> Result<(), KeyError> {
        let (shared, volume) = (self.shared.clone(), volume.clone());
        let (name, wrapped) = (name.to_owned(), wrapped.to_owned());
        blocking(move || {
            volume.unlock(shared.unwrap(&name, &wrapped)?.cipher());
            Ok(())
        })
        .await
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, KeyError> + Send + 'static,
) -> Result<T, KeyError> {
    spawn_blocking(work).await.expect("it doesn't panic, and nobody cancels it")
}

impl Shared {
    fn unwrap(&self, name: &str, wrapped: &str) -> Result<VolumeKey, KeyError> {
        self.key_that_wrapped(name, wrapped).map(|(_, key)| key)
    }

    /// The key of this name, and the volume's key that it has wrapped.
    fn key_that_wrapped(&self, name: &str, wrapped: &str) -> Result<(WrappingKey, VolumeKey), KeyError> {
        let by = |key: WrappingKey| key.unwrap(wrapped).map(|unwrapped| (key, unwrapped));
        let opened = match by(self.key(name, false)?) {
            // What a command printed before may be old.
            Err(UnwrapError::AnotherKey) => by(self.key(name, true)?),
            opened => opened,
        };
        let folder = self.folder.clone().unwrap_or_default();
        opened.map_err(|error| KeyError::Unwrap { name: name.to_owned(), folder, error })
    }

    /// `anew`: commands are run, even if they were before.
    fn key(&self, name: &str, anew: bool) -> Result<WrappingKey, KeyError> {
        if !is_name(name) {
            return Err(KeyError::Name(shown(name)));
        }
        let folder = self.folder.as_deref().ok_or_else(|| KeyError::NoFolder(name.to_owned()))?;
        let is_open = |metadata: std::fs::Metadata| metadata.mode() & 0o022 != 0;
        if folder.metadata().is_ok_and(is_open) {
            return Err(KeyError::OpenFolder(folder.to_owned()));
        }
        let path = |kind: &str| folder.join(format!("{name}.{kind}"));
        if let Some(text) = read(&path("key"))? {
            return Ok(WrappingKey::of_secret(&*secret(&path("key"), &text)?, self.cluster));
        }
        if let Some(text) = read(&path("passphrase"))? {
            return self.of_passphrase(name, &path("passphrase"), &text);
        }
        if let Some(line) = read(&path("command"))? {
            if let Some(known) = self.made(name, &Origin::Command).filter(|_| !anew) {
                return Ok(known);
            }
            let printed = run(&path("command"), &line)?;
            let key = WrappingKey::of_secret(&*secret(&path("command"), &printed)?, self.cluster);
            self.keep(name, Origin::Command, &key);
            return Ok(key);
        }
        Err(KeyError::Missing { name: name.to_owned(), folder: folder.to_owned() })
    }

    fn of_passphrase(&self, name: &str, path: &Path, text: &[u8]) -> Result<WrappingKey, KeyError> {
        let words = text.strip_suffix(b"\n").unwrap_or(text);
        if words.len() < SHORTEST_PASSPHRASE {
            let reason = format!("a passphrase has at least {SHORTEST_PASSPHRASE} bytes");
            return Err(KeyError::File { path: path.to_owned(), reason });
        }
        let origin = Origin::Passphrase(digest(&SHA256, words).as_ref().to_vec());
        if let Some(known) = self.made(name, &origin) {
            return Ok(known);
        }
        let key = WrappingKey::of_passphrase(words, name, self.cluster);
        self.keep(name, origin, &key);
        Ok(key)
    }

    fn made(&self, name: &str, origin: &Origin) -> Option<WrappingKey> {
        let made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        made.get(name).filter(|(known, _)| known == origin).map(|(_, key)| key.clone())
    }

    fn keep(&self, name: &str, origin: Origin, key: &WrappingKey) {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        made.insert(name.to_owned(), (origin, key.clone()));
    }
}

/// The keys of a folder, by name, each with its kind: `key`, `passphrase` or `command`. Nothing of them is read.
pub fn list(folder: &Path) -> Result<BTreeMap<String, &'static str>, KeyError> {
    let system = |error| KeyError::System { path: folder.to_owned(), error };
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(folder).map_err(system)? {
        let file = entry.map_err(system)?.file_name();
        let named = file.to_str().and_then(|file| file.rsplit_once('.')).filter(|(name, _)| is_name(name));
        let Some((name, of_kind)) = named else { continue };
        let Some(rank) = KINDS.iter().position(|kind| *kind == of_kind) else { continue };
        // Of two files of one name, the one that counts.
        let known = found.entry(name.to_owned()).or_insert(rank);
        *known = rank.min(*known);
    }
    Ok(found.into_iter().map(|(name, rank)| (name, KINDS[rank])).collect())
}

/// Makes `NAME.key` in a folder, with a secret that is drawn at random. The folder is made too, if it isn't there.
pub fn create(folder: &Path, name: &str) -> Result<PathBuf, KeyError> {
    if !is_name(name) {
        return Err(KeyError::Name(shown(name)));
    }
    let kinds = KINDS.map(|kind| folder.join(format!("{name}.{kind}")));
    if let Some(there) = kinds.iter().find(|path| path.exists()) {
        return Err(KeyError::Exists(there.clone()));
    }
    let [path, ..] = kinds;
    let system = |error: io::Error| match error.kind() {
        io::ErrorKind::AlreadyExists => KeyError::Exists(path.clone()),
        _ => KeyError::System { path: path.clone(), error },
    };
    let mut drawn = Zeroizing::new([0; SECRET]);
    wrapped::fill(&mut *drawn);
    let mut text = Zeroizing::new(String::with_capacity(2 * SECRET + 1));
    for byte in *drawn {
        text.extend([byte >> 4, byte & 15].map(|digit| char::from(b"0123456789abcdef"[usize::from(digit)])));
    }
    text.push('\n');
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.map_err(|error| KeyError::System { path: folder.to_owned(), error })?;
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).map_err(system)?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(system)?;
    std::fs::File::open(folder).and_then(|folder| folder.sync_all()).map_err(system)?;
    Ok(path)
}

/// `None` if there is no such file.
fn read(path: &Path) -> Result<Option<Zeroizing<Vec<u8>>>, KeyError> {
    let system = |error| KeyError::System { path: path.to_owned(), error };
    // A pipe doesn't make it wait.
    let opening = std::fs::OpenOptions::new()
        .read(true)
        .custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed())
        .open(path);
    let file = match opening {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(system)?,
    };
    let metadata = file.metadata().map_err(system)?;
    if !metadata.is_file() {
        return Err(KeyError::File { path: path.to_owned(), reason: "it isn't a file".to_owned() });
    }
    if metadata.mode() & 0o077 != 0 {
        return Err(KeyError::Open(path.to_owned()));
    }
    let mut text = Zeroizing::new(Vec::with_capacity(LONGEST as usize + 1));
    file.take(LONGEST + 1).read_to_end(&mut text).map_err(system)?;
    if text.len() as u64 > LONGEST {
        return Err(KeyError::File { path: path.to_owned(), reason: format!("it has more than {LONGEST} bytes") });
    }
    Ok(Some(text))
}

fn secret(path: &Path, text: &[u8]) -> Result<Zeroizing<[u8; SECRET]>, KeyError> {
    let text = std::str::from_utf8(text).ok();
    let bytes = Zeroizing::new(text.and_then(|text| from_hex(text.trim_ascii())).unwrap_or_default());
    let mut secret = Zeroizing::new([0; SECRET]);
    if bytes.len() != SECRET {
        let reason = format!("a key is {} hexadecimal digits", 2 * SECRET);
        return Err(KeyError::File { path: path.to_owned(), reason });
    }
    secret.copy_from_slice(&bytes);
    Ok(secret)
}

/// What a command prints.
fn run(path: &Path, line: &[u8]) -> Result<Zeroizing<Vec<u8>>, KeyError> {
    let failed = |reason: String| KeyError::File { path: path.to_owned(), reason };
    let system = |error| KeyError::System { path: path.to_owned(), error };
    let line = std::str::from_utf8(line).map_err(|_| failed("it isn't text".to_owned()))?;
    let mut command = Command::new("/bin/sh");
    command.arg("-c").arg(line).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    command.process_group(0); // to end all that it starts
    let mut child = command.spawn().map_err(system)?;
    let out = child.stdout.take().expect("it's a pipe");
    // By itself: something that the command has left behind may keep the pipe open.
    let (send, reading) = mpsc::channel();
    std::thread::spawn(move || {
        let mut printed = Zeroizing::new(Vec::with_capacity(LONGEST as usize));
        let read = out.take(LONGEST).read_to_end(&mut printed).map(|_| printed);
        let _ = send.send(read); // or nobody waits any more
    });
    let until = Instant::now() + COMMAND_LIMIT;
    let status = loop {
        match child.try_wait().map_err(system)? {
            Some(status) => break status,
            None if Instant::now() >= until => {
                end(&mut child);
                return Err(failed(TOO_LONG.to_owned()));
            }
            None => std::thread::sleep(Duration::from_millis(10)),
        }
    };
    end(&mut child); // what it has left behind, which would keep the pipe open
    if !status.success() {
        return Err(failed(format!("the command failed: {status}: run it by hand to see why")));
    }
    let printed = reading.recv_timeout(until.saturating_duration_since(Instant::now()));
    printed.map_err(|_| failed(TOO_LONG.to_owned()))?.map_err(system)
}

/// Ends a command with all that it has started.
fn end(child: &mut Child) {
    if let Some(group) = Pid::from_raw(child.id().cast_signed()) {
        let _ = kill_process_group(group, Signal::KILL);
    }
    let _ = child.wait();
}
