//! Encrypted volumes: what drives have of them, and who can read them.

mod keys;
mod several_servers;
mod stored;

use crate::cluster::{Cluster, Plan, tepal};
use crate::program::{self, Ended};
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// What is looked for on drives.
const WORDS: &[u8] = b"these words are for those alone who have the key";

/// A cluster of one server, with a folder of keys that has key `main`.
struct Encrypting {
    cluster: Cluster,
    keys: TempDir,
}

pub fn create_key(keys: &Path, name: &str) -> Ended {
    program::run(Command::new(tepal()).args(["key", "create", name, "--keys"]).arg(keys))
}

fn up() -> Encrypting {
    let keys = tempfile::tempdir().expect("a folder for temporary files");
    create_key(keys.path(), "main").succeeded();
    let arguments = vec!["--keys".to_owned(), keys.path().display().to_string()];
    Encrypting { cluster: Plan { drives: 4, arguments, ..Plan::default() }.up(), keys }
}

impl Encrypting {
    fn create(&self, volume: &str, more: &[&str]) {
        self.run(&[&["volume", "create", volume, "--size", "16M", "--key", "main"], more].concat()).succeeded();
    }

    /// `tepal ARGUMENTS`, however it ends.
    fn run(&self, arguments: &[&str]) -> Ended {
        program::run(self.cluster.command().args(arguments))
    }

    fn key(&self, file: &str) -> PathBuf {
        self.keys.path().join(file)
    }

    fn write_key(&self, file: &str, text: &str) {
        use std::io::Write;
        use std::os::unix::fs::OpenOptionsExt;
        let path = self.key(file);
        let _ = std::fs::remove_file(&path);
        let made = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        made.and_then(|mut file| file.write_all(text.as_bytes())).expect("space");
    }

    /// How often words are on the drives.
    fn found_on_drives(&self, words: &[u8]) -> usize {
        (0..4).map(|number| count(self.cluster.drive(number), words)).sum()
    }
}

/// How often a file has these words.
pub fn count(file: &Path, words: &[u8]) -> usize {
    let bytes = std::fs::read(file).expect("a file of the test's");
    bytes.windows(words.len()).filter(|window| window == &words).count()
}

/// Bytes that are full of the words.
fn worded(length: usize) -> Vec<u8> {
    WORDS.iter().copied().cycle().take(length).collect()
}
