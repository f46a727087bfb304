//! `tepal drive`.

use super::wait::{self, Left, Waited};
use super::{CommandError, offline, wipe};
use crate::cli::{AddDriveArguments, DriveCommand, Global};
use crate::client::{Client, ClientError};
use crate::locate;
use crate::output::{self, Outcome, Output, Progress};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tepal_model::DriveId;
use tepal_server::api::types::{
    AddDrive, DriveInfo, DriveRemoved, DriveUse, Found, FoundDrive, Loss, NameDrive, ReplaceDrive, SetDriveUse, path,
    route,
};

#[derive(Debug, thiserror::Error)]
pub enum DriveArgumentError {
    #[error("there is no drive of the name '{0}', and none whose id begins so: `tepal drive ls` lists them")]
    Unknown(String),
    #[error("several drives' ids begin with '{prefix}': {}", .ids.join(", "))]
    Ambiguous { prefix: String, ids: Vec<String> },
    #[error("{}: the path is not UTF-8, which the cluster's records need", .0.display())]
    NotUnicode(PathBuf),
    #[error("{}: {error}", path.display())]
    Path { path: PathBuf, error: std::io::Error },
    #[error("{what} isn't emptied now, but goes on when that is over, unless it's called off by `--cancel`: {why}")]
    Stuck { what: String, why: String },
    #[error("{what} isn't empty yet: it's being emptied in the background")]
    Unfinished { what: String },
    #[error("{0} is to hold its share again: emptying it was called off")]
    CalledOff(String),
}

/// For so long a drive that is being emptied may stand still.
const STUCK: Duration = Duration::from_secs(10);
/// By then all servers say what has been agreed.
const ALL_KNOW: Duration = Duration::from_secs(2);

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
            let lost = if force { lost_with(&client, &removed.still_named_by) } else { Vec::new() };
            output.show(&removed, |removed| [vec![removal(removed)], lost].concat().join("\n"))?;
        }
        DriveCommand::Drain { id, cancel: true, .. } => set_use(&client, output, &id, DriveUse::Active)?,
        DriveCommand::Drain { id, cancel: false, wait } => drain(&client, output, &id, wait.waits())?,
        DriveCommand::Spare { id, cancel } => {
            let to = if cancel { DriveUse::Active } else { DriveUse::Spare };
            set_use(&client, output, &id, to)?;
        }
        DriveCommand::Replace { id, by } => {
            let (from, by) = (find(&client, &id)?, find(&client, &by)?);
            let route = path(route::DRIVE_REPLACE, &from.to_string());
            let drive: DriveInfo = client.post(&route, &ReplaceDrive { by })?;
            output.show(&drive, |drive| {
                let name = drive.called();
                format!("drive {name} takes the place of {id} in the background; `tepal plex ls` shows how far it is")
            })?;
        }
        DriveCommand::Name { id, name } => {
            let id = find(&client, &id)?;
            let drive: DriveInfo = client.post(&path(route::DRIVE_NAME, &id.to_string()), &NameDrive { name })?;
            output.show(&drive, |drive| match &drive.name {
                Some(name) => format!("drive {} is called {name}", drive.id),
                None => format!("drive {} is called by its id", drive.id),
            })?;
        }
        DriveCommand::Offline { id } => change(&client, output, &id, route::DRIVE_OFFLINE)?,
        DriveCommand::Online { id } => change(&client, output, &id, route::DRIVE_ONLINE)?,
        DriveCommand::Grow { id } => {
            let id = find(&client, &id)?;
            let drive: DriveInfo = client.post(&path(route::DRIVE_GROW, &id.to_string()), &serde_json::json!({}))?;
            output.show(&drive, |drive| {
                let (used, capacity) = (output::size(drive.used), output::size(drive.capacity));
                format!("drive {} has grown: {used} of {capacity} used", drive.id)
            })?;
        }
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

fn use_as(client: &Client, id: DriveId, to: DriveUse) -> Result<DriveInfo, ClientError> {
    client.post(&path(route::DRIVE_USE, &id.to_string()), &SetDriveUse { to })
}

