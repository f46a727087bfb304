//! Who uses a block device: the reason why it can't be taken away.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A user of a device.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum User {
    #[error("it's mounted at {}", .0.display())]
    Mount(PathBuf),
    #[error("process {pid} ({name}) has it open")]
    Process { pid: u32, name: String },
    #[error("{0} is built on it")]
    Holder(String),
    #[error("the kernel uses it (swap, or a mount in another namespace)")]
    Kernel,
}

/// Programs that look at every new device for a moment (udev) get so many chances to finish, one every [`PATIENCE`].
const CHANCES: usize = 10;
const PATIENCE: Duration = Duration::from_millis(50);

/// Opens the device so that nobody can mount it meanwhile, or says who has it.
pub fn claim(device: &Path) -> io::Result<Result<File, User>> {
    let mut chance = 0;
    loop {
        let numbers = numbers(device)?;
        let user = found(device, &numbers);
        let claimed = OpenOptions::new().read(true).custom_flags(nix::libc::O_EXCL).open(device);
        match (user, claimed) {
            (None, Ok(file)) => return Ok(Ok(file)),
            (None, Err(error)) if error.raw_os_error() == Some(nix::libc::EBUSY) => return Ok(Err(User::Kernel)),
            (None, Err(error)) => return Err(error),
            (Some(User::Process { .. }), _) if chance < CHANCES => {
                chance += 1;
                std::thread::sleep(PATIENCE);
            }
            (Some(user), _) => return Ok(Err(user)),
        }
    }
}

/// Who uses it now, as far as can be seen.
pub fn user(device: &Path) -> Option<User> {
    found(device, &numbers(device).ok()?)
}

fn found(device: &Path, numbers: &[String]) -> Option<User> {
    mount(numbers).or_else(|| holder(device)).or_else(|| process(numbers))
}

/// The device's number, and its partitions', as `major:minor`.
fn numbers(device: &Path) -> io::Result<Vec<String>> {
    let name = device.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let folder = Path::new("/sys/block").join(name);
    let mut numbers = vec![fs::read_to_string(folder.join("dev"))?.trim_end().to_owned()];
    for entry in fs::read_dir(folder)?.flatten() {
        if entry.path().join("partition").exists() {
            numbers.extend(fs::read_to_string(entry.path().join("dev")).map(|text| text.trim_end().to_owned()));
        }
    }
    Ok(numbers)
}

fn mount(numbers: &[String]) -> Option<User> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    mounts.lines().find_map(|line| mounted_at(line, numbers)).map(User::Mount)
}

/// The mountpoint of a line of mountinfo (proc(5)), if it's of one of the devices.
fn mounted_at(line: &str, numbers: &[String]) -> Option<PathBuf> {
    let mut fields = line.split(' ').skip(2);
    let number = fields.next()?;
    let point = fields.nth(1)?;
    numbers.iter().any(|ours| ours == number).then(|| point.replace("\\040", " ").replace("\\011", "\t").into())
}

fn holder(device: &Path) -> Option<User> {
    let folder = Path::new("/sys/block").join(device.file_name()?).join("holders");
    let name = fs::read_dir(folder).ok()?.flatten().next()?.file_name();
    Some(User::Holder(name.to_string_lossy().into_owned()))
}

/// A process that has one of the devices open. Ones that end meanwhile are passed over.
fn process(numbers: &[String]) -> Option<User> {
    let numbers: Vec<u64> = numbers
        .iter()
        .filter_map(|number| number.split_once(':'))
        .filter_map(|(major, minor)| Some(nix::libc::makedev(major.parse().ok()?, minor.parse().ok()?)))
        .collect();
    for entry in fs::read_dir("/proc").ok()?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let Ok(descriptors) = fs::read_dir(entry.path().join("fd")) else { continue };
        let open = descriptors.flatten().any(|descriptor| {
            // Only paths of devices are followed: to ask a file on a dead server for its metadata could take for ever.
            fs::read_link(descriptor.path()).is_ok_and(|path| path.starts_with("/dev"))
                && fs::metadata(descriptor.path())
                    .is_ok_and(|data| data.file_type().is_block_device() && numbers.contains(&data.rdev()))
        });
        if open {
            let name = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
            return Some(User::Process { pid, name: name.trim_end().to_owned() });
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_of_a_device_and_of_its_partitions_are_found_by_their_numbers() {
        let ours = ["7:0".to_owned(), "259:3".to_owned()];
        let cases = [
            ("37 28 7:0 / /mnt/my\\040disk rw,relatime - ext4 /dev/loop0 rw", Some("/mnt/my disk")),
            ("37 28 259:3 / /mnt/p rw - ext4 /dev/loop0p1 rw", Some("/mnt/p")),
            ("37 28 7:01 / /mnt/x rw - ext4 /dev/loop1 rw", None),
            ("", None),
        ];
        for (line, point) in cases {
            assert_eq!(mounted_at(line, &ours), point.map(PathBuf::from), "{line}");
        }
    }
}
