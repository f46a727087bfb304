//! Keeps the volumes that the engine serves the same as those that the metadata has.
//!
//! Invariants:
//! 1. A volume is served only while the metadata has it as active.
//! 2. The space of a removed volume is free on every drive of the server that has the metadata forget it. Other servers free
//!    theirs when they learn of it, also of one that is forgotten by then; what drives hold of it that are away is freed when
//!    they return.
//! 3. Drives here keep the state by which a volume is opened, resized or given back, unless they are slow ([`crate::keeping`]).
//! 4. While any volume is active that has the same map, only what nobody sees any more is freed of it.

use crate::access::Claims;
use crate::agreed::{epochs_of, places_of};
use crate::authority::MetadataAuthority;
use crate::data_threads::{DataThreads, Stopped};
use crate::drives::Parts;
use crate::importing::Imports;
use crate::keeping::Keeper;
use crate::keys::Keyring;
use crate::news::in_a_moment;
use crate::tasks;
use crate::world::ServerWorld;
use futures_util::future::join_all;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tepal_engine::{Engine, OpenVolumeError, Volume, VolumeSpec};
use tepal_metadata::{Command, MapRecord, Metadata, ProposeError, Refusal, State, VolumeRecord, VolumeState};
use tepal_model::{DriveId, MapId, ServerId, VolumeId};
use tokio::sync::watch;

/// After a removal that couldn't be finished, or a volume that couldn't be opened.
const TRY_AGAIN: Duration = Duration::from_secs(5);

