//! Once nothing goes wrong any more: the volume becomes healthy by itself, scrub finds nothing left to repair, all copies
//! are equal, and what is given back is free again, as is everything once the volume was removed.

use super::agreement::{Agreement, Status};
use super::record::{Record, VolumeState};
use super::server::{Server, drive_id};
use crate::world::SimWorld;
use std::collections::BTreeSet;
use std::time::Duration;
use tepal_codec::checksum::crc;
use tepal_drive::world::Clock;
use tepal_drive::{Drive, DriveError, Loss, Mark};
use tepal_engine::{OpenVolumeError, ScrubSummary, VolumeHealth};
use tepal_model::history::FIRST_EPOCH;
use tepal_model::{BLOCK, DriveId, EXTENT, IoError};

/// What has not come right.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Unsettled {
    #[error("after {waited:?} without faults the volume is {health:?}")]
    NotHealthy { waited: Duration, health: VolumeHealth },
    #[error("scrub failed: {0}")]
    Scrub(IoError),
    #[error("a scrub {when} found {found:?}")]
    ScrubFound { when: &'static str, found: ScrubSummary },
    #[error("a volume opened from nothing: {0}")]
    Open(#[from] OpenVolumeError),
    #[error("copies of block {block} differ: {copies:x?} (drive and CRC of each)")]
    Differ { block: u64, copies: Vec<(DriveId, Option<u32>)> },
    #[error("reading checksums of drive {at} failed: {error}")]
    Sums { at: DriveId, error: DriveError },
    #[error("giving all space back failed: {0}")]
    GiveBack(IoError),
    #[error("{waited:?} after the volume was removed it's {state:?}, and drives {left:?} hold something of it")]
    NotRemoved { waited: Duration, state: VolumeState, left: Vec<usize> },
    #[error("the volume was removed, and drive {at} keeps {marks:?}")]
    Marks { at: usize, marks: Vec<Mark> },
    #[error(
        "{waited:?} after all snapshots were removed drives {left:?} hold more than the volume shows: extents held and seen"
    )]
    NotGivenBack { waited: Duration, left: Vec<(usize, u64, u64)> },
    #[error("drive {at} was lost when it was closed: {loss}")]
    Close { at: usize, loss: Loss },
    #[error("drive {at} holds {used} bytes after everything was given back, {unaccounted} slots are unaccounted for")]
    Space { at: usize, used: u64, unaccounted: i64 },
}

/// How long the volume may take.
const PATIENCE: Duration = Duration::from_secs(600);

/// Once the volume was removed: waits until nothing of it is left to do, and every drive that isn't retired is up.
pub async fn removal_ends(server: &Server, agreement: &Agreement, record: &Record) -> Result<(), Unsettled> {
    let begun = server.world.now().0;
    let drives = || server.drives().filter(|(at, _)| !matches!(agreement.status(drive_id(*at)), Status::Retired(_)));
    loop {
        let left: Vec<usize> = drives().filter(|(_, drive)| drive.usage().used > 0).map(|(at, _)| at).collect();
        if record.state() == VolumeState::Gone && agreement.all_are_settled() && left.is_empty() {
            break;
        }
        let waited = server.world.now().0 - begun;
        if waited > PATIENCE {
            return Err(Unsettled::NotRemoved { waited, state: record.state(), left });
        }
        server.world.sleep(Duration::from_millis(50)).await;
    }
    let marked = drives().find(|(_, drive)| !drive.marks().is_empty());
    if let Some((at, drive)) = marked {
        return Err(Unsettled::Marks { at, marks: drive.marks() });
    }
    drives_are_empty(server).await
}

/// Waits until every drive that isn't retired is up, and the copies have been compared.
pub async fn become_healthy(server: &Server, agreement: &Agreement, drives: usize) -> Result<(), Unsettled> {
    let begun = server.world.now().0;
    loop {
        let up = (0..drives).all(|at| !matches!(agreement.status(drive_id(at)), Status::Away(_)));
        let retired = (0..drives).any(|at| matches!(agreement.status(drive_id(at)), Status::Retired(_)));
        let health = server.volume().health();
        let settled =
            if retired { server.volume().recovery().unresolved_regions == 0 } else { health == VolumeHealth::Healthy };
        if up && settled {
            return Ok(());
        }
        let waited = server.world.now().0 - begun;
        if waited > PATIENCE {
            return Err(Unsettled::NotHealthy { waited, health });
        }
        server.world.sleep(Duration::from_millis(50)).await;
    }
}

