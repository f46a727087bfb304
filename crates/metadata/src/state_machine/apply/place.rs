//! Which drives hold the columns of a new volume's map, and what its copies must not share: [`tepal_placement`] says it of the
//! drives of a pool that are up and in use.

use super::clipped;
use super::drives::parse_layout;
use crate::command::MOVABLE;
use crate::record::{DriveRecord, DriveState, DriveUse, ServerState};
use crate::refusal::Refusal;
use crate::state::State;
use std::sync::Arc;
use tepal_model::layout::plexes::{Plexes, Subdisk};
use tepal_model::size::{Size, exact};
use tepal_model::{Layout, MapId, VolumeId};
use tepal_placement::{Candidate, ChooseError, Table, allot as allotted, rotate};

/// The layout of a new volume of `pool`: the pool's, if none is given.
pub fn wanted(state: &State, pool: &str, layout: Option<&str>) -> Result<Layout, Refusal> {
    let defaults = state.pools.get(pool).ok_or_else(|| Refusal::NoPool(clipped(pool, 140)))?;
    match layout {
        Some(text) => parse_layout(text),
        None => Ok(defaults.layout.clone().unwrap_or_default()),
    }
}

/// Who holds the columns of a new map of `pool`, and `layout` with its failure domain settled. `own` is the map from which a volume goes
/// to the new one. A command of an earlier version than [`MOVABLE`] makes a column for each drive, as it did when that was the newest.
pub fn allot(
    state: &State,
    pool: &str,
    layout: &Layout,
    (map, own): (MapId, Option<MapId>),
    version: u32,
) -> Result<(Layout, Table), Refusal> {
    check_subdisks(state, layout, own)?;
    let candidates = candidates(state, pool);
    let table = if version < MOVABLE && layout.plexes().is_none() {
        rotate(&candidates, layout)
    } else {
        allotted(&candidates, layout, map.0.into())
    };
    let table = table.map_err(|error| match error {
        ChooseError::NoDrives => Refusal::NoDrives(pool.to_owned()),
        ChooseError::NoSite(_) => Refusal::NoSites { layout: layout.to_string() },
        ChooseError::ChainedDomain => Refusal::ChainedDomain { layout: layout.to_string() },
        ChooseError::TooFew(rule) | ChooseError::Explicit(rule) => Refusal::Layout { rule: rule.to_string() },
    })?;
    let fewest = table.columns.iter().map(|holders| holders.len()).min().unwrap_or(0);
    if layout.plexes().is_some() && layout.fragments().are_copies() && usize::from(layout.min_copies) > fewest {
        let (min, plural) = (layout.min_copies, if fewest == 1 { "y" } else { "ies" });
        let rule = format!("min_copies={min}, and some of the volume has {fewest} cop{plural}, as its plexes lie");
        return Err(Refusal::Layout { rule });
    }
    Ok((Layout { domain: Some(table.domain), ..layout.clone() }, table))
}

/// Refuses subdisks that aren't within their drives, or are where those of another map are. Those of `own`, from which a volume goes, may
/// stay where they are.
fn check_subdisks(state: &State, layout: &Layout, own: Option<MapId>) -> Result<(), Refusal> {
    let Some(plexes) = layout.plexes() else { return Ok(()) };
    let others = state.maps.values().filter(|map| Some(map.id) != own);
    let others = others.filter_map(|map| Some((map.volume, map.layout.plexes()?)));
    let taken: Vec<(VolumeId, &Subdisk)> =
        others.flat_map(|(volume, plexes)| plexes.subdisks().map(move |disk| (volume, disk))).collect();
    let own = own.and_then(|own| state.maps.get(&own)?.layout.plexes());
    let had: Vec<&Subdisk> = own.into_iter().flat_map(Plexes::subdisks).collect();
    // What stays is no news, whoever has it too: a clone that was flattened has the same subdisks as its origin.
    let stays = |disk: &Subdisk| {
        had.iter().any(|had| had.overlaps(disk) && had.length == disk.length && had.end() == disk.end())
    };
    for disk in plexes.subdisks().filter(|disk| !stays(disk)) {
        let capacity = state.drives.get(&disk.drive).map_or(0, |record| record.capacity);
        if disk.end() > capacity {
            let (drive, end, capacity) = (disk.drive, exact(disk.end()), Size(capacity));
            let rule = format!("drive {drive} has {capacity}, and a subdisk ends at {end}");
            return Err(Refusal::Layout { rule });
        }
        if let Some((volume, other)) = taken.iter().find(|(_, other)| other.overlaps(disk)) {
            let name = state.volumes.get(volume).map_or_else(|| volume.0.to_string(), |record| record.name.clone());
            let (drive, offset, length) = (disk.drive, exact(other.drive_offset), exact(other.length));
            let rule = format!("a subdisk of volume '{name}' has {length} of drive {drive} from {offset} on");
            return Err(Refusal::Layout { rule });
        }
    }
    Ok(())
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
