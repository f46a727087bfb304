//! Volumes and snapshots as disks of NBD clients: counted, timed, and what is found damaged is remembered.

use crate::api_types::SnapshotName;
use crate::observed::meter::Operation;
use crate::observed::{Client, Observations};
use crate::world::ServerWorld;
use bytes::Bytes;
use tepal_engine::{Snapshot, Volume, Within};
use tepal_gateway::disk::{Run, VirtualDisk};
use tepal_model::{Epoch, IoError, Segments};

/// A volume or a snapshot as one connection's disk. It stays the same one when that is renamed.
pub enum ExportedDisk {
    Volume(VolumeDisk),
    Snapshot(SnapshotDisk),
}

impl ExportedDisk {
    pub fn of_volume(volume: Volume<ServerWorld>, observations: &Observations) -> Self {
        let client = Client::new(observations.of(volume.id()), None);
        let read_only = volume.is_replica();
        ExportedDisk::Volume(VolumeDisk { volume, client, read_only })
    }

    /// `name` is what it's called now.
    pub fn of_snapshot(
        volume: &Volume<ServerWorld>,
        (epoch, size): (Epoch, u64),
        name: SnapshotName,
        observations: &Observations,
    ) -> Self {
        let client = Client::new(observations.of(volume.id()), Some(epoch));
        ExportedDisk::Snapshot(SnapshotDisk { snapshot: volume.snapshot(epoch, size), name, client })
    }
}

impl VirtualDisk for ExportedDisk {
    fn size(&self) -> u64 {
        match self {
            ExportedDisk::Volume(disk) => disk.volume.size(),
            ExportedDisk::Snapshot(disk) => disk.snapshot.size(),
        }
    }

    fn read_only(&self) -> bool {
        match self {
            ExportedDisk::Volume(disk) => disk.read_only,
            ExportedDisk::Snapshot(_) => true,
        }
    }

    fn name(&self) -> Option<String> {
        Some(match self {
            ExportedDisk::Volume(disk) => disk.volume.spec().name,
            ExportedDisk::Snapshot(disk) => disk.name.to_string(),
        })
    }

    async fn read(&self, offset: u64, length: u64) -> Result<Segments, IoError> {
        match self {
            ExportedDisk::Volume(disk) => disk.read(offset, length).await,
            ExportedDisk::Snapshot(disk) => disk.read(offset, length).await,
        }
    }

    async fn write(&self, offset: u64, data: Bytes, fua: bool) -> Result<(), IoError> {
        match self {
            ExportedDisk::Volume(disk) => disk.write(offset, data, fua).await,
            ExportedDisk::Snapshot(_) => Err(IoError::ReadOnly),
        }
    }

    async fn flush(&self) -> Result<(), IoError> {
        match self {
            ExportedDisk::Volume(disk) => disk.flush().await,
            ExportedDisk::Snapshot(_) => Ok(()),
        }
    }

    /// Stable in any case.
    async fn trim(&self, offset: u64, length: u64, _fua: bool) -> Result<(), IoError> {
        match self {
            ExportedDisk::Volume(disk) => disk.trim(offset, length).await,
            ExportedDisk::Snapshot(_) => Err(IoError::ReadOnly),
        }
    }

    /// Stable in any case.
    async fn write_zeroes(&self, offset: u64, length: u64, allocate: bool, _fua: bool) -> Result<(), IoError> {
        match self {
            ExportedDisk::Volume(disk) => disk.write_zeroes(offset, length, allocate).await,
            ExportedDisk::Snapshot(_) => Err(IoError::ReadOnly),
        }
    }

    async fn block_status(&self, offset: u64, length: u64, limit: usize) -> Result<Vec<Run>, IoError> {
        let within = Within { offset, length, limit };
        let runs = match self {
            ExportedDisk::Volume(disk) => disk.volume.block_status(within).await?,
            ExportedDisk::Snapshot(disk) => disk.snapshot.block_status(within).await?,
        };
        Ok(runs.into_iter().map(|run| Run { length: run.length, mapped: run.mapped }).collect())
    }
}

pub struct VolumeDisk {
    volume: Volume<ServerWorld>,
    client: Client,
    /// It was a replica when it was opened.
    read_only: bool,
}

impl VolumeDisk {
    /// Of a change, once more when it's done: before the volume became a replica, or not acknowledged.
    fn may_change(&self) -> Result<(), IoError> {
        if self.volume.is_replica() { Err(IoError::ReadOnly) } else { Ok(()) }
    }

    async fn read(&self, offset: u64, length: u64) -> Result<Segments, IoError> {
        let timing = self.client.meter.begin(Operation::Read, length);
        let read = timing.end(self.volume.read(offset, length).await);
        self.client.damaged().learn(offset, length, &read);
        read
    }

    async fn write(&self, offset: u64, data: Bytes, fua: bool) -> Result<(), IoError> {
        self.may_change()?;
        let length = data.len() as u64;
        let timing = self.client.meter.begin(Operation::Write, length);
        let written = timing.end(self.volume.write(offset, data, fua).await);
        self.client.damaged().learn(offset, length, &written);
        written.and_then(|()| self.may_change())
    }

    async fn flush(&self) -> Result<(), IoError> {
        let timing = self.client.meter.begin(Operation::Flush, 0);
        timing.end(self.volume.flush().await)
    }

    async fn trim(&self, offset: u64, length: u64) -> Result<(), IoError> {
        self.may_change()?;
        let timing = self.client.meter.begin(Operation::Discard, length);
        let trimmed = timing.end(self.volume.trim(offset, length).await);
        self.client.damaged().learn(offset, length, &trimmed);
        trimmed.and_then(|()| self.may_change())
    }

    async fn write_zeroes(&self, offset: u64, length: u64, allocate: bool) -> Result<(), IoError> {
        self.may_change()?;
        let operation = if allocate { Operation::Write } else { Operation::Discard };
        let timing = self.client.meter.begin(operation, length);
        let zeroed = timing.end(self.volume.write_zeroes(offset, length, allocate).await);
        self.client.damaged().learn(offset, length, &zeroed);
        zeroed.and_then(|()| self.may_change())
    }
}

/// What damage a snapshot has is its own.
pub struct SnapshotDisk {
    snapshot: Snapshot<ServerWorld>,
    name: SnapshotName,
    client: Client,
}

impl SnapshotDisk {
    async fn read(&self, offset: u64, length: u64) -> Result<Segments, IoError> {
        let timing = self.client.meter.begin(Operation::Read, length);
        let read = timing.end(self.snapshot.read(offset, length).await);
        self.client.damaged().learn(offset, length, &read);
        read
    }
}
