//! Scrubs of volumes: one at a time for each, in the background, asked for by people or because a drive is doubtful.

use super::pace::Pace;
use super::seen::{Found, who_sees};
use crate::api_types::{DamagedSnapshot, Range, Scrub, ScrubState};
use crate::data_threads::DataThreads;
use crate::observed::Observations;
use crate::world::ServerWorld;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tepal_engine::{ScrubSummary, Volume};
use tepal_metadata::Metadata;
use tepal_model::{BLOCK, Epoch, VolumeId};

/// The scrubs that run, and the last one of each volume.
#[derive(Clone)]
pub struct Scrubs {
    all: Arc<Mutex<BTreeMap<VolumeId, Progress>>>,
    threads: Arc<DataThreads>,
    metadata: Metadata,
    observations: Observations,
}

#[derive(Clone)]
struct Progress {
    blocks: Arc<AtomicU64>,
    pace: Arc<Pace>,
    begun_unix_ms: u64,
    total_bytes: u64,
    outcome: Outcome,
}

#[derive(Clone)]
enum Outcome {
    Running,
    Done { summary: ScrubSummary, found: Found, unix_ms: u64 },
    Failed(String),
}

const LOOK: Duration = Duration::from_millis(200);
const CUT_OFF: &str = "it was cut off; the server's log may say why";

/// Ends with its task, however that ends: one that panics must not be said to run for ever.
struct Running {
    scrubs: Scrubs,
    id: VolumeId,
    outcome: Outcome,
}

impl Running {
    fn end(mut self, outcome: Outcome) {
        self.outcome = outcome;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.scrubs.end(self.id, self.outcome.clone());
    }
}

