//! A volume: its record, and the groups of its map.

mod access;
mod epochs;
mod moving;
pub(crate) mod operation;

pub use access::Run;
use epochs::Reclaiming;
pub use epochs::Snapshot;

use crate::authority::View;
use crate::engine::{self, Engine, Standing};
use crate::epochs::Epochs;
use crate::holder::Holder;
use crate::map::{Column, Striping, VolumeSpec};
use crate::places::Places;
use crate::protocol::primary::Group;
use crate::protocol::primary::members::{Member, Members, Missed, Presence};
use crate::servers::seat::{Seat, Taken};
use futures_util::future::join_all;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use tepal_drive::Drive;
use tepal_drive::world::World;
use tepal_model::{BLOCK, DriveId, ServerId, VolumeId};

/// Cheap to clone.
pub struct Volume<W: World> {
    shared: Arc<Shared<W>>,
}

impl<W: World> Clone for Volume<W> {
    fn clone(&self) -> Self {
        Volume { shared: self.shared.clone() }
    }
}

struct Shared<W: World> {
    id: VolumeId,
    striping: Striping,
    /// One for each column.
    seats: Vec<Seat<W>>,
    spec: Mutex<VolumeSpec>,
    epochs: Mutex<Arc<Epochs>>,
    /// Where its columns are, as far as is known here.
    places: Mutex<Arc<Places>>,
    reclaiming: Reclaiming,
    /// The engine has its volumes, not they it.
    engine: Weak<engine::Shared<W>>,
    used: Mutex<Use>,
    is_cut_off: AtomicBool,
    /// Blocks, in columns that this server led then.
    repaired: Arc<AtomicU64>,
}

/// Who may lead its columns, and whose requests reach them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// This server alone.
    Alone,
    /// The same, until what is under way has ended.
    BeingShared,
    /// Several servers, and gateways elsewhere.
    Among,
}

/// Why a volume can't be served.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenVolumeError {
    /// The map is none: each copy of an extent needs a drive of its own, and there must be one at least.
    #[error("volume '{name}' has {drives} drives for {copies} copies")]
    Map {
        /// Which volume.
        name: String,
        /// How many the map names.
        drives: usize,
        /// How many the layout wants.
        copies: u8,
    },
}

/// What is left to do after drives were away or a crash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Regions whose copies are still to be compared.
    pub unresolved_regions: u64,
    /// Regions in which some copy missed writes.
    pub stale_regions: u64,
    /// Bytes copied so far, since the volume was opened.
    pub copied: u64,
    /// Bytes a second that are copied now.
    pub rate: u64,
}

impl<W: World> Volume<W> {
    pub(crate) fn open(
        engine: &Engine<W>,
        spec: VolumeSpec,
        used: Use,
        (epochs, places): (Arc<Epochs>, Arc<Places>),
    ) -> Result<Self, OpenVolumeError> {
        let striping = Striping::new(&spec).ok_or_else(|| OpenVolumeError::Map {
            name: spec.name.clone(),
            drives: spec.places.drives().len(),
            copies: spec.layout.copies(),
        })?;
        let columns = striping.geometry.columns();
        let seats = (0..columns).map(|_| Seat::default()).collect();
        let engine = Arc::downgrade(&engine.shared);
        let (id, spec, is_cut_off) = (spec.id, Mutex::new(spec), AtomicBool::new(false));
        let (used, repaired) = (Mutex::new(used), Arc::default());
        let (epochs, places, reclaiming) = (Mutex::new(epochs), Mutex::new(places), Reclaiming::default());
        let shared =
            Shared { id, striping, seats, spec, epochs, places, reclaiming, engine, used, is_cut_off, repaired };
        Ok(Volume { shared: Arc::new(shared) })
    }

