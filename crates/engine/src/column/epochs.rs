//! In which epoch a group writes, and when a write in a new epoch may be acknowledged.
//!
//! A snapshot is a consistent cut without a pause. Each primary writes in the new epoch from the moment at which it
//! hears of the snapshot, but answers such writes only when no other primary acts in an earlier view any more. So a
//! client that was told of a write outside the snapshot, and then writes elsewhere, finds a primary that knows of the
//! snapshot too. A map's volumes write in epochs of their own, each since a view of its own.
//!
//! Invariants:
//! 1. A write is made in one epoch: all copies have the write there, however often it's tried. This server had a lease
//!    when the write began, so no client had been told yet of a write in a later epoch of the same volume. And this
//!    server acted by the view that began the epoch. So this server led the column in that view, and any later primary,
//!    which is agreed later, knows of the epoch.
//! 2. A snapshot's data doesn't change: a snapshot is read when all writes of its epochs have ended.
//! 3. A read that is sent after a snapshot was answered doesn't miss the snapshot's data. By then all primaries know of
//!    the snapshot, and the read waits for the writes that were under way when its primary came to know of the
//!    snapshot.
//! 4. A request for a volume is served what that volume sees. Requests for a volume that is gone are refused.

use super::flush::flush_all;
use super::{Blocks, Group, State};
use crate::epochs::{Epochs, Subject};
use crate::view::View;
use futures_channel::oneshot;
use std::sync::Arc;
use std::time::Duration;
use tepal_drive::world::World;
use tepal_model::layout::Durability;
use tepal_model::{Epoch, IoError, Lineage, VolumeId};

/// How soon to check again for a lease.
pub(super) const MOMENT: Duration = Duration::from_millis(10);

/// The volume of a write, and the lineage by which it's written.
#[derive(Clone, Debug)]
pub(crate) struct Writing {
    pub volume: VolumeId,
    begun: Option<Begun>,
    /// For a write of no volume: the agreed epochs by which it writes one line of the map's history.
    by: Option<Arc<Epochs>>,
}

#[derive(Clone, Debug)]
struct Begun {
    /// The lineage that the write sees. Its newest epoch is the one that the write is made in.
    seen: Lineage,
    /// As [`Head::since`](crate::epochs::Head::since).
    since: View,
    /// [`Seen::histories`](super::Seen::histories) at that time.
    histories: u64,
}

impl Writing {
    /// A write of a volume that hasn't begun.
    pub fn of(volume: VolumeId) -> Self {
        Writing { volume, begun: None, by: None }
    }

    /// A write of what the readers of one line have in common.
    pub fn line(by: Arc<Epochs>, line: &Lineage) -> Self {
        let begun = Some(Begun { seen: line.clone(), since: 0, histories: 0 });
        Writing { volume: VolumeId(0), begun, by: Some(by) }
    }

    /// Whether the write may be made.
    pub fn is_served<W: World>(&self, state: &State<W>) -> Result<(), IoError> {
        match &self.by {
            None => state.serves_volume(self.volume),
            Some(by) if Arc::ptr_eq(by, &state.seen.epochs) => state.serves(),
            // Once a snapshot is gone, drives may have joined the layers that it kept apart.
            Some(_) => Err(IoError::NotNow),
        }
    }

    /// For a write that no copy has. While its turn was given up, other writes may have been made in a later epoch, and
    /// data of the earlier epoch may have been read.
    pub fn choose_anew(&mut self) {
        self.begun = None;
    }
}

impl<W: World> Group<W> {
    /// Goes on with the epochs that are agreed now. Once all groups of the map have been told,
    /// [`Group::learn_that_all_act`] has to follow: before, no write in a new epoch may be acknowledged.
    pub fn go_on_with(&self, epochs: &Arc<Epochs>) {
        {
            let mut state = self.lock();
            // A volume that was the map's only one isn't new when the list begins.
            let are_new = |volume: &VolumeId| state.seen.epochs.head_of(*volume).is_none();
            let new: Vec<VolumeId> = epochs.heads.keys().copied().filter(are_new).collect();
            state.unflushed.lost.begin_with(new.into_iter());
            let before = std::mem::replace(&mut state.seen.epochs, epochs.clone());
            // Plans by the earlier history are made again.
            state.seen.histories += u64::from(before.history != epochs.history);
            // The heads also differ when volumes are made or removed: then some reads wait in vain, and none is wrong.
            if before.heads != epochs.heads {
                self.shared.order.note_snapshot();
            }
        }
        self.wake(); // a request may have heard of a snapshot earlier than this group
    }

