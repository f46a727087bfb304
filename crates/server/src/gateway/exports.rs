//! The cluster's volumes as the NBD front-end of a gateway wants them.

use crate::api::types::{Directory, DirectoryVolume};
use crate::exports::{VolumeDisk, Wanted, in_a_moment};
use crate::observed::Observations;
use crate::world::ServerWorld;
use std::sync::Arc;
use tepal_engine::Engine;
use tepal_gateway::disk::{Exports, OpenError};
use tepal_model::VolumeId;
use tokio::sync::watch;

/// The volumes, by their names as last heard of, or by [`BY_ID`](crate::api::types::BY_ID) and their ids.
#[derive(Clone)]
pub struct GatewayExports {
    pub directory: watch::Receiver<Arc<Directory>>,
    pub engine: Engine<ServerWorld>,
    pub observations: Observations,
}

impl Exports for GatewayExports {
    type Disk = VolumeDisk;

    fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.directory.borrow().volumes.iter().map(|volume| volume.name.clone()).collect();
        names.sort_unstable();
        names
    }

    async fn open(&self, name: &str) -> Result<VolumeDisk, OpenError> {
        let is_news = |directory: &Arc<Directory>| find(directory, name).is_some();
        let directory = in_a_moment(&mut self.directory.clone(), is_news).await;
        let found = find(&directory, name).ok_or_else(|| OpenError::Unknown(name.to_owned()))?;
        let unavailable = || OpenError::Unavailable {
            name: name.to_owned(),
            reason: "this gateway can't serve it, as its log says".to_owned(),
        };
        let volume = self.engine.volume(VolumeId(found.id)).ok_or_else(unavailable)?;
        Ok(VolumeDisk::new(volume, &self.observations))
    }
}

fn find<'a>(directory: &'a Directory, name: &str) -> Option<&'a DirectoryVolume> {
    let wanted = Wanted::of(name);
    directory.volumes.iter().find(|volume| match wanted {
        Wanted::Name(name) => volume.name == name,
        Wanted::Id(id) => volume.id == id.0,
        Wanted::Nothing => false,
    })
}
