//! `tepal server`.

use super::CommandError;
use super::drive::{DriveArgumentError, Emptying, emptied};
use super::joining::Token;
use super::status::server_state;
use super::wait::Waited;
use crate::cli::{Global, ServerCommand, TokenCommand};
use crate::client::{Client, ClientError};
use crate::locate;
use crate::output::{self, Outcome, Output};
use serde_json::json;
use tepal_model::ServerId;
use tepal_server::api::types::{
    CreateJoinToken, Done, DriveInfo, JoinToken, JoinTokenInfo, ServerInfo, ServerState, SetDraining, path, route,
};

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
        ServerCommand::Token(command) => token(&client, output, command)?,
        ServerCommand::Rm { id } => {
            let _: Done = client.delete(&path(route::SERVER, &id.to_string()))?;
            output.show(&json!({ "removed": id }), |_| format!("server {id} is removed"))?;
        }
    }
    Ok(Outcome::Done)
}

fn token(client: &Client, output: Output, command: TokenCommand) -> Result<(), CommandError> {
    match command {
        TokenCommand::Create { hours, api } => {
            let made: JoinToken = client.post(route::JOIN_TOKENS, &CreateJoinToken { valid_s: hours * 3600 })?;
            let servers = api.unwrap_or(made.api).split(',').map(str::to_owned).collect();
            let token = Token { servers, authority: made.authority, secret: made.secret }.to_string();
            let answer = json!({ "id": made.id, "token": token, "until_unix_ms": made.until_unix_ms });
            output.show(&answer, |_| token.clone())?;
        }
        TokenCommand::Ls => {
            let tokens: Vec<JoinTokenInfo> = client.get(route::JOIN_TOKENS)?;
            let row = |token: &JoinTokenInfo| {
                let used = if token.used { "yes" } else { "no" };
                vec![token.id.clone(), output::time(token.until_unix_ms), used.to_owned()]
            };
            output.show(&tokens, |tokens| output::table(&["token", "until (utc)", "used"], tokens.iter().map(row)))?;
        }
        TokenCommand::Rm { id } => {
            let done: Done = client.delete(&path(route::JOIN_TOKEN, &id))?;
            output.show(&done, |_| format!("token {id} is removed: nobody joins by it any more"))?;
        }
    }
    Ok(())
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
