//! What is mounted where, as the kernel says it: the driver itself remembers nothing.

use super::readers;
use crate::failure::Failure;
use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::stat::{major, minor};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// One line of proc_pid_mountinfo(5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Major and minor number of the filesystem's device.
    pub device: (u64, u64),
    /// What of the filesystem is mounted.
    pub root: PathBuf,
    /// Where.
    pub at: PathBuf,
    /// Whether this mount allows no writes.
    pub read_only: bool,
    /// As `mount` calls it.
    pub filesystem: String,
}

/// All that is mounted, in order.
pub struct Mounts(Vec<Mount>);

/// A device's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Number(u64);

impl Number {
    /// Of the block device that a path names.
    pub fn of(path: &Path) -> Option<Number> {
        let found = fs::metadata(path).ok().filter(|found| found.file_type().is_block_device())?;
        Some(Number(found.rdev()))
    }

    fn is(self, device: (u64, u64)) -> bool {
        (major(self.0), minor(self.0)) == device
    }
}

impl Mounts {
    /// As it is now.
    pub fn read() -> Result<Mounts, Failure> {
        let text = fs::read("/proc/self/mountinfo");
        let text = text.map_err(|error| Failure::internal(format!("/proc/self/mountinfo can't be read: {error}")))?;
        Ok(Mounts::parse(&text))
    }

    fn parse(text: &[u8]) -> Mounts {
        Mounts(text.split(|byte| *byte == b'\n').filter_map(line).collect())
    }

    /// What is seen at this path, if it's a mountpoint.
    pub fn at(&self, path: &Path) -> Option<&Mount> {
        self.0.iter().rev().find(|mount| mount.at == path)
    }

    /// Where the device's filesystem is mounted, and the device itself, if only to be read.
    pub fn of(&self, device: &Path) -> Vec<&Mount> {
        let Some(number) = Number::of(device) else { return Vec::new() };
        self.0.iter().filter(|mount| shows(mount, device, number)).collect()
    }

    /// Whether that path has the device's filesystem, or the device itself, if only to be read.
    pub fn has(&self, path: &Path, device: &Path) -> bool {
        let (Some(mount), Some(number)) = (self.at(path), Number::of(device)) else { return false };
        shows(mount, device, number)
    }
}

fn shows(mount: &Mount, device: &Path, number: Number) -> bool {
    number.is(mount.device)
        || is_itself(mount, device, number)
        || readers::shown_by(mount).is_some_and(|under| under == device)
}

/// Only where the names are the same is it worth a look, which waits where a filesystem does.
fn is_itself(mount: &Mount, device: &Path, number: Number) -> bool {
    mount.root.file_name() == device.file_name() && Number::of(&mount.at) == Some(number)
}

fn line(text: &[u8]) -> Option<Mount> {
    let fields: Vec<&[u8]> = text.split(|byte| *byte == b' ').collect();
    let &[_, _, device, root, at, options, ..] = fields.as_slice() else { return None };
    let end = fields.iter().position(|field| *field == b"-")?;
    let (major, minor) = std::str::from_utf8(device).ok()?.split_once(':')?;
    Some(Mount {
        device: (major.parse().ok()?, minor.parse().ok()?),
        root: unescaped(root),
        at: unescaped(at),
        read_only: options.split(|byte| *byte == b',').any(|option| option == b"ro"),
        filesystem: String::from_utf8_lossy(fields.get(end + 1)?).into_owned(),
    })
}

/// Spaces and the like are written as three octal digits.
fn unescaped(text: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, after @ ..] = rest {
        let digits = after.get(..3).filter(|_| *first == b'\\').and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[3..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    std::ffi::OsString::from_vec(bytes).into()
}

/// Shows at `to` what is at `from`.
pub fn bind(from: &Path, to: &Path, read_only: bool) -> Result<(), Failure> {
    let failed =
        |error: Errno| Failure::internal(format!("{} can't be mounted at {}: {error}", from.display(), to.display()));
    mount(Some(from), to, None::<&str>, MsFlags::MS_BIND, None::<&str>).map_err(failed)?;
    if read_only {
        let flags = MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY;
        if let Err(error) = mount(None::<&str>, to, None::<&str>, flags, None::<&str>) {
            let _ = umount2(to, MntFlags::UMOUNT_NOFOLLOW); // the first error is the one to tell
            return Err(failed(error));
        }
    }
    Ok(())
}

/// Nothing is mounted there any more.
pub fn unmount(path: &Path) -> Result<(), Failure> {
    while Mounts::read()?.at(path).is_some() {
        match umount2(path, MntFlags::UMOUNT_NOFOLLOW) {
            Ok(()) | Err(Errno::EINVAL | Errno::ENOENT) => {}
            Err(error) => return Err(Failure::internal(format!("{} can't be unmounted: {error}", path.display()))),
        }
    }
    Ok(())
}

/// Removes a mountpoint: never what has something in it.
pub fn remove(path: &Path) -> Result<(), Failure> {
    let removed = match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => fs::remove_dir(path),
        Ok(found) if found.is_file() && found.len() > 0 => Err(io::ErrorKind::DirectoryNotEmpty.into()),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Failure::internal(format!("{} can't be removed: {error}", path.display())))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_lines_are_read_with_spaces_in_paths() {
        let text = b"36 35 7:3 / /mnt/a\\040b rw,relatime shared:1 - ext4 /dev/loop3 rw\n\
            37 35 0:5 /loop3 /target ro,nosuid - devtmpfs udev rw,size=4096k\n\
            38 36 7:4 / /mnt/a\\040b rw - xfs /dev/loop4 rw\nnonsense\n";
        let mounts = Mounts::parse(text);
        let found = mounts.at(Path::new("/mnt/a b")).expect("the last one");
        assert_eq!((found.device, found.filesystem.as_str(), found.read_only), ((7, 4), "xfs", false));
        let found = mounts.at(Path::new("/target")).expect("there");
        assert_eq!(
            (found.root.as_path(), found.filesystem.as_str(), found.read_only),
            (Path::new("/loop3"), "devtmpfs", true)
        );
        assert_eq!(mounts.at(Path::new("/mnt")), None);
    }

    #[test]
    fn only_an_empty_mountpoint_is_removed() {
        let scratch = tempfile::tempdir().expect("space");
        let (folder, file) = (scratch.path().join("d"), scratch.path().join("f"));
        fs::create_dir(&folder).expect("ours");
        fs::write(folder.join("x"), "").expect("ours");
        fs::write(&file, "x").expect("ours");
        assert!(remove(&folder).is_err() && remove(&file).is_err());
        fs::remove_file(folder.join("x")).expect("ours");
        fs::write(&file, "").expect("ours");
        for path in [&folder, &file, &file] {
            remove(path).expect("empty, or not there");
        }
        assert_eq!(fs::read_dir(scratch.path()).expect("ours").count(), 0);
    }
}
