//! A fragment's block that can't be read is decoded from others, and written again.

use super::stripe::Stripe;
use crate::column::background::Stuck;
use crate::column::read::{Failed, damaged};
use crate::column::{Blocks, Group};
use crate::map::ROWS;
use std::sync::atomic::Ordering;
use tepal_drive::world::World;
use tepal_model::IoError;
use tepal_model::buffer::join;

impl<W: World> Group<W> {
    /// Rebuilds blocks in place of one member in the background.
    pub(super) fn rebuild_later(&self, blocks: Blocks, at: usize) {
        let group = self.clone();
        self.shared.world.spawn(Box::pin(async move {
            for block in blocks.each() {
                if let Err(error) = group.rebuild_block(block.first, at).await {
                    tracing::error!(member = at, block = block.first, %error, "a damaged block was not rebuilt");
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