    /// The group of a column, with its members as they are now.
    pub(crate) fn open_group(
        &self,
        engine: &Engine<W>,
        number: usize,
        view: View,
        presence: impl Fn(DriveId) -> (Presence<W>, Option<View>),
    ) -> Group<W> {
        let (spec, placed) = (self.spec(), self.placed(number));
        let member = |id: DriveId| {
            let (presence, left) = presence(id);
            let joins = placed.joins.is_some_and(|joins| joins.drive == id);
            let missed = if joins { Missed::unlisted() } else { Missed::default() };
            let left = if joins { Some(0) } else { left };
            Member { id, presence, left, missed, opening: 0, noted: false, knew: false, stands_in: false, joins }
        };
        let members = Members::of(placed.all().map(member));
        let column = Column::new(spec.map, number, self.striping().geometry.columns());
        Group::open(
            engine,
            column,
            &spec.layout,
            (members, placed),
            (view, self.epochs()),
            self.shared.repaired.clone(),
        )
    }

    /// Those of which this server is the primary.
    pub(crate) fn groups(&self) -> Vec<Group<W>> {
        self.shared.seats.iter().filter_map(Seat::group).collect()
    }

    pub(crate) fn seats(&self) -> &[Seat<W>] {
        &self.shared.seats
    }

    /// `None` once the server has stopped.
    pub(crate) fn engine(&self) -> Option<Engine<W>> {
        self.shared.engine.upgrade().map(|shared| Engine { shared })
    }

    /// Whether other servers may be primaries.
    pub fn is_among(&self) -> bool {
        self.used() == Use::Among
    }

    fn used(&self) -> Use {
        *self.shared.used.lock().expect("nothing panics while it holds it")
    }

    /// From one use to the next; `false` if it had another.
    pub(crate) fn goes_on(&self, from: Use, to: Use) -> bool {
        let mut used = self.shared.used.lock().expect("nothing panics while it holds it");
        let goes_on = *used == from;
        if goes_on {
            *used = to;
        }
        goes_on
    }

    pub(crate) fn striping(&self) -> &Striping {
        &self.shared.striping
    }

