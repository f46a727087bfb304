//! Scrub: every block that the drive holds is read and checked, so that rot is found while there's a copy to repair from.
//! So are both copies of the table pages that speak of it; these the drive mends by itself.

use crate::drive::Drive;
use crate::error::{DriveError, Loss};
use crate::extent::{BLOCKS, ExtentKey};
use crate::layers::one_layer;
use crate::state::Turn;
use crate::table::{self, TableKind};
use crate::world::{Device, DeviceError, World};
use std::sync::Arc;
use tepal_model::{Buffer, Epoch, MapId};

/// How often a page is looked at while checkpoints write it.
const ATTEMPTS: usize = 4;

/// What a pass found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScrubReport {
    /// Blocks that hold something, damaged ones included.
    pub blocks_checked: u64,
    /// Blocks that don't match or can't be read: map, number within what the drive holds of it, and the epoch of their layer.
    pub damaged: Vec<(MapId, u64, Epoch)>,
    /// Table pages one of whose copies was damaged or an older one.
    pub table_pages_mended: u64,
}

impl<W: World> Drive<W> {
    /// Checks the layers that are mapped when it gets to them, whether anybody sees their blocks or not, in order of their place on the
    /// drive. `only` limits it to one map. `after_each` is awaited after each with its number of blocks: it slows the pass down.
    pub async fn scrub<F: Future<Output = ()>>(
        &self,
        only: Option<MapId>,
        after_each: impl Fn(u64) -> F,
    ) -> Result<ScrubReport, DriveError> {
        let mut report = ScrubReport::default();
        let (mut map_page, mut sum_page) = (None, None);
        for slot in 0..self.shared.geometry.slots {
            let owner = {
                let state = self.shared.lock();
                state.alive()?;
                state.map.owner(slot)
            };
            let Some(owner) = owner.filter(|owner| only.is_none_or(|map| map == owner.key.map)) else { continue };
            for (kind, last) in [(TableKind::Map, &mut map_page), (TableKind::Sums, &mut sum_page)] {
                let page = self.shared.geometry.table(kind).page_of(slot);
                if last.replace(page) != Some(page) {
                    report.table_pages_mended += u64::from(self.mend_page(kind, page).await?);
                }
            }
            let blocks = u64::from(owner.present.count_ones());
            self.scrub_layer(owner.key, &mut report).await?;
            report.blocks_checked += blocks;
            after_each(blocks).await;
            self.shared.world.give_way().await;
        }
        if report.table_pages_mended > 0 {
            self.checkpoint().await?;
        }
        Ok(report)
    }

    /// Has every page of the tables that isn't what it should be written again, as far as that is in memory.
    pub(crate) async fn mend_tables(&self) -> Result<(), Arc<Loss>> {
        let pages = self.shared.lock().map_versions.len() as u32;
        for page in 0..pages {
            self.mend_page(TableKind::Map, page).await?;
        }
        let geometry = &self.shared.geometry;
        let slots = pages.saturating_mul(geometry.map.records_per_page()).min(geometry.slots);
        for page in 0..slots.div_ceil(geometry.sums.records_per_page()) {
            self.mend_page(TableKind::Sums, page).await?;
        }
        self.checkpoint().await
    }

    /// Has the next checkpoint write a page again if one of its copies isn't what it should be. Whether it is so.
    async fn mend_page(&self, kind: TableKind, page: u32) -> Result<bool, Arc<Loss>> {
        for _ in 0..ATTEMPTS {
            let under_way = {
                let state = self.shared.lock();
                state.alive()?;
                (state.checkpoint, state.checkpointer)
            };
            if under_way.1 == Turn::Running {
                self.checkpoint().await?;
                continue;
            }
            let mut found = [None; 2];
            for (copy, found) in found.iter_mut().enumerate() {
                let offset = self.shared.geometry.table(kind).offset(copy, page);
                *found = match self.shared.device.read(offset, Buffer::take(table::PAGE)).await {
                    Ok(bytes) => table::unseal(&bytes, kind, self.shared.label.drive, page),
                    Err(DeviceError::Failed { .. }) => None,
                    Err(gone @ DeviceError::Gone(_)) => return Err(self.shared.lose(gone)),
                };
            }
            {
                let mut state = self.shared.lock();
                if (state.checkpoint, state.checkpointer) != under_way {
                    continue;
                }
                match kind {
                    TableKind::Map => {
                        let written = state.map_versions.get(page as usize).copied();
                        if found != [written; 2] {
                            state.dirty_map_pages.insert(page);
                        }
                        return Ok(found != [written; 2]);
                    }
                    TableKind::Sums if found[0].is_some() && found[0] == found[1] => return Ok(false),
                    // Whoever knows nothing better leaves what is damaged in both copies, or was never written.
                    TableKind::Sums if found == [None; 2] => return Ok(state.sums.rewrite(page)),
                    TableKind::Sums => state.sums.forget(page),
                }
            }
            let slot = self.shared.geometry.sums.slots_of(page).start;
            self.load_sums(slot, true).await.map_err(|error| self.shared.lose(error))?;
            self.shared.lock().sums.rewrite(page);
            return Ok(true);
        }
        Ok(false)
    }

    async fn scrub_layer(&self, key: ExtentKey, report: &mut ScrubReport) -> Result<(), DriveError> {
        let alone = one_layer(key.epoch);
        match self.read(key.map, key.first_block(), BLOCKS.into(), &alone).await {
            Ok(_) => Ok(()),
            Err(DriveError::Damaged { blocks }) => {
                report.damaged.extend(blocks.into_iter().map(|block| (key.map, block, key.epoch)));
                Ok(())
            }
            Err(other) => Err(other),
        }
    }
}
