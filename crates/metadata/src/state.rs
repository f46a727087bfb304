//! The whole of the cluster's state at one moment, in memory. A `State` never changes: each applied command makes the
//! next one, which shares every record that stayed the same.

use crate::access::{Access, IdentityRecord, Right};
use crate::record::{
    BY_ID, Cleared, ClusterRecord, ColumnRecord, DriveRecord, DriveState, DriveUse, HolderRecord, MapRecord,
    MigrationRecord, PoolRecord, RebuildRecord, ServerRecord, SnapshotRecord, VolumeRecord, VolumeState,
};
use crate::schedule::Schedules;
use crate::state_machine::copy::StateCopyError;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tepal_model::history::FIRST_EPOCH;
use tepal_model::layout::FailureDomain;
use tepal_model::size::chunk;
use tepal_model::{ClusterId, DriveId, Epoch, History, MapId, ServerId, VolumeId};
use tepal_placement::{Place, domain};

/// What all applied commands came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// The cluster itself.
    pub cluster: Arc<ClusterRecord>,
    /// All servers.
    pub servers: BTreeMap<ServerId, Arc<ServerRecord>>,
    /// All drives, also those that are away or retired.
    pub drives: BTreeMap<DriveId, Arc<DriveRecord>>,
    /// All pools, by name.
    pub pools: BTreeMap<String, Arc<PoolRecord>>,
    /// All volumes, also those being deleted.
    pub volumes: BTreeMap<VolumeId, Arc<VolumeRecord>>,
    /// The maps of these volumes, and those that they go to.
    pub maps: BTreeMap<MapId, Arc<MapRecord>>,
    /// What goes from one map to another. A map is in one of them at most.
    pub migrations: BTreeMap<MapId, Arc<MigrationRecord>>,
    /// Who may do what.
    pub access: Arc<Access>,
    /// What is done again and again.
    pub schedules: Arc<Schedules>,
    /// The rebuilds of the cluster, in order. No command changes it.
    pub rebuilds: Arc<Vec<RebuildRecord>>,
    /// Of the volumes that have some.
    pub(crate) snapshots: BTreeMap<VolumeId, Arc<Snapshots>>,
    /// The active volumes by name.
    pub(crate) names: BTreeMap<String, VolumeId>,
    pub(crate) counters: Counters,
}

/// One volume's, by their epochs.
pub(crate) type Snapshots = BTreeMap<Epoch, Arc<SnapshotRecord>>;

/// The numbers that come next. Counted ids are never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counters {
    pub server: u32,
    pub volume: u64,
    pub map: u32,
    pub event: u64,
}

impl State {
    /// Before the first command. [`crate::Metadata`] never shows it.
    pub(crate) fn before_everything() -> State {
        State {
            cluster: Arc::new(ClusterRecord {
                id: ClusterId(0),
                name: String::new(),
                created_unix_ms: 0,
                view: 0,
                lease_ms: None,
                longest_lease_ms: None,
            }),
            servers: BTreeMap::new(),
            drives: BTreeMap::new(),
            pools: BTreeMap::new(),
            volumes: BTreeMap::new(),
            maps: BTreeMap::new(),
            migrations: BTreeMap::new(),
            access: Arc::default(),
            schedules: Arc::default(),
            rebuilds: Arc::default(),
            snapshots: BTreeMap::new(),
            names: BTreeMap::new(),
            counters: Counters { server: 1, volume: 1, map: 1, event: 1 },
        }
    }

    /// Of nothing but who may do what, as somebody has heard it who takes no part in agreeing.
    pub fn of_access(access: Access) -> State {
        State { access: Arc::new(access), ..State::before_everything() }
    }

    /// Whether the first command has been applied; a cluster's id is never 0.
    pub(crate) fn is_set_up(&self) -> bool {
        self.cluster.id != ClusterId(0)
    }

    /// What an identity may do with a volume: by what was granted on it, on its pool, and on the cluster.
    pub fn right_of(&self, identity: &IdentityRecord, volume: VolumeId) -> Option<Right> {
        self.access.right_in(identity, volume, self.volumes.get(&volume).map(|record| &*record.pool))
    }

    /// Counts the changes of membership, of the states of servers and drives, and of the epochs that volumes write in.
    pub fn view(&self) -> u64 {
        self.cluster.view
    }

    /// Counts what has happened to servers, drives, pools and volumes: of two states, the later one has the higher number,
    /// unless they tell the same of them.
    pub fn happenings(&self) -> u64 {
        // Copies move without people being told.
        self.counters.event + self.view()
    }