fn set_use(client: &Client, output: Output, id: &str, to: DriveUse) -> Result<(), CommandError> {
    let drive = use_as(client, find(client, id)?, to)?;
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

fn drain(client: &Client, output: Output, id: &str, wait: bool) -> Result<(), CommandError> {
    if !wait {
        return set_use(client, output, id, DriveUse::Draining);
    }
    let id = find(client, id)?;
    let drive = use_as(client, id, DriveUse::Draining)?;
    let emptying = |drives: Vec<DriveInfo>| {
        let drives: Vec<DriveInfo> = drives.into_iter().filter(|drive| drive.id == id).collect();
        Emptying { goes_on: drives.iter().any(|drive| drive.purpose != DriveUse::Active), drives }
    };
    let look = || Ok(emptying(client.get(route::DRIVES)?));
    let (drives, text) = match emptied(emptying(vec![drive.clone()]), &format!("drive {id}"), look)? {
        Waited::Done(now) if now.drives.is_empty() => (now.drives, format!("drive {id} was removed meanwhile")),
        Waited::Done(now) => (now.drives, format!("drive {id} is empty: `tepal drive rm {id}` removes it")),
        Waited::Interrupted(_) => return Err(DriveArgumentError::Unfinished { what: format!("drive {id}") }.into()),
    };
    output.show(drives.first().unwrap_or(&drive), |_| text)?;
    Ok(())
}

/// Drives of which others take what they hold.
pub struct Emptying {
    pub drives: Vec<DriveInfo>,
    /// Nobody has called it off.
    pub goes_on: bool,
}

/// Waits until none of the drives holds copies any more.
pub fn emptied(
    first: Emptying,
    what: &str,
    look: impl FnMut() -> Result<Emptying, ClientError>,
) -> Result<Waited<Emptying>, CommandError> {
    let copies = |drives: &[DriveInfo]| drives.iter().map(|drive| drive.copies).sum::<u64>();
    let total = copies(&first.drives);
    let (mut stuck_since, mut called_off_since, mut before) = (None, None, total);
    // Since it was first seen so, without a break.
    let lasts = |since: &mut Option<Instant>, is_so: bool, length: Duration| {
        let began = is_so.then(|| since.unwrap_or_else(Instant::now));
        *since = began;
        began.is_some_and(|began| began.elapsed() >= length)
    };
    let left = |Emptying { drives, goes_on }: &Emptying| {
        let now = copies(drives);
        if lasts(&mut called_off_since, now > 0 && !goes_on, ALL_KNOW) {
            return Err(DriveArgumentError::CalledOff(what.to_owned()).into());
        }
        let obstacles: Vec<String> = drives.iter().filter_map(|drive| drive.stuck.clone()).collect();
        if lasts(&mut stuck_since, !obstacles.is_empty() && now == before, STUCK) {
            return Err(DriveArgumentError::Stuck { what: what.to_owned(), why: obstacles.join("; ") }.into());
        }
        before = now;
        let total = total.max(now);
        Ok((now > 0).then_some(Left { done: total - now, total, obstacles }))
    };
    wait::until(Progress::counting(format!("emptying {what}"), "copies"), first, look, left)
}

/// The drive of this name, or else the one whose id begins so.
pub fn find(client: &Client, prefix: &str) -> Result<DriveId, CommandError> {
    if let Ok(id) = prefix.parse() {
        return Ok(id);
    }
    let drives: Vec<DriveInfo> = client.get(route::DRIVES)?;
    if let Some(drive) = drives.iter().find(|drive| drive.name.as_deref() == Some(prefix)) {
        return Ok(drive.id);
    }
    let found: Vec<DriveId> = drives
        .iter()
        .map(|drive| drive.id)
        .filter(|id| id.to_string().starts_with(&prefix.to_ascii_lowercase()))
        .collect();
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
            drive.name.clone().unwrap_or_default(),
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
    let columns = ["id", "name", "server", "pool", "state", ">copies", ">used", ">capacity", "path", "by", "reason"];
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

/// A line for each volume that has lost something.
fn lost_with(client: &Client, volumes: &[String]) -> Vec<String> {
    let lost = |name: &String| {
        // The drive is removed, whatever comes of this question; `tepal status` says it too.
        let loss: Loss = client.get(&path(route::VOLUME_LOSS, name)).ok().filter(|loss: &Loss| loss.bytes > 0)?;
        let bytes = output::size(loss.bytes);
        Some(format!(
            "volume {name}: {bytes} may miss writes that were acknowledged, and requests for that fail: \
             `tepal volume accept-loss {name}` says where, and can have older copies served, or zeros where an erasure code has none"
        ))
    };
    volumes.iter().filter_map(lost).collect()
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
