//! A copy of a block that can't be read becomes one that can.

use super::copy::{Copy, Line, Saying, taken_by_both};
use crate::column::Group;
use crate::column::background::Stuck;
use crate::column::read::{Failed, damaged};
use std::sync::atomic::Ordering;
use tepal_drive::world::World;
use tepal_model::{IoError, Taken};

impl<W: World> Group<W> {
    /// Makes a damaged copy of a block right again, from a right copy, if the block wasn't written since. `Damaged` if
    /// no clean copy here is right, `Unavailable` if the damaged copy isn't here, or the others aren't.
    pub(in crate::protocol) async fn repair(&self, block: u64, at: usize) -> Result<(), IoError> {
        let region = self.shared.column.region_of(block);
        loop {
            let turn = self.shared.order.line_up_repair(block, 1).turn().await;
            let (target, unresolved) = {
                let state = self.lock();
                state.serves()?;
                (self.copy(&state, at, block), state.unsure.regions.contains(&region))
            };
            let away = |what: &str| IoError::Unavailable { reason: format!("{what} isn't here") };
            let Some(target) = target else { return Err(away("its drive")) };
            if unresolved {
                drop(turn); // first the region is resolved, which compares checksums only: that says which copy decides
                match self.resolve(region).await {
                    Ok(()) => continue,
                    Err(Stuck::Waits(_)) => return Err(away("a drive that others wait for")),
                    Err(Stuck::Failed(error)) => return Err(error),
                }
            }
            return self.repair_under_turn(&target, block).await;
        }
    }

    async fn repair_under_turn(&self, target: &Copy<W>, block: u64) -> Result<(), IoError> {
        let outcome = self.repair_all_lines(target, block).await;
        if matches!(outcome, Err(Failed::Away)) && self.check_line(target).is_err() {
            // The epochs are over: the damage is looked for again by the current lines.
            let now = {
                let state = self.lock();
                state.serves()?;
                Line::newest(&state.seen.epochs)
            };
            return Box::pin(self.repair_under_turn(&target.on(&now), block)).await;
        }
        match outcome {
            Ok(()) => Ok(()),
            Err(Failed::Io(error)) => Err(error),
            Err(Failed::Lost(id, loss)) => {
                let reason = loss.to_string();
                self.lose(vec![(id, loss)]).await;
                Err(IoError::Unavailable { reason })
            }
            Err(Failed::Away) => Err(IoError::Unavailable { reason: "no other copy is here".to_owned() }),
        }
    }

    async fn repair_all_lines(&self, target: &Copy<W>, block: u64) -> Result<(), Failed> {
        let mut is_lost = false;
        // Others may have the target's data of an older line once more in a newer line.
        let others = self.clean_copies_but(target.drive.id(), block)?;
        for line in self.lines(1, others.iter().chain([target])).await? {
            let target = target.on(&line);
            if target.read(self.shared.column.map, 0, 1).await.is_ok() {
                continue; // the block was written since, or another layer is damaged
            }
            match self.decide_by_another(&target, block, 0).await? {
                true => {
                    self.shared.repaired.fetch_add(1, Ordering::Relaxed);
                    tracing::warn!(drive = %target.drive.id(), block, "a damaged block was written again from another copy");
                }
                false => is_lost = true,
            }
        }
        if is_lost { Err(damaged(block)) } else { Ok(()) }
    }

    /// Whether another copy of a block, which isn't clean, may have the data of a damaged copy: the checksums say so,
    /// or couldn't be compared.
    pub(in crate::protocol) async fn may_have(&self, block: u64, damaged: usize, other: usize) -> bool {
        let (damaged, other) = {
            let state = self.lock();
            (self.copy(&state, damaged, block), self.copy(&state, other, block))
        };
        let (Some(damaged), Some(other)) = (damaged, other) else { return true };
        let Ok(lines) = self.lines(1, std::iter::once(&damaged)).await else { return true };
        let map = self.shared.column.map;
        for line in lines {
            let (damaged, other) = (damaged.on(&line), other.on(&line));
            if damaged.read(map, 0, 1).await.is_ok() {
                continue;
            }
            match (damaged.content(map, 1).await, other.content(map, 1).await) {
                (Ok((wanted, _)), Ok((found, _))) if wanted != found => return false,
                _ => {}
            }
        }
        true
    }

    /// Where the copy that should decide can't be read, another clean copy decides, also about requests: the first
    /// copy's data must not reappear when it can be read later. `false` if no copy can be read.
    pub(super) async fn decide_by_another(&self, source: &Copy<W>, first: u64, nth: usize) -> Result<bool, Failed> {
        let source = source.after(nth);
        for other in self.clean_copies_but(source.drive.id(), first + nth as u64)? {
            match self.make_like(&source, &other.on(&source.line)).await {
                Err(Failed::Io(IoError::Damaged { .. })) => {}
                outcome => return outcome.map(|()| true),
            }
        }
        Ok(false)
    }

    /// Makes one block of a copy the block of another copy, of the same line, with its requests.
    pub(super) async fn make_like(&self, copy: &Copy<W>, other: &Copy<W>) -> Result<(), Failed> {
        let (crcs, _) = other.content(self.shared.column.map, 1).await?;
        let taken = self.taken_like(copy, other).await?;
        self.copy_run(other, copy, 0..1, crcs[0].is_none(), Saying::Those(&taken)).await
    }

    /// The requests of one block of a copy once it's like another.
    pub(super) async fn taken_like(&self, copy: &Copy<W>, other: &Copy<W>) -> Result<Vec<Taken>, Failed> {
        let map = self.shared.column.map;
        let (_, taken) = other.content(map, 1).await?;
        Ok(match self.lines(1, [copy, other].into_iter()).await?.len() {
            1 => taken,
            // In other lines the block stays as it is, and the requests may have been written there.
            _ => taken_by_both(&copy.content(map, 1).await?.1, &taken),
        })
    }
}