impl Scrubs {
    pub fn new(threads: Arc<DataThreads>, metadata: Metadata, observations: Observations) -> Self {
        Scrubs { all: Arc::default(), threads, metadata, observations }
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<VolumeId, Progress>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins one, unless one runs: that takes no longer than this one should from now on. `take`: how long it may take; as fast as it
    /// goes, if that isn't said.
    pub fn start(&self, volume: Volume<ServerWorld>, take: Option<Duration>) {
        let id = volume.id();
        let Some((blocks, pace)) = self.begin(id, volume.allocated(), take) else { return };
        let running = Running { scrubs: self.clone(), id, outcome: Outcome::Failed(CUT_OFF.to_owned()) };
        let (observed, metadata) = (self.observations.of(id), self.metadata.clone());
        // The last thread has the fewest connections.
        self.threads.spawn_on(self.threads.count() - 1, move || async move {
            let paced = |done| {
                blocks.store(done, Ordering::Relaxed);
                pace.keep(done * BLOCK)
            };
            let outcome = match volume.scrub_paced(paced).await {
                Ok(summary) => {
                    let state = metadata.state();
                    let snapshots = state.snapshots_of(id).map(|it| (it.epoch, volume.snapshot(it.epoch, it.size)));
                    let found = who_sees(&volume, snapshots.collect(), &summary).await;
                    observed.damaged(None).replace(&[found.lost.as_slice(), &found.unrepaired].concat());
                    for (epoch, offsets) in &found.snapshots {
                        observed.damaged(Some(*epoch)).replace(offsets);
                    }
                    Outcome::Done { summary, found, unix_ms: unix_ms() }
                }
                Err(error) => Outcome::Failed(error.to_string()),
            };
            running.end(outcome);
        });
    }

    /// Has one, and waits for its end. One that runs already has perhaps passed what this is for.
    pub async fn run(&self, volume: Volume<ServerWorld>) -> Scrub {
        let (id, name) = (volume.id(), volume.spec().name);
        self.ended(id, &name).await;
        self.start(volume, None);
        self.ended(id, &name).await
    }

    async fn ended(&self, id: VolumeId, name: &str) -> Scrub {
        loop {
            match self.report(id, name) {
                Scrub { state: ScrubState::Running, .. } => tokio::time::sleep(LOOK).await,
                ended => return ended,
            }
        }
    }

    /// Notes that a scrub begins; `None` if one runs already.
    fn begin(&self, id: VolumeId, total_bytes: u64, take: Option<Duration>) -> Option<(Arc<AtomicU64>, Arc<Pace>)> {
        let mut all = self.all();
        if let Some(progress) = all.get(&id).filter(|progress| matches!(progress.outcome, Outcome::Running)) {
            progress.pace.hurry(take);
            return None;
        }
        let (blocks, pace) = (Arc::new(AtomicU64::new(0)), Arc::new(Pace::new(total_bytes, take)));
        let (begun_unix_ms, outcome) = (unix_ms(), Outcome::Running);
        all.insert(id, Progress { blocks: blocks.clone(), pace: pace.clone(), begun_unix_ms, total_bytes, outcome });
        Some((blocks, pace))
    }

    fn end(&self, id: VolumeId, outcome: Outcome) {
        if let Some(progress) = self.all().get_mut(&id) {
            progress.outcome = outcome;
        }
    }

    /// Of those that are still there, by their names of now.
    fn damaged_snapshots(&self, id: VolumeId, found: BTreeMap<Epoch, Vec<u64>>) -> Vec<DamagedSnapshot> {
        let state = self.metadata.state();
        let damaged = state.snapshots_of(id).filter_map(|snapshot| {
            let offsets = found.get(&snapshot.epoch).filter(|offsets| !offsets.is_empty())?;
            Some(DamagedSnapshot { name: snapshot.name.clone(), damaged: ranges(offsets.clone()) })
        });
        damaged.collect()
    }

    /// The one that runs, or the last one.
    pub fn report(&self, id: VolumeId, volume: &str) -> Scrub {
        let never = Scrub {
            volume: volume.to_owned(),
            volume_id: id.0,
            state: ScrubState::Never,
            checked_bytes: 0,
            total_bytes: 0,
            repaired_blocks: 0,
            checked_drives: Vec::new(),
            unchecked_drives: Vec::new(),
            damaged: Vec::new(),
            unrepaired: Vec::new(),
            damaged_snapshots: Vec::new(),
            error: None,
            done_unix_ms: None,
            begun_unix_ms: None,
            recorded_unix_ms: None,
        };
        let Some(progress) = self.all().get(&id).cloned() else { return never };
        let checked_bytes = progress.blocks.load(Ordering::Relaxed) * BLOCK;
        let total_bytes = progress.total_bytes.max(checked_bytes);
        let begun_unix_ms = Some(progress.begun_unix_ms);
        let known = Scrub { checked_bytes, total_bytes, begun_unix_ms, ..never };
        match progress.outcome {
            Outcome::Running => Scrub { state: ScrubState::Running, ..known },
            Outcome::Failed(error) => Scrub { state: ScrubState::Failed, error: Some(error), ..known },
            Outcome::Done { summary, found, unix_ms } => Scrub {
                state: ScrubState::Done,
                repaired_blocks: summary.repaired,
                checked_drives: summary.drives_checked,
                unchecked_drives: summary.drives_unchecked,
                damaged: ranges(found.lost),
                unrepaired: ranges(found.unrepaired),
                damaged_snapshots: self.damaged_snapshots(id, found.snapshots),
                done_unix_ms: Some(unix_ms),
                ..known
            },
        }
    }
}

fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Blocks by their offsets, those side by side as one range.
fn ranges(blocks: Vec<u64>) -> Vec<Range> {
    union(blocks.into_iter().map(|offset| Range { offset, length: BLOCK }).collect())
}

/// In order, each byte once, and what is side by side as one.
pub fn union(mut ranges: Vec<Range>) -> Vec<Range> {
    ranges.sort_unstable_by_key(|range| range.offset);
    let mut all: Vec<Range> = Vec::new();
    for range in ranges {
        match all.last_mut().filter(|last| range.offset <= last.offset + last.length) {
            Some(last) => last.length = last.length.max(range.offset + range.length - last.offset),
            None => all.push(range),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damaged_blocks_side_by_side_are_told_as_one_range() {
        let told = ranges([9, 3, 4, 5, 4].map(|block| block * BLOCK).to_vec());
        let told: Vec<(u64, u64)> = told.iter().map(|range| (range.offset / BLOCK, range.length / BLOCK)).collect();
        assert_eq!(told, [(3, 3), (9, 1)]);
        assert!(ranges(Vec::new()).is_empty());
    }
}
