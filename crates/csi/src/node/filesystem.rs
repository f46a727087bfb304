//! Filesystems on devices: found, made on blank ones, mounted, made longer. All by the machine's programs.

use super::tools::{run, succeed};
use crate::capability::Filesystem;
use crate::failure::Failure;
use std::ffi::OsString;
use std::path::Path;

/// What a device has, by its signatures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// No signature that is known.
    Nothing,
    /// One that can be mounted.
    Filesystem(Filesystem),
    /// Something else, as it's called.
    Other(String),
}

/// What `blkid` ends with where it finds nothing.
const NOTHING: i32 = 2;

/// Looks at the device itself, and into no cache.
pub fn find(device: &Path) -> Result<Found, Failure> {
    let arguments = ["--probe".into(), "--output".into(), "export".into(), OsString::from(device)];
    let ended = run("blkid", arguments)?;
    match ended.status {
        Some(0) => {}
        Some(NOTHING) => {
            let signatures =
                succeed("wipefs", ["--noheadings".into(), "--output=TYPE".into(), OsString::from(device)])?;
            return Ok(match signatures.as_str() {
                "" => Found::Nothing,
                signatures => Found::Other(signatures.lines().map(str::trim).collect::<Vec<_>>().join(", ")),
            });
        }
        _ => return Err(ended.failure("blkid")),
    }
    let value = |key: &str| ended.said.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    Ok(match value("TYPE").or_else(|| value("PTTYPE")) {
        Some(found) => match Filesystem::called(found) {
            Some(filesystem) => Found::Filesystem(filesystem),
            None => Found::Other(found.to_owned()),
        },
        None => Found::Other("something".to_owned()),
    })
}

/// On a device that is blank: the programs look once more by themselves, and aren't forced.
pub fn make(filesystem: Filesystem, device: &Path) -> Result<(), Failure> {
    // A new volume has nothing to discard.
    let (program, options): (&str, &[&str]) = match filesystem {
        Filesystem::Ext4 => ("mkfs.ext4", &["-q", "-m", "0", "-E", "nodiscard"]),
        Filesystem::Xfs => ("mkfs.xfs", &["-q", "-K"]),
    };
    succeed(program, options.iter().map(OsString::from).chain([OsString::from(device)])).map(|_| ())
}

/// Read-only, it's mounted also if it wasn't unmounted before, as in a snapshot: without what its journal has.
pub fn mount(
    filesystem: Filesystem,
    device: &Path,
    at: &Path,
    read_only: bool,
    flags: &[String],
) -> Result<(), Failure> {
    let by = |more: &[&str]| {
        let mut options: Vec<&str> = flags.iter().map(String::as_str).chain(more.iter().copied()).collect();
        if filesystem == Filesystem::Xfs {
            options.push("nouuid"); // a clone has its source's
        }
        let mut arguments: Vec<OsString> = ["-t", filesystem.name()].map(OsString::from).into();
        if !options.is_empty() {
            arguments.extend(["-o".into(), options.join(",").into()]);
        }
        arguments.extend([device.into(), at.into()]);
        succeed("mount", arguments).map(|_| ())
    };
    let without_journal = match filesystem {
        Filesystem::Ext4 => "noload",
        Filesystem::Xfs => "norecovery",
    };
    match read_only {
        false => by(&[]),
        true => by(&["ro"]).or_else(|first| by(&["ro", without_journal]).map_err(|_| first)),
    }
}

/// As long as its device, if it isn't. It stays mounted.
pub fn grow(filesystem: Filesystem, device: &Path, at: &Path) -> Result<(), Failure> {
    match filesystem {
        Filesystem::Ext4 => succeed("resize2fs", [device]).map(|_| ()),
        Filesystem::Xfs => succeed("xfs_growfs", ["-d".as_ref(), at.as_os_str()]).map(|_| ()),
    }
}
