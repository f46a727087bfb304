//! Which drives a new volume's map names, in which order, and what its copies must not share.
//!
//! Copies of an extent are on neighbours in the map, its end and beginning being neighbours too (Petal 2.4). So the
//! order decides what the copies share. Invariant: any `copies` positions in a row are on different failure domains.

use crate::record::{DriveState, ServerState};
use crate::refusal::Refusal;
use crate::state::State;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use tepal_model::layout::{FailureDomain, LayoutError, Protection};
use tepal_model::{DriveId, Layout, ServerId};

/// The drives for a new map of `pool`, and `layout` with its failure domain settled.
pub fn allot(state: &State, pool: &str, layout: &Layout) -> Result<(Layout, Vec<DriveId>), Refusal> {
    let mut groups = usable_drives(state, pool);
    let copies = usize::from(layout.copies());
    let drives = groups.iter().map(Vec::len).sum();
    if drives == 0 {
        return Err(Refusal::NoDrives(pool.to_owned()));
    }
    let domain = match (layout.protection, layout.domain) {
        (_, Some(FailureDomain::Site)) => return Err(Refusal::NoSites { layout: layout.to_string() }),
        (Protection::Chained, Some(FailureDomain::Drive)) => {
            return Err(Refusal::ChainedDomain { layout: layout.to_string() });
        }
        (Protection::Chained, _) => FailureDomain::Server,
        (_, Some(domain)) => domain,
        (_, None) if groups.len() >= copies => FailureDomain::Server,
        (_, None) => FailureDomain::Drive,
    };
    let found = if domain == FailureDomain::Drive { drives } else { groups.len() };
    if found < copies {
        let rule = LayoutError::TooFewDomains { layout: layout.to_string(), copies: layout.copies(), domain, found };
        return Err(Refusal::Layout { rule: rule.to_string() });
    }
    if domain == FailureDomain::Server {
        leave_out(&mut groups, copies);
    }
    Ok((Layout { domain: Some(domain), ..layout.clone() }, in_order(groups)))
}

/// The drives of `pool` that are up on servers that are up, by server.
fn usable_drives(state: &State, pool: &str) -> Vec<Vec<DriveId>> {
    let server_up = |id: ServerId| state.servers.get(&id).is_some_and(|server| server.state == ServerState::Up);
    let mut groups: BTreeMap<ServerId, Vec<DriveId>> = BTreeMap::new();
    for drive in state.drives_of_pool(pool) {
        if drive.state == DriveState::Up && server_up(drive.server) {
            groups.entry(drive.server).or_default().push(drive.id);
        }
    }
    groups.into_values().collect()
}

/// How many positions in a row can all be on different servers: the fullest server's drives come round that often.
fn spread(groups: &[Vec<DriveId>]) -> usize {
    let drives: usize = groups.iter().map(Vec::len).sum();
    let fullest = groups.iter().map(Vec::len).max().unwrap_or(0);
    drives.checked_div(fullest).unwrap_or(0)
}

/// Leaves out drives of the fullest servers, as few as will do, until the drives can be spread over `copies` servers.
fn leave_out(groups: &mut [Vec<DriveId>], copies: usize) {
    while spread(groups) < copies {
        let fullest = groups.iter().map(Vec::len).max().unwrap_or(0);
        assert!(fullest > 1, "one drive of each of {} servers is spread enough for {copies}", groups.len());
        groups.iter_mut().for_each(|drives| drives.truncate(fullest - 1));
    }
}

/// Deals the drives, the fullest server's first, in turn to rows, and puts the rows one after another. There are at
/// least as many rows as the fullest server has drives, and each is at least `spread` long. So a server comes round
/// at the same place of the next row or later, or, if its drives were dealt over the last row and then the first, it
/// skips a row.
fn in_order(mut groups: Vec<Vec<DriveId>>) -> Vec<DriveId> {
    groups.sort_by_key(|drives| Reverse(drives.len()));
    let dealt: Vec<DriveId> = groups.iter().flatten().copied().collect();
    let rows = dealt.len() / spread(&groups).max(1);
    (0..rows).flat_map(|row| dealt.iter().skip(row).step_by(rows)).copied().collect()
}
