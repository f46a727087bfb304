//! What all services of the driver have in common.

use crate::cluster::Cluster;
use crate::failure::Failure;
use crate::machine::Machine;
use crate::names::{NodeHandle, VolumeHandle};
use crate::turns::Turns;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;
use tepal_model::text::{is_name, shown};
use tepal_server::api::types::VolumeInfo;
use tonic::{Request, Response, Status};

/// How a machine is kept from writing to a volume that another one has by now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fence {
    /// A volume is reserved by the machine that has it: devices are then connected to a server, not to a gateway.
    Reservation,
    /// A volume is granted to the machine that has it, whose name is that of an identity.
    Rights,
    /// It's the orchestrator's word alone.
    None,
}

/// What is said of this driver when it's started.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The services that there are.
    pub controller: bool,
    /// The same.
    pub node: bool,
    /// What this machine is called.
    pub node_name: String,
    /// Where this machine is.
    pub site: Option<String>,
    /// The server of the cluster that runs on this machine.
    pub server: Option<String>,
    /// How many volumes it may have; 0: as many as the orchestrator likes.
    pub most_volumes: u32,
    /// How the machines are kept apart.
    pub fence: Fence,
    /// A folder of this machine for notes, which goes with a restart of the machine.
    pub notes: PathBuf,
}

/// The driver.
#[derive(Clone)]
pub struct Driver {
    /// Whose volumes.
    pub cluster: Cluster,
    /// Where they are attached.
    pub machine: Arc<dyn Machine>,
    /// Calls that are pending.
    pub turns: Turns,
    /// What was said when it was started.
    pub settings: Arc<Settings>,
}

impl Driver {
    /// What an id stands for.
    ///
    /// # Errors
    ///
    /// If there's none, or it isn't one of this cluster.
    pub fn handle(&self, volume_id: &str) -> Result<VolumeHandle, Failure> {
        if volume_id.is_empty() {
            return Err(Failure::invalid("the volume id is missing"));
        }
        let unknown = || Failure::not_found(format!("there is no volume '{}'", shown(volume_id)));
        let handle = VolumeHandle::parse(volume_id).ok_or_else(unknown)?;
        match handle.cluster == self.cluster.id()? {
            true => Ok(handle),
            false => Err(unknown()),
        }
    }

    /// The volume that an id stands for.
    ///
    /// # Errors
    ///
    /// If there's none.
    pub fn volume(&self, volume_id: &str) -> Result<(VolumeHandle, VolumeInfo), Failure> {
        let handle = self.handle(volume_id)?;
        let volume = self.cluster.volume(&handle.by_id())?;
        match crate::names::is_deleted(&volume.name) {
            true => Err(Failure::not_found(format!("there is no volume '{volume_id}': only snapshots of it are left"))),
            false => Ok((handle, volume)),
        }
    }

    /// What this machine is for the orchestrator.
    ///
    /// # Errors
    ///
    /// If the cluster's id isn't known, or the machine's name is none.
    pub fn node(&self) -> Result<NodeHandle, Failure> {
        let name = self.settings.node_name.clone();
        match is_name(&name) {
            true => Ok(NodeHandle { cluster: self.cluster.id()?, name }),
            false => Err(Failure::precondition(format!("'{}' is no name for a node", shown(&name)))),
        }
    }

    /// Answers one call by work that may block.
    ///
    /// # Errors
    ///
    /// If the work fails.
    pub async fn answer<Q, A, F>(&self, request: Request<Q>, what: &'static str, work: F) -> Result<Response<A>, Status>
    where
        Q: Send + 'static,
        A: Send + 'static,
        F: FnOnce(&Driver, Q) -> Result<A, Failure> + Send + 'static,
    {
        let (driver, asked, began) = (self.clone(), request.into_inner(), Instant::now());
        // It goes on if the caller gives up, and keeps its turn until it's done.
        let done = tokio::task::spawn_blocking(move || work(&driver, asked)).await;
        match done {
            Ok(Ok(answer)) => {
                tracing::debug!("{what}: done in {:?}", began.elapsed());
                Ok(Response::new(answer))
            }
            Ok(Err(failure)) => {
                tracing::info!("{what}: {:?}: {failure}", failure.code);
                Err(failure.into())
            }
            Err(error) => {
                tracing::error!("{what}: {error}");
                Err(Status::internal("the driver failed; see its log"))
            }
        }
    }
}