/// `faulty`: drives went wrong before, so a first scrub may find something. `losing`: beyond what the layout tolerates.
pub async fn scrub_clean(server: &Server, faulty: bool, losing: bool) -> Result<(), Unsettled> {
    for (when, may_repair) in [("at first", faulty), ("after the first one", false)] {
        let found = server.volume().scrub(|_| {}).await.map_err(Unsettled::Scrub)?;
        server.world.core().note(2, || format!("scrub {when}: {found:?}"));
        let repaired = found.repaired > 0 || found.unequal_extents > 0;
        let is_damaged = !found.lost.is_empty() || !found.unrepaired.is_empty();
        if (repaired && !may_repair) || (is_damaged && !losing) {
            return Err(Unsettled::ScrubFound { when, found });
        }
    }
    Ok(())
}

/// Every copy that is here says the same of every block, whoever looks.
pub async fn copies_are_equal(server: &Server) -> Result<(), Unsettled> {
    let spec = server.volume().spec();
    let extent = u64::from(spec.layout.extent) / BLOCK;
    let epochs = server.epochs();
    let extents = 0..(spec.size / BLOCK).div_ceil(extent);
    let lines = epochs.history.lines();
    for (number, seen) in extents.flat_map(|number| lines.iter().map(move |seen| (number, seen))) {
        let mut copies = Vec::new();
        for (at, first) in server.volume().copies_at(number * extent * BLOCK) {
            let Some(drive) = server.engine.drive(at) else { continue };
            let mut sums =
                drive.crcs(spec.map, first, extent, seen).await.map_err(|error| Unsettled::Sums { at, error })?;
            if !epochs.heads.is_empty() {
                // Where much is hidden from some readers only, drives may write zeros.
                sums.iter_mut().for_each(|sum| *sum = Some(sum.unwrap_or(crc(&[0; BLOCK as usize]))));
            }
            copies.push((at, sums));
        }
        for nth in 0..extent as usize {
            let of_block: Vec<_> = copies.iter().map(|(at, sums)| (*at, sums[nth])).collect();
            if of_block.iter().any(|(_, sum)| *sum != of_block[0].1) {
                return Err(Unsettled::Differ { block: number * extent + nth as u64, copies: of_block });
            }
        }
    }
    Ok(())
}

/// All snapshots were removed: drives hold as many extents as the volume needs by itself.
pub async fn snapshots_give_back(server: &Server) -> Result<(), Unsettled> {
    let (begun, map) = (server.world.now().0, server.volume().spec().map);
    loop {
        let epochs = server.epochs();
        let newest = epochs.heads.get(&server.volume().id()).map_or(FIRST_EPOCH, |head| head.epoch);
        let head = epochs.history.reader(newest).expect("the volume is a reader of its map");
        let held_and_seen = |(at, drive): (usize, Drive<SimWorld>)| {
            let extents: BTreeSet<u64> = drive.extents_of(map, 0, u64::MAX, false).into_iter().collect();
            let is_seen = |&first: &u64| !drive.is_empty(map, first, EXTENT / BLOCK, head);
            (at, drive.allocated_of(map) / EXTENT, extents.into_iter().filter(is_seen).count() as u64)
        };
        let left: Vec<_> = server.drives().map(held_and_seen).filter(|(_, held, seen)| held != seen).collect();
        let waited = server.world.now().0 - begun;
        if left.is_empty() {
            return Ok(());
        }
        if waited > PATIENCE {
            return Err(Unsettled::NotGivenBack { waited, left });
        }
        server.world.sleep(Duration::from_millis(50)).await;
    }
}

/// Gives everything back of a volume that was at most so large; nothing may be left. `losing`: the block at its end may be damaged.
pub async fn space_returns(server: &Server, most: u64, losing: bool) -> Result<(), Unsettled> {
    match server.volume().clear_past_end().await {
        Err(IoError::Damaged { .. }) if losing => {}
        cleared => cleared.map_err(Unsettled::GiveBack)?,
    }
    server.volume().resize(most);
    server.volume().write_zeroes(0, most, false).await.map_err(Unsettled::GiveBack)?;
    snapshots_give_back(server).await?;
    drives_are_empty(server).await
}

/// No drive that is here holds anything.
pub async fn drives_are_empty(server: &Server) -> Result<(), Unsettled> {
    let drives: Vec<_> = server.drives().collect();
    for (at, drive) in drives {
        drive.close().await.map_err(|loss| Unsettled::Close { at, loss: (*loss).clone() })?;
        let (used, unaccounted) = (drive.usage().used, drive.slots_unaccounted());
        if used != 0 || unaccounted != 0 {
            return Err(Unsettled::Space { at, used, unaccounted });
        }
    }
    Ok(())
}
