//! Volumes as the NBD front-end wants them.

use crate::meter::{Meter, Meters, Operation};
use crate::volumes::Closed;
use crate::world::ServerWorld;
use bytes::Bytes;
use std::sync::Arc;
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
    pub meters: Meters,
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
        let volume = self.engine.volume(record.id).ok_or_else(unavailable)?;
        Ok(VolumeDisk { volume, meter: self.meters.of(record.id) })
    }
}

/// A volume as one connection's disk. It stays the same volume when that is renamed.
pub struct VolumeDisk {
    volume: Volume<ServerWorld>,
    meter: Arc<Meter>,
}

impl VirtualDisk for VolumeDisk {
    fn size(&self) -> u64 {
        self.volume.size()
    }

    fn read_only(&self) -> bool {
        false
    }

    async fn read(&self, offset: u64, length: u64) -> Result<Segments, IoError> {
        self.meter.time(Operation::Read, length, self.volume.read(offset, length)).await
    }

    async fn write(&self, offset: u64, data: Bytes, fua: bool) -> Result<(), IoError> {
        let length = data.len() as u64;
        self.meter.time(Operation::Write, length, self.volume.write(offset, data, fua)).await
    }

    async fn flush(&self) -> Result<(), IoError> {
        self.meter.time(Operation::Flush, 0, self.volume.flush()).await
    }

    async fn trim(&self, offset: u64, length: u64, fua: bool) -> Result<(), IoError> {
        self.meter.time(Operation::Discard, length, self.volume.trim(offset, length, fua)).await
    }

    async fn write_zeroes(&self, offset: u64, length: u64, allocate: bool, fua: bool) -> Result<(), IoError> {
        let zeroes = self.volume.write_zeroes(offset, length, allocate, fua);
        let operation = if allocate { Operation::Write } else { Operation::Discard };
        self.meter.time(operation, length, zeroes).await
    }

    async fn block_status(&self, offset: u64, length: u64, limit: usize) -> Result<Vec<Run>, IoError> {
        let runs = self.volume.block_status(offset, length, limit).await?;
        Ok(runs.into_iter().map(|run| Run { length: run.length, mapped: run.mapped }).collect())
    }
}