    /// No map has had this number or a higher one yet.
    pub fn next_map(&self) -> MapId {
        MapId(self.counters.map)
    }

    /// How many events there have been. Of two states of one view, the later one has more, unless people would see no difference.
    pub fn events(&self) -> u64 {
        self.counters.event
    }

    /// The random number of the last rebuild; 0 if there was none.
    pub fn history(&self) -> u64 {
        self.rebuilds.last().map_or(0, |rebuild| rebuild.history)
    }

    /// Whether a state of that history and view, after so many events, is of this one's past, or of this history: no other rebuild, and
    /// nothing that was lost by one.
    pub fn has_past(&self, history: u64, view: u64, events: u64) -> bool {
        if history == self.history() {
            return true;
        }
        let before = std::iter::once(0).chain(self.rebuilds.iter().map(|rebuild| rebuild.history));
        let mut ends = before.zip(&*self.rebuilds);
        ends.any(|(of, end)| of == history && (view, events) <= (end.after_view, end.after_events))
    }

    /// Whether what has this number may be another map than it was made for: one of before the cluster was rebuilt, or one to come.
    pub fn is_map_of_another_past(&self, map: MapId) -> bool {
        map >= self.next_map()
            || self.rebuilds.iter().any(|rebuild| (rebuild.first_map..rebuild.end_map).contains(&map))
    }

    /// The copy of the state that drives keep, without its events. It takes milliseconds where there are thousands of volumes.
    pub fn to_copy(&self) -> Vec<u8> {
        crate::state_machine::copy::encode(self)
    }

    /// The state that a copy is of, checked.
    pub fn from_copy(bytes: &[u8]) -> Result<State, StateCopyError> {
        crate::state_machine::copy::decode(bytes)
    }

    /// Whether anything on a drive goes to another one by itself: what a layout names the drive for doesn't.
    pub fn may_be_replaced(&self, drive: DriveId) -> bool {
        self.maps.values().any(|map| map.layout.plexes().is_none() && map.uses(drive))
    }

    /// Whether layouts name a drive for something of which others have enough to make it again.
    pub fn may_be_named_otherwise(&self, drive: DriveId) -> bool {
        let is_there = |holder: &HolderRecord| {
            holder.drive != drive
                && self.drives.get(&holder.drive).is_some_and(|record| record.state != DriveState::Failed)
        };
        self.maps.values().filter(|map| map.layout.names(drive)).any(|map| {
            let needed = usize::from(map.layout.fragments().data);
            let mut held = map.columns.iter().filter(|column| column.is_held_by(drive));
            held.any(|column| column.holders.iter().filter(|holder| is_there(holder)).count() >= needed)
        })
    }

    /// The drive of this name.
    pub fn drive_named(&self, name: &str) -> Option<&Arc<DriveRecord>> {
        self.drives.values().find(|drive| drive.name.as_deref() == Some(name))
    }

    /// The active volume of that name.
    pub fn volume_named(&self, name: &str) -> Option<&Arc<VolumeRecord>> {
        self.names.get(name).and_then(|id| self.volumes.get(id))
    }

    /// The map that the volume has: while it goes to another, the one that it comes from.
    pub fn map_of(&self, volume: &VolumeRecord) -> Option<&Arc<MapRecord>> {
        self.maps.get(&volume.map)
    }

    /// The maps that have something of the volume: those of its ranges, and while some of it goes from one to another, both.
    pub fn maps_of(&self, volume: &VolumeRecord) -> impl Iterator<Item = &Arc<MapRecord>> {
        let mut maps = volume.maps();
        let way = self.migration_of(volume).map(|migration| [migration.source, migration.target]);
        for map in way.into_iter().flatten() {
            if !maps.contains(&map) {
                maps.push(map);
            }
        }
        maps.into_iter().filter_map(|map| self.maps.get(&map))
    }

    /// How the volume, or a range of it, goes to another map, if it does.
    pub fn migration_of(&self, volume: &VolumeRecord) -> Option<&Arc<MigrationRecord>> {
        self.migrations.values().find(|migration| migration.takes(volume))
    }

    /// What is said of a volume to let it grow, if nothing lies past its end while it's as it is now.
    pub fn as_cleared(&self, volume: &VolumeRecord) -> Cleared {
        let VolumeRecord { id, revision, epoch, .. } = *volume;
        let window = self.migration_of(volume).map_or(0, |migration| migration.since);
        Cleared { volume: id, revision, epoch, window }
    }

