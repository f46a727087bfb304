//! `tepal cluster`.

use super::{CommandError, identity, rebuild};
use crate::cli::{ClusterCommand, Global};
use crate::locate;
use crate::output::{self, Outcome, Output};
use tepal_server::api::types::{ChangeCluster, ClusterInfo, route};

pub fn run(global: &Global, output: Output, command: ClusterCommand) -> Result<Outcome, CommandError> {
    match command {
        ClusterCommand::Show => return show(global, output),
        ClusterCommand::Set { lease } => return set(global, output, lease),
        ClusterCommand::Rebuild(arguments) => return rebuild::run(global, output, arguments),
        ClusterCommand::Grant { right, to } => {
            identity::grant_on(&locate::client(global)?, output, None, (right, to))?;
        }
        ClusterCommand::Revoke { to } => identity::revoke_on(&locate::client(global)?, output, None, &to)?,
        ClusterCommand::Rights => identity::rights_on(&locate::client(global)?, output, None)?,
    }
    Ok(Outcome::Done)
}

fn show(global: &Global, output: Output) -> Result<Outcome, CommandError> {
    let cluster: ClusterInfo = locate::client(global)?.get(route::CLUSTER)?;
    output.show(&cluster, page)?;
    Ok(Outcome::Done)
}

fn set(global: &Global, output: Output, lease_ms: u64) -> Result<Outcome, CommandError> {
    let cluster: ClusterInfo = locate::client(global)?.post(route::CLUSTER, &ChangeCluster { lease_ms })?;
    output.show(&cluster, page)?;
    Ok(Outcome::Done)
}

fn page(cluster: &ClusterInfo) -> String {
    output::facts(&[
        ("name", cluster.name.clone()),
        ("id", cluster.id.to_string()),
        ("view", cluster.view.to_string()),
        ("servers", cluster.servers.to_string()),
        ("leader", cluster.leader.map_or_else(|| "none now".to_owned(), |leader| leader.to_string())),
        ("voters", cluster.voters.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")),
        ("lease", format!("{} ms", cluster.lease_ms)),
        ("drives", cluster.drives.to_string()),
        ("pools", cluster.pools.to_string()),
        ("volumes", cluster.volumes.to_string()),
        ("space", format!("{} of {} used", output::size(cluster.used), output::size(cluster.capacity))),
    ])
}
