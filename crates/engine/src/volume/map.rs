//! What volumes that share a global map have in common: the map's columns and their primaries, what its volumes see,
//! and its space.

use super::migrating::Migrating;
use super::reclaiming::Reclaiming;
use super::{OpenVolumeError, Recovery};
use crate::column::Group;
use crate::column::members::{Member, Members, Missed, Presence, Role};
use crate::engine::{self, Engine, Standing};
use crate::epochs::Epochs;
use crate::holder::Holder;
use crate::map::{Striping, VolumeSpec};
use crate::migration::Laid;
use crate::places::{Placed, Places};
use crate::protocol::Led;
use crate::servers::seat::{Seat, Seated};
use crate::view::View;
use futures_util::future::join_all;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use tepal_drive::Drive;
use tepal_drive::world::World;
use tepal_model::{DriveId, Fragments, MapId, ServerId, VolumeId};

/// A global map, which a volume and its clones share. Cheap to clone.
pub(crate) struct Map<W: World> {
    pub(super) shared: Arc<Shared<W>>,
}

impl<W: World> Clone for Map<W> {
    fn clone(&self) -> Self {
        Map { shared: self.shared.clone() }
    }
}

pub(super) struct Shared<W: World> {
    id: MapId,
    laid: Laid,
    striping: Striping,
    /// One for each column; none if nobody leads them.
    seats: Vec<Seat<W>>,
    by_gateways: Option<Led>,
    pub(super) epochs: Mutex<Arc<Epochs>>,
    /// The places of the columns, as far as is known here.
    places: Mutex<Arc<Places>>,
    pub(super) reclaiming: Reclaiming,
    /// Weak: the engine owns its maps.
    engine: Weak<engine::Shared<W>>,
    used: Mutex<Use>,
    is_cut_off: AtomicBool,
    /// Volumes of the map that nobody is served any more.
    cut_off: Mutex<BTreeSet<VolumeId>>,
    /// Repaired blocks, in columns that this server led at the time.
    repaired: Arc<AtomicU64>,
    pub(super) migrating: Migrating,
}

/// Which servers may lead the map's columns, and whose requests reach them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// This server alone.
    Alone,
    /// This server alone, until requests under way have ended.
    BeingShared,
    /// Several servers, and gateways elsewhere.
    Among,
}

impl<W: World> Map<W> {
    /// The map of a volume, of whose map no other volume has been opened.
    pub fn of_volume(
        engine: &Engine<W>,
        spec: &VolumeSpec,
        used: Use,
        places: Arc<Places>,
    ) -> Result<Self, OpenVolumeError> {
        Map::open(engine, (spec.map, spec.laid()), used, places).ok_or_else(|| OpenVolumeError::Map {
            name: spec.name.clone(),
            drives: spec.places.drives().len(),
            copies: spec.layout.fragments().count(),
        })
    }

    /// `None` if the columns can't have these places.
    pub fn open(engine: &Engine<W>, (id, laid): (MapId, Laid), used: Use, places: Arc<Places>) -> Option<Self> {
        if !Striping::fits(&laid, &places) {
            return None;
        }
        let striping = Striping::new(&laid);
        let columns = striping.geometry.columns();
        let quorum = laid.layout.quorum();
        let by_gateways = quorum.map(|quorum| Led::by_gateways(quorum, engine.shared.slots.gateway()));
        let shared = Shared {
            id,
            laid,
            striping,
            seats: (0..if by_gateways.is_some() { 0 } else { columns }).map(|_| Seat::default()).collect(),
            by_gateways,
            epochs: Mutex::default(),
            places: Mutex::new(places),
            reclaiming: Reclaiming::default(),
            engine: Arc::downgrade(&engine.shared),
            used: Mutex::new(used),
            is_cut_off: AtomicBool::new(false),
            cut_off: Mutex::default(),
            repaired: Arc::default(),
            migrating: Migrating::default(),
        };
        Some(Map { shared: Arc::new(shared) })
    }

