//! `tepal cluster`.

use super::CommandError;
use crate::cli::Global;
use crate::locate;
use crate::output::{self, Outcome, Output};
use tepal_server::api::types::{ChangeCluster, ClusterInfo, route};

pub fn show(global: &Global, output: Output) -> Result<Outcome, CommandError> {
    let cluster: ClusterInfo = locate::client(global)?.get(route::CLUSTER)?;
    output.show(&cluster, page)?;
    Ok(Outcome::Done)
}

pub fn set(global: &Global, output: Output, lease_ms: u64) -> Result<Outcome, CommandError> {
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
