//! `tepal attach`: a volume as a block device of this machine.
//!
//! A daemon of its own keeps each device: a process that outlives the command, the terminal and the servers. It serves the
//! kernel on one side and is an NBD client on the other, and while the client has no server, requests wait in the kernel.
//! So a file system on the device sees a pause and no error when servers and gateways go away and come back.
//!
//! ```text
//! method nbd:   /dev/nbdN -- the kernel's NBD client -- socket pair -- relay --+
//!                                                                              +-- nbd::Client -- server or gateway
//! method fuse:  /dev/loopN -- loop driver -- FUSE, one file -- fuse -----------+
//! ```
//!
//! Invariants:
//! 1. Nothing in the daemon's data path allocates from memory that needs writing back first, faults pages in from disks or
//!    waits for the device it serves (see `daemon`): otherwise a machine short of memory would stop for good.
//! 2. Except by force, a device is taken away only while nobody uses it, and what was written to it has reached the volume before.
//! 3. Whether a daemon lives is known by a lock that it holds, never by its number.
//! 4. A device is one attachment's: what a daemon has left that is gone is cleared before another is made.

pub mod by_key;
pub mod daemon;
mod detach;
mod folder;
mod fuse;
mod in_use;
mod known;
mod launch;
mod loop_device;
mod method;
pub mod nbd;
mod netlink;
mod relay;
mod release;
#[cfg(test)]
mod tests;

pub use daemon::serve;
pub use detach::{DetachRequest, Detached, detach};
pub use in_use::User;
pub use known::list;
pub use nbd::NbdAddress;

use folder::{Occupant, Record, RunFolder};
use known::Found;
use nbd::client::{self, ConnectError, Target};
use nbd::{Described, Flags, HandshakeError};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How the kernel gets at the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    /// A loop device on a file of a FUSE folder.
    Fuse,
    /// The kernel's NBD client.
    Nbd,
}

impl std::fmt::Display for Method {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Method::Fuse => "fuse",
            Method::Nbd => "nbd",
        })
    }
}

#[derive(Clone, Debug)]
pub struct AttachRequest {
    /// As it is called now.
    pub volume: String,
    /// What the server is asked for: what stays when the volume is renamed.
    pub export: String,
    /// Tells the volume from all others, of this cluster and of others.
    pub key: String,
    pub address: NbdAddress,
    pub read_only: bool,
    /// Where attachments are kept track of; created if need be. Best on a file system in memory.
    pub run_folder: PathBuf,
    /// `None`: by what the machine offers.
    pub method: Option<Method>,
    /// Requests that aren't answered after so long fail. `None`: they wait.
    pub give_up_after: Option<Duration>,
    /// This binary, and the arguments that lead to [`serve`]; the daemon's order is added as the last one.
    pub daemon: DaemonCommand,
}

/// What starts a daemon.
#[derive(Clone, Debug)]
pub struct DaemonCommand {
    pub program: PathBuf,
    pub arguments: Vec<String>,
}

