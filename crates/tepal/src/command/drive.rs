//! `tepal drive`.

use super::{CommandError, offline, wipe};
use crate::cli::{AddDriveArguments, DriveCommand, Global};
use crate::client::Client;
use crate::locate;
use crate::output::{self, Outcome, Output};
use std::path::PathBuf;
use tepal_model::DriveId;
use tepal_server::api::types::{
    AddDrive, DriveInfo, DriveRemoved, DriveUse, Found, FoundDrive, SetDriveUse, path, route,
};

#[derive(Debug, thiserror::Error)]
pub enum DriveArgumentError {
    #[error("there is no drive whose id begins with '{0}': `tepal drive ls` lists them")]
    Unknown(String),
    #[error("several drives' ids begin with '{prefix}': {}", .ids.join(", "))]
    Ambiguous { prefix: String, ids: Vec<String> },
    #[error("{}: the path is not UTF-8, which the cluster's records need", .0.display())]
    NotUnicode(PathBuf),
    #[error("{}: {error}", path.display())]
    Path { path: PathBuf, error: std::io::Error },
}

pub fn run(global: &Global, output: Output, command: DriveCommand) -> Result<Outcome, CommandError> {
    let client = match &command {
        DriveCommand::Inspect { path, log } => return Ok(offline::inspect(output, path, log.as_deref())?),
        DriveCommand::Check { path, log } => return Ok(offline::check(output, path, log.as_deref())?),
        DriveCommand::Wipe { path, drive, force } => return Ok(wipe::wipe(output, path, *drive, *force)?),
        _ => locate::client(global)?,
    };
    match command {
        DriveCommand::Inspect { .. } | DriveCommand::Check { .. } | DriveCommand::Wipe { .. } => {}
        DriveCommand::Ls => {
            let drives: Vec<DriveInfo> = client.get(route::DRIVES)?;
            output.show(&drives, |drives| list(drives))?;
        }
        DriveCommand::Scan => {
            let found: Vec<FoundDrive> = client.get(route::DRIVES_SCAN)?;
            output.show(&found, |found| found_list(found))?;
        }
        DriveCommand::Add(arguments) => {
            let drive: DriveInfo = client.post(route::DRIVES, &request(arguments)?)?;
            output.show(&drive, |drive| {
                format!("drive {} is in use: {} of {}", drive.id, output::size(drive.capacity), drive.path)
            })?;
        }
        DriveCommand::Rm { id, force } => {
            let id = find(&client, &id)?;
            let url = format!("{}?force={force}", path(route::DRIVE, &id.to_string()));
            let removed: DriveRemoved = client.delete(&url)?;
            output.show(&removed, removal)?;
        }
        DriveCommand::Drain { id, cancel } => {
            let to = if cancel { DriveUse::Active } else { DriveUse::Draining };
            set_use(&client, output, &id, to)?;
        }
        DriveCommand::Spare { id, cancel } => {
            let to = if cancel { DriveUse::Active } else { DriveUse::Spare };
            set_use(&client, output, &id, to)?;
        }
        DriveCommand::Offline { id } => change(&client, output, &id, route::DRIVE_OFFLINE)?,
        DriveCommand::Online { id } => change(&client, output, &id, route::DRIVE_ONLINE)?,
    }
    Ok(Outcome::Done)
}

fn request(arguments: AddDriveArguments) -> Result<AddDrive, DriveArgumentError> {
    let AddDriveArguments { server, path, pool, create, force } = arguments;
    // The server may have another working folder than this command.
    let path = std::path::absolute(&path).map_err(|error| DriveArgumentError::Path { path, error })?;
    let path = path.into_os_string().into_string().map_err(|path| DriveArgumentError::NotUnicode(path.into()))?;
    Ok(AddDrive { server, path, pool, create, force })
}

fn change(client: &Client, output: Output, id: &str, route: &str) -> Result<(), CommandError> {
    let id = find(client, id)?;
    let drive: DriveInfo = client.post(&path(route, &id.to_string()), &serde_json::json!({}))?;
    output.show(&drive, |drive| format!("drive {} is {}", drive.id, drive.state))?;
    Ok(())
}

