//! Leading a column: who may change what, and when. One of the [protocols](crate::protocol) keeps the data on drives,
//! behind the seam in `redundancy.rs`.
//!
//! Each column of a volume's map is a [`Group`] of its own: a linear disk of blocks with its fragments on the same
//! drives throughout. One server leads the column, wherever the fragments are (`servers/`). Invariants:
//! 1. Requests that change the same blocks have turns, one after the other (`order.rs`).
//! 2. Before a change is acknowledged, the region's busy mark is on every drive that takes the change, with a stale
//!    mark for every drive that doesn't. The absence of such a drive was agreed before, and so was passing it over.
//! 3. A read is answered only when no change that it met is still under way, and no drive has come or gone meanwhile.
//!    Otherwise the read is done again. So every fragment has the data that a read returns (`read.rs`).
//! 4. A region whose fragments may differ is made whole before anything is read from the region
//!    (`background/resolve.rs`).

pub mod background;
pub mod bytes;
mod clear;
pub mod doubt;
pub mod epochs;
mod fill;
pub mod flush;
pub mod members;
pub mod migrating;
pub mod order;
pub mod pace;
mod patience;
pub mod read;
pub mod redundancy;
pub mod segments;
mod status;
#[cfg(test)]
mod tests;
pub mod zero;

use crate::bell::Bell;
use crate::engine::{self, Engine};
use crate::epochs::Epochs;
use crate::holder::Holder;
use crate::map::Column;
use crate::places::Placed;
use crate::protocol::{Kept, Log};
use crate::rate::Rate;
use crate::servers::follow::DriveStatus;
use crate::view::View;
use crate::volume::MapMigration;
use crate::volume::table::Own;
use background::Resolving;
use flush::LostUnflushed;
use futures_channel::oneshot;
use futures_util::future::join_all;
use members::{BusyRegions, Member, Members, Presence};
use migrating::Way;
use migrating::takeover::TakeOver;
use order::{Turn, WriteOrder};
use patience::Patience;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use tepal_drive::Loss;
use tepal_drive::world::{Tick, World};
use tepal_model::layout::Durability;
use tepal_model::{BLOCK, DriveId, Fragments, IoError, Layout, VolumeId};

/// One column of a map, with all its copies. Cheap to clone.
pub(crate) struct Group<W: World> {
    pub shared: Arc<Shared<W>>,
    /// How long requests through this handle wait.
    patience: Patience,
}

impl<W: World> Clone for Group<W> {
    fn clone(&self) -> Self {
        Group { shared: self.shared.clone(), patience: self.patience }
    }
}

pub(crate) struct Shared<W: World> {
    pub world: W,
    /// Weak: the engine owns its volumes and their groups.
    engine: Weak<engine::Shared<W>>,
    pub column: Column,
    /// The drives of the column.
    pub placed: Placed,
    /// The protocol that keeps the data.
    pub kept: Kept,
    pub fragments: Fragments,
    /// What the protocol remembers of its log, if it has one.
    pub log: Log,
    pub copies: usize,
    pub durability: Durability,
    /// The view since which this server is the primary; 0 for a server that is alone.
    pub view: View,
    /// When this server became the primary, by its own clock.
    pub led_since: Tick,
    /// Another server says that this one isn't the primary any more. The followed state will say so too.
    pub deposed: Arc<AtomicBool>,
    /// Without this many copies no write is acknowledged.
    pub min_copies: usize,
    pub order: WriteOrder,
    /// Requests of clients so far: background work makes room for clients.
    pub served: AtomicU64,
    /// Whether the map has ever been the source or target of a migration.
    pub has_migrated: AtomicBool,
    /// The volume's count of blocks that were damaged on one copy and written again from another.
    pub repaired: Arc<AtomicU64>,
    state: Mutex<State<W>>,
}

/// All that's known of a column while this server leads it, under one lock.
pub(crate) struct State<W: World> {
    pub members: Members<W>,
    pub busy: BusyRegions,
    pub unsure: Unsure,
    pub jobs: Jobs,
    pub served: Served,
    pub seen: Seen,
    pub unflushed: Unflushed,
    /// Rung when a drive comes or goes.
    pub bell: Bell,
    /// How often a drive has come or gone.
    pub changes: u64,
    /// The newest view whose followed state says which copies are complete.
    pub copies_since: View,
    /// The map's migration, as agreed.
    pub migration: Option<Arc<MapMigration>>,
    /// What the map has by the table, where it doesn't have all of its volumes' bytes.
    pub own: Option<Arc<Own>>,
    pub takeover: TakeOver,
}