    /// Notes, sooner or later, that no primary writes any more in epochs that are over.
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

    /// What a write sees: from its beginning, which may be now. `None` while this server's lease has ended: other
    /// servers may be sure that no write begins in this epoch any more, and this server goes on with its next lease.
    /// Also `None` while this server has only heard of the epoch, and doesn't act by it yet.
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
            // In the same epoch, which may see more: drives move what they note into a gap of a history that was
            // closed.
            begun.histories = state.seen.histories;
            if let Some(now) = state.seen.epochs.history.seen_in(begun.seen.newest()) {
                begun.seen = now;
            }
        }
        Ok(writing.begun.as_ref().map(|begun| begun.seen.clone()))
    }

    /// Whether the writer's lineage is still the same. If not, data that was read for the write is read again.
    pub fn sees_as_before(&self, writing: &Writing) -> bool {
        let histories = self.lock().seen.histories;
        writing.begun.as_ref().is_none_or(|begun| begun.histories == histories)
    }

    /// Whether this server has a lease, if it needs one.
    pub fn may_serve(&self) -> bool {
        self.shared.view == 0 || self.engine().is_some_and(|engine| engine.shared.authority.may_serve())
    }

    /// Resolves soon.
    pub fn in_a_moment(&self) -> oneshot::Receiver<()> {
        let (sender, receiver) = oneshot::channel();
        let world = self.shared.world.clone();
        self.shared.world.spawn(Box::pin(async move {
            world.sleep(MOMENT).await;
            let _ = sender.send(()); // the waiting task may have given up
        }));
        receiver
    }

    /// Returns when all primaries write in the write's epoch of the volume, or in a later one. A write that hasn't
    /// begun goes by the volume's newest epoch.
    pub async fn until_all_act(&self, writing: &Writing) -> Result<(), IoError> {
        let (since, is_shown) = {
            let state = self.lock();
            match &writing.begun {
                Some(Begun { seen, since, .. }) => (*since, state.seen.epochs.is_over(seen.newest())),
                None => (state.head_since(writing.volume), false),
            }
        };
        if is_shown {
            self.make_stable().await; // a snapshot shows the write
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

    /// The error, once it may be told: a part of the write may be there, and is seen once its turn is over.
    pub async fn error_once_all_act(&self, error: IoError, writing: &Writing) -> IoError {
        let _ = self.until_all_act(writing).await; // or nobody is served here any more
        error
    }

    /// Keeps data that a snapshot has shown from being lost with a cache.
    async fn make_stable(&self) {
        if self.shared.durability == Durability::Strict {
            return; // the write was stable when it was acknowledged
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

    /// Returns when no write is under way any more that may change the snapshot's data in these blocks.
    pub async fn until_unchanging(&self, (volume, snapshot): (VolumeId, Epoch), blocks: Blocks) -> Result<(), IoError> {
        loop {
            let change = {
                let mut state = self.lock();
                state.serves_volume(volume)?;
                if state.seen.epochs.is_over(snapshot) {
                    break; // writes that begin from here on are of later epochs
                }
                Group::next_change(&mut state)
            };
            self.wait(change).await?;
        }
        self.until_ended(blocks).await
    }
}

impl<W: World> State<W> {
    /// The view since which a volume writes in its newest epoch.
    pub fn head_since(&self, volume: VolumeId) -> View {
        self.seen.epochs.head_of(volume).map_or(0, |head| head.since)
    }

    /// The lineage that a snapshot shows, or a volume itself.
    pub fn seen_at(&self, subject: Subject) -> Result<Lineage, IoError> {
        let seen = self.seen.epochs.seen_at(subject).cloned();
        let gone = || match subject.at {
            None => IoError::Fenced,
            Some(_) => IoError::Unavailable { reason: "there's no such snapshot any more".to_owned() },
        };
        seen.ok_or_else(gone)
    }
}
