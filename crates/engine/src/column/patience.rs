//! How long a request waits at its primary: for its turn, for drives, for copies to be equal.
//!
//! 1. A request of this server's own client waits as long as needed, or until the client has gone. A request of another
//!    server waits for drives only for a moment ([`DRIVES_WAIT`]), and for some seconds behind requests that wait for
//!    no drive ([`LINE_WAIT`]). Then the other server has to ask again: a waiting request takes room that requests for
//!    other volumes would miss, and a server that was started anew is heard only when its earlier requests have ended.
//!    A change that is done already is answered once all primaries are in its epoch.
//! 2. No request keeps a turn for itself while it waits for drives. A write that has begun lends its turn, and a write
//!    that hasn't begun gives it up. The turn is lent while copies are made equal.
//! 3. A turn is taken only for an asker that still waits, and a turn that was given up is taken again only for an asker
//!    that is known to. A change that nobody wants any more would land after newer writes of the same asker.

use super::epochs::MOMENT;
use super::order::{Queued, Turn};
use super::{Blocks, Group};
use crate::seen_through::Asker;
use futures_channel::oneshot::{self, Canceled};
use futures_util::future::{Either, join_all, select};
use std::time::Duration;
use tepal_drive::world::{Tick, World};
use tepal_model::IoError;

/// How long a request waits for drives, or for its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Patience {
    Endless,
    /// Then the request has to be asked again. If it has changed something, it goes on without its asker.
    Short,
}

/// Long enough for a drive that is just being declared down, or heard. Also for waiting behind a request that waits for
/// drives.
pub(super) const DRIVES_WAIT: Duration = Duration::from_millis(200);
/// For waiting behind requests that wait for no drive. Long, or a request would never have its turn where the queue is
/// never empty. Not longer, as a server that was started anew is heard only when its earlier requests have ended.
const LINE_WAIT: Duration = Duration::from_secs(5);
/// Before a read, writes that have been queued for longer are waited for. Few requests of clients that run at once take
/// so long.
const LONG: Duration = Duration::from_millis(100);

/// For the steps of one request: each step takes its place when the step before is done.
const STEPS_WAIT: Duration = Duration::from_secs(1);

impl<W: World> Group<W> {
    /// The same group, for a request of another server.
    pub fn for_others(&self) -> Self {
        Group { shared: self.shared.clone(), patience: Patience::Short }
    }

    /// The same group, for background work: waiting background work takes no request's room.
    pub(super) fn patient(&self) -> Self {
        Group { shared: self.shared.clone(), patience: Patience::Endless }
    }

    /// The same group, for a request that has begun to change something: an asker without patience is let go.
    pub(super) fn for_what_has_begun(&self, asker: &Asker) -> Self {
        if self.patience == Patience::Short {
            asker.let_go();
        }
        self.patient()
    }

    /// Waits for a change. [`IoError::NotNow`] if the wait is longer than this handle's patience.
    pub(super) async fn wait(&self, change: impl Future<Output = Result<(), Canceled>> + Unpin) -> Result<(), IoError> {
        let change = self.wait_for(change, DRIVES_WAIT);
        let _ = self.shared.world.seen("wait for drives", change).await?; // dropped unsent only when the volume goes
        Ok(())
    }

    /// Waits for `end`, for `long` at most if the patience is short.
    pub(super) async fn wait_for<F: Future + Unpin>(&self, end: F, long: Duration) -> Result<F::Output, IoError> {
        match self.patience {
            Patience::Endless => Ok(end.await),
            Patience::Short => match select(end, Box::pin(self.shared.world.sleep(long))).await {
                Either::Left((output, _)) => Ok(output),
                Either::Right(_) => Err(IoError::NotNow),
            },
        }
    }

    /// How much is left of `long` since then.
    pub(super) fn time_left(&self, long: Duration, since: Tick) -> Duration {
        long.saturating_sub(self.shared.world.now().0.saturating_sub(since.0))
    }

    /// Whether the steps of another server's request have taken so long that the asker has to say whether it still
    /// wants the others.
    pub(super) fn has_taken_long(&self, since: Tick) -> bool {
        self.patience == Patience::Short && self.time_left(STEPS_WAIT, since).is_zero()
    }

    /// The turn of a place, once it has come, if the asker still wants it.
    pub(super) async fn turn(&self, place: Queued, asker: &Asker) -> Result<Turn, IoError> {
        let order = &self.shared.order;
        let turn = match place {
            Queued::First(turn) => turn,
            Queued::Behind(behind) => {
                let number = behind.number();
                self.wait_behind(Box::pin(behind.turn()), || order.is_held_up(number)).await?
            }
        };
        match asker.is_waiting() {
            true => Ok(turn),
            false => Err(IoError::NotNow), // nothing of the request is done, and its asker has gone
        }
    }

