//! `tepal key`: the keys that wrap those of encrypted volumes. No server is asked.

use super::CommandError;
use crate::cli::KeyCommand;
use crate::output::{Outcome, Output};
use serde::Serialize;
use std::path::PathBuf;
use tepal_server::keys;

#[derive(Serialize)]
struct Created {
    key: String,
    file: PathBuf,
}

pub fn run(output: Output, command: KeyCommand) -> Result<Outcome, CommandError> {
    let KeyCommand::Create { name, keys } = command;
    let created = Created { file: keys::create(&keys, &name)?, key: name };
    output.show(&created, |created| {
        format!(
            "key '{}' is in {}: keep a copy of the file elsewhere, without it nobody reads what is encrypted by it",
            created.key,
            created.file.display()
        )
    })?;
    Ok(Outcome::Done)
}
