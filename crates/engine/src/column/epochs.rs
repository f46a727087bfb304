//! In which epoch a group writes, and when what was written in it may be told.
//!
//! A snapshot is a consistent cut without a pause: each primary writes in the new epoch from the moment at which it hears of the
//! snapshot, but answers such writes only when no other primary acts in an earlier view any more. So whoever has been told of a
//! write that isn't in the snapshot, and then writes elsewhere, finds a primary that knows of the snapshot too. A map's volumes
//! write in epochs of their own, each since a view of its own.
//!
//! Invariants:
//! 1. A write is made in one epoch: all copies have it there, however often it's tried. This server had a lease when it began, so
//!    nobody had been told yet of a write in a later one of the same volume. And it acted by the view since which the epoch is: so it
//!    led the column in that view, and whoever leads it later, as agreed later, knows of the epoch.
//! 2. What a snapshot shows doesn't change: it's read when all writes of its epochs have ended.
//! 3. What a snapshot shows, a read that is sent after it was answered doesn't miss: by then all primaries know of the snapshot, and such
//!    a read waits for the writes that were under way when its primary came to know of it.
//! 4. Whoever asks for a volume is served by what that volume sees, and nobody is for one that is gone.

use super::flush::flush_all;
use super::{Blocks, Group, State};
use crate::authority::View;
use crate::epochs::{Epochs, Subject};
use futures_channel::oneshot;
use std::sync::Arc;
use std::time::Duration;
use tepal_drive::world::World;
use tepal_model::layout::Durability;
use tepal_model::{Epoch, IoError, Lineage, VolumeId};

/// How soon to look again whether there's a lease.
pub(super) const MOMENT: Duration = Duration::from_millis(10);

/// For which volume something is written, and by what it's written.
#[derive(Clone, Debug)]
pub(crate) struct Writing {
    pub volume: VolumeId,
    begun: Option<Begun>,
    /// It's of no volume: by what is agreed it's a part of all that a map has.
    by: Option<Arc<Epochs>>,
}

#[derive(Clone, Debug)]
struct Begun {
    /// What it sees. Its newest epoch is the one that it's written in.
    seen: Lineage,
    /// As [`Head::since`](crate::epochs::Head::since).
    since: View,
    /// As [`State::histories`] then.
    histories: u64,
}

impl Writing {
    /// Nothing is written yet.
    pub fn of(volume: VolumeId) -> Self {
        Writing { volume, begun: None, by: None }
    }

    /// What the readers of one line have in common.
    pub fn line(by: Arc<Epochs>, line: &Lineage) -> Self {
        let begun = Some(Begun { seen: line.clone(), since: 0, histories: 0 });
        Writing { volume: VolumeId(0), begun, by: Some(by) }
    }

    /// Whether it may be made.
    pub fn is_served<W: World>(&self, state: &State<W>) -> Result<(), IoError> {
        match &self.by {
            None => state.serves_volume(self.volume),
            Some(by) if Arc::ptr_eq(by, &state.seen.epochs) => state.serves(),
            // Once a snapshot is gone, drives may have joined what it parted.
            Some(_) => Err(IoError::NotNow),
        }
    }

    /// No copy has it. Once its turn was given up, others may have been written in a later epoch, and what is seen of the one of before
    /// may have been read.
    pub fn choose_anew(&mut self) {
        self.begun = None;
    }
}

impl<W: World> Group<W> {
    /// What is agreed from now on. Once all groups of the map have been told, [`Group::learn_that_all_act`] is to follow: before,
    /// nobody may be told of what was written in a new epoch.
    pub fn go_on_with(&self, epochs: &Arc<Epochs>) {
        {
            let mut state = self.lock();
            // The one that was the only one isn't new to the list.
            let are_new = |volume: &VolumeId| state.seen.epochs.head_of(*volume).is_none();
            let new: Vec<VolumeId> = epochs.heads.keys().copied().filter(are_new).collect();
            state.unflushed.lost.begin_with(new.into_iter());
            let before = std::mem::replace(&mut state.seen.epochs, epochs.clone());
            // What was planned by the history of before is planned anew.
            state.seen.histories += u64::from(before.history != epochs.history);
            // They differ also when volumes are made or removed: then some reads wait in vain, and none is wrong.
            if before.heads != epochs.heads {
                self.shared.order.note_snapshot();
            }
        }
        self.wake(); // somebody may have heard of a snapshot earlier than this group
    }

    /// Notes, sooner or later, that nobody writes any more in epochs that are over.
    pub fn learn_that_all_act(&self) {
        let (since, everywhere) = {
            let state = self.lock();
            (state.seen.epochs.since(), state.seen.everywhere)
        };
        if since <= everywhere {
            return;
        }
        let group = self.clone();
        self.shared.world.spawn(Box::pin(async move {
            let Some(adopted) = group.engine().map(|engine| engine.shared.authority.adopted(since)) else {
                return;
            };
            adopted.await;
            {
                let mut state = group.lock();
                state.seen.everywhere = state.seen.everywhere.max(since);
            }
            group.wake();
        }));
    }

