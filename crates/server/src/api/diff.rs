//! How a snapshot differs from a later one, or from the volume as it is now: by comparing what both hold where drives have noted
//! that one of them may hold something else.
//!
//! It's exact whatever drives keep, and reads what one of the two has had written, taken out or moved since the other. So much as takes
//! a moment is compared for one request, and the asker goes on from there; no more than a piece of each is in memory.

use super::data::{goes_on_from, on_data_thread, place};
use super::extract::{Named, Options};
use super::failure::Failure;
use super::types::{BY_ID, DiffQuery, Difference, DifferenceKind, SnapshotDiff, SnapshotName};
use super::{Shared, snapshots};
use crate::nbd::reader::Reader;
use crate::world::ServerWorld;
use axum::Json;
use axum::extract::State;
use std::time::{Duration, Instant};
use tepal_engine::{Snapshot, Within};
use tepal_metadata::{CopyStatus, HolderRecord, State as ClusterState};
use tepal_model::{BLOCK, IoError, VolumeId};

/// Bytes of each that are compared at once.
const PIECE: u64 = 1 << 20;
/// As far as is looked ahead for what is mapped, and for what may differ.
const LOOK_AHEAD: u64 = 16 << 30;
/// The same where nothing is compared.
const LOOK_UP_AHEAD: u64 = 1 << 42;
/// Bytes that are compared for one answer.
const MOST_COMPARED: u64 = 256 << 20;
/// Runs of one answer.
const MOST_RUNS: usize = 4096;
/// Far less than clients wait.
const WITHIN: Duration = Duration::from_secs(2);

pub async fn show(
    State(context): State<Shared>,
    name: Named,
    Options(DiffQuery { to, offset, epoch, revision, noted }): Options<DiffQuery>,
) -> Result<Json<SnapshotDiff>, Failure> {
    let from = name.snapshot()?;
    let one = snapshots::served(&context, &from).await?;
    let other = match to {
        None => Reader::Volume(one.volume().clone()),
        Some(to) => {
            let to = SnapshotName { volume: format!("{BY_ID}{}", one.volume().id().0), snapshot: to };
            Reader::Snapshot(snapshots::served(&context, &to).await?)
        }
    };
    let _place = place(&context).await?;
    let id = one.volume().id();
    // Both read as zeros there by now: who has a copy of the older one knows otherwise.
    let noted = noted || has_given_up(&context.parts.metadata.state(), id);
    let compare = move |(one, other)| async move {
        match noted {
            true => look_up(one, other, offset).await,
            false => compare(one, other, offset).await,
        }
    };
    match on_data_thread(&context, (one, other), compare).await {
        Ok(found) => goes_on_from(&context, id, (epoch, revision)).map(|()| Json(found)),
        // That it's gone says more than that it can't be read.
        Err(failure) => Err(snapshots::gone(&context, &from).unwrap_or(failure)),
    }
}

/// Whether some of the volume's content was given up, of snapshots too, and drives that failed have their places yet.
fn has_given_up(state: &ClusterState, volume: VolumeId) -> bool {
    let is_given_up = |holder: &HolderRecord| matches!(holder.status, CopyStatus::GivenUp(_));
    state.volumes.get(&volume).is_some_and(|record| {
        let codes = state.maps_of(record).filter(|map| !map.layout.fragments().are_copies());
        codes.flat_map(|map| &map.columns).any(|column| column.holders.iter().any(is_given_up))
    })
}

/// From `offset` on, as far as there's time.
async fn compare(from: Snapshot<ServerWorld>, to: Reader, offset: u64) -> Result<SnapshotDiff, IoError> {
    let (from_size, to_size) = (from.size(), to.size());
    let mut changes = Changes { from: from.clone(), to: to.clone(), until: 0, is_changed: false };
    let (mut one, mut other) = (Side::new(Reader::Snapshot(from)), Side::new(to));
    let mut runs = Runs::default();
    let (mut at, mut compared) = (offset, 0);
    let began = Instant::now();
    while at < to_size && runs.0.len() < MOST_RUNS && compared < MOST_COMPARED && began.elapsed() < WITHIN {
        changes.look(at).await?;
        if !changes.is_changed {
            at = changes.until;
            continue;
        }
        one.look(at).await?;
        other.look(at).await?;
        let end = one.until.min(other.until).min(changes.until).min(to_size);
        if !one.is_mapped && !other.is_mapped {
            at = end;
            continue;
        }
        let end = end.min((at / PIECE + 1) * PIECE);
        let (before, after) = (one.bytes(at, end).await?, other.bytes(at, end).await?);
        runs.compare(at, &before, &after);
        compared += end - at;
        at = end;
    }
    Ok(SnapshotDiff { from_size, to_size, runs: runs.0, next: (at < to_size).then_some(at) })
}

