//! A copy of the agreed state on every drive that is in use here, from which the cluster can be rebuilt.
//!
//! Invariants:
//! 1. Before this server follows a view, opens or resizes a volume, or gives back what was removed, its drives have kept that state or a
//!    later one: what they hold is understood by what they keep. A drive that takes longer than [`PATIENCE`], or than a third of a lease,
//!    isn't waited for until it has caught up; nor is it when it's opened again: one that comes and goes as it's slow would have all wait
//!    each time.
//! 2. Only the latest state is written, and only if it says something else than the one before. All drives are written to at once.

use crate::data_threads::DataThreads;
use crate::tasks;
use crate::world::ServerWorld;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tepal_drive::geometry::default_state;
use tepal_drive::{Drive, KeepError, StateCopy, StateOrder};
use tepal_engine::Engine;
use tepal_metadata::{DriveState, Metadata, State, StateLimit};
use tepal_model::{BLOCK, DriveId};
use tokio::sync::watch;
use tokio::time::timeout;

/// How long drives are waited for at most.
const PATIENCE: Duration = Duration::from_secs(1);

/// The same, where leases are so long.
pub fn patience(lease: Duration) -> Duration {
    PATIENCE.min(lease / 3)
}

/// The longest that the state may become where a drive has a place of so many bytes for a copy. An eighth is for what nobody asks
/// for: reasons, moves, windows.
pub fn longest_state(place: u64) -> u64 {
    place.saturating_sub(BLOCK) / 8 * 7
}

/// The smallest place for a copy of the state on the drives that are in use or will return; none if none has one. Of drives that aren't
/// here it's that of a new drive of their capacity, also if they are of format 4 and have none.
fn smallest_place(state: &State, here: &BTreeMap<DriveId, Kept>) -> Option<u64> {
    let returns = state.drives.values().filter(|record| record.state != DriveState::Failed);
    let place = returns.map(|record| here.get(&record.id).map_or(default_state(record.capacity), |kept| kept.place));
    place.filter(|place| *place > 0).min()
}

/// Clones are the same.
#[derive(Clone)]
pub struct Keeper(Arc<Shared>);

struct Shared {
    metadata: Metadata,
    engine: Engine<ServerWorld>,
    threads: Arc<DataThreads>,
    latest: watch::Sender<Option<StateCopy>>,
    drives: watch::Sender<BTreeMap<DriveId, Kept>>,
    openings: AtomicU64,
    /// For how long drives are waited for, by the length of a lease.
    patience: fn(Duration) -> Duration,
}

/// What one drive has kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Kept {
    opening: u64,
    /// The latest state; none since it was opened.
    order: Option<StateOrder>,
    /// Bytes of each of its places; 0 if it has none.
    place: u64,
    /// It isn't waited for.
    is_late: bool,
    /// Why it can't keep the latest one.
    lacks: Option<KeepError>,
}

/// Which of two states is the later one.
pub fn order_of(state: &State) -> StateOrder {
    StateOrder { view: state.view(), events: state.events(), history: state.history() }
}

impl Keeper {
    /// Has the drives that the engine gets keep each state, until the runtime ends. For how long they are waited for follows from the
    /// length of a lease: see [`patience`].
    pub fn start(
        metadata: Metadata,
        engine: Engine<ServerWorld>,
        threads: Arc<DataThreads>,
        patience: fn(Duration) -> Duration,
    ) -> Self {
        let (latest, drives, openings) = Default::default();
        let keeper = Keeper(Arc::new(Shared { metadata, engine, threads, latest, drives, openings, patience }));
        tasks::spawn(keeper.clone().follow());
        keeper
    }

    async fn follow(self) {
        let mut states = self.0.metadata.watch();
        loop {
            let state = states.borrow_and_update().clone();
            let order = order_of(&state);
            if order.view > 0 {
                let latest = state.clone();
                let copying = tokio::task::spawn_blocking(move || StateCopy::new(order, &latest.to_copy()));
                let Ok(copy) = copying.await else { return };
                self.limit(&state, copy.content().len() as u64);
                self.0.latest.send_if_modified(|latest| {
                    let is_other = latest.as_ref() != Some(&copy);
                    *latest = Some(copy);
                    is_other
                });
            }
            if states.changed().await.is_err() {
                return;
            }
        }
    }

    /// How long the state may become, which has so many bytes: on other servers are drives too.
    fn limit(&self, state: &State, used: u64) {
        let smallest = smallest_place(state, &self.0.drives.borrow());
        self.0.metadata.limit_state(smallest.map(|place| StateLimit { bytes: longest_state(place), used }));
    }

