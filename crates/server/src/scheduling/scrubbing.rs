//! Scrubs of schedules: one volume at a time, so that each is done in its time.

use super::{Clock, covered, leads};
use crate::api::Steward;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tepal_metadata::{Metadata, ScheduleCommand, ScheduleRecord, State, VolumeRecord, Work};
use tepal_model::VolumeId;
use tepal_model::schedule::{scrub_due_ms, scrub_time_ms};

/// How often it's looked for a volume that is due.
const LOOK: Duration = Duration::from_secs(1);
/// The longest that a volume waits whose scrub wasn't whole.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);
/// A scrub that seems to begin later than that is from before the clock was set back: who knows when it was.
const AHEAD_MS: u64 = 60_000;

/// When a volume's last whole scrub began, or when it was made if there was none; 0 if nobody knows.
pub fn unscrubbed_since_ms(state: &State, volume: &VolumeRecord, now_ms: u64) -> u64 {
    let scrubbed = state.schedules.scrubs.get(&volume.id).map(|record| record.begun_unix_ms);
    let since = scrubbed.unwrap_or(volume.created_unix_ms);
    if since > now_ms.saturating_add(AHEAD_MS) { 0 } else { since }
}

/// When the next volume of such a schedule is to be scrubbed.
pub fn next_scrub_ms(state: &State, schedule: &ScheduleRecord, now_ms: u64) -> Option<u64> {
    let Work::Scrubs { within_s, .. } = &schedule.work else { return None };
    let volumes = covered(state, &schedule.work);
    volumes.map(|volume| scrub_due_ms(unscrubbed_since_ms(state, volume, now_ms), *within_s)).min()
}

/// A volume that is to be scrubbed now, and why.
type Wanted = (Arc<ScheduleRecord>, Arc<VolumeRecord>, u64);

/// The volume that is due for the longest, but for these.
fn next(state: &State, now_ms: u64, but: impl Fn(VolumeId) -> bool) -> Option<Wanted> {
    let mut wanted: Option<(u64, Wanted)> = None;
    for schedule in state.schedules.by_id.values().filter(|schedule| !schedule.paused) {
        let Work::Scrubs { within_s, .. } = &schedule.work else { continue };
        for volume in covered(state, &schedule.work).filter(|volume| !but(volume.id)) {
            let due = scrub_due_ms(unscrubbed_since_ms(state, volume, now_ms), *within_s);
            if due <= now_ms && wanted.as_ref().is_none_or(|(first, _)| due < *first) {
                wanted = Some((due, (schedule.clone(), volume.clone(), *within_s)));
            }
        }
    }
    wanted.map(|(_, wanted)| wanted)
}

/// How long a volume waits whose scrub wasn't whole.
fn wait(within_s: u64) -> Duration {
    Duration::from_secs((within_s / 20).max(1)).min(LONGEST_WAIT)
}

/// Until the server stops.
pub async fn keep_scrubbing(metadata: Metadata, steward: Steward, clock: Clock) {
    let mut failed: BTreeMap<VolumeId, Instant> = BTreeMap::new();
    loop {
        tokio::time::sleep(LOOK).await;
        if !leads(&metadata) {
            failed.clear();
            continue;
        }
        let (state, now) = (metadata.state(), Instant::now());
        failed.retain(|_, until| *until > now);
        let Some((schedule, volume, within_s)) = next(&state, clock(), |id| failed.contains_key(&id)) else { continue };
        let sizes = steward.sizes().await;
        let size = |volume: &Arc<VolumeRecord>| sizes.get(&volume.id).copied().unwrap_or(0);
        let all = covered(&state, &schedule.work).map(size).sum();
        let take = Duration::from_millis(scrub_time_ms(within_s, size(&volume), all));
        let since = state.schedules.scrubs.get(&volume.id).map_or(0, |record| record.begun_unix_ms);
        let scrubbed = steward.scrub(&volume, Some(take), since).await;
        let at_unix_ms = clock();
        let error = match scrubbed {
            Ok((begun_unix_ms, done_unix_ms)) => {
                let command = ScheduleCommand::Scrubbed { volume: volume.id, begun_unix_ms, done_unix_ms };
                steward.agree(&schedule, command).await.err()
            }
            Err(error) => Some(error),
        };
        if error.is_some() {
            failed.insert(volume.id, Instant::now() + wait(within_s));
        }
        let error = error.map(|error| format!("volume {}: {error}", volume.name));
        let ran = ScheduleCommand::Ran { schedule: schedule.id, due: None, at_unix_ms, missed: None, error };
        if let Err(error) = steward.agree(&schedule, ran).await {
            tracing::debug!(schedule = schedule.name, error, "what came of a scrub isn't noted");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scrub_that_was_not_whole_is_tried_again_before_its_time_is_over() {
        for (within_s, seconds) in [(10, 1), (3600, 180), (30 * 86_400, 3600)] {
            assert_eq!(wait(within_s), Duration::from_secs(seconds));
        }
    }
}
