//! Folders that bits rotted in, that were cut short, or that lost a file: an error that names the file, or no harm at
//! all.

use super::tests::{add_drive, create_volume, created, on_runtime};
use super::*;
use crate::scratch::Scratch;
use std::fs;

/// A folder's files as a crash would leave them, and as a clean stop does; and the state that they hold.
struct Images {
    scratch: Scratch,
    state: Arc<State>,
}

const CRASHED: &str = "crashed";
const STOPPED: &str = "stopped";

impl Images {
    fn make() -> Self {
        let scratch = Scratch::new();
        let live = scratch.path().join("live");
        fs::create_dir(&live).unwrap();
        let state = on_runtime(async {
            let metadata = created(&live).await;
            metadata.propose(add_drive(1)).await.unwrap();
            for n in 0..20 {
                metadata.propose(create_volume(&format!("v{n}"))).await.unwrap();
            }
            for name in ["s", "t"].map(str::to_owned) {
                metadata.propose(Command::CreateSnapshot { volume: "v0".to_owned(), name }).await.unwrap();
            }
            // All files have something in them, and the log has lost its beginning.
            metadata.member.raft.trigger().snapshot().await.unwrap();
            let purge_to = metadata.member.raft.metrics().borrow_watched().last_applied.map(|id| id.index).unwrap() - 5;
            metadata.member.raft.wait(None).metrics(|m| m.snapshot.is_some(), "a snapshot").await.unwrap();
            metadata.member.raft.trigger().purge_log(purge_to).await.unwrap();
            metadata.member.raft.wait(None).metrics(|m| m.purged.is_some(), "a purge").await.unwrap();
            metadata.propose(create_volume("last")).await.unwrap();
            // Nothing is being written now: what is there is what a kill would leave.
            copy(&live, &scratch.path().join(CRASHED));
            let state = metadata.state();
            metadata.shutdown().await;
            state
        });
        fs::rename(&live, scratch.path().join(STOPPED)).unwrap();
        Images { scratch, state }
    }

    /// Opens a copy of an image after `harm` was done to it. `None` if it opened and everything was there.
    fn open_harmed(&self, image: &str, what: &str, harm: impl FnOnce(&Path)) -> Option<OpenError> {
        let folder = self.scratch.path().join("harmed");
        let _ = fs::remove_dir_all(&folder);
        copy(&self.scratch.path().join(image), &folder);
        harm(&folder);
        on_runtime(async {
            match Metadata::open(&folder).await {
                Ok(metadata) => {
                    let events = metadata.query("SELECT max(seq) FROM events", QueryLimits::default()).await.unwrap();
                    assert!(
                        metadata.state() == self.state,
                        "{image}: {what}: it opened, with another state: {events:?}"
                    );
                    metadata.propose(create_volume("next")).await.unwrap();
                    metadata.shutdown().await;
                    None
                }
                Err(error) => Some(error),
            }
        })
    }

