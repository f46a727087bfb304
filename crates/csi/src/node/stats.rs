//! How full a volume is, and how it is.

use super::expanding::length;
use super::mounts::{Mounts, Number};
use super::path;
use crate::driver::Driver;
use crate::failure::Failure;
use crate::health;
use crate::sizes::bytes;
use crate::spec::volume_usage::Unit;
use crate::spec::{NodeGetVolumeStatsRequest, NodeGetVolumeStatsResponse, VolumeCondition, VolumeUsage};
use nix::sys::statvfs::statvfs;
use std::path::Path;

pub fn get(driver: &Driver, asked: &NodeGetVolumeStatsRequest) -> Result<NodeGetVolumeStatsResponse, Failure> {
    let handle = driver.handle(&asked.volume_id);
    let at = path("volume path", &asked.volume_path)?;
    let handle = handle?;
    let device = driver.machine.device(&handle)?;
    let there = Mounts::read()?;
    let device = device.filter(|device| there.has(at, &device.path));
    let device = device.ok_or_else(|| Failure::not_found(format!("volume {handle} isn't at {}", at.display())))?;
    // What is asked of a filesystem whose device waits would wait too.
    if let Some(reason) = device.waits {
        return Err(Failure::unavailable(format!("I/O on {} waits: {reason}", device.path.display())));
    }
    let usage = match Number::of(at) {
        Some(_) => vec![VolumeUsage {
            total: bytes(length(&device.path)?),
            unit: Unit::Bytes.into(),
            ..VolumeUsage::default()
        }],
        None => of_filesystem(at)?,
    };
    let condition = match driver.volume(&asked.volume_id) {
        _ if !device.is_served => VolumeCondition {
            abnormal: true,
            message: "whoever served its device has ended, and all I/O fails".to_owned(),
        },
        Ok((_, volume)) => health::condition(&volume),
        Err(failure) if failure.is_not_found() => VolumeCondition { abnormal: true, message: failure.message },
        // It's here and works; that nobody can be asked is no fault of the volume.
        Err(failure) => VolumeCondition { abnormal: false, message: failure.message },
    };
    Ok(NodeGetVolumeStatsResponse { usage, volume_condition: Some(condition) })
}

fn of_filesystem(at: &Path) -> Result<Vec<VolumeUsage>, Failure> {
    let found = statvfs(at).map_err(|error| Failure::internal(format!("{}: {error}", at.display())))?;
    let unit = found.fragment_size();
    let blocks = |blocks: u64| bytes(blocks.saturating_mul(unit));
    let of_bytes = VolumeUsage {
        available: blocks(found.blocks_available()),
        total: blocks(found.blocks()),
        used: blocks(found.blocks().saturating_sub(found.blocks_free())),
        unit: Unit::Bytes.into(),
    };
    let of_inodes = VolumeUsage {
        available: bytes(found.files_available()),
        total: bytes(found.files()),
        used: bytes(found.files().saturating_sub(found.files_free())),
        unit: Unit::Inodes.into(),
    };
    Ok(vec![of_bytes, of_inodes])
}
