//! A volume as a disk of this machine, with a filesystem on it.

pub mod attached;
mod detached;
mod discarded;
mod exerciser;
mod guest;
pub mod through_nbdfuse;

use crate::nbd::noise;
use crate::program::{self, command, run};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

const BUSY: Duration = Duration::from_secs(20);

/// A mounted filesystem. It's unmounted when this is dropped, whatever became of its disk.
pub struct Mounted {
    pub at: PathBuf,
}

impl Mounted {
    pub fn new(device: &Path, at: &Path, options: &str) -> Self {
        std::fs::create_dir_all(at).expect("a folder of ours");
        run(command("mount", ["-t", "ext4", "-o", options]).arg(device).arg(at)).succeeded();
        Mounted { at: at.to_owned() }
    }

    pub fn unmount(self) {
        unmount(&self.at);
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Fails if it was unmounted already; lazily, as its disk may be gone.
        run(command("umount", ["--lazy"]).arg(&self.at));
    }
}

/// A process that another test starts has our open files until it becomes another program, so "busy" may be untrue in a moment.
pub fn unmount(at: &Path) {
    program::until("the filesystem to be unmounted", BUSY, || {
        let ended = run(&mut command("umount", [at]));
        if ended.stderr.contains("busy") { None } else { Some(ended.succeeded()) }
    });
}

pub fn make_ext4(device: &Path) {
    // No lazy work in the background: what is written is written by the test.
    let options = ["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"];
    run(command("mkfs.ext4", options).arg(device)).succeeded();
}

/// Panics if anything at all is wrong with the filesystem.
pub fn check_ext4(device: &Path) {
    run(command("e2fsck", ["-f", "-n"]).arg(device)).succeeded();
}

/// A file that says by its name what is in it.
pub fn write_file(folder: &Path, number: u64, sync: bool) -> std::io::Result<()> {
    let mut file = std::fs::File::create(folder.join(format!("file{number}")))?;
    file.write_all(&content_of(number))?;
    if sync { file.sync_all() } else { Ok(()) }
}

fn content_of(number: u64) -> Vec<u8> {
    noise(number, 1000 + (number as usize * 7919) % 200_000)
}

/// Panics if one of the files isn't there as it was written.
pub fn compare_files(folder: &Path, numbers: impl IntoIterator<Item = u64>) {
    for number in numbers {
        let path = folder.join(format!("file{number}"));
        let bytes = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert!(bytes == content_of(number), "{} is not as it was written", path.display());
    }
}

/// Why this machine can't have a filesystem on a volume, if so.
pub fn obstacle() -> Option<&'static str> {
    let missing = |program| program::find(program).is_none();
    match () {
        _ if !program::is_root() => Some("only root can mount"),
        _ if !Path::new("/dev/fuse").exists() => Some("/dev/fuse is missing here"),
        _ if !Path::new("/dev/loop-control").exists() => Some("/dev/loop-control is missing here"),
        _ if missing("mkfs.ext4") || missing("e2fsck") => Some("e2fsprogs is missing here"),
        _ => None,
    }
}
