//! `tepal dev partition` and `tepal dev heal`: the network between servers of an isolated cluster, cut and whole again.

use super::cluster::Cluster;
use super::folder::DevError;
use super::network::{Cut, Cuts, Network};
use crate::cli::{Group, PartitionArguments};
use crate::command::CommandError;
use crate::output::Output;
use serde_json::json;

/// No lock is taken: a cut must be possible to heal while a server that starts waits for those that it's cut from.
pub fn partition(cluster: &Cluster, output: Output, arguments: &PartitionArguments) -> Result<(), CommandError> {
    let PartitionArguments { first: Group(first), second: Group(second), one_way } = arguments;
    if let Some(&server) = first.iter().chain(second).find(|server| !cluster.servers().contains(server)) {
        return Err(DevError::NoServer { server, folder: cluster.folder().path().to_owned() }.into());
    }
    if let Some(&server) = first.intersection(second).next() {
        return Err(DevError::BothSides { server }.into());
    }
    let network = network(cluster)?;
    if !network.is_there(&cluster.servers()) {
        return Err(DevError::NoNetwork(cluster.folder().named().to_owned()).into());
    }
    let there = first.iter().flat_map(|&from| second.iter().map(move |&to| Cut { from, to }));
    let back = there.clone().map(Cut::back).filter(|_| !one_way);
    let mut cuts: Vec<Cut> = there.chain(back).collect();
    cuts.sort();
    cuts.iter().try_for_each(|cut| network.cut(*cut)).map_err(DevError::from)?;
    output.show(&json!({ "cut": cuts }), |_| format!("cut: {}", Cuts(&cuts)))?;
    Ok(())
}

pub fn heal(cluster: &Cluster, output: Output) -> Result<(), CommandError> {
    let network = network(cluster)?;
    let cuts = cluster.cuts()?;
    cuts.iter().try_for_each(|cut| network.mend(*cut)).map_err(DevError::from)?;
    output.show(&json!({ "healed": cuts }), |_| match cuts.is_empty() {
        true => "nothing was cut".to_owned(),
        false => format!("healed: {}", Cuts(&cuts)),
    })?;
    Ok(())
}

fn network(cluster: &Cluster) -> Result<Network, DevError> {
    cluster.network().ok_or_else(|| DevError::NotIsolated(cluster.folder().named().to_owned()))
}
