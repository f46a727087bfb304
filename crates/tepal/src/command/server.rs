//! `tepal server`.

use super::CommandError;
use super::drive::{DriveArgumentError, Emptying, emptied};
use super::status::server_state;
use super::wait::Waited;
use crate::cli::{Global, ServerCommand};
use crate::client::{Client, ClientError};
use crate::locate;
use crate::output::{self, Outcome, Output};
use serde_json::json;
use tepal_model::ServerId;
use tepal_server::api::types::{Done, DriveInfo, ServerInfo, ServerState, SetDraining, path, route};

pub fn run(global: &Global, output: Output, command: ServerCommand) -> Result<Outcome, CommandError> {
    let client = locate::client(global)?;
    match command {
        ServerCommand::Ls => {
            let servers: Vec<ServerInfo> = client.get(route::SERVERS)?;
            output.show(&servers, |servers| list(servers))?;
        }
        ServerCommand::Show { id } => {
            let server: ServerInfo = client.get(&path(route::SERVER, &id.to_string()))?;
            output.show(&server, page)?;
        }
        ServerCommand::Drain { id, cancel, wait } => drain(&client, output, id, !cancel, wait.waits())?,
        ServerCommand::Rm { id } => {
            let _: Done = client.delete(&path(route::SERVER, &id.to_string()))?;
            output.show(&json!({ "removed": id }), |_| format!("server {id} is removed"))?;
        }
    }
    Ok(Outcome::Done)
}

fn drain(client: &Client, output: Output, id: ServerId, draining: bool, waits: bool) -> Result<(), CommandError> {
    let _: Done = client.post(&path(route::SERVER_DRAINING, &id.to_string()), &SetDraining { draining })?;
    let drives = || -> Result<Vec<DriveInfo>, ClientError> {
        let drives: Vec<DriveInfo> = client.get(route::DRIVES)?;
        Ok(drives.into_iter().filter(|drive| drive.server == id).collect())
    };
    let look = || {
        let server: ServerInfo = client.get(&path(route::SERVER, &id.to_string()))?;
        let goes_on = !matches!(server.state, ServerState::Up | ServerState::Recovering);
        Ok(Emptying { drives: drives()?, goes_on })
    };
    let drives = match draining && waits {
        false => drives()?,
        true => match emptied(look()?, &format!("server {id}"), look)? {
            Waited::Done(_) => {
                let answer = json!({ "server": id, "draining": true, "stuck": [] });
                return Ok(output.show(&answer, |_| format!("the drives of server {id} are empty"))?);
            }
            Waited::Interrupted(_) => {
                return Err(DriveArgumentError::Unfinished { what: format!("server {id}") }.into());
            }
        },
    };
    let stuck = drives.into_iter().filter_map(|drive| Some(format!("drive {}: {}", drive.id, drive.stuck?)));
    let stuck: Vec<String> = stuck.collect();
    output.show(&json!({ "server": id, "draining": draining, "stuck": stuck }), |_| match draining {
        true if stuck.is_empty() => {
            format!("server {id} is being emptied: `tepal drive ls` shows how many copies are left")
        }
        true => format!("server {id} is to be emptied, but now it isn't:\n{}", stuck.join("\n")),
        false => format!("the drives of server {id} are to hold their share"),
    })?;
    Ok(())
}

fn list(servers: &[ServerInfo]) -> String {
    let row = |server: &ServerInfo| {
        vec![
            server.id.to_string(),
            server_state(server.state).to_owned(),
            site(server),
            server.drives.len().to_string(),
            server.api.clone(),
            server.nbd.join(" "),
        ]
    };
    output::table(&["id", "state", "site", ">drives", "api", "nbd"], servers.iter().map(row))
}

/// Most clusters have none.
fn site(server: &ServerInfo) -> String {
    server.site.clone().unwrap_or_else(|| "-".to_owned())
}

fn page(server: &ServerInfo) -> String {
    let facts = [
        ("id", server.id.to_string()),
        ("state", server_state(server.state).to_owned()),
        ("site", site(server)),
        ("api", server.api.clone()),
        ("nbd", server.nbd.join(" ")),
        ("process", server.pid.to_string()),
        ("version", server.version.clone()),
        ("up for", format!("{} s", server.uptime_ms / 1000)),
        ("data threads", server.data_threads.to_string()),
    ];
    let drives =
        server.drives.iter().map(|drive| vec![drive.id.to_string(), drive.state.to_string(), drive.path.clone()]);
    format!("{}\n{}", output::facts(&facts), output::table(&["drive", "state", "path"], drives))
}