    /// What goes from or to this map.
    pub fn migration_about(&self, map: MapId) -> Option<&Arc<MigrationRecord>> {
        self.migrations.values().find(|migration| migration.is_about(map))
    }

    /// The active volumes that go with a migration, in order of their ids.
    pub fn volumes_that_go(&self, migration: &MigrationRecord) -> impl Iterator<Item = &Arc<VolumeRecord>> {
        self.active_volumes().filter(move |volume| migration.takes(volume))
    }

    /// The maps that have the same epochs as the volume's: those of its ranges, and while something goes between one of them and another
    /// map, whoever it is of, that one.
    pub(crate) fn family_of(&self, volume: &VolumeRecord) -> Vec<MapId> {
        let mut maps = volume.maps();
        let ways = maps.iter().filter_map(|map| self.migration_about(*map));
        let ways: Vec<MapId> = ways.flat_map(|way| [way.source, way.target]).collect();
        for map in ways {
            if !maps.contains(&map) {
                maps.push(map);
            }
        }
        maps
    }

    /// The size of the longest volume or snapshot that goes, in bytes.
    pub(crate) fn longest_of(&self, migration: &MigrationRecord) -> u64 {
        self.longest_among(self.volumes_that_go(migration))
    }

    /// The same of the volumes that have this one's maps.
    pub(crate) fn longest_with(&self, volume: &VolumeRecord) -> u64 {
        self.longest_among(self.volumes_of(volume.map))
    }

    /// The same of a volume and its snapshots.
    pub(crate) fn longest_alone(&self, volume: &VolumeRecord) -> u64 {
        self.longest_among(self.volumes.get(&volume.id).into_iter())
    }

