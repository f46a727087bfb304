//! Volumes as the NBD front-end wants them.

use crate::volumes::Closed;
use crate::world::ServerWorld;
use bytes::Bytes;
use tepal_engine::{Engine, Volume};
use tepal_gateway::disk::{Exports, OpenError, Run, VirtualDisk};
use tepal_metadata::Metadata;
use tepal_model::{IoError, Segments};

/// The volumes of the cluster, by their names as of now.
#[derive(Clone)]
pub struct ServerExports {
    pub metadata: Metadata,
    pub engine: Engine<ServerWorld>,
    pub closed: Closed,
}

impl Exports for ServerExports {
    type Disk = VolumeDisk;

    fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.metadata.state().active_volumes().map(|record| record.name.clone()).collect();
        names.sort_unstable();
        names
    }

    async fn open(&self, name: &str) -> Result<VolumeDisk, OpenError> {
        let state = self.metadata.state();
        let record = state.volume_named(name).ok_or_else(|| OpenError::Unknown(name.to_owned()))?;
        let unavailable = || {
            let reason = self.closed.reason(record.id).unwrap_or_else(|| "it is being opened".to_owned());
            OpenError::Unavailable { name: name.to_owned(), reason }
        };
        self.engine.volume(record.id).map(VolumeDisk).ok_or_else(unavailable)
    }
}

/// A volume as one connection's disk. It stays the same volume when that is renamed.
pub struct VolumeDisk(Volume<ServerWorld>);

impl VirtualDisk for VolumeDisk {
    fn size(&self) -> u64 {
        self.0.size()
    }

    fn read_only(&self) -> bool {
        false
    }

    async fn read(&self, offset: u64, length: u64) -> Result<Segments, IoError> {
        self.0.read(offset, length).await
    }

    async fn write(&self, offset: u64, data: Bytes, fua: bool) -> Result<(), IoError> {
        self.0.write(offset, data, fua).await
    }

    async fn flush(&self) -> Result<(), IoError> {
        self.0.flush().await
    }

    async fn trim(&self, offset: u64, length: u64, fua: bool) -> Result<(), IoError> {
        self.0.trim(offset, length, fua).await
    }

    async fn write_zeroes(&self, offset: u64, length: u64, allocate: bool, fua: bool) -> Result<(), IoError> {
        self.0.write_zeroes(offset, length, allocate, fua).await
    }

    async fn block_status(&self, offset: u64, length: u64, limit: usize) -> Result<Vec<Run>, IoError> {
        let runs = self.0.block_status(offset, length, limit).await?;
        Ok(runs.into_iter().map(|run| Run { length: run.length, mapped: run.mapped }).collect())
    }
}
