//! Disks to and from Ceph: the streams that `rbd` writes and reads, which are described in `rbd_stream`.

mod incoming;
mod outgoing;
mod verifying;

pub use incoming::{Incoming, import};
pub use outgoing::{export, send};

use super::TransferError;
use crate::command::CommandError;
use crate::output;
use crate::rbd_stream::StreamError;
use tepal_server::api::types::SnapshotName;

#[derive(Debug, thiserror::Error)]
pub enum RbdError {
    #[error("what `rbd` has written isn't imported, and volume '{name}' is as before: {error}")]
    Refused { name: String, error: StreamError },
    #[error(
        "the input begins as a stream of `rbd` that is damaged or of a version that isn't known, and isn't taken for an image for volume \
         '{0}': nothing is changed; export it once more, or say that it's an image by --raw or --format raw"
    )]
    Beginning(String),
    #[error("a stream of `rbd` is imported as it is: leave out {option} for volume '{name}'")]
    Option { name: String, option: &'static str },
    #[error(
        "there is a snapshot '{0}' already, and nothing is imported: the input was applied before, or is for another volume"
    )]
    HasSnapshot(SnapshotName),
    #[error(
        "volume '{0}' has snapshots, and the input is of an image with its own: name another volume, or go on with what was begun by --resume"
    )]
    HasSnapshots(String),
    #[error("volume '{0}' exists, and isn't what an earlier import of this input has begun: name another volume")]
    NotOfThis(String),
    #[error(
        "the input goes on from snapshot '{0}', and there is none, so nothing is imported: import what `rbd export-diff` writes of that one \
         first, or a stream with --from-snap of a snapshot that volume '{volume}' has",
        volume = .0.volume
    )]
    NoBase(SnapshotName),
    #[error(
        "volume '{name}' isn't what its snapshot '{base}' is, on which the input is based, and nothing is imported: \
         `tepal snapshot rollback {base}` first; --force changes nothing about that"
    )]
    BaseChanged { name: String, base: SnapshotName },
    #[error(
        "what `rbd` has written is no good, and volume '{name}' is rolled back to '{base}', as it was before: {error}"
    )]
    RolledBack { name: String, base: SnapshotName, error: StreamError },
    #[error(
        "volume '{name}' has a part of what `rbd` has written, and is incomplete: {error}; `tepal snapshot rollback {base}` makes it what it \
         was, and the same import of a whole stream ends it right"
    )]
    HalfApplied { name: String, base: SnapshotName, error: String },
    #[error(
        "volume '{name}' has a part of an image, and is incomplete: {error}; import a whole stream, with --resume to go on with this volume"
    )]
    HalfImported { name: String, error: StreamError },
    #[error(
        "volume '{name}' has the snapshots up to '{last}', and nothing of what follows in the input: {error}; import a whole stream with --resume"
    )]
    Stopped { name: String, last: SnapshotName, error: StreamError },
    #[error(
        "{what} differs from what the input has of it, from byte {offset} on: if nobody has written to either meanwhile, import it again, as \
         another volume"
    )]
    Differs { what: String, offset: u64 },
    #[error(
        "{what} differs from what the input has of it, from byte {offset} on, so the input isn't what the import of volume '{name}' was begun \
         with, and nothing of it is imported: go on with that one, or name another volume"
    )]
    OtherStream { name: String, what: String, offset: u64 },
    #[error("volume '{name}' has all of the input, which can't be compared with it: {error}")]
    Unverified { name: String, error: StreamError },
}

impl From<RbdError> for TransferError {
    fn from(error: RbdError) -> Self {
        TransferError::Rbd(Box::new(error))
    }
}

impl From<RbdError> for CommandError {
    fn from(error: RbdError) -> Self {
        TransferError::from(error).into()
    }
}

/// What was made of a stream, in words.
fn made_of(changed: u64, made: &[String], had: u32) -> String {
    let changed = format!("{} came from the stream", output::size(changed));
    let made = match made {
        [] => "no snapshot is made".to_owned(),
        [one] => format!("snapshot {one} is made"),
        [first, .., last] => format!("{} snapshots are made, {first} to {last}", made.len()),
    };
    match had {
        0 => format!("{changed}; {made}"),
        had => format!("{changed}; {made}, and it had {had}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_made_is_said_by_its_number() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        assert_eq!(made_of(4096, &names(&["tue"]), 0), "4K came from the stream; snapshot tue is made");
        assert!(made_of(0, &names(&["a", "b", "c"]), 2).ends_with("3 snapshots are made, a to c, and it had 2"));
        assert!(made_of(0, &[], 0).ends_with("no snapshot is made"));
    }
}
