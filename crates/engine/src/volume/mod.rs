//! A volume: its record. A volume and its clones share their map.

mod code;
mod copies;
mod discard;
mod epochs;
mod live;
mod lost;
mod map;
pub(crate) mod migrating;
pub(crate) mod operation;
mod read_write;
mod reclaiming;
mod secrecy;
mod status;
pub(crate) mod table;

pub use code::CodeChecked;
pub use copies::{Behind, ColumnCopies, CopyBehind};
pub use epochs::Snapshot;
pub use live::{Later, Live, OldPlace};
pub(crate) use map::{Map, Use};
pub(crate) use migrating::MapMigration;
pub use status::{Run, Within};

use crate::column::Group;
use crate::engine::Engine;
use crate::map::VolumeSpec;
use crate::servers::seat::Seat;
use live::Importing;
use operation::Operation;
use secrecy::Secrecy;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use table::Table;
use tepal_drive::Drive;
use tepal_drive::world::World;
use tepal_model::{BLOCK, DriveId, IoError, VolumeId};
use tepal_wire::message::Tag;

/// Cheap to clone.
pub struct Volume<W: World> {
    shared: Arc<Shared<W>>,
    /// As [`Volume::as_of`].
    as_of: Option<u64>,
}

impl<W: World> Clone for Volume<W> {
    fn clone(&self) -> Self {
        Volume { shared: self.shared.clone(), as_of: self.as_of }
    }
}

struct Shared<W: World> {
    id: VolumeId,
    table: Table<W>,
    spec: Mutex<VolumeSpec>,
    secrecy: Secrecy,
    importing: Importing,
    is_cut_off: AtomicBool,
    /// Where the last answer about the status of bytes ended, if all of the bytes were alike.
    alike_until: AtomicU64,
}

/// Why a volume can't be served.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenVolumeError {
    /// The map can't be: each copy of an extent needs a drive of its own, and there must be one at least.
    #[error("volume '{name}' has {drives} drives for {copies} copies")]
    Map {
        /// Which volume.
        name: String,
        /// How many drives the map names.
        drives: usize,
        /// How many copies the layout wants.
        copies: u8,
    },
}

/// The work that is left after a crash, or after drives were away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Regions whose copies have yet to be compared.
    pub unresolved_regions: u64,
    /// Regions in which some copy missed writes.
    pub stale_regions: u64,
    /// Bytes copied so far, since the volume was opened.
    pub copied: u64,
    /// Bytes a second that are copied now.
    pub rate: u64,
}

impl<W: World> Volume<W> {
    /// A volume with this map.
    pub(crate) fn of(spec: VolumeSpec, map: Map<W>) -> Self {
        let (id, table) = (spec.id, Table::all_in(map));
        let (is_cut_off, alike_until) = (AtomicBool::new(false), AtomicU64::new(0));
        let secrecy = Secrecy::new(spec.is_encrypted);
        let importing = Importing::new(spec.live.clone());
        let shared = Shared { id, table, spec: Mutex::new(spec), secrecy, importing, is_cut_off, alike_until };
        Volume { shared: Arc::new(shared), as_of: None }
    }

    /// The same volume as long as its record has this revision: nothing begins by this handle before the revision is
    /// known here, nor once a later revision is. That includes requests that have to be made again. A request that
    /// comes too late is an error: [`IoError::Fenced`] if it wasn't begun. A request that was begun may be done, and
    /// comes before all requests by the later revision.
    #[must_use]
    pub fn as_of(&self, revision: u64) -> Self {
        Volume { shared: self.shared.clone(), as_of: Some(revision) }
    }

    /// Whether the record has no later revision than this handle's, as far as is known here. A handle without a
    /// revision is always current.
    pub fn is_current(&self) -> bool {
        self.as_of.is_none_or(|revision| self.revision() <= revision)
    }

    /// Whether this handle is of whatever revision there is: not of one by [`Volume::as_of`].
    pub(crate) fn is_of_any_revision(&self) -> bool {
        self.as_of.is_none()
    }

    /// The revision by which a primary on another server is asked.
    pub(crate) fn asked_as_of(&self) -> u64 {
        self.as_of.unwrap_or_else(|| self.revision())
    }

    /// Waits until this handle's revision is known here. An error if a later revision is.
    pub(crate) async fn may_begin(&self) -> Result<(), IoError> {
        let Some(revision) = self.as_of else { return Ok(()) };
        while self.revision() < revision && !self.is_cut_off() {
            self.in_a_moment().await?;
        }
        if self.is_current() { Ok(()) } else { Err(IoError::Fenced) }
    }

    /// Carries an operation out here, where this server is the primary. By a handle with a revision, the operation is
    /// queued again here, not by the primary, and only if the revision is still current.
    pub(crate) async fn at_group<O: Operation<W>>(
        &self,
        group: &Group<W>,
        operation: &O,
        tag: impl Fn(bool) -> Option<Tag>,
        mut is_in_doubt: bool,
    ) -> Result<O::Outcome, IoError> {
        if self.as_of.is_none() {
            return operation.at(group, self.id(), tag(is_in_doubt)).await;
        }
        loop {
            self.may_begin().await?;
            match operation.at(&group.for_others(), self.id(), tag(is_in_doubt)).await {
                Err(IoError::NotNow) => {}
                Err(IoError::Unsure) => is_in_doubt = true,
                outcome => return outcome,
            }
            self.in_a_moment().await?;
        }
    }

