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
//! 2. A device is taken away only while nobody uses it, and what was written to it has reached the volume before.
//! 3. Whether a daemon lives is known by a lock that it holds, never by its number.

pub mod daemon;
mod fuse;
mod in_use;
mod launch;
mod loop_device;
mod method;
pub mod nbd;
mod netlink;
mod place;
mod relay;
mod release;
#[cfg(test)]
mod tests;

pub use daemon::serve;
pub use in_use::User;
pub use nbd::NbdAddress;

use nbd::client::{self, ConnectError, Target};
use nbd::{Described, Flags, HandshakeError};
use place::{Occupant, Record, RunFolder};
use release::Flush;
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
    /// Why I/O waits, if it does.
    pub reason: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AttachmentState {
    Connected,
    /// I/O waits for a server; nothing is lost.
    Waiting,
    /// The daemon is gone, so I/O fails. `tepal detach` cleans up.
    Dead,
}

#[derive(Clone, Debug)]
pub struct DetachRequest {
    /// A volume, or a device's path.
    pub what: String,
    pub run_folder: PathBuf,
    /// Give up what has not reached the volume, if that can't be reached.
    pub force: bool,
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
        "volume '{volume}' was attached as {} by process {pid}, which died: run `tepal detach {volume}` first",
        .device.display()
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
    #[error("volume '{volume}' can't be taken away: {} is in use, {user}", .device.display())]
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
    let _turn = run.turn()?;
    let place = run.place(&request.key);
    let volume = || request.volume.clone();
    match place.occupant()? {
        Occupant::Nobody => release::unmount(&place.mountpoint())?, // a daemon may have died before it had a device
        Occupant::Starting => return Err(AttachError::Starting { volume: volume() }),
        Occupant::Alive(Record { device, .. }) => {
            return Err(AttachError::AlreadyAttached { volume: volume(), device });
        }
        Occupant::Dead(record) if release::owns_device(&place, &record) => {
            return Err(AttachError::Dead { volume: volume(), device: record.device, pid: record.pid });
        }
        Occupant::Dead(_) => release::unmount(&place.mountpoint())?, // the machine was restarted since
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
    };
    let attached = launch::launch(&request.daemon, &order, &place);
    if attached.is_err() {
        // The daemon has taken back what it did; if not all of it, there's a reason to keep the folder and its log.
        let _ = release::unmount(&place.mountpoint()).and_then(|()| place.clear());
    }
    attached
}

/// Takes the volume's device away, after everything written to it has reached the volume.
pub fn detach(request: &DetachRequest) -> Result<(), AttachError> {
    if !nix::unistd::geteuid().is_root() {
        return Err(AttachError::NotRoot("only root may take block devices away"));
    }
    let nothing = || AttachError::NotAttached { what: request.what.clone() };
    if !is_folder(&request.run_folder)? {
        return Err(nothing());
    }
    let run = RunFolder::open(&request.run_folder)?;
    let _turn = run.turn()?;
    let known = known(&run)?;
    let is_meant = |one: &&Known| one.record.volume == request.what || one.record.device == Path::new(&request.what);
    let mut meant: Vec<&Known> = known.iter().filter(is_meant).collect();
    if meant.is_empty() {
        // It may have another name since the daemons looked.
        meant = known.iter().filter(|one| one.name_now().as_ref() == Some(&request.what)).collect();
    }
    match meant[..] {
        [] => Err(nothing()),
        [one] => take_away(one, request.force),
        _ => Err(AttachError::Ambiguous { what: request.what.clone() }),
    }
}

fn take_away(Known { place, record, lives }: &Known, force: bool) -> Result<(), AttachError> {
    let Record { volume, device, pid, waiting, .. } = record.clone();
    match (lives, waiting) {
        (true, Some(reason)) if !force => return Err(AttachError::Unreachable { volume, device, reason }),
        (true, Some(_)) => give_up(place, record)?,
        (true, None) => match release::release(place, record, Flush::First) {
            // What can't reach the volume any more doesn't keep the device for ever.
            Err(AttachError::Device { doing: "flush", .. }) if force => {
                release::release(place, record, Flush::GiveUp)?;
            }
            outcome => outcome?,
        },
        (false, _) => release::release(place, record, Flush::GiveUp)?,
    }
    if !place.wait_for_end(END_LIMIT)? {
        return Err(AttachError::WontEnd { volume, pid });
    }
    place.clear()
}

/// An attachment as the run folder knows it.
struct Known {
    place: place::Place,
    record: Record,
    lives: bool,
}

impl Known {
    /// What the server calls the volume, if it can be asked.
    fn name_now(&self) -> Option<String> {
        let Record { address, volume, export, read_only, waiting, .. } = self.record.clone();
        let target = Target { address, volume, export, read_only };
        let can_be_asked = self.lives && waiting.is_none();
        can_be_asked.then(|| client::inspect(&target).ok()).flatten()?.name
    }
}

fn known(run: &RunFolder) -> Result<Vec<Known>, AttachError> {
    let mut known = Vec::new();
    for place in run.places()? {
        match place.occupant()? {
            Occupant::Alive(record) => known.push(Known { place, record, lives: true }),
            Occupant::Dead(record) => known.push(Known { place, record, lives: false }),
            Occupant::Nobody | Occupant::Starting => {}
        }
    }
    Ok(known)
}

/// All attachments that the run folder knows of.
pub fn list(run_folder: &Path) -> Result<Vec<Attachment>, AttachError> {
    if !is_folder(run_folder)? {
        return Ok(Vec::new());
    }
    let mut attachments = Vec::new();
    for Known { record, lives, .. } in known(&RunFolder::open(run_folder)?)? {
        let state = match &record.waiting {
            _ if !lives => AttachmentState::Dead,
            Some(_) => AttachmentState::Waiting,
            None => AttachmentState::Connected,
        };
        let Record { volume, device, method, address, read_only, size, pid, waiting: reason, .. } = record;
        attachments.push(Attachment { volume, device, method, address, read_only, size, pid, state, reason });
    }
    Ok(attachments)
}

/// Ends a daemon that waits for a server: what's under way fails, and then the device can go. Nobody may be using it.
fn give_up(place: &place::Place, record: &Record) -> Result<(), AttachError> {
    let failed = |source| AttachError::Device { doing: "release", device: record.device.clone(), source };
    if let Err(user) = in_use::claim(&record.device).map_err(failed)? {
        return Err(AttachError::InUse { volume: record.volume.clone(), device: record.device.clone(), user });
    }
    // The lock says that this daemon lives, so the number is its own.
    let pid = nix::unistd::Pid::from_raw(i32::try_from(record.pid).unwrap_or(i32::MAX));
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).map_err(|error| failed(error.into()))?;
    if !place.wait_for_end(END_LIMIT)? {
        return Err(AttachError::WontEnd { volume: record.volume.clone(), pid: record.pid });
    }
    release::release(place, record, Flush::GiveUp)
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
    }
}