/// The same without reading what is there: all that drives have noted as written or taken out.
async fn look_up(from: Snapshot<ServerWorld>, to: Reader, offset: u64) -> Result<SnapshotDiff, IoError> {
    let (from_size, to_size) = (from.size(), to.size());
    let shared = from_size.min(to_size);
    let (mut runs, mut at, began) = (Vec::<Difference>::new(), offset, Instant::now());
    let is_enough = |runs: &Vec<Difference>| runs.len() >= MOST_RUNS || began.elapsed() >= WITHIN;
    while at < to_size && !is_enough(&runs) {
        // Past the end of the older one, which has nothing there, only what is there has changed.
        let (length, is_shared) = match at < shared {
            true => ((shared - at).min(LOOK_UP_AHEAD), true),
            false => ((to_size - at).min(LOOK_UP_AHEAD), false),
        };
        let within = Within { offset: at, length, limit: MOST_RUNS };
        let changed = match is_shared {
            true => to.changed_since(&from, within).await?,
            false => to.block_status(within).await?,
        };
        for run in changed {
            let end = at + run.length;
            if run.mapped && is_shared {
                // What is there now of a run that has changed.
                while at < end && (at == offset || !is_enough(&runs)) {
                    let limit = MOST_RUNS - runs.len();
                    for now in to.block_status(Within { offset: at, length: end - at, limit }).await? {
                        let kind = if now.mapped { DifferenceKind::Data } else { DifferenceKind::Zero };
                        runs.push(Difference { offset: at, length: now.length, kind });
                        at += now.length;
                    }
                }
            } else {
                if run.mapped {
                    runs.push(Difference { offset: at, length: run.length, kind: DifferenceKind::Data });
                }
                at = end;
            }
            if is_enough(&runs) {
                break;
            }
        }
    }
    Ok(SnapshotDiff { from_size, to_size, runs, next: (at < to_size).then_some(at) })
}

/// Where the two may differ, with the run that was looked at last.
struct Changes {
    from: Snapshot<ServerWorld>,
    to: Reader,
    until: u64,
    is_changed: bool,
}

impl Changes {
    /// Knows of the run at `at`, which only rises. Past the end of the older one, which has nothing there, all may have changed.
    async fn look(&mut self, at: u64) -> Result<(), IoError> {
        if at < self.until {
            return Ok(());
        }
        let length = self.from.size().min(self.to.size()).saturating_sub(at).min(LOOK_AHEAD);
        let found = match length {
            0 => None,
            _ => self.to.changed_since(&self.from, Within { offset: at, length, limit: 1 }).await?.first().copied(),
        };
        (self.until, self.is_changed) = found.map_or((u64::MAX, true), |run| (at + run.length, run.mapped));
        Ok(())
    }
}

/// One of the two, with the run that was looked at last. Past its end there's a hole.
struct Side {
    reader: Reader,
    until: u64,
    is_mapped: bool,
}

impl Side {
    fn new(reader: Reader) -> Self {
        Side { reader, until: 0, is_mapped: false }
    }

    /// Knows of the run at `at`, which only rises.
    async fn look(&mut self, at: u64) -> Result<(), IoError> {
        if at < self.until {
            return Ok(());
        }
        let length = self.reader.size().saturating_sub(at).min(LOOK_AHEAD);
        let found = match length {
            0 => None,
            _ => self.reader.block_status(Within { offset: at, length, limit: 1 }).await?.first().copied(),
        };
        (self.until, self.is_mapped) = found.map_or((u64::MAX, false), |run| (at + run.length, run.mapped));
        Ok(())
    }

    /// Within the run.
    async fn bytes(&self, at: u64, end: u64) -> Result<Vec<u8>, IoError> {
        match self.is_mapped {
            true => Ok(self.reader.read(at, end - at).await?.concat()),
            false => Ok(vec![0; (end - at) as usize]),
        }
    }
}

/// Ascending. Neighbours differ.
#[derive(Default)]
struct Runs(Vec<Difference>);

impl Runs {
    /// Bytes from `at` on, of both. They are cut where blocks end.
    fn compare(&mut self, at: u64, before: &[u8], after: &[u8]) {
        let mut done = 0;
        while done < after.len() {
            let offset = at + done as u64;
            let length = ((BLOCK - offset % BLOCK) as usize).min(after.len() - done);
            let block = &after[done..done + length];
            if before[done..done + length] != *block {
                let is_zero = block.iter().all(|byte| *byte == 0);
                self.push(offset, length as u64, if is_zero { DifferenceKind::Zero } else { DifferenceKind::Data });
            }
            done += length;
        }
    }

    fn push(&mut self, offset: u64, length: u64, kind: DifferenceKind) {
        match self.0.last_mut() {
            Some(last) if last.offset + last.length == offset && last.kind == kind => last.length += length,
            _ => self.0.push(Difference { offset, length, kind }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_is_told_in_runs_of_blocks_and_what_became_zero_apart() {
        let block = BLOCK as usize;
        let before = vec![7; 6 * block];
        let mut after = before.clone();
        after[0] = 8;
        after[2 * block - 1] = 8;
        after[2 * block..3 * block].fill(0);
        after[5 * block + 1] = 0;
        let mut runs = Runs::default();
        runs.compare(2 * BLOCK, &before, &after);
        let run = |offset, length, kind| Difference { offset: offset * BLOCK, length: length * BLOCK, kind };
        let expected =
            [run(2, 2, DifferenceKind::Data), run(4, 1, DifferenceKind::Zero), run(7, 1, DifferenceKind::Data)];
        assert_eq!(runs.0, expected);
        runs.compare(8 * BLOCK, &[1; 512], &[2; 512]);
        let last = runs.0.last().expect("a run");
        assert_eq!((last.offset, last.length), (7 * BLOCK, BLOCK + 512), "a volume may end within a block");
    }

    #[test]
    fn pieces_that_begin_within_a_block_are_cut_where_it_ends() {
        let mut runs = Runs::default();
        runs.compare(BLOCK - 512, &[0; 1024], &[&[0; 512][..], &[1; 512]].concat());
        assert_eq!(runs.0, [Difference { offset: BLOCK, length: 512, kind: DifferenceKind::Data }]);
    }
}
