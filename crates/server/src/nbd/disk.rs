//! Volumes and snapshots as disks of NBD clients: counted, timed, and what is found damaged is remembered.

use crate::access::{Claim, Fence};
use crate::api_types::SnapshotName;
use crate::observed::meter::Operation;
use crate::observed::{Client, Observations};
use crate::slow::{self, Kind, Step};
use crate::throttle::{Connected, Throttle};
use crate::world::ServerWorld;
use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tepal_engine::{Snapshot, Volume, Within};
use tepal_gateway::disk::{Run, VirtualDisk};
use tepal_metadata::Right;
use tepal_model::{Epoch, IoError, Segments};

/// A volume or a snapshot as one connection's disk. It stays the same one when that is renamed.
pub enum ExportedDisk {
    Volume(VolumeDisk),
    Snapshot(SnapshotDisk),
}

impl ExportedDisk {
    pub fn of_volume(volume: Volume<ServerWorld>, observations: &Observations, terms: Terms) -> Self {
        let client = Client::new(observations.of(volume.id()), None);
        let read_only = volume.is_replica() || terms.check(Right::Write).is_err();
        ExportedDisk::Volume(VolumeDisk { volume, client, terms, read_only })
    }

    /// `name` is what it's called now.
    pub fn of_snapshot(
        volume: &Volume<ServerWorld>,
        (epoch, size): (Epoch, u64),
        name: SnapshotName,
        observations: &Observations,
        terms: Terms,
    ) -> Self {
        let client = Client::new(observations.of(volume.id()), Some(epoch));
        ExportedDisk::Snapshot(SnapshotDisk { snapshot: volume.snapshot(epoch, size), name, client, terms })
    }
}

/// On what terms a client has it.
#[derive(Clone, Default)]
pub struct Terms {
    /// What it may do; everything, if there's none.
    pub claim: Option<Arc<Claim>>,
    /// Who alone may write to it, as of when it was opened.
    pub fence: Option<(Arc<Fence>, u64)>,
    /// It's the client that alone may write.
    pub is_holder: bool,
    /// What is agreed is heard of later here than where the data is.
    pub is_elsewhere: bool,
    /// How much may be asked for: of the volume, and by the client.
    pub throttles: Vec<Arc<Throttle>>,
    /// Counts as one of the client's connections.
    pub _connected: Option<Arc<Connected>>,
}

impl Terms {
    fn check(&self, right: Right) -> Result<(), IoError> {
        if let Some((fence, number)) = &self.fence {
            fence.check(*number)?;
        }
        self.claim.as_ref().map_or(Ok(()), |claim| claim.check(right))
    }

