//! What copies hold, found without reading their data.

use crate::column::background::failed;
use crate::column::read::{Failed, Part};
use crate::column::{Blocks, Group};
use crate::holder::Holder;
use crate::runs::add_runs;
use std::collections::BTreeSet;
use tepal_drive::DriveError;
use tepal_drive::world::World;
use tepal_model::{IoError, Lineage};

impl<W: World> Group<W> {
    /// Which blocks hold something, as runs.
    pub(in crate::protocol) async fn held_by_copies(&self, parts: &[Part<W>]) -> Result<Vec<(u64, bool)>, Failed> {
        let column = &self.shared.column;
        let mut runs = Vec::new();
        for Part { drive, blocks, seen, .. } in parts {
            match drive.present(column.map, column.place(blocks.first), blocks.count, seen).await {
                Ok(found) => runs.extend(found),
                Err(error) => return Err(failed(drive, error)),
            }
        }
        Ok(runs)
    }

    /// Which blocks may differ between two readers, as runs: blocks of which a copy has something that one of the
    /// readers doesn't see. What a copy shows is right for both readers, whichever copy it is.
    pub(in crate::protocol) async fn differing_on_copies(
        &self,
        parts: &[Part<W>],
        before: &Lineage,
    ) -> Result<Vec<(u64, bool)>, Failed> {
        let mut runs = Vec::new();
        for Part { drive, blocks, seen, .. } in parts {
            let changed =
                self.changed_at(drive, *blocks, (before, seen)).await.map_err(|error| failed(drive, error))?;
            add_runs(&mut runs, blocks.count, &changed);
        }
        Ok(runs)
    }

    /// The same of one copy: the blocks that may differ, numbered from the first one.
    pub(in crate::protocol) async fn changed_at(
        &self,
        drive: &Holder<W>,
        blocks: Blocks,
        (one, other): (&Lineage, &Lineage),
    ) -> Result<BTreeSet<u64>, DriveError> {
        let (map, place) = (self.shared.column.map, self.shared.column.place(blocks.first));
        let unshared: Vec<Lineage> =
            [one.unshared_with(other), other.unshared_with(one)].into_iter().flatten().collect();
        let found = drive.epochs_of(map, place, blocks.count).await?;
        let mut changed = BTreeSet::new();
        if !found.iter().any(|&epoch| unshared.iter().any(|part| part.sees(epoch))) {
            return Ok(changed);
        }
        for part in &unshared {
            changed.extend(drive.held(map, place, blocks.count, part).await?);
        }
        // Blocks that have been taken out only hide older ones.
        if let Some(shared) = one.shared_with(other) {
            let held = drive.held(map, place, blocks.count, &shared).await?;
            for reader in [one, other] {
                let shown = drive.held(map, place, blocks.count, reader).await?;
                changed.extend(held.difference(&shown));
            }
        }
        Ok(changed)
    }

    /// The first blocks of the extents that hold anything, of all copies that are here. With `noted`, also of the
    /// extents that have taken requests.
    pub(in crate::protocol) async fn extents_of_copies(&self, noted: bool) -> Result<BTreeSet<u64>, IoError> {
        let column = self.shared.column;
        let copies: Vec<Holder<W>> = self.lock().members.here().cloned().collect();
        let mut extents = BTreeSet::new();
        for drive in copies {
            let held = match drive.extents_of(column.map, column.places_of_copies(), noted).await {
                Ok(held) => held,
                Err(DriveError::Lost(loss)) => {
                    self.lose(vec![(drive.id(), loss)]).await;
                    continue;
                }
                Err(error) => return Err(IoError::Unavailable { reason: error.to_string() }),
            };
            extents.extend(held.into_iter().map(|first| column.at_place(first).1));
        }
        Ok(extents)
    }
}
