//! What the metadata would say of the drives: agreed, and kept through every crash. Answers take a while, and a crash may
//! come between a change and its answer.

use crate::executor::{Core, Sleep};
use futures_channel::oneshot;
use futures_util::future::{BoxFuture, ready};
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tepal_drive::Loss;
use tepal_engine::{Authority, CopyChange, Places, View};
use tepal_model::{DriveId, MapId};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    Up,
    /// It may return; it left in that view.
    Away(View),
    /// It's never used again.
    Retired(View),
}

#[derive(Debug)]
enum Change {
    Down(DriveId, Loss),
    /// With what it was when it last came back: it may leave before that is agreed.
    CaughtUp(DriveId, u64),
    /// Which copies of a column are complete.
    CountCopies(MapId, usize, CopyChange),
}

type Answer = oneshot::Sender<Option<View>>;

struct State {
    view: View,
    drives: BTreeMap<DriveId, Status>,
    /// How often each has left or come back.
    moves: BTreeMap<DriveId, u64>,
    places: BTreeMap<MapId, Places>,
    asked: VecDeque<(Change, Answer)>,
    bell: Option<oneshot::Sender<()>>,
    /// The server closes its drives: what it finds out about them now isn't to be agreed.
    stopped: bool,
}

/// Clones are the same agreement. `Send` only because the engine's trait wants it.
#[derive(Clone)]
pub struct Agreement(Arc<Mutex<State>>);

impl fmt::Debug for Agreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.lock();
        write!(f, "view {}, {:?}", state.view, state.drives)
    }
}

impl Agreement {
    pub fn new(drives: impl IntoIterator<Item = DriveId>, places: BTreeMap<MapId, Places>) -> Self {
        let drives = drives.into_iter().map(|drive| (drive, Status::Up)).collect();
        Agreement(Arc::new(Mutex::new(State {
            view: 1,
            drives,
            moves: BTreeMap::new(),
            places,
            asked: VecDeque::new(),
            bell: None,
            stopped: false,
        })))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn status(&self, drive: DriveId) -> Status {
        self.lock().drives[&drive]
    }

    /// Where a map's columns are, and which copies are complete.
    pub fn places(&self, map: MapId) -> Arc<Places> {
        Arc::new(self.lock().places[&map].clone())
    }

    /// Whether every drive is up or retired.
    pub fn all_are_settled(&self) -> bool {
        !self.lock().drives.values().any(|status| matches!(status, Status::Away(_)))
    }

    /// Agreed at once, before the engine is given it: it's here again, and misses something.
    pub fn note_behind(&self, drive: DriveId) {
        *self.lock().moves.entry(drive).or_default() += 1;
    }

    /// Agreed at once: what a starting server finds before it serves.
    pub fn declare_down(&self, drive: DriveId, may_return: bool) -> View {
        self.lock().down(drive, may_return)
    }

    /// Answers the server, one question after another.
    pub async fn serve(self, core: Rc<Core>) {
        let mut random = core.fork();
        loop {
            let bell = {
                let (ring, bell) = oneshot::channel();
                let mut state = self.lock();
                state.bell = Some(ring);
                if state.asked.is_empty() { Some(bell) } else { None }
            };
            if let Some(bell) = bell {
                let _ = bell.await; // replaced unrung only by another wait of this loop
            }
            Sleep::until(&core, core.now() + Duration::from_micros(random.between(50..5_000))).await;
            let asked = self.lock().asked.pop_front();
            if let Some((change, answer)) = asked {
                let view = self.lock().apply(&change);
                core.note(view.unwrap_or(0), || format!("agreed: {change:?}; {self:?}"));
                let _ = answer.send(view); // whoever asked may be dead
            }
        }
    }

    /// The server is about to close its drives, and asks for nothing more.
    pub fn stop(&self) {
        self.lock().stopped = true;
    }

    pub fn is_stopped(&self) -> bool {
        self.lock().stopped
    }

    /// The server crashed: of what it asked for, a part is agreed, and nobody hears of it.
    pub fn crashed(&self, agreed: usize) {
        let asked = {
            let mut state = self.lock();
            state.stopped = false;
            std::mem::take(&mut state.asked)
        };
        for (change, _) in asked.into_iter().take(agreed) {
            self.lock().apply(&change);
        }
    }

    fn ask(&self, change: Change) -> BoxFuture<'static, Option<View>> {
        let (answer, answered) = oneshot::channel();
        let bell = {
            let mut state = self.lock();
            if state.stopped {
                return Box::pin(ready(None));
            }
            state.asked.push_back((change, answer));
            state.bell.take()
        };
        if let Some(bell) = bell {
            let _ = bell.send(()); // nobody listens only when the run is over
        }
        Box::pin(async move { answered.await.ok().flatten() })
    }
}

impl State {
    /// `None` if it doesn't apply any more.
    fn apply(&mut self, change: &Change) -> Option<View> {
        match change {
            Change::Down(drive, loss) => Some(self.down(*drive, matches!(loss, Loss::Gone { .. }))),
            Change::CaughtUp(drive, moves) => {
                let same = self.moves.get(drive) == Some(moves);
                let status = self.drives.get_mut(drive).filter(|_| same)?;
                if let Status::Away(_) = status {
                    *status = Status::Up;
                    self.view += 1;
                    let has_failed = |id: DriveId| matches!(self.drives[&id], Status::Retired(_));
                    self.places.values_mut().for_each(|places| places.is_up_again(*drive, has_failed));
                }
                (self.drives[drive] == Status::Up).then_some(self.view)
            }
            Change::CountCopies(map, column, change) => {
                let is_up = change.passed.iter().any(|drive| self.drives[drive] == Status::Up);
                let view = self.view;
                let agreed = !is_up && self.places.get_mut(map)?.count(*column, change, view, 1);
                agreed.then_some(view)
            }
        }
    }

    /// In which view it left.
    fn down(&mut self, drive: DriveId, may_return: bool) -> View {
        *self.moves.entry(drive).or_default() += 1;
        let left = match self.drives[&drive] {
            Status::Up => {
                self.view += 1;
                self.view
            }
            Status::Away(left) | Status::Retired(left) => left,
        };
        let retired = !may_return || matches!(self.drives[&drive], Status::Retired(_));
        self.drives.insert(drive, if retired { Status::Retired(left) } else { Status::Away(left) });
        left
    }
}

impl Authority for Agreement {
    fn drive_down(&self, drive: DriveId, loss: Loss) -> BoxFuture<'static, Option<View>> {
        self.ask(Change::Down(drive, loss))
    }

    fn up_again(&self, drive: DriveId, _: View) -> BoxFuture<'static, Option<View>> {
        let moves = self.lock().moves.get(&drive).copied().unwrap_or(0);
        self.ask(Change::CaughtUp(drive, moves))
    }

    fn copies(&self, map: MapId) -> Option<(Arc<Places>, View)> {
        let state = self.lock();
        Some((Arc::new(state.places.get(&map)?.clone()), state.view))
    }

    fn count_copies(&self, map: MapId, column: usize, change: CopyChange, _: View) -> BoxFuture<'static, Option<View>> {
        self.ask(Change::CountCopies(map, column, change))
    }
}
