//! The node: what is done on the machine where a volume is used.
//!
//! ```text
//! stage    volume -> device -> (filesystem, if it's blank) -> mounted at the staging path
//! publish  staging path, or the device itself -> bound to the target path
//! ```
//!
//! Nothing is remembered here: the kernel says what is mounted where, and the attachments say which device is which volume's. So the
//! driver may end at any moment, and goes on from what it finds.

mod expanding;
mod filesystem;
mod mounts;
mod publishing;
mod readers;
mod staging;
mod stats;
mod tools;

use crate::driver::Driver;
use crate::failure::Failure;
use crate::spec::node_server::Node;
use crate::spec::node_service_capability::{Rpc, Type, rpc};
use crate::spec::{
    NodeExpandVolumeRequest, NodeExpandVolumeResponse, NodeGetCapabilitiesRequest, NodeGetCapabilitiesResponse,
    NodeGetInfoRequest, NodeGetInfoResponse, NodeGetVolumeStatsRequest, NodeGetVolumeStatsResponse,
    NodePublishVolumeRequest, NodePublishVolumeResponse, NodeServiceCapability, NodeStageVolumeRequest,
    NodeStageVolumeResponse, NodeUnpublishVolumeRequest, NodeUnpublishVolumeResponse, NodeUnstageVolumeRequest,
    NodeUnstageVolumeResponse,
};
use crate::topology;
use std::path::Path;
use tonic::{Request, Response, Status};

type Answer<T> = Result<Response<T>, Status>;

const CAPABILITIES: [rpc::Type; 5] = [
    rpc::Type::StageUnstageVolume,
    rpc::Type::GetVolumeStats,
    rpc::Type::ExpandVolume,
    rpc::Type::VolumeCondition,
    rpc::Type::SingleNodeMultiWriter,
];

#[tonic::async_trait]
impl Node for Driver {
    async fn node_stage_volume(&self, asked: Request<NodeStageVolumeRequest>) -> Answer<NodeStageVolumeResponse> {
        self.answer(asked, "NodeStageVolume", |driver, asked| staging::stage(driver, &asked)).await
    }

    async fn node_unstage_volume(&self, asked: Request<NodeUnstageVolumeRequest>) -> Answer<NodeUnstageVolumeResponse> {
        self.answer(asked, "NodeUnstageVolume", |driver, asked| staging::unstage(driver, &asked)).await
    }

    async fn node_publish_volume(&self, asked: Request<NodePublishVolumeRequest>) -> Answer<NodePublishVolumeResponse> {
        self.answer(asked, "NodePublishVolume", |driver, asked| publishing::publish(driver, &asked)).await
    }

    async fn node_unpublish_volume(
        &self,
        asked: Request<NodeUnpublishVolumeRequest>,
    ) -> Answer<NodeUnpublishVolumeResponse> {
        self.answer(asked, "NodeUnpublishVolume", |driver, asked| publishing::unpublish(driver, &asked)).await
    }

    async fn node_get_volume_stats(
        &self,
        asked: Request<NodeGetVolumeStatsRequest>,
    ) -> Answer<NodeGetVolumeStatsResponse> {
        self.answer(asked, "NodeGetVolumeStats", |driver, asked| stats::get(driver, &asked)).await
    }

    async fn node_expand_volume(&self, asked: Request<NodeExpandVolumeRequest>) -> Answer<NodeExpandVolumeResponse> {
        self.answer(asked, "NodeExpandVolume", |driver, asked| expanding::expand(driver, &asked)).await
    }

    async fn node_get_capabilities(
        &self,
        _: Request<NodeGetCapabilitiesRequest>,
    ) -> Answer<NodeGetCapabilitiesResponse> {
        let capability = |one: rpc::Type| NodeServiceCapability { r#type: Some(Type::Rpc(Rpc { r#type: one.into() })) };
        Ok(Response::new(NodeGetCapabilitiesResponse {
            capabilities: CAPABILITIES.into_iter().map(capability).collect(),
        }))
    }

    async fn node_get_info(&self, asked: Request<NodeGetInfoRequest>) -> Answer<NodeGetInfoResponse> {
        self.answer(asked, "NodeGetInfo", |driver, _| {
            let settings = &driver.settings;
            Ok(NodeGetInfoResponse {
                node_id: driver.node()?.to_string(),
                max_volumes_per_node: settings.most_volumes.into(),
                accessible_topology: Some(topology::of_machine(settings.site.as_deref(), settings.server.as_deref())),
            })
        })
        .await
    }
}

/// A path of this machine that a call names.
fn path<'a>(what: &str, said: &'a str) -> Result<&'a Path, Failure> {
    match said {
        "" => Err(Failure::invalid(format!("the {what} is missing"))),
        said => Ok(Path::new(said)),
    }
}
