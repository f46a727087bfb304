//! Who the driver is, and what it can do.

use crate::driver::Driver;
use crate::spec::identity_server::Identity;
use crate::spec::plugin_capability::{Service, Type, VolumeExpansion, service, volume_expansion};
use crate::spec::{
    GetPluginCapabilitiesRequest, GetPluginCapabilitiesResponse, GetPluginInfoRequest, GetPluginInfoResponse,
    PluginCapability, ProbeRequest, ProbeResponse,
};
use std::collections::HashMap;
use tonic::{Request, Response, Status};

/// By which the orchestrator knows the driver.
pub const NAME: &str = "csi.tepal";

#[tonic::async_trait]
impl Identity for Driver {
    async fn get_plugin_info(
        &self,
        _: Request<GetPluginInfoRequest>,
    ) -> Result<Response<GetPluginInfoResponse>, Status> {
        Ok(Response::new(GetPluginInfoResponse {
            name: NAME.to_owned(),
            vendor_version: env!("CARGO_PKG_VERSION").to_owned(),
            manifest: HashMap::new(),
        }))
    }

    async fn get_plugin_capabilities(
        &self,
        _: Request<GetPluginCapabilitiesRequest>,
    ) -> Result<Response<GetPluginCapabilitiesResponse>, Status> {
        let service = |one: service::Type| Type::Service(Service { r#type: one.into() });
        let online = Type::VolumeExpansion(VolumeExpansion { r#type: volume_expansion::Type::Online.into() });
        let controller = self.settings.controller.then(|| service(service::Type::ControllerService));
        let all = controller.into_iter().chain([service(service::Type::VolumeAccessibilityConstraints), online]);
        let capabilities = all.map(|one| PluginCapability { r#type: Some(one) }).collect();
        Ok(Response::new(GetPluginCapabilitiesResponse { capabilities }))
    }

    /// Ready, once the cluster has answered: devices of this machine are looked after in any case.
    async fn probe(&self, asked: Request<ProbeRequest>) -> Result<Response<ProbeResponse>, Status> {
        self.answer(asked, "Probe", |driver, _| Ok(ProbeResponse { ready: Some(driver.cluster.id().is_ok()) })).await
    }
}