    fn longest_among<'a>(&self, volumes: impl Iterator<Item = &'a Arc<VolumeRecord>>) -> u64 {
        let sizes = |volume: &Arc<VolumeRecord>| {
            let snapshots = self.snapshots_of(volume.id).map(|snapshot| snapshot.size);
            snapshots.chain([volume.size]).max()
        };
        volumes.filter_map(sizes).max().unwrap_or(1)
    }

    /// The bytes of the migration's chunks.
    pub fn chunk_of(&self, migration: &MigrationRecord) -> u64 {
        let extent = |map: &MapId| self.maps.get(map).expect("both maps of a migration exist").extent();
        chunk(extent(&migration.source), extent(&migration.target))
    }

    /// Whether what goes was grown on its way: what it was grown by is only where it goes to, so it can't be turned around.
    pub fn has_outgrown(&self, migration: &MigrationRecord) -> bool {
        !migration.ends && self.longest_of(migration) > (migration.first + migration.chunks) * self.chunk_of(migration)
    }

    /// The active volume of this name, or of the id that stands for one: see [`BY_ID`].
    pub fn volume_called(&self, text: &str) -> Option<&Arc<VolumeRecord>> {
        let Some(id) = text.strip_prefix(BY_ID) else { return self.volume_named(text) };
        let found = self.volumes.get(&VolumeId(id.parse().ok()?));
        found.filter(|record| record.state == VolumeState::Active)
    }

    /// The volume's snapshot of this name, or of the epoch that stands for one: see [`BY_ID`].
    pub fn snapshot_called(&self, volume: VolumeId, text: &str) -> Option<&Arc<SnapshotRecord>> {
        let Some(epoch) = text.strip_prefix(BY_ID) else { return self.snapshot_named(volume, text) };
        self.snapshots.get(&volume)?.get(&epoch.parse().ok()?)
    }

    /// The volume's snapshot of this name.
    pub fn snapshot_named(&self, volume: VolumeId, name: &str) -> Option<&Arc<SnapshotRecord>> {
        self.snapshots_of(volume).find(|snapshot| snapshot.name == name)
    }

    /// The volume's snapshots in order of their epochs, which is that in which they were made.
    pub fn snapshots_of(&self, volume: VolumeId) -> impl DoubleEndedIterator<Item = &Arc<SnapshotRecord>> {
        self.snapshots.get(&volume).into_iter().flat_map(|snapshots| snapshots.values())
    }

    /// How many snapshots the volume has.
    pub fn count_snapshots(&self, volume: VolumeId) -> usize {
        self.snapshots.get(&volume).map_or(0, |snapshots| snapshots.len())
    }

    /// Who reads what drives hold of the map: its volumes that are active, and their snapshots. Of a map that isn't
    /// known it's as if there had never been a snapshot, so nothing of it is thought to be free. Of two maps between which volumes
    /// go it's the same.
    ///
    /// It's the same one as long as the map's newest epoch, which volumes and snapshots there are, and what each sees: with many
    /// snapshots, it's worth comparing these first.
    pub fn history_of(&self, map: MapId) -> History {
        let Some(map) = self.maps.get(&map) else { return History::default() };
        if map.newest_epoch == FIRST_EPOCH && self.readers_of(map.id).next().is_some() {
            return History::default();
        }
        let snapshots = |volume: &VolumeRecord| self.snapshots_of(volume.id).map(|snapshot| snapshot.lineage.clone());
        let readers = self.readers_of(map.id).flat_map(|volume| snapshots(volume).chain([volume.lineage.clone()]));
        History::new(readers, map.newest_epoch)
    }

    /// What no two copies of the volume share as its drives are now, which may have moved since the map was made. `None` if it
    /// has only one copy.
    pub fn domain_of(&self, volume: &VolumeRecord) -> Option<FailureDomain> {
        let map = self.map_of(volume)?;
        let place = |holder: &HolderRecord| {
            let server = self.servers.get(&self.drives.get(&holder.drive)?.server)?;
            Some(Place { server: server.id, site: server.site.as_deref() })
        };
        let places = |column: &ColumnRecord| column.holders.iter().map(place).collect();
        let columns: Option<Vec<Vec<Place<'_>>>> = map.columns.iter().map(places).collect();
        domain(&columns?)
    }

    /// Those that may be served, in order of their ids.
    pub fn active_volumes(&self) -> impl Iterator<Item = &Arc<VolumeRecord>> {
        self.volumes.values().filter(|volume| volume.state == VolumeState::Active)
    }

    /// Those of them that have this map: a volume and its clones.
    pub fn volumes_of(&self, map: MapId) -> impl Iterator<Item = &Arc<VolumeRecord>> {
        self.active_volumes().filter(move |volume| volume.has(map))
    }

    /// Those of them that may read what drives hold of this map: those that have it, and while volumes go between it and another,
    /// those that have that one.
    pub fn readers_of(&self, map: MapId) -> impl Iterator<Item = &Arc<VolumeRecord>> {
        let maps = self.migration_about(map).map_or([map, map], |migration| [migration.source, migration.target]);
        self.active_volumes().filter(move |volume| maps.iter().any(|map| volume.has(*map)))
    }

    /// The drives that were last seen on this server.
    pub fn drives_of_server(&self, server: ServerId) -> impl Iterator<Item = &Arc<DriveRecord>> {
        self.drives.values().filter(move |drive| drive.server == server)
    }

    /// The spare that steps in for a drive: of those in its pool that are up, the smallest that is as large, or the largest.
    pub fn spare_for(&self, drive: &DriveRecord, but: &BTreeSet<DriveId>) -> Option<DriveId> {
        let is_ready = |spare: &&Arc<DriveRecord>| {
            spare.purpose == DriveUse::Spare && spare.state == DriveState::Up && !but.contains(&spare.id)
        };
        let fits = |spare: &&Arc<DriveRecord>| match spare.capacity >= drive.capacity {
            true => (0, spare.capacity, spare.id),
            false => (1, u64::MAX - spare.capacity, spare.id),
        };
        self.drives_of_pool(&drive.pool).filter(is_ready).min_by_key(fits).map(|spare| spare.id)
    }

    /// The drives of this pool, in any state.
    pub fn drives_of_pool<'a>(&'a self, pool: &'a str) -> impl Iterator<Item = &'a Arc<DriveRecord>> {
        self.drives.values().filter(move |drive| drive.pool == pool)
    }

    /// The pool whose drives hold a map of this volume. Ranges may have maps of different pools, and while it goes to another pool, the
    /// one map has drives of the one, the other of the other.
    pub fn pool_of<'a>(&'a self, volume: &'a VolumeRecord, map: &MapRecord) -> &'a str {
        let held =
            || map.columns.iter().flat_map(|column| &column.holders).find_map(|holder| self.drives.get(&holder.drive));
        match self.migration_about(map.id) {
            None if volume.ranges.is_none() => &volume.pool,
            _ => held().map_or(&volume.pool, |drive| &drive.pool),
        }
    }

    /// The volumes, also those being deleted, of which this drive has something or gets it.
    pub fn volumes_on(&self, drive: DriveId) -> impl Iterator<Item = &Arc<VolumeRecord>> {
        let has_it = move |volume: &&Arc<VolumeRecord>| self.maps_of(volume).any(|map| map.uses(drive));
        self.volumes.values().filter(has_it)
    }
}