    /// The groups of the columns that this server leads.
    pub(crate) fn groups(&self) -> Vec<Group<W>> {
        self.maps().iter().flat_map(Map::groups).collect()
    }

    #[cfg(test)]
    pub(crate) fn seats(&self) -> &[Seat<W>] {
        self.map().seats()
    }

    /// `None` once the server has stopped.
    pub(crate) fn engine(&self) -> Option<Engine<W>> {
        self.map().engine()
    }

    /// Whether other servers may be primaries.
    pub fn is_among(&self) -> bool {
        self.map().is_among()
    }

    fn lock(&self) -> MutexGuard<'_, VolumeSpec> {
        self.shared.spec.lock().expect("nothing panics while it holds the volume's record")
    }

    /// Identifies the volume for good.
    pub fn id(&self) -> VolumeId {
        self.shared.id
    }

    /// The record as it is now, with the name and size of the last change.
    pub fn spec(&self) -> VolumeSpec {
        self.lock().clone()
    }

    /// Bytes.
    pub fn size(&self) -> u64 {
        self.lock().size
    }

    /// The first byte past the volume's end in a column of one of its maps.
    pub(crate) fn end_in(&self, map: &Map<W>, column: usize) -> u64 {
        map.striping().before(column, self.size())
    }

    /// As [`VolumeSpec::revision`], as far as is known here.
    pub fn revision(&self) -> u64 {
        self.lock().revision
    }

    /// As [`VolumeSpec::is_replica`], as far as is known here.
    pub fn is_replica(&self) -> bool {
        self.lock().is_replica
    }

    /// Takes this size from now on, where no other server serves the volume.
    pub fn resize(&self, size: u64) {
        self.lock().size = size;
    }

    /// Takes the metadata's record from now on, if it's newer than the one that is known here. `copied`: how many bytes from its beginning
    /// on are copied, if it's still imported.
    pub fn changed(&self, name: &str, (size, is_replica): (u64, bool), revision: u64, copied: Option<u64>) {
        {
            let mut spec = self.lock();
            if revision <= spec.revision {
                return;
            }
            self.has_come(revision, copied);
            (spec.size, spec.is_replica, spec.revision) = (size, is_replica, revision);
            name.clone_into(&mut spec.name);
        }
        // Servers that ask by a newer record may have been told to wait.
        self.maps().iter().flat_map(Map::seats).for_each(Seat::ring);
    }

    /// This server's drives that are here and in the volume's maps.
    pub(crate) fn drives_here(&self) -> Vec<Drive<W>> {
        let all: BTreeMap<DriveId, Drive<W>> =
            self.maps().iter().flat_map(Map::drives_here).map(|drive| (drive.id(), drive)).collect();
        all.into_values().collect()
    }

    /// Whether columns of the volume's maps are on that drive, as far as is known here.
    pub fn is_on(&self, drive: DriveId) -> bool {
        self.maps().iter().any(|map| map.places().drives().contains(&drive))
    }

    /// Bytes on the drives that are here, copies counted; including all bytes of the volume's snapshots and clones.
    pub fn allocated(&self) -> u64 {
        self.maps().iter().map(Map::allocated).sum()
    }

    /// The recovery of the columns that this server leads, summed up. A volume and its clones have the same.
    pub fn recovery(&self) -> Recovery {
        self.maps().iter().map(Map::recovery).fold(Recovery::default(), |all, one| Recovery {
            unresolved_regions: all.unresolved_regions + one.unresolved_regions,
            stale_regions: all.stale_regions + one.stale_regions,
            copied: all.copied + one.copied,
            rate: all.rate + one.rate,
        })
    }

    /// Blocks that were damaged on one copy and written again from another by this server, since it opened the volume
    /// or a clone of it.
    pub fn repaired(&self) -> u64 {
        self.maps().iter().map(Map::repaired).sum()
    }

    /// The copies of a block: the drives, and the block's number among those of the map that has it now.
    pub fn copies_at(&self, offset: u64) -> Vec<(DriveId, u64)> {
        let (map, _) = self.map_at(offset);
        let (number, within) = map.striping().locate(offset);
        let column = map.column(number);
        map.placed(number).drives().map(|drive| (drive, column.place(within / BLOCK))).collect()
    }

    /// Serves nobody from now on: the volume was removed.
    pub fn cut_off(&self) {
        self.shared.is_cut_off.store(true, Ordering::Relaxed);
        self.maps().iter().for_each(|map| map.cut_off_volume(self.id()));
    }

    pub(crate) fn is_cut_off(&self) -> bool {
        self.shared.is_cut_off.load(Ordering::Relaxed)
    }
}
