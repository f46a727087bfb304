//! Taking attachments away: in good order, or by force.
//!
//! By force, it ends in bounded time whatever became of server, daemon and filesystem: what is under way gets errors, since a process
//! that waits for a dead device can't be killed, nor its filesystem unmounted, and only a reboot would end that.

use super::folder::{AttachmentFolder, Record, RunFolder};
use super::in_use::User;
use super::known::{self, Found, Known, Standing};
use super::release::{self, Flush};
use super::{AttachError, END_LIMIT, is_folder};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

#[derive(Clone, Debug)]
pub struct DetachRequest {
    /// A volume, or a device's path.
    pub what: String,
    pub run_folder: PathBuf,
    /// Give up what has not reached the volume, and whoever uses the device gets errors.
    pub force: bool,
}

/// What became of the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Detached {
    Wholly,
    /// By force: everything on it fails, and it goes when it's not in use any more.
    InUse {
        device: PathBuf,
        user: User,
    },
}

/// Another attach or detach may be stuck: whoever uses force waits no longer for its turn.
const TURN_LIMIT: Duration = Duration::from_secs(2);
/// By force, what was written may take so long to reach the volume.
const FLUSH_LIMIT: Duration = Duration::from_secs(10);

/// Takes the volume's device away, after everything written to it has reached the volume.
pub fn detach(request: &DetachRequest) -> Result<Detached, AttachError> {
    if !nix::unistd::geteuid().is_root() {
        return Err(AttachError::NotRoot("only root may take block devices away"));
    }
    let nothing = || AttachError::NotAttached { what: request.what.clone() };
    if !is_folder(&request.run_folder)? {
        return Err(nothing());
    }
    let run = RunFolder::open(&request.run_folder)?;
    let Found { known, cleared } = Found::look(&run, None)?;
    let path = Path::new(&request.what);
    let mut meant: Vec<&Known> =
        known.iter().filter(|one| one.record.volume == request.what || one.has_device(path)).collect();
    if meant.is_empty() {
        if cleared.iter().any(|record| record.volume == request.what || record.device == path) {
            return Ok(Detached::Wholly);
        }
        // It may have another name since the daemons looked.
        let is_called = |one: &&Known| {
            let can_be_asked = one.lives && one.record.waiting.is_none();
            can_be_asked && matches!(one.standing(), Standing::Named(name) if name == request.what)
        };
        meant = known.iter().filter(is_called).collect();
    }
    match meant[..] {
        [] => Err(nothing()),
        [one] if request.force => {
            let _turn = run.turn_within(&one.place, TURN_LIMIT)?;
            force_away(one)
        }
        [one] => {
            let _turn = run.turn(&one.place)?;
            // Another one may have taken it away until now.
            let now = known::at(one.place.clone())?.ok_or_else(nothing)?;
            take_away(&now).map(|()| Detached::Wholly)
        }
        _ => Err(AttachError::Ambiguous { what: request.what.clone() }),
    }
}

pub fn take_away(one: &Known) -> Result<(), AttachError> {
    let Known { place, record, lives } = one;
    match (lives, record.waiting.clone()) {
        (true, Some(reason)) => {
            let Record { volume, device, .. } = record.clone();
            return Err(AttachError::Unreachable { volume, device, reason });
        }
        (true, None) => match release::release(place, record, Flush::First) {
            // What can't reach a volume that was removed doesn't keep the device.
            Err(AttachError::Unflushed { .. }) if matches!(one.standing(), Standing::Gone) => {
                release::release(place, record, Flush::GiveUp)?;
            }
            outcome => outcome?,
        },
        (false, _) => release::release(place, record, Flush::GiveUp)?,
    }
    wait_for_end(place, record)?;
    place.clear()
}

pub fn force_away(Known { place, record, lives }: &Known) -> Result<Detached, AttachError> {
    if *lives && record.waiting.is_none() && flushed_in_time(place, record) {
        wait_for_end(place, record)?;
        return place.clear().map(|()| Detached::Wholly);
    }
    if *lives {
        end(place, record)?;
    }
    let detached = match release::release(place, record, Flush::GiveUp) {
        Ok(()) => Detached::Wholly,
        Err(AttachError::InUse { device, user, .. }) => {
            release::let_go(place, record)?;
            Detached::InUse { device, user }
        }
        Err(error) => return Err(error),
    };
    place.clear().map(|()| detached)
}

/// Whether the device could be taken away in good order. A flush may wait for ever; it ends with the daemon then.
fn flushed_in_time(place: &AttachmentFolder, record: &Record) -> bool {
    let (tell, told) = mpsc::channel();
    let (place, record) = (place.clone(), record.clone());
    let release = move || {
        let _ = tell.send(release::release(&place, &record, Flush::First).is_ok()); // nobody listens any more if it was too late
    };
    let started = thread::Builder::new().name("release".into()).spawn(release);
    started.is_ok() && told.recv_timeout(FLUSH_LIMIT).unwrap_or(false)
}

/// Ends a daemon at once: with it, its side of the kernel's connection is closed, and what is under way fails.
fn end(place: &AttachmentFolder, record: &Record) -> Result<(), AttachError> {
    // The lock says that this daemon lives, so the number is its own.
    let pid = nix::unistd::Pid::from_raw(i32::try_from(record.pid).unwrap_or(i32::MAX));
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).map_err(|error| AttachError::Device {
        doing: "release",
        device: record.device.clone(),
        source: error.into(),
    })?;
    wait_for_end(place, record)
}

fn wait_for_end(place: &AttachmentFolder, record: &Record) -> Result<(), AttachError> {
    match place.wait_for_end(END_LIMIT)? {
        true => Ok(()),
        false => Err(AttachError::WontEnd { volume: record.volume.clone(), pid: record.pid }),
    }
}