/// Where fragments may differ.
#[derive(Default)]
pub(crate) struct Unsure {
    /// Regions whose fragments may differ since a crash.
    pub regions: BTreeSet<u64>,
    /// Unsure regions that are being resolved, with the tasks that wait for the outcome.
    pub resolving: Resolving,
    pub refusals: Refusals,
}

/// Background work and its progress.
#[derive(Default)]
pub(crate) struct Jobs {
    pub recovering: bool,
    pub settling: bool,
    /// Counting is under way: agreeing which copies are complete.
    pub counting: bool,
    /// Agreeing that a joining drive has everything is under way.
    pub telling_joined: bool,
    /// Bytes copied so far.
    pub copied: u64,
    pub copying: Rate,
    /// What keeps a returned drive from catching up.
    pub obstacle: Option<IoError>,
    /// At so many changes of the state it was found out what is held of what is given up.
    pub given_up_listed: Option<u64>,
}

/// Who is served.
#[derive(Default)]
pub(crate) struct Served {
    /// The map is being removed, or another server leads: nobody is served any more.
    pub removed: bool,
    /// Volumes that are being removed while others have the same map.
    pub cut_off: BTreeSet<VolumeId>,
}

/// What readers and writers see.
pub(crate) struct Seen {
    /// The epochs that the map's volumes and their snapshots see.
    pub epochs: Arc<Epochs>,
    /// How often the history has changed.
    pub histories: u64,
    /// All primaries act in this view or a later one.
    pub everywhere: View,
}

/// Unstable data on drives, where the layout allows such data.
#[derive(Default)]
pub(crate) struct Unflushed {
    /// Members that are leaving with unstable data: up to which batch.
    pub leaving: BTreeMap<usize, u64>,
    /// Members of `leaving` that alone held some of the data.
    pub alone: BTreeMap<usize, u64>,
    /// Unstable data that a drive returned without: flushes must report the loss.
    pub lost: LostUnflushed,
}

/// The moment of a plan. A plan is made again if the state has changed since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moment {
    changes: u64,
    refusals: u64,
    histories: u64,
}

/// Writes that reached some copies and were refused by others.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    count: u64,
    /// The number of the last refusal in each region that is remembered.
    last: BTreeMap<u64, u64>,
    /// Forgotten refusals have at most this number.
    forgotten: u64,
}

/// Regions of which the last refusal is remembered.
const REMEMBERED: usize = 4096;

impl Refusals {
    pub fn add(&mut self, regions: impl Iterator<Item = u64>) {
        if self.last.len() > REMEMBERED {
            self.forgotten = self.count;
            self.last.clear();
        }
        self.count += 1;
        self.last.extend(regions.map(|region| (region, self.count)));
    }

    fn last_in(&self, region: u64) -> u64 {
        self.last.get(&region).copied().unwrap_or(self.forgotten)
    }
}

/// A range of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Blocks {
    pub first: u64,
    pub count: u64,
}

impl Blocks {
    pub fn new(first: u64, count: u64) -> Self {
        Blocks { first, count }
    }

    /// The blocks that a range of bytes touches.
    pub fn touched(from: u64, end: u64) -> Self {
        Blocks { first: from / BLOCK, count: end.div_ceil(BLOCK) - from / BLOCK }
    }

    pub fn end(&self) -> u64 {
        self.first + self.count
    }

    pub fn each(&self) -> impl Iterator<Item = Blocks> + use<> {
        (self.first..self.end()).map(|first| Blocks { first, count: 1 })
    }

    /// The same blocks in pieces of at most `most` blocks. No piece crosses a multiple of `most`.
    pub fn pieces(&self, most: u64) -> impl Iterator<Item = Blocks> + use<> {
        let (first, end) = (self.first, self.end());
        let pieces = first / most..end.div_ceil(most);
        pieces.map(move |piece| {
            let first = first.max(piece * most);
            Blocks { first, count: end.min((piece + 1) * most) - first }
        })
    }
}

