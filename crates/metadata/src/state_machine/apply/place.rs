//! Which drives hold the columns of a new volume's map, and what its copies must not share: [`tepal_placement`] says it of the
//! drives of a pool that are up and in use.

use super::clipped;
use super::drives::parse_layout;
use crate::command::MOVABLE;
use crate::record::{DriveRecord, DriveState, DriveUse, ServerState};
use crate::refusal::Refusal;
use crate::state::State;
use std::sync::Arc;
use tepal_model::{Layout, MapId};
use tepal_placement::{Candidate, ChooseError, Table, allot as allotted, rotate};

/// The layout of a new volume of `pool`: the pool's, if none is given.
pub fn wanted(state: &State, pool: &str, layout: Option<&str>) -> Result<Layout, Refusal> {
    let defaults = state.pools.get(pool).ok_or_else(|| Refusal::NoPool(clipped(pool, 140)))?;
    match layout {
        Some(text) => parse_layout(text),
        None => Ok(defaults.layout.clone().unwrap_or_default()),
    }
}

/// Who holds the columns of a new map of `pool`, and `layout` with its failure domain settled. A command of an earlier version than
/// [`MOVABLE`] makes a column for each drive, as it did when that was the newest.
pub fn allot(state: &State, pool: &str, layout: &Layout, map: MapId, version: u32) -> Result<(Layout, Table), Refusal> {
    let candidates = candidates(state, pool);
    let table =
        if version < MOVABLE { rotate(&candidates, layout) } else { allotted(&candidates, layout, map.0.into()) };
    let table = table.map_err(|error| match error {
        ChooseError::NoDrives => Refusal::NoDrives(pool.to_owned()),
        ChooseError::NoSite(_) => Refusal::NoSites { layout: layout.to_string() },
        ChooseError::ChainedDomain => Refusal::ChainedDomain { layout: layout.to_string() },
        ChooseError::TooFew(rule) => Refusal::Layout { rule: rule.to_string() },
    })?;
    Ok((Layout { domain: Some(table.domain), ..layout.clone() }, table))
}

/// The drives of `pool` that are up on servers that are up, but for spares and those that are to be emptied.
fn candidates<'a>(state: &'a State, pool: &'a str) -> Vec<Candidate<'a>> {
    let candidate = |drive: &'a Arc<DriveRecord>| {
        let server = state.servers.get(&drive.server)?;
        let is_up = drive.state == DriveState::Up && server.state == ServerState::Up;
        let is_in_use = drive.purpose == DriveUse::Active && !server.draining;
        let (id, site, capacity) = (drive.id, server.site.as_deref(), drive.capacity);
        (is_up && is_in_use).then_some(Candidate { drive: id, server: server.id, site, capacity })
    };
    state.drives_of_pool(pool).filter_map(candidate).collect()
}
