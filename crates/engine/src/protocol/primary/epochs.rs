//! In which epoch a group writes, and when what was written in it may be told.
//!
//! A snapshot is a consistent cut without a pause: each primary writes in the new epoch from the moment at which it hears of the
//! snapshot, but answers such writes only when no other primary acts in an earlier view any more. So whoever has been told of a
//! write that isn't in the snapshot, and then writes elsewhere, finds a primary that knows of the snapshot too.
//!
//! Invariants:
//! 1. A write is made in one epoch: all copies have it there, however often it's tried. This server had a lease when it began, so
//!    nobody had been told yet of a write in a later one.
//! 2. What a snapshot shows doesn't change: it's read when all writes of its epochs have ended.

use super::flush::flush_all;
use super::{Blocks, Group, State};
use crate::epochs::Epochs;
use futures_channel::oneshot;
use futures_util::future::join_all;
use std::sync::Arc;
use std::time::Duration;
use tepal_drive::world::World;
use tepal_model::layout::Durability;
use tepal_model::{Epoch, IoError, Lineage};

/// How soon to look again whether there's a lease.
const MOMENT: Duration = Duration::from_millis(10);

impl<W: World> Group<W> {
    /// What is agreed from now on. Once all groups of the volume have been told, [`Group::learn_that_all_act`] is to follow: before,
    /// nobody may be told of what was written in the new epoch.
    pub fn go_on_with(&self, epochs: &Arc<Epochs>) {
        self.lock().epochs = epochs.clone();
        self.wake(); // somebody may have heard of a snapshot earlier than this group
    }

    /// Notes, sooner or later, that nobody writes any more in the epoch before.
    pub fn learn_that_all_act(&self) {
        let epochs = self.lock().epochs.clone();
        if self.shared.view == 0 || epochs.since <= self.shared.view {
            return self.all_act(epochs.head);
        }
        let group = self.clone();
        self.shared.world.spawn(Box::pin(async move {
            let Some(adopted) = group.engine().map(|engine| engine.shared.authority.adopted(epochs.since)) else {
                return;
            };
            adopted.await;
            group.all_act(epochs.head);
        }));
    }

    fn all_act(&self, epoch: Epoch) {
        {
            let mut state = self.lock();
            state.everywhere = state.everywhere.max(epoch);
        }
        self.wake();
    }

    /// What a write sees that begins now. `None` while this server's lease has ended: the others may be sure that nobody begins
    /// anything in this epoch any more, and this server goes on when it has a lease again.
    pub fn begins_in(&self, state: &State<W>) -> Option<Lineage> {
        let lineage = state.epochs.head().clone();
        let may_serve = || self.engine().is_some_and(|engine| engine.shared.authority.may_serve());
        (self.shared.view == 0 || may_serve()).then_some(lineage)
    }

    /// What a write sees: as it began, or begins now.
    pub fn made_in(&self, made_in: &mut Option<Lineage>) -> Option<Lineage> {
        if made_in.is_none() {
            *made_in = self.begins_in(&self.lock());
        }
        made_in.clone()
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

    /// Returns when all primaries write in this epoch or a later one.
    pub async fn until_all_act(&self, lineage: Option<&Lineage>) -> Result<(), IoError> {
        let Some(epoch) = lineage.map(Lineage::newest) else { return Ok(()) };
        if self.lock().epochs.head != epoch {
            self.make_stable().await; // a snapshot shows it
        }
        loop {
            let change = {
                let mut state = self.lock();
                if state.everywhere >= epoch {
                    return Ok(());
                }
                state.serves()?;
                Group::next_change(&mut state)
            };
            let _ = change.await; // dropped unsent only when the volume goes
        }
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
    pub async fn until_unchanging(&self, snapshot: Epoch, blocks: Blocks) -> Result<(), IoError> {
        loop {
            let change = {
                let mut state = self.lock();
                state.serves()?;
                if state.epochs.head > snapshot {
                    break; // what begins from here on is of later epochs
                }
                Group::next_change(&mut state)
            };
            self.wait(change).await?;
        }
        join_all(self.shared.order.under_way(blocks.first, blocks.count)).await;
        Ok(())
    }
}

impl<W: World> State<W> {
    /// What is seen at a snapshot, or by the volume itself.
    pub fn seen_at(&self, snapshot: Option<Epoch>) -> Result<Lineage, IoError> {
        let seen = self.epochs.at(snapshot).cloned();
        seen.ok_or_else(|| IoError::Unavailable { reason: "there's no such snapshot any more".to_owned() })
    }
}