    /// A drive that the engine has now keeps each state from now on, as long as it's there.
    pub fn begin(&self, drive: &Drive<ServerWorld>, thread: usize) {
        let id = drive.id();
        let opening = self.0.openings.fetch_add(1, Ordering::Relaxed);
        let place = drive.geometry().state_length;
        self.0.drives.send_modify(|drives| {
            // One that was slow is so again, until it shows otherwise.
            let is_late = drives.get(&id).is_some_and(|before| before.is_late);
            drives.insert(id, Kept { opening, place, is_late, ..Kept::default() });
        });
        let keeper = self.clone();
        tasks::spawn(async move {
            keeper.keep_on(id, opening, thread).await;
            keeper.0.drives.send_if_modified(|drives| {
                let is_over = drives.get(&id).is_some_and(|kept| kept.opening == opening);
                let is_late = drives.get(&id).is_some_and(|kept| kept.is_late);
                is_over && !is_late && drives.remove(&id).is_some()
            });
        });
    }

    /// The drive isn't held between states: nobody could open it anew.
    async fn keep_on(&self, id: DriveId, opening: u64, thread: usize) {
        let mut latest = self.0.latest.subscribe();
        loop {
            let copy = latest.borrow_and_update().clone();
            let is_open = self.0.drives.borrow().get(&id).is_some_and(|kept| kept.opening == opening);
            if let Some(copy) = copy {
                let order = copy.order();
                let Some(open) = self.0.engine.drive(id).filter(|_| is_open) else { return };
                let keeping = self.0.threads.run_on(thread, move || async move { open.keep_state(&copy).await });
                match keeping.await {
                    Ok(Err(KeepError::Lost(_))) | Err(_) => return,
                    Ok(outcome) => self.note(id, opening, order, outcome),
                }
            }
            if latest.changed().await.is_err() {
                return;
            }
        }
    }

    fn note(&self, id: DriveId, opening: u64, order: StateOrder, outcome: Result<(), KeepError>) {
        let is_latest = self.0.latest.borrow().as_ref().is_some_and(|latest| latest.order() == order);
        self.0.drives.send_modify(|drives| {
            let Some(kept) = drives.get_mut(&id).filter(|kept| kept.opening == opening) else { return };
            let before = kept.lacks.take();
            match outcome {
                Ok(()) => {
                    kept.order = Some(order);
                    kept.is_late &= !is_latest;
                }
                Err(why) => {
                    if before.as_ref().map(std::mem::discriminant) != Some(std::mem::discriminant(&why)) {
                        tracing::warn!(drive = %id, %why, "a drive doesn't keep the cluster's state");
                    }
                    kept.lacks = Some(why);
                }
            }
        });
    }

    /// Returns once the drives have kept that state or a later one, or have had long enough for it.
    pub async fn kept(&self, state: &State) {
        let wanted = order_of(state);
        let lags = |kept: &Kept| !kept.is_late && kept.lacks.is_none() && kept.order < Some(wanted);
        let mut drives = self.0.drives.subscribe();
        let patience = (self.0.patience)(self.0.metadata.lease_length());
        if timeout(patience, drives.wait_for(|drives| !drives.values().any(lags))).await.is_ok() {
            return;
        }
        self.0.drives.send_modify(|drives| {
            for (id, kept) in drives.iter_mut().filter(|(_, kept)| lags(kept)) {
                tracing::warn!(drive = %id, "a drive is slow to keep the cluster's state: it isn't waited for");
                kept.is_late = true;
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tepal_metadata::{Command, DEFAULT_POOL};
    use tepal_model::{ClusterId, ServerId};

    #[tokio::test(flavor = "current_thread")]
    async fn the_smallest_place_counts_of_drives_that_are_here_or_will_return() {
        let folder = tempfile::tempdir().expect("a folder");
        let metadata =
            Metadata::create(folder.path(), ClusterId(1), "test", ServerId(1), "unix:/s", 0).await.expect("a cluster");
        let (here, older, away, failed) = (DriveId(1), DriveId(2), DriveId(3), DriveId(4));
        for (id, capacity) in [(here, 1 << 30), (older, 1 << 20), (away, 1 << 31), (failed, 1 << 20)] {
            let (server, pool, path) = (ServerId(1), DEFAULT_POOL.to_owned(), format!("/{id}"));
            let add = Command::AddDrive { id, server, pool, path, capacity, spare: false };
            metadata.propose(add).await.expect("a drive");
        }
        let fail =
            Command::SetDriveState { id: failed, to: DriveState::Failed, reason: String::new(), expected_view: None };
        metadata.propose(fail).await.expect("it was up");
        let state = metadata.state();
        let kept = |place| Kept { place, ..Kept::default() };
        let all = BTreeMap::from([(here, kept(1 << 26)), (older, kept(0))]);
        assert_eq!(smallest_place(&state, &all), Some(default_state(1 << 31)), "one of format 4 has none");
        let smaller = BTreeMap::from([(here, kept(1 << 20)), (older, kept(0))]);
        assert_eq!(smallest_place(&state, &smaller), Some(1 << 20));
        assert_eq!(longest_state(0), 0);
        metadata.shutdown().await;
    }
}