    /// Returns when a request of so many bytes may go on.
    async fn pace(&self, client: &Client, bytes: u64) {
        for throttle in &self.throttles {
            let wait = || Step::new("wait for a limit", Kind::Internal);
            if throttle.is_limited() && slow::step(wait, throttle.pass(bytes)).await {
                client.held_back.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Whether nothing may be written any more once these terms have been changed, not even what is under way.
    fn are_strict(&self) -> bool {
        self.is_holder || (self.claim.is_some() && !self.is_elsewhere)
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

    fn least_write(&self) -> u32 {
        let volume = match self {
            ExportedDisk::Volume(disk) => &disk.volume,
            ExportedDisk::Snapshot(disk) => disk.snapshot.volume(),
        };
        u32::try_from(volume.least_write()).unwrap_or(1)
    }

    fn name(&self) -> Option<String> {
        Some(match self {
            ExportedDisk::Volume(disk) => disk.volume.spec().name,
            ExportedDisk::Snapshot(disk) => disk.name.to_string(),
        })
    }

    async fn read(&self, offset: u64, length: u64) -> Result<Segments, IoError> {
        match self {
            ExportedDisk::Volume(disk) => {
                slow::HERE.request(disk.volume.id(), || asked("read", offset, length), disk.read(offset, length)).await
            }
            ExportedDisk::Snapshot(disk) => {
                let volume = disk.snapshot.volume().id();
                let request = || asked("read", offset, length).note("tepal.snapshot", disk.name.to_string());
                slow::HERE.request(volume, request, disk.read(offset, length)).await
            }
        }
    }

    async fn write(&self, offset: u64, data: Bytes, fua: bool) -> Result<(), IoError> {
        match self {
            ExportedDisk::Volume(disk) => {
                let length = data.len() as u64;
                slow::HERE
                    .request(disk.volume.id(), || asked("write", offset, length), disk.write(offset, data, fua))
                    .await
            }
            ExportedDisk::Snapshot(_) => Err(IoError::ReadOnly),
        }
    }

    async fn flush(&self) -> Result<(), IoError> {
        match self {
            ExportedDisk::Volume(disk) => {
                slow::HERE.request(disk.volume.id(), || asked("flush", 0, 0), disk.flush()).await
            }
            ExportedDisk::Snapshot(_) => Ok(()),
        }
    }

    /// Stable in any case.
    async fn trim(&self, offset: u64, length: u64, _fua: bool) -> Result<(), IoError> {
        match self {
            ExportedDisk::Volume(disk) => {
                slow::HERE.request(disk.volume.id(), || asked("trim", offset, length), disk.trim(offset, length)).await
            }
            ExportedDisk::Snapshot(_) => Err(IoError::ReadOnly),
        }
    }

    /// Stable in any case.
    async fn write_zeroes(&self, offset: u64, length: u64, allocate: bool, _fua: bool) -> Result<(), IoError> {
        match self {
            ExportedDisk::Volume(disk) => {
                let zeroed = disk.write_zeroes(offset, length, allocate);
                slow::HERE.request(disk.volume.id(), || asked("zero", offset, length), zeroed).await
            }
            ExportedDisk::Snapshot(_) => Err(IoError::ReadOnly),
        }
    }

    async fn block_status(&self, offset: u64, length: u64, limit: usize) -> Result<Vec<Run>, IoError> {
        let within = Within { offset, length, limit };
        let runs = match self {
            ExportedDisk::Volume(disk) => {
                disk.terms.check(Right::Read)?;
                disk.volume.block_status(within).await?
            }
            ExportedDisk::Snapshot(disk) => {
                disk.terms.check(Right::Read)?;
                disk.snapshot.block_status(within).await?
            }
        };
        Ok(runs.into_iter().map(|run| Run { length: run.length, mapped: run.mapped }).collect())
    }
}

/// A request as those who look for slow ones see it.
fn asked(name: &'static str, offset: u64, length: u64) -> Step {
    Step::new(name, Kind::Server).note("tepal.offset", offset).note("tepal.bytes", length)
}

pub struct VolumeDisk {
    volume: Volume<ServerWorld>,
    client: Client,
    terms: Terms,
    /// It was a replica when it was opened, or the client might only read it.
    read_only: bool,
}

impl VolumeDisk {
    /// Of a change, once more when it's done: before the volume became a replica, or the right was taken away, or not acknowledged.
    fn may_change(&self) -> Result<(), IoError> {
        self.terms.check(Right::Write)?;
        if self.volume.is_replica() { Err(IoError::ReadOnly) } else { Ok(()) }
    }

    /// Changes the volume. By strict terms, a change counts as of the volume's revision, which each change of terms raises: it's refused
    /// from then on wherever it is, unless it has begun, and comes before all that comes after. Where other things have raised the
    /// revision, it's made again.
    async fn change<F: Future<Output = Result<(), IoError>>>(
        &self,
        change: impl Fn(Volume<ServerWorld>) -> F,
    ) -> Result<(), IoError> {
        if !self.terms.are_strict() {
            return change(self.volume.clone()).await;
        }
        loop {
            // In this order: the terms change before the revision does.
            let revision = self.volume.revision();
            self.may_change()?;
            match change(self.volume.as_of(revision)).await {
                Err(IoError::Fenced) if self.volume.revision() != revision => {}
                changed => return changed,
            }
        }
    }

    async fn read(&self, offset: u64, length: u64) -> Result<Segments, IoError> {
        self.terms.pace(&self.client, length).await;
        self.terms.check(Right::Read)?;
        let timing = self.client.meter.begin(Operation::Read, length);
        let read = timing.end(self.volume.read(offset, length).await);
        self.client.damaged().learn(offset, length, &read);
        read
    }

    async fn write(&self, offset: u64, data: Bytes, fua: bool) -> Result<(), IoError> {
        let length = data.len() as u64;
        self.terms.pace(&self.client, length).await;
        self.may_change()?;
        let timing = self.client.meter.begin(Operation::Write, length);
        let write = |volume: Volume<ServerWorld>| {
            let data = data.clone();
            async move { volume.write(offset, data, fua).await }
        };
        let written = timing.end(self.change(write).await);
        self.client.damaged().learn(offset, length, &written);
        written.and_then(|()| self.may_change())
    }

    async fn flush(&self) -> Result<(), IoError> {
        self.terms.pace(&self.client, 0).await;
        self.terms.check(Right::Read)?;
        let timing = self.client.meter.begin(Operation::Flush, 0);
        timing.end(self.volume.flush().await)
    }

    async fn trim(&self, offset: u64, length: u64) -> Result<(), IoError> {
        self.terms.pace(&self.client, 0).await;
        self.may_change()?;
        let timing = self.client.meter.begin(Operation::Discard, length);
        let trim = |volume: Volume<ServerWorld>| async move { volume.trim(offset, length).await };
        let trimmed = timing.end(self.change(trim).await);
        self.client.damaged().learn(offset, length, &trimmed);
        trimmed.and_then(|()| self.may_change())
    }

    async fn write_zeroes(&self, offset: u64, length: u64, allocate: bool) -> Result<(), IoError> {
        // Zeroes that are to have space are written.
        self.terms.pace(&self.client, if allocate { length } else { 0 }).await;
        self.may_change()?;
        let operation = if allocate { Operation::Write } else { Operation::Discard };
        let timing = self.client.meter.begin(operation, length);
        let zero = |volume: Volume<ServerWorld>| async move { volume.write_zeroes(offset, length, allocate).await };
        let zeroed = timing.end(self.change(zero).await);
        self.client.damaged().learn(offset, length, &zeroed);
        zeroed.and_then(|()| self.may_change())
    }
}

/// What damage a snapshot has is its own.
pub struct SnapshotDisk {
    snapshot: Snapshot<ServerWorld>,
    name: SnapshotName,
    client: Client,
    terms: Terms,
}

impl SnapshotDisk {
    async fn read(&self, offset: u64, length: u64) -> Result<Segments, IoError> {
        self.terms.pace(&self.client, length).await;
        self.terms.check(Right::Read)?;
        let timing = self.client.meter.begin(Operation::Read, length);
        let read = timing.end(self.snapshot.read(offset, length).await);
        self.client.damaged().learn(offset, length, &read);
        read
    }
}
