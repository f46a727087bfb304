//! Servers: down, silent, of unlike versions, cut off.

use super::findings::{Finding, Severity, count, named};
use super::seen::Seen;
use crate::output;
use std::collections::BTreeSet;
use std::time::Duration;
use tepal_model::{DriveId, ServerId};
use tepal_server::api::types::{ServerInfo, ServerState};

pub fn findings(seen: &Seen) -> Vec<Finding> {
    let servers = &seen.status.servers;
    let down = servers.iter().filter(|server| server.state == ServerState::Down).map(|server| of_down(seen, server));
    let silent = servers.iter().filter(|server| seen.is_silent(server)).map(|server| of_silent(seen, server));
    down.chain(silent).chain(addresses(seen)).chain(versions(seen)).collect()
}

fn of_down(seen: &Seen, server: &ServerInfo) -> Finding {
    let id = server.id.to_string();
    let last = seen.events.iter().rfind(|event| event.subject == id && event.text.contains("-> down"));
    let since = last.map_or(String::new(), |event| {
        let age = Duration::from_millis(seen.now_ms.saturating_sub(event.unix_ms));
        format!(" since {} ({} ago)", output::time(event.unix_ms), output::span(age))
    });
    let lacking = lacking(seen, server);
    let lack = match &lacking[..] {
        [] => "no volume lacks a copy by it".to_owned(),
        names => format!("{} {} a copy by it: {}", count(names.len(), "volume"), lack(names.len()), named(names)),
    };
    let finding = Finding::new(
        Severity::Warning,
        format!("server {id}"),
        format!("server {id} is down{since}; {lack}"),
        format!("what is on its drives has a copy fewer until it's back{}", majority(seen)),
    );
    started(seen, finding, &id).hands(
        "nothing else is to be done if it comes back: its drives catch up by themselves. If it doesn't within ten minutes, its copies are \
         made again on other drives that have room (`tepal drive ls` shows how many it has left)",
    )
}

fn lack(volumes: usize) -> &'static str {
    if volumes == 1 { "lacks" } else { "lack" }
}

/// Volumes with copies on its drives.
fn lacking<'a>(seen: &'a Seen, server: &ServerInfo) -> Vec<&'a str> {
    let drives: BTreeSet<DriveId> = server.drives.iter().map(|drive| drive.id).collect();
    let on_it = seen.volumes.iter().filter(|volume| volume.drives.iter().any(|drive| drives.contains(drive)));
    on_it.map(|volume| volume.name.as_str()).collect()
}

/// How many more servers may go.
fn majority(seen: &Seen) -> String {
    let Some(cluster) = &seen.cluster else { return String::new() };
    let up = cluster.voters.iter().filter(|voter| !seen.is_down(**voter)).count();
    let needed = cluster.voters.len() / 2 + 1;
    let voters = cluster.voters.len();
    match up.checked_sub(needed) {
        None | Some(0) => format!(". {up} of {voters} that vote are up, and {needed} are needed: no other may go"),
        Some(_) => String::new(),
    }
}

/// The step that starts a server.
fn started(seen: &Seen, finding: Finding, id: &str) -> Finding {
    match &seen.dev {
        Some(folder) => {
            finding.run("start it, unless it runs", format!("tepal --dir {} dev start {id}", folder.display()))
        }
        None => finding.run(
            "start it on its own machine, unless it runs, as it was started before; or the service that runs it. It keeps its data folder",
            "tepal serve --config /etc/tepal.toml",
        ),
    }
}

fn of_silent(seen: &Seen, server: &ServerInfo) -> Finding {
    let id = server.id.to_string();
    let finding = Finding::new(
        Severity::Warning,
        format!("server {id}"),
        format!("server {id} counts as up and doesn't answer"),
        "it has ended, is paused, overloaded or cut off: clients that need it wait until it answers, or a majority declares it down",
    );
    let finding = finding.run("ask again in some seconds: with a majority it's back by then, or down", "tepal doctor");
    let finding = started(seen, finding, &id);
    match &seen.dev {
        Some(folder) => finding.run("if it's paused", format!("tepal --dir {} dev resume {id}", folder.display())),
        None => finding.hands("if it runs, look at its machine, its log and its network"),
    }
}

/// Addresses that a client was told, and where nobody answers, beyond those of servers that are known not to.
fn addresses(seen: &Seen) -> Option<Finding> {
    let known = seen.status.servers.iter().filter(|server| server.state == ServerState::Down || seen.is_silent(server));
    if seen.silent.len() <= known.count() {
        return None;
    }
    let all: Vec<&str> = seen.silent.iter().map(|(address, _)| address.as_str()).collect();
    let (_, why) = seen.silent.first()?;
    let finding = Finding::new(
        Severity::Warning,
        "addresses",
        format!("no server answers at {}: {why}", named(&all)),
        "a command that is told only this address finds no cluster, though there is one",
    );
    Some(finding.run("see where servers answer, and name those by --cluster or TEPAL_CLUSTER", "tepal server ls"))
}

fn versions(seen: &Seen) -> Option<Finding> {
    let known = seen.status.servers.iter().filter(|server| !server.version.is_empty());
    let versions: BTreeSet<&str> = known.clone().map(|server| server.version.as_str()).collect();
    let newest = versions.last().filter(|_| versions.len() > 1)?;
    let older: Vec<ServerId> = known.filter(|server| server.version != **newest).map(|server| server.id).collect();
    let older: Vec<String> = older.iter().map(ToString::to_string).collect();
    let finding = Finding::new(
        Severity::Warning,
        "versions",
        format!(
            "servers run unlike versions ({}): {} not {newest}",
            named(&versions.iter().collect::<Vec<_>>()),
            named(&older)
        ),
        "versions side by side are for the time of an upgrade: what only the newer one can isn't to be relied on",
    );
    let finding = finding.hands(format!(
        "upgrade the others one at a time: put the binary of {newest} there, and start the server anew"
    ));
    Some(finding.run("between two of them, wait until all is well", "tepal doctor"))
}
