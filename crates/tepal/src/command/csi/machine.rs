//! The driver's way to this machine's attachments, each of which has a process of its own.

use super::api::{Servers, failure};
use crate::attach::{self, AttachError, AttachRequest, DaemonCommand, Method, NbdAddress, by_key};
use crate::cli::Global;
use crate::command::CommandError;
use crate::command::attach::server_address;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tepal_csi::{Code, Device, Failure, Machine, VolumeHandle, Wanted};
use tepal_server::api::types::VolumeInfo;

/// Between an export's name and its holder.
const EXCLUSIVE: &str = "?exclusive=";

pub struct Attachments {
    pub global: Global,
    pub servers: Arc<Servers>,
    /// Rather than a server.
    pub gateway: Option<NbdAddress>,
    pub method: Option<Method>,
    pub give_up_after: Option<Duration>,
    pub run_folder: PathBuf,
    pub daemon: DaemonCommand,
}

impl Attachments {
    fn address(&self, volume: &VolumeInfo) -> Result<NbdAddress, Failure> {
        if let Some(gateway) = &self.gateway {
            return Ok(gateway.clone());
        }
        server_address(&self.global, &self.servers.client(), volume).map_err(|error| match error {
            CommandError::Client(error) => failure(error),
            error => Failure::new(Code::Unavailable, error.to_string()),
        })
    }
}

impl Machine for Attachments {
    fn attach(&self, wanted: &Wanted<'_>) -> Result<Device, Failure> {
        let holder = wanted.holder.map_or_else(String::new, |holder| format!("{EXCLUSIVE}{holder}"));
        let request = AttachRequest {
            volume: wanted.volume.name.clone(),
            export: wanted.handle.by_id() + &holder,
            key: wanted.handle.to_string(),
            address: self.address(wanted.volume)?,
            read_only: wanted.read_only,
            run_folder: self.run_folder.clone(),
            method: self.method,
            give_up_after: self.give_up_after,
            daemon: self.daemon.clone(),
        };
        let attached = attach::attach(&request).map_err(refusal)?;
        let holder = wanted.holder.map(str::to_owned);
        Ok(Device { path: attached.device, read_only: attached.read_only, is_served: true, waits: None, holder })
    }

    fn device(&self, volume: &VolumeHandle) -> Result<Option<Device>, Failure> {
        let kept = by_key::find(&self.run_folder, &volume.to_string()).map_err(refusal)?;
        Ok(kept.map(device))
    }

    fn devices(&self) -> Result<Vec<(VolumeHandle, Device)>, Failure> {
        let all = by_key::all(&self.run_folder).map_err(refusal)?.into_iter();
        Ok(all.filter_map(|(key, kept)| Some((VolumeHandle::parse(&key)?, device(kept)))).collect())
    }

    fn detach(&self, volume: &VolumeHandle) -> Result<(), Failure> {
        by_key::take_away(&self.run_folder, &volume.to_string()).map_err(refusal)
    }

    fn discard(&self, volume: &VolumeHandle) -> Result<(), Failure> {
        by_key::discard(&self.run_folder, &volume.to_string()).map_err(refusal)
    }

    fn follow_growth(&self, volume: &VolumeHandle) -> Result<(), Failure> {
        by_key::follow_growth(&self.run_folder, &volume.to_string()).map_err(refusal)
    }
}

fn device(by_key::Kept { device, export, read_only, lives, waiting }: by_key::Kept) -> Device {
    let holder = export.split_once(EXCLUSIVE).map(|(_, holder)| holder.to_owned());
    Device { path: device, holder, read_only, is_served: lives, waits: waiting }
}

fn refusal(error: AttachError) -> Failure {
    let code = match &error {
        AttachError::NotRoot(_) => Code::PermissionDenied,
        AttachError::Starting { .. } => Code::Aborted,
        AttachError::Unknown { .. } => Code::NotFound,
        AttachError::Volume(_) | AttachError::Unreachable { .. } | AttachError::WontEnd { .. } => Code::Unavailable,
        AttachError::Unsupported { .. }
        | AttachError::AlreadyAttached { .. }
        | AttachError::Dead { .. }
        | AttachError::Unfit { .. }
        | AttachError::InUse { .. } => Code::FailedPrecondition,
        _ => Code::Internal,
    };
    Failure::new(code, error.to_string())
}
