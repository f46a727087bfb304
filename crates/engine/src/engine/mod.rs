//! All drives and volumes of one server, and what happens when a drive leaves or returns.

mod gaps;
mod leading;
mod leaving;
mod migrating;
mod moving;
mod sharing;
mod surplus;
#[cfg(test)]
mod tests;
mod up_again;

use crate::authority::Authority;
use crate::column::Group;
use crate::column::members::Presence;
use crate::epochs::Epochs;
use crate::holder::Holder;
use crate::map::VolumeSpec;
use crate::places::Places;
use crate::protocol::NodesHere;
use crate::servers::answer::Askers;
use crate::servers::follow::{ClusterView, DriveStatus};
use crate::servers::peers::{Alone, Peers};
use crate::servers::slots::Slots;
use crate::view::View;
use crate::volume::{Map, OpenVolumeError, Use, Volume};
use futures_channel::oneshot;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tepal_drive::Drive;
use tepal_drive::world::World;
use tepal_model::{DriveId, IoError, MapId, ServerId, VolumeId};

/// Cheap to clone.
pub struct Engine<W: World> {
    pub(crate) shared: Arc<Shared<W>>,
}

impl<W: World> Clone for Engine<W> {
    fn clone(&self) -> Self {
        Engine { shared: self.shared.clone() }
    }
}

pub(crate) struct Shared<W: World> {
    pub world: W,
    pub authority: Arc<dyn Authority>,
    pub peers: Arc<dyn Peers>,
    /// Servers that ask about this server's drives.
    pub askers: Askers,
    /// For this server's requests as a gateway.
    pub slots: Slots,
    /// Of this server's drives, in maps that nobody leads.
    pub nodes: NodesHere<W>,
    /// Whether this server follows no state of a cluster.
    is_alone: bool,
    /// See [`Engine::followed`].
    followed_view: AtomicU64,
    /// See [`Engine::destage_after`]. In microseconds.
    pub quiet: AtomicU64,
    state: Mutex<State<W>>,
}

struct State<W: World> {
    /// Whether all volumes are open: before, it's unknown whether a drive misses something.
    complete: bool,
    drives: BTreeMap<DriveId, Entry<W>>,
    volumes: BTreeMap<VolumeId, Volume<W>>,
    /// The maps of these volumes: several may have the same one. A removed volume's map stays while others have it.
    maps: BTreeMap<MapId, Map<W>>,
    /// Drives whose return is being agreed.
    settling: BTreeSet<DriveId>,
    /// This server, and the state that was followed last; `None` for a server that is alone.
    followed: Option<(ServerId, Arc<ClusterView>)>,
}

/// See [`Engine::destage_after`], if nothing is said.
const QUIET: Duration = Duration::from_secs(2);

/// The pause after a failed agreement that a newer view may have been the reason for.
const AGREE_SOON: Duration = Duration::from_millis(50);

struct Entry<W: World> {
    status: Status<W>,
    left: Option<View>,
    /// Names this opening of this server's drive, for other servers. Not 0.
    opening: u64,
}

impl<W: World> Entry<W> {
    fn drive(&self) -> Option<&Drive<W>> {
        match &self.status {
            Status::Here(drive) => Some(drive),
            Status::There(_) | Status::Leaving(_) | Status::Missing | Status::Failed => None,
        }
    }
}

enum Status<W: World> {
    Here(Drive<W>),
    /// On this other server.
    There(ServerId),
    /// The drive is being declared down; these tasks wait for the end of that.
    Leaving(Vec<oneshot::Sender<()>>),
    Missing,
    Failed,
}

/// What the metadata says of a drive that is added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The drive is up: it has every write, or knows itself what it misses.
    Current,
    /// The drive left in that view, the first in which it wasn't up. It takes part, and is up again when it has noted
    /// what it misses.
    Behind(View),
}

impl Standing {
    fn of(left: Option<View>) -> Self {
        left.map_or(Standing::Current, Standing::Behind)
    }

    pub(crate) fn left(self) -> Option<View> {
        match self {
            Standing::Current => None,
            Standing::Behind(view) => Some(view),
        }
    }
}

impl<W: World> Engine<W> {
    /// A server that is alone.
    pub fn new(world: W, authority: Arc<dyn Authority>) -> Self {
        Self::with(world, authority, None)
    }

