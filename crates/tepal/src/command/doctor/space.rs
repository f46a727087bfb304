//! Room: what is left when the largest failure domain is lost, and when drives will be full.

use super::findings::{Finding, Severity};
use super::seen::Seen;
use crate::output;
use std::collections::BTreeMap;
use std::time::Duration;
use tepal_server::api::types::{DriveInfo, DriveState, DriveUse, PoolInfo};

/// Time to buy a drive.
const SOON: Duration = Duration::from_secs(14 * 24 * 3600);
/// Fewer domains can't make a lost copy again, however much room they have.
const FEWEST: usize = 3;

pub fn findings(seen: &Seen) -> Vec<Finding> {
    seen.pools.iter().filter_map(|pool| of_pool(seen, pool)).chain(forecast(seen)).collect()
}

/// Used and free bytes by what is lost together: servers where there are enough, else drives.
fn domains(seen: &Seen, pool: &PoolInfo) -> BTreeMap<String, (u64, u64)> {
    let counts = |drive: &&DriveInfo| {
        let is_there = drive.state == DriveState::Up && drive.purpose == DriveUse::Active;
        drive.pool == pool.name && is_there && drive.open.is_some()
    };
    let of = |name: &dyn Fn(&DriveInfo) -> String| {
        let mut all: BTreeMap<String, (u64, u64)> = BTreeMap::new();
        for drive in seen.drives.iter().filter(counts) {
            let (used, free) = all.entry(name(drive)).or_default();
            *used += drive.used;
            *free += drive.capacity.saturating_sub(drive.used);
        }
        all
    };
    let by_server = of(&|drive| format!("server {}", drive.server));
    if by_server.len() >= FEWEST { by_server } else { of(&|drive| format!("drive {}", drive.called())) }
}

fn of_pool(seen: &Seen, pool: &PoolInfo) -> Option<Finding> {
    // Where nothing has a second copy, nothing can be made again.
    let has_copies = seen.volumes.iter().any(|volume| volume.pool == pool.name && volume.domain.is_some());
    let domains = domains(seen, pool);
    if !has_copies || domains.len() < FEWEST {
        return None;
    }
    let (largest, (used, own_free)) = domains.iter().max_by_key(|(_, (used, _))| *used)?;
    let free = domains.values().map(|(_, free)| free).sum::<u64>() - own_free;
    if free >= *used {
        return None;
    }
    let what = format!(
        "pool {} has too little room to make copies again after the loss of {largest}: that has {}, and {} are free elsewhere",
        pool.name,
        output::size(*used),
        output::size(free)
    );
    let why = "all is served after such a loss, but some of it stays without a second copy until there's room";
    let finding = Finding::new(Severity::Warning, format!("pool {}", pool.name), what, why);
    let add = format!("tepal drive add SERVER /dev/NEW --pool {}", pool.name);
    Some(
        finding
            .run(format!("add {} or more, on another server than the largest", output::size(used - free)), add)
            .run("or see which snapshots keep much, and remove what nobody needs", "tepal snapshot ls"),
    )
}

fn forecast(seen: &Seen) -> Option<Finding> {
    let usage = seen.usage.as_ref()?;
    let left = Duration::from_secs(usage.full_in_seconds?);
    // What was noted for less than a tenth of that time says little.
    let noted = Duration::from_secs(usage.noted_seconds);
    if left > SOON || noted * 10 < left {
        return None;
    }
    let what = format!(
        "drives will be full in {} if it goes on as in the last {}: {} of {} are used",
        output::span(left),
        output::span(noted),
        output::size(usage.used),
        output::size(usage.capacity)
    );
    let finding = Finding::new(Severity::Warning, "space", what, "writes that need new space fail then");
    let finding = finding.run("see which volume grows", "tepal volume ls");
    Some(finding.run("add drives before that", "tepal drive add SERVER /dev/NEW"))
}
