//! The attachments that the run folder knows of, and what is done about those whose daemon is gone.

use super::folder::{AttachmentFolder, Occupant, Record, RunFolder};
use super::in_use;
use super::nbd::client::{self, ConnectError, Target};
use super::nbd::{Described, HandshakeError};
use super::release::{self, Flush};
use super::{AttachError, Attachment, AttachmentState, is_folder};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// An attachment as the run folder knows it.
pub struct Known {
    pub place: AttachmentFolder,
    pub record: Record,
    pub lives: bool,
}

/// All that there are.
#[derive(Default)]
pub struct Found {
    /// Those whose daemon lives, and those whose device is still in use, or can't be taken away for another reason.
    pub known: Vec<Known>,
    /// What daemons had left that are gone, and nobody uses any more: it was cleared just now.
    pub cleared: Vec<Record>,
}

/// What the server says of a volume.
pub enum Standing {
    Named(String),
    /// It's not among the volumes any more.
    Gone,
    /// The server can't be asked, or doesn't say.
    Unknown,
}

impl Known {
    pub fn standing(&self) -> Standing {
        let Record { address, volume, export, read_only, .. } = self.record.clone();
        match client::inspect(&Target { address, volume, export, read_only }) {
            Ok(Described { name: Some(name), .. }) => Standing::Named(name),
            Err(ConnectError::Handshake { source: HandshakeError::Unknown { .. }, .. }) => Standing::Gone,
            Ok(Described { name: None, .. }) | Err(_) => Standing::Unknown,
        }
    }

    /// Whether the kernel's device of that path is this attachment's now: its name may be another's by now.
    pub fn has_device(&self, path: &Path) -> bool {
        self.record.device == path && release::owns_device(&self.place, &self.record)
    }
}

impl Found {
    /// What daemons left that are gone is cleared, except where others attach or detach. `own`: where the caller has the turn.
    pub fn look(run: &RunFolder, own: Option<&AttachmentFolder>) -> Result<Found, AttachError> {
        let mut found = Found::default();
        for place in run.places()? {
            match place.occupant()? {
                Occupant::Alive(record) => found.known.push(Known { place, record, lives: true }),
                Occupant::Dead(record) if is_cleared(run, &place, &record, own)? => found.cleared.push(record),
                Occupant::Dead(record) => found.known.push(Known { place, record, lives: false }),
                Occupant::Nobody | Occupant::Starting => {}
            }
        }
        Ok(found)
    }
}

/// What is attached at a place, if anything is.
pub fn at(place: AttachmentFolder) -> Result<Option<Known>, AttachError> {
    match place.occupant()? {
        Occupant::Nobody => Ok(None),
        Occupant::Starting => Err(AttachError::Starting { volume: place.key() }),
        Occupant::Alive(record) => Ok(Some(Known { place, record, lives: true })),
        // What it has left may be another's by now.
        Occupant::Dead(record) if !release::owns_device(&place, &record) => Ok(None),
        Occupant::Dead(record) => Ok(Some(Known { place, record, lives: false })),
    }
}

fn is_cleared(
    run: &RunFolder,
    place: &AttachmentFolder,
    record: &Record,
    own: Option<&AttachmentFolder>,
) -> Result<bool, AttachError> {
    if own == Some(place) {
        return Ok(clear(place, record).is_ok());
    }
    let turn = run.turn_within(place, Duration::ZERO)?;
    // Who had the turn until now may have cleared it, or attached anew.
    Ok(match turn.is_some().then(|| place.occupant()).transpose()? {
        Some(Occupant::Dead(now)) if now == *record => clear(place, record).is_ok(),
        _ => false,
    })
}

fn clear(place: &AttachmentFolder, record: &Record) -> Result<(), AttachError> {
    release::release(place, record, Flush::GiveUp)?;
    place.clear()
}

/// All attachments that the run folder knows of.
pub fn list(run_folder: &Path) -> Result<Vec<Attachment>, AttachError> {
    if !is_folder(run_folder)? {
        return Ok(Vec::new());
    }
    let run = RunFolder::open(run_folder)?;
    // Somebody who attaches or detaches may take long: the list is for finding out why.
    let found = Found::look(&run, None)?;
    Ok(found.known.iter().map(attachment).collect())
}

fn attachment(known: &Known) -> Attachment {
    let Record { volume, device, method, address, read_only, size, pid, waiting, waiting_since_unix_ms, .. } =
        known.record.clone();
    let is_gone = || matches!(known.standing(), Standing::Gone);
    let shown = device.display();
    let (state, reason) = match waiting {
        _ if !known.lives => (AttachmentState::Dead, Some(why_dead(known))),
        None if is_gone() => {
            let text =
                format!("the volume was removed, and all I/O fails: unmount {shown}, then `tepal detach {shown}`");
            (AttachmentState::Gone, Some(text))
        }
        None => (AttachmentState::Connected, None),
        // Not believed without --force: it may be another server that answers there.
        Some(_) if is_gone() => {
            let text = format!(
                "there is no such volume any more at {address}: if it was removed, unmount {shown}, then `tepal detach {shown} --force`"
            );
            (AttachmentState::Gone, Some(text))
        }
        Some(reason) => (AttachmentState::Waiting, Some(reason)),
    };
    let waiting_seconds = waiting_since_unix_ms.map(|since| now_unix_ms().saturating_sub(since) / 1000);
    Attachment { volume, device, method, address, read_only, size, pid, state, waiting_seconds, reason }
}

fn why_dead(known: &Known) -> String {
    let device = known.record.device.display();
    match in_use::user(&known.record.device) {
        Some(user) => {
            format!("its process died, and {user}: end that, and the device goes with the next `attach --list`")
        }
        None => format!("its process died: `tepal detach {device}`"),
    }
}

pub fn now_unix_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}
