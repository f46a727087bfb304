//! Volumes that are used while they are imported. What isn't there yet is read where it comes from, by whichever server is asked
//! ([`source`]); the server that leads the metadata copies the rest ([`copying`]). How far that is, and whether it goes on, is agreed.

mod copying;
mod source;

pub use copying::keep_copying;
pub use source::{CANCELLED, SourceError, length_of};

use source::{Source, Stage};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tepal_engine::Live;
use tepal_metadata::{LiveRecord, LiveStage, State};
use tepal_model::VolumeId;

/// The live imports that this server knows of. Clones are the same.
#[derive(Clone, Default)]
pub struct Imports(Arc<Mutex<BTreeMap<VolumeId, Known>>>);

#[derive(Clone)]
pub struct Known {
    /// For the engine.
    pub live: Arc<Live>,
    source: Source,
    /// What the copier lately met here.
    trouble: Arc<Mutex<Option<String>>>,
}

impl Known {
    fn of(record: &LiveRecord, revision: u64) -> Self {
        let source = Source::open(&record.from, record.length, stage_of(record));
        let live = Arc::new(Live::new(Box::new(source.clone()), revision, record.done));
        Known { live, source, trouble: Arc::default() }
    }

    /// What keeps it from going on, as far as this server knows.
    pub fn trouble(&self) -> Option<String> {
        let of_source =
            self.source.trouble().map(|reason| format!("where it's imported from can't be reached: {reason}"));
        of_source.or_else(|| self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }

    fn note(&self, trouble: Option<String>) {
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = trouble;
    }
}

fn stage_of(record: &LiveRecord) -> Stage {
    match record.stage {
        LiveStage::Running | LiveStage::Paused => Stage::Open,
        LiveStage::Cancelled => Stage::Cancelled,
    }
}

impl Imports {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<VolumeId, Known>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the engine is to have of a volume, by this state.
    pub fn of(&self, state: &State, volume: VolumeId) -> Option<Arc<Live>> {
        let (record, revision) = (state.access.live_imports.get(&volume)?, state.volumes.get(&volume)?.revision);
        Some(self.lock().entry(volume).or_insert_with(|| Known::of(record, revision)).live.clone())
    }

    pub fn known(&self, volume: VolumeId) -> Option<Known> {
        self.lock().get(&volume).cloned()
    }

    /// Goes on with the agreed state. Comes after the engine was told of volumes that are whole.
    pub fn follow(&self, state: &State) {
        let record = |volume: &VolumeId| state.volumes.get(volume).zip(state.access.live_imports.get(volume));
        self.lock().retain(|volume, known| match record(volume) {
            Some((volume, record)) => {
                known.live.is_copied(volume.revision, record.done);
                known.source.set(stage_of(record));
                true
            }
            None => {
                known.source.set(Stage::Over);
                false
            }
        });
    }
}
