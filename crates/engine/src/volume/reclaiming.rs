//! Space that a map gives back when a snapshot, or one of its volumes, is removed: each server does that in the
//! background, on its own drives. Also how far that is, and how much space a snapshot's removal would give back.

use super::Volume;
use super::map::Map;
use crate::epochs::Epochs;
use crate::view::View;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;
use tepal_drive::Reclaimed;
use tepal_drive::world::World;
use tepal_model::Epoch;

/// After this time space is given back again: of writes by servers that hadn't heard yet that a snapshot or a volume is
/// gone, and of blocks that were being written to.
const LATER: Duration = Duration::from_secs(5);

/// Whether space is being given back of layers that no reader needs any more.
#[derive(Debug, Default)]
pub(super) struct Reclaiming(Mutex<Turn>);

#[derive(Debug, Default)]
struct Turn {
    is_running: bool,
    /// More can be given back by now.
    again: bool,
    /// Everything that nobody sees by the epochs of this view is given back; 0 if something may be left.
    through: View,
}

impl Reclaiming {
    fn lock(&self) -> MutexGuard<'_, Turn> {
        self.0.lock().expect("nothing panics while it holds it")
    }

    /// Whether the caller has to give space back.
    fn begin(&self) -> bool {
        let mut turn = self.lock();
        (turn.again, turn.through) = (turn.is_running, 0);
        !std::mem::replace(&mut turn.is_running, true)
    }

    /// Everything of that view is given back, unless there's more by now; `None` if something is left for later.
    fn is_through(&self, view: Option<View>) {
        let mut turn = self.lock();
        turn.through = view.filter(|_| !turn.again).unwrap_or(0);
    }

    /// Whether more can be given back by now.
    fn take_more(&self) -> bool {
        std::mem::take(&mut self.lock().again)
    }

    /// Whether the work has to be done again.
    fn end(&self) -> bool {
        let mut turn = self.lock();
        turn.is_running = std::mem::take(&mut turn.again) || turn.through == 0;
        turn.is_running
    }
}

impl<W: World> Map<W> {
    /// Gives back, in the background, layers that this server's drives hold and no reader sees.
    pub fn start_reclaiming(&self) {
        let Some(engine) = self.engine() else { return };
        if self.epochs().is_first() || !self.shared.reclaiming.begin() {
            return;
        }
        let map = self.clone();
        engine.world().spawn(Box::pin(async move {
            loop {
                map.shared.reclaiming.is_through(map.reclaim_by_what_all_know().await);
                if map.shared.reclaiming.take_more() {
                    continue;
                }
                let Some(engine) = map.engine() else { return };
                engine.world().sleep(LATER).await;
                map.shared.reclaiming.is_through(map.reclaim_by_what_all_know().await);
                if !map.shared.reclaiming.end() {
                    return;
                }
            }
        }));
    }

    /// Gives space back once nobody reads or copies by an earlier state any more. Returns the view of the epochs that
    /// were known at the beginning; `None` if something is left for later.
    pub async fn reclaim_by_what_all_know(&self) -> Option<View> {
        let engine = self.engine()?;
        let epochs = self.epochs();
        // The record of a newly opened volume may have had newer epochs than the followed state.
        let view = engine.followed().max(epochs.view);
        if self.is_among() {
            engine.shared.authority.adopted(view).await;
        }
        self.reclaim(&epochs).await.then_some(epochs.view)
    }

    /// See [`Drive::reclaim`](tepal_drive::Drive::reclaim). Returns whether nothing is left for later.
    async fn reclaim(&self, epochs: &Epochs) -> bool {
        let mut is_all = true;
        // A map in its first epoch has never had more than one layer.
        let drives = if epochs.is_first() { Vec::new() } else { self.drives_here() };
        for drive in drives {
            match drive.reclaim(self.id(), &epochs.history).await {
                Ok(reclaimed) => is_all &= reclaimed == Reclaimed::All,
                // A lost drive is noticed where that matters.
                Err(loss) => tracing::debug!(drive = %drive.id(), %loss, "space that nobody sees isn't given back"),
            }
        }
        is_all
    }

    /// Bytes, at least, that the drives here hold and no reader needs: they are being given back.
    fn surplus(&self) -> u64 {
        let (epochs, drives) = (self.epochs(), self.drives_here());
        drives.iter().map(|drive| drive.surplus_of(self.id(), &epochs.history)).sum()
    }

    /// See [`Volume::reclaimed`].
    fn reclaimed(&self) -> View {
        // The view is read first, so that the epochs below are of this view or later.
        let followed = self.engine().and_then(|engine| engine.followed_state()).map_or(0, |(_, state)| state.view);
        let (epochs, through) = (self.epochs(), self.shared.reclaiming.lock().through);
        let is_through = epochs.is_first() || through == epochs.view;
        if is_through { followed.max(epochs.view) } else { through }
    }
}

impl<W: World> Volume<W> {
    /// Bytes on the drives that are here, copies counted, that nobody sees any more, of the volume and of all volumes
    /// that it shares data with. At least so many are being given back.
    pub fn surplus(&self) -> u64 {
        self.maps().iter().map(Map::surplus).sum()
    }

    /// The view up to which all layers that nobody saw any more are given back on the drives that are here, except
    /// blocks that can't be read.
    pub fn reclaimed(&self) -> View {
        self.maps().iter().map(Map::reclaimed).min().unwrap_or(0)
    }

    /// Bytes on the drives that are here, copies counted, that are given back at least if this snapshot is removed and
    /// nothing else. Lists each of the volume's snapshots that keeps any.
    pub fn kept_by_snapshots(&self) -> BTreeMap<Epoch, u64> {
        let mut kept = BTreeMap::new();
        for map in self.maps() {
            let epochs = map.epochs();
            let is_own = |reader: &Epoch| epochs.snapshots.get(reader) == Some(&self.id());
            for drive in map.drives_here() {
                let of_drive = drive.kept_alone(map.id(), &epochs.history).into_iter();
                of_drive.filter(|(at, _)| is_own(at)).for_each(|(at, bytes)| *kept.entry(at).or_default() += bytes);
            }
        }
        kept
    }
}
