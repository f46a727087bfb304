//! Filesystems of a size that a test chooses, and filling them.

use crate::program::{command, run};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

/// A filesystem of this size, mounted until it's dropped.
pub struct Mount(pub PathBuf);

impl Mount {
    pub fn in_memory(at: &Path, size: &str) -> Self {
        std::fs::create_dir_all(at).expect("a folder of ours");
        run(command("mount", ["-t", "tmpfs", "-o", &format!("size={size},mode=700"), "none"]).arg(at)).succeeded();
        Mount(at.to_owned())
    }

    /// On a file that may have no room for what the filesystem promises.
    pub fn on_file(at: &Path, file: &Path, size: u64) -> Self {
        std::fs::create_dir_all(at).expect("a folder of ours");
        File::create_new(file).and_then(|file| file.set_len(size)).expect("a sparse file");
        run(command("mkfs.ext4", ["-q", "-F", "-O", "^has_journal"]).arg(file)).succeeded();
        run(command("mount", ["-o", "loop"]).arg(file).arg(at)).succeeded();
        Mount(at.to_owned())
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // Lazily: the server on it may be on its way out.
        run(command("umount", ["--lazy"]).arg(&self.0));
    }
}

/// Writes a file until there's no room any more.
pub fn fill(path: &Path) {
    let mut file = File::create_new(path).expect("our own folder");
    for size in [64 << 10, 4096, 1] {
        let bytes = vec![1; size];
        while file.write_all(&bytes).is_ok() {}
    }
}
