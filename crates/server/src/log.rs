//! What the server tells people as it runs: lines on standard error, or in a file.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use tracing_subscriber::EnvFilter;

/// Which lines: a level, or `CRATE=LEVEL` pairs, as in `info,tepal_drive=debug`.
pub const FILTER: &str = "TEPAL_LOG";
/// Consensus has much to say about its own doings, and warns ten times a second of a server that is away.
const DEFAULT_FILTER: &str = "info,openraft=error";

#[derive(Debug, thiserror::Error)]
pub enum LogError {
    #[error("log_file: {}: {error}", path.display())]
    File { path: PathBuf, error: io::Error },
    #[error("{FILTER} is not a filter for the log: write a level, or as in info,tepal_drive=debug")]
    Filter,
}

/// Starts to log. If somebody in this process logs already, that goes on instead.
pub fn start(file: Option<&Path>) -> Result<(), LogError> {
    let written = std::env::var(FILTER).unwrap_or_default();
    let filter = if written.is_empty() { DEFAULT_FILTER } else { &written };
    let filter = EnvFilter::try_new(filter).map_err(|_| LogError::Filter)?;
    // What can't be written is lost: nothing else may be.
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false).log_internal_errors(false);
    match file {
        None => {
            // Only the first of a process succeeds.
            let _ = log.with_writer(io::stderr).try_init();
        }
        Some(path) => {
            let opened = OpenOptions::new().append(true).create(true).mode(0o600).open(path);
            let file = opened.map_err(|error| LogError::File { path: path.to_owned(), error })?;
            let _ = log.with_writer(Mutex::new(file)).try_init();
        }
    }
    Ok(())
}

/// A panic is a broken invariant: the process ends at once, rather than go on serving with it. What was acknowledged is on
/// the drives.
pub fn abort_on_panic() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        tracing::error!(%panic, "broken invariant: the server stops at once");
        std::process::abort();
    }));
}
