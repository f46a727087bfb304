//! What this machine offers for attaching.

use super::netlink::{self, KernelNbd};
use super::{AttachError, Method, fuse, loop_device};
use std::fs::OpenOptions;
use std::path::Path;

/// The wanted method, or the best that's there: the kernel's own NBD client needs fewer steps for each request.
pub fn choose(wanted: Option<Method>) -> Result<Method, AttachError> {
    if !nix::unistd::geteuid().is_root() {
        return Err(AttachError::NotRoot("only root may make block devices (/dev/loop-control, /dev/nbd*)"));
    }
    match wanted {
        Some(Method::Nbd) if !has_nbd() => {
            Err(AttachError::Unsupported { method: Method::Nbd, missing: "the kernel's nbd module" })
        }
        Some(Method::Nbd) => Ok(Method::Nbd),
        None if has_nbd() => Ok(Method::Nbd),
        Some(Method::Fuse) | None => has_fuse().map(|()| Method::Fuse),
    }
}

fn has_nbd() -> bool {
    let found = || KernelNbd::find().is_ok_and(|kernel| kernel.is_some());
    found() || {
        netlink::load_module();
        found()
    }
}

fn has_fuse() -> Result<(), AttachError> {
    let usable = |path: &str| OpenOptions::new().read(true).write(true).open(Path::new(path)).is_ok();
    let missing = |missing| Err(AttachError::Unsupported { method: Method::Fuse, missing });
    if !usable(fuse::DEVICE) {
        return missing("/dev/fuse (the kernel's fuse module; in a container, the device)");
    }
    if !usable(loop_device::CONTROL) {
        return missing("/dev/loop-control (the kernel's loop module; in a container, the device)");
    }
    Ok(())
}
