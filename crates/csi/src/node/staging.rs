//! A volume becomes a device of this machine, with a filesystem that is mounted once for all who use it here.
//!
//! Invariant: a filesystem is made only where nothing is: no drive holds a byte of the volume then, and where signatures would be, the
//! device has zeros. Where a machine ended while a filesystem was being made there, its note says so, and no signature says that something
//! else is there.

use super::filesystem::{self, Found};
use super::mounts::{self, Mounts};
use super::{path, readers};
use crate::capability::{self, Capability, Filesystem, Kind};
use crate::controller::HOLDER;
use crate::driver::Driver;
use crate::failure::Failure;
use crate::machine::{Device, Wanted};
use crate::names::VolumeHandle;
use crate::spec::{
    NodeStageVolumeRequest, NodeStageVolumeResponse, NodeUnstageVolumeRequest, NodeUnstageVolumeResponse,
};
use std::fs;
use std::path::{Path, PathBuf};
use tepal_server::api::types::VolumeInfo;

pub fn stage(driver: &Driver, asked: &NodeStageVolumeRequest) -> Result<NodeStageVolumeResponse, Failure> {
    let handle = driver.handle(&asked.volume_id);
    let at = path("staging target path", &asked.staging_target_path)?;
    let capability = Capability::required(asked.volume_capability.as_ref())?;
    let handle = handle?;
    let _turn = driver.turns.take(handle.to_string())?;
    let (_, volume) = driver.volume(&asked.volume_id)?;
    usable(&volume, &capability)?;
    let holder = asked.publish_context.get(HOLDER).map(String::as_str);
    let (device, is_new) =
        attached(driver, &Wanted { volume: &volume, handle, holder, read_only: capability.read_only })?;
    let note = note_of_block(driver, &handle);
    if is_new {
        forget(&note)?; // of a device that was discarded
    }
    let staged = match &capability.kind {
        Kind::Block => as_it_is(&volume, &device, at, &note),
        Kind::Mount { .. } if note.exists() => {
            Err(Failure::exists(format!("volume '{}' is staged as a raw block volume: unstage it first", volume.name)))
        }
        Kind::Mount { filesystem, flags } => mounted(driver, &volume, &device, at, (*filesystem, flags), &capability),
    };
    if let (Err(_), true) = (&staged, is_new) {
        // Nobody may come and take it away. That it failed is what there is to tell.
        let _ = driver.machine.detach(&handle);
    }
    staged.map(|()| NodeStageVolumeResponse {})
}

/// Where it's noted that a volume is staged as a raw block volume: no mount says so.
fn note_of_block(driver: &Driver, handle: &VolumeHandle) -> PathBuf {
    driver.settings.notes.join(format!("block-{handle}"))
}

/// The device itself is what is wanted.
fn as_it_is(volume: &VolumeInfo, device: &Device, at: &Path, note: &Path) -> Result<(), Failure> {
    if Mounts::read()?.has(at, &device.path) {
        let (name, at) = (&volume.name, at.display());
        return Err(Failure::exists(format!(
            "volume '{name}' is staged at {at} as a filesystem, and not as a raw block volume: unstage it first"
        )));
    }
    write_down(note)
}

fn write_down(note: &Path) -> Result<(), Failure> {
    let written = note.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(note, ""));
    written.map_err(|error| Failure::internal(format!("{} can't be written: {error}", note.display())))
}

fn usable(volume: &VolumeInfo, capability: &Capability) -> Result<(), Failure> {
    if volume.incomplete.is_some() {
        return Err(Failure::precondition(format!(
            "volume '{}' is incomplete: an import of it hasn't ended",
            volume.name
        )));
    }
    match volume.replica.is_some() && !capability.read_only {
        true => Err(Failure::precondition(format!("volume '{}' is a replica, which is only read", volume.name))),
        false => Ok(()),
    }
}

/// The device, and whether it's a new one.
fn attached(driver: &Driver, wanted: &Wanted<'_>) -> Result<(Device, bool), Failure> {
    match driver.machine.device(&wanted.handle)?.filter(|device| device.is_served) {
        Some(device) if device.holder.as_deref() != wanted.holder => {
            if let Some(mount) = Mounts::read()?.of(&device.path).first() {
                let (name, at) = (&wanted.volume.name, mount.at.display());
                return Err(Failure::precondition(format!(
                    "volume '{name}' is still mounted at {at} from an earlier time, and cut off: unpublish and unstage it first"
                )));
            }
            driver.machine.discard(&wanted.handle)?;
            Ok((driver.machine.attach(wanted)?, true))
        }
        Some(device) if device.read_only == wanted.read_only => Ok((device, false)),
        Some(device) => {
            let how = if device.read_only { "for reading only" } else { "for writing" };
            Err(Failure::exists(format!(
                "volume '{}' is attached as {} {how}",
                wanted.volume.name,
                device.path.display()
            )))
        }
        None => Ok((driver.machine.attach(wanted)?, true)),
    }
}

