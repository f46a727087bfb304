//! The controller: what is done in the cluster, once for all machines.

mod capacity;
mod making;
mod publishing;
mod snapshots;
mod volumes;

use crate::driver::Driver;
use crate::spec::controller_server::Controller;
use crate::spec::controller_service_capability::{Rpc, Type, rpc};
use crate::spec::{
    ControllerExpandVolumeRequest, ControllerExpandVolumeResponse, ControllerGetCapabilitiesRequest,
    ControllerGetCapabilitiesResponse, ControllerGetVolumeRequest, ControllerGetVolumeResponse,
    ControllerModifyVolumeRequest, ControllerModifyVolumeResponse, ControllerPublishVolumeRequest,
    ControllerPublishVolumeResponse, ControllerServiceCapability, ControllerUnpublishVolumeRequest,
    ControllerUnpublishVolumeResponse, CreateSnapshotRequest, CreateSnapshotResponse, CreateVolumeRequest,
    CreateVolumeResponse, DeleteSnapshotRequest, DeleteSnapshotResponse, DeleteVolumeRequest, DeleteVolumeResponse,
    GetCapacityRequest, GetCapacityResponse, GetSnapshotRequest, GetSnapshotResponse, ListSnapshotsRequest,
    ListSnapshotsResponse, ListVolumesRequest, ListVolumesResponse, ValidateVolumeCapabilitiesRequest,
    ValidateVolumeCapabilitiesResponse,
};
use tonic::{Request, Response, Status};

pub use making::drop_all_passing;
pub use publishing::HOLDER;

type Answer<T> = Result<Response<T>, Status>;

/// What isn't alpha in the specification, and volumes' condition.
const CAPABILITIES: [rpc::Type; 10] = [
    rpc::Type::CreateDeleteVolume,
    rpc::Type::PublishUnpublishVolume,
    rpc::Type::ListVolumes,
    rpc::Type::GetCapacity,
    rpc::Type::CreateDeleteSnapshot,
    rpc::Type::ListSnapshots,
    rpc::Type::CloneVolume,
    rpc::Type::ExpandVolume,
    rpc::Type::VolumeCondition,
    rpc::Type::SingleNodeMultiWriter,
];

#[tonic::async_trait]
impl Controller for Driver {
    async fn create_volume(&self, asked: Request<CreateVolumeRequest>) -> Answer<CreateVolumeResponse> {
        self.answer(asked, "CreateVolume", |driver, asked| making::create(driver, &asked)).await
    }

    async fn delete_volume(&self, asked: Request<DeleteVolumeRequest>) -> Answer<DeleteVolumeResponse> {
        self.answer(asked, "DeleteVolume", |driver, asked| volumes::delete(driver, &asked)).await
    }

    async fn controller_publish_volume(
        &self,
        asked: Request<ControllerPublishVolumeRequest>,
    ) -> Answer<ControllerPublishVolumeResponse> {
        self.answer(asked, "ControllerPublishVolume", |driver, asked| publishing::publish(driver, &asked)).await
    }

    async fn controller_unpublish_volume(
        &self,
        asked: Request<ControllerUnpublishVolumeRequest>,
    ) -> Answer<ControllerUnpublishVolumeResponse> {
        self.answer(asked, "ControllerUnpublishVolume", |driver, asked| publishing::unpublish(driver, &asked)).await
    }

    async fn validate_volume_capabilities(
        &self,
        asked: Request<ValidateVolumeCapabilitiesRequest>,
    ) -> Answer<ValidateVolumeCapabilitiesResponse> {
        self.answer(asked, "ValidateVolumeCapabilities", volumes::validate).await
    }

    async fn list_volumes(&self, asked: Request<ListVolumesRequest>) -> Answer<ListVolumesResponse> {
        self.answer(asked, "ListVolumes", |driver, asked| volumes::list(driver, &asked)).await
    }

    async fn get_capacity(&self, asked: Request<GetCapacityRequest>) -> Answer<GetCapacityResponse> {
        self.answer(asked, "GetCapacity", capacity::get).await
    }

    async fn controller_get_capabilities(
        &self,
        _: Request<ControllerGetCapabilitiesRequest>,
    ) -> Answer<ControllerGetCapabilitiesResponse> {
        let capability =
            |one: rpc::Type| ControllerServiceCapability { r#type: Some(Type::Rpc(Rpc { r#type: one.into() })) };
        let capabilities = CAPABILITIES.into_iter().map(capability).collect();
        Ok(Response::new(ControllerGetCapabilitiesResponse { capabilities }))
    }

    async fn create_snapshot(&self, asked: Request<CreateSnapshotRequest>) -> Answer<CreateSnapshotResponse> {
        self.answer(asked, "CreateSnapshot", |driver, asked| snapshots::create(driver, &asked)).await
    }

    async fn delete_snapshot(&self, asked: Request<DeleteSnapshotRequest>) -> Answer<DeleteSnapshotResponse> {
        self.answer(asked, "DeleteSnapshot", |driver, asked| snapshots::delete(driver, &asked)).await
    }

    async fn list_snapshots(&self, asked: Request<ListSnapshotsRequest>) -> Answer<ListSnapshotsResponse> {
        self.answer(asked, "ListSnapshots", |driver, asked| snapshots::list(driver, &asked)).await
    }

    async fn get_snapshot(&self, _: Request<GetSnapshotRequest>) -> Answer<GetSnapshotResponse> {
        Err(Status::unimplemented("GetSnapshot: ListSnapshots with the snapshot's id has the same"))
    }

    async fn controller_expand_volume(
        &self,
        asked: Request<ControllerExpandVolumeRequest>,
    ) -> Answer<ControllerExpandVolumeResponse> {
        self.answer(asked, "ControllerExpandVolume", |driver, asked| volumes::expand(driver, &asked)).await
    }

    async fn controller_get_volume(
        &self,
        _: Request<ControllerGetVolumeRequest>,
    ) -> Answer<ControllerGetVolumeResponse> {
        Err(Status::unimplemented("ControllerGetVolume: ListVolumes has the same"))
    }

    async fn controller_modify_volume(
        &self,
        _: Request<ControllerModifyVolumeRequest>,
    ) -> Answer<ControllerModifyVolumeResponse> {
        Err(Status::unimplemented("volumes have no mutable parameters"))
    }
}
