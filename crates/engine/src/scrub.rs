//! Scrub of a volume: every copy of every block is read and checked, compared with the others, and repaired.

use crate::holder::Holder;
use crate::map::Column;
use crate::protocol::primary::members::Presence;
use crate::protocol::primary::{Blocks, Group};
use crate::volume::Volume;
use std::collections::BTreeSet;
use tepal_drive::DriveError;
use tepal_drive::world::World;
use tepal_model::{BLOCK, IoError};

/// What a scrub did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScrubSummary {
    /// Blocks on drives of this server, copies counted, damaged ones included.
    pub blocks_checked: u64,
    /// Damaged blocks, copies counted, that were written again from a right copy.
    pub repaired: u64,
    /// Offsets, in bytes, of blocks with no right copy.
    pub lost: Vec<u64>,
    /// The same of damaged blocks of which a drive that is away may have a right copy.
    pub unrepaired: Vec<u64>,
    /// Extents whose copies differed though each matched its checksum: a drive had lost a write.
    pub unequal_extents: u64,
}

/// Blocks that are compared at a time.
const STEP: u64 = 16;

impl<W: World> Volume<W> {
    /// `progress` is told how many blocks, copies counted, are done.
    pub async fn scrub(&self, progress: impl Fn(u64)) -> Result<ScrubSummary, IoError> {
        let mut summary = ScrubSummary::default();
        let spec = self.spec();
        for drive in self.drives_here() {
            let checked = std::cell::Cell::new(summary.blocks_checked);
            let report = drive.scrub(Some(spec.map), |blocks| {
                checked.set(checked.get() + blocks);
                progress(checked.get());
                std::future::ready(())
            });
            let report = match report.await {
                Ok(report) => report,
                Err(DriveError::Lost(loss)) => {
                    if let Some(engine) = self.engine() {
                        engine.lose_met(drive.id(), (*loss).clone()).await;
                    }
                    continue;
                }
                Err(error) => return Err(IoError::Unavailable { reason: error.to_string() }),
            };
            summary.blocks_checked += report.blocks_checked;
            let position = spec.drives.iter().position(|&id| id == drive.id()).expect("a member is in the map");
            for (_, place) in report.damaged {
                self.repair_place(position, place, &mut summary).await;
            }
        }
        for group in self.groups().iter().filter(|group| group.is_mirrored()) {
            summary.unequal_extents += group.compare_copies().await?;
        }
        Ok(summary)
    }

    /// Writes a damaged block of a drive again, by its position in the map.
    async fn repair_place(&self, position: usize, place: u64, summary: &mut ScrubSummary) {
        let (rotation, map) = (self.striping().rotation, self.spec().map);
        let (copy, block) = Column::new(map, 0, rotation.columns()).at_place(place);
        let column = rotation.column_of(position, copy);
        let offset = self.striping().offset_of(column, block * BLOCK);
        let Some(group) = self.seats()[column].group() else {
            tracing::warn!(
                position,
                offset,
                "a damaged block is repaired when the server that leads its column reads it"
            );
            return summary.unrepaired.push(offset);
        };
        match group.repair(block, copy).await {
            Ok(()) => summary.repaired += 1,
            Err(error) if group.may_be_elsewhere(block, copy) => {
                tracing::warn!(position, offset, %error, "a damaged block can't be repaired now");
                summary.unrepaired.push(offset);
            }
            Err(error) => {
                tracing::error!(position, offset, %error, "a damaged block has no right copy");
                summary.lost.push(offset);
            }
        }
    }
}

impl<W: World> Group<W> {
    /// Whether a drive that is away, and may return, may have a right copy of a block that is damaged on one that is here.
    fn may_be_elsewhere(&self, block: u64, damaged: usize) -> bool {
        let state = self.lock();
        let region = self.shared.column.region_of(block);
        state.members.list.iter().enumerate().any(|(at, member)| {
            let is_away = matches!(member.presence, Presence::Leaving | Presence::Missing);
            at != damaged && is_away && !member.missed.contains(region)
        })
    }

    /// Compares all that any drive holds. In how many places the copies differed.
    async fn compare_copies(&self) -> Result<u64, IoError> {
        let column = self.shared.column;
        let regions: BTreeSet<u64> = self.extents().await?.into_iter().map(|first| column.region_of(first)).collect();
        let mut unequal = 0;
        for region in regions {
            self.shared.world.give_way().await;
            let (first, count) = column.blocks_of(region);
            for first in (first..first + count).step_by(STEP as usize) {
                let blocks = Blocks { first, count: STEP };
                if self.holds_any(blocks).await && !self.compare(blocks).await? {
                    unequal += 1;
                }
            }
        }
        Ok(unequal)
    }

    async fn holds_any(&self, blocks: Blocks) -> bool {
        let column = &self.shared.column;
        let copies: Vec<(usize, Holder<W>)> = self.lock().copies_here().collect();
        for (at, drive) in copies {
            if drive.is_empty(column.map, column.place(at, blocks.first), blocks.count).await != Ok(true) {
                return true;
            }
        }
        false
    }
}
