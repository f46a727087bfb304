//! A staged volume is shown where a workload finds it.

use super::mounts::{self, Mounts};
use super::{path, readers};
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
use tepal_model::text::shown;

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
        let is_read_only = match capability.kind {
            Kind::Block => device.read_only || readers::shown_by(mount).is_some(),
            Kind::Mount { .. } => mount.read_only,
        };
        let is_wanted = is_read_only == (read_only || (device.read_only && capability.kind == Kind::Block));
        return match there.has(target, &device.path) && is_wanted {
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
    let from = match read_only && !device.read_only {
        true => {
            // One that nobody is shown may be of what had the device before.
            readers::take_away(&device.path, &Mounts::read()?)?;
            readers::of(&device.path)?
        }
        false => device.path.clone(),
    };
    let made = target.parent().map_or(Ok(()), fs::create_dir_all);
    let made = made.and_then(|()| fs::OpenOptions::new().create(true).append(true).open(target));
    made.map_err(|error| cant_make(target, &error))?;
    mounts::bind(&from, target, false)
}

fn cant_make(path: &Path, error: &std::io::Error) -> Failure {
    Failure::internal(format!("{} can't be made: {error}", path.display()))
}

/// What is left of a volume that has no device any more is anybody's to take away, and what another volume has isn't.
fn of_no_other(driver: &Driver, volume: &str, target: &Path, there: &Mounts) -> Result<(), Failure> {
    let own = VolumeHandle::parse(volume);
    let others = driver.machine.devices()?.into_iter().filter(|(handle, _)| own != Some(*handle));
    match others.into_iter().find(|(_, device)| there.has(target, &device.path)) {
        None => Ok(()),
        Some((other, _)) => {
            let (target, volume) = (target.display(), shown(volume));
            Err(Failure::precondition(format!("volume {other} is published at {target}, and not volume {volume}")))
        }
    }
}

pub fn unpublish(driver: &Driver, asked: &NodeUnpublishVolumeRequest) -> Result<NodeUnpublishVolumeResponse, Failure> {
    if asked.volume_id.is_empty() {
        return Err(Failure::invalid("the volume id is missing"));
    }
    let target = path("target path", &asked.target_path)?;
    let _turn = driver.turns.take(asked.volume_id.clone())?;
    let there = Mounts::read()?;
    let read = there.at(target).and_then(readers::shown_by);
    if there.at(target).is_some() {
        of_no_other(driver, &asked.volume_id, target, &there)?;
    }
    mounts::unmount(target)?;
    mounts::remove(target)?;
    if let Some(device) = read {
        readers::take_away(&device, &Mounts::read()?)?;
    }
    Ok(NodeUnpublishVolumeResponse {})
}