fn mounted(
    driver: &Driver,
    volume: &VolumeInfo,
    device: &Device,
    at: &Path,
    (wanted, flags): (Option<Filesystem>, &[String]),
    capability: &Capability,
) -> Result<(), Failure> {
    let there = Mounts::read()?;
    if let Some(mount) = there.at(at).filter(|_| there.has(at, &device.path)) {
        return match wanted.filter(|wanted| wanted.name() != mount.filesystem) {
            None => Ok(()),
            Some(wanted) => Err(Failure::exists(format!(
                "volume '{}' is staged at {} with {}, and {} is wanted",
                volume.name,
                at.display(),
                mount.filesystem,
                wanted.name()
            ))),
        };
    }
    if there.at(at).is_some() {
        return Err(Failure::precondition(format!("something else is mounted at {}", at.display())));
    }
    let (found, is_new) = on_device(driver, volume, device, wanted)?;
    if let Some(wanted) = wanted.filter(|wanted| *wanted != found) {
        let (found, wanted) = (found.name(), wanted.name());
        return Err(Failure::precondition(format!("volume '{}' has {found}, and {wanted} is wanted", volume.name)));
    }
    fs::create_dir_all(at).map_err(|error| Failure::internal(format!("{} can't be made: {error}", at.display())))?;
    filesystem::mount(found, &device.path, at, capability.read_only, flags)?;
    if capability.read_only || is_new {
        return Ok(());
    }
    // A clone may be longer than what it's a clone of.
    filesystem::grow(found, &device.path, at).inspect_err(|_| drop(mounts::unmount(at)))
}

/// The filesystem on a device, which is made if the device is blank, and whether it was made now.
fn on_device(
    driver: &Driver,
    volume: &VolumeInfo,
    device: &Device,
    wanted: Option<Filesystem>,
) -> Result<(Filesystem, bool), Failure> {
    let handle = VolumeHandle { cluster: driver.cluster.id()?, volume: volume.id };
    let note = driver.settings.notes.join(format!("formatting-{handle}"));
    let name = &volume.name;
    let was_begun = note.exists();
    let may_be_made = !was_begun && !device.read_only;
    let is_blank = may_be_made
        && !driver.cluster.has_data(&handle, volume.size)?
        && filesystem::has_zeros_at_its_ends(&device.path)?;
    if !is_blank {
        match filesystem::find(&device.path)? {
            Found::Filesystem(found) => {
                forget(&note)?;
                return Ok((found, false));
            }
            Found::Other(what) => {
                return Err(Failure::precondition(format!(
                    "volume '{name}' has no filesystem but {what}, and is left as it is"
                )));
            }
            Found::Nothing if device.read_only => {
                return Err(Failure::precondition(format!(
                    "volume '{name}' has no filesystem, and is only to be read"
                )));
            }
            Found::Nothing if !was_begun => {
                return Err(Failure::precondition(format!(
                    "volume '{name}' has data and no filesystem, and is left as it is: use it as a raw block volume, or `blkdiscard` it first"
                )));
            }
            Found::Nothing => {}
        }
    }
    write_down(&note)?;
    let filesystem = capability::to_make(wanted);
    filesystem::make(filesystem, &device.path, is_blank)?;
    forget(&note)?;
    Ok((filesystem, true))
}

fn forget(note: &Path) -> Result<(), Failure> {
    match fs::remove_file(note) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Failure::internal(format!("{} can't be removed: {error}", note.display())))
        }
        _ => Ok(()),
    }
}

/// Whether nothing that is written to a device reaches its volume any more, as far as somebody can say.
fn is_cut_off(driver: &Driver, handle: &VolumeHandle, device: &Device) -> bool {
    match driver.cluster.volume(&handle.by_id()) {
        Ok(volume) => device.holder.is_some() && volume.reserved_by != device.holder,
        Err(failure) => failure.is_not_found(),
    }
}

/// A machine gives back also what the cluster has forgotten, or has given to another one: without waiting for what can't be written.
pub fn unstage(driver: &Driver, asked: &NodeUnstageVolumeRequest) -> Result<NodeUnstageVolumeResponse, Failure> {
    if asked.volume_id.is_empty() {
        return Err(Failure::invalid("the volume id is missing"));
    }
    let at = path("staging target path", &asked.staging_target_path)?;
    let handle = VolumeHandle::parse(&asked.volume_id).ok_or_else(|| {
        Failure::not_found(format!("there is no volume '{}'", tepal_model::text::shown(&asked.volume_id)))
    })?;
    let _turn = driver.turns.take(handle.to_string())?;
    let device = driver.machine.device(&handle)?;
    let there = Mounts::read()?;
    match &device {
        Some(device) if there.at(at).is_some() && !there.has(at, &device.path) => {
            return Err(Failure::precondition(format!("something else is mounted at {}", at.display())));
        }
        Some(device) => {
            let still_mounted = |mounts: &Mounts| {
                let of_device = mounts.of(&device.path).into_iter();
                of_device.map(|mount| mount.at.clone()).find(|mounted| mounted != at)
            };
            let refused = |mounted: PathBuf| {
                Failure::precondition(format!("{} is still mounted at {}", device.path.display(), mounted.display()))
            };
            // A device that is let go is soon another volume's, and whatever still shows it would show that one.
            if let Some(mounted) = still_mounted(&there) {
                return Err(refused(mounted));
            }
            if is_cut_off(driver, &handle, device) {
                driver.machine.discard(&handle)?;
            }
            mounts::unmount(at)?;
            if let Some(mounted) = still_mounted(&Mounts::read()?) {
                return Err(refused(mounted));
            }
        }
        None => {}
    }
    if let Some(device) = &device {
        readers::take_away(&device.path, &Mounts::read()?)?;
    }
    driver.machine.detach(&handle)?;
    forget(&note_of_block(driver, &handle))?;
    Ok(NodeUnstageVolumeResponse {})
}