    fn files(&self, image: &str) -> Vec<String> {
        let entries = fs::read_dir(self.scratch.path().join(image)).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.retain(|name| name != "LOCK");
        names.sort();
        names
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

/// Numbers that look random and are the same in every run.
fn numbers() -> impl FnMut() -> u64 {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    }
}

fn is_clear(error: &OpenError) -> bool {
    let named = matches!(error, OpenError::Damaged { .. } | OpenError::NewerFormat { .. } | OpenError::Io { .. });
    named && error.to_string().contains(".db")
}

#[test]
fn a_flipped_bit_is_an_error_that_names_the_file_or_does_no_harm() {
    let images = Images::make();
    let mut number = numbers();
    let mut noticed = 0;
    for image in [CRASHED, STOPPED] {
        for file in images.files(image) {
            for _ in 0..40 {
                let (at, bit) = (number(), number() % 8);
                let error = images.open_harmed(image, &file, |folder| {
                    let path = folder.join(&file);
                    let mut bytes = fs::read(&path).unwrap();
                    // Half of them in the first bytes, where the headers are.
                    let span = if at.is_multiple_of(2) { 256 } else { bytes.len() as u64 };
                    if let Some(byte) = bytes.get_mut((at / 2 % span.max(1)) as usize) {
                        *byte ^= 1 << bit;
                    }
                    fs::write(&path, bytes).unwrap();
                });
                if let Some(error) = error {
                    assert!(is_clear(&error), "{image}/{file}: {error:?}");
                    noticed += 1;
                }
            }
        }
    }
    assert!(noticed > 50, "only {noticed} were noticed");
}

#[test]
fn a_flipped_bit_in_a_columns_name_is_noticed_when_the_database_is_opened() {
    let images = Images::make();
    let error = images.open_harmed(STOPPED, "a column's name", |folder| {
        let path = folder.join("cluster.db");
        let mut bytes = fs::read(&path).unwrap();
        let (table, column) = (b"CREATE TABLE events".as_slice(), b"text TEXT".as_slice());
        // A page that was split keeps what it had, where nobody looks.
        let begins = |from: &usize| bytes[*from..].starts_with(table);
        for from in (0..bytes.len()).filter(begins).collect::<Vec<_>>() {
            let at = bytes[from..].windows(column.len()).position(|window| window == column).unwrap();
            bytes[from + at] ^= 1;
        }
        fs::write(&path, bytes).unwrap();
    });
    assert!(matches!(error, Some(OpenError::Damaged { .. })), "{error:?}");
}

#[test]
fn a_file_that_was_cut_short_is_an_error_that_names_the_file_or_does_no_harm() {
    let images = Images::make();
    let mut number = numbers();
    for image in [CRASHED, STOPPED] {
        for file in images.files(image) {
            for cut in 0..12 {
                let error = images.open_harmed(image, &file, |folder| {
                    let opened = fs::OpenOptions::new().write(true).open(folder.join(&file)).unwrap();
                    let length = opened.metadata().unwrap().len();
                    let keep = if cut == 0 { 0 } else { number() % length.max(1) };
                    opened.set_len(keep).unwrap();
                });
                if let Some(error) = &error {
                    assert!(is_clear(error), "{image}/{file}: {error:?}");
                }
                if cut == 0 && (file == "raft.db" || file == "cluster.db") {
                    assert!(matches!(error, Some(OpenError::Damaged { .. })), "{image}/{file}: {error:?}");
                }
            }
        }
    }
}

#[test]
fn a_folder_that_lost_a_database_is_not_begun_anew() {
    let images = Images::make();
    for (image, files) in [
        (STOPPED, vec!["raft.db"]),
        (STOPPED, vec!["cluster.db"]),
        (CRASHED, vec!["raft.db"]),
        (CRASHED, vec!["raft.db-wal"]),
        (CRASHED, vec!["raft.db", "raft.db-wal", "raft.db-shm"]),
        (CRASHED, vec!["cluster.db-wal"]),
        (CRASHED, vec!["cluster.db", "cluster.db-wal", "cluster.db-shm"]),
    ] {
        let error = images.open_harmed(image, &format!("without {files:?}"), |folder| {
            for file in &files {
                fs::remove_file(folder.join(file)).unwrap();
            }
        });
        assert!(matches!(error, Some(OpenError::Damaged { .. })), "{image} without {files:?}: {error:?}");
    }
}

/// Story: an operator restores one file of a server from a backup. Acknowledged entries are gone from it; the other
/// file knows.
#[test]
fn an_old_copy_of_one_database_is_noticed() {
    for file in ["raft.db", "cluster.db"] {
        let scratch = Scratch::new();
        let (folder, old) = (scratch.path().join("data"), scratch.path().join("old"));
        fs::create_dir(&folder).unwrap();
        on_runtime(async {
            created(&folder).await.shutdown().await;
            copy(&folder, &old);
            let metadata = Metadata::open(&folder).await.unwrap();
            metadata.propose(add_drive(1)).await.unwrap();
            metadata.shutdown().await;
            fs::copy(old.join(file), folder.join(file)).unwrap();
            match (file, Metadata::open(&folder).await) {
                ("raft.db", Err(OpenError::Damaged { what, .. })) => assert!(what.contains("missing"), "{what}"),
                // The log still has what it lacks.
                ("cluster.db", Ok(metadata)) => {
                    assert_eq!(metadata.state().drives.len(), 1);
                    metadata.shutdown().await;
                }
                (_, Err(error)) => panic!("{file}: {error}"),
                (_, Ok(_)) => panic!("{file}: the loss went unnoticed"),
            }
        });
    }
}

#[test]
fn a_folder_of_a_newer_build_is_refused_and_left_as_it_is() {
    let images = Images::make();
    for (file, newest) in [("raft.db", 2), ("cluster.db", 12)] {
        let error = images.open_harmed(STOPPED, file, |folder| {
            let connection = rusqlite::Connection::open(folder.join(file)).unwrap();
            connection.execute_batch(&format!("PRAGMA user_version={}", newest + 1)).unwrap();
        });
        let is_named = |error: &OpenError| matches!(error, OpenError::NewerFormat { found, known, .. } if (*found, *known) == (newest + 1, newest));
        assert!(error.as_ref().is_some_and(is_named), "{file}: {error:?}");
    }
}
