//! Schedules that are run: snapshots at their times, those that aren't kept any more removed, volumes scrubbed in time.
//!
//! The server that leads the metadata does it. When another one leads, that goes on from what is agreed: the times up to which runs are
//! over, the snapshots that were made, the scrubs that were whole. Nothing is decided by a clock alone, as clocks jump: see
//! [`tepal_metadata::ScheduleCommand`] for what is refused.
//!
//! 1. [`keep_running`] looks several times a second whether something is due. A run that can't be carried out is tried for a while.
//! 2. [`keep_expiring`] removes what isn't kept any more. What is in use, or has clones, stays, which is said once.
//! 3. [`keep_scrubbing`] has one volume at a time scrubbed, first the one that has waited for the longest.

mod runs;
mod scrubbing;

pub use runs::{covered, keep_running};
pub use scrubbing::{keep_scrubbing, next_scrub_ms, unscrubbed_since_ms};

use crate::api::Steward;
use futures_util::StreamExt;
use futures_util::stream;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tepal_metadata::{MadeRecord, Metadata, ScheduleRecord, Schedules};
use tepal_model::{Epoch, VolumeId};

/// How often it's looked for what isn't kept any more.
const LOOK: Duration = Duration::from_secs(1);
/// What couldn't be removed is looked at again after that time.
const HELD_AGAIN: Duration = Duration::from_secs(10);
/// Of runs, or removals, so many are under way.
const AT_ONCE: usize = 8;

/// Tells milliseconds since 1970.
pub type Clock = fn() -> u64;

/// The wall clock, in milliseconds since 1970. Whoever looks at it takes care that it may jump.
pub fn wall_clock_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

fn leads(metadata: &Metadata) -> bool {
    metadata.leader() == Some(metadata.server())
}

/// Snapshots that their schedules don't keep any more.
fn surplus(schedules: &Schedules) -> Vec<(Arc<ScheduleRecord>, Arc<MadeRecord>)> {
    let mut all = Vec::new();
    for (volume, made) in &schedules.made {
        let mut ids: Vec<u64> = made.values().map(|made| made.schedule).collect();
        ids.sort_unstable();
        ids.dedup();
        for schedule in ids.iter().filter_map(|id| schedules.by_id.get(id)) {
            all.extend(schedules.surplus(schedule, *volume).into_iter().map(|made| (schedule.clone(), made)));
        }
    }
    all
}

/// Until the server stops.
pub async fn keep_expiring(metadata: Metadata, steward: Steward) {
    let mut tried: BTreeMap<(VolumeId, Epoch), Instant> = BTreeMap::new();
    let mut seen: Option<Arc<Schedules>> = None;
    loop {
        tokio::time::sleep(LOOK).await;
        if !leads(&metadata) {
            (tried, seen) = (BTreeMap::new(), None);
            continue;
        }
        let schedules = metadata.state().schedules.clone();
        tried.retain(|_, at| at.elapsed() < HELD_AGAIN);
        let is_news = seen.as_ref().is_none_or(|seen| !Arc::ptr_eq(seen, &schedules));
        if !is_news {
            continue;
        }
        let all = surplus(&schedules);
        seen = Some(schedules);
        let mut now = all.clone();
        now.retain(|(_, made)| !tried.contains_key(&(made.volume, made.epoch)));
        let removing = stream::iter(now).map(|(schedule, made)| {
            let steward = &steward;
            async move { (made.volume, made.epoch, steward.expire(&schedule, &made).await) }
        });
        let ended: Vec<_> = removing.buffer_unordered(AT_ONCE).collect().await;
        let left = ended.into_iter().filter(|(.., is_gone)| !is_gone);
        tried.extend(left.map(|(volume, epoch, _)| ((volume, epoch), Instant::now())));
        if all.is_empty() {
            continue;
        }
        // Somebody may have let go of one.
        seen = None;
    }
}
