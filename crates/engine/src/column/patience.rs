//! How long a request waits at its primary: for its turn, for drives, for copies to be equal.
//!
//! 1. What clients of this server ask waits for as long as it takes, or until they have gone. What other servers ask waits for drives
//!    for a moment ([`DRIVES_WAIT`]), behind those that wait for nobody for some seconds ([`LINE_WAIT`]), and is then to be asked again:
//!    it takes room that requests for other volumes would miss, and a server that was started anew is heard only when its earlier
//!    requests have ended. What is done already is answered once all primaries are in its epoch.
//! 2. Nobody keeps a turn for himself while he waits for drives. A write that has begun lends it, and one that hasn't gives it up. While
//!    copies are made equal it's lent.
//! 3. A turn is taken only for whoever waits still, and one that was given up only for whoever is known to: what nobody wants any more
//!    would land after newer writes of whoever wanted it.

use super::epochs::MOMENT;
use super::order::{Place, Turn};
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
    /// Then it's to be asked again; if it has changed something, it goes on without whoever asked.
    Short,
}

/// For a drive that is just being declared down, or heard; and behind who waits for one.
pub(super) const DRIVES_WAIT: Duration = Duration::from_millis(200);
/// Behind those that wait for nobody. Long, or a request would never have its turn where others are always in line. Not longer, as a server
/// that was started anew is heard only when its earlier requests have ended.
const LINE_WAIT: Duration = Duration::from_secs(5);
/// What has been in line for longer is waited for before a read. Little of what clients do at once takes so long.
const LONG: Duration = Duration::from_millis(100);

/// For the steps of one request: each takes its place when the one before is done.
const STEPS_WAIT: Duration = Duration::from_secs(1);

impl<W: World> Group<W> {
    /// The same group, for a request of another server.
    pub fn for_others(&self) -> Self {
        Group { shared: self.shared.clone(), patience: Patience::Short }
    }

    /// The same group, for what runs in the background: it takes nobody's room while it waits.
    pub(super) fn patient(&self) -> Self {
        Group { shared: self.shared.clone(), patience: Patience::Endless }
    }

    /// The same, for a request that has begun to change something: whoever has no patience is let go.
    pub(super) fn for_what_has_begun(&self, asker: &Asker) -> Self {
        if self.patience == Patience::Short {
            asker.let_go();
        }
        self.patient()
    }

    /// Waits for a change. [`IoError::NotNow`] if that takes too long for whoever waits.
    pub(super) async fn wait(&self, change: impl Future<Output = Result<(), Canceled>> + Unpin) -> Result<(), IoError> {
        let _ = self.wait_for(change, DRIVES_WAIT).await?; // dropped unsent only when the volume goes
        Ok(())
    }

    /// The same, for so long.
    pub(super) async fn wait_for<F: Future + Unpin>(&self, end: F, long: Duration) -> Result<F::Output, IoError> {
        match self.patience {
            Patience::Endless => Ok(end.await),
            Patience::Short => match select(end, Box::pin(self.shared.world.sleep(long))).await {
                Either::Left((output, _)) => Ok(output),
                Either::Right(_) => Err(IoError::NotNow),
            },
        }
    }

    /// How much of so long a time is left.
    pub(super) fn time_left(&self, long: Duration, since: Tick) -> Duration {
        long.saturating_sub(self.shared.world.now().0.saturating_sub(since.0))
    }

    /// Whether the steps of a request have taken so long that whoever asked is to say whether the others are still wanted.
    pub(super) fn has_taken_long(&self, since: Tick) -> bool {
        self.patience == Patience::Short && self.time_left(STEPS_WAIT, since).is_zero()
    }

    /// The turn that a place leads to, once it has come, if it's still wanted.
    pub(super) async fn turn(&self, place: Place, asker: &Asker) -> Result<Turn, IoError> {
        let order = &self.shared.order;
        let turn = match place {
            Place::First(turn) => turn,
            Place::Behind(behind) => {
                let number = behind.number();
                self.wait_behind(Box::pin(behind.turn()), || order.is_held_up(number)).await?
            }
        };
        match asker.is_waiting() {
            true => Ok(turn),
            false => Err(IoError::NotNow), // nothing of it is done, and nobody is there to be told
        }
    }

    /// Waits for the end of what others do: for a moment only once one of them waits for drives, else for [`LINE_WAIT`] at most.
    async fn wait_behind<F: Future + Unpin>(
        &self,
        mut end: F,
        is_held_up: impl Fn() -> bool,
    ) -> Result<F::Output, IoError> {
        let since = self.shared.world.now();
        loop {
            match self.wait_for(&mut end, DRIVES_WAIT).await {
                Err(_) if !is_held_up() && self.shared.world.now().0 - since.0 < LINE_WAIT => {
                    self.lock().serves()?; // if another server leads by now, that one is to be asked
                }
                outcome => return outcome,
            }
        }
    }

    /// Returns when what changes these blocks now has ended.
    pub(super) async fn until_ended(&self, blocks: Blocks) -> Result<(), IoError> {
        let met = self.shared.order.under_way(blocks.first, blocks.count);
        match met.is_empty() {
            true => Ok(()),
            false => self.wait_behind(Box::pin(join_all(met)), || self.is_lent(blocks)).await.map(drop),
        }
    }

    /// Before a read. It returns when
    /// 1. this server has a lease, so that it knows of each snapshot that was answered before;
    /// 2. no write is in line any more that was there [`LONG`] before: who left it there may have gone on by another gateway, and is
    ///    promised that nothing of before is done behind what it does then;
    /// 3. no write is under way that a snapshot may show: the read could return what is older than that;
    /// 4. for whoever has no patience, no write is under way that waits for drives: he would only be let go in
    ///    [`Group::until_ended`], each time that he asks again.
    pub(super) async fn until_readable(&self, blocks: Blocks) -> Result<(), IoError> {
        let since = self.shared.world.now();
        while !self.may_serve() {
            if self.patience == Patience::Short && self.time_left(DRIVES_WAIT, since).is_zero() {
                return Err(IoError::NotNow);
            }
            self.shared.world.sleep(MOMENT).await;
            self.lock().serves()?;
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

    fn is_lent(&self, blocks: Blocks) -> bool {
        self.shared.order.is_lent(blocks.first, blocks.count)
    }

    /// Waits for a drive to come or go, without being in the way of those that must catch up. A write that some copies have (`begun`) may
    /// have been seen: it keeps its turn, or it would land again after newer ones.
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
            return lent(turn, &Asker::present(), for_drives).await.map(|(turn, ())| turn); // whoever asks for it
        }
        drop(turn);
        self.wait(change).await?;
        // Of a request of another server it isn't known here whether anybody still wants it.
        match self.patience == Patience::Endless && asker.is_waiting() {
            true => self.turn(self.line_up(blocks), asker).await,
            false => Err(IoError::NotNow),
        }
    }
}

/// Waits for something with a turn that is lent meanwhile. It's given up if its asker has gone by then.
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
