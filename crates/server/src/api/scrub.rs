//! Scrubs of volumes: one at a time for each, in the background.

use super::extract::Named;
use super::failure::Failure;
use super::types::{Range, Scrub, ScrubState};
use super::{Shared, volumes};
use axum::Json;
use axum::extract::State;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tepal_engine::ScrubSummary;
use tepal_model::{BLOCK, VolumeId};

/// The scrubs that run, and the last one of each volume.
#[derive(Clone, Default)]
pub struct Scrubs(Arc<Mutex<BTreeMap<VolumeId, Progress>>>);

#[derive(Clone)]
struct Progress {
    blocks: Arc<AtomicU64>,
    total_bytes: u64,
    outcome: Outcome,
}

#[derive(Clone)]
enum Outcome {
    Running,
    Done(ScrubSummary),
    Failed(String),
}

impl Scrubs {
    fn all(&self) -> MutexGuard<'_, BTreeMap<VolumeId, Progress>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a scrub begins; `None` if one runs already.
    fn begin(&self, id: VolumeId, total_bytes: u64) -> Option<Arc<AtomicU64>> {
        let mut all = self.all();
        if all.get(&id).is_some_and(|progress| matches!(progress.outcome, Outcome::Running)) {
            return None;
        }
        let blocks = Arc::new(AtomicU64::new(0));
        all.insert(id, Progress { blocks: blocks.clone(), total_bytes, outcome: Outcome::Running });
        Some(blocks)
    }

    fn end(&self, id: VolumeId, outcome: Outcome) {
        if let Some(progress) = self.all().get_mut(&id) {
            progress.outcome = outcome;
        }
    }

    fn report(&self, id: VolumeId, volume: &str) -> Scrub {
        let never = Scrub {
            volume: volume.to_owned(),
            state: ScrubState::Never,
            checked_bytes: 0,
            total_bytes: 0,
            repaired_blocks: 0,
            damaged: Vec::new(),
            error: None,
        };
        let Some(progress) = self.all().get(&id).cloned() else { return never };
        let checked_bytes = progress.blocks.load(Ordering::Relaxed) * BLOCK;
        let total_bytes = progress.total_bytes.max(checked_bytes);
        let known = Scrub { checked_bytes, total_bytes, ..never };
        match progress.outcome {
            Outcome::Running => Scrub { state: ScrubState::Running, ..known },
            Outcome::Failed(error) => Scrub { state: ScrubState::Failed, error: Some(error), ..known },
            Outcome::Done(summary) => Scrub {
                state: ScrubState::Done,
                repaired_blocks: summary.repaired,
                damaged: summary.lost.iter().map(|&offset| Range { offset, length: BLOCK }).collect(),
                ..known
            },
        }
    }
}

pub async fn start(State(context): State<Shared>, name: Named) -> Result<Json<Scrub>, Failure> {
    let volume = volumes::served(&context, &name.0)?;
    let id = volume.id();
    if let Some(blocks) = context.scrubs.begin(id, volume.allocated()) {
        let (scrubs, observed) = (context.scrubs.clone(), context.observations.of(id));
        // The last thread has the fewest connections.
        context.parts.threads.spawn_on(context.parts.threads.count() - 1, move || async move {
            let outcome = match volume.scrub(|done| blocks.store(done, Ordering::Relaxed)).await {
                Ok(summary) => {
                    observed.damaged().replace(&summary.lost);
                    Outcome::Done(summary)
                }
                Err(error) => Outcome::Failed(error.to_string()),
            };
            scrubs.end(id, outcome);
        });
    }
    Ok(Json(context.scrubs.report(id, &name.0)))
}

pub async fn show(State(context): State<Shared>, name: Named) -> Result<Json<Scrub>, Failure> {
    let volume = volumes::served(&context, &name.0)?;
    Ok(Json(context.scrubs.report(volume.id(), &name.0)))
}