impl DaemonCommand {
    /// This very program, even if its file was replaced meanwhile.
    pub fn this_program(subcommand: &str) -> DaemonCommand {
        DaemonCommand { program: "/proc/self/exe".into(), arguments: vec![subcommand.into()] }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Attached {
    pub volume: String,
    pub device: PathBuf,
    pub method: Method,
    /// Also true where only the server allows no writes, as for a snapshot.
    pub read_only: bool,
    /// Bytes.
    pub size: u64,
}

/// One line of `tepal attach --list`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Attachment {
    pub volume: String,
    pub device: PathBuf,
    pub method: Method,
    pub address: NbdAddress,
    pub read_only: bool,
    pub size: u64,
    pub pid: u32,
    pub state: AttachmentState,
    /// How long it has been waiting, if it does.
    pub waiting_seconds: Option<u64>,
    /// Why I/O waits or fails, if it does, and what to do.
    pub reason: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AttachmentState {
    Connected,
    /// I/O waits for a server; nothing is lost.
    Waiting,
    /// The volume is gone, so I/O fails.
    Gone,
    /// The daemon is gone, so I/O fails; and the device is in use still.
    Dead,
}

#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    #[error("attaching needs root: {0}")]
    NotRoot(&'static str),
    #[error("this machine can't attach by {method}: {missing} is missing")]
    Unsupported { method: Method, missing: &'static str },
    #[error("volume '{volume}' is already attached as {}", .device.display())]
    AlreadyAttached { volume: String, device: PathBuf },
    #[error("volume '{volume}' is being attached by another process")]
    Starting { volume: String },
    #[error(
        "volume '{volume}' was attached as {} by process {pid}, which died, and that is in use still: unmount it, or run \
         `tepal detach {} --force`",
        .device.display(), .device.display()
    )]
    Dead { volume: String, device: PathBuf, pid: u32 },
    #[error("there is no volume '{volume}' at {address}; there {}", offer(.offered))]
    Unknown { volume: String, address: NbdAddress, offered: Vec<String> },
    #[error(transparent)]
    Volume(#[from] ConnectError),
    #[error("volume '{volume}' is served in a way that no block device has: {what}")]
    Unfit { volume: String, what: Unfit },
    #[error("nothing is attached as '{what}'; see `tepal attach --list`")]
    NotAttached { what: String },
    #[error("volumes of several clusters are attached as '{what}': name the device, see `tepal attach --list`")]
    Ambiguous { what: String },
    #[error("volume '{volume}' can't be taken away: {} is in use, {user}; end that first, or add --force and have it fail", .device.display())]
    InUse { volume: String, device: PathBuf, user: User },
    #[error(
        "volume '{volume}' can't be reached, so what was written to {} would be lost ({reason}); start its server, or add --force",
        .device.display()
    )]
    Unreachable { volume: String, device: PathBuf, reason: String },
    #[error("the daemon of volume '{volume}' didn't end (process {pid})")]
    WontEnd { volume: String, pid: u32 },
    #[error("{message}")]
    Daemon { message: String },
    #[error("can't start the attach daemon: {0}")]
    Launch(io::Error),
    #[error("the attach daemon ended without a word; its log: {log}")]
    Silent { log: String },
    #[error("can't flush {}: {source}: what was written to it since it was last flushed may be lost", .device.display())]
    Unflushed { device: PathBuf, source: io::Error },
    #[error("can't {doing} {}: {source}", .device.display())]
    Device { doing: &'static str, device: PathBuf, source: io::Error },
    #[error("can't {doing} {}: {source}", .path.display())]
    File { doing: &'static str, path: PathBuf, source: io::Error },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    #[error("its smallest unit is {0} bytes; 512 to 4096 are possible")]
    Block(u32),
    #[error("it takes only {0} bytes in one request; 4 MiB are needed")]
    Maximum(u32),
    #[error("it has {0} bytes")]
    Size(u64),
}

impl AttachError {
    fn file(doing: &'static str, path: &Path, source: io::Error) -> AttachError {
        AttachError::File { doing, path: path.into(), source }
    }
}

fn offer(names: &[String]) -> String {
    const SHOWN: usize = 8;
    match names {
        [] => "are none".into(),
        _ if names.len() > SHOWN => format!("are {} and {} more", names[..SHOWN].join(", "), names.len() - SHOWN),
        _ => format!("are: {}", names.join(", ")),
    }
}

/// How long a daemon may take to end once its device is gone.
const END_LIMIT: Duration = Duration::from_secs(10);

/// Attaches the volume, and returns when its device is there.
pub fn attach(request: &AttachRequest) -> Result<Attached, AttachError> {
    let method = method::choose(request.method)?;
    let run = RunFolder::open(&request.run_folder)?;
    let place = run.place(&request.key);
    let _turn = run.turn(&place)?;
    Found::look(&run, Some(&place))?; // what is left of daemons that are gone may have the very device
    let volume = || request.volume.clone();
    match place.occupant()? {
        Occupant::Nobody => release::unmount(&place.mountpoint())?, // a daemon may have died before it had a device
        Occupant::Starting => return Err(AttachError::Starting { volume: volume() }),
        Occupant::Alive(Record { device, .. }) => {
            return Err(AttachError::AlreadyAttached { volume: volume(), device });
        }
        Occupant::Dead(record) => {
            return Err(AttachError::Dead { volume: volume(), device: record.device, pid: record.pid });
        }
    }
    let read_only = probe(request)?;
    place.create()?;
    let order = daemon::Order {
        volume: volume(),
        export: request.export.clone(),
        key: request.key.clone(),
        address: absolute(&request.address)?,
        read_only,
        run_folder: run.path().into(),
        method,
        give_up_after: request.give_up_after,
    };
    let attached = launch::launch(&request.daemon, &order, &place);
    if attached.is_err() {
        // The daemon has taken back what it did; if not all of it, there's a reason to keep the folder and its log.
        let _ = release::unmount(&place.mountpoint()).and_then(|()| place.clear());
    }
    attached
}

/// Whether anything was ever attached there.
fn is_folder(path: &Path) -> Result<bool, AttachError> {
    match std::fs::metadata(path) {
        Ok(found) if found.is_dir() => Ok(true),
        Ok(_) => Err(AttachError::file("use", path, std::io::ErrorKind::NotADirectory.into())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(AttachError::file("read", path, error)),
    }
}

/// Whether it must be read-only; and the errors that the caller can do something about, before any daemon is started.
fn probe(request: &AttachRequest) -> Result<bool, AttachError> {
    let AttachRequest { address, volume, export, read_only, .. } = request;
    let target =
        Target { address: address.clone(), volume: volume.clone(), export: export.clone(), read_only: *read_only };
    match client::inspect(&target) {
        Ok(Described { export, .. }) => Ok(*read_only || export.flags.has(Flags::READ_ONLY)),
        Err(ConnectError::Handshake { source: HandshakeError::Unknown { .. }, .. }) => {
            let offered = client::list(address).unwrap_or_default();
            Err(AttachError::Unknown { volume: volume.clone(), address: address.clone(), offered })
        }
        Err(trouble) => Err(trouble.into()),
    }
}

/// The daemon runs in another folder.
fn absolute(address: &NbdAddress) -> Result<NbdAddress, AttachError> {
    match address {
        NbdAddress::Unix(path) => {
            std::path::absolute(path).map(NbdAddress::Unix).map_err(|source| AttachError::file("find", path, source))
        }
        NbdAddress::Tcp(_) => Ok(address.clone()),
        NbdAddress::Tls { address, identity } => {
            let found = std::path::absolute(identity).map_err(|source| AttachError::file("find", identity, source))?;
            Ok(NbdAddress::Tls { address: address.clone(), identity: found })
        }
    }
}
