//! What is agreed, in the engine's words, and which state of it the engine has followed.
//!
//! Whoever asks for a lease or heeds a primary compares with the state that the engine has followed, not with the newest one that the
//! metadata has: only then this server acts by it.

use std::collections::BTreeMap;
use std::sync::Arc;
use tepal_engine::{
    Agreed, ClusterView, CopyStatus, DriveStatus, Epochs, Head, Laid, Migration, Placed, Places, Placing, View,
};
use tepal_metadata::{
    ColumnCopies, ColumnRecord, DriveRecord, DriveState, HolderRecord, MapRecord, MigrationRecord, State, VolumeRecord,
};
use tepal_model::history::FIRST_EPOCH;
use tepal_model::{DriveId, Lineage, MapId};
use tokio::sync::watch;

/// The state that the engine has followed last; of view 0 before the first. Clones are the same.
#[derive(Clone)]
pub struct Followed(watch::Sender<Arc<ClusterView>>);

impl Default for Followed {
    fn default() -> Self {
        Followed(watch::Sender::new(Arc::default()))
    }
}

impl Followed {
    pub fn view(&self) -> u64 {
        self.0.borrow().view
    }

    /// Returns once that view or a later one is followed; at once if none is yet.
    pub async fn caught_up(&self, view: u64) {
        if self.view() > 0 {
            self.from(view).await;
        }
    }

    pub fn set(&self, now: Arc<ClusterView>) {
        self.0.send_replace(now);
    }

    /// Returns once a state is followed, and so kept by the drives here, in which that is so, or a later view.
    pub async fn counted(&self, changes: &[ColumnCopies], view: u64) {
        let is_counted = |now: &ClusterView, change: &ColumnCopies| {
            let Some(places) = now.places.get(&change.map) else { return true };
            let is_complete = |drive: &DriveId| places.status(change.column as usize, *drive) == CopyStatus::Complete;
            change.complete.iter().all(is_complete) && !change.passed.iter().any(is_complete)
        };
        let mut states = self.0.subscribe();
        let all = |now: &Arc<ClusterView>| now.view > view || changes.iter().all(|change| is_counted(now, change));
        let _ = states.wait_for(all).await; // this has the other end
    }

    /// The first state of that view or a later one.
    pub async fn from(&self, view: u64) -> Arc<ClusterView> {
        let mut states = self.0.subscribe();
        match states.wait_for(|now| now.view >= view).await {
            Ok(now) => now.clone(),
            Err(_) => unreachable!("this has the other end"),
        }
    }
}

/// What the metadata says of a drive, as the engine wants it: in which state it is since which view, and since when others may know
/// more.
pub fn status_of(state: DriveState, since: View, left: View) -> DriveStatus {
    match state {
        DriveState::Up => DriveStatus::Up(since),
        DriveState::Behind => DriveStatus::Behind(left, since),
        DriveState::Missing | DriveState::Offline => DriveStatus::Away(left),
        DriveState::Failed => DriveStatus::Retired(left),
    }
}

/// Since when others may know more than this drive.
pub fn left(record: &DriveRecord) -> View {
    record.missed_since.unwrap_or(record.state_view)
}

/// Where a map's columns are.
pub fn places_of(map: &MapRecord) -> Places {
    let placed = |column: &ColumnRecord| {
        let placing = |holder: &HolderRecord| Placing { drive: holder.drive, since: holder.since };
        Placed {
            holders: column.holders.iter().map(placing).collect(),
            joins: column.joining.map(|join| Placing { drive: join.to, since: join.since }),
            in_place_of: column.joining.map_or(0, |join| {
                let replaced = column.holders.iter().position(|holder| holder.drive == join.from);
                replaced.expect("a drive joins to take a holder's place")
            }),
        }
    };
    let incomplete = map.columns.iter().enumerate().flat_map(|(number, column)| {
        let holders = column.holders.iter().filter(|holder| !holder.status.is_complete());
        holders.map(move |holder| ((number, holder.drive), copy_status_of(holder.status)))
    });
    Places { columns: map.columns.iter().map(placed).collect(), incomplete: incomplete.collect() }
}

fn copy_status_of(status: tepal_metadata::CopyStatus) -> CopyStatus {
    match status {
        tepal_metadata::CopyStatus::Complete => CopyStatus::Complete,
        tepal_metadata::CopyStatus::PassedOver(view) => CopyStatus::PassedOver(view),
        tepal_metadata::CopyStatus::GivenUp(view) => CopyStatus::GivenUp(view),
    }
}