    fn lock(&self) -> MutexGuard<'_, VolumeSpec> {
        self.shared.spec.lock().expect("nothing panics while it holds the volume's record")
    }

    /// Which volume, for good.
    pub fn id(&self) -> VolumeId {
        self.shared.id
    }

    /// As it is now, with the name and size of the last change.
    pub fn spec(&self) -> VolumeSpec {
        self.lock().clone()
    }

    /// Bytes.
    pub fn size(&self) -> u64 {
        self.lock().size
    }

    /// A column's first byte past the end.
    pub(crate) fn end_of(&self, column: usize) -> u64 {
        self.striping().before(column, self.size())
    }

    /// As [`VolumeSpec::revision`], as far as is known here.
    pub(crate) fn revision(&self) -> u64 {
        self.lock().revision
    }

    /// Takes this size from now on, where nobody else serves it.
    pub fn resize(&self, size: u64) {
        self.lock().size = size;
    }

    /// Takes what the metadata says from now on, if that is newer than what is known here.
    pub fn changed(&self, name: &str, size: u64, revision: u64) {
        {
            let mut spec = self.lock();
            if revision <= spec.revision {
                return;
            }
            (spec.size, spec.revision) = (size, revision);
            name.clone_into(&mut spec.name);
        }
        // Others may have been told that they know too little.
        self.seats().iter().for_each(Seat::ring);
    }

    /// The drives of this server that are here and in the map.
    pub(crate) fn drives_here(&self) -> Vec<Drive<W>> {
        let drives: BTreeSet<DriveId> = self.places().drives().into_iter().collect();
        let here = self.engine().map_or(Vec::new(), |engine| engine.drives_here());
        here.into_iter().filter(|drive| drives.contains(&drive.id())).collect()
    }

    /// Another server is the primary of a column from now on, or nobody is.
    pub(crate) fn begin_yield(&self, column: usize, to: Option<(ServerId, View)>) {
        let Some(seat) = self.seats().get(column) else { return };
        let taken = to.map_or(Taken::Vacant, |(server, view)| Taken::There(server, view));
        seat.take(taken);
    }

    /// Returns when nothing is under way any more of what this server did as the primary of a column.
    pub(crate) async fn ended(&self, column: usize) {
        let Some(seat) = self.seats().get(column) else { return };
        for group in seat.ending() {
            group.remove().await;
            seat.has_ended(&group);
        }
    }

    /// Bytes on the drives that are here, copies counted.
    pub fn allocated(&self) -> u64 {
        let map = self.lock().map;
        self.drives_here().iter().map(|drive| drive.allocated_of(map)).sum()
    }

    /// Of the columns that this server leads, summed up.
    pub fn recovery(&self) -> Recovery {
        let mut recovery = Recovery::default();
        for group in self.groups() {
            let state = group.lock();
            recovery.unresolved_regions += state.unresolved.len() as u64;
            recovery.stale_regions += state.members.list.iter().map(|member| member.missed.len()).sum::<u64>();
            recovery.copied += state.copied;
            recovery.rate += state.copying.at(group.shared.world.now());
        }
        recovery
    }

    /// Blocks that were damaged on one copy and written again from another, since this server opened the volume, by it.
    pub fn repaired(&self) -> u64 {
        self.shared.repaired.load(Ordering::Relaxed)
    }

    /// Where the copies of a block are: the drive, and the block of what it holds of the map.
    pub fn copies_at(&self, offset: u64) -> Vec<(DriveId, u64)> {
        let (number, within) = self.striping().locate(offset);
        let column = Column::new(self.map(), number, self.striping().geometry.columns());
        self.placed(number).drives().map(|drive| (drive, column.place(within / BLOCK))).collect()
    }

    /// Has nobody served from now on: it was removed.
    pub fn cut_off(&self) {
        self.shared.is_cut_off.store(true, Ordering::Relaxed);
        self.groups().iter().for_each(Group::cut_off);
        self.shared.seats.iter().for_each(Seat::ring);
    }

    pub(crate) fn is_cut_off(&self) -> bool {
        self.shared.is_cut_off.load(Ordering::Relaxed)
    }

    /// Ends all use, and gives the space back on the drives that are here.
    pub(crate) async fn remove(&self) {
        self.cut_off();
        // All of them are told before any is waited for.
        join_all(self.groups().iter().map(Group::remove)).await;
        join_all((0..self.seats().len()).map(|column| self.ended(column))).await;
        let map = self.lock().map;
        for drive in self.drives_here() {
            if let Err(error) = drive.remove_map(map).await {
                tracing::warn!(drive = %drive.id(), %error, "space of a removed volume is given back when the drive returns");
            }
        }
    }

    pub(crate) fn start_recovery(&self) {
        self.groups().iter().for_each(Group::start_recovery);
    }

    /// Lets everybody look again who waits for a drive to come or go.
    pub(crate) fn wake(&self) {
        self.groups().iter().for_each(Group::wake);
    }
}

/// What becomes of the volume's groups when drives come and go.
impl<W: World> Volume<W> {
    pub(crate) fn member_leaving(&self, id: DriveId) {
        self.groups().iter().for_each(|group| group.member_leaving(id));
    }

    pub(crate) fn is_leaving(&self, id: DriveId) -> bool {
        self.groups().iter().any(|group| group.is_leaving(id))
    }

    pub(crate) async fn member_left(&self, id: DriveId, left: View, may_return: bool) {
        join_all(self.groups().iter().map(|group| group.member_left(id, left, may_return))).await;
    }

    pub(crate) fn member_retired(&self, id: DriveId) {
        self.groups().iter().for_each(|group| group.member_retired(id));
    }

    pub(crate) fn member_returned(&self, drive: &Holder<W>, standing: Standing) {
        self.groups().iter().for_each(|group| group.member_returned(drive, standing));
    }

    pub(crate) fn member_is_current(&self, drive: &Holder<W>) {
        self.groups().iter().for_each(|group| group.member_is_current(drive));
    }
}
