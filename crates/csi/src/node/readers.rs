//! A device of which a workload may only read, of one that is staged for writing: a loop device over it that refuses writes. A mount that
//! is read-only doesn't: whoever may open a device through it writes to the device.
//!
//! Nothing is remembered: the kernel says over which device a loop device is.

use super::mounts::{Mount, Mounts, Number};
use super::tools::succeed;
use crate::failure::Failure;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

const DEVICES: &str = "/sys/class/block";

/// The read-only device over this one, which is made if there's none.
pub fn of(device: &Path) -> Result<PathBuf, Failure> {
    if let Some(made) = all_of(device).pop() {
        return Ok(made);
    }
    let arguments = ["--read-only".as_ref(), "--find".as_ref(), "--show".as_ref(), device.as_os_str()];
    succeed("losetup", arguments).map(PathBuf::from)
}

/// Over which device a mount shows one that is only read.
pub fn shown_by(mount: &Mount) -> Option<PathBuf> {
    let name = mount.root.file_name()?;
    let reader = Path::new("/dev").join(name);
    let under = under(name)?;
    (Number::of(&mount.at)? == Number::of(&reader)?).then_some(under)
}

/// Takes those away that nobody is shown any more.
pub fn take_away(device: &Path, there: &Mounts) -> Result<(), Failure> {
    let unused = all_of(device).into_iter().filter(|reader| there.of(reader).is_empty());
    unused
        .map(|reader| succeed("losetup", ["--detach".as_ref(), reader.as_os_str()]))
        .try_for_each(|gone| gone.map(drop))
}

/// They are as long as the device again.
pub fn follow_growth(device: &Path) -> Result<(), Failure> {
    let all = all_of(device).into_iter();
    all.map(|reader| succeed("losetup", ["--set-capacity".as_ref(), reader.as_os_str()]))
        .try_for_each(|told| told.map(drop))
}

fn all_of(device: &Path) -> Vec<PathBuf> {
    let names = fs::read_dir(DEVICES).into_iter().flatten().flatten().map(|entry| entry.file_name());
    let readers = names.filter(|name| under(name).as_deref() == Some(device));
    readers.map(|name| Path::new("/dev").join(name)).collect()
}

/// What a loop device is over that is only read.
fn under(name: &OsStr) -> Option<PathBuf> {
    let of = Path::new(DEVICES).join(name);
    let is_read_only = fs::read_to_string(of.join("ro")).is_ok_and(|said| said.trim() == "1");
    let under = fs::read_to_string(of.join("loop/backing_file")).ok().filter(|_| is_read_only)?;
    Some(PathBuf::from(under.trim_end_matches('\n')))
}