/// What the metadata says of all drives.
pub fn cluster_view(state: &State, before: &ClusterView) -> ClusterView {
    let agreed = |record: &DriveRecord| Agreed {
        server: record.server,
        status: status_of(record.state, record.state_view, left(record)),
    };
    let drives = state.drives.iter().map(|(&id, record)| (id, agreed(record))).collect();
    let mut readers: BTreeMap<MapId, Vec<&VolumeRecord>> = BTreeMap::new();
    for record in state.active_volumes() {
        record.maps().into_iter().for_each(|map| readers.entry(map).or_default().push(record));
    }
    let migrations: BTreeMap<MapId, Arc<Migration>> = state
        .migrations
        .values()
        .filter(|record| state.volumes_that_go(record).next().is_some())
        .filter_map(|record| Some((record.source, migration_of(state, record, before)?)))
        .collect();
    for migration in migrations.values() {
        // Whoever reads one of them reads the other too.
        let both: Vec<&VolumeRecord> = state.readers_of(migration.source).map(|record| &**record).collect();
        readers.extend([(migration.source, both.clone()), (migration.target, both)]);
    }
    let places = readers.keys().filter_map(|id| state.maps.get(id)).map(|map| {
        let (table, known) = (places_of(map), before.places.get(&map.id));
        (map.id, known.filter(|known| ***known == table).cloned().unwrap_or_else(|| Arc::new(table)))
    });
    let places = places.collect();
    let laid = readers.keys().filter_map(|id| state.maps.get(id)).map(|map| {
        let (laid, known) = (laid_of(map), before.laid.get(&map.id));
        (map.id, known.filter(|known| ***known == laid).cloned().unwrap_or_else(|| Arc::new(laid)))
    });
    let laid = laid.collect();
    let of_map = |(id, volumes): (MapId, Vec<&VolumeRecord>)| {
        Some((id, epochs_among(state, state.maps.get(&id)?, &volumes, before.epochs.get(&id))?))
    };
    let epochs = readers.into_iter().filter_map(of_map).collect();
    let volumes = state.active_volumes().map(|record| (record.id, record.map)).collect();
    let several = |record: &Arc<VolumeRecord>| Some((record.id, Arc::new(record.ranges.clone()?)));
    let ranges = state.active_volumes().filter_map(several).collect();
    ClusterView { view: state.view(), drives, epochs, places, volumes, ranges, laid, migrations }
}

fn laid_of(map: &MapRecord) -> Laid {
    Laid { layout: map.layout.clone(), geometry: map.geometry() }
}

/// `None` if a map of it isn't known, which it always is.
fn migration_of(state: &State, record: &MigrationRecord, before: &ClusterView) -> Option<Arc<Migration>> {
    let laid = |map: MapId| state.maps.get(&map).map(|map| laid_of(map));
    let migration = Migration {
        source: record.source,
        target: record.target,
        from: laid(record.source)?,
        to: laid(record.target)?,
        first: record.first,
        chunks: record.chunks,
        ends: record.ends,
        seed: record.seed,
        done: record.done,
        fence: record.fence,
        reversed: record.cancelled,
        stage: record.stage,
        rate: record.rate,
        leaves: record.leaves,
        since: record.since,
    };
    let known = before.migrations.get(&record.source).filter(|known| ***known == migration);
    Some(known.cloned().unwrap_or_else(|| Arc::new(migration)))
}

/// What the metadata says of a map's readers and their snapshots; `None` if it never had a snapshot.
pub fn epochs_of(state: &State, map: &MapRecord) -> Option<Arc<Epochs>> {
    let volumes: Vec<&VolumeRecord> = state.readers_of(map.id).map(|record| &**record).collect();
    epochs_among(state, map, &volumes, None)
}

/// The same, of these volumes. `before` is what it said in an earlier state.
fn epochs_among(
    state: &State,
    map: &MapRecord,
    volumes: &[&VolumeRecord],
    before: Option<&Arc<Epochs>>,
) -> Option<Arc<Epochs>> {
    if map.newest_epoch == FIRST_EPOCH {
        return None;
    }
    let head = |record: &&VolumeRecord| (record.id, Head { epoch: record.epoch, since: record.epoch_since });
    let heads: BTreeMap<_, _> = volumes.iter().map(head).collect();
    let kept = volumes.iter().flat_map(|record| state.snapshots_of(record.id));
    let snapshots: BTreeMap<_, _> = kept.map(|snapshot| (snapshot.epoch, snapshot.volume)).collect();
    // An epoch's lineage changes only when gaps in it are closed.
    let lineages = || {
        let kept = volumes.iter().flat_map(|record| state.snapshots_of(record.id)).map(|snapshot| &snapshot.lineage);
        kept.chain(volumes.iter().map(|record| &record.lineage))
    };
    let is_same = |before: &&Arc<Epochs>| {
        let is_known = |lineage: &Lineage| {
            before.history.reader(lineage.newest()).is_some_and(|known| known.spans() == lineage.spans())
        };
        (&before.heads, &before.snapshots) == (&heads, &snapshots)
            && !before.history.is_unknown(map.newest_epoch)
            && lineages().all(is_known)
    };
    match before.filter(is_same) {
        Some(same) => Some(same.clone()),
        None => Some(Arc::new(Epochs { history: state.history_of(map.id), heads, snapshots, view: state.view() })),
    }
}
