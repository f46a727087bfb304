//! What a map gives back when a snapshot, or one of its volumes, is removed: done in the background by each server, on its own drives;
//! how far that is; and what it would give back if a snapshot were removed.

use super::Volume;
use super::map::Map;
use crate::authority::View;
use crate::epochs::Epochs;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;
use tepal_drive::Reclaimed;
use tepal_drive::world::World;
use tepal_model::Epoch;

/// What was written by who hadn't heard yet that a snapshot or a volume is gone is given back after this time, and what was being
/// written to.
const LATER: Duration = Duration::from_secs(5);

/// Whether space is being given back that no reader's layers need any more.
#[derive(Debug, Default)]
pub(super) struct Reclaiming(Mutex<Turn>);

#[derive(Debug, Default)]
struct Turn {
    is_running: bool,
    /// There's more to give back by now.
    again: bool,
    /// All is given back that isn't seen by what was known in this view; 0 if some may not be.
    through: View,
}

impl Reclaiming {
    fn lock(&self) -> MutexGuard<'_, Turn> {
        self.0.lock().expect("nothing panics while it holds it")
    }

    /// Whether the caller is to do it.
    fn begin(&self) -> bool {
        let mut turn = self.lock();
        (turn.again, turn.through) = (turn.is_running, 0);
        !std::mem::replace(&mut turn.is_running, true)
    }

    /// So much is given back, unless there's more by now; `None` if some is left for later.
    fn is_through(&self, view: Option<View>) {
        let mut turn = self.lock();
        turn.through = view.filter(|_| !turn.again).unwrap_or(0);
    }

    /// Whether there's more to give back by now.
    fn take_more(&self) -> bool {
        std::mem::take(&mut self.lock().again)
    }

    /// Whether it's to be done again.
    fn end(&self) -> bool {
        let mut turn = self.lock();
        turn.is_running = std::mem::take(&mut turn.again) || turn.through == 0;
        turn.is_running
    }
}

impl<W: World> Map<W> {
    /// Gives back, in the background, what the drives of this server hold and no reader sees.
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

    /// Nobody reads or copies by an earlier state any more when anything is given back. The view of what was known then; `None` if
    /// some of it is left for later.
    pub async fn reclaim_by_what_all_know(&self) -> Option<View> {
        let engine = self.engine()?;
        let epochs = self.epochs();
        // A volume that was opened may have told of more than what is followed.
        let view = engine.followed().max(epochs.view);
        if self.is_among() {
            engine.shared.authority.adopted(view).await;
        }
        self.reclaim(&epochs).await.then_some(epochs.view)
    }

    /// See [`Drive::reclaim`](tepal_drive::Drive::reclaim). Whether nothing is left for later.
    async fn reclaim(&self, epochs: &Epochs) -> bool {
        let mut is_all = true;
        // Of a map in its first epoch there has never been more than one layer.
        let drives = if epochs.is_first() { Vec::new() } else { self.drives_here() };
        for drive in drives {
            match drive.reclaim(self.id(), &epochs.history).await {
                Ok(reclaimed) => is_all &= reclaimed == Reclaimed::All,
                // If it's lost, that is noticed where it matters.
                Err(loss) => tracing::debug!(drive = %drive.id(), %loss, "space that nobody sees isn't given back"),
            }
        }
        is_all
    }

    /// Bytes that the drives that are here hold, at least, and no reader needs: they are being given back.
    fn surplus(&self) -> u64 {
        let (epochs, drives) = (self.epochs(), self.drives_here());
        drives.iter().map(|drive| drive.surplus_of(self.id(), &epochs.history)).sum()
    }

    /// See [`Volume::reclaimed`].
    fn reclaimed(&self) -> View {
        // First, so that what was known in this view is known now.
        let followed = self.engine().and_then(|engine| engine.followed_state()).map_or(0, |(_, state)| state.view);
        let (epochs, through) = (self.epochs(), self.shared.reclaiming.lock().through);
        let is_through = epochs.is_first() || through == epochs.view;
        if is_through { followed.max(epochs.view) } else { through }
    }
}

impl<W: World> Volume<W> {
    /// Bytes on the drives that are here, copies counted, that nobody sees any more, of the volume and of all that it shares data with:
    /// at least so many are being given back.
    pub fn surplus(&self) -> u64 {
        self.maps().iter().map(Map::surplus).sum()
    }

    /// What nobody saw any more by what was agreed in this view is given back on the drives that are here, but for what can't be read.
    pub fn reclaimed(&self) -> View {
        self.maps().iter().map(Map::reclaimed).min().unwrap_or(0)
    }

    /// Bytes on the drives that are here, copies counted, that are given back at least if this snapshot is removed and nothing else: of
    /// each of the volume's snapshots that keeps any.
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
