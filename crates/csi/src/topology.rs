//! Where machines and drives are. Volumes are reached from everywhere; but a volume may be made on drives near who uses it.

use crate::cluster::Cluster;
use crate::failure::Failure;
use crate::spec::{Topology, TopologyRequirement};
use std::collections::HashMap;
use tepal_model::ServerId;
use tepal_server::api::types::{PoolInfo, ServerInfo};

/// The segment that is a site of the cluster.
pub const SITE: &str = "topology.csi.tepal/site";
/// The segment that is a server of the cluster.
pub const SERVER: &str = "topology.csi.tepal/server";

/// Of a machine.
pub fn of_machine(site: Option<&str>, server: Option<&str>) -> Topology {
    let segments = [(SITE, site), (SERVER, server)];
    let said = segments.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?.to_owned())));
    Topology { segments: said.collect() }
}

/// The pool whose drives are all in the first of these places that has such a pool.
///
/// # Errors
///
/// If the cluster doesn't say where its drives are.
pub fn pool_near(cluster: &Cluster, wanted: Option<&TopologyRequirement>) -> Result<Option<String>, Failure> {
    let places: Vec<&Topology> =
        wanted.iter().flat_map(|wanted| wanted.preferred.iter().chain(&wanted.requisite)).collect();
    if places.iter().all(|place| segments(place).is_empty()) {
        return Ok(None);
    }
    let (pools, servers) = (cluster.pools()?, cluster.servers()?);
    Ok(places
        .into_iter()
        .find_map(|place| pools.iter().find(|pool| is_in(pool, &servers, place)))
        .map(|pool| pool.name.clone()))
}

/// Those that are known here.
fn segments(place: &Topology) -> HashMap<&str, &str> {
    let known = place.segments.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    known.filter(|(key, _)| [SITE, SERVER].contains(key)).collect()
}

fn is_in(pool: &PoolInfo, servers: &[ServerInfo], place: &Topology) -> bool {
    let wanted = segments(place);
    let is_there = |server: &ServerInfo| {
        let site = wanted.get(SITE).is_none_or(|site| server.site.as_deref() == Some(*site));
        let itself = wanted.get(SERVER).is_none_or(|id| id.parse::<ServerId>().ok() == Some(server.id));
        site && itself
    };
    let having = |drive| servers.iter().find(|server| server.drives.iter().any(|one| one.id == drive));
    !wanted.is_empty()
        && !pool.drives.is_empty()
        && pool.drives.iter().all(|drive| having(*drive).is_some_and(is_there))
}