    /// Waits for the end of others' changes: for a moment only once one of these waits for drives, else for
    /// [`LINE_WAIT`] at most.
    async fn wait_behind<F: Future + Unpin>(
        &self,
        mut end: F,
        is_held_up: impl Fn() -> bool,
    ) -> Result<F::Output, IoError> {
        let since = self.shared.world.now();
        loop {
            let ended = self.wait_for(&mut end, DRIVES_WAIT);
            match self.shared.world.seen("wait for writes of the same blocks", ended).await {
                Err(_) if !is_held_up() && self.shared.world.now().0 - since.0 < LINE_WAIT => {
                    self.lock().serves()?; // if another server leads by now, that server has to be asked
                }
                outcome => return outcome,
            }
        }
    }

    /// Returns when the changes of these blocks that are under way now have ended.
    pub(super) async fn until_ended(&self, blocks: Blocks) -> Result<(), IoError> {
        let met = self.shared.order.under_way(blocks.first, blocks.count);
        match met.is_empty() {
            true => Ok(()),
            false => self.wait_behind(Box::pin(join_all(met)), || self.is_lent(blocks)).await.map(drop),
        }
    }

    /// Waits before a read. Returns when
    /// 1. this server has a lease, so that it knows of each snapshot that was answered before;
    /// 2. no write is queued any more that was queued [`LONG`] before: the client that left the write there may have
    ///    gone on by another gateway, and is promised that no earlier write is done behind its requests there;
    /// 3. no write is under way that a snapshot may show: the read could return data older than the snapshot's;
    /// 4. if the patience is short, no write is under way that waits for drives: [`Group::until_ended`] would refuse
    ///    the read each time that it's asked again.
    pub(super) async fn until_readable(&self, blocks: Blocks) -> Result<(), IoError> {
        let since = self.shared.world.now();
        if !self.may_serve() {
            self.shared.world.seen("wait for the lease", Box::pin(self.until_it_may_serve(since))).await?;
        }
        let left = self.shared.order.in_line_since(blocks.first, blocks.count, Tick(since.0.saturating_sub(LONG)));
        if !left.is_empty() {
            self.wait_behind(Box::pin(join_all(left)), || self.is_lent(blocks)).await?;
        }
        let may_be_shown = self.shared.order.may_be_in_snapshot(blocks.first, blocks.count);
        match may_be_shown || self.patience == Patience::Short && self.is_lent(blocks) {
            true => self.until_ended(blocks).await,
            false => Ok(()),
        }
    }

    async fn until_it_may_serve(&self, since: Tick) -> Result<(), IoError> {
        while !self.may_serve() {
            if self.patience == Patience::Short && self.time_left(DRIVES_WAIT, since).is_zero() {
                return Err(IoError::NotNow);
            }
            self.shared.world.sleep(MOMENT).await;
            self.lock().serves()?;
        }
        Ok(())
    }

    fn is_lent(&self, blocks: Blocks) -> bool {
        self.shared.order.is_lent(blocks.first, blocks.count)
    }

    /// Waits for a drive to come or go, without blocking drives that must catch up. A write that some copies have
    /// (`begun`) may have been seen: it keeps its turn, or it would land again after newer writes.
    pub(super) async fn wait_for_copies(
        &self,
        turn: Turn,
        asker: &Asker,
        mut change: oneshot::Receiver<()>,
        begun: bool,
        blocks: Blocks,
    ) -> Result<Turn, IoError> {
        if begun {
            let for_drives = async {
                match self.wait(&mut change).await {
                    Ok(()) => Ok(()),
                    Err(_) => self.for_what_has_begun(asker).wait(change).await,
                }
            };
            return lent(turn, &Asker::present(), for_drives).await.map(|(turn, ())| turn); // even if the asker has gone
        }
        drop(turn);
        self.wait(change).await?;
        // Of another server's request it isn't known here whether its asker still waits.
        match self.patience == Patience::Endless && asker.is_waiting() {
            true => self.turn(self.line_up(blocks), asker).await,
            false => Err(IoError::NotNow),
        }
    }
}

/// Waits with a turn that is lent meanwhile. The turn is given up if its asker has gone by then.
pub(super) async fn lent<T>(
    turn: Turn,
    asker: &Asker,
    wait: impl Future<Output = Result<T, IoError>>,
) -> Result<(Turn, T), IoError> {
    turn.lend();
    let output = wait.await?;
    if !asker.is_waiting() {
        return Err(IoError::NotNow);
    }
    turn.reclaim().await;
    Ok((turn, output))
}
