//! Scrub of a volume: every copy of every block is read and checked, compared with the others, and repaired.

use crate::map::Piece;
use crate::volume::Volume;
use std::collections::BTreeSet;
use tepal_drive::world::World;
use tepal_drive::{Drive, DriveError};
use tepal_model::{BLOCK, EXTENT, IoError};

/// What a scrub did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScrubSummary {
    pub blocks_checked: u64,
    pub repaired: u64,
    /// Offsets, in bytes, of blocks with no right copy.
    pub lost: Vec<u64>,
    /// Extents whose copies differed though each matched its checksum: a drive had lost a write.
    pub unequal_extents: u64,
}

impl<W: World> Volume<W> {
    /// `progress` is told how many blocks, copies counted, are done.
    pub async fn scrub(&self, progress: impl Fn(u64)) -> Result<ScrubSummary, IoError> {
        let mut summary = ScrubSummary::default();
        let (drives, map) = {
            let state = self.lock();
            let here = state.members.list.iter().enumerate();
            let here: Vec<(usize, Drive<W>)> = here.filter_map(|(at, m)| m.drive().cloned().map(|d| (at, d))).collect();
            (here, state.spec.map)
        };
        for (at, drive) in drives {
            let checked = std::cell::Cell::new(summary.blocks_checked);
            let report = drive.scrub(Some(map), |blocks| {
                checked.set(checked.get() + blocks);
                progress(checked.get());
                std::future::ready(())
            });
            let report = match report.await {
                Ok(report) => report,
                Err(DriveError::Lost(loss)) => {
                    self.lose(vec![(drive.id(), loss)]).await;
                    continue;
                }
                Err(error) => return Err(IoError::Unavailable { reason: error.to_string() }),
            };
            summary.blocks_checked += report.blocks_checked;
            for (_, there) in report.damaged {
                let (block, copy) = self.shared.map.volume_block(at, there);
                match self.repair(block, copy).await {
                    Ok(()) => summary.repaired += 1,
                    Err(error) => {
                        tracing::error!(drive = %drive.id(), block, %error, "a damaged block has no right copy");
                        summary.lost.push(block * BLOCK);
                    }
                }
            }
        }
        if self.shared.map.rotation.copies() > 1 {
            self.compare_copies(&mut summary).await?;
        }
        Ok(summary)
    }

    async fn compare_copies(&self, summary: &mut ScrubSummary) -> Result<(), IoError> {
        let map = self.shared.map;
        let regions: BTreeSet<u64> = {
            let state = self.lock();
            let here = state.members.list.iter().enumerate().filter_map(|(at, m)| m.drive().map(|drive| (at, drive)));
            let held = here.flat_map(|(at, drive)| {
                let extents = drive.extents_of(state.spec.map).into_iter();
                extents.flat_map(move |first| map.volume_runs(at, first, EXTENT / BLOCK))
            });
            held.map(|(first, _)| map.region_of(first)).collect()
        };
        for region in regions {
            self.shared.world.give_way().await;
            for piece in map.pieces_of(region) {
                if self.holds_any(piece) && !self.compare(piece).await? {
                    summary.unequal_extents += 1;
                }
            }
        }
        Ok(())
    }

    fn holds_any(&self, piece: Piece) -> bool {
        let state = self.lock();
        (0..self.shared.map.rotation.copies()).any(|copy| {
            let (at, first) = self.shared.map.place(piece, copy);
            let drive = state.members.list[at].drive();
            drive.is_some_and(|drive| {
                drive.present(state.spec.map, first, piece.count, u64::MAX).iter().any(|run| run.1)
            })
        })
    }
}
