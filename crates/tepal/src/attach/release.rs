//! Taking a device away, whoever does it: `tepal detach`, the daemon when it's told to end, or a start that failed.

use super::folder::{AttachmentFolder, Record};
use super::in_use::{self, User};
use super::netlink::{self, KernelNbd};
use super::{AttachError, Method, fuse, loop_device};
use nix::errno::Errno;
use nix::mount::{MntFlags, umount2};
use std::path::Path;

/// Whether what was written is to reach the volume first. Not if the daemon is dead: nothing gets there any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flush {
    First,
    GiveUp,
}

/// Takes the device away, if nobody uses it. The daemon ends by itself then, having nothing to serve.
pub fn release(place: &AttachmentFolder, record: &Record, flush: Flush) -> Result<(), AttachError> {
    if owns_device(place, record) {
        let device = &record.device;
        let failed = |source| AttachError::Device { doing: "release", device: device.clone(), source };
        let exclusive = match in_use::claim(device).map_err(failed)? {
            Ok(exclusive) => exclusive,
            Err(user) => return Err(in_use(record, user)),
        };
        if flush == Flush::First {
            let failed = |source| AttachError::Unflushed { device: device.clone(), source };
            exclusive.sync_all().map_err(failed)?;
        }
        match record.method {
            Method::Fuse => loop_device::detach(device, exclusive).map_err(failed)?,
            Method::Nbd => {
                drop(exclusive); // the kernel keeps a device's settings while it's open
                if let Some(kernel) = KernelNbd::find().map_err(failed)? {
                    kernel.disconnect(device).map_err(failed)?;
                }
            }
        }
    }
    unmount(&place.mountpoint())
}

/// Has everything on the device fail, and the kernel take it away when nobody uses it any more. Its daemon is gone.
pub fn let_go(place: &AttachmentFolder, record: &Record) -> Result<(), AttachError> {
    let device = &record.device;
    let failed = |source| AttachError::Device { doing: "release", device: device.clone(), source };
    match record.method {
        Method::Fuse => loop_device::detach_on_last_close(device).map_err(failed)?,
        Method::Nbd => {
            if let Some(kernel) = KernelNbd::find().map_err(failed)? {
                // It's told. That somebody keeps it open is known.
                let _ = kernel.disconnect(device);
            }
        }
    }
    unmount(&place.mountpoint())
}

fn in_use(record: &Record, user: User) -> AttachError {
    AttachError::InUse { volume: record.volume.clone(), device: record.device.clone(), user }
}

/// Whether the device is still the one of this attachment. After a restart of the machine its name may be another's.
pub fn owns_device(place: &AttachmentFolder, record: &Record) -> bool {
    match record.method {
        Method::Fuse => {
            loop_device::backing_file(&record.device).is_some_and(|file| file == place.mountpoint().join(fuse::FILE))
        }
        // The kernel's own client shows the process that connected it.
        Method::Nbd => netlink::pid_of(&record.device) == Some(record.pid),
    }
}

/// Unmounts what is mounted there, if anything. Lazily: the loop device has let go of it, and nobody else may see it.
pub fn unmount(mountpoint: &Path) -> Result<(), AttachError> {
    match umount2(mountpoint, MntFlags::MNT_DETACH) {
        Ok(()) | Err(Errno::EINVAL | Errno::ENOENT) => Ok(()),
        Err(error) => Err(AttachError::file("unmount", mountpoint, error.into())),
    }
}