    /// One server of several.
    pub fn among(world: W, authority: Arc<dyn Authority>, peers: Arc<dyn Peers>) -> Self {
        Self::with(world, authority, Some(peers))
    }

    fn with(world: W, authority: Arc<dyn Authority>, peers: Option<Arc<dyn Peers>>) -> Self {
        let slots = Slots::new(world.next_u64());
        let (is_alone, peers) = (peers.is_none(), peers.unwrap_or_else(|| Arc::new(Alone)));
        let state = Mutex::new(State {
            complete: false,
            drives: BTreeMap::new(),
            volumes: BTreeMap::new(),
            maps: BTreeMap::new(),
            settling: BTreeSet::new(),
            followed: None,
        });
        Engine {
            shared: Arc::new(Shared {
                world,
                authority,
                peers,
                askers: Askers::default(),
                slots,
                nodes: NodesHere::default(),
                is_alone,
                followed_view: AtomicU64::new(0),
                quiet: AtomicU64::new(QUIET.as_micros() as u64),
                state,
            }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<W>> {
        self.shared.state.lock().expect("nothing panics while it holds the engine's lists")
    }

    /// For so long after the last write to a stripe of an erasure code, its blocks stay in the log, unless all of them are there:
    /// neighbouring writes fill the stripe meanwhile.
    pub fn destage_after(&self, quiet: Duration) {
        self.shared.quiet.store(quiet.as_micros() as u64, Ordering::Relaxed);
    }

    pub(crate) fn world(&self) -> &W {
        &self.shared.world
    }

    /// Adds a drive that was opened. All volumes notice a returned drive, and bring it up to date.
    pub fn add_drive(&self, drive: Drive<W>, standing: Standing) {
        let id = drive.id();
        {
            // At one moment: nothing can make the drive leave before all volumes know that it's here.
            let mut state = self.lock();
            let opening = self.shared.world.next_u64() | 1;
            let status = Status::Here(drive.clone());
            state.drives.insert(id, Entry { status, left: standing.left(), opening });
            let holder = Holder::Here(drive);
            state.maps.values().for_each(|map| map.member_returned(&holder, standing));
        }
        self.maps().iter().for_each(Map::start_reclaiming);
        self.start_giving_back(id);
        self.settle_if_known(id);
        self.heal_what_returned(id);
        // This server may have needed the drive for being the primary of its columns.
        if let Some((me, now)) = self.followed_state() {
            self.take_columns(me, &now);
        }
    }

    /// Adds a drive that the metadata knows and that isn't here.
    pub fn add_absent_drive(&self, id: DriveId, left: View, may_return: bool) {
        let status = if may_return { Status::Missing } else { Status::Failed };
        self.lock().drives.insert(id, Entry { status, left: Some(left), opening: 0 });
    }

    /// Adds another server's drive that is up and can be reached. All volumes notice a returned drive.
    pub fn add_remote_drive(&self, id: DriveId, server: ServerId, standing: Standing) {
        let groups: Vec<Group<W>> = {
            let mut state = self.lock();
            state.drives.insert(id, Entry { status: Status::There(server), left: standing.left(), opening: 0 });
            state.maps.values().flat_map(Map::groups).collect()
        };
        groups.into_iter().for_each(|group| group.start_hearing(id, server, standing));
    }

    /// It's agreed that a drive of another server is up again.
    pub fn remote_is_current(&self, id: DriveId) {
        if let Some(entry) = self.lock().drives.get_mut(&id).filter(|entry| matches!(entry.status, Status::There(_))) {
            entry.left = None;
        }
        self.maps().iter().flat_map(Map::groups).for_each(|group| group.remote_is_current(id));
    }

    /// The drive, if it's one of this server that is here, and the name of this opening of it.
    pub(crate) fn opened(&self, id: DriveId) -> Option<(Drive<W>, u64)> {
        let state = self.lock();
        let entry = state.drives.get(&id)?;
        Some((entry.drive()?.clone(), entry.opening))
    }

    /// Whether all volumes were opened.
    pub(crate) fn are_all_open(&self) -> bool {
        self.lock().complete
    }

    /// Whether a drive takes part, here or on another server.
    pub(crate) fn is_up(&self, id: DriveId) -> bool {
        let state = self.lock();
        let agreed = state.followed.as_ref().and_then(|(_, now)| now.drives.get(&id)).map(|agreed| agreed.status);
        match state.drives.get(&id).map(|entry| &entry.status) {
            Some(Status::Here(_)) => true,
            Some(Status::There(_)) | None => matches!(agreed, Some(DriveStatus::Up(_) | DriveStatus::Behind(..))),
            Some(Status::Leaving(_) | Status::Missing | Status::Failed) => false,
        }
    }

    /// Whether a drive that doesn't take part may do so again.
    pub(crate) fn may_return(&self, id: DriveId) -> bool {
        let state = self.lock();
        let agreed = state.followed.as_ref().and_then(|(_, now)| now.drives.get(&id)).map(|agreed| agreed.status);
        let has_failed = state.drives.get(&id).is_some_and(|entry| matches!(entry.status, Status::Failed));
        !has_failed && !matches!(agreed, Some(DriveStatus::Retired(_)))
    }

    /// Whether a drive was added, even if it's away.
    pub fn knows_drive(&self, id: DriveId) -> bool {
        self.lock().drives.contains_key(&id)
    }

    /// Whether a drive is away and may return.
    pub fn awaits_drive(&self, id: DriveId) -> bool {
        self.lock().drives.get(&id).is_some_and(|entry| matches!(entry.status, Status::Missing))
    }

    /// A drive of this server that is in use here; `None` if it's away, leaving or failed.
    pub fn drive(&self, id: DriveId) -> Option<Drive<W>> {
        self.lock().drives.get(&id)?.drive().cloned()
    }

    /// The drives of this server that are in use here, by id.
    pub fn drives_here(&self) -> Vec<Drive<W>> {
        self.lock().drives.values().filter_map(Entry::drive).cloned().collect()
    }

    /// The columns of which this drive holds a copy, this server is the primary, and another copy is here and has
    /// everything.
    pub fn columns_kept_without(&self, id: DriveId) -> Vec<(MapId, usize)> {
        self.columns_of(id)
            .filter(|(.., group)| group.as_ref().is_some_and(|group| !group.may_be_alone(id)))
            .map(|(map, column, _)| (map, column))
            .collect()
    }

    /// Whether all columns of this drive have another complete copy here. Of a column that another server leads that
    /// isn't known here.
    pub(crate) fn is_kept_without(&self, id: DriveId) -> bool {
        self.columns_of(id).all(|(.., group)| group.is_some_and(|group| !group.may_be_alone(id)))
    }

    /// The columns of which a drive holds a copy, with their groups if this server is the primary.
    fn columns_of(&self, id: DriveId) -> impl Iterator<Item = (MapId, usize, Option<Group<W>>)> {
        // A map that is being ended doesn't count any more.
        self.maps().into_iter().filter(|map| !map.is_cut_off()).flat_map(move |map| {
            let seats = map.seats().len();
            let of_drive = (0..seats).filter(|&column| map.placed(column).has(id)).collect::<Vec<_>>();
            of_drive.into_iter().map(move |column| (map.id(), column, map.seats()[column].group()))
        })
    }

    /// Forgets a drive that no volume uses.
    pub fn forget_drive(&self, id: DriveId) {
        self.lock().drives.remove(&id);
    }

    /// Serves a volume, until it's shared, for this server alone. Regions that a crash left unsure are resolved as they
    /// are read, and in the background. A clone of a volume that is served already shares that volume's map.
    pub async fn open_volume(&self, spec: VolumeSpec) -> Result<Volume<W>, OpenVolumeError> {
        let (volume, is_first, others) = {
            // At one moment, so that no drive comes or goes unnoticed.
            let mut state = self.lock();
            let (map, is_first) = state.map_for(self, &spec, Use::Alone)?;
            for column in (0..map.seats().len()).filter(|_| is_first) {
                map.take_seat(map.open_group(self, column, 0, |id| state.presence(id)));
            }
            let volume = state.open(spec, map);
            (volume, is_first, state.arrange(self))
        };
        if is_first {
            volume.map().start_recovery();
            volume.map().start_reclaiming();
            self.start_giving_back_of(volume.map());
        }
        others.iter().for_each(|map| self.take_part_in(map));
        Ok(volume)
    }

    /// The same where several servers are primaries: this server has yet to be told which columns it leads.
    pub fn open_volume_among(&self, spec: VolumeSpec) -> Result<Volume<W>, OpenVolumeError> {
        let (volume, opened) = {
            // At one moment, so that the volume doesn't go on in an epoch that is over.
            let mut state = self.lock();
            let (map, is_first) = state.map_for(self, &spec, Use::Among)?;
            let own = is_first.then(|| map.clone());
            let volume = state.open(spec, map);
            (volume, own.into_iter().chain(state.arrange(self)).collect::<Vec<_>>())
        };
        // The volume may have left its map already, unnoticed by the caller.
        opened.iter().filter(|map| !map.is_cut_off()).for_each(|map| self.take_part_in(map));
        Ok(volume)
    }

    /// Takes part in a map that several servers serve, and that is new here.
    fn take_part_in(&self, map: &Map<W>) {
        self.follow_for(map);
        map.start_reclaiming();
        self.start_giving_back_of(map);
    }

    pub(crate) fn followed_state(&self) -> Option<(ServerId, Arc<ClusterView>)> {
        self.lock().followed.clone()
    }

    /// The view of the state that was followed last, or is being followed now: then this server has already let go of
    /// the columns that others lead in it. 0 if this server is alone.
    pub(crate) fn followed(&self) -> View {
        self.shared.followed_view.load(Ordering::Acquire)
    }

    pub(crate) fn has_followed(&self, view: View) {
        self.shared.followed_view.store(view, Ordering::Release);
    }

    pub(crate) fn will_follow(&self, me: ServerId, now: Arc<ClusterView>) {
        let mut state = self.lock();
        let view = now.view;
        state.followed = Some((me, now));
        for map in state.maps.values() {
            if let Some(epochs) = state.epochs_of(map.id()) {
                map.go_on_with(epochs);
            }
            if let Some(places) = state.places_of(map.id()) {
                map.set_places(places, view);
            }
        }
        let _ = state.arrange(self); // these maps follow the next state too
    }

    /// Call this once all volumes that exist have been opened. Only then can a drive be found to know what it misses;
    /// and among several servers only once a state was followed, which names the maps that volumes go to.
    pub fn all_volumes_opened(&self) {
        let drives: Vec<DriveId> = {
            let mut state = self.lock();
            state.complete = true;
            state.drives.keys().copied().collect()
        };
        for id in drives {
            self.settle_if_known(id);
            self.start_giving_back(id);
            self.heal_what_returned(id);
        }
    }

    /// `None` unless the volume was opened, and not removed since.
    pub fn volume(&self, id: VolumeId) -> Option<Volume<W>> {
        self.lock().volumes.get(&id).cloned()
    }

    /// `None` unless a volume with this map was opened, and the map was not removed since.
    pub(crate) fn map(&self, id: MapId) -> Option<Map<W>> {
        self.lock().maps.get(&id).cloned()
    }

    /// Each map once, however many volumes have it.
    pub(crate) fn maps(&self) -> Vec<Map<W>> {
        self.lock().maps.values().cloned().collect()
    }

    /// The volumes that were opened and not removed since, by id.
    pub fn volumes(&self) -> Vec<Volume<W>> {
        self.lock().volumes.values().cloned().collect()
    }

    /// Ends all use of a volume and, as agreed, of its maps that no other volume has any more. Gives their space back
    /// on the drives that are here. The followed state may be older: by it the volume may still have a map that it has
    /// left to others.
    pub async fn remove_volume(&self, id: VolumeId, has_others: impl Fn(MapId) -> bool) {
        let Some(volume) = self.volume(id) else { return };
        volume.cut_off();
        let maps = volume.maps().into_iter().filter(|map| !has_others(map.id())).collect();
        self.end_maps(maps, Some(id)).await;
    }

    /// Ends all use of maps that no volume has any more, except one volume that goes with them, and gives the space
    /// back on the drives that are here.
    async fn end_maps(&self, maps: Vec<Map<W>>, volume: Option<VolumeId>) {
        maps.iter().for_each(Map::cut_off);
        for map in &maps {
            self.shared.askers.end(map.id()).await;
            self.shared.nodes.forget(map.id());
            map.remove().await;
        }
        let drives: Vec<DriveId> = {
            let mut state = self.lock();
            volume.map(|id| state.volumes.remove(&id));
            maps.iter().for_each(|map| drop(state.maps.remove(&map.id())));
            state.drives.keys().copied().collect()
        };
        drives.into_iter().for_each(|id| self.settle_if_known(id)); // the drives may have been behind in these maps only
    }

    /// Ends all use of a volume whose map others have too, whether or not they are open here. Returns when layers that
    /// only this volume saw are given back on the drives that are here: that is, when it's known here that the volume
    /// is gone, and nobody acts by an earlier state.
    pub async fn remove_one_of_several(&self, id: VolumeId) {
        let Some(volume) = self.volume(id) else { return };
        volume.cut_off();
        self.lock().volumes.remove(&id);
        if !volume.drives_here().is_empty() {
            for map in volume.maps() {
                map.wait_until_lost(id).await;
                map.reclaim_by_what_all_know().await;
            }
        }
    }

    /// Forgets maps that aren't known any more and that no volume here has.
    pub async fn end_unknown_maps(&self, known: impl Fn(MapId) -> bool) {
        let unknown: Vec<Map<W>> = {
            let state = self.lock();
            let is_in_use = |id: MapId| state.volumes.values().any(|volume| volume.has(id));
            state.maps.values().filter(|map| !known(map.id()) && !is_in_use(map.id())).cloned().collect()
        };
        self.end_maps(unknown, None).await;
    }

    /// Gives back what a drive holds for maps that are gone, notes too: their volumes were removed while the drive was
    /// away.
    pub async fn free_unknown(&self, drive: &Drive<W>, known: impl Fn(MapId) -> bool) -> Result<(), IoError> {
        let marked = drive.marks().into_iter().map(|mark| mark.map);
        let noted = marked.chain(drive.maps_of_requests());
        let maps: BTreeSet<MapId> = drive.allocated().into_iter().map(|(map, _)| map).chain(noted).collect();
        for map in maps.into_iter().filter(|&map| !known(map)) {
            drive.remove_map(map).await.map_err(|error| IoError::Unavailable { reason: error.to_string() })?;
        }
        Ok(())
    }
}

impl<W: World> State<W> {
    /// The map's epochs in the state that was followed last; `None` for a map that never had a snapshot, or that isn't
    /// known.
    fn epochs_of(&self, map: MapId) -> Option<Arc<Epochs>> {
        let (_, now) = self.followed.as_ref()?;
        // Until the end of its migration, a target map has the source's epochs.
        let source = now.migrations.values().find(|agreed| agreed.target == map).map_or(map, |agreed| agreed.source);
        now.epochs.get(&source).cloned()
    }

    /// The map of a volume that is opened, and whether no other volume has it here. The map goes on with the later
    /// epochs of the volume's record and the followed state.
    fn map_for(&self, engine: &Engine<W>, spec: &VolumeSpec, used: Use) -> Result<(Map<W>, bool), OpenVolumeError> {
        let (map, is_first) = match self.maps.get(&spec.map) {
            Some(map) => (map.clone(), false),
            None => (Map::of_volume(engine, spec, used, self.newest_places(spec))?, true),
        };
        map.go_on_with(spec.epochs.clone());
        if let Some(epochs) = self.epochs_of(spec.map) {
            map.go_on_with(epochs);
        }
        Ok((map, is_first))
    }

    fn open(&mut self, spec: VolumeSpec, map: Map<W>) -> Volume<W> {
        self.maps.insert(map.id(), map.clone());
        let volume = Volume::of(spec, map);
        self.volumes.insert(volume.id(), volume.clone());
        volume
    }

    /// The map's places in the state that was followed last; `None` for a map that isn't in it.
    fn places_of(&self, map: MapId) -> Option<Arc<Places>> {
        self.followed.as_ref().and_then(|(_, now)| now.places.get(&map).cloned())
    }

    /// The followed places, or else the places in the record of the first volume that is opened.
    fn newest_places(&self, spec: &VolumeSpec) -> Arc<Places> {
        self.places_of(spec.map).unwrap_or_else(|| spec.places.clone())
    }

    fn presence(&self, id: DriveId) -> (Presence<W>, Option<View>) {
        match self.drives.get(&id) {
            None => (Presence::Missing, Some(0)),
            Some(entry) => {
                let presence = match &entry.status {
                    Status::Here(drive) => Presence::Here(Holder::Here(drive.clone())),
                    Status::There(_) if entry.left.is_none() => Presence::Unheard,
                    Status::There(_) => Presence::Missing,
                    Status::Leaving(_) => Presence::Leaving,
                    Status::Missing => Presence::Missing,
                    Status::Failed => Presence::Failed,
                };
                (presence, entry.left)
            }
        }
    }
}