impl<W: World> Group<W> {
    pub fn open(
        engine: &Engine<W>,
        column: Column,
        layout: &Layout,
        (members, placed): (Members<W>, Placed),
        (view, epochs, (migration, own)): (View, Arc<Epochs>, Way),
        repaired: Arc<AtomicU64>,
    ) -> Self {
        let copies = members.list.len();
        let state = State {
            members,
            busy: BusyRegions::new(),
            unsure: Unsure::default(),
            jobs: Jobs::default(),
            served: Served::default(),
            seen: Seen {
                epochs,
                histories: 0,
                // When the group opens, nobody acts in an earlier view any more. A server that is alone acts for all.
                everywhere: if view == 0 { View::MAX } else { view },
            },
            unflushed: Unflushed::default(),
            bell: Bell::default(),
            changes: 0,
            copies_since: 0,
            migration,
            own,
            takeover: TakeOver::default(),
        };
        let has_migrated = AtomicBool::new(state.migration.is_some() || state.own.is_some());
        let fragments = placed.fragments(layout);
        let shared = Shared {
            world: engine.world().clone(),
            engine: Arc::downgrade(&engine.shared),
            column,
            placed,
            kept: Kept::by(layout),
            fragments,
            log: Log::of(fragments),
            copies,
            // Nobody remembers unstable data when the primary changes. Blocks leave the log of stripes once they are stable in place.
            durability: if view == 0 && fragments.are_copies() { layout.durability } else { Durability::Strict },
            view,
            led_since: engine.world().now(),
            deposed: Arc::default(),
            min_copies: usize::from(layout.min_copies).clamp(1, fragments.count().into()),
            order: WriteOrder::default(),
            served: AtomicU64::new(0),
            has_migrated,
            repaired,
            state: Mutex::new(state),
        };
        let group = Group { shared: Arc::new(shared), patience: Patience::Endless };
        group.learn_that_all_act();
        {
            let mut state = group.lock();
            for at in 0..state.members.list.len() {
                if let Some(drive) = state.members.list[at].drive().cloned() {
                    group.hear(&mut state, at, &drive, false);
                }
            }
        }
        group
    }

