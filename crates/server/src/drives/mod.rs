//! The drives of this server: found, identified, taken into use, watched, and let go.
//!
//! Invariants:
//! 1. A drive is given to the engine only after the metadata has said what it's good for; a drive that isn't here is
//!    `missing` (or worse) in the metadata before any volume is served. The other way round at a drive's beginning and end:
//!    the engine has a new one before a volume can be put on it, and one that is removed is out of use before that is
//!    agreed.
//! 2. One change at a time: whoever holds the turn. What is looked at meanwhile is a copy.
//! 3. A drive that was refused was not written to.

mod agent;
mod batches;
mod doubt;
mod error;
mod fullness;
mod generations;
mod growing;
mod identity;
mod kept;
mod look;
mod manage;
mod scan;
mod signature;
mod start;
mod take;
#[cfg(test)]
mod tests;

pub use agent::{NOTHING_THERE, watch};
pub use doubt::{settle_doubts, watch_labels};
pub use error::DriveOperationError;
pub use fullness::{Filled, Fullness, NAMED, first};
pub use generations::{Generations, GenerationsError};
pub use kept::Kept;
pub use manage::NewDriveRequest;
pub use scan::{Fitness, ScannedDrive, block_devices};
pub use start::StartError;

use self::batches::Batches;
use crate::access::Claims;
use crate::authority::MetadataAuthority;
use crate::config::{Config, DrivePath};
use crate::data_threads::DataThreads;
use crate::device::DriveDevice;
use crate::device::emulate::Model;
use crate::importing::Imports;
use crate::keeping::Keeper;
use crate::keys::Keyring;
use crate::world::ServerWorld;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tepal_drive::Drive;
use tepal_engine::Engine;
use tepal_metadata::Metadata;
use tepal_model::{DriveId, ServerId};
use tokio::sync::Notify;

/// A drive in use.
#[derive(Clone)]
pub struct OpenDrive {
    pub path: PathBuf,
    pub drive: Drive<ServerWorld>,
    pub device: DriveDevice,
    /// The device of its log, if that isn't on the drive.
    pub log: Option<DriveDevice>,
}

/// What the drives of a server are made with.
#[derive(Clone)]
pub struct Parts {
    pub metadata: Metadata,
    pub engine: Engine<ServerWorld>,
    pub authority: MetadataAuthority,
    pub threads: Arc<DataThreads>,
    pub keeper: Keeper,
    pub claims: Claims,
    pub keyring: Keyring,
    pub imports: Imports,
}

pub struct Drives {
    server: ServerId,
    configured: Vec<DrivePath>,
    pool: String,
    emulate: Option<Model>,
    parts: Parts,
    table: Mutex<Table>,
    turn: tokio::sync::Mutex<Generations>,
    batches: Batches,
    next_thread: AtomicUsize,
    /// A drive has become doubtful.
    doubted: Notify,
}

#[derive(Default)]
struct Table {
    open: BTreeMap<DriveId, OpenDrive>,
    /// Devices that can't be used, with the reason for people.
    refused: BTreeMap<PathBuf, String>,
    /// Drives that may have lost data unnoticed.
    doubtful: BTreeSet<DriveId>,
}

impl Drives {
    pub fn new(config: &Config, parts: Parts, generations: Generations) -> Self {
        Drives {
            server: parts.metadata.server(),
            configured: config.drives.clone(),
            pool: config.pool.clone(),
            emulate: config.emulate.clone(),
            parts,
            table: Mutex::default(),
            turn: tokio::sync::Mutex::new(generations),
            batches: Batches::open(&config.data),
            next_thread: AtomicUsize::new(0),
            doubted: Notify::new(),
        }
    }

    /// The drives in use.
    pub fn open(&self) -> BTreeMap<DriveId, OpenDrive> {
        self.table().open.clone()
    }

    /// The devices that aren't used though they were named, and why.
    pub fn refused(&self) -> BTreeMap<PathBuf, String> {
        self.table().refused.clone()
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn paths_in_use(&self) -> BTreeMap<DriveId, PathBuf> {
        self.table().open.iter().map(|(id, drive)| (*id, drive.path.clone())).collect()
    }

    fn refuse(&self, path: PathBuf, reason: String) {
        if self.table().refused.insert(path.clone(), reason.clone()).as_ref() != Some(&reason) {
            tracing::warn!(path = %path.display(), reason, "device refused");
        }
    }

    fn accept(&self, open: OpenDrive) {
        let mut table = self.table();
        table.refused.remove(&open.path);
        if table.doubtful.contains(&open.drive.id()) {
            self.doubted.notify_one();
        }
        table.open.insert(open.drive.id(), open);
    }

    /// The data threads in turn: opening drives takes work on all of them.
    fn some_thread(&self) -> usize {
        self.next_thread.fetch_add(1, Ordering::Relaxed) % self.parts.threads.count()
    }

    /// From now on whatever fails does because this server is being stopped: nobody goes on without a drive for that.
    pub fn declare_none_down(&self) {
        self.parts.authority.stop();
    }

    /// Brings all drives' logs into their tables, so that the next start finds nothing to replay. They take no more I/O.
    pub async fn close(&self) {
        self.declare_none_down();
        let _turn = self.turn.lock().await;
        let open = std::mem::take(&mut self.table().open);
        let drives: Vec<Drive<ServerWorld>> = open.values().map(|open| open.drive.clone()).collect();
        let closing = open.into_values().map(|open| {
            let id = open.drive.id();
            let closed = self.parts.threads.run_on(self.some_thread(), move || async move { open.drive.close().await });
            async move {
                match closed.await {
                    Ok(Ok(())) => tracing::debug!(drive = %id, "drive closed"),
                    Ok(Err(loss)) => {
                        tracing::warn!(drive = %id, %loss, "drive not closed cleanly: its log will be replayed")
                    }
                    Err(stopped) => tracing::warn!(drive = %id, %stopped, "drive not closed"),
                }
            }
        });
        futures_util::future::join_all(closing).await;
        self.note_batches(&drives);
    }

    /// Writes down how far the drives are.
    fn note_batches(&self, drives: &[Drive<ServerWorld>]) {
        let state = self.parts.metadata.state();
        let batches = drives.iter().map(|drive| (drive.id(), drive.durable()));
        self.batches.note(batches, |drive| state.drives.contains_key(&drive));
    }
}
