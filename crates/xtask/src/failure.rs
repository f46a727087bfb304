//! What can keep a command from doing its work.

use std::path::{Path, PathBuf};

#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// Something is wrong with the project, and the command has already said what.
    #[error("failed")]
    Reported,
    #[error("'{program}' can't be started: {source}")]
    Start { program: String, source: std::io::Error },
    #[error("'{command}' ended with {status}{output}")]
    Ended { command: String, status: std::process::ExitStatus, output: String },
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: std::io::Error },
    #[error("{what}: not the JSON that was expected: {source}")]
    Json { what: String, source: serde_json::Error },
    #[error("{what}: {missing} is missing in the answer")]
    Answer { what: String, missing: &'static str },
    #[error("{what} took longer than {seconds} s{output}")]
    TooLong { what: String, seconds: u64, output: String },
    #[error("{0} is missing: apt-get install --no-install-recommends {1}")]
    Tool(&'static str, &'static str),
    #[error("{0}")]
    Usage(String),
}

impl Failure {
    /// For `map_err` on an operation on a file.
    pub fn file(path: &Path) -> impl FnOnce(std::io::Error) -> Failure + '_ {
        move |source| Failure::File { path: path.to_owned(), source }
    }
}
