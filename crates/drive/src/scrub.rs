//! Scrub: every block that the drive holds is read and checked, so that rot is found while there's a copy to repair from.

use crate::drive::Drive;
use crate::error::DriveError;
use crate::log::change::{BLOCKS, ExtentKey};
use crate::world::World;
use tepal_model::MapId;

/// What a pass found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScrubReport {
    pub blocks_checked: u64,
    /// Blocks that don't match or can't be read: map, and number within what the drive holds of it.
    pub damaged: Vec<(MapId, u64)>,
}

impl<W: World> Drive<W> {
    /// Checks the extents that are mapped when it gets to them, in order of their place on the drive. `only` limits it to
    /// one map. `after_each` is awaited after each extent with its number of blocks: it slows the pass down.
    pub async fn scrub<F: Future<Output = ()>>(
        &self,
        only: Option<MapId>,
        after_each: impl Fn(u64) -> F,
    ) -> Result<ScrubReport, DriveError> {
        let mut report = ScrubReport::default();
        for slot in 0..self.shared.geometry.slots {
            let owner = {
                let state = self.shared.lock();
                state.alive()?;
                state.map.owner(slot)
            };
            let Some(owner) = owner.filter(|owner| only.is_none_or(|map| map == owner.key.map)) else { continue };
            let blocks = u64::from(owner.present.count_ones());
            self.scrub_extent(owner.key, &mut report).await?;
            report.blocks_checked += blocks;
            after_each(blocks).await;
            self.shared.world.give_way().await;
        }
        Ok(report)
    }

    async fn scrub_extent(&self, key: ExtentKey, report: &mut ScrubReport) -> Result<(), DriveError> {
        match self.read(key.map, key.first_block(), BLOCKS.into()).await {
            Ok(_) => Ok(()),
            Err(DriveError::Damaged { blocks }) => {
                report.damaged.extend(blocks.into_iter().map(|block| (key.map, block)));
                Ok(())
            }
            Err(other) => Err(other),
        }
    }
}
