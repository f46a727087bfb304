//! Logical time: each write takes one that is later than those of all writes that were complete before it.

use super::{Column, Nodes};
use futures_channel::oneshot;
use std::sync::MutexGuard;
use tepal_drive::world::World;
use tepal_model::IoError;
use tepal_wire::Payload;
use tepal_wire::message::{NodeAnswer, NodeOperation};

#[derive(Default)]
pub(super) struct Times {
    /// The latest that this gateway has used.
    last: u64,
    /// Nodes are being asked. The answers may be too old for writes that begin meanwhile.
    is_asking: bool,
    /// Writes for which nodes are asked next, all together.
    waiting: Vec<oneshot::Sender<u64>>,
}

impl<W: World, N: Nodes> Column<W, N> {
    fn lock_times(&self) -> MutexGuard<'_, Times> {
        self.state.times.lock().expect("nothing panics while it holds the times")
    }

    /// A time that nobody has used.
    pub(super) async fn next_time(&self) -> Result<u64, IoError> {
        let (sender, time) = oneshot::channel();
        let begins = {
            let mut times = self.lock_times();
            times.waiting.push(sender);
            !std::mem::replace(&mut times.is_asking, true)
        };
        if begins {
            let column = self.clone();
            self.world.spawn(Box::pin(async move { column.ask_for_times().await }));
        }
        match time.await {
            Ok(time) => Ok(time),
            Err(oneshot::Canceled) => Err(self.nodes.goes_on().err().unwrap_or(IoError::NotAllowed)),
        }
    }

    /// Until nobody waits for a time any more.
    async fn ask_for_times(&self) {
        loop {
            let waiting = {
                let mut times = self.lock_times();
                times.is_asking = !times.waiting.is_empty();
                std::mem::take(&mut times.waiting)
            };
            if waiting.is_empty() {
                return;
            }
            // Those who wait find out why there's none.
            let known =
                self.with_same_drives(async |column: &Self| column.greatest_time().await.ok_or(IoError::NotNow)).await;
            let Ok(known) = known else { continue };
            let mut times = self.lock_times();
            times.last = times.last.max(known);
            for waiting in waiting {
                times.last += 1;
                let _ = waiting.send(times.last); // whose write was given up needs none
            }
        }
    }

    /// A time that is as late as that of each complete write, and that a node has which doesn't lie; `None` if the nodes aren't to be
    /// asked any more.
    ///
    /// Of the nodes that a complete write is on, more than B are among any N - T that answer, and don't lie. So is the one that is
    /// chosen, or a node with a later time that doesn't lie.
    async fn greatest_time(&self) -> Option<u64> {
        let needed = usize::from(self.shape.quorum.thresholds().answers);
        let question = |drive| NodeOperation::Time { complete: self.hints(drive) };
        let count = self.count_voters();
        let mut asked =
            self.ask(self.voters().map(|(node, drive)| (node, drive, question(drive), Payload::none())).collect());
        let (mut times, mut refused): (Vec<u64>, usize) = (Vec::with_capacity(needed), 0);
        while times.len() < needed {
            if refused > count - needed {
                return None;
            }
            match asked.next().await?.what {
                Ok((NodeAnswer::Time { time }, _)) => times.push(time),
                Ok(_) => {}
                Err(_) => refused += 1,
            }
        }
        times.sort_unstable_by(|one, other| other.cmp(one));
        times.get(usize::from(self.shape.quorum.liars())).copied()
    }
}
