//! Where a volume is imported from: a disk elsewhere that answers late, in any order, stands still, or can't read a part of it.

use crate::checker::Origin;
use crate::executor::{Core, Sleep};
use bytes::Bytes;
use futures_channel::oneshot;
use futures_util::future::{Either, select};
use std::ops::Range;
use std::pin::pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tepal_engine::Later;
use tepal_model::{BLOCK, IoError};

/// Clones are the same.
#[derive(Clone)]
pub struct OldPlace(Arc<Mutex<State>>);

struct State {
    origin: Origin,
    asked: Vec<Asked>,
    /// Between two answers it's at most so long.
    pace: Duration,
    stands_still: bool,
    unreadable: Option<Range<u64>>,
    /// Of all that was ever unreadable.
    refused: Vec<Range<u64>>,
}

struct Asked {
    bytes: Range<u64>,
    answer: oneshot::Sender<Answer>,
}

/// `None` if it can't be read.
type Answer = Option<Bytes>;

impl OldPlace {
    pub fn new(origin: Origin, pace: Duration) -> Self {
        let (asked, stands_still, unreadable, refused) = (Vec::new(), false, None, Vec::new());
        OldPlace(Arc::new(Mutex::new(State { origin, asked, pace, stands_still, unreadable, refused })))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers for as long as the run lasts.
    pub async fn serve(self, core: Rc<Core>) {
        let mut random = core.fork();
        loop {
            let pace = self.lock().pace.as_micros() as u64;
            Sleep::until(&core, core.now() + Duration::from_micros(random.skewed(pace))).await;
            for _ in 0..random.between(1..6) {
                let mut state = self.lock();
                if state.stands_still || state.asked.is_empty() {
                    break;
                }
                let which = random.index(state.asked.len());
                let Asked { bytes, answer } = state.asked.swap_remove(which);
                let meets = |bad: &Range<u64>| bad.start < bytes.end && bytes.start < bad.end;
                let is_readable = !state.unreadable.as_ref().is_some_and(meets);
                // Whoever asked may be gone.
                let _ = answer.send(is_readable.then(|| state.origin.bytes(bytes.clone()).into()));
            }
        }
    }

    /// It goes away, or stands still: nobody can tell.
    pub fn stands_still(&self) {
        self.lock().stands_still = true;
    }

    /// All of it can be read again.
    pub fn heal(&self) {
        let mut state = self.lock();
        (state.stands_still, state.unreadable) = (false, None);
    }

    pub fn hurry(&self, pace: Duration) {
        self.lock().pace = pace;
    }

    pub fn become_unreadable(&self, bytes: Range<u64>) {
        let mut state = self.lock();
        state.refused.push(bytes.clone());
        state.unreadable = Some(bytes);
    }

    /// Whether something was ever unreadable of the blocks that have these bytes.
    pub fn has_refused(&self, offset: u64, length: u64) -> bool {
        let (start, end) = (offset / BLOCK * BLOCK, (offset + length).next_multiple_of(BLOCK));
        self.lock().refused.iter().any(|bad| bad.start < end && start < bad.end)
    }
}

/// What a process knows of whether the old place may be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    Open,
    Cancelled,
    /// Nobody needs it any more.
    Over,
}

/// A process's way to the old place (`server/importing/source.rs`). Clones are the same.
#[derive(Clone)]
pub struct Way {
    place: OldPlace,
    stage: Arc<Mutex<(Stage, Vec<oneshot::Sender<()>>)>>,
}

impl Way {
    pub fn new(place: OldPlace, stage: Stage) -> Self {
        Way { place, stage: Arc::new(Mutex::new((stage, Vec::new()))) }
    }

    /// Those who wait are told.
    pub fn set(&self, stage: Stage) {
        let mut now = self.stage.lock().unwrap_or_else(PoisonError::into_inner);
        if now.0 != stage {
            *now = (stage, Vec::new());
        }
    }

    /// Returns once it may not be read.
    async fn ended(&self) -> Stage {
        loop {
            let (told, tells) = oneshot::channel();
            {
                let mut now = self.stage.lock().unwrap_or_else(PoisonError::into_inner);
                match now.0 {
                    Stage::Open => now.1.push(told),
                    ended => return ended,
                }
            }
            let _ = tells.await; // it's dropped with every change
        }
    }
}

impl tepal_engine::OldPlace for Way {
    fn read(&self, bytes: Range<u64>) -> Later<Bytes> {
        let own = self.clone();
        Box::pin(async move {
            let (answer, answered) = oneshot::channel();
            own.place.lock().asked.push(Asked { bytes, answer });
            match select(pin!(own.ended()), answered).await {
                Either::Left((Stage::Cancelled, _)) => Err(refused("its import was cancelled")),
                Either::Left(_) => Err(IoError::Fenced),
                Either::Right((Ok(Some(bytes)), _)) => Ok(bytes),
                Either::Right(_) => Err(refused("the old place can't read it")),
            }
        })
    }

    fn zeros(&self, bytes: Range<u64>) -> Later<Vec<(u64, bool)>> {
        let (own, stretch) = (self.clone(), bytes.start..bytes.end.min(bytes.start + (1 << 20)));
        // As a read: it waits, and is refused, in the same way.
        Box::pin(async move {
            own.clone().read(stretch.clone()).await?;
            Ok(own.place.lock().origin.runs(stretch))
        })
    }
}

fn refused(reason: &str) -> IoError {
    IoError::Unavailable { reason: reason.to_owned() }
}
