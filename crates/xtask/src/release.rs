//! `cargo xtask release`: the binary as users get it, without what debuggers need.
//!
//! Everything is built in one profile, with lines for backtraces; so the binary that was tested is the one that is stripped here.

use crate::failure::Failure;
use crate::process;
use crate::workspace::{self, Workspace};
use std::fs;
use std::process::Command;
use std::time::Duration;

/// More is a binary that people wait for.
const MOST_BYTES: u64 = 40 << 20;
const STRIP: Duration = Duration::from_secs(60);

pub fn run(workspace: &Workspace) -> Result<(), Failure> {
    let built = workspace::build_binary(&mut workspace.cargo(), "tepal")?;
    let folder = workspace.target.join("dist");
    let binary = folder.join("tepal");
    fs::create_dir_all(&folder).map_err(Failure::file(&folder))?;
    // An older one isn't taken for it, should this fail.
    let _ = fs::remove_file(&binary);
    process::succeed(Command::new("strip").arg("-o").arg(&binary).arg(&built), STRIP)?;
    let size = fs::metadata(&binary).map_err(Failure::file(&binary))?.len();
    println!("{}: {} MiB", binary.display(), size >> 20);
    if size > MOST_BYTES {
        return Err(Failure::Usage(format!(
            "the binary has {size} bytes, and {MOST_BYTES} are the most: find out what grew"
        )));
    }
    Ok(())
}
