//! Folders for tests.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

static MADE: AtomicU32 = AtomicU32::new(0);

/// A new, empty folder.
pub fn folder(name: &str) -> PathBuf {
    let number = MADE.fetch_add(1, Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("tepal-server-{}-{number}-{name}", std::process::id()));
    std::fs::create_dir_all(&path).expect("a folder for tests");
    path
}
