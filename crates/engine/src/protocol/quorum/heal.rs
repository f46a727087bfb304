//! All nodes of a column come to have its latest versions: after one was away, and when a volume is scrubbed.

use super::gateway::Column;
use super::way::{Led, Way};
use crate::engine::Engine;
use crate::scrub::ScrubSummary;
use crate::volume::{Map, Volume};
use std::collections::BTreeSet;
use std::ops::Range;
use std::time::Duration;
use tepal_drive::world::World;
use tepal_model::{BLOCK, DriveId, IoError};

/// Blocks that are looked at together.
const TOGETHER: u64 = 256;
/// The pause after them, so that clients go first.
const PAUSE: Duration = Duration::from_millis(1);
/// Before a column is looked at again of which too few nodes answered.
const AGAIN: Duration = Duration::from_secs(1);

/// How closely nodes are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// Whether they have the same versions.
    AtVersions,
    /// Whether their fragments are right besides.
    AtFragments,
}

impl<W: World> Engine<W> {
    /// A drive is here again: what its nodes have missed meanwhile is written to them.
    pub(crate) fn heal_what_returned(&self, drive: DriveId) {
        if !self.are_all_open() {
            return; // once they are, this is called again
        }
        self.fill_what_joins();
        for map in self.maps().into_iter().filter(|map| map.by_gateways().is_some()) {
            let columns: Vec<usize> = (0..map.columns()).filter(|column| map.placed(*column).has(drive)).collect();
            if columns.is_empty() {
                continue;
            }
            let engine = self.clone();
            self.world().spawn(Box::pin(async move { engine.heal_columns(&map, drive, columns).await }));
        }
    }

    async fn heal_columns(&self, map: &Map<W>, drive: DriveId, columns: Vec<usize>) {
        let Some(led) = map.by_gateways() else { return };
        let Some((_, opening)) = self.opened(drive) else { return };
        led.is_behind(drive, columns.len() as u64);
        let mut left = columns.len() as u64;
        for column in columns {
            loop {
                // It may have gone again, and come back: then that return is seen to.
                if self.opened(drive).is_none_or(|(_, now)| now != opening) || map.is_cut_off() {
                    return;
                }
                let volume = self.volumes().into_iter().find(|volume| volume.has(map.id()));
                let Some(way) = volume.and_then(|volume| volume.by_gateway(map, led, column)) else { return };
                match heal(&way, self.world(), (Look::AtVersions, &BTreeSet::new()), |_| ()).await {
                    Ok(_) => break,
                    Err(error) => {
                        tracing::debug!(%drive, column, %error, "a drive of a quorum layout isn't up to date yet");
                        self.world().sleep(AGAIN).await;
                    }
                }
            }
            left -= 1;
            led.is_behind(drive, left);
        }
    }
}

/// How many blocks were written to nodes that lacked them; it fails unless all of these drives can be healed. Blocks that no node can
/// give back are told of, and passed over.
async fn heal<W: World>(
    column: &Column<W, Way<W>>,
    world: &W,
    closely: (Look, &BTreeSet<DriveId>),
    mut damaged: impl FnMut(u64),
) -> Result<u64, IoError> {
    let (mut at, mut healed) = (0, 0);
    while at < column.room() {
        // Also blocks that hold nothing since: a node may have missed that.
        for run in column.have_versions(&(at..column.room())).await? {
            let range = at..at + run.length;
            at = range.end;
            if run.holds {
                healed += heal_range(column, world, range, closely, &mut damaged).await?;
            }
        }
    }
    Ok(healed)
}

async fn heal_range<W: World>(
    column: &Column<W, Way<W>>,
    world: &W,
    range: Range<u64>,
    (look, healed_drives): (Look, &BTreeSet<DriveId>),
    damaged: &mut impl FnMut(u64),
) -> Result<u64, IoError> {
    let mut healed = 0;
    for first in (range.start..range.end).step_by(TOGETHER as usize) {
        let count = (range.end - first).min(TOGETHER) as u32;
        match column.heal(first, count, look, healed_drives).await {
            Ok(count) => healed += u64::from(count),
            Err(IoError::Damaged { .. }) => {
                for block in first..first + u64::from(count) {
                    match column.heal(block, 1, look, healed_drives).await {
                        Ok(count) => healed += u64::from(count),
                        Err(IoError::Damaged { .. }) => damaged(block),
                        Err(error) => return Err(error),
                    }
                }
            }
            Err(error) => return Err(error),
        }
        world.sleep(PAUSE).await;
    }
    Ok(healed)
}

impl<W: World> Volume<W> {
    /// Compares all fragments of the columns of which this server has the first drive that is up, and writes those again that are wrong.
    pub(crate) async fn scrub_nodes(&self, map: &Map<W>, led: &Led, summary: &mut ScrubSummary) -> Result<(), IoError> {
        let Some(engine) = self.engine() else { return Err(IoError::Stopping) };
        for number in 0..map.columns() {
            let first = map.placed(number).drives().find(|drive| engine.is_up(*drive));
            if first.is_none_or(|drive| engine.opened(drive).is_none()) {
                continue;
            }
            let up: BTreeSet<DriveId> = map.placed(number).drives().filter(|drive| engine.is_up(*drive)).collect();
            let lost = loop {
                let Some(column) = self.by_gateway(map, led, number) else { return Err(IoError::Stopping) };
                let mut lost = Vec::new();
                match heal(&column, engine.world(), (Look::AtFragments, &up), |block| lost.push(block)).await {
                    Ok(healed) => {
                        summary.repaired += healed;
                        break lost;
                    }
                    Err(_) if !column.is_current() => {} // a fragment moves, or has moved
                    Err(error) => return Err(error),
                }
            };
            summary.lost.extend(lost.into_iter().map(|block| map.striping().offset_of(number, block * BLOCK)));
        }
        Ok(())
    }
}