    /// Lock order: the engine's lock is the outer one. Code that holds this lock calls nothing of the engine that
    /// locks.
    pub fn lock(&self) -> MutexGuard<'_, State<W>> {
        self.shared.state.lock().expect("nothing panics while it holds the group's state")
    }

    /// `None` once the server has stopped.
    pub fn engine(&self) -> Option<Engine<W>> {
        self.shared.engine.upgrade().map(|shared| Engine { shared })
    }

    /// The column's first byte past a volume's end, as far as is known here; `None` once the volume is gone.
    pub fn volume_end(&self, volume: VolumeId) -> Option<u64> {
        let volume = self.engine()?.volume(volume)?;
        let map = self.engine()?.map(self.shared.column.map)?;
        Some(volume.end_in(&map, self.shared.column.number))
    }

    pub fn is_mirrored(&self) -> bool {
        self.shared.copies > 1
    }

    /// Resolves when a drive has come or gone, or when the agreed state of the map has changed.
    pub fn next_change(state: &mut State<W>) -> oneshot::Receiver<()> {
        state.bell.listen()
    }

    pub fn wake(&self) {
        let bell = std::mem::take(&mut self.lock().bell);
        bell.ring();
    }

    /// Makes drives that were found lost leave.
    pub async fn lose(&self, drives: Vec<(DriveId, Arc<Loss>)>) {
        let Some(engine) = self.engine() else {
            return std::future::pending().await; // the server has stopped: nothing is agreed or acknowledged any more
        };
        for (id, loss) in drives {
            if self.shared.deposed.load(Ordering::Relaxed) {
                return self.until_deposed().await;
            }
            if self.is_no_loss(id) {
                continue;
            }
            if self.is_cut_off(id) && !self.complain(id, || self.is_cut_off(id)).await {
                continue;
            }
            engine.lose_met(id, (*loss).clone()).await;
        }
    }

    /// Whether a reported loss is none. The drive may be another server's, and heard again since. Or this group has let
    /// all drives go, and another primary hears the drive now.
    fn is_no_loss(&self, id: DriveId) -> bool {
        let state = self.lock();
        let member = state.members.list.iter().find(|member| member.id == id);
        match member.and_then(Member::drive) {
            Some(Holder::There(remote)) => state.served.removed || !remote.is_lost(),
            Some(Holder::Here(_)) => false,
            None => state.served.removed, // the group has let go of all drives
        }
    }

    /// Nobody is served from now on.
    pub fn cut_off(&self) {
        {
            let mut state = self.lock();
            state.served.removed = true;
            state.changes += 1; // data that is read from here on may be gone already
        }
        self.wake();
    }

    /// Nobody is served this volume of the map from now on.
    pub fn cut_off_volume(&self, volume: VolumeId) {
        {
            let mut state = self.lock();
            state.served.cut_off.insert(volume);
            state.changes += 1;
        }
        self.wake();
    }

    /// Cuts off as [`Group::cut_off`] does. Returns when all writes have ended. From then on the group holds no drive,
    /// even while it has handles: a drive that is pulled must be free to be opened again.
    pub async fn remove(&self) {
        self.cut_off();
        drop(self.every_turn().await); // no other turn will begin
        {
            let mut state = self.lock();
            state.members.list.iter_mut().for_each(|member| member.presence = Presence::Missing);
            state.changes += 1;
        }
        self.wake();
    }

    /// Whether clients of that volume are served.
    pub fn serves(&self, volume: VolumeId) -> bool {
        self.lock().serves_volume(volume).is_ok()
    }

    /// Returns when all changes that are under way now have ended. Changes that begin later go by the state that this
    /// group has now. `false` if other changes may be under way: some drive may still carry out a request of an earlier
    /// primary.
    pub async fn until_all_have_ended(&self) -> bool {
        let Some(engine) = self.engine() else { return false };
        let is_led = || {
            let agreed = engine.followed_state().map(|(_, now)| now); // before the group's lock: the engine's lock is the outer one
            let takes_writes = |id: &DriveId| {
                let status = agreed.as_ref().and_then(|now| now.drives.get(id)).map(|drive| drive.status);
                matches!(status, Some(DriveStatus::Up(_) | DriveStatus::Behind(..)))
            };
            let is_heard = |member: &Member<W>| match member.presence {
                Presence::Here(_) | Presence::Failed => true,
                Presence::Missing => !takes_writes(&member.id),
                Presence::Unheard | Presence::Leaving => false,
            };
            let state = self.lock();
            !state.served.removed && state.members.list.iter().all(is_heard)
        };
        if !is_led() {
            return false;
        }
        join_all(self.shared.order.under_way(0, u64::MAX / 2)).await;
        is_led()
    }

    /// Resolves when all queued writes have ended. The turn keeps others from beginning.
    pub async fn every_turn(&self) -> Turn {
        self.line_up_unasked(Blocks::new(0, u64::MAX / 2)).turn().await
    }
}

impl<W: World> State<W> {
    /// Whether anybody may still be served.
    pub fn serves(&self) -> Result<(), IoError> {
        if self.served.removed { Err(IoError::Fenced) } else { Ok(()) }
    }

    /// Whether clients of this volume may still be served.
    pub fn serves_volume(&self, volume: VolumeId) -> Result<(), IoError> {
        match self.served.removed || self.served.cut_off.contains(&volume) || self.seen.epochs.head_of(volume).is_none()
        {
            true => Err(IoError::Fenced),
            false => Ok(()),
        }
    }

    pub fn moment(&self) -> Moment {
        Moment { changes: self.changes, refusals: self.unsure.refusals.count, histories: self.seen.histories }
    }

    /// Whether the state is as at that moment: no drive has come or gone, the history is the same, and no write of
    /// these regions was refused by some drives after others took the write.
    pub fn is_as_at(&self, then: Moment, mut regions: impl Iterator<Item = u64>) -> bool {
        let is_same = (self.changes, self.seen.histories) == (then.changes, then.histories);
        is_same && !regions.any(|region| self.unsure.refusals.last_in(region) > then.refusals)
    }

    pub fn begin_busy(&mut self, column: &Column, blocks: Blocks) {
        for region in column.regions(blocks.first, blocks.count) {
            let busy = self.busy.entry(region).or_default();
            busy.under_way += 1;
            busy.writes += 1;
        }
    }

    pub fn end_busy(&mut self, column: &Column, blocks: Blocks) {
        for region in column.regions(blocks.first, blocks.count) {
            if let Some(busy) = self.busy.get_mut(&region) {
                busy.under_way -= 1;
            }
        }
    }
}
