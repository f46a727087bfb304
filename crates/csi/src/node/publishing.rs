//! A staged volume is shown where a workload finds it.

use super::mounts::{self, Mounts};
use super::path;
use crate::capability::{Capability, Kind};
use crate::driver::Driver;
use crate::failure::Failure;
use crate::machine::Device;
use crate::names::VolumeHandle;
use crate::spec::{
    NodePublishVolumeRequest, NodePublishVolumeResponse, NodeUnpublishVolumeRequest, NodeUnpublishVolumeResponse,
};
use std::fs;
use std::path::Path;

pub fn publish(driver: &Driver, asked: &NodePublishVolumeRequest) -> Result<NodePublishVolumeResponse, Failure> {
    let handle = driver.handle(&asked.volume_id);
    let target = path("target path", &asked.target_path)?;
    let capability = Capability::required(asked.volume_capability.as_ref())?;
    let handle = handle?;
    let staging = path("staging target path", &asked.staging_target_path)?;
    let _turn = driver.turns.take(handle.to_string())?;
    let device = staged(driver, &handle)?;
    let read_only = asked.readonly || capability.read_only;
    let there = Mounts::read()?;
    if let Some(mount) = there.at(target) {
        return match there.has(target, &device.path) && (mount.read_only == read_only || capability.kind == Kind::Block)
        {
            true => Ok(NodePublishVolumeResponse {}),
            false => Err(Failure::exists(format!("something else is mounted at {}", target.display()))),
        };
    }
    if capability.single {
        let other = there.of(&device.path).into_iter().find(|mount| mount.at != staging);
        if let Some(other) = other {
            let (volume, at) = (&asked.volume_id, other.at.display());
            return Err(Failure::precondition(format!(
                "volume {volume} is for one place alone, and published at {at}"
            )));
        }
    }
    match capability.kind {
        Kind::Block => show_device(&device, target, read_only)?,
        Kind::Mount { .. } => {
            if !there.has(staging, &device.path) {
                return Err(Failure::precondition(format!(
                    "volume {} isn't staged at {}",
                    asked.volume_id,
                    staging.display()
                )));
            }
            fs::create_dir_all(target).map_err(|error| cant_make(target, &error))?;
            mounts::bind(staging, target, read_only)?;
        }
    }
    Ok(NodePublishVolumeResponse {})
}

fn staged(driver: &Driver, handle: &VolumeHandle) -> Result<Device, Failure> {
    match driver.machine.device(handle)? {
        Some(device) if device.is_served => Ok(device),
        Some(device) => {
            let path = device.path.display();
            Err(Failure::precondition(format!(
                "whoever served {path} has ended, and all I/O fails: stage volume {handle} again"
            )))
        }
        None => {
            // That there's no such volume is the better answer.
            driver.volume(&handle.to_string())?;
            Err(Failure::precondition(format!("volume {handle} isn't staged")))
        }
    }
}

fn show_device(device: &Device, target: &Path, read_only: bool) -> Result<(), Failure> {
    if read_only && !device.read_only {
        return Err(Failure::invalid(
            "a raw block volume that is staged for writing can't be published read-only: an access mode of readers is for that",
        ));
    }
    let made = target.parent().map_or(Ok(()), fs::create_dir_all);
    let made = made.and_then(|()| fs::OpenOptions::new().create(true).append(true).open(target));
    made.map_err(|error| cant_make(target, &error))?;
    mounts::bind(&device.path, target, false)
}

fn cant_make(path: &Path, error: &std::io::Error) -> Failure {
    Failure::internal(format!("{} can't be made: {error}", path.display()))
}

pub fn unpublish(driver: &Driver, asked: &NodeUnpublishVolumeRequest) -> Result<NodeUnpublishVolumeResponse, Failure> {
    if asked.volume_id.is_empty() {
        return Err(Failure::invalid("the volume id is missing"));
    }
    let target = path("target path", &asked.target_path)?;
    let _turn = driver.turns.take(asked.volume_id.clone())?;
    mounts::unmount(target)?;
    mounts::remove(target)?;
    Ok(NodeUnpublishVolumeResponse {})
}