    /// The group of a column, with the members as they are now. The group serves once it has its seat.
    pub fn open_group(
        &self,
        engine: &Engine<W>,
        number: usize,
        view: View,
        presence: impl Fn(DriveId) -> (Presence<W>, Option<View>),
    ) -> Group<W> {
        let (placed, places) = (self.placed(number), self.places());
        let member = |(at, id): (usize, DriveId)| {
            let (presence, left) = presence(id);
            let joins = placed.joins.is_some_and(|joins| joins.drive == id);
            let missed = if joins { Missed::unlisted() } else { Missed::default() };
            let left = if joins { Some(0) } else { left };
            Member {
                id,
                presence,
                left,
                status: places.status(number, id),
                missed,
                opening: 0,
                left_out: 0,
                noted: false,
                role: if joins { Role::Joins } else { Role::Holds },
                fragment: if joins { placed.in_place_of } else { at },
            }
        };
        let members = Members::of(placed.all().enumerate().map(member), self.fragments().data.into());
        let column = self.column(number);
        let repaired = self.shared.repaired.clone();
        let agreed = (view, self.epochs(), (self.migration(), self.own()));
        Group::open(engine, column, &self.shared.laid.layout, (members, placed), agreed, repaired)
    }

    /// This server is the primary of the group's column from now on.
    pub fn take_seat(&self, group: Group<W>) {
        self.seats()[group.shared.column.number].take(Seated::Here(group.clone()));
        // A volume may be cut off at this moment, and only groups with seats are told.
        self.lock_cut_off().iter().for_each(|&volume| group.cut_off_volume(volume));
    }

    /// The groups of the columns that this server leads.
    pub fn groups(&self) -> Vec<Group<W>> {
        self.seats().iter().filter_map(Seat::group).collect()
    }

    /// How many columns the map has.
    pub fn columns(&self) -> usize {
        self.striping().geometry.columns()
    }

    /// What gateways keep the columns' data by, if nobody leads them.
    pub fn by_gateways(&self) -> Option<&Led> {
        self.shared.by_gateways.as_ref()
    }

    pub fn seats(&self) -> &[Seat<W>] {
        &self.shared.seats
    }

    /// `None` once the server has stopped.
    pub fn engine(&self) -> Option<Engine<W>> {
        self.shared.engine.upgrade().map(|shared| Engine { shared })
    }

    pub fn id(&self) -> MapId {
        self.shared.id
    }

    /// What the drives of each column have together.
    pub fn fragments(&self) -> Fragments {
        self.shared.laid.layout.fragments()
    }

    pub fn striping(&self) -> &Striping {
        &self.shared.striping
    }

    pub fn places(&self) -> Arc<Places> {
        self.lock_places().clone()
    }

    /// The place of a column, as far as is known here.
    pub fn placed(&self, column: usize) -> Placed {
        self.places().columns.get(column).cloned().unwrap_or_default()
    }

    /// Goes on with the agreed places. Groups whose columns have moved have to be opened anew.
    pub fn set_places(&self, places: Arc<Places>, view: View) {
        *self.lock_places() = places.clone();
        self.groups().iter().for_each(|group| group.follow_copies(&places, view));
    }

    /// The same, only for which copies are complete.
    pub fn set_copies(&self, places: &Places, view: View) {
        let (columns, incomplete) = (self.places().columns.clone(), places.incomplete.clone());
        self.set_places(Arc::new(Places { columns, incomplete }), view);
    }