    /// What a write sees: as it began, or begins now. `None` while this server's lease has ended: the others may be sure that nobody
    /// begins anything in this epoch any more, and this server goes on when it has a lease again. And while it has only heard of the
    /// epoch, and doesn't act by it yet.
    pub fn seen_by(&self, writing: &mut Writing) -> Result<Option<Lineage>, IoError> {
        self.seen_by_in(&self.lock(), writing)
    }

    pub fn seen_by_in(&self, state: &State<W>, writing: &mut Writing) -> Result<Option<Lineage>, IoError> {
        if writing.begun.is_none() {
            state.serves_volume(writing.volume)?;
            let seen = state.seen_at(Subject::now(writing.volume))?;
            let since = state.head_since(writing.volume);
            let acts_by_it = || self.engine().is_some_and(|engine| engine.followed() >= since);
            let histories = state.seen.histories;
            writing.begun = (self.may_serve() && (self.shared.view == 0 || acts_by_it())).then_some(Begun {
                seen,
                since,
                histories,
            });
        } else if writing.by.is_none()
            && let Some(begun) = writing.begun.as_mut().filter(|begun| begun.histories != state.seen.histories)
        {
            // In the same epoch, which may see more: drives move what they note into a gap of a history that was closed.
            begun.histories = state.seen.histories;
            if let Some(now) = state.seen.epochs.history.reader(begun.seen.newest()) {
                begun.seen = now.clone();
            }
        }
        Ok(writing.begun.as_ref().map(|begun| begun.seen.clone()))
    }

    /// Whether what the writer sees is still found so: else what was read for it is read again.
    pub fn sees_as_before(&self, writing: &Writing) -> bool {
        let histories = self.lock().seen.histories;
        writing.begun.as_ref().is_none_or(|begun| begun.histories == histories)
    }

    /// Whether this server has a lease, if it needs one.
    pub fn may_serve(&self) -> bool {
        self.shared.view == 0 || self.engine().is_some_and(|engine| engine.shared.authority.may_serve())
    }

    /// Comes soon.
    pub fn in_a_moment(&self) -> oneshot::Receiver<()> {
        let (sender, receiver) = oneshot::channel();
        let world = self.shared.world.clone();
        self.shared.world.spawn(Box::pin(async move {
            world.sleep(MOMENT).await;
            let _ = sender.send(()); // whoever waits may have given up
        }));
        receiver
    }

    /// Returns when all primaries write in the same epoch of the volume, or a later one; in that of now, if this was written before.
    pub async fn until_all_act(&self, writing: &Writing) -> Result<(), IoError> {
        let (since, is_shown) = {
            let state = self.lock();
            match &writing.begun {
                Some(Begun { seen, since, .. }) => (*since, state.seen.epochs.is_over(seen.newest())),
                None => (state.head_since(writing.volume), false),
            }
        };
        if is_shown {
            self.make_stable().await; // a snapshot shows it
        }
        loop {
            let change = {
                let mut state = self.lock();
                if state.seen.everywhere >= since {
                    return Ok(());
                }
                state.serves_volume(writing.volume)?;
                Group::next_change(&mut state)
            };
            let _ = change.await; // dropped unsent only when the volume goes
        }
    }

    /// The error, when what became of the write may be told: a part of it may be there, and is seen once its turn is over.
    pub async fn error_once_all_act(&self, error: IoError, writing: &Writing) -> IoError {
        let _ = self.until_all_act(writing).await; // or nobody is served here any more
        error
    }

    /// What a snapshot has shown isn't lost with a cache.
    async fn make_stable(&self) {
        if self.shared.durability == Durability::Strict {
            return; // it was when it was acknowledged
        }
        loop {
            let here: Vec<_> = self.lock().members.here().cloned().collect();
            let lost = flush_all(here).await;
            if lost.is_empty() {
                return;
            }
            self.lose(lost).await;
        }
    }

    /// Returns when nothing is under way any more that may change what a snapshot shows of these blocks.
    pub async fn until_unchanging(&self, (volume, snapshot): (VolumeId, Epoch), blocks: Blocks) -> Result<(), IoError> {
        loop {
            let change = {
                let mut state = self.lock();
                state.serves_volume(volume)?;
                if state.seen.epochs.is_over(snapshot) {
                    break; // what begins from here on is of later epochs
                }
                Group::next_change(&mut state)
            };
            self.wait(change).await?;
        }
        self.until_ended(blocks).await
    }
}

impl<W: World> State<W> {
    /// Since which view a volume writes in its newest epoch.
    pub fn head_since(&self, volume: VolumeId) -> View {
        self.seen.epochs.head_of(volume).map_or(0, |head| head.since)
    }

    /// What is seen at a snapshot, or by a volume itself.
    pub fn seen_at(&self, subject: Subject) -> Result<Lineage, IoError> {
        let seen = self.seen.epochs.seen_at(subject).cloned();
        let gone = || match subject.at {
            None => IoError::Fenced,
            Some(_) => IoError::Unavailable { reason: "there's no such snapshot any more".to_owned() },
        };
        seen.ok_or_else(gone)
    }
}
