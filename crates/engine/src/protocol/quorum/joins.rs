//! A fragment of a quorum layout moves to another drive: one is drained, has failed, or has more than its share.
//!
//! 1. It's agreed, in a new view, that drive B joins the column in the place of A. Gateways that know it count the word of neither: a write
//!    is complete on N - T of the other drives, and a read hears N - T of these. B gets all writes as well.
//! 2. A node whose server knows it answers no gateway that doesn't know it yet.
//! 3. The server of B reads all blocks that have a version from N - T other drives, and writes the latest ones to B. By step 2 these
//!    drives keep no write any more that counts A.
//! 4. It's agreed that B has the place of A.
//!
//! The N - T drives of a write, A or B apart, and N - T drives without A and B have at least N - 2T in common, as any two sets of N - T of
//! the N drives. So who counts neither A nor B sees what is complete by the word of one of them, and the other way round. What is
//! complete by the word of A is on B after step 3. Gateways of before step 1 and of after step 4 are never answered at once: step 3
//! ends with N - T drives that refuse the former.
//!
//! B may come and go: nothing depends on it before step 4, and step 3 begins again where B lacks something.

use super::gateway::Column;
use super::way::{Led, Way};
use crate::engine::{self, Engine};
use crate::places::Placing;
use crate::volume::Map;
use std::ops::Range;
use std::sync::Weak;
use std::time::Duration;
use tepal_drive::world::World;
use tepal_model::IoError;

/// Blocks that are looked at together.
const TOGETHER: u64 = 256;
/// The pause after them, so that clients go first.
const PAUSE: Duration = Duration::from_millis(1);
/// Before a column is looked at again of which too few nodes answered.
const AGAIN: Duration = Duration::from_millis(500);
/// Before something is to be agreed again: by then a newer state is followed.
const AGREE_SOON: Duration = Duration::from_millis(50);

impl<W: World> Engine<W> {
    /// Drives of this server may join columns by now: they get what the others have.
    pub(crate) fn fill_what_joins(&self) {
        for map in self.maps() {
            let Some(led) = map.by_gateways() else { continue };
            for column in 0..map.columns() {
                let joins = map.placed(column).joins.filter(|joins| self.opened(joins.drive).is_some());
                if let Some(joins) = joins.filter(|joins| led.begins_to_fill(column, *joins)) {
                    let (engine, map) = (std::sync::Arc::downgrade(&self.shared), map.clone());
                    self.world().spawn(Box::pin(async move { fill_until_joined(engine, map, column, joins).await }));
                }
            }
        }
    }

    async fn fill_column(&self, map: &Map<W>, led: &Led, column: usize, joins: Placing) -> Result<(), IoError> {
        let volume = self.volumes().into_iter().find(|volume| volume.has(map.id()));
        let way = volume.and_then(|volume| volume.by_gateway(map, led, column)).ok_or(IoError::Stopping)?;
        let mut at = 0;
        while at < way.room() {
            for run in way.have_versions(&(at..way.room())).await? {
                let range = at..at + run.length;
                at = range.end;
                if run.holds {
                    self.fill_range(&way, range, map, (column, joins)).await?;
                }
            }
        }
        // Else it may have been another join that B was filled for.
        if way.is_current() && map.placed(column).joins == Some(joins) { Ok(()) } else { Err(IoError::NotNow) }
    }

    async fn fill_range(
        &self,
        way: &Column<W, Way<W>>,
        range: Range<u64>,
        map: &Map<W>,
        (column, joins): (usize, Placing),
    ) -> Result<(), IoError> {
        for first in (range.start..range.end).step_by(TOGETHER as usize) {
            let count = (range.end - first).min(TOGETHER) as u32;
            match way.fill(first, count).await {
                Ok(_) => {}
                // What the others can't give back the drive that leaves may have, if it comes back.
                Err(IoError::Damaged { .. }) if self.has_failed_before(map, column) => {
                    for block in first..first + u64::from(count) {
                        match way.fill(block, 1).await {
                            Ok(_) => {}
                            Err(IoError::Damaged { .. }) => {
                                tracing::warn!(drive = %joins.drive, map = map.id().0, column, block, "a block of a quorum layout is lost");
                            }
                            Err(error) => return Err(error),
                        }
                    }
                }
                Err(error) => return Err(error),
            }
            self.world().sleep(PAUSE).await;
        }
        Ok(())
    }

    /// Whether the drive that is replaced won't return.
    fn has_failed_before(&self, map: &Map<W>, column: usize) -> bool {
        let placed = map.placed(column);
        placed.holders.get(placed.in_place_of).is_some_and(|leaves| !self.may_return(leaves.drive))
    }
}

/// Until the drive has the place, or doesn't join any more.
async fn fill_until_joined<W: World>(engine: Weak<engine::Shared<W>>, map: Map<W>, column: usize, joins: Placing) {
    let Some(led) = map.by_gateways() else { return };
    let mut is_filled = false;
    while let Some(engine) = engine.upgrade().map(|shared| Engine { shared }) {
        if map.is_cut_off() || map.placed(column).joins != Some(joins) {
            break;
        }
        let pause = if is_filled {
            let view = engine.followed();
            if engine.shared.authority.joined(map.id(), column, joins, view).await {
                break;
            }
            AGREE_SOON
        } else {
            match engine.fill_column(&map, led, column, joins).await {
                Ok(()) => is_filled = true,
                Err(IoError::OutOfSpace) => {
                    tracing::warn!(drive = %joins.drive, map = map.id().0, column, "a drive has no room for what it was to take");
                    engine.shared.authority.cannot_join(map.id(), column, joins).await;
                }
                Err(error) => {
                    tracing::debug!(drive = %joins.drive, map = map.id().0, column, %error, "a drive isn't filled yet");
                }
            }
            if is_filled { Duration::ZERO } else { AGAIN }
        };
        let world = engine.world().clone();
        drop(engine);
        world.sleep(pause).await;
    }
    led.ends_to_fill(column, joins);
}
