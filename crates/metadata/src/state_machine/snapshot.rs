//! Snapshots: copies of `cluster.db`, which say themselves up to which entry they go.

use super::machine::{Content, Machine, mark_installed};
use super::schema::KIND;
use crate::consensus::SnapshotMeta;
use crate::database::{self, StoreError};
use rusqlite::Connection;
use rusqlite::backup::{Backup, StepResult};
use std::fs::File;
use std::io;
use std::path::Path;

/// The latest snapshot. It can always be made again, so it's not an error if it's damaged.
pub(super) const FILE: &str = "snapshot.db";
/// One that is being made.
const UNFINISHED: &str = "snapshot.db.new";
/// One that came from another server and is being checked.
const INCOMING: &str = "incoming.db";

/// A snapshot's bytes. They stay readable when a newer one takes its name.
#[derive(Debug)]
pub struct SnapshotFile {
    pub file: File,
}

impl Machine {
    /// Makes a snapshot of what is applied now. It's named only when it's whole and on stable media.
    pub fn build_snapshot(&mut self) -> Result<(SnapshotMeta, SnapshotFile), StoreError> {
        let unfinished = self.folder.join(UNFINISHED);
        database::remove_database(&unfinished)?;
        database::make_private(&unfinished)?;
        let name = unfinished.to_string_lossy();
        self.connection.execute("VACUUM INTO ?1", [&*name]).map_err(StoreError::sqlite(&unfinished))?;
        let file = self.folder.join(FILE);
        database::publish(&unfinished, &file)?;
        let opened = File::open(&file).map_err(StoreError::file(&file))?;
        Ok((self.content.snapshot_meta(), SnapshotFile { file: opened }))
    }

    pub fn current_snapshot(&mut self) -> Result<Option<(SnapshotMeta, SnapshotFile)>, StoreError> {
        let path = self.folder.join(FILE);
        let file = match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(StoreError::file(&path))?,
        };
        match read(&path) {
            Ok(content) => Ok(Some((content.snapshot_meta(), SnapshotFile { file }))),
            Err(error) => {
                tracing::warn!(%error, "the snapshot is not usable; another will be made");
                database::remove_database(&path)?;
                Ok(None)
            }
        }
    }

    /// Replaces all that is here by a snapshot, in one transaction. Those who read `cluster.db` meanwhile see the old
    /// state or the new one.
    pub fn install_snapshot(&mut self, meta: &SnapshotMeta, snapshot: &mut SnapshotFile) -> Result<(), StoreError> {
        let incoming = self.folder.join(INCOMING);
        database::remove_database(&incoming)?;
        let mut copy = database::make_private(&incoming)?;
        io::Seek::rewind(&mut snapshot.file).map_err(StoreError::file(&incoming))?;
        io::copy(&mut snapshot.file, &mut copy).map_err(StoreError::file(&incoming))?;
        drop(copy);
        let mut content = read(&incoming)?;
        if content.snapshot_meta() != *meta {
            return Err(StoreError::damaged(&incoming, "it isn't the snapshot that was announced"));
        }
        let ours = &self.content.state;
        if ours.is_set_up() && content.state.cluster.id != ours.cluster.id {
            let what = format!("it is a snapshot of another cluster, {}", content.state.cluster.id);
            return Err(StoreError::damaged(&incoming, what));
        }
        let source = Connection::open(&incoming).map_err(StoreError::sqlite(&incoming))?;
        mark_installed(&source, &mut content).map_err(StoreError::sqlite(&incoming))?;
        self.copy_from(&source).map_err(StoreError::sqlite(&self.file))?;
        drop(source);
        self.content = content;
        self.publish();
        database::publish(&incoming, &self.folder.join(FILE))
    }

    fn copy_from(&mut self, source: &Connection) -> rusqlite::Result<()> {
        self.connection.flush_prepared_statement_cache();
        let backup = Backup::new(source, &mut self.connection)?;
        loop {
            match backup.step(-1)? {
                StepResult::Done => return Ok(()),
                // Somebody who reads the database is in the way for a moment.
                StepResult::Busy | StepResult::Locked => std::thread::sleep(std::time::Duration::from_millis(10)),
                _ => {}
            }
        }
    }
}

fn read(path: &Path) -> Result<Content, StoreError> {
    let connection = database::open_still(path)?;
    database::check(&connection, path, KIND)?;
    Content::load(&connection, path)
}