/// Why a volume isn't served.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotServed {
    #[error("it is being opened")]
    BeingOpened,
    #[error("its map is not in the metadata")]
    NoMap,
    #[error("it is being settled whether drive {0} is here")]
    UnknownDrive(DriveId),
    #[error(transparent)]
    Refused(#[from] OpenVolumeError),
    #[error(transparent)]
    Stopped(#[from] Stopped),
    #[error("it's encrypted, and server {server} can't read or write it: {reason}")]
    Locked { server: ServerId, reason: String },
}

/// Why the space of a removed volume isn't free yet.
#[derive(Debug, thiserror::Error)]
enum NotFreed {
    #[error("its drives can't be asked: {0}")]
    NotServed(#[from] NotServed),
    #[error(transparent)]
    Metadata(#[from] ProposeError),
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

/// Whether the cluster has this server only: it has its volumes for itself then, as long as no gateway elsewhere wants one.
pub fn is_alone(state: &State) -> bool {
    state.servers.len() <= 1
}

/// Whether this server has the volume for itself. Where volumes go from its map to another, or have several ranges, what is agreed says
/// from which map each part of them is served.
fn has_for_itself(state: &State, record: &VolumeRecord) -> bool {
    is_alone(state) && record.ranges.is_none() && state.migration_about(record.map).is_none()
}

/// What the engine is told of a volume, but for its snapshots.
pub fn spec_of(state: &State, record: &VolumeRecord, map: &MapRecord) -> VolumeSpec {
    VolumeSpec {
        id: record.id,
        name: record.name.clone(),
        size: record.size,
        layout: map.layout.clone(),
        map: map.id,
        geometry: map.geometry(),
        places: Arc::new(places_of(map)),
        revision: record.revision,
        is_replica: record.replica.is_some(),
        is_encrypted: state.access.volume_keys.contains_key(&record.id),
        live: None,
        epochs: Arc::default(),
    }
}

/// What becomes of the map of a volume that is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Goes {
    /// Others have it.
    Alone,
    WithItsMap,
}

/// The volumes that should be served and can't be, and why.
#[derive(Default)]
struct Closed(Mutex<BTreeMap<VolumeId, NotServed>>);

impl Closed {
    /// Why this volume isn't among those that are served.
    fn reason(&self, id: VolumeId) -> NotServed {
        let closed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        closed.get(&id).cloned().unwrap_or(NotServed::BeingOpened)
    }

    /// Forgets volumes that are gone.
    fn keep(&self, is_there: impl Fn(VolumeId) -> bool) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|id, _| is_there(*id));
    }

    fn is_empty(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Whether one of them will be served once something is settled about its drives.
    fn awaits_drives(&self) -> bool {
        let closed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        closed.values().any(|reason| matches!(reason, NotServed::UnknownDrive(_)))
    }

    /// Whether that is news.
    fn set(&self, id: VolumeId, reason: Option<NotServed>) -> bool {
        let mut closed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match reason {
            Some(reason) => closed.insert(id, reason.clone()) != Some(reason),
            None => closed.remove(&id).is_some(),
        }
    }
}

pub struct Volumes {
    metadata: Metadata,
    authority: MetadataAuthority,
    engine: Engine<ServerWorld>,
    threads: Arc<DataThreads>,
    keeper: Keeper,
    claims: Claims,
    keyring: Keyring,
    imports: Imports,
    closed: Closed,
    all_opened: AtomicBool,
    /// Removals that go on.
    removing: Mutex<BTreeSet<VolumeId>>,
    turn: tokio::sync::Mutex<()>,
    /// How often [`Volumes::settle`] was asked for, and how many of these calls the latest state that was settled came after.
    asked: AtomicU64,
    answered: AtomicU64,
    /// The maps that there were when it was last looked.
    maps: Mutex<BTreeSet<MapId>>,
    /// Counts the volumes that [`Volumes::settle`] has seen to.
    settled: watch::Sender<u64>,
    next_thread: AtomicUsize,
}

impl Volumes {
    pub fn new(parts: Parts) -> Arc<Self> {
        let Parts { metadata, engine, authority, threads, keeper, claims, keyring, imports } = parts;
        Arc::new(Volumes {
            metadata,
            authority,
            engine,
            threads,
            keeper,
            claims,
            keyring,
            imports,
            closed: Closed::default(),
            all_opened: AtomicBool::new(false),
            removing: Mutex::default(),
            turn: tokio::sync::Mutex::default(),
            asked: AtomicU64::new(0),
            answered: AtomicU64::new(0),
            maps: Mutex::default(),
            settled: watch::Sender::default(),
            next_thread: AtomicUsize::new(0),
        })
    }

    /// Follows the metadata until it's dropped.
    pub async fn follow(self: Arc<Self>) {
        let mut changes = self.metadata.watch();
        loop {
            match tokio::time::timeout(TRY_AGAIN, changes.changed()).await {
                Ok(Ok(())) => drop(changes.borrow_and_update()),
                Ok(Err(_)) => return,
                Err(_) if self.closed.is_empty() => continue,
                Err(_) => {}
            }
            if self.open_all().await.is_err() {
                return;
            }
        }
    }

    /// Opens all volumes there are. Once they are open, a drive can be found to know what it misses: not while one waits for drives
    /// that this may be said of.
    pub async fn open_all(self: &Arc<Self>) -> Result<(), Stopped> {
        self.settle().await;
        if self.closed.awaits_drives() || self.all_opened.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        let engine = self.engine.clone();
        self.threads.run_on(0, move || async move { engine.all_volumes_opened() }).await
    }

    /// Opens, resizes, renames and removes what the metadata's latest state says. Whoever changed it may call this to have
    /// the change in effect when it returns. It looks at all volumes, so of many that ask at a time one does it for all.
    pub async fn settle(self: &Arc<Self>) {
        let number = self.asked.fetch_add(1, Ordering::AcqRel) + 1;
        let _turn = self.turn.lock().await;
        if self.answered.load(Ordering::Acquire) >= number {
            return; // by a state that was read after this was asked for
        }
        let answered = self.asked.load(Ordering::Acquire);
        self.settle_state(self.metadata.state()).await;
        self.answered.store(answered, Ordering::Release);
    }

    async fn settle_state(self: &Arc<Self>, state: Arc<State>) {
        if self.changes_what_drives_hold(&state) {
            self.keeper.kept(&state).await;
        }
        self.claims.follow(); // before a volume has a later revision
        let opening = state.active_volumes().map(|record| async {
            self.settle_one(&state, record).await;
            self.settled.send_modify(|count| *count += 1);
        });
        join_all(opening).await;
        self.imports.follow(&state);
        for record in state.volumes.values().filter(|record| record.state == VolumeState::Deleting) {
            self.begin_removal(&state, record);
        }
        // It was removed while this server stood still, or was told only what the state has come to.
        for volume in self.engine.volumes().into_iter().filter(|volume| !state.volumes.contains_key(&volume.id())) {
            // Perhaps not the one that it was opened with: clones may have gone with it to another, and still be there.
            let has_map = volume.has_any_map_of(|map| state.maps.contains_key(&map));
            self.begin_end(volume, if has_map { Goes::Alone } else { Goes::WithItsMap });
        }
        self.give_back_maps_that_are_gone(&state);
        self.closed.keep(|id| state.volumes.contains_key(&id));
    }

    /// Whether by this state something is opened, resized or given back that isn't yet.
    pub fn changes_what_drives_hold(&self, state: &State) -> bool {
        let is_new = |record: &Arc<VolumeRecord>| {
            let opened = self.engine.volume(record.id);
            opened.is_none_or(|volume| volume.size() != record.size)
        };
        let (opened, removing) = (self.engine.volumes(), self.removing().clone());
        let maps = self.maps.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut deleted = state.volumes.values().filter(|record| record.state == VolumeState::Deleting);
        state.active_volumes().any(is_new)
            || deleted.any(|record| !removing.contains(&record.id))
            || opened.iter().any(|volume| !state.volumes.contains_key(&volume.id()))
            || maps.iter().any(|map| !state.maps.contains_key(map))
    }

    /// Volumes that have gone from a map leave it with nothing but what never counted.
    fn give_back_maps_that_are_gone(self: &Arc<Self>, state: &State) {
        let now: BTreeSet<MapId> = state.maps.keys().copied().collect();
        let before = std::mem::replace(&mut *self.maps.lock().unwrap_or_else(PoisonError::into_inner), now);
        if before.iter().any(|map| !state.maps.contains_key(map)) {
            let volumes = self.clone();
            // Data threads that have stopped serve nobody either.
            tasks::spawn(async move {
                let _ = volumes.free_unknown().await;
            });
        }
    }

    async fn settle_one(&self, state: &State, record: &VolumeRecord) {
        if let Some(volume) = self.engine.volume(record.id) {
            let copied = state.access.live_imports.get(&record.id).map(|live| live.done);
            volume.changed(&record.name, (record.size, record.replica.is_some()), record.revision, copied);
            if !has_for_itself(state, record) && !volume.is_among() {
                self.share(record.id);
            }
            return;
        }
        let outcome = self.open(state, record).await;
        let reason = outcome.err();
        if self.closed.set(record.id, reason.clone())
            && let Some(reason) = reason
        {
            tracing::error!(volume = record.name, %reason, "a volume can't be served");
        }
    }

    /// In the background: it waits for what is under way.
    fn share(&self, id: VolumeId) {
        let engine = self.engine.clone();
        self.threads.spawn_on(0, move || async move { engine.share_volume(id).await });
    }

    async fn open(&self, state: &State, record: &VolumeRecord) -> Result<(), NotServed> {
        let map = state.map_of(record).ok_or(NotServed::NoMap)?;
        let is_alone = has_for_itself(state, record);
        // Nobody has agreed yet to go on without it.
        let unknown = map.drives().into_iter().find(|drive| !self.engine.knows_drive(*drive));
        if let Some(unknown) = unknown.filter(|_| is_alone) {
            return Err(NotServed::UnknownDrive(unknown));
        }
        let epochs = epochs_of(state, map).unwrap_or_default();
        let live = self.imports.of(state, record.id);
        let (spec, engine) = (VolumeSpec { epochs, live, ..spec_of(state, record, map) }, self.engine.clone());
        let thread = self.next_thread.fetch_add(1, Ordering::Relaxed) % self.threads.count();
        let opening = move || async move {
            match is_alone {
                true => engine.open_volume(spec).await.map(drop),
                false => engine.open_volume_among(spec).map(drop),
            }
        };
        Ok(self.threads.run_on(thread, opening).await??)
    }

    /// Starts to free the space of a removed volume, unless that goes on already. Its users are cut off at once.
    fn begin_removal(self: &Arc<Self>, state: &Arc<State>, record: &Arc<VolumeRecord>) {
        if let Some(volume) = self.engine.volume(record.id) {
            volume.cut_off();
        }
        if self.removing().insert(record.id) {
            let (volumes, state, record) = (self.clone(), state.clone(), record.clone());
            tasks::spawn(async move {
                while let Err(reason) = volumes.remove(&state, &record).await {
                    tracing::warn!(volume = record.name, %reason, "space of a removed volume can't be freed now");
                    tokio::time::sleep(TRY_AGAIN).await;
                }
                volumes.removing().remove(&record.id);
            });
        }
    }

    /// The same of a volume that the metadata has forgotten: others have freed its space on their drives.
    fn begin_end(self: &Arc<Self>, volume: Volume<ServerWorld>, goes: Goes) {
        let id = volume.id();
        if self.removing().insert(id) {
            tracing::info!(volume = volume.spec().name, "a volume was removed while this server didn't notice");
            volume.cut_off();
            let volumes = self.clone();
            tasks::spawn(async move {
                // Data threads that have stopped serve nobody either.
                if volumes.end(id, goes).await.is_ok() {
                    let _ = volumes.free_unknown().await;
                }
                volumes.removing().remove(&id);
            });
        }
    }

    fn removing(&self) -> MutexGuard<'_, BTreeSet<VolumeId>> {
        self.removing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn remove(&self, state: &State, record: &VolumeRecord) -> Result<(), NotFreed> {
        let id = record.id;
        // Once nobody has the map, nobody ever will.
        let goes = if state.readers_of(record.map).next().is_some() { Goes::Alone } else { Goes::WithItsMap };
        if goes == Goes::WithItsMap && self.engine.volume(id).is_none() && state.map_of(record).is_some() {
            self.open(state, record).await?;
        }
        self.end(id, goes).await?;
        match self.authority.propose(Command::FinishRemoveVolume { id }).await {
            Ok(_) | Err(ProposeError::Refused(Refusal::NoVolumeId(_))) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(self.free_unknown().await?)
    }

    /// Ends all use of a volume, and gives its space back on the drives that are here.
    async fn end(&self, id: VolumeId, goes: Goes) -> Result<(), Stopped> {
        self.closed.set(id, None);
        let (engine, metadata) = (self.engine.clone(), self.metadata.clone());
        let ending = move || async move {
            match goes {
                Goes::Alone => engine.remove_one_of_several(id).await,
                Goes::WithItsMap => {
                    let state = metadata.state();
                    engine.remove_volume(id, |map| state.readers_of(map).next().is_some()).await;
                }
            }
        };
        self.threads.run_on(0, ending).await
    }

    /// A drive that came back while a volume was ended was told that it's there.
    async fn free_unknown(&self) -> Result<(), Stopped> {
        let (engine, metadata) = (self.engine.clone(), self.metadata.clone());
        let freeing = move || async move {
            let known = |map| metadata.state().maps.contains_key(&map);
            engine.end_unknown_maps(known).await;
            for drive in engine.drives_here() {
                if let Err(error) = engine.free_unknown(&drive, known).await {
                    tracing::warn!(drive = %drive.id(), %error, "space of a removed volume is given back when the drive is opened again");
                }
            }
        };
        self.threads.run_on(0, freeing).await
    }

    /// The volume, if it is served now.
    pub fn served(&self, id: VolumeId) -> Option<Volume<ServerWorld>> {
        self.engine.volume(id)
    }

    /// Why it isn't.
    pub fn why_closed(&self, id: VolumeId) -> NotServed {
        self.closed.reason(id)
    }

    /// The volume, once it's known whether it can be served: what is known to be made is opened soon after, and what is known to be
    /// changed is soon as it was changed.
    pub async fn opened(&self, record: &VolumeRecord) -> Result<Volume<ServerWorld>, NotServed> {
        let is_known = |_: &u64| match self.served(record.id) {
            Some(volume) => volume.revision() >= record.revision,
            None => self.why_closed(record.id) != NotServed::BeingOpened,
        };
        in_a_moment(&mut self.settled.subscribe(), is_known).await;
        self.served(record.id).ok_or_else(|| self.why_closed(record.id))
    }

    /// The same, to read and write its bytes: of an encrypted volume, its key is needed.
    pub async fn unlocked(&self, record: &VolumeRecord) -> Result<Volume<ServerWorld>, NotServed> {
        let volume = self.opened(record).await?;
        if volume.is_locked() {
            let state = self.metadata.state();
            let key = state.access.volume_keys.get(&record.id).ok_or(NotServed::BeingOpened)?;
            let unlocked = self.keyring.unlock(&volume, &key.key, &key.wrapped).await;
            let server = self.metadata.server();
            unlocked.map_err(|error| NotServed::Locked { server, reason: error.to_string() })?;
        }
        Ok(volume)
    }
}
