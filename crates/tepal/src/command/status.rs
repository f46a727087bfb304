//! `tepal status`: health at a glance.

use super::CommandError;
use crate::cli::Global;
use crate::locate;
use crate::output::{self, Outcome, Output};
use tepal_server::api::types::{DriveInfo, Health, ServerState, Status, VolumeState, route};

pub fn run(global: &Global, output: Output) -> Result<Outcome, CommandError> {
    let client = locate::client(global)?;
    let status: Status = client.get(route::STATUS)?;
    if output.is_json() {
        output.show(&status, |_| String::new())?;
        return Ok(Outcome::Done);
    }
    let drives: Vec<DriveInfo> = client.get(route::DRIVES)?;
    output.show(&status, |status| page(status, &drives))?;
    Ok(Outcome::Done)
}

fn page(status: &Status, drives: &[DriveInfo]) -> String {
    let mut facts = vec![
        ("health", health(status.health).to_owned()),
        ("cluster", format!("{} (view {}, version {})", status.cluster, status.view, status.version)),
        ("volumes", status.volumes.to_string()),
        ("space", format!("{} of {} used", output::size(status.used), output::size(status.capacity))),
    ];
    facts.extend(under_way(status).map(|text| ("under way", text)));
    facts.extend(status.reason.iter().map(|reason| ("reason", reason.clone())));
    let rows = status.servers.iter().flat_map(|server| {
        let server_row = vec![
            server.id.to_string(),
            server_state(server.state).to_owned(),
            format!("api {}, nbd {}", server.api, server.nbd.join(" ")),
        ];
        let drive_row = |drive: &tepal_server::api::types::ServerDrive| {
            let open = drives.iter().find(|info| info.id == drive.id).and_then(|info| info.open.as_ref());
            let backend = open.map(|open| format!(" ({})", open.backend)).unwrap_or_default();
            vec![format!("  {}", drive.id), drive.state.to_string(), format!("{}{backend}", drive.path)]
        };
        std::iter::once(server_row).chain(server.drives.iter().map(drive_row)).collect::<Vec<_>>()
    });
    format!("{}\n{}", output::facts(&facts), output::table(&["server, drive", "state", "where"], rows))
}

/// What goes on in the background, if anything does.
fn under_way(status: &Status) -> Option<String> {
    let volumes = match status.migrations {
        0 => None,
        1 => Some("1 volume on its way to another layout or place".to_owned()),
        count => Some(format!("{count} volumes on their way to another layout or place")),
    };
    let copies = match status.moving {
        0 => None,
        1 => Some("1 copy being moved".to_owned()),
        count => Some(format!("{count} copies being moved")),
    };
    let space = (status.reclaiming > 0).then(|| format!("{} being freed", output::size(status.reclaiming)));
    let parts: Vec<String> = volumes.into_iter().chain(copies).chain(space).collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

pub fn health(health: Health) -> &'static str {
    match health {
        Health::Ok => "ok",
        Health::Recovering => "recovering",
        Health::Degraded => "degraded",
        Health::Unavailable => "unavailable",
    }
}

pub fn server_state(state: ServerState) -> &'static str {
    match state {
        ServerState::Up => "up",
        ServerState::Down => "down",
        ServerState::Recovering => "recovering",
        ServerState::Draining => "draining",
    }
}

/// Whether it serves, if not as it should.
pub fn is_up(state: ServerState) -> bool {
    state != ServerState::Down
}

pub fn volume_state(state: VolumeState) -> &'static str {
    match state {
        VolumeState::Healthy => "healthy",
        VolumeState::Degraded => "degraded",
        VolumeState::Recovering => "recovering",
        VolumeState::Unavailable => "unavailable",
    }
}
