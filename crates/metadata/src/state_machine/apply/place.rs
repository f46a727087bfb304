//! Which drives a new volume's map names, in which order, and what its copies must not share: [`tepal_placement`] says it
//! of the drives of a pool that are up.

use super::clipped;
use super::drives::parse_layout;
use crate::record::{DriveRecord, DriveState, ServerState};
use crate::refusal::Refusal;
use crate::state::State;
use std::sync::Arc;
use tepal_model::{DriveId, Layout};
use tepal_placement::{Candidate, ChooseError, choose};

/// The layout of a new volume of `pool`: the pool's, if none is given.
pub fn wanted(state: &State, pool: &str, layout: Option<&str>) -> Result<Layout, Refusal> {
    let defaults = state.pools.get(pool).ok_or_else(|| Refusal::NoPool(clipped(pool, 140)))?;
    match layout {
        Some(text) => parse_layout(text),
        None => Ok(defaults.layout.clone().unwrap_or_default()),
    }
}

/// The drives for a new map of `pool`, and `layout` with its failure domain settled.
pub fn allot(state: &State, pool: &str, layout: &Layout) -> Result<(Layout, Vec<DriveId>), Refusal> {
    let chosen = choose(&candidates(state, pool), layout).map_err(|error| match error {
        ChooseError::NoDrives => Refusal::NoDrives(pool.to_owned()),
        ChooseError::NoSite(_) => Refusal::NoSites { layout: layout.to_string() },
        ChooseError::ChainedDomain => Refusal::ChainedDomain { layout: layout.to_string() },
        ChooseError::TooFew(rule) => Refusal::Layout { rule: rule.to_string() },
    })?;
    Ok((Layout { domain: Some(chosen.domain), ..layout.clone() }, chosen.drives))
}

/// The drives of `pool` that are up on servers that are up.
fn candidates<'a>(state: &'a State, pool: &'a str) -> Vec<Candidate<'a>> {
    let candidate = |drive: &'a Arc<DriveRecord>| {
        let server = state.servers.get(&drive.server)?;
        let is_up = drive.state == DriveState::Up && server.state == ServerState::Up;
        let (id, site, capacity) = (drive.id, server.site.as_deref(), drive.capacity);
        is_up.then_some(Candidate { drive: id, server: server.id, site, capacity })
    };
    state.drives_of_pool(pool).filter_map(candidate).collect()
}