fn set_use(client: &Client, output: Output, id: &str, to: DriveUse) -> Result<(), CommandError> {
    let id = find(client, id)?;
    let drive: DriveInfo = client.post(&path(route::DRIVE_USE, &id.to_string()), &SetDriveUse { to })?;
    output.show(&drive, |drive| match (drive.purpose, drive.copies) {
        (DriveUse::Active, _) => format!("drive {} is to hold its share", drive.id),
        (DriveUse::Draining, 0) => format!("drive {} is empty: `tepal drive rm {}` removes it", drive.id, drive.id),
        (DriveUse::Draining, _) if drive.stuck.is_some() => {
            format!(
                "drive {} is to be emptied, but now it isn't: {}",
                drive.id,
                drive.stuck.as_deref().unwrap_or_default()
            )
        }
        (DriveUse::Draining, copies) => {
            format!("drive {} is being emptied of {copies} copies: `tepal drive ls` shows how many are left", drive.id)
        }
        (DriveUse::Removed, _) => format!("drive {} is being removed", drive.id),
        (DriveUse::Spare, 0) => format!("drive {} is a spare", drive.id),
        (DriveUse::Spare, copies) => format!("drive {} is a spare, once others have its {copies} copies", drive.id),
    })?;
    Ok(())
}

/// The drive whose id begins so.
pub fn find(client: &Client, prefix: &str) -> Result<DriveId, CommandError> {
    if let Ok(id) = prefix.parse() {
        return Ok(id);
    }
    let drives: Vec<DriveInfo> = client.get(route::DRIVES)?;
    let found: Vec<DriveId> =
        drives.iter().map(|drive| drive.id).filter(|id| id.to_string().starts_with(prefix)).collect();
    match found[..] {
        [id] => Ok(id),
        [] => Err(DriveArgumentError::Unknown(prefix.to_owned()).into()),
        _ => {
            let ids = found.iter().map(ToString::to_string).collect();
            Err(DriveArgumentError::Ambiguous { prefix: prefix.to_owned(), ids }.into())
        }
    }
}

fn list(drives: &[DriveInfo]) -> String {
    let row = |drive: &DriveInfo| {
        let backend = drive.open.as_ref().map(|open| match &open.emulated {
            Some(model) => format!("{}, {model}", open.backend),
            None => open.backend.clone(),
        });
        vec![
            drive.id.to_string(),
            drive.server.to_string(),
            drive.pool.clone(),
            state(drive),
            drive.copies.to_string(),
            output::size(drive.used),
            output::size(drive.capacity),
            drive.path.clone(),
            backend.unwrap_or_default(),
            match &drive.stuck {
                Some(stuck) => format!("isn't emptied: {stuck}"),
                None => drive.reason.clone(),
            },
        ]
    };
    let columns = ["id", "server", "pool", "state", ">copies", ">used", ">capacity", "path", "by", "reason"];
    output::table(&columns, drives.iter().map(row))
}

/// With what it's for, unless that is to hold its share.
fn state(drive: &DriveInfo) -> String {
    match drive.purpose {
        DriveUse::Active => drive.state.to_string(),
        purpose => format!("{}, {purpose}", drive.state),
    }
}

fn found_list(found: &[FoundDrive]) -> String {
    let what = |what: Found| match what {
        Found::Free => "free",
        Found::Ours => "ours",
        Found::OursUnused => "ours, unused",
        Found::Foreign => "foreign",
        Found::Unfit => "unfit",
        Found::InUse => "in use",
    };
    let row = |drive: &FoundDrive| {
        vec![
            drive.server.to_string(),
            drive.path.clone(),
            output::size(drive.size),
            what(drive.what).to_owned(),
            drive.id.map(|id| id.to_string()).unwrap_or_default(),
            drive.detail.clone(),
        ]
    };
    output::table(&["server", "path", ">size", "what", "id", "detail"], found.iter().map(row))
}

fn removal(removed: &DriveRemoved) -> String {
    match removed.still_named_by.as_slice() {
        [] => format!("drive {} is removed", removed.id),
        volumes => format!(
            "drive {} isn't used any more; it stays listed as failed until others have what it held of these volumes: {}",
            removed.id,
            volumes.join(", ")
        ),
    }
}
