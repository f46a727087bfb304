//! Filesystems on devices: found, made on blank ones, mounted, made longer. All by the machine's programs.

use super::tools::{run, succeed};
use crate::capability::Filesystem;
use crate::failure::Failure;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
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

/// Bytes from the beginning of a device on, and up to its end, within which all signatures are that `blkid` knows.
const END: u64 = 1 << 20;
/// For `mke2fs` from 1.47 on.
const ON_ZEROS: &str = "nodiscard,assume_storage_prezeroed=1";

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

/// Whether all is zeros where filesystems, tables of partitions and the like have their signatures.
pub fn has_zeros_at_its_ends(device: &Path) -> Result<bool, Failure> {
    let failed = |error: io::Error| Failure::internal(format!("{}: {error}", device.display()));
    let mut file = File::open(device).map_err(failed)?;
    let length = file.seek(SeekFrom::End(0)).map_err(failed)?;
    let mut bytes = vec![0; END.min(length) as usize];
    for from in [0, length - bytes.len() as u64] {
        file.read_exact_at(&mut bytes, from).map_err(failed)?;
        if bytes.iter().any(|byte| *byte != 0) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// On a device that has nothing that is known: the programs look once more by themselves, and aren't forced. `is_blank`: all of it is
/// zeros, which needn't be written then, nor later by the kernel.
pub fn make(filesystem: Filesystem, device: &Path, is_blank: bool) -> Result<(), Failure> {
    // A new volume has nothing to discard.
    let (program, options): (&str, &[&str]) = match filesystem {
        Filesystem::Ext4 => ("mkfs.ext4", &["-q", "-m", "0", "-E"]),
        Filesystem::Xfs => ("mkfs.xfs", &["-q"]),
    };
    let by =
        |last: &str| run(program, options.iter().chain([&last]).map(OsString::from).chain([OsString::from(device)]));
    let ended = match filesystem {
        Filesystem::Ext4 if is_blank => match by(ON_ZEROS)? {
            // It's older, and hasn't begun.
            ended if ended.complaint.contains("Bad option") => by("nodiscard")?,
            ended => ended,
        },
        Filesystem::Ext4 => by("nodiscard")?,
        Filesystem::Xfs => by("-K")?,
    };
    match ended.status {
        Some(0) => Ok(()),
        _ => Err(ended.failure(program)),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_at_either_end_is_something() {
        for (length, at, is_blank) in [
            (0, None, true),
            (512, None, true),
            (512, Some(511), false),
            (3 * END, None, true),
            (3 * END, Some(0), false),
            (3 * END, Some(END - 1), false),
            (3 * END, Some(END), true),
            (3 * END, Some(2 * END), false),
            (3 * END, Some(3 * END - 1), false),
        ] {
            let file = tempfile::NamedTempFile::new().expect("space");
            file.as_file().set_len(length).expect("space");
            at.map_or(Ok(()), |at| file.as_file().write_all_at(&[1], at)).expect("space");
            assert_eq!(has_zeros_at_its_ends(file.path()).expect("readable"), is_blank, "{length} bytes, {at:?}");
        }
    }
}
