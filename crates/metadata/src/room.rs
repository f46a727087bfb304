//! Room for the databases: what finds none waits, and is tried again until there is some.
//!
//! Invariants:
//! 1. Only what certainly didn't happen is tried again: a write that was refused, and whose transaction was rolled back. A
//!    flush that failed is not: the next one could succeed without what the first has lost. The server ends then.
//! 2. Nothing is answered before it's done, so whoever waits for it knows of nothing that isn't on stable media.

use crate::database::StoreError;
use rusqlite::ErrorCode;
use rusqlite::ffi::{SQLITE_IOERR_SHMSIZE, SQLITE_IOERR_WRITE};
use std::io::ErrorKind;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

const TRY_AGAIN: Duration = Duration::from_millis(500);

/// Of one database. Cheap to clone.
#[derive(Clone, Default)]
pub struct Room(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<RoomState>,
    closed: Condvar,
}

#[derive(Default)]
struct RoomState {
    /// What something waits for now.
    lack: Option<String>,
    /// Nobody waits any more.
    closed: bool,
    /// There is none, as far as a test is concerned.
    #[cfg(test)]
    full: bool,
}

impl Room {
    /// Has every write find no room from now on, or find it again.
    #[cfg(test)]
    pub fn fill(&self, full: bool) {
        self.state().full = full;
    }

    /// Does `body` until it has found room. Blocks.
    pub fn wait_for<R>(&self, mut body: impl FnMut() -> Result<R, StoreError>) -> Result<R, StoreError> {
        loop {
            #[cfg(test)]
            let mut body = || match self.state().full {
                true => Err(StoreError::File { file: "full".into(), source: ErrorKind::StorageFull.into() }),
                false => body(),
            };
            match body() {
                Err(error) if error.lacks_room() => {
                    if self.pause(&error) {
                        return Err(error);
                    }
                }
                outcome => {
                    if let Some(lack) = self.state().lack.take() {
                        tracing::warn!(lack, "the cluster's state can be written again");
                    }
                    return outcome;
                }
            }
        }
    }

    /// Whether to give up.
    fn pause(&self, error: &StoreError) -> bool {
        let mut state = self.state();
        if state.lack.is_none() {
            tracing::error!(%error, "the cluster's state can't be written; that is tried until it can");
        }
        state.lack = Some(error.to_string());
        let waited = self.0.closed.wait_timeout_while(state, TRY_AGAIN, |state| !state.closed);
        waited.unwrap_or_else(PoisonError::into_inner).0.closed
    }

    /// What keeps the database from being written, if something waits for that.
    pub fn lack(&self) -> Option<String> {
        self.state().lack.clone()
    }

    /// From now on nothing waits: what finds no room has failed.
    pub fn close(&self) {
        self.state().closed = true;
        self.0.closed.notify_all();
    }

    fn state(&self) -> MutexGuard<'_, RoomState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StoreError {
    /// Whether a write was refused that may succeed later: no space, or over the quota, which SQLite calls an error of
    /// `write`.
    pub fn lacks_room(&self) -> bool {
        match self {
            StoreError::Sqlite { source: rusqlite::Error::SqliteFailure(error, _), .. } => {
                error.code == ErrorCode::DiskFull
                    || matches!(error.extended_code, SQLITE_IOERR_WRITE | SQLITE_IOERR_SHMSIZE)
            }
            StoreError::File { source, .. } => {
                matches!(source.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rusqlite::ffi;

    fn sqlite(code: i32) -> StoreError {
        StoreError::sqlite("raft.db".as_ref())(rusqlite::Error::SqliteFailure(ffi::Error::new(code), None))
    }

    fn file(kind: ErrorKind) -> StoreError {
        StoreError::file("snapshot.db".as_ref())(kind.into())
    }

    #[test]
    fn a_write_without_room_is_tried_again_and_a_failed_flush_or_damage_never_is() {
        let cases = [
            (sqlite(ffi::SQLITE_FULL), true),
            (sqlite(ffi::SQLITE_IOERR_WRITE), true),
            (sqlite(ffi::SQLITE_IOERR_SHMSIZE), true),
            (file(ErrorKind::StorageFull), true),
            (file(ErrorKind::QuotaExceeded), true),
            (sqlite(ffi::SQLITE_IOERR_FSYNC), false),
            (sqlite(ffi::SQLITE_IOERR_DIR_FSYNC), false),
            (sqlite(ffi::SQLITE_IOERR_READ), false),
            (sqlite(ffi::SQLITE_IOERR), false),
            (sqlite(ffi::SQLITE_CORRUPT), false),
            (file(ErrorKind::PermissionDenied), false),
            (StoreError::Stopped, false),
        ];
        for (error, again) in cases {
            let (text, room) = (error.to_string(), Room::default());
            let mut outcomes = vec![Ok(7), Err(error)];
            let outcome = room.wait_for(|| outcomes.pop().expect("it ends with the success"));
            assert_eq!((outcome.ok(), outcomes.is_empty(), room.lack()), (again.then_some(7), again, None), "{text}");
        }
    }

    #[test]
    fn closing_ends_the_wait_with_the_error() {
        let room = Room::default();
        let waiting = room.clone();
        let wait = std::thread::spawn(move || waiting.wait_for(|| Err::<(), _>(sqlite(ffi::SQLITE_FULL))));
        while room.lack().is_none() {
            std::thread::yield_now();
        }
        room.close();
        assert!(wait.join().expect("no panic").is_err());
    }
}
