//! One attachment, by what tells its volume from all others: for programs that keep track of volumes and not of names.

use super::daemon;
use super::detach;
use super::folder::{Occupant, Record, RunFolder};
use super::known::{self, Found, Known};
use super::{AttachError, is_folder};
use nix::errno::Errno;
use nix::unistd::Pid;
use std::path::{Path, PathBuf};

/// An attachment, as its daemon has noted it down. No server is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    pub device: PathBuf,
    /// What the server was asked for.
    pub export: String,
    pub read_only: bool,
    /// Otherwise all I/O fails.
    pub lives: bool,
    /// Why I/O waits, if it does.
    pub waiting: Option<String>,
}

/// The attachment of the volume of this key, if it has one.
pub fn find(run_folder: &Path, key: &str) -> Result<Option<Kept>, AttachError> {
    Ok(kept(run_folder, key)?.map(Kept::from))
}

impl From<Known> for Kept {
    fn from(Known { record, lives, .. }: Known) -> Kept {
        let Record { device, export, read_only, waiting, .. } = record;
        Kept { device, export, read_only, lives, waiting }
    }
}

/// Those whose daemon lives, with their keys. Nothing is cleared.
pub fn all(run_folder: &Path) -> Result<Vec<(String, Kept)>, AttachError> {
    if !is_folder(run_folder)? {
        return Ok(Vec::new());
    }
    let mut all = Vec::new();
    for place in RunFolder::open(run_folder)?.places()? {
        if let Occupant::Alive(record) = place.occupant()? {
            all.push((place.key(), Kept::from(Known { place, record, lives: true })));
        }
    }
    Ok(all)
}

fn kept(run_folder: &Path, key: &str) -> Result<Option<Known>, AttachError> {
    if !is_folder(run_folder)? {
        return Ok(None);
    }
    known::at(RunFolder::open(run_folder)?.place(key))
}

/// Takes it away in good order, if it's there.
pub fn take_away(run_folder: &Path, key: &str) -> Result<(), AttachError> {
    if !is_folder(run_folder)? {
        return Ok(());
    }
    let run = RunFolder::open(run_folder)?;
    let place = run.place(key);
    let _turn = run.turn(&place)?;
    Found::look(&run, Some(&place))?; // what is left of daemons that are gone is cleared
    kept(run_folder, key)?.map_or(Ok(()), |one| detach::take_away(&one))
}

/// Takes it away by force, if it's there: everything on it fails, and it goes with its last user.
pub fn discard(run_folder: &Path, key: &str) -> Result<(), AttachError> {
    kept(run_folder, key)?.map_or(Ok(()), |one| detach::force_away(&one).map(|_| ()))
}

/// Has its daemon look now whether the volume has grown, and not only in some seconds.
pub fn follow_growth(run_folder: &Path, key: &str) -> Result<(), AttachError> {
    let Some(Known { record, lives: true, .. }) = kept(run_folder, key)? else { return Ok(()) };
    if !record.looks_when_told {
        return Ok(());
    }
    // Its lock says that it lives, so the number is its own.
    match nix::sys::signal::kill(Pid::from_raw(i32::try_from(record.pid).unwrap_or(i32::MAX)), daemon::LOOK) {
        Ok(()) | Err(Errno::ESRCH) => Ok(()),
        Err(error) => Err(AttachError::Device { doing: "follow", device: record.device, source: error.into() }),
    }
}
