//! Volumes as the NBD front-end wants them.

use crate::api::types::BY_ID;
use crate::meter::Operation;
use crate::observed::{Client, Observations};
use crate::volumes::{NotServed, Volumes, is_alone};
use crate::world::ServerWorld;
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use tepal_engine::Volume;
use tepal_gateway::disk::{Exports, OpenError, Run, VirtualDisk};
use tepal_metadata::{Metadata, State, VolumeRecord, VolumeState};
use tepal_model::{IoError, Segments, VolumeId};
use tokio::sync::watch;
use tokio::time::timeout;

/// The volumes of the cluster, by their names as of now, or by [`BY_ID`] and their ids.
#[derive(Clone)]
pub struct ServerExports {
    pub metadata: Metadata,
    pub volumes: Arc<Volumes>,
    pub observations: Observations,
}

impl Exports for ServerExports {
    type Disk = VolumeDisk;

    fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.metadata.state().active_volumes().map(|record| record.name.clone()).collect();
        names.sort_unstable();
        names
    }

    async fn open(&self, name: &str) -> Result<VolumeDisk, OpenError> {
        let mut states = self.metadata.watch();
        let is_news = |state: &Arc<State>| is_alone(state) || find(state, name).is_some();
        let state = in_a_moment(&mut states, is_news).await;
        let record = find(&state, name).ok_or_else(|| OpenError::Unknown(name.to_owned()))?;
        let unavailable =
            |reason: NotServed| OpenError::Unavailable { name: name.to_owned(), reason: reason.to_string() };
        let volume = self.volumes.opened(record.id).await.map_err(unavailable)?;
        Ok(VolumeDisk::new(volume, &self.observations))
    }
}

/// How long it may take to hear of what another server has just said that it's done.
const NEWS: Duration = Duration::from_secs(2);

/// What is known once that is so; after a while, what is known then.
pub async fn in_a_moment<T: Clone>(known: &mut watch::Receiver<T>, is_so: impl Fn(&T) -> bool) -> T {
    // Over as well if nothing will be heard any more.
    let _ = timeout(NEWS, known.wait_for(is_so)).await;
    known.borrow().clone()
}

/// What an export's name says.
pub enum Wanted<'a> {
    Name(&'a str),
    Id(VolumeId),
    /// No volume is named so.
    Nothing,
}

impl<'a> Wanted<'a> {
    pub fn of(name: &'a str) -> Self {
        match name.strip_prefix(BY_ID).map(str::parse) {
            None => Wanted::Name(name),
            Some(Ok(id)) => Wanted::Id(VolumeId(id)),
            Some(Err(_)) => Wanted::Nothing,
        }
    }
}

fn find<'a>(state: &'a State, name: &str) -> Option<&'a Arc<VolumeRecord>> {
    match Wanted::of(name) {
        Wanted::Name(name) => state.volume_named(name),
        Wanted::Id(id) => state.volumes.get(&id).filter(|record| record.state == VolumeState::Active),
        Wanted::Nothing => None,
    }
}

/// A volume as one connection's disk. It stays the same volume when that is renamed.
pub struct VolumeDisk {
    volume: Volume<ServerWorld>,
    client: Client,
}

impl VolumeDisk {
    pub fn new(volume: Volume<ServerWorld>, observations: &Observations) -> Self {
        let client = Client::new(observations.of(volume.id()));
        VolumeDisk { volume, client }
    }
}

impl VirtualDisk for VolumeDisk {
    fn size(&self) -> u64 {
        self.volume.size()
    }

    fn read_only(&self) -> bool {
        false
    }

    fn name(&self) -> Option<String> {
        Some(self.volume.spec().name)
    }

    async fn read(&self, offset: u64, length: u64) -> Result<Segments, IoError> {
        let timing = self.client.meter.begin(Operation::Read, length);
        let read = timing.end(self.volume.read(offset, length).await);
        self.client.damaged().learn(offset, length, &read);
        read
    }

    async fn write(&self, offset: u64, data: Bytes, fua: bool) -> Result<(), IoError> {
        let length = data.len() as u64;
        let timing = self.client.meter.begin(Operation::Write, length);
        let written = timing.end(self.volume.write(offset, data, fua).await);
        self.client.damaged().learn(offset, length, &written);
        written
    }

    async fn flush(&self) -> Result<(), IoError> {
        let timing = self.client.meter.begin(Operation::Flush, 0);
        timing.end(self.volume.flush().await)
    }

    /// Stable in any case.
    async fn trim(&self, offset: u64, length: u64, _fua: bool) -> Result<(), IoError> {
        let timing = self.client.meter.begin(Operation::Discard, length);
        let trimmed = timing.end(self.volume.trim(offset, length).await);
        self.client.damaged().learn(offset, length, &trimmed);
        trimmed
    }

    /// Stable in any case.
    async fn write_zeroes(&self, offset: u64, length: u64, allocate: bool, _fua: bool) -> Result<(), IoError> {
        let operation = if allocate { Operation::Write } else { Operation::Discard };
        let timing = self.client.meter.begin(operation, length);
        let zeroed = timing.end(self.volume.write_zeroes(offset, length, allocate).await);
        self.client.damaged().learn(offset, length, &zeroed);
        zeroed
    }

    async fn block_status(&self, offset: u64, length: u64, limit: usize) -> Result<Vec<Run>, IoError> {
        let runs = self.volume.block_status(offset, length, limit).await?;
        Ok(runs.into_iter().map(|run| Run { length: run.length, mapped: run.mapped }).collect())
    }
}
