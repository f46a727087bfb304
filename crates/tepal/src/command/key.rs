//! `tepal key`: the keys that wrap those of encrypted volumes. No server is asked.

use super::CommandError;
use crate::cli::KeyCommand;
use crate::output::{self, Outcome, Output};
use serde::Serialize;
use std::path::{Path, PathBuf};
use tepal_server::keys;

#[derive(Serialize)]
struct Created {
    key: String,
    file: PathBuf,
}

pub fn run(output: Output, command: KeyCommand) -> Result<Outcome, CommandError> {
    match command {
        KeyCommand::Create { name, keys } => create(output, name, &keys)?,
        KeyCommand::Ls { keys } => {
            let listed = keys::list(&keys)?;
            let row = |(name, kind): (&String, &&str)| vec![name.clone(), (*kind).to_owned()];
            output.show(&listed, |listed| output::table(&["key", "from"], listed.iter().map(row)))?;
        }
    }
    Ok(Outcome::Done)
}

fn create(output: Output, name: String, keys: &Path) -> Result<(), CommandError> {
    let created = Created { file: keys::create(keys, &name)?, key: name };
    output.show(&created, |created| {
        format!(
            "key '{}' is in {}: keep a copy of the file elsewhere, without it nobody reads what is encrypted by it",
            created.key,
            created.file.display()
        )
    })?;
    Ok(())
}
