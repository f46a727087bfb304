//! A volume that has grown: its device follows, and its filesystem.

use super::mounts::Mounts;
use super::{filesystem, path, readers};
use crate::capability::Filesystem;
use crate::driver::Driver;
use crate::failure::Failure;
use crate::machine::Device;
use crate::names::VolumeHandle;
use crate::sizes::bytes;
use crate::spec::{NodeExpandVolumeRequest, NodeExpandVolumeResponse};
use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::path::Path;
use std::time::{Duration, Instant};

/// Whoever serves the device asks a server for the volume's size, which may take so long.
const LIMIT: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(20);
/// Told once, it may have asked a moment too early.
const TELL: Duration = Duration::from_secs(2);

pub fn expand(driver: &Driver, asked: &NodeExpandVolumeRequest) -> Result<NodeExpandVolumeResponse, Failure> {
    let handle = driver.handle(&asked.volume_id);
    let at = path("volume path", &asked.volume_path)?;
    let handle = handle?;
    let _turn = driver.turns.take(handle.to_string())?;
    let (_, volume) = driver.volume(&asked.volume_id)?;
    let device = driver.machine.device(&handle)?.filter(|device| device.is_served);
    let there = Mounts::read()?;
    let device = device.filter(|device| there.has(at, &device.path));
    let device = device.ok_or_else(|| Failure::not_found(format!("volume {handle} isn't at {}", at.display())))?;
    let size = grown(driver, &handle, &device, volume.size)?;
    readers::follow_growth(&device.path)?;
    // A device that is shown as it is has none.
    let mounted = there.at(at).and_then(|mount| Filesystem::called(&mount.filesystem));
    if let Some(filesystem) = mounted.filter(|_| at.is_dir() && !device.read_only) {
        filesystem::grow(filesystem, &device.path, at)?;
    }
    Ok(NodeExpandVolumeResponse { capacity_bytes: bytes(size) })
}

fn grown(driver: &Driver, handle: &VolumeHandle, device: &Device, wanted: u64) -> Result<u64, Failure> {
    let end = Instant::now() + LIMIT;
    let (mut size, mut told) = (length(&device.path)?, None);
    while size < wanted {
        if Instant::now() >= end {
            let path = device.path.display();
            return Err(Failure::unavailable(format!("{path} has {size} bytes, and volume {handle} has {wanted}")));
        }
        if told.is_none_or(|at: Instant| at.elapsed() >= TELL) {
            driver.machine.follow_growth(handle)?;
            told = Some(Instant::now());
        }
        std::thread::sleep(LOOK); // the kernel tells of a device's size to nobody
        size = length(&device.path)?;
    }
    Ok(size)
}

/// Of a device, in bytes.
pub fn length(device: &Path) -> Result<u64, Failure> {
    let length = File::open(device).and_then(|mut device| device.seek(SeekFrom::End(0)));
    length.map_err(|error| Failure::internal(format!("{}: {error}", device.display())))
}
