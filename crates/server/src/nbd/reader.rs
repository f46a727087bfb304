//! What bytes are read of: a volume as it is now, or as it was.

use crate::observed::DamageOf;
use crate::world::ServerWorld;
use tepal_engine::{Run, Snapshot, Volume, Within};
use tepal_model::{IoError, Segments};

/// Cheap to clone.
#[derive(Clone)]
pub enum Reader {
    Volume(Volume<ServerWorld>),
    Snapshot(Snapshot<ServerWorld>),
}

impl Reader {
    /// Bytes, as of now.
    pub fn size(&self) -> u64 {
        match self {
            Reader::Volume(volume) => volume.size(),
            Reader::Snapshot(snapshot) => snapshot.size(),
        }
    }

    /// Whose damage it is that is met.
    pub fn damage_of(&self) -> DamageOf {
        match self {
            Reader::Volume(volume) => DamageOf { volume: volume.id(), snapshot: None },
            Reader::Snapshot(snapshot) => DamageOf { volume: snapshot.volume().id(), snapshot: Some(snapshot.epoch()) },
        }
    }

    pub async fn read(&self, offset: u64, length: u64) -> Result<Segments, IoError> {
        match self {
            Reader::Volume(volume) => volume.read(offset, length).await,
            Reader::Snapshot(snapshot) => snapshot.read(offset, length).await,
        }
    }

    pub async fn block_status(&self, within: Within) -> Result<Vec<Run>, IoError> {
        match self {
            Reader::Volume(volume) => volume.block_status(within).await,
            Reader::Snapshot(snapshot) => snapshot.block_status(within).await,
        }
    }

    /// See [`Volume::changed_since`] and [`Snapshot::changed_since`].
    pub async fn changed_since(&self, older: &Snapshot<ServerWorld>, within: Within) -> Result<Vec<Run>, IoError> {
        match self {
            Reader::Volume(volume) => volume.changed_since(older, within).await,
            Reader::Snapshot(snapshot) => snapshot.changed_since(older, within).await,
        }
    }
}