    fn lock_places(&self) -> MutexGuard<'_, Arc<Places>> {
        self.shared.places.lock().expect("nothing panics while it holds it")
    }

    pub fn is_among(&self) -> bool {
        *self.lock_used() == Use::Among
    }

    fn lock_used(&self) -> MutexGuard<'_, Use> {
        self.shared.used.lock().expect("nothing panics while it holds it")
    }

    /// Goes from one use to the next; `false` if the map had another use.
    pub fn go_on(&self, from: Use, to: Use) -> bool {
        let mut used = self.lock_used();
        let goes_on = *used == from;
        if goes_on {
            *used = to;
        }
        goes_on
    }

    /// The drives of this server that are here and in the map.
    pub fn drives_here(&self) -> Vec<Drive<W>> {
        let drives: BTreeSet<DriveId> = self.places().drives().into_iter().collect();
        let here = self.engine().map_or(Vec::new(), |engine| engine.drives_here());
        here.into_iter().filter(|drive| drives.contains(&drive.id())).collect()
    }

    /// From now on another server is the primary of a column, or none is.
    pub fn begin_yield(&self, column: usize, to: Option<(ServerId, View)>) {
        let Some(seat) = self.seats().get(column) else { return };
        let taken = to.map_or(Seated::Vacant, |(server, view)| Seated::There(server, view));
        seat.take(taken);
    }

    /// Returns when no request is under way any more that this server carried out as a column's primary.
    pub async fn ended(&self, column: usize) {
        let Some(seat) = self.seats().get(column) else { return };
        for group in seat.ending() {
            group.remove().await;
            seat.group_ended(&group);
        }
    }

    /// Bytes on the drives that are here, copies counted.
    pub fn allocated(&self) -> u64 {
        self.drives_here().iter().map(|drive| drive.allocated_of(self.id())).sum()
    }

    /// The recovery of the columns that this server leads, summed up.
    pub fn recovery(&self) -> Recovery {
        let mut recovery = Recovery::default();
        for group in self.groups() {
            let state = group.lock();
            recovery.unresolved_regions += state.unsure.regions.len() as u64;
            recovery.stale_regions += state.members.list.iter().map(|member| member.missed.len()).sum::<u64>();
            recovery.copied += state.jobs.copied;
            recovery.rate += state.jobs.copying.at(group.shared.world.now());
        }
        recovery
    }

    pub fn repaired(&self) -> u64 {
        self.shared.repaired.load(Ordering::Relaxed)
    }

    fn lock_cut_off(&self) -> MutexGuard<'_, BTreeSet<VolumeId>> {
        self.shared.cut_off.lock().expect("nothing panics while it holds the list")
    }

    /// Nobody is served one of the map's volumes from now on.
    pub fn cut_off_volume(&self, volume: VolumeId) {
        self.lock_cut_off().insert(volume);
        self.groups().iter().for_each(|group| group.cut_off_volume(volume));
        self.seats().iter().for_each(Seat::ring);
    }

    /// From now on all of the map's space on drives is given back, with its last volume.
    pub fn cut_off(&self) {
        self.shared.is_cut_off.store(true, Ordering::Relaxed);
        self.groups().iter().for_each(Group::cut_off);
    }

    pub fn is_cut_off(&self) -> bool {
        self.shared.is_cut_off.load(Ordering::Relaxed)
    }

    /// Ends all use, and gives the space back on the drives that are here.
    pub async fn remove(&self) {
        self.cut_off();
        // All groups are told before any is waited for.
        join_all(self.groups().iter().map(Group::remove)).await;
        join_all((0..self.seats().len()).map(|column| self.ended(column))).await;
        for drive in self.drives_here() {
            if let Err(error) = drive.remove_map(self.id()).await {
                tracing::warn!(drive = %drive.id(), %error, "space of a removed volume is given back when the drive returns");
            }
        }
    }

    pub fn start_recovery(&self) {
        self.groups().iter().for_each(Group::start_recovery);
        self.groups().iter().for_each(Group::start_taking_over);
    }

    /// Wakes everything that waits for a drive to come or go.
    pub fn wake(&self) {
        self.groups().iter().for_each(Group::wake);
    }
}

/// Tells the map's groups of drives that come and go.
impl<W: World> Map<W> {
    pub fn member_leaving(&self, id: DriveId) {
        self.groups().iter().for_each(|group| group.member_leaving(id));
    }

    pub fn is_leaving(&self, id: DriveId) -> bool {
        self.groups().iter().any(|group| group.is_leaving(id))
    }

    pub async fn member_left(&self, id: DriveId, left: View, may_return: bool) {
        join_all(self.groups().iter().map(|group| group.member_left(id, left, may_return))).await;
    }

    pub fn member_retired(&self, id: DriveId, left: View) {
        self.groups().iter().for_each(|group| group.member_retired(id, left));
    }

    pub fn member_returned(&self, drive: &Holder<W>, standing: Standing) {
        self.groups().iter().for_each(|group| group.member_returned(drive, standing));
    }

    pub fn member_is_current(&self, drive: &Holder<W>) {
        self.groups().iter().for_each(|group| group.member_is_current(drive));
    }
}
