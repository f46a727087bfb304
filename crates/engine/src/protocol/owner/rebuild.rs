//! A fragment's block that can't be read is decoded from others, and written again.

use super::stripe::Stripe;
use crate::column::background::Stuck;
use crate::column::read::{Failed, damaged};
use crate::column::{Blocks, Group};
use crate::map::ROWS;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tepal_drive::world::{Tick, World};
use tepal_model::IoError;
use tepal_model::buffer::join;

/// For so long nobody tries again to rebuild a block.
const REST: Duration = Duration::from_secs(15);
/// Blocks of a column that are remembered for that.
const MOST_REBUILT: usize = 4096;

impl<W: World> Group<W> {
    /// Rebuilds blocks in place of one member in the background. A rebuild meets the damaged blocks of other members, whose rebuilds meet
    /// this one: where more are damaged than can be, each is tried once in a while.
    pub(super) fn rebuild_later(&self, blocks: Blocks, at: usize) {
        let now = self.shared.world.now();
        let due: Vec<u64> = {
            let rebuilt = &mut self.shared.log.lock().rebuilt;
            rebuilt.retain(|_, until| *until > now);
            let blocks = blocks.each().map(|block| block.first);
            let due = blocks.filter(|block| !rebuilt.contains_key(&(at, *block)));
            // Whoever reads the others looks again.
            let due: Vec<u64> = due.take(MOST_REBUILT.saturating_sub(rebuilt.len())).collect();
            rebuilt.extend(due.iter().map(|block| ((at, *block), Tick(now.0 + REST))));
            due
        };
        if due.is_empty() {
            return;
        }
        let group = self.clone();
        self.shared.world.spawn(Box::pin(async move {
            for block in due {
                match group.rebuild_block(block, at).await {
                    Ok(()) => drop(group.shared.log.lock().rebuilt.remove(&(at, block))),
                    Err(error) => tracing::error!(member = at, block, %error, "a damaged block was not rebuilt"),
                }
            }
            group.retire_if_unreadable(at).await;
        }));
    }

    /// Makes a damaged block right again, in place or in the log, if the block wasn't written since.
    pub(super) async fn rebuild_block(&self, block: u64, at: usize) -> Result<(), IoError> {
        let Some(row) = self.shared.column.row(block) else { return self.repair(block, at).await };
        let stripe = Stripe::numbered(&self.shared.column, row / ROWS);
        let away = |what: &str| IoError::Unavailable { reason: format!("{what} isn't here") };
        loop {
            let blocks = stripe.blocks();
            let turn = self.shared.order.line_up_repair(blocks.first, blocks.count).turn().await;
            let unresolved = {
                let state = self.lock();
                state.serves()?;
                if state.members.list[at].drive().is_none() {
                    return Err(away("its drive"));
                }
                state.unsure.regions.contains(&stripe.region())
            };
            if unresolved {
                drop(turn);
                match self.resolve(stripe.region()).await {
                    Ok(()) => continue,
                    Err(Stuck::Waits(_)) => return Err(away("a drive that others wait for")),
                    Err(Stuck::Failed(error)) => return Err(error),
                }
            }
            match self.rebuild_under_turn(stripe, block, at).await {
                Ok(()) => return Ok(()),
                Err(Failed::Io(error)) => return Err(error),
                Err(Failed::Lost(id, loss)) => {
                    let reason = loss.to_string();
                    self.lose(vec![(id, loss)]).await;
                    return Err(IoError::Unavailable { reason });
                }
                Err(Failed::Away) => return Err(away("enough of the other fragments")),
            }
        }
    }

    async fn rebuild_under_turn(&self, stripe: Stripe, block: u64, at: usize) -> Result<(), Failed> {
        let column = &self.shared.column;
        let row = column.row(block).unwrap_or_default() % ROWS;
        let (copy, fragment) = {
            let state = self.lock();
            let copy = self.copy(&state, at, stripe.rows(&(0..ROWS)).first).ok_or(Failed::Away)?;
            (copy, state.members.list[at].fragment)
        };
        let mut is_lost = false;
        for line in self.lines(ROWS, std::iter::once(&copy)).await? {
            let copy = copy.on(&line);
            if copy.read(column.map, row as usize, 1).await.is_ok() {
                continue; // the block was written since, or another layer is damaged
            }
            let row = row..row + 1;
            let sums = self.sums_in_place(&copy.drive, stripe.rows(&row), &line.seen).await?;
            match self.decoded(stripe, fragment, &row, &line.seen, (Some(at), Some(&sums))).await {
                Ok(found) => {
                    self.write_run(&copy, &row, join(&found)).await?;
                    self.shared.repaired.fetch_add(1, Ordering::Relaxed);
                    tracing::warn!(drive = %copy.drive.id(), block, "a damaged block was decoded from other fragments and written again");
                }
                Err(Failed::Io(IoError::Damaged { .. })) => is_lost = true,
                Err(error) => return Err(error),
            }
        }
        if is_lost { Err(damaged(column.logical(block))) } else { Ok(()) }
    }
}
